//! Quarantine of ports whose peer's memory held a worker: one worker alone accesses the memory of all such ports.
//!
//! Frames for such a port are copied to a queue in our own memory, from which that worker copies them on; frames from
//! it are copied to our own memory before a destination is locked. So a further access that blocks delays frames of
//! ports in quarantine only. The quarantine begins when the peer is detached, and ends when a peer is attached after
//! [`MIN_DURATION`], so that frames of a flow keep their order.

use super::{Fabric, FabricError, PORTS, QueueSlot, Record, WorkerRecord, spawn_worker};
use crate::forward::Source;
use crate::topology::{Port, RxSlot, Target, Topology};
use crate::wakeup::Line;
use crate::worker::Command;
use ringway_frame::CountersRef;
use ringway_port::frame_queue::FrameQueue;
use ringway_port::relay;
use ringway_spec as spec;
use ringway_switch::PortId;
use std::sync::{Arc, Mutex};

/// The worker's name, which no worker of a fabric file can have.
pub(super) const WORKER: &str = "(quarantine)";
/// Ports in quarantine at most. Attack: many ports whose peers' memory blocks; each takes up to 5 MB for its frames.
const MAX_PORTS: usize = 64;
/// Nanoseconds that a quarantine takes at least.
const MIN_DURATION: u64 = 600_000_000_000;

/// A port's quarantine.
pub(super) struct Quarantine {
    /// When it may end.
    until: u64,
    /// The port that the queue is in the topology, which sends to the next one.
    id: PortId,
    /// The queue's end for senders.
    pub(super) rx: Arc<RxSlot>,
    /// The queue's end for the worker.
    pub(super) slot: QueueSlot,
}

impl Quarantine {
    /// Adds the queue's ports: one that sends, to one that has the `queues` RX queues of the port from `first` on.
    pub(super) fn publish(&self, topology: &mut Topology, record: &Record, hold: u64, first: u32) {
        let port = |target, (first, queues), budget, steer| {
            Some(Arc::new(Port {
                name: (&*record.spec.name).into(),
                target,
                first,
                queues,
                hold,
                held: None,
                steer,
                budget,
                place: None,
                is_suspect: false,
                policy: None,
                // Frames are captured where the port's own queues take them.
                captures: None,
                mirrors: None,
                reassembly: None,
            }))
        };
        let (own, next) = (usize::from(self.id), usize::from(self.id) + 1);
        if topology.ports.len() <= next {
            topology.ports.resize_with(next + 1, || None);
        }
        topology.ports[own] = port(Target::Patch(self.id + 1), (0, 0), None, None);
        let queues = (first, record.rx.len() as u32);
        topology.ports[next] = port(Target::Nowhere, queues, record.budget.clone(), record.steer.clone());
    }
}

impl Fabric {
    /// Begins or extends the quarantine of a port that has no peer.
    pub(super) fn quarantine(&mut self, name: &str) {
        let until = self.clock.now() + MIN_DURATION;
        let Some(record) = self.ports.get_mut(name).filter(|record| record.place.is_none()) else { return };
        if let Some(quarantine) = &mut record.quarantine {
            quarantine.until = until;
            return;
        }
        match self.begin_quarantine(name, until) {
            Ok(()) => tracing::warn!(
                port = name,
                "the port is in quarantine: worker `{WORKER}` serves its queues from now on"
            ),
            Err(error) => tracing::warn!(port = name, %error, "the port can't be put in quarantine"),
        }
    }

    fn begin_quarantine(&mut self, name: &str, until: u64) -> Result<(), FabricError> {
        let taken = |id: &PortId| self.ports.values().any(|record| record.relay() == Some(*id));
        let id = (0..MAX_PORTS).map(|number| (PORTS + 2 * number) as PortId).find(|id| !taken(id));
        let id = id.ok_or(FabricError::Limit("64 ports are in quarantine already, and no more can be"))?;
        if self.worker(WORKER).is_err() {
            self.start_quarantine()?;
        }
        let place = self.take_bits(Some(WORKER), 1)?.first().copied();
        let Some((worker, bit)) = place else { return Ok(()) };
        let line = Arc::new(Line::new(self.workers[worker].handle.wakeup.clone(), bit, name));
        let Some(record) = self.ports.get_mut(name) else { return Ok(()) };
        let frame_queue = Arc::new(FrameQueue::default());
        frame_queue.wakes_receiver(line.clone());
        let (rx, tx) = relay(&frame_queue, record.faults.clone());
        let rx = Arc::new(RxSlot::new(rx, id, CountersRef::private(), None));
        let source = Arc::new(Mutex::new(Source::new(tx, id, 0, CountersRef::private())));
        let slot = QueueSlot { worker, bit, line, source: source.clone(), is_taken: false };
        record.quarantine = Some(Quarantine { until, id, rx, slot });
        // Its own queues follow.
        record.jobs.push_front((super::Job::Move(record.spec.worker.clone()), None));
        self.publish();
        self.workers[worker].handle.send(Command::Add { bit, worker, source });
        Ok(())
    }

    fn start_quarantine(&mut self) -> Result<(), FabricError> {
        let spec = spec::Worker { name: WORKER.into(), core: None, ..self.workers[0].spec.clone() };
        let spec = spec::Worker { node: None, poll: spec::Poll::Adaptive, ..spec };
        let handle = spawn_worker(&spec, &self.published, self.hash, &self.wakeup)?;
        self.watchdog.watch(WORKER, &handle.gauges);
        let (bits, predecessors) = (Vec::new(), Vec::new());
        self.workers.push(WorkerRecord { spec, handle, predecessors, bits, thread: 0 });
        Ok(())
    }

    /// Ends the quarantine of a port that gets a peer, if it has taken long enough; returns whether it did.
    pub(super) fn end_quarantine(&mut self, name: &str) -> bool {
        let now = self.clock.now();
        let record = self.ports.get_mut(name).filter(|record| record.peer.is_some() && !record.leaving);
        let ended = record.and_then(|record| record.quarantine.take_if(|quarantine| quarantine.until <= now));
        let Some(Quarantine { slot, .. }) = ended else { return false };
        self.publish();
        // The worker drops the queue, with the frames for the former peer.
        drop(self.workers[slot.worker].handle.take_back(slot.bit));
        self.free_bits([(slot.worker, slot.bit)]);
        true
    }
}

impl Record {
    /// The number of the port's queue while it is in quarantine.
    fn relay(&self) -> Option<PortId> {
        self.quarantine.as_ref().map(|quarantine| quarantine.id)
    }

    /// Its queues, and that of its quarantine.
    pub(super) fn all_slots(&self) -> impl Iterator<Item = &QueueSlot> {
        self.slots.iter().chain(self.quarantine.as_ref().map(|quarantine| &quarantine.slot))
    }
}
