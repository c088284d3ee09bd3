//! The transmit descriptors.

use super::interrupts::TINT;
use super::shared::{Bus, Shared};
use super::{ENP, ERR, OWN, STP, buffer};
use crate::descriptor_ring::{Part, Ring};
use crate::engine::{Found, Offloads, Rewritten, Scan, Taken, TxLayout};
use crate::pieces::gather;
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use ringway_frame::{HEADERS, LARGEST, Offload, Reason};
use ringway_mem::{Direct, Span};

/// What of a first word goes when the descriptor is returned: the owner, an error, and collisions.
const STATUS: u64 = OWN | ERR | 7 << 58;
/// Descriptors of a burst. Attack: a ring of descriptors that are all the device's; each is examined once.
const WINDOW: usize = 256;

/// The chip has no offloads.
#[derive(Clone, Copy, Debug)]
pub struct Nothing;

impl Offloads for Nothing {
    #[inline]
    fn rewritten(&self, _total: usize) -> usize {
        0
    }

    fn offload(&self, _total: usize) -> Result<Offload, Reason> {
        Ok(Offload::default())
    }

    fn rewrite(&self, _headers: &mut [u8; HEADERS], len: usize, _total: usize) -> Rewritten {
        Ok((Offload::default(), len))
    }
}

/// The transmit descriptors.
#[derive(Debug)]
pub struct Descriptors {
    /// Index and first word of those examined.
    examined: [(u32, u64); WINDOW],
    /// The one that the driver has next to give.
    awaited: Option<u32>,
}

impl TxLayout for Descriptors {
    type Shared = Shared;
    type State = ();
    type Frame = ();
    type Request = Nothing;

    fn new() -> Descriptors {
        Descriptors { examined: [(0, 0); WINDOW], awaited: None }
    }

    fn reset(&mut self) {
        self.awaited = None;
    }

    fn begin(&mut self, bus: &Bus<'_>, _block: Option<()>, _ring: &Ring) -> Option<()> {
        self.awaited = None;
        bus.shared.is_active().then_some(())
    }

    #[inline]
    fn next<'t>(
        &mut self,
        _bus: &Bus<'t>,
        (ring, translate, part): (&Ring, &mut Direct<'t, '_>, &mut Part<'t>),
        scan: &mut Scan<()>,
        pieces: &mut [Span<'t>],
    ) -> Found<Nothing> {
        let (mut count, mut len, mut bad) = (0, 0_usize, None);
        let (begin, most) = (scan.passed, WINDOW.min(ring.count as usize));
        loop {
            if scan.passed == most {
                // A frame that fills the ring has no end; another one is found again in the next burst.
                let is_endless = begin == 0 && scan.passed > 0;
                return if is_endless { Found::Skip(Some(Reason::BadDescriptor)) } else { Found::Nothing };
            }
            let Some((pairs, place)) = ring.at(part, translate, scan.at) else { return Found::Outside };
            let word = pairs.first(place);
            if word & OWN == 0 {
                self.awaited = Some(scan.at);
                return Found::Nothing;
            }
            // The driver wrote the address before it gave the descriptor away.
            fence(Ordering::Acquire);
            let begins = scan.passed == begin;
            self.examined[scan.passed] = (scan.at, word);
            (scan.at, scan.passed) = (ring.after(scan.at, 1), scan.passed + 1);
            if begins != (word & STP != 0) {
                bad = Some(Reason::BadDescriptor);
            }
            let (address, size) = buffer(word);
            len += size as usize;
            if len > LARGEST as usize {
                bad = bad.or(Some(Reason::Long));
            }
            if bad.is_none() {
                bad = gather(translate, (address, size), pieces, &mut count).err();
            }
            if word & ENP != 0 {
                if bad.is_some() {
                    return Found::Skip(bad);
                }
                return Found::Frame { pieces: count, len, request: Nothing, delayed: false };
            }
        }
    }

    fn frame(_request: &Nothing, _head: &[u8; 64], _len: usize) {}

    fn count(_shared: &Shared, _taken: &[Taken<(), ()>]) {}

    fn write_back(
        &mut self,
        _bus: &Bus<'_>,
        _block: Option<()>,
        (ring, translate): (&mut Ring, &mut Direct<'_, '_>),
        range: Range<usize>,
        (end, _sent): (&Scan<()>, bool),
    ) -> u32 {
        let mut part = Part::default();
        for &(index, word) in self.examined.get(range).unwrap_or(&[]) {
            if let Some((pairs, place)) = ring.at(&mut part, translate, index) {
                // The frame's bytes are read before the driver may reuse them.
                fence(Ordering::Release);
                pairs.set_first(place, word & !STATUS);
            }
        }
        ring.head = end.at;
        TINT
    }

    fn has_more(
        &self,
        bus: &Bus<'_>,
        _block: Option<()>,
        (ring, translate): (&Ring, &mut Direct<'_, '_>),
    ) -> bool {
        // The driver demands after it gave a descriptor away, whatever the device asks for.
        let Some(index) = self.awaited.filter(|_| bus.shared.is_active()) else { return false };
        let found = ring.at(&mut Part::default(), translate, index);
        found.is_some_and(|(pairs, place)| pairs.first(place) & OWN != 0)
    }
}
