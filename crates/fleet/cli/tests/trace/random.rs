//! Random fabrics of switches with each lookup, policies, patches, links and functions: a trace of a frame is what
//! happens. `RINGWAY_ROUNDS` is the number of fabrics (`make soak`), `RINGWAY_SEED` the first one's seed.

use super::{counter, frame, receive, send};
use crate::lab::frames::{LONG, program};
use crate::lab::{Lab, until};
use crate::soak::number;
use ringway_ring_client::Ring;
use ringway_wire::fields::hex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// Fabrics, and frames in each.
const FABRICS: u64 = 6;
const FRAMES: usize = 25;
/// Ports with programs.
const PORTS: usize = 6;

/// Numbers that follow from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ mixed >> 31) % most as u64) as usize
    }

    fn pick<'t>(&mut self, list: &[&'t str]) -> &'t str {
        list[self.below(list.len())]
    }
}

/// Configurations of functions with the ports `x` and `y`, which pass frames on, drop, change or duplicate them.
const PASSING: [&str; 5] = [
    "FromPort(x) -> ToPort(y); FromPort(y) -> ToPort(x);",
    "FromPort(x) -> c :: Classifier(12/0806, 12/0800, -); o :: ToPort(y);
     c[0] -> o; c[1] -> o; c[2] -> Discard; FromPort(y) -> ToPort(x);",
    "FromPort(x) -> MarkIPHeader(14) -> c :: IPClassifier(udp, -); o :: ToPort(y);
     c[0] -> o; c[1] -> Discard; FromPort(y) -> Counter -> ToPort(x);",
    "FromPort(x) -> VLANEncap(5) -> ToPort(y); FromPort(y) -> ToPort(x);",
    "FromPort(x) -> q :: Queue -> u :: Unqueue -> ToPort(y); FromPort(y) -> CheckLength(1000) -> ToPort(x);",
];
/// One that sends frames back.
const MIRROR: &str = "FromPort(m) -> EtherMirror -> t :: Tee -> ToPort(m); t[1] -> Discard;";

struct Fabric {
    file: String,
    /// Ports whose programs are there.
    programs: Vec<String>,
}

fn lookup(random: &mut Random, name: &str, ports: &[String]) -> String {
    match random.below(3) {
        0 => format!("[switch.{name}]\n"),
        1 => {
            let known = ports.iter().take(3).enumerate();
            let rows = known.map(|(number, port)| format!("\"02:00:00:00:00:{number:02x}\" = \"{port}\""));
            let rows: Vec<String> = rows.collect();
            format!("[switch.{name}]\nlookup = \"static\"\nstatic = {{ {} }}\n", rows.join(", "))
        }
        _ => {
            let (uplink, members) = ports.split_first().unwrap();
            let members: Vec<String> = members.iter().map(|port| format!("\"{port}\"")).collect();
            format!(
                "[switch.{name}]\nlookup = \"hash\"\nuplink = \"{uplink}\"\nmembers = [{}]\n",
                members.join(", ")
            )
        }
    }
}

/// Policies of a port on a switch.
fn policies(random: &mut Random, number: usize) -> String {
    let vlans = random.pick(&["", "", "tag = 5\n", "trunks = [5, 7]\n", "trunks = [7]\nnative = 5\n"]);
    let isolated = random.pick(&["", "", "isolated = true\n"]);
    let address = format!("allow-mac = \"02:00:00:00:00:{number:02x}\"\nallow = [\"10.0.0.1\"]\n");
    format!("{vlans}{isolated}{}", random.pick(&["", "", &address]))
}

