//! Functions that run on workers: where they run, their ports, and chains of them.

use super::{Fabric, FabricError, Job};
use crate::function::Order;
use crate::profile::SharedFunctionGauges;
use crate::proto::{Event, FunctionReport};
use crate::topology::Held;
use crate::wakeup::Line;
use crate::worker::{Command, Handle};
use ringway_frame::CountersRef;
use ringway_host::TurnsInProgress;
use ringway_port::Doorbell;
use ringway_port::frame_queue::Inside;
use ringway_spec::{Function, To};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

/// Nanoseconds for which turns that began before ports were held may pass on their frames.
const LONGEST_TURN: u64 = 1_000_000_000;
/// Why a function ended whose thread failed.
const LOST: &str = "its worker failed; see the log";

/// Where a function runs.
pub(super) struct FunctionRecord {
    pub(super) worker: usize,
    /// Since a takeover: the worker's former thread, which runs its functions only, and ends with the last of them.
    pub(super) own_thread: Option<Arc<Handle>>,
    bit: usize,
    /// Its doorbell, which watches the socket by which connections to its handlers come.
    line: Arc<Line>,
    /// Its queues, by the names of its ports in the fabric.
    pub(super) ports: Vec<(String, Arc<Inside>)>,
    /// Whether the function is in a chain.
    chained: bool,
    /// Whether it is an instance of a function that multiplies.
    pub(super) multiplies: bool,
    /// Whether the function has nothing to do.
    idle: Arc<AtomicBool>,
    pub(super) name: String,
    pub(super) gauges: SharedFunctionGauges,
}

impl FunctionRecord {
    fn inside(&self, port: &str) -> Option<&Arc<Inside>> {
        self.ports.iter().find(|(name, _)| name == port).map(|(_, inside)| inside)
    }
}

impl Fabric {
    /// Starts function `number` on the worker of its first port. `handlers` is the place of its handlers, with the
    /// socket by which connections to them come. Returns the jobs that give it its ports.
    ///
    /// # Errors
    /// A port does not exist, or the worker has no room.
    pub fn start_function(
        &mut self,
        number: u64,
        function: Function,
        handlers: (String, OwnedFd),
    ) -> Result<Vec<(String, Job)>, FabricError> {
        let unknown = |port: &String| FabricError::Unknown("port", port.clone());
        let names = function.fabric_ports();
        let missing = names.iter().find(|port| !self.ports.contains_key(*port));
        if let Some(missing) = missing {
            return Err(unknown(missing));
        }
        let first = names.first().and_then(|port| self.ports.get(port)?.slots.first());
        let worker = first.map_or(0, |slot| slot.worker);
        let name = self.workers[worker].spec.name.clone();
        let (place, callers) = handlers;
        let watched = callers.try_clone().map_err(|_| FabricError::Limit("no descriptor is free"))?;
        let bit = self.take_bits(Some(&name), 1)?.first().map_or(0, |(_, bit)| *bit);
        let line = Arc::new(Line::new(self.workers[worker].handle.wakeup.clone(), bit, &function.name));
        let wakeup: Arc<dyn Doorbell> = line.clone();
        let inside = |(name, port): (&String, &String)| {
            let counters = self.ports.get(name).map(|record| record.faults.clone());
            Inside::new(&function.name, port, &wakeup, counters.unwrap_or_else(CountersRef::private))
        };
        let frame_queues: Vec<Arc<Inside>> = names.iter().zip(&function.ports).map(inside).collect();
        line.watch(Arc::new(watched));
        let (chained, idle) = (function.chained, Arc::new(AtomicBool::new(false)));
        let multiplies = function.instance.is_some();
        let (name, gauges) = (function.name.clone(), SharedFunctionGauges::default());
        let order = Order {
            number,
            bit,
            function,
            ports: frame_queues.clone(),
            handlers: (place, callers.into()),
            reports: self.reports.clone(),
            idle: idle.clone(),
            gauges: gauges.clone(),
        };
        let ports: Vec<_> = names.into_iter().zip(frame_queues).collect();
        let jobs = ports.iter().map(|(port, inside)| (port.clone(), Job::Join(inside.clone()))).collect();
        self.workers[worker].handle.send(Command::AddFunction(Box::new(order)));
        let own_thread = None;
        let record =
            FunctionRecord { worker, own_thread, bit, line, ports, chained, multiplies, idle, name, gauges };
        self.functions.insert(number, record);
        self.adapt(multiplies);
        Ok(jobs)
    }

