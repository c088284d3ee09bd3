//! The language of IPFilter and IPClassifier: conditions, compiled to a program and run on packets.

use ringway_click::{Clock, Options, Recorder, Router, Turn};
use ringway_click_lang::{Anything, Source};

/// A filter and its packets: TCP, a fragment, truncated ICMP.
const CONFIGURATION: &str = "f :: IPFilter(allow all) -> Discard;
InfiniteSource(DATA \\<450000280000400040060000 01020304 05060708 005001bb 0000000000000000
    50020000 00000000>, LIMIT 1) -> MarkIPHeader -> f;
InfiniteSource(DATA \\<45000028000020014011000001020304 05060708 005001bb 00080000>, LIMIT 1)
    -> MarkIPHeader -> f;
InfiniteSource(DATA \\<45000028000000004001000001020304 05060708 03>, LIMIT 1) -> MarkIPHeader -> f;";

/// Uses `data` as a filter's rules: invalid ones are refused and change nothing, valid ones run.
pub fn run(data: &[u8]) {
    let graph = Source::new(CONFIGURATION, "fuzz").read(&mut Anything).graph;
    let options = Options {
        burst: 1,
        clock: Clock::simulated(),
        console: Box::new(Recorder::default()),
        seed: 1,
        source: String::new(),
    };
    let Ok(mut router) = Router::build(graph, &ringway_elements::registry(), options) else { return };
    let before = router.read("f.program");
    let text = String::from_utf8_lossy(data);
    if router.write(&format!("f.config {text}")).is_err() {
        assert_eq!(router.read("f.program"), before);
        return;
    }
    let program = router.read("f.program");
    assert!(program.is_ok_and(|program| program.contains("safe length")));
    for _ in 0..20 {
        if matches!(router.turn(), Turn::Stopped | Turn::Idle) {
            break;
        }
    }
}

/// Typical rules.
pub fn seeds() -> Vec<Vec<u8>> {
    let rules = [
        "allow src host 1.2.3.4 and tcp dst port 80, deny all",
        "deny (icmp type echo or echo-reply) and not net 10.0.0.0 mask 255.0.0.0, 0 -",
        "allow ip[0:4] & 0xF0 > 3 ? tcp opt syn : udp && port >= 1024, deny frag || ip ttl < 5",
        "0 src and dst ether host 1:2:3:4:5:6, deny dst tcp port & 0xff != 53, 0 ip proto 89 || win 5",
    ];
    rules.iter().map(|rule| rule.as_bytes().to_vec()).collect()
}
