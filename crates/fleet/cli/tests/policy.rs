//! Policy on ports: VLANs, isolation, anti-spoofing and limits in the file, by `ringway port set` and by the API, and
//! what a trace says.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::lab::Lab;
use crate::lab::api::ask;
use crate::lab::frames::{LONG, program};
use ringway_ring_client::{Ring, Wait};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How long a frame is waited for that must not come.
const SHORT: Duration = Duration::from_millis(50);

fn up(name: &str) -> Lab {
    let port = |name: &str, keys: &str| {
        format!("[port.{name}]\nkind='ring'\nsocket='{name}.sock'\nswitch='main'\n{keys}\n")
    };
    let ports =
        [port("a", "tag=10"), port("b", "tag=10"), port("c", "tag=20"), port("up", "trunks=[10,'20-29']")];
    let lab = Lab::new(name, &format!("[switch.main]\n{}", ports.concat()));
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

/// A frame to all stations from station `from`, with a tag if `vlan` is not 0, and a number.
fn frame(from: u8, vlan: u16, number: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, from]);
    if vlan > 0 {
        frame.extend([0x81, 0]);
        frame.extend(vlan.to_be_bytes());
    }
    frame.extend([0x88, 0xb5, number]);
    frame.resize(60, 0);
    frame
}

fn send(ring: &mut Ring, frame: &[u8]) {
    assert!(ring.tx.push(frame).unwrap(), "there is room");
    ring.sync().unwrap();
}

