//! `ringway guest migrate`, with real guests of QEMU: docs/migration.md, and a failure at each stage.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::http::{answer, ask};
use crate::lab::{Lab, until};
use ringway_linux_guests::image;
use ringway_ring_client::{Ring, Wait};
use ringway_wire::checksum::checksum;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// Addresses of the guest and of the program that talks to it.
const GUEST: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 9];
const GUEST_IP: [u8; 4] = [10, 77, 0, 1];
const PEER_IP: [u8; 4] = [10, 77, 0, 9];

/// The fenced blocks of the page in `language`.
pub fn blocks(language: &str) -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/migration.md");
    let text = std::fs::read_to_string(page).unwrap();
    let fence = format!("```{language}\n");
    let after = text.split(&fence).skip(1);
    after.map(|block| block.split_once("```").unwrap().0.to_string()).collect()
}

/// The page's two fabrics, with a guest on the first, and a program on its switch.
struct Fabrics {
    lab: Lab,
    peer: Option<Ring>,
    /// The number of the program's last request.
    number: u32,
}

impl Fabrics {
    /// `None` if this host has no QEMU.
    fn new(name: &str) -> Option<Fabrics> {
        if image::program("qemu-system-x86_64").is_none() {
            eprintln!("left out: there is no QEMU");
            return None;
        }
        let lab = Lab::new(name, "");
        let ports = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        let ports = ports.map(|socket| socket.local_addr().unwrap().port().to_string());
        for (block, file) in blocks("toml").iter().zip(["lab.toml", "other.toml"]) {
            // Other tests may run the same page.
            let text = block.replace("4811", &ports[0]).replace("4812", &ports[1]);
            std::fs::write(lab.folder.join(file), text).unwrap();
        }
        Some(Fabrics { lab, peer: None, number: 0 })
    }

    /// Brings them up, and waits until the guest has booted.
    fn up(&mut self) {
        for file in ["lab.toml", "other.toml"] {
            self.lab.ok(&["up", file, "--detach"]);
        }
        self.lab.ok(&["--fabric", "lab", "guest", "wait"]);
        self.connect();
    }

    fn connect(&mut self) {
        // The port has one program at a time.
        self.peer = None;
        self.peer = Some(Ring::connect(&self.lab.socket("peer.sock")).unwrap());
    }

    fn socket(&self, fabric: &str) -> String {
        self.lab.folder.join("run").join(fabric).join("api.sock").display().to_string()
    }

    /// The guest as a fabric shows it.
    fn guest(&self, fabric: &str) -> Value {
        self.lab.json(&["--fabric", fabric, "guest", "list"])[0].clone()
    }

    fn state(&self, fabric: &str) -> String {
        self.guest(fabric)["state"].as_str().unwrap().into()
    }

    /// A process of a fabric.
    fn process(&self, fabric: &str, key: &str) -> Pid {
        let ps = self.lab.json(&["--fabric", fabric, "ps"]);
        Pid::from_raw(ps["fabric"][key].as_i64().unwrap() as i32).unwrap()
    }

    fn kill(&self, fabric: &str) {
        let pid = self.guest(fabric)["pid"].as_i64().unwrap();
        kill_process(Pid::from_raw(pid as i32).unwrap(), Signal::KILL).unwrap();
    }

    /// The guest runs here and nowhere else, and answers.
    fn runs_only(&mut self, here: &str) {
        let elsewhere = if here == "lab" { "other" } else { "lab" };
        until("it runs here", || self.state(here) == "running");
        until("it has ended elsewhere", || self.state(elsewhere) == "stopped");
        assert_eq!(self.lab.ok(&["--fabric", here, "guest", "exec", "vm", "cat /tmp/mark"]).trim(), "marked");
        self.answers();
    }

    /// The guest answers the program, whose request it gets on either switch.
    fn answers(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        while !self.asks(Duration::from_millis(300)) {
            assert!(Instant::now() < end, "the guest does not answer:\n{}", self.seen());
        }
    }

    /// Frames that found no room in the guest's rings at either place, or those of the program.
    fn full(&self) -> u64 {
        let of = |fabric| {
            let stats = self.lab.json(&["--fabric", fabric, "stats"]);
            let ports = stats["ports"].as_array().unwrap().iter();
            let full = |port: &Value| {
                let drops = ["tx_drops", "rx_drops"].map(|drops| port[drops]["full"].as_u64().unwrap_or(0));
                drops.iter().sum::<u64>()
            };
            ports.map(full).sum::<u64>()
        };
        of("lab") + of("other")
    }

