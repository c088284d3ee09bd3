//! The receive ring: frames that the guest gets.

use super::csb::{Csb, Direction};
use super::filter::{Mode, largest, threshold};
use super::interrupts::{RXDMT0, RXO, RXT0, SRPD};
use super::registers as reg;
use super::shared::{Bus, Shared};
use super::signal::Signal;
use super::stats::Tally;
use super::tail::{set_head, tail};
use crate::chip::Receive;
use crate::descriptor_ring::{Part, Ring};
use crate::device::Raise;
use crate::pieces::{CRC, Cast, SHORTEST, Source, TAG};
use alloc::boxed::Box;
use alloc::vec;
use ringway_frame::{Burst, Caps, CountersRef, Lost, Needs, Reason, add};
use ringway_mem::{Direct, Hint, Translate};

/// Most frames that are reserved together.
const FRAMES: usize = 256;
/// Most descriptors that are reserved together: 256 KB in buffers of 256 bytes.
const DESCRIPTORS: usize = 1024;

/// Status of a descriptor: done, end of packet, checksum not examined, tag removed, checksum of TCP or UDP examined.
const DD: u64 = 1 << 0;
const EOP: u64 = 1 << 1;
const IXSM: u64 = 1 << 2;
const VP: u64 = 1 << 3;
const TCPCS: u64 = 1 << 5;
/// Data error, in the errors that follow the status.
const RXE: u64 = 1 << 15;
const EXTENDED_RXE: u64 = 1 << 31;

/// A frame with descriptors.
#[derive(Clone, Copy, Debug, Default)]
struct Reserved {
    /// Bytes to write, without a removed tag, with padding.
    len: u32,
    tag: Option<u16>,
    /// Its first descriptor, counted from the first reserved, and how many it has; none: it is not received.
    first: u32,
    count: u32,
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
    /// Buffer addresses of the reserved descriptors.
    addresses: Box<[[u64; 4]]>,
    descriptors: u32,
    /// Of the frames put: the words of each descriptor that are written, from the ring's head on: the second one, and
    /// that with the lengths of further buffers.
    done: Box<[[u64; 2]]>,
    filled: u32,
    /// Frames put, counted from the first reserved.
    put: usize,
    extended: bool,
    /// Descriptors have several buffers, of these sizes.
    split: bool,
    buffers: [u32; 4],
    tally: Tally,
    /// A small frame was put.
    small: bool,
    /// Buffers ran out, which was reported.
    short: bool,
    outside: bool,
    due: Option<u64>,
    /// The last tail.
    last: u32,
}

impl RxEngine {
    /// An engine that adds drops and faults to `counters`.
    pub fn new(counters: CountersRef) -> RxEngine {
        RxEngine {
            counters,
            ring: Ring::default(),
            signal: Signal::new(Direction::Rx),
            hint: Hint::default(),
            reserved: vec![Reserved::default(); FRAMES].into_boxed_slice(),
            frames: 0,
            addresses: vec![[0; 4]; DESCRIPTORS].into_boxed_slice(),
            descriptors: 0,
            done: vec![[0; 2]; DESCRIPTORS].into_boxed_slice(),
            filled: 0,
            put: 0,
            extended: false,
            split: false,
            buffers: [2048, 0, 0, 0],
            tally: Tally::default(),
            small: false,
            short: false,
            outside: false,
            due: None,
            last: 0,
        }
    }

    /// Takes the ring's description over. `false`: there is not a ring.
    fn adopt(&mut self, bus: &Bus<'_>, raise: &mut Raise) -> bool {
        self.signal.adopt(bus, raise);
        match self.ring.adopt(&bus.shared.rx, self.split) {
            None => return false,
            Some(false) => {}
            Some(true) => {
                (self.frames, self.put, self.descriptors, self.filled) = (0, 0, 0, 0);
                (self.hint, self.short, self.outside) = (Hint::default(), false, false);
                self.tally = Tally::default();
                self.signal.reset();
            }
        }
        if !self.signal.techniques().cached {
            self.hint = Hint::default();
        }
        true
    }