/// The next frame that comes within a while.
fn receive(ring: &mut Ring, most: Duration) -> Option<Vec<u8>> {
    let (mut out, end) = (vec![0; 2048], Instant::now() + most);
    loop {
        let received = ring.rx.pop(&mut out).unwrap();
        ring.rx.sync().unwrap();
        if let Some(received) = received {
            out.truncate(received.len);
            return Some(out);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        ring.wait(Wait::RX, Some(left)).unwrap();
    }
}

/// The VLANs in which frames come to ports, 0 for one without a tag: after frame `number` has been sent.
fn vlans(rings: &mut [Ring], expected: &[Option<u16>], number: u8) {
    for (port, (ring, expected)) in rings.iter_mut().zip(expected).enumerate() {
        let got = receive(ring, if expected.is_some() { LONG } else { SHORT });
        let vlan = got.map(|frame| match frame[12..14] {
            [0x81, 0] => (u16::from_be_bytes([frame[14], frame[15]]), frame[18]),
            _ => (0, frame[14]),
        });
        assert_eq!(vlan, expected.map(|vlan| (vlan, number)), "port {port}");
    }
}

fn drops(lab: &Lab, port: &str) -> Value {
    total(lab, port)["tx_drops"].clone()
}

/// Dropped frames for a port.
fn drops_to(lab: &Lab, port: &str) -> Value {
    total(lab, port)["rx_drops"].clone()
}

fn total(lab: &Lab, port: &str) -> Value {
    let stats = lab.json(&["stats"]);
    let ports = stats["ports"].as_array().unwrap();
    ports.iter().find(|found| found["name"] == port).unwrap()["total"].clone()
}

#[test]
fn vlans_and_isolation_change_while_frames_pass() {
    let lab = up("policy");
    let mut rings: Vec<Ring> = ["a", "b", "c", "up"].iter().map(|name| program(&lab, name)).collect();
    send(&mut rings[0], &frame(1, 0, 1));
    vlans(&mut rings, &[None, Some(0), None, Some(10)], 1);
    send(&mut rings[3], &frame(4, 20, 2));
    vlans(&mut rings, &[None, None, Some(0), None], 2);
    send(&mut rings[3], &frame(4, 30, 3));
    vlans(&mut rings, &[None; 4], 3);
    assert_eq!(drops(&lab, "up"), json!({ "wrong-vlan": 1 }));
    // Changed by the command, by the API and by a file, with the same programs on the ports.
    lab.ok(&["port", "set", "b", "tag=20"]);
    send(&mut rings[2], &frame(3, 0, 4));
    vlans(&mut rings, &[None, Some(0), None, Some(20)], 4);
    let (code, body) = ask(&lab, "PATCH", "ports/b", &json!({ "isolated": true }));
    assert_eq!((code, &body["policy"]), (200, &json!({ "isolated": "true", "tag": "20" })), "{body}");
    assert_eq!(lab.json(&["port", "set", "c", "isolated=true"])["policy"]["isolated"], "true");
    send(&mut rings[2], &frame(3, 0, 5));
    vlans(&mut rings, &[None, None, None, Some(20)], 5);
    assert_eq!(lab.ok(&["apply", "lab.toml"]).lines().count(), 2, "two ports change");
    send(&mut rings[1], &frame(2, 0, 6));
    vlans(&mut rings, &[Some(0), None, None, Some(10)], 6);
    lab.ok(&["down"]);
}

#[test]
fn a_wrong_request_changes_nothing() {
    let lab = up("policy-wrong");
    let before = lab.json(&["port", "list"]);
    for (settings, said) in [
        (&["tag=0"][..], "/tag: `tag` is 0; use a value from 1 to 4094"),
        (&["tag=4095"], "/tag: "),
        (&["trunks=10-"], "/trunks: "),
        (&["tag=5", "trunks=6"], "/tag: `tag` and `trunks` are both there"),
        (&["isolated=maybe"], "/isolated: "),
        (&["isolatd=true"], "did you mean `isolated`?"),
        (&["tag"], "is not a setting"),
    ] {
        let (code, text) = lab.fails(&[&["port", "set", "a"][..], settings].concat());
        assert!(code != 0 && text.contains(said), "{settings:?}: {text}");
    }
    let (_, text) = lab.fails(&["port", "set", "nobody", "tag=1"]);
    assert!(text.contains("there is no port \"nobody\""), "{text}");
    let codes = [json!({ "tag": 0 }), json!({ "x": 1 })].map(|body| ask(&lab, "PATCH", "ports/a", &body).0);
    assert_eq!(codes, [422, 422]);
    assert_eq!(lab.json(&["port", "list"]), before);
    lab.ok(&["down"]);
}

#[test]
fn a_trace_says_the_vlan_the_tag_and_why_a_frame_does_not_pass() {
    let lab = up("policy-trace");
    let _rings: Vec<Ring> = ["a", "b", "c", "up"].iter().map(|name| program(&lab, name)).collect();
    let said = lab.ok(&["trace", "a", "dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,dl_type=0x88b5"]);
    for line in ["vlan         10\n", "tag          for up: with a tag of VLAN 10\n", "delivered to b\n"] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let back = "dl_src=02:00:00:00:00:04,dl_dst=ff:ff:ff:ff:ff:ff,dl_vlan=20,dl_type=0x88b5";
    let said = lab.ok(&["trace", "up", back]);
    assert!(said.contains("tag          for c: without its tag\n"), "{said}");
    let said = lab.ok(&["trace", "a", back]);
    assert!(said.contains("dropped at a: wrong-vlan"), "{said}");
    lab.ok(&["down"]);
}

/// An ARP request from station 1 that says that it has an address.
fn arp(address: [u8; 4], number: u8) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1]);
    frame.extend(address);
    frame.extend([0; 10]);
    frame.resize(59, 0);
    frame.push(number);
    frame
}

