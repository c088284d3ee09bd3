//! Snapshots of functions in guests, and clones that go on from them.
#![cfg(target_arch = "x86_64")]
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use crate::common::lab::{Lab, MEMORY, begin, nobody, read, run};
use crate::common::pipes::{SMALL, exchange, joined, pipe};
use ringway_host::memfd;
use ringway_vmm::{
    FunctionEnd, FunctionError, FunctionEvent, FunctionVm, PreparedVm, Snapshot, SnapshotError, VmError,
};
use std::io::{BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;
use std::time::Instant;

fn up(lab: &Lab) {
    assert!(matches!(lab.event(), FunctionEvent::Up(_)));
}

fn stop(lab: Lab) {
    lab.connect().get_mut().write_all(b"WRITE stop\n").unwrap();
    assert_eq!(lab.end(), FunctionEnd::Stopped);
}

fn clone_of(snapshot: &Snapshot, file: &OwnedFd, ports: usize) -> FunctionVm {
    FunctionVm::clone_of(snapshot, file.try_clone().unwrap(), ports).unwrap()
}

#[test]
fn clones_have_the_state_of_their_original_and_change_only_their_own() {
    let text = "InfiniteSource(LIMIT 7) -> c :: Counter -> Discard;";
    let Some(original) = begin(text, &[], nobody) else { return };
    up(&original);
    let mut program = original.connect();
    while read(&mut program, "c.count") != "7" {}
    let (snapshot, file) = original.snapshot().unwrap();
    assert!(snapshot.bytes > 4096 && snapshot.bytes < 8 << 20, "{}", snapshot.bytes);
    // The original keeps running, with its connections.
    program.get_mut().write_all(b"WRITE c.reset\n").unwrap();
    assert_eq!(crate::common::lab::line(&mut program), "200 Write handler 'c.reset' OK\r\n");
    assert_eq!(read(&mut program, "c.count"), "0");
    let clones: Vec<Lab> = (0..3).map(|_| run(clone_of(&snapshot, &file, 0), nobody)).collect();
    for clone in &clones {
        up(clone);
        let mut program = clone.connect();
        assert_eq!(read(&mut program, "c.count"), "7");
        program.get_mut().write_all(b"WRITE c.reset\n").unwrap();
        assert_eq!(crate::common::lab::line(&mut program), "200 Write handler 'c.reset' OK\r\n");
        assert_eq!(read(&mut program, "c.count"), "0");
        // Its original's connections are gone, and their numbers are free.
        let mut others: Vec<_> = (0..8).map(|_| clone.connect()).collect();
        others.iter_mut().for_each(|other| assert_eq!(read(other, "c.count"), "0"));
    }
    clones.into_iter().for_each(stop);
    drop(program);
    stop(original);
}

#[test]
fn time_goes_on_in_a_clone() {
    let text =
        "t :: TimedSource(0.001) -> c :: Counter -> Discard; s :: Script(TYPE PASSIVE, return $(now));";
    let Some(original) = begin(text, &[], nobody) else { return };
    up(&original);
    let mut program = original.connect();
    while read(&mut program, "c.count") == "0" {}
    let seconds = |program: &mut _| read(program, "s.run").trim().parse::<f64>().unwrap();
    let before = seconds(&mut program);
    let (snapshot, file) = original.snapshot().unwrap();
    let clone = run(clone_of(&snapshot, &file, 0), nobody);
    up(&clone);
    let mut other = clone.connect();
    let (count, now) = (read(&mut other, "c.count"), seconds(&mut other));
    assert!(now >= before && now < before + 60.0, "{before} {now}");
    while read(&mut other, "c.count") == count {}
    stop(clone);
    stop(original);
}

#[test]
fn a_clone_attaches_to_ports_of_its_own_and_its_original_keeps_its_rings() {
    if crate::common::machine().is_none() {
        return;
    }
    let (path, listener, mut first, coming) = pipe("one", SMALL);
    let start = ringway_vmm::FunctionStart {
        text: "FromPort(a) -> c :: Counter -> ToPort(a);".into(),
        ports: vec!["a".into()],
        burst: 64,
        ..Default::default()
    };
    let vm = FunctionVm::new(MEMORY, start).unwrap();
    let original = run(vm, move |_| UnixStream::connect(&path));
    let mut ring = joined(&listener, &mut first, coming);
    exchange(&mut ring);
    let (snapshot, file) = original.snapshot().unwrap();
    exchange(&mut ring);
    let (path, listener, mut second, coming) = pipe("two", SMALL);
    let begun = Instant::now();
    let clone = run(clone_of(&snapshot, &file, 1), move |_| UnixStream::connect(&path));
    let mut other = joined(&listener, &mut second, coming);
    exchange(&mut other);
    eprintln!("from the snapshot to the clone's first frame: {:?}", begun.elapsed());
    exchange(&mut ring);
    up(&original);
    up(&clone);
    assert_eq!(read(&mut clone.connect(), "c.count"), "2");
    assert_eq!(read(&mut original.connect(), "c.count"), "3");
    stop(clone);
    stop(original);
}

/// Writes a handler.
fn write(program: &mut BufReader<UnixStream>, line: &str, handler: &str) {
    program.get_mut().write_all(format!("WRITE {line}\n").as_bytes()).unwrap();
    assert_eq!(crate::common::lab::line(program), format!("200 Write handler '{handler}' OK\r\n"));
}

/// Frames that a machine makes of random numbers, and a number from its generator, once its pipe is joined.
fn draws(lab: &Lab, ring: &mut ringway_ring_client::Ring) -> (Vec<u8>, String) {
    let mut program = lab.connect();
    let number = read(&mut program, "s.run");
    write(&mut program, "r.active true", "r.active");
    let (mut frame, end) = ([0; 2048], Instant::now() + crate::common::BOUND);
    let len = loop {
        assert!(Instant::now() < end, "no frame comes");
        if let Some(received) = ring.rx.pop(&mut frame).unwrap() {
            break received.len;
        }
    };
    (frame[..len].to_vec(), number)
}

/// What the original, two clones of one snapshot and a machine that moved draw after the snapshot.
fn drawn(name: &str, seed: &str) -> Option<[(Vec<u8>, String); 4]> {
    crate::common::machine()?;
    let text = format!(
        "{seed} FromPort(a) -> Discard; r :: RandomSource(60, LIMIT 1, ACTIVE false) -> ToPort(a); \
         s :: Script(TYPE PASSIVE, return $(random 0 1000000000));"
    );
    let (ports, burst) = (vec!["a".into()], 64);
    let start = ringway_vmm::FunctionStart { text, ports, burst, ..Default::default() };
    let all = ["one", "two", "three", "four"].map(|end| pipe(&format!("{name}-{end}"), SMALL));
    let mut all = all.into_iter().map(|(path, listener, pipe, coming)| {
        move |vm: FunctionVm| {
            let lab = run(vm, move |_| UnixStream::connect(&path));
            let mut pipe = pipe;
            let ring = joined(&listener, &mut pipe, coming);
            (lab, ring, pipe)
        }
    });
    let (original, mut ring, _pipe) = all.next().unwrap()(FunctionVm::new(MEMORY, start).unwrap());
    up(&original);
    let (snapshot, file) = original.snapshot().unwrap();
    // The memory of the one that moves is its own.
    let own = memfd("own", MEMORY).unwrap();
    let mut bytes = vec![0; MEMORY];
    std::fs::File::from(file.try_clone().unwrap()).read_exact_at(&mut bytes, 0).unwrap();
    std::fs::File::from(own.try_clone().unwrap()).write_all_at(&bytes, 0).unwrap();
    let moved = FunctionVm::moved(PreparedVm::new().unwrap(), &snapshot, own, 1).unwrap();
    let others = [clone_of(&snapshot, &file, 1), clone_of(&snapshot, &file, 1), moved];
    let first = draws(&original, &mut ring);
    stop(original);
    let others = others.map(|vm| {
        let (lab, mut ring, _pipe) = all.next().unwrap()(vm);
        up(&lab);
        let drawn = draws(&lab, &mut ring);
        stop(lab);
        drawn
    });
    let [second, third, fourth] = others;
    Some([first, second, third, fourth])
}

#[test]
fn clones_draw_other_random_numbers_than_their_original_and_each_other_and_one_that_moved_goes_on() {
    let Some([original, one, two, moved]) = drawn("draws", "") else { return };
    assert_eq!(original, moved, "only one of them lives");
    for (one, other) in [(&original, &one), (&original, &two), (&one, &two)] {
        assert!(one.0.len() == 60 && one.0 != other.0, "{one:?} {other:?}");
        assert_ne!(one.1, other.1);
    }
}

#[test]
fn clones_keep_a_seed_of_the_configuration() {
    let Some([original, one, two, moved]) = drawn("seeded", "RandomSeed(7);") else { return };
    assert!([one, two, moved].iter().all(|other| *other == original));
}

#[test]
fn a_clone_of_a_snapshot_of_hours_ago_has_the_time_of_now_and_timers_that_are_not_late() {
    let text =
        "t :: TimedSource(0.001) -> c :: Counter -> Discard; s :: Script(TYPE PASSIVE, return $(now));";
    let Some(original) = begin(text, &[], nobody) else { return };
    up(&original);
    let mut program = original.connect();
    while read(&mut program, "c.count") == "0" {}
    let seconds = |program: &mut _| read(program, "s.run").trim().parse::<f64>().unwrap();
    let before = seconds(&mut program);
    let (snapshot, file) = original.snapshot().unwrap();
    // The snapshot was taken three hours earlier.
    let mut text = serde_json::to_value(&snapshot).unwrap();
    let wall = text["wall"]["secs"].as_u64().unwrap();
    text["wall"]["secs"] = (wall - 3 * 3600).into();
    let snapshot: Snapshot = serde_json::from_value(text).unwrap();
    let clone = run(clone_of(&snapshot, &file, 0), nobody);
    up(&clone);
    let mut other = clone.connect();
    let count = read(&mut other, "c.count").parse::<u64>().unwrap();
    // A clone that ran for the three hours would have counted ten million.
    assert!(count < 1_000_000, "{count}");
    let now = seconds(&mut other);
    assert!(now >= before + 3.0 * 3600.0 - 1.0, "{before} {now}");
    while read(&mut other, "c.count").parse::<u64>().unwrap() == count {}
    stop(clone);
    stop(original);
}

#[test]
fn a_frozen_guest_stands_still_until_it_is_thawed_and_one_that_moved_has_its_state() {
    let Some(original) =
        begin("Idle -> Discard; t :: TimedSource(0.001) -> c :: Counter -> Discard;", &[], nobody)
    else {
        return;
    };
    up(&original);
    let mut program = original.connect();
    let number = |program: &mut _| read(program, "c.count").parse::<u64>().unwrap();
    while number(&mut program) == 0 {}
    let file = memfd("memory", MEMORY).unwrap();
    let (sender, answer) = channel();
    original.snapshot_handle.freeze(file.try_clone().unwrap(), move |result| drop(sender.send(result)));
    let snapshot = answer.recv_timeout(crate::common::BOUND).unwrap().unwrap();
    // Nobody answers.
    let mut other = UnixStream::connect(&original.socket).unwrap();
    other.set_read_timeout(Some(std::time::Duration::from_millis(100))).unwrap();
    assert!(other.read(&mut [0; 8]).is_err());
    let vm = FunctionVm::moved(PreparedVm::new().unwrap(), &snapshot, file, 0).unwrap();
    let moved = run(vm, nobody);
    up(&moved);
    let mut far = moved.connect();
    let before = number(&mut far);
    assert!(before > 0);
    while number(&mut far) == before {}
    // Its memory is its own, and so it can be snapshotted.
    let (again, file) = moved.snapshot().unwrap();
    let clone = run(clone_of(&again, &file, 0), nobody);
    up(&clone);
    assert!(number(&mut clone.connect()) > before);
    original.snapshot_handle.thaw();
    let before = number(&mut program);
    while number(&mut program) == before {}
    drop((program, far, other));
    [clone, moved, original].into_iter().for_each(stop);
}

#[test]
fn what_is_no_snapshot_is_refused() {
    let Some(original) = begin("Idle -> c :: Counter -> Discard;", &[], nobody) else { return };
    up(&original);
    let (snapshot, file) = original.snapshot().unwrap();
    let wrong = FunctionVm::clone_of(&snapshot, file.try_clone().unwrap(), 1).unwrap_err();
    assert!(matches!(wrong, FunctionError::Ports(0, 1)), "{wrong}");
    let short = FunctionVm::clone_of(&snapshot, memfd("short", 4096).unwrap(), 0);
    // A file without its pages is no memory.
    assert!(matches!(short, Err(FunctionError::Vm(VmError::Host(_)))), "{short:?}");
    let clone = run(clone_of(&snapshot, &file, 0), nobody);
    up(&clone);
    assert!(matches!(clone.snapshot(), Err(SnapshotError::Failed(why)) if why.contains("clone")));
    stop(clone);
    let snapshot_handle = original.snapshot_handle.clone();
    stop(original);
    let (sender, answer) = channel();
    snapshot_handle.snapshot(file, move |result| drop(sender.send(result)));
    assert_eq!(answer.recv_timeout(crate::common::BOUND).unwrap(), Err(SnapshotError::Ended));
}

#[test]
fn a_snapshot_survives_its_text() {
    let Some(original) = begin("Idle -> Discard;", &[], nobody) else { return };
    up(&original);
    let (snapshot, _) = original.snapshot().unwrap();
    let text = serde_json::to_string(&snapshot).unwrap();
    assert!(text.len() < 16 << 10, "{}", text.len());
    assert_eq!(serde_json::from_str::<Snapshot>(&text).unwrap(), snapshot);
    stop(original);
}
