//! Configurations on several threads.
#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use ringway_click::{Class, Context, Element, Options, PacketBurst, Router};
use ringway_click_driver::click::{self, Recorder};
use ringway_click_lang::{Anything, Source};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Duration;

/// Status, output and chatter of a run.
fn run(options: &str, configuration: &str) -> (u8, String, String) {
    let mut arguments: Vec<String> = options.split_whitespace().map(String::from).collect();
    arguments.extend(["-e".into(), configuration.into()]);
    let console = Recorder::default();
    let status = click::run(&arguments, console.clone());
    (status, console.output(), console.chatter())
}

/// The output of a run that succeeds without other messages.
fn output(options: &str, configuration: &str) -> String {
    let (status, output, chatter) = run(options, configuration);
    assert_eq!((status, chatter.as_str()), (0, ""), "{configuration}");
    output
}

const TWO: &str = "
    StaticThreadSched(s1 0, s2 1);
    s1 :: InfiniteSource(LIMIT 1000, STOP true) -> c1 :: Counter -> Discard;
    s2 :: InfiniteSource(LIMIT 2000, STOP true) -> c2 :: Counter -> Discard;
    DriverManager(wait_stop 2);";

const BOTH: &str = "-h c1.count -h c2.count -h s1.home_thread -h s2.home_thread";

#[test]
fn two_chains_count_on_two_threads() {
    let expected = "c1.count:\n1000\n\nc2.count:\n2000\n\ns1.home_thread:\n0\n\ns2.home_thread:\n1\n\n";
    assert_eq!(output(&format!("-j2 {BOTH}"), TWO), expected);
    assert_eq!(output(&format!("-j1 {BOTH}"), TWO), expected);
    let exit = |threads: &str| run(&format!("{threads} -x c2.count"), &TWO.replace("2000", "7")).0;
    assert_eq!([exit("-j1"), exit("-j2")], [7, 7]);
    // In this case everything runs on one thread, whatever is requested.
    assert_eq!(
        output("-j3 -h c2.count", "s2 :: InfiniteSource(LIMIT 9, STOP true) -> c2 :: Counter -> Discard"),
        "9\n"
    );
}

#[test]
fn router_wide_handlers_cover_all_threads() {
    for handler in
        ["list", "flatconfig", "config", "handlers", "active_ports", "drops", "requirements", "c2.handlers"]
    {
        let [one, two] = ["-j1", "-j2"].map(|threads| output(&format!("{threads} -h {handler}"), TWO));
        assert_eq!(one, two, "{handler}");
    }
    let [one, two] = ["-j1", "-j2"].map(|threads| output(&format!("{threads} -qo-"), TWO));
    assert_eq!(one, two);
    let [one, two] =
        ["-j1", "-j2"].map(|threads| output(&format!("{threads} -h *.name -h Counter.class"), TWO));
    assert_eq!(one, two);
}

#[test]
fn a_stop_on_any_thread_stops_all() {
    let endless = "
        StaticThreadSched(a 0, b 1, c 2);
        a :: InfiniteSource -> A; b :: InfiniteSource -> B; c :: InfiniteSource -> C;";
    for stopping in ["A", "B", "C"] {
        let call = |name| if name == stopping { "(COUNT_CALL 100 stop)" } else { "" };
        let classes = ["A", "B", "C"]
            .map(|name| format!("elementclass {name} {{ -> Counter{} -> Discard }}", call(name)));
        let (status, _, chatter) = run("-j3", &format!("{}{endless}", classes.join(";")));
        assert_eq!((status, chatter.as_str()), (0, ""), "{stopping}");
    }
    // The driver's script runs last.
    let script =
        "DriverManager(wait_stop, write c2.reset, print c2.count, wait_stop, print $(c2.count), stop)";
    let text = TWO.replace("LIMIT 1000, STOP true", "").replace("DriverManager(wait_stop 2)", script);
    let text = text.replace("c2 :: Counter", "c2 :: Counter(COUNT_CALL 500 stop)");
    let stdout = output("-j2", &text);
    assert!(stdout.lines().all(|line| line.parse::<u32>().is_ok_and(|count| count <= 2000)), "{stdout}");
}

