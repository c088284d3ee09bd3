//! The check that a program makes before a fabric is moved to it, in a process of its own: whether it can read
//! everything that it would go on with.

use super::FORMATS;
use crate::data::{KEPT, KeptData};
use crate::engine::{KeptFabric, KeptPort, kept_port};
use crate::file::{Fabric, Host};
use crate::keeper::StoredEntry;
use crate::kinds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The state of a running fabric, as its program gives it to another one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// Version of the program that runs.
    pub version: String,
    /// Numbers of all formats of the state, by name.
    pub formats: BTreeMap<String, u32>,
    /// What the keeper holds, by name.
    pub texts: BTreeMap<String, String>,
    /// What the keeper holds of each port's peer: keys and messages.
    pub records: BTreeMap<String, Vec<(u32, Vec<u8>)>>,
    /// Reasons against any upgrade: peers that would lose their devices.
    pub losses: Vec<String>,
    /// What else an upgrade brings about, for people.
    pub notes: Vec<String>,
}

/// The answer of another program to a [`Running`] fabric.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Version of the other program.
    pub version: String,
    /// Why the other program can't go on with the fabric; none if it can.
    pub problems: Vec<String>,
}

/// Why this program can't go on with a fabric that another one runs; nothing if it can.
pub fn check(running: &Running, host: &Host) -> Vec<String> {
    let problems = unreadable_formats(running);
    if !problems.is_empty() {
        // The rest can't be read.
        return problems;
    }
    let entry = |(name, text): (&String, &String)| {
        (name.clone(), StoredEntry { text: text.clone(), descriptors: Vec::new() })
    };
    let found = running.texts.iter().map(entry).collect();
    let fabric =
        KeptFabric::find(&found).ok_or_else(|| "this program can't read its description".to_string());
    match fabric.and_then(|kept| kept.fabric(host).map_err(|error| format!("its file: {error}"))) {
        Ok((fabric, _)) => unreadable_parts(running, &fabric, host),
        Err(error) => vec![error],
    }
}

/// Formats that this program does not read.
fn unreadable_formats(running: &Running) -> Vec<String> {
    let wrong = |(name, number): (&String, &u32)| {
        let known = FORMATS.iter().find(|format| format.name == name);
        let reads: Vec<String> = known?.reads.iter().map(ToString::to_string).collect();
        let is_read = known?.reads.contains(number);
        (!is_read).then(|| {
            let what = known.map_or("", |format| format.content);
            format!("it has {what} in format {name} {number}; this program reads {}", reads.join(", "))
        })
    };
    let unknown = running.formats.iter().filter(|(name, _)| FORMATS.iter().all(|known| known.name != *name));
    let unknown = unknown
        .map(|(name, number)| format!("it has format {name} {number}, which this program does not know"));
    running.formats.iter().filter_map(wrong).chain(unknown).collect()
}

