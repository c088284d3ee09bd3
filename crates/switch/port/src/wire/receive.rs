//! Frames that arrive as datagrams, and answers to frames that were too long.

use super::{ANSWERS, Codec, Settings, Shared, too_big};
use crate::offload::unfinished;
use ringway_frame::{BURST, Burst, Coalesced, Needs, Offload, Reason, Segment, TxQueue};
use ringway_host::{DATAGRAMS, HostError, Mapping, Received, receive_datagrams};
use ringway_mem::{Hint, Memory, Published, Span, SpanMut, Turn};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Distance of two buffers: 64 KB and some cache lines, so that their first ones are in different sets of the cache.
const STRIDE: usize = (64 << 10) + 5 * 64;
/// Room for an answer.
const ANSWER: usize = too_big::LONGEST.next_multiple_of(64);
const ANSWERS_AT: usize = DATAGRAMS * STRIDE;
const ARENA: usize = ANSWERS_AT + ANSWERS * ANSWER;
/// Longest frame that is joined with others.
const SEGMENT: usize = 9216;
/// Largest number of refused datagrams in one turn. Attack: a buffer of many datagrams that yield no frame.
const BROKEN: usize = 256;
/// Strangers' datagrams are looked for once in this many receptions.
const STRANGERS: u32 = 64;

/// A received buffer that has further datagrams.
#[derive(Clone, Copy)]
struct Buffer {
    at: usize,
    len: usize,
    segment: usize,
    tos: u8,
}

/// A frame that was not released yet.
struct Held {
    at: u64,
    len: u32,
    offload: Offload,
}

pub(super) struct WireTx {
    shared: Arc<Shared>,
    codec: Codec,
    peer: IpAddr,
    /// Never replaced; published, so that frames in it may be borrowed for a turn.
    arena: Published<Memory>,
    buffers: VecDeque<Buffer>,
    held: VecDeque<Held>,
    answers: Vec<Vec<u8>>,
    receptions: u32,
    /// A frame that is about to be joined with the one before it.
    segment: Box<[u8]>,
}

impl WireTx {
    pub fn new(shared: Arc<Shared>, settings: &Settings) -> Result<WireTx, HostError> {
        let arena = Memory::new(vec![Mapping::private(ARENA)?.region()]).unwrap_or_default();
        Ok(WireTx {
            shared,
            codec: Codec::new(settings.encapsulation, settings.vni, settings.dscp),
            peer: settings.peer.ip(),
            arena: Published::new(Arc::new(arena)),
            buffers: VecDeque::with_capacity(DATAGRAMS),
            held: VecDeque::with_capacity(BURST),
            answers: Vec::new(),
            receptions: 0,
            segment: vec![0; SEGMENT].into_boxed_slice(),
        })
    }