#[test]
fn elements_that_name_each_other_share_a_thread() {
    let text = "
        StaticThreadSched(s1 0, s2 1);
        s1 :: InfiniteSource(LIMIT 10) -> c1 :: Counter(COUNT_CALL 10 c2.reset) -> Discard;
        s2 :: InfiniteSource(LIMIT 5, STOP true) -> c2 :: Counter -> Discard;";
    let (status, stdout, chatter) = run("-j2 -h s2.home_thread", text);
    assert_eq!((status, stdout.as_str()), (0, "0\n"));
    assert!(chatter.contains("warning: 's2' runs on thread 0 instead of 1: "), "{chatter}");
    assert_eq!(chatter.lines().count(), 1, "{chatter}");
    let (_, stdout, chatter) = run(
        "-j2 -w -h s1.home_thread",
        "StaticThreadSched(s1 7); s1 :: InfiniteSource(LIMIT 1, STOP true) -> Discard",
    );
    assert_eq!((stdout.as_str(), chatter.as_str()), ("0\n", ""));
    let (.., chatter) = run("-qj2", "StaticThreadSched(s1 7); s1 :: InfiniteSource -> Discard");
    assert!(chatter.contains("thread preference 7 out of range"), "{chatter}");
    assert_eq!(output("-qj1", "StaticThreadSched(s1 7); s1 :: InfiniteSource -> Discard"), "");
}

/// Whether elements `a` and `b`, requested on two threads, are on one. Nothing is started.
fn stay_together(text: &str) -> bool {
    let text = format!("StaticThreadSched(a 0, b 1); {text}");
    let parsed = Source::new(&text, "config").read(&mut Anything);
    assert_eq!(parsed.diagnostics.to_string(), "");
    let options = Options::simulated(1, Recorder::default(), &text);
    let mut router = Router::configured(parsed.graph, &click::registry(), options, 2).unwrap();
    let warned = |router: &Router| router.diagnostics().to_string().contains("instead of");
    assert!(!warned(&router));
    let whole = router.divide().is_whole();
    assert_eq!(warned(&router), whole, "{text}");
    whole
}

