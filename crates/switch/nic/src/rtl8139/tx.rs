//! The transmit ring: frames that the guest sends.

use super::interrupts::{TDU, TER, TOK};
use super::offload::{LONGEST_HEADERS, Request};
use super::shared::{Bus, Shared};
use super::signal::Signal;
use super::{EOR, FIRST, LAST, OWN, RING, after};
use crate::chip::Transmit;
use crate::device::Raise;
use crate::pieces::{PIECES, gather, split_headers};
use crate::ring::{Part, Ring};
use alloc::boxed::Box;
use alloc::vec;
use core::sync::atomic::{Ordering, fence};
use ringway_frame::{BURST, Burst, CountersRef, HEADERS, LARGEST, Offload, Reason, add};
use ringway_mem::{Direct, Hint, Span};
use ringway_wire::ethernet::HEADER_LEN;

/// What of a first word stays when the descriptor is returned: end of the ring, first and last part, length. The status
/// says that nothing went wrong.
const KEPT: u64 = !0xffff_ffff | EOR | FIRST | LAST | 0xffff;

/// What the ring has next.
enum Next {
    /// A frame: its parts, its bytes, and what it asks for.
    Frame { pieces: usize, len: usize, request: Request },
    /// Descriptors that are released without a frame.
    Skip(Reason),
    /// The ring has nothing complete.
    Nothing,
}

/// A position while the ring is examined, with the number of descriptors before it.
#[derive(Clone, Copy, Debug)]
struct Scan {
    at: u32,
    passed: usize,
}

/// The engine of a transmit ring. One worker owns it.
#[derive(Debug)]
pub struct TxEngine {
    counters: CountersRef,
    ring: Ring,
    signal: Signal,
    hint: Hint,
    /// Index and first word of the descriptors examined.
    examined: [(u32, u64); RING as usize],
    /// For each frame taken, the end of its descriptors among those, and the index after them.
    taken: Box<[Scan]>,
    count: usize,
    released: usize,
    returned: usize,
    /// The ring is not in memory, which was counted.
    outside: bool,
    /// The descriptor that the driver has next to give.
    awaited: Option<u32>,
    due: Option<u64>,
}

