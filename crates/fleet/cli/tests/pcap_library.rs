//! Programs that link libpcap, with our library: `tcpdump -i ringway:PORT`.

use crate::exec::may_create_namespaces;
use crate::lab::frames::{LONG, next, patched, program, receive, send};
use crate::lab::{Lab, Running, until};
use ringway_ring_client::Ring;
use ringway_wire::pcap::{Header, Reader};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStderr, Command, Output, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// The folder of the library, which is built once; `None`, with a message, if its source or tcpdump can't be had.
fn library() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        if Command::new("tcpdump").arg("--version").output().is_err() {
            eprintln!("not run: there is no tcpdump");
            return None;
        }
        let target = Path::new(env!("CARGO_BIN_EXE_ringway")).ancestors().nth(2).unwrap();
        let mut script = Command::new(root().join("scripts/pcap-library.sh"));
        let built = script.env("CARGO_TARGET_DIR", target).output().unwrap();
        let errors = String::from_utf8_lossy(&built.stderr);
        if built.status.code() == Some(2) {
            eprintln!("not run: {errors}");
            return None;
        }
        assert!(built.status.success(), "{errors}");
        let folder = target.join("pcap");
        let mut compile = Command::new("cc");
        compile.args(["-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(folder.join("calls"));
        compile.arg(root().join("clients/pcap/examples/calls.c"));
        compile.arg("-I").arg(folder.join("source")).arg(folder.join("libpcap.so.0.8"));
        // A setuid copy finds the library too.
        compile.arg(format!("-Wl,-rpath,{}", folder.display()));
        assert!(compile.status().unwrap().success());
        Some(folder)
    };
    BUILT.get_or_init(build).as_deref()
}

