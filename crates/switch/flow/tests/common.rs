//! Random flows and frames of a small world, so that they meet.

use ringway_flow::{Arrival, Pipeline, To, Worker};
use ringway_wire::fields::Described;
use ringway_wire::{Header, Ipv4};

/// Numbers at random, the same for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }

    pub fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn maybe(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

const MACS: [&str; 4] = ["02:00:00:00:00:01", "02:00:00:00:00:02", "01:00:5e:00:00:05", "ff:ff:ff:ff:ff:ff"];
const IPS: [&str; 5] = ["10.0.0.1", "10.0.0.2", "10.1.0.1", "192.168.3.4", "224.0.0.5"];
const IP6S: [&str; 4] = ["fd00::1", "fd00::2", "fd00:1::1", "fe80::5"];
const PORTS: [&str; 4] = ["80", "81", "53", "4096"];

/// Words of a match with what they need.
pub fn of(random: &mut Random) -> String {
    let mut words = Vec::new();
    let protocol = random.one(&["", "", "ip", "tcp", "udp", "icmp", "arp", "ipv6", "tcp6", "udp6", "icmp6"]);
    words.extend((!protocol.is_empty()).then(|| protocol.to_string()));
    let mut add = |random: &mut Random, percent: usize, name: &str, values: &[&str]| {
        if random.maybe(percent) {
            words.push(format!("{name}={}", random.one(values)));
        }
    };
    add(random, 30, "in_port", &["1", "2", "3"]);
    add(random, 20, "dl_src", &[MACS[0], MACS[1], "02:00:00:00:00:00/ff:ff:ff:ff:ff:00"]);
    add(random, 20, "dl_dst", &[MACS[0], MACS[1], MACS[3], "01:00:00:00:00:00/01:00:00:00:00:00"]);
    add(random, 20, "reg0", &["0", "1", "2/3", "0x10/0xf0"]);
    add(random, 10, "metadata", &["0", "7", "4/4"]);
    let tag = random.one(&[
        "",
        "",
        "",
        "vlan_tci=0/0x1fff",
        "vlan_tci=0x1000/0x1000",
        "dl_vlan=5",
        "dl_vlan_pcp=3",
        "vlan_tci=0x1001/0x1001",
    ]);
    let is = |list: &[&str]| list.contains(&protocol);
    if is(&["ip", "tcp", "udp", "icmp"]) {
        add(random, 30, "nw_src", &[IPS[0], IPS[1], "10.0.0.0/8", "10.0.0.1/255.0.0.255"]);
        add(random, 30, "nw_dst", &[IPS[0], IPS[2], "10.0.0.0/16", "224.0.0.0/4"]);
        add(random, 10, "nw_frag", &["no", "yes", "first", "later", "not_later"]);
    }
    if is(&["ipv6", "tcp6", "udp6", "icmp6"]) {
        add(random, 30, "ipv6_src", &[IP6S[0], "fd00::/16", "::1/::ffff"]);
        add(random, 30, "ipv6_dst", &[IP6S[1], "fd00::/32"]);
        add(random, 10, "ipv6_label", &["0", "5"]);
    }
    if is(&["ip", "tcp", "udp", "icmp", "ipv6", "tcp6"]) {
        add(random, 10, "nw_tos", &["0", "32"]);
        add(random, 10, "nw_ecn", &["0", "1"]);
        add(random, 10, "nw_ttl", &["1", "64"]);
    }
    let is_later = words.iter().any(|word| word == "nw_frag=later");
    if !is_later {
        behind_ip(random, protocol, &mut words);
        words.extend((!tag.is_empty()).then(|| tag.to_string()));
    }
    words.join(",")
}

/// Words of the headers behind IP, and of ARP.
fn behind_ip(random: &mut Random, protocol: &str, words: &mut Vec<String>) {
    let is = |list: &[&str]| list.contains(&protocol);
    let mut add = |random: &mut Random, percent: usize, name: &str, values: &[&str]| {
        if random.maybe(percent) {
            words.push(format!("{name}={}", random.one(values)));
        }
    };
    if is(&["tcp", "udp", "tcp6", "udp6"]) {
        add(random, 40, "tp_src", &[PORTS[0], PORTS[1], "0x50/0xfff0"]);
        add(random, 40, "tp_dst", &[PORTS[0], PORTS[2], "0x1000/0xf000"]);
    }
    if is(&["tcp", "tcp6"]) {
        add(random, 20, "tcp_flags", &["+syn-ack", "syn|ack", "+rst", "0"]);
    }
    if is(&["arp"]) {
        add(random, 40, "arp_op", &["1", "2"]);
        add(random, 40, "arp_spa", &[IPS[0], "10.0.0.0/8"]);
        add(random, 40, "arp_tpa", &[IPS[1]]);
        add(random, 20, "arp_sha", &[MACS[0]]);
    }
    if is(&["icmp", "icmp6"]) {
        add(random, 30, "icmp_type", if protocol == "icmp" { &["8", "0"] } else { &["128", "135"] });
        add(random, 30, "icmp_code", &["0", "1"]);
    }
    let has = |wanted: &str| words.iter().any(|word| word == wanted);
    if has("icmp_type=135") && !has("icmp_code=1") {
        words.push(format!("nd_target={}", random.one(&["fd00::2", "fd00::/16"])));
    }
}

/// Actions of a flow of `table` with this match.
fn actions(random: &mut Random, table: usize, of: &str) -> String {
    let protocol = of.split(',').next().unwrap_or_default();
    let mut list: Vec<String> = Vec::new();
    for _ in 0..random.below(5) {
        let is_v4 = matches!(protocol, "ip" | "tcp" | "udp" | "icmp");
        let is_v6 = matches!(protocol, "ipv6" | "tcp6" | "udp6" | "icmp6");
        let has_tag = ["vlan_tci=0x1", "dl_vlan"].iter().any(|word| of.contains(word));
        let knows_tag = has_tag || of.contains("vlan_tci=0/0x1fff");
        let is_later = of.contains("nw_frag=later");
        let has_ports = !is_later && matches!(protocol, "tcp" | "udp" | "tcp6" | "udp6");
        let action = match random.below(18) {
            0 => format!("set_field:{}->eth_src", random.one(&MACS[..2])),
            1 => format!("mod_dl_dst:{}", random.one(&MACS)),
            2 => format!("load:{}->NXM_NX_REG0[0..7]", random.below(20)),
            3 => "move:NXM_NX_REG0[0..3]->NXM_NX_REG0[4..7]".into(),
            4 => format!("set_field:{}->metadata", random.below(8)),
            5 if is_v4 => format!("mod_nw_src:{}", random.one(&IPS)),
            6 if is_v4 => format!(
                "set_field:{}->ip_dst",
                random.one(&["10.0.0.9", "10.0.0.0/255.0.0.0", "0.0.0.7/0.0.0.255"])
            ),
            7 if is_v6 => format!("set_field:{}->ipv6_dst", random.one(&IP6S)),
            7 if is_v4 => "move:NXM_OF_IP_SRC[]->NXM_OF_IP_DST[]".into(),
            8 if is_v4 || is_v6 => {
                random.one(&["mod_nw_tos:32", "mod_nw_ecn:1", "mod_nw_ttl:9", "dec_ttl"]).into()
            }
            9 if has_ports => format!("mod_tp_{}:{}", random.one(&["src", "dst"]), random.one(&PORTS)),
            10 if protocol == "arp" => random
                .one(&[
                    "set_field:2->arp_op",
                    "move:NXM_NX_ARP_SHA[]->NXM_NX_ARP_THA[]",
                    "load:0xa000001->NXM_OF_ARP_SPA[]",
                ])
                .into(),
            // Where the match does not say whether there is a tag, OpenFlow 1.3 adds one.
            11 if knows_tag => format!("mod_vlan_vid:{}", random.below(8)),
            12 if has_tag => "strip_vlan".into(),
            12 if !knows_tag => "push_vlan:0x8100,set_field:4103->vlan_vid".into(),
            12 => random.one(&["mod_vlan_pcp:3", "push_vlan:0x8100,set_field:4103->vlan_vid"]).into(),
            13 if table < 3 => format!("resubmit(,{})", table + 1 + random.below(2)),
            14 if table < 3 => format!("resubmit({},3)", 1 + random.below(3)),
            15 => format!("clone(mod_dl_src:02:00:00:00:00:07,output:{})", 1 + random.below(4)),
            _ => random.one(&["output:1", "output:2", "output:3", "output:4", "in_port", "all"]).into(),
        };
        // Tags on tags are ours alone: Open vSwitch knows two at most.
        let tags = ["push_vlan", "mod_vlan", "strip"];
        let is_tag = |text: &str| tags.iter().any(|tag| text.contains(tag));
        if !(is_tag(&action) && list.iter().any(|other| is_tag(other))) {
            list.push(action);
        }
    }
    match list.is_empty() {
        true => random.one(&["drop", "output:2", "all"]).to_string(),
        false => list.join(","),
    }
}

/// Flows, each with a priority of its own.
pub fn flows(random: &mut Random, count: usize) -> Vec<String> {
    let mut flows: Vec<String> =
        (0..4).map(|table| format!("table={table},priority=0,actions=output:{}", table + 1)).collect();
    for number in 0..count {
        let table = random.one(&[0, 0, 1, 2, 3]);
        let of = of(random);
        let actions = actions(random, table, &of);
        flows
            .push(format!("table={table},priority={},{of},actions={actions}", 1 + number).replace(",,", ","));
    }
    flows
}

/// A frame, whose checksums are right.
pub fn frame(random: &mut Random) -> Vec<u8> {
    let protocols =
        ["ip", "tcp", "tcp", "udp", "icmp", "arp", "ipv6", "tcp6", "udp6", "icmp6", "dl_type=0x88cc"];
    let protocol = random.one(&protocols);
    // Open vSwitch does not change packets of protocol 0.
    let more = if matches!(protocol, "ip" | "ipv6") { ",nw_proto=99" } else { "" };
    let mut text = format!("{protocol}{more},dl_src={},dl_dst={}", random.one(&MACS[..2]), random.one(&MACS));
    let mut add = |random: &mut Random, percent: usize, name: &str, values: &[&str]| {
        if random.maybe(percent) {
            text += &format!(",{name}={}", random.one(values));
        }
    };
    add(random, 30, "dl_vlan", &["5", "6"]);
    let is = |list: &[&str]| list.contains(&protocol);
    if is(&["ip", "tcp", "udp", "icmp"]) {
        add(random, 100, "nw_src", &IPS[..4]);
        add(random, 100, "nw_dst", &IPS);
    }
    if is(&["ipv6", "tcp6", "udp6", "icmp6"]) {
        add(random, 100, "ipv6_src", &IP6S);
        add(random, 100, "ipv6_dst", &IP6S);
    }
    if is(&["ip", "tcp", "udp", "icmp", "ipv6", "tcp6"]) {
        add(random, 20, "nw_tos", &["32", "33"]);
        add(random, 20, "nw_ttl", &["1", "2"]);
    }
    if is(&["tcp", "udp", "tcp6", "udp6"]) {
        add(random, 100, "tp_src", &PORTS);
        add(random, 100, "tp_dst", &PORTS);
    }
    if is(&["tcp", "tcp6"]) {
        add(random, 80, "tcp_flags", &["syn", "syn+ack", "rst", "0x1ff"]);
    }
    if is(&["arp"]) {
        add(random, 50, "arp_op", &["1", "2"]);
        add(random, 100, "arp_spa", &IPS);
        add(random, 100, "arp_tpa", &IPS);
        add(random, 50, "arp_sha", &MACS);
    }
    if is(&["icmp6"]) {
        add(random, 50, "icmpv6_type", &["128", "135", "136"]);
    }
    if text.contains("icmpv6_type=13") {
        text += ",nd_target=fd00::2";
    }
    if text.contains("dl_vlan=") && random.maybe(50) {
        text += ",dl_vlan_pcp=3";
    }
    let mut frame = Described::parse(&text).unwrap_or_else(|error| panic!("{text}: {error}")).frame;
    if frame[12..14] == [0x86, 0xdd] && random.maybe(40) {
        extend(random, &mut frame);
    }
    if frame[12..14] == [8, 0] && random.maybe(20) {
        // Open vSwitch in user space takes what is in a later fragment for a header with a checksum.
        let is_later = matches!(protocol, "ip" | "icmp");
        fragment(&mut frame, if is_later { random.one(&[0x2000, 0x2001, 1]) } else { 0x2000 });
    }
    if random.maybe(10) {
        frame.resize(frame.len() + 300, 0);
    }
    frame
}

/// Makes a packet of IPv4 without a tag a fragment, with these flags and this offset.
fn fragment(frame: &mut [u8], flags: u16) {
    let ip = Ipv4::of_mut(&mut frame[14..]).unwrap();
    ip.fragment.set(flags);
    ip.fill_checksum(&[]);
}

/// Adds an extension header to a packet of IPv6 without a tag.
fn extend(random: &mut Random, frame: &mut Vec<u8>) {
    let next = frame[20];
    let (kind, length) = match random.below(3) {
        0 => (44, 8),
        1 => (43, 24),
        _ => (random.one(&[0, 60]), 8 * (1 + random.below(24))),
    };
    let mut header = vec![0; length];
    (header[0], header[1]) = (next, (length / 8 - 1) as u8);
    match kind {
        44 => (header[1], header[3]) = (0, random.one(&[0, 1, 8, 9])),
        43 => header[3] = random.one(&[0, 1]),
        // One option of padding.
        _ => (header[2], header[3]) = (1, (length - 4).min(255) as u8),
    }
    frame[20] = kind;
    frame.splice(54..54, header);
    let payload = u16::from_be_bytes([frame[18], frame[19]]) + length as u16;
    frame[18..20].copy_from_slice(&payload.to_be_bytes());
}

/// The copies of a frame: the ports that get them, and the bytes; 0 stands for all others.
pub fn copies(pipeline: &Pipeline, worker: &mut Worker, in_port: u16, frame: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let arrival = Arrival { in_port, ports: 4, len: frame.len() as u32, pending: None };
    let mut batch = pipeline.begin(worker, 5_000_000_000);
    let verdict = batch.run(arrival, |from, into| {
        let rest = frame.get(from..).unwrap_or_default();
        let count = into.len().min(rest.len());
        into[..count].copy_from_slice(&rest[..count]);
        count
    });
    assert_eq!(verdict.dropped.is_some(), verdict.outputs.is_empty());
    let bytes = |output| match verdict.headers(output) {
        None => frame.to_vec(),
        Some(headers) => [headers.bytes(), &frame[headers.replaces()..]].concat(),
    };
    verdict
        .outputs
        .iter()
        .map(|output| match output.to {
            To::Port(port) => (port, bytes(output)),
            To::Others => (0, bytes(output)),
            To::Normal => (u16::MAX, bytes(output)),
        })
        .collect()
}