#[test]
fn a_port_sends_from_its_own_addresses_only() {
    let lab = up("policy-senders");
    let mut rings: Vec<Ring> = ["a", "b"].iter().map(|name| program(&lab, name)).collect();
    let keys = ["allow-mac=02:00:00:00:00:01", "allow=10.0.0.2,10.0.1.0/24"];
    let port = lab.json(&[&["port", "set", "a"][..], &keys].concat());
    assert_eq!(
        port["policy"],
        json!({ "tag": "10", "allow-mac": "02:00:00:00:00:01", "allow": "10.0.0.2,10.0.1.0/24" })
    );
    let (ours, another) = (arp([10, 0, 1, 7], 1), arp([10, 0, 0, 9], 2));
    send(&mut rings[0], &another);
    send(&mut rings[0], &ours);
    assert_eq!(receive(&mut rings[1], LONG), Some(ours));
    assert_eq!(drops(&lab, "a"), json!({ "spoofed": 1 }));
    let frame =
        "arp,dl_src=02:00:00:00:00:01,arp_sha=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,arp_spa=10.0.";
    let said = lab.ok(&["trace", "a", &format!("{frame}0.2")]);
    assert!(said.contains("  sender       allowed\n") && said.contains("delivered to b\n"), "{said}");
    let said = lab.ok(&["trace", "a", &format!("{frame}0.9")]);
    let line = "  sender       its ARP sender's protocol address is not in `allow`\n";
    assert!(said.contains(line) && said.contains("dropped at a: spoofed"), "{said}");
    let saved = lab.ok(&["save"]);
    assert!(saved.contains("allow = \"10.0.0.2,10.0.1.0/24\"\n"), "{saved}");
    let (code, body) = ask(&lab, "PATCH", "ports/a", &json!({ "allow": ["10.0.0.0/8"], "allow-mac": null }));
    assert_eq!((code, &body["policy"]), (200, &json!({ "tag": "10", "allow": "10.0.0.0/8" })), "{body}");
    send(&mut rings[0], &another);
    assert_eq!(receive(&mut rings[1], LONG), Some(another));
    for wrong in ["allow=10.0.0.1/24", "allow=10.0.0", "allow-mac=01:00:00:00:00:01"] {
        let (code, text) = lab.fails(&["port", "set", "a", wrong]);
        assert!(code != 0 && text.contains("/allow"), "{text}");
    }
    lab.ok(&["down"]);
}

#[test]
fn frames_beyond_a_limit_are_dropped_and_a_trace_says_so() {
    let lab = up("policy-rates");
    let mut rings: Vec<Ring> = ["a", "b"].iter().map(|name| program(&lab, name)).collect();
    // The least rate: a frame of 60 bytes in half a second. The bucket has 65 KB.
    let port = lab.json(&["port", "set", "a", "rate-from=1kbit", "burst-from=65KB", "storm=1pps"]);
    assert_eq!(
        port["policy"],
        json!({ "tag": "10", "rate-from": "1kbit", "burst-from": "65KB", "storm": "1pps" })
    );
    (1..=3).for_each(|number| send(&mut rings[0], &frame(1, 0, number)));
    assert_eq!(receive(&mut rings[1], LONG), Some(frame(1, 0, 1)));
    let dropped = || drops(&lab, "a")["storm"].as_u64().unwrap_or(0);
    let end = Instant::now() + LONG;
    while dropped() == 0 {
        assert!(Instant::now() < end, "a second frame to all in less than a second");
        send(&mut rings[0], &frame(1, 0, 4));
    }
    lab.ok(&["port", "set", "a", "storm="]);
    let end = Instant::now() + LONG;
    while drops(&lab, "a")["rate-from"].is_null() {
        assert!(Instant::now() < end, "65 KB of frames to all");
        // Whether or not there is room in the ring.
        (0..100).for_each(|number| {
            rings[0].tx.push(&frame(1, 0, number)).unwrap();
        });
        rings[0].sync().unwrap();
        while receive(&mut rings[1], Duration::ZERO).is_some() {}
    }
    // Too long for what is there a moment later.
    let said =
        lab.ok(&["trace", "a", "dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,dl_type=0x88b5,len=1500"]);
    assert!(
        said.contains("a limit on a port is reached") && said.contains("dropped at a: rate-from"),
        "{said}"
    );
    lab.ok(&["down"]);
}

