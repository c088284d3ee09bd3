//! The front-end's end of a vhost-user socket.

use crate::Failure;
use crate::rig::guest::{Addresses, Shape, Wires};
use crate::rig::memory::{GUEST, GuestMemory, USER};
use ringway_host::{receive_with, send_with};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{Frontend, Packet, Transport, Vring, VringAddr};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A blocking socket.
pub struct Stream(UnixStream);

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

/// A connection that keeps the back-end at work.
pub type Connection = Frontend<Stream>;

/// Describes a guest to the back-end at the other end of `socket`, and starts its rings.
pub fn connect(
    socket: UnixStream,
    memory: &GuestMemory,
    addresses: &Addresses,
    wires: &Wires,
    shape: &Shape,
) -> Result<Connection, Failure> {
    let packed = if shape.packed { virtio::RING_PACKED } else { 0 };
    let features = virtio::VERSION_1 | virtio::NET_MRG_RXBUF | packed;
    let mut connection = Frontend::negotiate(Stream(socket), features, protocol::REPLY_ACK)?;
    let lacking = features & !connection.features();
    if lacking != 0 {
        return Err(format!("the back-end lacks features {lacking:#x}").into());
    }
    connection.set_memory(vec![memory.shared()?])?;
    let user = |address: u64| address - GUEST + USER;
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
    Ok(connection)
}
