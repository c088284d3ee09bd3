//! The receive descriptors, in all their formats.

use super::filter::{Mode, largest, threshold};
use super::interrupts::{RXDMT0, RXO, RXT0, SRPD};
use super::registers as reg;
use super::shared::{Bus, Shared};
use super::stats::Tally;
use super::tail::{set_head, tail};
use crate::csb::Csb;
use crate::descriptor_ring::{Part, Ring};
use crate::device::Raise;
use crate::engine::{Direction, Frame, Missing, Reserved, RxLayout};
use crate::pieces::{CRC, Cast};
use alloc::boxed::Box;
use alloc::vec;
use core::ops::Range;
use ringway_frame::{Reason, add};
use ringway_mem::{Direct, Translate};

/// Most descriptors that are reserved together: 256 KB in buffers of 256 bytes.
const DESCRIPTORS: usize = 1024;

/// Status of a descriptor: done, end of packet, checksum not examined, tag removed, checksum of TCP or UDP examined.
const DD: u64 = 1 << 0;
const EOP: u64 = 1 << 1;
const IXSM: u64 = 1 << 2;
const VP: u64 = 1 << 3;
const TCPCS: u64 = 1 << 5;
/// Data error, in the errors that follow the status: the driver discards the frame.
const RXE: u64 = 1 << 15;
const EXTENDED_RXE: u64 = 1 << 31;

/// The receive descriptors.
#[derive(Debug)]
pub struct Descriptors {
    /// Buffer addresses of the reserved descriptors.
    addresses: Box<[[u64; 4]]>,
    /// How many the driver gave, at most [`DESCRIPTORS`].
    most: usize,
    /// Of the frames put: the words of each descriptor that are written, from the ring's head on: the second one, and
    /// that with the lengths of further buffers.
    done: Box<[[u64; 2]]>,
    extended: bool,
    /// Descriptors have several buffers, of these sizes.
    split: bool,
    buffers: [u32; 4],
    /// Bytes of a CRC in buffers.
    crc: u32,
    tally: Tally,
    /// A small frame was put.
    small: bool,
    /// The last tail.
    last: u32,
}

impl RxLayout for Descriptors {
    type Shared = Shared;
    type Mode = Mode;

    const FRAMES: usize = 256;

    fn new() -> Descriptors {
        Descriptors {
            addresses: vec![[0; 4]; DESCRIPTORS].into_boxed_slice(),
            most: 0,
            done: vec![[0; 2]; DESCRIPTORS].into_boxed_slice(),
            extended: false,
            split: false,
            buffers: [2048, 0, 0, 0],
            crc: 0,
            tally: Tally::default(),
            small: false,
            last: 0,
        }
    }

    fn mode(shared: &Shared) -> Mode {
        Mode::load(shared)
    }

    fn largest(shared: &Shared) -> Option<u32> {
        (!shared.loops_back()).then(|| largest(shared.load(reg::RCTL)))
    }

    fn is_large(mode: &Mode) -> bool {
        mode.split
    }

    #[inline]
    fn accept(mode: &Mode, shared: &Shared, head: &[u8; 64], len: u32) -> Result<Option<u16>, Reason> {
        mode.accept(shared, head, len)
    }

    #[cold]
    fn run_out(bus: &Bus<'_>) -> Raise {
        bus.shared.stats.add(reg::RNBC, 1);
        bus.shared.interrupts.set(RXO, bus.now)
    }

    fn reset(&mut self) {
        self.tally = Tally::default();
    }

    fn begin(&mut self, bus: &Bus<'_>, csb: Option<Csb<'_>>, ring: &Ring, mode: &Mode) {
        (self.extended, self.split) = (mode.extended, mode.split);
        (self.buffers, self.crc) = (mode.buffers(), mode.crc());
        let tail = tail(bus, csb, Direction::Rx);
        if core::mem::replace(&mut self.last, tail) != tail {
            add(&bus.shared.rings.doorbells[1], 1);
        }
        self.most = (ring.available(tail) as usize).min(DESCRIPTORS);
    }

