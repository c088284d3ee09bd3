//! Frames over TCP, each behind its length in four bytes.
//!
//! What a broken connection has not delivered is lost, as on a cable that is pulled.

use super::{Settings, Shared};
use crate::peer::Gone;
use ringway_frame::{BURST, Burst, Caps, LARGEST, Lost, Needs, Offload, Reason, RxQueue, TxQueue};
use ringway_host::{HostError, Mapping, stream_receive, stream_send};
use ringway_mem::{Hint, Memory, Published, SpanMut, Turn, copy};
use ringway_wire::ethernet;
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes of a frame's length.
const LENGTH: usize = 4;
/// Memory of each direction: several of the longest frames.
const ARENA: usize = 512 << 10;
/// How long bytes without room in the socket wait for the next attempt, in nanoseconds.
const AGAIN: u64 = 100_000;

impl Shared {
    /// The stream and its number, unless it is broken.
    #[inline]
    fn stream<'t>(&self, turn: &'t Turn<'_>) -> Option<(&'t Arc<OwnedFd>, u64)> {
        let open = self.open.read(turn);
        open.stream.as_ref().filter(|_| !open.is_gone.load(Relaxed)).map(|stream| (stream, open.number))
    }

    /// Reports that the stream has ended.
    #[cold]
    fn lose(&self, turn: &Turn<'_>, reason: String, fault: bool) {
        if !self.open.read(turn).is_gone.swap(true, Relaxed) {
            self.alarm.raise(Gone { reason, fault, rest: 0 });
        }
    }
}

/// Frames to the peer.
pub(super) struct StreamRx {
    shared: Arc<Shared>,
    largest: u32,
    arena: Box<[u8]>,
    /// The bytes that the socket had no room for yet.
    start: usize,
    end: usize,
    /// The stream that they are for.
    number: u64,
    due: Option<u64>,
}

impl StreamRx {
    pub fn new(shared: Arc<Shared>, settings: &Settings) -> StreamRx {
        let largest = settings.mtu.map_or(LARGEST, |mtu| u32::from(mtu) + ethernet::HEADER_LEN as u32);
        let arena = vec![0; ARENA].into_boxed_slice();
        StreamRx { shared, largest, arena, start: 0, end: 0, number: 0, due: None }
    }

    fn flush(&mut self, turn: &Turn<'_>) {
        self.due = None;
        let shared = self.shared.clone();
        let Some((stream, number)) = shared.stream(turn) else {
            (self.start, self.end) = (0, 0);
            return;
        };
        if number != self.number {
            // The rest of a frame of a former stream would shift all that follows.
            (self.start, self.end, self.number) = (0, 0, number);
        }
        while self.start < self.end {
            match stream_send(stream.as_fd(), &self.arena[self.start..self.end]) {
                Ok(sent) => self.start += sent,
                Err(error) if is_temporary(error) => {
                    self.due = Some(turn.now + AGAIN);
                    break;
                }
                Err(error) => {
                    self.end = self.start;
                    shared.lose(turn, format!("the connection broke: {error}"), false);
                }
            }
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > ARENA / 2 {
            self.arena.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
    }
}

fn is_temporary(error: impl Into<std::io::Error>) -> bool {
    use std::io::ErrorKind;
    matches!(error.into().kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::OutOfMemory)
}

impl RxQueue for StreamRx {
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        self.shared.stream(turn).map(|_| Caps { offloads: Needs::NONE, largest: self.largest })
    }

    fn reserve(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> usize {
        self.flush(turn);
        let mut room = ARENA - self.end;
        let fits = |frame: &&u16| {
            let len = burst.meta(usize::from(**frame)).len as usize + LENGTH;
            let fits = len <= room;
            room = room.saturating_sub(len);
            fits
        };
        which.iter().take_while(fits).count()
    }

    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        for (done, &frame) in which.iter().enumerate() {
            let len = burst.meta(usize::from(frame)).len as usize;
            let Some(space) = self.arena.get_mut(self.end..self.end + LENGTH + len) else {
                return Lost::count(&self.shared.counters, Reason::Full, burst, &which[done..]);
            };
            space[..LENGTH].copy_from_slice(&(len as u32).to_be_bytes());
            burst.copy_to(usize::from(frame), SpanMut::of(&mut space[LENGTH..]));
            self.end += LENGTH + len;
        }
        self.flush(turn);
        Lost::default()
    }

    fn publish(&mut self, turn: &Turn<'_>) {
        if self.due.is_some() {
            self.flush(turn);
        }
    }

    fn next_due(&self) -> Option<u64> {
        self.due
    }
}

/// A frame that was not released yet.
struct Held {
    at: u64,
    len: u32,
}

/// Frames from the peer.
pub(super) struct StreamTx {
    shared: Arc<Shared>,
    /// Never replaced; published, so that frames in it may be borrowed for a turn.
    arena: Published<Memory>,
    held: VecDeque<Held>,
    /// The received bytes that were not taken yet.
    start: usize,
    end: usize,
    /// The stream that they are from.
    number: u64,
}

/// Why there is no frame yet.
enum NoFrame {
    /// More bytes are needed.
    Incomplete,
    /// No frame has this length.
    Wrong(u32),
}

impl StreamTx {
    pub fn new(shared: Arc<Shared>) -> Result<StreamTx, HostError> {
        let arena = Memory::new(vec![Mapping::private(ARENA)?.region()]).unwrap_or_default();
        let arena = Published::new(Arc::new(arena));
        Ok(StreamTx { shared, arena, held: VecDeque::with_capacity(BURST), start: 0, end: 0, number: 0 })
    }

