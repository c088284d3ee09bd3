//! Frames that leave as datagrams.

use super::too_big::{self, Answered, LONGEST};
use super::{ANSWERS, Codec, Datagrams, Limits, Settings, Shared};
use ringway_frame::{Burst, Caps, HEAD, LARGEST, Lost, Needs, Reason, RxQueue};
use ringway_host::{DATAGRAM_SEGMENTS, DATAGRAMS, DatagramFault, is_writable, send_datagrams};
use ringway_mem::{SpanMut, Turn};
use ringway_wire::flow::Flow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Memory of datagrams that are sent together.
const ARENA: usize = 512 << 10;
/// Largest buffer that the kernel cuts: an IP packet with the headers of IPv6 and UDP.
const BUFFER: usize = 65_535 - 48;
/// How often the path's MTU is asked for, in nanoseconds.
const RENEW: u64 = 1_000_000_000;

/// Datagrams in a row that one call may send: of one flow's source port and class, and of equal size, except that the
/// last may be shorter.
struct Run {
    at: usize,
    len: usize,
    segment: usize,
    tos: u8,
    /// Place of the first frame in `order`, and number of frames.
    first: usize,
    frames: usize,
}

impl Run {
    /// Whether a datagram of `len` bytes can be added.
    #[inline]
    fn takes(&self, len: usize, tos: u8) -> bool {
        let is_even = self.len == self.segment * self.frames;
        let fits = self.frames < DATAGRAM_SEGMENTS && self.len + len <= BUFFER;
        is_even && len <= self.segment && fits && tos == self.tos
    }
}

pub(super) struct WireRx {
    shared: Arc<Shared>,
    codec: Codec,
    limits: Limits,
    key: u64,
    arena: Box<[u8]>,
    used: usize,
    runs: Vec<Run>,
    /// The burst's frames, those of each source port together.
    order: Vec<u16>,
    ports: Vec<u8>,
    /// The kernel refused to cut a buffer into datagrams.
    cuts: bool,
    is_blocked: bool,
    renewed: u64,
    answered: Answered,
}

impl WireRx {
    pub fn new(shared: Arc<Shared>, settings: &Settings, key: u64) -> WireRx {
        WireRx {
            shared,
            codec: Codec::new(settings.encapsulation, settings.vni, settings.dscp),
            limits: Limits::of(settings),
            key,
            arena: vec![0; ARENA].into_boxed_slice(),
            used: 0,
            runs: Vec::with_capacity(DATAGRAMS),
            order: Vec::with_capacity(ringway_frame::BURST),
            ports: Vec::with_capacity(ringway_frame::BURST),
            cuts: true,
            is_blocked: false,
            renewed: 0,
            answered: Answered::default(),
        }
    }

    /// Asks for the path's MTU, from which the longest frame follows.
    #[cold]
    fn renew(&mut self, turn: &Turn<'_>, datagrams: &Datagrams) {
        self.renewed = turn.now;
        if let Some(largest) = datagrams.largest(self.limits) {
            self.shared.largest.store(largest, Relaxed);
        }
    }

    /// Longest frame.
    #[inline]
    fn largest(&self) -> usize {
        self.shared.largest.load(Relaxed) as usize
    }

    /// Answers a frame that is too long.
    #[cold]
    fn answer(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, frame: usize) {
        let Some(answered) = self.answered.due(burst.head(frame), turn.now) else { return };
        let mut head = [0; LONGEST];
        let len = burst.read(frame, 0, &mut head);
        let Some(answer) = too_big::answer(&head[..len], self.largest()) else { return };
        let Ok(mut answers) = self.shared.answers.try_lock() else { return };
        if answers.len() < ANSWERS {
            answers.push(answer);
            answered.set(turn.now.max(1));
        }
        drop(answers);
        self.shared.doorbell.wake();
    }

