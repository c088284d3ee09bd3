//! A front-end whose driver sleeps between frames, like a kernel's: it kicks only if the device has enabled kicks,
//! and
//! waits for interrupts that it has enabled.
use ringway_host::{EventFd, map_region, memfd, receive_with, send_with, wait_readable};
use ringway_mem::{Hint, Memory, SpanMut};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{Frontend, MemoryRegion, Packet, SharedRegion, Transport, Vring, VringAddr};
use ringway_virtq::{Areas, Buffer, Driver, Layout};
use std::error::Error;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// Errors of a driver.
pub type Failure = Box<dyn Error + Send + Sync>;

const SIZE: u64 = 1 << 20;
/// The memory's user address according to the front-end.
const USER: u64 = 0x7000_0000_0000;
/// Bytes of each area of a ring.
const PART: u64 = 0x1000;
/// Addresses of the buffers for received and for sent frames.
const RECEIVED: u64 = 0x1_0000;
const SENT: u64 = 0x2_0000;
const BUFFER: u32 = 2048;
const HEADER: usize = 12;
/// Bytes of a frame: addresses, type, padding.
const FRAME: usize = 60;
/// Descriptors of a ring: few, so that it often fills and wraps.
const DESCRIPTORS: u16 = 32;

struct Stream(UnixStream);

impl Transport for Stream {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        send_with(self.0.as_fd(), &packet.bytes, &fds).map_err(io::Error::other).map(drop)
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        receive_with(self.0.as_fd(), bytes, 8).map_err(io::Error::other)
    }
}

/// The guest's memory and connection; rings run while it is open.
pub struct Machine {
    memory: Arc<Memory>,
    kicks: [EventFd; 2],
    calls: [EventFd; 2],
    layout: Layout,
    _front: Frontend<Stream>,
}

impl Machine {
    /// Connects to the port that listens on `socket`, with split or packed rings.
    pub fn connect(socket: &Path, packed: bool) -> Result<Machine, Failure> {
        let file = memfd("sleeper", SIZE as usize)?;
        let memory = Arc::new(Memory::new(vec![map_region(&file, 0, SIZE, 0, USER)?])?);
        let layout = Layout { packed, size: DESCRIPTORS, event_idx: true, indirect: false };
        let bits = if packed { virtio::RING_PACKED } else { 0 };
        let features = virtio::VERSION_1 | virtio::EVENT_IDX | bits;
        let stream = Stream(UnixStream::connect(socket)?);
        let mut front = Frontend::negotiate(stream, features, protocol::REPLY_ACK)?;
        if front.features() & features != features {
            return Err("the back-end lacks a feature".into());
        }
        let region = MemoryRegion { guest: 0, size: SIZE, user: USER, offset: 0 };
        front.set_memory(vec![SharedRegion { region, fd: file }])?;
        let kicks = [EventFd::new()?, EventFd::new()?];
        let calls = [EventFd::new()?, EventFd::new()?];
        for index in 0..2 {
            let [descriptors, available, used] = parts(index).map(|at| USER + at);
            let number = index as u32;
            let addresses = VringAddr { index: number, flags: 0, descriptors, available, used, log: 0 };
            let kick = Some(kicks[index].as_fd().try_clone_to_owned()?);
            let call = Some(calls[index].as_fd().try_clone_to_owned()?);
            let base = if packed { 0x8000 } else { 0 };
            front.start(Vring { size: DESCRIPTORS, addresses, base, kick, call })?;
        }
        Ok(Machine { memory, kicks, calls, layout, _front: front })
    }

