//! A front-end and a driver that act at random, checked against a model of what may be accessed.
//!
//! A second thread writes garbage into the rings and into a part of the buffers meanwhile. Memory that is not granted
//! for writing must not change, memory that is not granted for reading must not be read, and bytes around the guest's
//! memory must not change. Without an IOMMU all of its memory is granted. At times writes are logged, as during live
//! migration: the bit of each changed page must be set, and no bit of a page that may not be written.

use super::guest::{BOTH, GuestConfig, Monitor, READ, USER, WRITE};
use super::log::Bits;
use super::rig::StopOnDrop;
use crate::vhost_user::plants::{Plant, plant};
use crate::vhost_user::tests::session::port;
use crate::{Queue, vhost_user::Backend};
use ringway_frame::{Burst, Storage};
use ringway_host::EventFd;
use ringway_mem::{Hint, Memory, Reader, SpanMut};
use ringway_vhost_user::feature::virtio;
use ringway_vhost_user::{Iotlb, MemoryRegion, Request, SharedRegion, VringAddr, VringFd, VringState};
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

const PAGE: u64 = 4096;
/// Pages of the rings, of buffers that are always granted and overwritten by the second thread, of buffers
/// that are granted at times, and of memory that is never granted.
const RINGS: std::ops::Range<u64> = 0..12;
const SCRATCH: std::ops::Range<u64> = 12..20;
const POOL: std::ops::Range<u64> = 20..44;
const SECRET: std::ops::Range<u64> = 44..64;
/// Offset of the memory in its file, so that the bytes around it share its pages.
const SKIP: u64 = 512;
const IOVA: u64 = 0x4_0000_0000;
/// The first steps of a life without the second thread: both rings run, and frames pass, mostly while logged; then a
/// page is revoked that the device has just used.
const ORDERLY: [u64; 11] = [4, 7, 8, 20, 17, 31, 31, 17, 31, 24, 25];
/// Content that must never be read.
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

/// The guest's file as the test sees it, and the part that must not change.
struct Ground {
    file: OwnedFd,
    memory: Memory,
    /// The permissions of each page of the pool.
    granted: [u8; 64],
    /// The content of a page that may not be written.
    shadow: Vec<Vec<u8>>,
    /// The guest's memory after the last step, when only the test had written.
    seen: Vec<u8>,
    iommu: bool,
    log: Logging,
    kick: EventFd,
    call: EventFd,
}

/// The log, as the front-end sees it.
#[derive(Default)]
struct Logging {
    bits: Option<Bits>,
    /// The previous log, which may have marks of the current step.
    former: Option<Bits>,
    is_on: bool,
    was_on: bool,
    /// Ring pages whose log setting was refused in the last change: writes to such a ring itself are logged
    /// or not, as before. Frames are always logged according to the last setting.
    doubted: BTreeSet<u64>,
    /// Ring pages whose log setting was refused in the change before the last, during the current step.
    doubted_before: BTreeSet<u64>,
    /// The last log address of each ring.
    rings: [Option<VringAddr>; 2],
    /// Steps after which some page was marked.
    marked: usize,
}

impl Ground {
    fn new(iommu: bool) -> Ground {
        let len = 66 * PAGE;
        let file = ringway_host::memfd("guest", len as usize).unwrap();
        let region = ringway_host::map_region(&file, 0, len, 0, 0).unwrap();
        let memory = Memory::new(vec![region]).unwrap();
        let [kick, call] = [(); 2].map(|()| EventFd::new().unwrap());
        let (granted, shadow) = ([0; 64], vec![vec![0; PAGE as usize]; 64]);
        let seen = vec![0; 64 * PAGE as usize];
        let log = Logging::default();
        let mut ground = Ground { file, memory, granted, shadow, seen, iommu, log, kick, call };
        ground.raw(0, len).write(&MARK.repeat(len as usize / 8));
        for page in RINGS.chain(SCRATCH) {
            ground.granted[page as usize] = BOTH;
            ground.put(page * PAGE, &[0; PAGE as usize]);
        }
        POOL.chain(SECRET).for_each(|page| ground.hide(page));
        ground
    }

