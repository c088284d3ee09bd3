//! `ringway trace`: what it says, what it sends, and what it shows of real frames.

mod random;

use crate::docs::{between, shown};
use crate::lab::frames::{LONG, patched, program};
use crate::lab::{Lab, Running, until};
use ringway_ring_client::{Ring, Wait};
use ringway_wire::fields::{Described, hex};
use ringway_wire::pcap::Header;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The next frame that a program receives within a while.
fn receive(ring: &mut Ring, most: Duration) -> Option<Vec<u8>> {
    let mut out = vec![0; 70_000];
    let end = std::time::Instant::now() + most;
    loop {
        let received = ring.rx.pop(&mut out).unwrap();
        ring.rx.sync().unwrap();
        if let Some(received) = received {
            out.truncate(received.len);
            return Some(out);
        }
        let left = end.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return None;
        }
        ring.wait(Wait::RX, Some(left)).unwrap();
    }
}

fn send(ring: &mut Ring, frame: &[u8]) {
    assert!(ring.tx.push(frame).unwrap(), "there is room");
    ring.sync().unwrap();
}

fn frame(text: &str) -> Vec<u8> {
    Described::read(text).unwrap().frame
}

/// A counter of a port.
fn counter(lab: &Lab, port: &str, name: &str) -> u64 {
    let stats = lab.json(&["stats"]);
    let ports = stats["ports"].as_array().unwrap();
    ports.iter().find(|found| found["name"] == port).unwrap()["total"][name].as_u64().unwrap()
}

