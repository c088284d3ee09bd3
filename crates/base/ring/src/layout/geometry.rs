//! Sizes and offsets in a ring's memory.

use super::slot::Slot;
use super::{SLOTS_MAX, SLOTS_MIN};

/// First eight bytes of a ring's memory.
pub const MAGIC: u64 = u64::from_le_bytes(*b"Ringway\0");
/// Version of the layout. Readers refuse any other.
pub const VERSION: u32 = 1;
/// Feature bits of this version; readers refuse others. Bits 0 to 4 are offloads that the program accepts in
/// received frames: checksum, TSO over IPv4, TSO over IPv6, ECN, USO.
pub const FEATURES: u32 = 0x1f;

/// Permitted sizes of a buffer in bytes.
const SLOT_SIZE: core::ops::RangeInclusive<u32> = 64..=32_768;
/// Buffer numbers have 16 bits.
const BUFFERS_MAX: u32 = 65_536;
/// Largest memory of a ring. Attack: a program that requests all of the host's memory.
pub const BYTES_MAX: u64 = 512 << 20;
const LINE: u32 = 64;
pub(super) const PAGE: u64 = 4096;
pub(super) const CLOSED: usize = 512;
pub(super) const CELLS: usize = 1024;

/// The two ends of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingKind {
    /// A program and Ringway.
    Port,
    /// Two programs.
    Pipe,
}

/// Why a requested ring is invalid, or why memory is not a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// The number of slots is not a power of two between 64 and 4096.
    Slots(u32),
    /// The buffer size is not a multiple of 64 between 64 and 32,768 bytes.
    SlotSize(u32),
    /// Fewer buffers than slots, or more than 65,536 buffers.
    Buffers(u32),
    /// Rings and buffers together would take more than 512 MB.
    Bytes(u64),
    /// The memory doesn't begin with the magic number.
    Magic,
    /// The memory has another version of the layout.
    Version(u32),
    /// Unknown feature bits.
    Features(u32),
    /// The memory is smaller than the header says, or the header's fields contradict each other.
    Size,
    /// The memory is not aligned to a page.
    Alignment,
    /// The program's buffers don't begin on a page, are fewer than the rings need, or are not within the memory.
    Pool,
}

impl core::fmt::Display for LayoutError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match *self {
            LayoutError::Slots(slots) => {
                write!(out, "a ring of {slots} slots: give a power of two between 64 and 4096")
            }
            LayoutError::SlotSize(size) => {
                write!(out, "slots of {size} bytes: give a multiple of 64 between 64 and 32768")
            }
            LayoutError::Buffers(count) => {
                write!(out, "{count} buffers: a ring needs one per slot, and at most 65536")
            }
            LayoutError::Bytes(bytes) => {
                write!(
                    out,
                    "the ring would take {bytes} bytes, more than 512 MB: reduce the number or size of slots"
                )
            }
            LayoutError::Magic => out.write_str("the memory is not a ring: it doesn't begin with `Ringway`"),
            LayoutError::Version(version) => write!(
                out,
                "the ring has layout version {version}, this program {VERSION}: rebuild the older one"
            ),
            LayoutError::Features(bits) => {
                write!(out, "the ring has unsupported features {bits:#x}")
            }
            LayoutError::Size => out.write_str("the ring's memory is smaller than its header says"),
            LayoutError::Alignment => out.write_str("the ring's memory is not aligned to a page"),
            LayoutError::Pool => out.write_str(
                "the program's buffers don't begin on a page, are too few, or are not within its memory",
            ),
        }
    }
}

impl core::error::Error for LayoutError {}

/// The header's fields, in order, from the first byte of the memory on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`VERSION`].
    pub version: u32,
    /// A subset of [`FEATURES`].
    pub features: u32,
    /// 0 for a port's ring, 1 for a pipe.
    pub kind: u32,
    /// Slots of ring 0 (TX) and of ring 1 (RX), each a power of two.
    pub slots: [u32; 2],
    /// Usable bytes of a buffer.
    pub slot_size: u32,
    /// Bytes from one buffer to the next.
    pub stride: u32,
    /// Number of buffers.
    pub buffers: u32,
    /// Largest unsegmented frame in bytes that the program receives; 0 means any.
    pub largest: u32,
    /// 0 if the buffers are in this memory. Otherwise they are in a [`BufferPool`], and this is its `first`.
    pub first: u32,
    /// Offset of each ring's slots in bytes.
    pub slots_at: [u64; 2],
    /// Offset of the buffers in bytes, in this memory or in that of the pool.
    pub buffers_at: u64,
    /// Total size in bytes.
    pub bytes: u64,
}

impl Header {
    /// Number of 8-byte words of a header in memory.
    pub const WORDS: usize = 10;

    pub(super) fn from_words(words: [u64; Header::WORDS]) -> Header {
        let low = |at: usize| words[at] as u32;
        let high = |at: usize| (words[at] >> 32) as u32;
        Header {
            magic: words[0],
            version: low(1),
            features: high(1),
            kind: low(2),
            slots: [high(2), low(3)],
            slot_size: high(3),
            stride: low(4),
            buffers: high(4),
            largest: low(5),
            first: high(5),
            slots_at: [words[6], words[7]],
            buffers_at: words[8],
            bytes: words[9],
        }
    }

