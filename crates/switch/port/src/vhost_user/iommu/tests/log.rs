//! The dirty log that a front-end keeps during live migration.

use super::guest::{BOTH, GuestConfig, Monitor, PART, RINGS, SIZE, USER, WRITE, add, framed};
use super::rig::{Rig, StopOnDrop, next_one_works, pass, reflect, reflect_until, sent_during_turn, with};
use crate::SocketError;
use crate::State;
use crate::vhost_user::BackendError;
use crate::vhost_user::tests::session::port;
use ringway_host::EventFd;
use ringway_mem::{Hint, Memory, Reader, SpanMut};
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{FrontendError, Iotlb, Log, Request, VringAddr, VringFd};
use ringway_virtq::{Buffer, Driver};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const KINDS: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];
/// Frames to send and receive buffers: guest-physical, and as device addresses.
const DATA: u64 = 0x20_0000;
const BUFFERS: u64 = 0x40_0000;
const IOVA: u64 = 0x9_4000_0000;
/// The log's offset in its file, and its size.
const SKIP: u64 = 512;
const BYTES: u64 = SIZE / 4096 / 8;

fn kind((packed, iommu): (bool, bool)) -> GuestConfig {
    GuestConfig { packed, iommu, page: 4096, ring: 256 }
}

/// A log as the front-end sees it.
pub(super) struct Bits {
    file: OwnedFd,
    memory: Memory,
    pub place: Log,
}

impl Bits {
    pub(super) fn new() -> Bits {
        let file = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, 4096).unwrap();
        let memory = Memory::new(vec![ringway_host::map_region(&file, 0, 4096, 0, 0).unwrap()]).unwrap();
        Bits { file, memory, place: Log { size: BYTES, offset: SKIP } }
    }

    pub(super) fn share(&self) -> Request {
        Request::SetLogBase(self.place, Some(self.file.try_clone().unwrap()))
    }

    fn all(&self) -> SpanMut<'_> {
        self.memory.span_mut(0, 4096, &mut Hint::default()).unwrap()
    }

    fn all_bytes(&self) -> [u8; 4096] {
        let mut bytes = [0; 4096];
        self.all().as_span().read(&mut bytes);
        bytes
    }

    /// The marked pages, in order; clears the marks.
    pub(super) fn take(&self) -> BTreeSet<u64> {
        let bytes = self.all_bytes();
        self.all().write(&[0; 4096]);
        let (begin, end) = (SKIP as usize, (SKIP + BYTES) as usize);
        let outside = bytes[..begin].iter().chain(&bytes[end..]).all(|byte| *byte == 0);
        assert!(outside, "bytes beside the log were written");
        let bit = |page: &u64| bytes[begin + *page as usize / 8] >> (page % 8) & 1 == 1;
        (0..8 * BYTES).filter(bit).collect()
    }
}

/// Enables or disables logging while rings run, as QEMU does.
fn switch(monitor: &mut Monitor<'_>, on: bool) {
    let features = monitor.front.features();
    let bit = if on { virtio::LOG_ALL } else { 0 };
    monitor.front.set(Request::SetFeatures(features | bit)).unwrap();
    for index in [0, 1] {
        let mut addresses = monitor.vring(index, 0).addresses;
        addresses.flags = on.into();
        addresses.log = RINGS + (3 * u64::from(index) + 2) * PART;
        monitor.front.set(Request::SetVringAddr(addresses)).unwrap();
    }
    monitor.answer();
    assert_eq!(monitor.state(), State::Up);
}

/// Grants the TX frames and the RX buffers.
fn grant(monitor: &mut Monitor<'_>) {
    monitor.map(IOVA + DATA, DATA, 0x1_0000, BOTH);
    monitor.map(IOVA + BUFFERS, BUFFERS, 0x10_0000, BOTH);
}

fn begin(monitor: &mut Monitor<'_>, bits: &Bits) {
    monitor.front.set(bits.share()).unwrap();
    switch(monitor, true);
}

/// Pages of the rings that the device writes.
fn ring_pages(kind: GuestConfig) -> BTreeSet<u64> {
    let layout = kind.layout().lengths().unwrap();
    let part = |ring: u64, part: u64, len: u32| {
        let at = RINGS + (3 * ring + part) * PART;
        at / 4096..=(at + u64::from(len) - 1) / 4096
    };
    let descriptors = |ring| if kind.packed { Some(part(ring, 0, layout.descriptors)) } else { None };
    let both = [0, 1].map(|ring| part(ring, 2, layout.device).chain(descriptors(ring).into_iter().flatten()));
    both.into_iter().flatten().collect()
}

