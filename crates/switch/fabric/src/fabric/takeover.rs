//! Another thread takes over the queues of a worker that a peer's memory blocks.
//!
//! An access to a page that its peer takes away waits in the kernel until that is done, which the peer can delay as it
//! likes, and no signal ends the wait. So the blocked thread keeps what it has in hand, the source that it serves and
//! the destinations that it locked, and a new thread serves all other queues of the worker. When the blocked thread
//! continues, it completes its burst and ends.

use super::{Fabric, WorkerRecord};
use crate::memory_access::{Access, CLOSELY_LEAST};
use crate::topology::RxSlot;
use crate::worker::{Command, Handle, Policy, Worker};
use ringway_host::HostError;
use ringway_port::Doorbell;
use ringway_spec::Poll;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// Blocked threads that a worker may have. Attack: peers that block one thread after the other. Each keeps a source, so
/// that a peer blocks no more threads than it has queues; beyond this number the worker waits.
const PREDECESSORS: usize = 8;

impl Fabric {
    /// Takes over the queues of workers that the watchdog found blocked, and returns to their workers the queues of
    /// threads that are not blocked any more.
    pub(super) fn take_over_blocked(&mut self) {
        for worker in 0..self.workers.len() {
            let record = &mut self.workers[worker];
            let ended = record.predecessors.extract_if(.., |gauges| gauges.has_ended.load(SeqCst));
            let closely_until = ended.map(|gauges| gauges.closely_until.load(Relaxed)).max();
            if let Some(closely_until) = closely_until {
                self.have_inherit(worker, closely_until);
                // A queue that was moved may be another worker's by now.
                let slots = self.ports.values().flat_map(super::Record::all_slots);
                slots.for_each(|slot| slot.line.wake());
            }
            // If it has too many former threads, one that ends signals the alarm again.
            let WorkerRecord { handle, predecessors, .. } = &self.workers[worker];
            if predecessors.len() < PREDECESSORS && handle.gauges.is_blocked.swap(false, SeqCst) {
                self.take_over(worker);
            }
        }
    }

    fn take_over(&mut self, worker: usize) {
        let WorkerRecord { spec, handle, .. } = &self.workers[worker];
        let (name, has_functions) = (spec.name.clone(), handle.gauges.has_functions.load(Relaxed));
        let started = self.succeed(worker).and_then(|new| {
            let stays = has_functions.then(|| self.thread_of_functions(worker)).transpose()?;
            Ok((new, stays.unzip()))
        });
        let (new, (next, functions)) = match started {
            Ok(started) => started,
            Err(error) => {
                tracing::warn!(worker = name, %error, "no other thread can take over its queues");
                return;
            }
        };
        let record = &mut self.workers[worker];
        self.watchdog.succeed(&name, &new.gauges);
        let blocked = std::mem::replace(&mut record.handle, new);
        let pending = blocked.supersede(next);
        record.predecessors.push(blocked.gauges.clone());
        tracing::warn!(worker = name, "a peer's memory blocks the thread; another one takes over its queues");
        let own = |slot: &&super::QueueSlot| slot.worker == worker && !slot.is_taken;
        for slot in self.ports.values().flat_map(super::Record::all_slots).filter(own) {
            let (bit, source) = (slot.bit, slot.source.clone());
            self.workers[worker].handle.send(Command::Add { bit, worker, source });
        }
        if let Some(thread) = functions {
            self.leave_functions(worker, thread, &pending);
        }
        for command in pending {
            match command {
                Command::Add { .. } => {}
                // The blocked thread may use the queue until its turn ends.
                Command::Remove { bit, to } => {
                    let mut slots = self.ports.values().flat_map(super::Record::all_slots);
                    let slot = slots.find(|slot| (slot.worker, slot.bit) == (worker, bit));
                    let _ = to.try_send(slot.map(|slot| slot.source.clone()));
                }
                other => self.workers[worker].handle.send(other),
            }
        }
        // Finds out which peer blocks the worker the next time.
        self.have_inherit(worker, self.clock.now() + CLOSELY_LEAST);
        self.charge_blocking(Access(blocked.gauges.access.load(Relaxed)));
    }