/// Parts of the fabric with which this program can't go on.
fn unreadable_parts(running: &Running, fabric: &Fabric, host: &Host) -> Vec<String> {
    let mut problems = Vec::new();
    let mut text = |name: &str, is_read: fn(&str) -> bool| {
        if running.texts.get(name).is_some_and(|text| !is_read(text)) {
            problems.push(format!("this program can't read what is kept of {name}"));
        }
    };
    text(KEPT, |text| serde_json::from_str::<KeptData>(text).is_ok());
    for port in &fabric.ports {
        text(&kept_port(&port.name), |text| serde_json::from_str::<KeptPort>(text).is_ok());
    }
    for port in &fabric.ports {
        let Some(kind) = kinds::find(port.kind.name(), host.kinds) else {
            let (port, kind) = (&port.name, port.kind.name());
            problems.push(format!("port {port}: this program has no kind of port \"{kind}\""));
            continue;
        };
        if let Err(why) = kind.check_settings(&port.kind) {
            problems.push(format!("port {}: this program can't read its settings: {why}", port.name));
        }
        let records = running.records.get(&port.name).into_iter().flatten();
        let records: Vec<&[u8]> = records.map(|(_, bytes)| &**bytes).collect();
        if let Err(why) = kind.continues(port, &records) {
            problems.push(format!("port {}: {why}", port.name));
        }
    }
    problems
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::file;
    use ringway_vhost_user::Request;
    use ringway_vhost_user::feature::virtio;

    pub fn host() -> Host {
        Host { cores: vec![0, 1], base: Some("/run/ringway".into()), ..Host::default() }
    }

    const FILE: &str = "[fabric]\nname = \"lab\"\n[switch.s]\n[port.a]\nkind = \"vhost-user\"\n\
                        socket = \"a\"\nswitch = \"s\"\n[port.b]\nkind = \"null\"\nswitch = \"s\"\n";

    /// A fabric that this program runs, whose front-end acknowledged these features.
    fn running(features: u64) -> Running {
        let fabric = file::read("lab.toml", FILE, &host()).unwrap();
        let text = |value: &KeptPort| serde_json::to_string(value).unwrap();
        let port = KeptPort { counters: 0, queues: 1, has_peer: true };
        let kept = KeptFabric::new("lab.toml", FILE, fabric);
        let texts = [("fabric", serde_json::to_string(&kept).unwrap()), ("port/a", text(&port))];
        Running {
            version: "0.0.1".into(),
            formats: FORMATS.iter().map(|format| (format.name.into(), format.number)).collect(),
            texts: texts.map(|(name, text)| (name.to_string(), text)).into(),
            records: [("a".to_string(), vec![(1, Request::SetFeatures(features).encode(false).bytes)])]
                .into(),
            ..Running::default()
        }
    }

    fn only_problem(running: &Running) -> String {
        let problems = check(running, &host());
        assert_eq!(problems.len(), 1, "{problems:?}");
        problems.into_iter().next().unwrap()
    }

    #[test]
    fn a_program_goes_on_with_its_own_fabric() {
        assert_eq!(check(&running(virtio::VERSION_1), &host()), Vec::<String>::new());
        // What it is given comes as JSON.
        let text = serde_json::to_string(&running(0)).unwrap();
        assert_eq!(serde_json::from_str::<Running>(&text).unwrap(), running(0));
    }

    #[test]
    fn formats_of_other_versions_are_refused_by_name() {
        for format in FORMATS {
            let mut other = running(0);
            other.formats.insert(format.name.into(), format.number + 1);
            let problem = only_problem(&other);
            let expected = format!("in format {} {}; this program reads", format.name, format.number + 1);
            assert!(problem.contains(&expected) && problem.contains(format.content), "{problem}");
        }
        let mut other = running(0);
        other.formats.insert("colours".into(), 3);
        assert_eq!(only_problem(&other), "it has format colours 3, which this program does not know");
    }

    #[test]
    fn what_this_program_can_not_read_or_offer_is_refused() {
        assert!(only_problem(&running(1 << 63)).contains("port a: its front-end uses features"));
        let mut other = running(0);
        other.texts.insert("port/a".into(), "{}".into());
        assert_eq!(only_problem(&other), "this program can't read what is kept of port/a");
        let mut other = running(0);
        other.texts.insert("fabric".into(), "{}".into());
        assert_eq!(only_problem(&other), "this program can't read its description");
        let mut other = running(0);
        let text = other.texts["fabric"].replace("kind = \\\"null\\\"", "kind = \\\"later\\\"");
        other.texts.insert("fabric".into(), text);
        assert!(only_problem(&other).contains("`kind` can't be \"later\""), "{}", only_problem(&other));
        let mut other = running(0);
        let text = other.texts["fabric"].replace("\"name\":\"null\"", "\"name\":\"later\"");
        other.texts.insert("fabric".into(), text);
        assert_eq!(only_problem(&other), "port b: this program has no kind of port \"later\"");
    }
}
