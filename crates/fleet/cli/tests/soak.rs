//! Faults and changes at random, from a seed, while numbered frames pass between ports of every kind that programs can
//! reach. After each of them frames are conserved: each that was sent was received, or is counted as dropped, and none
//! came twice. At the end everything is reachable within a bound, and no process has more memory or descriptors.
//!
//! `RINGWAY_SOAK` is for how many seconds it runs (`make soak`), `RINGWAY_SEED` the seed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod ports;

use crate::lab::frames::program;
use crate::lab::{Lab, Running, until};
use ports::{Flow, Guest, Recording, Survives, file, flows};
use ringway_ring_client::Ring;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const FRAME: usize = 60;
/// Time between two frames of a program.
const PACE: Duration = Duration::from_millis(1);
/// Frames are on their way no longer than this, if nothing happens.
const QUIET: Duration = Duration::from_millis(300);
/// A process that ran for so long is replaced at once.
const STABLE: Duration = Duration::from_millis(1050);
/// After the last fault all programs reach each other within this time.
const HEAL: Duration = Duration::from_secs(10);
/// Frames that the end of `data` may lose on a path: a burst of each of two workers there and back, and what a
/// socket or a link had.
const BURSTS: u64 = 4 * 64;
/// Descriptors and KiB by which a process may grow.
const MORE_DESCRIPTORS: u64 = 4;
const MORE_MEMORY: u64 = 16 << 10;

/// A program on a ring port.
struct Program {
    port: &'static str,
    ring: Option<Ring>,
    /// In place of a program: the file that its port writes.
    recording: Option<Recording>,
    /// Whether nothing is sent to it.
    is_silent: bool,
    address: u8,
    to: u8,
    /// The number of the next frame, and of the next one that is expected.
    number: u64,
    next: u64,
    /// Since the last check.
    sent: u64,
    received: u64,
    twice: u64,
}

impl Program {
    fn new(port: &'static str, address: u8, to: u8) -> Program {
        let (ring, recording, is_silent) = (None, None, false);
        let (number, next, sent, received, twice) = (0, 0, 0, 0, 0);
        Program { port, ring, recording, is_silent, address, to, number, next, sent, received, twice }
    }

    fn send(&mut self) {
        let Some(ring) = &mut self.ring else { return };
        let mut frame = [0; FRAME];
        frame[..6].copy_from_slice(&[2, 0, 0, 0, 9, self.to]);
        frame[6..14].copy_from_slice(&[2, 0, 0, 0, 9, self.address, 0x88, 0xb5]);
        frame[14..]
            .chunks_mut(8)
            .for_each(|part| part.copy_from_slice(&self.number.to_be_bytes()[..part.len()]));
        if ring.tx.push(&frame).unwrap() {
            (self.number, self.sent) = (self.number + 1, self.sent + 1);
        }
        ring.sync().unwrap();
    }

    /// Takes what has come; whether anything has.
    fn receive(&mut self) -> bool {
        if let Some(recording) = &mut self.recording {
            let numbers = recording.read();
            numbers.iter().for_each(|number| self.take(*number));
            return !numbers.is_empty();
        }
        let Some(mut ring) = self.ring.take() else { return false };
        let (mut out, before) = ([0; FRAME], self.received);
        while ring.rx.pop(&mut out).unwrap().is_some() {
            // Others are flooded.
            if out[..6] == [2, 0, 0, 0, 9, self.address] {
                let number = u64::from_be_bytes(out[14..22].try_into().unwrap());
                let whole = out[14..].chunks(8).all(|part| *part == number.to_be_bytes()[..part.len()]);
                assert!(whole, "{}: frame {number} is corrupt: {out:x?}", self.port);
                self.take(number);
            }
        }
        ring.sync().unwrap();
        self.ring = Some(ring);
        self.received > before
    }

