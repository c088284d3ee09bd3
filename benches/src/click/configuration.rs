//! The configurations with their frames and targets.

use super::frames::{Flow, Frames, Length, Numbers};
use super::middlebox;
use super::rules;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Prefixes of the router's table.
const PREFIXES: u64 = 200_000;
/// Flows through a firewall.
const FIREWALL_FLOWS: u64 = 100_000;
/// Number of flows of a NAT.
const NAT_FLOWS: u64 = 1_000_000;
/// The router's output ports.
const PORTS: u64 = 4;

/// A configuration to measure.
pub struct Case {
    /// Its key.
    pub key: &'static str,
    /// Millions of frames a second that were promised.
    pub mark: f64,
    /// How many times a peer's rate; 0: nothing was promised.
    pub ratio: f64,
    /// Its text between a source and a sink.
    pub text: fn(source: &str, sink: &str) -> String,
    /// The same for a peer, with its fastest elements; none if it has no equivalent.
    pub theirs: Option<fn(source: &str, sink: &str) -> String>,
    /// Whether frames that its elements wrote to may be sent again.
    pub again: bool,
    /// Length of frames in bytes, but for the steps.
    pub length: usize,
    /// Its input.
    pub frames: fn(Length) -> Frames,
}

/// All cases.
pub const CASES: &[Case] = &[
    Case {
        key: "forward",
        mark: 20.0,
        ratio: 3.0,
        text: |source, sink| format!("{source} -> {sink};"),
        theirs: Some(|source, sink| format!("{source} -> {sink};")),
        again: true,
        length: 64,
        frames: |length| Frames::new(length, 1, |number| flow(number as u64)),
    },
    Case {
        key: "mirror",
        mark: 20.0,
        ratio: 3.0,
        text: |source, sink| format!("{source} -> EtherMirror -> {sink};"),
        theirs: Some(|source, sink| format!("{source} -> EtherMirror -> {sink};")),
        again: true,
        length: 64,
        frames: |length| Frames::new(length, 1, |number| flow(number as u64)),
    },
    Case {
        key: "router",
        mark: 12.0,
        ratio: 3.0,
        text: |source, sink| router("RadixIPLookup", source, sink),
        theirs: Some(|source, sink| router("DirectIPLookup", source, sink)),
        again: true,
        length: 64,
        frames: routed,
    },
    Case {
        key: "firewall.10",
        mark: 8.0,
        ratio: 0.0,
        text: |a, b| firewall(10, a, b),
        theirs: Some(|a, b| firewall(10, a, b)),
        again: true,
        length: 64,
        frames: filtered,
    },
    Case {
        key: "firewall.10000",
        mark: 5.0,
        ratio: 0.0,
        text: |a, b| firewall(10_000, a, b),
        theirs: Some(|a, b| firewall(10_000, a, b)),
        again: true,
        length: 64,
        frames: filtered,
    },
    Case {
        key: "rules.10",
        mark: 14.4,
        ratio: 2.0,
        text: rules::ten_rules,
        theirs: Some(rules::ten_rules),
        again: true,
        length: 64,
        frames: rules::ten_frames,
    },
    Case {
        key: "rules.acl",
        mark: 5.0,
        ratio: 0.0,
        text: |a, b| rules::list(&rules::ACL, a, b),
        theirs: None,
        again: true,
        length: 64,
        frames: |length| rules::list_frames(&rules::ACL, length),
    },
    Case {
        key: "rules.fw",
        mark: 5.0,
        ratio: 0.0,
        text: |a, b| rules::list(&rules::FIREWALL, a, b),
        theirs: None,
        again: true,
        length: 64,
        frames: |length| rules::list_frames(&rules::FIREWALL, length),
    },
    Case {
        key: "rules.ipc",
        mark: 5.0,
        ratio: 0.0,
        text: |a, b| rules::list(&rules::CHAIN, a, b),
        theirs: None,
        again: true,
        length: 64,
        frames: |length| rules::list_frames(&rules::CHAIN, length),
    },
    Case {
        key: "rules.mixed",
        mark: 1.0,
        ratio: 0.0,
        text: rules::mixed_rules,
        theirs: None,
        again: true,
        length: 64,
        frames: rules::mixed_frames,
    },
    Case {
        key: "nat",
        mark: 6.0,
        ratio: 3.0,
        text: nat,
        theirs: Some(nat),
        again: false,
        length: 64,
        frames: translated,
    },
    Case {
        key: "ids.5",
        mark: 8.0,
        ratio: 0.0,
        text: |a, b| middlebox::ids(5, a, b),
        theirs: None,
        again: true,
        length: 64,
        frames: |length| middlebox::searched(5, length),
    },
    Case {
        key: "ids.5000",
        mark: 8.0,
        ratio: 0.0,
        text: |a, b| middlebox::ids(5000, a, b),
        theirs: None,
        again: true,
        length: 64,
        frames: |length| middlebox::searched(5000, length),
    },
    Case {
        key: "ids.real",
        mark: 0.5,
        ratio: 0.0,
        text: |a, b| middlebox::ids(5000, a, b),
        theirs: None,
        again: true,
        length: 1500,
        frames: middlebox::real,
    },
    Case {
        key: "lb",
        mark: 5.0,
        ratio: 0.0,
        text: middlebox::balancer,
        theirs: Some(middlebox::mapper),
        again: false,
        length: 64,
        frames: middlebox::balanced,
    },
    Case {
        key: "flowmon",
        mark: 5.0,
        ratio: 0.0,
        text: middlebox::monitor,
        theirs: None,
        again: true,
        length: 64,
        frames: middlebox::monitored,
    },
    Case {
        key: "bras",
        mark: 5.0,
        ratio: 0.0,
        text: middlebox::bras,
        theirs: None,
        again: true,
        length: 64,
        frames: middlebox::session_frames,
    },
    Case {
        key: "bras.down",
        mark: 5.0,
        ratio: 0.0,
        text: middlebox::bras_down,
        theirs: None,
        again: true,
        length: 64,
        frames: middlebox::to_subscribers,
    },
];

