//! Elements whose configuration is written, and routers that are replaced, while elements hold packets: packets are
//! taken over in order or counted as dropped, and counters go on.
use super::configuration::{arguments, configuration, sides};
use super::offload::{KEPT, SINK};
use super::{MULTIPLY, build, check_accounts, counts, frames, number, turns};
use proptest::prelude::*;
use ringway_click::{Class, Options, Rebuild, Recorder, Registry, Router, Succession, Turn};
use ringway_click_lang::{Anything, Source};

/// What changes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    /// The element's configuration is written.
    Config,
    /// Another router takes over.
    Swap,
}

struct Again(usize);

fn registry() -> Registry {
    let mut registry = ringway_elements::registry();
    registry.add(&[&SINK]);
    registry
}

impl Rebuild for Again {
    fn rebuild(&mut self, text: &str, place: Succession) -> Result<Router, String> {
        let graph = Source::new(text, "config").read(&mut Anything).graph;
        let options =
            Options { clock: place.clock(), ..Options::simulated(self.0, Recorder::default(), text) };
        place.build(graph, &registry(), options).map_err(|error| error.to_string())
    }
}

/// Replaces a router by one of this configuration.
fn swap(mut router: Router, text: &str, burst: usize) -> Router {
    router.allow_reconfigure(Box::new(Again(burst)));
    router.write(&format!("hotconfig {text}")).unwrap();
    router.successor().unwrap()
}

fn is_live(class: &Class) -> bool {
    class.live && !matches!(class.name, "Error" | "Message")
}

/// Runs an element, changes it after some turns, and runs it until it ends.
fn change(
    class: &Class,
    pull: bool,
    burst: usize,
    before: usize,
    change: Change,
    frames: &[Vec<u8>],
) -> bool {
    let text = configuration(class, pull, true, frames);
    let Some(mut router) = build(&text, burst) else { return false };
    for _ in 0..before {
        router.turn_of(1);
    }
    let (got, gave) = counts(&mut router, class, true);
    match change {
        Change::Config if !is_live(class) => return true,
        Change::Config => router.write(&format!("e.config {}", arguments(class, true))).unwrap(),
        Change::Swap => router = swap(router, &text, burst),
    }
    let (now_got, now_gave) = counts(&mut router, class, true);
    assert!(now_got >= got && now_gave >= gave, "{}: counters began again", class.name);
    turns(&mut router);
    if !MULTIPLY.contains(&class.name) {
        check_accounts(&mut router, class);
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn no_packet_is_lost_by_a_change(
        frames in frames(),
        burst in prop::sample::select(vec![1usize, 7, 64]),
        before in 0usize..60,
    ) {
        for class in ringway_elements::registry().iter().filter(|class| sides(class, true).0 > 0) {
            for kind in [Change::Config, Change::Swap] {
                if !change(class, false, burst, before, kind, &frames) {
                    change(class, true, burst, before, kind, &frames);
                }
            }
        }
    }
}

/// A configuration in which an element pulls from the first `inputs` of three queues.
fn scheduler(class: &Class, inputs: usize, frames: &[Vec<u8>]) -> String {
    let arguments =
        if class.name == "StrideSched" { vec!["3"; inputs].join(", ") } else { arguments(class, true) };
    let mut text =
        format!("e :: {}({arguments}) -> RatedUnqueue(1000) -> out0 :: Counter -> Discard;", class.name);
    for input in 0..3 {
        let to = if input < inputs { format!("[{input}] e") } else { "Idle".into() };
        text += &format!("q{input} :: Queue -> in{input} :: Counter -> {to};\n");
        for frame in frames {
            let hex: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
            text += &format!("InfiniteSource(DATA \\<{hex}>, LIMIT 1) -> q{input};\n");
        }
    }
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, ..ProptestConfig::default() })]

    #[test]
    fn no_packet_of_an_input_that_is_gone_is_lost(
        frames in frames(),
        burst in prop::sample::select(vec![1usize, 7, 64]),
        before in 0usize..60,
    ) {
        let mut tried = Vec::new();
        let registry = ringway_elements::registry();
        for class in registry.iter().filter(|class| class.ports.ends_with("-/1")) {
            let Some(mut router) = build(&scheduler(class, 3, &frames), burst) else { continue };
            tried.push(class.name);
            for _ in 0..before {
                router.turn_of(1);
            }
            let (got, gave) = counts(&mut router, class, true);
            let mut router = swap(router, &scheduler(class, 1, &frames), burst);
            let (now_got, now_gave) = counts(&mut router, class, true);
            assert!(now_got >= got && now_gave >= gave, "{}: counters began again", class.name);
            turns(&mut router);
            check_accounts(&mut router, class);
        }
        assert!(tried.contains(&"DRRSched") && tried.contains(&"TimeSortedSched"), "{tried:?}");
    }
}

