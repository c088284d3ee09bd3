//! Functions of the real program: a Click configuration between two programs on rings.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::frames::program;
use crate::lab::{Lab, isolations, until};
use ringway_ring_client::{Ring, Wait};
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const PORTS: &str = "
[switch.left]
[switch.right]
[port.one]
kind = \"ring\"
socket = \"one.sock\"
switch = \"left\"
[port.in]
kind = \"ring\"
socket = \"in.sock\"
switch = \"left\"
[port.out]
kind = \"ring\"
socket = \"out.sock\"
switch = \"right\"
[port.two]
kind = \"ring\"
socket = \"two.sock\"
switch = \"right\"
";

/// A firewall that passes IPv4 in one direction, and everything in the other.
const FIREWALL: &str = "
c :: Classifier(12/0800, -);
FromPort($IN) -> c;
c[0] -> allowed :: Counter -> ToPort($OUT);
c[1] -> denied :: Counter -> Discard;
FromPort($OUT) -> ToPort($IN);
";

fn fabric(more: &str) -> String {
    format!(
        "{PORTS}[function.wall]\nports = [\"in\", \"out\"]\nconfig = \"wall.click\"\n\
         parameters = {{ IN = \"in\", OUT = \"out\" }}\n{more}"
    )
}

fn lab(name: &str, configuration: &str, more: &str) -> Lab {
    let lab = Lab::new(name, &fabric(more));
    std::fs::write(lab.folder.join("wall.click"), configuration).unwrap();
    lab
}

fn function(lab: &Lab) -> Value {
    lab.json(&["function", "list"])[0].clone()
}

fn is_running(lab: &Lab) -> bool {
    function(lab)["state"] == "running" && lab.state("in") == "up" && lab.state("out") == "up"
}

fn read(lab: &Lab, handler: &str) -> u64 {
    lab.ok(&["function", "read", "wall", handler]).trim().parse().unwrap()
}

/// A frame of a kind, from one station.
fn frame(kind: u16, from: u8) -> [u8; 60] {
    let mut frame = [0; 60];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, from ^ 1, 2, 0, 0, 0, 0, from]);
    frame[12..14].copy_from_slice(&kind.to_be_bytes());
    frame
}

fn send(ring: &mut Ring, frame: &[u8]) {
    assert!(ring.tx.push(frame).unwrap());
    ring.sync().unwrap();
}

/// The kind of the next frame that comes within a while.
fn next(ring: &mut Ring, most: Duration) -> Option<u16> {
    let mut out = [0; 60];
    ring.wait(Wait::RX, Some(most)).unwrap();
    let received = ring.rx.pop(&mut out).unwrap()?;
    ring.rx.sync().unwrap();
    assert_eq!(received.whole, 60);
    Some(u16::from_be_bytes([out[12], out[13]]))
}

const LONG: Duration = Duration::from_secs(20);

/// What runs functions here: a worker too.
fn everywhere() -> impl Iterator<Item = &'static str> {
    std::iter::once("worker").chain(isolations())
}

/// The key of a function that says what runs it.
fn isolated(isolation: &str) -> String {
    format!("isolation = \"{isolation}\"\n")
}

#[test]
fn a_firewall_filters_between_two_programs_and_can_crash_safely() {
    everywhere().for_each(firewall);
}

fn firewall(isolation: &str) {
    let lab = lab(&format!("wall-{isolation}"), FIREWALL, &isolated(isolation));
    assert!(lab.ok(&["check", "lab.toml"]).contains("1 function"));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the function runs", || is_running(&lab));
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    for kind in [0x0806, 0x0800, 0x86dd, 0x0800] {
        send(&mut one, &frame(kind, 1));
    }
    assert_eq!([next(&mut two, LONG), next(&mut two, LONG)], [Some(0x0800); 2]);
    send(&mut two, &frame(0x0806, 0));
    assert_eq!(next(&mut one, LONG), Some(0x0806), "everything passes back");
    assert_eq!((read(&lab, "allowed.count"), read(&lab, "denied.count")), (2, 2));
    lab.ok(&["function", "write", "wall", "allowed.reset"]);
    assert_eq!(read(&lab, "allowed.count"), 0);
    assert_eq!(lab.fails(&["function", "read", "wall", "nobody.count"]).0, 5);
    assert_eq!(lab.fails(&["function", "read", "hall", "x.count"]).0, 5);
    assert_eq!(lab.fails(&["function", "write", "wall", "allowed.count", "1"]).0, 1);

    if isolation != "worker" {
        killed(&lab, &mut one, &mut two);
    }

    lab.ok(&["function", "stop", "wall"]);
    assert_eq!(function(&lab)["state"], "stopped");
    assert_eq!(lab.fails(&["function", "read", "wall", "allowed.count"]).0, 1);
    lab.ok(&["function", "start", "wall"]);
    until("it runs again", || is_running(&lab));
    let shown = lab.ok(&["ps"]);
    assert!(shown.contains("FUNCTION") && shown.contains("wall"), "{shown}");
    assert_eq!(function(&lab)["isolation"], isolation);
    let pid = function(&lab)["pid"].as_u64().unwrap();
    lab.ok(&["down"]);
    let gone = || !std::path::Path::new(&format!("/proc/{pid}")).exists();
    until("its process goes with the fabric", gone);
}

