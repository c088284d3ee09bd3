//! The configurations with their frames and targets.

use super::frames::{Flow, Frames, Length, Numbers};
use super::tables::Traffic::{Churn, Replies, Uniform};
use super::{middlebox, router, rules, tables};
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Flows through a firewall.
const FIREWALL_FLOWS: u64 = 100_000;

/// A configuration to measure.
pub struct Case {
    /// Its key.
    pub key: &'static str,
    /// Target in millions of frames a second at the sink; 0: none.
    pub mark: f64,
    /// Target as a multiple of the peer's rate; 0: none.
    pub ratio: f64,
    /// The configuration's text between a source and a sink.
    pub text: fn(source: &str, sink: &str) -> String,
    /// The peer's configuration with its fastest elements; none if it has no equivalent.
    pub theirs: Option<fn(source: &str, sink: &str) -> String>,
    /// Whether frames that the elements have modified may be sent again.
    pub again: bool,
    /// Length of frames in bytes; steps use other lengths.
    pub length: usize,
    /// Input frames.
    pub frames: fn(Length) -> Frames,
    /// Frames of so many flows that hardly any is remembered, for a step.
    pub new_flows: Option<fn(Length) -> Frames>,
}

impl Case {
    /// Whether frames of other lengths are measured too.
    pub fn varies(&self) -> bool {
        !self.key.ends_with(".replies") && !self.key.ends_with(".churn")
    }
}

/// One flow from source to sink, without targets and without a peer.
const PLAIN: Case = Case {
    key: "",
    mark: 0.0,
    ratio: 0.0,
    text: |source, sink| format!("{source} -> {sink};"),
    theirs: None,
    again: true,
    length: 64,
    frames: |length| Frames::new(length, 1, |number| flow(number as u64)),
    new_flows: None,
};

fn link(source: &str, sink: &str) -> String {
    format!("{source} -> LinkEmulator(DELAY 100us) -> {sink};")
}

