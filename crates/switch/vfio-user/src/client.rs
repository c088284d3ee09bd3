//! The client's side of a connection, for tests and monitors.

use crate::codec::{CodecError, split};
use crate::errno;
use crate::header::{DESCRIPTORS, Kind, PAYLOAD, Packet, TRANSFER, name};
use crate::inbox::{Inbox, Message};
use crate::irq::SetIrqs;
use crate::payload::{Access, DeviceInfo, DmaMap, DmaUnmap, IrqInfo, RegionInfo, RegionIoFds, Write};
use crate::region::{RegionDoorbell, SharedRegion};
use crate::request::Request;
use crate::version::{Capabilities, MAJOR, MINOR};
use std::io;
use std::os::fd::OwnedFd;

/// A blocking transport to the server.
pub trait Transport {
    /// Sends all of a message.
    fn send(&mut self, packet: Packet) -> io::Result<()>;
    /// Receives some bytes, at least one unless the server closed the connection, and the descriptors that
    /// come with them. An error when the server takes too long.
    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)>;
}

/// Why a client's request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The connection failed.
    #[error("the connection to the server failed: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// A message of the server is not valid.
    #[error("invalid message of the server: {0}")]
    Codec(#[from] CodecError),
    /// The reply does not match the request.
    #[error("the server's reply to {} does not match", name(*command))]
    Mismatch {
        /// Number of the request.
        command: u16,
    },
    /// The server refused the request.
    #[error("the server refused {} with error {errno}", name(*command))]
    Refused {
        /// Number of the request.
        command: u16,
        /// The error number.
        errno: u32,
    },
    /// The request exceeds the server's capabilities.
    #[error("the request exceeds the server's capabilities")]
    Limit,
}

/// A connection to a server. Each call waits for the reply, except for posted writes.
#[derive(Debug)]
pub struct Client<T> {
    transport: T,
    inbox: Inbox,
    next: u16,
    server: Capabilities,
}

/// Largest number of ranges that it maps at a time.
const MAPS: u32 = 65535;

impl<T: Transport> Client<T> {
    /// Negotiates a version.
    pub fn negotiate(transport: T) -> Result<Client<T>, ClientError> {
        let (inbox, server) = (Inbox::default(), Capabilities::default());
        let mut client = Client { transport, inbox, next: 0, server };
        let request = Request::Version(MAJOR, MINOR, Capabilities::ours(MAPS, true));
        let command = request.command();
        let (payload, _) = client.call(request)?;
        let (major, minor, server) = Capabilities::decode(&payload)?;
        if (major, minor) != (MAJOR, MINOR) {
            return Err(ClientError::Mismatch { command });
        }
        client.server = server;
        Ok(client)
    }

    /// The server's capabilities.
    pub fn server(&self) -> Capabilities {
        self.server
    }

    /// The transport.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Describes the device.
    pub fn info(&mut self) -> Result<DeviceInfo, ClientError> {
        let argsz = size_of::<DeviceInfo>() as u32;
        self.get(Request::GetInfo(DeviceInfo { argsz, ..DeviceInfo::default() }))
    }

    /// Describes a region; asks again if it has capabilities, as QEMU does.
    pub fn region(&mut self, index: u32) -> Result<SharedRegion, ClientError> {
        let mut argsz = size_of::<RegionInfo>() as u32;
        loop {
            let request = Request::GetRegionInfo(RegionInfo { argsz, index, ..RegionInfo::default() });
            let command = request.command();
            let (payload, mut files) = self.call(request)?;
            let (info, _) = split::<RegionInfo>(command, &payload)?;
            if info.argsz <= argsz {
                return Ok(SharedRegion::decode(&payload, files.pop())?);
            }
            // Attack: a size that grows from reply to reply.
            if info.argsz as usize > PAYLOAD {
                return Err(ClientError::Limit);
            }
            argsz = info.argsz;
        }
    }

