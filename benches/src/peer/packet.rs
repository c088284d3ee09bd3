//! Packet sockets without a ring, a system call a frame.

use ringway_host::{PACKET_HEADER, PacketSettings, open_packet, packet_send};
use ringway_pktgen::{Line, LineError, Rest, monotonic};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, socket_with};
use std::os::fd::{AsFd, OwnedFd};

/// Bytes for frames that wait for a receiver; the ring of a `packet` port has as many.
const WAITING: usize = 2 << 20;

/// A packet socket on an interface, which sends.
pub struct PacketLine(OwnedFd);

impl PacketLine {
    /// Opens it in the network namespace of the calling thread.
    pub fn open(interface: &str) -> Result<PacketLine, crate::Failure> {
        let settings = PacketSettings { interface, only_sends: true, ..PacketSettings::default() };
        Ok(PacketLine(open_packet(&settings)?))
    }
}

impl Line for PacketLine {
    fn now(&mut self) -> u64 {
        monotonic()
    }

    fn send(&mut self, frame: &[u8]) -> Result<bool, LineError> {
        let sent = packet_send(self.0.as_fd(), &[0; PACKET_HEADER], frame);
        sent.map_err(|error| LineError::Interface(error.into()))
    }

    fn flush(&mut self) -> Result<(), LineError> {
        Ok(())
    }

    fn receive(&mut self, _out: &mut [u8]) -> Result<Option<usize>, LineError> {
        Ok(None)
    }

    fn release(&mut self) -> Result<(), LineError> {
        Ok(())
    }

    fn announce(&mut self, _frame: &[u8]) -> Result<(), LineError> {
        Ok(())
    }

    fn rest(&mut self, _what: Rest, _until: u64) -> Result<(), LineError> {
        std::hint::spin_loop();
        Ok(())
    }
}

/// A packet socket that receives, without offload headers, control messages and time stamps.
pub struct PacketReceiver(OwnedFd);

impl PacketReceiver {
    /// Opens it in the network namespace of the calling thread. The frames of all its interfaces arrive.
    pub fn open() -> Result<PacketReceiver, crate::Failure> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(eth::ALL))?;
        set_socket_recv_buffer_size_force(&socket, WAITING)?;
        Ok(PacketReceiver(socket))
    }

    /// Writes the next frame to `out`, and returns its length; none if there is no frame.
    pub fn receive(&self, out: &mut [u8]) -> Result<Option<usize>, crate::Failure> {
        match rustix::net::recv(&self.0, out, RecvFlags::empty()) {
            Ok((len, _)) => Ok(Some(len)),
            Err(Errno::AGAIN | Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}
