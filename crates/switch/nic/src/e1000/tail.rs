//! Where the driver's tails and the device's heads are: in registers, or in the shared block.

use super::registers as reg;
use super::shared::Bus;
use crate::csb::Csb;
use crate::engine::Direction;

/// The tail that the driver wrote. The driver's earlier stores are visible afterwards.
#[inline]
pub(crate) fn tail(bus: &Bus<'_>, csb: Option<Csb<'_>>, direction: Direction) -> u32 {
    match csb {
        Some(csb) => csb.tail(direction),
        None => bus.shared.load(if direction == Direction::Tx { reg::TDT } else { reg::RDT }),
    }
}

/// Stores the head where the driver may look for it.
#[inline]
pub(crate) fn set_head(bus: &Bus<'_>, csb: Option<Csb<'_>>, direction: Direction, head: u32) {
    bus.shared.store(if direction == Direction::Tx { reg::TDH } else { reg::RDH }, head);
    if let Some(csb) = csb {
        csb.set_head(direction, head);
    }
}