    fn take(&mut self, number: u64) {
        self.received += 1;
        self.twice += u64::from(number < self.next);
        self.next = self.next.max(number + 1);
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    KillData,
    KillControl,
    KillBoth,
    Upgrade,
    /// Adds and removes ports, and changes a link's delay.
    Apply,
    /// The program of a path leaves, and another one comes.
    ResetProgram(usize),
    /// As a guest that reboots.
    ResetGuest(usize),
    /// A function is stopped and started.
    RestartFunction(usize),
    Nothing,
}

impl Action {
    /// Most frames of a path that it may lose without a count; `None`: any number.
    fn loss(self, path: usize, survives: Survives) -> Option<u64> {
        match self {
            Action::KillControl | Action::KillBoth if survives == Survives::Data => None,
            Action::KillData | Action::KillControl | Action::KillBoth | Action::Upgrade
                if survives == Survives::None =>
            {
                None
            }
            Action::KillData | Action::KillBoth => Some(BURSTS),
            Action::ResetProgram(reset) | Action::ResetGuest(reset) | Action::RestartFunction(reset)
                if reset == path =>
            {
                None
            }
            _ => Some(0),
        }
    }
}

/// A fabric with programs, and what happens to it.
struct World {
    /// They end before the fabric does.
    guests: Vec<Guest>,
    lab: Lab,
    flows: Vec<Flow>,
    random: Random,
    upgrades: u64,
    /// That of the paths' interfaces.
    _namespace: Option<Running>,
}

impl World {
    /// So many paths, or one of each kind.
    fn new(name: &str, paths: Option<usize>, seed: u64) -> World {
        let (flows, _namespace) = flows(paths);
        let lab = Lab::new(name, &file(&flows, 0, 1));
        std::fs::copy(env!("CARGO_BIN_EXE_ringway"), lab.folder.join("other")).unwrap();
        lab.ok(&["up", "lab.toml", "--detach"]);
        let (guests, random, upgrades) = (Vec::new(), Random(seed | 1), 0);
        let mut world = World { lab, flows, guests, random, upgrades, _namespace };
        for path in 0..world.flows.len() {
            if let Some(packed) = world.flows[path].guest {
                world.guests.push(Guest::new(&world.lab, path, packed));
            }
            world.connect(path);
        }
        world
    }

    fn connect(&mut self, path: usize) {
        for end in self.flows[path].ends.iter_mut().filter(|end| end.recording.is_none()) {
            end.ring = None;
            end.ring = Some(program(&self.lab, end.port));
        }
    }

    /// Lets programs send, or only receive; whether any frame came.
    fn tick(&mut self, sends: bool) -> bool {
        let begin = Instant::now();
        let mut any = false;
        for end in self.flows.iter_mut().flat_map(|flow| &mut flow.ends) {
            any |= end.receive();
            if sends {
                end.send();
            }
        }
        std::thread::sleep(PACE.saturating_sub(begin.elapsed()));
        any
    }

    fn pass(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.tick(true);
        }
    }

    /// Frames pass while something is done.
    fn pass_during(&mut self, what: impl FnOnce(&Lab) + Send) {
        // Dropped by this test only.
        let lab = std::mem::ManuallyDrop::new(Lab { folder: self.lab.folder.clone() });
        std::thread::scope(|scope| {
            let lab: &Lab = &lab;
            let done = scope.spawn(move || what(lab));
            while !done.is_finished() {
                self.tick(true);
            }
            done.join().unwrap();
        });
    }

