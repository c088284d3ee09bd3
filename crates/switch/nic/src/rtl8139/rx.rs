//! The receive ring: frames that the guest gets.

use super::filter::{LONGEST, Mode};
use super::interrupts::{RDU, RER, ROK};
use super::shared::{Bus, Shared};
use super::signal::Signal;
use super::stats::Tally;
use super::{EOR, FIRST, LAST, OWN, RING, after};
use crate::chip::Receive;
use crate::descriptor_ring::{Part, Ring};
use crate::device::Raise;
use crate::pieces::{CRC, Cast, SHORTEST, Source, TAG};
use alloc::boxed::Box;
use alloc::vec;
use core::sync::atomic::{Ordering, fence};
use ringway_frame::{Burst, Caps, CountersRef, Lost, Needs, Reason, add};
use ringway_mem::{Direct, Hint, Translate};

/// Bits of a first word when a frame is there: multicast, own address, broadcast; TCP, UDP; an error, of the CRC.
const MULTICAST: u64 = 1 << 26;
const UNICAST: u64 = 1 << 25;
const BROADCAST: u64 = 1 << 24;
const TCP: u64 = 1 << 16;
const UDP: u64 = 1 << 17;
const ERROR: u64 = 1 << 20 | 1 << 18;
/// A tag was removed, in the first word's high half.
const TAGGED: u64 = 1 << (32 + 16);
/// Length of a buffer.
const SIZE: u64 = 0x1fff;

/// A descriptor that the device owns.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    index: u32,
    next: u32,
    address: u64,
    size: u32,
    /// Its first word when it is returned.
    done: u64,
}

/// A frame with descriptors.
#[derive(Clone, Copy, Debug, Default)]
struct Reserved {
    /// Bytes to write, without a removed tag, with padding.
    len: u32,
    tag: Option<u16>,
    /// Its first descriptor, counted from the head, and how many it has; none: it is not received.
    first: usize,
    count: usize,
    refusal: Option<Reason>,
}

/// The engine of a receive ring. One worker at a time uses it.
#[derive(Debug)]
pub struct RxEngine {
    counters: CountersRef,
    ring: Ring,
    signal: Signal,
    hint: Hint,
    reserved: Box<[Reserved]>,
    frames: usize,
    /// The descriptors from the head on.
    entries: [Entry; RING as usize],
    descriptors: usize,
    /// Descriptors that are filled.
    filled: usize,
    /// Frames put, counted from the first reserved.
    put: usize,
    causes: u32,
    tally: Tally,
    /// Descriptors ran out, which was reported.
    short: bool,
    outside: bool,
    due: Option<u64>,
}

impl RxEngine {
    /// An engine that adds drops and faults to `counters`.
    pub fn new(counters: CountersRef) -> RxEngine {
        RxEngine {
            counters,
            ring: Ring::default(),
            signal: Signal::new(),
            hint: Hint::default(),
            reserved: vec![Reserved::default(); RING as usize].into_boxed_slice(),
            frames: 0,
            entries: [Entry::default(); RING as usize],
            descriptors: 0,
            filled: 0,
            put: 0,
            causes: 0,
            tally: Tally::default(),
            short: false,
            outside: false,
            due: None,
        }
    }

    /// Takes the ring's description over. `false`: there is not a ring.
    fn adopt(&mut self, bus: &Bus<'_>, raise: &mut Raise) -> bool {
        self.signal.adopt(bus, raise);
        match self.ring.adopt(&bus.shared.rx, false) {
            None => return false,
            Some(false) => {}
            Some(true) => {
                (self.frames, self.put, self.descriptors, self.filled) = (0, 0, 0, 0);
                (self.hint, self.short, self.outside, self.causes) = (Hint::default(), false, false, 0);
                self.tally = Tally::default();
                self.signal.reset();
            }
        }
        if !self.signal.techniques().cached {
            self.hint = Hint::default();
        }
        true
    }