/// Elements that hold packets and emit them in order, and how they are connected.
const IN_ORDER: &[&str] = &[
    "e :: Queue -> RatedUnqueue(100)",
    "e :: FrontDropQueue -> RatedUnqueue(100)",
    "e :: NotifierQueue -> RatedUnqueue(100)",
    "e :: MSQueue -> RatedUnqueue(100)",
    "e :: ThreadSafeQueue -> RatedUnqueue(100)",
    "q :: Queue -> e :: DelayShaper(100ms) -> RatedUnqueue(100)",
    "q :: Queue -> e :: DelayUnqueue(100ms)",
    "q :: Queue -> e :: LinkUnqueue(100ms, 100kBps)",
    "q :: Queue -> e :: TimeSortedSched(BUFFER 4) -> RatedUnqueue(100)",
    "q :: Queue -> e :: DRRSched(1) -> RatedUnqueue(100)",
    "q :: Queue -> e :: CoDel -> RatedUnqueue(100)",
    "q :: Queue -> e :: RatedUnqueue(100)",
    "e :: Pipeliner(DIRECT_TRAVERSAL false, BURST 1)",
    "e :: LinkEmulator(DELAY 100ms)",
    "e :: LinkEmulator(10kBps, 100ms)",
    "e :: LinkEmulator(10kBps, 100ms, QUEUE codel, TARGET 10s)",
    "e :: LinkEmulator(10kBps, 100ms, QUEUE red, MIN 1000000, MAX 2000000)",
];

fn in_order(element: &str, packets: usize) -> String {
    format!(
        "RatedSource(RATE 1000, LIMIT {packets}, LENGTH 60) -> n :: NumberPacket(0) -> {element} -> Kept;"
    )
}

/// The numbers of packets that arrived.
fn arrived() -> Vec<u64> {
    KEPT.take().iter().map(|data| u64::from_le_bytes(*data.first_chunk().unwrap())).collect()
}

