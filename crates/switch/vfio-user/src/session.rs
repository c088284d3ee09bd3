//! The server's side of a connection.

use crate::codec::CodecError;
use crate::errno;
use crate::header::{Header, Kind, Packet, TRANSFER, command, name};
use crate::inbox::Message;
use crate::irq::{Irq, IrqAction, IrqData, IrqType, SetIrqs};
use crate::payload::{Access, DeviceInfo, DmaMap, DmaUnmap, IrqInfo, RegionInfo, RegionIoFds, Write};
use crate::region::Region;
use crate::request::Request;
use crate::version::{Capabilities, MAJOR, MINOR, PAGE};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// What a server offers.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    /// The device's regions, by index.
    pub regions: Vec<Region>,
    /// Its interrupt types, by index.
    pub irqs: Vec<IrqType>,
    /// Number of ranges of the client's memory at a time; QEMU accepts at most 65535.
    pub maps: u32,
}

/// Why a device refuses a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// The error number that the client gets.
    pub errno: u32,
    /// The reason, for people.
    pub reason: String,
}

/// A range of the client's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaRange {
    /// First address.
    pub address: u64,
    /// Bytes, at least one; the range does not wrap.
    pub size: u64,
}

/// The device that a session serves. When a call returns, it has taken effect: no worker uses the previous
/// state. The session checks that regions, interrupts and ranges exist; ranges never overlap.
pub trait Device {
    /// Adds a range. Without a file, the device has no access to it.
    fn dma_map(&mut self, map: DmaMap, file: Option<OwnedFd>) -> Result<(), Refused>;
    /// Removes ranges that were added.
    fn dma_unmap(&mut self, ranges: &[DmaRange]);
    /// Reads at least one byte of a region.
    fn read(&mut self, region: u32, offset: u64, bytes: &mut [u8]) -> Result<(), Refused>;
    /// Writes at least one byte.
    fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), Refused>;
    /// Sets or removes the eventfd that an interrupt signals when raised, or that a client signals to mask or
    /// unmask it.
    fn set_eventfd(&mut self, irq: Irq, action: IrqAction, eventfd: Option<OwnedFd>) -> Result<(), Refused>;
    /// Raises, masks or unmasks an interrupt for the client.
    fn act(&mut self, irq: Irq, action: IrqAction);
    /// Resets the device. Ranges and eventfds stay.
    fn reset(&mut self);
}

/// Why a session can't continue, or which request it refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The bytes aren't a message.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// A reply without a command.
    #[error("message {} is a reply without a command", name(*command))]
    Unasked {
        /// Its number.
        command: u16,
    },
    /// A command before the version was negotiated.
    #[error("message {} comes before VERSION", name(*command))]
    NoVersion {
        /// Its number.
        command: u16,
    },
    /// Another version of the protocol.
    #[error("the client speaks version {major}.{minor}, this end 0.0")]
    Version {
        /// Its major version.
        major: u16,
        /// Its minor version.
        minor: u16,
    },
    /// The request was refused, by the session or by its device.
    #[error("message {}: {reason}", name(*command))]
    Refused {
        /// Number of the message.
        command: u16,
        /// The reason.
        reason: Refused,
    },
}

/// Result of a message.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The reply to send.
    pub answer: Option<Packet>,
    /// A refused command; the reply, if there is one, reports the error.
    pub refused: Option<SessionError>,
}

/// State of one connection.
#[derive(Debug)]
pub struct Session {
    offer: Offer,
    /// The client's capabilities, once negotiated.
    client: Option<Capabilities>,
    /// Size of each mapped range, by its first address.
    maps: BTreeMap<u64, u64>,
}

/// Payload and descriptors of a reply.
type Reply = (Vec<u8>, Vec<Arc<OwnedFd>>);

impl Refused {
    /// The request is invalid.
    pub fn invalid(reason: &str) -> Refused {
        Refused { errno: errno::EINVAL, reason: reason.to_owned() }
    }
}

impl Session {
    /// A new connection.
    pub fn new(offer: Offer) -> Session {
        Session { offer, client: None, maps: BTreeMap::new() }
    }

