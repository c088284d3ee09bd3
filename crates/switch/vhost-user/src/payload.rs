//! Payloads that several messages share.

use crate::codec::{CodecError, Fields, Writer};
use std::os::fd::OwnedFd;

/// Largest number of regions of a memory table. With `CONFIGURE_MEM_SLOTS` there can be more.
pub const BASELINE_REGIONS: usize = 8;
/// Largest number of configuration space bytes in a message.
pub const CONFIG: usize = 256;

/// A ring's index and a value: the ring's size, its position, or whether it is enabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VringState {
    /// Which ring.
    pub index: u32,
    /// The value.
    pub num: u32,
}

/// User addresses of a ring's areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VringAddr {
    /// Which ring.
    pub index: u32,
    /// Bit 0: writes to the used ring are logged.
    pub flags: u32,
    /// Descriptor table, or the packed ring.
    pub descriptors: u64,
    /// Used ring, or device event suppression.
    pub used: u64,
    /// Available ring, or driver event suppression.
    pub available: u64,
    /// Guest-physical address of the used ring, for the log.
    pub log: u64,
}

/// A ring index with an optional descriptor.
#[derive(Debug)]
pub struct VringFd {
    /// Which ring.
    pub index: u32,
    /// The descriptor; `None` means polling, or no notification.
    pub fd: Option<OwnedFd>,
}

/// A range of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRegion {
    /// Guest-physical address.
    pub guest: u64,
    /// Size in bytes.
    pub size: u64,
    /// User address: the address in the front-end.
    pub user: u64,
    /// Offset of the range in its file.
    pub offset: u64,
}

/// A memory region and its file.
#[derive(Debug)]
pub struct SharedRegion {
    /// The region.
    pub region: MemoryRegion,
    /// The file.
    pub fd: OwnedFd,
}

/// A part of the device's configuration space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Offset in the configuration space.
    pub offset: u32,
    /// 0: writable by the driver; 1: set by live migration.
    pub flags: u32,
    /// The bytes; empty in a reply that reports a failure.
    pub bytes: Vec<u8>,
}

/// Shared memory that tracks in-flight descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inflight {
    /// Size in bytes.
    pub size: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Number of rings.
    pub queues: u16,
    /// Number of descriptors of each ring.
    pub queue_size: u16,
}

/// The file range of the dirty log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log {
    /// Size in bytes.
    pub size: u64,
    /// Offset in the file.
    pub offset: u64,
}

/// An IOTLB message: an update, an invalidation, a miss or a failed access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iotlb {
    /// First I/O virtual address.
    pub iova: u64,
    /// Size in bytes.
    pub size: u64,
    /// User address: the address in the front-end.
    pub user: u64,
    /// 1: read, 2: write, 3: both.
    pub permissions: u8,
    /// [`Iotlb::MISS`], [`Iotlb::UPDATE`], [`Iotlb::INVALIDATE`] or [`Iotlb::ACCESS_FAIL`].
    pub kind: u8,
}

impl VringState {
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<VringState, CodecError> {
        let state = VringState { index: fields.u32()?, num: fields.u32()? };
        fields.end(0)?;
        Ok(state)
    }

    pub(crate) fn encode(self) -> Writer {
        Writer::default().u32(self.index).u32(self.num)
    }
}

impl VringAddr {
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<VringAddr, CodecError> {
        let addr = VringAddr {
            index: fields.u32()?,
            flags: fields.u32()?,
            descriptors: fields.u64()?,
            used: fields.u64()?,
            available: fields.u64()?,
            log: fields.u64()?,
        };
        fields.end(0)?;
        Ok(addr)
    }

    pub(crate) fn encode(self) -> Writer {
        let start = Writer::default().u32(self.index).u32(self.flags);
        start.u64(self.descriptors).u64(self.used).u64(self.available).u64(self.log)
    }
}

impl VringFd {
    const INDEX: u64 = 0xff;
    const NO_FD: u64 = 1 << 8;

    pub(crate) fn decode(fields: &mut Fields<'_>, fds: Vec<OwnedFd>) -> Result<VringFd, CodecError> {
        let word = fields.u64()?;
        fields.end(0)?;
        if word & !(VringFd::INDEX | VringFd::NO_FD) != 0 {
            return Err(fields.invalid("ring index"));
        }
        let want = usize::from(word & VringFd::NO_FD == 0);
        // Attack: surplus descriptors, which would exhaust the process's limit.
        if fds.len() != want {
            return Err(CodecError::Descriptors { request: fields.request(), got: fds.len(), want });
        }
        Ok(VringFd { index: (word & VringFd::INDEX) as u32, fd: fds.into_iter().next() })
    }

    pub(crate) fn encode(self) -> (Writer, Vec<OwnedFd>) {
        let flag = if self.fd.is_none() { VringFd::NO_FD } else { 0 };
        let word = u64::from(self.index) & VringFd::INDEX | flag;
        (Writer::default().u64(word), self.fd.into_iter().collect())
    }
}

