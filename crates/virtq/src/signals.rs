//! Notifications, as a device's side of a queue has them.

use crate::layout::Ring;

/// What both kinds of queue have for [`ringway_ring::Notifier`].
pub trait Signals {
    /// Whether the driver wants an interrupt for what was published since this was last asked. A full barrier comes
    /// before.
    fn wants_interrupt(&mut self, ring: &Ring<'_>) -> bool;

    /// Whether something is available that was not taken.
    fn pending(&self, ring: &Ring<'_>) -> bool;

    /// Tells the driver whether to kick for what it makes available from now on.
    fn set_flag(&mut self, ring: &Ring<'_>, wanted: bool);
}
