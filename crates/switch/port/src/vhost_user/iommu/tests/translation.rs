//! A guest behind an IOMMU: delivery, misses, and unreachable memory.

use super::MOST;
use super::guest::{
    BOTH, CHANNEL, GuestConfig, Monitor, PART, READ, RINGS, RINGS_IOVA, SIZE, Space, USER, WRITE, add, framed,
};
use super::rig::{Rig, StopOnDrop, pass, reflect, reflect_until, with};
use crate::State;
use crate::vhost_user::BackendError;
use crate::vhost_user::tests::session::{Wire, port};
use ringway_frame::CountersRef;
use ringway_mem::Reader;
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Frontend, FrontendError, Iotlb, Request};
use ringway_virtq::Driver;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// Address of the buffers.
const DATA: u64 = 0x20_0000;

fn take_all(driver: &mut Driver<'_>) -> Vec<(u16, u32)> {
    std::iter::from_fn(|| driver.take_used().unwrap()).collect()
}

fn counted(counters: &CountersRef) -> (u64, u64, u64, u64, u64) {
    let drops = counters.tx_drops.iter().chain(&counters.rx_drops).map(|count| count.load(Relaxed)).sum();
    (
        counters.iotlb_hits.load(Relaxed) + counters.iotlb_rx_hits.load(Relaxed),
        counters.iotlb_misses.load(Relaxed),
        counters.iotlb_invalidations.load(Relaxed),
        counters.iotlb_faults.load(Relaxed),
        drops,
    )
}

#[test]
fn frames_pass_through_scattered_pages() {
    for kind in GuestConfig::ALL {
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, counters, reader } = rig;
            // 256 pages, each at a scattered place; or identity-mapped in large pages.
            let scattered = kind.page == 4096;
            let place = |page: u64| if scattered { page * 97 % 256 } else { page };
            for page in 0..256 {
                monitor.map(0x4000_0000 + page * 4096, DATA + place(page) * 4096, 4096, BOTH);
            }
            let at = |iova: u64| DATA + place((iova - 0x4000_0000) / 4096) * 4096 + iova % 4096;
            let put = |iova: u64, bytes: &[u8]| {
                bytes
                    .iter()
                    .enumerate()
                    .for_each(|(step, byte)| _ = space.span(at(iova + step as u64), 1).write(&[*byte]));
            };
            assert_eq!(monitor.state(), State::Up);
            for round in 0..150u64 {
                // Most frames cross page boundaries.
                let len = 60 + (round as usize * 331) % 9000;
                let bytes = framed(round, len);
                let (from, to) = (0x4000_0000 + round * 1013, 0x4008_0000 + round * 997);
                put(from, &bytes);
                add(rx, to, len + 12, true);
                add(tx, from, len + 12, false);
                pass(reader, queue, monitor, 1);
                assert_eq!(take_all(tx).len(), 1);
                assert_eq!(take_all(rx)[0].1, len as u32 + 12);
                let arrived: Vec<u8> =
                    (0..bytes.len()).map(|step| space.bytes(at(to + step as u64), 1)[0]).collect();
                assert_eq!(arrived[12..], bytes[12..], "{kind:?} round {round}");
            }
            let (hits, misses, invalidations, faults, drops) = counted(counters);
            assert!(hits > 150 && misses > 0, "{hits} {misses}");
            assert_eq!((invalidations, faults, drops), (0, 0, 0));
            assert_eq!(counters.faults.load(Relaxed), 0);
        });
    }
}