    /// Size of the file.
    fn raw(&self, at: u64, len: u64) -> SpanMut<'_> {
        self.memory.span_mut(at, len as u32, &mut Hint::default()).unwrap()
    }

    /// Writes at `at` as the guest would.
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.raw(SKIP + at, bytes.len() as u64).write(bytes);
        self.seen[at as usize..][..bytes.len()].copy_from_slice(bytes);
    }

    /// A random page of the guest.
    fn page(&self, page: u64) -> SpanMut<'_> {
        self.raw(SKIP + page * PAGE, PAGE)
    }

    /// The available index of the split ring at `at`.
    fn offered(&self, at: u64) -> u16 {
        let mut index = [0; 2];
        self.raw(SKIP + at + PAGE + 2, 2).as_span().read(&mut index);
        u16::from_le_bytes(index)
    }

    /// Fills a page that may not be read with secrets.
    fn hide(&mut self, page: u64) {
        let bytes = if self.iommu { MARK.repeat(512) } else { vec![0x5a; 4096] };
        self.put(page * PAGE, &bytes);
        self.shadow[page as usize] = bytes;
    }

    fn share(&self) -> SharedRegion {
        let region = MemoryRegion { guest: 0, size: 64 * PAGE, user: USER, offset: SKIP };
        SharedRegion { region, fd: self.file.try_clone().unwrap() }
    }

    /// The device's address of a page.
    fn address(&self, page: u64) -> u64 {
        if self.iommu { IOVA + page * PAGE } else { page * PAGE }
    }

    fn grant(&mut self, page: u64, access: u8) {
        if self.granted[page as usize] & WRITE != 0 {
            // The page may hold a received frame.
            self.shadow[page as usize] = vec![0; PAGE as usize];
        }
        self.granted[page as usize] = access;
        if access & READ == 0 {
            self.hide(page);
        } else {
            self.put(page * PAGE, &[0x11; PAGE as usize]);
            self.shadow[page as usize] = vec![0x11; PAGE as usize];
        }
    }

    /// The pages that the device may write for a ring at this address, with its log address.
    fn pages_of(&self, addresses: &VringAddr) -> impl Iterator<Item = u64> {
        let begin = if self.iommu { IOVA } else { USER };
        let parts = [addresses.descriptors, addresses.used].map(|at| at.wrapping_sub(begin));
        parts.into_iter().chain([addresses.log]).flat_map(|at| [at / PAGE, at / PAGE + 1])
    }

    /// The pages written and the pages marked since the last check. While the second thread runs, only pages
    /// that it leaves alone can be judged.
    fn check_log(&mut self, is_quiet: bool, what: &dyn Fn() -> String) {
        let mut now = vec![0; 64 * PAGE as usize];
        self.raw(SKIP, 64 * PAGE).as_span().read(&mut now);
        let Logging { bits, former, is_on, was_on, doubted, doubted_before, .. } = &self.log;
        let (is_on, was_on) = (*is_on, *was_on);
        let marked: Vec<u64> = bits.iter().chain(former).flat_map(Bits::take).collect();
        let pages = now.chunks(PAGE as usize).zip(self.seen.chunks(PAGE as usize));
        for (page, (now, before)) in (0..64).zip(pages) {
            let (is_marked, is_checked) = (marked.contains(&page), is_quiet || page >= SCRATCH.end);
            let is_sure = !doubted.contains(&page) && !doubted_before.contains(&page);
            if now != before && is_checked && is_on && was_on && is_sure {
                assert!(is_marked, "page {page} was written and not marked: {}", what());
            }
            if is_marked {
                let may = is_on || was_on || !is_sure;
                assert!(may, "page {page} was marked though nothing is logged: {}", what());
                let may = !self.iommu || self.granted[page as usize] & WRITE != 0;
                assert!(may, "page {page} was marked and can't have been written: {}", what());
            }
        }
        self.log.marked += usize::from(!marked.is_empty());
        self.log.was_on = is_on;
        self.log.former = None;
        self.log.doubted_before.clear();
        self.seen = now;
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

/// A worker's turn that reads every frame. `sleeps`: the worker arms its queues afterwards.
fn turn(reader: &mut Reader, queue: &mut Queue, sleeps: bool, what: &dyn Fn() -> String) {
    let mut storage = Storage::default();
    let turn = reader.turn(1);
    let mut burst = Burst::begin(&mut storage);
    queue.tx.disarm(&turn);
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
    if sleeps {
        queue.tx.arm(&turn);
    }
    queue.rx.end_turn(&turn);
    reader.rest();
}

/// One front-end session of at most `steps` steps; returns the number of steps done.
fn life(
    (backend, queue): (&mut Backend, &mut Queue),
    (ground, random): (&mut Ground, &mut Random),
    (kind, steps): (GuestConfig, usize),
    (reader, is_quiet): (&mut Reader, bool),
) -> usize {
    let seed = random.0;
    POOL.for_each(|page| ground.grant(page, 0));
    ground.log = Logging { marked: ground.log.marked, ..Logging::default() };
    let mut monitor = Monitor::sharing(backend, kind, ground.share());
    monitor.answers = false;
    let mut used = POOL.start;
    for step in 0..steps {
        let what = || format!("{kind:?} seed {seed:#x} step {step}");
        let orderly = ORDERLY.get(step).copied().filter(|_| is_quiet);
        let alive = match orderly.unwrap_or_else(|| random.below(32)) {
            what @ 0..=5 if kind.iommu => translate(&mut monitor, ground, random, what),
            6 => {
                monitor.front.set_memory(vec![ground.share()]).is_ok() && {
                    POOL.for_each(|page| ground.grant(page, 0));
                    true
                }
            }
            index @ 7..=8 => start(&mut monitor, ground, (random, kind), index as u32 - 7),
            9 => monitor.front.stop(random.below(2) as u32).is_ok(),
            10 => monitor.front.enable(random.below(2) as u32, random.below(4) > 0).is_ok(),
            11 => {
                monitor.asked.clear();
                monitor.answer() < usize::MAX
            }
            12..=16 => {
                describe(ground, random, kind);
                true
            }
            17 => {
                post(ground, random, kind, SCRATCH);
                true
            }
            18 | 19 => reshape(&mut monitor, ground, random, kind),
            20 | 21 => log(&mut monitor, ground, random, kind),
            22 => notify(&mut monitor, ground, random),
            23 => {
                ground.kick.signal();
                true
            }
            index @ 24..=25 if kind.iommu => {
                used = if index == 24 { random.page(POOL) } else { used };
                let access = if index == 24 { BOTH } else { 0 };
                let alive = use_page(&mut monitor, ground, (random, kind), (used, access));
                turn(reader, queue, false, &what);
                alive
            }
            _ => {
                turn(reader, queue, random.below(4) == 0, &what);
                true
            }
        };
        ground.check(&what);
        ground.check_log(is_quiet, &what);
        if !alive || monitor.front.transport().process_pending().is_err() {
            return step + 1;
        }
    }
    steps
}

/// Grants or revokes a page, or sends an invalid grant. `false`: the session ended.
fn translate(monitor: &mut Monitor<'_>, ground: &mut Ground, random: &mut Random, what: u64) -> bool {
    let send = |monitor: &mut Monitor<'_>, kind, page: u64, pages: u64, access| {
        monitor.send_iotlb(kind, IOVA + page * PAGE, pages * PAGE, USER + page * PAGE, access).is_ok()
    };
    match what {
        0 | 1 => {
            let page = random.page(POOL);
            let access = 1 + random.below(3) as u8;
            // The old mapping is removed first, as an IOMMU does it.
            let gone = send(monitor, Iotlb::INVALIDATE, page, 1, 0);
            ground.grant(page, access);
            gone && send(monitor, Iotlb::UPDATE, page, 1, access)
        }
        2 | 3 => {
            let (page, pages) = (random.page(POOL), 1 + random.below(4));
            let pages = pages.min(POOL.end - page);
            let gone = send(monitor, Iotlb::INVALIDATE, page, pages, 0);
            (page..page + pages).for_each(|page| ground.grant(page, 0));
            gone
        }
        4 => {
            let all = RINGS.start..SCRATCH.end;
            send(monitor, Iotlb::UPDATE, all.start, all.end - all.start, BOTH)
        }
        _ => lie(monitor, random),
    }
}

