//! Policy on ports: the keys of `[port.NAME]` that say what a switch lets the port send and receive, and in which form.

use super::objects::{RemoveError, request};
use super::{Fabric, flows, mirror, named};
use crate::kinds::link;
use ringway_spec::file::units;
use ringway_spec::file::{Diagnostics, Section, either, nearest, parse, typed_keys_of};
use ringway_spec::{IpNet, Policy, Port, Rate, To, Vlans, addresses};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// The VLANs that frames can be in (IEEE 802.1Q, 9.6).
pub(super) const VLANS: RangeInclusive<u16> = 1..=Vlans::COUNT - 2;

/// Bytes that may come at once. Fewer than 65 KB would never let a frame of 64 KB with pending segmentation pass.
const BURSTS: RangeInclusive<u64> = (65 << 10)..=(1 << 30);
/// An example of the addresses of a port.
const ALLOW: &str = "[\"10.0.0.2\", \"2001:db8::/64\"]";

/// The keys.
pub fn keys() -> Vec<&'static str> {
    typed_keys_of("port.a", |section, _| policy(section)).0
}

/// Reads the policy on a port.
pub fn policy(section: &mut Section<'_>) -> Policy {
    let limits = || u64::from(*VLANS.start())..=u64::from(*VLANS.end());
    let tag = section.number("tag", limits()).and_then(|tag| u16::try_from(tag).ok());
    let trunks = section.ranges("trunks", VLANS, "[10, \"20-29\"]");
    let native = section.number("native", limits()).and_then(|native| u16::try_from(native).ok());
    let service_tag = section.number("service-tag", limits()).and_then(|tag| u16::try_from(tag).ok());
    let protocol = section.word("vlan-protocol", &[("802.1q", false), ("802.1ad", true)]);
    let isolated = section.boolean("isolated").unwrap_or(false);
    let allow_mac = section.parsed("allow-mac", "02:00:00:00:00:01", addresses::station);
    let allow = section.all_parsed("allow", ("a list of addresses", ALLOW), addresses::network);
    if section.has("tag") && section.has("trunks") {
        let fix = "keep `tag` on a port of one VLAN, `trunks` on one of several, whose `native` has no tags";
        section.error("tag", "`tag` and `trunks` are both there", fix);
    }
    if section.has("service-tag") && (section.has("tag") || section.has("trunks")) {
        let fix =
            "keep `service-tag` on a port whose frames have a customer's own tags, or `tag` or `trunks`";
        section.error("service-tag", "`service-tag` is there beside `tag` or `trunks`", fix);
    }
    if section.has("vlan-protocol") && !section.has("trunks") {
        let fix = "add `trunks`, the VLANs that have tags of this type";
        section.error("vlan-protocol", "`vlan-protocol` is there without `trunks`", fix);
    }
    if section.has("native") && !section.has("trunks") {
        let fix = "add `trunks`, or write `tag` on a port of one VLAN";
        section.error("native", "`native` is there without `trunks`", fix);
    }
    if trunks.as_ref().is_some_and(Vec::is_empty) {
        section.error("trunks", "`trunks` is empty", "name VLANs, or leave it out: all VLANs pass then");
    }
    if let Some(allow) = &allow {
        check_allow(section, allow);
    }
    let trunk = |carried| Vlans::Trunk { carried, native, service: protocol.unwrap_or(false) };
    let vlans = tag.map(Vlans::Access).or(service_tag.map(Vlans::Customer)).or_else(|| trunks.map(trunk));
    let (rate_from, rate_to) =
        (rate(section, "rate-from", "burst-from"), rate(section, "rate-to", "burst-to"));
    let storm = section.rate("storm", 1..=1_000_000_000);
    let learn_rate = section.number("learn-rate", 1..=1_000_000);
    let allow = allow.unwrap_or_default();
    let mirror = mirror::read(section);
    let reassembly = section.boolean("reassembly");
    Policy { vlans, isolated, allow_mac, allow, rate_from, rate_to, storm, learn_rate, mirror, reassembly }
}

/// Reads the rate of a direction.
fn rate(section: &mut Section<'_>, key: &'static str, burst_key: &'static str) -> Option<Rate> {
    let bits = section.parsed(key, "100Mb/s", units::bits);
    let burst = section.size(burst_key, BURSTS);
    if section.has(burst_key) && !section.has(key) {
        let fix = format!("add `{key}`: the rate whose frames come at once");
        section.error(burst_key, format!("`{burst_key}` is there without `{key}`"), fix);
    }
    bits.map(|bits| Rate { bits, burst })
}

