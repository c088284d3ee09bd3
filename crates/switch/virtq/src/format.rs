//! The device's interface to both ring formats.

use crate::chain::{Chain, Sink};
use crate::error::QueueError;
use ringway_mem::Translate;

/// A buffer of one descriptor that the driver made available.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Head {
    pub address: u64,
    pub len: u32,
    /// The id for the used entry: a split ring's descriptor index, a packed ring's buffer id.
    pub id: u16,
}

/// Why a run of buffers ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As many as requested were found.
    Limit,
    /// No more is available.
    Empty,
    /// The next buffer has several descriptors, or is indirect.
    Chain,
    /// The next buffer is invalid.
    Error(QueueError),
}

/// A device's read position in a ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    /// Split: number of chains, modulo 65,536. Packed: a descriptor's index.
    pub index: u16,
    /// Packed: the driver's wrap counter at this position.
    pub wrap: bool,
}

impl Cursor {
    /// From a vring base of the vhost-user protocol: a split ring's index; a packed ring's index in bits 0 to
    /// 14, its wrap counter in bit 15. A packed ring's index beyond `size` counts as 0.
    pub fn from_base(base: u16, packed: bool, size: u16) -> Cursor {
        if !packed {
            return Cursor { index: base, wrap: false };
        }
        let index = base & 0x7fff;
        Cursor { index: if index < size { index } else { 0 }, wrap: base & 0x8000 != 0 }
    }

    /// The base that [`Cursor::from_base`] converts to this cursor.
    pub fn to_base(self, packed: bool) -> u16 {
        if packed { self.index | u16::from(self.wrap) << 15 } else { self.index }
    }
}

/// How far a device is: what another one needs to go on in its place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The first buffer that is not used.
    pub at: Cursor,
    /// Position of the next used entry.
    pub used: Cursor,
    /// Used entries before this position are visible to the driver for certain.
    pub visible: Cursor,
    /// Packed: the word to store at `visible`, which makes the entries from there on visible.
    pub first: u64,
}

/// The device side of a ring format. Reading advances only a cursor; `write_used` is the first write to the
/// ring.
pub(crate) trait Format<'t>: Copy {
    /// Reads available buffers of one descriptor each into `out`, up to the first chain or indirect table.
    fn gather(&self, at: &mut Cursor, write: bool, out: &mut [Head]) -> (usize, End);

    /// Reads one buffer of any kind; `None` if none is available.
    fn chain<T: Translate<'t>>(
        &self,
        at: &mut Cursor,
        write: bool,
        translate: &mut T,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Chain>, QueueError>;

    /// Whether a buffer is available.
    fn pending(&self, at: Cursor) -> bool;

    /// Advances a cursor over the buffer at its position.
    fn pass(&self, at: &mut Cursor, chain: Chain);

    /// Advances a cursor over `count` buffers of one descriptor.
    fn pass_run(&self, at: &mut Cursor, count: usize);

    /// Number of descriptors.
    fn size(&self) -> u16;

    /// Writes a used entry for a buffer, or for several with `chain.slots` slots in total, and advances over
    /// them.
    fn write_used(&self, used: &mut Used, chain: Chain, len: u32);

    /// Writes used entries for buffers of one descriptor, each with id and length, and advances over them.
    fn write_used_run(&self, used: &mut Used, buffers: impl ExactSizeIterator<Item = (u16, u32)>);

    /// Makes all written entries visible to the driver.
    fn publish(&self, used: &mut Used);

    /// Prefetches the cache lines of the next used entries.
    fn prefetch_used(&self, used: &Used);

    /// Enables or disables the driver's kicks.
    fn set_flag(&self, at: Cursor, wanted: bool);

    /// Whether the driver wants an interrupt for the entries published since `signalled`.
    fn wants_interrupt(&self, signalled: Cursor, used: &Used) -> bool;
}

/// A device's position in the used entries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// Position of the next used entry.
    pub(crate) at: Cursor,
    /// Entries before this position are visible to the driver.
    pub(crate) published: Cursor,
    /// Packed: the word to store at `published`, which makes all entries written since visible.
    pub(crate) first: u64,
    /// Packed: slots published since the driver's event suppression was last checked. Two positions can't
    /// express that the ring wrapped several times since then.
    pub(crate) unsignalled: u32,
}

impl Used {
    /// The state after all entries before `at` were used.
    pub fn new(at: Cursor) -> Used {
        Used { at, published: at, first: 0, unsignalled: 0 }
    }

    /// Position of the next used entry.
    pub fn position(&self) -> Cursor {
        self.at
    }

    /// The progress of a device whose first unused buffer is at `at`.
    #[inline]
    pub(crate) fn progress(&self, at: Cursor) -> Progress {
        Progress { at, used: self.at, visible: self.published, first: self.first }
    }

    /// Whether all written entries are visible.
    #[inline]
    pub fn is_published(&self) -> bool {
        self.at == self.published
    }
}
