//! The RX ring: frames to the program.

use super::inside::InsideRx;
use super::session::{Open, Shared};
use ringway_frame::{BURST, Burst, Caps, LARGEST, Lost, Offload, Reason, RxQueue};
use ringway_mem::Turn;
use ringway_ring::{Broken, FRAGMENTS, MOREFRAG, Notifier, Producer, RX, RingMemory, Slot, View};

/// Maximum number of slots per reserve.
const WINDOW: usize = 1024;

const _: () = assert!(BURST <= u64::BITS as usize);

/// An RX queue whose frames go to a program.
pub struct RingRx {
    shared: Shared,
    session: u64,
    producer: Option<Producer>,
    notifier: Notifier,
    /// The reserved slots, as read once.
    window: Vec<Slot>,
    /// Number of reserved slots that are filled.
    filled: usize,
    /// A bit for each frame of the last reserve that is too long for any number of slots.
    refused: u64,
    /// Dropped frames of the current `put`.
    lost: Lost,
    /// In place of a ring, if a function of this process has the port.
    inside: Option<InsideRx>,
}

impl RingRx {
    pub(super) fn new(shared: Shared) -> RingRx {
        let notifier = Notifier::new(shared.config.policy);
        RingRx {
            shared,
            session: 0,
            producer: None,
            notifier,
            window: Vec::with_capacity(WINDOW),
            filled: 0,
            refused: 0,
            lost: Lost::default(),
            inside: None,
        }
    }

    /// The queue of the function that has the port.
    #[cold]
    fn inside(&mut self, turn: &Turn<'_>) -> Option<&mut InsideRx> {
        let Some((number, inside)) = self.shared.inside(turn) else {
            self.inside = None;
            return None;
        };
        if self.inside.as_ref().is_none_or(|own| own.number != number) {
            self.inside = Some(InsideRx::new(number, inside));
        }
        self.inside.as_mut()
    }

    /// The current program's ring. For a new program, resets the queue's state.
    #[inline]
    fn open<'t>(&mut self, turn: &'t Turn<'_>) -> Option<&'t Open> {
        let (number, open) = self.shared.session(turn);
        let open = open?;
        if number != self.session {
            self.inside = None;
            self.producer = Some(Producer::new(&open.memory, RX));
            self.notifier = Notifier::new(self.shared.config.policy);
            self.session = number;
            self.window.clear();
            self.filled = 0;
        }
        Some(open)
    }

    /// Counts the copied slots as filled.
    #[inline]
    fn fill_up(&mut self) {
        let filled = std::mem::take(&mut self.filled);
        if let Some(producer) = &mut self.producer {
            producer.advance(filled as u32);
        }
    }

    /// Copies one frame into the next reserved slots. `false`: a slot names a buffer that doesn't exist.
    #[inline]
    fn copy(&mut self, memory: &RingMemory, burst: &Burst<'_>, index: usize) -> bool {
        let meta = burst.meta(index);
        let size = memory.slot_size();
        if meta.len > size {
            return self.copy_pieces(memory, burst, index);
        }
        let (Some(producer), Some(&old)) = (&self.producer, self.window.get(self.filled)) else {
            return true;
        };
        let Some(buffer) = memory.buffer(old.buf_idx, meta.len) else { return false };
        burst.copy_to(index, buffer);
        let offload = if meta.offload == Offload::default() { [0; 10] } else { meta.offload.to_bytes() };
        let new = Slot { buf_idx: old.buf_idx, len: meta.len as u16, flags: 0, offload };
        // An unchanged slot is not written, so it stays in the program's cache.
        if new != old {
            producer.write(memory, self.filled as u32, new);
        }
        self.filled += 1;
        true
    }

    #[cold]
    fn copy_pieces(&mut self, memory: &RingMemory, burst: &Burst<'_>, index: usize) -> bool {
        let meta = burst.meta(index);
        let size = memory.slot_size();
        let count = slots_for(meta.len, size);
        if count == 0 {
            self.lost += Lost::count(&self.shared.config.counters, Reason::Long, burst, &[index as u16]);
            return true;
        }
        let Some(producer) = &self.producer else { return true };
        let Some(slots) = self.window.get(self.filled..self.filled + count as usize) else { return true };
        let mut reader = burst.reader(index);
        let mut left = meta.len;
        for (piece, old) in slots.iter().enumerate() {
            let len = left.min(size);
            left -= len;
            let Some(buffer) = memory.buffer(old.buf_idx, len) else { return false };
            reader.copy(buffer);
            let flags = if left > 0 { MOREFRAG } else { 0 };
            let offload = if piece == 0 { meta.offload.to_bytes() } else { [0; 10] };
            let slot = Slot { buf_idx: old.buf_idx, len: len as u16, flags, offload };
            producer.write(memory, (self.filled + piece) as u32, slot);
        }
        self.filled += count as usize;
        true
    }
}

/// Number of frames that fit into `room` slots of `size` bytes, and the slots they take.
fn fit(size: u32, room: u32, burst: &Burst<'_>, which: &[u16]) -> (usize, u32) {
    let room = room.min(WINDOW as u32);
    let mut slots = 0;
    for (frames, &index) in which.iter().enumerate() {
        let next = slots + slots_for(burst.meta(usize::from(index)).len, size);
        if next > room {
            return (frames, slots);
        }
        slots = next;
    }
    (which.len(), slots)
}

