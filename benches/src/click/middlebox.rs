//! Configurations of middleboxes with patterns, connections or sessions, and their traffic.

use super::configuration::flow;
use super::frames::{Flow, Frames, Length, Numbers, SERVER, Session};
use super::patterns;
use ringway_wire::MacAddress;
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Sessions of subscribers.
const SESSIONS: u64 = 100_000;
/// One of this many payloads contains a pattern.
const MATCHING: usize = 1000;

/// A search for patterns.
pub fn ids(count: usize, source: &str, sink: &str) -> String {
    let mut text = format!("{source} -> Strip(14) -> CheckIPHeader -> ids :: IDSMatcher(");
    for pattern in patterns::patterns(count) {
        text.push_str("\\<");
        for byte in pattern {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str(">, ");
    }
    // The sink counts matching payloads too.
    let _ = writeln!(text, "NOCASE false); ids[0] -> Unstrip(14) -> out :: Null -> {sink}; ids[1] -> out;");
    text
}

/// Frames with payload.
pub fn searched(count: usize, length: Length) -> Frames {
    let mut payloads = patterns::Payloads::new(patterns::patterns(count));
    // A multiple of `MATCHING`, so that exactly one frame in `MATCHING` matches.
    Frames::whole(
        length,
        4 * MATCHING,
        |number| flow(number as u64),
        |number, length| payloads.make(length, number % MATCHING == MATCHING / 2),
    )
}

/// Frames with payload from files; some match.
pub fn real(length: Length) -> Frames {
    let mut files = patterns::Files::new();
    Frames::whole(length, 4 * MATCHING, |number| flow(number as u64), |_, length| files.next(length))
}

fn session(number: u64) -> Session {
    let [.., a, b, c] = number.to_be_bytes();
    Session { subscriber: [2, 0, 0, a, b, c], number: 1 + (number % 60_000) as u16 }
}

fn address(number: u64) -> Ipv4Addr {
    Ipv4Addr::from(0x0a80_0000 + number as u32)
}

fn concentrator() -> String {
    let mut text = format!("bras :: PPPoEConcentrator({}", MacAddress(SERVER));
    for number in 0..SESSIONS {
        let Session { subscriber, number: id } = session(number);
        // At three million frames a second each session sends some 10 kb/s.
        let rate = if number % 2 == 0 { "8kbps" } else { "10Mbps" };
        let _ = write!(text, ", {} {id} {} {rate}", MacAddress(subscriber), address(number));
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

/// Encapsulates packets in session frames.
pub fn bras_down(source: &str, sink: &str) -> String {
    format!(
        "{}{source} -> Strip(14) -> CheckIPHeader -> [1] bras; bras[1] -> {sink};
         Idle -> bras; bras[0] -> Discard;",
        concentrator()
    )
}

/// Frames from subscribers, uniformly.
pub fn session_frames(length: Length) -> Frames {
    let mut numbers = Numbers(23);
    Frames::sessions(length, SESSIONS as usize, |_| {
        let number = numbers.below(SESSIONS);
        let flow = flow(number);
        (session(number), Flow { addresses: [address(number), flow.addresses[1]], ..flow })
    })
}

/// Packets to subscribers, uniformly.
pub fn to_subscribers(length: Length) -> Frames {
    let mut numbers = Numbers(29);
    Frames::new(length, SESSIONS as usize, |_| {
        let number = numbers.below(SESSIONS);
        let flow = flow(number);
        Flow { addresses: [flow.addresses[1], address(number)], ..flow }
    })
}