#[test]
fn single_use_buffer_mappings_lose_no_frame() {
    for kind in [GuestConfig::ALL[0], GuestConfig::ALL[1]] {
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, counters, reader } = rig;
            let mut next = 0x8000_0000u64;
            monitor.answer();
            let (updates, misses) = (monitor.updates, counted(counters).1);
            for round in 0..40u64 {
                let (mut sent, mut posted) = (Vec::new(), Vec::new());
                for number in 0..32u64 {
                    let (from, to) = (DATA + number * 4096, DATA + 0x10_0000 + number * 4096);
                    let bytes = framed(round * 32 + number, 60 + number as usize * 40);
                    space.span(from, bytes.len() as u32).write(&bytes);
                    monitor.map(next, from, 4096, READ);
                    monitor.map(next + 0x1000, to, 4096, WRITE);
                    let ids = (add(rx, next + 0x1000, 2048, true), add(tx, next, bytes.len(), false));
                    sent.push((next, bytes));
                    posted.push((ids.0, next + 0x1000, to));
                    next += 0x2000;
                }
                monitor.asked.clear();
                let updates = monitor.updates;
                assert_eq!(reflect(reader, queue), 0);
                monitor.answer();
                assert_eq!(monitor.updates - updates, 32, "a burst's misses are asked for at once");
                pass(reader, queue, monitor, 32);
                assert_eq!(take_all(tx).len(), 32);
                let used = take_all(rx);
                assert_eq!(used.len(), 32);
                for ((id, len), (_, bytes)) in used.into_iter().zip(&sent) {
                    let (_, _, at) = posted.iter().find(|post| post.0 == id).unwrap();
                    assert_eq!(len as usize, bytes.len());
                    assert_eq!(space.bytes(*at, bytes.len())[12..], bytes[12..]);
                }
                for (iova, _) in &sent {
                    monitor.unmap(*iova, 0x2000);
                }
            }
            let (_, asked, invalidations, faults, drops) = counted(counters);
            assert_eq!((invalidations, faults, drops), (40 * 32, 0, 0));
            assert_eq!(asked - misses, (monitor.updates - updates) as u64, "each question is one miss");
        });
    }
}

#[test]
fn a_device_that_starts_again_uses_no_former_translation() {
    const MOVED: u64 = 0x40_0000;
    for kind in [GuestConfig::ALL[0], GuestConfig::ALL[1]] {
        for late in [false, true] {
            with(kind, |rig| {
                let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
                let (from, to) = (0x4000_0000, 0x4020_0000);
                let frames = [framed(1, 100), framed(2, 100)];
                for (moved, frame) in [0, MOVED].into_iter().zip(&frames) {
                    if moved > 0 {
                        let bases = [0, 1].map(|index| monitor.front.stop(index).unwrap());
                        if late {
                            // The answer to a miss of before the stop.
                            monitor.send_iotlb(Iotlb::UPDATE, from, 0x1000, USER + DATA, READ).unwrap();
                            let features = monitor.front.features();
                            monitor.front.set(Request::SetFeatures(features)).unwrap();
                        }
                        for (index, base) in (0..).zip(bases) {
                            let vring = monitor.vring(index, base);
                            monitor.front.start(vring).unwrap();
                            monitor.answer();
                        }
                    }
                    // No unmapping is reported, since the device is stopped meanwhile.
                    monitor.map(from, DATA + moved, 0x1000, READ);
                    monitor.map(to, DATA + moved + 0x1000, 0x1000, WRITE);
                    space.span(DATA + moved, 112).write(frame);
                    add(rx, to, 2048, true);
                    add(tx, from, 112, false);
                    pass(reader, queue, monitor, 1);
                    assert_eq!((take_all(tx).len(), take_all(rx).len()), (1, 1));
                }
                for (moved, frame) in [0, MOVED].into_iter().zip(&frames) {
                    assert_eq!(space.bytes(DATA + moved + 0x1000, 112)[12..], frame[12..], "{kind:?} {late}");
                }
            });
        }
    }
}

#[test]
fn a_ring_whose_translation_was_given_up_is_asked_for_again() {
    for kind in GuestConfig::ALL {
        let (mut backend, mut queues, _) = port();
        let space = Space::new(kind);
        let (mut rx, mut tx) = (space.driver(0), space.driver(1));
        let mut monitor = Monitor::new(&mut backend, &space);
        monitor.answers = false;
        monitor.start(0);
        monitor.start(1);
        monitor.front.transport().wait_until_given_up();
        // All of the reminders are lost.
        assert!(!monitor.listen().is_empty());
        monitor.answers = true;
        assert!(monitor.answer() > 0, "{kind:?}: nothing is asked for");
        monitor.map(DATA, DATA, 0x2000, BOTH);
        space.span(DATA, 112).write(&framed(1, 100));
        add(&mut rx, DATA + 0x1000, 2048, true);
        add(&mut tx, DATA, 112, false);
        pass(&mut Reader::register().unwrap(), &mut queues[0], &mut monitor, 1);
    }
}