#[test]
fn a_port_gets_copies_and_a_trace_says_so() {
    let lab = up("policy-mirror");
    let mut rings: Vec<Ring> = ["a", "b", "c", "up"].iter().map(|name| program(&lab, name)).collect();
    let body = json!({ "name": "ids", "kind": "ring", "socket": "ids.sock", "mirror": ["a"] });
    assert_eq!(ask(&lab, "POST", "ports", &body).0, 201, "a port without a switch");
    let mut ids = program(&lab, "ids");
    let port = lab.json(&["port", "set", "ids", "mirror-snap=64"]);
    assert_eq!(port["policy"], json!({ "mirror": "a", "mirror-snap": "64" }));
    // What the port sends, refused or not, and what it gets, without its tag.
    let (sent, refused, back) = (frame(1, 0, 1), frame(1, 30, 2), frame(4, 10, 3));
    send(&mut rings[0], &sent);
    assert_eq!(receive(&mut ids, LONG), Some(sent.clone()));
    send(&mut rings[0], &refused);
    assert_eq!(receive(&mut ids, LONG), Some(refused));
    send(&mut rings[3], &back);
    let form = receive(&mut ids, LONG).unwrap();
    assert_eq!(form[12..15], [0x88, 0xb5, 3]);
    assert_eq!(receive(&mut rings[0], LONG), Some(form));
    let text = "dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff,dl_type=0x88b5";
    let said = lab.ok(&["trace", "a", text]);
    assert!(said.contains("  mirror       ids gets a copy, as the frame comes from a\n"), "{said}");
    lab.ok(&["port", "set", "ids", "mirror-direction=to"]);
    let said = lab.ok(&["trace", "b", text]);
    assert!(said.contains("  mirror       ids gets a copy, as the frame goes to a\n"), "{said}");
    // A program that reads nothing loses copies; the mirrored port's frames all pass.
    let mut sent_back = 0;
    let end = Instant::now() + LONG;
    while drops_to(&lab, "ids")["full"].is_null() {
        assert!(Instant::now() < end, "copies fill the ring: {}", drops_to(&lab, "ids"));
        for number in 0..50 {
            send(&mut rings[3], &frame(4, 10, number));
            assert_eq!(receive(&mut rings[0], LONG).map(|frame| frame[14]), Some(number));
            sent_back += 1;
        }
    }
    assert!(sent_back > 0 && drops_to(&lab, "a")["full"].is_null());
    let saved = lab.ok(&["save"]);
    assert!(saved.contains("mirror = \"a\"\n") && saved.contains("mirror-direction = \"to\"\n"), "{saved}");
    for (args, said) in [
        (&["port", "remove", "a"][..], "port ids mirrors port a"),
        (&["port", "set", "up", "mirror=ids"], "which gets copies itself"),
        (&["port", "set", "ids", "mirror=nobody"], "there is no port \"nobody\""),
        (&["port", "set", "ids", "mirror="], "is on no switch"),
    ] {
        let (code, text) = lab.fails(args);
        assert!(code != 0 && text.contains(said), "{args:?}: {text}");
    }
    lab.ok(&["port", "remove", "ids"]);
    lab.ok(&["port", "remove", "c"]);
    lab.ok(&["down"]);
}

#[test]
fn a_customers_tags_pass_behind_a_service_tag() {
    let lab = up("policy-service");
    for (port, key) in [("a", "service-tag=100"), ("b", "service-tag=100"), ("up", "trunks=100")] {
        lab.ok(&["port", "set", port, key]);
    }
    let port = lab.json(&["port", "set", "up", "vlan-protocol=802.1ad"]);
    assert_eq!(port["policy"], json!({ "trunks": "100", "vlan-protocol": "802.1ad" }));
    let mut rings: Vec<Ring> = ["a", "b", "c", "up"].iter().map(|name| program(&lab, name)).collect();
    let sent = frame(1, 7, 1);
    send(&mut rings[0], &sent);
    assert_eq!(receive(&mut rings[1], LONG).as_ref(), Some(&sent));
    let doubled = receive(&mut rings[3], LONG).unwrap();
    assert_eq!(doubled[12..20], [0x88, 0xa8, 0, 100, 0x81, 0, 0, 7]);
    assert_eq!(receive(&mut rings[2], SHORT), None);
    let said = lab.ok(&["trace", "a", "dl_src=02:00:00:00:00:01,dl_vlan=7,dl_type=0x88b5"]);
    let rows = ["vlan         100\n", "tag          for up: with a tag of VLAN 100 (802.1ad)\n"];
    assert!(rows.iter().all(|row| said.contains(row)), "{said}");
    let saved = lab.ok(&["save"]);
    for line in ["service-tag = 100\n", "vlan-protocol = \"802.1ad\"\n"] {
        assert!(saved.contains(line), "{line}: {saved}");
    }
    let (code, text) = lab.fails(&["port", "set", "a", "vlan-protocol=802.1ad"]);
    assert!(code != 0 && text.contains("`vlan-protocol` is there without `trunks`"), "{text}");
    assert_eq!(lab.json(&["port", "set", "a", "tag=5"])["policy"], json!({ "tag": "5" }));
    lab.ok(&["down"]);
}