    /// The shared block in use.
    fn csb<'t>(&mut self, bus: &Bus<'t>) -> Option<Csb<'t>> {
        self.signal.csb(bus, &mut Direct::new(bus.memory, &mut self.hint))
    }

    /// Reads the buffer addresses of descriptors, counted from the head.
    fn fetch<'t>(
        &mut self,
        translate: &mut Direct<'t, '_>,
        part: &mut Part<'t>,
        numbers: core::ops::Range<u32>,
    ) -> Result<(), Reason> {
        for number in numbers {
            let index = self.ring.after(self.ring.head, number);
            let Some((pairs, place)) = self.ring.at(part, translate, index) else {
                // Attack: a ring outside memory.
                if !core::mem::replace(&mut self.outside, true) {
                    add(&self.counters.faults, 1);
                }
                return Err(Reason::BadAddress);
            };
            let address = pairs.first(place);
            self.addresses[number as usize] = match self.split {
                true => [address, pairs.second(place), pairs.first(place + 1), pairs.second(place + 1)],
                false => [address, 0, 0, 0],
            };
            // Only for the cache; the buffer is translated when it is written.
            if let Ok(span) = translate.write(address, self.buffers[0]) {
                span.prefetch_write();
            }
        }
        Ok(())
    }

    /// Reports once that there are too few descriptors.
    #[cold]
    fn run_out(&mut self, bus: &Bus<'_>, raise: &mut Raise) {
        if !core::mem::replace(&mut self.short, true) {
            bus.shared.stats.add(reg::RNBC, 1);
            *raise |= bus.shared.interrupts.set(RXO, bus.now);
        }
    }

    #[cold]
    fn refuse(&self, bus: &Bus<'_>, reason: Reason) {
        match reason {
            Reason::Long => bus.shared.stats.add(reg::ROC, 1),
            Reason::Short => bus.shared.stats.add(reg::RUC, 1),
            _ => {}
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
        let addresses = &self.addresses[first as usize..(first + count) as usize];
        if let [[address, ..]] = addresses
            && !self.split
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
        for (&address, &size) in addresses.iter().flat_map(|all| all.iter().zip(&self.buffers)) {
            let mut at = address;
            let mut room = size.min(left);
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

    /// The status of a frame that could not be written: the driver discards it.
    fn error(&self) -> u64 {
        if self.extended { EXTENDED_RXE } else { RXE }
    }

    /// Prepares the descriptors of a frame with `crc` bytes of CRC.
    fn describe(&mut self, reserved: &Reserved, crc: u32, flags: u64) {
        let Reserved { len, tag, first, count, .. } = *reserved;
        let mut left = len + crc;
        for number in first..first + count {
            let last = number + 1 == first + count;
            let lens = self.buffers.map(|size| {
                let len = size.min(left);
                left -= len;
                u64::from(len)
            });
            let len = lens[0];
            let status = flags | DD | if last { EOP } else { 0 } | if tag.is_some() { VP } else { 0 };
            let tag = u64::from(tag.unwrap_or(0));
            self.done[number as usize] = if self.extended {
                // Status and errors, length, tag. Then the lengths of the further buffers; the headers are not split
                // from the rest.
                [status | len << 32 | tag << 48, lens[1] << 16 | lens[2] << 32 | lens[3] << 48]
            } else {
                // Length, checksum, status, errors, tag.
                [len | status << 32 | tag << 48, 0]
            };
        }
        self.filled = self.filled.max(first + count);
    }

    fn write_back(&mut self, bus: &Bus<'_>, filled: u32) {
        let mut translate = Direct::new(bus.memory, &mut self.hint);
        let mut part = Part::default();
        for (number, [second, lengths]) in self.done[..filled as usize].iter().enumerate() {
            let index = self.ring.after(self.ring.head, number as u32);
            if let Some((pairs, place)) = self.ring.at(&mut part, &mut translate, index) {
                if self.split {
                    pairs.set_first(place + 1, *lengths);
                }
                if self.extended {
                    // No queue, hash or identification.
                    pairs.set_first(place, 0);
                }
                pairs.release_second(place, *second);
            }
        }
        // Reservations are counted from the head, which moves.
        let moved = self.descriptors - filled.min(self.descriptors);
        self.addresses.copy_within(filled as usize..(filled + moved) as usize, 0);
        self.descriptors = moved;
        for reserved in &mut self.reserved[self.put..self.frames] {
            reserved.first = reserved.first.saturating_sub(filled);
        }
    }
}

impl Receive<Shared> for RxEngine {
    fn caps(&self, bus: &Bus<'_>) -> Option<Caps> {
        let shared = bus.shared;
        let receives = shared.link() && !shared.loops_back() && shared.rx.generation().is_some();
        receives.then(|| Caps { offloads: Needs::NONE, largest: largest(bus.shared.load(reg::RCTL)) })
    }

    fn reserve(&mut self, bus: &Bus<'_>, burst: &Burst<'_>, which: &[u16]) -> (usize, Raise) {
        let mut raise = Raise::NONE;
        let mode = Mode::load(bus.shared);
        self.split = mode.split;
        if !self.adopt(bus, &mut raise) {
            return (0, raise);
        }
        (self.frames, self.put, self.descriptors) = (0, 0, self.filled);
        (self.extended, self.buffers) = (mode.extended, mode.buffers());
        let csb = self.csb(bus);
        let mut hint = self.hint;
        let mut translate = Direct::new(bus.memory, &mut hint);
        let tail = tail(bus, csb, Direction::Rx);
        if core::mem::replace(&mut self.last, tail) != tail {
            add(&bus.shared.doorbells[1], 1);
        }
        let available = self.ring.available(tail);
        // Descriptors that are filled but not published are in use.
        let most = available.min(DESCRIPTORS as u32);
        let mut part = Part::default();
        for &frame in &which[..which.len().min(FRAMES)] {
            let frame = usize::from(frame);
            let (len, head) = (burst.meta(frame).len, burst.head(frame));
            let reserved = match mode.accept(bus.shared, head, len) {
                Err(refusal) => Reserved { refusal: Some(refusal), ..Reserved::default() },
                Ok(tag) => {
                    let len = (len - if tag.is_some() { TAG as u32 } else { 0 }).max(SHORTEST);
                    let count = (len + mode.crc()).div_ceil(self.buffers.iter().sum());
                    if self.descriptors + count > most {
                        self.run_out(bus, &mut raise);
                        break;
                    }
                    let first = self.descriptors;
                    let refusal = self.fetch(&mut translate, &mut part, first..first + count).err();
                    let count = if refusal.is_none() { count } else { 0 };
                    self.descriptors += count;
                    Reserved { len, tag, first, count, refusal }
                }
            };
            self.reserved[self.frames] = reserved;
            self.frames += 1;
        }
        self.short &= self.frames < which.len().min(FRAMES);
        self.hint = hint;
        (self.frames, raise)
    }

    fn refusal(&self, place: usize) -> Option<Reason> {
        self.reserved[..self.frames].get(place)?.refusal
    }

    fn put(&mut self, bus: &Bus<'_>, burst: &Burst<'_>, which: &[u16]) -> (Lost, Raise) {
        let (mut lost, mut raise) = (Lost::default(), Raise::NONE);
        let known = self.ring.generation;
        if bus.shared.rx.generation() != Some(known) {
            return (Lost::count(&self.counters, Reason::Down, burst, which), raise);
        }
        let small = bus.shared.load(reg::RSRPD) & 0xfff;
        let mode = Mode::load(bus.shared);
        let (checksums, crc) = (mode.reports_checksum, mode.crc());
        let mut hint = self.hint;
        let mut translate = Direct::new(bus.memory, &mut hint);
        for frame in which {
            let Some(&reserved) = self.reserved[..self.frames].get(self.put) else {
                lost += Lost::count(&self.counters, Reason::Full, burst, &[*frame]);
                continue;
            };
            self.put += 1;
            let index = usize::from(*frame);
            let refusal =
                reserved.refusal.or_else(|| self.copy(&mut translate, burst, index, &reserved).err());
            if let Some(refusal) = refusal {
                self.refuse(bus, refusal);
                lost += Lost::count(&self.counters, refusal, burst, &[*frame]);
            }
            let flags = match refusal {
                Some(_) => IXSM | self.error(),
                None if checksums && burst.meta(index).offload.is_checked() => TCPCS,
                None => IXSM,
            };
            self.describe(&reserved, crc, flags);
            if refusal.is_none() {
                self.tally.count(Cast::of(burst.head(index)), u64::from(burst.meta(index).len + CRC));
                self.small |= reserved.len + CRC <= small;
            }
            if !self.signal.batches() {
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
        let csb = self.csb(bus);
        if self.filled == 0 {
            self.signal.due(bus, csb, &mut raise);
            self.due = self.signal.next_due(bus);
            return raise;
        }
        let filled = core::mem::take(&mut self.filled);
        self.write_back(bus, filled);
        let free = self.ring.available(tail(bus, csb, Direction::Rx));
        self.ring.head = self.ring.after(self.ring.head, filled.min(self.ring.count));
        set_head(bus, csb, Direction::Rx, self.ring.head_register());
        bus.shared.stats.received(&core::mem::take(&mut self.tally));
        let threshold = threshold(bus.shared, self.ring.count);
        let few = free >= threshold && free.saturating_sub(filled) < threshold;
        let small = core::mem::take(&mut self.small);
        let causes = RXT0 | if few { RXDMT0 } else { 0 } | if small { SRPD } else { 0 };
        self.signal.published(bus, csb, (causes, few || small), &mut raise);
        self.due = self.signal.next_due(bus);
        raise
    }

    fn defers_signal(&self) -> bool {
        self.signal.waits_for_turn()
    }

    fn end_turn(&mut self, bus: &Bus<'_>) -> Raise {
        let mut raise = Raise::NONE;
        if bus.shared.rx.generation() == Some(self.ring.generation) {
            let csb = self.csb(bus);
            self.signal.end_turn(bus, csb, &mut raise);
            self.due = self.signal.next_due(bus);
        }
        raise
    }

    fn next_due(&self) -> Option<u64> {
        self.due
    }
}