    /// Writes one frame into the arena. `false`: what is there must leave first.
    #[inline]
    fn stage(&mut self, burst: &Burst<'_>, place: usize) -> bool {
        let frame = usize::from(self.order[place]);
        let (head, len) = (self.codec.header_len(), burst.meta(frame).len as usize);
        let (at, end) = (self.used, self.used + head + len);
        let Some(space) = self.arena.get_mut(at..end) else { return false };
        let tos = self.codec.outer_tos(burst.head(frame));
        let extends = self.cuts && self.runs.last().is_some_and(|run| run.takes(head + len, tos));
        if !extends && self.runs.len() == DATAGRAMS {
            return false;
        }
        let (header, body) = space.split_at_mut(head);
        header.copy_from_slice(&self.codec.header()[..head]);
        burst.copy_to(frame, SpanMut::of(body));
        self.used = end;
        match self.runs.last_mut() {
            Some(run) if extends => {
                run.len += head + len;
                run.frames += 1;
            }
            _ => {
                let segment = head + len;
                self.runs.push(Run { at, len: segment, segment, tos, first: place, frames: 1 });
            }
        }
        true
    }

    /// Sends what is in the arena with the source port's sockets; returns what was lost.
    fn flush(&mut self, turn: &Turn<'_>, datagrams: &Datagrams, port: usize, burst: &Burst<'_>) -> Lost {
        let mut lost = Lost::default();
        let runs = std::mem::take(&mut self.runs);
        let mut at = 0;
        let mut tries = 0;
        while at < runs.len() {
            let filled = datagrams.unfilled.is_empty() || runs[at].frames > 1;
            let kind = |run: &&Run| datagrams.unfilled.is_empty() || (run.frames > 1) == filled;
            let count = runs[at..].iter().take_while(kind).count();
            let sockets = if filled { &datagrams.senders } else { &datagrams.unfilled };
            let Some(socket) = sockets.get(port) else { break };
            let list: [ringway_host::Datagrams<'_>; DATAGRAMS] = std::array::from_fn(|index| {
                let run = runs.get(at + index).filter(|_| index < count);
                run.map_or(ringway_host::Datagrams { bytes: &[], segment: 0, tos: 0 }, |run| {
                    let segment = if run.frames > 1 { run.segment as u16 } else { 0 };
                    let bytes = &self.arena[run.at..run.at + run.len];
                    ringway_host::Datagrams { bytes, segment, tos: run.tos }
                })
            });
            let fault = match send_datagrams(socket.as_fd(), self.limits.ipv6, &list[..count]) {
                Ok(sent) => {
                    (at, tries) = (at + sent.max(1), 0);
                    continue;
                }
                Err(fault) => fault,
            };
            tries += 1;
            match fault {
                // The kernel reports an earlier datagram's error once for each socket.
                DatagramFault::Reported if tries < 3 => continue,
                DatagramFault::NoSegmentation | DatagramFault::TooLong if runs[at].frames > 1 => {
                    self.cuts = fault != DatagramFault::NoSegmentation && self.cuts;
                    lost += self.separately(turn, datagrams, port, burst, &runs[at]);
                    at += 1;
                }
                DatagramFault::Again => {
                    self.is_blocked = true;
                    for run in &runs[at..] {
                        lost += self.lose(Reason::Full, burst, run);
                    }
                    at = runs.len();
                }
                fault => {
                    lost += self.fail(turn, datagrams, burst, &runs[at], fault);
                    at += 1;
                }
            }
        }
        self.runs = runs;
        self.runs.clear();
        self.used = 0;
        lost
    }

    fn lose(&self, reason: Reason, burst: &Burst<'_>, run: &Run) -> Lost {
        Lost::count(&self.shared.counters, reason, burst, &self.order[run.first..run.first + run.frames])
    }

    /// Counts what the kernel did not send.
    #[cold]
    fn fail(
        &mut self,
        turn: &Turn<'_>,
        datagrams: &Datagrams,
        burst: &Burst<'_>,
        run: &Run,
        fault: DatagramFault,
    ) -> Lost {
        let reason = match fault {
            DatagramFault::TooLong => Reason::Long,
            DatagramFault::Down | DatagramFault::Reported => Reason::Down,
            DatagramFault::Again => Reason::Full,
            DatagramFault::NoSegmentation | DatagramFault::Refused => Reason::System,
        };
        if fault == DatagramFault::TooLong {
            // The path has become narrower.
            self.renew(turn, datagrams);
            self.answer(turn, burst, usize::from(self.order[run.first]));
        }
        self.lose(reason, burst, run)
    }

    /// Sends the datagrams of a run that the kernel refused to cut.
    #[cold]
    fn separately(
        &mut self,
        turn: &Turn<'_>,
        datagrams: &Datagrams,
        port: usize,
        burst: &Burst<'_>,
        run: &Run,
    ) -> Lost {
        let mut lost = Lost::default();
        let sockets = if datagrams.unfilled.is_empty() { &datagrams.senders } else { &datagrams.unfilled };
        let Some(socket) = sockets.get(port) else { return self.lose(Reason::Down, burst, run) };
        for index in 0..run.frames {
            let at = run.at + index * run.segment;
            let len = run.segment.min(run.at + run.len - at);
            let one = Run { at, len, segment: len, tos: run.tos, first: run.first + index, frames: 1 };
            let bytes = &self.arena[at..at + len];
            let list = [ringway_host::Datagrams { bytes, segment: 0, tos: run.tos }];
            if let Err(fault) = send_datagrams(socket.as_fd(), self.limits.ipv6, &list) {
                self.is_blocked |= fault == DatagramFault::Again;
                lost += self.fail(turn, datagrams, burst, &one, fault);
            }
        }
        lost
    }

    /// Sorts the frames by source port, each port's in their order; returns the set of ports. Frames that are too long
    /// are answered and lost.
    fn sort(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16], ports: usize) -> (u64, Lost) {
        let (mut set, mut lost) = (0_u64, Lost::default());
        self.ports.clear();
        let largest = self.largest();
        for (place, &frame) in which.iter().enumerate() {
            let index = usize::from(frame);
            if burst.meta(index).len as usize > largest {
                self.answer(turn, burst, index);
                lost += Lost::count(&self.shared.counters, Reason::Long, burst, &which[place..=place]);
                self.ports.push(u8::MAX);
                continue;
            }
            let len = (burst.meta(index).len as usize).min(HEAD);
            let flow = Flow::parse(&burst.head(index)[..len]);
            let hash = flow.map_or(0, |flow| flow.symmetric_hash(self.key));
            // The upper half of a product: without a division.
            let port = (((hash >> 32) * ports as u64) >> 32) as u8;
            set |= 1 << port;
            self.ports.push(port);
        }
        (set, lost)
    }
}

