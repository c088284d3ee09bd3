//! Measures guest to guest through two vhost-user ports without a switch: the cost of the ports themselves.
//!
//! `loop [SECONDS [CASE]]`, a case such as `packed.64.1024`, or `packed.64.1024.iommu` for guests behind an IOMMU
//! that maps all of their memory at once. A front-end in this process sets up two guests' memories and drives their
//! rings from one core; the ports' queues are served on another. Prints, for the best slice, the serving core's ticks
//! per frame while it has work, and frames per second; as `warm`, the ticks per frame if one thread does both.
//! `loop count CASE FRAMES` only moves so many frames on one thread, for callgrind, which counts the instructions of
//! `forward`, and the cache lines between it and the rest (`scripts/counts.sh`).
#![allow(clippy::print_stdout)]

use ringway_frame::{Burst, CountersRef, Storage};
use ringway_host::{Clock, Pages, map_region, memfd_of, pin, ticks, ticks_per_second};
use ringway_mem::{Hint, Memory, Reader, SpanMut};
use ringway_port::vhost_user::{self, Backend, Config};
use ringway_port::{Queue, Silent};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{
    Frontend, Iotlb, MemoryRegion, Packet, Request, SharedRegion, Transport, Vring, VringAddr,
};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use std::error::Error;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A guest's memory: rings first, then buffers of 2 KB.
const SIZE: u64 = 16 << 20;
const USER: u64 = 0x7f00_0000_0000;
const BUFFERS: u64 = 2 << 20;
const STRIDE: u64 = 2048;
/// Length of the header before each frame; frames begin on a cache line.
const HEADER: u64 = 12;
const RX: u32 = 0;
const TX: u32 = 1;

#[derive(Clone, Copy)]
struct Case {
    packed: bool,
    len: u32,
    size: u16,
    iommu: bool,
}

/// A transport that passes each message to the back-end at once.
struct Wire {
    stream: UnixStream,
    backend: Backend,
}

impl Transport for Wire {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        ringway_host::send_with(self.stream.as_fd(), &packet.bytes, &fds).map_err(io::Error::other)?;
        self.backend.readable().map_err(io::Error::other)
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        Ok((self.stream.read(bytes)?, Vec::new()))
    }
}

/// A guest: its end of the connection, its memory, and the port's queues.
struct Guest {
    front: Frontend<Wire>,
    queue: Option<Queue>,
    own: Own,
}

/// The state of its driver.
struct Own {
    memory: Memory,
    layout: Layout,
}

fn shared_memory() -> Result<OwnedFd, Box<dyn Error>> {
    Ok(memfd_of("guest", SIZE as usize, Pages::Large)?.0)
}

/// Addresses of ring `index`: descriptors, driver area, device area.
fn places(index: u32) -> [u64; 3] {
    let at = u64::from(index) * 0x4_0000;
    [at, at + 0x1_0000, at + 0x2_0000]
}

fn guest(case: Case) -> Result<Guest, Box<dyn Error>> {
    let (backend, mut queues) =
        vhost_user::new(Config::default(), vec![Arc::new(Silent)], vec![CountersRef::private()]);
    let (stream, other) = UnixStream::pair()?;
    let mut wire = Wire { stream, backend };
    wire.backend.connect(other.into())?;
    let packed = if case.packed { virtio::RING_PACKED } else { 0 };
    let behind = if case.iommu { virtio::ACCESS_PLATFORM } else { 0 };
    let features = virtio::VERSION_1 | virtio::NET_MRG_RXBUF | packed | behind;
    let mut front = Frontend::negotiate(wire, features, protocol::REPLY_ACK | protocol::BACKEND_REQ)?;
    // There are no misses, since all translations are sent first.
    let (channel, _) = UnixStream::pair()?;
    front.set(Request::SetBackendReqFd(channel.into()))?;
    let file = shared_memory()?;
    let memory = Memory::new(vec![map_region(&file, 0, SIZE, 0, 0)?])?;
    let region = MemoryRegion { guest: 0, size: SIZE, user: USER, offset: 0 };
    front.set_memory(vec![SharedRegion { region, fd: file }])?;
    if case.iommu {
        let whole = Iotlb { iova: 0, size: SIZE, user: USER, permissions: 3, kind: Iotlb::UPDATE };
        front.set(Request::IotlbMsg(whole))?;
    }
    let base = if case.iommu { 0 } else { USER };
    for index in [RX, TX] {
        let [descriptors, available, used] = places(index).map(|at| base + at);
        let addresses = VringAddr { index, flags: 0, descriptors, available, used, log: 0 };
        let start = if case.packed { 0x8000 } else { 0 };
        front.start(Vring { size: case.size, addresses, base: start, kick: None, call: None })?;
    }
    let layout = Layout { packed: case.packed, size: case.size, event_idx: false, indirect: false };
    Ok(Guest { front, queue: queues.pop(), own: Own { memory, layout } })
}

