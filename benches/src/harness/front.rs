//! The front-end's end of a vhost-user socket.

use crate::Failure;
use crate::harness::guest::{Addresses, Iommu, Shape, Wires};
use crate::harness::memory::{GUEST, GuestMemory, USER};
use ringway_host::{receive_with, send_with};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{Frontend, Iotlb, Packet, Request, Transport, Vring, VringAddr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A blocking socket.
pub struct Stream(UnixStream);

/// Number of updates sent before their acknowledgements are read.
const TOGETHER: usize = 64;
const PAGE: u64 = 4096;

impl Transport for Stream {
    fn send(&mut self, packet: Packet) -> io::Result<()> {
        let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
        let sent = send_with(self.0.as_fd(), &packet.bytes, &fds).map_err(io::Error::other)?;
        if sent == packet.bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }

    fn receive(&mut self, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
        receive_with(self.0.as_fd(), bytes, 8).map_err(io::Error::other)
    }
}

/// A connection; the back-end works while it is open.
pub type Connection = Frontend<Stream>;

impl From<UnixStream> for Stream {
    fn from(socket: UnixStream) -> Stream {
        Stream(socket)
    }
}

/// Sets up the back-end at the other end of `socket` for a guest: memory, all mappings of the IOMMU, rings.
pub fn connect(
    socket: UnixStream,
    memory: &GuestMemory,
    addresses: &Addresses,
    wires: &Wires,
    shape: &Shape,
) -> Result<Connection, Failure> {
    let mut connection = negotiate(Stream(socket), memory, shape)?;
    grant(&mut connection, memory, shape)?;
    start(&mut connection, addresses, wires, shape)?;
    Ok(connection)
}

/// Negotiates features with the back-end and shares the guest's memory.
pub fn negotiate<T: Transport>(
    transport: T,
    memory: &GuestMemory,
    shape: &Shape,
) -> Result<Frontend<T>, Failure> {
    let packed = if shape.packed { virtio::RING_PACKED } else { 0 };
    let is_translated = shape.iommu != Iommu::Off;
    let platform = if is_translated { virtio::ACCESS_PLATFORM } else { 0 };
    let features = virtio::VERSION_1 | virtio::NET_MRG_RXBUF | packed | platform;
    let agreed = protocol::REPLY_ACK | if is_translated { protocol::BACKEND_REQ } else { 0 };
    let mut connection = Frontend::negotiate(transport, features, agreed)?;
    let lacking = features & !connection.features();
    if lacking != 0 {
        return Err(format!("the back-end lacks features {lacking:#x}").into());
    }
    connection.set_memory(vec![memory.shared()?])?;
    Ok(connection)
}

/// Starts a guest's rings.
pub fn start<T: Transport>(
    connection: &mut Frontend<T>,
    addresses: &Addresses,
    wires: &Wires,
    shape: &Shape,
) -> Result<(), Failure> {
    // Rings are contiguous, at separate addresses.
    let begin = if shape.iommu == Iommu::Off { USER } else { RINGS };
    let user = |address: u64| address - GUEST + begin;
    for (index, ring) in addresses.rings.iter().enumerate() {
        let addresses = VringAddr {
            index: index as u32,
            flags: 0,
            descriptors: user(ring.descriptors),
            available: user(ring.driver),
            used: user(ring.device),
            log: 0,
        };
        let kick = wires.kicks[index].as_fd().try_clone_to_owned()?;
        let call = wires.call.as_fd().try_clone_to_owned()?;
        // A packed ring begins with both wrap counters set (virtio 1.3, 2.8.1).
        let base = if shape.packed { 0x8000_8000 } else { 0 };
        let size = shape.ring;
        connection.start(Vring { size, addresses, base, kick: Some(kick), call: Some(call) })?;
    }
    Ok(())
}

/// IOVA of a second, contiguous mapping of the memory, used for the rings.
pub const RINGS: u64 = 0x100_0000_0000;

/// Sends the back-end all mappings of the guest's IOMMU, page by page, unrequested.
fn grant(connection: &mut Connection, memory: &GuestMemory, shape: &Shape) -> Result<(), Failure> {
    let page = match shape.iommu {
        Iommu::Off => return Ok(()),
        Iommu::Pages(page) => page.min(memory.size()),
        Iommu::Fragments => PAGE,
    };
    let update =
        |iova, offset, size| Iotlb { iova, size, user: USER + offset, permissions: 3, kind: Iotlb::UPDATE };
    let pages = (0..memory.size() / page).map(|number| number * page);
    let pages = pages.map(|offset| update(shape.iommu.address(GUEST + offset), offset, page));
    let updates: Vec<Iotlb> = pages.chain([update(RINGS, 0, memory.size())]).collect();
    for some in updates.chunks(TOGETHER) {
        connection.set_all(some.iter().map(|update| Request::IotlbMsg(*update)).collect())?;
    }
    Ok(())
}

/// Sends the back-end `count` mappings that are never used.
pub fn leave_stale(connection: &mut Connection, count: u64) -> Result<(), Failure> {
    let stale = |number: u64| Iotlb {
        iova: 0x200_0000_0000 + number * 2 * PAGE,
        size: PAGE,
        user: USER + number % 512 * PAGE,
        permissions: 3,
        kind: Iotlb::UPDATE,
    };
    for some in (0..count).collect::<Vec<_>>().chunks(TOGETHER) {
        connection.set_all(some.iter().map(|number| Request::IotlbMsg(stale(*number))).collect())?;
    }
    Ok(())
}
