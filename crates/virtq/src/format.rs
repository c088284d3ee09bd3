//! What the two formats have in common for a device.

use crate::chain::{Chain, Sink};
use crate::error::QueueError;
use ringway_mem::Translate;

/// A buffer of one descriptor that the driver made available.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    pub address: u64,
    pub len: u32,
    /// What names the buffer when it is used: a split ring's first descriptor, a packed ring's id.
    pub id: u16,
}

/// Why a run of buffers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// No more was asked for.
    Asked,
    /// No more is available.
    Empty,
    /// The next buffer has several descriptors, or is indirect.
    Chain,
    /// The next one breaks the rules.
    Error(QueueError),
}

/// A device's place in a ring: how far it has read what is available.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Split: counts chains, modulo 65,536. Packed: the number of a descriptor.
    pub index: u16,
    /// Packed: the driver's wrap counter there.
    pub wrap: bool,
}

impl Cursor {
    /// From a vring's base in the vhost-user protocol: a split ring's index; a packed ring's in bits 0 to 14, its wrap
    /// counter in bit 15. A packed ring's index past its `size` counts as 0.
    pub fn from_base(base: u16, packed: bool, size: u16) -> Cursor {
        if !packed {
            return Cursor { index: base, wrap: false };
        }
        let index = base & 0x7fff;
        Cursor { index: if index < size { index } else { 0 }, wrap: base & 0x8000 != 0 }
    }

    /// The base that [`Cursor::from_base`] makes this of.
    pub fn to_base(self, packed: bool) -> u16 {
        if packed { self.index | u16::from(self.wrap) << 15 } else { self.index }
    }
}

/// The device's side of a ring format. A place moves over what was read; nothing is written until `write_used`.
pub(crate) trait Format<'t>: Copy {
    /// Reads buffers of one descriptor, as many as there are and as fit, up to the first chain.
    fn gather(&self, at: &mut Cursor, write: bool, out: &mut [Head]) -> (usize, End);

    /// Reads one buffer of any kind; `None`: none is available.
    fn chain<T: Translate<'t>>(
        &self,
        at: &mut Cursor,
        write: bool,
        translate: &mut T,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Chain>, QueueError>;

    /// Whether something is available.
    fn pending(&self, at: Cursor) -> bool;

    /// Moves a place over a buffer that was read there.
    fn pass(&self, at: &mut Cursor, chain: Chain);

    /// Moves a place over `count` buffers of one descriptor.
    fn pass_run(&self, at: &mut Cursor, count: usize);

    /// Descriptors of the ring.
    fn size(&self) -> u16;

    /// Writes a buffer as used, or as the last of several of so many slots together, and moves over them.
    fn write_used(&self, used: &mut Used, chain: Chain, len: u32);

    /// Writes buffers of one descriptor as used, each by its id and the bytes written into it, and moves over them.
    fn write_used_run(&self, used: &mut Used, buffers: impl ExactSizeIterator<Item = (u16, u32)>);

    /// Makes everything written visible to the driver.
    fn publish(&self, used: &mut Used);

    /// Asks for the lines where the next used buffers are to be written.
    fn prefetch_used(&self, used: &Used);

    /// The flag by which the driver knows whether to kick.
    fn set_flag(&self, at: Cursor, wanted: bool);

    /// Whether the driver wants an interrupt for what was published since `signalled`.
    fn wants_interrupt(&self, signalled: Cursor, used: &Used) -> bool;
}

/// A device's place among the used buffers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Where the next used buffer is written.
    pub(crate) at: Cursor,
    /// Up to where the driver can see them.
    pub(crate) published: Cursor,
    /// Packed: what is still to be stored at `published`, the first buffer of those not visible yet.
    pub(crate) first: u64,
    /// Packed: places published since the driver was last looked at, whether it wants an interrupt. Between two such
    /// looks the ring may go round any number of times, which two places alone don't tell.
    pub(crate) untold: u32,
}

impl Used {
    /// A device that has used everything up to `at`.
    pub fn new(at: Cursor) -> Used {
        Used { at, published: at, first: 0, untold: 0 }
    }

    /// Where the next used buffer is written.
    pub fn place(&self) -> Cursor {
        self.at
    }

    /// Whether everything written is visible.
    #[inline]
    pub fn is_published(&self) -> bool {
        self.at == self.published
    }
}