    /// Ends a function. Returns the jobs that take its ports back.
    pub fn stop_function(&mut self, number: u64) -> Vec<(String, Job)> {
        let Some(record) = self.functions.remove(&number) else { return Vec::new() };
        let FunctionRecord { worker, own_thread, bit, line, ports, multiplies, .. } = record;
        line.unwatch();
        // Before the function ends, so that its neighbours send nothing to it any more.
        self.adapt(multiplies);
        ports.iter().for_each(|(_, inside)| inside.hand_to(None));
        let handle = own_thread.as_deref().unwrap_or(&self.workers[worker].handle);
        handle.send(Command::RemoveFunction(number));
        self.free_bits([(worker, bit)]);
        let there = ports.into_iter().filter(|(port, _)| self.ports.contains_key(port));
        there.map(|(port, inside)| (port, Job::Leave(inside))).collect()
    }

    /// Starts a function, as [`Fabric::start_function`], and gives it its ports.
    ///
    /// # Errors
    /// As there.
    pub fn add_function(
        &mut self,
        number: u64,
        function: Function,
        handlers: (String, OwnedFd),
    ) -> Result<(), FabricError> {
        let jobs = self.start_function(number, function, handlers)?;
        jobs.into_iter().try_for_each(|(port, job)| self.now(&port, job).map(drop))
    }

    /// Ends a function, and takes its ports back.
    pub fn remove_function(&mut self, number: u64) -> Result<(), FabricError> {
        let jobs = self.stop_function(number);
        jobs.into_iter().try_for_each(|(port, job)| self.now(&port, job).map(drop))
    }

    /// Suspends a function, or lets it go on.
    pub fn suspend_function(&mut self, number: u64, suspended: bool) {
        if let Some(record) = self.functions.get(&number) {
            let handle = record.own_thread.as_deref().unwrap_or(&self.workers[record.worker].handle);
            handle.send(Command::SuspendFunction(number, suspended));
        }
    }

    /// What happened to functions since the last call.
    pub(super) fn function_events(&self) -> impl Iterator<Item = Event> + use<> {
        self.reports.take().into_iter().map(|(number, report)| Event::Function { number, report })
    }

    /// Reports the end of every function of a worker that failed.
    pub(super) fn report_lost_functions(&self, worker: usize) {
        let is_its = |record: &FunctionRecord| record.worker == worker && record.own_thread.is_none();
        for (number, _) in self.functions.iter().filter(|(_, record)| is_its(record)) {
            self.reports.add(*number, FunctionReport::Ended(LOST.into()));
        }
    }

    /// Reports the end of every function whose own thread failed.
    pub(super) fn report_lost_threads(&mut self) {
        for (number, record) in &mut self.functions {
            if record.own_thread.take_if(|handle| handle.is_gone()).is_some() {
                self.reports.add(*number, FunctionReport::Ended(LOST.into()));
            }
        }
    }

    /// Notes that a worker's functions go on on `thread`, but for the `unstarted` ones.
    pub(super) fn give_thread(&mut self, worker: usize, thread: Handle, unstarted: &[u64]) {
        let thread = Arc::new(thread);
        for (number, record) in &mut self.functions {
            let is_its = record.worker == worker && record.own_thread.is_none();
            if is_its && !unstarted.contains(number) {
                record.line.move_to(thread.wakeup.clone(), record.bit);
                record.own_thread = Some(thread.clone());
            }
        }
    }

    /// The queues of the function that has this port.
    pub(super) fn inside_of(&self, port: &str) -> Option<Arc<Inside>> {
        self.functions.values().find_map(|record| record.inside(port)).cloned()
    }

    /// Makes the others know that a function came or ended; where an instance runs is part of the topology.
    fn adapt(&mut self, multiplies: bool) {
        if multiplies {
            self.publish();
        } else {
            self.link_functions();
        }
    }