#[test]
fn frames_wait_for_the_translation_of_their_rx_buffer() {
    for kind in GuestConfig::ALL {
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, counters, reader } = rig;
            let (from, to) = (0x4000_0000, 0x4020_0000);
            monitor.map(from, DATA, 0x1000, READ);
            monitor.map(to, DATA + 0x20_0000, 0x1000, WRITE);
            let bytes = framed(7, 100);
            space.span(DATA, 112).write(&bytes);
            add(tx, from, 112, false);
            assert_eq!(reflect(reader, queue), 0);
            assert!(!queue.rx.awaits_translation(), "nothing is known of a frame yet");
            monitor.answer();
            // No buffer was posted, so there is no miss.
            assert_eq!(reflect(reader, queue), 0);
            assert!(!queue.rx.awaits_translation());
            // The buffer was posted without a kick: the worker finds it first, and its translation is
            // missing.
            add(rx, to, 2048, true);
            for _ in 0..5 {
                assert_eq!(reflect(reader, queue), 0);
                assert!(queue.rx.awaits_translation(), "it lacks an answer, not room");
            }
            pass(reader, queue, monitor, 1);
            assert!(!queue.rx.awaits_translation());
            assert_eq!(space.bytes(DATA + 0x20_0000, 112)[12..], bytes[12..]);
            assert_eq!(counted(counters).4, 0, "none was dropped");
        });
    }
}

#[test]
fn a_remapping_revokes_the_old_translation() {
    for kind in GuestConfig::ALL {
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
            let (from, to) = (0x4000_0000, 0x4020_0000);
            monitor.map(from, DATA, 0x4000, READ);
            monitor.map(to, DATA + 0x20_0000, 0x4000, WRITE);
            space.span(DATA, 112).write(&framed(7, 100));
            add(rx, to + 0x800, 2048, true);
            add(tx, from, 112, false);
            pass(reader, queue, monitor, 1);
            // Remaps the middle of the range by a single message, while the old translation is cached.
            let elsewhere = USER + DATA + 0x30_0000;
            monitor.send_iotlb(Iotlb::UPDATE, to + 0x800, 0x1000, elsewhere, BOTH).unwrap();
            space.span(DATA + 0x20_0000, 0x4000).write(&[0xaa; 0x4000]);
            add(rx, to + 0x800, 2048, true);
            add(tx, from, 112, false);
            pass(reader, queue, monitor, 1);
            assert_eq!(space.bytes(DATA + 0x20_0000, 0x4000), [0xaa; 0x4000]);
            assert_eq!(space.bytes(DATA + 0x30_0000, 112)[12..], framed(7, 100)[12..]);
            // Read-only: a miss for writing is sent, and never granted.
            monitor.send_iotlb(Iotlb::UPDATE, to, 0x4000, elsewhere, READ).unwrap();
            monitor.pages.retain(|page, _| *page < to >> 12 || *page >= (to + 0x4000) >> 12);
            monitor.map(to, DATA + 0x30_0000, 0x4000, READ);
            space.span(DATA + 0x30_0000, 0x4000).write(&[0xbb; 0x4000]);
            add(rx, to, 2048, true);
            add(tx, from, 112, false);
            for _ in 0..10 {
                assert_eq!(reflect(reader, queue), 0);
                monitor.answer();
            }
            assert!(
                monitor.asked.iter().any(|asked| asked.iova >> 12 == to >> 12 && asked.permissions == WRITE)
            );
            assert_eq!(space.bytes(DATA + 0x30_0000, 0x4000), [0xbb; 0x4000]);
        });
    }
}

