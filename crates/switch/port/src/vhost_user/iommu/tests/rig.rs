//! A guest behind a port with its rings started, and the turns of a worker.

use super::guest::{BOTH, GuestConfig, Monitor, Space, add, framed};
use crate::Queue;
use crate::vhost_user::Backend;
use crate::vhost_user::tests::session::port;
use ringway_frame::{Burst, CountersRef, Storage};
use ringway_mem::Reader;
use ringway_virtq::Driver;
use std::os::fd::AsFd;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// The parts of a one-guest test.
pub(super) struct Rig<'a> {
    pub space: &'a Space,
    pub rx: Driver<'a>,
    pub tx: Driver<'a>,
    pub monitor: Monitor<'a>,
    pub queue: &'a mut Queue,
    pub counters: CountersRef,
    pub reader: Reader,
}

/// Stops a thread even if the test that started it fails.
pub(super) struct StopOnDrop<'a>(pub &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `test` with a guest of `kind` on a new port.
pub(super) fn with(kind: GuestConfig, test: impl FnOnce(&mut Rig<'_>)) {
    let (mut backend, mut queues, counters) = port();
    on((&mut backend, &mut queues[0], &counters), kind, test);
}

/// Runs `test` with a guest of `kind` on this port.
pub(super) fn on(
    (backend, queue, counters): (&mut Backend, &mut Queue, &CountersRef),
    kind: GuestConfig,
    test: impl FnOnce(&mut Rig<'_>),
) {
    let space = Space::new(kind);
    let (rx, tx) = (space.driver(0), space.driver(1));
    let mut monitor = Monitor::new(backend, &space);
    monitor.start(0);
    monitor.start(1);
    let (counters, reader) = (counters.clone(), Reader::register().unwrap());
    test(&mut Rig { space: &space, rx, tx, monitor, queue, counters, reader });
}

/// Checks that the next guest on the port works, whatever the last one did.
pub(super) fn next_one_works(
    (backend, queue, counters): (&mut Backend, &mut Queue, &CountersRef),
    kind: GuestConfig,
    what: &str,
) {
    const DATA: u64 = 0x20_0000;
    backend.disconnect();
    on((backend, queue, counters), kind, |rig| {
        let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
        monitor.map(DATA, DATA, 0x2000, BOTH);
        space.span(DATA, 112).write(&framed(1, 100));
        add(rx, DATA + 0x1000, 2048, true);
        add(tx, DATA, 112, false);
        let mut passed = 0;
        for _ in 0..20 {
            monitor.answer();
            passed += reflect(reader, queue);
        }
        assert_eq!(passed, 1, "after {what}");
    });
}

/// One turn of a worker that returns a guest's frames to it; returns their number.
pub(super) fn reflect(reader: &mut Reader, queue: &mut Queue) -> usize {
    let mut storage = Storage::default();
    let turn = reader.turn(1);
    let mut burst = Burst::begin(&mut storage);
    queue.tx.take(&turn, &mut burst);
    let which: Vec<u16> = (0..burst.len() as u16).collect();
    if which.is_empty() || queue.rx.caps(&turn).is_none() {
        queue.tx.release(&turn, 0);
        reader.rest();
        return 0;
    }
    let fits = queue.rx.reserve(&turn, &burst, &which);
    queue.rx.put(&turn, &burst, &which[..fits]);
    queue.tx.release(&turn, fits);
    queue.rx.publish(&turn);
    reader.rest();
    fits
}

/// Nanoseconds that a worker stays in a turn, during which a reply must not arrive.
const LINGER: u64 = 20_000_000;

/// Calls `send` while a worker is in a turn in which it has looked up a frame's destination buffer. Returns
/// whether the reply came before the worker delivered the frame and ended its turn.
pub(super) fn sent_during_turn(rig: &mut Rig<'_>, send: impl FnOnce(&mut Monitor<'_>)) -> bool {
    let (answers, queue) = (rig.monitor.front.transport().answers(), &mut *rig.queue);
    let (begun, returned) = (Barrier::new(2), AtomicBool::new(false));
    let lingers = || {
        let (mut reader, mut storage) = (Reader::register().unwrap(), Storage::default());
        let turn = reader.turn(1);
        let mut burst = Burst::begin(&mut storage);
        queue.tx.take(&turn, &mut burst);
        let fits = queue.rx.reserve(&turn, &burst, &[0][..burst.len().min(1)]);
        begun.wait();
        let kicked = ringway_host::wait_readable(&[answers.as_fd()], Some(LINGER)).unwrap()[0];
        let early = kicked || returned.load(SeqCst);
        queue.rx.put(&turn, &burst, &[0][..fits]);
        queue.tx.release(&turn, fits);
        queue.rx.publish(&turn);
        reader.rest();
        assert_eq!(fits, 1, "no frame, or no room for it");
        early
    };
    std::thread::scope(|scope| {
        let worker = scope.spawn(lingers);
        begun.wait();
        send(&mut rig.monitor);
        returned.store(true, SeqCst);
        worker.join().unwrap()
    })
}

/// Runs turns on a separate worker thread until requested to stop.
pub(super) fn reflect_until(stop: &AtomicBool, queue: &mut Queue) {
    let mut reader = Reader::register().unwrap();
    while !stop.load(Relaxed) {
        reflect(&mut reader, queue);
    }
}

/// Runs turns and answers misses until `count` frames have passed.
pub(super) fn pass(reader: &mut Reader, queue: &mut Queue, monitor: &mut Monitor<'_>, count: usize) {
    let mut passed = 0;
    for _ in 0..10 * count + 20 {
        passed += reflect(reader, queue);
        monitor.answer();
        if passed == count {
            return;
        }
    }
    panic!("{passed} of {count} frames passed; asked {:?}", monitor.asked);
}
