//! The transmit descriptors: legacy ones, contexts and data.

use super::filter::VME;
use super::interrupts::{TXDW, TXQE};
use super::loopback::{Loopback, loop_back};
use super::offload::{Context, Request};
use super::registers as reg;
use super::shared::{Bus, Shared};
use super::stats;
use super::tail::{set_head, tail};
use crate::csb::Csb;
use crate::descriptor_ring::{Part, Ring};
use crate::device::Raise;
use crate::engine::{Direction, Family, Found, Scan, Taken, TxEngine, TxLayout};
use crate::pieces::{CRC, Cast, gather};
use alloc::boxed::Box;
use alloc::vec;
use core::ops::Range;
use core::sync::atomic::{Ordering, fence};
use ringway_frame::{Burst, LARGEST, Reason, add};
use ringway_mem::{Direct, Span};

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

/// What is known at a position of the ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// Descriptors behind it.
    left: u32,
    contexts: Contexts,
}

/// What is counted of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counted {
    segmented: bool,
    cast: Cast,
    len: u32,
}

/// The transmit descriptors.
#[derive(Debug)]
pub struct Descriptors {
    /// Present once the PHY looped frames back.
    pub(super) loopback: Option<Box<Loopback>>,
    /// The contexts at the ring's head.
    contexts: Contexts,
    /// Indices of descriptors that ask for a status, of the frames taken.
    reports: Box<[u32]>,
    /// The tail when no frame was found.
    seen: u32,
    /// The last tail.
    last: u32,
}

impl TxLayout for Descriptors {
    type Shared = Shared;
    type State = State;
    type Frame = Counted;
    type Request = Request;

    fn new() -> Descriptors {
        Descriptors {
            loopback: None,
            contexts: Contexts::default(),
            reports: vec![0; SCAN].into_boxed_slice(),
            seen: u32::MAX,
            last: 0,
        }
    }

    fn reset(&mut self) {
        (self.contexts, self.seen) = (Contexts::default(), u32::MAX);
    }

    fn begin(&mut self, bus: &Bus<'_>, csb: Option<Csb<'_>>, ring: &Ring) -> Option<State> {
        let tail = tail(bus, csb, Direction::Tx);
        if core::mem::replace(&mut self.last, tail) != tail {
            add(&bus.shared.rings.doorbells[0], 1);
        }
        self.seen = tail;
        let sends = bus.shared.link() || bus.shared.loops_back();
        let left = ring.available(tail).min(SCAN as u32);
        (sends && left > 0).then_some(State { left, contexts: self.contexts })
    }

    #[inline]
    fn next<'t>(
        &mut self,
        bus: &Bus<'t>,
        (ring, translate, part): (&Ring, &mut Direct<'t, '_>, &mut Part<'t>),
        scan: &mut Scan<State>,
        pieces: &mut [Span<'t>],
    ) -> Found<Request> {
        if scan.state.left == 0 {
            return Found::Nothing;
        }
        let (mut count, mut len, mut bad, mut begun) = (0, 0usize, None, false);
        let mut delayed = true;
        let mut request = Request::default();
        while scan.state.left > 0 {
            let Some((pairs, place)) = ring.at(part, translate, scan.at) else { return Found::Outside };
            let words = [pairs.first(place), pairs.second(place)];
            let [address, command] = words;
            let index = scan.at;
            (scan.at, scan.state.left) = (ring.after(index, 1), scan.state.left - 1);
            if command & RS != 0
                && let Some(report) = self.reports.get_mut(scan.passed)
            {
                *report = index;
                scan.passed += 1;
                delayed &= command & IDE != 0;
            }
            if command & DEXT != 0 && command >> 20 & 0xf == 0 {
                // Attack: a context in the middle of a frame, which would change what was asked for.
                if begun {
                    bad = Some(Reason::BadDescriptor);
                }
                scan.state.contexts[usize::from(Context::is_segmentation(words))] = Context::parse(words);
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
                request.context = scan.state.contexts[usize::from(request.segment)];
                if command & VLE != 0 && bus.shared.load(reg::CTRL) & VME != 0 {
                    request.tag = Some((bus.shared.load(reg::VET) as u16, (command >> 48) as u16));
                }
                if bad.is_some() {
                    return Found::Skip(bad);
                }
                self.seen = u32::MAX;
                return Found::Frame { pieces: count, len, request, delayed };
            }
        }
        // Contexts alone, or a frame that is bad already: it is dropped in parts, each counted. Attack: a ring full of
        // descriptors without an end.
        match (begun, bad) {
            (_, Some(reason)) => Found::Skip(Some(reason)),
            (false, None) => Found::Skip(None),
            (true, None) => Found::Nothing,
        }
    }

    fn frame(request: &Request, head: &[u8; 64], len: usize) -> Counted {
        Counted { segmented: request.segment, cast: Cast::of(head), len: len as u32 }
    }

    fn count(shared: &Shared, taken: &[Taken<State, Counted>]) {
        let (mut tally, mut segmented) = (stats::Tally::default(), 0);
        for Counted { segmented: is_segmented, cast, len } in taken.iter().map(|taken| taken.frame) {
            tally.count(cast, u64::from(len + CRC));
            segmented += u64::from(is_segmented);
        }
        shared.stats.transmitted(&tally);
        shared.stats.add(reg::TSCTC, segmented);
    }

    fn write_back(
        &mut self,
        bus: &Bus<'_>,
        csb: Option<Csb<'_>>,
        (ring, translate): (&mut Ring, &mut Direct<'_, '_>),
        range: Range<usize>,
        (end, _): (&Scan<State>, bool),
    ) -> u32 {
        // The frames' bytes are read before the driver may reuse them.
        fence(Ordering::Release);
        let reports = self.reports.get(range).unwrap_or(&[]);
        for &index in reports {
            ring.write_byte(translate, index, STATUS_AT, DD);
        }
        (ring.head, self.contexts) = (end.at, end.state.contexts);
        set_head(bus, csb, Direction::Tx, end.at);
        let is_empty = ring.available(tail(bus, csb, Direction::Tx)) == 0;
        (if reports.is_empty() { 0 } else { TXDW }) | if is_empty { TXQE } else { 0 }
    }

    fn has_more(&self, bus: &Bus<'_>, csb: Option<Csb<'_>>, _ring: (&Ring, &mut Direct<'_, '_>)) -> bool {
        tail(bus, csb, Direction::Tx) != self.seen
    }

    fn take<'t>(engine: &mut TxEngine<Self>, bus: &Bus<'t>, burst: &mut Burst<'t>) -> Raise {
        if bus.shared.loops_back() { loop_back(engine, bus) } else { engine.collect(bus, burst) }
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
