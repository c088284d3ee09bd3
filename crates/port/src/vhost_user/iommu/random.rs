//! A front-end and a driver that do anything in any order, against a model of what may be touched.
//!
//! A second thread writes garbage into the rings and into a part of the buffers meanwhile. What the guest has not
//! granted for writing must stay as it is, what it has not granted for reading must not be seen, and nothing around its
//! memory may change either. Without an IOMMU all of its memory is granted.

use super::guest::{BOTH, Kind, Monitor, READ, USER, WRITE};
use super::rig::StopOnDrop;
use crate::vhost_user::test::port;
use crate::{Queue, vhost_user::Backend};
use ringway_frame::{Burst, Storage};
use ringway_mem::{Hint, Memory, Reader, SpanMut};
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Iotlb, MemoryRegion, Request, SharedRegion, VringAddr, VringState};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

const PAGE: u64 = 4096;
/// Pages of rings, of buffers that are always granted and scribbled on, of buffers that are granted now and then, and
/// of what never is.
const RINGS: std::ops::Range<u64> = 0..12;
const SCRATCH: std::ops::Range<u64> = 12..20;
const POOL: std::ops::Range<u64> = 20..44;
const SECRET: std::ops::Range<u64> = 44..64;
/// Where the memory lies in its file, so that bytes around it share its pages.
const SKIP: u64 = 512;
const IOVA: u64 = 0x4_0000_0000;
/// What must never be seen.
const MARK: [u8; 8] = *b"\x13ecret!\x31";

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn page(&mut self, of: std::ops::Range<u64>) -> u64 {
        of.start + self.below(of.end - of.start)
    }
}

/// The guest's file as the test sees it, and what of it may not change.
struct Ground {
    file: OwnedFd,
    memory: Memory,
    /// What each page of the pool is granted for.
    granted: [u8; 64],
    /// What a page that may not be written holds.
    shadow: Vec<Vec<u8>>,
    iommu: bool,
}

impl Ground {
    fn new(iommu: bool) -> Ground {
        let len = 66 * PAGE;
        let file = ringway_host::memfd("guest", len as usize).unwrap();
        let region = ringway_host::map_region(&file, 0, len, 0, 0).unwrap();
        let memory = Memory::new(vec![region]).unwrap();
        let mut ground =
            Ground { file, memory, granted: [0; 64], shadow: vec![vec![0; PAGE as usize]; 64], iommu };
        ground.raw(0, len).write(&MARK.repeat(len as usize / 8));
        for page in RINGS.chain(SCRATCH) {
            ground.granted[page as usize] = BOTH;
            ground.page(page).write(&[0; PAGE as usize]);
        }
        POOL.chain(SECRET).for_each(|page| ground.hide(page));
        ground
    }

    /// Bytes of the file.
    fn raw(&self, at: u64, len: u64) -> SpanMut<'_> {
        self.memory.span_mut(at, len as u32, &mut Hint::default()).unwrap()
    }

    /// A page of the guest's.
    fn page(&self, page: u64) -> SpanMut<'_> {
        self.raw(SKIP + page * PAGE, PAGE)
    }

    /// Fills a page that may not be read.
    fn hide(&mut self, page: u64) {
        let bytes = if self.iommu { MARK.repeat(512) } else { vec![0x5a; 4096] };
        self.page(page).write(&bytes);
        self.shadow[page as usize] = bytes;
    }

    fn share(&self) -> SharedRegion {
        let region = MemoryRegion { guest: 0, size: 64 * PAGE, user: USER, offset: SKIP };
        SharedRegion { region, fd: self.file.try_clone().unwrap() }
    }

    /// Where the device finds a page.
    fn address(&self, page: u64) -> u64 {
        if self.iommu { IOVA + page * PAGE } else { page * PAGE }
    }

    fn grant(&mut self, page: u64, access: u8) {
        if self.granted[page as usize] & WRITE != 0 {
            // It may hold what was received.
            self.shadow[page as usize] = vec![0; PAGE as usize];
        }
        self.granted[page as usize] = access;
        if access & READ == 0 {
            self.hide(page);
        } else {
            self.page(page).write(&[0x11; PAGE as usize]);
            self.shadow[page as usize] = vec![0x11; PAGE as usize];
        }
    }

    fn check(&self, what: &dyn Fn() -> String) {
        let mut bytes = vec![0; PAGE as usize];
        for page in POOL.chain(SECRET).filter(|_| self.iommu) {
            if self.granted[page as usize] & WRITE == 0 {
                self.page(page).as_span().read(&mut bytes);
                assert!(bytes == self.shadow[page as usize], "page {page} was written: {}", what());
            }
        }
        for (at, len) in [(0, SKIP), (SKIP + 64 * PAGE, 2 * PAGE - SKIP)] {
            let mut bytes = vec![0; len as usize];
            self.raw(at, len).as_span().read(&mut bytes);
            assert!(
                bytes.chunks(8).all(|word| word == MARK),
                "bytes outside the memory were written: {}",
                what()
            );
        }
    }
}