/// Sends an invalid grant, or one outside the memory. `false`: the session ended.
fn lie(monitor: &mut Monitor<'_>, random: &mut Random) -> bool {
    let user = [0, USER - PAGE, USER + 64 * PAGE, u64::MAX - PAGE][random.below(4) as usize];
    let _ = monitor.send_iotlb(Iotlb::UPDATE, IOVA + random.next() % (1 << 30), PAGE, user, BOTH);
    monitor.end().is_none()
}

/// Enables, replaces or disables the log while rings run, as QEMU does. `false`: the session ended.
fn log(monitor: &mut Monitor<'_>, ground: &mut Ground, random: &mut Random, kind: GuestConfig) -> bool {
    let all = kind.features() | virtio::PROTOCOL_FEATURES;
    let mut requests = Vec::new();
    let on = random.below(3) > 0;
    if on {
        let mut bits = Bits::new();
        bits.place.size = 64 / 8;
        requests.push(bits.share());
        ground.log.former = ground.log.bits.replace(bits);
    }
    requests.push(Request::SetFeatures(if on { all | virtio::LOG_ALL } else { all }));
    let flags = on.into();
    let known = ground.log.rings.iter_mut().flatten();
    requests.extend(known.map(|ring| {
        ring.flags = flags;
        Request::SetVringAddr(*ring)
    }));
    ground.log.is_on = on;
    ground.log.doubted_before = std::mem::take(&mut ground.log.doubted);
    requests.into_iter().all(|request| {
        let ring = if let Request::SetVringAddr(ring) = request { Some(ring) } else { None };
        // The ring may have an invalid place, or its descriptors may be invalid.
        if monitor.front.set(request).is_err()
            && let Some(ring) = ring
        {
            let pages: Vec<u64> = ground.pages_of(&ring).collect();
            ground.log.doubted.extend(pages);
        }
        monitor.end().is_none()
    })
}

