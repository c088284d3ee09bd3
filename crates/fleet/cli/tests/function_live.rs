//! Functions created, changed and destroyed on a running fabric, without a file; the example functions on real ports.
#![allow(clippy::unwrap_used)]

use crate::lab::{Lab, isolations, until};
use ringway_ring_client::{Ring, Wait};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// Ports for functions, and programs on both sides.
const PORTS: &str = include_str!("../../../../examples/functions/lab.toml");
const BOUND: Duration = Duration::from_secs(20);
const WIRE: &str =
    "FromPort(inside) -> c :: Counter -> ToPort(outside); FromPort(outside) -> ToPort(inside);";

fn lab(name: &str, file: &str) -> Lab {
    let lab = Lab::new(name, "");
    std::fs::write(lab.folder.join("lab.toml"), file).unwrap();
    lab
}

/// A program with an Ethernet and an IP address, which answers ARP.
struct Host {
    ring: Ring,
    mac: [u8; 6],
    ip: [u8; 4],
}

impl Host {
    fn new(lab: &Lab, port: &str, number: u8, ip: [u8; 4]) -> Host {
        let ring = Ring::connect(&lab.socket(&format!("{port}.sock"))).unwrap();
        until("the port is up", || lab.state(port) == "up");
        Host { ring, mac: [2, 0, 0, 0, 0, number], ip }
    }

    fn send(&mut self, frame: &[u8]) {
        assert!(self.ring.tx.push(frame).unwrap());
        self.ring.sync().unwrap();
    }

    /// The next frame within a time, without ARP requests for this host, which are answered.
    fn next(&mut self, most: Duration) -> Option<Vec<u8>> {
        let end = Instant::now() + most;
        loop {
            let mut frame = vec![0; 2048];
            self.ring.wait(Wait::RX, Some(end.saturating_duration_since(Instant::now()))).unwrap();
            let Some(received) = self.ring.rx.pop(&mut frame).unwrap() else {
                if Instant::now() >= end {
                    return None;
                }
                continue;
            };
            self.ring.rx.sync().unwrap();
            frame.truncate(received.whole);
            if frame[12..14] != [8, 6] || frame[20..22] != [0, 1] || frame[38..42] != self.ip {
                return Some(frame);
            }
            let asker: [u8; 6] = frame[6..12].try_into().unwrap();
            let asking: [u8; 4] = frame[28..32].try_into().unwrap();
            let reply = arp(2, asker, self.mac, (self.mac, self.ip), (asker, asking));
            self.send(&reply);
        }
    }

    /// The next UDP packet: time to live, addresses and ports.
    fn udp(&mut self) -> (u8, [u8; 4], u16, [u8; 4], u16) {
        let frame = self.next(BOUND).unwrap();
        assert_eq!((&frame[12..14], frame[23]), (&[8, 0][..], 17), "{frame:02x?}");
        let address = |at: usize| frame[at..at + 4].try_into().unwrap();
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        (frame[22], address(26), port(34), address(30), port(36))
    }
}

fn arp(
    operation: u8,
    to: [u8; 6],
    from: [u8; 6],
    sender: ([u8; 6], [u8; 4]),
    target: ([u8; 6], [u8; 4]),
) -> Vec<u8> {
    let head = [&to[..], &from, &[8, 6, 0, 1, 8, 0, 6, 4, 0, operation]].concat();
    [&head[..], &sender.0, &sender.1, &target.0, &target.1].concat()
}

/// A UDP or TCP packet without data, from one address and port to another.
fn packet(protocol: u8, to: [u8; 6], source: ([u8; 4], u16), target: ([u8; 4], u16)) -> Vec<u8> {
    let mut frame = vec![0; 54];
    frame[..6].copy_from_slice(&to);
    frame[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 99, 8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 40, 0, 0, 0, 0, 64, protocol]);
    frame[26..30].copy_from_slice(&source.0);
    frame[30..34].copy_from_slice(&target.0);
    let sum: u32 = frame[14..34].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
    frame[24..26].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
    frame[34..36].copy_from_slice(&source.1.to_be_bytes());
    frame[36..38].copy_from_slice(&target.1.to_be_bytes());
    match protocol {
        17 => frame[39] = 20,
        _ => frame[46..48].copy_from_slice(&[0x50, 2]),
    }
    frame
}

