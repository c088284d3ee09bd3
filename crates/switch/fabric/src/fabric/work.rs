//! Jobs on one port, which may block: on the turn of a blocked worker, or on the peer's memory. A thread does a
//! [`Work`] without access to the fabric; jobs on one port are done one after the other.

use super::{Fabric, FabricError, QueueSlot, Record, port_state};
use crate::forward::SharedSource;
use crate::policy::PortPolicy;
use crate::proto::Event;
use crate::worker::Command;
use ringway_frame::add;
use ringway_host::Budget;
use ringway_port::frame_queue::Inside;
use ringway_port::{Doorbell, Gone, Peer, PeerRecord, State};
use ringway_spec::{self as spec, Port, To};
use ringway_switch::snooping::Snooping;
use ringway_switch::{Lookup, PortId};
use std::os::fd::OwnedFd;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, PoisonError};

/// Why a peer that blocked a worker is detached.
const HELD: &str = "its memory held a worker for too long: it was taken away, or is slow";

/// A job on a port.
#[derive(Debug)]
pub enum Job {
    /// The port's session is readable.
    Serve,
    /// Its session may have messages, or a worker detected a protocol violation.
    Check,
    /// Attach a peer with these descriptors.
    Attach(Vec<OwnedFd>),
    /// Attach the peer again that a former process had, with what was kept of it.
    Resume(Vec<PeerRecord>, Vec<OwnedFd>),
    /// Detach the peer, which is gone or must go.
    Detach,
    /// Detach the peer, which exceeded its budget.
    Evict,
    /// Remove the port.
    Remove,
    /// Remove the port and make it again, without a peer: its worker failed.
    Renew,
    /// Change settings of the port that its peer need not know.
    Change(Box<Port>),
    /// Move the port's queues to this worker, or to those with the fewest. The peer stays.
    Move(Option<String>),
    /// Give the port to a function of this process, or take it back.
    Join(Arc<Inside>),
    /// Take the port back from a function of this process.
    Leave(Arc<Inside>),
}

/// A job, and the parts of the port that it needs.
pub struct Work {
    port: String,
    call: Option<u64>,
    job: Job,
    peer: Box<dyn Peer>,
    budget: Option<Arc<Budget>>,
    /// Its number, and the lookup of its switch.
    id: PortId,
    lookup: Option<Arc<dyn Lookup>>,
    snooping: Option<Arc<Snooping>>,
    /// The port's state as last reported.
    before: State,
    /// Sources requested back from workers, and those returned so far.
    taken: Vec<Receiver<Option<SharedSource>>>,
    sources: Vec<SharedSource>,
    checked: Result<(), Gone>,
    /// Whether its session was readable, but had no message.
    no_message: bool,
    result: Result<(), FabricError>,
}

/// Result of a job.
#[derive(Debug)]
pub struct Done {
    /// The call that it was for.
    pub call: Option<u64>,
    /// Result of the job.
    pub result: Result<(), FabricError>,
    /// Event to report to `control`.
    pub event: Option<Event>,
}

impl Work {
    /// Does the job. Blocks for as long as a worker is blocked, or as an access to the peer's memory takes.
    pub fn run(&mut self) {
        let received = self.peer.receiving() > 0;
        // A peer that was attached just now may not have been reported.
        let (was_reported, was_here) = (self.before == State::Up, self.peer.state().0 == State::Up);
        let was_up = was_reported || was_here;
        self.do_job();
        // Attack: addresses that stay when their station is gone, or continues elsewhere: a guest that was migrated
        // to another port does not get frames there before it sends. It takes some time, since tables can be large.
        // A guest that stops gives back the ring with frames for it first, before its port is down.
        let is_down = received && self.peer.receiving() == 0 || was_up && self.peer.state().0 != State::Up;
        if is_down && let Some(lookup) = &self.lookup {
            lookup.forget_port(self.id);
        }
        if is_down && let Some(snooping) = &self.snooping {
            snooping.forget_port(self.id);
        }
        let (receives, is_here) = (self.peer.receiving() > 0, self.peer.state().0 == State::Up);
        let is_new = receives && !received || is_here && !(was_reported && was_here);
        if is_new && let Some(snooping) = &self.snooping {
            snooping.attach_port(self.id);
        }
    }

