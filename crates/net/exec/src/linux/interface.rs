//! The guest's interface: a socket for packets whose other end User-Mode Linux has, a frame a packet.

use ringway_frame::{LARGEST, Needs, Offload};
use ringway_host::set_nonblocking;
use ringway_mem::Span;
use ringway_netstack::Transmit;
use ringway_sockets::{Device, DeviceError, Received};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt,
};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Bytes of frames that wait for the guest. A smaller limit of the system loses frames earlier.
const QUEUE: usize = 4 << 20;
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// An end that this process has. Frames are whole, without offloads.
#[derive(Debug)]
pub struct Interface {
    socket: OwnedFd,
    /// Readable when there is room again.
    room: OwnedFd,
    received: Vec<u8>,
    frame: Vec<u8>,
    pending: bool,
    is_gone: bool,
}

impl Interface {
    /// An interface, and the end for User-Mode Linux.
    pub fn new() -> Result<(Interface, OwnedFd), Errno> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        for end in [&ours, &theirs] {
            let forced = sockopt::set_socket_send_buffer_size_force(end, QUEUE);
            // Only root may have more than the system's limit.
            forced.or_else(|_| sockopt::set_socket_send_buffer_size(end, QUEUE))?;
        }
        set_nonblocking(ours.as_fd()).map_err(|_| Errno::IO)?;
        let room = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let what = epoll::EventFlags::OUT | epoll::EventFlags::ET;
        epoll::add(&room, &ours, epoll::EventData::new_u64(0), what)?;
        let (received, frame) = (vec![0; LARGEST as usize], Vec::new());
        Ok((Interface { socket: ours, room, received, frame, pending: true, is_gone: false }, theirs))
    }
}

impl Interface {
    fn has_room(&self) -> bool {
        let mut polled = [PollFd::new(&self.socket, PollFlags::OUT)];
        poll(&mut polled, Some(&NOW)).is_ok_and(|ready| ready > 0)
    }
}

impl Transmit for Interface {
    fn frame(&mut self, _offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let len = headers.len() + payload.iter().map(|piece| piece.len()).sum::<usize>();
        self.frame.resize(len, 0);
        let pieces = std::iter::once(Span::of(headers)).chain(payload.iter().copied());
        let frame = &mut self.frame;
        pieces.fold(0, |at, piece| at + piece.read(frame.get_mut(at..).unwrap_or_default()));
        match send(&self.socket, &self.frame, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            // It waits until the guest has read some.
            Err(Errno::AGAIN) => return false,
            Err(Errno::CONNRESET | Errno::CONNREFUSED | Errno::PIPE | Errno::NOTCONN) => self.is_gone = true,
            // Other faults lose the frame, as a wire would.
            Ok(_) | Err(_) => {}
        }
        true
    }
}

impl Device for Interface {
    fn offloads(&self) -> Needs {
        Needs::NONE
    }

    fn receive(&mut self) -> Result<Option<Received<'_>>, DeviceError> {
        match recv(&self.socket, &mut self.received[..], RecvFlags::DONTWAIT) {
            Ok((len, _)) => {
                self.pending = true;
                Ok(Some(Received::whole(&self.received[..len], Offload::default())))
            }
            Err(_) => {
                self.pending = false;
                Ok(None)
            }
        }
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        if self.is_gone { Err(DeviceError::Closed) } else { Ok(()) }
    }

    /// An edge follows each frame that arrives after the socket was found empty, and room after it was full.
    fn arm(&mut self, room: bool) -> Result<bool, DeviceError> {
        Ok(!self.pending && !(room && self.has_room()))
    }

    fn disarm(&mut self) {}

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        vec![self.socket.as_fd(), self.room.as_fd()]
    }

    fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError> {
        self.pending |= descriptor == 0;
        if descriptor > 0 {
            let mut events = [const { MaybeUninit::uninit() }; 1];
            // The next one is an edge again.
            let _ = epoll::wait(&self.room, &mut events, Some(&NOW));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_pass_whole_and_wait_for_room() {
        let (mut interface, theirs) = Interface::new().unwrap();
        let bytes: Vec<u8> = (0..60_000_u32).map(|number| number as u8).collect();
        let pieces: Vec<Span<'_>> = bytes[14..].chunks(9000).map(Span::of).collect();
        assert!(interface.frame(Offload::default(), &bytes[..14], &pieces));
        let mut got = vec![0; 70_000];
        assert_eq!(recv(&theirs, &mut got[..], RecvFlags::empty()).unwrap().0, bytes.len());
        assert_eq!(got[..bytes.len()], bytes);
        let mut sent = 0;
        while interface.frame(Offload::default(), &bytes[..14], &pieces) {
            sent += 1;
        }
        assert!(interface.receive().unwrap().is_none() && sent > 0);
        assert!(interface.arm(true).unwrap());
        for _ in 0..sent {
            recv(&theirs, &mut got[..], RecvFlags::empty()).unwrap();
        }
        assert!(!interface.arm(true).unwrap());
        assert!(interface.frame(Offload::default(), &bytes[..14], &pieces));
        send(&theirs, &bytes[..60], SendFlags::empty()).unwrap();
        interface.notified(0).unwrap();
        assert!(!interface.arm(false).unwrap());
        assert_eq!(interface.receive().unwrap().unwrap().head, &bytes[..60]);
        drop(theirs);
        while !interface.is_gone {
            interface.frame(Offload::default(), &bytes[..14], &pieces);
        }
        assert!(matches!(interface.flush(), Err(DeviceError::Closed)));
    }
}
