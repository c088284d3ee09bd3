//! One end of a ring, for whole frames.

use arrayvec::ArrayVec;
use ringway_frame::Offload;
use ringway_mem::{Region, Span};
use ringway_netstack::Transmit;
use ringway_ring::{Broken, Consumer, FRAGMENTS, Producer, PushError, RX, RingMemory, TX};

/// Slots ahead of the one in use whose first bytes are prefetched.
const AHEAD: u32 = 2;
/// Bytes of a cache line.
const LINE: usize = 64;

/// Pieces of a frame.
pub(crate) type Pieces<'a> = ArrayVec<Span<'a>, FRAGMENTS>;

/// A frame in a ring, whose slots stay until the consumer advances over them.
pub(crate) struct Taken<'a> {
    pub pieces: Pieces<'a>,
    pub offload: [u8; 10],
    /// Slots that it takes.
    pub slots: u32,
}

/// One end of a ring.
#[derive(Debug)]
pub(crate) struct End {
    pub memory: RingMemory,
    pub tx: Producer,
    pub rx: Consumer,
    /// The other side violated the ring's rules: nothing comes, and what is sent is lost.
    pub is_broken: bool,
    /// Frames to send that were lost.
    pub lost: u64,
}

impl End {
    /// Attaches to memory that the other side initialized; `None` if the memory has no ring.
    pub fn new(region: Region, is_second: bool) -> Option<End> {
        let memory = RingMemory::attach(region).ok()?;
        let [tx, rx] = if is_second { [RX, TX] } else { [TX, RX] };
        let (tx, rx) = (Producer::new(&memory, tx), Consumer::new(&memory, rx));
        Some(End { memory, tx, rx, is_broken: false, lost: 0 })
    }

    /// Queues a frame. `false`: there is no room. What is too long, or for a ring that is gone, is lost.
    pub fn push<'p>(&mut self, pieces: impl Iterator<Item = Span<'p>> + Clone, offload: [u8; 10]) -> bool {
        if !self.is_broken && !self.memory.is_closed() {
            match self.tx.push_gathered(&self.memory, pieces, offload) {
                Ok(pushed) => return pushed,
                Err(PushError::TooLong { .. }) => {}
                Err(PushError::Broken(_)) => self.is_broken = true,
            }
        }
        self.lost += 1;
        true
    }

    /// Publishes what was queued and taken; whether the other side is to be notified.
    pub fn publish(&mut self) -> bool {
        let sent = self.tx.publish(&self.memory);
        self.rx.publish(&self.memory) | sent
    }

    /// Asks to be notified of frames, and of room if `room`. `false`: they are there already.
    pub fn arm(&mut self, room: bool) -> bool {
        if self.is_broken {
            return true;
        }
        let slots = (FRAGMENTS as u32).min(self.tx.slots() / 2);
        let rx = self.rx.arm(&self.memory, 1);
        let tx = if room { self.tx.arm(&self.memory, slots) } else { Ok(true) };
        match (rx, tx) {
            (Ok(rx), Ok(tx)) => rx && tx,
            _ => {
                self.is_broken = true;
                true
            }
        }
    }
}

/// The next frame.
pub(crate) fn take<'a>(memory: &'a RingMemory, rx: &mut Consumer) -> Result<Option<Taken<'a>>, Broken> {
    if memory.is_closed() {
        return Ok(None);
    }
    let mut pieces = Pieces::new();
    let frame = rx.pieces(memory, |piece| pieces.push(piece))?;
    Ok(frame.map(|(offload, slots)| Taken { pieces, offload, slots }))
}

/// Prefetches the first bytes of a frame a few slots ahead, which another core has written.
pub(crate) fn prefetch(memory: &RingMemory, rx: &Consumer) {
    let slot = rx.slot(memory, AHEAD);
    if let Some(buffer) = memory.buffer(slot.buf_idx, slot.len.into()) {
        let (first, second) = buffer.as_span().split(LINE);
        first.prefetch();
        second.prefetch();
    }
}

/// A port as the stack sends to it.
pub(crate) struct Output<'a> {
    pub end: &'a mut End,
    pub full: bool,
}

impl Transmit for Output<'_> {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let pieces = core::iter::once(Span::of(headers)).chain(payload.iter().copied());
        self.full = !self.end.push(pieces, offload.to_bytes());
        !self.full
    }
}
