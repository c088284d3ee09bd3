//! A ring whose writes by the device are logged (vhost-user protocol, "Migration").

use crate::chain::{Chain, Sink};
use crate::error::QueueError;
use crate::format::{Cursor, End, Format, Head, Used};
use crate::layout::Ring;
use crate::packed::PackedRing;
use crate::split::SplitRing;
use alloc::sync::Arc;
use ringway_mem::{DirtyLog, Extents, Translate};

/// Size of a descriptor in bytes.
const DESCRIPTOR: usize = 16;
/// Size of a used ring's entry.
const ENTRY: usize = 8;
/// Size of a flags or index field.
const WORD: usize = 2;

/// Logs the device's writes to a ring. The hypervisor tracks the driver's.
#[derive(Debug)]
pub struct Tracker {
    /// The log.
    pub log: Arc<DirtyLog>,
    /// Guest-physical ranges of a packed ring's descriptor area. A device doesn't write a split ring's.
    pub descriptors: Extents,
    /// Guest-physical ranges of the device area.
    pub device: Extents,
    /// Where to log writes to the device area in addition to `device`: the protocol's `log_guest_addr`.
    pub log_address: Option<u64>,
}

impl Tracker {
    /// Marks all areas that the device may have written.
    pub fn mark_all(&self) {
        self.descriptors.mark_all(&self.log);
        self.device.mark_all(&self.log);
    }

    fn device(&self, offset: usize, len: usize) {
        self.device.mark(&self.log, offset, len);
        if let Some(guest) = self.log_address.and_then(|log_address| log_address.checked_add(offset as u64)) {
            self.log.mark(guest, len as u64);
        }
    }

    /// Calls `mark` with the index and length of each contiguous run of `count` slots from `index` on, in a
    /// ring of `size` slots.
    fn mark_slots(&self, (index, count, size): (u16, usize, u16), mark: impl Fn(usize, usize)) {
        let (index, size) = (usize::from(index), usize::from(size));
        let count = count.min(size);
        let until_wrap = count.min(size - index.min(size));
        mark(index, until_wrap);
        if count > until_wrap {
            mark(0, count - until_wrap);
        }
    }

    /// Marks entries of a split ring's used ring.
    fn entries(&self, ring: &SplitRing<'_>, index: u16, count: usize) {
        let index = index & ring.size.wrapping_sub(1);
        self.mark_slots((index, count, ring.size), |at, count| {
            self.device(2 * WORD + ENTRY * at, ENTRY * count);
        });
    }

    /// Marks descriptors of a packed ring.
    fn used(&self, ring: &PackedRing<'_>, index: u16, count: usize) {
        self.mark_slots((index, count, Format::size(ring)), |at, count| {
            self.descriptors.mark(&self.log, DESCRIPTOR * at, DESCRIPTOR * count);
        });
    }
}

/// Keeps rarely used code out of line.
#[cold]
#[inline(never)]
pub(crate) fn out_of_line<R>(body: impl FnOnce() -> R) -> R {
    body()
}

/// A ring of either format that marks each write after doing it.
#[derive(Clone, Copy, Debug)]
pub struct LoggedRing<'t> {
    ring: Plain<'t>,
    tracker: &'t Tracker,
}

#[derive(Clone, Copy, Debug)]
enum Plain<'t> {
    Split(SplitRing<'t>),
    Packed(PackedRing<'t>),
}

macro_rules! plain {
    ($self:expr, $name:ident => $body:expr) => {
        match &$self.ring {
            Plain::Split($name) => $body,
            Plain::Packed($name) => $body,
        }
    };
}

impl<'t> Ring<'t> {
    /// Makes the ring log its writes in `tracker`.
    #[cold]
    #[must_use]
    pub fn logged(self, tracker: &'t Tracker) -> Ring<'t> {
        let ring = match self {
            Ring::Split(ring) => Plain::Split(ring),
            Ring::Packed(ring) => Plain::Packed(ring),
            Ring::Logged(logged) => logged.ring,
        };
        Ring::Logged(LoggedRing { ring, tracker })
    }
}

impl<'t> LoggedRing<'t> {
    /// The ring, if it is a split one.
    pub(crate) fn split(&self) -> Option<&SplitRing<'t>> {
        match &self.ring {
            Plain::Split(ring) => Some(ring),
            Plain::Packed(_) => None,
        }
    }

    /// The ring, if it is a packed one.
    pub(crate) fn packed(&self) -> Option<&PackedRing<'t>> {
        match &self.ring {
            Plain::Split(_) => None,
            Plain::Packed(ring) => Some(ring),
        }
    }
}

