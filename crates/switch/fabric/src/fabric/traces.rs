//! Requests to trace frames.

use super::{Fabric, FabricError};
use crate::proto::{LearnedAddress, Trace, Traced};
use crate::trace::TraceRequest;
use crate::worker::Command;
use ringway_frame::{LARGEST, Needs, Offload};
use ringway_switch::{Mac, PortId, Station};

/// Most addresses that a request may have.
const LEARNED: usize = 256;

impl Fabric {
    /// Has the worker of a port trace a frame. [`Fabric::traced`] returns the answer.
    ///
    /// # Errors
    /// There is no such port, or its offload header contradicts the frame.
    pub fn trace(&mut self, call: u64, trace: Trace) -> Result<(), FabricError> {
        let Trace { port, frame, offload, inject, learned } = trace;
        let record = self.ports.get(&port).filter(|record| !record.leaving);
        let record = record.ok_or_else(|| FabricError::Unknown("port", port.clone()))?;
        if frame.len() > LARGEST as usize {
            return Err(FabricError::LongFrame(LARGEST));
        }
        let len = u32::try_from(frame.len()).unwrap_or(u32::MAX);
        let offload = Offload::from_bytes(&offload).check(len, Needs::ALL);
        let offload = offload.map_err(|_| FabricError::Offload)?;
        let worker = record.worker().unwrap_or(0);
        let station = |one: &LearnedAddress| {
            let id = self.ports.get(&one.port).map(|record| record.id)?;
            Some((Station::new(Mac::new(one.mac.0), one.vlan), id))
        };
        let request = TraceRequest {
            call,
            worker: self.workers[worker].spec.name.clone(),
            port: record.id,
            counters: record.faults.clone(),
            frame: (frame, offload),
            learned: learned.iter().take(LEARNED).filter_map(station).collect(),
            inject,
            answers: self.traces.clone(),
            answer: None,
        };
        self.workers[worker].handle.send(Command::Trace(Box::new(request)));
        Ok(())
    }

    /// Answers to [`Fabric::trace`], each with the number of its request.
    pub fn traced(&self) -> Vec<(u64, Result<Traced, FabricError>)> {
        let answers = self.traces.take().into_iter();
        let name = |id: PortId| self.name_of(id).unwrap_or_else(|| format!("(port {id})"));
        let view = |(call, worker, answer): (u64, String, _)| match answer {
            Some((traced, sent)) => (call, Ok(Traced { worker, sent, ..Traced::of(traced, name) })),
            None => (call, Err(FabricError::WorkerEnded)),
        };
        answers.map(view).collect()
    }
}