    /// The client's capabilities, once negotiated.
    pub fn client(&self) -> Option<Capabilities> {
        self.client
    }

    /// Handles one message. After an error the connection is unusable, and [`Session::end`] must be called.
    pub fn handle(
        &mut self,
        message: Message<'_>,
        device: &mut impl Device,
    ) -> Result<Outcome, SessionError> {
        let Message { header, payload, fds } = message;
        let Header { id, command, kind, .. } = header;
        // This end sends no commands.
        let Kind::Command { no_reply } = kind else { return Err(SessionError::Unasked { command }) };
        if self.client.is_none() && command != command::VERSION {
            return Err(SessionError::NoVersion { command });
        }
        let result = match Request::decode(command, payload, fds) {
            Ok(Request::Version(major, minor, _)) if major != MAJOR => {
                return Err(SessionError::Version { major, minor });
            }
            Ok(request) => self.dispatch(request, device).map_err(|reason| {
                let errno = reason.errno;
                (errno, SessionError::Refused { command, reason })
            }),
            Err(error) => Err((error.errno(), error.into())),
        };
        let (error, (payload, fds), refused) = match result {
            Ok(reply) => (None, reply, None),
            Err((errno, error)) => (Some(errno), Reply::default(), Some(error)),
        };
        let answer = (!no_reply).then(|| {
            let packet = Header::packet(id, command, Kind::Reply { error }, &[&payload]);
            Packet { fds, ..packet }
        });
        Ok(Outcome { answer, refused })
    }

    /// Ends the connection: unmaps the client's memory and removes its eventfds. The device keeps its state.
    pub fn end(&mut self, device: &mut impl Device) {
        self.unmap_all(device);
        for index in 0..self.offer.irqs.len() as u32 {
            self.disable(index, device);
        }
    }

    fn dispatch(&mut self, request: Request<'_>, device: &mut impl Device) -> Result<Reply, Refused> {
        let payload = match request {
            Request::Version(_, _, client) => self.version(client)?,
            Request::DmaMap(map, file) => self.map(map, file, device)?,
            Request::DmaUnmap(unmap) => self.unmap(unmap, device)?,
            Request::GetInfo(DeviceInfo { argsz, .. }) => {
                let (regions, irqs) = (self.offer.regions.len() as u32, self.offer.irqs.len() as u32);
                let flags = DeviceInfo::RESET | DeviceInfo::PCI;
                let info = DeviceInfo { argsz: size_of::<DeviceInfo>() as u32, flags, regions, irqs };
                fits(argsz, info.argsz)?;
                info.as_bytes().to_vec()
            }
            Request::GetRegionInfo(info) => return self.region_info(info),
            Request::GetRegionIoFds(info) => return self.region_io_fds(info),
            Request::GetIrqInfo(IrqInfo { argsz, index, .. }) => {
                let IrqType { count, flags } = self.irq_type(index)?;
                let info = IrqInfo { argsz: size_of::<IrqInfo>() as u32, flags, index, count };
                fits(argsz, info.argsz)?;
                info.as_bytes().to_vec()
            }
            Request::SetIrqs(set) => self.set_irqs(set, device)?,
            Request::RegionRead(access) => {
                self.check(&access, RegionInfo::READ)?;
                let mut reply = access.as_bytes().to_vec();
                let data = reply.len();
                reply.resize(data + access.count as usize, 0);
                device.read(access.region, access.offset, &mut reply[data..])?;
                reply
            }
            Request::RegionWrite(access, data) => {
                self.check(&access, RegionInfo::WRITE)?;
                device.write(access.region, access.offset, data)?;
                access.as_bytes().to_vec()
            }
            Request::RegionWriteMulti(writes) => self.write_multi(&writes, device)?,
            Request::Reset => {
                device.reset();
                Vec::new()
            }
        };
        Ok((payload, Vec::new()))
    }

    fn version(&mut self, client: Capabilities) -> Result<Vec<u8>, Refused> {
        // Attack: limits that change while they are in use.
        if self.client.is_some() {
            return Err(Refused::invalid("the version was negotiated before"));
        }
        self.client = Some(client);
        let ours = Capabilities::ours(self.offer.maps, client.write_multiple);
        Ok([[MAJOR, MINOR].as_bytes(), &ours.encode()].concat())
    }