#[test]
fn a_remapped_ring_is_found_at_its_new_place_after_eviction() {
    for kind in [GuestConfig::ALL[0], GuestConfig::ALL[1]] {
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
            monitor.map(0x4000_0000, DATA, 0x1000, BOTH);
            add(rx, 0x4000_0800, 2048, true);
            add(tx, 0x4000_0000, 112, false);
            pass(reader, queue, monitor, 1);
            // So many other translations that the ring's were evicted at random, with a probability of 95%.
            for number in 0..4 * MOST as u64 {
                let iova = 0x10_0000_0000 + number * 0x2000;
                monitor.send_iotlb(Iotlb::UPDATE, iova, 0x1000, USER + number % 512 * 4096, READ).unwrap();
            }
            let (elsewhere, len) = (0x60_0000, 6 * PART);
            let now = space.bytes(RINGS, len as usize);
            space.span(elsewhere, len as u32).write(&now);
            monitor.map(RINGS_IOVA, elsewhere, len, BOTH);
            for page in 0..len / 4096 {
                let at = page * 4096;
                monitor
                    .send_iotlb(Iotlb::UPDATE, RINGS_IOVA + at, 4096, USER + elsewhere + at, BOTH)
                    .unwrap();
            }
            // This buffer is made available at the rings' old place.
            add(rx, 0x4000_0800, 2048, true);
            add(tx, 0x4000_0000, 112, false);
            for _ in 0..10 {
                assert_eq!(reflect(reader, queue), 0, "{kind:?}");
                monitor.answer();
            }
            let offered = space.bytes(RINGS, len as usize);
            space.span(elsewhere, len as u32).write(&offered);
            pass(reader, queue, monitor, 1);
            assert_eq!(space.bytes(RINGS, len as usize), offered, "{kind:?}");
            assert_eq!(monitor.state(), State::Up);
        });
    }
}

#[test]
fn an_invalidation_of_all_rings_waits_once() {
    for kind in [GuestConfig::ALL[0], GuestConfig::ALL[2]] {
        with(kind, |rig| {
            let before = ringway_host::graces();
            rig.monitor.send_iotlb(Iotlb::INVALIDATE, 0, 0, 0, 3).unwrap();
            let waits = ringway_host::graces() - before;
            assert!(waits <= 2, "{waits}: for the rings, and for the translations");
        });
    }
}

#[test]
fn unmapped_memory_is_not_accessed() {
    for kind in GuestConfig::ALL {
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
            let (from, to) = (0x4000_0000, 0x4020_0000);
            monitor.map(from, DATA, 0x1000, READ);
            monitor.map(to, DATA + 0x20_0000, 0x1000, WRITE);
            let bytes = framed(7, 100);
            space.span(DATA, 112).write(&bytes);
            add(rx, to, 2048, true);
            add(tx, from, 112, false);
            pass(reader, queue, monitor, 1);
            assert_eq!(space.bytes(DATA + 0x20_0000, 112)[12..], bytes[12..]);
            // Both translations are cached; then the destination is unmapped.
            monitor.unmap(to, 0x1000);
            space.span(DATA + 0x20_0000, 4096).write(&[0xaa; 4096]);
            add(rx, to, 2048, true);
            add(tx, from, 112, false);
            (0..20).for_each(|_| {
                assert_eq!(reflect(reader, queue), 0);
                monitor.answer();
            });
            assert_eq!(space.bytes(DATA + 0x20_0000, 4096), [0xaa; 4096]);
            // The destination is mapped again, to another place.
            monitor.map(to, DATA + 0x30_0000, 0x1000, WRITE);
            monitor.front.transport().wait_for_reminder();
            pass(reader, queue, monitor, 1);
            assert_eq!(space.bytes(DATA + 0x30_0000, 112)[12..], bytes[12..]);
            assert_eq!(space.bytes(DATA + 0x20_0000, 4096), [0xaa; 4096]);
            // The source is unmapped.
            monitor.unmap(from, 0x1000);
            add(rx, to, 2048, true);
            add(tx, from, 112, false);
            assert_eq!(reflect(reader, queue), 0);
            assert!(take_all(tx).len() <= 2);
        });
    }
}

#[test]
fn memory_is_not_accessed_after_an_unmap_while_a_worker_runs() {
    [GuestConfig::ALL[0], GuestConfig::ALL[1]].into_iter().for_each(taken_back_under_a_worker);
}