impl MemoryRegion {
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<MemoryRegion, CodecError> {
        Ok(MemoryRegion {
            guest: fields.u64()?,
            size: fields.u64()?,
            user: fields.u64()?,
            offset: fields.u64()?,
        })
    }

    pub(crate) fn encode(self, writer: Writer) -> Writer {
        writer.u64(self.guest).u64(self.size).u64(self.user).u64(self.offset)
    }

    /// Decodes a single region, as sent for memory slots, with eight bytes of padding before it.
    pub(crate) fn decode_single(fields: &mut Fields<'_>) -> Result<MemoryRegion, CodecError> {
        fields.u64()?;
        let region = MemoryRegion::decode(fields)?;
        fields.end(0)?;
        Ok(region)
    }

    pub(crate) fn encode_single(self) -> Writer {
        self.encode(Writer::default().u64(0))
    }

    /// Decodes a memory table. Unused entries may follow: User-Mode Linux always sends two.
    pub(crate) fn decode_table(fields: &mut Fields<'_>) -> Result<Vec<MemoryRegion>, CodecError> {
        let count = fields.u32()? as usize;
        fields.u32()?;
        if count > BASELINE_REGIONS {
            return Err(fields.invalid("number of memory regions"));
        }
        let regions = (0..count).map(|_| MemoryRegion::decode(fields)).collect::<Result<_, _>>()?;
        fields.end((BASELINE_REGIONS - count) * 32)?;
        Ok(regions)
    }
}

impl Config {
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Config, CodecError> {
        let (offset, size, flags) = (fields.u32()?, fields.u32()? as usize, fields.u32()?);
        // Attack: a range outside the configuration space.
        if size > CONFIG || offset as usize + size > CONFIG {
            return Err(fields.invalid("range of the configuration space"));
        }
        let bytes = fields.bytes(size)?.to_vec();
        fields.end(CONFIG)?;
        Ok(Config { offset, flags, bytes })
    }

    /// Decodes a request for configuration space. The request may omit the bytes.
    pub(crate) fn decode_request(fields: &mut Fields<'_>) -> Result<Config, CodecError> {
        let (offset, size, flags) = (fields.u32()?, fields.u32()? as usize, fields.u32()?);
        if size > CONFIG || offset as usize + size > CONFIG {
            return Err(fields.invalid("range of the configuration space"));
        }
        fields.end(CONFIG)?;
        Ok(Config { offset, flags, bytes: vec![0; size] })
    }

    pub(crate) fn encode(&self) -> Writer {
        let size = self.bytes.len() as u32;
        Writer::default().u32(self.offset).u32(size).u32(self.flags).bytes(&self.bytes)
    }
}

impl Inflight {
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Inflight, CodecError> {
        let inflight = Inflight {
            size: fields.u64()?,
            offset: fields.u64()?,
            queues: fields.u16()?,
            queue_size: fields.u16()?,
        };
        fields.end(4)?;
        Ok(inflight)
    }

    pub(crate) fn encode(self) -> Writer {
        let writer = Writer::default().u64(self.size).u64(self.offset);
        writer.u16(self.queues).u16(self.queue_size).u32(0)
    }
}

impl Log {
    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Log, CodecError> {
        let log = Log { size: fields.u64()?, offset: fields.u64()? };
        fields.end(0)?;
        Ok(log)
    }

    pub(crate) fn encode(self) -> Writer {
        Writer::default().u64(self.size).u64(self.offset)
    }
}

impl Iotlb {
    /// The back-end requests a translation.
    pub const MISS: u8 = 1;
    /// The front-end adds a translation.
    pub const UPDATE: u8 = 2;
    /// The front-end removes translations.
    pub const INVALIDATE: u8 = 3;
    /// The back-end reports a failed access.
    pub const ACCESS_FAIL: u8 = 4;

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Iotlb, CodecError> {
        let iotlb = Iotlb {
            iova: fields.u64()?,
            size: fields.u64()?,
            user: fields.u64()?,
            permissions: fields.u8()?,
            kind: fields.u8()?,
        };
        fields.end(6)?;
        if !(Iotlb::MISS..=Iotlb::ACCESS_FAIL).contains(&iotlb.kind) {
            return Err(fields.invalid("IOTLB message type"));
        }
        // QEMU leaves the permissions of an invalidation unset.
        if iotlb.kind != Iotlb::INVALIDATE && !(1..=3).contains(&iotlb.permissions) {
            return Err(fields.invalid("permission field"));
        }
        Ok(iotlb)
    }

    pub(crate) fn encode(self) -> Writer {
        let writer = Writer::default().u64(self.iova).u64(self.size).u64(self.user);
        writer.bytes(&[self.permissions, self.kind, 0, 0, 0, 0, 0, 0])
    }
}