    /// The worker as which a blocked thread goes on, without queues, and its handle.
    fn thread_of_functions(&self, worker: usize) -> Result<(Worker, Handle), HostError> {
        let WorkerRecord { spec, .. } = &self.workers[worker];
        // If it polled always, it would compete with its successor.
        let poll = if spec.poll == Poll::Always { Poll::Adaptive } else { spec.poll };
        let policy = Policy { poll, spin: spec.spin };
        Worker::new(policy, self.published.clone(), self.hash, self.wakeup.clone())
    }

    /// Leaves a worker's functions to a thread of their own, but for those that it has not got yet: they are among the
    /// `pending` commands.
    fn leave_functions(&mut self, worker: usize, thread: Handle, pending: &[Command]) {
        let mut unstarted = Vec::new();
        for command in pending {
            match command {
                Command::AddFunction(order) => unstarted.push(order.number),
                // Whoever does not have the function ignores these.
                Command::RemoveFunction(number) => thread.send(Command::RemoveFunction(*number)),
                Command::SuspendFunction(number, suspended) => {
                    thread.send(Command::SuspendFunction(*number, *suspended));
                }
                _ => {}
            }
        }
        self.give_thread(worker, thread, &unstarted);
    }

    /// Starts a successor of a worker's thread, without queues.
    fn succeed(&self, worker: usize) -> Result<Handle, HostError> {
        let WorkerRecord { spec, handle, .. } = &self.workers[worker];
        let policy = Policy { poll: spec.poll, spin: spec.spin };
        let (published, alarm) = (self.published.clone(), self.wakeup.clone());
        let (worker, new) = Worker::succeeding(handle, policy, published, self.hash, alarm)?;
        super::nodes::start_thread(spec, worker)?;
        Ok(new)
    }

    /// Has a worker send the notifications that a former thread of its would have sent later, and time accesses.
    fn have_inherit(&self, worker: usize, closely_until: u64) {
        let delays =
            |slot: &&Arc<RxSlot>| slot.queue.try_lock().is_ok_and(|queue| queue.next_due().is_some());
        let due = self.ports.values().flat_map(|record| &record.rx).filter(delays).cloned().collect();
        self.workers[worker].handle.send(Command::Inherit { due, closely_until });
    }

    /// Evicts the peer whose memory blocks a thread. Of a copy between two peers' memories it is not known whose does:
    /// the successor finds out when it is blocked again.
    fn charge_blocking(&self, access: Access) {
        let (Some(id), None) = (access.port(), access.source()) else { return };
        let record = self.ports.values().find(|record| record.id == id);
        if let Some(budget) = record.and_then(|record| record.budget.as_ref()) {
            budget.charge(self.clock.now(), crate::watchdog::BLOCKED);
        }
    }

