//! Known ring attacks on back-ends, over split and packed rings, with and without an IOMMU. Each row is an
//! attack that succeeded against a vhost back-end or a monitor, with its outcome here.

use super::guest::{BOTH, GuestConfig, Monitor, PART, RINGS, SIZE, Space, add, framed};
use super::rig::{next_one_works, reflect};
use crate::Queue;
use crate::vhost_user::BackendError;
use crate::vhost_user::tests::session::port;
use ringway_frame::{Burst, CountersRef, Reason, Storage};
use ringway_mem::Reader;
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Request, VringFd};
use std::io::Read;
use std::sync::atomic::Ordering::Relaxed;

const DATA: u64 = 0x20_0000;
const TABLE: u64 = 0x30_0000;
/// End of the granted range; without an IOMMU, end of the memory.
const IOVA: u64 = 0x4000_0000;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
const TX: u64 = 1;
const RX: u64 = 0;

/// The outcome of an attack.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// The guest loses its port.
    Lost,
    /// The frame is dropped for this reason, and the port goes on.
    Dropped(Reason),
    /// The frame passes.
    Passes,
    /// On a packed ring the guest loses its port. On a split ring the frame is dropped, since its chain need
    /// not be followed to the end.
    LostIfPacked(Reason),
    /// Nothing happens until the guest grants more; without an IOMMU the guest loses its port.
    Waits,
}

/// A guest's rings, written without regard to the protocol.
struct Raw<'a> {
    space: &'a Space,
    kind: GuestConfig,
}

impl Raw<'_> {
    /// The device's address of guest-physical `at`.
    fn address(&self, at: u64) -> u64 {
        if self.kind.iommu { IOVA + at } else { at }
    }

    /// Writes descriptor `slot` of a ring. `other` is `next` on a split ring, the id on a packed one.
    fn put(&self, ring: u64, slot: u16, address: u64, len: u32, flags: u16, other: u16) {
        let available = if self.kind.packed { 1 << 7 } else { 0 };
        self.put_at(RINGS + 3 * PART * ring + 16 * u64::from(slot), address, len, flags | available, other);
    }

    fn put_at(&self, at: u64, address: u64, len: u32, flags: u16, other: u16) {
        let (low, high) = if self.kind.packed { (other, flags) } else { (flags, other) };
        let rest = u64::from(len) | u64::from(low) << 32 | u64::from(high) << 48;
        self.space.span(at, 8).write(&address.to_le_bytes());
        self.space.span(at + 8, 8).write(&rest.to_le_bytes());
    }

    /// Makes the chain at descriptor 0 available; `index` is a split ring's available index.
    fn publish(&self, ring: u64, index: u16) {
        if !self.kind.packed {
            self.space.span(RINGS + 3 * PART * ring + PART + 2, 2).write(&index.to_le_bytes());
        }
    }

    /// One chain of descriptors of these lengths, starting at `DATA`.
    fn chain(&self, ring: u64, flags: u16, lens: &[u32]) {
        let mut at = DATA;
        for (slot, &len) in (0..).zip(lens) {
            let last = usize::from(slot) + 1 == lens.len();
            let (more, other) = if last { (0, 0) } else { (NEXT, slot + 1) };
            let other = if self.kind.packed { 0 } else { other };
            self.put(ring, slot, self.address(at), len, flags | more, other);
            at += u64::from(len);
        }
        self.publish(ring, 1);
    }

    /// An indirect table at `TABLE`, referenced by descriptor 0.
    fn table(&self, bytes: u32, flags: u16) {
        self.put_at(TABLE, self.address(DATA), 112, flags, 0);
        self.put(TX, 0, self.address(TABLE), bytes, INDIRECT, 0);
        self.publish(TX, 1);
    }
}

type Row = (&'static str, fn(&Raw<'_>), End);