/// A worker's turn that looks at all it is given.
fn turn(reader: &mut Reader, queue: &mut Queue, what: &dyn Fn() -> String) {
    let mut storage = Storage::default();
    let turn = reader.turn(1);
    let mut burst = Burst::begin(&mut storage);
    queue.tx.take(&turn, &mut burst);
    let which: Vec<u16> = (0..burst.len() as u16).collect();
    for &frame in &which {
        let mut bytes = vec![0; burst.meta(usize::from(frame)).len as usize];
        burst.read(usize::from(frame), 0, &mut bytes);
        assert!(!bytes.windows(8).any(|window| window == MARK), "a secret was sent: {}", what());
    }
    let fits = match queue.rx.caps(&turn) {
        Some(_) => queue.rx.reserve(&turn, &burst, &which),
        None => which.len(),
    };
    queue.rx.put(&turn, &burst, &which[..fits]);
    queue.tx.release(&turn, fits);
    queue.rx.publish(&turn);
    reader.rest();
}

/// One front-end's life on the port, of at most `steps` steps; how many there were.
fn life(
    (backend, queue): (&mut Backend, &mut Queue),
    (ground, random): (&mut Ground, &mut Random),
    (kind, steps): (Kind, usize),
    reader: &mut Reader,
) -> usize {
    let seed = random.0;
    POOL.for_each(|page| ground.grant(page, 0));
    let mut monitor = Monitor::sharing(backend, kind, ground.share());
    monitor.answers = false;
    let tell = |monitor: &mut Monitor<'_>, kind, page: u64, pages: u64, access| {
        monitor.tell(kind, IOVA + page * PAGE, pages * PAGE, USER + page * PAGE, access).is_ok()
    };
    for step in 0..steps {
        let what = || format!("{kind:?} seed {seed:#x} step {step}");
        let alive = match random.below(26) {
            0 | 1 if kind.iommu => {
                let page = random.page(POOL);
                let access = 1 + random.below(3) as u8;
                // What was there goes first, as an IOMMU has it.
                let gone = tell(&mut monitor, Iotlb::INVALIDATE, page, 1, 0);
                ground.grant(page, access);
                gone && tell(&mut monitor, Iotlb::UPDATE, page, 1, access)
            }
            2 | 3 if kind.iommu => {
                let (page, pages) = (random.page(POOL), 1 + random.below(4));
                let pages = pages.min(POOL.end - page);
                let gone = tell(&mut monitor, Iotlb::INVALIDATE, page, pages, 0);
                (page..page + pages).for_each(|page| ground.grant(page, 0));
                gone
            }
            4 if kind.iommu => {
                let all = RINGS.start..SCRATCH.end;
                tell(&mut monitor, Iotlb::UPDATE, all.start, all.end - all.start, BOTH)
            }
            5 if kind.iommu => lie(&mut monitor, random),
            6 => {
                monitor.front.set_memory(vec![ground.share()]).is_ok() && {
                    POOL.for_each(|page| ground.grant(page, 0));
                    true
                }
            }
            7 | 8 => start(&mut monitor, ground, random),
            9 => monitor.front.stop(random.below(2) as u32).is_ok(),
            10 => monitor.front.enable(random.below(2) as u32, random.below(4) > 0).is_ok(),
            11 => {
                monitor.asked.clear();
                monitor.answer() < usize::MAX
            }
            12..=17 => {
                describe(ground, random, kind);
                true
            }
            18 | 19 => reshape(&mut monitor, ground, random, kind),
            _ => {
                turn(reader, queue, &what);
                true
            }
        };
        ground.check(&what);
        if !alive || monitor.front.transport().attend().is_err() {
            return step + 1;
        }
    }
    steps
}

/// Grants what can't be, or leads outside. `false`: that was the end.
fn lie(monitor: &mut Monitor<'_>, random: &mut Random) -> bool {
    let user = [0, USER - PAGE, USER + 64 * PAGE, u64::MAX - PAGE][random.below(4) as usize];
    let _ = monitor.tell(Iotlb::UPDATE, IOVA + random.next() % (1 << 30), PAGE, user, BOTH);
    monitor.end().is_none()
}

/// Takes the memory away, adds it, agrees on other features, or resets the device. `false`: that was the end.
fn reshape(monitor: &mut Monitor<'_>, ground: &mut Ground, random: &mut Random, kind: Kind) -> bool {
    let all = kind.features() | virtio::PROTOCOL_FEATURES;
    let share = ground.share();
    let (requests, takes) = match random.below(5) {
        0 => (vec![Request::RemMemReg(share.region)], true),
        // In place of what was there; what is granted of it stays.
        1 => (vec![Request::AddMemReg(share)], false),
        2 => (vec![Request::SetFeatures(all & !virtio::NET_MRG_RXBUF), Request::SetFeatures(all)], false),
        3 => (vec![Request::ResetDevice], false),
        // Without an IOMMU no ring runs, since none is told to lie elsewhere.
        _ => (vec![Request::SetFeatures(all & !virtio::ACCESS_PLATFORM), Request::SetFeatures(all)], true),
    };
    let gone = requests.into_iter().all(|request| {
        let _ = monitor.front.set(request);
        monitor.end().is_none()
    });
    if gone && takes && kind.iommu {
        POOL.for_each(|page| ground.grant(page, 0));
    }
    gone
}