fn take_all(driver: &mut Driver<'_>) -> usize {
    std::iter::from_fn(|| driver.take_used().unwrap()).count()
}

fn pages(bytes: &[u8], before: &[u8]) -> BTreeSet<u64> {
    let changed = bytes.chunks(4096).zip(before.chunks(4096)).enumerate();
    changed.filter(|(_, (now, then))| now != then).map(|(page, _)| page as u64).collect()
}

/// Passes one frame of `len` bytes into small and large buffers. Returns the marked pages and the changed
/// ones.
fn one_frame(
    rig: &mut Rig<'_>,
    kind: GuestConfig,
    bits: &Bits,
    (round, len): (u64, usize),
) -> [BTreeSet<u64>; 2] {
    let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
    let address = |at: u64| if kind.iommu { IOVA + at } else { at };
    space.span(DATA, len as u32 + 12).write(&framed(round, len));
    space.span(BUFFERS, 0x8_0000).write(&[0x55; 0x8_0000]);
    let mut at = BUFFERS + round % 7 * 901;
    let buffers = (len + 12).div_ceil(if round.is_multiple_of(2) { 1500 } else { 9000 });
    for _ in 0..buffers {
        let room = (len + 12).div_ceil(buffers);
        add(rx, address(at), room, true);
        // The pages in between must stay untouched.
        at += room as u64 + 3 * 4096;
    }
    add(tx, address(DATA), len + 12, false);
    // Excludes what the front-end itself writes.
    let before = space.bytes(0, SIZE as usize);
    bits.take();
    pass(reader, queue, monitor, 1);
    let marked = bits.take();
    let after = space.bytes(0, SIZE as usize);
    assert_eq!((take_all(tx), take_all(rx)), (1, buffers), "{kind:?} round {round}");
    [marked, pages(&after, &before)]
}

#[test]
fn only_written_pages_are_marked_in_the_log() {
    for which in KINDS {
        let kind = kind(which);
        let (bits, rings) = (Bits::new(), ring_pages(kind));
        with(kind, |rig| {
            rig.monitor.map(IOVA + DATA, DATA, 0x1_0000, super::guest::READ);
            rig.monitor.map(IOVA + BUFFERS, BUFFERS, 0x10_0000, WRITE);
            begin(&mut rig.monitor, &bits);
            for round in 0..60 {
                let len = 60 + (round * 977 % 20_000) as usize;
                let [marked, changed] = one_frame(rig, kind, &bits, (round, len));
                assert!(changed.is_subset(&marked), "{kind:?} round {round}: {changed:?} {marked:?}");
                let more: Vec<_> = marked.difference(&changed).collect();
                assert!(more.iter().all(|page| rings.contains(page)), "{kind:?} round {round}: {more:?}");
                assert!(changed.iter().any(|page| !rings.contains(page)));
            }
            // Continues unlogged, then logged again.
            switch(&mut rig.monitor, false);
            let [marked, changed] = one_frame(rig, kind, &bits, (60, 2000));
            assert!(marked.is_empty() && !changed.is_empty(), "{kind:?}: {marked:?}");
            switch(&mut rig.monitor, true);
            let [marked, changed] = one_frame(rig, kind, &bits, (61, 2000));
            assert!(!changed.is_empty() && changed.is_subset(&marked), "{kind:?}: {marked:?}");
            assert_eq!(rig.counters.faults.load(Relaxed), 0);
        });
    }
}

#[test]
fn rings_and_frames_are_logged_independently() {
    for which in KINDS {
        let kind = kind(which);
        let (bits, rings) = (Bits::new(), ring_pages(kind));
        with(kind, |rig| {
            grant(&mut rig.monitor);
            begin(&mut rig.monitor, &bits);
            let all = rig.monitor.front.features();
            rig.monitor.front.set(Request::SetFeatures(all)).unwrap();
            let [marked, changed] = one_frame(rig, kind, &bits, (1, 3000));
            assert!(!marked.is_empty() && marked.is_subset(&rings), "{kind:?}: {marked:?}");
            assert!(changed.is_subset(&marked.union(&changed).copied().collect()));
            switch(&mut rig.monitor, false);
            rig.monitor.front.set(Request::SetFeatures(all | virtio::LOG_ALL)).unwrap();
            let [marked, changed] = one_frame(rig, kind, &bits, (2, 3000));
            let frames: BTreeSet<u64> = changed.difference(&rings).copied().collect();
            assert_eq!(marked, frames, "{kind:?}");
        });
    }
}

