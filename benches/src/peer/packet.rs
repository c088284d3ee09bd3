//! A sender over a packet socket, a system call a frame.

use ringway_host::{PACKET_HEADER, PacketSettings, open_packet, packet_send};
use ringway_pktgen::{Line, LineError, Rest, monotonic};
use std::os::fd::{AsFd, OwnedFd};

/// A packet socket on an interface.
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