/// CVE numbers are those of DPDK's vhost and of QEMU's virtio-net.
const ROWS: &[Row] = &[
    (
        "partly mapped, to be read (2018-1059)",
        |raw| {
            raw.put(TX, 0, raw.address(SIZE - 100), 200, 0, 0);
            raw.publish(TX, 1);
        },
        End::Waits,
    ),
    (
        "partly mapped, to be written (2018-1059)",
        |raw| {
            raw.put(RX, 0, raw.address(SIZE - 100), 2048, WRITE, 0);
            raw.publish(RX, 1);
            raw.chain(TX, 0, &[400]);
        },
        End::Waits,
    ),
    (
        "of no bytes, at a bad address (2020-10725)",
        |raw| {
            raw.put(TX, 0, u64::MAX, 0, 0, 0);
            raw.publish(TX, 1);
        },
        End::Lost,
    ),
    (
        "of no bytes, to be written (2020-10725)",
        |raw| {
            raw.put(RX, 0, u64::MAX, 0, WRITE, 0);
            raw.publish(RX, 1);
            raw.chain(TX, 0, &[400]);
        },
        End::Lost,
    ),
    (
        "at the end of all addresses",
        |raw| {
            raw.put(TX, 0, u64::MAX - 10, 400, 0, 0);
            raw.publish(TX, 1);
        },
        End::Waits,
    ),
    (
        "a chain shorter than a header (2022-2132)",
        |raw| raw.chain(TX, 0, &[5, 6]),
        End::Dropped(Reason::Short),
    ),
    ("a header in four descriptors (2022-2132)", |raw| raw.chain(TX, 0, &[1, 4, 5, 2, 100]), End::Passes),
    (
        "a checksum past the frame (2024-11614)",
        |raw| {
            raw.space.span(DATA, 10).write(&[1, 0, 0, 0, 0, 0, 0xf0, 0xff, 0xf0, 0xff]);
            raw.chain(TX, 0, &[112]);
        },
        End::Dropped(Reason::BadOffload),
    ),
    (
        "a segmentation that was not agreed",
        |raw| {
            raw.space.span(DATA, 10).write(&[1, 1, 54, 0, 1, 0, 34, 0, 16, 0]);
            raw.chain(TX, 0, &[112]);
        },
        End::Dropped(Reason::BadOffload),
    ),
    (
        "more made available than the ring has (2016-5403)",
        |raw| {
            raw.chain(TX, 0, &[112]);
            raw.publish(TX, 300);
            if raw.kind.packed {
                raw.put(TX, 0, raw.address(DATA), 112, NEXT, 0);
            }
        },
        End::Lost,
    ),
    (
        "a chain that loops",
        |raw| {
            for slot in 0..256 {
                raw.put(
                    TX,
                    slot,
                    raw.address(DATA),
                    1,
                    NEXT,
                    if raw.kind.packed { 0 } else { (slot + 1) % 2 },
                );
            }
            raw.publish(TX, 1);
        },
        End::LostIfPacked(Reason::BadDescriptor),
    ),
    ("to be written where it is to be read", |raw| raw.chain(TX, WRITE, &[112]), End::Lost),
    (
        "to be read where it is to be written",
        |raw| {
            raw.chain(TX, 0, &[112]);
            raw.put(RX, 0, raw.address(DATA), 2048, 0, 0);
            raw.publish(RX, 1);
        },
        End::Lost,
    ),
    ("a table of no whole descriptors", |raw| raw.table(17, 0), End::Lost),
    ("a table longer than the ring", |raw| raw.table(16 * 257, 0), End::Lost),
    ("a table within a table", |raw| raw.table(16, INDIRECT), End::Lost),
    (
        "a table beside a chain",
        |raw| {
            raw.table(16, 0);
            raw.put(TX, 0, raw.address(TABLE), 16, INDIRECT | NEXT, 1);
        },
        End::Lost,
    ),
    (
        "a header in parts before buffers that one frame fills together, to be written (2021-3748)",
        |raw| {
            // QEMU wrote the number of buffers into the header after returning its buffer.
            let header: &[(u64, u32)] = &[(0x1000, 1), (0x1001, 9), (0x100a, 1), (0x100b, 101)];
            let buffers = [(0, header), (4, &[(0x1100, 256)]), (5, &[(0x1200, 2048)])];
            for (first, parts) in buffers {
                for (slot, &(at, len)) in (first..).zip(parts) {
                    let is_last = usize::from(slot - first) + 1 == parts.len();
                    let more = if is_last { WRITE } else { WRITE | NEXT };
                    let other = if raw.kind.packed { first } else { slot + 1 };
                    raw.put(RX, slot, raw.address(DATA + at), len, more, other);
                }
                if !raw.kind.packed {
                    let entry = RINGS + PART + 4 + 2 * u64::from(u16::saturating_sub(first, 3));
                    raw.space.span(entry, 2).write(&first.to_le_bytes());
                }
            }
            raw.publish(RX, 3);
            raw.chain(TX, 0, &[412]);
        },
        End::Passes,
    ),
    ("a frame of 4 GB", |raw| raw.put(TX, 0, raw.address(0), u32::MAX, 0, 0), End::Waits),
];

