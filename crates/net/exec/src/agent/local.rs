//! The UNIX sockets that stand in for a program's: how they are made, filled and joined.

use ringway_host::random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::AtFlags;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, bind, connect, getpeername, listen, recv, recvmsg, send, socket_with,
    socketpair, sockopt,
};
use std::hash::{BuildHasher, RandomState};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Memory of the bytes that a program has written and that are not in the stack yet. A byte that stays unread keeps a
/// buffer of up to 64 KB, and a socket is writable only while a quarter of this is unused at least.
const SEND: usize = 212_992;
/// Connections of a listening UNIX socket that wait at most (`somaxconn`).
const BACKLOG: i32 = 4096;
/// A piece of what fills a socket's memory.
const FILLING: usize = 36 << 10;
/// No more pieces than that fit.
const PIECES: usize = 32;

/// The number of a UNIX socket's file, by which it is known; `None`: it is none.
pub fn number(socket: BorrowedFd<'_>) -> Option<u64> {
    // Attack: a file of a file system that the program serves itself, which would be asked for the number.
    let is_unix = sockopt::socket_domain(socket).is_ok_and(|family| family == AddressFamily::UNIX);
    is_unix.then(|| rustix::fs::fstat(socket).map(|stat| stat.st_ino).ok())?
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

/// Names of our sockets. Those that are to be reached are in a folder that no other process has; the others name who
/// connects. Attack: another process that takes names before us; none is like the one before it.
#[derive(Debug)]
pub struct Names {
    folder: OwnedFd,
    group: u64,
    secret: RandomState,
    next: u64,
}

/// Where a listening socket is reached.
#[derive(Debug)]
pub struct Place {
    pub address: SocketAddrUnix,
    name: String,
}

impl Names {
    pub fn new(folder: OwnedFd) -> Result<Names, Errno> {
        let group = random().map_err(|_| Errno::IO)?;
        Ok(Names { folder, group, secret: RandomState::new(), next: 0 })
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.secret.hash_one(self.next)
    }

    /// A new place for a listening socket.
    pub fn place(&mut self) -> Result<Place, Errno> {
        let name = format!("{:016x}", self.number());
        let path = format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd());
        Ok(Place { address: SocketAddrUnix::new(path)?, name })
    }

    /// Gives up the place of a socket that listens no more.
    pub fn leave(&self, place: &Place) {
        // It is not there if the socket could not be bound.
        let _ = rustix::fs::unlinkat(&self.folder, &place.name, AtFlags::empty());
    }

    /// A new name of one who connects, and its number.
    pub fn next(&mut self) -> Result<(u64, SocketAddrUnix), Errno> {
        let number = self.number();
        let name = format!("{}{number:016x}", self.text());
        Ok((number, SocketAddrUnix::new_abstract_name(name.as_bytes())?))
    }

    fn text(&self) -> String {
        format!("ringway-exec/{:016x}/", self.group)
    }

    /// The number in the name of the socket that a socket is joined with. `None`: it is not one of ours.
    pub fn peer(&self, socket: BorrowedFd<'_>) -> Option<u64> {
        let name = SocketAddrUnix::try_from(getpeername(socket).ok()??).ok()?;
        let name = std::str::from_utf8(name.abstract_name()?).ok()?;
        u64::from_str_radix(name.strip_prefix(&self.text())?, 16).ok()
    }
}

/// Joins programs' sockets with ours.
#[derive(Debug)]
pub struct Hub {
    listener: OwnedFd,
    place: Place,
    /// A socket that was not taken waits in the queue.
    is_stale: bool,
}

impl Hub {
    pub fn new(names: &mut Names) -> Result<Hub, Errno> {
        let listener = stream(true)?;
        let place = names.place()?;
        bind(&listener, &place.address)?;
        listen(&listener, BACKLOG)?;
        Ok(Hub { listener, place, is_stale: false })
    }

