use super::*;
use proptest::prelude::*;
use ringway_click::{HandlerCall, Options, Rebuild, Recorder, Router, Succession, Turn};
use ringway_click_lang::{Anything, Source};
use ringway_wire::checksum::Sum;

/// A pattern whose new address identifies it.
fn pattern(version: u32) -> String {
    format!("{} 1024-65535 - - 0 1", Ipv4Addr::from_bits(10 << 24 | version))
}

fn text(versions: [u32; 2], more: &str) -> String {
    let [first, second] = versions.map(pattern);
    let rewriter = format!("r :: IPRewriter(pattern {first}, pattern {second}{more})");
    format!("Idle -> {rewriter}; Idle -> [1]r; r -> Discard; r[1] -> Discard;")
}

fn build(text: &str) -> Router {
    let graph = Source::new(text, "config").read(&mut Anything).graph;
    Router::build(graph, &crate::registry(), Options::simulated(1, Recorder::default(), text)).unwrap()
}

struct Again;

impl Rebuild for Again {
    fn rebuild(&mut self, text: &str, place: Succession) -> Result<Router, String> {
        let graph = Source::new(text, "config").read(&mut Anything).graph;
        let options = Options::simulated(1, Recorder::default(), text);
        place.build(graph, &crate::registry(), options).map_err(|error| error.to_string())
    }
}