fn faults(counters: &CountersRef) -> u64 {
    counters.faults.load(Relaxed)
}

fn run((name, attack, end): Row, kind: GuestConfig) {
    let what = format!("{name}, packed {}, IOMMU {}", kind.packed, kind.iommu);
    let (mut backend, mut queues, counters) = port();
    let space = Space::new(kind);
    let mut drivers = [0, 1].map(|ring| space.driver(ring));
    let mut monitor = Monitor::new(&mut backend, &space);
    monitor.map(IOVA, 0, SIZE, BOTH);
    monitor.start(0);
    monitor.start(1);
    space.span(DATA, 512).write(&framed(9, 500));
    space.span(SIZE - 4096, 4096).write(&[0x77; 4096]);
    let raw = Raw { space: &space, kind };
    // A receive buffer, unless the row posts its own.
    if !name.contains("written (") && !name.contains("to be read where") {
        add(&mut drivers[0], raw.address(DATA + 0x1000), 2048, true);
    }
    attack(&raw);
    if name.contains("4 GB") {
        raw.publish(TX, 1);
    }
    let mut reader = Reader::register().unwrap();
    let mut passed = 0;
    let mut ended = None;
    for _ in 0..20 {
        passed += reflect(&mut reader, &mut queues[0]);
        if ended.is_none() {
            monitor.answer_while();
            ended = monitor.end();
        }
    }
    let end = match end {
        End::Waits if !kind.iommu => End::Lost,
        End::LostIfPacked(_) if kind.packed => End::Lost,
        End::LostIfPacked(reason) => End::Dropped(reason),
        end => end,
    };
    let lost = matches!(ended, Some(BackendError::Ring { .. }));
    assert_eq!(lost, end == End::Lost, "{what}: {ended:?}");
    assert_eq!(faults(&counters) > 0, end == End::Lost, "{what}");
    assert!(end == End::Lost || passed == usize::from(end == End::Passes), "{what}: {passed} passed");
    if let End::Dropped(reason) = end {
        assert_eq!(counters.tx_drops[reason as usize].load(Relaxed), 1, "{what}");
    }
    // A guest that loses its port may already have had part of its own memory written.
    assert!(end == End::Lost || space.bytes(SIZE - 4096, 4096) == [0x77; 4096], "{what}");
    if name.contains("2021-3748") {
        let header = space.bytes(DATA + 0x1000, 12);
        assert_eq!(header[10..], 3u16.to_le_bytes(), "{what}: buffers");
        let sent = space.bytes(DATA + 12, 400);
        assert_eq!(
            [space.bytes(DATA + 0x100c, 100), space.bytes(DATA + 0x1100, 300)].concat(),
            sent,
            "{what}"
        );
    }
    drop((monitor, drivers));
    next_one_works((&mut backend, &mut queues[0], &counters), kind, &what);
}

#[test]
fn known_attacks_fail() {
    for row in ROWS {
        for (packed, iommu) in [(false, false), (false, true), (true, false), (true, true)] {
            run(*row, GuestConfig { packed, iommu, page: 4096, ring: 256 });
        }
    }
}

