//! The transmit ring: frames that the guest sends.

use super::csb::{Csb, Direction};
use super::filter::VME;
use super::interrupts::{TXDW, TXQE};
use super::loopback::Loopback;
use super::offload::{Context, Request};
use super::registers as reg;
use super::shared::{Bus, Shared};
use super::signal::Signal;
use super::stats::Tally;
use super::tail::{set_head, tail};
use crate::chip::Transmit;
use crate::device::Raise;
use crate::pieces::{CRC, Cast, PIECES, gather, split_headers};
use crate::ring::{Part, Ring};
use crate::techniques::{Doorbells, Techniques};
use alloc::boxed::Box;
use alloc::vec;
use core::sync::atomic::{Ordering, fence};
use ringway_frame::{BURST, Burst, CountersRef, HEADERS, LARGEST, Reason, add};
use ringway_mem::{Direct, Hint, Span};
use ringway_wire::ethernet::HEADER_LEN;

/// Descriptors that are examined in a turn. Attack: a ring of 65,528 descriptors without a frame.
const SCAN: usize = 1024;

/// Bits of a descriptor's second word: end of packet, checksum (legacy) or segmentation, report status, extended
/// format, VLAN tag, delayed interrupt.
const EOP: u64 = 1 << 24;
const IC: u64 = 1 << 26;
const TSE: u64 = 1 << 26;
const RS: u64 = 1 << 27;
const DEXT: u64 = 1 << 29;
const VLE: u64 = 1 << 30;
const IDE: u64 = 1 << 31;
/// Checksums of a data descriptor: IP header, upper layer.
const IXSM: u64 = 1 << 40;
const TXSM: u64 = 1 << 41;
/// Where the status is in a descriptor, and its bit for a descriptor that is done.
const STATUS_AT: usize = 12;
const DD: u8 = 1;

/// The contexts for checksums and for segmentation.
type Contexts = [Context; 2];

/// A frame that was taken.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// The index after its last descriptor.
    end: u32,
    /// How many descriptors that ask for a status there are up to its end.
    reports: u32,
    contexts: Contexts,
    /// Its interrupt may be delayed.
    delayed: bool,
    segmented: bool,
    cast: Cast,
    len: u32,
}

/// What the ring has next.
enum Next {
    /// A frame: its parts, its bytes, and what it asks for.
    Frame { pieces: usize, len: usize, request: Request, delayed: bool },
    /// Descriptors that are released without a frame.
    Skip(Option<Reason>),
    /// The ring has nothing complete.
    Nothing,
}

/// A position while the ring is examined.
#[derive(Clone, Copy, Debug)]
struct Scan {
    at: u32,
    left: u32,
    reports: usize,
    contexts: Contexts,
}

impl Scan {
    /// The descriptors up to here, without a frame.
    fn passed(&self) -> Taken {
        let Scan { at: end, reports, contexts, .. } = *self;
        Taken { end, reports: reports as u32, contexts, ..Taken::default() }
    }
}

/// The engine of a transmit ring. One worker owns it.
#[derive(Debug)]
pub struct TxEngine {
    pub(super) counters: CountersRef,
    /// Present once the PHY looped frames back.
    pub(super) loopback: Option<Box<Loopback>>,
    ring: Ring,
    contexts: Contexts,
    signal: Signal,
    hint: Hint,
    taken: Box<[Taken]>,
    count: usize,
    released: usize,
    /// Indices of descriptors that ask for a status, of the frames taken, and how many were written.
    reports: Box<[u32]>,
    reported: usize,
    /// The ring is not in memory, which was counted.
    outside: bool,
    /// The tail when nothing was found.
    seen: u32,
    /// The last tail.
    last: u32,
    /// When mapped doorbells are looked at again.
    poll_at: Option<u64>,
    due: Option<u64>,
}