    fn do_job(&mut self) {
        match &mut self.job {
            Job::Serve => {
                let before = self.peer.received();
                self.checked = self.peer.check();
                self.no_message = self.peer.received() == before;
            }
            Job::Check => self.checked = self.peer.check(),
            Job::Attach(_) | Job::Resume(..) => {
                self.peer.detach();
                self.budget.iter().for_each(|budget| budget.renew());
                let attached = match &mut self.job {
                    Job::Resume(kept, descriptors) => {
                        self.peer.resume(std::mem::take(kept), std::mem::take(descriptors))
                    }
                    Job::Attach(descriptors) => self.peer.attach(std::mem::take(descriptors)),
                    _ => Ok(()),
                };
                let failed =
                    |error: ringway_port::PeerError| FabricError::Port(self.port.clone(), error.to_string());
                self.result = attached.map_err(failed);
            }
            Job::Change(port) => {
                let failed =
                    |error: ringway_port::PeerError| FabricError::Port(self.port.clone(), error.to_string());
                self.result = self.peer.change(port).map_err(failed);
            }
            // Another peer may be attached already.
            Job::Evict if self.budget.as_ref().is_some_and(|budget| !budget.is_spent()) => {
                self.job = Job::Check
            }
            Job::Detach | Job::Evict => self.peer.detach(),
            Job::Join(inside) => {
                let failed =
                    |error: ringway_port::PeerError| FabricError::Port(self.port.clone(), error.to_string());
                self.result = self.peer.join(inside.clone()).map_err(failed);
            }
            Job::Leave(inside) => self.peer.leave(inside),
            Job::Remove | Job::Renew | Job::Move(_) => {
                if !matches!(self.job, Job::Move(_)) {
                    self.peer.detach();
                }
                // A failed worker returns no sources.
                self.sources = self.taken.drain(..).filter_map(|from| from.recv().ok().flatten()).collect();
                if !matches!(self.job, Job::Move(_)) {
                    self.sources.clear();
                    // From now on no thread sends to the port or can find it.
                    ringway_host::grace();
                }
            }
        }
    }
}

impl Fabric {
    /// Begins a job; while another job on the port is being done, queues it behind that one and returns none.
    pub fn begin(&mut self, name: &str, job: Job, call: Option<u64>) -> Result<Option<Work>, FabricError> {
        if let Job::Move(Some(worker)) = &job {
            self.worker(worker)?;
        }
        let ends = matches!(job, Job::Attach(_)) && self.end_quarantine(name);
        let record = self.ports.get_mut(name).filter(|record| !record.leaving);
        let record = record.ok_or_else(|| FabricError::Unknown("port", name.into()))?;
        match (record.peer.take(), job) {
            (Some(peer), job) if ends => {
                // Its queues go back before it gets its peer.
                record.jobs.push_front((job, call));
                let home = record.spec.worker.clone();
                Ok(Some(self.prepare(name, peer, Job::Move(home), None)))
            }
            (Some(peer), job) => Ok(Some(self.prepare(name, peer, job, call))),
            // The port is being checked, or will be soon.
            (None, Job::Check | Job::Serve) => Ok(None),
            (None, job) => {
                record.jobs.push_back((job, call));
                Ok(None)
            }
        }
    }