/// Replaces a ring's eventfds, some by invalid descriptors. `false`: the session ended.
fn notify(monitor: &mut Monitor<'_>, ground: &Ground, random: &mut Random) -> bool {
    let fd = match random.below(6) {
        0 => None,
        1 => Some(std::io::pipe().unwrap().1.into()),
        2 => Some(ground.file.try_clone().unwrap()),
        3 => Some(EventFd::new().unwrap().into_fd()),
        _ => Some(ground.call.as_fd().try_clone_to_owned().unwrap()),
    };
    let vring = VringFd { index: random.below(2) as u32, fd };
    let _ = monitor.front.set(match random.below(4) {
        0 => Request::SetVringKick(vring),
        1 => Request::SetVringErr(vring),
        _ => Request::SetVringCall(vring),
    });
    ground.call.clear();
    monitor.end().is_none()
}

/// Removes or adds memory, negotiates other features, or resets the device. `false`: the session ended.
fn reshape(monitor: &mut Monitor<'_>, ground: &mut Ground, random: &mut Random, kind: GuestConfig) -> bool {
    let logs = if ground.log.is_on { virtio::LOG_ALL } else { 0 };
    let all = kind.features() | virtio::PROTOCOL_FEATURES | logs;
    let share = ground.share();
    let (requests, takes) = match random.below(5) {
        0 => (vec![Request::RemMemReg(share.region)], true),
        // It replaces the previous memory; its grants remain.
        1 => (vec![Request::AddMemReg(share)], false),
        2 => (vec![Request::SetFeatures(all & !virtio::NET_MRG_RXBUF), Request::SetFeatures(all)], false),
        3 => (vec![Request::ResetDevice], false),
        // Without an IOMMU no ring runs, since every ring address would be elsewhere.
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

/// Starts a ring, mostly at a valid place.
fn start(
    monitor: &mut Monitor<'_>,
    ground: &mut Ground,
    (random, kind): (&mut Random, GuestConfig),
    index: u32,
) -> bool {
    let at = if ground.iommu { IOVA } else { USER } + u64::from(index) * 3 * PAGE;
    let odd = |random: &mut Random| if random.below(12) == 0 { random.below(80) * 1021 } else { 0 };
    let (descriptors, available, used) =
        (at + odd(random), at + PAGE + odd(random), at + 2 * PAGE + odd(random));
    let (flags, log) = (ground.log.is_on.into(), used.wrapping_sub(at));
    let addresses = VringAddr { index, flags, descriptors, available, used, log };
    ground.log.rings[index as usize] = Some(addresses);
    let kick = (random.below(2) == 0).then(|| ground.kick.as_fd().try_clone_to_owned().unwrap());
    // At the driver's index, if it has more than a few buffers to make available.
    let offered = ground.offered(u64::from(index) * 3 * PAGE).into();
    let base = if kind.packed || random.below(2) == 0 { random.below(4) as u32 } else { offered };
    let size = [16, 64, 128][random.below(3) as usize];
    let requests = [
        Request::SetVringNum(VringState { index, num: size }),
        Request::SetVringBase(VringState { index, num: base }),
        Request::SetVringAddr(addresses),
        Request::SetVringKick(VringFd { index, fd: kick }),
        Request::SetVringEnable(VringState { index, num: 1 }),
    ];
    requests.into_iter().all(|request| {
        // The back-end may refuse this.
        let _ = monitor.front.set(request);
        monitor.end().is_none()
    })
}

/// Writes random descriptors, and makes some available.
fn describe(ground: &mut Ground, random: &mut Random, kind: GuestConfig) {
    let ring = random.below(2);
    let at = ring * 3 * PAGE;
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
        ground.put(at + 16 * slot, &address.to_le_bytes());
        ground.put(at + 16 * slot + 8, &rest.to_le_bytes());
        ground.put(at + PAGE + 4 + 2 * random.below(128), &(slot as u16).to_le_bytes());
    }
    offer(ground, at, if random.below(20) == 0 { random.next() as u16 } else { random.below(5) as u16 });
}

/// Grants a page, or revokes it again, and posts buffers there, which the device uses at once if it may. `false`: the
/// session ended.
fn use_page(
    monitor: &mut Monitor<'_>,
    ground: &mut Ground,
    (random, kind): (&mut Random, GuestConfig),
    (page, access): (u64, u8),
) -> bool {
    let mut send =
        |kind, access| monitor.send_iotlb(kind, IOVA + page * PAGE, PAGE, USER + page * PAGE, access).is_ok();
    let is_there = send(Iotlb::INVALIDATE, 0);
    ground.grant(page, access);
    post(ground, random, kind, page..page + 1);
    is_there && (access == 0 || send(Iotlb::UPDATE, access))
}

/// Fills both rings with valid buffers and makes some available, so that frames pass. Those for frames to the guest are
/// in `pages`.
fn post(ground: &mut Ground, random: &mut Random, kind: GuestConfig, pages: std::ops::Range<u64>) {
    for ring in 0..2 {
        let at = ring * 3 * PAGE;
        let (flags, len) = ((ring ^ 1) << 1, if ring == 0 { 2000 } else { 72 + random.below(1500) });
        let available = if random.below(2) == 0 { 1 << 7 } else { 1 << 15 };
        for slot in 0..128 {
            let of = if ring == 0 { pages.clone() } else { SCRATCH };
            let (page, offset) = (random.page(of), random.below(2000));
            let rest =
                if kind.packed { len | slot << 32 | (flags | available) << 48 } else { len | flags << 32 };
            if ring == 1 {
                ground.put(page * PAGE + offset, &[0; 12]);
            }
            ground.put(at + 16 * slot, &(ground.address(page) + offset).to_le_bytes());
            ground.put(at + 16 * slot + 8, &rest.to_le_bytes());
            ground.put(at + PAGE + 4 + 2 * slot, &(slot as u16).to_le_bytes());
        }
        offer(ground, at, 1 + random.below(8) as u16);
    }
}

/// Makes `more` more buffers available on the split ring at `at`.
fn offer(ground: &mut Ground, at: u64, more: u16) {
    let index = ground.offered(at).wrapping_add(more);
    ground.put(at + PAGE + 2, &index.to_le_bytes());
}

fn steps() -> usize {
    std::env::var("RINGWAY_STEPS").ok().and_then(|steps| steps.parse().ok()).unwrap_or(10_000)
}

fn run(kind: GuestConfig) {
    run_as(kind, 0);
}

/// Runs guest number `number` of a kind.
fn run_as(kind: GuestConfig, number: u64) {
    let mut ground = Ground::new(kind.iommu);
    let (mut backend, mut queues, _) = port();
    let mut reader = Reader::register().unwrap();
    let seed = 0x2545_f491_4f6c_dd1d ^ number << 16;
    let mut random = Random(seed ^ u64::from(kind.packed) << 7 ^ u64::from(kind.iommu) << 9);
    let (stop, file) = (AtomicBool::new(false), ground.file.try_clone().unwrap());
    // In every other session the second thread writes nothing.
    let [rests, is_still] = [(); 2].map(|()| AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let region = ringway_host::map_region(&file, 0, 66 * PAGE, 0, 0).unwrap();
            let memory = Memory::new(vec![region]).unwrap();
            let mut random = Random(77);
            while !stop.load(Relaxed) {
                is_still.store(rests.load(SeqCst), SeqCst);
                if rests.load(SeqCst) {
                    std::thread::yield_now();
                    continue;
                }
                let at = SKIP + random.below(SCRATCH.end * PAGE - 8);
                let bytes = random.next().to_le_bytes();
                memory.span_mut(at, 2, &mut Hint::default()).unwrap().write(&bytes[..2]);
                (0..random.below(2000)).for_each(|_| std::hint::spin_loop());
            }
        });
        let _stop = StopOnDrop(&stop);
        let (mut left, mut lives) = (steps() / 4, 0);
        while left > 0 {
            let (most, is_quiet) = (left.min(400), lives % 2 == 1);
            rests.store(is_quiet, SeqCst);
            while is_still.load(SeqCst) != is_quiet {
                std::thread::yield_now();
            }
            let (port, of) = ((&mut backend, &mut queues[0]), (&mut ground, &mut random));
            left -= life(port, of, (kind, most), (&mut reader, is_quiet));
            let _ = backend.readable();
            backend.disconnect();
            lives += 1;
        }
        assert!(lives > 1);
        assert!(ground.log.marked > 0, "nothing was marked");
    });
}

