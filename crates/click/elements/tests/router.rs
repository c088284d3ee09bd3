//! Tests of the runtime with the elements: order of packets, handlers, hot swap, errors.
#![allow(clippy::unwrap_used, clippy::panic)]

use ringway_click::{Options, Rebuild, Recorder, Router, Succession, Turn};
use ringway_click_lang::{Anything, Source};

fn build(text: &str, burst: usize) -> (Result<Router, String>, Recorder) {
    let parsed = Source::new(text, "config").read(&mut Anything);
    assert_eq!(parsed.diagnostics.to_string(), "");
    let console = Recorder::default();
    let options = Options::simulated(burst, console.clone(), text);
    let built = Router::build(parsed.graph, &ringway_elements::registry(), options)
        .map_err(|error| error.to_string());
    (built, console)
}

fn router(text: &str, burst: usize) -> (Router, Recorder) {
    let (built, console) = build(text, burst);
    (built.unwrap_or_else(|errors| panic!("{errors}")), console)
}

fn errors(text: &str) -> String {
    build(text, 1).0.err().unwrap_or_default()
}

fn run(router: &mut Router) {
    for _ in 0..100_000 {
        if matches!(router.turn(), Turn::Stopped | Turn::Idle) {
            return;
        }
    }
    panic!("it does not end");
}

#[test]
fn packets_pass_through() {
    for burst in [1, 7, 64] {
        let text = "s :: InfiniteSource(LIMIT 1000, STOP true) -> c :: Counter -> q :: Queue(2000)
            -> u :: Unqueue -> t :: Tee -> d :: Discard; t[1] -> e :: Discard;";
        let (mut router, _) = router(text, burst);
        run(&mut router);
        for call in ["s.count", "c.count"] {
            assert_eq!(router.read(call).unwrap(), "1000", "{call}");
        }
        let left: u32 = router.read("q.length").unwrap().parse().unwrap();
        let gone: u32 = router.read("d.count").unwrap().parse().unwrap();
        assert_eq!(left + gone, 1000);
        assert_eq!(router.read("d.count"), router.read("e.count"));
    }
}

#[test]
fn depth_first_with_burst_one() {
    let text = "InfiniteSource(DATA x, LIMIT 2, STOP true) -> t :: Tee -> Print(a) -> Print(b) -> Discard;
        t[1] -> Print(c) -> Discard;";
    let (mut router, console) = router(text, 1);
    run(&mut router);
    let order: String = console.chatter().lines().filter_map(|line| line.chars().next()).collect();
    assert_eq!(order, "abcabc");
}

#[test]
fn pulling_tasks_sleep_while_their_input_is_empty() {
    let (mut router, _) = router("Idle -> q :: Queue -> u :: Unqueue -> Discard", 1);
    run(&mut router);
    assert_eq!(router.read("u.scheduled").unwrap(), "false");
}

#[test]
fn a_push_loop_is_broken() {
    let text = "InfiniteSource(LIMIT 1, STOP true) -> t :: Tee -> c :: Counter -> t; t[1] -> Discard;";
    let (mut router, console) = router(text, 1);
    run(&mut router);
    assert!(router.looped() > 0);
    assert!(console.chatter().contains("go round in circles"));
}

#[test]
fn triggers_call_handlers_of_any_element() {
    let text = "s :: InfiniteSource -> c :: Counter(COUNT_CALL 5 stop) -> d :: Counter(COUNT_CALL 3 d.reset)
        -> Discard";
    let (mut router, _) = router(text, 1);
    run(&mut router);
    assert_eq!(router.read("c.count").unwrap(), "5");
    assert_eq!(router.read("d.count").unwrap(), "2");
}