    fn prepare(&mut self, name: &str, peer: Box<dyn Peer>, job: Job, call: Option<u64>) -> Work {
        let port = name.to_string();
        let (mut budget, mut taken, mut lookup) = (None, Vec::new(), None);
        let snooping = self.snooping_of(name);
        let (mut id, mut before) = (0, State::Waiting);
        if let Some(record) = self.ports.get_mut(name) {
            (id, before) = (record.id, record.reported.0);
            budget.clone_from(&record.budget);
            if let Some(To::Switch(name)) = &record.spec.to {
                let made = self.switches.get(name).and_then(|switch| switch.made.as_ref());
                lookup = made.map(|made| made.lookup.clone());
            }
            record.leaving = matches!(job, Job::Remove | Job::Renew);
        }
        if matches!(job, Job::Remove | Job::Renew) {
            self.publish();
        }
        if let Some(record) = self.ports.get_mut(name)
            && matches!(job, Job::Remove | Job::Renew | Job::Move(_))
        {
            let quarantine = record.quarantine.as_mut().map(|quarantine| &mut quarantine.slot);
            let quarantine = quarantine.filter(|_| !matches!(job, Job::Move(_)));
            for slot in record.slots.iter_mut().chain(quarantine) {
                slot.is_taken = true;
                taken.push(self.workers[slot.worker].handle.take_back(slot.bit));
            }
        }
        let (sources, checked, result) = (Vec::new(), Ok(()), Ok(()));
        let no_message = false;
        Work {
            port,
            call,
            job,
            peer,
            budget,
            id,
            lookup,
            snooping,
            before,
            taken,
            sources,
            checked,
            no_message,
            result,
        }
    }

    /// Ends a job. Returns its result, the results of queued jobs that are impossible now, and the next job.
    pub fn end(&mut self, work: Work) -> (Vec<Done>, Option<Work>) {
        let Work { port, call, job, peer, sources, checked, no_message, mut result, .. } = work;
        let now = self.clock.now();
        if matches!(job, Job::Remove | Job::Renew) {
            return (self.removed(&port, &job, call), None);
        }
        if matches!(job, Job::Move(_)) {
            result = self.place(&port, &job, sources);
        }
        let Some(record) = self.ports.get_mut(&port) else { return (Vec::new(), None) };
        if matches!(job, Job::Attach(_) | Job::Resume(..)) || peer.session().is_none() {
            // Without another descriptor the session is only checked periodically.
            let session = peer.session().and_then(|fd| fd.try_clone_to_owned().ok());
            record.session = session.map(Arc::new);
        }
        if let (Job::Change(changed), Ok(())) = (&job, &result) {
            record.spec = spec::Port { policy: record.spec.policy.clone(), ..(**changed).clone() };
            let policy = changed.policy.clone();
            self.set_policy(&port, policy);
        }
        let Some(record) = self.ports.get_mut(&port) else { return (Vec::new(), None) };
        record.peer = Some(peer);
        if no_message && record.session_limit.spend(now) {
            add(&record.faults.session_pauses, 1);
        }
        let event = match job {
            Job::Serve | Job::Check | Job::Attach(_) | Job::Detach => self.look_at(&port, checked),
            Job::Evict => self.evicted(&port),
            _ => None,
        };
        let mut next = None;
        if let Some(record) = self.ports.get_mut(&port)
            && let Some((job, call)) = record.jobs.pop_front()
            && let Some(peer) = record.peer.take()
        {
            next = Some(self.prepare(&port, peer, job, call));
        }
        (vec![Done { call, result, event }], next)
    }

    fn look_at(&mut self, name: &str, checked: Result<(), Gone>) -> Option<Event> {
        let record = self.ports.get_mut(name)?;
        let peer = record.peer.as_mut()?;
        if let Some(refused) = peer.refused()
            && record.log.allows(name)
        {
            tracing::info!(port = name, refused, "a request or a ring of the port's peer was refused");
        }
        let state = peer.state();
        if let Err(Gone { reason, fault, rest }) = checked {
            record.reported = state;
            return Some(Event::Detached { port: name.into(), reason, fault, rest });
        }
        if let Some(steer) = &record.steer {
            steer.limit(peer.receiving());
        }
        if state == record.reported {
            return None;
        }
        record.reported = state;
        Some(Event::Changed(port_state(name, record, &self.workers)))
    }

