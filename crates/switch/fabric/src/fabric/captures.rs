//! The captures of a fabric.

use super::{Fabric, FabricError};
use crate::capture::{CAPTURES, CaptureBuffer, CapturePoint};
use crate::proto::Capture;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Captures by number, and the ports that they concern.
#[derive(Default)]
pub(super) struct Captures {
    running: BTreeMap<u64, Arc<CaptureBuffer>>,
    /// Since which capture each port is captured without a pause.
    epochs: BTreeMap<String, u64>,
}

impl Captures {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Their numbers.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.running.keys().copied()
    }

    /// The captures of a port; a port that was removed and added again has those of its name.
    pub(super) fn of_port(&self, port: &str) -> Option<Arc<CapturePoint>> {
        let epoch = *self.epochs.get(port)?;
        let number = |buffer: &CaptureBuffer| buffer.ports().iter().position(|name| name == port);
        let list = self
            .running
            .values()
            .filter_map(|buffer| Some((buffer.clone(), u16::try_from(number(buffer)?).ok()?)));
        Some(Arc::new(CapturePoint { epoch, list: list.collect() }))
    }
}

impl Fabric {
    /// Begins capture `number` into `memory`. Ports that do not exist are captured once they do.
    pub fn capture(&mut self, number: u64, capture: Capture, memory: &OwnedFd) -> Result<(), FabricError> {
        if self.captures.running.len() >= CAPTURES {
            return Err(FabricError::Limit("a fabric has 16 captures at most; end one"));
        }
        let buffer = CaptureBuffer::new(memory, capture)?;
        for port in buffer.ports() {
            self.captures.epochs.entry(port.clone()).or_insert(number);
        }
        self.captures.running.insert(number, Arc::new(buffer));
        self.publish();
        Ok(())
    }

    /// Ends a capture; its memory is not written any more after the turns that may see it.
    pub fn end_capture(&mut self, number: u64) {
        let Captures { running, epochs } = &mut self.captures;
        running.remove(&number);
        epochs.retain(|port, _| running.values().any(|buffer| buffer.ports().contains(port)));
        self.publish();
    }
}
