//! Requests to trace frames.

use super::{Fabric, FabricError};
use crate::forward::{self, Fate};
use crate::proto::{Trace, Traced, TracedCopy};
use crate::trace::TraceRequest;
use crate::worker::Command;
use ringway_frame::{LARGEST, Needs, Offload, Reason};
use ringway_switch::{Learned, PortId};

impl Fabric {
    /// Has the worker of a port trace a frame. [`Fabric::traced`] returns the answer.
    ///
    /// # Errors
    /// There is no such port, or its offload header contradicts the frame.
    pub fn trace(&mut self, call: u64, trace: Trace) -> Result<(), FabricError> {
        let Trace { port, frame, offload, inject } = trace;
        let record = self.ports.get(&port).filter(|record| !record.leaving);
        let record = record.ok_or_else(|| FabricError::Unknown("port", port.clone()))?;
        if frame.len() > LARGEST as usize {
            return Err(FabricError::LongFrame(LARGEST));
        }
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let offload = Offload::from_bytes(&offload).check(len, Needs::ALL);
        let offload = offload.map_err(|_| FabricError::Offload)?;
        let worker = record.worker().unwrap_or(0);
        let request = TraceRequest {
            call,
            worker: self.workers[worker].spec.name.clone(),
            port: record.id,
            counters: record.faults.clone(),
            frame: (frame, offload),
            inject,
            answers: self.traces.clone(),
            found: None,
        };
        self.workers[worker].handle.send(Command::Trace(Box::new(request)));
        Ok(())
    }

    /// Answers to [`Fabric::trace`], each with the number of its request.
    pub fn traced(&self) -> Vec<(u64, Result<Traced, FabricError>)> {
        let answers = self.traces.take().into_iter();
        let view = |(call, worker, found): (u64, String, _)| match found {
            Some((traced, sent)) => (call, Ok(Traced { worker, sent, ..self.named(traced) })),
            None => (call, Err(FabricError::WorkerEnded)),
        };
        answers.map(view).collect()
    }

    fn named(&self, traced: forward::Traced) -> Traced {
        let forward::Traced { found, learned, dropped, held, copies, omitted } = traced;
        let name = |id: PortId| self.name_of(id).unwrap_or_else(|| format!("(port {id})"));
        let learned = learned.map(|learned| match learned {
            Learned::Known => "known",
            Learned::New => "new",
            Learned::Moved => "moved",
            Learned::Refused => "refused",
        });
        let copy = |copy: forward::TracedCopy| {
            let (fate, reason, hold) = match copy.fate {
                Fate::Delivered => ("delivered", None, 0),
                Fate::Dropped(reason) => ("dropped", Some(reason), 0),
                Fate::Waits(hold) => ("waits", Some(Reason::Full), hold),
                Fate::Busy => ("busy", None, 0),
            };
            TracedCopy {
                port: name(copy.port),
                queue: copy.queue,
                fate: fate.into(),
                reason: reason.map(|reason| reason.name().into()),
                hold,
                completed: copy.completed.map(|(bytes, offload)| (bytes, offload.to_bytes())),
                frames: copy.frames,
            }
        };
        Traced {
            worker: String::new(),
            found: found.into(),
            learned: learned.map(Into::into),
            dropped: dropped.map(|reason| reason.name().into()),
            held,
            copies: copies.into_iter().map(copy).collect(),
            omitted,
            sent: None,
        }
    }
}