impl RxQueue for WireRx {
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        let shared = self.shared.clone();
        let datagrams = shared.datagrams(turn)?;
        if turn.now.saturating_sub(self.renewed) >= RENEW || self.renewed == 0 {
            self.renew(turn, datagrams);
        }
        // Longer frames are accepted to answer them.
        Some(Caps { offloads: Needs::NONE, largest: LARGEST })
    }

    fn reserve(&mut self, turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
        if self.is_blocked {
            // All sockets leave through the same interface.
            let first = self.shared.datagrams(turn).and_then(|datagrams| datagrams.senders.first());
            self.is_blocked = first.is_some_and(|socket| !is_writable(socket.as_fd()));
        }
        if self.is_blocked { 0 } else { which.len() }
    }

    /// Sends the frames at once; deferring them until `publish` would hide their loss.
    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let shared = self.shared.clone();
        let Some(datagrams) = shared.datagrams(turn) else {
            return Lost::count(&shared.counters, Reason::Down, burst, which);
        };
        let (mut set, mut lost) = self.sort(turn, burst, which, datagrams.senders.len());
        while set != 0 {
            let port = set.trailing_zeros() as usize;
            set &= set - 1;
            self.order.clear();
            let of_port = which.iter().zip(&self.ports).filter(|(_, of)| usize::from(**of) == port);
            self.order.extend(of_port.map(|(frame, _)| *frame));
            for place in 0..self.order.len() {
                if !self.stage(burst, place) {
                    lost += self.flush(turn, datagrams, port, burst);
                    if !self.stage(burst, place) {
                        let frame = &self.order[place..=place];
                        lost += Lost::count(&shared.counters, Reason::Long, burst, frame);
                    }
                }
            }
            lost += self.flush(turn, datagrams, port, burst);
        }
        lost
    }

    fn publish(&mut self, _turn: &Turn<'_>) {}
}