#[test]
fn frames_are_logged_although_a_ring_setting_was_refused() {
    for which in KINDS {
        let kind = kind(which);
        // A descriptor that can neither kick nor interrupt; the ring keeps its former settings.
        for kicks in [false, true] {
            let bits = Bits::new();
            with(kind, |rig| {
                grant(&mut rig.monitor);
                let front = &mut rig.monitor.front;
                let vring = VringFd { index: 0, fd: Some(ringway_host::memfd("none", 4096).unwrap()) };
                let wrong = if kicks { Request::SetVringKick(vring) } else { Request::SetVringCall(vring) };
                assert!(matches!(front.set(wrong), Err(FrontendError::Refused { .. })));
                let all = front.features();
                front.set(bits.share()).unwrap();
                front.set(Request::SetFeatures(all | virtio::LOG_ALL)).unwrap_err();
                let [marked, changed] = one_frame(rig, kind, &bits, (1, 3000));
                let rings = ring_pages(kind);
                let frames: BTreeSet<u64> = changed.difference(&rings).copied().collect();
                assert_eq!(marked, frames, "{kind:?} {kicks}");
                rig.monitor.front.set(Request::SetFeatures(all)).unwrap_err();
                let [marked, _] = one_frame(rig, kind, &bits, (2, 3000));
                assert!(marked.is_empty(), "{kind:?} {kicks}: {marked:?}");
            });
        }
    }
}

#[test]
fn writes_of_a_stopping_ring_are_marked_before_the_reply() {
    for which in KINDS {
        let kind = kind(which);
        let bits = Bits::new();
        with(kind, |rig| {
            grant(&mut rig.monitor);
            begin(&mut rig.monitor, &bits);
            one_frame(rig, kind, &bits, (1, 100));
            let Rig { space, tx, monitor, queue, reader, .. } = rig;
            let address = if kind.iommu { IOVA + DATA } else { DATA };
            // The driver polls, so used buffers are published later.
            for _ in 0..40 {
                add(tx, address, 112, false);
            }
            let before = space.bytes(0, SIZE as usize);
            bits.take();
            reflect(reader, queue);
            for index in [0, 1] {
                monitor.front.stop(index).unwrap();
            }
            let changed = pages(&space.bytes(0, SIZE as usize), &before);
            assert!(changed.is_subset(&bits.take()), "{kind:?}");
            let still = space.bytes(0, SIZE as usize);
            (0..5).for_each(|_| assert_eq!(reflect(reader, queue), 0));
            assert!(space.bytes(0, SIZE as usize) == still && bits.take().is_empty(), "{kind:?}");
        });
    }
}

#[test]
fn a_replaced_log_is_not_written_after_the_acknowledgement() {
    for which in KINDS {
        let kind = kind(which);
        with(kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, .. } = rig;
            let stop = AtomicBool::new(false);
            let address = |at: u64| if kind.iommu { IOVA + at } else { at };
            monitor.map(IOVA + DATA, DATA, 0x1_0000, BOTH);
            monitor.map(IOVA + BUFFERS, BUFFERS, 0x1_0000, BOTH);
            space.span(DATA, 112).write(&framed(3, 100));
            let mut bits = Bits::new();
            begin(monitor, &bits);
            std::thread::scope(|scope| {
                scope.spawn(|| reflect_until(&stop, queue));
                let (_stop, mut landed) = (StopOnDrop(&stop), 0);
                for round in 0..60u64 {
                    let next = Bits::new();
                    add(rx, address(BUFFERS + round % 16 * 0x1000), 2048, true);
                    add(tx, address(DATA), 112, false);
                    (0..round % 7).for_each(|_| std::thread::yield_now());
                    monitor.front.set(next.share()).unwrap();
                    bits.take();
                    (0..20_000).any(|_| {
                        std::thread::yield_now();
                        monitor.answer();
                        take_all(tx);
                        let used = take_all(rx);
                        landed += used;
                        used > 0
                    });
                    assert!(bits.take().is_empty(), "{kind:?} round {round}");
                    bits = next;
                }
                assert!(landed > 40, "{kind:?}: {landed}");
            });
        });
    }
}

