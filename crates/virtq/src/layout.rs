//! Sizes of a ring's parts.

use crate::error::LayoutError;
use crate::format::{Cursor, Format, Used};
use crate::logged::LoggedRing;
use crate::packed::PackedRing;
use crate::split::SplitRing;
use ringway_mem::SpanMut;

/// Most descriptors a ring has (virtio 1.3, 2.7 and 2.8).
pub const LARGEST: u16 = 32_768;

/// What was agreed about a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// `VIRTIO_F_RING_PACKED`.
    pub packed: bool,
    /// Descriptors.
    pub size: u16,
    /// `VIRTIO_F_EVENT_IDX`.
    pub event_idx: bool,
    /// `VIRTIO_F_INDIRECT_DESC`.
    pub indirect: bool,
}

/// Bytes that a ring's areas take.
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
        // The event indices are there only where they are agreed on.
        let event = if self.event_idx { 2 } else { 0 };
        Ok(Lengths { descriptors: 16 * size, driver: 4 + 2 * size + event, device: 4 + 8 * size + event })
    }
}

/// Where a ring's parts lie, in the words of virtio 1.3, 2.6.
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
    /// Whether a ring of this layout fits, aligned as virtio 1.3, 2.7 and 2.8.10.1 have it.
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
    /// Either, while what its device writes is logged.
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

    /// Shows the driver all that its device used before `used`, where the device that may have held some of it back is
    /// gone. Nothing is ever held back on a packed ring, of which only its device knows what is not visible yet.
    pub fn settle(&self, used: Cursor) {
        match self {
            Ring::Split(ring) => ring.publish(&mut Used::new(used)),
            Ring::Logged(ring) if ring.split().is_some() => ring.publish(&mut Used::new(used)),
            Ring::Packed(_) | Ring::Logged(_) => {}
        }
    }

    /// The used index in a split ring's memory, where a device that is new to it goes on.
    pub fn used_index(&self) -> Option<u16> {
        match self {
            Ring::Split(ring) => Some(ring.used_index()),
            Ring::Packed(_) => None,
            Ring::Logged(ring) => ring.split().map(SplitRing::used_index),
        }
    }
}
