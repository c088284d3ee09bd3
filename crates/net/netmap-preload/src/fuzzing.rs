//! What the fuzz targets and this crate's tests have in common: requests that say anything, and memory and descriptors
//! in which others have written anything.

#![allow(clippy::unwrap_used, reason = "a target fails by panicking")]

use crate::handles::stored;
use crate::monitor::{RECEIVED, SENT};
use crate::monitor_server;
use crate::port::{Port, Use};
use crate::region::{Region, Sizes};
use crate::shared::STATE;
use crate::transfer::{RX, TX};
use ringway_host::{EventFd, Mapping, descriptor_store, memfd, store_descriptors};
use ringway_ring::{Consumer, Geometry, Producer, RingMemory};
use ringway_ring_client::{PendingRing, Ring, RingParts};
use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

pub(crate) const SIZES: Sizes = Sizes { slots: [64, 128], extra: 3, is_in_place: false };
pub(crate) const IN_PLACE: Sizes = Sizes { slots: [64, 100], extra: 0, is_in_place: true };
pub(crate) const BOTH: Use = Use { number: 0, bound: [true; 2], sends: true, receives: true, monitor: None };

/// A port, and the other side of its ring with the memory that both have.
pub(crate) fn port() -> (Port, Ring, ringway_mem::Region) {
    let region = Region::new(SIZES, |_| false).unwrap();
    let (own, other) = UnixStream::pair().unwrap();
    let parts = RingParts::offer(own, 64, 2048).unwrap();
    let common = Mapping::sealed(&parts.memory).unwrap().region();
    let file = RefCell::new(None);
    let map = |memory: &OwnedFd| {
        *file.borrow_mut() = memory.try_clone().ok();
        Ok(Mapping::sealed(memory)?.region())
    };
    let ring = PendingRing::offered(other).ring_by(None, &map).unwrap();
    let memory = file.into_inner().unwrap();
    let port = Port::of_fabric(region.give(SIZES).unwrap(), ring, &memory).unwrap();
    (port, Ring::from_parts(parts).unwrap(), common)
}

/// The fabric's side of the ring of a port that has its buffers in netmap's memory.
pub(crate) struct Fabric {
    pub memory: RingMemory,
    pub tx: Consumer,
    pub rx: Producer,
    _socket: UnixStream,
}

/// A port in this memory, and the fabric's side of its ring.
pub(crate) fn in_place_port(region: &Arc<Region>) -> (Port, Fabric) {
    let rings = region.give(IN_PLACE).unwrap();
    let pool = region.pool(rings.place).unwrap();
    let geometry = Geometry { slots: [64, 128], pool: Some(pool.place), ..Geometry::default() };
    let memory = memfd("ring", geometry.header().unwrap().bytes as usize).unwrap();
    let ring = Mapping::sealed(&memory).unwrap().region();
    let made = RingMemory::create_with(ring, Some(pool.region), &geometry).unwrap();
    let (socket, other) = UnixStream::pair().unwrap();
    let [kick, call] = [(), ()].map(|()| EventFd::new().unwrap().into_fd());
    let copy = memory.try_clone().unwrap();
    let parts = RingParts { memory, kick, call, socket, is_second: false };
    let ring = Ring::from_parts_with(parts, region.mapped()).unwrap();
    let fabric = Fabric {
        tx: Consumer::new(&made, ringway_ring::TX),
        rx: Producer::new(&made, ringway_ring::RX),
        memory: made,
        _socket: other,
    };
    (Port::of_fabric(rings, ring, &copy).unwrap(), fabric)
}

/// The other side of a port's ring.
trait Other {
    fn memory(&self) -> &ringway_mem::Region;
    fn send(&mut self, frame: &[u8]);
    fn take(&mut self);
}

impl Other for (Ring, ringway_mem::Region) {
    fn memory(&self) -> &ringway_mem::Region {
        &self.1
    }

    fn send(&mut self, frame: &[u8]) {
        let _ = self.0.tx.push(frame);
        let _ = self.0.sync();
    }

    fn take(&mut self) {
        let _ = self.0.rx.pop(&mut [0; 64]);
        let _ = self.0.sync();
    }
}

