//! Memory of a split ring.

use crate::descriptor::Descriptor;
use crate::error::LayoutError;
use crate::layout::{Areas, Layout};
use ringway_mem::{Pairs, SpanMut, Words};

/// `VIRTQ_AVAIL_F_NO_INTERRUPT` in the available ring's flags, `VIRTQ_USED_F_NO_NOTIFY` in the used ring's.
pub(super) const NO_NOTIFICATION: u16 = 1;
/// Indices of 16-bit words in either ring: `flags`, `idx`, the first entry.
pub(super) const FLAGS: usize = 0;
pub(super) const IDX: usize = 1;
const ENTRIES: usize = 2;

/// A split ring in memory.
#[derive(Clone, Copy, Debug)]
pub struct SplitRing<'t> {
    pub(super) descriptors: Pairs<'t>,
    pub(super) available: Words<'t, u16>,
    /// The used ring as 16-bit words, for its `flags`, `idx` and `avail_event`.
    pub(super) used: Words<'t, u16>,
    /// The used ring's entries.
    pub(super) entries: SpanMut<'t>,
    pub(crate) size: u16,
    pub(crate) event_idx: bool,
    pub(super) indirect: bool,
}

impl<'t> SplitRing<'t> {
    /// The ring in `areas`.
    #[inline]
    pub fn new(layout: &Layout, areas: Areas<'t>) -> Result<SplitRing<'t>, LayoutError> {
        areas.check(layout)?;
        let both = (Words::new(areas.driver), Words::new(areas.device));
        let descriptors = Pairs::new(areas.descriptors, layout.size);
        let (Some(descriptors), (Some(available), Some(used))) = (descriptors, both) else {
            return Err(LayoutError::Alignment);
        };
        let entries = areas.device.split(2 * ENTRIES).1;
        let Layout { size, event_idx, indirect, .. } = *layout;
        Ok(SplitRing { descriptors, available, used, entries, size, event_idx, indirect })
    }

    #[inline]
    pub(super) fn mask(&self) -> u16 {
        self.size.wrapping_sub(1)
    }

    #[inline]
    pub(super) fn descriptor(&self, index: u16) -> Descriptor {
        let at = usize::from(index);
        Descriptor::split(self.descriptors.first(at), self.descriptors.second(at))
    }

    #[inline]
    pub(super) fn available_at(&self, index: u16) -> usize {
        ENTRIES + usize::from(index & self.mask())
    }

    /// Index in the available ring of `used_event`, the used index at which the driver wants an interrupt.
    #[inline]
    pub(super) fn used_event(&self) -> usize {
        ENTRIES + usize::from(self.size)
    }

    /// Index in the used ring of `avail_event`, the available index at which the device wants a kick.
    #[inline]
    pub(crate) fn avail_event(&self) -> usize {
        ENTRIES + 4 * usize::from(self.size)
    }

    /// The used index in memory, where a new device continues.
    pub fn used_index(&self) -> u16 {
        self.used.load(IDX)
    }
}

/// Whether moving an index from `old` to `new` passes `event` (virtio 1.3, 2.7.10.1).
#[inline]
pub(super) fn passes(event: u16, old: u16, new: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
