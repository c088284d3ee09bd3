//! The captures of a fabric.

use super::{Fabric, FabricError};
use crate::capture::{CAPTURES, Tap, Taps};
use crate::proto::Capture;
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Captures by number, and the ports that they concern.
#[derive(Default)]
pub(super) struct Captures {
    taps: BTreeMap<u64, Arc<Tap>>,
    /// Since which capture each port is captured without a pause.
    epochs: BTreeMap<String, u64>,
}

impl Captures {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.taps.is_empty()
    }

    /// Their numbers.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.taps.keys().copied()
    }

    /// The taps of a port; a port that was removed and added again has those of its name.
    pub(super) fn taps(&self, port: &str) -> Option<Arc<Taps>> {
        let epoch = *self.epochs.get(port)?;
        let number = |tap: &Tap| tap.ports().iter().position(|name| name == port);
        let list =
            self.taps.values().filter_map(|tap| Some((tap.clone(), u16::try_from(number(tap)?).ok()?)));
        Some(Arc::new(Taps { epoch, list: list.collect() }))
    }
}

impl Fabric {
    /// Begins capture `number` into `memory`. Ports that do not exist are captured once they do.
    pub fn capture(&mut self, number: u64, capture: Capture, memory: &OwnedFd) -> Result<(), FabricError> {
        if self.captures.taps.len() >= CAPTURES {
            return Err(FabricError::Limit("a fabric has 16 captures at most; end one"));
        }
        let tap = Tap::new(memory, capture)?;
        for port in tap.ports() {
            self.captures.epochs.entry(port.clone()).or_insert(number);
        }
        self.captures.taps.insert(number, Arc::new(tap));
        self.publish();
        Ok(())
    }

    /// Ends a capture; its memory is not written any more after the turns that may see it.
    pub fn end_capture(&mut self, number: u64) {
        let Captures { taps, epochs } = &mut self.captures;
        taps.remove(&number);
        epochs.retain(|port, _| taps.values().any(|tap| tap.ports().contains(port)));
        self.publish();
    }
}
