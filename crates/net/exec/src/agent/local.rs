//! The UNIX sockets that stand in for TCP and UDP sockets: how they are made, filled and connected.

use ringway_host::random;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, sendfile};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, accept_with, bind, connect, getpeername, getsockname, listen, recv, recvmsg, send,
    socket_with, socketpair, sockopt,
};
use rustix::process::Pid;
use std::hash::{BuildHasher, RandomState};
use std::io::IoSliceMut;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::LazyLock;

/// Send buffer of a program's socket: bytes that a program has written and that are not in the stack yet. A byte that
/// stays unread keeps a buffer of up to 64 KB, and a socket is writable only while a quarter of this is unused at
/// least.
const SEND_BUFFER: usize = 212_992;
/// Connections of a listening UNIX socket that wait at most (`somaxconn`).
const BACKLOG: i32 = 4096;
/// Bytes that fill a send buffer: more than a quarter of what the kernel makes of [`SEND_BUFFER`], in whole pages.
const FILLER: usize = 108 << 10;
/// Most times that they fit into a send buffer.
const MAX_FILLERS: usize = 10;
/// How the abstract names of our sockets that connect begin.
const CLIENTS: &str = "ringway-exec/";
/// Bytes that are read at once of what a program's socket has, or copied to it.
const DRAINED: usize = 36 << 10;

/// The kernel's number of a socket, which no other one ever has, and by which the agent knows it; `None`: it is no
/// socket. Attack: a file of a file system that the program serves itself; it is not asked for anything.
pub fn cookie(socket: BorrowedFd<'_>) -> Option<u64> {
    sockopt::socket_cookie(socket).ok()
}

/// A stream socket that is not connected.
pub fn stream(is_nonblocking: bool) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags(is_nonblocking), None)?;
    set_send_buffer(socket.as_fd());
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

/// The events of `what` that a socket has now.
pub fn ready(socket: BorrowedFd<'_>, what: PollFlags) -> PollFlags {
    let mut polled = [PollFd::from_borrowed_fd(socket, what)];
    match poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) {
        Ok(_) => polled[0].revents(),
        Err(_) => PollFlags::empty(),
    }
}

/// Makes names of UNIX sockets. Listening sockets are in a folder that no other process has; abstract names say which
/// socket of ours connects. Attack: another process that takes names before us; none is like the one before it.
#[derive(Debug)]
pub struct Names {
    folder: OwnedFd,
    group: u64,
    secret: RandomState,
    next: u64,
}

/// The path of a listening UNIX socket.
#[derive(Debug)]
pub struct ListenPath {
    pub address: SocketAddrUnix,
    /// The number in its name.
    pub number: u64,
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

    /// A new path for a listening socket.
    pub fn new_listen_path(&mut self) -> Result<ListenPath, Errno> {
        let number = self.number();
        self.listen_path(number)
    }

    /// The path with a number, which another agent may have made in the same folder.
    pub fn listen_path(&self, number: u64) -> Result<ListenPath, Errno> {
        let name = format!("{number:016x}");
        let path = format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd());
        Ok(ListenPath { address: SocketAddrUnix::new(path)?, number, name })
    }

    /// Removes the path of a socket that listens no more.
    pub fn remove(&self, path: &ListenPath) {
        // The path does not exist if the socket could not be bound.
        let _ = rustix::fs::unlinkat(&self.folder, &path.name, AtFlags::empty());
    }

    /// Connects a socket of ours, with a new name, to a program's listening socket, where it waits to be accepted.
    /// Returns the number in the name, and the socket.
    ///
    /// # Errors
    /// [`Errno::AGAIN`]: the queue is full; [`Errno::CONNREFUSED`]: nobody has the listening socket any more.
    pub fn connect_to_listener(&mut self, listener: &SocketAddrUnix) -> Result<(u64, OwnedFd), Errno> {
        let number = self.number();
        let name = format!("{}{number:016x}", self.text());
        let own = SocketAddrUnix::new_abstract_name(name.as_bytes())?;
        let agent_socket = stream(true)?;
        bind(&agent_socket, &own)?;
        connect(&agent_socket, listener)?;
        Ok((number, agent_socket))
    }

    fn text(&self) -> String {
        format!("{CLIENTS}{:016x}/", self.group)
    }

    /// The number in the name of the socket that a socket is connected to. `None`: it is not one of ours.
    pub fn client_of(&self, socket: BorrowedFd<'_>) -> Option<u64> {
        let name = SocketAddrUnix::try_from(getpeername(socket).ok()??).ok()?;
        let name = std::str::from_utf8(name.abstract_name()?).ok()?;
        u64::from_str_radix(name.strip_prefix(&self.text())?, 16).ok()
    }
}