fn taken_back_under_a_worker(kind: GuestConfig) {
    with(kind, |rig| {
        let Rig { space, rx, tx, monitor, queue, .. } = rig;
        let stop = AtomicBool::new(false);
        let bytes = framed(3, 1500);
        space.span(DATA, 1512).write(&bytes);
        monitor.map(0x4000_0000, DATA, 0x1000, READ);
        std::thread::scope(|scope| {
            scope.spawn(|| reflect_until(&stop, queue));
            let (_stop, mut landed) = (StopOnDrop(&stop), 0);
            for round in 0..300u64 {
                // A buffer that the worker may be about to fill is unmapped, and its memory reused.
                let (iova, at) = (0x5000_0000 + round * 0x1000, DATA + 0x10_0000 + (round % 16) * 0x1000);
                monitor.map(iova, at, 0x1000, WRITE);
                let user = USER + at;
                monitor.send_iotlb(Iotlb::UPDATE, iova, 0x1000, user, WRITE).unwrap();
                add(rx, iova, 2048, true);
                add(tx, 0x4000_0000, 1512, false);
                (0..round % 7).for_each(|_| std::thread::yield_now());
                monitor.answer();
                monitor.unmap(iova, 0x1000);
                space.span(at, 4096).write(&[0x55; 4096]);
                (0..200).for_each(|_| std::hint::spin_loop());
                std::thread::yield_now();
                assert_eq!(space.bytes(at, 4096), [0x55; 4096], "round {round}");
                // The buffer is granted again, so that the next round starts clean.
                monitor.map(iova, at, 0x1000, WRITE);
                monitor.send_iotlb(Iotlb::UPDATE, iova, 0x1000, user, WRITE).unwrap();
                let done = (0..100_000).any(|_| {
                    std::thread::yield_now();
                    monitor.answer();
                    take_all(tx);
                    let used = take_all(rx).len();
                    landed += used;
                    used > 0
                });
                assert!(done, "round {round}");
                monitor.unmap(iova, 0x1000);
            }
            assert_eq!(landed, 300);
        });
    });
}

#[test]
fn a_forbidden_access_closes_the_port() {
    for (kind, write) in GuestConfig::ALL.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        with(kind, |rig| {
            let Rig { rx, tx, monitor, queue, counters, reader, .. } = rig;
            // The destination is read-only, or the source write-only.
            monitor.map(0x4000_0000, DATA, 0x1000, if write { READ } else { WRITE });
            monitor.map(0x4000_1000, DATA + 0x1000, 0x1000, if write { READ } else { WRITE });
            let (from, to) = (0x4000_0000, 0x4000_1000);
            let refused = if write { (to, WRITE) } else { (from, READ) };
            add(rx, to, 2048, true);
            add(tx, from, 112, false);
            (0..5).for_each(|_| {
                reflect(reader, queue);
                monitor.answer();
            });
            assert_eq!(counters.faults.load(Relaxed), 0, "QEMU doesn't answer, and so nothing happens");
            // Another front-end may answer with fewer permissions than requested.
            let (guest, access) = monitor.pages[&(refused.0 >> 12)];
            monitor
                .send_iotlb(Iotlb::UPDATE, refused.0 & !0xfff, 0x1000, USER + (guest << 12), access)
                .unwrap();
            let end = monitor.end();
            assert!(matches!(end, Some(BackendError::Ring { .. })), "{end:?}");
            assert_eq!(counters.iotlb_faults.load(Relaxed), 1);
            let message = monitor.listen();
            assert!(
                message
                    .iter()
                    .any(|message| message.kind == Iotlb::ACCESS_FAIL && message.permissions == refused.1)
            );
            assert_eq!(monitor.state(), State::Waiting);
        });
    }
}

#[test]
fn a_front_end_that_never_answers_misses_affects_only_itself() {
    for kind in GuestConfig::ALL {
        let (mut backend, mut queues, counters) = port();
        let space = Space::new(kind);
        let (_rx, mut tx) = (space.driver(0), space.driver(1));
        let mut monitor = Monitor::new(&mut backend, &space);
        monitor.answers = false;
        monitor.start(0);
        monitor.start(1);
        let mut reader = Reader::register().unwrap();
        assert_eq!(reflect(&mut reader, &mut queues[0]), 0);
        assert_eq!(monitor.front.stop(1).unwrap() & 0x7fff, 0, "it never ran");
        monitor.answers = true;
        monitor.pages.clear();
        monitor.map(RINGS_IOVA, RINGS, 0x4_0000, BOTH);
        monitor.start(1);
        monitor.front.transport().wait_for_reminder();
        monitor.answer();
        assert_eq!(monitor.state(), State::Up);
        // The buffers are unmapped: the queue sleeps, and reports each miss once.
        for number in 0..200 {
            add(&mut tx, 0x7000_0000 + number * 0x1_0000, 112, false);
        }
        monitor.asked.clear();
        for _ in 0..50 {
            assert_eq!(reflect(&mut reader, &mut queues[0]), 0);
            monitor.answer();
        }
        assert_eq!(monitor.asked.len(), 64, "a burst's, once");
        let turn = reader.turn(2);
        assert!(queues[0].tx.arm(&turn), "it can sleep");
        reader.rest();
        assert_eq!(counters.faults.load(Relaxed), 0);
    }
}

