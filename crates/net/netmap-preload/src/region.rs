//! The memory that a program maps: netmap's `netmap_if`, its rings, and their buffers.

use crate::Result;
use ringway_host::{Mapping, memfd};
use ringway_mem::{Hint, Memory, SpanMut, Words};
use std::os::fd::{AsRawFd, OwnedFd};

/// Bytes of a buffer.
pub const BUFFER: u32 = 2048;
/// Buffers 0 and 1 are in no slot and no list; netmap uses them itself.
const RESERVED: u32 = 2;
const PAGE: u64 = 4096;
/// Bytes of a `netmap_if`, and how many there are at the beginning, one for each handle of the port.
const INTERFACE: u64 = 128;
pub const INTERFACES: u32 = (PAGE / INTERFACE) as u32;
/// Bytes before the slots of a ring, and bytes of a slot.
const RING_HEADER: u64 = 256;
const SLOT: u64 = 16;

/// Offsets of fields of a ring.
const HEAD: u64 = 20;
const CUR: u64 = 24;
const TAIL: u64 = 28;
const TIME: u64 = 40;

/// Slot flags.
pub const BUF_CHANGED: u16 = 0x01;
pub const REPORT: u16 = 0x02;
pub const INDIRECT: u16 = 0x10;
pub const MOREFRAG: u16 = 0x20;

/// How large the parts are.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Slots of the rings to send and to receive.
    pub slots: [u32; 2],
    /// Buffers in no slot.
    pub extra: u32,
}

impl Sizes {
    fn ring(self, dir: usize) -> u64 {
        (RING_HEADER + SLOT * u64::from(self.slots[dir])).next_multiple_of(PAGE)
    }

    fn rings(self) -> [u64; 2] {
        [PAGE, PAGE + self.ring(0)]
    }

    fn buffers_at(self) -> u64 {
        PAGE + self.ring(0) + self.ring(1)
    }

    fn buffers(self) -> u32 {
        RESERVED + self.slots[0] + self.slots[1] + self.extra
    }

    /// Bytes of the whole.
    pub fn bytes(self) -> u64 {
        self.buffers_at() + u64::from(self.buffers()) * u64::from(BUFFER)
    }
}

/// A slot, as the program has written it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub buf_idx: u32,
    pub len: u16,
    pub flags: u16,
}

/// The memory.
#[derive(Debug)]
pub struct Region {
    file: OwnedFd,
    memory: Memory,
    sizes: Sizes,
    rings: [u64; 2],
    buffers_at: u64,
    buffers: u32,
}

impl Region {
    /// New memory.
    pub fn new(sizes: Sizes) -> Result<Region> {
        let file = memfd("ringway-netmap", sizes.bytes() as usize).map_err(|_| libc::ENOMEM)?;
        let mapping = Mapping::sealed(&file).map_err(|_| libc::ENOMEM)?;
        let memory = Memory::new(vec![mapping.region()]).map_err(|_| libc::ENOMEM)?;
        let (rings, buffers_at, buffers) = (sizes.rings(), sizes.buffers_at(), sizes.buffers());
        let region = Region { file, memory, sizes, rings, buffers_at, buffers };
        for dir in [0, 1] {
            region.fill_ring(dir);
        }
        region.fill_extra();
        Ok(region)
    }

    /// The descriptor to map.
    pub fn raw_fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    pub fn sizes(&self) -> Sizes {
        self.sizes
    }

