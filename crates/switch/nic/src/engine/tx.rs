//! The engine of a transmit ring: frames that the guest sends.

use super::{Block, Direction, Family, Signal};
use crate::chip::Transmit;
use crate::descriptor_ring::{Part, Ring};
use crate::device::{Bus, Raise};
use crate::pieces::{PIECES, split_headers};
use crate::techniques::{Doorbells, Techniques};
use alloc::boxed::Box;
use alloc::vec;
use core::fmt::Debug;
use core::ops::Range;
use core::sync::atomic::Ordering;
use ringway_frame::{BURST, Burst, CountersRef, HEADERS, Offload, Reason, add};
use ringway_mem::{Direct, Hint, Span};
use ringway_wire::ethernet::HEADER_LEN;

/// Descriptors without a frame that are returned in one turn; the others wait for the next doorbell. As many as the
/// largest ring has.
const MOST_SKIPPED: usize = 4096;

/// The metadata of a frame with rewritten headers, and how many bytes these have.
pub type Rewritten = Result<(Offload, usize), Reason>;

/// What the descriptors of a frame ask for.
pub trait Offloads {
    /// How many bytes of headers are rewritten, of a frame of `total`; 0: they stay.
    fn rewritten(&self, total: usize) -> usize;

    /// The metadata of a frame of `total` bytes whose headers stay.
    fn offload(&self, total: usize) -> Result<Offload, Reason>;

    /// Rewrites `headers`, the first `len` bytes of which are those of a frame of `total` bytes.
    fn rewrite(&self, headers: &mut [u8; HEADERS], len: usize, total: usize) -> Rewritten;
}

/// What the ring has next.
pub enum Found<R> {
    /// A frame: its parts, its bytes, what it asks for, and whether its interrupt may be delayed.
    Frame { pieces: usize, len: usize, request: R, delayed: bool },
    /// Descriptors that are released without a frame, which is dropped for a reason if it was one.
    Skip(Option<Reason>),
    /// The ring has nothing complete.
    Nothing,
    /// The ring is not in the guest's memory.
    Outside,
}

/// A position while the ring is examined.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scan<S> {
    /// The index of the next descriptor.
    pub at: u32,
    /// How many descriptors before it are written back when they are released.
    pub passed: usize,
    /// What else the family notes.
    pub state: S,
}

/// A frame that was taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct Taken<S, F> {
    /// The position after its last descriptor.
    end: Scan<S>,
    /// Its interrupt may be delayed.
    delayed: bool,
    /// What else the family notes.
    pub frame: F,
}

/// The transmit descriptors of a family.
pub trait TxLayout: Debug + Send + Sized {
    /// What the family's two sides share.
    type Shared: Family;
    /// What the family notes of a position.
    type State: Copy + Debug + Default + Send;
    /// What the family notes of a frame.
    type Frame: Copy + Debug + Default + Send;
    /// What the descriptors of a frame ask for.
    type Request: Offloads;

    /// No descriptors.
    fn new() -> Self;

    /// The ring is another one.
    fn reset(&mut self);

    /// A burst begins, at the ring's head; `None`: there are no frames.
    fn begin(
        &mut self,
        bus: &Bus<'_, Self::Shared>,
        block: Block<'_, Self::Shared>,
        ring: &Ring,
    ) -> Option<Self::State>;

    /// Examines the descriptors of the next frame, and gathers its parts.
    fn next<'t>(
        &mut self,
        bus: &Bus<'t, Self::Shared>,
        ring: (&Ring, &mut Direct<'t, '_>, &mut Part<'t>),
        scan: &mut Scan<Self::State>,
        pieces: &mut [Span<'t>],
    ) -> Found<Self::Request>;

    /// What is noted of a frame of `len` bytes.
    fn frame(request: &Self::Request, head: &[u8; 64], len: usize) -> Self::Frame;

    /// Counts frames that are released.
    fn count(shared: &Self::Shared, taken: &[Taken<Self::State, Self::Frame>]);

    /// Counts a frame that was dropped.
    fn count_dropped(_shared: &Self::Shared) {}

    /// Writes the descriptors of `range` back, and moves the head to `end`. Returns the causes. `sent`: they were those
    /// of frames.
    fn write_back(
        &mut self,
        bus: &Bus<'_, Self::Shared>,
        block: Block<'_, Self::Shared>,
        ring: (&mut Ring, &mut Direct<'_, '_>),
        range: Range<usize>,
        end: (&Scan<Self::State>, bool),
    ) -> u32;

    /// Whether the ring has more than when it was last looked at.
    fn has_more(
        &self,
        bus: &Bus<'_, Self::Shared>,
        block: Block<'_, Self::Shared>,
        ring: (&Ring, &mut Direct<'_, '_>),
    ) -> bool;

    /// [`Transmit::take`].
    fn take<'t>(engine: &mut TxEngine<Self>, bus: &Bus<'t, Self::Shared>, burst: &mut Burst<'t>) -> Raise {
        engine.collect(bus, burst)
    }
}