/// All cases.
pub const CASES: &[Case] = &[
    Case {
        key: "forward",
        mark: 20.0,
        ratio: 3.0,
        theirs: Some(|source, sink| format!("{source} -> {sink};")),
        ..PLAIN
    },
    Case {
        key: "mirror",
        mark: 20.0,
        ratio: 3.0,
        text: |source, sink| format!("{source} -> EtherMirror -> {sink};"),
        theirs: Some(|source, sink| format!("{source} -> EtherMirror -> {sink};")),
        ..PLAIN
    },
    Case {
        key: "router",
        mark: 12.0,
        ratio: 3.0,
        text: |source, sink| router::text("RadixIPLookup", source, sink),
        theirs: Some(|source, sink| router::text("DirectIPLookup", source, sink)),
        frames: router::frames,
        ..PLAIN
    },
    Case {
        key: "firewall.10",
        mark: 8.0,
        text: |a, b| firewall(10, a, b),
        theirs: Some(|a, b| firewall(10, a, b)),
        frames: filtered,
        ..PLAIN
    },
    Case {
        key: "firewall.10000",
        mark: 5.0,
        text: |a, b| firewall(10_000, a, b),
        theirs: Some(|a, b| firewall(10_000, a, b)),
        frames: filtered,
        ..PLAIN
    },
    Case {
        key: "rules.10",
        mark: 14.4,
        ratio: 2.0,
        text: rules::ten_rules,
        theirs: Some(rules::ten_rules),
        frames: rules::ten_frames,
        ..PLAIN
    },
    Case {
        key: "rules.acl",
        mark: 5.0,
        text: |a, b| rules::list(&rules::ACL, a, b),
        frames: |length| rules::list_frames(&rules::ACL, length),
        new_flows: Some(|length| rules::list_flows(&rules::ACL, length)),
        ..PLAIN
    },
    Case {
        key: "rules.fw",
        mark: 5.0,
        text: |a, b| rules::list(&rules::FIREWALL, a, b),
        frames: |length| rules::list_frames(&rules::FIREWALL, length),
        new_flows: Some(|length| rules::list_flows(&rules::FIREWALL, length)),
        ..PLAIN
    },
    Case {
        key: "rules.ipc",
        mark: 5.0,
        text: |a, b| rules::list(&rules::CHAIN, a, b),
        frames: |length| rules::list_frames(&rules::CHAIN, length),
        new_flows: Some(|length| rules::list_flows(&rules::CHAIN, length)),
        ..PLAIN
    },
    Case { key: "rules.mixed", mark: 1.0, text: rules::mixed_rules, frames: rules::mixed_frames, ..PLAIN },
    Case {
        key: "nat",
        mark: 6.0,
        ratio: 3.0,
        text: |a, b| tables::nat(Uniform, a, b),
        theirs: Some(|a, b| tables::nat(Uniform, a, b)),
        again: false,
        frames: tables::flows,
        ..PLAIN
    },
    Case {
        key: "nat.replies",
        ratio: 3.0,
        text: |a, b| tables::nat(Replies, a, b),
        theirs: Some(|a, b| tables::nat(Replies, a, b)),
        again: false,
        frames: tables::flows,
        ..PLAIN
    },
    Case {
        key: "nat.churn",
        ratio: 3.0,
        text: |a, b| tables::nat(Churn, a, b),
        theirs: Some(|a, b| tables::nat(Churn, a, b)),
        again: false,
        frames: tables::flows,
        ..PLAIN
    },
    Case {
        key: "ids.5",
        mark: 8.0,
        text: |a, b| middlebox::ids(5, a, b),
        frames: |length| middlebox::searched(5, length),
        ..PLAIN
    },
    Case {
        key: "ids.5000",
        mark: 8.0,
        text: |a, b| middlebox::ids(5000, a, b),
        frames: |length| middlebox::searched(5000, length),
        ..PLAIN
    },
    Case {
        key: "ids.real",
        mark: 0.5,
        text: |a, b| middlebox::ids(5000, a, b),
        length: 1500,
        frames: middlebox::real,
        ..PLAIN
    },
    Case {
        key: "lb",
        mark: 5.0,
        text: |a, b| tables::balancer(Uniform, a, b),
        theirs: Some(|a, b| tables::mapper(Uniform, a, b)),
        again: false,
        frames: tables::balanced,
        ..PLAIN
    },
    Case {
        key: "lb.replies",
        text: |a, b| tables::balancer(Replies, a, b),
        theirs: Some(|a, b| tables::mapper(Replies, a, b)),
        again: false,
        frames: tables::balanced,
        ..PLAIN
    },
    Case {
        key: "lb.churn",
        text: |a, b| tables::balancer(Churn, a, b),
        theirs: Some(|a, b| tables::mapper(Churn, a, b)),
        again: false,
        frames: tables::balanced,
        ..PLAIN
    },
    Case {
        key: "flowmon",
        mark: 5.0,
        text: |a, b| tables::monitor(Uniform, a, b),
        frames: tables::flows,
        ..PLAIN
    },
    Case {
        key: "flowmon.replies",
        text: |a, b| tables::monitor(Replies, a, b),
        frames: tables::both_ways,
        ..PLAIN
    },
    Case { key: "flowmon.churn", text: |a, b| tables::monitor(Churn, a, b), frames: tables::flows, ..PLAIN },
    Case { key: "link.pps", mark: 10.0, text: link, frames: tables::flows, ..PLAIN },
    Case { key: "link.gbit", mark: 3.34, text: link, length: 1500, frames: tables::flows, ..PLAIN },
    Case { key: "bras", mark: 5.0, text: middlebox::bras, frames: middlebox::session_frames, ..PLAIN },
    Case {
        key: "bras.down",
        mark: 5.0,
        text: middlebox::bras_down,
        frames: middlebox::to_subscribers,
        ..PLAIN
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

fn filtered(length: Length) -> Frames {
    let mut numbers = Numbers(11);
    let count = FIREWALL_FLOWS as usize;
    Frames::new(length, count, |number| Flow {
        opens: number.is_multiple_of(10),
        ..flow(numbers.below(FIREWALL_FLOWS))
    })
}

/// Rules on networks and ports that match no frame of [`filtered`].
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