/// Slots for a frame; none for one that can never be taken, which `put` drops.
#[inline]
fn slots_for(len: u32, size: u32) -> u32 {
    if len <= size {
        return 1;
    }
    let slots = len.div_ceil(size);
    if len > LARGEST || slots as usize > FRAGMENTS { 0 } else { slots }
}

/// A bit for each frame that fits into no number of slots.
#[cold]
fn refused(size: u32, burst: &Burst<'_>, which: &[u16]) -> u64 {
    let is_refused = |index: u16| slots_for(burst.meta(usize::from(index)).len, size) == 0;
    let places = which.iter().take(BURST).enumerate().filter(|(_, index)| is_refused(**index));
    places.fold(0, |bits, (place, _)| bits | 1 << place)
}

impl RxQueue for RingRx {
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        match self.open(turn) {
            Some(open) => Some(open.caps),
            None => self.inside(turn).map(|inside| inside.caps()),
        }
    }

    fn reserve(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> usize {
        self.window.clear();
        (self.filled, self.refused) = (0, 0);
        let Some(open) = self.open(turn) else {
            return self.inside(turn).map_or(0, |inside| inside.reserve(which.len()));
        };
        let memory = &open.memory;
        let Some(producer) = &mut self.producer else { return 0 };
        let size = memory.slot_size();
        let slots = which.iter().map(|&index| slots_for(burst.meta(usize::from(index)).len, size));
        let (wanted, of_one) =
            slots.fold((0, true), |(sum, of_one), slots| (sum + slots, of_one & (slots == 1)));
        if !of_one {
            self.refused = refused(size, burst, which);
        }
        let room = match producer.room(memory, wanted) {
            Ok(room) => room,
            Err(why) => {
                self.shared.fail(open, why);
                return 0;
            }
        };
        let all = (which.len(), wanted);
        let (frames, slots) =
            if wanted <= room.min(WINDOW as u32) { all } else { fit(size, room, burst, which) };
        self.window.extend((0..slots).map(|ahead| producer.slot(memory, ahead)));
        for slot in &self.window {
            memory.prefetch_buffer(slot.buf_idx);
        }
        frames
    }

    fn refusal(&self, place: usize) -> Option<Reason> {
        let is_refused = place < BURST && self.refused & 1 << place != 0;
        is_refused.then_some(Reason::Long)
    }

    fn is_half_full(&mut self, turn: &Turn<'_>) -> bool {
        let Some(open) = self.open(turn) else {
            return self.inside(turn).is_some_and(|inside| inside.is_half_full());
        };
        let Some(producer) = &mut self.producer else { return false };
        let half = producer.slots() / 2;
        // An invalid index is detected by the next `reserve`.
        producer.room(&open.memory, half).is_ok_and(|room| room <= half)
    }

    fn waiting(&self) -> Option<usize> {
        self.inside.as_ref().map(InsideRx::waiting)
    }

    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let Some(open) = self.open(turn) else {
            if let Some(inside) = self.inside(turn) {
                which.iter().for_each(|&index| inside.put(burst, usize::from(index)));
                return Lost::default();
            }
            return Lost::count(&self.shared.config.counters, Reason::Down, burst, which);
        };
        self.lost = Lost::default();
        for &index in which {
            if !self.copy(&open.memory, burst, usize::from(index)) {
                // No frame of the burst is published.
                let lost = Lost::count(&self.shared.config.counters, Reason::BadAddress, burst, which);
                self.shared.fail(open, Broken::Buffer);
                return lost;
            }
            if !self.notifier.batches() {
                // Without batching each frame is a separate burst.
                let filled = self.filled;
                self.fill_up();
                self.window.drain(..filled);
                self.publish(turn);
            }
        }
        self.fill_up();
        self.window.clear();
        self.lost
    }

    fn publish(&mut self, turn: &Turn<'_>) {
        let Some(open) = self.open(turn) else {
            return self.inside(turn).into_iter().for_each(InsideRx::publish);
        };
        let Some(producer) = &mut self.producer else { return };
        let shown = producer.publish_index(&open.memory);
        let mut view = RxView { open, producer, shared: &self.shared };
        if shown {
            self.notifier.expect_answer(turn.now);
            self.notifier.published(turn.now, &mut view);
        } else {
            self.notifier.due(turn.now, &mut view);
        }
    }

    fn defers_signal(&self) -> bool {
        self.notifier.waits_for_answer()
    }

    fn end_turn(&mut self, turn: &Turn<'_>) {
        let Some(open) = self.open(turn) else { return };
        let Some(producer) = &mut self.producer else { return };
        self.notifier.answered(turn.now, &mut RxView { open, producer, shared: &self.shared });
    }

    fn next_due(&self) -> Option<u64> {
        if self.inside.as_ref().is_some_and(InsideRx::is_unpublished) {
            return Some(0);
        }
        self.notifier.next_due()
    }
}

/// The RX ring as the notifier sees it.
struct RxView<'v> {
    open: &'v Open,
    producer: &'v mut Producer,
    shared: &'v Shared,
}

impl View for RxView<'_> {
    /// We are never notified of room: a worker with frames for a full ring tries again.
    fn pending(&mut self) -> bool {
        false
    }

    fn set_flag(&mut self, _wanted: bool) {}

    fn notify(&mut self, ask: bool) -> bool {
        let wanted = self.producer.wants_notification(&self.open.memory) || !ask;
        if wanted {
            self.open.signal(&self.shared.config.counters);
        }
        wanted
    }
}
