//! The TX queue, which has no frames.

use ringway_frame::{Burst, TxQueue};
use ringway_mem::Turn;

/// A queue without frames.
#[derive(Debug, Default)]
pub struct NullTx;

impl TxQueue for NullTx {
    fn take<'t>(&mut self, _turn: &'t Turn<'_>, _burst: &mut Burst<'t>) {}

    fn release(&mut self, _turn: &Turn<'_>, _frames: usize) {}

    fn arm(&mut self, _turn: &Turn<'_>) -> bool {
        true
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {}
}