    /// Waits until what was sent has arrived or is lost.
    fn drain(&mut self) {
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            if self.tick(false) {
                last = Instant::now();
            }
        }
    }

    /// Frames that were dropped on each path so far: by its ports, and within its function.
    fn dropped(&self) -> Vec<[u64; 2]> {
        let stats = self.lab.json(&["stats"]);
        let sum = |reasons: &Value| -> u64 {
            reasons.as_object().map_or(0, |reasons| reasons.values().filter_map(Value::as_u64).sum())
        };
        let of = |name: &str| -> u64 {
            let row = stats["ports"].as_array().unwrap().iter().find(|row| row["name"] == name);
            let total = &row.unwrap_or_else(|| panic!("{name}: {stats}"))["total"];
            sum(&total["tx_drops"]) + sum(&total["rx_drops"])
        };
        let within = |path: usize| -> u64 {
            let words = ["function", "read", &format!("mirror{path}"), "to.drops"];
            self.lab.ok(&words).trim().parse().unwrap()
        };
        let all = |(path, flow): (usize, &Flow)| {
            let of_ports = flow.ports.iter().map(|port| of(port)).sum();
            [of_ports, if flow.has_function { within(path) } else { 0 }]
        };
        self.flows.iter().enumerate().map(all).collect()
    }

    /// Checks all paths after an action, and begins to count anew.
    fn check(&mut self, action: Action, before: &[[u64; 2]]) {
        let after = self.dropped();
        for (path, flow) in self.flows.iter_mut().enumerate() {
            let (sent, received, twice) = flow.counts();
            let what = format!("{action:?}, path {path} of {}: {sent} sent", flow.ends[0].port);
            assert_eq!(twice, 0, "{what}, {twice} came twice\n{}", self.lab.log());
            let Some(loss) = action.loss(path, flow.survives) else { continue };
            let ([ports, function], [ports_before, function_before]) = (after[path], before[path]);
            // A function that starts again counts from 0.
            let dropped = ports - ports_before + function.saturating_sub(function_before);
            let missing = sent.checked_sub(received);
            let missing = missing.unwrap_or_else(|| panic!("{what}, {received} received"));
            let seen = format!("{what}, {missing} missing, {dropped} dropped\n{}", self.lab.log());
            assert!(missing <= dropped + loss, "{seen}");
            assert!(!flow.is_exact || loss > 0 || missing == dropped, "{seen}");
        }
    }

    fn act(&mut self, action: Action) {
        let pick = self.random.below(1 << 16);
        match action {
            Action::KillData => self.pass_during(|lab| kill(lab, &["data_pid"])),
            Action::KillControl => self.pass_during(|lab| kill(lab, &["pid"])),
            Action::KillBoth => self.pass_during(|lab| kill(lab, &["pid", "data_pid"])),
            Action::Upgrade => {
                self.upgrades += 1;
                let other = self.lab.folder.join("other");
                let own = env!("CARGO_BIN_EXE_ringway").into();
                let to = if self.upgrades % 2 == 1 { other } else { own };
                self.pass_during(|lab| _ = lab.ok(&["upgrade", "--binary", to.to_str().unwrap()]));
            }
            Action::Apply => {
                self.lab.write(&file(&self.flows, pick as u8, 1 + pick % 3));
                self.pass_during(|lab| _ = lab.ok(&["apply", "lab.toml"]));
            }
            Action::ResetProgram(path) => self.connect(path),
            Action::ResetGuest(path) => {
                let lab = &self.lab;
                let guest = self.guests.iter_mut().find(|guest| guest.path == path);
                guest.unwrap().restart(lab);
            }
            Action::RestartFunction(path) => self.pass_during(|lab| {
                let name = format!("mirror{path}");
                lab.ok(&["function", "stop", &name]);
                lab.ok(&["function", "start", &name]);
            }),
            Action::Nothing => {}
        }
        let more = self.random.below(200);
        self.pass(STABLE + Duration::from_millis(more));
    }

    /// An action under frames, and the check.
    fn round(&mut self, action: Action) {
        let before = self.dropped();
        self.flows.iter_mut().for_each(Flow::restart);
        self.act(action);
        self.drain();
        self.check(action, &before);
    }

    fn any_action(&mut self) -> Action {
        let paths = self.flows.len() as u64;
        let guests = self.guests.len() as u64;
        match self.random.below(15) {
            0..=2 => Action::KillData,
            3..=4 => Action::KillControl,
            5 => Action::KillBoth,
            6..=7 => Action::Upgrade,
            8..=10 => Action::Apply,
            11..=12 => Action::ResetProgram(self.random.below(paths) as usize),
            13 => {
                let with = |path: &usize| self.flows[*path].has_function;
                let all: Vec<usize> = (0..self.flows.len()).filter(with).collect();
                Action::RestartFunction(all[self.random.below(all.len() as u64) as usize])
            }
            _ => Action::ResetGuest(self.guests[self.random.below(guests) as usize].path),
        }
    }

    /// Every program receives what another one sends, within the bound.
    fn heals(&mut self) {
        self.drain();
        self.flows.iter_mut().for_each(Flow::restart);
        let end = Instant::now() + HEAL;
        loop {
            let is_silent = |end: &&Program| !end.is_silent && end.received <= 20;
            let silent = self.flows.iter().flat_map(|flow| &flow.ends).filter(is_silent);
            let silent: Vec<&str> = silent.map(|end| end.port).collect();
            if silent.is_empty() {
                break;
            }
            assert!(Instant::now() < end, "nothing reaches {silent:?}\n{}", self.lab.log());
            self.pass(Duration::from_millis(50));
        }
        self.drain();
    }

    /// Descriptors and KiB of memory of each process.
    fn usage(&self) -> Vec<[u64; 2]> {
        let fabric = self.lab.json(&["ps"])["fabric"].clone();
        let [control, data] = ["pid", "data_pid"].map(|name| fabric[name].as_u64().unwrap());
        let row = |process: u64, name: &str| -> u64 {
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
            let row = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            row.split_whitespace().next().unwrap().parse().unwrap()
        };
        let of = |process: u64| {
            let descriptors = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count() as u64;
            [descriptors, row(process, "RssAnon:")]
        };
        [row(control, "PPid:"), control, data].map(of).to_vec()
    }

    /// No process has more than before.
    fn is_flat(&self, before: &[[u64; 2]]) {
        for ((name, now), then) in PROCESSES.iter().zip(self.usage()).zip(before) {
            assert!(
                now[0] <= then[0] + MORE_DESCRIPTORS,
                "{name}: {} descriptors, {} before",
                now[0],
                then[0]
            );
            assert!(now[1] <= then[1] + MORE_MEMORY, "{name}: {} KiB, {} before", now[1], then[1]);
        }
    }
}

