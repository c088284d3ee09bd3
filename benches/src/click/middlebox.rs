//! Configurations of middleboxes with patterns, connections or sessions, and their traffic.

use super::configuration::flow;
use super::frames::{Flow, Frames, Length, Numbers, SERVER, Session};
use super::patterns;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Number of connections and flows.
const FLOWS: u64 = 1_000_000;
/// Sessions of subscribers.
const SESSIONS: u64 = 100_000;
/// Number of servers of a balancer.
const SERVERS: u8 = 16;
/// The virtual address of a balancer.
const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// One of this many payloads contains a pattern.
const MATCHING: usize = 1000;

/// Looks for patterns.
pub fn ids(count: usize, source: &str, sink: &str) -> String {
    let mut text = format!("{source} -> Strip(14) -> CheckIPHeader -> ids :: IDSMatcher(");
    for pattern in patterns::patterns(count) {
        text.push_str("\\<");
        for byte in pattern {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str(">, ");
    }
    let _ = writeln!(text, "NOCASE false); ids[0] -> Unstrip(14) -> {sink}; ids[1] -> Discard;");
    text
}

/// Frames with payload.
pub fn searched(count: usize, length: Length) -> Frames {
    let mut payloads = patterns::Payloads::new(patterns::patterns(count));
    // A multiple, so that just that part of the frames matches.
    Frames::whole(
        length,
        4 * MATCHING,
        |number| flow(number as u64),
        |number, length| payloads.make(length, number % MATCHING == MATCHING / 2),
    )
}

/// Frames with payload from files; some of them match.
pub fn real(length: Length) -> Frames {
    let mut files = patterns::Files::new();
    Frames::whole(length, 4 * MATCHING, |number| flow(number as u64), |_, length| files.next(length))
}

/// Each flow once, and then uniformly at random: the first round creates all of them.
fn opened(length: Length, of: impl Fn(u64) -> Flow) -> Frames {
    let mut numbers = Numbers(19);
    Frames::new(length, 2 * FLOWS as usize, |number| match number as u64 {
        first if first < FLOWS => Flow { opens: true, ..of(first) },
        _ => of(numbers.below(FLOWS)),
    })
}

/// Shares connections among servers.
pub fn balancer(source: &str, sink: &str) -> String {
    let servers: Vec<String> = (1..=SERVERS).map(|server| format!("10.9.0.{server}")).collect();
    format!(
        "{source} -> Strip(14) -> CheckIPHeader -> lb :: IPLoadBalancer({VIP}, {});
         lb -> Unstrip(14) -> {sink};",
        servers.join(", ")
    )
}

/// The same by Click's elements.
pub fn mapper(source: &str, sink: &str) -> String {
    let servers: Vec<String> = (1..=SERVERS).map(|server| format!("- - 10.9.0.{server} - 0 1")).collect();
    format!(
        "mapper :: RoundRobinIPMapper({});
         {source} -> Strip(14) -> CheckIPHeader -> lb :: IPRewriter(mapper, drop, MAPPING_CAPACITY 4000000, \
         TCP_TIMEOUT 3600, TCP_NODATA_TIMEOUT 3600);
         lb[0] -> Unstrip(14) -> {sink}; lb[1] -> Discard; Idle -> [1]lb;",
        servers.join(", ")
    )
}

/// Connections to one address.
pub fn balanced(length: Length) -> Frames {
    opened(length, |number| {
        let flow = flow(number);
        Flow { addresses: [flow.addresses[0], VIP], ..flow }
    })
}

/// Counts each flow.
pub fn monitor(source: &str, sink: &str) -> String {
    format!(
        "{source} -> Strip(14) -> CheckIPHeader -> monitor :: FlowMonitor -> Unstrip(14) -> {sink};
         monitor[1] -> Discard;"
    )
}

/// Many flows.
pub fn monitored(length: Length) -> Frames {
    opened(length, flow)
}

fn session(number: u64) -> Session {
    let [.., a, b, c] = number.to_be_bytes();
    Session { subscriber: [2, 0, 0, a, b, c], number: 1 + (number % 60_000) as u16 }
}

fn address(number: u64) -> Ipv4Addr {
    Ipv4Addr::from(0x0a80_0000 + number as u32)
}

fn concentrator() -> String {
    let mac = |bytes: [u8; 6]| bytes.map(|byte| format!("{byte:02x}")).join(":");
    let mut text = format!("bras :: PPPoEConcentrator({}", mac(SERVER));
    for number in 0..SESSIONS {
        let Session { subscriber, number: id } = session(number);
        let _ = write!(text, ", {} {id} {} 10Mbps", mac(subscriber), address(number));
    }
    text.push_str(");\n");
    text
}

/// Decapsulates packets from session frames, and forwards them.
pub fn bras(source: &str, sink: &str) -> String {
    let ether = "EtherEncap(0x0800, 02:00:00:00:01:01, 02:00:00:00:02:01)";
    format!(
        "{}{source} -> bras; bras[0] -> {ether} -> {sink}; Idle -> [1] bras; bras[1] -> Discard;",
        concentrator()
    )
}

/// Puts packets into session frames.
pub fn bras_down(source: &str, sink: &str) -> String {
    format!(
        "{}{source} -> Strip(14) -> CheckIPHeader -> [1] bras; bras[1] -> {sink};
         Idle -> bras; bras[0] -> Discard;",
        concentrator()
    )
}

/// From subscribers, uniformly.
pub fn session_frames(length: Length) -> Frames {
    let mut numbers = Numbers(23);
    Frames::sessions(length, SESSIONS as usize, |_| {
        let number = numbers.below(SESSIONS);
        let flow = flow(number);
        (session(number), Flow { addresses: [address(number), flow.addresses[1]], ..flow })
    })
}

/// To subscribers, uniformly.
pub fn to_subscribers(length: Length) -> Frames {
    let mut numbers = Numbers(29);
    Frames::new(length, SESSIONS as usize, |_| {
        let number = numbers.below(SESSIONS);
        let flow = flow(number);
        Flow { addresses: [flow.addresses[1], address(number)], ..flow }
    })
}