    /// Adds descriptors with room for `len` bytes; returns how many. `None`: there are too few.
    fn fetch<'t>(&mut self, translate: &mut Direct<'t, '_>, part: &mut Part<'t>, len: u32) -> Option<usize> {
        let (before, mut room) = (self.descriptors, 0);
        let mut count = before;
        while room < len {
            let index = count.checked_sub(1).map_or(self.ring.head, |last| self.entries[last].next);
            // Attack: buffers without bytes, or a ring whose descriptors are all the device's.
            if count == RING as usize || count > 0 && index == self.ring.head {
                return None;
            }
            let Some((pairs, place)) = self.ring.at(part, translate, index) else {
                // Attack: a ring outside memory.
                if !core::mem::replace(&mut self.outside, true) {
                    add(&self.counters.faults, 1);
                }
                return None;
            };
            let word = pairs.first(place);
            if word & OWN == 0 {
                return None;
            }
            // The driver wrote the address before it gave the descriptor away.
            fence(Ordering::Acquire);
            let (address, size) = (pairs.second(place), (word & SIZE) as u32);
            self.entries[count] = Entry { index, next: after(index, word), address, size, done: word & EOR };
            // Only for the cache; the buffer is translated when it is written.
            if let Ok(span) = translate.write(address, size) {
                span.prefetch_write();
            }
            (count, room) = (count + 1, room + size);
        }
        self.descriptors = count;
        Some(count - before)
    }

    /// Reports once that there are too few descriptors.
    #[cold]
    fn run_out(&mut self, bus: &Bus<'_>, raise: &mut Raise) {
        if !core::mem::replace(&mut self.short, true) {
            *raise |= bus.shared.interrupts.set(RDU);
        }
    }

    /// Writes a frame to its buffers. Attack: buffers that are outside memory, or unmapped since they were reserved.
    fn copy(
        &self,
        translate: &mut Direct<'_, '_>,
        burst: &Burst<'_>,
        frame: usize,
        reserved: &Reserved,
    ) -> Result<(), Reason> {
        let Reserved { len, tag, first, count, .. } = *reserved;
        let entries = &self.entries[first..first + count];
        if let [Entry { address, .. }] = entries
            && tag.is_none()
            && burst.meta(frame).len == len
        {
            let to = translate.write(*address, len).map_err(|_| Reason::BadAddress)?;
            if to.len() == len as usize {
                burst.copy_to(frame, to);
                return Ok(());
            }
        }
        let mut source = Source::new(burst.reader(frame), tag.is_some());
        let mut left = len;
        for entry in entries {
            let (mut at, mut room) = (entry.address, entry.size.min(left));
            left -= room;
            while room > 0 {
                let to = translate.write(at, room).map_err(|_| Reason::BadAddress)?;
                source.copy(to);
                at = at.wrapping_add(to.len() as u64);
                room = room.saturating_sub(to.len() as u32);
            }
        }
        Ok(())
    }

    /// Prepares the first words of a frame's descriptors.
    fn describe(&mut self, reserved: &Reserved, flags: u64) {
        let Reserved { len, tag, first, count, .. } = *reserved;
        let entries = &mut self.entries[first..first + count];
        if let Some(first) = entries.first_mut() {
            first.done |= FIRST;
        }
        if let Some(last) = entries.last_mut() {
            let tag = tag.map_or(0, |tag| TAGGED | u64::from(tag.swap_bytes()) << 32);
            last.done |= LAST | flags | u64::from(len + CRC) | tag;
        }
        self.filled = self.filled.max(first + count);
    }

    fn write_back(&mut self, bus: &Bus<'_>, filled: usize) {
        let mut translate = Direct::new(bus.memory, &mut self.hint);
        let mut part = Part::default();
        for entry in &self.entries[..filled] {
            if let Some((pairs, place)) = self.ring.at(&mut part, &mut translate, entry.index) {
                fence(Ordering::Release);
                pairs.set_first(place, entry.done);
            }
        }
        // Reservations are counted from the head, which moves.
        self.ring.head = self.entries[filled - 1].next;
        self.entries.copy_within(filled..self.descriptors.max(filled), 0);
        self.descriptors = self.descriptors.saturating_sub(filled);
        for reserved in &mut self.reserved[self.put..self.frames] {
            reserved.first = reserved.first.saturating_sub(filled);
        }
    }
}

/// What the chip says of a frame whose checksum is known to be right.
fn checked(head: &[u8; 64]) -> u64 {
    let at = if head[12..14] == [0x81, 0] { 16 } else { 12 };
    match (&head[at..at + 2], head[at + 2] >> 4, head[at + 11]) {
        ([8, 0], 4, 6) => TCP,
        ([8, 0], 4, 17) => UDP,
        _ => 0,
    }
}

fn cast_bits(cast: Cast) -> u64 {
    match cast {
        Cast::Uni => UNICAST,
        Cast::Multi => MULTICAST,
        Cast::Broad => BROADCAST,
    }
}

impl Receive<Shared> for RxEngine {
    fn caps(&self, bus: &Bus<'_>) -> Option<Caps> {
        let receives = bus.shared.link() && bus.shared.rx.generation().is_some();
        receives.then_some(Caps { offloads: Needs::NONE, largest: LONGEST })
    }