impl TxEngine {
    /// An engine that adds drops and faults to `counters`.
    pub fn new(counters: CountersRef) -> TxEngine {
        TxEngine {
            counters,
            loopback: None,
            ring: Ring::default(),
            contexts: Contexts::default(),
            signal: Signal::new(Direction::Tx),
            hint: Hint::default(),
            taken: vec![Taken::default(); BURST].into_boxed_slice(),
            count: 0,
            released: 0,
            reports: vec![0; SCAN].into_boxed_slice(),
            reported: 0,
            outside: false,
            seen: u32::MAX,
            last: 0,
            poll_at: None,
            due: None,
        }
    }

    /// Takes the ring's description over. `false`: there is not a ring.
    #[inline]
    fn adopt(&mut self, bus: &Bus<'_>, raise: &mut Raise) -> bool {
        self.signal.adopt(bus, raise);
        match self.ring.adopt(&bus.shared.tx, false) {
            None => return false,
            Some(false) => {}
            Some(true) => {
                self.contexts = Contexts::default();
                (self.count, self.released, self.hint, self.seen) = (0, 0, Hint::default(), u32::MAX);
                self.signal.reset();
                self.outside = false;
            }
        }
        if !self.signal.techniques().cached {
            self.hint = Hint::default();
        }
        true
    }