impl Other for Fabric {
    fn memory(&self) -> &ringway_mem::Region {
        self.memory.region()
    }

    fn send(&mut self, frame: &[u8]) {
        // A fabric has no frame without bytes.
        if !frame.is_empty() {
            let _ = self.rx.push(&self.memory, frame, [0; 10]);
            self.rx.publish(&self.memory);
        }
    }

    fn take(&mut self) {
        let _ = self.tx.pop(&self.memory, &mut [0; 64]);
        self.tx.publish(&self.memory);
    }
}

/// What somebody does with the memory that a port has in common with others. Places are numbers of words.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// The program writes a word of what it maps.
    Program(u64, u32),
    /// Another process writes a word of the states.
    State(u64, u32),
    /// The ring's other side, or another program that passed the ring, writes a word of it.
    Other(u64, u32),
    /// The program sets `head` and `cur` of the ring to send (0) or to receive (1).
    Positions(usize, u32, u32),
    /// The program syncs a ring.
    Sync(usize),
    /// The program polls for these events.
    Poll(i16),
    /// The other side sends a frame of this length.
    Send(u16),
    /// The other side takes a frame.
    Take,
}

/// A port whose memory others write.
pub struct Shared {
    port: Port,
    uses: Vec<Use>,
    other: Box<dyn Other>,
}

impl Shared {
    /// A port whose frames are copied, with a monitor, whose state is behind the port's.
    pub fn copied() -> Shared {
        let (mut port, other, common) = port();
        let request = monitor_server::Request { kinds: SENT | RECEIVED, slots: 64 };
        let (monitor, _) = port.make_monitor(request, b"a").unwrap();
        Shared { port, uses: vec![BOTH, monitor], other: Box::new((other, common)) }
    }

    /// A port whose ring has its buffers in netmap's memory.
    pub fn in_place() -> Shared {
        let (port, fabric) = in_place_port(&Region::new(IN_PLACE, |_| false).unwrap());
        Shared { port, uses: vec![BOTH], other: Box::new(fabric) }
    }

    /// Does this.
    ///
    /// # Panics
    /// If positions are not a ring's then.
    pub fn step(&mut self, step: Step) {
        let Shared { port, uses, other } = self;
        let region = port.rings.region.clone();
        match step {
            Step::Program(at, value) => region.store(port.rings.place.rings[0] + at * 4, value),
            Step::State(at, value) => match at % (2 * STATE / 4) {
                // The lock's word would only make it wait.
                0 => {}
                at => region.store(region.states_at() + at * 4, value),
            },
            Step::Other(at, value) => {
                if let Some(part) = other.memory().part(at * 4, 4) {
                    // SAFETY: within the memory, which others access as atomics, too.
                    let word = unsafe { AtomicU32::from_ptr(part.base().as_ptr().cast()) };
                    word.store(value, Relaxed);
                }
            }
            Step::Positions(dir, head, cur) => port.rings.set_position(dir, (head, cur)),
            Step::Sync(dir) => {
                for own in uses.iter() {
                    let _ = port.sync_for(*own, dir);
                }
            }
            Step::Poll(events) => {
                for own in uses.iter() {
                    let _ = (port.poll(*own, events), port.arm(*own, events));
                }
            }
            Step::Send(len) => other.send(&vec![1; len.into()]),
            Step::Take => other.take(),
        }
        for dir in [TX, RX] {
            let side = port.positions(dir);
            assert!(side.head < side.slots && side.tail < side.slots && side.next < side.slots);
        }
    }
}

