//! Bytes to send in the memory of a ring: frames name their buffers, so that the program's bytes are copied once on
//! their way to the switch.

use super::StoredBytes;
use ringway_mem::Span;
use ringway_netstack::Source;
use ringway_ring_client::{Lent, Ring, RingError, RingKind, Tx};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Buffers that are looked at for each that is needed.
const LOOKS: usize = 4;
/// The smallest buffers that are worth their management: with 4 KB it takes longer than the copy that it saves.
pub(super) const LEAST: u32 = 8192;

/// A buffer with bytes of a connection.
#[derive(Debug)]
struct Stored(Lent);

impl Source for Stored {
    fn len(&self) -> usize {
        self.0.size()
    }

    fn span(&self, range: Range<usize>) -> Span<'_> {
        self.0.span().split(range.end).0.split(range.start).1
    }

    fn is_fixed(&self) -> bool {
        true
    }
}

/// The buffers of a ring that are in no slot.
#[derive(Debug, Default)]
pub(super) struct Lending {
    /// Buffers without bytes; the last one was used last, so that it is still in the core's cache.
    free: Vec<Arc<Stored>>,
    /// Buffers of connections, which may have returned them.
    lent: VecDeque<Arc<Stored>>,
    /// The number of the first one.
    first: u16,
    /// For each: the slot before which the last frame with its bytes ends.
    until: Vec<u32>,
    /// Up to which slot the switch has read, at least; never further behind than the ring has slots.
    consumed: u32,
}

/// Whether the frame that ends before the slot `until` is among the `slots` after `consumed`. Only then it is not read
/// yet: a buffer may be kept for any number of frames, so that `until` may be anywhere else.
fn is_pending(until: u32, consumed: u32, slots: u32) -> bool {
    until.wrapping_sub(consumed).wrapping_sub(1) < slots
}

impl Lending {
    /// The buffers of a ring, if they are large enough. Those of a pipe are not used, since the program at its other
    /// end may exchange them.
    pub fn new(ring: &Ring) -> Lending {
        if ring.kind() == RingKind::Pipe || ring.slot_size() < LEAST {
            return Lending::default();
        }
        let tx = &ring.tx;
        let (numbers, consumed) = (tx.extra(), tx.head());
        let (first, until) = (numbers.start, vec![consumed; numbers.len()]);
        let buffers = numbers.rev().filter_map(|number| tx.lend(number));
        let free = buffers.map(|lent| Arc::new(Stored(lent))).collect();
        Lending { free, lent: VecDeque::new(), first, until, consumed }
    }

    /// Copies bytes to a free buffer. Attack: a peer that does not acknowledge what it is sent keeps the buffers;
    /// others then copy their bytes once more.
    pub fn store(&mut self, tx: &mut Tx, bytes: &[u8]) -> Result<Option<StoredBytes>, RingError> {
        // First those that were returned since, which are in the core's cache.
        while self.lent.front().is_some_and(|first| Arc::strong_count(first) == 1) && self.reclaim(tx)? {}
        if self.free.is_empty() {
            // The connection that keeps the first one may have stopped.
            for _ in 0..LOOKS.min(self.lent.len()) {
                if !self.reclaim(tx)? {
                    self.lent.rotate_left(1);
                }
            }
        }
        let Some(buffer) = self.free.pop() else { return Ok(None) };
        let len = buffer.0.write(bytes);
        self.lent.push_back(buffer.clone());
        Ok(Some((buffer, len)))
    }

    /// Takes back the first buffer if no connection needs it. Attack: a peer may acknowledge bytes before the switch
    /// has read the frame; if the buffer were used again then, the frame would have another connection's bytes.
    fn reclaim(&mut self, tx: &mut Tx) -> Result<bool, RingError> {
        let Some(buffer) = self.lent.front().filter(|first| Arc::strong_count(first) == 1) else {
            return Ok(false);
        };
        let until = self.until.get(usize::from(buffer.0.number() - self.first)).copied();
        let until = until.unwrap_or(self.consumed);
        if is_pending(until, self.consumed, tx.slots()) {
            self.consumed = tx.consumed()?;
        }
        let is_read = !is_pending(until, self.consumed, tx.slots());
        if is_read {
            self.free.extend(self.lent.pop_front());
        }
        Ok(is_read)
    }

    /// A frame was pushed that ends before the slot `head`; how many of its bytes were not copied.
    pub fn pushed(&mut self, tx: &Tx, payload: &[Span<'_>], head: u32) -> usize {
        if self.until.is_empty() {
            return 0;
        }
        if head.wrapping_sub(self.consumed) > tx.slots() {
            // The ring had room, so what is further behind was read.
            self.consumed = head.wrapping_sub(tx.slots());
        }
        let mut lent = 0;
        for span in payload {
            let Some(number) = tx.lent(*span) else { continue };
            lent += span.len();
            if let Some(until) = self.until.get_mut(usize::from(number - self.first)) {
                *until = head;
            }
        }
        lent
    }
}

#[cfg(test)]
mod tests {
    use super::is_pending;

    #[test]
    fn a_frame_is_pending_only_within_the_slots_that_are_not_read() {
        for consumed in [0u32, 100, u32::MAX - 3, 1 << 31] {
            let pending = |after: u32| is_pending(consumed.wrapping_add(after), consumed, 256);
            assert!(!pending(0) && pending(1) && pending(256) && !pending(257));
            // Its buffer was kept while billions of slots were sent.
            assert!([1 << 31, (1 << 31) + 1, u32::MAX - 256].iter().all(|kept| !pending(*kept)));
        }
    }
}