    /// [`Transmit::take`], also for frames that don't leave.
    pub(super) fn collect<'t>(&mut self, bus: &Bus<'t>, burst: &mut Burst<'t>) -> Raise {
        let mut raise = Raise::NONE;
        self.poll_at = None;
        if !self.adopt(bus, &mut raise) {
            raise |= bus.shared.interrupts.due(bus.now);
            self.due = bus.shared.interrupts.next_due();
            return raise;
        }
        let mut hint = self.hint;
        let mut translate = Direct::new(bus.memory, &mut hint);
        let csb = self.signal.csb(bus, &mut translate);
        (self.count, self.released, self.reported) = (0, 0, 0);
        let tail = tail(bus, csb, Direction::Tx);
        if core::mem::replace(&mut self.last, tail) != tail {
            add(&bus.shared.doorbells[0], 1);
        }
        let sends = bus.shared.link() || bus.shared.loops_back();
        let available = if sends { self.ring.available(tail) } else { 0 };
        if available > 0 {
            self.fill(bus, &mut translate, burst, available, (csb, &mut raise));
        }
        self.hint = hint;
        self.seen = if self.count == 0 { tail } else { u32::MAX };
        self.signal.due(bus, csb, &mut raise);
        self.note_due(bus);
        raise
    }

    fn fill<'t>(
        &mut self,
        bus: &Bus<'t>,
        translate: &mut Direct<'t, '_>,
        burst: &mut Burst<'t>,
        available: u32,
        (csb, raise): (Option<Csb<'t>>, &mut Raise),
    ) {
        let mut part = Part::default();
        let mut pieces = [Span::empty(); PIECES + 1];
        let left = available.min(SCAN as u32);
        let mut scan = Scan { at: self.ring.head, left, reports: 0, contexts: self.contexts };
        while scan.left > 0 && self.count < BURST && burst.room() > 0 {
            let next = self.next(translate, &mut part, &mut scan, &mut pieces[1..]);
            let result = match next {
                Next::Nothing => break,
                Next::Skip(reason) => Err(reason),
                Next::Frame { pieces: count, len, request, delayed } => {
                    match self.push(bus, burst, &scan.contexts, (&mut pieces, count, len), &request) {
                        Ok(false) => break,
                        Ok(true) => Ok((delayed, request.segment, len as u32)),
                        Err(reason) => Err(Some(reason)),
                    }
                }
            };
            match result {
                Ok((delayed, segmented, len)) => {
                    let cast = Cast::of(burst.head(burst.len() - 1));
                    self.taken[self.count] = Taken { delayed, segmented, cast, len, ..scan.passed() };
                    self.count += 1;
                }
                // Frames before it are released first, then it is found again.
                Err(_) if self.count > 0 => break,
                Err(reason) => {
                    if let Some(reason) = reason {
                        self.counters.drop_tx(reason, 1);
                    }
                    self.pass(bus, (csb, translate), scan.passed(), raise);
                    (scan.reports, self.reported) = (0, 0);
                }
            }
        }
    }

    /// Examines the descriptors of the next frame.
    #[inline]
    fn next<'t>(
        &mut self,
        translate: &mut Direct<'t, '_>,
        part: &mut Part<'t>,
        scan: &mut Scan,
        pieces: &mut [Span<'t>],
    ) -> Next {
        let (mut count, mut len, mut bad, mut begun) = (0, 0usize, None, false);
        let mut delayed = true;
        let mut request = Request::default();
        while scan.left > 0 {
            let Some((pairs, place)) = self.ring.at(part, translate, scan.at) else {
                // Attack: a ring outside memory. It stays where it is until the driver resets the device.
                if !core::mem::replace(&mut self.outside, true) {
                    add(&self.counters.faults, 1);
                }
                scan.left = 0;
                return Next::Nothing;
            };
            let words = [pairs.first(place), pairs.second(place)];
            let [address, command] = words;
            let index = scan.at;
            (scan.at, scan.left) = (self.ring.after(index, 1), scan.left - 1);
            if command & RS != 0
                && let Some(report) = self.reports.get_mut(scan.reports)
            {
                *report = index;
                scan.reports += 1;
                delayed &= command & IDE != 0;
            }
            if command & DEXT != 0 && command >> 20 & 0xf == 0 {
                // Attack: a context in the middle of a frame, which would change what was asked for.
                if begun {
                    bad = Some(Reason::BadDescriptor);
                }
                scan.contexts[usize::from(Context::is_segmentation(words))] = Context::parse(words);
                continue;
            }
            let piece = if command & DEXT == 0 { command & 0xffff } else { command & 0xf_ffff } as u32;
            if command & DEXT != 0 && command >> 20 & 0xf != 1 {
                bad = Some(Reason::BadDescriptor);
            }
            if !begun {
                (begun, request) = (true, asked(command));
            }
            len += piece as usize;
            if len > LARGEST as usize {
                bad = bad.or(Some(Reason::Long));
            }
            if bad.is_none() {
                bad = gather(translate, (address, piece), pieces, &mut count).err();
            }
            if command & EOP != 0 {
                if command & VLE != 0 {
                    request.tag = Some((command >> 48) as u16);
                }
                return match bad {
                    Some(reason) => Next::Skip(Some(reason)),
                    None => Next::Frame { pieces: count, len, request, delayed },
                };
            }
        }
        // Contexts alone, or a frame that is bad already: it is dropped in parts, each counted. Attack: a ring full of
        // descriptors without an end.
        match (begun, bad) {
            (_, Some(reason)) => Next::Skip(Some(reason)),
            (false, None) => Next::Skip(None),
            (true, None) => Next::Nothing,
        }
    }

    /// Adds a frame to the burst. `false`: it is full. The first place of `pieces` is free.
    #[inline]
    fn push<'t>(
        &self,
        bus: &Bus<'t>,
        burst: &mut Burst<'t>,
        contexts: &Contexts,
        (pieces, count, len): (&mut [Span<'t>], usize, usize),
        request: &Request,
    ) -> Result<bool, Reason> {
        if len < HEADER_LEN {
            return Err(Reason::Short);
        }
        let context = &contexts[usize::from(request.segment)];
        let request =
            Request { tag: request.tag.filter(|_| bus.shared.load(reg::CTRL) & VME != 0), ..*request };
        if !request.rewrites() {
            let offload = request.checksum(context, len)?;
            return Ok(burst.push_pieces(offload, &pieces[1..=count]).is_ok());
        }
        let mut headers = [0; HEADERS];
        let wanted = request.header_len(context);
        let copied = headers.get_mut(..wanted).ok_or(Reason::NoOffload)?;
        let first = split_headers(&mut pieces[..=count], copied);
        let ethertype = bus.shared.load(reg::VET) as u16;
        let (offload, header_len) = request.rewrite(context, &mut headers, wanted, len, ethertype)?;
        pieces[first] = bus.shared.headers().keep(self.count, &headers[..header_len]);
        Ok(burst.push_pieces(offload, &pieces[first..=count]).is_ok())
    }

    fn tally(&self, bus: &Bus<'_>, frames: core::ops::Range<usize>) {
        let (mut tally, mut segmented) = (Tally::default(), 0);
        for taken in &self.taken[frames] {
            tally.count(taken.cast, u64::from(taken.len + CRC));
            segmented += u64::from(taken.segmented);
        }
        bus.shared.stats.transmitted(&tally);
        bus.shared.stats.add(reg::TSCTC, segmented);
    }

    /// Writes the status of descriptors that ask for one, up to those of `last`, and moves the head to its end.
    fn pass<'t>(
        &mut self,
        bus: &Bus<'t>,
        (csb, translate): (Option<Csb<'t>>, &mut Direct<'t, '_>),
        last: Taken,
        raise: &mut Raise,
    ) {
        // The frames' bytes are read before the driver may reuse them.
        fence(Ordering::Release);
        let reports = self.reports.get(self.reported..last.reports as usize).unwrap_or(&[]);
        for &index in reports {
            self.ring.write_byte(translate, index, STATUS_AT, DD);
        }
        let mut causes = if reports.is_empty() { 0 } else { TXDW };
        self.reported = last.reports as usize;
        (self.ring.head, self.contexts) = (last.end, last.contexts);
        set_head(bus, csb, Direction::Tx, last.end);
        if self.ring.available(tail(bus, csb, Direction::Tx)) == 0 {
            causes |= TXQE;
        }
        if causes != 0 {
            self.signal.published(bus, csb, (causes, !last.delayed), raise);
        }
    }

    fn note_due(&mut self, bus: &Bus<'_>) {
        self.due = self.signal.next_due(bus);
        if self.signal.techniques().combine > 0 {
            bus.shared.tx_due.store(self.due.unwrap_or(0), Ordering::Relaxed);
        }
    }
}

