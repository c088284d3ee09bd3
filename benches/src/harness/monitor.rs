//! A front-end that answers its back-end's IOTLB misses as QEMU does: each with at most one page; it waits for each
//! update's acknowledgement before the next.

use crate::Failure;
use crate::harness::front::{RINGS, Stream};
use crate::harness::guest::{Iommu, Shape};
use crate::harness::memory::{GUEST, USER};
use ringway_port::vhost_user::Backend;
use ringway_vhost_user::feature::protocol;
use ringway_vhost_user::{BackendRequest, Frontend, Header, Iotlb, Packet, Request, Transport};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Bytes of an IOTLB miss: a header and an IOTLB message.
const QUESTION: usize = 44;
const PAGE: u64 = 4096;

/// A transport to a back-end that may need the caller to run it.
pub trait Peer: Transport {
    /// Runs pending work of a back-end in this thread.
    fn process_pending(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

impl Peer for Stream {}

/// A back-end in this thread, which handles messages as soon as they are sent.
pub struct Inline {
    stream: UnixStream,
    backend: Backend,
}

impl Inline {
    /// Connects to `backend`.
    pub fn new(mut backend: Backend) -> Result<Inline, Failure> {
        let (stream, other) = UnixStream::pair()?;
        backend.connect(other.into())?;
        Ok(Inline { stream, backend })
    }
}

impl Transport for Inline {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        ringway_host::send_with(self.stream.as_fd(), &packet.bytes, &fds).map_err(io::Error::other)?;
        self.backend.readable().map_err(io::Error::other)
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        Ok((self.stream.read(bytes)?, Vec::new()))
    }
}

impl Peer for Inline {
    fn process_pending(&mut self) -> Result<(), Failure> {
        Ok(self.backend.readable()?)
    }
}

/// Mappings of the guest's IOMMU for its buffers.
pub enum Table {
    /// All of its memory, permanently.
    Fixed(Iommu, u64),
    /// The current permissions of each page of 4 KB; each page is followed by a gap in IOVA space.
    Live(Vec<u8>),
}

impl Table {
    /// The table of a guest whose memory has `size` bytes.
    pub fn of(shape: &Shape, size: u64) -> Table {
        Table::Fixed(shape.iommu, size)
    }

    /// The page that contains `iova`: its first IOVA, its length, its offset in the memory, and its permissions.
    fn find(&self, iova: u64) -> Option<(u64, u64, u64, u8)> {
        let (page, size) = match self {
            Table::Fixed(Iommu::Off, _) => return None,
            Table::Fixed(Iommu::Pages(page), size) => (*page, *size),
            Table::Fixed(Iommu::Fragments, size) => {
                let guest = iova >> 13 << 12;
                let offset = guest.checked_sub(GUEST).filter(|offset| offset < size)?;
                return (iova & PAGE == 0).then_some((iova & !(PAGE - 1), PAGE, offset, 3));
            }
            Table::Live(pages) => {
                let offset = (iova >> 13 << 12).checked_sub(GUEST)?;
                let access = *pages.get((offset / PAGE) as usize)?;
                return (access != 0 && iova & PAGE == 0).then_some((
                    iova & !(PAGE - 1),
                    PAGE,
                    offset,
                    access,
                ));
            }
        };
        let offset = iova.checked_sub(GUEST).filter(|offset| *offset < size)?;
        let first = offset - offset % page;
        Some((GUEST + first, page.min(size - first), first, 3))
    }
}

/// A front-end and the guest's IOMMU.
pub struct Monitor<T: Peer> {
    /// The connection.
    pub front: Frontend<T>,
    channel: UnixStream,
    /// Bytes of the contiguous mapping used for the rings.
    size: u64,
    table: Table,
    /// Number of IOTLB misses answered.
    pub answers: u64,
    questions: Vec<u8>,
}

impl<T: Peer> Monitor<T> {
    /// Gives the back-end a channel for its requests, if negotiated.
    pub fn new(mut front: Frontend<T>, size: u64, table: Table) -> Result<Monitor<T>, Failure> {
        let (channel, theirs) = UnixStream::pair()?;
        channel.set_nonblocking(true)?;
        if front.protocol() & protocol::BACKEND_REQ != 0 {
            front.set(Request::SetBackendReqFd(theirs.into()))?;
        }
        Ok(Monitor { front, channel, size, table, answers: 0, questions: vec![0; 64 * QUESTION] })
    }

    /// Answers pending IOTLB misses; returns their number.
    pub fn answer(&mut self) -> Result<usize, Failure> {
        self.front.transport().process_pending()?;
        let mut count = 0;
        loop {
            let mut bytes = std::mem::take(&mut self.questions);
            let read = match self.channel.read(&mut bytes) {
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
                Err(error) => return Err(error.into()),
            };
            for question in bytes[..read].as_chunks::<QUESTION>().0 {
                count += self.reply(question)?;
            }
            self.questions = bytes;
            if read == 0 {
                self.answers += count as u64;
                return Ok(count);
            }
        }
    }

    fn reply(&mut self, question: &[u8; QUESTION]) -> Result<usize, Failure> {
        let (header, payload) = question.split_first_chunk::<12>().ok_or("a question without a header")?;
        let request = Header::decode(header)?.request;
        let BackendRequest::Iotlb(asked) = BackendRequest::decode(request, payload, Vec::new())? else {
            return Ok(0);
        };
        let is_ring = asked.iova.checked_sub(RINGS).is_some_and(|offset| offset < self.size);
        let found = if is_ring { Some((RINGS, self.size, 0, 3)) } else { self.table.find(asked.iova) };
        // QEMU does not answer misses for unmapped addresses.
        let Some((iova, size, offset, permissions)) = found.filter(|_| asked.kind == Iotlb::MISS) else {
            return Ok(0);
        };
        self.send_iotlb(Iotlb { iova, size, user: USER + offset, permissions, kind: Iotlb::UPDATE })?;
        Ok(1)
    }

    fn send_iotlb(&mut self, message: Iotlb) -> Result<(), Failure> {
        Ok(self.front.set(Request::IotlbMsg(message))?)
    }

    /// Maps the page at guest-physical address `guest`; returns its IOVA. `announce`: sends the mapping unrequested.
    pub fn map(&mut self, guest: u64, access: u8, announce: bool) -> Result<u64, Failure> {
        let offset = guest - GUEST;
        if let Table::Live(pages) = &mut self.table
            && let Some(page) = pages.get_mut((offset / PAGE) as usize)
        {
            *page = access;
        }
        let iova = Iommu::Fragments.address(guest);
        if announce {
            let user = USER + offset;
            self.send_iotlb(Iotlb { iova, size: PAGE, user, permissions: access, kind: Iotlb::UPDATE })?;
        }
        Ok(iova)
    }

    /// Unmaps the page; on return the back-end no longer uses it.
    pub fn unmap(&mut self, guest: u64) -> Result<(), Failure> {
        if let Table::Live(pages) = &mut self.table
            && let Some(page) = pages.get_mut(((guest - GUEST) / PAGE) as usize)
        {
            *page = 0;
        }
        let iova = Iommu::Fragments.address(guest);
        self.send_iotlb(Iotlb { iova, size: PAGE, user: 0, permissions: 0, kind: Iotlb::INVALIDATE })
    }
}