    /// Takes answers, which are few, into their part of the arena.
    fn take_answers<'t>(&mut self, arena: &'t Memory, burst: &mut Burst<'t>) {
        if let Ok(mut answers) = self.shared.answers.try_lock() {
            std::mem::swap(&mut *answers, &mut self.answers);
        }
        for (number, answer) in self.answers.drain(..).enumerate() {
            let at = (ANSWERS_AT + number * ANSWER) as u64;
            let Some(space) = arena.span_mut(at, answer.len() as u32, &mut Hint::default()) else { return };
            space.write(&answer);
            let held = Held { at, len: answer.len() as u32, offload: Offload::default() };
            // One that the burst has no room for is in the next one.
            let _ = burst.push(held.offload, space.as_span());
            self.held.push_back(held);
        }
    }

    /// Receives buffers; `false` if there are none.
    fn receive(&mut self, turn: &Turn<'_>, arena: &Memory) -> bool {
        let Some(datagrams) = self.shared.datagrams(turn) else { return false };
        let mut out = [Received::default(); DATAGRAMS];
        let Some(all) = arena.span_mut(0, ANSWERS_AT as u32, &mut Hint::default()) else { return false };
        let spaces: [SpanMut<'_>; DATAGRAMS] =
            std::array::from_fn(|slot| all.split(slot * STRIDE).1.split(STRIDE).0);
        self.receptions = self.receptions.wrapping_add(1);
        if self.receptions.is_multiple_of(STRANGERS) {
            self.refuse_strangers(turn, &spaces);
        }
        let received = receive_datagrams(datagrams.receiver.as_fd(), &spaces, &mut out).unwrap_or(0);
        for (slot, one) in out[..received].iter().enumerate() {
            let reason = match one.from {
                from if from != self.peer => Reason::WrongPeer,
                _ if one.truncated => Reason::Long,
                // Attack: a datagram without a byte.
                _ if one.len == 0 => Reason::Short,
                _ => {
                    let (len, segment) = (one.len as usize, one.segment.max(1) as usize);
                    self.buffers.push_back(Buffer { at: slot * STRIDE, len, segment, tos: one.tos });
                    continue;
                }
            };
            self.shared.counters.drop_tx(reason, one.datagrams());
        }
        received > 0
    }

    /// Counts datagrams that others sent.
    #[cold]
    fn refuse_strangers(&self, turn: &Turn<'_>, spaces: &[SpanMut<'_>]) -> bool {
        let Some(datagrams) = self.shared.datagrams(turn) else { return false };
        let mut out = [Received::default(); DATAGRAMS];
        let received = receive_datagrams(datagrams.strangers.as_fd(), spaces, &mut out).unwrap_or(0);
        let count = out[..received].iter().map(Received::datagrams).sum();
        self.shared.counters.drop_tx(Reason::WrongPeer, count);
        received > 0
    }

    /// Joins a TCP segment with those that follow it in its buffer. Attack: datagrams that repeat, overlap or
    /// miss bytes; only segments that segmentation makes of the frame again are joined.
    fn join(&mut self, arena: &Memory, frame: &mut Held) {
        let mut end = frame.at + u64::from(frame.len);
        let Some(buffer) = self.buffers.front_mut().filter(|buffer| buffer.at as u64 == end) else { return };
        let span = |at: u64, len: usize| arena.span_mut(at, len as u32, &mut Hint::default());
        let read = |from: Span<'_>, to: &mut [u8]| (from.len() <= to.len()).then(|| from.read(to));
        let first = span(frame.at, frame.len as usize);
        let Some(len) = first.and_then(|first| read(first.as_span(), &mut self.segment)) else { return };
        // Frames to groups are limited and delivered one by one.
        if self.segment[..len].first().is_none_or(|first| first & 1 != 0) {
            return;
        }
        let Some(first) = Segment::parse(&self.segment[..len], len) else { return };
        // Datagrams are joined where they leave: few receivers take large frames of these.
        if first.needs().covers(Needs::USO) {
            return;
        }
        let Some(mut joined) = Coalesced::begin(&first, &self.segment[..len]) else { return };
        while buffer.len > 0 {
            let datagram = buffer.segment.min(buffer.len);
            // One that is refused or does not follow is taken again, as a frame of its own.
            let next = span(buffer.at as u64, datagram)
                .and_then(|next| read(self.codec.decapsulate(next, buffer.tos).ok()?, &mut self.segment));
            let Some((payload, len)) = next.and_then(|len| Some((joined.append(&self.segment[..len])?, len)))
            else {
                break;
            };
            let Some(space) = span(end, len - payload) else { break };
            space.write(&self.segment[payload..len]);
            end += (len - payload) as u64;
            (buffer.at, buffer.len) = (buffer.at + datagram, buffer.len - datagram);
        }
        let Some((headers, len, offload)) = joined.finish() else { return };
        let Some(space) = span(frame.at, len) else { return };
        space.write(&headers[..len]);
        (frame.len, frame.offload) = ((end - frame.at) as u32, offload);
        if buffer.len == 0 {
            self.buffers.pop_front();
        }
    }

    /// Takes frames from the received buffers.
    fn unpack<'t>(&mut self, arena: &'t Memory, burst: &mut Burst<'t>) {
        let largest = self.shared.largest.load(Relaxed) as usize;
        let mut broken = 0;
        while burst.room() > 0 && self.held.len() < BURST && broken < BROKEN {
            let Some(buffer) = self.buffers.front_mut() else { return };
            let len = buffer.segment.min(buffer.len);
            let (at, tos) = (buffer.at as u64, buffer.tos);
            (buffer.at, buffer.len) = (buffer.at + len, buffer.len - len);
            if buffer.len == 0 {
                self.buffers.pop_front();
            }
            let Some(datagram) = arena.span_mut(at, len as u32, &mut Hint::default()) else { return };
            let frame = match self.codec.decapsulate(datagram, tos) {
                Ok(frame) => frame,
                Err(reason) => {
                    self.shared.counters.drop_tx(reason, 1);
                    broken += 1;
                    continue;
                }
            };
            let offload = unfinished::offload(frame, largest);
            let Ok(offload) = offload.check(frame.len() as u32, Needs::ALL) else {
                self.shared.counters.drop_tx(Reason::BadOffload, 1);
                broken += 1;
                continue;
            };
            let at = at + (len - frame.len()) as u64;
            let mut held = Held { at, len: frame.len() as u32, offload };
            if offload.is_done() {
                self.join(arena, &mut held);
            }
            let Some(frame) = arena.span(held.at, held.len, &mut Hint::default()) else { return };
            let offload = held.offload;
            self.held.push_back(held);
            // The burst may have other queues' frames already; a frame that doesn't fit is in the next burst.
            if burst.push(offload, frame).is_err() {
                return;
            }
        }
    }
}

impl TxQueue for WireTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let arena: &'t Memory = self.arena.read(turn);
        for held in &self.held {
            let frame = arena.span(held.at, held.len, &mut Hint::default());
            if frame.is_none_or(|frame| burst.push(held.offload, frame).is_err()) {
                return;
            }
        }
        if self.held.is_empty() {
            self.take_answers(arena, burst);
        }
        // Buffers are used again when all of their frames are released.
        if self.buffers.is_empty() && (!self.held.is_empty() || !self.receive(turn, arena)) {
            return;
        }
        self.unpack(arena, burst);
    }

    fn release(&mut self, _turn: &Turn<'_>, frames: usize) {
        self.held.drain(..frames.min(self.held.len()));
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        if !self.held.is_empty() || !self.buffers.is_empty() {
            return false;
        }
        if self.shared.answers.try_lock().is_ok_and(|answers| !answers.is_empty()) {
            return false;
        }
        let Some(datagrams) = self.shared.datagrams(turn) else { return true };
        // Strangers' datagrams would keep the worker awake; those that arrive later wake it once for each turn.
        let arena = self.arena.read(turn);
        let space = arena.span_mut(0, STRIDE as u32, &mut Hint::default());
        if space.is_some_and(|space| self.refuse_strangers(turn, &[space])) {
            return false;
        }
        // The descriptor is reported at once if there is a datagram already.
        self.shared.doorbell.watch(datagrams.readable.clone());
        true
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {
        self.shared.doorbell.unwatch();
    }
}