    /// Makes neighbours in chains hand frames on by ownership: those of a function go to the queue of the function at
    /// the port that its own port is joined to, if that is in this process too; else its port takes them, as while it
    /// is held. Frames from and to functions that multiply pass their ports, which know the flows.
    pub(super) fn link_functions(&self) {
        let chained = || self.functions.values().filter(|record| record.chained && !record.multiplies);
        for (port, inside) in chained().flat_map(|record| &record.ports) {
            let record = self.ports.get(port).filter(|record| !record.leaving && record.held.is_none());
            let next = match record.and_then(|record| record.spec.to.as_ref()) {
                Some(To::Patch(next)) => chained().find_map(|record| record.inside(next)),
                _ => None,
            };
            inside.hand_to(next);
        }
    }

    /// Makes the frames of ports wait where they are, or lets them go on. Unknown ports are left out. If they are
    /// watched, [`Event::Wanted`] reports the first frame of each.
    pub fn hold(&mut self, ports: &[String], held: bool, watched: bool) {
        for port in ports {
            let Some(record) = self.ports.get_mut(port) else { continue };
            let alarm = watched.then(|| self.wakeup.clone());
            record.held = held.then(|| Held::new(alarm));
        }
        self.publish();
        if held {
            self.turns_before_hold = Some((TurnsInProgress::now(), self.clock.now()));
        }
    }

    /// Whether a worker's turn that began before ports were held may still pass their frames on. Attack: a peer whose
    /// memory blocks a worker for ever.
    fn passes_held_frames(&self) -> bool {
        let is_recent = |since: u64| self.clock.now().saturating_sub(since) < LONGEST_TURN;
        self.turns_before_hold.as_ref().is_some_and(|(turns, since)| !turns.have_ended() && is_recent(*since))
    }

    /// Held ports at which a first frame waits that was not reported.
    pub(super) fn wanted(&self) -> impl Iterator<Item = Event> {
        let is_news = |held: &Arc<Held>| held.news.swap(false, Relaxed);
        let wanted = self.ports.iter().filter(move |(_, record)| record.held.as_ref().is_some_and(is_news));
        wanted.map(|(port, _)| Event::Wanted { port: port.clone() })
    }

    /// Whether no frame waits in the rings or queues of these ports, no function of this process that has one of them
    /// has anything to do, and no worker has a frame in hand that it took before ports were held. Unknown ports, and
    /// those without a peer, have no frames.
    pub fn is_quiet(&self, ports: &[String]) -> bool {
        if self.passes_held_frames() {
            return false;
        }
        let records = || ports.iter().filter_map(|port| self.ports.get(port));
        let own = |record: &&FunctionRecord| ports.iter().any(|port| record.inside(port).is_some());
        records().all(|record| record.peer.as_ref().is_none_or(|peer| peer.is_quiet()))
            && self.functions.values().filter(own).all(|record| record.idle.load(SeqCst))
    }

    /// Joins ports to others, all at once, and lets the frames of `held` ports go on.
    ///
    /// # Errors
    /// A port does not exist; nothing is changed then.
    pub fn join_ports(&mut self, ports: &[(String, String)], held: &[String]) -> Result<(), FabricError> {
        if let Some((port, _)) = ports.iter().find(|(port, _)| !self.ports.contains_key(port)) {
            return Err(FabricError::Unknown("port", port.clone()));
        }
        for (port, next) in ports {
            if let Some(record) = self.ports.get_mut(port) {
                record.spec.to = Some(To::Patch(next.clone()));
            }
        }
        self.hold(held, false, false);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{page, started, until};
    use ringway_mem::Reader;

    /// Without that, a function ended while a worker that was not running just then had a frame for it in hand.
    #[test]
    fn ports_are_not_quiet_before_the_turns_end_that_began_when_they_were_not_held() {
        let mut fabric = started(&["w"], page());
        assert!(fabric.is_quiet(&[]), "nothing was held");
        let mut slow = Reader::register().unwrap();
        slow.turn(1);
        fabric.hold(&[], true, true);
        assert!(!fabric.is_quiet(&[]), "the turn may have taken a frame before");
        // A turn that takes longer than any is a blocked worker's.
        until(|| fabric.is_quiet(&[]));
        fabric.hold(&[], true, true);
        assert!(!fabric.is_quiet(&[]));
        slow.rest();
        until(|| fabric.is_quiet(&[]));
        slow.turn(2);
        assert!(fabric.is_quiet(&[]), "a later turn finds them held");
    }
}