fn function(lab: &Lab, name: &str) -> Option<Value> {
    let list = lab.json(&["function", "list"]);
    list.as_array().unwrap().iter().find(|function| function["name"] == name).cloned()
}

fn state(lab: &Lab, name: &str) -> String {
    function(lab, name).map_or(String::new(), |function| function["state"].as_str().unwrap().into())
}

fn is_up(lab: &Lab, ports: &[&str]) -> bool {
    ports.iter().all(|port| lab.state(port) == "up")
}

fn create<'a>(name: &'a str, click: &'a str, ports: &[&'a str], isolation: &'a str) -> Vec<&'a str> {
    let mut words = vec!["function", "create", name, "--click", click, "--memory", "64MB"];
    words.extend(["--isolation", isolation]);
    ports.iter().for_each(|port| words.extend(["--port", port]));
    words
}

#[test]
fn a_process_is_created_changed_and_destroyed_at_run_time() {
    a_function_is_created_changed_and_destroyed("process");
}

#[test]
fn a_resident_function_is_created_changed_and_destroyed_at_run_time() {
    a_function_is_created_changed_and_destroyed("worker");
}

#[test]
fn a_vm_is_created_changed_and_destroyed_at_run_time() {
    if isolations().contains(&"vm") {
        a_function_is_created_changed_and_destroyed("vm");
    }
}

fn a_function_is_created_changed_and_destroyed(isolation: &str) {
    let lab = lab(&format!("live-{isolation}"), PORTS);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let (mut client, mut server) =
        (Host::new(&lab, "client", 1, [10, 0, 0, 1]), Host::new(&lab, "server", 2, [10, 0, 0, 2]));
    let both = ["inside", "outside"];
    lab.ok(&create("wire", WIRE, &both, isolation));
    assert_eq!(state(&lab, "wire"), "running", "the answer comes when it runs");
    assert_eq!(function(&lab, "wire").unwrap()["isolation"], isolation);
    until("its ports are up", || is_up(&lab, &both));
    let frame = |last: u8| [&[2; 12][..], &[8, 0], &[last; 40]].concat();
    client.send(&frame(1));
    assert_eq!(server.next(BOUND), Some(frame(1)));

    // A suspended function keeps its state; frames wait.
    lab.ok(&["function", "suspend", "wire"]);
    assert_eq!(state(&lab, "wire"), "suspended");
    assert!(lab.fails(&["function", "read", "wire", "c.count"]).1.contains("is suspended"));
    assert!(lab.fails(&["function", "update", "wire", "lab.toml"]).1.contains("is suspended"));
    client.send(&frame(2));
    lab.ok(&["function", "resume", "wire"]);
    assert_eq!(server.next(BOUND), Some(frame(2)));
    assert_eq!(lab.ok(&["function", "read", "wire", "c.count"]).trim(), "2");
    assert!(lab.fails(&["function", "resume", "wire"]).1.contains("is not suspended"));

    // An update keeps counts; a wrong one says why and changes nothing.
    let write = |text: &str| std::fs::write(lab.folder.join("new.click"), text).unwrap();
    let no_files = match isolation {
        "worker" => "new.click:1:91: FromDump needs an operating",
        "vm" => "new.click:1:91: undeclared element 'FromDump'",
        _ => "/etc/passwd",
    };
    write(&WIRE.replace("c :: Counter", "c :: Counter -> d :: Counter"));
    lab.ok(&["function", "update", "wire", "new.click"]);
    client.send(&frame(3));
    assert_eq!(server.next(BOUND), Some(frame(3)));
    let count = |handler: &str| lab.ok(&["function", "read", "wire", handler]).trim().to_string();
    assert_eq!((count("c.count"), count("d.count")), ("3".into(), "1".into()));
    for (wrong, why) in [
        (WIRE.replace("Counter", "Conter"), "unknown element class 'Conter'; did you mean 'Counter'?"),
        (
            WIRE.replace("ToPort(inside)", "Discard; FromPort(outside) -> ToPort(inside)"),
            "another FromPort already",
        ),
        ("Idle -> Discard;".into(), "no FromPort or ToPort of port 'inside'"),
        (format!("{WIRE} FromDump(/etc/passwd, FORCE_IP true) -> Discard;"), no_files),
    ] {
        write(&wrong);
        let (code, words) = lab.fails(&["function", "update", "wire", "new.click"]);
        assert!(code == 1 && words.contains(why), "{why}: {words}");
    }
    assert_eq!(count("d.count"), "1");

    packets_that_an_element_holds_arrive_after_an_update(&lab, &mut client, &mut server);
    write(&WIRE.replace("c :: Counter", "c :: Counter -> d :: Counter"));
    lab.ok(&["function", "update", "wire", "new.click"]);
    its_graph_shows_the_packets(&lab, &mut client, &mut server);

    lab.ok(&["function", "destroy", "wire"]);
    assert_eq!((function(&lab, "wire"), lab.fails(&["function", "destroy", "wire"]).0), (None, 5));
    let again = format!("{WIRE} TimedSource(0.005) -> ticks :: Counter -> Discard;");
    lab.ok(&create("again", &again, &both, isolation));
    a_suspended_source_is_made_up_for_a_second(&lab, "again");
    assert_eq!(lab.ok(&["apply", "lab.toml"]), "remove function again\n", "its file does not have it");
}

