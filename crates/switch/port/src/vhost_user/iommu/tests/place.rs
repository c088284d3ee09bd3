//! Rings scattered in guest memory, as a driver's allocator may place them if it finds no larger piece.

use super::guest::{BOTH, GuestConfig, Monitor, PART, RINGS, RINGS_IOVA, SIZE, Space, USER, add, framed};
use super::rig::reflect;
use crate::State;
use crate::vhost_user::BackendError;
use crate::vhost_user::tests::session::port;
use ringway_mem::Reader;
use ringway_vhost_user::Iotlb;

const DATA: u64 = 0x20_0000;
const IOVA: u64 = 0x4000_0000;

/// A guest whose descriptor rings take two pages.
fn kind(packed: bool) -> GuestConfig {
    GuestConfig { packed, iommu: true, page: 4096, ring: 512 }
}

#[test]
fn a_ring_over_several_ranges_works() {
    for packed in [false, true] {
        let kind = kind(packed);
        let (mut backend, mut queues, counters) = port();
        let space = Space::new(kind);
        let (mut rx, mut tx) = (space.driver(0), space.driver(1));
        let mut monitor = Monitor::new(&mut backend, &space);
        // The descriptors of both rings, and a used ring, span two regions each.
        let splits = [0, RINGS + 0x1000, RINGS + 2 * PART + 0x1000, RINGS + 3 * PART + 0x1000];
        monitor.front.set_memory(space.share_in(&splits)).unwrap();
        monitor.map(IOVA, DATA, 0x2000, BOTH);
        monitor.start(0);
        monitor.start(1);
        assert_eq!(monitor.state(), State::Up);
        let mut reader = Reader::register().unwrap();
        for round in 0..1200u64 {
            if round == 700 {
                // The ring is located again after a part was invalidated.
                monitor.send_iotlb(Iotlb::INVALIDATE, RINGS_IOVA + 3 * PART, 0x1000, 0, 0).unwrap();
                monitor.answer();
            }
            let bytes = framed(round, 200);
            space.span(DATA, 212).write(&bytes);
            add(&mut rx, IOVA + 0x1000, 2048, true);
            add(&mut tx, IOVA, 212, false);
            let passed = (0..20).any(|_| {
                let passed = reflect(&mut reader, &mut queues[0]) == 1;
                monitor.answer();
                passed
            });
            assert!(passed, "packed {packed} round {round}");
            assert!(tx.take_used().unwrap().is_some());
            assert_eq!(rx.take_used().unwrap().unwrap().1, 212);
            assert_eq!(space.bytes(DATA + 0x1000, 212)[12..], bytes[12..]);
        }
        assert_eq!(counters.faults.load(std::sync::atomic::Ordering::Relaxed), 0);
    }
}

#[test]
fn a_ring_that_can_not_be_mapped_contiguously_is_refused_with_a_reason() {
    for packed in [false, true] {
        let (mut backend, _queues, counters) = port();
        let space = Space::new(kind(packed));
        let mut monitor = Monitor::new(&mut backend, &space);
        monitor.answers = false;
        monitor.start(0);
        // Half a page at one place, the rest elsewhere.
        monitor.send_iotlb(Iotlb::UPDATE, RINGS_IOVA, 0x800, USER + RINGS, BOTH).unwrap();
        assert!(monitor.end().is_none());
        let rest = 0x4_0000 - 0x800;
        let _ = monitor.send_iotlb(Iotlb::UPDATE, RINGS_IOVA + 0x800, rest, USER + SIZE / 2, BOTH);
        let end = monitor.end();
        let Some(BackendError::Ring { ring: 0, reason }) = end else { panic!("{end:?}") };
        assert!(reason.contains("not contiguous"), "{reason}");
        assert_eq!(counters.faults.load(std::sync::atomic::Ordering::Relaxed), 1);
        assert_eq!(monitor.state(), State::Waiting);
    }
}
