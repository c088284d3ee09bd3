//! A socket that stores descriptors for whoever has it.

use crate::error::{HostError, Named};
use crate::unix_socket::{peek_with, send_with};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Makes a datagram socket that is connected to itself, so that what it sends waits in its own queue. Every process
/// that gets the socket, by SCM_RIGHTS, fork or exec, finds the message there ([`stored_descriptors`]). Nobody else
/// can send to it, since the kernel delivers to a connected socket only what its peer sends.
pub fn descriptor_store(closes_on_exec: bool) -> Result<OwnedFd, HostError> {
    let flags = if closes_on_exec { SocketFlags::CLOEXEC } else { SocketFlags::empty() };
    let made = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    let socket = made.named("making a socket")?;
    // Without a name, the kernel chooses one (autobind, unix(7)).
    rustix::net::bind(&socket, &SocketAddrUnix::new_unnamed()).named("naming a socket")?;
    let own = rustix::net::getsockname(&socket).named("asking a socket's name")?;
    rustix::net::connect(&socket, &own).named("connecting a socket to itself")?;
    // Attack: a program sends to the name before the socket is connected. The queue holds few messages.
    while receive_one(socket.as_fd())? {}
    Ok(socket)
}

/// Takes the oldest message; its descriptors are closed. `false`: there is none.
fn receive_one(socket: BorrowedFd<'_>) -> Result<bool, HostError> {
    Ok(crate::unix_socket::try_receive_with(socket, &mut [0; 1], 0)?.is_some())
}

/// Stores bytes with descriptors, in place of what is there. A reader finds the old message or the new one at any time,
/// also if this process ends meanwhile. Two may not store at the same time.
pub fn store_descriptors(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), HostError> {
    let socket = socket.as_fd();
    let mut found = vec![0; bytes.len() + 1];
    let mut peek = || peek_with(socket, &mut found, 0).ok().map(|(count, _)| found[..count] == *bytes);
    let has_old = peek().is_some();
    send_with(socket, bytes, descriptors)?;
    if has_old {
        receive_one(socket)?;
    }
    // One that ended between the two calls left a message more.
    while peek() == Some(false) && receive_one(socket)? {}
    Ok(())
}

/// What is stored: how many bytes, and new descriptors, at most `most` of them. `None`: nothing, or it is not such a
/// socket.
pub fn stored_descriptors(socket: impl AsFd, bytes: &mut [u8], most: usize) -> Option<(usize, Vec<OwnedFd>)> {
    let socket = socket.as_fd();
    let domain = rustix::net::sockopt::socket_domain(socket).ok()?;
    let kind = rustix::net::sockopt::socket_type(socket).ok()?;
    if (domain, kind) != (AddressFamily::UNIX, SocketType::DGRAM) {
        return None;
    }
    peek_with(socket, bytes, most).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_is_stored_is_found_again_and_again() {
        let store_of = descriptor_store(true).unwrap();
        let mut bytes = [0; 16];
        assert!(stored_descriptors(&store_of, &mut bytes, 2).is_none());
        for round in 0..3_u8 {
            let (read, write) = std::io::pipe().unwrap();
            store_descriptors(&store_of, &[round; 8], &[read.as_fd(), write.as_fd()]).unwrap();
            drop((read, write));
            for _ in 0..20 {
                let copy = store_of.try_clone().unwrap();
                let (count, fds) = stored_descriptors(&copy, &mut bytes, 2).unwrap();
                assert_eq!((count, &bytes[..8], fds.len()), (8, &[round; 8][..], 2));
                let [read, write]: [OwnedFd; 2] = fds.try_into().unwrap();
                std::fs::File::from(write).write_all(&[round]).unwrap();
                assert_eq!(rustix::io::read(&read, &mut bytes).unwrap(), 1);
            }
        }
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(stored_descriptors(&one, &mut bytes, 2).is_none());
    }

    #[test]
    fn what_is_stored_is_replaced_also_after_one_that_ended_meanwhile() {
        let store_of = descriptor_store(true).unwrap();
        let found = || {
            let mut bytes = [0; 16];
            let (count, fds) = stored_descriptors(&store_of, &mut bytes, 2).unwrap();
            (bytes[..count].to_vec(), fds.len())
        };
        let fd = store_of.try_clone().unwrap();
        store_descriptors(&store_of, b"one", &[]).unwrap();
        // It has sent, and not taken the old message.
        send_with(&store_of, b"two", &[fd.as_fd()]).unwrap();
        assert_eq!(found(), (b"one".to_vec(), 0));
        store_descriptors(&store_of, b"three", &[fd.as_fd()]).unwrap();
        assert_eq!(found(), (b"three".to_vec(), 1));
        // The same bytes with other descriptors.
        store_descriptors(&store_of, b"three", &[fd.as_fd(), fd.as_fd()]).unwrap();
        assert_eq!(found(), (b"three".to_vec(), 2));
        assert!(receive_one(store_of.as_fd()).unwrap() && !receive_one(store_of.as_fd()).unwrap());
    }

    /// Attack: another program of the host finds the socket's name and sends to it.
    #[test]
    fn nobody_else_can_store() {
        let store_of = descriptor_store(true).unwrap();
        let other = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
        let name = rustix::net::getsockname(&store_of).unwrap();
        let sent = rustix::net::sendto(&other, &[1], rustix::net::SendFlags::DONTWAIT, &name);
        assert_eq!(sent, Err(rustix::io::Errno::PERM));
    }
}