#[test]
fn replaced_call_descriptors_are_not_leaked() {
    // QEMU's virtio devices lost track of a notifier that the guest removed and added again (CVE-2024-4693).
    for (packed, iommu) in [(false, false), (false, true), (true, false), (true, true)] {
        let kind = GuestConfig { packed, iommu, page: 4096, ring: 256 };
        let (mut backend, mut queues, counters) = port();
        let space = Space::new(kind);
        let (mut rx, mut tx) = (space.driver(0), space.driver(1));
        let mut monitor = Monitor::new(&mut backend, &space);
        monitor.map(IOVA, 0, SIZE, BOTH);
        let mut reader = Reader::register().unwrap();
        let mut former: Vec<std::io::PipeReader> = Vec::new();
        monitor.start(0);
        monitor.start(1);
        for round in 0..60u32 {
            let mut given = Vec::new();
            for index in [0, 1] {
                let (ours, theirs) = std::io::pipe().unwrap();
                let fd = (round % 5 != 4).then(|| theirs.into());
                given.push(ours);
                let fd = VringFd { index, fd };
                let request =
                    if round % 2 == 0 { Request::SetVringCall(fd) } else { Request::SetVringErr(fd) };
                monitor.front.set(request).unwrap();
                // While the ring runs, while it is disabled, and after it stopped.
                match round % 7 {
                    3 => monitor.front.enable(index, false).unwrap(),
                    4 => monitor.front.enable(index, true).unwrap(),
                    5 => {
                        let base = monitor.front.stop(index).unwrap();
                        let vring = monitor.vring(index, base);
                        monitor.front.start(vring).unwrap();
                        monitor.answer();
                    }
                    _ => {}
                }
            }
            // A descriptor of the same kind has replaced these long since.
            for mut gone in former.drain(..former.len().saturating_sub(40)) {
                let (mut bytes, mut count) = ([0; 64], 1);
                while count > 0 {
                    count = gone.read(&mut bytes).unwrap();
                }
            }
            former.extend(given);
            if round % 7 == 3 {
                continue;
            }
            let raw = Raw { space: &space, kind };
            add(&mut rx, raw.address(DATA + 0x1000), 2048, true);
            add(&mut tx, raw.address(DATA), 112, false);
            let passed: usize = (0..20)
                .map(|_| {
                    monitor.answer();
                    reflect(&mut reader, &mut queues[0])
                })
                .sum();
            assert_eq!(passed, 1, "{kind:?} round {round}");
            while tx.take_used().unwrap().is_some() || rx.take_used().unwrap().is_some() {}
        }
        assert_eq!(faults(&counters), 0);
    }
}

/// A turn during which the guest rewrites its rings and the start of its frame: once after the frame was
/// taken and room for it reserved, and the rings again after the frame was delivered.
fn rewritten(raw: &Raw<'_>, reader: &mut Reader, queue: &mut Queue) -> usize {
    let rewrite = |address: u64| {
        raw.space.span(DATA, 76).write(&[0xff; 76]);
        for (ring, flags) in [(RX, WRITE), (TX, 0)] {
            for slot in 0..4 {
                raw.put(ring, slot, address, 3, flags | NEXT, slot ^ 1);
                if !raw.kind.packed {
                    let entry = RINGS + 3 * PART * ring + PART + 4 + 2 * u64::from(slot);
                    raw.space.span(entry, 2).write(&u16::MAX.to_le_bytes());
                }
            }
            raw.publish(ring, u16::MAX);
        }
    };
    let mut storage = Storage::default();
    let turn = reader.turn(1);
    let mut burst = Burst::begin(&mut storage);
    queue.tx.take(&turn, &mut burst);
    let which: Vec<u16> = (0..burst.len() as u16).collect();
    if which.is_empty() || queue.rx.reserve(&turn, &burst, &which) == 0 {
        queue.tx.release(&turn, 0);
        reader.rest();
        return 0;
    }
    rewrite(raw.address(TABLE));
    queue.rx.put(&turn, &burst, &which);
    rewrite(u64::MAX - 1);
    queue.tx.release(&turn, which.len());
    queue.rx.publish(&turn);
    reader.rest();
    which.len()
}

