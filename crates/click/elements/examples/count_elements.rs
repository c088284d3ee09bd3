//! Passes frames of 60 bytes through elements, for callgrind, which counts the instructions of [`run`]
//! (`scripts/counts.sh`): `count_elements CASE FRAMES`, a case of [`CASES`]. The source and the sink alone are the case
//! `source`.

use ringway_click::{Options, Recorder, Router, Turn};
use ringway_click_lang::{Anything, Source};
use std::error::Error;
use std::fmt::Write;

/// Frames that elements get at once.
const BURST: usize = 32;

/// UDP from 10.0.0.2, port 1024, to 172.16.0.2, port 80, with valid checksums but UDP's, which is none.
const FRAME: [u8; 60] = {
    let mut frame = [0; 60];
    let headers = *b"\x02\x00\x00\x00\x00\x01\x02\x00\x00\x00\x00\x02\x08\x00\
        \x45\x00\x00\x2e\x00\x00\x40\x00\x40\x11\x84\xab\x0a\x00\x00\x02\xac\x10\x00\x02\
        \x04\x00\x00\x50\x00\x1a\x00\x00";
    let mut at = 0;
    while at < headers.len() {
        frame[at] = headers[at];
        at += 1;
    }
    frame
};

/// The elements of each case, between source and sink.
const CASES: &[(&str, &str)] = &[
    ("source", "Null"),
    (
        "classifier",
        "kinds :: Classifier(12/0806, 12/0800 23/06, 12/0800);
         kinds[0] -> Discard; kinds[1] -> Discard; kinds[2]",
    ),
    (
        "chain",
        "Counter -> Paint(1) -> Strip(14) -> CheckIPHeader -> DecIPTTL -> Unstrip(14) -> EtherMirror
         -> Counter",
    ),
    (
        "router",
        "Strip(14) -> CheckIPHeader -> GetIPAddress(16)
         -> rt :: RadixIPLookup(10.0.0.0/8 0, 172.16.0.0/12 10.1.0.2 1, 172.16.0.0/24 10.1.0.3 1,
             0.0.0.0/0 0);
         rt[0] -> Discard; rt[1] -> DropBroadcasts -> IPGWOptions(10.1.0.1) -> FixIPSrc(10.1.0.1) -> DecIPTTL
         -> IPFragmenter(1500) -> EtherEncap(0x0800, 02:00:00:00:00:01, 02:00:00:00:00:03)",
    ),
    (
        "filter",
        "Strip(14) -> CheckIPHeader -> IPFilter(
             deny src net 10.0.0.0/9 and tcp and dst port >= 0 and dst port <= 1023,
             deny dst net 172.16.0.0/14 and tcp and src port >= 1024
                 and dst port >= 8000 and dst port <= 8100,
             deny src net 10.128.0.0/10 and dst net 172.16.0.0/12 and tcp
                 and dst port >= 6000 and dst port <= 6063,
             deny src net 10.192.0.0/10 and dst net 172.16.0.0/13 and udp dst port 53,
             deny udp and dst port >= 33434 and dst port <= 33600,
             deny src net 10.160.0.0/11 and tcp and src port >= 1024 and dst port >= 1024,
             deny dst net 172.24.0.0/13 and tcp dst port 443,
             deny src net 10.224.0.0/11 and dst net 172.20.0.0/14 and tcp
                 and dst port >= 1 and dst port <= 30000,
             deny icmp,
             allow all) -> Unstrip(14)",
    ),
    ("mirror", "EtherMirror"),
    (
        "lb",
        "Strip(14) -> CheckIPHeader -> lb :: IPLoadBalancer(172.16.0.2, 10.9.0.1, 10.9.0.2, 10.9.0.3);
         Idle -> [1] lb; lb[1] -> Discard; lb[0] -> Unstrip(14)",
    ),
    (
        "flowmon",
        "Strip(14) -> CheckIPHeader -> monitor :: FlowMonitor;
         monitor[1] -> Discard; monitor[0] -> Unstrip(14)",
    ),
    (
        "ids",
        "Strip(14) -> CheckIPHeader -> ids :: IDSMatcher(attack, exploit, \\<00ff00ff>, passwd, NOCASE false);
         ids[1] -> Discard; ids[0] -> Unstrip(14)",
    ),
    (
        "nat",
        "Strip(14) -> CheckIPHeader -> nat :: IPRewriter(pattern 192.0.2.1 1024-65535 - - 0 1, drop);
         Idle -> [1] nat; nat[1] -> Discard; nat[0] -> Unstrip(14)",
    ),
    ("link", "LinkEmulator(DELAY 100us)"),
    (
        "bras.down",
        "Strip(14) -> CheckIPHeader
         -> [1] bras :: PPPoEConcentrator(02:00:00:00:00:02, 02:00:00:00:00:01 1 172.16.0.2 10Gbps);
         Idle -> bras; bras[0] -> Discard; bras[1] -> Null",
    ),
];

fn text(elements: &str, frames: &str) -> Result<String, std::fmt::Error> {
    let mut data = String::new();
    FRAME.iter().try_for_each(|byte| write!(data, "{byte:02x}"))?;
    Ok(format!(
        "InfiniteSource(DATA \\<{data}>, LIMIT {frames}, BURST {BURST})
         -> {elements} -> out :: Discard;
         DriverManager(wait 1s, stop)"
    ))
}

/// What callgrind counts.
#[inline(never)]
fn run(router: &mut Router) {
    while !matches!(router.turn(), Turn::Stopped) {}
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [case, frames] = &words[..] else { return Err("a case and a number of frames are needed".into()) };
    let (_, elements) = CASES.iter().find(|(name, _)| name == case).ok_or("there is no such case")?;
    let text = text(elements, frames)?;
    let parsed = Source::new(&text, "count").read(&mut Anything);
    let options = Options::simulated(BURST, Recorder::default(), &text);
    let mut router = Router::build(parsed.graph, &ringway_elements::registry(), options)
        .map_err(|error| error.to_string())?;
    run(&mut router);
    let passed = router.read("out.count")?;
    if passed != *frames { Err(format!("{passed} frames arrived").into()) } else { Ok(()) }
}