    fn map(
        &mut self,
        map: DmaMap,
        file: Option<OwnedFd>,
        device: &mut impl Device,
    ) -> Result<Vec<u8>, Refused> {
        let DmaMap { flags, offset, address, size, .. } = map;
        if flags == 0 || flags & !(DmaMap::READ | DmaMap::WRITE) != 0 {
            return Err(Refused::invalid("undefined flags"));
        }
        if (address | size | offset) % PAGE != 0 {
            return Err(Refused::invalid("the range does not consist of pages"));
        }
        // Attack: ranges that wrap, in memory or in their file.
        let last = last(address, size)?;
        if offset.checked_add(size).is_none() {
            return Err(Refused::invalid("the range wraps in its file"));
        }
        if self.overlapping(address, last).next().is_some() {
            return Err(Refused { errno: errno::EEXIST, reason: "the range overlaps a mapped one".into() });
        }
        // Attack: ranges without end.
        if self.maps.len() >= self.offer.maps as usize {
            return Err(Refused { errno: errno::ENOSPC, reason: "too many ranges are mapped".into() });
        }
        device.dma_map(map, file)?;
        self.maps.insert(address, size);
        Ok(Vec::new())
    }

    /// Mapped ranges with an address in `first..=last`, the last range first.
    fn overlapping(&self, first: u64, last: u64) -> impl Iterator<Item = DmaRange> {
        let ranges = self.maps.range(..=last).rev().map(|(&address, &size)| DmaRange { address, size });
        ranges.take_while(move |range| range.address + (range.size - 1) >= first)
    }

    /// Removes all ranges within a range. The protocol requires the bounds of one; a client with an IOMMU
    /// invalidates several at once, as in Linux' VFIO.
    fn unmap(&mut self, unmap: DmaUnmap, device: &mut impl Device) -> Result<Vec<u8>, Refused> {
        let DmaUnmap { argsz, flags, address, size } = unmap;
        fits(argsz, size_of::<DmaUnmap>() as u32)?;
        match flags {
            DmaUnmap::ALL if size == 0 => self.unmap_all(device),
            0 => {
                let last = last(address, size)?;
                let ranges: Vec<DmaRange> = self.overlapping(address, last).collect();
                let is_within =
                    |range: &DmaRange| range.address >= address && range.address + (range.size - 1) <= last;
                if ranges.is_empty() {
                    return Err(Refused { errno: errno::ENOENT, reason: "nothing is mapped there".into() });
                }
                if !ranges.iter().all(is_within) {
                    return Err(Refused::invalid("a mapped range would be cut"));
                }
                ranges.iter().for_each(|range| _ = self.maps.remove(&range.address));
                device.dma_unmap(&ranges);
            }
            _ => return Err(Refused::invalid("undefined flags")),
        }
        Ok(unmap.as_bytes().to_vec())
    }

    fn unmap_all(&mut self, device: &mut impl Device) {
        let maps = std::mem::take(&mut self.maps);
        let ranges: Vec<_> = maps.into_iter().map(|(address, size)| DmaRange { address, size }).collect();
        if !ranges.is_empty() {
            device.dma_unmap(&ranges);
        }
    }

    fn region_info(&self, info: RegionInfo) -> Result<Reply, Refused> {
        let RegionInfo { argsz, index, .. } = info;
        fits(argsz, size_of::<RegionInfo>() as u32)?;
        let region = self.region(index)?;
        let file = region.mapping.as_ref().map(|mapping| mapping.file.clone());
        Ok((region.encode(index, argsz as usize), file.into_iter().collect()))
    }

    fn region_io_fds(&self, info: RegionIoFds) -> Result<Reply, Refused> {
        let RegionIoFds { argsz, flags, index, .. } = info;
        fits(argsz, size_of::<RegionIoFds>() as u32)?;
        if flags != 0 {
            return Err(Refused::invalid("undefined flags"));
        }
        Ok(self.region(index)?.encode_doorbells(index, argsz as usize))
    }

    fn region(&self, index: u32) -> Result<&Region, Refused> {
        self.offer.regions.get(index as usize).ok_or(Refused::invalid("no such region"))
    }