/// One guest's driver.
struct Load<'m> {
    memory: &'m Memory,
    rx: Driver<'m>,
    tx: Driver<'m>,
    /// Addresses of free buffers to transmit.
    free: Vec<u64>,
    /// Address by id.
    sent: Vec<u64>,
    posted: Vec<u64>,
    hint: Hint,
    len: u32,
}

impl<'m> Load<'m> {
    fn new(guest: &'m Own, len: u32) -> Result<Load<'m>, Box<dyn Error>> {
        let lengths = guest.layout.lengths()?;
        let span = |at, len| guest.memory.user_span(at, len).ok_or("outside");
        let driver = |index| -> Result<Driver<'m>, Box<dyn Error>> {
            let [descriptors, driver, device] = places(index);
            let areas = Areas {
                descriptors: span(descriptors, lengths.descriptors)?,
                driver: span(driver, lengths.driver)?,
                device: span(device, lengths.device)?,
            };
            let mut driver = Driver::new(&guest.layout, areas)?;
            driver.set_flag(false);
            Ok(driver)
        };
        let size = u64::from(guest.layout.size);
        let buffer = |number: u64| BUFFERS + number * STRIDE + 64 - HEADER;
        let mut load = Load {
            memory: &guest.memory,
            rx: driver(RX)?,
            tx: driver(TX)?,
            free: (0..size).map(buffer).collect(),
            sent: vec![0; usize::from(guest.layout.size)],
            posted: vec![0; usize::from(guest.layout.size)],
            hint: Hint::default(),
            len,
        };
        for number in size..2 * size {
            load.post(buffer(number));
        }
        load.rx.publish();
        Ok(load)
    }

    fn span(&mut self, address: u64, len: u32) -> SpanMut<'m> {
        self.memory.span_mut(address, len, &mut self.hint).unwrap_or(SpanMut::of(&mut []))
    }

    fn post(&mut self, address: u64) {
        let buffer = Buffer { address, len: STRIDE as u32 - 64, write: true };
        if let Some(id) = self.rx.add(&[buffer], None) {
            self.posted[usize::from(id)] = address;
        }
    }

    /// Sends up to 32 frames, and rewrites the header and both Ethernet addresses of each, as a forwarding guest
    /// does.
    fn transmit(&mut self) {
        while let Ok(Some((id, _))) = self.tx.take_used() {
            self.free.push(self.sent[usize::from(id)]);
        }
        for _ in 0..32 {
            let Some(address) = self.free.pop() else { break };
            let mut front = [0; 32];
            front[12..26].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
            self.span(address, 32).write_at(0, front);
            let buffer = Buffer { address, len: self.len + HEADER as u32, write: false };
            let Some(id) = self.tx.add(&[buffer], None) else { break };
            self.sent[usize::from(id)] = address;
        }
        self.tx.publish();
    }

    /// Receives the available frames, and reads each frame's addresses, as a receiver does.
    fn receive(&mut self) -> u64 {
        let mut sum = 0;
        for _ in 0..64 {
            let Ok(Some((id, len))) = self.rx.take_used() else { break };
            let address = self.posted[usize::from(id)];
            let front = self.span(address, len.min(32)).as_span().read_array::<28>();
            sum += front.map_or(0, |front| u64::from(front[12]));
            self.post(address);
        }
        self.rx.publish();
        sum
    }
}