#[test]
fn invalid_graphs_give_clicks_messages() {
    let reuse = errors("i :: InfiniteSource; i -> Discard; i -> Discard;");
    assert_eq!(
        reuse,
        "config:1: illegal reuse of 'i :: InfiniteSource' push output 0\nRouter could not be initialized!\n"
    );
    assert!(errors("q :: Queue -> Discard").contains("'q :: Queue' input 0 unused"));
    let mixed = errors("Idle -> Tee -> Unqueue -> Discard");
    assert!(
        mixed.contains("'Tee@2 :: Tee' push output 0 connected to 'Unqueue@3 :: Unqueue' pull input 0"),
        "{mixed}"
    );
    let mixed = errors("t :: Tee -> n :: Counter -> Unqueue -> Discard; Idle -> t");
    assert!(
        mixed.contains("agnostic 'n :: Counter' in mixed context: push input 0, pull output 0"),
        "{mixed}"
    );
    assert!(errors("Idle -> Discard -> Discard").contains("'Discard@2 :: Discard' has no output 0"));
    assert!(errors("Idle -> Foo -> Discard").contains("unknown element class 'Foo'"));
    let circle = errors("a :: Counter -> b :: Counter -> a; Idle -> a; b -> Unqueue -> Discard");
    assert!(circle.contains("Router could not be initialized!"), "{circle}");
}

#[test]
fn invalid_arguments_give_clicks_messages() {
    let text = "Idle -> c :: Counter(FOO 1) -> Queue(x) -> Discard";
    let expected = "config:1: While configuring 'c :: Counter':
  FOO: unknown argument
config:1: While configuring 'Queue@3 :: Queue':
  CAPACITY: invalid number
Router could not be initialized!
";
    assert_eq!(errors(text), expected);
}

#[test]
fn misspelt_names_are_proposed() {
    let explained = |text: &str| {
        let parsed = Source::new(text, "config").read(&mut Anything);
        let options = Options::simulated(1, Recorder::default(), text);
        let built = Router::build(parsed.graph, &ringway_elements::registry(), options);
        format!("{:#}", built.err().unwrap().diagnostics)
    };
    let first = |text: &str| explained(text).lines().take(2).map(str::trim).collect::<Vec<_>>().join(" ");
    assert_eq!(
        first("Idle ->\n Conter -> Discard"),
        "config:2:2: unknown element class 'Conter'; did you mean 'Counter'? Router could not be initialized!"
    );
    assert_eq!(
        first("Idle -> c :: Counter(COUNTCALL 5 x) -> Discard"),
        "config:1:9: While configuring 'c :: Counter': \
         COUNTCALL: unknown argument; did you mean 'COUNT_CALL'?"
    );
    for (call, expected) in [
        ("kount.reset", "no element named 'kount'; did you mean 'count'?"),
        ("count.reste", "no 'count.reste' write handler; did you mean 'reset'?"),
    ] {
        let text = format!("Idle -> c :: Counter(COUNT_CALL 5 {call}) -> count :: Counter -> Discard");
        assert_eq!(first(&text), format!("config:1:9: While initializing 'c :: Counter': {expected}"));
    }
}

#[test]
fn handlers() {
    let (mut router, _) = router("i :: Idle -> q :: Queue(5) -> Discard", 1);
    assert_eq!(router.read("q.name").unwrap(), "q");
    assert_eq!(router.read("q.class").unwrap(), "Queue");
    assert_eq!(router.read("q.config").unwrap(), "5");
    assert_eq!(
        router.read("q.ports").unwrap(),
        "1 input\npush\t-\ti [0]\n1 output\npull\t-\t[0] Discard@3\n"
    );
    assert!(router.read("q.handlers").unwrap().contains("length\tr\n"));
    assert_eq!(router.read("list").unwrap(), "3\ni\nq\nDiscard@3\n");
    assert_eq!(router.read("x.count").unwrap_err().to_string(), "no element named 'x'");
    assert_eq!(router.read("q.foo").unwrap_err().to_string(), "no 'q.foo' read handler");
    assert_eq!(router.write("q.length 3").unwrap_err().to_string(), "no 'q.length' write handler");
    router.write("q.config 7").unwrap();
    assert_eq!(router.read("q.capacity").unwrap(), "7");
    assert!(router.write("q.config x").is_err());
    assert_eq!(router.read("q.capacity").unwrap(), "7");
    let flat = "i :: Idle;\nq :: Queue(7);\nDiscard@3 :: Discard;\n\ni -> q\n    -> Discard@3;\n";
    assert_eq!(router.read("flatconfig").unwrap(), flat);
}