    fn accept(&self) -> Result<OwnedFd, Errno> {
        accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    /// Joins a program's socket with a new one of ours, which never blocks.
    pub fn join(&mut self, theirs: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        // The next in the queue must be that of this socket.
        while self.is_stale {
            match self.accept() {
                Ok(_) => {}
                Err(Errno::AGAIN) => self.is_stale = false,
                Err(error) => return Err(error),
            }
        }
        connect(theirs, &self.place.address)?;
        loop {
            let ours = self.accept().inspect_err(|_| self.is_stale = true)?;
            // Attack: another process of this user that has found the folder.
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

/// Makes a program's socket a listening one, which our sockets reach at a place.
pub fn listen_at(theirs: BorrowedFd<'_>, place: &Place, backlog: i32) -> Result<(), Errno> {
    bind(theirs, &place.address)?;
    listen(theirs, backlog)
}

/// Reads all that a program's socket has.
pub fn drain(theirs: BorrowedFd<'_>) -> Vec<u8> {
    let (mut bytes, mut filled) = (Vec::new(), 0);
    loop {
        bytes.resize(filled + FILLING, 0);
        match recv(theirs, &mut bytes[filled..], RecvFlags::DONTWAIT) {
            Ok((count, _)) if count > 0 => filled += count,
            _ => break,
        }
    }
    bytes.truncate(filled);
    bytes
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
pub struct End(OwnedFd);

impl End {
    /// Of a socket whose peer has written a byte.
    pub fn new(socket: OwnedFd) -> Result<End, Errno> {
        ringway_host::set_peek_offset(socket.as_fd(), 1).map_err(|_| Errno::IO)?;
        Ok(End(socket))
    }

    /// Looks at bytes that the program has written; none at the end. Also returns whether there may be more, although
    /// they don't fill `bytes`: the kernel stops behind bytes that a program has sent with descriptors.
    pub fn look(&self, bytes: &mut [u8]) -> Result<(usize, bool), Errno> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(bytes)];
        let seen = recvmsg(&self.0, &mut parts, &mut RecvAncillaryBuffer::default(), flags)?;
        Ok((seen.bytes, seen.flags.contains(ReturnFlags::CTRUNC)))
    }

    /// Whether the program has written bytes, or closed its end, which is not looked at yet.
    pub fn has_news(&self) -> bool {
        let seen = self.look(&mut [0]);
        // What was looked at is looked at again. It fails for no socket of ours.
        let _ = matches!(seen, Ok((1.., _))).then(|| ringway_host::set_peek_offset(self.0.as_fd(), 1));
        seen != Err(Errno::AGAIN)
    }

    /// Takes `count` of `seen` bytes; `spare` is overwritten.
    pub fn take(&self, count: usize, seen: usize, spare: &mut [u8]) -> Result<(), Errno> {
        let mut left = count;
        while left > 0 {
            let most = left.min(spare.len());
            let (taken, _) = recv(&self.0, &mut spare[..most], RecvFlags::DONTWAIT)?;
            if taken == 0 {
                break;
            }
            left -= taken;
        }
        if count == seen {
            return Ok(());
        }
        ringway_host::set_peek_offset(self.0.as_fd(), 1).map_err(|_| Errno::IO)
    }

    /// Gives the program bytes; as many as have room.
    pub fn give(&self, bytes: &[u8]) -> Result<usize, Errno> {
        send(&self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    }

    /// Ends the program's reading.
    pub fn finish(&self) {
        // A program that has closed its socket needs no end.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write);
    }

    /// Whether the program has closed its socket.
    pub fn is_closed(&self) -> bool {
        ready(self.0.as_fd(), PollFlags::empty()).contains(PollFlags::HUP)
    }

    /// Bytes that wait to be taken.
    pub fn waiting(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.0).unwrap_or(0).saturating_sub(1)
    }
}

impl AsFd for End {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed at the end.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new() -> Folder {
            let path = std::env::temp_dir().join(format!("ringway-names-{:016x}", random().unwrap()));
            std::fs::create_dir(&path).unwrap();
            Folder(path)
        }

        fn names(&self) -> Names {
            Names::new(std::fs::File::open(&self.0).unwrap().into()).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn take(end: &End, count: usize, seen: usize) {
        end.take(count, seen, &mut [0; 5]).unwrap();
    }

    fn joined() -> (OwnedFd, End) {
        let folder = Folder::new();
        let mut names = folder.names();
        let mut hub = Hub::new(&mut names).unwrap();
        let theirs = stream(true).unwrap();
        let ours = hub.join(theirs.as_fd());
        send(&theirs, &[0], SendFlags::DONTWAIT).unwrap();
        (theirs, End::new(ours.unwrap()).unwrap())
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
        let (theirs, end) = joined();
        assert_eq!(look(&end), Err(Errno::AGAIN));
        for text in [&b"hello"[..], b", ", b"world"] {
            send(&theirs, text, SendFlags::empty()).unwrap();
        }
        assert_eq!(look(&end).unwrap(), b"hello, world");
        take(&end, 3, 12);
        assert_eq!(look(&end).unwrap(), b"lo, world");
        take(&end, 9, 9);
        assert_eq!((look(&end), end.waiting()), (Err(Errno::AGAIN), 0));
        assert!(!end.has_news());
        send(&theirs, b"!?", SendFlags::empty()).unwrap();
        assert!(end.has_news() && end.has_news());
        assert_eq!(look(&end).unwrap(), b"!?");
        take(&end, 2, 2);
        rustix::net::shutdown(&theirs, rustix::net::Shutdown::Write).unwrap();
        assert!(end.has_news());
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
            let (theirs, end) = joined();
            send(&theirs, written, SendFlags::empty()).unwrap();
            take(&end, written.len(), written.len());
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
        let (theirs, end) = joined();
        let filled = fill(theirs.as_fd());
        assert!(filled > 0);
        assert!(!ready(theirs.as_fd(), PollFlags::OUT).contains(PollFlags::OUT));
        let mut seen = vec![0; filled];
        assert_eq!(end.look(&mut seen), Ok((filled, false)));
        take(&end, filled, filled);
        assert!(ready(theirs.as_fd(), PollFlags::OUT).contains(PollFlags::OUT));
        assert_eq!(end.waiting(), 0);
    }

    #[test]
    fn a_listener_is_reached_by_its_name() {
        let folder = Folder::new();
        let mut names = folder.names();
        let at = names.place().unwrap();
        let listener = stream(true).unwrap();
        listen_at(listener.as_fd(), &at, 1).unwrap();
        let (number, own) = names.next().unwrap();
        let _ours = offer(&own, &at.address).unwrap();
        let theirs = accept_with(&listener, SocketFlags::empty()).unwrap();
        assert_eq!((names.peer(theirs.as_fd()), is_own(theirs.as_fd())), (Some(number), true));
        drop(listener);
        let (_, own) = names.next().unwrap();
        assert_eq!(offer(&own, &at.address).err(), Some(Errno::CONNREFUSED));
        names.leave(&at);
        assert_eq!(offer(&own, &at.address).err(), Some(Errno::NOENT));
    }

    #[test]
    fn a_socket_that_was_not_taken_is_never_joined_with_another() {
        let folder = Folder::new();
        let mut names = folder.names();
        let mut hub = Hub::new(&mut names).unwrap();
        let (lost, theirs) = (stream(true).unwrap(), stream(true).unwrap());
        connect(&lost, &hub.place.address).unwrap();
        hub.is_stale = true;
        let ours = hub.join(theirs.as_fd()).unwrap();
        send(&ours, b"for theirs", SendFlags::empty()).unwrap();
        assert_eq!(read(&theirs).unwrap(), b"for theirs");
        assert_eq!(read(&lost).unwrap(), b"");
    }

    #[test]
    fn what_was_given_to_a_socket_is_drained() {
        let (theirs, end) = joined();
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        assert_eq!(end.give(&bytes), Ok(bytes.len()));
        assert_eq!(drain(theirs.as_fd()), bytes);
        assert_eq!(drain(theirs.as_fd()), b"");
    }
}