/// Results of a slice.
#[derive(Clone, Copy, Default)]
struct Slice {
    frames: u64,
    bursts: u64,
    busy: u64,
    all: u64,
}

#[inline(never)]
fn forward(
    turn: &ringway_mem::Turn<'_>,
    storage: &mut Storage,
    which: &[u16],
    from: &mut Queue,
    to: &mut Queue,
) -> u64 {
    let mut burst = Burst::begin(storage);
    from.tx.take(turn, &mut burst);
    if burst.is_empty() {
        return 0;
    }
    let fits = match to.rx.caps(turn) {
        Some(_) => to.rx.reserve(turn, &burst, &which[..burst.len()]),
        None => 0,
    };
    if fits == 0 {
        return 0;
    }
    to.rx.put(turn, &burst, &which[..fits]);
    from.tx.release(turn, fits);
    to.rx.publish(turn);
    fits as u64
}

/// Serves the queues until requested to stop, in slices of a millisecond.
fn serve(mut a: Queue, mut b: Queue, stop: &AtomicBool) -> Vec<Slice> {
    let Some(mut reader) = Reader::register() else { return Vec::new() };
    let clock = Clock::new();
    let mut storage = Storage::default();
    let which: Vec<u16> = (0..ringway_frame::BURST as u16).collect();
    let mut slices = Vec::new();
    let millisecond = (ticks_per_second() / 1000.0) as u64;
    while !stop.load(Ordering::Relaxed) {
        let mut slice = Slice::default();
        let start = ticks();
        let mut now = start;
        while now - start < millisecond {
            let turn = reader.turn(clock.now());
            let moved = forward(&turn, &mut storage, &which, &mut a, &mut b);
            let then = ticks();
            slice.frames += moved;
            slice.bursts += u64::from(moved > 0);
            slice.busy += if moved > 0 { then - now } else { 0 };
            now = then;
        }
        slice.all = now - start;
        slices.push(slice);
    }
    slices
}

/// Sends from one guest to the other.
fn make_load(from: &Own, to: &Own, len: u32, seconds: f64) -> Result<(), Box<dyn Error>> {
    let (mut from, mut to) = (Load::new(from, len)?, Load::new(to, len)?);
    let start = Instant::now();
    let mut sum = 0;
    while start.elapsed() < Duration::from_secs_f64(seconds) {
        for _ in 0..100 {
            from.transmit();
            sum += to.receive();
        }
    }
    std::hint::black_box(sum);
    Ok(())
}

/// Ticks per frame of each 50,000 frames, or of `count`, if one thread is both guests and the ports, so that no data
/// comes from another core's cache: the cost of the instructions. Ends when `goes_on` is false.
fn on_one_thread(
    case: Case,
    count: Option<u64>,
    mut goes_on: impl FnMut(f64) -> bool,
) -> Result<(), Box<dyn Error>> {
    let (mut a, mut b) = (guest(case)?, guest(case)?);
    let (Some(mut qa), Some(mut qb)) = (a.queue.take(), b.queue.take()) else {
        return Err("no queues".into());
    };
    let (mut from, mut to) = (Load::new(&a.own, case.len)?, Load::new(&b.own, case.len)?);
    let mut reader = Reader::register().ok_or("no reader")?;
    let clock = Clock::new();
    let mut storage = Storage::default();
    let which: Vec<u16> = (0..ringway_frame::BURST as u16).collect();
    if count.is_some() {
        println!("second core: {:#x}", forward as *const () as usize);
    }
    loop {
        let (mut moved, mut busy) = (0, 0);
        while moved < count.unwrap_or(50_000) {
            from.transmit();
            from.transmit();
            let turn = reader.turn(clock.now());
            let then = ticks();
            moved += forward(&turn, &mut storage, &which, &mut qa, &mut qb);
            busy += ticks() - then;
            to.receive();
        }
        if !goes_on(busy as f64 / moved as f64) {
            break;
        }
    }
    // Otherwise its last turn would be waited for.
    drop(reader);
    drop((a.front, b.front));
    Ok(())
}