fn its_graph_shows_the_packets(lab: &Lab, client: &mut Host, server: &mut Host) {
    let frame = |last: u8| [&[2; 12][..], &[8, 0], &[last; 40]].concat();
    let drawn = lab.ok(&["function", "graph", "wire", "--seconds", "0.1"]);
    assert!(drawn.starts_with("<svg ") && drawn.contains(">FromPort@1<") && drawn.contains(">d<"), "{drawn}");
    lab.ok(&["function", "write", "wire", "profile", "true"]);
    client.send(&frame(4));
    assert_eq!(server.next(BOUND), Some(frame(4)));
    let graph = lab.json(&["function", "graph", "wire"]);
    let passed: Vec<u64> =
        graph["connections"].as_array().unwrap().iter().map(|c| c["packets"].as_u64().unwrap()).collect();
    assert_eq!(passed.iter().sum::<u64>(), 3, "one frame passed three connections: {graph}");
}

/// Ten frames are on an emulated link inside the function `wire` when its configuration is replaced.
fn packets_that_an_element_holds_arrive_after_an_update(lab: &Lab, client: &mut Host, server: &mut Host) {
    let link = |delay: &str| format!("c :: Counter -> l :: LinkEmulator(DELAY {delay})");
    let update = |with: &str| {
        std::fs::write(lab.folder.join("held.click"), WIRE.replace("c :: Counter", with)).unwrap();
        lab.ok(&["function", "update", "wire", "held.click"]);
    };
    update(&link("2s"));
    let frame = |last: u8| [&[2; 12][..], &[8, 0], &[last; 40]].concat();
    let read = |handler: &str| lab.ok(&["function", "read", "wire", handler]).trim().parse::<u64>().unwrap();
    let before = read("c.count");
    (100..110).for_each(|number| client.send(&frame(number)));
    until("they are on the link", || read("c.count") == before + 10);
    let waiting = read("l.sent") - read("l.received");
    update(&format!("{} -> late :: Counter", link("1ms")));
    assert_eq!((read("c.count"), read("l.sent")), (before + 10, 10), "counters go on");
    let arrived: Vec<_> = (100..110).map(|_| server.next(BOUND)).collect();
    assert_eq!(arrived, (100..110).map(|number| Some(frame(number))).collect::<Vec<_>>());
    assert!(read("late.count") >= waiting.min(1), "{waiting} waited");
}