#[test]
fn elements_that_share_a_resource_share_a_thread() {
    for (one, other) in [
        ("a :: FromDevice(e0) -> Discard;", "Idle -> b :: ToDevice(DEVNAME e0);"),
        ("a :: FromPort(/run/x) -> Discard;", "Idle -> b :: ToPort(/run/x);"),
        ("a :: FromHost(h0) -> Discard;", "Idle -> b :: ToHost(h0);"),
        (
            "l :: SpinlockInfo(l0); Idle -> a :: SpinlockAcquire(l0) -> Discard;",
            "Idle -> b :: SpinlockRelease(l0) -> Discard;",
        ),
    ] {
        assert!(stay_together(&format!("{one} {other}")), "{one} {other}");
        let apart = other.replace("e0", "e1").replace("/x", "/y").replace("h0", "h1").replace("(l0", "(l1");
        let apart = format!("SpinlockInfo(l1); {one} {apart}");
        assert!(!stay_together(&apart), "{apart}");
    }
    assert!(stay_together("a, b :: Script(TYPE PASSIVE, return 1)"));
    let long_way = "
        a, b :: Idle; a -> Queue -> Discard; b -> Discard;
        c :: { i :: Idle -> Counter(COUNT_CALL 1 b.x) -> Discard };
        d :: Counter(COUNT_CALL 1 \"$(a.count)\"); Idle -> d -> Discard;
        InfiniteSource(END_CALL d.x c/i.y) -> Discard;";
    assert!(stay_together(long_way));
    assert!(!stay_together(&long_way.replace("END_CALL d.x", "END_CALL e.x")));
    assert!(!stay_together("Script(print a.count, print b.count); a, b :: Idle; a -> Discard; b -> Discard"));
}

#[test]
fn parts_are_distributed_over_threads() {
    let chains: Vec<String> =
        (0..3).map(|at| format!("s{at} :: InfiniteSource(LIMIT 5, STOP true) -> Discard;")).collect();
    let text = format!("BalancedThreadSched; DriverManager(wait_stop 3); {}", chains.concat());
    let stdout = output("-j2 -h s0.home_thread -h s1.home_thread -h s2.home_thread", &text);
    let homes: Vec<&str> = stdout.lines().filter(|line| matches!(*line, "0" | "1")).collect();
    assert_eq!(homes, ["0", "1", "0"]);
}

#[test]
fn error_messages_do_not_depend_on_the_number_of_threads() {
    let scheds = "StaticThreadSched(a 1, b 0, c 1); ";
    for wrong in [
        "a :: Counter(x) -> Discard; Nonsense; b :: Idle; c :: Idle",
        "a :: InfiniteSource(LIMIT x) -> Discard; b :: Idle -> Strip -> Discard; c :: Idle",
        "a :: Idle -> ToDump(/nowhere/a); b :: Idle -> ToDump(/nowhere/b); c :: Idle",
        "a :: Idle; b :: Idle -> ToDump(/nowhere/b); c :: Idle -> ToDump(/nowhere/c)",
        "a :: Idle; b :: Idle; c :: Counter(COUNT_CALL 1 d.x); Idle -> c -> Discard; d :: Idle",
        "a :: Idle; b :: Idle; c :: Idle; Script(print c.foo, stop)",
        "a :: Idle; b :: Idle; c :: Idle; AddressInfo(a x); Message(one); Message(two)",
        "a :: InfiniteSource -> Discard; b, c :: Idle; Script(init x $(a.scheduled), init y $(c.scheduled))",
    ] {
        let [one, two] = ["-qj1", "-qj2"].map(|threads| run(threads, &format!("{scheds}{wrong}")));
        assert_eq!(one, two, "{wrong}");
        assert!(one.0 == 1 || wrong.contains("Message") || wrong.contains("Script"), "{wrong}");
    }
}

/// A connection to a socket that a run opens.
fn connect<T>(path: &Path, run: &JoinHandle<T>) -> UnixStream {
    loop {
        if let Ok(stream) = UnixStream::connect(path) {
            return stream;
        }
        assert!(!run.is_finished(), "it has ended already");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A program connected to a ControlSocket.
struct Program(BufReader<UnixStream>);

impl Program {
    fn of(stream: UnixStream) -> Self {
        let mut own = BufReader::new(stream);
        own.read_line(&mut String::new()).unwrap();
        Self(own)
    }

    /// Sends a line; the code of the answer, its text, and its data.
    fn say(&mut self, line: &str) -> (u16, String, String) {
        self.0.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let (mut answer, mut data) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            answer += &line;
            if line.as_bytes()[3] == b' ' {
                break;
            }
        }
        let code = answer[..3].parse().unwrap();
        if code == 200 && line.split(' ').next().is_some_and(|word| word == "READ" || word == "LLRPC") {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let length: usize = line.trim().strip_prefix("DATA ").unwrap().parse().unwrap();
            let mut bytes = vec![0; length];
            self.0.read_exact(&mut bytes).unwrap();
            data = String::from_utf8_lossy(&bytes).into_owned();
        }
        (code, answer, data)
    }

    fn read(&mut self, handler: &str) -> String {
        let (code, answer, data) = self.say(&format!("READ {handler}"));
        assert_eq!(code, 200, "{answer}");
        data
    }
}

#[test]
fn a_control_socket_reaches_all_threads() {
    let path = std::env::temp_dir().join(format!("ringway-threads-{}.sock", std::process::id()));
    let text = "
        StaticThreadSched(s2 1, i 1);
        s1 :: InfiniteSource -> c1 :: Counter -> Discard;
        s2 :: InfiniteSource -> c2 :: Counter -> Discard;
        i :: Idle -> q :: Queue(5) -> Discard; seed :: RandomSeed(5);";
    let options = format!("-Rj2 -u {}", path.display());
    let router = std::thread::spawn(move || run(&options, text));
    let mut program = Program::of(connect(&path, &router));
    while program.read("c1.count") == "0" || program.read("c2.count") == "0" {}
    let numbers = ["s1", "s2"].map(|name| program.read(&format!("{name}.home_thread")));
    assert_eq!(numbers, ["0", "1"]);
    assert_eq!(program.say("CHECKREAD c2.count").0, 200);
    assert_eq!(program.say("CHECKWRITE c2.count").0, 530);
    assert_eq!(program.say("CHECKREAD c2.foo").0, 511);
    // The other thread answers between two turns, so nothing happens there between these calls.
    assert_eq!(program.say("WRITE s2.active false").0, 200);
    assert_eq!(program.say("WRITE c2.reset").0, 200);
    assert_eq!(program.read("c2.count"), "0");
    assert_eq!(program.say("WRITE q.config 7").0, 200);
    assert_eq!(program.say("WRITE q.config nonsense").0, 520);
    assert!(program.read("flatconfig").contains("q :: Queue(7);"));
    assert_eq!(program.read("q.capacity"), "7");
    assert_eq!(program.say("WRITE s2.home_thread 0").0, 520);
    assert_eq!(program.say("WRITE seed.seed 7").0, 200);
    assert_eq!(program.say("WRITE timewarp 2").0, 200);
    assert_eq!(program.say("LLRPC c2#4004C0FF").0, 540);
    let (code, answer, _) = program.say("WRITE hotconfig Idle;");
    assert!(code == 520 && answer.contains("leave out --threads"), "{answer}");
    assert_eq!(program.say("WRITE s2.active true").0, 200);
    while program.read("c2.count") == "0" {}
    program.say("WRITE stop");
    let (status, _, chatter) = router.join().unwrap();
    assert_eq!((status, chatter.as_str()), (0, ""));
}

#[test]
fn messages_of_other_threads_are_delivered() {
    let path = std::env::temp_dir().join(format!("ringway-chatter-{}.sock", std::process::id()));
    let text = format!(
        "ChatterSocket(UNIX, {});
         StaticThreadSched(s 1);
         s :: RatedSource(\"text\", RATE 100) -> Print(printed, CONTENTS ASCII) -> Discard;
         Idle -> c :: Counter -> Discard;",
        path.display()
    );
    let control = std::env::temp_dir().join(format!("ringway-hearing-{}.sock", std::process::id()));
    let options = format!("-j2 -u {}", control.display());
    let router = std::thread::spawn(move || run(&options, &text));
    let mut lines = BufReader::new(connect(&path, &router)).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("printed:") && line.contains("text")));
    Program::of(connect(&control, &router)).say("WRITE stop");
    assert_eq!(router.join().unwrap().0, 0);
}

/// Panics at the first packet.
struct Broken;

static BROKEN: Class = Class::new("Broken", || Box::new(Broken)).ports("1/0").processing("h");

impl Element for Broken {
    fn push(&mut self, _: usize, _: &mut PacketBurst, _: &mut Context<'_>) {
        panic!("as asked");
    }
}

#[test]
fn a_panicking_thread_ends_the_program() {
    let mut registry = click::registry();
    registry.add(&[&BROKEN]);
    let text = "StaticThreadSched(s 1); s :: InfiniteSource -> Broken; InfiniteSource -> Discard";
    let arguments = ["-j2", "-e", text].map(String::from);
    let console = Recorder::default();
    let own = console.clone();
    let run = std::thread::spawn(move || click::run_with(registry, &arguments, own));
    let panic = run.join().unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"as asked"));
    assert_eq!(console.chatter(), "thread 1 broke off\n");
}

