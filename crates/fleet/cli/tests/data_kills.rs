//! Numbered frames between programs and guests whose data process is killed, or moved to another program, at random
//! instants. Nobody connects again: programs and front-ends here can't.
#![allow(clippy::unwrap_used)]

use crate::lab::frames::{patched, program};
use crate::lab::{Lab, until, until_or_say};
use ringway_host::{EventFd, map_region, memfd, receive_with, send_with, wait_readable};
use ringway_mem::{Hint, Memory};
use ringway_ring_client::{Ring, Wait};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{
    Frontend, MemoryRegion, Packet, Request, SharedRegion, Transport, Vring, VringAddr,
};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub const SIZE: u64 = 4 << 20;
pub const USER: u64 = 0x7f00_0000_0000;
pub const RING: u16 = 256;
pub const HEADER: usize = 12;
pub const FRAME: usize = 60;
/// Frames that a program sends each millisecond, and the most that may be on their way.
const EACH: u64 = 10;
const WINDOW: u64 = 128;
/// After so long without a frame, those on their way count as lost.
const LOSS_TIMEOUT: Duration = Duration::from_millis(50);
/// Frames that one burst has at most.
const BURST: u64 = 64;

pub struct Link(UnixStream);

impl Transport for Link {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        send_with(self.0.as_fd(), &packet.bytes, &fds).map(drop).map_err(io::Error::other)
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        receive_with(self.0.as_fd(), bytes, 8).map_err(io::Error::other)
    }
}

/// Addresses of the rings.
pub const RINGS: [u64; 2] = [0, 0x1_0000];

/// Describes a guest's memory and rings on the only connection that it has.
pub fn describe(
    socket: UnixStream,
    packed: bool,
    file: &OwnedFd,
    kicks: [&EventFd; 2],
    calls: &EventFd,
) -> Frontend<Link> {
    let format = if packed { virtio::RING_PACKED } else { 0 };
    let features = virtio::VERSION_1 | virtio::EVENT_IDX | format;
    let mut front = Frontend::negotiate(Link(socket), features, protocol::REPLY_ACK).unwrap();
    let region = MemoryRegion { guest: 0, size: SIZE, user: USER, offset: 0 };
    front.set_memory(vec![SharedRegion { region, fd: file.try_clone().unwrap() }]).unwrap();
    let copy = |fd: &EventFd| Some(fd.as_fd().try_clone_to_owned().unwrap());
    for (index, (at, kick)) in (0..).zip(RINGS.map(|at| USER + at).into_iter().zip(kicks)) {
        let (available, used) = (at + 0x4000, at + 0x8000);
        let addresses = VringAddr { index, flags: 0, descriptors: at, available, used, log: 0 };
        let base = if packed { 0x8000 } else { 0 };
        front.start(Vring { size: RING, addresses, base, kick: copy(kick), call: copy(calls) }).unwrap();
    }
    front
}

/// A guest that sends back what it gets, until told to stop; then it asks the back-end something on its only
/// connection.
pub fn reflect(socket: UnixStream, packed: bool, stop: &AtomicBool) {
    reflect_unless(socket, packed, stop, &AtomicBool::new(false));
}