/// The processes of a fabric.
const PROCESSES: [&str; 3] = ["keeper", "control", "data"];

/// Kills processes, and waits until others are there.
fn kill(lab: &Lab, names: &[&str]) {
    let processes = |lab: &Lab| {
        let fabric = lab.json(&["ps"])["fabric"].clone();
        names.iter().map(|name| fabric[*name].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let before = processes(lab);
    for process in &before {
        kill_process(Pid::from_raw(i32::try_from(*process).unwrap()).unwrap(), Signal::KILL).unwrap();
    }
    until("others are there", || {
        processes(lab).iter().zip(&before).all(|(now, then)| now != then && *now != 0)
    });
}

/// A number of the environment.
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn frames_are_conserved_and_everything_goes_on_whatever_happens() {
    let (seconds, seed) = (number("RINGWAY_SOAK").unwrap_or(18), number("RINGWAY_SEED").unwrap_or(1));
    // 64 ports, or one path of each kind.
    let paths = (seconds > 60).then_some(28);
    let mut world = World::new("soak", paths, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    world.heals();
    world.round(Action::Nothing);
    // The first of each kind allocates.
    for action in [Action::KillBoth, Action::Upgrade, Action::Apply] {
        world.round(action);
    }
    let before = world.usage();
    let (end, mut rounds) = (Instant::now() + Duration::from_secs(seconds), 0);
    while Instant::now() < end {
        let action = world.any_action();
        println!("round {rounds}: {action:?}");
        world.round(action);
        rounds += 1;
    }
    world.lab.write(&file(&world.flows, 0, 1));
    world.lab.ok(&["apply", "lab.toml"]);
    world.heals();
    world.round(Action::Nothing);
    world.is_flat(&before);
}

/// What a check says.
fn said(check: impl FnOnce()) -> String {
    let failed = catch_unwind(AssertUnwindSafe(check)).expect_err("the check finds it");
    failed.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// Planted bugs, at the programs' ends of the rings: each check finds its own.
#[test]
fn each_check_of_the_soak_finds_a_planted_bug() {
    let mut world = World::new("soak-plants", Some(7), 3);
    world.heals();
    world.round(Action::Nothing);
    let path = world.flows.iter().position(|flow| flow.is_exact).unwrap();
    let passes = |world: &mut World, action: Action, bug: &dyn Fn(&mut Flow)| {
        let before = world.dropped();
        world.flows.iter_mut().for_each(Flow::restart);
        world.pass(Duration::from_millis(50));
        bug(&mut world.flows[path]);
        world.drain();
        said(|| world.check(action, &before))
    };
    let found = passes(&mut world, Action::Nothing, &|flow| {
        // A frame that is published twice.
        flow.ends[0].number -= 1;
        flow.ends[0].sent -= 1;
        flow.ends[0].send();
    });
    assert!(found.contains("1 came twice"), "{found}");
    let found = passes(&mut world, Action::Nothing, &|flow| {
        // A frame that vanishes.
        flow.ends[0].number += 1;
        flow.ends[0].sent += 1;
    });
    assert!(found.contains("1 missing, 0 dropped"), "{found}");
    let found = passes(&mut world, Action::KillData, &|flow| flow.ends[1].sent += BURSTS + 1);
    assert!(found.contains(&format!("{} missing", BURSTS + 1)), "{found}");
    world.drain();
    let before = world.usage();
    let api = world.lab.folder.join("run/lab/api.sock");
    let leak: Vec<_> = (0..20).map(|_| std::os::unix::net::UnixStream::connect(&api).unwrap()).collect();
    until("they are accepted", || world.usage()[1][0] >= before[1][0] + 20);
    let found = said(|| world.is_flat(&before));
    assert!(found.starts_with("control: ") && found.contains("descriptors"), "{found}");
    drop(leak);
    // A program that nothing reaches any more.
    let ring = world.flows[path].ends[1].ring.take();
    let port = world.flows[path].ends[1].port;
    let found = said(|| world.heals());
    assert!(found.contains("nothing reaches") && found.contains(port), "{found}");
    drop(ring);
}