    pub(super) fn to_words(self) -> [u64; Header::WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        [
            self.magic,
            pair(self.version, self.features),
            pair(self.kind, self.slots[0]),
            pair(self.slots[1], self.slot_size),
            pair(self.stride, self.buffers),
            pair(self.largest, self.first),
            self.slots_at[0],
            self.slots_at[1],
            self.buffers_at,
            self.bytes,
        ]
    }
}

/// Buffers in a memory that the program brings, instead of in the ring's own: several rings of a program can have the
/// same ones, so that a frame that was received by one is sent by another without a copy. They are `slot_size` bytes
/// apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferPool {
    /// Offset of buffer 0 in the memory in bytes, a multiple of 4096.
    pub at: u64,
    /// Number of buffers.
    pub buffers: u32,
    /// Number of the buffer that the TX ring's first slot names at first, at least 1. Those of the other slots follow,
    /// then those of the RX ring's.
    pub first: u32,
}

/// The parameters of a ring, from which the header is derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The kind of ring.
    pub kind: RingKind,
    /// Slots of the TX ring and of the RX ring.
    pub slots: [u32; 2],
    /// Bytes of a buffer.
    pub slot_size: u32,
    /// Buffers in addition to one per slot, for a program that keeps frames.
    pub extra: u32,
    /// A subset of [`FEATURES`].
    pub features: u32,
    /// Largest frame in bytes that the program receives; 0 means any.
    pub largest: u32,
    /// The program's buffers, instead of `extra` and those of the slots.
    pub pool: Option<BufferPool>,
}

impl Default for Geometry {
    fn default() -> Geometry {
        Geometry {
            kind: RingKind::Port,
            slots: [512, 512],
            slot_size: 2048,
            extra: 0,
            features: 0,
            largest: 0,
            pool: None,
        }
    }
}

impl Geometry {
    /// The header with these parameters.
    pub fn header(&self) -> Result<Header, LayoutError> {
        for slots in self.slots {
            if !slots.is_power_of_two() || !(SLOTS_MIN..=SLOTS_MAX).contains(&slots) {
                return Err(LayoutError::Slots(slots));
            }
        }
        if !SLOT_SIZE.contains(&self.slot_size) || !self.slot_size.is_multiple_of(LINE) {
            return Err(LayoutError::SlotSize(self.slot_size));
        }
        if self.features & !FEATURES != 0 {
            return Err(LayoutError::Features(self.features));
        }
        let first = PAGE;
        let second = first + u64::from(self.slots[0]) * Slot::SIZE as u64;
        let slots_end = (second + u64::from(self.slots[1]) * Slot::SIZE as u64).next_multiple_of(PAGE);
        // An odd number of cache lines, so that the first lines of buffers spread over all cache sets.
        let spread = ((self.slot_size / LINE) | 1) * LINE;
        let (buffers_at, buffers, stride) = match self.pool {
            Some(pool) => (pool.at, pool.buffers, self.slot_size),
            None => (slots_end, (self.slots[0] + self.slots[1]).saturating_add(self.extra), spread),
        };
        if buffers > BUFFERS_MAX {
            return Err(LayoutError::Buffers(buffers));
        }
        let buffers_end = buffers_at.saturating_add(u64::from(buffers) * u64::from(stride));
        let end = buffers_end.checked_next_multiple_of(PAGE).unwrap_or(buffers_end);
        if end > BYTES_MAX {
            return Err(LayoutError::Bytes(end));
        }
        let bytes = match self.pool {
            Some(pool) => {
                let own = pool.first.saturating_add(self.slots[0] + self.slots[1]);
                let is_right = pool.first > 0 && own <= buffers && pool.at.is_multiple_of(PAGE);
                if !is_right || self.kind == RingKind::Pipe || self.extra > 0 {
                    return Err(LayoutError::Pool);
                }
                slots_end
            }
            None => end,
        };
        Ok(Header {
            magic: MAGIC,
            version: VERSION,
            features: self.features,
            kind: u32::from(self.kind == RingKind::Pipe),
            slots: self.slots,
            slot_size: self.slot_size,
            stride,
            buffers,
            largest: self.largest,
            first: self.pool.map_or(0, |pool| pool.first),
            slots_at: [first, second],
            buffers_at,
            bytes,
        })
    }

    /// The parameters of a header that was read from memory of `bytes` bytes. An error unless
    /// [`Geometry::header`] of these parameters equals the header.
    pub fn check(header: Header, bytes: u64) -> Result<Geometry, LayoutError> {
        if header.magic != MAGIC {
            return Err(LayoutError::Magic);
        }
        if header.version != VERSION {
            return Err(LayoutError::Version(header.version));
        }
        // Attack: arbitrary numbers in the header. The parameters are checked one by one, and derived fields
        // must equal the computed ones.
        let kind = if header.kind == 0 { RingKind::Port } else { RingKind::Pipe };
        let slots = header.slots[0].saturating_add(header.slots[1]);
        let pool = (header.first != 0).then_some(BufferPool {
            at: header.buffers_at,
            buffers: header.buffers,
            first: header.first,
        });
        let extra = match pool {
            Some(_) => 0,
            None => header.buffers.checked_sub(slots).ok_or(LayoutError::Buffers(header.buffers))?,
        };
        let geometry = Geometry {
            kind,
            slots: header.slots,
            slot_size: header.slot_size,
            extra,
            features: header.features,
            largest: header.largest,
            pool,
        };
        if geometry.header()? != header || header.bytes > bytes {
            return Err(LayoutError::Size);
        }
        Ok(geometry)
    }
}