/// The best of them in a time.
fn warm(case: Case, seconds: f64) -> Result<f64, Box<dyn Error>> {
    let start = Instant::now();
    let mut best = f64::INFINITY;
    on_one_thread(case, None, |ticks| {
        best = best.min(ticks);
        start.elapsed() < Duration::from_secs_f64(seconds)
    })?;
    Ok(best)
}

fn run(case: Case, seconds: f64) -> Result<(), Box<dyn Error>> {
    let (mut a, mut b) = (guest(case)?, guest(case)?);
    let (Some(qa), Some(qb)) = (a.queue.take(), b.queue.take()) else { return Err("no queues".into()) };
    let stop = AtomicBool::new(false);
    let (from, to) = (&a.own, &b.own);
    let slices = std::thread::scope(|scope| -> Result<Vec<Slice>, Box<dyn Error>> {
        let server = scope.spawn(|| {
            let _ = pin(1);
            serve(qa, qb, &stop)
        });
        // A separate thread, since pinning is permanent and inherited.
        let load = scope.spawn(|| {
            let _ = pin(0);
            let made = make_load(from, to, case.len, seconds).map_err(|error| error.to_string());
            stop.store(true, Ordering::Relaxed);
            made
        });
        load.join().map_err(|_| "the loading thread died")??;
        server.join().map_err(|_| "the serving thread died".into())
    })?;
    let rate = ticks_per_second();
    let per = |ticks: u64, frames: u64| ticks as f64 / frames.max(1) as f64;
    let some = || slices.iter().filter(|slice| slice.frames > 500);
    let busy = some().map(|slice| per(slice.busy, slice.frames)).fold(f64::INFINITY, f64::min);
    let all = some().map(|slice| per(slice.all, slice.frames)).fold(f64::INFINITY, f64::min);
    let mut each: Vec<f64> = some().map(|slice| per(slice.busy, slice.frames)).collect();
    each.sort_by(f64::total_cmp);
    let median = each.get(each.len() / 2).copied().unwrap_or(f64::NAN);
    let burst = per(some().map(|slice| slice.frames).sum(), some().map(|slice| slice.bursts).sum());
    let warm = warm(case, seconds / 4.0)?;
    println!(
        "{:6} {:5} B  ring {:4}{}: busy {busy:6.1} ticks a frame (median {median:6.1}; warm {warm:5.1}), \
         {:5.2} Mpps, burst {burst:4.1}",
        if case.packed { "packed" } else { "split" },
        case.len,
        case.size,
        if case.iommu { " iommu" } else { "" },
        rate / all / 1e6,
    );
    drop((a.front, b.front));
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let count = words.first().is_some_and(|word| word == "count");
    let seconds = words.first().and_then(|text| text.parse().ok()).unwrap_or(1.0);
    let frames = words.get(2).and_then(|text| text.parse().ok()).unwrap_or(6400);
    if words.get(3).is_some_and(|word| word == "traced") {
        ringway_host::permit_slow_wakes();
    }
    let only = words.get(1);
    for size in [256, 1024] {
        for len in [64, 1500] {
            for (packed, iommu) in [(false, false), (false, true), (true, false), (true, true)] {
                let name = format!("{}.{len}.{size}", if packed { "packed" } else { "split" });
                let name = name + if iommu { ".iommu" } else { "" };
                let case = Case { packed, len, size, iommu };
                match only {
                    Some(only) if *only != name => {}
                    _ if count => on_one_thread(case, Some(frames), |_| false)?,
                    _ => run(case, seconds)?,
                }
            }
        }
    }
    Ok(())
}