#[test]
fn invalid_and_flooding_iotlb_updates_are_refused_or_bounded() {
    for kind in GuestConfig::ALL {
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
            let wrong = [
                (0x1000, 0, USER),
                (0x1000, 0x1000, USER - 1),
                (0x1000, 0x1000, USER + SIZE),
                (0x1000, 0x1001, USER + SIZE - 0x1000),
                (0x1000, SIZE + 1, USER),
                (0x1000, u64::MAX, USER),
                (u64::MAX - 0xffe, 0x1000, USER),
                (0x1000, 0x1000, u64::MAX - 0xfff),
                (0x1000, 0x1000, 0),
            ];
            for (iova, size, user) in wrong {
                let result = monitor.send_iotlb(Iotlb::UPDATE, iova, size, user, BOTH);
                assert!(
                    matches!(result, Err(FrontendError::Refused { request: 22, .. })),
                    "{iova:#x} {size:#x} {user:#x}"
                );
            }
            for kind in [Iotlb::MISS, Iotlb::ACCESS_FAIL] {
                let result = monitor.send_iotlb(kind, 0x1000, 0x1000, USER, BOTH);
                assert!(matches!(result, Err(FrontendError::Refused { .. })));
            }
            for number in 0..3000u64 {
                monitor
                    .send_iotlb(
                        Iotlb::UPDATE,
                        0x10_0000_0000 + number * 0x2000,
                        0x1000,
                        USER + number % 512,
                        BOTH,
                    )
                    .unwrap();
            }
            for size in [1, 0x1000, 1 << 40, u64::MAX, 0] {
                monitor.send_iotlb(Iotlb::INVALIDATE, 0x10_0000_0000, size, 0, 3).unwrap();
            }
            // The last invalidation included the rings, which are requested again.
            monitor.answer();
            assert_eq!(monitor.state(), State::Up);
            let bytes = framed(1, 200);
            space.span(DATA, 212).write(&bytes);
            monitor.map(0x4000_0000, DATA, 0x2000, BOTH);
            add(rx, 0x4000_1000, 2048, true);
            add(tx, 0x4000_0000, 212, false);
            pass(reader, queue, monitor, 1);
            assert_eq!(space.bytes(DATA + 0x1000, 212)[12..], bytes[12..]);
        });
    }
}

#[test]
fn an_unmapped_ring_resumes_when_mapped_again() {
    for kind in GuestConfig::ALL {
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, counters, reader } = rig;
            monitor.map(0x4000_0000, DATA, 0x2000, BOTH);
            for round in 0..400u64 {
                let bytes = framed(round, 300);
                space.span(DATA, 312).write(&bytes);
                add(rx, 0x4000_1000, 2048, true);
                add(tx, 0x4000_0000, 312, false);
                match round % 5 {
                    // Invalidates a page of a ring, everything, or replaces the memory table.
                    1 => monitor
                        .send_iotlb(Iotlb::INVALIDATE, RINGS_IOVA + (round % 6) * 0x2000, 0x1000, 0, 0)
                        .unwrap(),
                    2 => monitor.send_iotlb(Iotlb::INVALIDATE, 0, 0, 0, 0).unwrap(),
                    3 => monitor.front.set_memory(vec![space.share()]).unwrap(),
                    _ => {}
                }
                pass(reader, queue, monitor, 1);
                assert_eq!(take_all(tx).len(), 1, "round {round}");
                assert_eq!(take_all(rx).len(), 1, "round {round}");
                assert_eq!(space.bytes(DATA + 0x1000, 312)[12..], bytes[12..]);
                if round % 50 == 9 {
                    let base = monitor.front.stop(1).unwrap();
                    let vring = monitor.vring(1, base);
                    monitor.front.start(vring).unwrap();
                    monitor.answer();
                }
            }
            assert_eq!((counters.faults.load(Relaxed), counted(counters).4), (0, 0));
        });
    }
}