/// A chain that loses no packets and stops when all have arrived, and its expected output.
fn chain(at: usize, packets: usize, middle: &[usize]) -> String {
    let mut text = format!("s{at} :: InfiniteSource(DATA \\<0{at}0102030405>, LIMIT {packets})");
    for kind in middle {
        text += match kind {
            0 => " -> Queue(500) -> Unqueue",
            1 => " -> Strip(1)",
            2 => " -> Counter",
            3 => " -> Unstrip(1)",
            4 => " -> { input -> t :: Tee -> output; t[1] -> Counter -> Discard }",
            _ => " -> Queue(300) -> Strip(1) -> RatedUnqueue(100000000)",
        };
    }
    text + &format!(" -> Print(chain{at}) -> c{at} :: Counter(COUNT_CALL {packets} stop) -> Discard;\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn one_and_three_threads_give_equal_results(
        chains in prop::collection::vec(
            (1..200_usize, prop::collection::vec(0..6_usize, 0..4), 0..3_usize),
            1..5,
        ),
        balanced: bool,
    ) {
        let mut text = format!("DriverManager(wait_stop {});\n", chains.len());
        for (at, (packets, middle, thread)) in chains.iter().enumerate() {
            text += &chain(at, *packets, middle);
            if !balanced {
                writeln!(text, "StaticThreadSched(s{at} {thread});").unwrap();
            }
        }
        if balanced {
            text += "BalancedThreadSched;\n";
        }
        let handlers = "-h *.count -h *.byte_count -h *.drops -h list -h flatconfig";
        let [one, three] = ["-j1", "-j3"].map(|threads| run(&format!("{threads} {handlers}"), &text));
        prop_assert_eq!((one.0, &one.1), (three.0, &three.1));
        if chains.len() == 1 {
            prop_assert_eq!(&one.2, &three.2);
        }
        for (at, (packets, ..)) in chains.iter().enumerate() {
            let begin = format!("chain{at}:");
            let own = |chatter: &str| -> Vec<String> {
                chatter.lines().filter(|line| line.starts_with(&begin)).map(String::from).collect()
            };
            prop_assert_eq!(own(&one.2), own(&three.2));
            prop_assert_eq!(own(&one.2).len(), *packets);
        }
    }
}