    fn evicted(&mut self, name: &str) -> Option<Event> {
        let now = self.clock.now();
        let record = self.ports.get_mut(name)?;
        add(&record.faults.faults, 1);
        record.reported = record.peer.as_ref()?.state();
        let rest = record.budget.as_ref().map_or(0, |budget| budget.rest(now));
        self.quarantine(name);
        Some(Event::Detached { port: name.into(), reason: HELD.into(), fault: true, rest })
    }

    /// Completes the removal of a port that is no longer in use.
    fn removed(&mut self, name: &str, job: &Job, call: Option<u64>) -> Vec<Done> {
        let Some(record) = self.ports.remove(name) else { return Vec::new() };
        let Record { id, spec, counters, mut slots, quarantine, jobs, .. } = record;
        slots.extend(quarantine.map(|quarantine| quarantine.slot));
        slots.iter().for_each(|slot| slot.line.unwatch());
        self.free_bits(slots.iter().map(|slot| (slot.worker, slot.bit)));
        self.watchdog.name(id, None);
        self.switches.values().filter_map(|switch| switch.made.as_ref()).for_each(|made| made.forget(id));
        let gone =
            |(_, call)| Done { call, result: Err(FabricError::Unknown("port", name.into())), event: None };
        let mut done: Vec<Done> = jobs.into_iter().map(gone).collect();
        let mut event = None;
        if matches!(job, Job::Renew) {
            if let Err(error) = self.add_port(spec, counters) {
                tracing::error!(port = name, %error, "the port can't be restarted");
            }
            let inside = self.inside_of(name);
            if let (Some(inside), Some(record)) = (inside, self.ports.get_mut(name)) {
                // A port of a function joins without errors.
                let _ = record.peer.as_mut().map(|peer| peer.join(inside));
            }
            let reason = "its worker failed; see the log".to_string();
            event = Some(Event::Detached { port: name.into(), reason, fault: false, rest: 0 });
        }
        self.forget_instances();
        done.push(Done { call, result: Ok(()), event });
        done
    }

    /// Passes a port's sources to their new workers, or back to the previous ones if the new ones have no room.
    fn place(&mut self, name: &str, job: &Job, sources: Vec<SharedSource>) -> Result<(), FabricError> {
        let Job::Move(worker) = job else { return Ok(()) };
        let is_suspect = self.ports.get(name).is_some_and(|record| record.quarantine.is_some());
        let named = if is_suspect { Some(super::quarantine::WORKER) } else { worker.as_deref() };
        let found = self.take_bits(named, sources.len());
        let Some(record) = self.ports.get_mut(name) else { return Ok(()) };
        if sources.len() < record.slots.len() {
            self.free_bits(found.into_iter().flatten());
            return Err(FabricError::Limit("the port's worker failed meanwhile"));
        }
        let former: Vec<_> = record.slots.iter().map(|slot| (slot.worker, slot.bit)).collect();
        if let Ok(places) = &found {
            record.spec.worker.clone_from(worker);
            for (slot, &(worker, bit)) in record.slots.iter_mut().zip(places) {
                slot.line.move_to(self.workers[worker].handle.wakeup.clone(), bit);
                (slot.worker, slot.bit) = (worker, bit);
            }
        }
        for (slot, source) in record.slots.iter_mut().zip(sources) {
            slot.is_taken = false;
            let QueueSlot { worker, bit, .. } = *slot;
            self.workers[worker].handle.send(Command::Add { bit, worker, source });
        }
        found?;
        self.free_bits(former);
        self.publish();
        Ok(())
    }

