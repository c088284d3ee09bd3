//! The TX ring: frames from the program.

use super::inside::InsideTx;
use super::session::{Open, Shared};
use ringway_frame::{Burst, LARGEST, Needs, Offload, Reason, TxQueue};
use ringway_mem::{Span, Turn};
use ringway_ring::{Consumer, FRAGMENTS, RingMemory, Slot, TX};

/// Slots read in one `take`.
const WINDOW: usize = 64;
/// Bytes of an Ethernet header.
const HEADER: u32 = 14;

/// A TX queue that takes a program's frames.
pub struct RingTx {
    shared: Shared,
    session: u64,
    consumer: Option<Consumer>,
    /// The ring's slots, each read once.
    window: Box<[Slot; WINDOW]>,
    /// For each frame of the last burst, the number of slots from the burst's first slot to the frame's end.
    ends: Vec<u32>,
    /// Number of those frames that were released, and of their slots.
    released: (usize, u32),
    /// Index of the first slot whose violation, if any, isn't counted yet.
    counted: u32,
    /// In place of a ring, if a function of this process has the port.
    inside: Option<InsideTx>,
}

/// Result of reading one frame's slots.
enum Look {
    /// The burst has the frame, which took this many slots.
    Pushed(u32),
    /// The burst has no room for it.
    Full,
    /// An invalid frame of this many slots.
    Bad(u32, Reason),
}

impl RingTx {
    pub(super) fn new(shared: Shared) -> RingTx {
        RingTx {
            shared,
            session: 0,
            consumer: None,
            window: Box::new([Slot::default(); WINDOW]),
            ends: Vec::with_capacity(WINDOW),
            released: (0, 0),
            counted: 0,
            inside: None,
        }
    }

    /// The queue of the function that has the port.
    #[cold]
    fn inside(&mut self, turn: &Turn<'_>) -> Option<&mut InsideTx> {
        let now = self.shared.inside(turn);
        if let Some(ended) = self.inside.take_if(|own| now.is_none_or(|(number, _)| own.number != number)) {
            let is_lost = now.is_none_or(|(_, inside)| !ended.is_of(inside));
            let lost = if is_lost { ended.abandon() } else { ended.held() };
            self.shared.config.counters.drop_tx(Reason::Down, lost);
        }
        let (number, inside) = now?;
        if self.inside.is_none() {
            self.inside = Some(InsideTx::new(number, inside));
        }
        self.inside.as_mut()
    }

    /// The current program's ring. For a new program, resets the queue's state.
    #[inline]
    fn open<'t>(&mut self, turn: &'t Turn<'_>) -> Option<(&'t Open, &mut Consumer)> {
        let (number, open) = self.shared.session(turn);
        let open = open?;
        if number != self.session {
            self.inside = None;
            let consumer = Consumer::new(&open.memory, TX);
            self.counted = consumer.next();
            if consumer.next() != 0 {
                // The ring was served before. The former data path may have ended between moving an index and waking
                // the program, which one descriptor does for both rings.
                open.signal(&self.shared.config.counters);
            }
            self.consumer = Some(consumer);
            self.session = number;
            self.ends.clear();
            self.released = (0, 0);
        }
        Some((open, self.consumer.as_mut()?))
    }

    #[inline]
    fn fill<'t>(&mut self, open: &'t Open, count: usize, burst: &mut Burst<'t>) {
        let memory = &open.memory;
        let Some(consumer) = &self.consumer else { return };
        let window = &mut self.window[..count.min(WINDOW)];
        for (ahead, slot) in window.iter_mut().enumerate() {
            *slot = consumer.slot(memory, ahead as u32);
        }
        for slot in window.iter() {
            memory.prefetch_frame(slot.buf_idx);
        }
        let mut at = 0;
        while let Some(slot) = window.get(at as usize) {
            let look = if slot.has_more() {
                several(memory, consumer, &window[at as usize..], at, burst)
            } else {
                single(memory, slot, burst)
            };
            match look {
                Look::Pushed(slots) => {
                    at += slots;
                    self.ends.push(at);
                }
                Look::Full => break,
                Look::Bad(slots, reason) => {
                    // Frames that were not released are read again, but their violations are counted once.
                    let index = consumer.next().wrapping_add(at);
                    if (index.wrapping_sub(self.counted) as i32) >= 0 {
                        self.shared.config.counters.drop_tx(reason, 1);
                        self.counted = index.wrapping_add(slots);
                    }
                    at += slots;
                }
            }
        }
        if self.ends.is_empty() && at > 0 {
            self.skip(open, at);
        }
    }

    /// Returns slots that yielded no frame.
    #[cold]
    fn skip(&mut self, open: &Open, slots: u32) {
        if let Some(consumer) = &mut self.consumer {
            consumer.advance(slots);
            if consumer.publish(&open.memory) {
                open.signal(&self.shared.config.counters);
            }
        }
    }
}

