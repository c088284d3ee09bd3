//! The receive descriptors.

use super::filter::{LONGEST, Mode};
use super::interrupts::{RDU, RER, ROK};
use super::shared::{Bus, Shared};
use super::stats::Tally;
use super::{EOR, FIRST, LAST, OWN, RING, after};
use crate::csb::Csb;
use crate::descriptor_ring::{Part, Ring};
use crate::device::Raise;
use crate::engine::{Direction, Frame, Missing, Reserved, RxLayout};
use crate::pieces::{CRC, Cast};
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use ringway_frame::{Reason, add};
use ringway_mem::{Direct, Translate};

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

/// The receive descriptors.
#[derive(Debug)]
pub struct Descriptors {
    /// Those from the head on.
    entries: [Entry; RING as usize],
    causes: u32,
    tally: Tally,
}

impl RxLayout for Descriptors {
    type Shared = Shared;
    type Mode = Mode;

    const FRAMES: usize = RING as usize;

    fn new() -> Descriptors {
        Descriptors { entries: [Entry::default(); RING as usize], causes: 0, tally: Tally::default() }
    }

    fn mode(shared: &Shared) -> Mode {
        Mode::load(shared)
    }

    fn largest(_shared: &Shared) -> Option<u32> {
        Some(LONGEST)
    }

    #[inline]
    fn accept(mode: &Mode, _shared: &Shared, head: &[u8; 64], len: u32) -> Result<Option<u16>, Reason> {
        mode.accept(head, len)
    }

    #[cold]
    fn run_out(bus: &Bus<'_>) -> Raise {
        bus.shared.interrupts.set(RDU)
    }

    fn reset(&mut self) {
        (self.causes, self.tally) = (0, Tally::default());
    }

    fn fetch<'t>(
        &mut self,
        ring: &Ring,
        (translate, part): (&mut Direct<'t, '_>, &mut Part<'t>),
        first: usize,
        len: u32,
    ) -> Result<usize, Missing> {
        let (mut count, mut room) = (first, 0);
        while room < len + CRC {
            let index = count.checked_sub(1).map_or(ring.head, |last| self.entries[last].next);
            // Attack: buffers without bytes, or a ring whose descriptors are all the device's.
            if count == RING as usize || count > 0 && index == ring.head {
                return Err(Missing::Descriptors);
            }
            let (pairs, place) = ring.at(part, translate, index).ok_or(Missing::Ring)?;
            let word = pairs.first(place);
            if word & OWN == 0 {
                return Err(Missing::Descriptors);
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
        Ok(count - first)
    }

    #[inline]
    fn buffers(&self, descriptors: Range<usize>) -> impl Iterator<Item = (u64, u32)> + Clone {
        self.entries[descriptors].iter().map(|entry| (entry.address, entry.size))
    }

    fn describe(&mut self, shared: &Shared, mode: &Mode, reserved: &Reserved, frame: Frame<'_>) {
        let flags = if frame.refusal.is_none() {
            let cast = Cast::of(frame.head);
            self.tally.count(cast);
            self.causes |= ROK;
            let is_checked = mode.reports_checksum && frame.is_checked;
            cast_bits(cast) | if is_checked { checked(frame.head) } else { 0 }
        } else {
            if !reserved.descriptors().is_empty() {
                add(&shared.stats.bad, 1);
                self.causes |= RER;
            }
            ERROR
        };
        let entries = &mut self.entries[reserved.descriptors()];
        if let Some(first) = entries.first_mut() {
            first.done |= FIRST;
        }
        if let Some(last) = entries.last_mut() {
            let tag = reserved.tag.map_or(0, |tag| TAGGED | u64::from(tag.swap_bytes()) << 32);
            last.done |= LAST | flags | u64::from(reserved.len + CRC) | tag;
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
        for entry in &self.entries[..filled] {
            if let Some((pairs, place)) = ring.at(&mut part, translate, entry.index) {
                fence(Ordering::Release);
                pairs.set_first(place, entry.done);
            }
        }
        ring.head = self.entries[filled - 1].next;
        csb.iter().for_each(|csb| csb.set_head(Direction::Rx, ring.head));
        self.entries.copy_within(filled..count.max(filled), 0);
        bus.shared.stats.received(&core::mem::take(&mut self.tally));
        (core::mem::take(&mut self.causes), true)
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