    /// What passed ports and the guest, for a message.
    fn seen(&self) -> String {
        let mut all = String::new();
        for fabric in ["lab", "other"] {
            for words in ["stats", "switch table main", "ps", "guest exec vm ifconfig eth0"] {
                let words: Vec<&str> = ["--fabric", fabric].into_iter().chain(words.split(' ')).collect();
                all += &String::from_utf8_lossy(&self.lab.run(&words).stdout);
            }
            let log = self.lab.folder.join(format!("run/{fabric}.log"));
            all += &std::fs::read_to_string(log).unwrap_or_default();
        }
        all
    }

    fn send(&mut self, frame: &[u8]) {
        let ring = self.peer.as_mut().unwrap();
        assert!(ring.tx.push(frame).unwrap());
        ring.sync().unwrap();
    }

    /// Sends an ICMP echo request (RFC 792) to the guest, with the next number as its data. All are one flow to the
    /// guest's queueing discipline, which changes the order of others.
    fn request(&mut self) -> u32 {
        self.number += 1;
        let mut packet = [0; 46];
        packet[..10].copy_from_slice(&[0x45, 0, 0, 32, 0, 0, 0, 0, 64, 1]);
        packet[12..16].copy_from_slice(&PEER_IP);
        packet[16..20].copy_from_slice(&GUEST_IP);
        let sum = checksum(&packet[..20]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        packet[20..28].copy_from_slice(&[8, 0, 0, 0, 0, 9, 0, 0]);
        packet[28..32].copy_from_slice(&self.number.to_be_bytes());
        let sum = checksum(&packet[20..32]);
        packet[22..24].copy_from_slice(&sum.to_be_bytes());
        self.send(&[&GUEST[..], &PEER, &[8, 0], &packet].concat());
        self.number
    }

    /// Answers the guest's ARP request (RFC 826) for the program's address.
    fn answer_arp(&mut self, request: &[u8]) {
        let mut frame = [0; 60];
        frame[..6].copy_from_slice(&request[6..12]);
        frame[6..12].copy_from_slice(&PEER);
        frame[12..22].copy_from_slice(&[8, 6, 0, 1, 8, 0, 6, 4, 0, 2]);
        frame[22..28].copy_from_slice(&PEER);
        frame[28..32].copy_from_slice(&PEER_IP);
        frame[32..42].copy_from_slice(&request[22..32]);
        self.send(&frame);
    }

    /// The number of the next reply that comes until `end`.
    fn reply(&mut self, end: Instant) -> Option<u32> {
        let mut got = [0; 2048];
        loop {
            while let Some(received) = self.peer.as_mut().unwrap().rx.pop(&mut got).unwrap() {
                self.peer.as_mut().unwrap().rx.sync().unwrap();
                if received.len >= 42
                    && got[12..14] == [8, 6]
                    && got[20..22] == [0, 1]
                    && got[38..42] == PEER_IP
                {
                    self.answer_arp(&got);
                }
                // An echo reply with the identifier of the requests.
                let is_reply = got[12..14] == [8, 0] && got[23] == 1 && got[34] == 0 && got[38..40] == [0, 9];
                if received.len >= 46 && is_reply {
                    return Some(u32::from_be_bytes([got[42], got[43], got[44], got[45]]));
                }
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            self.peer.as_mut().unwrap().wait(Wait::RX, Some(left)).unwrap();
        }
    }

    /// Sends a request; whether an answer with its number comes within a while.
    fn asks(&mut self, most: Duration) -> bool {
        let (number, end) = (self.request(), Instant::now() + most);
        while let Some(reply) = self.reply(end) {
            if reply == number {
                return true;
            }
        }
        false
    }

    /// Migrates the guest by a command that goes on.
    fn begin(&self, from: &str, to: &str, more: &[&str]) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(["--fabric", from, "guest", "migrate", "vm", "--to", to]).args(more);
        command.env("RINGWAY_RUN", self.lab.folder.join("run")).current_dir(&self.lab.folder);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Begins to migrate it from `lab` slowly, and waits until memory is copied.
    fn copies(&self) -> Child {
        let child = self.begin("lab", &self.socket("other"), &["--bandwidth", "1"]);
        until("memory is copied", || self.stage() == "copying");
        child
    }

    fn stage(&self) -> String {
        let (status, body) = answer(ask(&self.lab, "GET", "/v1/guests/vm/migration", &Value::Null));
        let view: Value = serde_json::from_str(&body).unwrap();
        if status == 200 { view["stage"].as_str().unwrap().into() } else { String::new() }
    }

    fn mark(&self) {
        self.lab.ok(&["--fabric", "lab", "guest", "exec", "vm", "echo marked >/tmp/mark"]);
    }
}

/// The exit code of a command, and what it said.
fn ended(child: Child) -> (i32, String) {
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8_lossy(&said).into_owned())
}

/// What a destination does with a request.
enum Answered {
    /// As it is.
    Truly,
    /// It is not heard, and the connection ends.
    Unheard,
    /// It is done, and the answer is lost.
    Lost,
    /// As before, and then something is done.
    LostAfter(Box<dyn Fn()>),
}

/// A destination that answers a request differently, once; others are passed to `to`. Returns its socket.
fn destination(
    fabrics: &Fabrics,
    name: &str,
    rule: impl Fn(&str) -> Answered + Send + Sync + 'static,
) -> String {
    let (path, to) =
        (fabrics.lab.folder.join(format!("{name}.sock")), PathBuf::from(fabrics.socket("other")));
    let listener = UnixListener::bind(&path).unwrap();
    let rule = Arc::new(rule);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, rule, to) = (client.unwrap(), rule.clone(), to.clone());
            std::thread::spawn(move || {
                let mut request = vec![0; 1 << 16];
                let read = client.read(&mut request).unwrap();
                let line = String::from_utf8_lossy(&request[..read]).lines().next().unwrap().to_string();
                let answered = rule(&line);
                if matches!(answered, Answered::Unheard) {
                    return;
                }
                // Nobody may be there for a moment.
                let Ok(mut server) = UnixStream::connect(to) else { return };
                let mut back = Vec::new();
                let asked = server.write_all(&request[..read]).and_then(|()| server.read_to_end(&mut back));
                match answered {
                    // Who asked may be gone.
                    Answered::Truly if asked.is_ok() => _ = client.write_all(&back),
                    Answered::LostAfter(then) => then(),
                    _ => {}
                }
            });
        }
    });
    path.display().to_string()
}

