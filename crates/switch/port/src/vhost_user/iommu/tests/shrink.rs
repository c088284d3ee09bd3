//! Files that shrink while frames of their guest are in flight.

use super::guest::{BOTH, GuestConfig, Monitor, PART, RINGS, SIZE, Space, add, framed};
use super::rig::{next_one_works, pass, reflect, with};
use crate::SocketError;
use crate::State;
use crate::vhost_user::BackendError;
use crate::vhost_user::tests::session::port;
use ringway_host::EventFd;
use ringway_mem::Reader;
use ringway_vhost_user::SharedRegion;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering::Relaxed;

const DATA: u64 = 0x20_0000;
const LEN: usize = 212;

/// A guest whose file is cut to `left` bytes while a frame waits.
fn shrunk(kind: GuestConfig, left: u64) {
    let what = format!("{kind:?}, {left:#x} bytes left");
    let (mut backend, mut queues, counters) = port();
    // Ringway's own memfds are sealed; a guest's may not be.
    let file = memfd_create("guest", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, SIZE).unwrap();
    let space = Space::of(kind, file);
    let (mut rx, mut tx) = (space.driver(0), space.driver(1));
    let mut monitor = Monitor::new(&mut backend, &space);
    monitor.map(DATA, DATA, 0x2000, BOTH);
    monitor.start(0);
    monitor.start(1);
    space.span(DATA, LEN as u32).write(&framed(1, LEN - 12));
    let mut reader = Reader::register().unwrap();
    for _ in 0..2 {
        add(&mut rx, DATA + 0x1000, 2048, true);
        add(&mut tx, DATA, LEN, false);
        pass(&mut reader, &mut queues[0], &mut monitor, 1);
    }
    add(&mut rx, DATA + 0x1000, 2048, true);
    add(&mut tx, DATA, LEN, false);
    ftruncate(space.share().fd, left).unwrap();
    for _ in 0..5 {
        reflect(&mut reader, &mut queues[0]);
    }
    assert!(monitor.front.transport().is_over(), "{what}");
    let end = monitor.end();
    assert!(matches!(end, Some(BackendError::Lost)), "{what}: {end:?}");
    assert_eq!(monitor.state(), State::Waiting, "{what}");
    assert!(counters.faults.load(Relaxed) >= 1, "{what}");
    // No worker accesses the memory any more, although no message said so.
    assert_eq!(reflect(&mut reader, &mut queues[0]), 0, "{what}");
    drop((monitor, rx, tx));
    next_one_works((&mut backend, &mut queues[0], &counters), kind, &what);
}

#[test]
fn a_guest_file_that_shrinks_under_traffic_closes_only_its_own_port() {
    ringway_host::catch_sigbus().unwrap();
    for (packed, iommu) in [(false, false), (false, true), (true, false), (true, true)] {
        let kind = GuestConfig { packed, iommu, page: 4096, ring: 256 };
        // A neighbour on another port works before and after.
        with(kind, |rig| {
            let mut works = || {
                rig.monitor.map(DATA, DATA, 0x2000, BOTH);
                rig.space.span(DATA, LEN as u32).write(&framed(2, LEN - 12));
                add(&mut rig.rx, DATA + 0x1000, 2048, true);
                add(&mut rig.tx, DATA, LEN, false);
                pass(&mut rig.reader, rig.queue, &mut rig.monitor, 1);
                assert_eq!(rig.space.bytes(DATA + 0x1000, LEN)[12..], framed(2, LEN - 12)[12..]);
            };
            works();
            // Cuts off the buffers, then the rings too, then all.
            for left in [RINGS + 6 * PART, RINGS + PART, 0] {
                shrunk(kind, left);
                works();
            }
        });
    }
}

#[test]
fn a_file_that_is_not_memory_backed_is_refused_or_closes_the_port() {
    let disk = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    for (packed, iommu) in [(false, false), (false, true), (true, false), (true, true)] {
        let kind = GuestConfig { packed, iommu, page: 4096, ring: 256 };
        let (mut backend, mut queues, counters) = port();
        let space = Space::new(kind);
        let (mut rx, mut tx) = (space.driver(0), space.driver(1));
        let mut monitor = Monitor::new(&mut backend, &space);
        monitor.map(DATA, DATA, 0x2000, BOTH);
        monitor.start(0);
        monitor.start(1);
        space.span(DATA, LEN as u32).write(&framed(1, LEN - 12));
        let mut reader = Reader::register().unwrap();
        let as_file = |fd: OwnedFd| SharedRegion { fd, ..space.share() };
        // The type of file that other messages accept can be told from memory; the rings keep their old
        // settings.
        let (pipe, _) = std::io::pipe().unwrap();
        let none = [EventFd::new().unwrap().into_fd(), pipe.into()];
        for file in none {
            assert!(monitor.front.set_memory(vec![as_file(file)]).is_err(), "{kind:?}");
            add(&mut rx, DATA + 0x1000, 2048, true);
            add(&mut tx, DATA, LEN, false);
            pass(&mut reader, &mut queues[0], &mut monitor, 1);
        }
        assert_eq!(counters.faults.load(Relaxed), 0);
        // No message accepts a file on a disk.
        assert!(monitor.front.set_memory(vec![as_file(disk.try_clone().unwrap().into())]).is_err());
        assert!(matches!(monitor.end(), Some(BackendError::Socket(SocketError::Descriptor(_)))), "{kind:?}");
        assert_eq!(reflect(&mut reader, &mut queues[0]), 0, "{kind:?}");
        drop((monitor, rx, tx));
        // Closing the file takes as long as its file system likes, so another thread does it.
        let closed = || backend.connect(UnixStream::pair().unwrap().0.into()).is_ok();
        assert!(std::iter::repeat_with(closed).take(1_000_000).any(|closed| {
            std::thread::yield_now();
            closed
        }));
        next_one_works((&mut backend, &mut queues[0], &counters), kind, "a file on a disk");
    }
}