/// One of many flows.
pub fn flow(number: u64) -> Flow {
    let mut numbers = Numbers(number);
    let from = Ipv4Addr::from(0x0a00_0000 | numbers.below(1 << 24) as u32);
    let to = Ipv4Addr::from(0xac10_0000 | numbers.below(1 << 20) as u32);
    let ports = [1024 + numbers.below(60_000) as u16, 80];
    Flow { addresses: [from, to], ports, opens: false }
}

/// Prefix `number`, its length spread as in tables of the Internet: more than half have 24 bits.
fn prefix(number: u64) -> (u32, u8) {
    let mut numbers = Numbers(number ^ 0x5eed);
    let bits = match numbers.below(100) {
        0..=57 => 24,
        58..=70 => 22,
        71..=79 => 23,
        80..=86 => 20,
        87..=92 => 21,
        93..=96 => 19,
        97..=98 => 16,
        _ => 18,
    };
    // 1.0.0.0 to 223.255.255.255, without the networks that mean something else.
    let address = (1 + numbers.below(222) as u32) << 24 | numbers.below(1 << 24) as u32;
    let address = if matches!(address >> 24, 10 | 127 | 172 | 192) { address ^ 1 << 24 } else { address };
    (address & (u32::MAX << (32 - bits)), bits)
}

fn routed(length: Length) -> Frames {
    let mut numbers = Numbers(7);
    Frames::new(length, PREFIXES as usize, |_| {
        let (network, bits) = prefix(numbers.below(PREFIXES));
        let to = network | (1 + numbers.below((1 << (32 - bits)) - 2) as u32);
        let from = Ipv4Addr::new(10, 0, 0, 2);
        Flow { addresses: [from, Ipv4Addr::from(to)], ports: [1024, 80], opens: false }
    })
}

/// Click's own router (Kohler et al., TOCS 2000), with fixed addresses instead of ARP.
fn router(lookup: &str, source: &str, sink: &str) -> String {
    let mut text = String::from("out :: Null -> ");
    let _ = writeln!(text, "{sink}; bad :: Discard;");
    let _ = write!(text, "rt :: {lookup}(");
    for number in 0..PREFIXES {
        let (network, bits) = prefix(number);
        let port = number % PORTS;
        let _ = write!(text, "{}/{bits} 10.1.{port}.2 {port}, ", Ipv4Addr::from(network));
    }
    text.push_str("0.0.0.0/0 10.1.0.2 0);\n");
    let _ = writeln!(text, "{source} -> Paint({PORTS}) -> Strip(14) -> CheckIPHeader -> rt;");
    for port in 0..PORTS {
        let own = format!("10.1.{port}.1");
        let _ = writeln!(
            text,
            "rt[{port}] -> DropBroadcasts -> tee{port} :: PaintTee({port}) \
             -> options{port} :: IPGWOptions({own}) -> FixIPSrc({own}) \
             -> ttl{port} :: DecIPTTL -> fragment{port} :: IPFragmenter(1500) \
             -> EtherEncap(0x0800, 02:00:00:00:01:0{port}, 02:00:00:00:02:0{port}) -> out; \
             tee{port}[1] -> bad; options{port}[1] -> bad; ttl{port}[1] -> bad; fragment{port}[1] -> bad;"
        );
    }
    text
}

fn filtered(length: Length) -> Frames {
    let mut numbers = Numbers(11);
    let count = FIREWALL_FLOWS as usize;
    Frames::new(length, count, |number| Flow {
        opens: number.is_multiple_of(10),
        ..flow(numbers.below(FIREWALL_FLOWS))
    })
}

/// Rules about networks and ports that match no frame of [`filtered`].
fn firewall(rules: u64, source: &str, sink: &str) -> String {
    let mut text = format!("{source} -> Strip(14) -> CheckIPHeader -> filter :: IPFilter(");
    let mut numbers = Numbers(13);
    for _ in 0..rules {
        let network = Ipv4Addr::from(0x0a00_0000 | (numbers.below(1 << 16) as u32) << 8);
        let port = 1 + numbers.below(60_000);
        let port = if port == 80 { 81 } else { port };
        let _ = write!(text, "deny src net {network}/24 and tcp dst port {port}, ");
    }
    let _ = writeln!(text, "allow all) -> Unstrip(14) -> {sink};");
    text
}

fn translated(length: Length) -> Frames {
    let mut numbers = Numbers(17);
    // Each flow once, and then uniformly at random: the first round creates all of them.
    Frames::new(length, 2 * NAT_FLOWS as usize, |number| match number as u64 {
        first if first < NAT_FLOWS => Flow { opens: true, ..flow(first) },
        _ => flow(numbers.below(NAT_FLOWS)),
    })
}

fn nat(source: &str, sink: &str) -> String {
    format!(
        "{source} -> Strip(14) -> CheckIPHeader -> nat :: IPRewriter(pattern 192.0.2.1 1024-65535 - - 0 1, \
         drop, MAPPING_CAPACITY 4000000, TCP_TIMEOUT 3600, TCP_NODATA_TIMEOUT 3600); \
         nat[0] -> Unstrip(14) -> {sink}; nat[1] -> Discard; Idle -> [1]nat;"
    )
}