#[inline]
fn single<'t>(memory: &'t RingMemory, slot: &Slot, burst: &mut Burst<'t>) -> Look {
    let len = u32::from(slot.len);
    if len < HEADER {
        return Look::Bad(1, Reason::Short);
    }
    let Some(buffer) = memory.buffer(slot.buf_idx, len) else {
        return Look::Bad(1, Reason::BadAddress);
    };
    match Offload::from_bytes(&slot.offload).check(len, Needs::ALL) {
        Ok(offload) if burst.push(offload, buffer.as_span()).is_ok() => Look::Pushed(1),
        Ok(_) => Look::Full,
        Err(_) => Look::Bad(1, Reason::BadOffload),
    }
}

/// A frame in several slots, of which the first is `window[0]`, `at` slots from the consumer's index.
#[cold]
fn several<'t>(
    memory: &'t RingMemory,
    consumer: &Consumer,
    window: &[Slot],
    at: u32,
    burst: &mut Burst<'t>,
) -> Look {
    let available = consumer.known();
    let mut spans = [Span::empty(); FRAGMENTS];
    let (mut count, mut len, mut bad) = (0, 0, None);
    let mut offload = Offload::default();
    loop {
        // Attack: an endless frame would be read forever; an incomplete one would keep the worker awake. A
        // program must publish whole frames only.
        if at + count >= available || count as usize >= FRAGMENTS {
            return Look::Bad(count.max(1), Reason::BadDescriptor);
        }
        let slot = match window.get(count as usize) {
            Some(slot) => *slot,
            None => consumer.slot(memory, at + count),
        };
        if count == 0 {
            offload = Offload::from_bytes(&slot.offload);
        }
        match memory.buffer(slot.buf_idx, u32::from(slot.len)) {
            Some(buffer) => spans[count as usize] = buffer.as_span(),
            None => bad = Some(Reason::BadAddress),
        }
        len += u32::from(slot.len);
        count += 1;
        if !slot.has_more() {
            break;
        }
    }
    let reason = match offload.check(len, Needs::ALL) {
        _ if bad.is_some() => bad,
        _ if len > LARGEST => Some(Reason::Long),
        _ if len < HEADER => Some(Reason::Short),
        Ok(checked) => {
            let pushed = burst.push_pieces(checked, &spans[..count as usize]);
            return if pushed.is_ok() { Look::Pushed(count) } else { Look::Full };
        }
        Err(_) => Some(Reason::BadOffload),
    };
    Look::Bad(count, reason.unwrap_or(Reason::BadDescriptor))
}

impl TxQueue for RingTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        self.ends.clear();
        self.released = (0, 0);
        let Some((open, consumer)) = self.open(turn) else {
            let config = self.shared.config.clone();
            return self
                .inside(turn)
                .into_iter()
                .for_each(|inside| inside.take(turn, burst, &config.counters));
        };
        match consumer.available(&open.memory, WINDOW as u32) {
            Ok(0) => {}
            Ok(available) => {
                let count = (available as usize).min(WINDOW).min(burst.room());
                self.fill(open, count, burst);
            }
            Err(why) => self.shared.fail(open, why),
        }
    }

    fn release(&mut self, turn: &Turn<'_>, frames: usize) {
        let Some((open, _)) = self.open(turn) else {
            return self.inside(turn).into_iter().for_each(|inside| inside.release(frames));
        };
        let (done, slots) = self.released;
        let last = (done + frames).min(self.ends.len());
        let end = last.checked_sub(1).and_then(|last| self.ends.get(last));
        let (Some(&end), Some(consumer)) = (end, &mut self.consumer) else { return };
        consumer.advance(end - slots);
        self.released = (last, end);
        if consumer.publish(&open.memory) {
            open.signal(&self.shared.config.counters);
        }
    }

    fn is_half_full(&mut self, turn: &Turn<'_>) -> Option<bool> {
        let Some((open, consumer)) = self.open(turn) else {
            return self.inside(turn).map(|inside| inside.is_half_full());
        };
        let half = consumer.slots() / 2;
        // An invalid index is detected by the next `take`.
        Some(consumer.available(&open.memory, half).is_ok_and(|filled| filled >= half))
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        let Some((open, consumer)) = self.open(turn) else {
            return self.inside(turn).is_none_or(|inside| inside.arm());
        };
        match consumer.arm(&open.memory, 1) {
            Ok(armed) => armed,
            Err(why) => {
                self.shared.fail(open, why);
                true
            }
        }
    }

    fn disarm(&mut self, turn: &Turn<'_>) {
        match self.open(turn) {
            Some((open, consumer)) => consumer.disarm(&open.memory),
            None => self.inside(turn).into_iter().for_each(|inside| inside.disarm()),
        }
    }
}