#[test]
fn a_guest_moves_as_the_page_says_and_is_refused_where_it_differs() {
    let Some(mut fabrics) = Fabrics::new("move-page") else { return };
    let commands = blocks("sh").concat();
    let run = fabrics.lab.folder.join("run").display().to_string();
    let mut moves = 0;
    for line in commands.lines() {
        let line = line.replace("/run/ringway", &run);
        let words: Vec<&str> = line.strip_prefix("ringway ").unwrap().split(' ').collect();
        if line.contains("migrate") && moves == 0 {
            fabrics.connect();
            fabrics.mark();
            refused(&fabrics);
        }
        let said = fabrics.lab.ok(&words);
        if line.contains("migrate") {
            moves += 1;
            assert!(said.contains("guest vm runs in the fabric of") && said.contains(" ms\n"), "{said}");
            fabrics.runs_only(if moves == 1 { "other" } else { "lab" });
        }
    }
    assert_eq!(moves, 2);
    // The source says why, too.
    let (_, why) = fabrics.lab.fails(&["--fabric", "other", "guest", "migrate", "vm", "--to", "x.sock"]);
    assert!(why.contains("no control socket") && why.contains("ssh://HOST/FABRIC"), "{why}");
    let to = fabrics.socket("other");
    let (_, why) = fabrics.lab.fails(&["--fabric", "other", "guest", "migrate", "vm", "--to", &to]);
    assert!(why.contains("guest vm does not run"), "{why}");
}

/// A guest that differs there is refused, and nothing changes.
fn refused(fabrics: &Fabrics) {
    let (file, to) = (fabrics.lab.folder.join("other.toml"), fabrics.socket("other"));
    let right = std::fs::read_to_string(&file).unwrap();
    let wrong =
        right.replace("128MB", "132MB").replace("mac = ", "mtu = 1400\nwithout = [\"packed\"]\nmac = ");
    std::fs::write(&file, wrong).unwrap();
    fabrics.lab.ok(&["--fabric", "other", "apply", "other.toml"]);
    let (code, why) = fabrics.lab.fails(&["--fabric", "lab", "guest", "migrate", "vm", "--to", &to]);
    for part in [
        "memory: 128 MiB at the source, 132 MiB at the destination",
        "MTU of port vm: none at the source, 1400 at the destination",
        "features of port vm: the destination does not offer packed",
        "guest vm runs on as before",
    ] {
        assert!(code == 1 && why.contains(part), "{part}: {why}");
    }
    assert_eq!((fabrics.state("lab"), fabrics.state("other")), ("running".into(), "stopped".into()));
    std::fs::write(&file, right).unwrap();
    fabrics.lab.ok(&["--fabric", "other", "apply", "other.toml"]);
}