    /// Text for display: the ports whose memory blocks threads of a worker now, and for how long. Empty if none does.
    pub(super) fn held(&self, worker: &WorkerRecord, now: u64) -> String {
        let all = worker.predecessors.iter().chain([&worker.handle.gauges]);
        let held = all.map(|gauges| self.watchdog.held(gauges, now)).filter(|held| !held.is_empty());
        held.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::{page, started};
    use crate::forward::{Source, free};
    use crate::function::tests::function;
    use crate::proto::Event;
    use ringway_frame::{Burst, Caps, CountersRef, LARGEST, Lost, Needs, RxQueue, TxQueue};
    use ringway_host::open_thread_files;
    use ringway_mem::Turn;
    use ringway_port::{ring, source};
    use ringway_spec::{Function, Kind, MacAddress, Port, Switch, To};
    use ringway_switch::learning;
    use std::ops::Deref;
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use std::time::{Duration, Instant};

    /// A queue whose memory blocks each access while it is told to.
    #[derive(Clone, Default)]
    struct Blocking {
        blocks: Arc<AtomicBool>,
        polled: Arc<AtomicU64>,
        /// Accesses that were blocked.
        blocked: Arc<AtomicU64>,
    }

    impl Blocking {
        fn access(&self) {
            self.polled.fetch_add(1, Relaxed);
            if self.blocks.load(Relaxed) {
                self.blocked.fetch_add(1, Relaxed);
                while self.blocks.load(Relaxed) {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        }
    }

    /// Ends the blocked accesses when a test ends, so that a failed test does not wait for its threads for ever.
    struct Control(Blocking);

    impl Deref for Control {
        type Target = Blocking;

        fn deref(&self) -> &Blocking {
            &self.0
        }
    }

    impl Drop for Control {
        fn drop(&mut self) {
            self.blocks.store(false, Relaxed);
        }
    }

    impl RxQueue for Blocking {
        fn caps(&mut self, _turn: &Turn<'_>) -> Option<Caps> {
            Some(Caps { offloads: Needs::NONE, largest: LARGEST })
        }

        fn reserve(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
            which.len()
        }

        fn put(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, _which: &[u16]) -> Lost {
            self.access();
            Lost::default()
        }

        fn publish(&mut self, _turn: &Turn<'_>) {}
    }

    impl TxQueue for Blocking {
        fn take<'t>(&mut self, _turn: &'t Turn<'_>, _burst: &mut Burst<'t>) {
            self.access();
        }

        fn release(&mut self, _turn: &Turn<'_>, _frames: usize) {}

        fn arm(&mut self, _turn: &Turn<'_>) -> bool {
            true
        }

        fn disarm(&mut self, _turn: &Turn<'_>) {}
    }

    /// Serves the fabric, as its session thread does, until `done`.
    fn until(fabric: &mut Fabric, what: &str, mut done: impl FnMut(&mut Fabric) -> bool) {
        let limit = Instant::now() + Duration::from_secs(60);
        while !done(fabric) {
            assert!(Instant::now() < limit, "{what}: {:?}", fabric.state());
            for event in fabric.check() {
                if let Event::Worker { worker, thread } = event {
                    // Another thread may have taken over already.
                    let files = open_thread_files(std::process::id(), thread);
                    let _ = files.map(|files| fabric.watch(&worker, thread, files));
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Workers, of which the first, `w`, has a source, a sink, and a port whose queue blocks.
    fn fabric(workers: &[&str], page: &Arc<Vec<ringway_frame::Counters>>) -> (Fabric, Control) {
        let mut fabric = started(workers, page.clone());
        let lookup =
            Kind::new("learning", &learning::Settings { ageing: 300, entries: 64, refuse_moves: false });
        fabric
            .add_switch(Switch { name: "s".into(), lookup, forward_reserved: false, snooping: None })
            .unwrap();
        let (to, from) = (MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1]));
        let load = source::Settings { size: 64, to, from, rate: Some(10_000) };
        let null = || Kind::new("null", &());
        let ports = [("load", Kind::new("source", &load)), ("sink", null()), ("slow", null())];
        for (counters, (name, kind)) in (0..).zip(ports) {
            let port = Port::new(name, kind, Some(To::Switch("s".into())));
            fabric.add_port(Port { worker: Some("w".into()), ..port }, counters).unwrap();
        }
        let blocking = Blocking::default();
        let record = fabric.ports.get_mut("slow").unwrap();
        let source = Source::new(Box::new(blocking.clone()), record.id, 0, CountersRef::private());
        let slot = &mut record.slots[0];
        slot.source = Arc::new(Mutex::new(source));
        let (bit, source) = (slot.bit, slot.source.clone());
        fabric.workers[0].handle.send(Command::Add { bit, worker: 0, source });
        (fabric, Control(blocking))
    }

    #[test]
    fn a_port_in_quarantine_holds_nobody_else() {
        let page = page();
        let (mut fabric, blocking) = fabric(&["w"], &page);
        let is_moved = |fabric: &mut Fabric| fabric.ports["slow"].worker() != Some(0);
        let budget = fabric.budget(fabric.ports["slow"].id);
        let record = fabric.ports.get_mut("slow").unwrap();
        record.budget = Some(budget.clone());
        let slot = RxSlot::new(Box::new(blocking.clone()), record.id, record.faults.clone(), None);
        record.rx = vec![Arc::new(slot)];
        fabric.publish();
        budget.charge(fabric.clock.now(), 1_000_000_000);
        until(&mut fabric, "its queues move", is_moved);
        assert_eq!(fabric.state().ports[2].worker, super::super::quarantine::WORKER);
        // Its next peer is accepted, and blocks an access while frames are flooded to all ports.
        budget.renew();
        let before = page[1].rx_frames.load(Relaxed);
        blocking.blocks.store(true, Relaxed);
        until(&mut fabric, "its memory is accessed", |_| blocking.blocked.load(Relaxed) > 0);
        let thread = fabric.workers[0].handle.gauges.thread.load(Relaxed);
        until(&mut fabric, "frames of others", |_| page[1].rx_frames.load(Relaxed) > before + 2000);
        until(&mut fabric, "another thread takes over", |fabric| !fabric.workers[1].predecessors.is_empty());
        assert!(fabric.workers[0].predecessors.is_empty());
        assert_eq!(fabric.workers[0].handle.gauges.thread.load(Relaxed), thread);
        blocking.blocks.store(false, Relaxed);
        until(&mut fabric, "the blocked thread ends", |fabric| fabric.workers[1].predecessors.is_empty());
        // An operator's change waits until the quarantine ends.
        fabric.move_port("slow", Some("w")).unwrap();
        assert_eq!(fabric.ports["slow"].worker(), Some(1));
        fabric.remove_port("slow").unwrap();
        fabric.remove_port("load").unwrap();
    }

    #[test]
    fn the_other_queues_of_a_blocked_worker_are_served_by_another_thread() {
        let page = page();
        let (mut fabric, blocking) = fabric(&["w"], &page);
        let frames = || page[1].rx_frames.load(Relaxed);
        for _ in 0..3 {
            until(&mut fabric, "frames", |_| frames() > 100);
            let thread = fabric.workers[0].handle.gauges.thread.load(Relaxed);
            blocking.blocks.store(true, Relaxed);
            fabric.ports["slow"].slots[0].line.wake();
            until(&mut fabric, "another thread takes over", |fabric| {
                !fabric.workers[0].predecessors.is_empty()
            });
            let before = frames();
            until(&mut fabric, "frames while it is blocked", |_| frames() > before + 1000);
            assert_ne!(fabric.workers[0].handle.gauges.thread.load(Relaxed), thread);
            assert!(
                fabric.state().workers[0].held.contains("the memory of port slow"),
                "{:?}",
                fabric.state()
            );
            let polled = blocking.polled.load(Relaxed);
            blocking.blocks.store(false, Relaxed);
            let is_back = |fabric: &mut Fabric| fabric.workers[0].predecessors.is_empty();
            until(&mut fabric, "the blocked thread ends", is_back);
            until(&mut fabric, "its queue is served again", |_| blocking.polled.load(Relaxed) > polled);
        }
        // A port whose queue blocked can be moved, removed, and its worker's others too.
        fabric.move_port("slow", Some("w")).unwrap();
        ["slow", "load", "sink"].into_iter().for_each(|port| fabric.remove_port(port).unwrap());
    }

    const ONE_WAY: &str = "FromPort(in) -> ToPort(out); Idle -> ToPort(in); FromPort(out) -> Discard;";

    /// A function on worker `w` that passes frames of port `sender` on to port `receiver`.
    fn with_function(page: &Arc<Vec<ringway_frame::Counters>>) -> (Fabric, Control, UnixStream) {
        let (mut fabric, blocking) = fabric(&["w"], page);
        let (to, from) = (MacAddress([2, 0, 0, 0, 0, 4]), MacAddress([2, 0, 0, 0, 0, 3]));
        let load = source::Settings { size: 64, to, from, rate: Some(10_000) };
        let ring = || Kind::new("ring", &ring::Settings { slots: 256, slot_size: 2048 });
        let ports = [
            ("in", ring(), "sender"),
            ("out", ring(), "receiver"),
            ("sender", Kind::new("source", &load), "in"),
            ("receiver", Kind::new("null", &()), "out"),
        ];
        for (counters, (name, kind, to)) in (3..).zip(ports) {
            let port = Port::new(name, kind, Some(To::Patch(to.into())));
            fabric.add_port(Port { worker: Some("w".into()), ..port }, counters).unwrap();
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        let two = Function { ports: vec!["in".into(), "out".into()], ..function(ONE_WAY) };
        fabric.add_function(1, two, ("handlers".into(), theirs.into())).unwrap();
        (fabric, blocking, ours)
    }

    #[test]
    fn functions_of_a_blocked_worker_go_on_on_a_thread_of_their_own() {
        let page: Arc<Vec<_>> = Arc::new((0..7).map(|_| Default::default()).collect());
        let (mut fabric, blocking, _callers) = with_function(&page);
        let (frames, passed) = (|| page[1].rx_frames.load(Relaxed), || page[6].rx_frames.load(Relaxed));
        until(&mut fabric, "frames", |_| frames() > 100 && passed() > 100);
        for round in 0..2 {
            blocking.blocks.store(true, Relaxed);
            fabric.ports["slow"].slots[0].line.wake();
            until(&mut fabric, "a takeover", |fabric| !fabric.workers[0].predecessors.is_empty());
            let (before, waiting) = (frames(), passed());
            until(&mut fabric, "frames while it is blocked", |_| frames() > before + 1000);
            assert!(fabric.functions[&1].own_thread.is_some());
            // The first time the function's thread is the one that is blocked; the second time it is not.
            if round > 0 {
                until(&mut fabric, "frames of the function", |_| passed() > waiting + 1000);
            }
            blocking.blocks.store(false, Relaxed);
            until(&mut fabric, "the blocked thread gives up its queues", |fabric| {
                fabric.workers[0].predecessors.is_empty()
            });
            let before = passed();
            until(&mut fabric, "its function goes on", |_| passed() > before + 1000);
        }
        let thread = Arc::downgrade(fabric.functions[&1].own_thread.as_ref().unwrap());
        let inside = fabric.inside_of("out").unwrap();
        fabric.suspend_function(1, true);
        until(&mut fabric, "it rests", |_| inside.to.is_empty());
        fabric.suspend_function(1, false);
        let before = passed();
        until(&mut fabric, "it goes on", |_| passed() > before + 100);
        fabric.remove_function(1).unwrap();
        assert!(thread.upgrade().is_none(), "the thread ends with its functions");
        drop(inside);
    }

    #[test]
    fn a_function_that_is_changed_while_its_worker_is_blocked() {
        let page: Arc<Vec<_>> = Arc::new((0..7).map(|_| Default::default()).collect());
        let (mut fabric, blocking, _callers) = with_function(&page);
        let passed = || page[6].rx_frames.load(Relaxed);
        until(&mut fabric, "frames", |_| passed() > 100);
        blocking.blocks.store(true, Relaxed);
        let polled = blocking.polled.load(Relaxed);
        fabric.ports["slow"].slots[0].line.wake();
        until(&mut fabric, "it is blocked", |_| blocking.polled.load(Relaxed) > polled);
        // One ends, and another begins: their ports change hands once no thread is blocked.
        let mut jobs = fabric.stop_function(1);
        let (_callers, theirs) = UnixStream::pair().unwrap();
        let two = Function { ports: vec!["in".into(), "out".into()], ..function(ONE_WAY) };
        jobs.extend(fabric.start_function(2, two, ("handlers".into(), theirs.into())).unwrap());
        until(&mut fabric, "a takeover", |fabric| !fabric.workers[0].predecessors.is_empty());
        assert!(fabric.functions[&2].own_thread.is_none());
        blocking.blocks.store(false, Relaxed);
        until(&mut fabric, "the blocked thread ends", |fabric| fabric.workers[0].predecessors.is_empty());
        jobs.into_iter().for_each(|(port, job)| drop(fabric.now(&port, job).unwrap()));
        let before = passed();
        until(&mut fabric, "the new one runs", |_| passed() > before + 100);
    }

    #[test]
    fn while_a_receivers_memory_blocks_only_its_sender_waits() {
        let page = Arc::new((0..5).map(|_| Default::default()).collect());
        let (mut fabric, _) = fabric(&["w"], &page);
        let lookup =
            Kind::new("learning", &learning::Settings { ageing: 300, entries: 64, refuse_moves: false });
        fabric
            .add_switch(Switch { name: "t".into(), lookup, forward_reserved: false, snooping: None })
            .unwrap();
        let (to, from) = (MacAddress([2, 0, 0, 0, 0, 4]), MacAddress([2, 0, 0, 0, 0, 3]));
        let load = source::Settings { size: 64, to, from, rate: Some(10_000) };
        let ports = [("receiver", Kind::new("null", &())), ("sender", Kind::new("source", &load))];
        let blocking = Control(Blocking::default());
        for (counters, (name, kind)) in (3..).zip(ports) {
            let port = Port::new(name, kind, Some(To::Switch("t".into())));
            fabric.add_port(Port { worker: Some("w".into()), ..port }, counters).unwrap();
            if name == "receiver" {
                *fabric.ports[name].rx[0].queue.lock().unwrap() = Box::new(blocking.clone());
            }
        }
        let (frames, sent) = (|| page[1].rx_frames.load(Relaxed), || page[4].tx_frames.load(Relaxed));
        until(&mut fabric, "frames", |_| frames() > 100 && sent() > 100);
        blocking.blocks.store(true, Relaxed);
        until(&mut fabric, "another thread takes over", |fabric| !fabric.workers[0].predecessors.is_empty());
        let (before, waiting) = (frames(), sent());
        until(&mut fabric, "frames while it is blocked", |_| frames() > before + 1000);
        let held = fabric.state().workers[0].held.clone();
        // A source's frames are in our own memory: it is the receiver's that blocks.
        assert!(held.contains("the memory of port receiver"), "{held}");
        assert_eq!(sent(), waiting, "the burst that is copied stays in hand");
        blocking.blocks.store(false, Relaxed);
        until(&mut fabric, "the blocked thread ends", |fabric| fabric.workers[0].predecessors.is_empty());
        until(&mut fabric, "its sender goes on", |_| sent() > waiting + 100);
    }

    #[test]
    fn a_source_that_is_moved_while_a_thread_is_blocked_in_it_becomes_the_new_workers() {
        let page = page();
        let (mut fabric, blocking) = fabric(&["w", "v"], &page);
        blocking.blocks.store(true, Relaxed);
        fabric.ports["slow"].slots[0].line.wake();
        until(&mut fabric, "another thread takes over", |fabric| !fabric.workers[0].predecessors.is_empty());
        let polled = blocking.polled.load(Relaxed);
        fabric.move_port("slow", Some("v")).unwrap();
        blocking.blocks.store(false, Relaxed);
        until(&mut fabric, "the new worker serves it", |_| blocking.polled.load(Relaxed) > polled);
        // The worker may have it locked.
        let source = fabric.ports["slow"].slots[0].source.clone();
        until(&mut fabric, "it is the new worker's", |fabric| {
            let slot = &fabric.ports["slow"].slots[0];
            slot.worker == 1 && free(&source).is_some_and(|source| source.worker() == 1)
        });
    }

    #[test]
    fn a_worker_has_a_bounded_number_of_blocked_threads() {
        let page = page();
        let (mut fabric, blocking) = fabric(&["w"], &page);
        let limit = Instant::now() + Duration::from_secs(60);
        blocking.blocks.store(true, Relaxed);
        for number in 0..=PREDECESSORS {
            assert_eq!(fabric.workers[0].predecessors.len(), number);
            let handle = &fabric.workers[0].handle;
            // Each blocks in a queue of its own, or in the port's. The watchdog has no files, and so finds none.
            let source = Source::new(Box::new(blocking.clone()), 2, 0, CountersRef::private());
            let source = Arc::new(Mutex::new(source));
            handle.send(Command::Add { bit: 1000 + number, worker: 0, source });
            while blocking.blocked.load(Relaxed) == number as u64 {
                assert!(Instant::now() < limit, "thread {number} accesses no queue");
                std::thread::sleep(Duration::from_millis(1));
            }
            handle.gauges.is_blocked.store(true, SeqCst);
            fabric.take_over_blocked();
        }
        assert_eq!(fabric.workers[0].predecessors.len(), PREDECESSORS);
        blocking.blocks.store(false, Relaxed);
        until(&mut fabric, "they end", |fabric| fabric.workers[0].predecessors.is_empty());
    }
}