#[test]
fn outcomes_of_flows_are_forgotten_with_the_rules() {
    let rules = |end: &str| {
        let rules = (0..100).map(|n| format!("deny src net 10.{n}.0.0/16 && udp && dst port {}, ", 1000 + n));
        rules.collect::<String>() + end
    };
    let text = format!(
        "s :: InfiniteSource(LENGTH 60, LIMIT 300) -> UDPIPEncap(192.0.2.1, 7, 192.0.2.2, 7)
         -> f :: IPFilter({}) -> first :: Counter -> Discard; f[1] -> second :: Counter -> Discard;",
        rules("0 all")
    );
    let (mut router, _) = router(&text, 64);
    run(&mut router);
    router.write(&format!("f.config {}", rules("1 all"))).unwrap();
    router.write("s.reset").unwrap();
    run(&mut router);
    for count in ["first.count", "second.count"] {
        assert_eq!(router.read(count).unwrap(), "300", "{count}");
    }
}

#[test]
fn a_next_hop_is_forgotten_when_it_changes() {
    let text = "s :: InfiniteSource(LENGTH 60, LIMIT 64) -> UDPIPEncap(192.0.2.1, 7, 192.0.2.2, 7)
        -> q :: ARPQuerier(192.0.2.1, 2:0:0:0:0:1, TIMEOUT 0)
        -> c :: Classifier(0/020000000002, 0/020000000003, 12/0806);
        c[0] -> first :: Counter -> Discard; c[1] -> second :: Counter -> Discard;
        c[2] -> queries :: Counter -> Discard; Idle -> [1] q;";
    let (mut router, _) = router(text, 16);
    for change in ["insert 192.0.2.2 2:0:0:0:0:2", "insert 192.0.2.2 2:0:0:0:0:3", "delete 192.0.2.2"] {
        router.write(&format!("q.{change}")).unwrap();
        router.write("s.reset").unwrap();
        run(&mut router);
    }
    for (count, expected) in [("first", "64"), ("second", "64"), ("queries", "1")] {
        assert_eq!(router.read(&format!("{count}.count")).unwrap(), expected, "{count}");
    }
}

#[test]
fn a_next_hop_is_asked_for_again_after_a_time() {
    let text = "TimedSource(1, x) -> c :: Counter -> UDPIPEncap(192.0.2.1, 7, 192.0.2.2, 7)
        -> q :: ARPQuerier(192.0.2.1, 2:0:0:0:0:1, POLL_TIMEOUT 3) -> Discard; Idle -> [1] q;";
    let (mut router, _) = router(text, 64);
    router.write("q.insert 192.0.2.2 2:0:0:0:0:2").unwrap();
    let mut queries = Vec::new();
    for seconds in 1..=4 {
        let count = |router: &mut Router| router.read("c.count").unwrap().parse::<u32>().unwrap();
        while count(&mut router) < seconds {
            router.turn();
        }
        queries.push(router.read("q.queries").unwrap());
    }
    assert_eq!(queries, ["0", "0", "1", "2"]);
}

#[test]
fn fullpush_ends_behind_a_queue_or_a_pipeliner() {
    let text = "i :: Idle -> n :: Null -> q :: Queue -> u :: Unqueue -> behind :: Discard;
        j :: Idle -> p :: Pipeliner -> later :: Discard;
        k :: Idle -> both :: Null -> all :: Discard; l :: Idle -> both;";
    let (mut router, _) = router(text, 1);
    let mut is = |name: &str| router.read(&format!("{name}.is_fullpush")).unwrap();
    for (name, expected) in [
        ("i", true),
        ("q", true),
        ("u", false),
        ("behind", false),
        ("p", true),
        ("later", false),
        ("all", true),
    ] {
        assert_eq!(is(name), expected.to_string(), "{name}");
    }
    assert!(!router.read("q.handlers").unwrap().contains("is_fullpush"));
}

#[test]
fn a_pull_may_pass_a_bypass_twice() {
    let text =
        "InfiniteSource(LIMIT 2, STOP true) -> PullNull -> b :: Bypass(ACTIVE true) -> Print(a) -> Discard;
        b[1] -> Print(b) -> [1]b;";
    let (mut router, console) = router(text, 1);
    run(&mut router);
    let order: String = console.chatter().lines().filter_map(|line| line.chars().next()).collect();
    assert_eq!(order, "baba");
}

struct Again;

impl Rebuild for Again {
    fn rebuild(&mut self, text: &str, place: Succession) -> Result<Router, String> {
        let graph = Source::new(text, "config").read(&mut Anything).graph;
        let options = Options::simulated(1, Recorder::default(), text);
        place.build(graph, &ringway_elements::registry(), options).map_err(|error| error.to_string())
    }
}

