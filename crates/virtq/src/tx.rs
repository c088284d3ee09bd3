//! The device's side of a queue that the driver transmits on.

use crate::chain::{CHAIN, Chain, Piece, Sink};
use crate::error::QueueError;
use crate::foresight::foresee;
use crate::format::{Cursor, End, Format, Head, Used};
use crate::layout::Ring;
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

/// A device's state of a transmit queue.
#[derive(Debug)]
pub struct TxDevice {
    at: Cursor,
    used: Used,
    signalled: Cursor,
    count: usize,
    released: usize,
    skipped: u64,
    taken: [Chain; BATCH],
    heads: [Head; BATCH],
    pieces: [Piece; CHAIN],
}

macro_rules! with {
    ($ring:expr, $name:ident => $body:expr) => {
        match $ring {
            Ring::Split($name) => $body,
            Ring::Packed($name) => $body,
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
            count: 0,
            released: 0,
            skipped: 0,
            taken: [Chain::default(); BATCH],
            heads: [Head::default(); BATCH],
            pieces: [Piece::default(); CHAIN],
        }
    }

    /// The first chain that was not released, and where the next used one is written.
    #[inline]
    pub fn position(&self) -> (Cursor, Cursor) {
        (self.at, self.used.at)
    }

    /// Looks at up to `max` chains (at most [`BATCH`]) from the first that was not released on, and shows each to
    /// `each` as the ranges it consists of, in order. None of them is taken off the ring. After an error the chains
    /// before the broken one have been shown. A chain of too many ranges is skipped; `each` sees it as no range.
    pub fn peek<'t, T: Translate<'t>>(
        &mut self,
        ring: &Ring<'t>,
        translate: &mut T,
        max: usize,
        mut each: impl FnMut(&[Span<'t>]) -> Verdict,
    ) -> Result<(), QueueError> {
        let result = with!(*ring, ring => self.peek_in(ring, translate, max, &mut each));
        if result == Err(QueueError::Miss) {
            // So that all that is missing for a burst is asked for at once.
            foresee(ring, self.at, false, max.min(BATCH), translate);
        }
        result
    }

    #[inline]
    fn peek_in<'t, F: Format<'t>, T: Translate<'t>>(
        &mut self,
        ring: F,
        translate: &mut T,
        max: usize,
        each: &mut impl FnMut(&[Span<'t>]) -> Verdict,
    ) -> Result<(), QueueError> {
        (self.count, self.released, self.skipped) = (0, 0, 0);
        let max = max.min(BATCH);
        let mut at = self.at;
        while self.count < max {
            let (count, end) = ring.gather(&mut at, false, &mut self.heads[..max - self.count]);
            if count > 0 && !self.show(count, translate, each)? {
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
                    let verdict = self.show_pieces(pieces, cut, translate, each)?;
                    if !self.note(chain, verdict) {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Shows the first `count` of `heads`. `false`: no more is wanted.
    #[inline]
    fn show<'t, T: Translate<'t>>(
        &mut self,
        count: usize,
        translate: &mut T,
        each: &mut impl FnMut(&[Span<'t>]) -> Verdict,
    ) -> Result<bool, QueueError> {
        let mut spans = [Span::empty(); BATCH];
        let mut result = Ok(true);
        let mut good = 0;
        for (head, span) in self.heads[..count].iter().zip(&mut spans) {
            match translate.read(head.address, head.len) {
                Ok(found) => *span = found,
                Err(fault) => {
                    result = Err(fault.into());
                    break;
                }
            }
            span.prefetch();
            span.split(64).1.prefetch();
            good += 1;
        }
        for (index, span) in spans[..good].iter().enumerate() {
            let head = self.heads[index];
            let verdict = if span.len() == head.len as usize {
                each(core::slice::from_ref(span))
            } else {
                self.pieces[0] = Piece { address: head.address, len: head.len };
                self.show_pieces(1, false, translate, each)?
            };
            if !self.note(Chain { id: head.id, slots: 1 }, verdict) {
                return Ok(false);
            }
        }
        result
    }

    /// Shows a chain of the first `count` of `pieces`.
    fn show_pieces<'t, T: Translate<'t>>(
        &mut self,
        count: usize,
        cut: bool,
        translate: &mut T,
        each: &mut impl FnMut(&[Span<'t>]) -> Verdict,
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
            each(&[]);
            return Ok(Verdict::Skip);
        }
        Ok(each(&parts[..filled]))
    }

    #[inline]
    fn note(&mut self, chain: Chain, verdict: Verdict) -> bool {
        if verdict == Verdict::Stop {
            return false;
        }
        if let Some(place) = self.taken.get_mut(self.count) {
            *place = chain;
            self.skipped |= u64::from(verdict == Verdict::Skip) << self.count;
            self.count += 1;
        }
        true
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
        for (index, chain) in self.taken.iter().enumerate().take(self.count).skip(first) {
            if self.skipped >> index & 1 == 0 {
                if frames == 0 {
                    break;
                }
                frames -= 1;
            }
            ring.write_used(&mut self.used, *chain, 0);
            ring.pass(&mut self.at, *chain);
            self.released += 1;
        }
        ring.publish(&mut self.used);
        self.released - first
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