fn check_allow(section: &Section<'_>, allow: &[IpNet]) {
    let most = Policy::MOST_NETWORKS;
    if allow.is_empty() {
        section.error("allow", "`allow` is empty", "name addresses, or leave it out: all are allowed then");
    } else if allow.len() > most {
        let what = format!("`allow` has {} entries", allow.len());
        section.error("allow", what, format!("use {most} at most: networks instead of addresses"));
    }
}

/// The keys of a policy, in the syntax of the file.
pub fn texts(policy: &Policy) -> BTreeMap<String, String> {
    let unquoted = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    values(policy).into_iter().map(|(key, value)| (key, unquoted(value))).collect()
}

/// The keys of a policy, as values of a request.
pub(super) fn values(policy: &Policy) -> Map<String, Value> {
    let Policy { vlans, isolated, allow_mac, allow, rate_from, rate_to, storm, learn_rate, .. } = policy;
    let mut values = Map::new();
    let mut add = |key: &str, value: Value| values.insert(key.into(), value);
    match vlans {
        Some(Vlans::Access(tag)) => drop(add("tag", (*tag).into())),
        Some(Vlans::Customer(tag)) => drop(add("service-tag", (*tag).into())),
        Some(Vlans::Trunk { carried, native, service }) => {
            add("trunks", list_of_ranges(carried).into());
            native.map(|native| add("native", native.into()));
            if *service {
                add("vlan-protocol", "802.1ad".into());
            }
        }
        None => {}
    }
    if *isolated {
        add("isolated", true.into());
    }
    if let Some(mac) = allow_mac {
        add("allow-mac", mac.to_string().into());
    }
    if !allow.is_empty() {
        let text = |net: &IpNet| match net.prefix_len() == net.max_prefix_len() {
            true => net.addr().to_string(),
            false => net.to_string(),
        };
        add("allow", allow.iter().map(text).collect::<Vec<_>>().join(",").into());
    }
    for (rate, keys) in [(rate_from, ["rate-from", "burst-from"]), (rate_to, ["rate-to", "burst-to"])] {
        let Some(Rate { bits, burst }) = rate else { continue };
        add(keys[0], units::show_bits(*bits).into());
        burst.map(|burst| add(keys[1], units::show_size(burst).into()));
    }
    storm.map(|storm| add("storm", units::show_rate(storm).into()));
    learn_rate.map(|addresses| add("learn-rate", addresses.into()));
    policy.reassembly.map(|joins| add("reassembly", joins.into()));
    values.extend(policy.mirror.iter().flat_map(mirror::values));
    values
}