/// The number in the path that a socket listens at. `None`: it has no path that [`Names::new_listen_path`] makes.
pub fn listen_number(socket: BorrowedFd<'_>) -> Option<u64> {
    number_in_path(&SocketAddrUnix::try_from(getsockname(socket).ok()?).ok()?)
}

fn number_in_path(address: &SocketAddrUnix) -> Option<u64> {
    let path = std::str::from_utf8(address.path_bytes()?).ok()?;
    let (_, name) = path.strip_prefix("/proc/self/fd/")?.split_once('/')?;
    u64::from_str_radix(name, 16).ok()
}

/// Whether a socket is a UNIX socket.
pub fn is_unix(socket: BorrowedFd<'_>) -> bool {
    sockopt::socket_domain(socket) == Ok(AddressFamily::UNIX)
}

/// Whether a socket is a UNIX stream socket that was never connected.
pub fn is_unconnected(socket: BorrowedFd<'_>) -> bool {
    is_unix(socket)
        && sockopt::socket_type(socket) == Ok(SocketType::STREAM)
        && sockopt::socket_acceptconn(socket) == Ok(false)
        && matches!(getpeername(socket), Err(Errno::NOTCONN))
}

/// Gives a socket that a program has made the send buffer of ours.
pub fn set_send_buffer(socket: BorrowedFd<'_>) {
    // A smaller limit of the system holds back a writer earlier.
    let _ = sockopt::set_socket_send_buffer_size(socket, SEND_BUFFER);
}

/// Whether a socket is one that an agent has made, whichever it was: it listens or is connected by a name of
/// [`Names`], or its end for datagrams was closed. One that has neither been bound nor connected can't be told from a
/// program's own.
pub fn stands_in(socket: BorrowedFd<'_>) -> bool {
    if !is_unix(socket) {
        return false;
    }
    if sockopt::socket_type(socket) == Ok(SocketType::SEQPACKET) {
        return ready(socket, PollFlags::empty()).contains(PollFlags::HUP);
    }
    let is_of_client =
        |peer: &SocketAddrUnix| peer.abstract_name().is_some_and(|name| name.starts_with(CLIENTS.as_bytes()));
    let peer = getpeername(socket).ok().flatten().and_then(|peer| SocketAddrUnix::try_from(peer).ok());
    listen_number(socket).is_some()
        || peer.is_some_and(|peer| is_of_client(&peer) || number_in_path(&peer).is_some())
}

/// Connects programs' sockets with ours.
#[derive(Debug)]
pub struct Connector {
    listener: OwnedFd,
    path: ListenPath,
    /// A socket that was not accepted may wait in the queue.
    is_stale: bool,
}

impl Connector {
    pub fn new(names: &mut Names) -> Result<Connector, Errno> {
        let listener = stream(true)?;
        let path = names.new_listen_path()?;
        bind(&listener, &path.address)?;
        listen(&listener, BACKLOG)?;
        Ok(Connector { listener, path, is_stale: false })
    }

    fn accept(&self) -> Result<OwnedFd, Errno> {
        accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    /// Connects a program's socket to a new one of ours, which never blocks.
    pub fn join(&mut self, program_socket: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
        // The next in the queue must be that of this socket.
        while self.is_stale {
            match self.accept() {
                Ok(_) => {}
                Err(Errno::AGAIN) => self.is_stale = false,
                Err(error) => return Err(error),
            }
        }
        connect(program_socket, &self.path.address)?;
        loop {
            let agent_socket = self.accept().inspect_err(|_| self.is_stale = true)?;
            // Attack: another process of this user that has found the folder.
            if is_peer_self(agent_socket.as_fd()) {
                return Ok(agent_socket);
            }
        }
    }
}

/// Whether this process made the socket at the other end.
pub fn is_peer_self(socket: BorrowedFd<'_>) -> bool {
    // The agent's process never changes.
    static OWN: LazyLock<Pid> = LazyLock::new(rustix::process::getpid);
    let own = *OWN;
    sockopt::socket_peercred(socket).is_ok_and(|peer| peer.pid == own)
}

/// Makes a program's socket listen at a path.
pub fn listen_at(program_socket: BorrowedFd<'_>, path: &ListenPath, backlog: i32) -> Result<(), Errno> {
    bind(program_socket, &path.address)?;
    listen(program_socket, backlog)
}

/// Reads all that a program's socket has.
pub fn drain(program_socket: BorrowedFd<'_>) -> Vec<u8> {
    let (mut bytes, mut filled) = (Vec::new(), 0);
    loop {
        bytes.resize(filled + DRAINED, 0);
        match recv(program_socket, &mut bytes[filled..], RecvFlags::DONTWAIT) {
            Ok((count, _)) if count > 0 => filled += count,
            _ => break,
        }
    }
    bytes.truncate(filled);
    bytes
}

/// Fills the send buffers of programs' sockets, so that they are not writable.
#[derive(Debug)]
pub struct Filler(OwnedFd);

impl Filler {
    pub fn new() -> Result<Filler, Errno> {
        Ok(Filler(ringway_host::memfd("ringway-filler", FILLER).map_err(|_| Errno::NOMEM)?))
    }