/// What the checks say of random guests on a data path with a planted bug. One guest may miss it, since what its second
/// thread writes, and when, may hide it.
fn found(kind: GuestConfig, bug: Plant) -> String {
    plant(Some(bug));
    let run = |number| std::panic::catch_unwind(|| run_as(kind, number)).err();
    let found = (0..20).find_map(run);
    plant(None);
    found.expect("the checks find it").downcast_ref::<String>().cloned().unwrap_or_default()
}

#[test]
fn a_dirty_bit_that_is_skipped_is_found() {
    for packed in [false, true] {
        for iommu in [false, true] {
            let kind = GuestConfig { packed, iommu, page: 4096, ring: 256 };
            let found = found(kind, Plant::UnmarkedFrame);
            assert!(found.contains("was written and not marked"), "{kind:?}: {found}");
        }
    }
}

#[test]
fn a_stale_iotlb_entry_is_found() {
    for packed in [false, true] {
        let kind = GuestConfig { packed, iommu: true, page: 4096, ring: 256 };
        let found = found(kind, Plant::StaleTranslation);
        assert!(found.contains(" was written: ") || found.contains("a secret was sent"), "{kind:?}: {found}");
    }
}

#[test]
fn random_guests_stay_within_their_granted_memory() {
    for packed in [false, true] {
        for iommu in [false, true] {
            run(GuestConfig { packed, iommu, page: 4096, ring: 256 });
        }
    }
}
