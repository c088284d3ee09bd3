//! The UNIX sockets that stand in for a program's: how they are made, filled and joined.

use ringway_host::random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, bind, connect, getpeername, listen, recv, recvmsg, send, socket_with,
    socketpair, sockopt,
};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Memory of the bytes that a program has written and that are not in the stack yet. A byte that stays unread keeps a
/// buffer of up to 64 KB, and a socket is writable only while a quarter of this is unused at least.
const SEND: usize = 212_992;
/// Connections of a listening UNIX socket that wait at most (`somaxconn`).
const BACKLOG: i32 = 4096;
/// A piece of what fills a socket's memory.
const FILLING: usize = 36 << 10;
/// No more pieces than that fit.
const PIECES: usize = 32;

/// The number of a socket's file, by which it is known; `None`: it is no socket.
pub fn number(socket: BorrowedFd<'_>) -> Option<u64> {
    let stat = rustix::fs::fstat(socket).ok()?;
    (FileType::from_raw_mode(stat.st_mode) == FileType::Socket).then_some(stat.st_ino)
}

/// A stream socket that is not connected.
pub fn stream(is_nonblocking: bool) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags(is_nonblocking), None)?;
    // A smaller limit of the system holds back a writer earlier.
    let _ = sockopt::set_socket_send_buffer_size(&socket, SEND);
    Ok(socket)
}

fn flags(is_nonblocking: bool) -> SocketFlags {
    SocketFlags::CLOEXEC | if is_nonblocking { SocketFlags::NONBLOCK } else { SocketFlags::empty() }
}

/// Two joined sockets for datagrams: the program's, and ours, which never blocks.
pub fn datagrams(is_nonblocking: bool) -> Result<(OwnedFd, OwnedFd), Errno> {
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags(is_nonblocking), None)?;
    rustix::io::ioctl_fionbio(&pair.1, true)?;
    Ok(pair)
}

/// Whether calls on a socket don't block.
pub fn is_nonblocking(socket: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(socket).is_ok_and(|flags| flags.contains(rustix::fs::OFlags::NONBLOCK))
}

