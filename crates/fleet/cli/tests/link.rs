//! `[link.NAME]` between programs on ring ports.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::{Lab, until};
use ringway_ring_client::{Ring, RingOptions, Wait};
use serde_json::Value;
use std::time::{Duration, Instant};

const FILE: &str = "
[port.a]
kind = \"ring\"
socket = \"a.sock\"
[port.b]
kind = \"ring\"
socket = \"b.sock\"
[link.wan]
ports = [\"a\", \"b\"]
delay = \"20ms\"
[link.wan.from.b]
loss = \"100%\"
";

struct Ends {
    lab: Lab,
    a: Ring,
    b: Ring,
}

fn up(name: &str, file: &str) -> Ends {
    let lab = Lab::new(name, file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let connect = |port: &str| {
        let options = RingOptions { offloads: port == "a", ..RingOptions::default() };
        Ring::connect_with(&lab.socket(&format!("{port}.sock")), options, None).unwrap()
    };
    let (a, b) = (connect("a"), connect("b"));
    until("the programs are there", || lab.state("a") == "up" && lab.state("b") == "up");
    Ends { lab, a, b }
}

fn send(ring: &mut Ring, frame: &[u8], count: u32) {
    for _ in 0..count {
        assert!(ring.tx.push(frame).unwrap());
    }
    ring.sync().unwrap();
}

/// Lengths of the next frames, and when the first one arrived.
fn receive(ring: &mut Ring, count: usize) -> (Vec<usize>, Instant) {
    let (mut lengths, mut first, mut out) = (Vec::new(), None, [0; 2048]);
    while lengths.len() < count {
        assert!(ring.wait(Wait::RX, Some(Duration::from_secs(30))).unwrap(), "only {lengths:?}");
        first.get_or_insert_with(Instant::now);
        while let Some(received) = ring.rx.pop(&mut out).unwrap() {
            lengths.push(received.len);
        }
        ring.sync().unwrap();
    }
    (lengths, first.unwrap())
}

/// The direction from port `from`.
fn direction(lab: &Lab, from: &str) -> Value {
    let links = lab.json(&["link", "show", "wan"]);
    let directions = links[0]["directions"].as_array().unwrap();
    directions.iter().find(|direction| direction["from"] == from).unwrap().clone()
}

#[test]
fn a_link_delays_and_loses_and_changes_while_it_runs() {
    let Ends { lab, mut a, mut b } = up("link", FILE);
    let begin = Instant::now();
    send(&mut a, &[1; 60], 10);
    let (lengths, first) = receive(&mut b, 10);
    assert_eq!(lengths, [60; 10]);
    assert!(first - begin >= Duration::from_millis(20), "{:?}", first - begin);
    send(&mut b, &[2; 60], 10);
    until("all are lost", || direction(&lab, "b")["drops"]["lost"] == 10);
    let there = direction(&lab, "a");
    let counts = ["sent", "sent_bytes", "received", "received_bytes"].map(|key| there[key].as_u64().unwrap());
    assert_eq!((counts, &there["to"]), ([10, 600, 10, 600], &"b".into()));

    let shown = lab.ok(&["link", "set", "wan", "--from", "b", "loss=", "delay=30ms"]);
    assert!(shown.contains("delay=30ms") && shown.contains("dropped (lost) 10"), "{shown}");
    let begin = Instant::now();
    send(&mut b, &[2; 60], 3);
    let (_, first) = receive(&mut a, 3);
    assert!(first - begin >= Duration::from_millis(30), "{:?}", first - begin);
    std::fs::write(lab.folder.join("losses"), "01\n01").unwrap();
    lab.ok(&["link", "set", "wan", "delay=", "loss-trace=@losses"]);
    send(&mut a, &[1; 60], 10);
    assert_eq!(receive(&mut b, 5).0.len(), 5);
    assert_eq!(direction(&lab, "a")["drops"]["lost"], 5);
    assert_eq!(direction(&lab, "b")["settings"]["loss-trace"], "01\n01");

    assert_eq!(lab.ok(&["apply", "lab.toml"]), "change port wan/a\nchange port wan/b\n");
    assert_eq!(direction(&lab, "a")["settings"], serde_json::json!({ "delay": "20ms" }));
    assert_eq!(direction(&lab, "a")["sent"], 20, "the link goes on");
}

#[test]
fn wrong_values_change_nothing() {
    let lab = Lab::new("link-wrong", FILE);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let wrong = |words: &[&str]| lab.fails(&[&["link", "set"], words].concat());
    let (code, words) = wrong(&["wan", "mtu=1500", "delay=soon"]);
    assert!(code == 1 && words.contains("`delay`: ") && words.contains("soon"), "{words}");
    assert!(wrong(&["wan", "=1"]).1.contains("\"=1\" is not a setting; write KEY=VALUE"));
    let (_, words) = wrong(&["wan", "dely=5ms"]);
    assert!(words.contains("a link has no setting `dely`; did you mean `delay`?"), "{words}");
    let (_, words) = wrong(&["wan", "limit=1BDP"]);
    assert!(words.contains("set `rate` too"), "{words}");
    let (_, words) = wrong(&["wan", "seed=5"]);
    assert!(words.contains("`seed` can't change while the link runs"), "{words}");
    let (code, words) = wrong(&["lan", "delay=5ms"]);
    assert!(code == 5 && words.contains("there is no link \"lan\"; there is wan"), "{words}");
    let (code, words) = wrong(&["wan", "--from", "c", "delay=5ms"]);
    assert!(code == 5 && words.contains("it joins a and b"), "{words}");
    assert_eq!(lab.fails(&["link", "show", "lan"]).0, 5);
    assert_eq!(direction(&lab, "a")["settings"], serde_json::json!({ "delay": "20ms" }));
    let ps = lab.json(&["ps"]);
    let ports: Vec<(&str, &str)> = ps["ports"]
        .as_array()
        .unwrap()
        .iter()
        .map(|port| (port["name"].as_str().unwrap(), port["to"].as_str().unwrap()))
        .collect();
    let expected = [("a", "patch wan/a"), ("b", "patch wan/b"), ("wan/a", "patch b"), ("wan/b", "patch a")];
    assert_eq!(ports, expected);
}

/// A TCP segment of IPv4 with 3000 bytes of payload, whose checksum and segmentation are left to the receiver.
fn segment() -> (Vec<u8>, [u8; 10]) {
    let mut frame = vec![0; 14 + 20 + 20 + 3000];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    let total = (frame.len() as u16 - 14).to_be_bytes();
    frame[14..34].copy_from_slice(&[
        0x45, 0, total[0], total[1], 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ]);
    frame[34..54]
        .copy_from_slice(&[0x30, 0x39, 0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
    // virtio_net_hdr: checksum to fill, TCP over IPv4, 54 bytes of headers, 1000 a segment.
    (frame, [1, 1, 54, 0, 0xe8, 3, 34, 0, 16, 0])
}

#[test]
fn a_large_frame_is_cut_before_it_enters_the_link() {
    let file = FILE.replace("delay = \"20ms\"", "mtu = 1500");
    let Ends { lab, mut a, mut b } = up("link-cut", &file);
    let (frame, offload) = segment();
    assert!(a.tx.push_with(&frame, offload).unwrap());
    a.sync().unwrap();
    assert_eq!(receive(&mut b, 3).0, [1054; 3]);
    assert_eq!(direction(&lab, "a")["sent"], 3);
}

#[test]
fn traces_of_the_file_are_read_beside_it() {
    let file = FILE.replace("delay = \"20ms\"", "delay-trace = \"@delays.txt\"");
    let lab = Lab::new("link-trace", &file);
    let (code, words) = lab.fails(&["check", "lab.toml"]);
    assert!(code == 3 && words.contains("lab.toml:12:15: delays.txt: "), "{words}");
    std::fs::write(lab.folder.join("delays.txt"), "1ms 2ms\n3").unwrap();
    let (code, words) = lab.fails(&["check", "lab.toml"]);
    assert!(code == 3 && words.contains("lab.toml:12:15: `delay-trace`: "), "{words}");
    std::fs::write(lab.folder.join("delays.txt"), "1ms 2ms\n3ms").unwrap();
    lab.ok(&["up", "lab.toml", "--detach"]);
    assert_eq!(direction(&lab, "a")["settings"]["delay-trace"], "1ms 2ms\n3ms");
}

/// A capture of Ethernet frames, each with its time in milliseconds.
fn capture(frames: &[(u32, Vec<u8>)]) -> Vec<u8> {
    // The classic format's header, little-endian.
    let header = [0xa1b2_c3d4_u32, 4 << 16 | 2, 0, 0, 65_535, 1];
    let mut bytes = header.map(u32::to_le_bytes).concat();
    for (time, frame) in frames {
        let len = frame.len() as u32;
        bytes.extend([1 + time / 1000, time % 1000 * 1000, len, len].map(u32::to_le_bytes).concat());
        bytes.extend(frame);
    }
    bytes
}

#[test]
fn a_capture_is_replayed_into_a_link_on_its_schedule() {
    let Ends { lab, a, mut b } = up("link-replay", FILE);
    // The port is the replaying program's.
    drop(a);
    let frames: Vec<(u32, Vec<u8>)> =
        (0..8).map(|number| (number * 60, vec![number as u8; 60 + 10 * number as usize])).collect();
    std::fs::write(lab.folder.join("in.pcap"), capture(&frames)).unwrap();
    let text = format!(
        "capture :: FromDump($IN, TIMING true, STOP true, ACTIVE false) -> near :: ToPort({});
         DriverManager(label again, wait 10ms, goto again $(ne $(near.state) up),
                       write capture.active true, wait_stop, wait 100ms)",
        lab.socket("a.sock").display(),
    );
    until("the port is free", || lab.state("a") != "up");
    let begin = Instant::now();
    let words = ["click", "-e", &text, "IN=in.pcap", "-h", "near.count", "-h", "near.drops"];
    let (sent, arrivals) = std::thread::scope(|scope| {
        let replay = scope.spawn(|| lab.ok(&words));
        let mut arrivals = Vec::new();
        let mut out = [0; 2048];
        while arrivals.len() < frames.len() {
            assert!(b.wait(Wait::RX, Some(Duration::from_secs(30))).unwrap(), "only {}", arrivals.len());
            while let Some(received) = b.rx.pop(&mut out).unwrap() {
                arrivals.push((begin.elapsed(), out[..received.len].to_vec()));
            }
            b.sync().unwrap();
        }
        (replay.join().unwrap(), arrivals)
    });
    assert_eq!(sent, "near.count:\n8\n\nnear.drops:\n0\n\n");
    for ((time, frame), (arrived, bytes)) in frames.iter().zip(&arrivals) {
        assert_eq!(bytes, frame);
        let due = Duration::from_millis(u64::from(*time) + 20);
        assert!(*arrived >= due, "{arrived:?} {due:?}");
    }
}