fn with<R>(router: &mut Router, run: impl FnOnce(&mut Rewriter, &mut Context<'_>) -> R) -> R {
    let id = router.find("r").unwrap();
    router.with(id, run).unwrap()
}

fn key(number: u32) -> FlowKey {
    FlowKey { source: number, source_port: 7, destination: 9, destination_port: 53 }
}

/// The pattern of a packet's flow, which is added if it does not exist.
fn send(router: &mut Router, input: usize, number: u32) -> Option<u32> {
    with(router, |rewriter, cx| {
        rewriter.find_or_add(Protocol::UDP, key(number), input, cx)?;
        Some(rewriter.rewritten(Protocol::UDP, key(number))?.source & 0x00ff_ffff)
    })
}

fn call(router: &Router, handler: &str, value: String) -> HandlerCall {
    HandlerCall { element: router.find("r"), handler: handler.into(), value }
}

/// Flows found by both keys, flows counted by owners, and flows stored.
fn counts(router: &mut Router) -> (usize, u32, u32) {
    with(router, |rewriter, _| {
        let flows = rewriter.flows.borrow();
        let (fresh, _) = flows.some(0, usize::MAX);
        let found =
            fresh.filter(|flow| flow.keys.iter().all(|key| flows.find(flow.map, *key).is_some())).count();
        (found, flows.owners.iter().map(|owner| owner.count).sum(), flows.len())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn flows_of_a_removed_pattern_are_never_used(
        steps in prop::collection::vec((0u8..10, 0usize..2, 0u32..3000, 1u32..700), 1..60),
    ) {
        let mut versions = [0, 1];
        let mut router = build(&text(versions, ""));
        let mut under_way: Vec<(HandlerCall, Pieces)> = Vec::new();
        for (version, (step, input, number, count)) in (2..).zip(steps) {
            let begun = match step {
                0 => {
                    versions[input] = version;
                    Some(call(&router, &format!("pattern{input}"), pattern(version)))
                }
                1 => Some(call(&router, "clear", String::new())),
                2 => Some(call(&router, "capacity", (number + 300).to_string())),
                3..6 => None,
                _ => {
                    for number in number..number + count {
                        if let Some(version) = send(&mut router, input, number) {
                            prop_assert!(versions.contains(&version));
                        }
                    }
                    None
                }
            };
            under_way.extend(begun.map(|call| (call, Pieces::default())));
            // Usually, a flow that has just begun is not the one that continues.
            if !under_way.is_empty() {
                let at = number as usize % under_way.len();
                let (call, mut pieces) = under_way.swap_remove(at);
                if router.call_write_on(&call, &mut pieces) == Ok(Progress::More) {
                    under_way.push((call, pieces));
                }
            }
            // A new pattern applies from its first piece on.
            let begun = router.read("r.patterns").unwrap();
            for (input, own) in versions.iter_mut().enumerate() {
                let line = begun.lines().nth(input).unwrap();
                let version = line.split(' ').nth(usize::from(line.starts_with("pattern"))).unwrap();
                *own = version.parse::<Ipv4Addr>().unwrap().to_bits() & 0x00ff_ffff;
            }
            let (found, counted, _) = counts(&mut router);
            prop_assert_eq!(found, counted as usize);
        }
        for (call, mut pieces) in under_way {
            while router.call_write_on(&call, &mut pieces) == Ok(Progress::More) {}
        }
        let (found, counted, all) = counts(&mut router);
        prop_assert_eq!((found, counted), (all as usize, all));
        let capacity: u32 = router.read("r.capacity").unwrap().parse().unwrap();
        prop_assert!(all <= capacity);
    }
}

#[test]
fn a_udp_checksum_does_not_become_none() {
    let keys = [key(5), key(0x0a00_0001).reverse()];
    let mut flow = Flow { keys, ..Flow::default() };
    let (pool, mut ones) = (ringway_frame::packet::Pool::new(), 0);
    for kind in [RewriterKind::Udp, RewriterKind::Pair] {
        for word in 0..=u16::MAX {
            let udp = |key: FlowKey, checksum: u16| {
                let ports = [key.source_port, key.destination_port, 10, checksum, word];
                ports.map(u16::to_be_bytes).concat()
            };
            let sum = |key: FlowKey| {
                let ends = [key.source, key.destination].map(Ipv4Addr::from_bits);
                let mut sum = Sum::pseudo_v4(ends[0], ends[1], 17, 10);
                sum.add(&udp(key, 0));
                sum.finish_nonzero()
            };
            let mut bytes = vec![0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0];
            bytes.extend([keys[0].source, keys[0].destination].map(u32::to_be_bytes).concat());
            bytes.extend(udp(keys[0], sum(keys[0])));
            let mut packet = pool.copy(&bytes).unwrap();
            packet.set_network_header(0, 20);
            let to = super::change::rewrite(&mut packet, &mut flow, false, kind);
            assert_eq!(packet.data()[20..], udp(to, sum(to)), "{word}");
            ones += usize::from(sum(to) == u16::MAX);
        }
    }
    assert_eq!(ones, 2, "one with each kind");
}

#[test]
fn the_last_written_capacity_applies() {
    let mut router = build(&text([0, 1], ""));
    (0..2000).for_each(|number| assert!(send(&mut router, 0, number).is_some()));
    let (first, mut pieces) = (call(&router, "capacity", "10".into()), Pieces::default());
    assert_eq!(router.call_write_on(&first, &mut pieces), Ok(Progress::More));
    router.write("r.capacity 1500").unwrap();
    while router.call_write_on(&first, &mut pieces) == Ok(Progress::More) {}
    assert_eq!(router.read("r.capacity").unwrap(), "1500");
    assert_eq!(counts(&mut router).2, 1500);
}

#[test]
fn the_next_router_continues_removing_flows() {
    let mut router = build(&text([0, 1], ", REAP_TIME 0"));
    router.allow_reconfigure(Box::new(Again));
    (0..2000).for_each(|number| assert!(send(&mut router, 0, number).is_some()));
    let (clear, mut pieces) = (call(&router, "clear", String::new()), Pieces::default());
    assert_eq!(router.call_write_on(&clear, &mut pieces), Ok(Progress::More));
    router.write(&format!("hotconfig {}", text([0, 1], ", REAP_TIME 0"))).unwrap();
    let mut next = router.successor().unwrap();
    // Without an interval for expired flows, this ends once it is done.
    assert!((0..1000).any(|_| next.turn() == Turn::Idle));
    assert_eq!(counts(&mut next), (0, 0, 0));
}

#[test]
fn flows_of_a_replaced_router_are_removed_in_steps() {
    let more = "; s :: UDPRewriter(drop, CAPACITY r); Idle -> s -> Discard;";
    let mut router = build(&(text([0, 1], "") + more));
    (0..20_000).for_each(|number| assert!(send(&mut router, 0, number).is_some()));
    let pieces = (0..1000).take_while(|_| router.dispose() == Progress::More).count();
    assert!((4..1000).contains(&pieces), "{pieces}");
    assert!(router.is_empty());
}

#[test]
fn wrong_patterns_are_named_with_the_nearest_names() {
    let message = |input: &str| {
        let text = format!(
            "AddressInfo(gateway 10.0.0.1); IPRewriterPatterns(outside 10.0.0.9 1024-2047 - -);
             Idle -> r :: IPRewriter({input}) -> Discard; r[1] -> Discard;"
        );
        let graph = Source::new(&text, "config").read(&mut Anything).graph;
        let built =
            Router::build(graph, &crate::registry(), Options::simulated(1, Recorder::default(), &text));
        built.err().map_or_else(String::new, |error| error.to_string())
    };
    for (input, wrong) in [
        ("pattern gatway - - - 0 1", "bad source address 'gatway'; did you mean 'gateway'?"),
        ("pattern 10.0.0.300 - - - 0 1", "bad source address '10.0.0.300'"),
        ("pattern - - gatewya - 0 1", "bad destination address 'gatewya'; did you mean 'gateway'?"),
        ("pattern - http - - 0 1", "bad source port 'http'"),
        ("pattern - - - 0 0 1", "bad destination port '0'"),
        ("pattern outsid 0 1", "no such pattern 'outsid'; did you mean 'outside'?"),
        ("patern outside 0 1", "unknown specification 'patern'; did you mean 'pattern'?"),
    ] {
        assert!(message(input).contains(wrong), "{input}: {}", message(input));
    }
    assert_eq!(message("pattern outside 0 1"), "");
}