/// As [`reflect`], of a guest that stands still while `stands`, as if its monitor was stopped.
pub fn reflect_unless(socket: UnixStream, packed: bool, stop: &AtomicBool, stands: &AtomicBool) {
    let file = memfd("guest", SIZE as usize).unwrap();
    let memory = Memory::new(vec![map_region(&file, 0, SIZE, 0, USER).unwrap()]).unwrap();
    let (kicks, calls) = ([(); 2].map(|()| EventFd::new().unwrap()), EventFd::new().unwrap());
    let mut front = describe(socket, packed, &file, kicks.each_ref(), &calls);
    let layout = Layout { packed, size: RING, event_idx: true, indirect: false };
    let lengths = layout.lengths().unwrap();
    let span = |at: u64, len: u32| memory.span_mut(at, len, &mut Hint::default()).unwrap();
    let mut drivers = RINGS.map(|at| {
        let areas = Areas {
            descriptors: span(at, lengths.descriptors),
            driver: span(at + 0x4000, lengths.driver),
            device: span(at + 0x8000, lengths.device),
        };
        Driver::new(&layout, areas).unwrap()
    });
    let buffers = [0x10_0000, 0x20_0000];
    let mut places: [HashMap<u16, u64>; 2] = Default::default();
    let mut free: [Vec<u64>; 2] = buffers.map(|at| (0..u64::from(RING)).map(|n| at + n * 2048).collect());
    while !stop.load(SeqCst) {
        if stands.load(SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        calls.clear();
        while let Some((id, _)) = drivers[1].take_used().unwrap() {
            free[1].push(places[1].remove(&id).unwrap());
        }
        while !free[1].is_empty()
            && let Some((id, len)) = drivers[0].take_used().unwrap()
        {
            let place = places[0].remove(&id).unwrap();
            free[0].push(place);
            // A buffer that came back without a frame.
            if len as usize != HEADER + FRAME {
                assert_eq!(len, 0);
                continue;
            }
            let mut frame = [0; HEADER + FRAME];
            span(place, len).as_span().read(&mut frame);
            frame[..HEADER].fill(0);
            let to = free[1].pop().unwrap();
            span(to, len).write(&frame);
            let id = drivers[1].add(&[Buffer { address: to, len, write: false }], None).unwrap();
            places[1].insert(id, to);
        }
        while let Some(place) = free[0].pop() {
            let buffer = Buffer { address: place, len: 2048, write: true };
            let Some(id) = drivers[0].add(&[buffer], None) else {
                free[0].push(place);
                break;
            };
            places[0].insert(id, place);
        }
        for (driver, kick) in drivers.iter_mut().zip(&kicks) {
            driver.publish();
            if driver.wants_kick() {
                kick.signal();
            }
            driver.set_flag(true);
        }
        if drivers.iter().all(|driver| !driver.pending()) {
            wait_readable(&[calls.as_fd()], Some(1_000_000_000)).unwrap();
        }
    }
    assert_ne!(front.number(Request::GetFeatures).unwrap(), 0, "the session is the first one");
}

/// What a program that sends and receives numbered frames counts.
#[derive(Default)]
struct Count {
    sent: AtomicU64,
    received: AtomicU64,
    /// Frames that came twice, or behind a later one.
    wrong: AtomicU64,
    /// The number behind the latest frame.
    next: AtomicU64,
    /// The longest time without a frame since it was last asked for, in microseconds.
    silence: AtomicU64,
}

/// Sends ten frames a millisecond, and receives those of a program with the other count, or its own ones again.
fn exchange(mut ring: Ring, own: &Count, other: &Count, stop: &AtomicBool) {
    let mut frame = [2; FRAME];
    let mut out = [0; FRAME];
    let (mut sent, mut next, mut base) = (0u64, 0u64, 0u64);
    let (mut last, mut moved) = (Instant::now(), Instant::now());
    let begin = Instant::now();
    let mut sending = true;
    loop {
        let due = begin.elapsed().as_micros() as u64 * EACH / 1000;
        if moved.elapsed() > LOSS_TIMEOUT {
            (base, moved) = (sent, Instant::now());
        }
        base = base.max(other.next.load(SeqCst));
        let mut left = due.saturating_sub(sent).min(EACH * 4);
        while sending && left > 0 && sent < base + WINDOW {
            frame[14..22].copy_from_slice(&sent.to_be_bytes());
            if !ring.tx.push(&frame).unwrap() {
                break;
            }
            (sent, left) = (sent + 1, left - 1);
        }
        own.sent.store(sent, SeqCst);
        ring.sync().unwrap();
        let mut any = false;
        while ring.rx.pop(&mut out).unwrap().is_some() {
            let number = u64::from_be_bytes(out[14..22].try_into().unwrap());
            own.received.fetch_add(1, SeqCst);
            if number < next {
                own.wrong.fetch_add(1, SeqCst);
            }
            (next, any) = (next.max(number + 1), true);
        }
        if any {
            own.silence.fetch_max(last.elapsed().as_micros() as u64, SeqCst);
            (last, moved) = (Instant::now(), Instant::now());
        }
        own.next.store(next, SeqCst);
        if stop.load(SeqCst) {
            sending = false;
            // What is on its way arrives.
            if last.elapsed() > Duration::from_secs(1) {
                return;
            }
        }
        ring.wait(Wait::RX, Some(Duration::from_millis(1))).unwrap();
    }
}

/// What the checks find: frames that came twice, and those that are missing.
fn found(own: &Count, other: &Count) -> (u64, u64) {
    let missing = other.sent.load(SeqCst).saturating_sub(own.received.load(SeqCst));
    (own.wrong.load(SeqCst), missing)
}

/// Frames that the fabric dropped, by its own counters.
fn dropped(lab: &Lab) -> u64 {
    let stats = lab.json(&["stats"]);
    let ports = stats["ports"].as_array().unwrap().iter();
    let sum = |port: &serde_json::Value, key: &str| {
        port["total"][key].as_object().map_or(0, |reasons| reasons.values().filter_map(|n| n.as_u64()).sum())
    };
    ports.map(|port| sum(port, "tx_drops") + sum(port, "rx_drops")).sum::<u64>()
}

/// What is killed, or that all processes are moved to another program and back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Victim {
    Data,
    Control,
    Both,
    Upgrade,
}