/// A program that uses the library.
fn command(lab: &Lab, name: &str, words: &[&str]) -> Command {
    let folder = library().unwrap();
    let ours = folder.join(name);
    let mut command = Command::new(if ours.exists() { ours } else { PathBuf::from(name) });
    command.args(words).current_dir(&lab.folder).env("LD_LIBRARY_PATH", folder);
    command.env("RINGWAY_PROGRAM", env!("CARGO_BIN_EXE_ringway")).env("RINGWAY_RUN", lab.folder.join("run"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(lab: &Lab, name: &str, words: &[&str]) -> Output {
    command(lab, name, words).output().unwrap()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A program that runs.
struct Capturing {
    running: Running,
    errors: BufReader<ChildStderr>,
    output: Arc<Mutex<Vec<u8>>>,
}

impl Capturing {
    fn start(lab: &Lab, name: &str, words: &[&str]) -> Capturing {
        Capturing::of(&mut command(lab, name, words))
    }

    fn of(command: &mut Command) -> Capturing {
        let mut child = command.spawn().unwrap();
        let errors = BufReader::new(child.stderr.take().unwrap());
        let output = Arc::new(Mutex::new(Vec::new()));
        let (mut stdout, shared) = (child.stdout.take().unwrap(), output.clone());
        std::thread::spawn(move || {
            let mut part = [0; 65536];
            while let Ok(len @ 1..) = stdout.read(&mut part) {
                shared.lock().unwrap().extend_from_slice(&part[..len]);
            }
        });
        Capturing { running: Running(child), errors, output }
    }

    /// tcpdump, once it captures.
    fn tcpdump(lab: &Lab, words: &[&str]) -> Capturing {
        let mut started = Capturing::start(lab, "tcpdump", words);
        let mut said = String::new();
        while !said.contains("listening on ") {
            assert_ne!(started.errors.read_line(&mut said).unwrap(), 0, "{said}{}", lab.log());
        }
        started
    }

    /// Our program, once it captures.
    fn calls(lab: &Lab, words: &[&str]) -> Capturing {
        let started = Capturing::start(lab, "calls", words);
        until("the program captures", || started.text().starts_with("ready\n"));
        started
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.running.0.id().cast_signed()).unwrap(), signal).unwrap();
    }

    fn bytes(&self) -> Vec<u8> {
        self.output.lock().unwrap().clone()
    }

    fn text(&self) -> String {
        String::from_utf8(self.bytes()).unwrap()
    }

    /// The frames that tcpdump has written so far.
    fn frames(&self) -> Vec<Vec<u8>> {
        let bytes = self.bytes();
        // The last one may not be whole yet.
        let Ok(reader) = Reader::new(&bytes) else { return Vec::new() };
        reader.map_while(Result::ok).map(|record| record.data.to_vec()).collect()
    }

    /// Waits for its end; whether it succeeded, and its last messages.
    fn end(mut self) -> (bool, String) {
        let mut errors = String::new();
        self.errors.read_to_string(&mut errors).unwrap();
        (self.running.0.wait().unwrap().success(), errors)
    }

    /// Ends it by Ctrl-C; its last messages.
    fn interrupt(self) -> String {
        self.signal(Signal::INT);
        let (success, errors) = self.end();
        assert!(success, "{errors}");
        errors
    }
}

fn frame(number: u32) -> [u8; 60] {
    let mut frame = [2; 60];
    frame[14..18].copy_from_slice(&number.to_be_bytes());
    frame
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn up(name: &str) -> Option<Lab> {
    library()?;
    let lab = Lab::new(name, &patched(&[["left", "right"]]));
    lab.ok(&["up", "lab.toml", "--detach"]);
    Some(lab)
}

/// Sends numbered frames, each after the one before has come.
fn pass(from: &mut Ring, to: &mut Ring, numbers: std::ops::Range<u32>) {
    for number in numbers {
        assert!(send(from, number));
        assert_eq!(next(to, LONG), Some(number));
    }
}

#[test]
fn tcpdump_has_every_byte_and_its_filters_and_directions() {
    let Some(lab) = up("pcap-bytes") else { return };
    let (mut left, mut right) = (program(&lab, "left"), program(&lab, "right"));
    let start = |device: &str, words: &[&str]| {
        Capturing::tcpdump(&lab, &[&["-i", device, "-U", "-w", "-"][..], words].concat())
    };
    let all = start("ringway:left", &[]);
    let sent = start("ringway:lab:left", &["-Q", "in"]);
    let got = start("ringway:lab/left", &["-Q", "out", "--time-stamp-precision=nano"]);
    let some = start("ringway:left", &["ether[17] < 3 and inbound and len = 60"]);
    let out = start("ringway:left", &["-s", "20", "outbound"]);
    pass(&mut left, &mut right, 0..100);
    pass(&mut right, &mut left, 100..140);
    let is = |capture: Capturing, numbers: std::ops::Range<u32>, len: usize| {
        let frames: Vec<Vec<u8>> = numbers.map(|number| frame(number)[..len].to_vec()).collect();
        until("tcpdump writes every frame", || capture.frames().len() >= frames.len());
        assert_eq!(capture.frames(), frames);
        let report = capture.interrupt();
        let count = frames.len();
        let expected =
            format!("{count} packets captured\n{count} packets received by filter\n0 packets dropped");
        assert!(report.contains(&expected), "{report}");
    };
    is(all, 0..140, 60);
    is(sent, 0..100, 60);
    is(got, 100..140, 60);
    is(some, 0..3, 60);
    is(out, 100..140, 20);
}

#[test]
fn ports_are_listed_and_what_is_wrong_is_said() {
    let Some(lab) = up("pcap-list") else { return };
    let list = run(&lab, "tcpdump", &["-D"]);
    let text = String::from_utf8_lossy(&list.stdout).into_owned();
    assert!(text.contains("ringway:lab:left (Port left of Ringway's fabric lab)"), "{text}{}", errors(&list));
    let wrong = |words: &[&str], expected: &str| {
        let output = run(&lab, "tcpdump", words);
        assert!(
            !output.status.success() && errors(&output).contains(expected),
            "{words:?}: {}",
            errors(&output)
        );
    };
    wrong(&["-i", "ringway:lfet"], "there is no port \"lfet\"; did you mean \"left\"?");
    wrong(&["-i", "ringway:other:left"], "no fabric other is up in ");
    wrong(&["-i", "ringway:"], "name a port: ringway:PORT");
    wrong(&["-i", "ringway:left", "tcp prot 80"], "syntax error");
    wrong(&["-i", "ringway:left", "ifindex 3"], "the filter asks for what only the kernel knows of a packet");
    let mut without = command(&lab, "tcpdump", &["-i", "ringway:left"]);
    let without = without.env("RINGWAY_PROGRAM", "/nonexistent/ringway").output().unwrap();
    assert!(errors(&without).contains("RINGWAY_PROGRAM names the program"), "{}", errors(&without));
    let waiting = Capturing::tcpdump(&lab, &["-i", "ringway:left"]);
    lab.ok(&["down"]);
    let (success, said) = waiting.end();
    assert!(!success && said.contains("left: the fabric went down"), "{said}");
    let list = run(&lab, "tcpdump", &["-D"]);
    assert!(list.status.success(), "{}", errors(&list));
    assert!(!String::from_utf8_lossy(&list.stdout).contains("ringway:"));
}

/// Attack: the user of a setuid program, in whose PATH another program has the name `ringway`.
#[test]
fn a_setuid_program_starts_nothing() {
    const NOBODY: u32 = 65_534;
    let Some(lab) = up("pcap-setuid") else { return };
    let setuid = |from: &Path, name: &str| {
        let copy = lab.folder.join(name);
        let copied = Command::new("install").args(["-m", "4755"]).arg(from).arg(&copy).status().unwrap();
        assert!(copied.success());
        copy
    };
    let mut id = Command::new(setuid(Path::new("/usr/bin/id"), "id"));
    if !id.arg("-u").uid(NOBODY).output().is_ok_and(|output| output.stdout == b"0\n") {
        return eprintln!("not run: only root can make setuid programs, where the file system permits them");
    }
    let (path, ran) = (lab.folder.join("path"), lab.folder.join("path/ran"));
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("ringway"), format!("#!/bin/sh\n: > {}\n", ran.display())).unwrap();
    std::fs::set_permissions(path.join("ringway"), PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o777)).unwrap();
    let list = |program: &str| {
        let mut list = command(&lab, program, &["list"]);
        list.env_remove("RINGWAY_PROGRAM").env("PATH", &path);
        list
    };
    let other = list("calls").output().unwrap();
    assert!(other.status.success() && ran.exists(), "without more rights it runs: {}", errors(&other));
    std::fs::remove_file(&ran).unwrap();
    let copy = setuid(&library().unwrap().join("calls"), "calls");
    let copy = copy.to_str().unwrap();
    let listed = list(copy).uid(NOBODY).output().unwrap();
    assert!(listed.status.success() && !ran.exists(), "{}", errors(&listed));
    let opened = command(&lab, copy, &["ringway:left", "break"]).uid(NOBODY).output().unwrap();
    let expected = "a program with more rights than its user starts no `ringway`";
    assert!(errors(&opened).contains(expected), "{}", errors(&opened));
}

/// A stopped tcpdump misses frames, and says how many.
#[test]
fn missed_frames_are_counted() {
    const FRAMES: u32 = 60_000;
    let Some(lab) = up("pcap-drops") else { return };
    let (mut left, mut right) = (program(&lab, "left"), program(&lab, "right"));
    let capture = Capturing::tcpdump(&lab, &["-i", "ringway:left", "-B", "1024", "-U", "-w", "-"]);
    capture.signal(Signal::STOP);
    pass(&mut left, &mut right, 0..FRAMES);
    capture.signal(Signal::CONT);
    // The last ones come when there is room again.
    let mut sent = FRAMES;
    until("a frame is captured again", || {
        pass(&mut left, &mut right, sent..sent + 1);
        sent += 1;
        std::thread::sleep(Duration::from_millis(20));
        capture.frames().last() == Some(&frame(sent - 1).to_vec())
    });
    let written = capture.frames().len();
    let report = capture.interrupt();
    let dropped = u64::from(sent) - written as u64;
    assert!(dropped > 0);
    let expected = format!("{written} packets received by filter\n{dropped} packets dropped by kernel");
    assert!(report.contains(&expected), "{sent} sent: {report}");
}

#[test]
fn frames_are_sent_as_the_peer_of_a_ring_and_beside_one() {
    let Some(lab) = up("pcap-send") else { return };
    let mut right = program(&lab, "right");
    // Nobody has the port: the program becomes its peer, and gets the answer.
    let asking = Capturing::start(&lab, "calls", &["ringway:left", "ask", &hex(&frame(7))]);
    assert_eq!(receive(&mut right, LONG), Some(frame(7)));
    until("the port has a program", || lab.state("left") == "up");
    assert!(send(&mut right, 8));
    let output = asking.output.clone();
    let (success, said) = asking.end();
    assert!(success, "{said}");
    let expected = format!("ready\nsent 1\n{}\n", hex(&frame(8)[..40]));
    until("its output", || output.lock().unwrap().len() >= expected.len());
    assert_eq!(String::from_utf8_lossy(&output.lock().unwrap()), expected);
    // A program that does not send first.
    until("the port is free", || lab.state("left") == "waiting");
    let mut waiting = command(&lab, "calls", &["ringway:left", "select", "1"]);
    let waiting = Capturing::of(waiting.env("RINGWAY_PCAP_PEER", "1"));
    until("the program captures", || waiting.text() == "ready\n");
    until("the port has a program", || lab.state("left") == "up");
    assert!(send(&mut right, 11));
    until("the frame is received", || waiting.text().lines().count() == 2);
    assert_eq!(waiting.text(), format!("ready\n{}\n", hex(&frame(11)[..40])));
    drop(waiting);
    until("the port is free", || lab.state("left") == "waiting");
    // More frames than the ring has slots, all of which leave before it closes. The other port may drop some.
    let taken = || {
        let stats = lab.json(&["stats"]);
        let ports = stats["ports"].as_array().unwrap();
        ports.iter().find(|port| port["name"] == "left").unwrap()["total"]["tx_frames"].as_u64().unwrap()
    };
    let before = taken();
    let sending = Capturing::start(&lab, "calls", &["ringway:left", "send", &hex(&frame(9)), "2000"]);
    let (success, said) = sending.end();
    assert!(success, "{said}");
    until("the port has taken every frame", || taken() == before + 2000);
    while next(&mut right, Duration::from_millis(100)).is_some() {}
    // Another program has the port.
    until("the port is free", || lab.state("left") == "waiting");
    let _left = program(&lab, "left");
    let sent = run(&lab, "calls", &["ringway:left", "send", &hex(&frame(10)), "2"]);
    assert!(sent.status.success(), "{}", errors(&sent));
    assert_eq!([next(&mut right, LONG), next(&mut right, LONG)], [Some(10), Some(10)]);
    let mut second = command(&lab, "calls", &["ringway:left", "select", "1"]);
    let second = second.env("RINGWAY_PCAP_PEER", "1").output().unwrap();
    assert!(errors(&second).contains("this is no ring without a program"), "{}", errors(&second));
    let short = run(&lab, "calls", &["ringway:left", "send", "0102", "1"]);
    assert!(errors(&short).contains("a frame has from 14 to 65535 bytes, this one 2"), "{}", errors(&short));
}

#[test]
fn calls_of_the_library() {
    let Some(lab) = up("pcap-calls") else { return };
    let (mut left, mut right) = (program(&lab, "left"), program(&lab, "right"));
    let select = Capturing::calls(&lab, &["ringway:right", "select", "300"]);
    let nano = Capturing::calls(&lab, &["ringway:right", "nano", "300"]);
    pass(&mut left, &mut right, 0..300);
    until("every frame is received", || select.text().lines().count() == 301);
    let numbers: Vec<String> = (0..300).map(|number| hex(&frame(number)[..40])).collect();
    assert_eq!(select.text().lines().skip(1).collect::<Vec<_>>(), numbers);
    until("every header is printed", || nano.text().lines().count() == 301);
    let text = nano.text();
    let (mut before, mut are_fine) = (String::new(), false);
    for line in text.lines().skip(1) {
        let (time, lengths) = line.split_once(' ').unwrap();
        assert!(*time >= *before && lengths == "60 40", "{line} after {before}");
        are_fine |= !time.ends_with("000");
        before = time.to_string();
    }
    assert!(are_fine, "no time has nanoseconds: {text}");
    let broken = run(&lab, "calls", &["ringway:right", "break"]);
    assert_eq!(String::from_utf8_lossy(&broken.stdout), "ready\n-2\n");
    let late = run(&lab, "calls", &["ringway:right", "timeout"]);
    let text = String::from_utf8_lossy(&late.stdout).into_owned();
    let waited = text.strip_prefix("ready\n0 ").unwrap_or_else(|| panic!("{text}{}", errors(&late)));
    assert!((200..5000).contains(&waited.trim_end().parse::<u32>().unwrap()), "{text}");
}

/// A program of docs/pcap.md: a command that succeeds if it is installed, its words, and a part of what it prints.
type Listed = (&'static str, &'static [&'static str], &'static str);

/// With the library; they wait for frames.
const BY_THE_LIBRARY: [Listed; 3] = [
    ("command -v ngrep", &["ngrep", "-l", "-d", "ringway:left", "GET", "tcp port 8000"], "GET /"),
    ("command -v p0f", &["p0f", "-i", "ringway:left"], ".-[ 10.0.0.2/"),
    (
        "python3 -c 'import scapy'",
        &[
            "python3",
            "-c",
            "from scapy.all import conf, sniff\nconf.use_pcap = True\n\
             print(sniff(iface='ringway:lab:left', count=1)[0].summary())",
        ],
        "Ether / ",
    ),
];

/// On an interface of the kernel, whose frames go to a port.
const BY_EXEC: [Listed; 3] = [
    (
        "arping --help 2>&1 | grep Habets",
        &["arping", "-w", "20", "-C", "1", "-i", "eth0", "10.0.0.1"],
        ": index=0",
    ),
    ("command -v nmap", &["nmap", "-n", "-sS", "-p", "8000", "10.0.0.1"], "8000/tcp open"),
    ("command -v tcpreplay", &["tcpreplay", "-i", "eth0", "one.pcap"], "Actual: 1 packets (60 bytes) sent"),
];

fn is_installed((seen, words, _): &Listed) -> bool {
    let is = Command::new("sh").args(["-c", *seen]).output().unwrap().status.success();
    if !is {
        eprintln!("not run: {}: `{seen}` fails", words[0]);
    }
    is
}

#[test]
fn the_programs_of_the_page_run() {
    let programs = |all: &[Listed]| all.iter().copied().filter(is_installed).collect::<Vec<_>>();
    let (by_the_library, by_exec) = (programs(&BY_THE_LIBRARY), programs(&BY_EXEC));
    if by_the_library.len() + by_exec.len() == 0 || !may_create_namespaces() {
        return;
    }
    let Some(lab) = up("pcap-programs") else { return };
    let header = Header::ethernet();
    let record = [&header.to_bytes()[..], &header.record_header(0, 60, 60), &frame(1)].concat();
    std::fs::write(lab.folder.join("one.pcap"), record).unwrap();
    let exec = |port: &str, address: &str, words: &[&str]| {
        let network = ["exec", "--stack", "kernel", "--port", port, "--address", address, "--"];
        let mut command = lab.command(&[&network[..], words].concat());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut server = exec("left", "10.0.0.1/24", &["python3", "-m", "http.server", "8000"]);
    let mut server = Running(server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let get = ["python3", "-c", "import urllib.request as u; u.urlopen('http://10.0.0.1:8000/')"];
    let asks = || exec("right", "10.0.0.2/24", &get).output().unwrap().status.success();
    until("the server answers", asks);
    for (_, words, expected) in by_the_library {
        let capturing = Capturing::start(&lab, words[0], &words[1..]);
        until(words[0], || asks() && String::from_utf8_lossy(&capturing.bytes()).contains(expected));
    }
    for (_, words, expected) in by_exec {
        let output = exec("right", "10.0.0.2/24", words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains(expected), "{}: {text}{}", words[0], errors(&output));
    }
    kill_process(Pid::from_child(&server.0), Signal::TERM).unwrap();
    server.0.wait().unwrap();
}