fn built(text: &str, burst: usize) -> Router {
    let parsed = Source::new(text, "config").read(&mut Anything);
    let options = Options::simulated(burst, Recorder::default(), text);
    Router::build(parsed.graph, &registry(), options).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Runs for this many nanoseconds.
fn pass(router: &mut Router, time: u64) {
    let until = router.clock().wall() + time;
    while router.clock().wall() < until && !matches!(router.turn(), Turn::Stopped | Turn::Idle) {}
}

#[test]
fn packets_arrive_in_order_after_a_change() {
    const PACKETS: usize = 300;
    for (element, burst) in IN_ORDER.iter().flat_map(|element| [(element, 1), (element, 64)]) {
        for kind in [Change::Config, Change::Swap] {
            let mut router = built(&in_order(element, PACKETS), burst);
            KEPT.take();
            pass(&mut router, 200_000_000);
            let id = router.find("e").unwrap();
            let arguments = router.read("e.config").unwrap();
            match kind {
                Change::Config
                    if router.check_call(&router.parse_call("e.config", "").unwrap(), true).is_err() =>
                {
                    continue;
                }
                Change::Config => router.write(&format!("e.config {arguments}")).unwrap(),
                // The source makes no more, since its numbers would begin again.
                Change::Swap => router = swap(router, &in_order(element, 0), burst),
            }
            pass(&mut router, 100_000_000_000);
            let (arrived, name) = (arrived(), router.name(id).to_string());
            let expected: Vec<u64> = (0..arrived.len() as u64).collect();
            assert_eq!(arrived, expected, "{element} {name} {burst} {kind:?}");
            let most = if kind == Change::Config { PACKETS } else { 150 };
            assert!(arrived.len() >= most, "{element} {burst} {kind:?}: {} packets", arrived.len());
        }
    }
}

#[test]
fn packets_under_way_arrive_after_the_link_has_changed() {
    let text =
        "RatedSource(RATE 1000, LIMIT 1000, LENGTH 100) -> l :: LinkEmulator(DELAY 100ms) -> c :: Counter
        -> Discard; DriverManager(wait 0.5s, write l.config DELAY 1ms, wait 3s, stop)";
    let mut router = built(text, 1);
    while !matches!(router.turn(), Turn::Stopped | Turn::Idle) {}
    for handler in ["c.count", "l.sent", "l.received"] {
        assert_eq!(router.read(handler).unwrap(), "1000", "{handler}");
    }
}

#[test]
fn packets_that_do_not_fit_are_counted() {
    for (element, write, handlers) in [
        ("e :: Queue -> Idle", "e.config 20", ["e.drops", "e.length"]),
        ("e :: Queue -> Idle", "e.capacity 20", ["e.drops", "e.length"]),
        ("e :: FrontDropQueue -> Idle", "e.config 20", ["e.drops", "e.length"]),
        ("e :: LinkEmulator(1kBps)", "e.config 1kBps, QUEUE codel, CAPACITY 20", ["e.drops", "e.queue"]),
    ] {
        let text =
            format!("InfiniteSource(LIMIT 100) -> i :: Counter -> {element} -> o :: Counter -> Discard");
        let text = if element.ends_with("Idle") {
            text.replace(" -> o :: Counter -> Discard", "; Idle -> o :: Counter -> Discard")
        } else {
            text
        };
        let mut router = built(&text, 1);
        pass(&mut router, 1_000_000);
        router.write(write).unwrap();
        let mut read = |handler: &str| router.read(handler).unwrap().parse::<u64>().unwrap();
        let [drops, held] = handlers.map(&mut read);
        assert_eq!(held, 20, "{element} {write}");
        assert!(drops > 0 && drops + held + read("o.count") <= 100, "{element} {write}: {drops}");
        if element.ends_with("Idle") {
            assert_eq!(drops, 80, "{element} {write}");
        }
    }
}

#[test]
fn packets_that_wait_for_an_address_are_taken_over() {
    let text = "RatedSource(RATE 1000, LIMIT 20) -> SetIPAddress(1.2.3.9)
        -> [0] q :: ARPQuerier(1.2.3.4/24, 1:1:1:1:1:1);
        q [0] -> out :: Counter -> Discard; q [1] -> Discard;
        reply :: InfiniteSource(DATA \\<010101010101 0a0a0a0a0a0a 0806 0001 0800 06 04 0002
            0a0a0a0a0a0a 01020309
            010101010101 01020304>, LIMIT 1, ACTIVE false) -> [1] q;";
    for kind in [Change::Config, Change::Swap] {
        let mut router = built(text, 1);
        pass(&mut router, 50_000_000);
        assert_eq!(router.read("q.length").unwrap(), "20");
        match kind {
            Change::Config => router.write("q.config 1.2.3.5/24, 1:1:1:1:1:1, CAPACITY 5").unwrap(),
            Change::Swap => router = swap(router, &text.replace("LIMIT 20", "LIMIT 0"), 1),
        }
        let held = if kind == Change::Config { 5 } else { 20 };
        assert_eq!(router.read("q.length").unwrap(), held.to_string(), "{kind:?}");
        assert!(router.read("q.stats").unwrap().starts_with(&format!("{} packets killed", 20 - held)));
        router.write("reply.active true").unwrap();
        pass(&mut router, 1_000_000);
        assert_eq!(router.read("out.count").unwrap(), held.to_string(), "{kind:?}");
    }
}

/// Elements with hash tables that packets fill, and their number of entries.
const TABLES: &[(&str, &str)] = &[
    ("e :: IPRewriter(pattern 9.9.9.9 1024-65535 - - 0 0)", "e.table_size"),
    ("e :: UDPRewriter(keep 0 0)", "e.table_size"),
    ("e :: IPLoadBalancer(5.6.7.8, 10.0.0.1, 10.0.0.2)", "e.count"),
    ("e :: FlowMonitor", "e.count"),
    ("e :: FlowIPManager", "e.count"),
    ("AggregateIP(udp sport) -> e :: AggregateFirst", "e.count"),
    ("AggregateIP(udp sport) -> e :: AggregateLast", "e.count"),
];

#[test]
fn a_clone_finds_its_flows_by_another_seed() {
    for (element, handler) in TABLES {
        let text = format!(
            "FastUDPFlows(10000, -1, 60, 1:1:1:1:1:1, 1.2.3.4, 2:2:2:2:2:2, 5.6.7.8, 300, 1000000) -> Unqueue
            -> MarkIPHeader(14) -> {element} -> Discard;"
        );
        let mut router = built(&text, 7);
        let size = |router: &mut Router| {
            pass(router, 1_000_000_000);
            number(router, handler)
        };
        let before = size(&mut router);
        assert!(before > 1, "{element}");
        router.reseed(77);
        assert_eq!(size(&mut router), before, "{element}");
    }
}