const WALL: &str = "
[switch.lan]
[port.left]
kind = \"ring\"
socket = \"left.sock\"
switch = \"lan\"
[port.right]
kind = \"ring\"
socket = \"right.sock\"
switch = \"lan\"
[port.inside]
kind = \"ring\"
socket = \"inside.sock\"
switch = \"lan\"
[port.outside]
kind = \"ring\"
socket = \"outside.sock\"
[port.web]
kind = \"ring\"
socket = \"web.sock\"
[link.wan]
ports = [\"outside\", \"web\"]
rate = \"12mbit\"
delay = \"20ms\"
loss = \"1%\"
mtu = 1000
[function.wall]
ports = [\"inside\", \"outside\"]
click = \"\"\"
FromPort(inside) -> kind :: Classifier(12/0800, -) -> Strip(14) -> CheckIPHeader
  -> rules :: IPFilter(allow tcp dst port 80, deny all) -> Unstrip(14) -> ToPort(outside);
kind[1] -> Discard;
FromPort(outside) -> q :: Queue -> ToPort(inside);
\"\"\"
";

fn up(name: &str, file: &str) -> Lab {
    let lab = Lab::new(name, file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

/// A fabric with a function that runs.
fn wall(name: &str) -> Lab {
    let lab = up(name, WALL);
    until("the function has its ports", || {
        ["inside", "outside"].iter().all(|port| lab.state(port) == "up")
            && lab.json(&["function", "list"])[0]["state"] == "running"
    });
    lab
}

const TO_WEB: &str =
    "tcp,dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:09,nw_src=10.0.0.1,nw_dst=10.0.0.9,tp_dst=80";

#[test]
fn a_trace_follows_functions_and_links_and_changes_nothing() {
    let lab = wall("trace-wall");
    let (_left, _right, mut web) = (program(&lab, "left"), program(&lab, "right"), program(&lab, "web"));
    let text = lab.ok(&["trace", "left", TO_WEB]);
    for part in [
        "1  port left\n",
        "parser       60 bytes, 02:00:00:00:00:01 > 02:00:00:00:00:09, IP 10.0.0.1.0 > 10.0.0.9.80: ",
        "table        switch lan (learning): the destination is a group, or unknown: to every other port; ",
        "; the source is new, and is learned at left\n",
        "destination  right (ring), queue 0: delivered\n",
        "function     wall (running), input inside\n",
        " -> kind :: Classifier -> ",
        " -> rules :: IPFilter -> ",
        // CheckIPHeader takes what is behind the packet away.
        "sends 54 bytes to outside after ",
        ", continued in 2\n",
        "\n\n2  port outside, from 1 by function wall\n",
        "link         wan, from outside: 36 us to send, 20 ms delay, 1 % lost; continued in 3\n",
        "3  port wan/outside, from 2 by link wan\n",
        "destination  web (ring), queue 0: delivered\n\ndelivered to right\ndelivered to web\n",
    ] {
        assert!(text.contains(part), "{part}\nis not in\n{text}");
    }
    assert!(receive(&mut web, Duration::from_millis(50)).is_none());
    assert_eq!((counter(&lab, "left", "tx_frames"), counter(&lab, "right", "rx_frames")), (0, 0));
    assert_eq!(lab.json(&["switch", "table", "lan"])["entries"], serde_json::json!([]));
    let denied = lab.ok(&["trace", "left", &TO_WEB.replace("=80", "=81")]);
    assert!(denied.contains("dropped or kept by rules :: IPFilter\n"), "{denied}");
    assert!(
        denied.ends_with("\ndelivered to right\nends in function wall\n")
            || denied.ends_with("\nends in function wall\ndelivered to right\n"),
        "{denied}"
    );
    let long = lab.ok(&["trace", "outside", &format!("{TO_WEB},len=1100")]);
    assert!(long.contains("link         wan, from outside: dropped, long\n"), "{long}");
    assert!(long.ends_with("dropped by link wan: long\n"), "{long}");
    let back = lab.ok(&["trace", "web", &TO_WEB.replace("tp_dst", "tp_src")]);
    assert!(back.contains("as if no packet came before; q :: Queue may do something else now\n"), "{back}");
    let view = lab.json(&["trace", "in_port=left,arp"]);
    assert_eq!(view["hops"][0]["destinations"].as_array().unwrap().len(), 2, "{view}");
    // It says what happens: 20 ms later the frame is there.
    let sent = lab.ok(&["trace", "left", TO_WEB, "--inject"]);
    assert!(sent.ends_with("\nsent\n"), "{sent}");
    // The link loses some.
    while receive(&mut web, Duration::from_millis(500)).is_none_or(|got| got != frame(TO_WEB)[..54]) {
        lab.ok(&["trace", "left", TO_WEB, "--inject"]);
    }
    assert!(counter(&lab, "left", "tx_frames") > 0);
}

#[test]
fn offloads_are_completed_for_a_destination_that_needs_it() {
    let lab = up("trace-offload", &patched(&[["a", "b"]]));
    let (mut a, mut b) = (program(&lab, "a"), program(&lab, "b"));
    let fields = "tcp,dl_dst=02:00:00:00:00:02,nw_src=10.0.0.1,nw_dst=10.0.0.2,len=3054";
    let text = lab.ok(&["trace", "a", fields, "--gso-size", "1460"]);
    assert!(text.contains("offload      for b: 3 frames, the first of 1514 bytes\n"), "{text}");
    let view = lab.json(&["trace", "a", fields, "--gso-size", "1460", "--inject"]);
    assert_eq!((&view["sent"], &view["changed"]), (&Value::Bool(true), &Value::Bool(false)));
    let first = &view["hops"][0]["destinations"][0]["completion"];
    let got: Vec<_> = (0..3).map(|_| receive(&mut b, LONG).unwrap()).collect();
    assert_eq!(first["first"].as_str().unwrap(), hex(&got[0]));
    assert_eq!(got.iter().map(Vec::len).collect::<Vec<_>>(), [1514, 1514, 134]);
    let summed = lab.ok(&["trace", "a", "udp,nw_dst=10.0.0.2,tp_dst=7", "--checksum-offload"]);
    assert!(summed.contains("for b: one frame of 60 bytes, with its checksums\n"), "{summed}");
    // Nobody is at the other port any more.
    drop(b);
    until("the port is down", || lab.state("b") != "up");
    let down = lab.ok(&["trace", "a", "udp", "--inject"]);
    assert!(down.contains("drop         at b (ring), queue 0: down\n"), "{down}");
    send(&mut a, &frame("udp"));
    until("both are dropped", || counter(&lab, "a", "tx_frames") == 3);
}

#[test]
fn frames_come_from_captures_and_standard_input() {
    let lab = up("trace-input", &patched(&[["a", "b"]]));
    let _programs = (program(&lab, "a"), program(&lab, "b"));
    let header = Header::ethernet();
    let mut file = header.to_bytes().to_vec();
    for text in ["arp", "udp"] {
        let frame = frame(text);
        file.extend_from_slice(&header.record_header(0, frame.len() as u32, frame.len() as u32));
        file.extend_from_slice(&frame);
    }
    std::fs::write(lab.folder.join("two.pcap"), &file).unwrap();
    let view = lab.json(&["trace", "a", "--read", "two.pcap", "--frame", "2"]);
    assert_eq!(view["frame"].as_str().unwrap(), hex(&frame("udp")));
    let (code, message) = lab.fails(&["trace", "a", "--read", "two.pcap", "--frame", "3"]);
    assert_eq!((code, &*message), (1, "error: two.pcap: there is no frame 3; it has 2\n"));
    for (input, expected) in [(&file[..], "arp"), (b"0x0000: 0200 0000\n", ""), (b"udp\n", "udp")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(["trace", "a", "-", "--json"]).env("RINGWAY_RUN", lab.folder.join("run"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
        let output = child.wait_with_output().unwrap();
        let view: Value = serde_json::from_slice(&output.stdout).unwrap();
        let expected = if expected.is_empty() { "02000000".into() } else { hex(&frame(expected)) };
        assert_eq!(view["frame"].as_str().unwrap(), expected);
    }
    for (words, code, expected) in [
        (&["trace", "c", "udp"][..], 5, "error: there is no port \"c\"; "),
        (
            &["trace", "a", "tcp,nw_dst=1"],
            1,
            "error: the frame \"tcp,nw_dst=1\", column 12: `1` is not an IPv4 address",
        ),
        (&["trace", "a", "02000"], 1, "error: the frame \"02000\", column 5: the last byte has one digit"),
        (&["trace", "a", "arp", "--gso-size", "100"], 1, "error: the frame is neither TCP nor UDP in IP"),
        (&["trace", "a"], 1, "error: there is no frame; give the frame"),
        (&["trace", "a", "--live", "1", "-f", "tcp prot"], 1, "error: the filter \"tcp prot\", column 5: "),
        (&["trace", "c", "--live", "1"], 5, "error: there is no port \"c\"; "),
    ] {
        let (found, message) = lab.fails(words);
        assert_eq!(found, code, "{message}");
        assert!(message.starts_with(expected), "{message}");
    }
}

/// `ringway trace --live` once it has begun.
fn live(lab: &Lab, words: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.arg("trace").args(words).env("RINGWAY_RUN", lab.folder.join("run"));
    let mut running = Running(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    let mut errors = BufReader::new(running.0.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.starts_with("tracing frames of "), "{line}");
    running
}

/// The lines of a program that ends by itself, without the times.
fn lines(mut running: Running) -> Vec<String> {
    let mut text = String::new();
    running.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(running.0.wait().unwrap().success());
    text.lines().map(|line| line.split_once(' ').unwrap().1.to_string()).collect()
}

#[test]
fn what_happens_to_real_frames_is_shown() {
    let file = "[switch.lan]\n".to_string()
        + &["a", "b", "c"]
            .map(|name| {
                format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\nswitch = \"lan\"\n")
            })
            .concat();
    let lab = up("trace-live", &file);
    let (mut a, mut b) = (program(&lab, "a"), program(&lab, "b"));
    let running = live(&lab, &["a", "--live", "4", "-f", "not arp"]);
    let udp = |to: &str| {
        frame(&format!("udp,dl_src=02:00:00:00:00:0a,dl_dst={to},nw_src=10.0.0.1,nw_dst=10.0.0.2"))
    };
    // Many at once are served one by one.
    let frames = [
        frame("arp,dl_dst=02:00:00:00:00:0b"),
        udp("02:00:00:00:00:0b"),
        udp("02:00:00:00:00:0a"),
        udp("01:80:c2:00:00:00"),
    ];
    for frame in &frames {
        assert!(a.tx.push(frame).unwrap());
    }
    a.sync().unwrap();
    until("they left", || counter(&lab, "a", "tx_frames") == 4);
    send(&mut b, &frame("udp,dl_src=02:00:00:00:00:0b,dl_dst=02:00:00:00:00:0a"));
    assert!(receive(&mut a, LONG).is_some());
    send(&mut a, &udp("02:00:00:00:00:0b"));
    let what = "IP 10.0.0.1.0 > 10.0.0.2.0: UDP, length 0: ";
    let expected = [
        "flooded, source new, b delivered, c dropped: down",
        "known, dropped: hairpin",
        "reserved, dropped: reserved",
        "known, b delivered",
    ];
    assert_eq!(lines(running), expected.map(|end| format!("{what}{end}")));
    let running = live(&lab, &["a", "--live", "1"]);
    lab.ok(&["down"]);
    assert!(lines(running).is_empty(), "it ends with the fabric");
}

/// The stages of a trace: the first word of each line, and the last line. Times and names differ.
fn stages(text: &str) -> (Vec<&str>, Option<&str>) {
    let stage = |line: &'_ str| line.starts_with("  ") && !line.starts_with("   ");
    let words = text.lines().filter(|line| stage(line)).filter_map(|line| line.split_whitespace().next());
    (words.collect(), text.lines().last())
}

#[test]
fn the_examples_of_the_documentation_run() {
    let page = include_str!("../../../../../docs/trace.md");
    let lab = up("trace-docs", &shown("trace.md", "toml")[0]);
    until("the function has its ports", || {
        ["inside", "outside"].iter().all(|port| lab.state(port) == "up")
            && lab.json(&["function", "list"])[0]["state"] == "running"
    });
    let (mut left, _right) = (program(&lab, "left"), program(&lab, "right"));
    let header = Header::ethernet();
    let mut file = header.to_bytes().to_vec();
    for _ in 0..7 {
        file.extend_from_slice(&header.record_header(0, 60, 60));
        file.extend_from_slice(&[2; 60]);
    }
    std::fs::write(lab.folder.join("left.pcap"), &file).unwrap();
    let (command, output) = between(page, "$ ringway ", "```").split_once('\n').unwrap();
    let words: Vec<&str> = command.split_whitespace().collect();
    let said = lab.ok(&words);
    assert_eq!(stages(&said), stages(output), "{said}");
    let lines = shown("trace.md", "sh").join("\n");
    assert!(lines.lines().count() > 5, "{lines:?}");
    for line in lines.lines() {
        let mut command = lab.shell(line);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut running = Running(command.spawn().unwrap());
        while running.0.try_wait().unwrap().is_none() {
            if line.contains("--live") || line.contains("capture") {
                // More than there is room for is not needed.
                left.tx.push(&[2; 60]).unwrap();
                left.sync().unwrap();
            }
            std::thread::yield_now();
        }
        let mut errors = String::new();
        running.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        assert!(running.0.wait().unwrap().success(), "{line}: {errors}");
    }
}
