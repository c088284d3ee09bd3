//! The device side of a transmit queue.

use crate::chain::{CHAIN, Chain, Piece, Sink};
use crate::error::QueueError;
use crate::format::{Cursor, End, Format, Head, Progress, Used};
use crate::layout::Ring;
use crate::prefetch::prefetch_translations;
use crate::signals::Signals;
use ringway_mem::{Span, Translate};

/// Largest number of chains examined together.
pub const BATCH: usize = 64;
/// Largest number of translated parts of a chain.
const PARTS: usize = 2 * CHAIN;

/// Result of examining a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Take the frame; the chain counts for [`TxDevice::release`].
    Take,
    /// The chain is unusable; it is released with its neighbours.
    Skip,
    /// Stop; this chain and the following ones are shown again later.
    Stop,
}

/// Examines chains.
pub trait Look<'t> {
    /// A chain with one range.
    fn whole(&mut self, frame: Span<'t>) -> Verdict;

    /// A chain with several ranges, in order; empty if it has too many.
    fn parts(&mut self, parts: &[Span<'t>]) -> Verdict;
}

impl<'t, F: FnMut(&[Span<'t>]) -> Verdict> Look<'t> for F {
    #[inline]
    fn whole(&mut self, frame: Span<'t>) -> Verdict {
        self(&[frame])
    }

    #[inline]
    fn parts(&mut self, parts: &[Span<'t>]) -> Verdict {
        self(parts)
    }
}

/// Device state of a transmit queue.
#[derive(Debug)]
pub struct TxDevice {
    at: Cursor,
    used: Used,
    signalled: Cursor,
    taken: Taken,
    released: usize,
    in_order: bool,
    heads: [Head; BATCH],
    pieces: [Piece; CHAIN],
}

/// The examined chains.
#[derive(Debug)]
struct Taken {
    chains: [Chain; BATCH],
    count: usize,
    /// Bitmap of skipped chains.
    skipped: u64,
    /// Whether all chains have one descriptor.
    plain: bool,
}

impl Taken {
    /// Records a chain. Returns `false` if the chain, and so all following ones, are not taken.
    #[inline(always)]
    fn record(&mut self, chain: Chain, verdict: Verdict) -> bool {
        if verdict == Verdict::Stop {
            return false;
        }
        if let Some(slot) = self.chains.get_mut(self.count) {
            *slot = chain;
            self.skipped |= u64::from(verdict == Verdict::Skip) << self.count;
            self.count += 1;
        }
        true
    }
}

macro_rules! with {
    ($ring:expr, $name:ident => $body:expr) => {
        match $ring {
            Ring::Split($name) => $body,
            Ring::Packed($name) => $body,
            // Out of line, so that rings without a log compile to the same code as if logging did not exist.
            Ring::Logged($name) => $crate::logged::out_of_line(|| $body),
        }
    };
}
pub(crate) use with;

impl TxDevice {
    /// A device that starts at `at`, the first unused chain; the next used entry is written at `used`. The
    /// two differ only on a split ring.
    pub fn new(at: Cursor, used: Cursor) -> TxDevice {
        TxDevice {
            at,
            used: Used::new(used),
            signalled: used,
            taken: Taken { chains: [Chain::default(); BATCH], count: 0, skipped: 0, plain: true },
            released: 0,
            in_order: false,
            heads: [Head::default(); BATCH],
            pieces: [Piece::default(); CHAIN],
        }
    }

    /// Sets `VIRTIO_F_IN_ORDER`: one used entry, with the id of the last chain, completes all chains released
    /// together (virtio 1.3, 2.7.9 and 2.8.8).
    #[must_use]
    pub fn in_order(self, in_order: bool) -> TxDevice {
        TxDevice { in_order, ..self }
    }

    /// Positions of the first unreleased chain and of the next used entry.
    #[inline]
    pub fn position(&self) -> (Cursor, Cursor) {
        (self.at, self.used.at)
    }

    /// How far the device is.
    #[inline]
    pub fn progress(&self) -> Progress {
        self.used.progress(self.at)
    }