/// What is ready on a socket.
pub fn ready(socket: BorrowedFd<'_>, what: PollFlags) -> PollFlags {
    let mut polled = [PollFd::from_borrowed_fd(socket, what)];
    match poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => polled[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

/// Names of our sockets. They are in the network namespace of this process, where others could use them: no other
/// can guess one.
#[derive(Debug)]
pub struct Names {
    secret: u64,
    next: u64,
}

impl Names {
    pub fn new() -> Result<Names, Errno> {
        Ok(Names { secret: random().map_err(|_| Errno::IO)?, next: 0 })
    }

    /// A new name, and its number.
    pub fn next(&mut self) -> Result<(u64, SocketAddrUnix), Errno> {
        self.next += 1;
        Ok((self.next, self.of(self.next)?))
    }

    fn text(&self) -> String {
        format!("ringway-exec/{:016x}/", self.secret)
    }

    fn of(&self, number: u64) -> Result<SocketAddrUnix, Errno> {
        SocketAddrUnix::new_abstract_name(format!("{}{number}", self.text()).as_bytes())
    }

    /// The number in the name of the socket that a socket is joined with. `None`: it is not one of ours.
    pub fn peer(&self, socket: BorrowedFd<'_>) -> Option<u64> {
        let name = SocketAddrUnix::try_from(getpeername(socket).ok()??).ok()?;
        std::str::from_utf8(name.abstract_name()?).ok()?.strip_prefix(&self.text())?.parse().ok()
    }
}

/// A place where programs' sockets are joined with ours.
#[derive(Debug)]
pub struct Hub {
    listener: OwnedFd,
    name: SocketAddrUnix,
}

impl Hub {
    pub fn new(names: &mut Names) -> Result<Hub, Errno> {
        let listener = stream(true)?;
        let (_, name) = names.next()?;
        bind(&listener, &name)?;
        listen(&listener, BACKLOG)?;
        Ok(Hub { listener, name })
    }

    /// Joins a program's socket with a new one of ours, which never blocks.
    pub fn join(&self, theirs: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        connect(theirs, &self.name)?;
        loop {
            let ours = accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
            // Attack: another process that has found the name.
            if is_own(ours.as_fd()) {
                return Ok(ours);
            }
        }
    }
}

/// Whether this process made the other end.
pub fn is_own(socket: BorrowedFd<'_>) -> bool {
    let own = rustix::process::getpid();
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.pid == own)
}

/// Makes a program's socket a listening one, which our sockets reach by `name`.
pub fn listen_at(theirs: BorrowedFd<'_>, name: &SocketAddrUnix, backlog: i32) -> Result<(), Errno> {
    bind(theirs, name)?;
    listen(theirs, backlog)
}

/// A socket of ours that waits to be accepted by a program's listening socket.
///
/// # Errors
/// [`Errno::AGAIN`]: the queue is full; [`Errno::CONNREFUSED`]: nobody has the listening socket any more.
pub fn offer(own: &SocketAddrUnix, listener: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let ours = stream(true)?;
    bind(&ours, own)?;
    connect(&ours, listener)?;
    Ok(ours)
}

/// Writes to a program's socket what it seems to have written, so that it is not writable. Returns the bytes.
pub fn fill(theirs: BorrowedFd<'_>) -> usize {
    let piece = [0; FILLING];
    let mut filled = 0;
    for _ in 0..PIECES {
        if !ready(theirs, PollFlags::OUT).contains(PollFlags::OUT) {
            break;
        }
        filled += send(theirs, &piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL).unwrap_or(0);
    }
    filled
}

/// The other end of a program's stream socket.
///
/// One byte that was taken already always stays unread there. If this process closes its socket, or ends, the
/// program's is reset and not at its end, since the kernel resets a UNIX socket whose peer leaves bytes unread.
#[derive(Debug)]
pub struct End {
    socket: OwnedFd,
    spare: Vec<u8>,
}

impl End {
    /// Of a socket whose peer has written a byte.
    pub fn new(socket: OwnedFd) -> Result<End, Errno> {
        ringway_host::set_peek_offset(socket.as_fd(), 1).map_err(|_| Errno::IO)?;
        Ok(End { socket, spare: Vec::new() })
    }

    /// Looks at bytes that the program has written; none at the end. Also returns whether there may be more, although
    /// they don't fill `bytes`: the kernel stops behind bytes that a program has sent with descriptors.
    pub fn look(&self, bytes: &mut [u8]) -> Result<(usize, bool), Errno> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(bytes)];
        let seen = recvmsg(&self.socket, &mut parts, &mut RecvAncillaryBuffer::default(), flags)?;
        Ok((seen.bytes, seen.flags.contains(ReturnFlags::CTRUNC)))
    }

    /// Takes `count` of `seen` bytes.
    pub fn take(&mut self, count: usize, seen: usize) -> Result<(), Errno> {
        self.spare.resize(self.spare.len().max(count), 0);
        let mut left = count;
        while left > 0 {
            let (taken, _) = recv(&self.socket, &mut self.spare[..left], RecvFlags::DONTWAIT)?;
            if taken == 0 {
                break;
            }
            left -= taken;
        }
        if count == seen {
            return Ok(());
        }
        ringway_host::set_peek_offset(self.socket.as_fd(), 1).map_err(|_| Errno::IO)
    }

    /// Gives the program bytes; as many as have room.
    pub fn give(&self, bytes: &[u8]) -> Result<usize, Errno> {
        send(&self.socket, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    }

    /// Ends the program's reading.
    pub fn finish(&self) {
        // A program that has closed its socket needs no end.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Write);
    }

    /// Whether the program has closed its socket.
    pub fn is_closed(&self) -> bool {
        ready(self.socket.as_fd(), PollFlags::empty()).contains(PollFlags::HUP)
    }

    /// Bytes that wait to be taken.
    pub fn waiting(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.socket).unwrap_or(0).saturating_sub(1)
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined() -> (OwnedFd, End) {
        let mut names = Names::new().unwrap();
        let hub = Hub::new(&mut names).unwrap();
        let theirs = stream(true).unwrap();
        let ours = hub.join(theirs.as_fd()).unwrap();
        send(&theirs, &[0], SendFlags::DONTWAIT).unwrap();
        (theirs, End::new(ours).unwrap())
    }

    fn read(socket: &OwnedFd) -> Result<Vec<u8>, Errno> {
        let mut bytes = [0; 100];
        let (count, _) = recv(socket, &mut bytes[..], RecvFlags::DONTWAIT)?;
        Ok(bytes[..count].to_vec())
    }

    fn look(end: &End) -> Result<Vec<u8>, Errno> {
        let mut bytes = [0; 100];
        end.look(&mut bytes).map(|(count, _)| bytes[..count].to_vec())
    }

    #[test]
    fn bytes_are_seen_once_and_in_order_however_many_are_taken() {
        let (theirs, mut end) = joined();
        assert_eq!(look(&end), Err(Errno::AGAIN));
        for text in [&b"hello"[..], b", ", b"world"] {
            send(&theirs, text, SendFlags::empty()).unwrap();
        }
        assert_eq!(look(&end).unwrap(), b"hello, world");
        end.take(3, 12).unwrap();
        assert_eq!(look(&end).unwrap(), b"lo, world");
        end.take(9, 9).unwrap();
        assert_eq!((look(&end), end.waiting()), (Err(Errno::AGAIN), 0));
        rustix::net::shutdown(&theirs, rustix::net::Shutdown::Write).unwrap();
        assert_eq!(look(&end).unwrap(), b"");
        assert!(!end.is_closed());
        drop(theirs);
        assert!(end.is_closed());
    }

    #[test]
    fn bytes_behind_descriptors_are_told() {
        let (theirs, end) = joined();
        ringway_host::send_with(theirs.as_fd(), b"one", &[theirs.as_fd()]).unwrap();
        send(&theirs, b"two", SendFlags::empty()).unwrap();
        let mut bytes = [0; 100];
        assert_eq!(end.look(&mut bytes), Ok((3, true)));
        assert_eq!(end.look(&mut bytes), Ok((3, false)));
    }

    #[test]
    fn a_socket_whose_end_is_closed_is_reset() {
        for written in [&b""[..], b"bytes that were taken"] {
            let (theirs, mut end) = joined();
            send(&theirs, written, SendFlags::empty()).unwrap();
            end.take(written.len(), written.len()).unwrap();
            end.give(b"last").unwrap();
            drop(end);
            assert_eq!(read(&theirs).unwrap(), b"last");
            assert_eq!(read(&theirs), Err(Errno::CONNRESET));
        }
        let (theirs, end) = joined();
        end.finish();
        assert_eq!(read(&theirs).unwrap(), b"");
    }

    #[test]
    fn a_filled_socket_is_not_writable_until_it_is_drained() {
        let (theirs, mut end) = joined();
        let filled = fill(theirs.as_fd());
        assert!(filled > 0);
        assert!(!ready(theirs.as_fd(), PollFlags::OUT).contains(PollFlags::OUT));
        let mut seen = vec![0; filled];
        assert_eq!(end.look(&mut seen), Ok((filled, false)));
        end.take(filled, filled).unwrap();
        assert!(ready(theirs.as_fd(), PollFlags::OUT).contains(PollFlags::OUT));
        assert_eq!(end.waiting(), 0);
    }

    #[test]
    fn a_listener_is_reached_by_its_name() {
        let mut names = Names::new().unwrap();
        let (_, at) = names.next().unwrap();
        let listener = stream(true).unwrap();
        listen_at(listener.as_fd(), &at, 1).unwrap();
        let (number, own) = names.next().unwrap();
        let _ours = offer(&own, &at).unwrap();
        let theirs = accept_with(&listener, SocketFlags::empty()).unwrap();
        assert_eq!((names.peer(theirs.as_fd()), is_own(theirs.as_fd())), (Some(number), true));
        drop(listener);
        let (_, own) = names.next().unwrap();
        assert_eq!(offer(&own, &at).err(), Some(Errno::CONNREFUSED));
    }
}