    fn fetch<'t>(
        &mut self,
        ring: &Ring,
        (translate, part): (&mut Direct<'t, '_>, &mut Part<'t>),
        first: usize,
        len: u32,
    ) -> Result<usize, Missing> {
        let count = (len + self.crc).div_ceil(self.buffers.iter().sum()) as usize;
        if first + count > self.most {
            return Err(Missing::Descriptors);
        }
        for number in first..first + count {
            let index = ring.after(ring.head, number as u32);
            let (pairs, place) = ring.at(part, translate, index).ok_or(Missing::Ring)?;
            let address = pairs.first(place);
            self.addresses[number] = match self.split {
                true => [address, pairs.second(place), pairs.first(place + 1), pairs.second(place + 1)],
                false => [address, 0, 0, 0],
            };
            // Only for the cache; the buffer is translated when it is written.
            if let Ok(span) = translate.write(address, self.buffers[0]) {
                span.prefetch_write();
            }
        }
        Ok(count)
    }

    #[inline]
    fn buffers(&self, descriptors: Range<usize>) -> impl Iterator<Item = (u64, u32)> + Clone {
        let sizes = self.buffers;
        self.addresses[descriptors].iter().flat_map(move |all| all.iter().copied().zip(sizes))
    }

    fn describe(&mut self, shared: &Shared, mode: &Mode, reserved: &Reserved, frame: Frame<'_>) {
        let flags = match frame.refusal {
            Some(reason) => {
                count_refused(shared, reason);
                IXSM | if self.extended { EXTENDED_RXE } else { RXE }
            }
            None => {
                self.tally.count(Cast::of(frame.head), u64::from(frame.len + CRC));
                self.small |= reserved.len + CRC <= shared.load(reg::RSRPD) & 0xfff;
                if mode.reports_checksum && frame.is_checked { TCPCS } else { IXSM }
            }
        };
        let mut left = reserved.len + mode.crc();
        let descriptors = reserved.descriptors();
        for number in descriptors.clone() {
            let last = number + 1 == descriptors.end;
            let lens = self.buffers.map(|size| {
                let len = size.min(left);
                left -= len;
                u64::from(len)
            });
            let len = lens[0];
            let is_tagged = reserved.tag.is_some();
            let status = flags | DD | if last { EOP } else { 0 } | if is_tagged { VP } else { 0 };
            let tag = u64::from(reserved.tag.unwrap_or(0));
            self.done[number] = if self.extended {
                // Status and errors, length, tag. Then the lengths of the further buffers; the headers are not split
                // from the rest.
                [status | len << 32 | tag << 48, lens[1] << 16 | lens[2] << 32 | lens[3] << 48]
            } else {
                // Length, checksum, status, errors, tag.
                [len | status << 32 | tag << 48, 0]
            };
        }
    }

    fn publish(
        &mut self,
        bus: &Bus<'_>,
        csb: Option<Csb<'_>>,
        (ring, translate): (&mut Ring, &mut Direct<'_, '_>),
        filled: usize,
        count: usize,
    ) -> (u32, bool) {
        let mut part = Part::default();
        for (number, [second, lengths]) in self.done[..filled].iter().enumerate() {
            let index = ring.after(ring.head, number as u32);
            if let Some((pairs, place)) = ring.at(&mut part, translate, index) {
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
        self.addresses.copy_within(filled..count.max(filled), 0);
        let free = ring.available(tail(bus, csb, Direction::Rx));
        let filled = filled as u32;
        ring.head = ring.after(ring.head, filled.min(ring.count));
        set_head(bus, csb, Direction::Rx, ring.head_register());
        bus.shared.stats.received(&core::mem::take(&mut self.tally));
        let threshold = threshold(bus.shared, ring.count);
        let few = free >= threshold && free.saturating_sub(filled) < threshold;
        let small = core::mem::take(&mut self.small);
        (RXT0 | if few { RXDMT0 } else { 0 } | if small { SRPD } else { 0 }, few || small)
    }
}

#[cold]
fn count_refused(shared: &Shared, reason: Reason) {
    match reason {
        Reason::Long => shared.stats.add(reg::ROC, 1),
        Reason::Short => shared.stats.add(reg::RUC, 1),
        _ => {}
    }
}
