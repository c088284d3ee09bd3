//! Regions of a device, and their descriptions in messages.

use crate::codec::{CodecError, split};
use crate::header::command;
use crate::payload::{Area, Capability, RegionInfo, RegionIoFds, SparseMmap, SubRegion};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A region of a device: a base address register, the configuration space.
#[derive(Clone, Debug, Default)]
pub struct Region {
    /// Bytes; 0 if the device does not have it.
    pub size: u64,
    /// [`RegionInfo::READ`] and [`RegionInfo::WRITE`].
    pub flags: u32,
    /// The memory that a client can map in its place. One mapping makes QEMU wait for the reply to each write
    /// to the device.
    pub mapping: Option<Mapping>,
    /// Registers whose writes only wake the device.
    pub doorbells: Vec<RegionDoorbell>,
}

/// A register that signals an eventfd when it is written, whatever is written. KVM does so without an exit to the
/// client; the device does not learn of such a write by a message. QEMU does not ask for them.
#[derive(Clone, Debug)]
pub struct RegionDoorbell {
    /// Its offset in the region.
    pub offset: u64,
    /// Bytes.
    pub size: u64,
    /// The eventfd.
    pub eventfd: Arc<OwnedFd>,
}

/// Memory behind a region.
#[derive(Clone, Debug)]
pub struct Mapping {
    /// Its file.
    pub file: Arc<OwnedFd>,
    /// Offset of the region in the file.
    pub offset: u64,
    /// The parts that can be mapped; none means the whole region.
    pub areas: Vec<Area>,
}

/// A region as described to a client.
#[derive(Debug)]
pub struct SharedRegion {
    /// Its size, flags, and offset in the file.
    pub info: RegionInfo,
    /// The parts that can be mapped; none, with [`RegionInfo::MMAP`], means the whole region.
    pub areas: Vec<Area>,
    /// The file to map.
    pub file: Option<OwnedFd>,
}

const INFO: usize = size_of::<RegionInfo>();

impl Region {
    /// The reply about this region. One that does not fit into `argsz` bytes is cut after the fixed part;
    /// QEMU requires a valid `cap_offset` there too, and asks again.
    pub(crate) fn encode(&self, index: u32, argsz: usize) -> Vec<u8> {
        let mut info = RegionInfo { index, size: self.size, flags: self.flags, ..RegionInfo::default() };
        let mut capability = Vec::new();
        if let Some(mapping) = &self.mapping {
            info.flags |= RegionInfo::MMAP;
            info.offset = mapping.offset;
            if !mapping.areas.is_empty() {
                (info.flags, info.cap_offset) = (info.flags | RegionInfo::CAPS, INFO as u32);
                let header = Capability { id: SparseMmap::ID, version: SparseMmap::VERSION, next: 0 };
                let sparse = SparseMmap { header, areas: mapping.areas.len() as u32, reserved: 0 };
                capability = [sparse.as_bytes(), mapping.areas.as_bytes()].concat();
            }
        }
        info.argsz = (INFO + capability.len()) as u32;
        if info.argsz as usize > argsz {
            capability.clear();
        }
        [info.as_bytes(), &capability].concat()
    }

    /// The reply about its doorbells, with their eventfds; without any if it does not fit into `argsz` bytes.
    pub(crate) fn encode_doorbells(&self, index: u32, argsz: usize) -> (Vec<u8>, Vec<Arc<OwnedFd>>) {
        let all = size_of::<RegionIoFds>() + self.doorbells.len() * size_of::<SubRegion>();
        let fitting = if all > argsz { &[][..] } else { &self.doorbells };
        let count = fitting.len() as u32;
        let mut reply = RegionIoFds { argsz: all as u32, flags: 0, index, count }.as_bytes().to_vec();
        for (fd_index, RegionDoorbell { offset, size, .. }) in (0..).zip(fitting) {
            let (offset, size, kind) = (*offset, *size, SubRegion::IOEVENTFD);
            let part = SubRegion { offset, size, fd_index, kind, ..SubRegion::default() };
            reply.extend_from_slice(part.as_bytes());
        }
        (reply, fitting.iter().map(|doorbell| doorbell.eventfd.clone()).collect())
    }
}

impl RegionDoorbell {
    /// The doorbells in a reply; parts of other kinds are left out.
    pub(crate) fn decode(payload: &[u8], fds: Vec<OwnedFd>) -> Result<Vec<RegionDoorbell>, CodecError> {
        let command = command::DEVICE_GET_REGION_IO_FDS;
        let (RegionIoFds { count, .. }, rest) = split::<RegionIoFds>(command, payload)?;
        let (parts, rest) = rest.as_chunks::<{ size_of::<SubRegion>() }>();
        // Attack: a count that does not match the message.
        if !rest.is_empty() || parts.len() != count as usize {
            return Err(CodecError::Size { command, size: payload.len() });
        }
        let fds: Vec<Arc<OwnedFd>> = fds.into_iter().map(Arc::new).collect();
        let parts = parts.iter().map(|part| zerocopy::transmute!(*part));
        let plain = parts.filter(|part: &SubRegion| part.kind == SubRegion::IOEVENTFD && part.flags == 0);
        let doorbell = |SubRegion { offset, size, fd_index, .. }: SubRegion| {
            // Attack: the number of a descriptor that did not come.
            let eventfd = fds.get(fd_index as usize).cloned();
            let eventfd = eventfd.ok_or(CodecError::Field { command, field: "fd_index" })?;
            Ok(RegionDoorbell { offset, size, eventfd })
        };
        plain.map(doorbell).collect()
    }
}

impl SharedRegion {
    pub(crate) fn decode(payload: &[u8], file: Option<OwnedFd>) -> Result<SharedRegion, CodecError> {
        let command = command::DEVICE_GET_REGION_INFO;
        let (info, _) = split::<RegionInfo>(command, payload)?;
        let wrong = CodecError::Field { command, field: "capability" };
        let cut = CodecError::Size { command, size: payload.len() };
        let (mut areas, mut at) = (Vec::new(), info.cap_offset as usize);
        // Attack: a chain of capabilities that runs in a circle; each one is behind the one before.
        while info.flags & RegionInfo::CAPS != 0 && at != 0 {
            let rest = payload.get(at..).ok_or(cut.clone())?;
            let (Capability { id, next, .. }, _) = split(command, rest)?;
            if id == SparseMmap::ID {
                let (sparse, rest) = split::<SparseMmap>(command, rest)?;
                let bytes = size_of::<Area>().checked_mul(sparse.areas as usize);
                let bytes = bytes.and_then(|bytes| rest.get(..bytes)).ok_or(cut.clone())?;
                let (whole, _) = bytes.as_chunks::<{ size_of::<Area>() }>();
                areas = whole.iter().map(|area| zerocopy::transmute!(*area)).collect();
            }
            let next = next as usize;
            if next != 0 && next <= at {
                return Err(wrong);
            }
            at = next;
        }
        Ok(SharedRegion { info, areas, file })
    }
}