    fn span(&self, at: u64, len: u32) -> SpanMut<'_> {
        self.memory.span_mut(at, len, &mut Hint::default()).unwrap_or(SpanMut::of(&mut []))
    }

    fn put<const N: usize>(&self, at: u64, bytes: [u8; N]) {
        self.span(at, N as u32).write_at(0, bytes);
    }

    fn load(&self, at: u64) -> u32 {
        Words::<u32>::new(self.span(at, 4)).map_or(0, |words| words.load_acquire(0))
    }

    fn store(&self, at: u64, value: u32) {
        if let Some(words) = Words::<u32>::new(self.span(at, 4)) {
            words.store_release(0, value);
        }
    }

    /// Fills the `netmap_if` number `number` for a handle of the port `name`, to which some rings are bound, and says
    /// where it is.
    pub fn fill_interface(&self, number: u32, name: &[u8], bound: [bool; 2], has_extra: bool) -> u64 {
        let place = u64::from(number) * INTERFACE;
        let name = name.get(..name.len().min(15)).unwrap_or_default();
        self.put(place, [0; 16]);
        self.span(place, 16).write(name);
        let extra = if has_extra { self.first_extra() } else { 0 };
        // The version, flags (memory of its own), rings to send and to receive, extra buffers, rings of the host.
        for (at, value) in [(16, 14), (20, 1), (24, 1), (28, 1), (32, extra), (36, 1), (40, 1)] {
            self.store(place + at, value);
        }
        // The ring to send, that of the host, the ring to receive, that of the host; 0 for those that are not bound.
        for dir in [0, 1] {
            let offset = if bound[dir] { self.rings[dir] - place } else { 0 };
            self.put(place + 56 + dir as u64 * 16, offset.to_ne_bytes());
        }
        place
    }

    fn fill_ring(&self, dir: usize) {
        let at = self.rings[dir];
        self.put(at, (self.buffers_at - at).to_ne_bytes());
        self.store(at + 8, self.sizes.slots[dir]);
        self.store(at + 12, BUFFER);
        self.store(at + 16, (dir as u32) << 16);
        if dir == 0 {
            self.store(at + TAIL, self.sizes.slots[0] - 1);
        }
        for slot in 0..self.sizes.slots[dir] {
            self.set_slot(dir, slot, Slot { buf_idx: self.own_buffer(dir, slot), len: 0, flags: 0 });
        }
    }

    /// The first buffer in no slot; 0: there is none.
    fn first_extra(&self) -> u32 {
        let first = RESERVED + self.sizes.slots[0] + self.sizes.slots[1];
        if first < self.buffers { first } else { 0 }
    }

    /// The list of extra buffers: each names the next one in its first word.
    fn fill_extra(&self) {
        let buffers = self.buffers - self.sizes.extra..self.buffers;
        for index in buffers {
            let next = if index + 1 < self.buffers { index + 1 } else { 0 };
            self.store(self.buffers_at + u64::from(index) * u64::from(BUFFER), next);
        }
    }

    /// The buffer that a slot had first.
    pub fn own_buffer(&self, dir: usize, slot: u32) -> u32 {
        RESERVED + slot + if dir == 1 { self.sizes.slots[0] } else { 0 }
    }

    fn slot_at(&self, dir: usize, slot: u32) -> u64 {
        self.rings[dir] + RING_HEADER + u64::from(slot) * SLOT
    }

    /// What a slot has now.
    #[inline]
    pub fn slot(&self, dir: usize, slot: u32) -> Slot {
        let bytes = self.span(self.slot_at(dir, slot), 8).as_span().read_array::<8>().unwrap_or_default();
        let word = u64::from_le_bytes(bytes);
        Slot { buf_idx: word as u32, len: (word >> 32) as u16, flags: (word >> 48) as u16 }
    }

    #[inline]
    pub fn set_slot(&self, dir: usize, at: u32, slot: Slot) {
        let word = u64::from(slot.buf_idx) | u64::from(slot.len) << 32 | u64::from(slot.flags) << 48;
        self.put(self.slot_at(dir, at), word.to_le_bytes());
    }

    /// The first bytes of a buffer. Attack: `None` for a number or a length that no buffer has.
    #[inline]
    pub fn buffer(&self, buf_idx: u32, len: u32) -> Option<SpanMut<'_>> {
        let is_there = (RESERVED..self.buffers).contains(&buf_idx) && len <= BUFFER;
        is_there.then(|| self.span(self.buffers_at + u64::from(buf_idx) * u64::from(BUFFER), len))
    }

    /// The program's head and cur.
    pub fn position(&self, dir: usize) -> (u32, u32) {
        let at = self.rings[dir];
        // `cur` may be ahead of `head`, never behind: a thread that writes both writes `cur` first.
        let head = self.load(at + HEAD);
        (head, self.load(at + CUR))
    }

    /// Puts head and cur back.
    pub fn set_position(&self, dir: usize, head: u32) {
        self.store(self.rings[dir] + HEAD, head);
        self.store(self.rings[dir] + CUR, head);
    }

    pub fn set_tail(&self, dir: usize, tail: u32) {
        self.store(self.rings[dir] + TAIL, tail);
    }

    /// When a sync took place.
    pub fn set_time(&self, dir: usize, time: std::time::Duration) {
        let at = self.rings[dir] + TIME;
        self.put(at, time.as_secs().to_ne_bytes());
        self.put(at + 8, u64::from(time.subsec_micros()).to_ne_bytes());
    }
}