/// Starts a ring at a place where one can be, mostly.
fn start(monitor: &mut Monitor<'_>, ground: &Ground, random: &mut Random) -> bool {
    let index = random.below(2) as u32;
    let at = if ground.iommu { IOVA } else { USER } + u64::from(index) * 3 * PAGE;
    let odd = |random: &mut Random| if random.below(12) == 0 { random.below(80) * 1021 } else { 0 };
    let (descriptors, available, used) =
        (at + odd(random), at + PAGE + odd(random), at + 2 * PAGE + odd(random));
    let addresses = VringAddr { index, flags: 0, descriptors, available, used, log: 0 };
    let size = [16, 64, 128][random.below(3) as usize];
    let said = [
        Request::SetVringNum(VringState { index, num: size }),
        Request::SetVringBase(VringState { index, num: random.below(4) as u32 }),
        Request::SetVringAddr(addresses),
        Request::SetVringKick(ringway_vhost_user::VringFd { index, fd: None }),
        Request::SetVringEnable(VringState { index, num: 1 }),
    ];
    said.into_iter().all(|request| {
        // Refusals are part of it.
        let _ = monitor.front.set(request);
        monitor.end().is_none()
    })
}

/// Writes descriptors, and makes some available.
fn describe(ground: &Ground, random: &mut Random, kind: Kind) {
    let ring = random.below(2);
    let at = SKIP + ring * 3 * PAGE;
    for _ in 0..1 + random.below(6) {
        let slot = random.below(16);
        let page = match random.below(10) {
            0..=3 => random.page(SCRATCH),
            4..=7 => random.page(POOL),
            8 => random.page(SECRET),
            _ => random.page(RINGS),
        };
        let address = match random.below(30) {
            0 => random.next(),
            1 => USER + page * PAGE,
            _ => ground.address(page) + random.below(3) * random.below(2000),
        };
        let len = [0, 1, 11, 60, 112, 1514, 4096, 9000, 70_000, u32::MAX as u64][random.below(10) as usize];
        let flags = match random.below(8) {
            0 => random.below(8),
            1 => 4,
            2 => (ring ^ 1) << 1 | 1,
            _ => (ring ^ 1) << 1,
        };
        let available = if random.below(2) == 0 { 1 << 7 } else { 1 << 15 };
        let rest = if kind.packed {
            len | slot << 32 | (flags | available) << 48
        } else {
            len | flags << 32 | random.below(18) << 48
        };
        ground.raw(at + 16 * slot, 8).write(&address.to_le_bytes());
        ground.raw(at + 16 * slot + 8, 8).write(&rest.to_le_bytes());
        ground.raw(at + PAGE + 4 + 2 * random.below(128), 2).write(&(slot as u16).to_le_bytes());
    }
    let mut index = [0; 2];
    ground.raw(at + PAGE + 2, 2).as_span().read(&mut index);
    let more = if random.below(20) == 0 { random.next() as u16 } else { random.below(5) as u16 };
    ground.raw(at + PAGE + 2, 2).write(&u16::from_le_bytes(index).wrapping_add(more).to_le_bytes());
}

fn steps() -> usize {
    std::env::var("RINGWAY_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(10_000)
}

fn run(kind: Kind) {
    let mut ground = Ground::new(kind.iommu);
    let (mut backend, mut queues, _) = port();
    let mut reader = Reader::register().unwrap();
    let mut random = Random(0x2545_f491_4f6c_dd1d ^ u64::from(kind.packed) << 7 ^ u64::from(kind.iommu) << 9);
    let (stop, file) = (AtomicBool::new(false), ground.file.try_clone().unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let region = ringway_host::map_region(&file, 0, 66 * PAGE, 0, 0).unwrap();
            let memory = Memory::new(vec![region]).unwrap();
            let mut random = Random(77);
            while !stop.load(Relaxed) {
                let at = SKIP + random.below(SCRATCH.end * PAGE - 8);
                let bytes = random.next().to_le_bytes();
                memory.span_mut(at, 2, &mut Hint::default()).unwrap().write(&bytes[..2]);
                (0..random.below(2000)).for_each(|_| std::hint::spin_loop());
            }
        });
        let _stop = StopOnDrop(&stop);
        let (mut left, mut lives) = (steps() / 4, 0);
        while left > 0 {
            let most = left.min(400);
            left -=
                life((&mut backend, &mut queues[0]), (&mut ground, &mut random), (kind, most), &mut reader);
            let _ = backend.readable();
            backend.disconnect();
            lives += 1;
        }
        assert!(lives > 1);
    });
}

#[test]
fn anything_a_guest_does_stays_within_what_it_granted() {
    for packed in [false, true] {
        for iommu in [false, true] {
            run(Kind { packed, iommu, page: 4096, ring: 256 });
        }
    }
}
