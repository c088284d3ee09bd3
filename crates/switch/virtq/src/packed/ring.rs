//! Memory of a packed ring.

use crate::error::LayoutError;
use crate::format::Cursor;
use crate::layout::{Areas, Layout};
use ringway_mem::{Pairs, Words};

/// `flags`: in an available descriptor, equal to the driver's wrap counter.
pub(super) const AVAIL: u16 = 1 << 7;
/// `flags`: in a used descriptor, equal to the wrap counter; in an available one, its inverse.
pub(super) const USED: u16 = 1 << 15;

/// Event suppression structure: indices of its 16-bit words, and values of its flags (virtio 1.3, 2.8.14).
pub(super) const OFF_WRAP: usize = 0;
pub(super) const FLAGS: usize = 1;
pub(super) const ENABLE: u16 = 0;
pub(super) const DISABLE: u16 = 1;
pub(super) const DESC: u16 = 2;

/// A packed ring in memory.
#[derive(Clone, Copy, Debug)]
pub struct PackedRing<'t> {
    pub(super) descriptors: Pairs<'t>,
    /// Driver event suppression.
    pub(super) driver: Words<'t, u16>,
    /// Device event suppression.
    pub(super) device: Words<'t, u16>,
    pub(super) size: u16,
    pub(super) event_idx: bool,
    pub(super) indirect: bool,
}

impl<'t> PackedRing<'t> {
    /// The ring in `areas`.
    #[inline]
    pub fn new(layout: &Layout, areas: Areas<'t>) -> Result<PackedRing<'t>, LayoutError> {
        areas.check(layout)?;
        let both = (Words::new(areas.driver), Words::new(areas.device));
        let descriptors = Pairs::new(areas.descriptors, layout.size);
        let (Some(descriptors), (Some(driver), Some(device))) = (descriptors, both) else {
            return Err(LayoutError::Alignment);
        };
        let Layout { size, event_idx, indirect, .. } = *layout;
        Ok(PackedRing { descriptors, driver, device, size, event_idx, indirect })
    }

    /// Advances a position by `slots`.
    #[inline]
    pub(super) fn advance(&self, at: &mut Cursor, slots: u16) {
        // Both are at most 32,768.
        let index = u32::from(at.index) + u32::from(slots);
        let size = u32::from(self.size);
        if index >= size {
            at.index = (index - size) as u16;
            at.wrap = !at.wrap;
        } else {
            at.index = index as u16;
        }
    }

    /// How many of the `count` slots from `at` on come before the ring wraps; at least one.
    #[inline]
    pub(super) fn run(&self, at: Cursor, count: usize) -> usize {
        count.min(usize::from(self.size.saturating_sub(at.index))).max(1)
    }

    /// Number of slots from `from` to `to`, at most the ring's size.
    #[inline]
    pub(super) fn distance(&self, from: Cursor, to: Cursor) -> u32 {
        let round = if from.wrap == to.wrap { 0 } else { u32::from(self.size) };
        (u32::from(to.index) + round).wrapping_sub(u32::from(from.index))
    }

    /// Whether moving from `old` to `new` passes the position `event`. The positions are at most the ring's
    /// size apart.
    pub(super) fn passes(&self, event: u16, old: Cursor, new: Cursor) -> bool {
        let wrap = event & 0x8000 != 0;
        let size = u32::from(self.size);
        let index = u32::from(event & 0x7fff);
        if index >= size {
            return true;
        }
        // Number of descriptors from a position to `new`.
        let back = |at: u32, same: bool| {
            let new = u32::from(new.index);
            if same { new.wrapping_sub(at) } else { (new + size).wrapping_sub(at) }
        };
        let event = back(index, wrap == new.wrap);
        let old = back(u32::from(old.index), old.wrap == new.wrap);
        event.wrapping_sub(1) < old
    }

    /// The flags of an available descriptor for the wrap counter `wrap`.
    #[inline]
    pub(super) fn available(wrap: bool) -> u16 {
        if wrap { AVAIL } else { USED }
    }

    /// The flags of a used descriptor for the wrap counter `wrap`.
    #[inline]
    pub(super) fn used(wrap: bool) -> u16 {
        if wrap { AVAIL | USED } else { 0 }
    }
}
