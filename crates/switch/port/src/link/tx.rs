//! The TX queue: frames that leave the link.

use super::observed::Observed;
use super::stored::Stored;
use super::{ARRIVALS, KEPT, Shared};
use ringway_frame::{BURST, BURST_BYTES, Burst, LARGEST, Offload, Reason, TxQueue};
use ringway_host::{HostError, Mapping};
use ringway_link::{Frame, Link};
use ringway_mem::{Hint, Memory, Published, Turn};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

const LINE: usize = 64;
/// A burst's frames, each at the start of a cache line.
const ARENA: usize = BURST_BYTES + BURST * LINE + (LARGEST as usize).next_multiple_of(LINE);
/// The worker polls for this long before a frame is due, in nanoseconds: timers wake it up to the system's timer slack
/// (50 us) late.
const LEAD: u64 = 80_000;

/// A frame that left the link and was not released yet.
struct Held {
    at: u64,
    len: u32,
    offload: Offload,
}

pub(super) struct LinkTx {
    shared: Arc<Shared>,
    link: Link<Stored>,
    /// Never replaced; published, so that frames in it may be borrowed for a turn.
    arena: Published<Memory>,
    held: VecDeque<Held>,
    /// The end of the used memory.
    end: usize,
    /// Arrivals taken from those shared.
    inbox: Vec<Stored>,
    /// Memory of frames that left.
    spare: Vec<Vec<u8>>,
    /// When the next frame is due, while the queue is armed.
    due: Option<u64>,
    /// Drops of the link that are counted already.
    counted: [u64; ringway_link::Reason::ALL.len()],
    observed: Observed,
}

/// The counter for drops of a link.
fn reason(reason: ringway_link::Reason) -> Reason {
    match reason {
        ringway_link::Reason::Mtu => Reason::Long,
        ringway_link::Reason::Full | ringway_link::Reason::Memory => Reason::Full,
        ringway_link::Reason::Early => Reason::Early,
        ringway_link::Reason::Lost => Reason::Lost,
    }
}

impl LinkTx {
    pub fn new(shared: Arc<Shared>, link: Link<Stored>) -> Result<LinkTx, HostError> {
        let arena = Memory::new(vec![Mapping::private(ARENA)?.region()]).unwrap_or_default();
        Ok(LinkTx {
            shared,
            link,
            arena: Published::new(Arc::new(arena)),
            held: VecDeque::with_capacity(BURST),
            end: 0,
            inbox: Vec::new(),
            spare: Vec::new(),
            due: None,
            counted: Default::default(),
            observed: Observed::default(),
        })
    }

    /// Passes arrived frames to the link.
    fn arrive(&mut self, now: u64) {
        if let Ok(mut exchange) = self.shared.exchange.try_lock() {
            std::mem::swap(&mut exchange.arrivals, &mut self.inbox);
            if exchange.spare.is_empty() {
                std::mem::swap(&mut exchange.spare, &mut self.spare);
            }
        }
        let moved = !self.inbox.is_empty();
        for frame in self.inbox.drain(..) {
            let at = frame.arrived;
            self.link.send(frame, at);
        }
        if self.shared.is_changed.load(Relaxed) {
            self.change(now);
        }
        if moved {
            self.count();
        }
    }

    #[cold]
    fn change(&mut self, now: u64) {
        let Ok(mut next) = self.shared.next.try_lock() else { return };
        self.shared.is_changed.store(false, Relaxed);
        if let Some(profile) = next.take() {
            // The peer checked the profile.
            let _ = self.link.change(profile, now);
            self.observed.renew(&self.link, now);
            drop(next);
            self.count();
        }
    }

    /// Updates the counters and gauges.
    fn count(&mut self) {
        let counters = self.link.counters();
        for why in ringway_link::Reason::ALL {
            let new = counters.drops[why as usize] - self.counted[why as usize];
            if new > 0 {
                self.shared.counters.drop_tx(reason(why), new as usize);
            }
        }
        self.counted = counters.drops;
        let (queued, bytes, in_flight) = self.link.backlog();
        let (carried, lost) = self.observed.carried(&self.link);
        let values = [
            queued as u64,
            bytes as u64,
            in_flight as u64,
            counters.marked,
            counters.corrupted,
            counters.duplicated,
            counters.reordered,
            self.observed.latest,
            self.observed.late,
            self.observed.last_late,
            self.observed.mean(),
            self.observed.deviation(),
            carried,
            lost,
        ];
        self.shared.gauges.iter().zip(values).for_each(|(gauge, value)| gauge.store(value, Relaxed));
    }

    /// Copies due frames into the arena, and adds them to the burst.
    fn deliver<'t>(&mut self, now: u64, arena: &'t Memory, burst: &mut Burst<'t>) {
        let room = (LARGEST as usize).next_multiple_of(LINE);
        // Read again only if there are frames: the worker may have lost its core since the turn began.
        let mut left = None;
        while burst.room() > 0 && self.held.len() < BURST && self.end + room <= ARENA {
            let Some((frame, due)) = self.link.receive(now) else { return };
            let left = *left.get_or_insert_with(|| (self.shared.now)().max(now));
            self.observed.see(frame.arrived, due, left);
            let (at, len) = (self.end as u64, frame.len() as u32);
            let Some(space) = arena.span_mut(at, len, &mut Hint::default()) else { return };
            space.write(&frame.bytes);
            self.end += frame.len().next_multiple_of(LINE);
            self.held.push_back(Held { at, len, offload: frame.offload });
            // The burst may have other frames already; one that doesn't fit is in the next burst.
            let is_full = burst.push(frame.offload, space.as_span()).is_err();
            if frame.bytes.capacity() <= KEPT && self.spare.len() < ARRIVALS {
                self.spare.push(frame.bytes);
            }
            if is_full {
                return;
            }
        }
    }
}

impl TxQueue for LinkTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        self.arrive(turn.now);
        let arena: &'t Memory = self.arena.read(turn);
        for held in &self.held {
            let frame = arena.span(held.at, held.len, &mut Hint::default());
            if frame.is_none_or(|frame| burst.push(held.offload, frame).is_err()) {
                return;
            }
        }
        self.deliver(turn.now, arena, burst);
        if !self.held.is_empty() {
            self.count();
        }
    }

    fn release(&mut self, _turn: &Turn<'_>, frames: usize) {
        self.held.drain(..frames.min(self.held.len()));
        if self.held.is_empty() {
            self.end = 0;
        }
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        self.due = self.link.due().map(|due| due.saturating_sub(LEAD));
        if !self.held.is_empty() || self.due.is_some_and(|due| due <= turn.now) {
            return false;
        }
        self.shared.armed.store(true, SeqCst);
        let is_empty = self.shared.exchange.try_lock().is_ok_and(|exchange| exchange.arrivals.is_empty());
        if !is_empty || self.shared.is_changed.load(SeqCst) {
            self.shared.armed.store(false, SeqCst);
            return false;
        }
        self.count();
        true
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {
        self.shared.armed.store(false, SeqCst);
    }

    fn next_due(&self) -> Option<u64> {
        self.due
    }
}
