//! Tests of functions (`ringway function test`): results, positions of differences, rewriting; and profiles.
#![allow(clippy::unwrap_used)]

use ringway_click_driver::click::{self, Recorder};
use ringway_click_driver::golden::{self, Passed};
use std::path::{Path, PathBuf};

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path =
            std::env::temp_dir().join(format!("ringway-click-driver-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// The differences that a test file reports, without the folder.
    fn wrong(&self, text: &str) -> Vec<String> {
        let path = self.write("a.test", text);
        let folder = format!("{}/", self.0.display());
        let line = |c: golden::Complaint| {
            format!("{}:{}:{}: {}", c.file, c.line, c.column, c.what).replace(&folder, "")
        };
        golden::run(&path, false).err().into_iter().flatten().map(line).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const WALL: &str = "\
Web traffic passes.

--- configuration
FromPort($IN) -> c :: Classifier(12/0800, -)
  -> Strip(14) -> CheckIPHeader -> f :: IPFilter(allow dst port 80, deny all)
  -> passed :: Counter -> Unstrip(14) -> q :: Queue -> ToDevice(eth0);
c[1] -> Discard;
--- devices
eth0 = out
--- parameters
IN=in
--- input in
!data timestamp ip_src sport ip_dst dport ip_proto
1 10.0.0.1 1000 10.0.0.2 80 T
2 10.0.0.1 1001 10.0.0.2 22 T
3 10.0.0.1 1002 10.0.0.2 80 U
--- input in
ffffffffffff 020000000001 0806
--- output out
!data timestamp sport dport ip_proto
1.000000 1000 80 T
3.000000 1002 80 U
--- handlers
passed.count 2
c.config 12/0800, -
";

#[test]
fn a_configuration_passes_its_test() {
    let folder = Folder::new("good");
    let path = folder.write("wall.test", WALL);
    assert_eq!(golden::run(&path, false), Ok(Passed { received: 4, sent: 2, handlers: 2 }));
}

#[test]
fn differences_have_positions() {
    let folder = Folder::new("different");
    assert_eq!(
        folder
            .wrong(&WALL.replace("1002 80 U\n---", "1002 81 U\n1 2 3 4\n---").replace("count 2", "count 3")),
        [
            "a.test:22:15: frame 2: dport is 80, not 81",
            "a.test:23:1: expected 3 frames, 2 were sent",
            "a.test:25:14: passed.count is 2, not 3",
        ]
    );
    let fewer = WALL.replace("3.000000 1002 80 U\n", "");
    assert_eq!(
        folder.wrong(&fewer),
        ["a.test:21:1: 1 more frames were sent, the next is 3.000000 1002 80 U"]
    );
    let none = WALL.replace("--- output out", "--- chatter").replace("passed.count 2", "none.count 1");
    let wrong = folder.wrong(&none);
    assert_eq!(wrong[0], "a.test:1:1: 2 frames were sent to port out; add the heading `--- output out`");
    assert!(wrong[1].starts_with("a.test:24:") && wrong[1].contains("none"), "{wrong:?}");
    let bytes = "--- configuration\nFromPort(a) -> EtherMirror -> ToPort(a);\n--- input a\n\
        0102030405060708090a0b0c\n--- output a\n0708 0905 0b0c 0102 0304 0506\n";
    assert_eq!(folder.wrong(bytes), ["a.test:6:8: frame 1: byte 3 is 0a, not 05"]);
    let short = bytes.replace("0506\n", "05\n").replace("0905", "090a");
    assert_eq!(folder.wrong(&short), ["a.test:6:28: frame 1: it has 12 bytes, not 11"]);
}

#[test]
fn errors_in_the_file_and_its_configuration_have_positions() {
    let folder = Folder::new("errors");
    let wrong = folder.wrong(&WALL.replace("Strip(14) ->", "Strip(14) -> Nonsense ->"));
    assert!(wrong[0].starts_with("a.test:5:19: ") && wrong[0].contains("Nonsense"), "{wrong:?}");
    let wrong = folder.wrong(&WALL.replace("--- devices", "--- ports\nunused\n--- devices"));
    assert_eq!(wrong, ["a.test:3:1: no FromPort or ToPort of port 'unused'"]);
    let wrong = folder.wrong(&WALL.replace("--- handlers", "--- handler"));
    assert_eq!(wrong, ["a.test:23:5: no section 'handler'; did you mean 'handlers'?"]);
    let wrong = folder.wrong(&WALL.replace("dport ip_proto\n1 10", "colour ip_proto\n1 10"));
    assert_eq!(wrong, ["a.test:13:37: unknown content type 'colour'"]);
    let wrong = folder.wrong(&WALL.replace("ffffffffffff 02", "ffffffffffff x2"));
    assert_eq!(wrong, ["a.test:18:14: 'x' is no hexadecimal digit"]);
    assert_eq!(
        folder.wrong("--- ports\na\n"),
        ["a.test:1:1: no configuration; add the heading `--- configuration`"]
    );
    let wrong = folder.wrong("--- configuration none.click\n");
    assert!(wrong[0].starts_with("a.test:1:1: none.click: "), "{wrong:?}");
    let busy = "--- configuration\nInfiniteSource -> Discard; FromPort(a) -> ToPort(a);\n--- ports\na\n";
    assert!(folder.wrong(busy)[0].starts_with("a.test:1:1: still busy after "), "{:?}", folder.wrong(busy));
}

#[test]
fn the_result_can_be_written_into_the_file_and_captures() {
    let folder = Folder::new("write");
    let path = folder.write("wall.test", &WALL.replace("1000 80 T\n", "").replace("count 2", "count 9"));
    golden::run(&path, true).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), WALL);
    // Sent frames become a capture, which another test receives.
    let path = folder.write("out.test", &WALL.replace("--- output out\n", "--- output out out.pcap\n"));
    assert!(golden::run(&path, false).is_err());
    golden::run(&path, true).unwrap();
    assert_eq!(golden::run(&path, false), Ok(Passed { received: 4, sent: 2, handlers: 2 }));
    let wire = "--- configuration\nFromPort(a) -> ToPort(b);\n--- input a out.pcap\n--- output b out.pcap\n";
    let path = folder.write("wire.test", wire);
    assert_eq!(golden::run(&path, false), Ok(Passed { received: 2, sent: 2, handlers: 0 }));
    let wrong = folder.wrong(&wire.replace("->", "-> EtherMirror ->"));
    assert_eq!(wrong[0], "a.test:4:1: frame 1 differs from byte 5 on");
}

/// The tests of the examples; BLESS=1 writes their results.
#[test]
fn example_functions_pass_their_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../examples/functions");
    let files = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path());
    let mut count = 0;
    for file in files.filter(|path| path.extension().is_some_and(|end| end == "test")) {
        let result = golden::run(&file, std::env::var_os("BLESS").is_some());
        assert!(result.is_ok(), "{}: {result:#?}", file.display());
        count += 1;
    }
    assert!(count >= 15);
}