    /// Fills the send buffer of a program's socket; the number of bytes. The pages of a file are lent to the socket
    /// once for all: nothing is copied, and no memory is taken.
    pub fn fill(&self, program_socket: BorrowedFd<'_>) -> usize {
        let mut filled = 0;
        // The limit of the system may be another one (`net.core.wmem_max`).
        for most in [FILLER; MAX_FILLERS] {
            filled += self.fill_once(program_socket, most);
            if !ready(program_socket, PollFlags::OUT).contains(PollFlags::OUT) {
                break;
            }
        }
        filled
    }

    /// As much as there is room for. Attack: a program whose other threads write to the socket, or whose buffer is
    /// smaller: `sendfile` would wait for room in a socket that blocks, so bytes are copied to that one.
    fn fill_once(&self, program_socket: BorrowedFd<'_>, most: usize) -> usize {
        if is_nonblocking(program_socket) {
            return sendfile(program_socket, &self.0, Some(&mut 0), most).unwrap_or(0);
        }
        let bytes = [0; DRAINED];
        let mut filled = 0;
        while filled < most {
            let piece = &bytes[..bytes.len().min(most - filled)];
            match send(program_socket, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(count) if count > 0 => filled += count,
                _ => break,
            }
        }
        filled
    }
}

/// The agent's end of a program's stream socket.
///
/// One byte that was taken already always stays unread there. If this process closes its socket, or ends, the
/// program's is reset and not at its end, since the kernel resets a UNIX socket whose peer leaves bytes unread.
#[derive(Debug)]
pub struct AgentEnd(OwnedFd);

impl AgentEnd {
    /// Takes the end of a program's socket, which has written one byte.
    pub fn new(socket: OwnedFd) -> Result<AgentEnd, Errno> {
        ringway_host::set_peek_offset(socket.as_fd(), 1).map_err(|_| Errno::IO)?;
        Ok(AgentEnd(socket))
    }

    /// Peeks at bytes that the program has written; none at the end. Also returns whether there may be more, although
    /// they don't fill `bytes`: the kernel stops behind bytes that a program has sent with descriptors.
    pub fn peek(&self, bytes: &mut [u8]) -> Result<(usize, bool), Errno> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut parts = [IoSliceMut::new(bytes)];
        let peeked = recvmsg(&self.0, &mut parts, &mut RecvAncillaryBuffer::default(), flags)?;
        Ok((peeked.bytes, peeked.flags.contains(ReturnFlags::CTRUNC)))
    }

    /// Whether the program has written bytes that were not read yet, or closed its end.
    pub fn has_unread(&self) -> bool {
        let peeked = self.peek(&mut [0]);
        // The byte is to be peeked at again. This fails for no socket of ours.
        let _ = matches!(peeked, Ok((1.., _))).then(|| ringway_host::set_peek_offset(self.0.as_fd(), 1));
        peeked != Err(Errno::AGAIN)
    }

    /// Consumes `count` of `peeked` bytes; `spare` is overwritten.
    pub fn consume(&self, count: usize, peeked: usize, spare: &mut [u8]) -> Result<(), Errno> {
        let mut left = count;
        while left > 0 {
            let most = left.min(spare.len());
            let (taken, _) = recv(&self.0, &mut spare[..most], RecvFlags::DONTWAIT)?;
            if taken == 0 {
                break;
            }
            left -= taken;
        }
        if count == peeked {
            return Ok(());
        }
        ringway_host::set_peek_offset(self.0.as_fd(), 1).map_err(|_| Errno::IO)
    }