    /// The events and jobs that are due because the wakeup was signalled, or because the last check was long ago.
    pub fn due(&mut self) -> (Vec<Event>, Vec<(String, Job)>) {
        self.wakeup.clear();
        self.deferred.free();
        self.take_over_blocked();
        let mut jobs: Vec<_> = self.replace_workers().into_iter().map(|name| (name, Job::Renew)).collect();
        let mut events = self.new_workers();
        events.extend(self.function_events());
        events.extend(self.wanted());
        events.extend(self.pressed());
        events.extend(self.expired_flows());
        let spent = std::mem::take(&mut *self.spent.lock().unwrap_or_else(PoisonError::into_inner));
        jobs.extend(spent.into_iter().filter_map(|id| Some((self.name_of(id)?, Job::Evict))));
        let checked = self.ports.iter().filter(|(_, record)| !record.is_without_peer());
        jobs.extend(checked.map(|(name, _)| (name.clone(), Job::Check)));
        (events, jobs)
    }

    /// The port with this number.
    pub fn name_of(&self, id: PortId) -> Option<String> {
        self.ports.iter().find(|(_, record)| record.id == id).map(|(name, _)| name.clone())
    }

    /// Does a job, and waits until it is done.
    pub(super) fn now(&mut self, name: &str, job: Job) -> Result<Option<Event>, FabricError> {
        let (mut event, mut next) = (None, self.begin(name, job, None)?);
        while let Some(mut work) = next {
            work.run();
            let done;
            (done, next) = self.end(work);
            for done in done {
                done.result?;
                event = event.or(done.event);
            }
        }
        Ok(event)
    }

    /// Removes a port. When this returns, nothing of the port is in use.
    pub fn remove_port(&mut self, name: &str) -> Result<(), FabricError> {
        self.now(name, Job::Remove).map(drop)
    }

    /// Changes settings of a port that its peer need not know; the peer stays.
    pub fn change_port(&mut self, port: spec::Port) -> Result<(), FabricError> {
        if self.changes_policy_only(&port) {
            self.set_policy(&port.name, port.policy);
            return Ok(());
        }
        self.now(&port.name.clone(), Job::Change(Box::new(port))).map(drop)
    }

    /// Whether a port would only get another policy, which its peer has nothing to do with.
    pub fn changes_policy_only(&self, port: &spec::Port) -> bool {
        let own = self.ports.get(&port.name).map(|record| &record.spec);
        own.is_some_and(|own| spec::Port { policy: port.policy.clone(), ..own.clone() } == *port)
    }

    /// Changes what its switch lets a port send and receive.
    pub(super) fn set_policy(&mut self, name: &str, policy: spec::Policy) {
        let Some(record) = self.ports.get_mut(name).filter(|record| record.spec.policy != policy) else {
            return;
        };
        let before = &record.spec.policy;
        let has_moved = before.vlans != policy.vlans || before.allow_mac != policy.allow_mac;
        let has_other_rules = has_moved || before.allow != policy.allow || before.isolated != policy.isolated;
        (record.policy, record.spec.policy) = (PortPolicy::of(&policy), policy);
        let (id, to) = (record.id, record.spec.to.clone());
        self.publish();
        // Its stations are in other VLANs now, or may not be there at all.
        if let (true, Some(To::Switch(switch))) = (has_moved, to)
            && let Some(made) = self.switches.get(&switch).and_then(|record| record.made.as_ref())
        {
            made.lookup.forget_port(id);
        }
        // Attack: a guest that has claimed to be a router, and may not be one any more.
        if let Some(snooping) = self.snooping_of(name).filter(|_| has_other_rules) {
            snooping.forget_port(id);
        }
    }

    /// What a port's switch knows of groups, if it snoops.
    pub(super) fn snooping_of(&self, port: &str) -> Option<Arc<Snooping>> {
        match &self.ports.get(port)?.spec.to {
            Some(To::Switch(switch)) => self.switches.get(switch)?.snooping.clone(),
            _ => None,
        }
    }

