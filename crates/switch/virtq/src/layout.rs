//! Sizes of a ring's areas.

use crate::error::LayoutError;
use crate::format::{Cursor, Format, Progress, Used};
use crate::logged::LoggedRing;
use crate::packed::PackedRing;
use crate::split::SplitRing;
use ringway_mem::SpanMut;

/// Largest number of descriptors of a ring (virtio 1.3, 2.7 and 2.8).
pub const LARGEST: u16 = 32_768;

/// Negotiated parameters of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `VIRTIO_F_RING_PACKED`.
    pub packed: bool,
    /// Number of descriptors.
    pub size: u16,
    /// `VIRTIO_F_EVENT_IDX`.
    pub event_idx: bool,
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub indirect: bool,
}

/// Sizes of a ring's areas in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lengths {
    /// The descriptor area.
    pub descriptors: u32,
    /// The driver area: a split ring's available ring.
    pub driver: u32,
    /// The device area: a split ring's used ring.
    pub device: u32,
}

impl Layout {
    /// The lengths of the three areas (virtio 1.3, 2.7 and 2.8.10.1).
    pub fn lengths(&self) -> Result<Lengths, LayoutError> {
        let size = u32::from(self.size);
        if self.size == 0 || self.size > LARGEST || !self.packed && !self.size.is_power_of_two() {
            return Err(LayoutError::Size);
        }
        if self.packed {
            return Ok(Lengths { descriptors: 16 * size, driver: 4, device: 4 });
        }
        // `used_event` and `avail_event` exist only if negotiated.
        let event = if self.event_idx { 2 } else { 0 };
        Ok(Lengths { descriptors: 16 * size, driver: 4 + 2 * size + event, device: 4 + 8 * size + event })
    }
}

/// Memory of a ring's areas, named as in virtio 1.3, 2.6.
#[derive(Clone, Copy, Debug)]
pub struct Areas<'t> {
    /// The descriptor area.
    pub descriptors: SpanMut<'t>,
    /// The driver area: a split ring's available ring, a packed ring's driver event suppression.
    pub driver: SpanMut<'t>,
    /// The device area: a split ring's used ring, a packed ring's device event suppression.
    pub device: SpanMut<'t>,
}

impl Areas<'_> {
    /// Whether a ring of this layout fits, aligned as required by virtio 1.3, 2.7 and 2.8.10.1.
    #[inline]
    pub(crate) fn check(&self, layout: &Layout) -> Result<(), LayoutError> {
        let lengths = layout.lengths()?;
        let driver = if layout.packed { 4 } else { 2 };
        let fits = |span: SpanMut<'_>, len: u32| span.len() >= len as usize;
        let aligned = |span: SpanMut<'_>, to: usize| span.as_span().address() & (to - 1) == 0;
        if !fits(self.descriptors, lengths.descriptors)
            || !fits(self.driver, lengths.driver)
            || !fits(self.device, lengths.device)
        {
            return Err(LayoutError::Short);
        }
        if !aligned(self.descriptors, 16) || !aligned(self.driver, driver) || !aligned(self.device, 4) {
            return Err(LayoutError::Alignment);
        }
        Ok(())
    }
}

/// A ring in memory, of either format.
#[derive(Clone, Copy, Debug)]
pub enum Ring<'t> {
    /// A split ring.
    Split(SplitRing<'t>),
    /// A packed ring.
    Packed(PackedRing<'t>),
    /// A ring of either format whose writes by the device are logged.
    Logged(LoggedRing<'t>),
}

impl<'t> Ring<'t> {
    /// The ring in `areas`.
    #[inline]
    pub fn new(layout: &Layout, areas: Areas<'t>) -> Result<Ring<'t>, LayoutError> {
        if layout.packed {
            Ok(Ring::Packed(PackedRing::new(layout, areas)?))
        } else {
            Ok(Ring::Split(SplitRing::new(layout, areas)?))
        }
    }

    /// Publishes the used entries before `used` on behalf of a device that is gone and may have delayed
    /// publishing them. A packed ring's device never delays it, since no other knows the unpublished entries.
    pub fn publish_used_before(&self, used: Cursor) {
        match self {
            Ring::Split(ring) => ring.publish(&mut Used::new(used)),
            Ring::Logged(ring) if ring.split().is_some() => ring.publish(&mut Used::new(used)),
            Ring::Packed(_) | Ring::Logged(_) => {}
        }
    }

    /// Ends the last burst of a device that is gone, and that recorded its [`Progress`] before it published.
    /// Returns the positions from which another device goes on.
    pub fn complete(&self, progress: Progress) -> (Cursor, Cursor) {
        let packed = match self {
            Ring::Split(_) => None,
            Ring::Packed(ring) => Some(ring),
            Ring::Logged(ring) => ring.packed(),
        };
        match packed {
            Some(ring) => {
                let at = ring.complete(&progress);
                (at, at)
            }
            None => {
                self.publish_used_before(progress.used);
                (progress.at, progress.used)
            }
        }
    }

    /// A split ring's used index in memory, where a new device continues.
    pub fn used_index(&self) -> Option<u16> {
        match self {
            Ring::Split(ring) => Some(ring.used_index()),
            Ring::Packed(_) => None,
            Ring::Logged(ring) => ring.split().map(SplitRing::used_index),
        }
    }
}