/// Sends so many requests a second while a guest moves, each of which is answered once and in order; returns how long
/// no reply came at most, and how long QEMU says that the guest stood still, in milliseconds.
fn move_under_requests(fabrics: &mut Fabrics, (from, to): (&str, &str), rate: u32) -> (f64, u64) {
    const PACE: Duration = Duration::from_millis(2);
    let each = (rate / 500).max(1);
    let (first, full) = (fabrics.number + 1, fabrics.full());
    let mut replies: Vec<u32> = Vec::new();
    let (mut last, mut silence) = (Instant::now(), Duration::ZERO);
    let mut child = fabrics.begin(from, &fabrics.socket(to), &[]);
    let mut until_end = None;
    // A while longer than the migration, in which the switches learn where the guest is.
    while until_end.is_none_or(|end| Instant::now() < end) {
        let next = Instant::now() + PACE;
        (0..each).for_each(|_| _ = fabrics.request());
        while let Some(reply) = fabrics.reply(next) {
            silence = silence.max(last.elapsed());
            last = Instant::now();
            replies.push(reply);
        }
        if until_end.is_none() && child.try_wait().unwrap().is_some() {
            until_end = Some(Instant::now() + Duration::from_secs(1));
        }
    }
    let (code, said) = ended(child);
    assert_eq!(code, 0, "{said}");
    let sent = fabrics.number - first + 1;
    let end = Instant::now() + Duration::from_secs(10);
    while replies.len() < sent as usize {
        let Some(reply) = fabrics.reply(end) else { break };
        replies.push(reply);
    }
    // A reply that came twice would come by now.
    replies.extend(fabrics.reply(Instant::now() + Duration::from_millis(200)));
    let late: Vec<&[u32]> = replies.windows(2).filter(|pair| pair[0] > pair[1]).collect();
    assert!(late.is_empty(), "{late:?} are answered in another order\n{}", fabrics.seen());
    let twice: Vec<u32> = replies.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    assert!(twice.is_empty(), "{twice:?} are answered twice\n{}", fabrics.seen());
    let missing: Vec<u32> =
        (first..=fabrics.number).filter(|number| replies.binary_search(number).is_err()).collect();
    // A guest that does not keep up has no room in its ring.
    let full = fabrics.full() - full;
    assert!(missing.len() as u64 <= full, "{missing:?} of {sent} are not answered\n{}", fabrics.seen());
    println!("{sent} requests were answered in order but for {}, {full} found no room", missing.len());
    let downtime = said.split(" ms\n").next().unwrap().rsplit(' ').next().unwrap();
    (silence.as_secs_f64() * 1000.0, downtime.parse().unwrap())
}

/// `MIGRATIONS` is their number and `REQUESTS` that of requests in a second if they are set, `FAULTS_REPORT` the file
/// for the figures.
#[test]
fn requests_to_a_guest_that_moves_are_answered() {
    let Some(mut fabrics) = Fabrics::new("move-requests") else { return };
    fabrics.up();
    fabrics.answers();
    let moves = std::env::var("MIGRATIONS").map_or(2, |moves| moves.parse().unwrap());
    let rate = std::env::var("REQUESTS").map_or(500, |rate| rate.parse().unwrap());
    let mut beyond = Vec::new();
    for round in 0..moves {
        let (from, to) = if round % 2 == 0 { ("lab", "other") } else { ("other", "lab") };
        let (silence, downtime) = move_under_requests(&mut fabrics, (from, to), rate);
        println!("{from} to {to}: silence of {silence:.1} ms, downtime of {downtime} ms");
        beyond.push(((silence * 1000.0) as u64).saturating_sub(downtime * 1000));
    }
    if let Ok(path) = std::env::var("FAULTS_REPORT") {
        beyond.sort_unstable();
        crate::data_kills::report(&path, "migrate", (1, 0), &beyond);
    }
}