/// The engine of a transmit ring. One worker owns it.
#[derive(Debug)]
pub struct TxEngine<L: TxLayout> {
    pub(crate) counters: CountersRef,
    ring: Ring,
    signal: Signal<L::Shared>,
    hint: Hint,
    pub(crate) layout: L,
    taken: Box<[Taken<L::State, L::Frame>]>,
    count: usize,
    released: usize,
    /// Descriptors that were written back, of those of the frames taken.
    returned: usize,
    /// The ring is not in memory, which was counted.
    outside: bool,
    /// When mapped doorbells are looked at again.
    poll_at: Option<u64>,
    due: Option<u64>,
}

impl<L: TxLayout> TxEngine<L> {
    /// An engine that adds drops and faults to `counters`.
    pub fn new(counters: CountersRef) -> TxEngine<L> {
        TxEngine {
            counters,
            ring: Ring::default(),
            signal: Signal::new(Direction::Tx),
            hint: Hint::default(),
            layout: L::new(),
            taken: vec![Taken::default(); BURST].into_boxed_slice(),
            count: 0,
            released: 0,
            returned: 0,
            outside: false,
            poll_at: None,
            due: None,
        }
    }

    /// Takes the ring's description over. `false`: there is not a ring.
    #[inline]
    fn adopt(&mut self, bus: &Bus<'_, L::Shared>, raise: &mut Raise) -> bool {
        self.signal.adopt(bus, raise);
        match self.ring.adopt(&bus.shared.rings().tx, false) {
            None => return false,
            Some(false) => {}
            Some(true) => {
                (self.count, self.released, self.returned) = (0, 0, 0);
                (self.hint, self.outside) = (Hint::default(), false);
                self.layout.reset();
                self.signal.reset();
            }
        }
        if !self.signal.techniques().cached {
            self.hint = Hint::default();
        }
        true
    }

    /// [`Transmit::take`], also for frames that don't leave.
    pub(crate) fn collect<'t>(&mut self, bus: &Bus<'t, L::Shared>, burst: &mut Burst<'t>) -> Raise {
        let mut raise = Raise::NONE;
        self.poll_at = None;
        if !self.adopt(bus, &mut raise) {
            raise |= bus.shared.due(bus.now);
            self.due = bus.shared.next_due();
            return raise;
        }
        let mut hint = self.hint;
        let mut translate = Direct::new(bus.memory, &mut hint);
        let block = self.signal.block(bus, &mut translate);
        (self.count, self.released, self.returned) = (0, 0, 0);
        if let Some(state) = self.layout.begin(bus, block, &self.ring) {
            let scan = Scan { at: self.ring.head, passed: 0, state };
            self.fill(bus, (block, &mut translate), scan, burst, &mut raise);
        }
        self.hint = hint;
        self.signal.due(bus, block, &mut raise);
        self.note_due(bus);
        raise
    }

    fn fill<'t>(
        &mut self,
        bus: &Bus<'t, L::Shared>,
        (block, translate): (Block<'t, L::Shared>, &mut Direct<'t, '_>),
        mut scan: Scan<L::State>,
        burst: &mut Burst<'t>,
        raise: &mut Raise,
    ) {
        let (mut part, mut skipped) = (Part::default(), 0);
        let mut pieces = [Span::empty(); PIECES + 1];
        // Attack: descriptors that are no frames, and that another processor of the guest gives away again and again.
        while self.count < BURST && burst.room() > 0 && skipped < MOST_SKIPPED {
            let ring = (&self.ring, &mut *translate, &mut part);
            let reason = match self.layout.next(bus, ring, &mut scan, &mut pieces[1..]) {
                Found::Nothing => break,
                Found::Outside => {
                    // Attack: a ring outside memory. It stays where it is until the driver resets or moves it.
                    if !core::mem::replace(&mut self.outside, true) {
                        add(&self.counters.faults, 1);
                    }
                    break;
                }
                Found::Skip(reason) => reason,
                Found::Frame { pieces: count, len, request, delayed } => {
                    match self.push(bus, burst, (&mut pieces, count, len), &request) {
                        Ok(false) => break,
                        Ok(true) => {
                            let frame = L::frame(&request, burst.head(burst.len() - 1), len);
                            self.taken[self.count] = Taken { end: scan, delayed, frame };
                            self.count += 1;
                            continue;
                        }
                        Err(reason) => Some(reason),
                    }
                }
            };
            // Frames before it are released first, then it is found again.
            if self.count > 0 {
                break;
            }
            if let Some(reason) = reason {
                self.counters.drop_tx(reason, 1);
                L::count_dropped(bus.shared);
            }
            self.pass(bus, (block, translate), (&scan, false), true, raise);
            skipped += scan.passed.max(1);
            (scan.passed, self.returned) = (0, 0);
        }
    }

    /// Adds a frame to the burst. `false`: it is full. The first place of `pieces` is free.
    #[inline]
    fn push<'t>(
        &self,
        bus: &Bus<'t, L::Shared>,
        burst: &mut Burst<'t>,
        (pieces, count, len): (&mut [Span<'t>], usize, usize),
        request: &L::Request,
    ) -> Result<bool, Reason> {
        if len < HEADER_LEN {
            return Err(Reason::Short);
        }
        let wanted = request.rewritten(len);
        if wanted == 0 {
            return Ok(burst.push_pieces(request.offload(len)?, &pieces[1..=count]).is_ok());
        }
        let mut headers = [0; HEADERS];
        let copied = headers.get_mut(..wanted).ok_or(Reason::NoOffload)?;
        let first = split_headers(&mut pieces[..=count], copied);
        let (offload, header_len) = request.rewrite(&mut headers, wanted, len)?;
        pieces[first] = bus.shared.rings().headers.keep(self.count, &headers[..header_len]);
        Ok(burst.push_pieces(offload, &pieces[first..=count]).is_ok())
    }

    /// Returns descriptors up to `end` to the driver. `urgent`: its interrupt is not delayed.
    fn pass<'t>(
        &mut self,
        bus: &Bus<'t, L::Shared>,
        (block, translate): (Block<'t, L::Shared>, &mut Direct<'t, '_>),
        end: (&Scan<L::State>, bool),
        urgent: bool,
        raise: &mut Raise,
    ) {
        let range = core::mem::replace(&mut self.returned, end.0.passed)..end.0.passed;
        let causes = self.layout.write_back(bus, block, (&mut self.ring, translate), range, end);
        if causes != 0 {
            self.signal.published(bus, block, (causes, urgent), raise);
        }
    }

    fn note_due(&mut self, bus: &Bus<'_, L::Shared>) {
        self.due = self.signal.next_due(bus);
        if self.signal.techniques().combine > 0 {
            bus.shared.rings().tx_due.store(self.due.unwrap_or(0), Ordering::Relaxed);
        }
    }
}

