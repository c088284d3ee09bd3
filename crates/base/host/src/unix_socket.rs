//! UNIX sockets that carry descriptors.

use crate::error::{HostError, Named};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Maximum number of descriptors per message (the kernel's SCM_MAX_FD).
pub const DESCRIPTORS: usize = 253;

/// Sends bytes, with descriptors attached to the first of them; returns the number of bytes sent. Blocks if
/// the socket does.
pub fn send_with(
    socket: impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<usize, HostError> {
    // A closed peer is reported as an error instead of SIGPIPE.
    send(socket.as_fd(), bytes, descriptors, SendFlags::NOSIGNAL).named("sending on a socket")
}

/// Sends bytes without blocking, on a socket, or on the pipe that some front-ends use instead: a message is
/// dropped if the reader does not read. Returns the number of bytes sent.
pub fn try_write(to: impl AsFd, bytes: &[u8]) -> usize {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    match send(to.as_fd(), bytes, &[], flags) {
        Err(Errno::NOTSOCK) => crate::peer_descriptor::write_pipe(to.as_fd(), bytes).unwrap_or(0),
        sent => sent.unwrap_or(0),
    }
}

/// Whether a UNIX socket, or its peer, has a name: sockets of [`std::os::unix::net::UnixStream::pair`] have
/// none, and of two that connected through a listening socket, one has a name.
fn has_name(socket: impl AsFd) -> bool {
    // An unnamed address ends after its family (unix(7)).
    let has_name =
        |name: rustix::net::SocketAddrAny| name.addr_len() as usize > size_of::<libc::sa_family_t>();
    let socket = socket.as_fd();
    rustix::net::getsockname(socket).map_or(true, has_name)
        || rustix::net::getpeername(socket).is_ok_and(|name| name.is_some_and(has_name))
}

/// Stops receiving through this socket. `false`: it has a name, or is not a socket, and must not be kept.
///
/// Attack: the peer's own end of a session, passed to us, or in flight through a socket that we hold and
/// don't read, keeps that session open when the peer is gone.
pub fn only_send(socket: impl AsFd) -> bool {
    let socket = socket.as_fd();
    if has_name(socket) || rustix::net::shutdown(socket, rustix::net::Shutdown::Read).is_err() {
        return false;
    }
    // Discards data received earlier; without room for descriptors, these are closed.
    let mut bytes = [0; 4096];
    let mut read = || matches!(try_receive_with(socket, &mut bytes, 0), Ok(Some((1.., _))));
    // More than any socket buffer holds.
    (0..1 << 16).all(|_| read());
    true
}

/// Sets from which unread byte on a stream socket is looked at with MSG_PEEK (`SO_PEEK_OFF`).
pub fn set_peek_offset(socket: BorrowedFd<'_>, offset: i32) -> Result<(), HostError> {
    let (level, name, len) = (libc::SOL_SOCKET, libc::SO_PEEK_OFF, size_of::<i32>() as libc::socklen_t);
    let number = std::os::fd::AsRawFd::as_raw_fd(&socket);
    // SAFETY: the kernel reads `len` bytes of `offset`, which lives until the call is over.
    let set = unsafe { libc::setsockopt(number, level, name, (&raw const offset).cast(), len) };
    if set == 0 {
        Ok(())
    } else {
        Err(crate::tap::last_error()).named("setting from where a socket is looked at")
    }
}

/// Asks a socket for an option by a system call of its own (`getsockopt`). Returns the call's result, and the length of
/// the option's value.
fn ask(socket: BorrowedFd<'_>, option: (i32, i32), value: &mut [u8]) -> Result<(i64, usize), HostError> {
    let mut len = value.len() as libc::socklen_t;
    let number = std::os::fd::AsRawFd::as_raw_fd(&socket);
    let (at, len_at) = (value.as_mut_ptr(), &raw mut len);
    loop {
        // SAFETY: the kernel, or who answers for it, writes at most `len` bytes to `value`, and their number.
        let result = unsafe { libc::syscall(libc::SYS_getsockopt, number, option.0, option.1, at, len_at) };
        match crate::tap::last_error() {
            _ if result >= 0 => return Ok((result, value.len().min(len as usize))),
            Errno::INTR => {}
            error => return Err(error).named("asking a socket"),
        }
    }
}

/// Asks a socket for an option, a level and a name; the length of its value.
///
/// # Errors
/// It has no such option.
pub fn ask_socket(socket: BorrowedFd<'_>, option: (i32, i32), value: &mut [u8]) -> Result<usize, HostError> {
    ask(socket, option, value).map(|(_, len)| len)
}

/// Asks the agent that serves a socket for an option whose answer is a new descriptor of this process.
///
/// # Errors
/// No agent serves it, or none with such an option.
pub fn ask_socket_for_descriptor(socket: BorrowedFd<'_>, option: (i32, i32)) -> Result<OwnedFd, HostError> {
    let (number, _) = ask(socket, option, &mut [])?;
    // The kernel's own answers are 0, standard input's number.
    let number = i32::try_from(number).ok().filter(|number| *number > 0);
    let number = number.ok_or(HostError::Call { call: "asking a socket", error: Errno::NOPROTOOPT })?;
    // SAFETY: the agent has just made it for this call.
    Ok(unsafe { std::os::fd::FromRawFd::from_raw_fd(number) })
}

/// Sends a signal's eight bytes on a socket without blocking; a full one is signalled already.
pub(crate) fn signal_socket(socket: BorrowedFd<'_>, bytes: &[u8; 8]) {
    let _ = rustix::net::send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

fn send(
    socket: BorrowedFd<'_>,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<usize, Errno> {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOMANYREFS);
    }
    loop {
        match rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Receives bytes and their descriptors; no bytes if the other end is closed. Blocks if the socket does.
/// Attack: more than `most` descriptors, to fill our descriptor table; surplus ones are never installed in
/// it.
pub fn receive_with(
    socket: impl AsFd,
    bytes: &mut [u8],
    most: usize,
) -> Result<(usize, Vec<OwnedFd>), HostError> {
    receive(socket.as_fd(), bytes, most, RecvFlags::CMSG_CLOEXEC).named("receiving on a socket")
}

/// As [`receive_with`] without blocking: `None` if there is no data.
pub fn try_receive_with(
    socket: impl AsFd,
    bytes: &mut [u8],
    most: usize,
) -> Result<Option<(usize, Vec<OwnedFd>)>, HostError> {
    match receive(socket.as_fd(), bytes, most, RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT) {
        Err(Errno::AGAIN) => Ok(None),
        result => result.map(Some).named("receiving on a socket"),
    }
}

/// As [`try_receive_with`], and leaves the data, with copies of the descriptors, in the socket.
pub(crate) fn peek_with(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    most: usize,
) -> Result<(usize, Vec<OwnedFd>), HostError> {
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | RecvFlags::PEEK;
    receive(socket, bytes, most, flags).named("looking at a socket")
}

fn receive(
    socket: BorrowedFd<'_>,
    bytes: &mut [u8],
    most: usize,
    flags: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>), Errno> {
    // Attack: descriptors whose closing blocks. Descriptors that don't fit into the buffer are dropped by the
    // kernel.
    let room = if most == 0 { 0 } else { size_of::<libc::cmsghdr>() + most * size_of::<libc::c_int>() };
    let mut space = vec![MaybeUninit::uninit(); room + align_of::<libc::cmsghdr>()];
    let begin = space.as_ptr().align_offset(align_of::<libc::cmsghdr>());
    let mut ancillary = RecvAncillaryBuffer::new(&mut space[begin..begin + room]);
    let received = loop {
        match rustix::net::recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut ancillary, flags) {
            Err(Errno::INTR) => {}
            result => break result?,
        }
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}

/// The credentials of a connection's peer at the time of connecting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its process.
    pub process: i32,
    /// Its user.
    pub user: u32,
    /// Its group.
    pub group: u32,
}

/// Reads the peer's credentials of a UNIX socket from the kernel.
pub fn peer(socket: impl AsFd) -> Result<Peer, HostError> {
    let found = rustix::net::sockopt::socket_peercred(socket).named("reading a peer's credentials")?;
    Ok(Peer { process: found.pid.as_raw_pid(), user: found.uid.as_raw(), group: found.gid.as_raw() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let found = peer(&ours).unwrap();
        assert_eq!(found.process, std::process::id() as i32);
        assert_eq!(found.user, rustix::process::geteuid().as_raw());
    }

    #[test]
    fn only_connections_through_a_listener_have_a_name() {
        let (one, other) = UnixStream::pair().unwrap();
        assert!(!has_name(&one) && !has_name(&other));
        let path = std::env::temp_dir().join(format!("ringway-name-{}", std::process::id()));
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let theirs = UnixStream::connect(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let (ours, _) = listener.accept().unwrap();
        assert!(has_name(&ours) && has_name(&theirs));
        assert!(!only_send(&ours) && only_send(&one));
        assert!(send_with(other.as_fd(), b"x", &[]).is_err(), "nothing can be sent to it");
        assert!(send_with(one.as_fd(), b"x", &[]).is_ok());
    }

    #[test]
    fn descriptors_arrive_with_their_bytes_and_surplus_ones_are_closed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        assert!(try_receive_with(ours.as_fd(), &mut [0; 8], 4).unwrap().is_none());
        let fd = theirs.as_fd();
        assert_eq!(send_with(theirs.as_fd(), b"abc", &[fd, fd, fd]).unwrap(), 3);
        let mut bytes = [0; 8];
        let (count, descriptors) = receive_with(ours.as_fd(), &mut bytes, 2).unwrap();
        assert_eq!((count, descriptors.len(), &bytes[..3]), (3, 2, &b"abc"[..]));
        drop((descriptors, theirs));
        assert_eq!(receive_with(ours.as_fd(), &mut bytes, 2).unwrap().0, 0);
        assert!(send_with(ours.as_fd(), b"x", &[]).is_err());
    }

    #[test]
    fn a_message_to_a_full_pipe_is_dropped() {
        use std::io::Read;
        let (mut reader, writer) = std::io::pipe().unwrap();
        crate::set_nonblocking(writer.as_fd()).unwrap();
        assert_eq!(try_write(&writer, b"abc"), 3);
        let mut bytes = [0; 8];
        assert_eq!(reader.read(&mut bytes).unwrap(), 3);
        assert_eq!(&bytes[..3], b"abc");
        (0..100).for_each(|_| _ = try_write(&writer, &[0; 4096]));
        drop(reader);
        assert_eq!(try_write(&writer, b"abc"), 0);
    }
}