/// The function is killed under traffic: the programs and their ports stay, and it is restarted.
fn killed(lab: &Lab, one: &mut Ring, two: &mut Ring) {
    let before = function(lab);
    let pid = i32::try_from(before["pid"].as_i64().unwrap()).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(pid).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    until("it is started again", || function(lab)["restarts"] == 1 && is_running(lab));
    assert_eq!((lab.state("one"), lab.state("two")), ("up".into(), "up".into()));
    assert!(passes(one, two), "frames pass again");
}

/// Whether a frame passes from one program to the other within a while.
fn passes(one: &mut Ring, two: &mut Ring) -> bool {
    (0..200).any(|_| {
        send(one, &frame(0x0800, 1));
        next(two, Duration::from_millis(100)).is_some()
    })
}

#[test]
fn a_new_configuration_takes_over_and_an_invalid_one_changes_nothing() {
    everywhere().for_each(change);
}

fn change(isolation: &str) {
    let lab = lab(&format!("swap-{isolation}"), FIREWALL, &isolated(isolation));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the function runs", || is_running(&lab));
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    let pass = |one: &mut Ring, two: &mut Ring, kind| {
        send(one, &frame(kind, 1));
        next(two, LONG)
    };
    assert_eq!(pass(&mut one, &mut two, 0x0800), Some(0x0800));
    let pid = function(&lab)["pid"].clone();
    let write = |text: &str| std::fs::write(lab.folder.join("wall.click"), text).unwrap();

    write(&FIREWALL.replace("c[1] ->", "c[1] -> Nonsense ->"));
    let (code, words) = lab.fails(&["apply", "lab.toml"]);
    assert!(code == 3 && words.contains("wall.click:5:9: "), "{words}");
    // A function writes no files. VMs and workers have no element for that.
    write(&FIREWALL.replace("c[1] ->", "c[1] -> ToDump(/tmp/x) ->"));
    let (code, words) = lab.fails(&["apply", "lab.toml"]);
    let why = match isolation {
        "process" => "/tmp/x: no function opens files",
        _ => "ToDump needs an operating system",
    };
    assert!(code == 3 && words.contains("wall.click:5:9: ") && words.contains(why), "{words}");
    // An error that only the running function finds.
    write(&FIREWALL.replace("c[1] ->", "c[1] -> AggregateIPFlows(SOURCE nowhere) ->"));
    let (code, words) = lab.fails(&["apply", "lab.toml"]);
    assert!(code == 1 && words.contains("function wall goes on as it was"), "{words}");
    assert_eq!(pass(&mut one, &mut two, 0x0800), Some(0x0800), "the old one goes on");
    assert_eq!(read(&lab, "allowed.count"), 2);

    write(&FIREWALL.replace("12/0800", "12/0806"));
    assert_eq!(lab.ok(&["apply", "lab.toml"]), "change function wall\n");
    until("ARP passes", || {
        send(&mut one, &frame(0x0806, 1));
        next(&mut two, Duration::from_millis(100)) == Some(0x0806)
    });
    assert!(read(&lab, "allowed.count") > 2, "elements hand over what they know");
    assert_eq!((&function(&lab)["pid"], &function(&lab)["restarts"]), (&pid, &0.into()));

    lab.write(&fabric(&format!("memory = \"64MB\"\n{}", isolated(isolation))));
    assert_eq!(lab.ok(&["apply", "lab.toml"]), "remove function wall\nadd function wall\n");
    until("it runs again", || is_running(&lab));
    // A function on a worker has no process.
    assert!(isolation == "worker" || function(&lab)["pid"] != pid);
}