impl TxEngine {
    /// An engine that adds drops and faults to `counters`.
    pub fn new(counters: CountersRef) -> TxEngine {
        TxEngine {
            counters,
            ring: Ring::default(),
            signal: Signal::new(),
            hint: Hint::default(),
            examined: [(0, 0); RING as usize],
            taken: vec![Scan { at: 0, passed: 0 }; BURST].into_boxed_slice(),
            count: 0,
            released: 0,
            returned: 0,
            outside: false,
            awaited: None,
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
                (self.count, self.released, self.returned, self.hint) = (0, 0, 0, Hint::default());
                (self.outside, self.awaited) = (false, None);
                self.signal.reset();
            }
        }
        if !self.signal.techniques().cached {
            self.hint = Hint::default();
        }
        true
    }

    fn fill<'t>(
        &mut self,
        bus: &Bus<'t>,
        translate: &mut Direct<'t, '_>,
        burst: &mut Burst<'t>,
        raise: &mut Raise,
    ) {
        let mut part = Part::default();
        let mut pieces = [Span::empty(); PIECES + 1];
        let mut scan = Scan { at: self.ring.head, passed: 0 };
        while self.count < BURST && burst.room() > 0 {
            let result = match self.next(translate, &mut part, &mut scan, &mut pieces[1..]) {
                Next::Nothing => break,
                Next::Skip(reason) => Err(reason),
                Next::Frame { pieces: count, len, request } => {
                    match self.push(bus, burst, (&mut pieces, count, len), request) {
                        Ok(false) => break,
                        Ok(true) => Ok(()),
                        Err(reason) => Err(reason),
                    }
                }
            };
            match result {
                Ok(()) => {
                    self.taken[self.count] = scan;
                    self.count += 1;
                }
                // Frames before it are released first, then it is found again.
                Err(_) if self.count > 0 => break,
                Err(reason) => {
                    self.counters.drop_tx(reason, 1);
                    add(&bus.shared.stats.not_sent, 1);
                    self.give_back(bus, translate, scan, (TER, raise));
                    (scan.passed, self.returned) = (0, 0);
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
        let (mut count, mut len, mut bad) = (0, 0usize, None);
        let mut first = None;
        loop {
            // Attack: a ring of descriptors that are all the device's; each is examined once.
            if scan.passed > 0 && scan.at == self.ring.head || scan.passed == RING as usize {
                // A frame that began with the ring has no end.
                let is_whole_ring = first.is_some() && self.count == 0;
                return if is_whole_ring { Next::Skip(Reason::BadDescriptor) } else { Next::Nothing };
            }
            let Some((pairs, place)) = self.ring.at(part, translate, scan.at) else {
                // Attack: a ring outside memory. It stays where it is until the driver moves it.
                if !core::mem::replace(&mut self.outside, true) {
                    add(&self.counters.faults, 1);
                }
                return Next::Nothing;
            };
            let word = pairs.first(place);
            if word & OWN == 0 {
                self.awaited = Some(scan.at);
                return Next::Nothing;
            }
            // The driver wrote the address before it gave the descriptor away.
            fence(Ordering::Acquire);
            let (address, piece) = (pairs.second(place), (word & 0xffff) as u32);
            self.examined[scan.passed] = (scan.at, word);
            *scan = Scan { at: after(scan.at, word), passed: scan.passed + 1 };
            let begins = word & FIRST != 0;
            if begins != first.is_none() {
                bad = Some(Reason::BadDescriptor);
            }
            first = first.or(Some(word));
            len += piece as usize;
            if len > LARGEST as usize {
                bad = bad.or(Some(Reason::Long));
            }
            if bad.is_none() {
                bad = gather(translate, (address, piece), pieces, &mut count).err();
            }
            if word & LAST != 0 {
                let request = Request::parse(first.unwrap_or(word));
                return match bad {
                    Some(reason) => Next::Skip(reason),
                    None => Next::Frame { pieces: count, len, request },
                };
            }
        }
    }

    /// Adds a frame to the burst. `false`: it is full. The first place of `pieces` is free.
    #[inline]
    fn push<'t>(
        &self,
        bus: &Bus<'t>,
        burst: &mut Burst<'t>,
        (pieces, count, len): (&mut [Span<'t>], usize, usize),
        request: Request,
    ) -> Result<bool, Reason> {
        if len < HEADER_LEN {
            return Err(Reason::Short);
        }
        if !request.rewrites() {
            return Ok(burst.push_pieces(Offload::default(), &pieces[1..=count]).is_ok());
        }
        let mut headers = [0; HEADERS];
        let wanted = len.min(LONGEST_HEADERS);
        let first = split_headers(&mut pieces[..=count], &mut headers[..wanted]);
        let (offload, header_len) = request.rewrite(&mut headers, wanted, len)?;
        pieces[first] = bus.shared.headers().keep(self.count, &headers[..header_len]);
        Ok(burst.push_pieces(offload, &pieces[first..=count]).is_ok())
    }

    /// Returns the descriptors before `end` to the driver.
    fn give_back(
        &mut self,
        bus: &Bus<'_>,
        translate: &mut Direct<'_, '_>,
        end: Scan,
        (causes, raise): (u32, &mut Raise),
    ) {
        let mut part = Part::default();
        for &(index, word) in self.examined.get(self.returned..end.passed).unwrap_or(&[]) {
            if let Some((pairs, place)) = self.ring.at(&mut part, translate, index) {
                // The frame's bytes are read before the driver may reuse them.
                fence(Ordering::Release);
                pairs.set_first(place, word & KEPT);
            }
        }
        (self.returned, self.ring.head) = (end.passed, end.at);
        let none_left = match self.ring.at(&mut part, translate, end.at) {
            Some((pairs, place)) => pairs.first(place) & OWN == 0,
            None => true,
        };
        let causes = causes | if none_left { TDU } else { 0 };
        self.signal.published(bus, causes, false, raise);
    }

    fn note_due(&mut self, bus: &Bus<'_>) {
        self.due = self.signal.next_due();
        if self.signal.techniques().combine > 0 {
            bus.shared.tx_due.store(self.due.unwrap_or(0), Ordering::Relaxed);
        }
    }
}

impl Transmit<Shared> for TxEngine {
    fn take<'t>(&mut self, bus: &Bus<'t>, burst: &mut Burst<'t>) -> Raise {
        let mut raise = Raise::NONE;
        if !self.adopt(bus, &mut raise) {
            self.due = None;
            return raise;
        }
        (self.count, self.released, self.returned, self.awaited) = (0, 0, 0, None);
        if bus.shared.link() {
            let mut hint = self.hint;
            self.fill(bus, &mut Direct::new(bus.memory, &mut hint), burst, &mut raise);
            self.hint = hint;
        }
        self.signal.due(bus, &mut raise);
        self.note_due(bus);
        raise
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
        let end = self.released.saturating_add(frames).min(self.count);
        add(&bus.shared.stats.sent, (end - self.released) as u64);
        let step = if self.signal.techniques().batch { end - self.released } else { 1 };
        while self.released < end {
            self.released += step;
            let last = self.taken[self.released - 1];
            self.give_back(bus, &mut translate, last, (TOK, &mut raise));
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
        // The driver rings after it gave a descriptor away, whatever the device asks for.
        let Some(index) = self.awaited.filter(|_| bus.shared.link()) else { return true };
        let mut translate = Direct::new(bus.memory, &mut self.hint);
        let found = self.ring.at(&mut Part::default(), &mut translate, index);
        found.is_none_or(|(pairs, place)| pairs.first(place) & OWN == 0)
    }

    fn disarm(&mut self, _bus: &Bus<'_>) {}

    fn next_due(&self) -> Option<u64> {
        self.due
    }
}