    fn reserve(&mut self, bus: &Bus<'_>, burst: &Burst<'_>, which: &[u16]) -> (usize, Raise) {
        let mut raise = Raise::NONE;
        if !self.adopt(bus, &mut raise) {
            return (0, raise);
        }
        let mode = Mode::load(bus.shared);
        // Descriptors that are filled but not published are in use.
        (self.frames, self.put, self.descriptors) = (0, 0, self.filled);
        let mut hint = self.hint;
        let mut translate = Direct::new(bus.memory, &mut hint);
        let mut part = Part::default();
        let most = which.len().min(self.reserved.len());
        for &frame in &which[..most] {
            let frame = usize::from(frame);
            let (len, head) = (burst.meta(frame).len, burst.head(frame));
            let reserved = match mode.accept(head, len) {
                Err(refusal) => Reserved { refusal: Some(refusal), ..Reserved::default() },
                Ok(tag) => {
                    let len = (len - if tag.is_some() { TAG as u32 } else { 0 }).max(SHORTEST);
                    let first = self.descriptors;
                    let Some(count) = self.fetch(&mut translate, &mut part, len + CRC) else {
                        self.run_out(bus, &mut raise);
                        break;
                    };
                    Reserved { len, tag, first, count, refusal: None }
                }
            };
            self.reserved[self.frames] = reserved;
            self.frames += 1;
        }
        self.short &= self.frames < most;
        self.hint = hint;
        (self.frames, raise)
    }

    fn refusal(&self, place: usize) -> Option<Reason> {
        self.reserved[..self.frames].get(place)?.refusal
    }

    fn put(&mut self, bus: &Bus<'_>, burst: &Burst<'_>, which: &[u16]) -> (Lost, Raise) {
        let (mut lost, mut raise) = (Lost::default(), Raise::NONE);
        if bus.shared.rx.generation() != Some(self.ring.generation) {
            return (Lost::count(&self.counters, Reason::Down, burst, which), raise);
        }
        let checksums = Mode::load(bus.shared).reports_checksum;
        let mut hint = self.hint;
        let mut translate = Direct::new(bus.memory, &mut hint);
        for frame in which {
            let Some(&reserved) = self.reserved[..self.frames].get(self.put) else {
                lost += Lost::count(&self.counters, Reason::Full, burst, &[*frame]);
                continue;
            };
            self.put += 1;
            let index = usize::from(*frame);
            let cast = Cast::of(burst.head(index));
            let copied = match reserved.refusal {
                Some(refusal) => Err(refusal),
                None => self.copy(&mut translate, burst, index, &reserved),
            };
            let flags = match copied {
                Ok(()) => {
                    self.tally.count(cast);
                    self.causes |= ROK;
                    let is_checked = checksums && burst.meta(index).offload.is_checked();
                    cast_bits(cast) | if is_checked { checked(burst.head(index)) } else { 0 }
                }
                Err(refusal) => {
                    lost += Lost::count(&self.counters, refusal, burst, &[*frame]);
                    if reserved.count > 0 {
                        add(&bus.shared.stats.bad, 1);
                        self.causes |= RER;
                    }
                    ERROR
                }
            };
            self.describe(&reserved, flags);
            if !self.signal.techniques().batch {
                raise |= self.publish(bus);
            }
        }
        self.hint = hint;
        (lost, raise)
    }

    fn publish(&mut self, bus: &Bus<'_>) -> Raise {
        let mut raise = Raise::NONE;
        if bus.shared.rx.generation() != Some(self.ring.generation) {
            // Attack: an interrupt held back for a ring that is gone would be due forever, so that the worker never
            // sleeps.
            self.signal.reset();
            self.due = None;
            return raise;
        }
        if self.filled == 0 {
            self.signal.due(bus, &mut raise);
        } else {
            let filled = core::mem::take(&mut self.filled);
            self.write_back(bus, filled);
            bus.shared.stats.received(&core::mem::take(&mut self.tally));
            self.signal.published(bus, core::mem::take(&mut self.causes), true, &mut raise);
        }
        self.due = self.signal.next_due();
        raise
    }

    fn defers_signal(&self) -> bool {
        self.signal.waits_for_turn()
    }

    fn end_turn(&mut self, bus: &Bus<'_>) -> Raise {
        let mut raise = Raise::NONE;
        if bus.shared.rx.generation() == Some(self.ring.generation) {
            self.signal.end_turn(bus, &mut raise);
            self.due = self.signal.next_due();
        }
        raise
    }

    fn next_due(&self) -> Option<u64> {
        self.due
    }
}
