//! A network interface that carries the captured frames, for programs that capture from interfaces only.
//!
//! The interface is a TAP without addresses. The frames are sent through it, so that programs on the host see them as
//! outgoing and the host's stack never receives them; what arrives at the other end of the TAP is discarded.

use super::reader::Frame;
use crate::command_error::CommandError;
use ringway_host::{PACKET_HEADER, PacketSettings, TapSettings, open_packet, open_tap, packet_send};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};

/// The largest MTU of a TAP: frames have at most 64 KB with their Ethernet header.
const MTU: u16 = 65_521;
/// Bytes that are discarded at once.
const DISCARD_LEN: usize = 64 << 10;

/// The interface that gets the frames.
pub struct Mirror {
    tap: OwnedFd,
    socket: OwnedFd,
    name: String,
    /// Frames that it did not carry: there was no room, or they are too long for it.
    refused: u64,
    discarded: Vec<u8>,
}

impl Mirror {
    /// Creates the interface.
    pub fn open(name: &str) -> Result<Mirror, CommandError> {
        let failed = |error: ringway_host::HostError| {
            let fix = "it needs CAP_NET_ADMIN and CAP_NET_RAW, as root has, \
                       and a name of at most 15 letters that no other program uses";
            CommandError::Failed(format!("the interface {}: {error}; {fix}", name.escape_debug()))
        };
        let settings = TapSettings {
            name: name.into(),
            queues: 1,
            mtu: MTU,
            offloads: false,
            mac: None,
            address: None,
            namespace: None,
        };
        let tap = open_tap(&settings).map_err(failed)?.pop();
        let tap = tap.ok_or_else(|| CommandError::Failed(format!("the interface {name} has no queue")))?;
        // The host would add frames of its own. A kernel without IPv6 has no such file.
        let _ = std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/disable_ipv6"), "1");
        let settings = PacketSettings { interface: name, only_sends: true, ..PacketSettings::default() };
        let socket = open_packet(&settings).map_err(failed)?;
        Ok(Mirror { tap, socket, name: name.into(), refused: 0, discarded: vec![0; DISCARD_LEN] })
    }

    /// Sends a frame through it.
    ///
    /// # Errors
    /// The interface is down or gone.
    pub fn send(&mut self, frame: &Frame) -> Result<(), String> {
        match packet_send(self.socket.as_fd(), &[0; PACKET_HEADER], &frame.data) {
            Ok(true) => {}
            // Attack: frames that are longer than the interface takes, or shorter than an Ethernet header.
            Ok(false) | Err(Errno::MSGSIZE | Errno::INVAL) => self.refused += 1,
            Err(error) => {
                return Err(format!("the interface {}: {error}; it was taken down or removed", self.name));
            }
        }
        self.discard();
        Ok(())
    }

    /// Number of frames that it did not carry.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Discards what the interface sends: a full queue would stop it.
    fn discard(&mut self) {
        while rustix::io::read(&self.tap, &mut self.discarded[..]).is_ok_and(|count| count > 0) {}
    }
}