    /// Moves the bytes that were not taken to the start, if little room is left behind them.
    fn make_room(&mut self, arena: &Memory) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if ARENA - self.end < LARGEST as usize + LENGTH {
            // The bytes are fewer than one frame, and the room before them is larger: the two don't overlap.
            let len = self.end - self.start;
            let from = arena.span(self.start as u64, len as u32, &mut Hint::default());
            let to = arena.span_mut(0, len as u32, &mut Hint::default());
            if let (Some(from), Some(to), true) = (from, to, len <= self.start) {
                copy(from, to);
                (self.start, self.end) = (0, len);
            }
        }
    }

    /// Receives more bytes; `false` if there are none.
    fn receive(&mut self, turn: &Turn<'_>, arena: &Memory) -> bool {
        let shared = self.shared.clone();
        let Some((stream, number)) = shared.stream(turn) else { return false };
        if number != self.number {
            (self.start, self.end, self.number) = (0, 0, number);
        }
        self.make_room(arena);
        let room = (ARENA - self.end) as u32;
        let Some(space) = arena.span_mut(self.end as u64, room, &mut Hint::default()) else { return false };
        match stream_receive(stream.as_fd(), space) {
            Ok(0) => shared.lose(turn, "the peer closed the connection".into(), false),
            Ok(count) => {
                self.end += count;
                return true;
            }
            Err(error) if is_temporary(error) => {}
            Err(error) => shared.lose(turn, format!("the connection broke: {error}"), false),
        }
        false
    }

    /// The next frame among the received bytes.
    fn next(&mut self, arena: &Memory) -> Result<Held, NoFrame> {
        let bytes = (self.end - self.start) as u32;
        let all = arena.span(self.start as u64, bytes, &mut Hint::default()).ok_or(NoFrame::Incomplete)?;
        let length = u32::from_be_bytes(all.read_array::<LENGTH>().ok_or(NoFrame::Incomplete)?);
        // Attack: a length that no frame has, for which the port would wait, or keep memory, for ever.
        if !(ethernet::HEADER_LEN as u32..=LARGEST).contains(&length) {
            return Err(NoFrame::Wrong(length));
        }
        if all.len() - LENGTH < length as usize {
            return Err(NoFrame::Incomplete);
        }
        let at = (self.start + LENGTH) as u64;
        self.start += LENGTH + length as usize;
        Ok(Held { at, len: length })
    }

    fn unpack<'t>(&mut self, turn: &Turn<'_>, arena: &'t Memory, burst: &mut Burst<'t>) {
        while burst.room() > 0 && self.held.len() < BURST {
            match self.next(arena) {
                Ok(held) => {
                    let frame = arena.span(held.at, held.len, &mut Hint::default());
                    self.held.push_back(held);
                    // One that doesn't fit is in the next burst.
                    if frame.is_none_or(|frame| burst.push(Offload::default(), frame).is_err()) {
                        return;
                    }
                }
                Err(NoFrame::Incomplete) => return,
                Err(NoFrame::Wrong(length)) => {
                    (self.start, self.end) = (0, 0);
                    let reason = format!("the peer announced a frame of {length} bytes");
                    return self.shared.lose(turn, reason, true);
                }
            }
        }
    }
}

impl TxQueue for StreamTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let arena: &'t Memory = self.arena.read(turn);
        for held in &self.held {
            let frame = arena.span(held.at, held.len, &mut Hint::default());
            if frame.is_none_or(|frame| burst.push(Offload::default(), frame).is_err()) {
                return;
            }
        }
        self.unpack(turn, arena, burst);
        // Frames that were not released keep their places.
        if self.held.is_empty() && self.receive(turn, arena) {
            self.unpack(turn, arena, burst);
        }
    }

    fn release(&mut self, _turn: &Turn<'_>, frames: usize) {
        self.held.drain(..frames.min(self.held.len()));
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        if !self.held.is_empty() {
            return false;
        }
        // The descriptor is reported at once if there are bytes already.
        if let Some((stream, _)) = self.shared.stream(turn) {
            self.shared.doorbell.watch(stream.clone());
        }
        true
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {
        self.shared.doorbell.unwatch();
    }
}