#[test]
fn a_new_log_is_acknowledged_after_the_current_turn() {
    for which in KINDS {
        let kind = kind(which);
        with(kind, |rig| {
            grant(&mut rig.monitor);
            let (bits, next) = (Bits::new(), Bits::new());
            begin(&mut rig.monitor, &bits);
            one_frame_unlooked(rig, kind, 1);
            let address = |at: u64| if kind.iommu { IOVA + at } else { at };
            add(&mut rig.rx, address(BUFFERS), 2048, true);
            add(&mut rig.tx, address(DATA), 1012, false);
            let early = sent_during_turn(rig, |monitor| {
                monitor.front.set(next.share()).unwrap();
                bits.take();
            });
            assert!(!early, "{kind:?}: answered in the midst of a turn");
            assert!(bits.take().is_empty(), "{kind:?}");
        });
    }
}

#[test]
fn an_invalid_log_is_refused_and_the_old_one_stays() {
    let disk = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    for which in KINDS {
        let kind = kind(which);
        with(kind, |rig| {
            grant(&mut rig.monitor);
            let bits = Bits::new();
            begin(&mut rig.monitor, &bits);
            // An offset and a size whose sum overflows (CVE-2020-10722), and others that lead outside the
            // file.
            for (size, offset) in [
                (u64::MAX, 4096),
                (4096, u64::MAX - 4095),
                (u64::MAX, u64::MAX),
                (4096, 1),
                (0, 0),
                (1 << 62, 0),
            ] {
                let file = Some(bits.file.try_clone().unwrap());
                let answer = rig.monitor.front.set(Request::SetLogBase(Log { size, offset }, file));
                assert!(
                    matches!(answer, Err(FrontendError::Refused { code: 1, .. })),
                    "{size:#x} {offset:#x}"
                );
            }
            let small = Log { size: 64, offset: 0 };
            let none = rig.monitor.front.set(Request::SetLogBase(small, None));
            assert!(matches!(none, Err(FrontendError::Refused { code: 1, .. })));
            let eventfd = EventFd::new().unwrap().into_fd();
            let other = rig.monitor.front.set(Request::SetLogBase(small, Some(eventfd)));
            assert!(matches!(other, Err(FrontendError::Refused { code: 1, .. })));
            // Files that are not writable, and a sparse file larger than the limit.
            let sealed = memfd_create("sealed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
            ftruncate(&sealed, 4096).unwrap();
            fcntl_add_seals(&sealed, SealFlags::WRITE).unwrap();
            let by_name = format!("/proc/self/fd/{}", bits.file.as_raw_fd());
            let to_read = OwnedFd::from(std::fs::File::open(by_name).unwrap());
            let holes = memfd_create("holes", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&holes, 1 << 45).unwrap();
            for (file, size) in [(sealed, 64), (to_read, 64), (holes, (1 << 37) + 1)] {
                let answer = rig.monitor.front.set(Request::SetLogBase(Log { size, offset: 0 }, Some(file)));
                assert!(matches!(answer, Err(FrontendError::Refused { code: 1, .. })), "{size:#x}");
            }
            let call = rig.monitor.front.set(Request::SetLogFd(bits.file.try_clone().unwrap()));
            assert!(matches!(call, Err(FrontendError::Refused { code: 1, .. })));
            let [marked, changed] = one_frame(rig, kind, &bits, (1, 3000));
            assert!(!changed.is_empty() && changed.is_subset(&marked), "{kind:?}");
            // A descriptor of a kind that no message accepts.
            let file = Some(OwnedFd::from(disk.try_clone().unwrap()));
            assert!(rig.monitor.front.set(Request::SetLogBase(small, file)).is_err());
            assert!(matches!(rig.monitor.end(), Some(BackendError::Socket(SocketError::Descriptor(_)))));
        });
    }
}

#[test]
fn pages_beyond_the_log_are_written_but_not_marked() {
    for which in KINDS {
        let kind = kind(which);
        with(kind, |rig| {
            grant(&mut rig.monitor);
            // Logging is enabled without a log.
            switch(&mut rig.monitor, true);
            let mut bits = Bits::new();
            assert!(one_frame(rig, kind, &bits, (1, 3000))[0].is_empty());
            // The log covers the rings' pages, not the buffers'.
            bits.place.size = BUFFERS / 4096 / 8;
            rig.monitor.front.set(bits.share()).unwrap();
            // It is not known which ring pages were written before, so all are marked.
            assert_eq!(bits.take(), ring_pages(kind), "{kind:?}");
            let [marked, _] = one_frame(rig, kind, &bits, (2, 3000));
            assert!(!marked.is_empty() && marked.is_subset(&ring_pages(kind)), "{kind:?}: {marked:?}");
            // Log addresses of rings outside the log, or at another page.
            for at in [u64::MAX, 1 << 63, SIZE, 0x7000] {
                for index in [0, 1] {
                    let mut addresses = rig.monitor.vring(index, 0).addresses;
                    (addresses.flags, addresses.log) = (1, at);
                    rig.monitor.front.set(Request::SetVringAddr(addresses)).unwrap();
                }
                rig.monitor.answer();
                let [mut marked, _] = one_frame(rig, kind, &bits, (3, 3000));
                // Behind an IOMMU the flag's address is a device address, which is not used for logging.
                assert_eq!(marked.remove(&7), at == 0x7000 && !kind.iommu, "{kind:?}");
                assert!(!marked.is_empty() && marked.is_subset(&ring_pages(kind)), "{kind:?}: {marked:?}");
            }
            assert_eq!(rig.monitor.state(), State::Up);
        });
    }
}

#[test]
fn a_log_of_any_length_is_written_only_within_its_bounds() {
    for which in KINDS {
        let kind = kind(which);
        with(kind, |rig| {
            grant(&mut rig.monitor);
            let mut bits = Bits::new();
            begin(&mut rig.monitor, &bits);
            // Sizes: one byte; up to the end of a page; up to the rings' bits, and one byte more.
            let rings = RINGS / 4096 / 8;
            for (offset, size) in [(0, 1), (4095, 1), (4096 - rings, rings), (7, rings + 1)] {
                bits.place = Log { offset, size };
                rig.monitor.front.set(bits.share()).unwrap();
                bits.all().write(&[0; 4096]);
                one_frame_unlooked(rig, kind, size);
                let bytes = bits.all_bytes();
                let (begin, end) = (offset as usize, (offset + size) as usize);
                assert_eq!(bytes[begin..end].iter().any(|byte| *byte != 0), size > rings, "{kind:?}");
                assert!(bytes[..begin].iter().chain(&bytes[end..]).all(|byte| *byte == 0), "{kind:?}");
            }
            // A sparse log with a bit for every guest address.
            ftruncate(&bits.file, 1 << 37).unwrap();
            bits.place = Log { offset: 0, size: 1 << 37 };
            rig.monitor.front.set(bits.share()).unwrap();
            bits.all().write(&[0; 4096]);
            one_frame_unlooked(rig, kind, 9);
            assert!(bits.all_bytes()[rings as usize..].iter().any(|byte| *byte != 0), "{kind:?}");
            assert_eq!(rig.monitor.state(), State::Up);
        });
    }
}

/// Passes one frame into one buffer, without checking the log.
fn one_frame_unlooked(rig: &mut Rig<'_>, kind: GuestConfig, seed: u64) {
    let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
    let address = |at: u64| if kind.iommu { IOVA + at } else { at };
    space.span(DATA, 1012).write(&framed(seed, 1000));
    add(rx, address(BUFFERS), 2048, true);
    add(tx, address(DATA), 1012, false);
    pass(reader, queue, monitor, 1);
    assert_eq!((take_all(tx), take_all(rx)), (1, 1));
    assert_eq!(space.bytes(BUFFERS + 12, 1000), framed(seed, 1000)[12..]);
}

#[test]
fn a_log_inside_guest_memory_corrupts_nothing_else() {
    // The log overlaps the rings' own parts, and a frame.
    let places = (0..6).map(|part| RINGS + part * PART).chain([DATA]);
    for (which, place) in KINDS.into_iter().flat_map(|which| places.clone().map(move |place| (which, place)))
    {
        let kind = kind(which);
        let (mut backend, mut queues, counters) = port();
        super::rig::on((&mut backend, &mut queues[0], &counters), kind, |rig| {
            let Rig { space, rx, tx, monitor, queue, reader, .. } = rig;
            monitor.map(IOVA + DATA, DATA, 0x1000, super::guest::READ);
            monitor.map(IOVA + BUFFERS, BUFFERS, 0x1000, WRITE);
            let address = |at: u64| if kind.iommu { IOVA + at } else { at };
            for _ in 0..20 {
                add(rx, address(BUFFERS), 2048, true);
                add(tx, address(DATA), 112, false);
            }
            let before = space.bytes(0, SIZE as usize);
            let log = Log { size: BYTES, offset: place };
            monitor.front.set(Request::SetLogBase(log, Some(space.share().fd))).unwrap();
            let all = monitor.front.features();
            // The marks may themselves break the guest's rings.
            let _ = monitor.front.set(Request::SetFeatures(all | virtio::LOG_ALL));
            for index in [0, 1] {
                let mut addresses = monitor.vring(index, 0).addresses;
                (addresses.flags, addresses.log) = (1, place);
                let _ = monitor.front.set(Request::SetVringAddr(addresses));
            }
            for _ in 0..30 {
                reflect(reader, queue);
                monitor.answer_while();
            }
            let after = space.bytes(0, SIZE as usize);
            let may = [RINGS..RINGS + 6 * PART, place..place + BYTES, BUFFERS..BUFFERS + 0x1000];
            // Without an IOMMU all memory is granted, and a descriptor overwritten by marks may point
            // anywhere in it.
            for page in pages(&after, &before).into_iter().filter(|_| kind.iommu) {
                assert!(may.iter().any(|may| may.contains(&(page * 4096))), "{kind:?} {place:#x}: {page:#x}");
            }
        });
        next_one_works((&mut backend, &mut queues[0], &counters), kind, "a log in the guest's memory");
    }
}

#[test]
fn the_log_eventfd_is_signalled() {
    for which in KINDS {
        let kind = kind(which);
        with(kind, |rig| {
            grant(&mut rig.monitor);
            let (bits, call) = (Bits::new(), EventFd::new().unwrap());
            let theirs = call.as_fd().try_clone_to_owned().unwrap();
            rig.monitor.front.set(Request::SetLogFd(theirs)).unwrap();
            one_frame(rig, kind, &bits, (1, 100));
            assert!(!call.clear(), "nothing is logged yet");
            begin(&mut rig.monitor, &bits);
            call.clear();
            one_frame(rig, kind, &bits, (2, 100));
            assert!(call.clear(), "{kind:?}");
        });
    }
}

#[test]
fn a_shrinking_log_file_closes_only_its_own_port() {
    ringway_host::catch_sigbus().unwrap();
    for which in KINDS {
        let kind = kind(which);
        with(kind, |neighbour| {
            let (mut backend, mut queues, counters) = port();
            super::rig::on((&mut backend, &mut queues[0], &counters), kind, |rig| {
                grant(&mut rig.monitor);
                let bits = Bits::new();
                begin(&mut rig.monitor, &bits);
                one_frame(rig, kind, &bits, (1, 3000));
                let Rig { rx, tx, monitor, queue, reader, .. } = rig;
                ftruncate(&bits.file, 0).unwrap();
                let address = |at| if kind.iommu { IOVA + at } else { at };
                add(rx, address(BUFFERS), 2048, true);
                add(tx, address(DATA), 112, false);
                for _ in 0..5 {
                    reflect(reader, queue);
                    monitor.answer_while();
                }
                let _ = monitor.front.transport().process_pending();
                assert!(monitor.front.transport().is_over(), "{kind:?}");
                let end = monitor.end();
                assert!(matches!(end, Some(BackendError::Lost)), "{kind:?}: {end:?}");
                assert_eq!(reflect(reader, queue), 0);
            });
            next_one_works((&mut backend, &mut queues[0], &counters), kind, "a log that shrank");
            grant(&mut neighbour.monitor);
            let bits = Bits::new();
            begin(&mut neighbour.monitor, &bits);
            let [marked, changed] = one_frame(neighbour, kind, &bits, (1, 3000));
            assert!(changed.is_subset(&marked));
        });
    }
}

#[test]
fn a_scattered_ring_is_logged_by_its_physical_pages() {
    // The second page of the descriptor area, or of the used ring, is at another place.
    const AWAY: u64 = 0x60_0000;
    for packed in [false, true] {
        let kind = GuestConfig { packed, iommu: true, page: 4096, ring: 512 };
        with(kind, |rig| {
            let Rig { space, monitor, .. } = rig;
            let part = if packed { 0 } else { 2 };
            let (ring, bits) = (super::guest::RINGS_IOVA + part * PART, Bits::new());
            let second = RINGS + part * PART + 0x1000;
            space.span(AWAY, 0x1000).write(&space.bytes(second, 0x1000));
            monitor.map(ring + 0x1000, AWAY, 0x1000, BOTH);
            monitor.send_iotlb(Iotlb::UPDATE, ring + 0x1000, 0x1000, USER + AWAY, BOTH).unwrap();
            // Marks that were not reported by then go to the new log.
            switch(monitor, true);
            monitor.front.set(bits.share()).unwrap();
            let marked = bits.take();
            assert!(marked.contains(&(AWAY / 4096)), "{kind:?}: {marked:?}");
            assert!(!marked.contains(&(second / 4096)), "{kind:?}: {marked:?}");
        });
    }
}

#[test]
fn a_closed_session_releases_its_log() {
    let (mut backend, mut queues, counters) = port();
    let kind = kind((false, false));
    let bits = Bits::new();
    super::rig::on((&mut backend, &mut queues[0], &counters), kind, |rig| {
        begin(&mut rig.monitor, &bits);
        one_frame(rig, kind, &bits, (1, 3000));
    });
    backend.disconnect();
    bits.take();
    next_one_works((&mut backend, &mut queues[0], &counters), kind, "a log");
    let _ = Reader::register().map(drop);
    assert!(bits.take().is_empty());
}

#[test]
fn the_first_log_marks_all_ring_pages() {
    for (packed, iommu) in KINDS {
        // A used ring or a descriptor ring takes two pages.
        let kind = GuestConfig { packed, iommu, page: 4096, ring: 512 };
        let (mut backend, _queues, _counters) = port();
        let (space, bits) = (super::guest::Space::new(kind), Bits::new());
        let _drivers = [0, 1, 2].map(|ring| space.driver(ring));
        let mut monitor = Monitor::agreeing(&mut backend, kind, space.share(), virtio::NET_CTRL_VQ);
        (0..3).for_each(|ring| monitor.start(ring));
        let used = [2, 5, 8].map(|part| RINGS + part * PART);
        for (index, log) in (0..3).zip(used) {
            let addresses = VringAddr { flags: 1, log, ..monitor.vring(index, 0).addresses };
            monitor.front.set(Request::SetVringAddr(addresses)).unwrap();
        }
        monitor.front.set(bits.share()).unwrap();
        let marked = bits.take();
        let written = if packed { [0, 3, 6].map(|part| RINGS + part * PART) } else { used };
        for at in written.into_iter().flat_map(|at| [at, at + 0x1000]) {
            assert!(marked.contains(&(at / 4096)), "{kind:?}: {at:#x} is not marked: {marked:?}");
        }
    }
}

#[test]
fn control_queue_replies_are_logged() {
    for which in KINDS {
        let kind = kind(which);
        let (mut backend, _queues, _counters) = port();
        let (space, bits) = (super::guest::Space::new(kind), Bits::new());
        let mut driver = space.driver(2);
        let mut monitor = Monitor::agreeing(&mut backend, kind, space.share(), virtio::NET_CTRL_VQ);
        monitor.map(IOVA + DATA, DATA, 0x2000, BOTH);
        (0..3).for_each(|ring| monitor.start(ring));
        begin(&mut monitor, &bits);
        let mut addresses = monitor.vring(2, 0).addresses;
        (addresses.flags, addresses.log) = (1, RINGS + 8 * PART);
        monitor.front.set(Request::SetVringAddr(addresses)).unwrap();
        space.span(DATA, 3).write(&[0, 0, 1]);
        space.span(DATA + 0x1000, 1).write(&[0x77]);
        let address = if kind.iommu { IOVA + DATA } else { DATA };
        let ask = [(0, 3, false), (0x1000, 1, true)];
        let parts = ask.map(|(at, len, write)| Buffer { address: address + at, len, write });
        let before = space.bytes(0, SIZE as usize);
        bits.take();
        driver.add(&parts, None).unwrap();
        driver.publish();
        let posted = space.bytes(0, SIZE as usize);
        assert!(before != posted && bits.take().is_empty(), "{kind:?}");
        (0..4).for_each(|_| _ = monitor.answer());
        let changed = pages(&space.bytes(0, SIZE as usize), &posted);
        let marked = bits.take();
        assert_eq!(space.bytes(DATA + 0x1000, 1), [0], "{kind:?}");
        assert!(changed.is_subset(&marked) && changed.contains(&((DATA + 0x1000) / 4096)), "{marked:?}");
        assert!(driver.take_used().unwrap().is_some());
    }
}