/// Passes something that looks like a handle of a port with these words and descriptors (memory of a port, a socket, or
/// memory that is too short).
///
/// # Panics
/// If it is taken for a handle.
pub fn pass(words: [u64; 11], kinds: &[u8], number: u64) {
    let store = descriptor_store(true).unwrap();
    let region = Region::new(SIZES, |_| false).unwrap();
    let (one, _two) = UnixStream::pair().unwrap();
    let short = memfd("short", 4096).unwrap();
    let descriptor = |kind: &u8| match kind {
        0 => region.as_fd(),
        1 => one.as_fd(),
        _ => short.as_fd(),
    };
    let fds: Vec<_> = kinds.iter().map(descriptor).collect();
    let magic = u64::from_le_bytes(*b"rw-port1");
    let bytes: Vec<u8> = [magic].into_iter().chain(words).flat_map(u64::to_ne_bytes).collect();
    store_descriptors(&store, &bytes, &fds).unwrap();
    let handle = descriptor_store(true).unwrap();
    let [magic, both] = [u64::from_le_bytes(*b"rw-hand1"), 3];
    let bytes: Vec<u8> = [magic, number, both].into_iter().flat_map(u64::to_ne_bytes).collect();
    store_descriptors(&handle, &bytes, &[store.as_fd(), store.as_fd()]).unwrap();
    assert!(stored(handle.as_raw_fd()).is_err());
    if let Ok(mut port) = Port::adopt(store, |_| None) {
        let _ = (port.sync(TX), port.sync(RX), port.poll(BOTH, libc::POLLIN), port.watch());
    }
}

/// A request of a program.
#[derive(Clone, Debug, Default)]
pub struct Request<'r> {
    /// It is a `struct nmreq`; `Some(true)`: `NIOCGINFO`.
    pub old: Option<bool>,
    /// What a `struct nmreq_header` asks for.
    pub kind: u16,
    /// The version of a `struct nmreq_header`.
    pub version: u16,
    /// Up to 64 bytes, or 16 of a `struct nmreq`.
    pub name: &'r [u8],
    /// Words of the body, or of a `struct nmreq`, whose name is put there.
    pub body: Vec<u32>,
    /// Kind, size and first words of each option. Attack: one that says that it has more bytes than it has is the
    /// program's fault, so that there are as many.
    pub options: Vec<(u32, u64, [u64; 2])>,
}

impl Request<'_> {
    /// Asks this of a new handle, and uses what it registers; the errno, if it is refused.
    ///
    /// # Errors
    /// An errno.
    pub fn ask(mut self) -> crate::Result<()> {
        // As many bytes as any body has.
        self.body.resize(64, 0);
        // An option has 24 bytes, and as many behind it as it may say.
        let mut chain = vec![[0_u64; 520]; self.options.len()];
        let mut next = 0;
        for (place, (kind, size, words)) in chain.iter_mut().zip(&self.options).rev() {
            // The program promises as many bytes as it says, up to what is refused.
            let size = if *kind == 2 && *size <= 4096 { *size } else { size % 100 };
            place[..5].copy_from_slice(&[next, u64::from(*kind), size, words[0], words[1]]);
            next = place.as_ptr().addr() as u64;
        }
        let store = descriptor_store(true).unwrap();
        let fd = store.as_raw_fd();
        crate::handles::begin(fd).unwrap();
        let handle = crate::handles::get(fd).unwrap();
        let at = self.body.as_mut_ptr();
        let done = if let Some(is_info) = self.old {
            let mut bytes = [0; 16];
            let len = self.name.len().min(16);
            bytes[..len].copy_from_slice(&self.name[..len]);
            // SAFETY: the vector has more bytes than a `struct nmreq`.
            unsafe {
                at.cast::<[u8; 16]>().write(bytes);
                crate::request::old(fd, handle, at.cast(), is_info)
            }
        } else {
            let mut header = [0_u64; 11];
            header[0] = u64::from(self.version) | u64::from(self.kind) << 16;
            for (at, byte) in self.name.iter().take(64).enumerate() {
                header[1 + at / 8] |= u64::from(*byte) << (at % 8 * 8);
            }
            (header[9], header[10]) = (next, at.addr() as u64);
            // SAFETY: header, options and body are as long as they say.
            unsafe { crate::request::control(fd, handle, header.as_mut_ptr().cast()) }
        };
        if done.is_ok() {
            for dir in [TX, RX] {
                let _ = handle.sync(fd, dir);
            }
            handle.poll(fd, libc::POLLIN | libc::POLLOUT);
        }
        drop(crate::handles::closed(fd));
        done
    }
}