#[test]
fn a_function_moves_between_isolations_by_a_word() {
    let lab = lab("move", FIREWALL, "");
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the function runs", || is_running(&lab));
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    let has_vms = isolations().contains(&"vm");
    // Each step from one to another.
    let steps = ["vm", "process", "worker", "vm", "worker", "process", "vm"];
    for isolation in steps.into_iter().filter(|isolation| has_vms || *isolation != "vm") {
        lab.write(&fabric(&isolated(isolation)));
        lab.ok(&["apply", "lab.toml"]);
        until("it runs again", || function(&lab)["isolation"] == isolation && is_running(&lab));
        assert!(passes(&mut one, &mut two), "{isolation}: frames pass");
        // A suspended function keeps its counts, and what came meanwhile.
        let before = read(&lab, "allowed.count");
        lab.ok(&["function", "suspend", "wall"]);
        until("nothing is left", || next(&mut two, Duration::from_millis(50)).is_none());
        send(&mut one, &frame(0x0800, 1));
        assert_eq!(next(&mut two, Duration::from_millis(100)), None, "{isolation}: it is suspended");
        lab.ok(&["function", "resume", "wall"]);
        assert_eq!(next(&mut two, LONG), Some(0x0800), "{isolation}");
        assert!(read(&lab, "allowed.count") > before, "{isolation}");
    }
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 0, "the data process goes on");
}

#[test]
fn a_function_that_exceeds_its_memory_ends_alone() {
    // On a worker only its packets are limited (function_worker.rs).
    isolations().into_iter().for_each(greedy);
}

fn greedy(isolation: &str) {
    let greedy = "FromPort($IN) -> ToPort($OUT); FromPort($OUT) -> ToPort($IN);
        InfiniteSource(LENGTH 1500) -> Queue(16000000) -> Idle;";
    let more = format!("memory = \"32MB\"\n{}", isolated(isolation));
    let lab = lab(&format!("greedy-{isolation}"), greedy, &more);
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("it ends and comes again", || function(&lab)["restarts"].as_u64() > Some(1));
    let reason = || function(&lab)["reason"].as_str().unwrap().to_string();
    until("the reason is shown", || reason().contains("memory allocation"));
    let (_one, _two) = (program(&lab, "one"), program(&lab, "two"));
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 0, "the data process goes on");
}

#[test]
fn configuration_errors_are_reported_with_positions() {
    let lab = lab("wrong", FIREWALL, "");
    let inline = |text: &str| {
        format!("{PORTS}[function.wall]\nports = [\"in\", \"out\"]\nclick = \"\"\"\n{text}\"\"\"\n")
    };
    lab.write(&inline("FromPort(in) -> ToPort(out);\nFromPort(out)\n  -> Oops -> ToPort(in);\n"));
    let (code, words) = lab.fails(&["check", "lab.toml"]);
    // Two lines of the fabric's name, 19 of its ports, three of the function.
    assert!(code == 3 && words.contains("lab.toml:27:6: ") && words.contains("Oops"), "{words}");
    lab.write(&inline("FromPort(in) -> ToPort(in);\n"));
    let (_, words) = lab.fails(&["check", "lab.toml"]);
    assert!(words.contains("no FromPort or ToPort of port 'out'"), "{words}");
    lab.write(&format!("{}config = \"none.click\"\n", inline("x").split("click").next().unwrap()));
    let (_, words) = lab.fails(&["check", "lab.toml"]);
    assert!(words.contains("none.click: No such file"), "{words}");
}

#[test]
fn the_firewall_example_passes_permitted_frames() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples");
    let text = std::fs::read_to_string(root.join("firewall.toml")).unwrap();
    let lab = Lab::new("example", "");
    std::fs::write(lab.folder.join("lab.toml"), text.replace("name = \"firewall\"", "name = \"lab\""))
        .unwrap();
    std::fs::copy(root.join("firewall.click"), lab.folder.join("firewall.click")).unwrap();
    lab.ok(&["up", "lab.toml", "--detach"]);
    let up = |port: &str| lab.state(port) == "up";
    until("the function runs", || up("inside") && up("outside"));
    let (mut client, mut server) = (program(&lab, "client"), program(&lab, "server"));
    for port in [22, 80, 443, 80] {
        send(&mut client, &to_port(port));
    }
    send(&mut client, &frame(0x0806, 1));
    let passed = [0; 3].map(|_| next(&mut server, LONG));
    assert_eq!(passed, [Some(0x0800), Some(0x0800), Some(0x0806)]);
    assert_eq!((read(&lab, "allowed.count"), read(&lab, "denied.count")), (2, 2));
    send(&mut server, &to_port(22));
    assert_eq!(next(&mut client, LONG), Some(0x0800), "answers come back");
}