    /// The doorbells of a region; none if the server does not know of any.
    pub fn doorbells(&mut self, index: u32) -> Result<Vec<RegionDoorbell>, ClientError> {
        // Room for as many as a message has descriptors.
        let request =
            Request::GetRegionIoFds(RegionIoFds { argsz: PAYLOAD as u32, index, ..RegionIoFds::default() });
        match self.call(request) {
            Ok((payload, fds)) => Ok(RegionDoorbell::decode(&payload, fds)?),
            Err(ClientError::Refused { errno: errno::ENOTSUP, .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Describes an interrupt type.
    pub fn irq(&mut self, index: u32) -> Result<IrqInfo, ClientError> {
        let argsz = size_of::<IrqInfo>() as u32;
        self.get(Request::GetIrqInfo(IrqInfo { argsz, index, ..IrqInfo::default() }))
    }

    /// Changes interrupts.
    pub fn set_irqs(&mut self, set: SetIrqs<'_>) -> Result<(), ClientError> {
        self.call(Request::SetIrqs(set)).map(drop)
    }

    /// Reads from a region.
    pub fn read(&mut self, region: u32, offset: u64, bytes: &mut [u8]) -> Result<(), ClientError> {
        let request = Request::RegionRead(self.access(region, offset, bytes.len())?);
        let command = request.command();
        let (payload, _) = self.call(request)?;
        let (_, data) = split::<Access>(command, &payload)?;
        if data.len() != bytes.len() {
            return Err(ClientError::Mismatch { command });
        }
        bytes.copy_from_slice(data);
        Ok(())
    }

    /// Writes to a region.
    pub fn write(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        let access = self.access(region, offset, bytes.len())?;
        self.call(Request::RegionWrite(access, bytes)).map(drop)
    }

    /// Writes to a region without waiting for a reply.
    pub fn post(&mut self, region: u32, offset: u64, bytes: &[u8]) -> Result<(), ClientError> {
        let access = self.access(region, offset, bytes.len())?;
        self.send(Request::RegionWrite(access, bytes), true).map(drop)
    }

    /// Posts several writes in one message.
    pub fn post_multi(&mut self, writes: Vec<Write>) -> Result<(), ClientError> {
        self.send(Request::RegionWriteMulti(writes), true).map(drop)
    }

    /// Maps a range of memory; without a file, the server can't access it.
    pub fn dma_map(&mut self, map: DmaMap, file: Option<OwnedFd>) -> Result<(), ClientError> {
        let argsz = size_of::<DmaMap>() as u32;
        self.call(Request::DmaMap(DmaMap { argsz, ..map }, file)).map(drop)
    }

    /// Revokes a range, or every one.
    pub fn dma_unmap(&mut self, unmap: DmaUnmap) -> Result<(), ClientError> {
        let argsz = size_of::<DmaUnmap>() as u32;
        self.call(Request::DmaUnmap(DmaUnmap { argsz, ..unmap })).map(drop)
    }

    /// Resets the device.
    pub fn reset(&mut self) -> Result<(), ClientError> {
        self.call(Request::Reset).map(drop)
    }

    fn access(&self, region: u32, offset: u64, len: usize) -> Result<Access, ClientError> {
        let most = self.server.max_data_xfer_size.min(TRANSFER as u64);
        if len as u64 > most {
            return Err(ClientError::Limit);
        }
        Ok(Access { offset, region, count: len as u32 })
    }

    /// A request whose reply has the form of `R`.
    fn get<R: zerocopy::FromBytes>(&mut self, request: Request<'_>) -> Result<R, ClientError> {
        let command = request.command();
        let (payload, _) = self.call(request)?;
        Ok(split::<R>(command, &payload)?.0)
    }

    fn send(&mut self, request: Request<'_>, no_reply: bool) -> Result<u16, ClientError> {
        let id = self.next;
        self.next = id.wrapping_add(1);
        let packet = request.encode(id, no_reply);
        if packet.fds.len() as u64 > self.server.max_msg_fds.min(DESCRIPTORS as u64) {
            return Err(ClientError::Limit);
        }
        self.transport.send(packet)?;
        Ok(id)
    }

    /// Sends a request and waits for its reply. Commands of the server are not supported.
    fn call(&mut self, request: Request<'_>) -> Result<(Vec<u8>, Vec<OwnedFd>), ClientError> {
        let command = request.command();
        let id = self.send(request, false)?;
        let Client { transport, inbox, .. } = self;
        loop {
            if let Some(Message { header, payload, fds }) = inbox.message()? {
                let Kind::Reply { error } = header.kind else {
                    return Err(ClientError::Mismatch { command });
                };
                if (header.id, header.command) != (id, command) {
                    return Err(ClientError::Mismatch { command });
                }
                return match error {
                    Some(errno) => Err(ClientError::Refused { command, errno }),
                    None => Ok((payload.to_vec(), fds)),
                };
            }
            let (count, fds) = transport.receive(inbox.space())?;
            if count == 0 {
                return Err(ClientError::Closed);
            }
            inbox.filled(count, fds)?;
        }
    }
}