    fn span(&self, at: u64, len: u32) -> Result<SpanMut<'_>, Failure> {
        self.memory.span_mut(at, len, &mut Hint::default()).ok_or_else(|| "outside the memory".into())
    }

    fn driver(&self, ring: usize) -> Result<Driver<'_>, Failure> {
        let (at, lengths) = (parts(ring), self.layout.lengths()?);
        let areas = Areas {
            descriptors: self.span(at[0], lengths.descriptors)?,
            driver: self.span(at[1], lengths.driver)?,
            device: self.span(at[2], lengths.device)?,
        };
        Ok(Driver::new(&self.layout, areas)?)
    }

    /// Starts the driver, with all receive buffers posted.
    pub fn start(&self, mac: u8) -> Result<Sleeper<'_>, Failure> {
        let mut sleeper = Sleeper { machine: self, mac, rx: self.driver(0)?, tx: self.driver(1)? };
        sleeper.tx.set_flag(false);
        for _ in 0..DESCRIPTORS {
            sleeper.offer()?;
        }
        sleeper.rx.publish();
        sleeper.kick(0);
        Ok(sleeper)
    }
}

/// Addresses of a ring's areas.
fn parts(ring: usize) -> [u64; 3] {
    [0, 1, 2].map(|part| (3 * ring as u64 + part) * PART)
}

/// The driver of a [`Machine`].
pub struct Sleeper<'m> {
    machine: &'m Machine,
    mac: u8,
    rx: Driver<'m>,
    tx: Driver<'m>,
}

impl Sleeper<'_> {
    fn kick(&mut self, ring: usize) {
        let driver = if ring == 0 { &mut self.rx } else { &mut self.tx };
        if driver.wants_kick() {
            self.machine.kicks[ring].signal();
        }
    }

    /// Posts one more receive buffer.
    fn offer(&mut self) -> Result<(), Failure> {
        // Received data is not read, so all descriptors share one buffer.
        let buffer = Buffer { address: RECEIVED, len: BUFFER, write: true };
        self.rx.add(&[buffer], None).map(drop).ok_or_else(|| "no descriptor is free".into())
    }

    /// Sends a frame to station `to`; waits while the ring is full.
    pub fn send(&mut self, to: u8, bound: Duration) -> Result<(), Failure> {
        while self.tx.take_used()?.is_some() {}
        while self.tx.free() == 0 {
            self.sleep(1, bound)?;
            while self.tx.take_used()?.is_some() {}
        }
        // All frames to a station are equal, so a buffer in flight may be overwritten.
        let at = SENT + u64::from(to) * u64::from(BUFFER);
        let len = (HEADER + FRAME) as u32;
        let span = self.machine.span(at, len)?;
        let mut bytes = [0; HEADER + FRAME];
        bytes[HEADER..HEADER + 6].copy_from_slice(&station(to));
        bytes[HEADER + 6..HEADER + 12].copy_from_slice(&station(self.mac));
        bytes[HEADER + 12..HEADER + 14].copy_from_slice(&[0x88, 0xb5]);
        span.write_at(0, bytes);
        self.tx.add(&[Buffer { address: at, len, write: false }], None).ok_or("no descriptor is free")?;
        self.tx.publish();
        self.kick(1);
        Ok(())
    }

    /// Waits for frames for at most `bound`, and takes all of them; returns their number.
    pub fn receive(&mut self, bound: Duration) -> Result<u32, Failure> {
        loop {
            let mut count = 0;
            while self.rx.take_used()?.is_some() {
                self.offer()?;
                count += 1;
            }
            if count > 0 {
                self.rx.publish();
                self.kick(0);
                return Ok(count);
            }
            self.sleep(0, bound)?;
        }
    }

    /// Waits for an interrupt of a ring without used buffers.
    fn sleep(&mut self, ring: usize, bound: Duration) -> Result<(), Failure> {
        let call = &self.machine.calls[ring];
        let driver = if ring == 0 { &mut self.rx } else { &mut self.tx };
        driver.set_flag(true);
        fence(Ordering::SeqCst);
        if !driver.pending() {
            wait_readable(&[call.as_fd()], Some(bound.as_nanos() as u64))?;
            // Only an interrupt reports used buffers, so a missing one is lost.
            let late = driver.pending();
            if !call.clear() {
                let what = if late { "used buffers are not reported" } else { "no buffer is used" };
                let name = ["receive", "transmit"][ring];
                return Err(format!("no interrupt for {bound:?} on the {name} queue: {what}").into());
            }
        }
        driver.set_flag(false);
        Ok(())
    }
}

fn station(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 1, number]
}