/// Overdue packets of a source that is due every 5 ms, in a function that was suspended for two seconds.
fn a_suspended_source_is_made_up_for_a_second(lab: &Lab, name: &str) {
    let count = || lab.ok(&["function", "read", name, "ticks.count"]).trim().parse::<u64>().unwrap();
    let (begin, before) = (Instant::now(), count());
    lab.ok(&["function", "suspend", name]);
    let suspended = Instant::now();
    std::thread::sleep(Duration::from_secs(2));
    let still = suspended.elapsed();
    lab.ok(&["function", "resume", name]);
    let sent = count() - before;
    let ran = (begin.elapsed() - still).as_millis() as u64;
    assert!(sent <= (ran + 1000) / 5 + 5, "{sent} packets in {ran} ms");
}

#[test]
fn a_refused_process_changes_nothing() {
    let more = ("FromPort(inside) -> Queue(99000000) -> Idle;", "inside", "new is not created");
    a_refused_function_changes_nothing("process", "secret", more);
}

#[test]
fn a_refused_resident_function_changes_nothing() {
    let more =
        ("FromPort(inside) -> Socket(UDP, 127.0.0.1, 9);", "inside", "new:1:21: Socket needs an operating");
    a_refused_function_changes_nothing("worker", "FromDump needs an operating system", more);
}

#[test]
fn a_refused_vm_changes_nothing() {
    if isolations().contains(&"vm") {
        let more = (
            "FromPort(inside) -> Socket(UDP, 127.0.0.1, 9);",
            "inside",
            "new:1:21: undeclared element 'Socket'",
        );
        a_refused_function_changes_nothing("vm", "undeclared element 'FromDump'", more);
    }
}

fn a_refused_function_changes_nothing(isolation: &str, reading: &str, more: (&str, &str, &str)) {
    let own = format!(
        "{PORTS}\n[function.own]\nport = \"outside\"\nclick = \"FromPort(outside) -> Discard;\"\n\
         isolation = \"{isolation}\"\n"
    );
    let lab = lab(&format!("refused-{isolation}"), &own);
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the function of the file runs", || state(&lab, "own") == "running");
    until("its port is up", || is_up(&lab, &["outside"]));
    let before = lab.json(&["function", "list"]);
    let secret = lab.folder.join("secret");
    std::fs::write(&secret, "elementclass Secret { Idle -> Discard }").unwrap();
    let inside = "FromPort(inside) -> Discard;";
    let reads = format!("{inside} FromDump({}) -> Discard;", secret.display());
    let requires = format!("require(library \"{}\"); {inside}", secret.display());
    for (name, click, port, why) in [
        (
            "new",
            "FromPort(inside) -> Nonsense -> ToPort(inside);",
            "inside",
            "new:1:21: undeclared element 'Nonsense'",
        ),
        ("new", "Idle -> Discard;", "inside", "no FromPort or ToPort of port 'inside'"),
        ("new", "FromPort(outside) -> ToPort(inside);", "inside", "this function has no port 'outside'"),
        ("new", inside, "outside", "port outside is function own's already"),
        ("new", inside, "nowhere", "there is no port \"nowhere\""),
        ("own", inside, "inside", "there is a function or guest own already"),
        ("../own", inside, "inside", "can't be a name"),
        ("new", &reads, "inside", reading),
        ("new", &requires, "inside", "secret"),
        ("new", more.0, more.1, more.2),
        ("new", "ControlSocket(TCP, 7777); FromPort(inside) -> Discard;", "inside", "new is not created"),
    ] {
        let (code, words) = lab.fails(&create(name, click, &[port], isolation));
        assert!(code == 1 && words.contains(why), "{click}: {words}");
        assert_eq!(lab.json(&["function", "list"]), before, "{click}");
    }
    lab.ok(&create("new", inside, &["inside"], isolation));
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 0, "the data process goes on");
}