fn profile(text: &str, more: &[&str]) -> String {
    let console = Recorder::default();
    let words = more.iter().copied().chain(["--profile", "-e", text]).map(String::from);
    assert_eq!(click::run(&words.collect::<Vec<_>>(), console.clone()), 0, "{}", console.chatter());
    console.output()
}

#[test]
fn a_profile_has_packets_and_shares_of_each_element() {
    let text = "s :: InfiniteSource(LIMIT 1000, STOP true) -> n :: Null -> c :: RoundRobinSwitch;
        c[0] -> q :: Queue -> u :: Unqueue -> d :: Discard; c[1] -> e :: Counter -> Discard;";
    for burst in ["1", "64"] {
        let table = profile(text, &["--burst", burst]);
        let mut lines = table.lines();
        let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(head, ["element", "packets", "ticks/packet", "share"]);
        let packets = |name: &str| {
            let line = table.lines().find(|line| line.starts_with(&format!("{name} :: "))).unwrap();
            line.split_whitespace().nth(3).unwrap().parse::<u64>().unwrap()
        };
        assert_eq!(
            (packets("s"), packets("c"), packets("q"), packets("e")),
            (1000, 1000, 500, 500),
            "{table}"
        );
        let shares = lines.map(|line| line.split_whitespace().last().unwrap().trim_end_matches('%'));
        let total: f64 = shares.map(|share| share.parse::<f64>().unwrap()).sum();
        assert!((99.0..101.0).contains(&total), "{table}");
    }
}

#[test]
fn a_running_graph_has_the_packets_of_each_connection() {
    let text =
        "s :: InfiniteSource(LIMIT 100, ACTIVE false) -> n :: Null -> c :: RoundRobinSwitch -> d :: Discard;
        c[1] -> q :: Queue -> t :: Strip(1) -> u :: Unqueue -> d;
        Script(write s.active true, wait 10ms, print $(graph), write profile false, print $(graph), stop);";
    let output = profile(text, &["--simtime"]);
    let (counted, without) = output.split_once("profile 0\n").unwrap();
    assert!(counted.starts_with("profile ") && !counted.starts_with("profile 0\n"), "{output}");
    let elements: Vec<&str> = counted
        .lines()
        .filter(|line| line.starts_with("element "))
        .map(|line| line.split(' ').nth(1).unwrap())
        .collect();
    let mut passed: Vec<String> = Vec::new();
    for line in counted.lines().filter(|line| line.starts_with("connection ")) {
        let words: Vec<&str> = line.split(' ').collect();
        let name = |at: usize| elements[words[at].parse::<usize>().unwrap()];
        passed.push(format!("{} {} {} {}", name(1), words[2], name(4), words[5]));
    }
    passed.sort();
    let expected = ["c 0 d 50", "c 1 q 50", "n 0 c 100", "q 0 t 50", "s 0 n 100", "t 0 u 50", "u 0 d 50"];
    assert_eq!(passed, expected, "{output}");
    assert!(without.lines().filter(|line| line.starts_with("connection")).all(|line| line.ends_with(" 0")));
}