#[test]
fn a_guest_is_moved_while_things_fail() {
    let Some(mut fabrics) = Fabrics::new("move-fails") else { return };
    fabrics.up();
    fabrics.mark();
    fabrics.runs_only("lab");
    // Preparing: the answer is lost.
    let to = destination(&fabrics, "prepare", |line| match line.starts_with("POST /v1/guest-arrivals ") {
        true => Answered::Lost,
        false => Answered::Truly,
    });
    let (code, said) = ended(fabrics.begin("lab", &to, &[]));
    assert!(code == 1 && said.contains("guest vm runs on as before"), "{said}");
    fabrics.runs_only("lab");
    // Copying: the other QEMU ends; it is cancelled.
    let child = fabrics.copies();
    assert_eq!(fabrics.state("other"), "arriving");
    let (_, why) = fabrics.lab.fails(&["--fabric", "lab", "guest", "stop", "vm"]);
    assert!(why.contains("is being migrated"), "{why}");
    fabrics.kill("other");
    let (code, said) = ended(child);
    assert!(code == 1 && said.contains("guest vm was not migrated"), "{said}");
    fabrics.runs_only("lab");
    let child = fabrics.copies();
    let said = fabrics.lab.ok(&["--fabric", "lab", "guest", "migrate", "vm", "--cancel"]);
    assert!(said.contains("cancelled: guest vm runs on here"), "{said}");
    assert_eq!(ended(child).0, 1);
    fabrics.runs_only("lab");
    // Before it is activated: the request is lost; the other QEMU ends.
    let to = destination(&fabrics, "before", |line| match line.contains("/activate ") {
        true => Answered::Unheard,
        false => Answered::Truly,
    });
    let (code, said) = ended(fabrics.begin("lab", &to, &[]));
    assert!(code == 1 && said.contains("guest vm was not migrated"), "{said}");
    fabrics.runs_only("lab");
    let run = fabrics.lab.folder.join("run");
    let to = destination(&fabrics, "loaded", move |line| {
        if line.contains("/activate ") {
            let mut list = Command::new(env!("CARGO_BIN_EXE_ringway"));
            list.args(["--fabric", "other", "guest", "list", "--json"]).env("RINGWAY_RUN", &run);
            let list: Value = serde_json::from_slice(&list.output().unwrap().stdout).unwrap();
            let pid = Pid::from_raw(list[0]["pid"].as_i64().unwrap() as i32).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
        }
        Answered::Truly
    });
    let (code, said) = ended(fabrics.begin("lab", &to, &[]));
    assert!(code == 1 && said.contains("guest vm was not migrated"), "{said}");
    fabrics.runs_only("lab");
    // After it was activated: the answer is lost.
    let to = destination(&fabrics, "after", |line| match line.contains("/activate ") {
        true => Answered::Lost,
        false => Answered::Truly,
    });
    let (code, said) = ended(fabrics.begin("lab", &to, &[]));
    assert!(code == 0, "{said}");
    fabrics.runs_only("other");
    let back = fabrics.socket("lab");
    fabrics.lab.ok(&["--fabric", "other", "guest", "migrate", "vm", "--to", &back]);
    fabrics.runs_only("lab");
    is_decided(&mut fabrics);
}

/// The other fabric does not answer any more, and another one comes up in its place: an operator decides.
fn is_decided(fabrics: &mut Fabrics) {
    let resolve = ["--fabric", "lab", "guest", "migrate", "vm", "--resolve", "source"];
    let (_, why) = fabrics.lab.fails(&resolve);
    assert!(why.contains("guest vm was not migrated"), "{why}");
    let (is_gone, was_asked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let gone = is_gone.clone();
    let to = destination(fabrics, "lost", move |line| {
        let is_activation = line.contains("/activate ");
        was_asked.fetch_or(is_activation, Ordering::AcqRel);
        match was_asked.load(Ordering::Acquire) && (is_activation || !gone.load(Ordering::Acquire)) {
            true => Answered::Unheard,
            false => Answered::Truly,
        }
    });
    let child = fabrics.begin("lab", &to, &[]);
    until("nobody knows where it runs", || fabrics.stage() == "asking");
    fabrics.lab.ok(&["--fabric", "other", "down"]);
    fabrics.lab.ok(&["up", "other.toml", "--detach"]);
    is_gone.store(true, Ordering::Release);
    until("another one answers", || fabrics.lab.log().contains("answers as fabric other "));
    assert_eq!(fabrics.stage(), "asking", "what it says does not count");
    let said = fabrics.lab.run(&resolve);
    let warned = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.status.success() && warned.contains("it runs twice"), "{warned}");
    assert_eq!(said.stdout, b"decided: guest vm runs on here\n");
    let (code, said) = ended(child);
    assert!(code == 1 && said.contains("an operator decided"), "{said}");
    assert!(fabrics.lab.ok(&["--fabric", "lab", "events"]).contains("guest-resolved"));
    assert!(fabrics.lab.ok(&["--fabric", "lab", "audit"]).contains("migration/resolve"));
    fabrics.runs_only("lab");
}

