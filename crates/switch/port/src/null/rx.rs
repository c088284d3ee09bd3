//! The RX queue, which discards frames.

use ringway_frame::{Burst, Caps, Lost, RxQueue};
use ringway_mem::Turn;

/// A queue that is never full.
#[derive(Debug)]
pub struct NullRx {
    caps: Caps,
}

impl NullRx {
    /// A queue of these capabilities.
    pub fn new(caps: Caps) -> NullRx {
        NullRx { caps }
    }
}

impl RxQueue for NullRx {
    fn caps(&mut self, _turn: &Turn<'_>) -> Option<Caps> {
        Some(self.caps)
    }

    fn reserve(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
        which.len()
    }

    fn put(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, _which: &[u16]) -> Lost {
        Lost::default()
    }

    fn publish(&mut self, _turn: &Turn<'_>) {}
}