    /// Shows up to `max` chains (at most [`BATCH`]), from the first unreleased one on, to `look`, without
    /// taking them off the ring. On an error, the chains before the invalid one have been shown. A chain with
    /// too many ranges is skipped.
    pub fn peek<'t, T: Translate<'t>>(
        &mut self,
        ring: &Ring<'t>,
        translate: &mut T,
        max: usize,
        mut look: impl Look<'t>,
    ) -> Result<(), QueueError> {
        let result = with!(*ring, ring => self.peek_in(ring, translate, max, &mut look));
        if result == Err(QueueError::Miss) {
            // Record all misses of the burst, so that they are requested at once.
            prefetch_translations(ring, self.at, false, max.min(BATCH), translate);
        }
        result
    }

    #[inline]
    fn peek_in<'t, F: Format<'t>, T: Translate<'t>>(
        &mut self,
        ring: F,
        translate: &mut T,
        max: usize,
        look: &mut impl Look<'t>,
    ) -> Result<(), QueueError> {
        (self.taken.count, self.taken.skipped, self.taken.plain) = (0, 0, true);
        self.released = 0;
        let max = max.min(BATCH);
        let mut at = self.at;
        while self.taken.count < max {
            let (count, end) = ring.gather(&mut at, false, &mut self.heads[..max - self.taken.count]);
            if count > 0 && !self.show(count, translate, look)? {
                return Ok(());
            }
            match end {
                End::Limit | End::Empty => return Ok(()),
                End::Error(error) => return Err(error),
                End::Chain => {
                    let mut sink = Sink::new(&mut self.pieces);
                    let Some(chain) = ring.chain(&mut at, false, translate, &mut sink)? else {
                        return Ok(());
                    };
                    let (pieces, truncated) = (sink.count, sink.truncated);
                    let verdict = self.show_pieces(pieces, truncated, translate, look)?;
                    self.taken.plain = false;
                    if !self.taken.record(chain, verdict) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Shows the first `count` of `heads`. Returns `false` if `look` stopped.
    #[inline(always)]
    fn show<'t, T: Translate<'t>>(
        &mut self,
        count: usize,
        translate: &mut T,
        look: &mut impl Look<'t>,
    ) -> Result<bool, QueueError> {
        let mut spans = [Span::empty(); BATCH];
        let ranges = self.heads[..count].iter().map(|head| (head.address, head.len));
        let (translated, result) = translate.read_all(ranges, &mut spans);
        for (index, span) in spans[..translated].iter().enumerate() {
            let head = self.heads[index];
            let verdict = if span.len() == head.len as usize {
                look.whole(*span)
            } else {
                self.pieces[0] = Piece { address: head.address, len: head.len };
                self.show_pieces(1, false, translate, look)?
            };
            if !self.taken.record(Chain { id: head.id, slots: 1 }, verdict) {
                return Ok(false);
            }
        }
        result.map(|()| true).map_err(QueueError::from)
    }

    /// Shows a chain with the first `count` of `pieces`.
    #[inline(never)]
    fn show_pieces<'t, T: Translate<'t>>(
        &mut self,
        count: usize,
        truncated: bool,
        translate: &mut T,
        look: &mut impl Look<'t>,
    ) -> Result<Verdict, QueueError> {
        let mut parts = [Span::empty(); PARTS];
        let mut filled = 0;
        let mut fits = !truncated;
        for piece in &self.pieces[..count] {
            let Piece { mut address, mut len } = *piece;
            while len > 0 && fits {
                let part = translate.read(address, len)?;
                if part.is_empty() {
                    return Err(QueueError::Address);
                }
                address = address.wrapping_add(part.len() as u64);
                len = len.saturating_sub(part.len() as u32);
                match parts.get_mut(filled) {
                    Some(slot) => *slot = part,
                    None => fits = false,
                }
                filled += 1;
            }
        }
        if !fits {
            // Attack: a frame in a huge number of parts would take too long.
            look.parts(&[]);
            return Ok(Verdict::Skip);
        }
        Ok(look.parts(&parts[..filled]))
    }

    /// Releases the next `frames` taken chains, and the skipped ones before, between and directly after them.
    /// Returns the number released, including skipped ones; [`TxDevice::publish`] makes them visible to the
    /// driver.
    #[inline]
    pub fn release(&mut self, ring: &Ring<'_>, frames: usize) -> usize {
        with!(*ring, ring => self.release_in(ring, frames))
    }

    #[inline]
    fn release_in<'t, F: Format<'t>>(&mut self, ring: F, mut frames: usize) -> usize {
        let first = self.released;
        let taken = &self.taken.chains[..self.taken.count];
        if self.taken.plain && self.taken.skipped == 0 {
            let end = first.saturating_add(frames).min(taken.len());
            let buffers = taken.get(first..end).unwrap_or(&[]);
            if self.in_order {
                write_used_batch(ring, &mut self.used, buffers);
            } else {
                ring.write_used_run(&mut self.used, buffers.iter().map(|chain| (chain.id, 0)));
            }
            ring.pass_run(&mut self.at, buffers.len());
            self.released = first + buffers.len();
            return buffers.len();
        }
        for (index, chain) in taken.iter().enumerate().skip(first) {
            if self.taken.skipped >> index & 1 == 0 {
                if frames == 0 {
                    break;
                }
                frames -= 1;
            }
            if !self.in_order {
                ring.write_used(&mut self.used, *chain, 0);
            }
            ring.pass(&mut self.at, *chain);
            self.released += 1;
        }
        if self.in_order {
            write_used_batch(ring, &mut self.used, taken.get(first..self.released).unwrap_or(&[]));
        }
        self.released - first
    }

    /// Publishes the released chains. Returns whether there were any.
    #[inline]
    pub fn publish(&mut self, ring: &Ring<'_>) -> bool {
        let any = self.holds();
        if any {
            with!(ring, ring => ring.publish(&mut self.used));
        }
        any
    }

    /// Whether there are released chains that are not published yet.
    #[inline]
    pub fn holds(&self) -> bool {
        !self.used.is_published()
    }

    /// Whether publishing `count` chains may be delayed: the driver polls, `count` is small compared to the
    /// ring, and `Ring::publish_used_before` could publish in the device's place.
    #[inline]
    pub fn may_hold(&self, ring: &Ring<'_>, count: usize) -> bool {
        match ring {
            Ring::Split(ring) => 4 * count <= usize::from(ring.size) && ring.is_polled(),
            Ring::Packed(_) | Ring::Logged(_) => false,
        }
    }
}

/// Writes one used entry, with the id of the last chain, for all of `chains`.
#[inline]
fn write_used_batch<'t, F: Format<'t>>(ring: F, used: &mut Used, chains: &[Chain]) {
    let mut batch = Chain::default();
    for chain in chains {
        // Attack: a ring that is refilled while it is read yields more chains than it has descriptors. A
        // batch has at most the ring's size, so it never laps itself.
        let slots = batch.slots.saturating_add(chain.slots);
        if slots > ring.size() {
            ring.write_used(used, batch, 0);
            batch = *chain;
        } else {
            batch = Chain { id: chain.id, slots };
        }
    }
    if batch.slots > 0 {
        ring.write_used(used, batch, 0);
    }
}

impl Signals for TxDevice {
    fn wants_interrupt(&mut self, ring: &Ring<'_>) -> bool {
        let since = core::mem::replace(&mut self.signalled, self.used.published);
        let wanted = with!(ring, ring => ring.wants_interrupt(since, &self.used));
        self.used.unsignalled = 0;
        wanted
    }

    fn pending(&self, ring: &Ring<'_>) -> bool {
        with!(ring, ring => ring.pending(self.at))
    }

    fn set_flag(&mut self, ring: &Ring<'_>, wanted: bool) {
        with!(ring, ring => ring.set_flag(self.at, wanted));
    }
}