#[test]
fn unanswered_misses_are_repeated_on_a_new_channel() {
    for kind in GuestConfig::ALL {
        with(kind, |rig| {
            let Rig { rx, tx, monitor, queue, reader, .. } = rig;
            monitor.map(0x4000_0000, DATA, 0x2000, BOTH);
            add(rx, 0x4000_1000, 2048, true);
            add(tx, 0x4000_0000, 112, false);
            // This channel has no reader.
            reflect(reader, queue);
            monitor.front.transport().process_pending().unwrap();
            monitor.exchange_channel();
            pass(reader, queue, monitor, 1);
        });
    }
}

#[test]
fn a_front_end_that_adds_memory_keeps_its_translations() {
    let kind = GuestConfig::ALL[0];
    with(kind, |rig| {
        let Rig { rx, tx, monitor, queue, reader, .. } = rig;
        monitor.map(0x4000_0000, DATA, 0x2000, BOTH);
        for _ in 0..2 {
            add(rx, 0x4000_1000, 2048, true);
            add(tx, 0x4000_0000, 312, false);
            pass(reader, queue, monitor, 1);
        }
        assert_eq!(take_all(rx).len(), 2);
        assert_eq!(monitor.state(), State::Up);
    });
}

#[test]
fn no_iommu_is_offered_without_a_backend_channel() {
    let (mut backend, _queues, _) = port();
    let features = virtio::VERSION_1 | virtio::ACCESS_PLATFORM;
    let front = Frontend::negotiate(Wire::new(&mut backend), features, CHANNEL & !(1 << 5)).unwrap();
    assert_eq!(front.features() & virtio::ACCESS_PLATFORM, 0);
}

#[test]
fn a_queue_waiting_for_a_translation_does_not_block_the_others() {
    for (packed, iommu) in [(false, true), (true, true)] {
        let kind = GuestConfig { packed, iommu, page: 4096, ring: 256 };
        let (mut backend, mut queues, counters) = crate::vhost_user::tests::commands::port(2);
        let space = Space::new(kind);
        let mut drivers = [0, 1, 2, 3].map(|ring| space.driver(ring));
        let mut monitor = Monitor::agreeing(&mut backend, kind, space.share(), virtio::NET_MQ);
        (0..4).for_each(|ring| monitor.start(ring));
        space.span(DATA, 112).write(&framed(1, 100));
        monitor.map(DATA, DATA, 0x2000, BOTH);
        let mut reader = Reader::register().unwrap();
        let mut send =
            |monitor: &mut Monitor<'_>, queues: &mut [crate::Queue], drivers: &mut [Driver<'_>]| {
                add(&mut drivers[2], DATA + 0x1000, 2048, true);
                add(&mut drivers[3], DATA, 112, false);
                pass(&mut reader, &mut queues[1], monitor, 1);
            };
        send(&mut monitor, &mut queues, &mut drivers);
        // The first queue's frame and buffers are never translated.
        monitor.answers = false;
        add(&mut drivers[0], 0x7100_0000, 2048, true);
        add(&mut drivers[1], 0x7000_0000, 112, false);
        let mut second = Reader::register().unwrap();
        for _ in 0..100 {
            assert_eq!(reflect(&mut second, &mut queues[0]), 0);
            send(&mut monitor, &mut queues, &mut drivers);
        }
        assert!(monitor.asked.iter().any(|asked| asked.iova >> 12 == 0x7_0000), "{kind:?}");
        assert_eq!(take_all(&mut drivers[3]).len(), 101, "{kind:?}");
        assert_eq!(take_all(&mut drivers[1]).len(), 0, "{kind:?}");
        // Once answered, the queue continues.
        monitor.answers = true;
        monitor.map(0x7000_0000, DATA, 0x1000, BOTH);
        monitor.map(0x7100_0000, DATA + 0x1000, 0x1000, BOTH);
        monitor.front.transport().wait_for_reminder();
        pass(&mut second, &mut queues[0], &mut monitor, 1);
        let faults: u64 = counters.iter().map(|counters| counters.faults.load(Relaxed)).sum();
        assert_eq!(faults, 0);
    }
}