impl Victim {
    /// The processes, by their names in `ringway ps`.
    fn processes(self) -> &'static [&'static str] {
        match self {
            Victim::Data => &["data_pid"],
            Victim::Control => &["pid"],
            // Otherwise `control` would start another `data`.
            Victim::Both | Victim::Upgrade => &["pid", "data_pid"],
        }
    }
}

/// Ends the processes, by this signal if they are killed. `round` counts from 0.
fn end(lab: &Lab, victim: Victim, round: u64, before: &serde_json::Value) {
    if victim == Victim::Upgrade {
        let programs = [lab.folder.join("other"), env!("CARGO_BIN_EXE_ringway").into()];
        let program = programs[(round % 2) as usize].to_str().unwrap();
        lab.ok(&["upgrade", "--binary", program]);
        return;
    }
    let signal = if round.is_multiple_of(2) { Signal::KILL } else { Signal::ABORT };
    for name in victim.processes() {
        let process = Pid::from_raw(before[name].as_u64().unwrap().try_into().unwrap()).unwrap();
        kill_process(process, signal).unwrap();
    }
}

/// Kills it, and waits until frames arrive everywhere again. Returns the longest silence.
fn kill(lab: &Lab, victim: Victim, round: u64, counts: &[Count]) -> u64 {
    let before = lab.json(&["ps"])["fabric"].clone();
    let pid = |fabric: &serde_json::Value, name: &str| fabric[name].as_u64().unwrap();
    counts.iter().for_each(|count| count.silence.store(0, SeqCst));
    end(lab, victim, round, &before);
    until("another process is there", || {
        let now = lab.json(&["ps"])["fabric"].clone();
        victim.processes().iter().all(|name| ![0, pid(&before, name)].contains(&pid(&now, name)))
    });
    let now = lab.json(&["ps"])["fabric"].clone();
    if victim == Victim::Control {
        assert_eq!(now["data_pid"], before["data_pid"], "{}", lab.log());
    }
    let received: Vec<u64> = counts.iter().map(|count| count.received.load(SeqCst)).collect();
    let goes_on = |(count, before): (&Count, &u64)| count.received.load(SeqCst) > before + 200;
    let missing = || {
        let now: Vec<u64> = counts.iter().map(|count| count.received.load(SeqCst)).collect();
        let stats = lab.json(&["stats"]);
        format!("round {round}: frames arrive everywhere: {received:?}, now {now:?}, {stats}, {}", lab.log())
    };
    until_or_say(missing, || counts.iter().zip(&received).all(goes_on));
    counts.iter().map(|count| count.silence.load(SeqCst)).max().unwrap()
}

/// Ends threads when it is dropped: a test that fails would wait for them otherwise.
struct StopAll<'s>(&'s [AtomicBool; 2]);

impl Drop for StopAll<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|stop| stop.store(true, SeqCst));
    }
}