/// A TCP segment to a port.
fn to_port(port: u16) -> [u8; 60] {
    let mut frame = frame(0x0800, 1);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6]);
    frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let sum: u32 = frame[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame[36..38].copy_from_slice(&port.to_be_bytes());
    frame
}

/// Whether the function counts as running on a host.
fn takes(lab: &Lab) -> bool {
    let mut api = UnixStream::connect(lab.socket("api.sock")).unwrap();
    let request = "GET /v1/place/vms HTTP/1.1\r\nhost: ringway\r\nconnection: close\r\n\r\n";
    api.write_all(request.as_bytes()).unwrap();
    let mut reply = String::new();
    api.read_to_string(&mut reply).unwrap();
    let vms: Value = serde_json::from_str(reply.split_once("\r\n\r\n").unwrap().1).unwrap();
    vms.as_array().unwrap().iter().any(|vm| vm["name"] == "wall" && vm["host"].is_string())
}

/// Configurations that open files or sockets are refused, and where they run, they can't. One that is always busy and
/// logs without end is logged at a limited rate, passes frames, and can be stopped.
#[test]
fn hostile_functions_started_by_placement_are_confined() {
    let pass = "FromPort($IN) -> ToPort($OUT); FromPort($OUT) -> ToPort($IN);";
    let lab = lab("hostile", pass, "start = false\n");
    lab.ok(&["up", "lab.toml", "--detach"]);
    let stolen = lab.folder.join("stolen");
    let become_as = |more: &str| {
        std::fs::write(lab.folder.join("wall.click"), format!("{pass}{more}")).unwrap();
        lab.ok(&["apply", "lab.toml"]);
        lab.ok(&["place", "start", "wall"]);
    };
    for attack in [
        format!("InfiniteSource(LENGTH 60) -> ToDump({});", stolen.display()),
        "InfiniteSource(LENGTH 60) -> Socket(UDP, 127.0.0.1, 9);".into(),
        "FromDump(/etc/passwd, FORCE_IP true) -> Discard;".into(),
    ] {
        std::fs::write(lab.folder.join("wall.click"), format!("{pass}{attack}")).unwrap();
        let (code, words) = lab.fails(&["apply", "lab.toml"]);
        let refused = words.contains("wall.click:1:") && words.contains("no function opens files or sockets");
        assert!(code == 3 && refused, "{attack}: {words}");
    }
    // The first is refused by the system, the second by Ringway.
    become_as(&format!(
        "Idle -> a :: AggregateCounter -> Discard;
         Script(write a.write_text_file {0}); Script(save \"x\" {0});",
        stolen.display()
    ));
    until("it is refused", || lab.log().matches("stolen: ").count() > 1);
    assert!(takes(&lab) && !stolen.exists(), "{}", lab.log());
    lab.ok(&["function", "stop", "wall"]);
    until("what it took is given back", || !takes(&lab));
    become_as("InfiniteSource(LENGTH 60) -> Print(loud) -> shouted :: Counter -> Discard;");
    until("the function runs", || is_running(&lab));
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    assert!(passes(&mut one, &mut two), "frames pass");
    until("it shouts", || read(&lab, "shouted.count") > 100_000);
    assert!(lab.log().len() < 4 << 20, "the log is not filled");
    lab.ok(&["function", "stop", "wall"]);
    until("what it took is given back", || !takes(&lab));
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 0, "the data process goes on");
}

#[test]
fn placement_starts_a_function_and_releases_its_resources() {
    let lab = lab("place", FIREWALL, "start = false\n");
    lab.ok(&["up", "lab.toml", "--detach"]);
    assert_eq!(function(&lab)["state"], "stopped");
    lab.ok(&["place", "start", "wall"]);
    until("the function runs", || is_running(&lab));
    let takes = || takes(&lab);
    assert!(takes());
    lab.ok(&["function", "stop", "wall"]);
    until("what it took is given back", || !takes());
}