#[test]
fn rewriting_a_ring_between_check_and_use_has_no_effect() {
    for (packed, iommu) in [(false, false), (false, true), (true, false), (true, true)] {
        // The header in a descriptor of its own, or together with the frame.
        for lens in [&[112][..], &[12, 100]] {
            let kind = GuestConfig { packed, iommu, page: 4096, ring: 256 };
            let (mut backend, mut queues, counters) = port();
            let space = Space::new(kind);
            let (mut rx, _tx) = (space.driver(0), space.driver(1));
            let mut monitor = Monitor::new(&mut backend, &space);
            monitor.map(IOVA, 0, SIZE, BOTH);
            monitor.start(0);
            monitor.start(1);
            let frame = framed(9, 100);
            space.span(DATA, 112).write(&frame);
            space.span(TABLE, 4096).write(&[0x77; 4096]);
            let raw = Raw { space: &space, kind };
            let id = add(&mut rx, raw.address(DATA + 0x1000), 2048, true);
            raw.chain(TX, 0, lens);
            let mut reader = Reader::register().unwrap();
            let mut passed = 0;
            for _ in 0..20 {
                if passed == 0 {
                    monitor.answer();
                    passed = rewritten(&raw, &mut reader, &mut queues[0]);
                }
            }
            assert_eq!(passed, 1, "{kind:?}");
            let arrived = space.bytes(DATA + 0x1000, 112);
            // Header and first bytes were read once, before the rewrite; the bytes after them come directly
            // from guest memory.
            assert_eq!(arrived[..10], [0; 10], "{kind:?}: of the header as it was");
            assert_eq!(arrived[12..76], frame[12..76], "{kind:?}");
            assert_eq!(space.bytes(TABLE, 4096), [0x77; 4096], "{kind:?}");
            // The buffer ids that were checked are the ones returned.
            let used = |ring: u64| {
                let at = RINGS + 3 * PART * ring + if packed { 8 } else { 2 * PART + 4 };
                let bytes = space.bytes(at, 8);
                let (low, high) = bytes.split_at(4);
                let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
                if packed { (number(high) & 0xffff, number(low)) } else { (number(low), number(high)) }
            };
            assert_eq!(used(RX), (u32::from(id), 112), "{kind:?}");
            assert_eq!(used(TX), (0, 0), "{kind:?}");
            assert_eq!(faults(&counters), 0, "{kind:?}");
            drop((monitor, rx));
            next_one_works((&mut backend, &mut queues[0], &counters), kind, "rewriting");
        }
    }
}

/// An attack on the control queue, whose descriptors start at 0, and whether the guest loses its port.
type Command = (&'static str, fn(&Raw<'_>), bool);

/// The control queue follows the rings of one queue pair.
const CONTROL: u64 = 2;
const SLOTS: u16 = 256;
const FAR: u16 = 0xffff;

const COMMANDS: &[Command] = &[
    ("a command like any other", |raw| raw.command(16), false),
    ("a next outside the ring", |raw| raw.put(CONTROL, 0, raw.address(DATA), 2, NEXT, SLOTS), true),
    ("a next far outside the ring", |raw| raw.put(CONTROL, 0, raw.address(DATA), 2, NEXT, FAR), true),
    ("a next that leads back", |raw| raw.put(CONTROL, 0, raw.address(DATA), 2, NEXT, 0), true),
    ("a chain as long as the ring", |raw| raw.chained(CONTROL, SLOTS), true),
    ("no length", |raw| raw.put(CONTROL, 0, raw.address(DATA), 0, 0, 0), true),
    ("an id outside the ring", |raw| raw.command_of(FAR), false),
    ("a table longer than the ring", |raw| raw.tabled(16 * (u32::from(SLOTS) + 1), INDIRECT, 0), true),
    ("a table that is cut off", |raw| raw.tabled(24, INDIRECT, 0), true),
    ("a table of no length", |raw| raw.tabled(0, INDIRECT, 0), true),
    ("a table with a descriptor behind it", |raw| raw.tabled(32, INDIRECT | NEXT, 0), true),
    ("a table within a table", |raw| raw.tabled(32, INDIRECT, INDIRECT), true),
    ("an answer before its command", |raw| raw.backwards(), true),
];