/// Kills it `kills` times at random instants of `seed`; returns the silences in microseconds, in ascending order.
fn run(victim: Victim, kills: u64, mut seed: u64) -> Vec<u64> {
    // Each run measures silences, and keeps both processors busy. A test that failed has released the machine.
    static MACHINE: Mutex<()> = Mutex::new(());
    let _alone = MACHINE.lock().unwrap_or_else(PoisonError::into_inner);
    let guest = |name: &str, near: &str| {
        format!(
            "[port.{near}]\nkind = \"ring\"\nsocket = \"{near}.sock\"\n[port.{name}]\nkind = \"vhost-user\"\n\
             socket = \"{name}.sock\"\n[patch.{name}]\nports = [\"{near}\", \"{name}\"]\n"
        )
    };
    let file = patched(&[["left", "right"]]) + &guest("split", "near") + &guest("packed", "far");
    let name = if victim == Victim::Upgrade { "upgrades".into() } else { victim.processes().join("-") };
    let lab = Lab::new(&format!("kills-{name}"), &file);
    std::fs::copy(env!("CARGO_BIN_EXE_ringway"), lab.folder.join("other")).unwrap();
    lab.ok(&["up", "lab.toml", "--detach"]);
    let counts: [Count; 4] = Default::default();
    let stops = [(); 2].map(|()| AtomicBool::new(false));
    let mut silences = Vec::new();
    std::thread::scope(|scope| {
        let _stops = StopAll(&stops);
        for (name, packed) in [("split", false), ("packed", true)] {
            let socket = UnixStream::connect(lab.socket(&format!("{name}.sock"))).unwrap();
            let stop = &stops[1];
            scope.spawn(move || reflect(socket, packed, stop));
            until("the guest is up", || lab.state(name) == "up");
        }
        let programs = ["left", "right", "near", "far"].map(|name| program(&lab, name));
        let threads: Vec<_> = (programs.into_iter().zip([(0, 1), (1, 0), (2, 2), (3, 3)]))
            .map(|(ring, (own, other))| {
                let (own, other, stop) = (&counts[own], &counts[other], &stops[0]);
                scope.spawn(move || exchange(ring, own, other, stop))
            })
            .collect();
        for round in 0..kills {
            // A process that ran for a second is replaced at once.
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            std::thread::sleep(Duration::from_millis(1050) + Duration::from_micros((seed >> 40) % 100_000));
            silences.push(kill(&lab, victim, round, &counts));
        }
        stops[0].store(true, SeqCst);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        stops[1].store(true, SeqCst);
    });
    let found = [(0, 1), (1, 0), (2, 2), (3, 3)].map(|(own, other)| found(&counts[own], &counts[other]));
    let (dropped, sent) = (dropped(&lab), counts.each_ref().map(|count| count.sent.load(SeqCst)));
    silences.sort_unstable();
    println!("sent {sent:?}, twice and missing {found:?}, dropped {dropped}, silences in us {silences:?}");
    assert_eq!(found.map(|(wrong, _)| wrong), [0; 4], "frames came twice\n{}", lab.log());
    let missing: u64 = found.iter().map(|(_, missing)| missing).sum();
    // An upgrade loses nothing that is not counted.
    let bursts = if victim == Victim::Upgrade { 0 } else { kills * 6 };
    assert!(missing <= dropped + bursts * BURST, "{missing} are missing, {dropped} dropped\n{}", lab.log());
    let restarts = if victim == Victim::Control { 0 } else { kills };
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"].as_u64(), Some(restarts));
    silences
}

/// What a run with a seed found, for `make bench-faults`, beside what others found: how many frames came twice, and the
/// silences in microseconds.
pub fn report(path: &str, key: &str, (seed, twice): (u64, u64), silences: &[u64]) {
    let at = |share: usize| silences[(silences.len() * share / 100).min(silences.len() - 1)] as f64 / 1000.0;
    let (p50, p90, max) = (at(50), at(90), at(100));
    let before = std::fs::read_to_string(path).ok().and_then(|text| serde_json::from_str(&text).ok());
    let mut all: serde_json::Map<String, serde_json::Value> = before.unwrap_or_default();
    let found = serde_json::json!({
        "kills": silences.len(), "seed": seed, "frames_twice": twice,
        "silence_ms": { "p50": p50, "p90": p90, "max": max },
    });
    all.insert(key.into(), found);
    std::fs::write(path, format!("{:#}\n", serde_json::Value::from(all))).unwrap();
    println!("{key}: silence of {p50} ms (p50), {p90} ms (p90), {max} ms (max)");
}

/// `FAULTS` is the number of kills if it is set, `FAULTS_REPORT` the file for the figures.
fn survives(victim: Victim, key: &str, usually: u64) {
    let kills = std::env::var("FAULTS").map_or(usually, |kills| kills.parse().unwrap());
    let silences = run(victim, kills, 1);
    if let Ok(path) = std::env::var("FAULTS_REPORT") {
        report(&path, key, (1, 0), &silences);
    }
}

#[test]
fn programs_and_guests_go_on_when_the_data_process_is_killed_and_no_frame_comes_twice() {
    survives(Victim::Data, "data.killed", 8);
}

#[test]
fn frames_flow_while_the_control_process_is_killed_and_another_one_goes_on() {
    survives(Victim::Control, "control.killed", 4);
}

#[test]
fn programs_and_guests_go_on_when_both_processes_are_killed_and_no_frame_comes_twice() {
    survives(Victim::Both, "both.killed", 4);
}

#[test]
fn frames_are_neither_lost_nor_doubled_while_a_fabric_moves_to_another_program_and_back() {
    // There and back, as often as `make bench-faults` says there.
    survives(Victim::Upgrade, "upgrade", 6);
}