/// Two switches that a function joins, programs on both, a pair of programs joined by a link or a patch, and a
/// function in between.
fn fabric(random: &mut Random) -> Fabric {
    let mut file = String::new();
    let mut on: BTreeMap<&str, Vec<String>> = BTreeMap::from([("s0", Vec::new()), ("s1", Vec::new())]);
    let mut port = |name: &str, place: &str| {
        let _ = write!(file, "[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n{place}");
    };
    let mut programs = Vec::new();
    let has_policies = random.below(2) == 0;
    for number in 0..PORTS {
        let name = format!("p{number}");
        // Two on each switch, two elsewhere.
        let place = match number {
            0..4 => {
                let switch = if number < 2 { "s0" } else { "s1" };
                let has_link = random.below(3) == 0;
                // The link is on the switch in place of the port.
                let member = if has_link { format!("{name}/{name}") } else { name.clone() };
                on.get_mut(switch).unwrap().push(member);
                // With a link its own port is on the switch, which has no policies in a file.
                let more = match (has_link, has_policies) {
                    (true, _) => "link = { delay = \"1ms\", mtu = 1200 }\n".to_string(),
                    (false, true) => policies(random, number),
                    (false, false) => String::new(),
                };
                format!("switch = \"{switch}\"\n{more}")
            }
            _ => String::new(),
        };
        port(&name, &place);
        // One has no program at times.
        if number != 3 || random.below(2) == 0 {
            programs.push(name);
        }
    }
    for (name, switch) in [("b0", "s0"), ("b1", "s1"), ("m", "s0")] {
        on.get_mut(switch).unwrap().push(name.into());
        port(name, &format!("switch = \"{switch}\"\n"));
    }
    ["c0", "c1"].into_iter().for_each(|name| port(name, ""));
    for (name, ports) in &on {
        file += &lookup(random, name, ports);
    }
    let isolation = |random: &mut Random| random.pick(&["process", "worker"]);
    let function = |name: &str, ports: &str, click: &str, isolation: &str| {
        format!(
            "[function.{name}]\nports = [{ports}]\nisolation = \"{isolation}\"\n\
             click = \"\"\"\n{click}\n\"\"\"\n"
        )
    };
    let between = |click: &str, [x, y]: [&str; 2]| {
        click.replace("Port(x)", &format!("Port({x})")).replace("Port(y)", &format!("Port({y})"))
    };
    let click = between(random.pick(&PASSING), ["b0", "b1"]);
    file += &function("bridge", "\"b0\", \"b1\"", &click, isolation(random));
    file += &function("mirror", "\"m\"", MIRROR, isolation(random));
    let click = between(random.pick(&PASSING), ["c0", "c1"]);
    file += &function("middle", "\"c0\", \"c1\"", &click, isolation(random));
    file += "[patch.one]\nports = [\"p4\", \"c0\"]\n";
    file += match random.below(2) {
        0 => "[patch.two]\nports = [\"c1\", \"p5\"]\n",
        _ => "[link.two]\nports = [\"c1\", \"p5\"]\ndelay = \"2ms\"\nmtu = 900\n",
    };
    Fabric { file, programs }
}

/// A frame of any kind.
fn any_frame(random: &mut Random, from: usize) -> Vec<u8> {
    let to = match random.below(8) {
        0 => "ff:ff:ff:ff:ff:ff".to_string(),
        1 => "01:80:c2:00:00:0e".into(),
        2 => "01:00:5e:00:00:05".into(),
        _ => format!("02:00:00:00:00:{:02x}", random.below(8)),
    };
    let source = match random.below(10) {
        0 => "03:00:00:00:00:01".to_string(),
        1 => format!("02:00:00:00:00:{:02x}", random.below(8)),
        _ => format!("02:00:00:00:00:{from:02x}"),
    };
    let vlan = random.pick(&["", "", "dl_vlan=5,", "dl_vlan=7,"]);
    let port = random.below(4);
    let what = match random.below(5) {
        0 => "arp,arp_tpa=10.0.0.2".to_string(),
        1 => "dl_type=0x88b5".into(),
        2 => format!("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_dst={port}"),
        _ => format!("udp,nw_src=10.0.0.{from},nw_dst=10.0.0.2,tp_dst={port}"),
    };
    let len = random.pick(&["", "", ",len=950", ",len=1300"]);
    let mut frame = frame(&format!("dl_dst={to},dl_src={source},{vlan}{what}{len}"));
    if random.below(20) == 0 {
        frame.truncate(random.below(14).max(1));
    }
    frame
}

/// Frames by the port that gets them, and numbers of drops by port and reason.
type Outcome = (BTreeMap<String, Vec<Vec<u8>>>, BTreeMap<(String, String), u64>);

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().into()
}

/// A frame whose tag was changed as a trace says.
fn retagged(mut frame: Vec<u8>, how: &Value) -> Vec<u8> {
    let Some(how) = how.as_str() else { return frame };
    match how.split_once(' ').map(|(what, vlan)| (what, vlan.parse::<u8>().unwrap())) {
        Some(("inserted", vlan)) => drop(frame.splice(12..12, [0x81, 0, 0, vlan])),
        Some((_, vlan)) => (frame[14], frame[15]) = (frame[14] & 0xf0, vlan),
        None => drop(frame.drain(12..16)),
    }
    frame
}

