//! Notifications on the device side of a queue.

use crate::layout::Ring;

/// The operations of all queue types that [`ringway_ring::Notifier`] needs.
pub trait Signals {
    /// Whether the driver wants an interrupt for entries published since the last call. The caller has
    /// executed a full barrier.
    fn wants_interrupt(&mut self, ring: &Ring<'_>) -> bool;

    /// Whether there are available buffers that were not taken.
    fn pending(&self, ring: &Ring<'_>) -> bool;

    /// Tells the driver whether to kick for buffers that it makes available from now on.
    fn set_flag(&mut self, ring: &Ring<'_>, wanted: bool);
}