impl Raw<'_> {
    /// A command that turns promiscuous mode on, with `room` bytes for the reply.
    fn command(&self, room: u32) {
        let at = self.address(DATA);
        self.put(CONTROL, 0, at, 3, NEXT, if self.kind.packed { 0 } else { 1 });
        self.put(CONTROL, 1, self.address(DATA + 0x1000), room, WRITE, 0);
    }

    /// A command that turns promiscuous mode on, with a packed ring's buffer `id`.
    fn command_of(&self, id: u16) {
        self.command(16);
        if self.kind.packed {
            self.put(CONTROL, 1, self.address(DATA + 0x1000), 16, WRITE, id);
        }
    }

    /// A chain of `count` descriptors, each with the NEXT flag.
    fn chained(&self, ring: u64, count: u16) {
        let next = |slot: u16| if self.kind.packed { 0 } else { (slot + 1) % count };
        (0..count).for_each(|slot| self.put(ring, slot, self.address(DATA), 1, NEXT, next(slot)));
    }

    /// An indirect table of `bytes` bytes whose entries have the flags `inner`.
    fn tabled(&self, bytes: u32, flags: u16, inner: u16) {
        self.put_at(TABLE, self.address(DATA), 3, inner, 0);
        self.put_at(TABLE + 16, self.address(DATA + 0x1000), 16, WRITE, 0);
        self.put(CONTROL, 0, self.address(TABLE), bytes, flags, if self.kind.packed { 0 } else { 1 });
    }

    fn backwards(&self) {
        self.put(CONTROL, 0, self.address(DATA + 0x1000), 16, WRITE | NEXT, u16::from(!self.kind.packed));
        self.put(CONTROL, 1, self.address(DATA), 3, 0, 0);
    }
}

#[test]
fn attacks_on_the_control_queue_fail() {
    for (name, attack, loses) in COMMANDS {
        for (packed, iommu) in [(false, false), (false, true), (true, false), (true, true)] {
            let kind = GuestConfig { packed, iommu, page: 4096, ring: SLOTS };
            let (mut backend, mut queues, counters) = port();
            let space = Space::new(kind);
            let driver = space.driver(CONTROL as u32);
            let mut monitor = Monitor::agreeing(&mut backend, kind, space.share(), virtio::NET_CTRL_VQ);
            monitor.map(IOVA, 0, SIZE, BOTH);
            (0..3).for_each(|ring| monitor.start(ring));
            let raw = Raw { space: &space, kind };
            space.span(DATA, 3).write(&[0, 0, 1]);
            space.span(DATA + 0x1000, 0x1000).write(&[0x77; 0x1000]);
            attack(&raw);
            raw.publish(CONTROL, 1);
            let what = format!("{name}, packed {packed}, IOMMU {iommu}");
            // A packed ring has no `next` field: the chain continues with the following descriptor, which is
            // not available.
            for _ in 0..10 {
                monitor.answer_while();
            }
            let ended = monitor.end();
            let lost = matches!(ended, Some(BackendError::Ring { ring: 2, .. }));
            assert_eq!(lost, *loses, "{what}: {ended:?}");
            assert_eq!(faults(&counters) > 0, *loses, "{what}");
            let answer = space.bytes(DATA + 0x1000, 0x1000);
            let answered = if *loses { 0x77 } else { 0 };
            assert!(answer[0] == answered && answer[1..].iter().all(|byte| *byte == 0x77), "{what}");
            drop((monitor, driver));
            next_one_works((&mut backend, &mut queues[0], &counters), kind, &what);
        }
    }
}