/// Starts an example function.
fn example(lab: &Lab, name: &str, ports: &[&str], isolation: &str) {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../../examples/functions/{name}.click"));
    let mut words = vec!["function", "create", name, "--config", path.to_str().unwrap(), "--memory", "64MB"];
    words.extend(["--isolation", isolation]);
    ports.iter().for_each(|port| words.extend(["--port", port]));
    lab.ok(&words);
    until("its ports are up", || is_up(lab, ports));
}

#[test]
fn the_example_functions_work_as_processes() {
    the_example_functions_work_between_programs("process");
}

#[test]
fn the_example_functions_work_on_a_worker() {
    the_example_functions_work_between_programs("worker");
}

#[test]
fn the_example_functions_work_as_vms() {
    if isolations().contains(&"vm") {
        the_example_functions_work_between_programs("vm");
    }
}

fn the_example_functions_work_between_programs(isolation: &str) {
    let lab = lab(&format!("examples-{isolation}"), PORTS);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let both = ["inside", "outside"];
    let mut client = Host::new(&lab, "client", 10, [10, 0, 0, 10]);
    let mut server = Host::new(&lab, "server", 20, [10, 0, 2, 20]);
    let stop = |name: &str| {
        lab.ok(&["function", "destroy", name]);
        until("its ports are free", || both.iter().all(|port| lab.state(port) == "waiting"));
    };

    example(&lab, "wire", &both, isolation);
    let frame: Vec<u8> = (0..60).collect();
    client.send(&frame);
    assert_eq!(server.next(BOUND), Some(frame.clone()));
    server.send(&frame);
    assert_eq!(client.next(BOUND), Some(frame.clone()));
    stop("wire");

    example(&lab, "mirror", &["inside"], isolation);
    client.send(&frame);
    assert_eq!(client.next(BOUND).unwrap(), [&frame[6..12], &frame[..6], &frame[12..]].concat());
    stop("mirror");

    example(&lab, "router", &both, isolation);
    client.ip = [10, 0, 1, 10];
    client.send(&packet(17, [2, 0, 0, 0, 1, 1], (client.ip, 7), (server.ip, 8)));
    assert_eq!(server.udp(), (63, client.ip, 7, server.ip, 8));
    server.send(&packet(17, [2, 0, 0, 0, 2, 1], (server.ip, 8), (client.ip, 7)));
    assert_eq!(client.udp(), (63, server.ip, 8, client.ip, 7));
    stop("router");

    example(&lab, "firewall", &both, isolation);
    let [inside, outside] = [[10, 0, 0, 1], [192, 0, 2, 7]];
    server.send(&packet(6, server.mac, (outside, 81), (inside, 1000)));
    client.send(&packet(6, server.mac, (inside, 1000), (outside, 22)));
    let request = packet(6, server.mac, (inside, 1000), (outside, 80));
    client.send(&request);
    assert_eq!(server.next(BOUND), Some(request), "the first two are dropped");
    let answer = packet(6, client.mac, (outside, 80), (inside, 1000));
    server.send(&answer);
    assert_eq!(client.next(BOUND).map(|frame| frame[..42].to_vec()), Some(answer[..42].to_vec()));
    stop("firewall");

    example(&lab, "nat", &both, isolation);
    client.ip = [10, 0, 0, 10];
    server.ip = [192, 0, 2, 254];
    let far = [198, 51, 100, 7];
    client.send(&packet(17, [2, 0, 0, 0, 1, 1], (client.ip, 5000), (far, 53)));
    let (_, source, port, target, _) = server.udp();
    assert_eq!((source, target), ([192, 0, 2, 1], far));
    server.send(&packet(17, [2, 0, 0, 0, 2, 1], (far, 53), (source, port)));
    let (_, source, _, target, port) = client.udp();
    assert_eq!((source, target, port), (far, client.ip, 5000));
    stop("nat");
}
