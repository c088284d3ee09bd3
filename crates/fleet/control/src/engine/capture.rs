//! Captures while they run.

use super::{Engine, EngineError, Failure};
use crate::captures::{Begun, CaptureRequest};
use crate::kinds;
use ringway_fabric::capture::{CAPTURED_PORTS, CAPTURES};
use ringway_fabric::proto::{Capture, Request};
use ringway_host::{HostError, Mapping, memfd};
use ringway_ring::capture::Geometry;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;

/// Bytes for copies that a client has not read: least and most. Attack: a capture that takes the host's memory.
const BUFFER: (u64, u64) = (64 << 10, 4 << 30);

/// The captures of a fabric, by number.
#[derive(Default)]
pub(super) struct Captures {
    running: BTreeMap<u64, Running>,
    last: u64,
}

struct Running {
    capture: Capture,
    memory: OwnedFd,
}

impl Engine {
    /// Begins a capture.
    pub(super) async fn begin_capture(&mut self, request: CaptureRequest) -> Result<Begun, Failure> {
        let CaptureRequest { capture, buffer } = request;
        self.check_capture(&capture)?;
        let buffer = buffer.clamp(BUFFER.0, BUFFER.1) as usize;
        // A worker more than there are: one whose thread is blocked may have its lane locked.
        let geometry = Geometry::new(self.fabric.workers.len() + 1, capture.ports.len(), buffer);
        let memory = capture_memory(&geometry).map_err(Failure::conflict)?;
        let copies = memory.try_clone().and_then(|first| Ok((first, memory.try_clone()?)));
        let (sent, returned) = copies.map_err(Failure::conflict)?;
        self.captures.last += 1;
        let number = self.captures.last;
        let begin = Request::Capture { number, capture: capture.clone() };
        let begun = self.call_with("the capture", begin, vec![sent]).await;
        begun.map_err(Failure::conflict)?;
        tracing::info!(number, ports = capture.ports.join(" "), filter = capture.filter, "a capture began");
        self.captures.running.insert(number, Running { capture, memory });
        Ok(Begun { number, memory: returned })
    }

    fn check_capture(&self, capture: &Capture) -> Result<(), Failure> {
        let wrong = |what: String| Err(Failure::wrong(what));
        if self.captures.running.len() >= CAPTURES {
            return wrong(format!("{CAPTURES} captures run, which is the most; end one"));
        }
        if capture.ports.is_empty() || capture.ports.len() > CAPTURED_PORTS {
            return wrong(format!("a capture has from 1 to {CAPTURED_PORTS} ports"));
        }
        let mut names = BTreeSet::new();
        for name in &capture.ports {
            let port = self.port(name)?;
            if !names.insert(name) {
                return wrong(format!("port \"{name}\" is named twice"));
            }
            if kinds::find(port.kind.name(), self.host.kinds).is_some_and(|kind| !kind.is_in_data()) {
                let kind = port.kind.name();
                return wrong(format!(
                    "port \"{name}\" can't be captured: the two programs of a {kind} exchange frames without \
                     Ringway"
                ));
            }
        }
        Ok(())
    }

    /// Ends a capture.
    pub(super) async fn end_capture(&mut self, number: u64) {
        if self.captures.running.remove(&number).is_some() {
            tracing::info!(number, "a capture ended");
            // A `data` process that is gone has no captures.
            let _ = self.call_with("the capture", Request::EndCapture { number }, Vec::new()).await;
        }
    }

    /// Lets the captures go on in a `data` process that was started again.
    pub(super) async fn resume_captures(&mut self) {
        let running = &self.captures.running;
        let all: Vec<_> = running
            .iter()
            .map(|(number, running)| (*number, running.capture.clone(), running.memory.try_clone()))
            .collect();
        for (number, capture, memory) in all {
            let begin = Request::Capture { number, capture };
            let resumed = match memory {
                Ok(memory) => self.call_with("the capture", begin, vec![memory]).await.map(drop),
                Err(error) => Err(EngineError::Page(error.into())),
            };
            if let Err(error) = resumed {
                tracing::error!(%error, number, "a capture is lost");
            }
        }
    }
}

fn capture_memory(geometry: &Geometry) -> Result<OwnedFd, HostError> {
    let memory = memfd("ringway-capture", geometry.bytes())?;
    geometry.initialize(Mapping::sealed(&memory)?.words());
    Ok(memory)
}