#[test]
fn a_guest_is_moved_while_processes_of_its_fabrics_are_killed() {
    let Some(mut fabrics) = Fabrics::new("move-kills") else { return };
    fabrics.up();
    fabrics.mark();
    // Both `data`, while memory is copied: the migration goes on, and the other port sends nothing before its time.
    let mut child = fabrics.copies();
    for fabric in ["lab", "other"] {
        kill_process(fabrics.process(fabric, "data_pid"), Signal::KILL).unwrap();
    }
    until("both are replaced", || {
        ["lab", "other"]
            .iter()
            .all(|fabric| fabrics.lab.json(&["--fabric", fabric, "ps"])["fabric"]["restarts"] == 1)
    });
    assert_eq!(child.try_wait().unwrap(), None, "it is copied still");
    assert_eq!(fabrics.stage(), "copying");
    fabrics.lab.ok(&["--fabric", "lab", "guest", "migrate", "vm", "--cancel"]);
    child.wait().unwrap();
    fabrics.connect();
    fabrics.runs_only("lab");
    // `control` of the source, then of the destination.
    for fabric in ["lab", "other"] {
        let mut child = fabrics.copies();
        kill_process(fabrics.process(fabric, "pid"), Signal::KILL).unwrap();
        child.wait().unwrap();
        fabrics.runs_only("lab");
    }
    let to = fabrics.socket("other");
    fabrics.lab.ok(&["--fabric", "lab", "guest", "migrate", "vm", "--to", &to]);
    fabrics.runs_only("other");
    // What has arrived goes on after the end of `control`.
    kill_process(fabrics.process("other", "pid"), Signal::KILL).unwrap();
    fabrics.runs_only("other");
}

/// When one process or both are killed.
#[derive(Clone, Copy)]
enum When {
    /// Before the destination is asked to activate the guest, which it is afterwards all the same.
    Asked,
    /// When it has.
    Activated,
}

#[test]
fn control_processes_are_killed_while_a_guest_is_activated() {
    let Some(mut fabrics) = Fabrics::new("move-decided") else { return };
    fabrics.up();
    fabrics.mark();
    fabrics.runs_only("lab");
    for (number, (killed, when)) in [
        (&["lab"][..], When::Asked),
        (&["lab"], When::Activated),
        (&["other"], When::Asked),
        (&["other"], When::Activated),
        (&["lab", "other"], When::Asked),
        (&["lab", "other"], When::Activated),
    ]
    .into_iter()
    .enumerate()
    {
        let pids: Vec<Pid> = killed.iter().map(|fabric| fabrics.process(fabric, "pid")).collect();
        let kill = move || pids.iter().for_each(|pid| kill_process(*pid, Signal::KILL).unwrap());
        let once = Once::new();
        let to = destination(&fabrics, &format!("killed{number}"), move |line| {
            let mut answered = Answered::Truly;
            if line.contains("/activate ") {
                once.call_once(|| match when {
                    When::Asked => kill(),
                    When::Activated => answered = Answered::LostAfter(Box::new(kill.clone())),
                });
            }
            answered
        });
        drop(fabrics.begin("lab", &to, &[]).wait());
        let mut places = (String::new(), String::new());
        until("it is known where it runs", || {
            let run = |fabric: &str| {
                let list = fabrics.lab.run(&["--fabric", fabric, "guest", "list", "--json"]);
                let list: Value = serde_json::from_slice(&list.stdout).unwrap_or_default();
                list[0]["state"].as_str().unwrap_or_default().to_string()
            };
            places = (run("lab"), run("other"));
            matches!((&*places.0, &*places.1), ("running", "stopped") | ("stopped", "running"))
                && !["activating", "asking"].contains(&&*fabrics.stage())
        });
        let here = if places.0 == "running" { "lab" } else { "other" };
        fabrics.runs_only(here);
        if here == "other" {
            let back = fabrics.socket("lab");
            fabrics.lab.ok(&["--fabric", "other", "guest", "migrate", "vm", "--to", &back]);
            fabrics.runs_only("lab");
        }
    }
}
