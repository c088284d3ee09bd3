//! Configurations that keep a table of flows, and their traffic.

use super::configuration::flow;
use super::frames::{Flow, Frames, HEADERS, Length, Numbers, head};
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Number of flows.
const FLOWS: u64 = 1_000_000;
/// Number of servers of a balancer.
const SERVERS: u8 = 16;
/// The virtual address of a balancer.
const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// One frame in this many is the only one of a new flow.
const CHURN: usize = 10;
/// A table's capacity in flows.
const HELD: u64 = 1_500_000;
/// The last byte of the destination's Ethernet address of frames whose flow is new.
const NEW: u8 = 3;

/// Traffic through a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// Packets of known flows, uniformly.
    Uniform,
    /// Each packet's reply returns through the table.
    Replies,
    /// One packet in ten is of a new flow.
    Churn,
}

/// Each of `flows` flows once, then repeatedly in another order.
fn shuffled(length: Length, flows: u64, of: impl Fn(u64) -> Flow) -> Frames {
    let mut numbers = Numbers(19);
    let mut order: Vec<u64> = (0..flows).collect();
    for last in (1..order.len()).rev() {
        order.swap(last, numbers.below(last as u64 + 1) as usize);
    }
    let count = order.len();
    let frames = Frames::made(length, HEADERS, 2 * count, |number, length| {
        let again = number.checked_sub(count);
        let flow = of(again.map_or(number as u64, |number| order[number]));
        let mut frame = head(length, Flow { opens: again.is_none(), ..flow });
        if again.is_some_and(|number| number % CHURN == 0) {
            frame[5] = NEW;
        }
        frame
    });
    frames.with_once(count)
}

/// A source; with churn, flows become new by incremented ports.
fn source(traffic: Traffic, source: &str) -> String {
    match traffic {
        Traffic::Churn => format!(
            "{source} -> churn :: Classifier(5/{NEW:02x}, -); churn[0] -> NumberPacket(34) -> all :: Null; \
             churn[1] -> all"
        ),
        _ => source.into(),
    }
}

/// A source, `element` (its second ports are for replies), and a sink.
fn through(traffic: Traffic, element: &str, from: &str, sink: &str) -> String {
    let from = source(traffic, from);
    let back = match traffic {
        Traffic::Replies => {
            format!("table[0] -> IPMirror -> [1] table; table[1] -> Unstrip(14) -> {sink};")
        }
        _ => format!("table[0] -> Unstrip(14) -> {sink}; Idle -> [1] table; table[1] -> Discard;"),
    };
    format!("table :: {element}; {from} -> Strip(14) -> CheckIPHeader -> table; {back}")
}

/// An `IPRewriter` that rewrites new flows by `how`.
fn rewriter(how: &str) -> String {
    format!(
        "IPRewriter({how}, drop, MAPPING_CAPACITY {HELD}, TCP_GUARANTEE 0, TCP_TIMEOUT 3600, \
         TCP_NODATA_TIMEOUT 3600)"
    )
}

/// Network address translation.
pub fn nat(traffic: Traffic, source: &str, sink: &str) -> String {
    through(traffic, &rewriter("pattern 192.0.2.1 1024-65535 - - 0 1"), source, sink)
}

/// Frames of many flows.
pub fn flows(length: Length) -> Frames {
    shuffled(length, FLOWS, flow)
}

/// As [`flows`], with every second packet in the other direction.
pub fn both_ways(length: Length) -> Frames {
    shuffled(length, FLOWS, |number| {
        let Flow { addresses: [from, to], ports: [source, destination], opens } = flow(number / 2);
        match number % 2 {
            0 => flow(number / 2),
            _ => Flow { addresses: [to, from], ports: [destination, source], opens },
        }
    })
}

/// Load balancing of connections among servers.
pub fn balancer(traffic: Traffic, source: &str, sink: &str) -> String {
    let servers: Vec<String> = (1..=SERVERS).map(|server| format!("10.9.0.{server}")).collect();
    let element = format!("IPLoadBalancer({VIP}, {}, CAPACITY {HELD})", servers.join(", "));
    through(traffic, &element, source, sink)
}

/// As [`balancer`], with Click's elements.
pub fn mapper(traffic: Traffic, source: &str, sink: &str) -> String {
    let mut text = String::from("mapper :: RoundRobinIPMapper(");
    for server in 1..=SERVERS {
        let _ = write!(text, "{}- - 10.9.0.{server} - 0 1", if server == 1 { "" } else { ", " });
    }
    text + "); " + &through(traffic, &rewriter("mapper"), source, sink)
}

/// Frames of connections to one address.
pub fn balanced(length: Length) -> Frames {
    shuffled(length, FLOWS, |number| {
        let flow = flow(number);
        Flow { addresses: [flow.addresses[0], VIP], ..flow }
    })
}

/// Counters per flow.
pub fn monitor(traffic: Traffic, from: &str, sink: &str) -> String {
    let from = source(traffic, from);
    format!(
        "{from} -> Strip(14) -> CheckIPHeader -> table :: FlowMonitor(CAPACITY {HELD})
           -> Unstrip(14) -> {sink};
         table[1] -> Discard;"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_wire::ipv4;
    use std::collections::BTreeSet;

    #[test]
    fn known_flows_come_again_in_another_order() {
        let frames = shuffled(Length::Fixed(64), 1000, flow);
        let source = |number: usize| {
            let packet = ipv4::Packet::parse(&frames.get(number).0[14..]).unwrap();
            (packet.header.source_addr(), packet.payload[..2].to_vec())
        };
        let sources = |numbers: std::ops::Range<usize>| numbers.map(source).collect::<Vec<_>>();
        let (first, again) = (sources(0..1000), sources(1000..2000));
        assert_eq!((frames.once(), frames.len()), (1000, 2000));
        assert_ne!(first, again);
        assert_eq!(first.into_iter().collect::<BTreeSet<_>>(), again.into_iter().collect());
        let new = |numbers: std::ops::Range<usize>| numbers.filter(|n| frames.get(*n).0[5] == NEW).count();
        assert_eq!((new(0..1000), new(1000..2000)), (0, 100));
    }
}