#[test]
fn a_new_configuration_takes_over_with_its_state() {
    let text = "InfiniteSource(LIMIT 5, STOP true) -> c :: Counter -> q :: Queue -> Discard(ACTIVE false);";
    let (mut router, _) = router(text, 1);
    assert!(router.write("hotconfig Idle -> Discard").is_err());
    router.allow_reconfigure(Box::new(Again));
    run(&mut router);
    assert!(router.write("hotconfig Print").unwrap_err().to_string().contains("input 0 unused"));
    assert!(router.successor().is_none());
    let time = router.clock().wall();
    router.write("hotconfig Idle -> c :: Counter -> Discard; Idle -> q :: Queue -> d :: Discard").unwrap();
    let mut next = router.successor().unwrap();
    assert!(next.clock().wall() > time && router.successor().is_none());
    run(&mut next);
    assert_eq!(next.read("c.count").unwrap(), "5");
    assert_eq!(next.read("d.count").unwrap(), "5");
    assert!(next.read("handlers").unwrap().contains("hotconfig\tw"));
}

/// A clock that advances by 60 us each time it is read.
struct Ticking(u64);

impl ringway_click::Time for Ticking {
    fn wall(&mut self) -> u64 {
        self.steady()
    }

    fn steady(&mut self) -> u64 {
        self.0 += 60_000;
        self.0
    }

    fn fork(&self) -> Box<dyn ringway_click::Time> {
        Box::new(Ticking(self.0))
    }
}

#[test]
fn tasks_run_during_reconfiguration() {
    let text = "InfiniteSource -> c :: Counter -> Discard; Idle -> f :: IPFilter(allow all) -> Discard;";
    let graph = Source::new(text, "config").read(&mut Anything).graph;
    let clock = ringway_click::Clock::Real(Box::new(Ticking(0)));
    let options = Options { clock, ..Options::simulated(1, Recorder::default(), text) };
    let mut router = Router::build(graph, &ringway_elements::registry(), options).unwrap();
    let count = |router: &mut Router| router.read("c.count").unwrap().parse::<u64>().unwrap();
    router.turn();
    let before = count(&mut router);
    let rules: Vec<String> = (0..1000).map(|port| format!("deny tcp dst port {port}")).collect();
    router.write(&format!("f.config {}, allow all", rules.join(", "))).unwrap();
    assert!(count(&mut router) > before + 100);
    assert!(router.read("f.config").unwrap().contains("port 999"));
    assert!(router.write("f.config nonsense").is_err());
    assert!(router.read("f.config").unwrap().contains("port 999"));
    assert!(router.turn() == Turn::Busy);
}

/// The packets that pass two equal elements, `a` and `b`, whose output 0 is examined.
fn passed_by_both(seed: &str, element: &str, others: &str) -> [Vec<String>; 2] {
    let text = format!(
        "{seed} InfiniteSource(LIMIT 64, LENGTH 60) -> NumberPacket(0) -> t :: Tee;
        t[0] -> a :: {element} -> Print(a, 8) -> Discard;
        t[1] -> b :: {element} -> Print(b, 8) -> Discard; {others}"
    );
    let (mut router, console) = router(&text, 1);
    run(&mut router);
    let chatter = console.chatter();
    ["a", "b"]
        .map(|name| chatter.lines().filter_map(|line| line.strip_prefix(name)).map(String::from).collect())
}

#[test]
fn two_elements_draw_different_numbers() {
    let elements = [
        ("RandomSample(0.5)", ""),
        ("RandomSwitch", "a[1] -> Discard; b[1] -> Discard;"),
        ("RandomBitErrors(0.002, KIND flip)", ""),
        ("LinkEmulator(LOSS 0.5)", ""),
        ("SetRandIPAddress(0.0.0.0/0) -> StoreIPAddress(0)", ""),
    ];
    for seed in ["", "RandomSeed(5);"] {
        for (element, others) in elements {
            let [a, b] = passed_by_both(seed, element, others);
            assert!(!a.is_empty() && a != b, "{seed} {element}");
            assert_eq!(passed_by_both(seed, element, others), [a, b], "{seed} {element}: not reproducible");
        }
    }
    let [a, b] = passed_by_both("", "LinkEmulator(LOSS 0.5, SEED 7)", "");
    assert!(!a.is_empty() && a == b);
}