/// An IPv4 packet to a group.
fn to_group(from: u8, group: [u8; 4], protocol: u8, message: &[u8]) -> Vec<u8> {
    let sum = |bytes: &[u8]| {
        let mut sum = ringway_wire::Sum::new();
        sum.add(bytes);
        sum.finish().to_be_bytes()
    };
    let mut message = message.to_vec();
    let checksum = sum(&message);
    message[2..4].copy_from_slice(&checksum);
    let mut ip = vec![0x45, 0, 0, 20 + message.len() as u8, 0, 0, 0, 0, 1, protocol, 0, 0, 10, 0, 0, from];
    ip.extend(group);
    let checksum = sum(&ip);
    ip[10..12].copy_from_slice(&checksum);
    let mac = [1, 0, 0x5e, group[1] & 0x7f, group[2], group[3]];
    let mut frame = [&mac[..], &[2, 0, 0, 0, 0, from, 8, 0], &ip, &message].concat();
    frame.resize(frame.len().max(60), 0);
    frame
}

#[test]
fn groups_go_to_their_members() {
    let port = |name: &str| format!("[port.{name}]\nkind='ring'\nsocket='{name}.sock'\nswitch='main'\n");
    let ports = ["a", "b", "c", "router"].map(port).concat();
    let lab = Lab::new("policy-groups", &format!("[switch.main]\nmulticast-snooping=true\n{ports}"));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut rings: Vec<Ring> = ["a", "b", "c", "router"].iter().map(|name| program(&lab, name)).collect();
    // Hosts answer within a second.
    let query = to_group(4, [224, 0, 0, 1], 2, &[0x11, 10, 0, 0, 0, 0, 0, 0]);
    let report = to_group(1, [239, 1, 1, 1], 2, &[0x16, 0, 0, 0, 239, 1, 1, 1]);
    let data = to_group(2, [239, 1, 1, 1], 17, &[7; 20]);
    send(&mut rings[3], &query);
    for ring in &mut rings[..3] {
        assert_eq!(receive(ring, LONG).as_ref(), Some(&query));
    }
    send(&mut rings[0], &report);
    assert_eq!(receive(&mut rings[3], LONG).as_ref(), Some(&report));
    let text = "udp,dl_src=02:00:00:00:00:02,dl_dst=01:00:5e:01:01:01,nw_src=10.0.0.2,nw_dst=239.1.1.1";
    let expected = "  multicast    group 239.1.1.1: ports with members and routers, a, router\n";
    let end = Instant::now() + LONG;
    while !lab.ok(&["trace", "b", text]).contains(expected) {
        assert!(Instant::now() < end, "{}", lab.ok(&["trace", "b", text]));
    }
    send(&mut rings[1], &data);
    for port in [0, 3] {
        assert_eq!(receive(&mut rings[port], LONG).as_ref(), Some(&data), "{port}");
    }
    assert_eq!(receive(&mut rings[2], SHORT), None, "neither the report nor the packet");
    let groups = lab.json(&["switch", "groups", "main"]);
    let rows: Vec<_> =
        groups["entries"].as_array().unwrap().iter().map(|row| (&row["group"], &row["port"])).collect();
    assert_eq!(rows, [(&Value::Null, &json!("router")), (&json!("239.1.1.1"), &json!("a"))]);
    assert!(lab.ok(&["switch", "groups", "main"]).contains("239.1.1.1"));
    // What is known of a port goes with its program.
    drop(rings.remove(0));
    let end = Instant::now() + LONG;
    while lab.json(&["switch", "groups", "main"])["entries"].as_array().unwrap().len() > 1 {
        assert!(Instant::now() < end, "the member is gone");
    }
    let (code, text) = lab.fails(&["switch", "groups", "nobody"]);
    assert!(code != 0 && text.contains("nobody"), "{text}");
    lab.ok(&["down"]);
}
