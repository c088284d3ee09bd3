//! Rings with a log: each changed page of the ring is marked, and no other.

#![allow(clippy::unwrap_used)]

use crate::common::{BASE, Guest, start};
use proptest::prelude::*;
use ringway_mem::{DirtyLog, Extent, Extents, Hint, LOG_PAGE, Span, SpanMut};
use ringway_virtq::{
    Buffer, Driver, Fill, Layout, Ring, RxDevice, RxHeader, Signals, Tracker, TxDevice, Verdict,
};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Addresses of buffers and of the log, both far from the ring.
const DATA: u64 = BASE + 0x8_0000;
const LOG: u64 = BASE + 0xf_0000;
/// Pages from 0 to the end of what is shared.
const PAGES: u64 = 0x200;

/// The log, as the front-end has it.
fn log(guest: &Guest) -> Arc<DirtyLog> {
    let half = guest.memory.regions()[1].clone();
    let skip = LOG - half.guest;
    // SAFETY: within the region, whose keeper it shares, accessed only by the log and through spans.
    let region = unsafe {
        let host = half.base().add(skip as usize);
        ringway_mem::Region::new(0, 0, PAGES / 8, host, half.keeper().clone())
    };
    Arc::new(DirtyLog::new(region))
}

fn marked(guest: &Guest) -> BTreeSet<u64> {
    let bytes = guest.read(LOG, (PAGES / 8) as usize);
    guest.span(LOG, (PAGES / 8) as usize).write(&[0; (PAGES / 8) as usize]);
    (0..PAGES).filter(|page| bytes[*page as usize / 8] >> (page % 8) & 1 == 1).collect()
}

/// The ring's pages; no other thread writes them.
fn pages(guest: &Guest) -> Vec<Vec<u8>> {
    let mut bytes = vec![0; 0x8000];
    guest.span(BASE, bytes.len()).as_span().read(&mut bytes);
    bytes.chunks(LOG_PAGE as usize).map(<[u8]>::to_vec).collect()
}

struct Nothing;

impl Fill for Nothing {
    fn whole(&mut self, _frame: usize, _to: SpanMut<'_>) {}
    fn begin(&mut self, _frame: usize, _buffers: u16) {}
    fn part(&mut self, _to: SpanMut<'_>) {}
    fn lost(&mut self, _frame: usize) {}
}

/// A tracker for the areas of a ring of this layout at `BASE`.
fn tracker(log: &Arc<DirtyLog>, guest: &Guest, layout: &Layout) -> Tracker {
    let areas = guest.areas(layout, BASE);
    let begin = guest.span(BASE, 1).as_span().address();
    let extents = |span: SpanMut<'_>| {
        let guest = BASE + (span.as_span().address() - begin) as u64;
        Extents::new(vec![Extent { guest, len: span.len() as u64 }])
    };
    let descriptors = if layout.packed { extents(areas.descriptors) } else { Extents::default() };
    Tracker { log: log.clone(), descriptors, device: extents(areas.device), log_address: None }
}

/// One step of a device: buffers used, and whether it then enables kicks.
type Step = (u16, bool);

fn check(layout: &Layout, receives: bool, in_order: bool, steps: &[Step]) -> Result<(), TestCaseError> {
    let guest = Guest::new();
    let log = log(&guest);
    let tracker = tracker(&log, &guest, layout);
    let ring: Ring<'_> = guest.ring(layout, BASE).logged(&tracker);
    let driver = Driver::new(layout, guest.areas(layout, BASE)).unwrap();
    let mut driver = if in_order { driver.in_order() } else { driver };
    let mut rx = RxDevice::new(start(layout), start(layout));
    let mut tx = TxDevice::new(start(layout), start(layout)).in_order(in_order);
    let rx_header = RxHeader { mergeable: false, header: 12 };
    for &(count, wanted) in steps {
        for number in 0..count {
            let address = DATA + u64::from(number) * 64;
            driver.add(&[Buffer { address, len: 64, write: receives }], None).unwrap();
        }
        driver.publish();
        marked(&guest);
        let before = pages(&guest);
        let mut hint = Hint::default();
        let mut translate = guest.direct(&mut hint);
        if receives {
            let lens = vec![40; usize::from(count)].into_iter();
            let (found, _) = rx.reserve(&ring, &mut translate, rx_header, lens);
            prop_assert_eq!(found, usize::from(count));
            rx.put(&ring, &mut translate, found, &mut Nothing).1.unwrap();
            rx.publish(&ring);
            rx.set_flag(&ring, wanted);
        } else {
            let mut left = usize::from(count);
            while left > 0 {
                let mut shown = 0;
                let look = |_: &[Span<'_>]| {
                    shown += 1;
                    Verdict::Take
                };
                tx.peek(&ring, &mut translate, left.min(64), look).unwrap();
                left -= tx.release(&ring, shown);
            }
            tx.publish(&ring);
            tx.set_flag(&ring, wanted);
        }
        let (marked, after) = (marked(&guest), pages(&guest));
        for (index, (now, before)) in after.iter().zip(&before).enumerate() {
            let page = BASE / LOG_PAGE + index as u64;
            prop_assert!(
                now == before || marked.contains(&page),
                "page {} is not marked: {:?}",
                index,
                marked
            );
            // The device area's first page contains flags and index, which may be unchanged.
            let areas = guest.areas(layout, BASE);
            let first = areas.device.as_span().address() - guest.span(BASE, 1).as_span().address();
            let last = first + areas.device.len() - 1;
            let may = [first, last].map(|at| at / LOG_PAGE as usize).contains(&index);
            prop_assert!(now != before || !marked.contains(&page) || may, "page {} is marked", index);
        }
        prop_assert!(marked.iter().all(|page| (BASE / LOG_PAGE..BASE / LOG_PAGE + 8).contains(page)));
        while driver.take_used().unwrap().is_some() {}
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 300 }))]

    #[test]
    fn exactly_the_written_ring_pages_are_marked(
        packed in any::<bool>(),
        event_idx in any::<bool>(),
        receives in any::<bool>(),
        in_order in any::<bool>(),
        steps in proptest::collection::vec((0u16..200, any::<bool>()), 1..if cfg!(miri) { 3 } else { 12 }),
    ) {
        let size = if packed { 700 } else { 512 };
        let layout = Layout { packed, size, event_idx, indirect: true };
        check(&layout, receives, in_order && !receives, &steps)?;
    }
}

#[test]
fn deferred_entries_of_a_previous_device_are_published_and_marked() {
    let layout = Layout { packed: false, size: 256, event_idx: true, indirect: true };
    let guest = Guest::new();
    let log = log(&guest);
    let tracker = tracker(&log, &guest, &layout);
    let ring = guest.ring(&layout, BASE).logged(&tracker);
    ring.settle(ringway_virtq::Cursor { index: 3, wrap: false });
    assert_eq!(ring.used_index(), Some(3));
    assert_eq!(marked(&guest).len(), 1);
}
