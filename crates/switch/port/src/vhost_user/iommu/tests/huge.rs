//! Huge pages that a guest shares although the system has none free.

use super::guest::{BOTH, GuestConfig, Monitor, Space, USER, add, framed};
use super::rig::{next_one_works, reflect};
use crate::vhost_user::BackendError;
use crate::vhost_user::tests::session::port;
use ringway_mem::Reader;
use ringway_vhost_user::{MemoryRegion, SharedRegion};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

const DATA: u64 = 0x20_0000;
/// Address at which the huge pages are shared.
const HUGE: u64 = 0x100_0000_0000;
const SIZE: u64 = 2 << 20;

/// Whether the file has a page, that is, the system had a huge page free.
fn is_backed(file: &OwnedFd) -> bool {
    rustix::fs::fstat(file).unwrap().st_blocks > 0
}

#[test]
fn a_guest_whose_huge_pages_run_out_loses_its_port() {
    ringway_host::catch_sigbus().unwrap();
    for (packed, iommu) in [(false, false), (false, true), (true, false), (true, true)] {
        let kind = GuestConfig { packed, iommu, page: 2 << 20, ring: 256 };
        let (mut backend, mut queues, counters) = port();
        let space = Space::new(kind);
        let (mut rx, mut tx) = (space.driver(0), space.driver(1));
        let mut monitor = Monitor::new(&mut backend, &space);
        let file =
            match memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB) {
                Ok(file) => file,
                Err(error) => {
                    assert!(matches!(error, Errno::NOSYS | Errno::INVAL | Errno::NODEV), "{error}");
                    return;
                }
            };
        ftruncate(&file, SIZE).unwrap();
        let region = MemoryRegion { guest: HUGE, size: SIZE, user: USER + HUGE, offset: 0 };
        let huge = SharedRegion { region, fd: file.try_clone().unwrap() };
        monitor.front.set_memory(vec![space.share(), huge]).unwrap();
        monitor.map(DATA, DATA, 0x1000, BOTH);
        monitor.start(0);
        monitor.start(1);
        space.span(DATA, 212).write(&framed(1, 200));
        let mut reader = Reader::register().unwrap();
        monitor.map(HUGE, HUGE, 0x1000, BOTH);
        add(&mut rx, HUGE, 2048, true);
        add(&mut tx, DATA, 212, false);
        let mut passed = 0;
        for _ in 0..5 {
            passed += reflect(&mut reader, &mut queues[0]);
            if monitor.front.transport().is_over() {
                break;
            }
            monitor.answer_while();
        }
        let end = monitor.end();
        // The frame that hit the missing page was written to a private page of ours.
        let ran_out = matches!(end, Some(BackendError::Lost));
        assert!(ran_out || end.is_none() && is_backed(&file), "packed {packed}, IOMMU {iommu}: {end:?}");
        assert_eq!((passed, counters.faults.load(Relaxed)), (1, u64::from(ran_out)));
        drop((monitor, rx, tx));
        next_one_works((&mut backend, &mut queues[0], &counters), kind, "huge pages");
    }
}
