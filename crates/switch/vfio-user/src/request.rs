//! Commands of both ends.

use crate::codec::{CodecError, split, whole};
use crate::header::{Header, Kind, Packet, command};
use crate::irq::SetIrqs;
use crate::payload::{Access, DeviceInfo, DmaMap, DmaUnmap, IrqInfo, RegionInfo, RegionIoFds, Write};
use crate::version::Capabilities;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// A command; the protocol describes each under the same name.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Request<'a> {
    /// Major and minor version.
    Version(u16, u16, Capabilities),
    /// Without a file, the range can be accessed by messages alone.
    DmaMap(DmaMap, Option<OwnedFd>),
    DmaUnmap(DmaUnmap),
    GetInfo(DeviceInfo),
    GetRegionInfo(RegionInfo),
    GetRegionIoFds(RegionIoFds),
    GetIrqInfo(IrqInfo),
    SetIrqs(SetIrqs<'a>),
    RegionRead(Access),
    RegionWrite(Access, &'a [u8]),
    Reset,
    RegionWriteMulti(Vec<Write>),
}

impl<'a> Request<'a> {
    /// Decodes a command. Unexpected descriptors are closed.
    pub fn decode(command: u16, payload: &'a [u8], fds: Vec<OwnedFd>) -> Result<Request<'a>, CodecError> {
        let most = usize::from(command == command::DMA_MAP);
        // Attack: descriptors with a message that carries none, to use up all that the process may have.
        if fds.len() > most && command != command::DEVICE_SET_IRQS {
            return Err(CodecError::Descriptors { command, got: fds.len(), want: most });
        }
        Ok(match command {
            command::VERSION => {
                let (major, minor, capabilities) = Capabilities::decode(payload)?;
                Request::Version(major, minor, capabilities)
            }
            command::DMA_MAP => Request::DmaMap(whole(command, payload)?, fds.into_iter().next()),
            command::DMA_UNMAP => Request::DmaUnmap(whole(command, payload)?),
            command::DEVICE_GET_INFO => Request::GetInfo(whole(command, payload)?),
            command::DEVICE_GET_REGION_INFO => Request::GetRegionInfo(whole(command, payload)?),
            command::DEVICE_GET_REGION_IO_FDS => Request::GetRegionIoFds(whole(command, payload)?),
            command::DEVICE_GET_IRQ_INFO => Request::GetIrqInfo(whole(command, payload)?),
            command::DEVICE_SET_IRQS => Request::SetIrqs(SetIrqs::decode(payload, fds)?),
            command::REGION_READ => Request::RegionRead(whole(command, payload)?),
            command::REGION_WRITE => {
                let (access, data) = split::<Access>(command, payload)?;
                if data.len() as u64 != u64::from(access.count) {
                    return Err(CodecError::Field { command, field: "count" });
                }
                Request::RegionWrite(access, data)
            }
            command::REGION_WRITE_MULTI => {
                let (count, rest) = split::<u64>(command, payload)?;
                let (writes, rest) = rest.as_chunks::<{ size_of::<Write>() }>();
                // Attack: a count that does not match the message.
                if !rest.is_empty() || writes.len() as u64 != count {
                    return Err(CodecError::Size { command, size: payload.len() });
                }
                Request::RegionWriteMulti(writes.iter().map(|write| zerocopy::transmute!(*write)).collect())
            }
            command::DEVICE_RESET if payload.is_empty() => Request::Reset,
            command::DEVICE_RESET => return Err(CodecError::Size { command, size: payload.len() }),
            _ => return Err(CodecError::Unsupported { command }),
        })
    }

    /// Number of the command.
    pub fn command(&self) -> u16 {
        match self {
            Request::Version(..) => command::VERSION,
            Request::DmaMap(..) => command::DMA_MAP,
            Request::DmaUnmap(_) => command::DMA_UNMAP,
            Request::GetInfo(_) => command::DEVICE_GET_INFO,
            Request::GetRegionInfo(_) => command::DEVICE_GET_REGION_INFO,
            Request::GetRegionIoFds(_) => command::DEVICE_GET_REGION_IO_FDS,
            Request::GetIrqInfo(_) => command::DEVICE_GET_IRQ_INFO,
            Request::SetIrqs(_) => command::DEVICE_SET_IRQS,
            Request::RegionRead(_) => command::REGION_READ,
            Request::RegionWrite(..) => command::REGION_WRITE,
            Request::Reset => command::DEVICE_RESET,
            Request::RegionWriteMulti(_) => command::REGION_WRITE_MULTI,
        }
    }

    /// Encodes the command.
    pub fn encode(self, id: u16, no_reply: bool) -> Packet {
        let command = self.command();
        let packet = |parts: &[&[u8]]| Header::packet(id, command, Kind::Command { no_reply }, parts);
        let with = |parts: &[&[u8]], fds: Vec<OwnedFd>| Packet {
            fds: fds.into_iter().map(Arc::new).collect(),
            ..packet(parts)
        };
        match self {
            Request::Version(major, minor, capabilities) => {
                packet(&[[major, minor].as_bytes(), &capabilities.encode()])
            }
            Request::DmaMap(map, file) => with(&[map.as_bytes()], file.into_iter().collect()),
            Request::DmaUnmap(unmap) => packet(&[unmap.as_bytes()]),
            Request::GetInfo(info) => packet(&[info.as_bytes()]),
            Request::GetRegionInfo(info) => packet(&[info.as_bytes()]),
            Request::GetRegionIoFds(info) => packet(&[info.as_bytes()]),
            Request::GetIrqInfo(info) => packet(&[info.as_bytes()]),
            Request::SetIrqs(set) => {
                let (payload, fds) = set.encode();
                with(&[&payload], fds)
            }
            Request::RegionRead(access) => packet(&[access.as_bytes()]),
            Request::RegionWrite(access, data) => packet(&[access.as_bytes(), data]),
            Request::Reset => packet(&[]),
            Request::RegionWriteMulti(writes) => {
                packet(&[(writes.len() as u64).as_bytes(), writes.as_bytes()])
            }
        }
    }
}