impl Transmit<Shared> for TxEngine {
    fn take<'t>(&mut self, bus: &Bus<'t>, burst: &mut Burst<'t>) -> Raise {
        if bus.shared.loops_back() { self.loop_back(bus) } else { self.collect(bus, burst) }
    }

    fn release(&mut self, bus: &Bus<'_>, frames: usize) -> Raise {
        let mut raise = Raise::NONE;
        let known = self.ring.generation;
        // Frames of a ring that was reset meanwhile are not released on the new one.
        if !self.adopt(bus, &mut raise) || self.ring.generation != known {
            return raise;
        }
        let mut hint = self.hint;
        let mut translate = Direct::new(bus.memory, &mut hint);
        let csb = self.signal.csb(bus, &mut translate);
        let end = self.released.saturating_add(frames).min(self.count);
        self.tally(bus, self.released..end);
        let step = if self.signal.batches() { end - self.released } else { 1 };
        while self.released < end {
            let group = &self.taken[self.released..self.released + step];
            let delayed = group.iter().all(|taken| taken.delayed);
            self.released += step;
            let last = self.taken[self.released - 1];
            self.pass(bus, (csb, &mut translate), Taken { delayed, ..last }, &mut raise);
        }
        self.hint = hint;
        self.note_due(bus);
        raise
    }

    fn arm(&mut self, bus: &Bus<'_>) -> bool {
        match bus.shared.tx.generation() {
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
        let csb = self.signal.csb(bus, &mut Direct::new(bus.memory, &mut self.hint));
        self.signal.arm(bus, csb, self.seen)
    }

    fn disarm(&mut self, bus: &Bus<'_>) {
        self.poll_at = None;
        let csb = self.signal.csb(bus, &mut Direct::new(bus.memory, &mut self.hint));
        self.signal.disarm(bus, csb);
    }

    fn next_due(&self) -> Option<u64> {
        self.due.into_iter().chain(self.poll_at).min()
    }
}

/// What a frame's first descriptor asks for.
#[inline]
fn asked(command: u64) -> Request {
    if command & DEXT == 0 {
        let legacy = (command & IC != 0).then_some(((command >> 40) as u8, (command >> 16) as u8));
        return Request { legacy, ..Request::default() };
    }
    let (ip, upper) = (command & IXSM != 0, command & TXSM != 0);
    Request { segment: command & TSE != 0, ip, upper, ..Request::default() }
}