    /// Writes bytes to the program, as many as there is room for.
    pub fn write(&self, bytes: &[u8]) -> Result<usize, Errno> {
        send(&self.0, bytes, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
    }

    /// Shuts down writing, so that the program reads the end of the stream.
    pub fn shut_down_writing(&self) {
        // A program that has closed its socket needs no end.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write);
    }

    /// Whether the program has closed its socket.
    pub fn is_closed(&self) -> bool {
        ready(self.0.as_fd(), PollFlags::empty()).contains(PollFlags::HUP)
    }

    /// Bytes that the program has written and that are not consumed yet.
    pub fn unread_bytes(&self) -> u64 {
        rustix::io::ioctl_fionread(&self.0).unwrap_or(0).saturating_sub(1)
    }
}

impl AsFd for AgentEnd {
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

    fn consume(end: &AgentEnd, count: usize, peeked: usize) {
        end.consume(count, peeked, &mut [0; 5]).unwrap();
    }

    fn joined() -> (OwnedFd, AgentEnd) {
        let folder = Folder::new();
        let mut names = folder.names();
        let mut connector = Connector::new(&mut names).unwrap();
        let program_socket = stream(true).unwrap();
        let agent_socket = connector.join(program_socket.as_fd());
        send(&program_socket, &[0], SendFlags::DONTWAIT).unwrap();
        (program_socket, AgentEnd::new(agent_socket.unwrap()).unwrap())
    }

    fn read(socket: &OwnedFd) -> Result<Vec<u8>, Errno> {
        let mut bytes = [0; 100];
        let (count, _) = recv(socket, &mut bytes[..], RecvFlags::DONTWAIT)?;
        Ok(bytes[..count].to_vec())
    }

    fn peek(end: &AgentEnd) -> Result<Vec<u8>, Errno> {
        let mut bytes = [0; 100];
        end.peek(&mut bytes).map(|(count, _)| bytes[..count].to_vec())
    }

    #[test]
    fn bytes_are_seen_once_and_in_order_however_many_are_taken() {
        let (program_socket, end) = joined();
        assert_eq!(peek(&end), Err(Errno::AGAIN));
        for text in [&b"hello"[..], b", ", b"world"] {
            send(&program_socket, text, SendFlags::empty()).unwrap();
        }
        assert_eq!(peek(&end).unwrap(), b"hello, world");
        consume(&end, 3, 12);
        assert_eq!(peek(&end).unwrap(), b"lo, world");
        consume(&end, 9, 9);
        assert_eq!((peek(&end), end.unread_bytes()), (Err(Errno::AGAIN), 0));
        assert!(!end.has_unread());
        send(&program_socket, b"!?", SendFlags::empty()).unwrap();
        assert!(end.has_unread() && end.has_unread());
        assert_eq!(peek(&end).unwrap(), b"!?");
        consume(&end, 2, 2);
        rustix::net::shutdown(&program_socket, rustix::net::Shutdown::Write).unwrap();
        assert!(end.has_unread());
        assert_eq!(peek(&end).unwrap(), b"");
        assert!(!end.is_closed());
        drop(program_socket);
        assert!(end.is_closed());
    }

    #[test]
    fn bytes_behind_descriptors_are_told() {
        let (program_socket, end) = joined();
        ringway_host::send_with(program_socket.as_fd(), b"one", &[program_socket.as_fd()]).unwrap();
        send(&program_socket, b"two", SendFlags::empty()).unwrap();
        let mut bytes = [0; 100];
        assert_eq!(end.peek(&mut bytes), Ok((3, true)));
        assert_eq!(end.peek(&mut bytes), Ok((3, false)));
    }

    #[test]
    fn a_socket_whose_end_is_closed_is_reset() {
        for written in [&b""[..], b"bytes that were taken"] {
            let (program_socket, end) = joined();
            send(&program_socket, written, SendFlags::empty()).unwrap();
            consume(&end, written.len(), written.len());
            end.write(b"last").unwrap();
            drop(end);
            assert_eq!(read(&program_socket).unwrap(), b"last");
            assert_eq!(read(&program_socket), Err(Errno::CONNRESET));
        }
        let (program_socket, end) = joined();
        end.shut_down_writing();
        assert_eq!(read(&program_socket).unwrap(), b"");
    }