    /// Moves a port to another worker; its peer stays.
    pub fn move_port(&mut self, name: &str, worker: Option<&str>) -> Result<(), FabricError> {
        self.now(name, Job::Move(worker.map(Into::into))).map(drop)
    }

    /// Attaches a peer to a port, with these descriptors.
    pub fn attach(&mut self, name: &str, descriptors: Vec<OwnedFd>) -> Result<(), FabricError> {
        self.now(name, Job::Attach(descriptors)).map(drop)
    }

    /// Passes what was kept of a port's peer by a former process, message by message.
    ///
    /// # Errors
    /// There is no such port.
    pub fn restore(&mut self, name: &str, kept: PeerRecord) -> Result<(), FabricError> {
        if !self.ports.contains_key(name) {
            return Err(FabricError::Unknown("port", name.into()));
        }
        self.kept.entry(name.into()).or_default().push(kept);
        Ok(())
    }

    /// The job that attaches a peer, or, if it is `resumed`, attaches it again with what [`Fabric::restore`] passed.
    pub fn attachment(&mut self, name: &str, resumed: bool, descriptors: Vec<OwnedFd>) -> Job {
        let kept = self.kept.remove(name).unwrap_or_default();
        if resumed { Job::Resume(kept, descriptors) } else { Job::Attach(descriptors) }
    }

    /// Detaches a port's peer, which is gone or must go.
    pub fn detach(&mut self, name: &str) -> Result<(), FabricError> {
        self.now(name, Job::Detach).map(drop)
    }

    /// Serves a session whose socket is readable. Returns the resulting event.
    pub fn serve(&mut self, id: PortId) -> Option<Event> {
        let name = self.name_of(id)?;
        self.now(&name, Job::Serve).ok().flatten()
    }

    /// Checks every port whose peer may have violated the protocol.
    pub fn check(&mut self) -> Vec<Event> {
        let (mut events, jobs) = self.due();
        events.extend(jobs.into_iter().filter_map(|(name, job)| self.now(&name, job).ok().flatten()));
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fabric::tests::{page, started};
    use ringway_spec::{Kind, Policy};
    use ringway_switch::learning;
    use ringway_switch::snooping::{Packet, Query};

    #[test]
    fn what_a_port_said_of_groups_goes_with_its_policy() {
        let mut fabric = started(&["w"], page());
        let lookup =
            Kind::new("learning", &learning::Settings { ageing: 300, entries: 64, refuse_moves: false });
        let snooping = Some(spec::Snooping { fast_leave: false });
        fabric
            .add_switch(spec::Switch { name: "s".into(), lookup, forward_reserved: false, snooping })
            .unwrap();
        let port = Port::new("p", Kind::new("null", &()), Some(To::Switch("s".into())));
        fabric.add_port(port.clone(), 0).unwrap();
        let (id, snooping) = (fabric.ports["p"].id, fabric.snooping_of("p").unwrap());
        let query = Packet::Query(Query {
            group: None,
            response: 1,
            is_router: true,
            is_v6: false,
            lowers_timers: true,
            robustness: 2,
            interval: 1,
        });
        let now = fabric.clock.now();
        let routers = |fabric: &Fabric| fabric.groups("s").unwrap().unwrap().len();
        let stays = Policy { storm: Some(9), ..Policy::default() };
        let guarded = Policy { allow: vec!["10.0.0.2/32".parse().unwrap()], ..Policy::default() };
        let moved = Policy { vlans: Some(spec::Vlans::Access(7)), ..guarded.clone() };
        for (policy, left) in [(stays, 1), (guarded, 0), (moved, 0)] {
            snooping.learn((&query, &Vec::new()), (0, id), now, &mut Vec::new());
            assert_eq!(routers(&fabric), 1);
            fabric.change_port(Port { policy, ..port.clone() }).unwrap();
            assert_eq!(routers(&fabric), left);
        }
    }
}