    /// Checks an access, which needs a flag of the region.
    fn check(&self, access: &Access, flag: u32) -> Result<(), Refused> {
        let &Access { offset, region, count } = access;
        let region = self.region(region)?;
        // Attack: an offset near the end of the address space.
        let end = offset.checked_add(count.into()).filter(|end| *end <= region.size);
        if end.is_none() || count == 0 {
            return Err(Refused::invalid("the access is not within the region"));
        }
        if count as usize > TRANSFER {
            return Err(Refused { errno: errno::E2BIG, reason: "the access is too long".into() });
        }
        if region.flags & flag == 0 {
            return Err(Refused::invalid("the region does not permit the access"));
        }
        Ok(())
    }

    /// Tries every write, as if each came by itself; returns the first error.
    fn write_multi(&self, writes: &[Write], device: &mut impl Device) -> Result<Vec<u8>, Refused> {
        if !self.client.is_some_and(|client| client.write_multiple) {
            return Err(Refused { errno: errno::ENOTSUP, reason: "it was not negotiated".into() });
        }
        let mut result = Ok(());
        for Write { access, data } in writes {
            let data = data.get(..access.count as usize).ok_or(Refused::invalid("the write is too long"));
            let one = data.and_then(|data| {
                self.check(access, RegionInfo::WRITE)?;
                device.write(access.region, access.offset, data)
            });
            result = result.and(one);
        }
        result.map(|()| (writes.len() as u64).as_bytes().to_vec())
    }

    fn irq_type(&self, index: u32) -> Result<IrqType, Refused> {
        self.offer.irqs.get(index as usize).copied().ok_or(Refused::invalid("no such interrupt type"))
    }

    fn set_irqs(&self, set: SetIrqs<'_>, device: &mut impl Device) -> Result<Vec<u8>, Refused> {
        let SetIrqs { index, start, count, action, data } = set;
        let kind = self.irq_type(index)?;
        if let (0, 0, IrqAction::Trigger, IrqData::All) = (start, count, action, &data) {
            self.disable(index, device);
            return Ok(Vec::new());
        }
        // Attack: a range that wraps, or ends behind the last interrupt.
        let end = start.checked_add(count).filter(|end| *end <= kind.count && count > 0);
        let vectors = start..end.ok_or(Refused::invalid("no such interrupts"))?;
        let mut needed = if action == IrqAction::Trigger { 0 } else { IrqType::MASKABLE };
        if let IrqData::Eventfds(_) = data {
            needed |= IrqType::EVENTFD;
        }
        if kind.flags & needed != needed {
            return Err(Refused::invalid("the interrupts do not support it"));
        }
        let irqs = vectors.map(|vector| Irq { index, vector });
        match data {
            IrqData::All => irqs.for_each(|irq| device.act(irq, action)),
            IrqData::Some(which) => {
                irqs.zip(which).filter(|(_, on)| **on != 0).for_each(|(irq, _)| device.act(irq, action));
            }
            IrqData::Eventfds(fds) => {
                let mut fds = fds.into_iter();
                for irq in irqs {
                    device.set_eventfd(irq, action, fds.next())?;
                }
            }
        }
        Ok(Vec::new())
    }

    /// Removes all eventfds of an interrupt type.
    fn disable(&self, index: u32, device: &mut impl Device) {
        let count = self.offer.irqs[index as usize].count;
        for irq in (0..count).map(|vector| Irq { index, vector }) {
            // Nothing is left to do where a removal fails.
            IrqAction::EACH.into_iter().for_each(|action| _ = device.set_eventfd(irq, action, None));
        }
    }
}

/// Checks that the client has room for a reply of `needed` bytes.
fn fits(argsz: u32, needed: u32) -> Result<(), Refused> {
    if argsz < needed { Err(Refused::invalid("argsz is too small for the reply")) } else { Ok(()) }
}

/// Last address of a range.
fn last(address: u64, size: u64) -> Result<u64, Refused> {
    let last = size.checked_sub(1).and_then(|rest| address.checked_add(rest));
    last.ok_or(Refused::invalid("the range is empty or wraps"))
}