impl<'t> Format<'t> for LoggedRing<'t> {
    fn gather(&self, at: &mut Cursor, write: bool, out: &mut [Head]) -> (usize, End) {
        plain!(self, ring => ring.gather(at, write, out))
    }

    fn chain<T: Translate<'t>>(
        &self,
        at: &mut Cursor,
        write: bool,
        translate: &mut T,
        sink: &mut Sink<'_>,
    ) -> Result<Option<Chain>, QueueError> {
        plain!(self, ring => ring.chain(at, write, translate, sink))
    }

    fn pending(&self, at: Cursor) -> bool {
        plain!(self, ring => ring.pending(at))
    }

    fn pass(&self, at: &mut Cursor, chain: Chain) {
        plain!(self, ring => ring.pass(at, chain));
    }

    fn pass_run(&self, at: &mut Cursor, count: usize) {
        plain!(self, ring => ring.pass_run(at, count));
    }

    fn size(&self) -> u16 {
        plain!(self, ring => Format::size(ring))
    }

    fn write_used(&self, used: &mut Used, chain: Chain, len: u32) {
        let before = *used;
        plain!(self, ring => ring.write_used(used, chain, len));
        match &self.ring {
            Plain::Split(ring) => self.tracker.entries(ring, before.at.index, 1),
            // `publish` writes and marks the first descriptor.
            Plain::Packed(ring) if !before.is_published() => self.tracker.used(ring, before.at.index, 1),
            Plain::Packed(_) => {}
        }
    }

    fn write_used_run(&self, used: &mut Used, buffers: impl ExactSizeIterator<Item = (u16, u32)>) {
        let (before, count) = (*used, buffers.len());
        plain!(self, ring => ring.write_used_run(used, buffers));
        match &self.ring {
            Plain::Split(ring) => self.tracker.entries(ring, before.at.index, count),
            Plain::Packed(ring) => {
                // `publish` writes and marks the first descriptor.
                let unwritten = usize::from(before.is_published());
                let mut first = before.at;
                ring.pass_run(&mut first, unwritten);
                self.tracker.used(ring, first.index, count.saturating_sub(unwritten));
            }
        }
    }

    fn publish(&self, used: &mut Used) {
        let before = *used;
        plain!(self, ring => ring.publish(used));
        match &self.ring {
            Plain::Split(_) => self.tracker.device(WORD, WORD),
            Plain::Packed(ring) if !before.is_published() => {
                self.tracker.used(ring, before.published.index, 1);
            }
            Plain::Packed(_) => {}
        }
    }

    fn prefetch_used(&self, used: &Used) {
        plain!(self, ring => ring.prefetch_used(used));
    }

    fn set_flag(&self, at: Cursor, wanted: bool) {
        plain!(self, ring => ring.set_flag(at, wanted));
        match &self.ring {
            Plain::Split(ring) if !ring.event_idx => self.tracker.device(0, WORD),
            Plain::Split(ring) if wanted => self.tracker.device(WORD * ring.avail_event(), WORD),
            Plain::Split(_) => {}
            Plain::Packed(_) => self.tracker.device(0, 2 * WORD),
        }
    }

    fn wants_interrupt(&self, signalled: Cursor, used: &Used) -> bool {
        plain!(self, ring => ring.wants_interrupt(signalled, used))
    }
}
