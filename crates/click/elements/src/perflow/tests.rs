use ringway_click::{Options, Recorder, Router, Turn};
use ringway_click_lang::{Anything, Source};

fn run(text: &str) -> (Router, Recorder) {
    let parsed = Source::new(text, "config").read(&mut Anything);
    let console = Recorder::default();
    let options = Options::simulated(3, console.clone(), text);
    let mut router = Router::build(parsed.graph, &crate::registry(), options).unwrap();
    while !matches!(router.turn(), Turn::Stopped) {}
    (router, console)
}

#[test]
fn places_follow_the_longest_path() {
    let text = "Idle -> FlowIPManager(RESERVE 3) -> a :: TestFlowSpace -> s :: RoundRobinSwitch
        -> b :: FlowCounter -> c :: TestFlowSpace -> d :: TestFlowSpace -> l :: Null -> Discard;
        s[1] -> d; l -> FlowIPManager -> e :: TestFlowSpace -> Discard; DriverManager(stop)"
        .replace("l :: Null -> Discard", "l :: Tee -> Discard")
        .replace("l -> FlowIPManager", "l[1] -> FlowIPManager");
    let (_, console) = run(&text);
    let expected = "Placing  a :: TestFlowSpace at [3-6]
Placing  b :: FlowCounter at [7-10]
Placing  c :: TestFlowSpace at [11-14]
Placing  d :: TestFlowSpace at [15-18]
Placing  e :: TestFlowSpace at [0-3]
";
    assert_eq!(console.chatter(), expected);
}

#[test]
fn flows_keep_their_memory_until_they_are_over() {
    let packet = |port: u8| {
        alloc::format!("DATA \\<4500001c00000000401100000a0000010a00000200{port:02x}000900080000>")
    };
    let text = alloc::format!(
        "s1 :: InfiniteSource({}, LIMIT 3) -> m :: Null; s2 :: InfiniteSource({}, LIMIT 2) -> m;
        s3 :: InfiniteSource({}, LIMIT 1, ACTIVE false) -> m;
        m -> MarkIPHeader(0) -> f :: FlowIPManager(TIMEOUT 5) -> t :: TestFlowSpace -> c :: FlowCounter
        -> r :: FlowRoundRobinSwitch -> x :: Counter -> Discard; r[1] -> y :: Counter -> Discard;
        Script(export first, wait 1, set first $(c.dump), wait 10, write s3.active true, wait 1, stop)",
        packet(1),
        packet(2),
        packet(1)
    );
    let (mut router, _) = run(&text);
    let mut read = |name: &str| router.read(name).unwrap();
    assert_eq!((read("x.count"), read("y.count")), ("4".into(), "2".into()));
    assert_eq!((read("f.count"), read("f.total"), read("c.open")), ("1".into(), "3".into(), "1".into()));
    assert_eq!((read("c.count"), read("c.dump"), read("t.last")), ("3".into(), "1: 1\n".into(), "1".into()));
    assert_eq!(read("c.median"), "1");
}

#[test]
fn changed_contents_get_their_length() {
    let text =
        "InfiniteSource(LIMIT 1, DATA \\<4500001e00000000401100000a0000010a00000200010002000a0000abcd ffff>)
        -> MarkIPHeader(0) -> IPIn -> a :: Print(a) -> Truncate(29) -> IPOut -> CheckIPHeader -> c :: Counter
        -> StoreFlowID(4) -> Print(b) -> Discard; DriverManager(wait 1, stop)";
    let (mut router, console) = run(text);
    assert_eq!(router.read("c.byte_count").unwrap(), "29");
    let text = console.chatter();
    assert!(text.starts_with("a:   30 | 4500001e"), "{text}");
    assert!(text.contains("b:   29 | 4500001d 00000000"), "{text}");
}