/// Ranges of VLANs, in the syntax of the file.
pub(super) fn list_of_ranges(ranges: &[(u16, u16)]) -> String {
    let range = |(first, last): &(u16, u16)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

/// Checks that ports with policies are on switches, which apply them, and what ports mirror.
pub fn check(fabric: &Fabric, diagnostics: &Diagnostics) {
    mirror::check(fabric, diagnostics);
    flows::check(fabric, diagnostics);
    let wrong = |port: &&Port| !port.policy.restricts_nothing() && !matches!(port.to, Some(To::Switch(_)));
    for Port { name, policy, .. } in fabric.ports.iter().filter(wrong) {
        let keys = restrictions(policy);
        let key = keys.first().map_or("", |key| &**key);
        let what = format!("port {name} has `{key}`, but is not on a switch itself");
        let fix = "give the port a `switch`, and no `link`: a switch applies policies to its own ports";
        diagnostics.error(&diagnostics.of(&format!("port.{name}.{key}")), what, fix);
    }
}

/// The keys of what a policy restricts.
pub(super) fn restrictions(policy: &Policy) -> Vec<String> {
    match policy.restricts_nothing() {
        true => Vec::new(),
        false => values(&Policy { mirror: None, ..policy.clone() }).keys().cloned().collect(),
    }
}

/// Why a policy is not changed.
#[derive(Debug)]
pub enum SetError {
    /// There is no such port.
    Unknown(RemoveError),
    /// The request is wrong.
    Wrong(String),
}

/// Removes the keys that contradict new values, or lack what they need with them.
fn remove_contradicted(all: &mut Map<String, Value>, changes: &Map<String, Value>) {
    let is_set = |key: &str| changes.get(key).is_some_and(|value| !value.is_null());
    let of_trunks = ["trunks", "native", "vlan-protocol"];
    if is_set("tag") || is_set("service-tag") {
        let other = if is_set("tag") { "service-tag" } else { "tag" };
        all.retain(|key, _| !of_trunks.contains(&&**key) && key != other);
    } else if is_set("trunks") {
        all.retain(|key, _| key != "tag" && key != "service-tag");
    }
    for (key, dependent) in [
        ("trunks", "native"),
        ("trunks", "vlan-protocol"),
        ("rate-from", "burst-from"),
        ("rate-to", "burst-to"),
    ] {
        if changes.get(key).is_some_and(Value::is_null) {
            all.remove(dependent);
        }
    }
    if is_set("mirror") {
        all.retain(|key, _| key != "mirror-switch");
    } else if is_set("mirror-switch") {
        all.remove("mirror");
    }
    let ends_mirror = |key: &str| all.contains_key(key) && changes.get(key).is_some_and(Value::is_null);
    if ["mirror", "mirror-switch"].into_iter().any(ends_mirror) {
        all.retain(|key, _| !mirror::DEPENDENT.contains(&&**key));
    }
}

/// The fabric with other values of these keys of a port; null is the default. Keys that contradict a new value, as
/// `trunks` does a new `tag`, go unless the request has them too.
///
/// # Errors
/// There is no such port, or all errors in the request, each with the JSON pointer of its value.
pub fn with_port_keys(name: &str, changes: Map<String, Value>, fabric: &Fabric) -> Result<Fabric, SetError> {
    let Some(port) = fabric.port(name) else {
        return Err(SetError::Unknown(RemoveError::Unknown { what: "port", name: name.into() }));
    };
    if link::of(port).is_some() {
        let wrong = format!(
            "port {name} is an end of a link, which has no policy: give the port a `switch`, and no `link`"
        );
        return Err(SetError::Wrong(wrong));
    }
    let known = keys();
    let mut all = values(&port.policy);
    remove_contradicted(&mut all, &changes);
    for (key, value) in changes {
        if !known.contains(&&*key) {
            let fix = match nearest(&key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("{} can change while the port runs", either(known.iter().copied())),
            };
            return Err(SetError::Wrong(format!("a port has no setting `{}`; {fix}", key.escape_debug())));
        }
        all.insert(key, value);
    }
    all.insert("name".into(), "a".into());
    let text = request("port", all).map_err(SetError::Wrong)?.text;
    let diagnostics = Diagnostics::default();
    let table = parse(&text, usize::MAX, &diagnostics);
    let mut target = fabric.clone();
    for mut section in named(table.get_ref(), "port", &diagnostics) {
        let read = policy(&mut section);
        section.finish(|_| None);
        target.ports.iter_mut().filter(|port| port.name == name).for_each(|port| port.policy = read.clone());
    }
    if !diagnostics.has_errors() {
        check(&target, &diagnostics);
        let is_left_alone =
            |port: &&Port| port.name == name && port.to.is_none() && port.policy.mirror.is_none();
        if fabric.port(name).is_some_and(|port| port.policy.mirror.is_some())
            && target.ports.iter().any(|port| is_left_alone(&port))
        {
            let what = format!("port {name} is on no switch, and gets nothing but copies");
            diagnostics.error(&(0..0), what, "let it mirror others, or remove it: `ringway port remove`");
        }
    }
    match diagnostics.has_errors() {
        true => Err(SetError::Wrong(diagnostics.into_messages("port.a"))),
        false => Ok(target),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Host, read};
    use serde_json::json;

    const FABRIC: &str = "[switch.s]\n[port.a]\nkind='null'\nswitch='s'\ntrunks=[10, '20-29']\nnative=1\n\
        [port.b]\nkind='null'\nswitch='s'\n[port.p]\nkind='null'\n[port.q]\nkind='null'\n\
        [patch.x]\nports=['p','q']\n";

    fn fabric() -> Fabric {
        let host = Host { cores: vec![0], ..Host::default() };
        read("f", FABRIC, &host).unwrap()
    }

    fn set(name: &str, changes: Value) -> Result<BTreeMap<String, String>, String> {
        let Value::Object(changes) = changes else { unreachable!() };
        match with_port_keys(name, changes, &fabric()) {
            Ok(target) => Ok(texts(&target.port(name).unwrap().policy)),
            Err(SetError::Unknown(error)) => Err(error.to_string()),
            Err(SetError::Wrong(wrong)) => Err(wrong),
        }
    }

    #[test]
    fn values_change_and_those_that_contradict_them_go() {
        let texts = |list: &[(&str, &str)]| {
            Ok(list.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
        };
        assert_eq!(set("a", json!({})), texts(&[("native", "1"), ("trunks", "10,20-29")]));
        assert_eq!(set("a", json!({ "tag": 7 })), texts(&[("tag", "7")]));
        assert_eq!(set("a", json!({ "trunks": null, "isolated": true })), texts(&[("isolated", "true")]));
        assert_eq!(set("a", json!({ "trunks": "5" })), texts(&[("native", "1"), ("trunks", "5")]));
        assert_eq!(set("b", json!({ "trunks": [5, "7-9"] })), texts(&[("trunks", "5,7-9")]));
        assert_eq!(set("b", json!({ "isolated": false })), texts(&[]));
        assert_eq!(set("b", json!({ "reassembly": false })), texts(&[("reassembly", "false")]));
        assert_eq!(set("p", json!({ "reassembly": true })), texts(&[("reassembly", "true")]), "in a patch");
        assert_eq!(set("a", json!({ "service-tag": 7 })), texts(&[("service-tag", "7")]));
        let service = [("native", "1"), ("trunks", "10,20-29"), ("vlan-protocol", "802.1ad")];
        assert_eq!(set("a", json!({ "vlan-protocol": "802.1ad" })), texts(&service));
        let limits =
            json!({ "rate-from": "100Mb/s", "burst-from": "1MB", "rate-to": "1.5Gbit", "storm": "1kpps" });
        let shown =
            [("burst-from", "1MB"), ("rate-from", "100Mbit"), ("rate-to", "1500Mbit"), ("storm", "1kpps")];
        assert_eq!(set("b", limits), texts(&shown));
        assert_eq!(set("b", json!({ "learn-rate": 50 })), texts(&[("learn-rate", "50")]));
        let allowed =
            texts(&[("allow", "10.0.0.2,10.0.1.0/24,2001:db8::/64"), ("allow-mac", "02:00:00:00:00:01")]);
        let nets = "10.0.0.2, 10.0.1.0/24,2001:db8::/64";
        assert_eq!(set("b", json!({ "allow": nets, "allow-mac": "02:00:00:00:00:01" })), allowed);
        let nets = ["10.0.0.2/32", "10.0.1.0/24", "2001:db8::/64"];
        assert_eq!(set("b", json!({ "allow": nets, "allow-mac": "02:00:00:00:00:01" })), allowed);
    }

    #[test]
    fn a_mirror_ends_with_what_it_needs() {
        let texts = |list: &[(&str, &str)]| {
            Ok(list.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect())
        };
        let keys = [("mirror", "a,p"), ("mirror-direction", "from"), ("mirror-snap", "128")];
        let changes = json!({ "mirror": ["a", "p"], "mirror-direction": "from", "mirror-snap": 128 });
        assert_eq!(set("b", changes), texts(&keys));
        let changes = json!({ "mirror-switch": "s", "mirror-vlans": "1,4-9", "mirror-tag": 9 });
        let keys = [("mirror-switch", "s"), ("mirror-tag", "9"), ("mirror-vlans", "1,4-9")];
        assert_eq!(set("b", changes), texts(&keys));
        let patched = set("q", json!({ "mirror": "a" })).unwrap_err();
        assert!(patched.contains("port q mirrors others, and is joined to p"), "{patched}");
        let Value::Object(changes) = json!({ "mirror": "a", "mirror-tag": 9 }) else { unreachable!() };
        let mirrored = with_port_keys("b", changes, &fabric()).unwrap();
        let then = |changes: Value| {
            let Value::Object(changes) = changes else { unreachable!() };
            match with_port_keys("b", changes, &mirrored) {
                Ok(target) => Ok(super::texts(&target.port("b").unwrap().policy)),
                Err(SetError::Wrong(wrong)) => Err(wrong),
                Err(SetError::Unknown(error)) => Err(error.to_string()),
            }
        };
        assert_eq!(then(json!({ "mirror": null })), texts(&[]));
        assert_eq!(
            then(json!({ "mirror-switch": "s" })),
            texts(&[("mirror-switch", "s"), ("mirror-tag", "9")])
        );
        let needed = crate::file::without_port("a", &mirrored).unwrap_err().to_string();
        assert!(needed.starts_with("port b mirrors port a; "), "{needed}");
        let Value::Object(changes) = json!({ "mirror": "b" }) else { unreachable!() };
        let chain = with_port_keys("a", changes, &mirrored).map(drop);
        let Err(SetError::Wrong(chain)) = chain else { panic!("copies of copies") };
        assert!(chain.contains("port a mirrors port b, which gets copies itself"), "{chain}");
    }

    #[test]
    fn wrong_values_are_refused() {
        let wrong = |name: &str, changes: Value| set(name, changes).unwrap_err();
        assert!(wrong("x", json!({ "tag": 1 })).starts_with("there is no port \"x\"; "));
        assert_eq!(wrong("b", json!({ "tagg": 1 })), "a port has no setting `tagg`; did you mean `tag`?");
        assert!(wrong("b", json!({ "socket": "x" })).contains("`socket`; tag, "));
        for tag in [json!(0), json!(4095), json!(-1), json!("x"), json!(1.5), json!([1])] {
            assert!(wrong("b", json!({ "tag": tag })).starts_with("/tag: "), "{tag}");
        }
        for trunks in
            [json!([]), json!("9-3"), json!(4095), json!([0]), json!("1,,2"), json!([[1]]), json!({})]
        {
            assert!(wrong("b", json!({ "trunks": trunks })).starts_with("/trunks"), "{trunks}");
        }
        assert!(wrong("b", json!({ "native": 1 })).starts_with("/native: "));
        assert!(wrong("b", json!({ "tag": 1, "trunks": 2 })).starts_with("/tag: "));
        assert!(wrong("b", json!({ "service-tag": 1, "trunks": 2 })).starts_with("/service-tag: "));
        assert!(wrong("b", json!({ "vlan-protocol": "802.1ad" })).starts_with("/vlan-protocol: "));
        assert!(wrong("b", json!({ "isolated": 1 })).starts_with("/isolated: "));
        assert!(wrong("b", json!({ "reassembly": "on" })).starts_with("/reassembly: "));
        for (key, value) in [
            ("rate-from", json!("100Mbps")),
            ("rate-to", json!("10bit")),
            ("rate-to", json!(100)),
            ("burst-from", json!("64KB")),
            ("burst-to", json!("1MB")),
            ("storm", json!("0pps")),
            ("storm", json!(1000)),
            ("learn-rate", json!(0)),
            ("learn-rate", json!("5pps")),
            ("mirror", json!([])),
            ("mirror-snap", json!(128)),
            ("mirror-tag", json!(0)),
            ("mirror-direction", json!("in")),
            ("mirror-vlans", json!(4095)),
        ] {
            let said = wrong("b", json!({ key: value }));
            assert!(said.starts_with(&format!("/{key}: ")), "{key}: {said}");
        }
        for (key, value, what) in [
            ("mirror", "b", "port b mirrors itself"),
            ("mirror", "nobody", "there is no port \"nobody\""),
            ("mirror-switch", "t", "there is no switch \"t\""),
        ] {
            let said = wrong("b", json!({ key: value }));
            assert!(said.contains(what), "{said}");
        }
        for allow in [
            json!([]),
            json!("10.0.0.2/33"),
            json!("10.0.0.1/24"),
            json!(10),
            json!(["10.0.0.2,"]),
            json!([[1]]),
        ] {
            assert!(wrong("b", json!({ "allow": allow })).starts_with("/allow"), "{allow}");
        }
        let many: Vec<String> =
            (0..1025).map(|number| format!("10.0.{}.{}", number / 256, number % 256)).collect();
        assert!(wrong("b", json!({ "allow": many })).contains("`allow` has 1025 entries; use 1024 at most"));
        for mac in [json!("02:00"), json!("01:00:00:00:00:01"), json!("00:00:00:00:00:00"), json!(2)] {
            assert!(wrong("b", json!({ "allow-mac": mac })).starts_with("/allow-mac: "), "{mac}");
        }
        assert!(wrong("p", json!({ "tag": 1 })).contains("port p has `tag`, but is not on a switch itself"));
    }
}