/// What a trace says.
fn predicted(view: &Value, programs: &[String]) -> Outcome {
    let (mut got, mut drops) = (BTreeMap::<String, Vec<Vec<u8>>>::new(), BTreeMap::new());
    assert_eq!(view["omitted"], 0, "{view}");
    for hop in view["hops"].as_array().unwrap() {
        assert_eq!(hop["note"], "", "{view}");
        let mut drop =
            |port: &Value, reason: &Value| *drops.entry((text(port), text(reason))).or_default() += 1;
        if !hop["dropped"].is_null() {
            drop(&hop["port"], &hop["dropped"]);
        }
        for to in hop["destinations"].as_array().unwrap() {
            match to["verdict"].as_str().unwrap() {
                "dropped" => drop(&to["port"], &to["reason"]),
                "delivered" if !to["link"].is_null() => {
                    // The link counts its drops at its own port.
                    if !to["link"]["dropped"].is_null() {
                        drop(&to["port"], &to["link"]["dropped"]);
                    }
                }
                "delivered" if !to["function"].is_null() => {
                    assert_eq!(to["function"]["unknown"], "", "{view}")
                }
                "delivered" => {
                    let port = text(&to["port"]);
                    assert!(programs.contains(&port), "{view}");
                    let came = retagged(frame(hop["frame"].as_str().unwrap()), &to["retag"]);
                    got.entry(port).or_default().push(came);
                }
                other => panic!("{other}: {view}"),
            }
        }
    }
    (got, drops)
}

/// The drops of all ports and links so far.
fn counted(lab: &Lab) -> BTreeMap<(String, String), u64> {
    let stats = lab.json(&["stats"]);
    let mut drops = BTreeMap::new();
    for port in stats["ports"].as_array().unwrap() {
        for side in ["tx_drops", "rx_drops"] {
            for (reason, count) in port["total"][side].as_object().unwrap() {
                *drops.entry((text(&port["name"]), reason.clone())).or_default() += count.as_u64().unwrap();
            }
        }
    }
    drops.retain(|_, count: &mut u64| *count > 0);
    drops
}

/// Frames that a port has taken. Its ring drops those that are too short for a header before that, unless they are
/// injected.
fn taken(lab: &Lab, port: &str, injects: bool) -> u64 {
    let short = counted(lab).get(&(port.into(), "short".into())).copied().filter(|_| !injects);
    counter(lab, port, "tx_frames") + short.unwrap_or(0)
}

#[test]
fn a_trace_is_what_happens() {
    let first = number("RINGWAY_SEED").unwrap_or(0);
    for seed in first..first + number("RINGWAY_ROUNDS").unwrap_or(FABRICS) {
        let mut random = Random(seed);
        let Fabric { file, programs } = fabric(&mut random);
        let lab = Lab::new(&format!("trace-random-{seed}"), &file);
        lab.ok(&["up", "lab.toml", "--detach"]);
        until("the functions have their ports", || {
            let functions = lab.json(&["function", "list"]);
            functions.as_array().unwrap().iter().all(|one| one["state"] == "running")
                && ["b0", "b1", "m", "c0", "c1"].iter().all(|port| lab.state(port) == "up")
        });
        let mut rings: BTreeMap<String, Ring> =
            programs.iter().map(|name| (name.clone(), program(&lab, name))).collect();
        let mut drops = BTreeMap::<(String, String), u64>::new();
        for number in 0..FRAMES {
            let from = random.below(programs.len());
            let (name, station) = (&programs[from], from);
            let bytes = any_frame(&mut random, station);
            let injects = random.below(3) == 0;
            let before = taken(&lab, name, injects);
            let view = lab.json(&["trace", name, &hex(&bytes)]);
            let again = lab.json(&["trace", name, &hex(&bytes)]);
            let (got, new) = predicted(&view, &programs);
            assert_eq!((&got, &new), (&predicted(&again, &programs).0, &new), "a trace changes nothing");
            if injects {
                let sent = lab.json(&["trace", name, &hex(&bytes), "--inject"]);
                assert_eq!(sent["sent"], true, "{sent}");
            } else {
                send(rings.get_mut(name).unwrap(), &bytes);
            }
            let about = || format!("fabric {seed}, frame {number}: {view:#}\n{file}");
            for (port, expected) in &got {
                let mut expected = expected.clone();
                while !expected.is_empty() {
                    let came = receive(rings.get_mut(port).unwrap(), LONG);
                    let came = came.unwrap_or_else(|| panic!("no frame at {port}: {}", about()));
                    let place = expected.iter().position(|one| *one == came);
                    let place = place.unwrap_or_else(|| panic!("{} at {port}: {}", hex(&came), about()));
                    expected.remove(place);
                }
            }
            for (what, count) in new {
                *drops.entry(what).or_default() += count;
            }
            let what = format!("the frame {} left: {}", hex(&bytes), about());
            until(&what, || taken(&lab, name, injects) == before + 1);
            until("the drops are counted", || {
                let now = counted(&lab);
                drops.iter().all(|(what, count)| now.get(what).is_some_and(|found| found >= count))
            });
        }
        assert_eq!(counted(&lab), drops, "fabric {seed}\n{file}");
        for (name, ring) in &mut rings {
            let more = receive(ring, Duration::from_millis(20));
            assert!(more.is_none(), "fabric {seed}: {name} got {:?}", more.map(|frame| hex(&frame)));
        }
    }
}
