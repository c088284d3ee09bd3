//! The device's side of a queue that the driver transmits on.

use crate::chain::{CHAIN, Chain, Piece, Sink};
use crate::error::QueueError;
use crate::format::{Cursor, End, Format, Head, Used};
use crate::layout::Ring;
use crate::prefetch::prefetch_translations;
use crate::signals::Signals;
use ringway_mem::{Span, Translate};

/// Chains looked at together.
pub const BATCH: usize = 64;
/// Parts that a chain may have once its addresses are translated.
const PARTS: usize = 2 * CHAIN;

/// What becomes of a chain that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It counts as one of those to release.
    Take,
    /// It is of no use, and is released with those before or behind it.
    Skip,
    /// Not now; it and those behind it will be found again.
    Stop,
}

/// What looks at chains.
pub trait Look<'t> {
    /// A chain of one range.
    fn whole(&mut self, frame: Span<'t>) -> Verdict;

    /// A chain as the ranges it consists of, in order; as none where it has too many.
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

/// A device's state of a transmit queue.
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

/// The chains that were looked at.
#[derive(Debug)]
struct Taken {
    chains: [Chain; BATCH],
    count: usize,
    /// Which of them were skipped.
    skipped: u64,
    /// Whether each has one descriptor.
    plain: bool,
}

impl Taken {
    /// `false`: the chain was not wanted, and none behind it.
    #[inline(always)]
    fn note(&mut self, chain: Chain, verdict: Verdict) -> bool {
        if verdict == Verdict::Stop {
            return false;
        }
        if let Some(place) = self.chains.get_mut(self.count) {
            *place = chain;
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
            // Out of the way of the others, which come to the same code as if there were none.
            Ring::Logged($name) => $crate::logged::apart(|| $body),
        }
    };
}
pub(crate) use with;

impl TxDevice {
    /// A device that goes on at `at`, the first chain it has not used; `used` is where the next used one is written.
    /// They differ only on a split ring.
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

    /// The same with `VIRTIO_F_IN_ORDER`, where the last chain given back at one time stands for all of them
    /// (virtio 1.3, 2.7.9 and 2.8.8).
    #[must_use]
    pub fn in_order(self, in_order: bool) -> TxDevice {
        TxDevice { in_order, ..self }
    }

    /// The first chain that was not released, and where the next used one is written.
    #[inline]
    pub fn position(&self) -> (Cursor, Cursor) {
        (self.at, self.used.at)
    }

    /// Looks at up to `max` chains (at most [`BATCH`]) from the first that was not released on, and shows each to
    /// `look`. None of them is taken off the ring. After an error the chains before the broken one have been shown. A
    /// chain of too many ranges is skipped.
    pub fn peek<'t, T: Translate<'t>>(
        &mut self,
        ring: &Ring<'t>,
        translate: &mut T,
        max: usize,
        mut look: impl Look<'t>,
    ) -> Result<(), QueueError> {
        let result = with!(*ring, ring => self.peek_in(ring, translate, max, &mut look));
        if result == Err(QueueError::Miss) {
            // So that all that is missing for a burst is asked for at once.
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
                End::Asked | End::Empty => return Ok(()),
                End::Error(error) => return Err(error),
                End::Chain => {
                    let mut sink = Sink::new(&mut self.pieces);
                    let Some(chain) = ring.chain(&mut at, false, translate, &mut sink)? else {
                        return Ok(());
                    };
                    let (pieces, cut) = (sink.count, sink.cut);
                    let verdict = self.show_pieces(pieces, cut, translate, look)?;
                    self.taken.plain = false;
                    if !self.taken.note(chain, verdict) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Shows the first `count` of `heads`. `false`: no more is wanted.
    #[inline(always)]
    fn show<'t, T: Translate<'t>>(
        &mut self,
        count: usize,
        translate: &mut T,
        look: &mut impl Look<'t>,
    ) -> Result<bool, QueueError> {
        let mut spans = [Span::empty(); BATCH];
        let ranges = self.heads[..count].iter().map(|head| (head.address, head.len));
        let (good, result) = translate.read_all(ranges, &mut spans);
        for (index, span) in spans[..good].iter().enumerate() {
            let head = self.heads[index];
            let verdict = if span.len() == head.len as usize {
                look.whole(*span)
            } else {
                self.pieces[0] = Piece { address: head.address, len: head.len };
                self.show_pieces(1, false, translate, look)?
            };
            if !self.taken.note(Chain { id: head.id, slots: 1 }, verdict) {
                return Ok(false);
            }
        }
        result.map(|()| true).map_err(QueueError::from)
    }

    /// Shows a chain of the first `count` of `pieces`.
    #[inline(never)]
    fn show_pieces<'t, T: Translate<'t>>(
        &mut self,
        count: usize,
        cut: bool,
        translate: &mut T,
        look: &mut impl Look<'t>,
    ) -> Result<Verdict, QueueError> {
        let mut parts = [Span::empty(); PARTS];
        let mut filled = 0;
        let mut fits = !cut;
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
                    Some(place) => *place = part,
                    None => fits = false,
                }
                filled += 1;
            }
        }
        if !fits {
            // Attack: a frame in countless parts costs more than it is worth.
            look.parts(&[]);
            return Ok(Verdict::Skip);
        }
        Ok(look.parts(&parts[..filled]))
    }

    /// Gives the next `frames` taken chains back to the driver, with those skipped before, between and right behind
    /// them. Returns how many were given back, skipped ones included; [`TxDevice::publish`] shows them to the driver.
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

    /// Makes what was given back visible to the driver. Returns whether there was something.
    #[inline]
    pub fn publish(&mut self, ring: &Ring<'_>) -> bool {
        let some = self.holds();
        if some {
            with!(ring, ring => ring.publish(&mut self.used));
        }
        some
    }

    /// Whether something was given back that the driver can't see yet.
    #[inline]
    pub fn holds(&self) -> bool {
        !self.used.is_published()
    }

    /// Whether the driver loses nothing when chains given back are shown to it later: it polls, and `count` are few of
    /// its ring. Only where [`Ring::settle`] can show them in the device's place.
    #[inline]
    pub fn may_hold(&self, ring: &Ring<'_>, count: usize) -> bool {
        match ring {
            Ring::Split(ring) => 4 * count <= usize::from(ring.size) && ring.is_polled(),
            Ring::Packed(_) | Ring::Logged(_) => false,
        }
    }
}

/// Writes chains as used by their last.
#[inline]
fn write_used_batch<'t, F: Format<'t>>(ring: F, used: &mut Used, chains: &[Chain]) {
    let mut batch = Chain::default();
    for chain in chains {
        // Attack: a ring filled again while it is read gives more chains than it has descriptors; no batch goes round.
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
        self.used.untold = 0;
        wanted
    }

    fn pending(&self, ring: &Ring<'_>) -> bool {
        with!(ring, ring => ring.pending(self.at))
    }

    fn set_flag(&mut self, ring: &Ring<'_>, wanted: bool) {
        with!(ring, ring => ring.set_flag(self.at, wanted));
    }
}