    #[test]
    fn a_filled_socket_is_not_writable_until_it_is_drained() {
        let (program_socket, end) = joined();
        let filled = Filler::new().unwrap().fill(program_socket.as_fd());
        assert!(filled > 0);
        assert!(!ready(program_socket.as_fd(), PollFlags::OUT).contains(PollFlags::OUT));
        let mut peeked = vec![0; filled];
        assert_eq!(end.peek(&mut peeked), Ok((filled, false)));
        consume(&end, filled, filled);
        assert!(ready(program_socket.as_fd(), PollFlags::OUT).contains(PollFlags::OUT));
        assert_eq!(end.unread_bytes(), 0);
    }

    #[test]
    fn a_socket_that_blocks_and_has_little_room_is_filled_without_a_wait() {
        let folder = Folder::new();
        let mut names = folder.names();
        let mut connector = Connector::new(&mut names).unwrap();
        let (told, tells) = std::sync::mpsc::channel();
        let program_socket = stream(false).unwrap();
        sockopt::set_socket_send_buffer_size(&program_socket, 1).unwrap();
        let _agent_socket = connector.join(program_socket.as_fd()).unwrap();
        let filling = program_socket.try_clone().unwrap();
        let thread = std::thread::spawn(move || {
            told.send(Filler::new().unwrap().fill(filling.as_fd())).unwrap();
        });
        let filled = tells.recv_timeout(std::time::Duration::from_secs(20));
        // A thread that waits for room ends with its socket.
        rustix::net::shutdown(&program_socket, rustix::net::Shutdown::Both).unwrap();
        thread.join().unwrap();
        assert!(filled.is_ok_and(|filled| (1..FILLER).contains(&filled)));
    }

    #[test]
    fn sockets_of_agents_are_told_from_others() {
        let folder = Folder::new();
        let mut names = folder.names();
        let (joined, _end) = joined();
        let listener = stream(true).unwrap();
        let at = names.new_listen_path().unwrap();
        listen_at(listener.as_fd(), &at, 1).unwrap();
        let _ours = names.connect_to_listener(&at.address).unwrap();
        let accepted = accept_with(&listener, SocketFlags::empty()).unwrap();
        let (datagrams, ours) = datagrams(true).unwrap();
        assert!(!stands_in(datagrams.as_fd()));
        drop(ours);
        for own in [&joined, &listener, &accepted, &datagrams] {
            assert!(stands_in(own.as_fd()));
        }
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        for other in [one.as_fd(), tcp.as_fd(), stream(true).unwrap().as_fd(), folder.names().folder.as_fd()]
        {
            assert!(!stands_in(other));
        }
    }

    #[test]
    fn a_listener_is_reached_by_its_name() {
        let folder = Folder::new();
        let mut names = folder.names();
        let at = names.new_listen_path().unwrap();
        let listener = stream(true).unwrap();
        listen_at(listener.as_fd(), &at, 1).unwrap();
        let (number, _ours) = names.connect_to_listener(&at.address).unwrap();
        let program_socket = accept_with(&listener, SocketFlags::empty()).unwrap();
        assert_eq!(
            (names.client_of(program_socket.as_fd()), is_peer_self(program_socket.as_fd())),
            (Some(number), true)
        );
        drop(listener);
        assert_eq!(names.connect_to_listener(&at.address).err(), Some(Errno::CONNREFUSED));
        names.remove(&at);
        assert_eq!(names.connect_to_listener(&at.address).err(), Some(Errno::NOENT));
    }

    #[test]
    fn a_socket_that_was_not_taken_is_never_joined_with_another() {
        let folder = Folder::new();
        let mut names = folder.names();
        let mut connector = Connector::new(&mut names).unwrap();
        let (lost, program_socket) = (stream(true).unwrap(), stream(true).unwrap());
        connect(&lost, &connector.path.address).unwrap();
        connector.is_stale = true;
        let agent_socket = connector.join(program_socket.as_fd()).unwrap();
        send(&agent_socket, b"for theirs", SendFlags::empty()).unwrap();
        assert_eq!(read(&program_socket).unwrap(), b"for theirs");
        assert_eq!(read(&lost).unwrap(), b"");
    }

    #[test]
    fn what_was_given_to_a_socket_is_drained() {
        let (program_socket, end) = joined();
        let bytes: Vec<u8> = (0..100_000_u32).map(|at| at as u8).collect();
        assert_eq!(end.write(&bytes), Ok(bytes.len()));
        assert_eq!(drain(program_socket.as_fd()), bytes);
        assert_eq!(drain(program_socket.as_fd()), b"");
    }
}