impl<L: TxLayout> Transmit<L::Shared> for TxEngine<L> {
    fn take<'t>(&mut self, bus: &Bus<'t, L::Shared>, burst: &mut Burst<'t>) -> Raise {
        L::take(self, bus, burst)
    }

    fn release(&mut self, bus: &Bus<'_, L::Shared>, frames: usize) -> Raise {
        let mut raise = Raise::NONE;
        let known = self.ring.generation;
        // Frames of a ring that was reset meanwhile are not released on the new one.
        if !self.adopt(bus, &mut raise) || self.ring.generation != known {
            return raise;
        }
        let mut hint = self.hint;
        let mut translate = Direct::new(bus.memory, &mut hint);
        let block = self.signal.block(bus, &mut translate);
        let end = self.released.saturating_add(frames).min(self.count);
        L::count(bus.shared, &self.taken[self.released..end]);
        let step = if self.signal.techniques().batch { end - self.released } else { 1 };
        while self.released < end {
            let group = &self.taken[self.released..self.released + step];
            let urgent = !group.iter().all(|taken| taken.delayed);
            self.released += step;
            let last = self.taken[self.released - 1].end;
            self.pass(bus, (block, &mut translate), (&last, true), urgent, &mut raise);
        }
        self.hint = hint;
        self.note_due(bus);
        raise
    }

    fn arm(&mut self, bus: &Bus<'_, L::Shared>) -> bool {
        match bus.shared.rings().tx.generation() {
            None => return true,
            Some(generation) if generation != self.ring.generation => return false,
            Some(_) => {}
        }
        let Techniques { doorbells, poll, .. } = self.signal.techniques();
        if doorbells == Doorbells::Mapped {
            // Multiples of the interval, so that a worker looks at all its rings when it wakes for one.
            let poll = poll.max(1);
            self.poll_at = Some((bus.now / poll).saturating_add(1).saturating_mul(poll));
        }
        let TxEngine { signal, layout, ring, hint, .. } = self;
        let mut translate = Direct::new(bus.memory, hint);
        let block = signal.block(bus, &mut translate);
        signal.arm(bus, block, || layout.has_more(bus, block, (ring, &mut translate)))
    }

    fn disarm(&mut self, bus: &Bus<'_, L::Shared>) {
        self.poll_at = None;
        let block = self.signal.block(bus, &mut Direct::new(bus.memory, &mut self.hint));
        self.signal.disarm(bus, block);
    }

    fn next_due(&self) -> Option<u64> {
        self.due.into_iter().chain(self.poll_at).min()
    }
}
