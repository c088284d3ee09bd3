//! The receive descriptors.

use super::filter::{LONGEST, Mode};
use super::interrupts::{MISS, RINT};
use super::shared::{Bus, Shared};
use super::{ENP, ERR, OWN, STP, buffer};
use crate::descriptor_ring::{Part, Ring};
use crate::device::Raise;
use crate::engine::{Frame, Missing, Reserved, RxLayout};
use crate::pieces::{CRC, Cast};
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use ringway_frame::Reason;
use ringway_mem::{Direct, Translate};

/// Bits of a first word when a frame is there: own address, multicast, broadcast; an error, of the CRC.
const PAM: u64 = 1 << 54;
const LAFM: u64 = 1 << 53;
const BAM: u64 = 1 << 52;
const ERROR: u64 = ERR | 1 << 59;
/// What of a first word stays: address and size of the buffer.
const KEPT: u64 = 0xffff_ffff_ffff;
/// Descriptors that are looked at ahead of the driver.
const WINDOW: usize = 128;

/// A descriptor that the device owns.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    index: u32,
    address: u64,
    size: u32,
    /// Its two words when it is returned.
    done: [u64; 2],
}

/// The receive descriptors.
#[derive(Debug)]
pub struct Descriptors {
    /// Those from the head on.
    entries: [Entry; WINDOW],
}

impl RxLayout for Descriptors {
    type Shared = Shared;
    type Mode = Mode;

    const FRAMES: usize = 64;

    fn new() -> Descriptors {
        Descriptors { entries: [Entry::default(); WINDOW] }
    }

    fn mode(shared: &Shared) -> Mode {
        Mode::load(shared)
    }

    fn largest(shared: &Shared) -> Option<u32> {
        shared.is_active().then_some(LONGEST)
    }

    #[inline]
    fn accept(mode: &Mode, _shared: &Shared, head: &[u8; 64], len: u32) -> Result<Option<u16>, Reason> {
        mode.accept(head, len).map(|()| None)
    }

    #[cold]
    fn run_out(bus: &Bus<'_>) -> Raise {
        bus.shared.interrupts.set(MISS)
    }

    fn reset(&mut self) {}

    fn fetch<'t>(
        &mut self,
        ring: &Ring,
        (translate, part): (&mut Direct<'t, '_>, &mut Part<'t>),
        first: usize,
        len: u32,
    ) -> Result<usize, Missing> {
        let (mut count, mut room) = (first, 0);
        // Attack: a ring whose descriptors are all the device's; each is used once.
        let most = WINDOW.min(ring.count as usize);
        while room < len + CRC {
            if count == most {
                return Err(Missing::Descriptors);
            }
            let index = ring.after(ring.head, count as u32);
            let (pairs, place) = ring.at(part, translate, index).ok_or(Missing::Ring)?;
            let word = pairs.first(place);
            if word & OWN == 0 {
                return Err(Missing::Descriptors);
            }
            // The driver wrote the address before it gave the descriptor away.
            fence(Ordering::Acquire);
            let (address, size) = buffer(word);
            // The driver's own word stays.
            let own = pairs.second(place) & !0xffff_ffff;
            self.entries[count] = Entry { index, address, size, done: [word & KEPT, own] };
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

    fn describe(&mut self, _shared: &Shared, _mode: &Mode, reserved: &Reserved, frame: Frame<'_>) {
        let flags = match (frame.refusal, Cast::of(frame.head)) {
            (Some(_), _) => ERROR,
            (None, Cast::Uni) => PAM,
            (None, Cast::Multi) => LAFM,
            (None, Cast::Broad) => BAM,
        };
        let entries = &mut self.entries[reserved.descriptors()];
        if let Some(first) = entries.first_mut() {
            first.done[0] |= STP;
        }
        if let Some(last) = entries.last_mut() {
            last.done[0] |= ENP | flags;
            last.done[1] |= u64::from(reserved.len + CRC);
        }
    }

    fn publish(
        &mut self,
        _bus: &Bus<'_>,
        _block: Option<()>,
        (ring, translate): (&mut Ring, &mut Direct<'_, '_>),
        filled: usize,
        count: usize,
    ) -> (u32, bool) {
        let mut part = Part::default();
        for entry in &self.entries[..filled] {
            if let Some((pairs, place)) = ring.at(&mut part, translate, entry.index) {
                pairs.set_second(place, entry.done[1]);
                fence(Ordering::Release);
                pairs.set_first(place, entry.done[0]);
            }
        }
        ring.head = ring.after(ring.head, filled as u32);
        self.entries.copy_within(filled..count.max(filled), 0);
        (RINT, true)
    }
}
