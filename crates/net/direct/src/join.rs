//! Requests of a process to its agent to join the shared stack, by `getsockopt` on one of its sockets, a call that
//! waits for the agent anyway: the socket says which connection is meant, and the agent knows who asks.

use crate::image::{DirectError, Files, IMAGE_ADDRESSES, Image, RingPeer};
use crate::waiting::{Member, Notifiers};
use ringway_direct_stack::abi::requests::{DESCRIPTORS, ENTER, ENTRY, LEAVE, LEVEL};
use ringway_host::{Clock, ask_socket, ask_socket_for_descriptor};
use ringway_netstack::SocketId;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A connection in the shared stack, as the agent describes it.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its handle in the shared stack.
    pub socket: SocketId,
    /// Bytes of the rings' memory: of the one to the port, and of the one to the agent.
    pub lengths: [u64; 2],
    /// The clock of all processes.
    pub clock: Clock,
    /// The number of the process among those that share the stack.
    pub process: u64,
}

impl Entry {
    /// Length of [`Entry::to_bytes`].
    pub const LEN: usize = 8 * ENTRY;

    /// Encodes the entry for [`Entry::from_bytes`].
    pub fn to_bytes(&self) -> [u8; Entry::LEN] {
        let mut bytes = [0; Entry::LEN];
        let numbers = [self.socket.to_bits()].into_iter().chain(self.lengths).chain(self.clock.to_parts());
        let numbers = numbers.chain(IMAGE_ADDRESSES).chain([self.process]);
        for (to, number) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(numbers) {
            *to = number.to_le_bytes();
        }
        bytes
    }

    /// Decodes what [`Entry::to_bytes`] returned.
    pub fn from_bytes(bytes: &[u8; Entry::LEN]) -> Entry {
        let mut numbers = [0; ENTRY];
        for (number, from) in numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *number = u64::from_le_bytes(*from);
        }
        // This process has linked the image, and knows its addresses.
        let [socket, port, agent, tick, nanoseconds, rate, _addresses @ .., process] = numbers;
        let clock = Clock::from_parts([tick, nanoseconds, rate]);
        Entry { socket: SocketId::from_bits(socket), lengths: [port, agent], clock, process }
    }
}

/// Moves the connection of a socket to the shared stack. From then on it is read and written there; nothing comes to
/// the socket itself. If the process makes a call on the socket that the agent answers, as setting an option, the
/// connection moves back before: its handle is invalid then, and the socket serves for all calls again.
///
/// # Errors
/// No agent with a shared stack serves the socket, or the connection can't move: `EAGAIN` if its bytes are on their way
/// between the agent and this process, and it may later.
pub fn enter(socket: BorrowedFd<'_>) -> Result<Entry, DirectError> {
    let mut bytes = [0; Entry::LEN];
    if ask_socket(socket, (LEVEL, ENTER), &mut bytes)? < bytes.len() {
        return Err(DirectError::Invalid);
    }
    Ok(Entry::from_bytes(&bytes))
}

/// Moves the connection of a socket back to the agent, for good.
///
/// # Errors
/// No agent serves the socket.
pub fn leave(socket: BorrowedFd<'_>) -> Result<(), DirectError> {
    ask_socket(socket, (LEVEL, LEAVE), &mut []).map(drop).map_err(DirectError::from)
}

impl Member {
    /// Makes this process one that shares the stack, after the connection of one of its sockets has [entered](enter).
    ///
    /// # Errors
    /// This process does already, something else is at the image's addresses, or the kernel refuses.
    pub fn join(socket: BorrowedFd<'_>, entry: &Entry) -> Result<Member, DirectError> {
        let descriptor = |name| ask_socket_for_descriptor(socket, (LEVEL, name));
        let files = (0..DESCRIPTORS).map(descriptor).collect::<Result<Vec<OwnedFd>, _>>()?;
        let Ok([text, data, port, agent, notifiers @ ..]) =
            <[OwnedFd; DESCRIPTORS as usize]>::try_from(files)
        else {
            return Err(DirectError::Invalid);
        };
        let image = Image::map(&Files { text, data })?;
        image.map_ring(RingPeer::Port, port, entry.lengths[0] as usize)?;
        image.map_ring(RingPeer::Agent, agent, entry.lengths[1] as usize)?;
        Ok(Member::new(image, Notifiers::from(notifiers), entry.clock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn an_entry_has_a_form() {
        let clock = Clock::from_parts([3, 4, 5]);
        let socket = SocketId::from_bits(7 << 32 | 9);
        let entry = Entry { socket, lengths: [1 << 40, 2], clock, process: 11 };
        let read = Entry::from_bytes(&entry.to_bytes());
        assert_eq!((read.socket, read.lengths, read.process), (entry.socket, entry.lengths, 11));
        assert_eq!(read.clock.to_parts(), [3, 4, 5]);
    }

    #[test]
    fn a_socket_without_an_agent_enters_nowhere() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(enter(one.as_fd()).is_err() && leave(one.as_fd()).is_err());
    }
}
