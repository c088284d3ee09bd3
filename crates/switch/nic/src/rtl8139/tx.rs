//! The transmit descriptors.

use super::interrupts::{TDU, TER, TOK};
use super::offload::Request;
use super::shared::{Bus, Shared};
use super::{EOR, FIRST, LAST, OWN, RING, after};
use crate::csb::Csb;
use crate::descriptor_ring::{Part, Ring};
use crate::engine::{Direction, Family, Found, Scan, Taken, TxLayout};
use crate::pieces::gather;
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use ringway_frame::{LARGEST, Reason, add};
use ringway_mem::{Direct, Span};

/// What of a first word stays when the descriptor is returned: end of the ring, first and last part, length. The status
/// says that nothing went wrong.
const KEPT: u64 = !0xffff_ffff | EOR | FIRST | LAST | 0xffff;

/// The transmit descriptors.
#[derive(Debug)]
pub struct Descriptors {
    /// Index and first word of those examined.
    examined: [(u32, u64); RING as usize],
    /// The one that the driver has next to give.
    awaited: Option<u32>,
}

impl TxLayout for Descriptors {
    type Shared = Shared;
    type State = ();
    type Frame = ();
    type Request = Request;

    fn new() -> Descriptors {
        Descriptors { examined: [(0, 0); RING as usize], awaited: None }
    }

    fn reset(&mut self) {
        self.awaited = None;
    }

    fn begin(&mut self, bus: &Bus<'_>, _csb: Option<Csb<'_>>, _ring: &Ring) -> Option<()> {
        self.awaited = None;
        bus.shared.link().then_some(())
    }

    #[inline]
    fn next<'t>(
        &mut self,
        _bus: &Bus<'t>,
        (ring, translate, part): (&Ring, &mut Direct<'t, '_>, &mut Part<'t>),
        scan: &mut Scan<()>,
        pieces: &mut [Span<'t>],
    ) -> Found<Request> {
        let (mut count, mut len, mut bad) = (0, 0usize, None);
        let (mut first, begin) = (None, scan.passed);
        loop {
            // Attack: a ring of descriptors that are all the device's; each is examined once.
            if scan.passed > 0 && scan.at == ring.head || scan.passed == RING as usize {
                // A frame that began with the ring has no end.
                let is_whole_ring = first.is_some() && begin == 0;
                return if is_whole_ring { Found::Skip(Some(Reason::BadDescriptor)) } else { Found::Nothing };
            }
            let Some((pairs, place)) = ring.at(part, translate, scan.at) else { return Found::Outside };
            let word = pairs.first(place);
            if word & OWN == 0 {
                self.awaited = Some(scan.at);
                return Found::Nothing;
            }
            // The driver wrote the address before it gave the descriptor away.
            fence(Ordering::Acquire);
            let (address, piece) = (pairs.second(place), (word & 0xffff) as u32);
            self.examined[scan.passed] = (scan.at, word);
            (scan.at, scan.passed) = (after(scan.at, word), scan.passed + 1);
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
                if bad.is_some() {
                    return Found::Skip(bad);
                }
                let request = Request::parse(first.unwrap_or(word));
                return Found::Frame { pieces: count, len, request, delayed: false };
            }
        }
    }

    fn frame(_request: &Request, _head: &[u8; 64], _len: usize) {}

    fn count(shared: &Shared, taken: &[Taken<(), ()>]) {
        add(&shared.stats.sent, taken.len() as u64);
    }

    fn count_dropped(shared: &Shared) {
        add(&shared.stats.not_sent, 1);
    }

    fn write_back(
        &mut self,
        _bus: &Bus<'_>,
        csb: Option<Csb<'_>>,
        (ring, translate): (&mut Ring, &mut Direct<'_, '_>),
        range: Range<usize>,
        (end, sent): (&Scan<()>, bool),
    ) -> u32 {
        let mut part = Part::default();
        for &(index, word) in self.examined.get(range).unwrap_or(&[]) {
            if let Some((pairs, place)) = ring.at(&mut part, translate, index) {
                // The frame's bytes are read before the driver may reuse them.
                fence(Ordering::Release);
                pairs.set_first(place, word & KEPT);
            }
        }
        ring.head = end.at;
        csb.iter().for_each(|csb| csb.set_head(Direction::Tx, end.at));
        let none_left = match ring.at(&mut part, translate, end.at) {
            Some((pairs, place)) => pairs.first(place) & OWN == 0,
            None => true,
        };
        (if sent { TOK } else { TER }) | if none_left { TDU } else { 0 }
    }

    fn has_more(
        &self,
        bus: &Bus<'_>,
        _csb: Option<Csb<'_>>,
        (ring, translate): (&Ring, &mut Direct<'_, '_>),
    ) -> bool {
        // The driver rings after it gave a descriptor away, whatever the device asks for.
        let Some(index) = self.awaited.filter(|_| bus.shared.link()) else { return false };
        let found = ring.at(&mut Part::default(), translate, index);
        found.is_some_and(|(pairs, place)| pairs.first(place) & OWN != 0)
    }
}
