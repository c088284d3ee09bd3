//! The non-blocking sockets of a Socket element.
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt,
};
use std::fmt;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::PathBuf;

/// The kind of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketKind {
    #[default]
    Tcp,
    Udp,
    Unix,
    UnixDatagram,
}

/// The address of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketAddress {
    Address(Ipv4Addr, u16),
    File(String),
}

impl Default for SocketAddress {
    fn default() -> Self {
        Self::Address(Ipv4Addr::UNSPECIFIED, 0)
    }
}

impl fmt::Display for SocketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address, port) => write!(f, "{address}:{port}"),
            Self::File(file) => f.write_str(file),
        }
    }
}

/// The socket's configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    pub kind: SocketKind,
    pub remote: SocketAddress,
    pub local: Option<SocketAddress>,
    pub client: bool,
    pub no_delay: bool,
    pub send_buffer: Option<u32>,
    pub receive_buffer: Option<u32>,
}

trait Duplex: Read + Write + AsRawFd {}
impl<T: Read + Write + AsRawFd> Duplex for T {}

enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

enum Datagrams {
    /// With its destination; none for 0.0.0.0, if each packet has its own.
    Udp(UdpSocket, Option<SocketAddrV4>),
    Unix(UnixDatagram, Option<PathBuf>),
}

/// The sender of a datagram.
enum From {
    Udp(SocketAddrV4),
    Unix(PathBuf),
}

/// The sockets of an element.
pub struct Link {
    listener: Option<Listener>,
    stream: Option<Box<dyn Duplex>>,
    datagrams: Option<Datagrams>,
    /// Whether it is a server, which replies to the last sender.
    answers: bool,
    last: Option<From>,
    /// Sender of the last received datagram.
    sender: Option<From>,
    /// A file to remove at the end.
    file: Option<String>,
}

fn unix(file: &str) -> Result<SocketAddrUnix> {
    SocketAddrUnix::new(file).map_err(Error::from)
}

/// A socket, bound and connected as requested.
fn open(options: &SocketOptions) -> Result<OwnedFd> {
    let internet = matches!(options.kind, SocketKind::Tcp | SocketKind::Udp);
    let family = if internet { AddressFamily::INET } else { AddressFamily::UNIX };
    let stream = matches!(options.kind, SocketKind::Tcp | SocketKind::Unix);
    let kind = if stream { SocketType::STREAM } else { SocketType::DGRAM };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, None)?;
    if let Some(bytes) = options.send_buffer {
        sockopt::set_socket_send_buffer_size(&socket, bytes as usize)?;
    }
    if let Some(bytes) = options.receive_buffer {
        sockopt::set_socket_recv_buffer_size(&socket, bytes as usize)?;
    }
    if options.kind == SocketKind::Tcp && !options.client {
        sockopt::set_socket_reuseaddr(&socket, true)?;
    }
    let own = if options.client { options.local.as_ref() } else { Some(&options.remote) };
    match own {
        Some(SocketAddress::Address(address, port)) => {
            bind(&socket, &SocketAddr::V4(SocketAddrV4::new(*address, *port)))?;
        }
        Some(SocketAddress::File(file)) => bind(&socket, &unix(file)?)?,
        None => {}
    }
    if options.client {
        match &options.remote {
            // Each packet has its own destination.
            SocketAddress::Address(Ipv4Addr::UNSPECIFIED, _) if options.kind == SocketKind::Udp => {}
            SocketAddress::Address(address, port) => {
                connect(&socket, &SocketAddr::V4(SocketAddrV4::new(*address, *port)))?;
            }
            SocketAddress::File(file) => connect(&socket, &unix(file)?)?,
        }
    } else if stream {
        listen(&socket, 1)?;
    }
    Ok(socket)
}

impl Link {
    /// Opens the requested socket.
    ///
    /// # Errors
    /// The operating system's.
    pub fn open(options: &SocketOptions) -> Result<Self> {
        let socket = open(options)?;
        let own = if options.client { options.local.clone() } else { Some(options.remote.clone()) };
        let file = if let Some(SocketAddress::File(file)) = own { Some(file) } else { None };
        let (listener, stream, datagrams) = (None, None, None);
        let mut link =
            Self { listener, stream, datagrams, answers: !options.client, last: None, sender: None, file };
        match (options.kind, options.client) {
            (SocketKind::Tcp, true) => {
                let stream = TcpStream::from(socket);
                stream.set_nodelay(options.no_delay)?;
                stream.set_nonblocking(true)?;
                link.stream = Some(Box::new(stream));
            }
            (SocketKind::Tcp, false) => {
                let listener = TcpListener::from(socket);
                listener.set_nonblocking(true)?;
                link.listener = Some(Listener::Tcp(listener));
            }
            (SocketKind::Unix, true) => {
                let stream = UnixStream::from(socket);
                stream.set_nonblocking(true)?;
                link.stream = Some(Box::new(stream));
            }
            (SocketKind::Unix, false) => {
                let listener = UnixListener::from(socket);
                listener.set_nonblocking(true)?;
                link.listener = Some(Listener::Unix(listener));
            }
            (SocketKind::Udp, client) => {
                let datagrams = UdpSocket::from(socket);
                datagrams.set_nonblocking(true)?;
                let to = match options.remote {
                    SocketAddress::Address(address, port) if client => Some(SocketAddrV4::new(address, port)),
                    _ => None,
                };
                link.datagrams = Some(Datagrams::Udp(datagrams, to));
            }
            (SocketKind::UnixDatagram, client) => {
                let datagrams = UnixDatagram::from(socket);
                datagrams.set_nonblocking(true)?;
                let to = match &options.remote {
                    SocketAddress::File(file) if client => Some(PathBuf::from(file)),
                    _ => None,
                };
                link.datagrams = Some(Datagrams::Unix(datagrams, to));
            }
        }
        Ok(link)
    }

    /// The descriptor for packets.
    fn carrier(&self) -> Option<i32> {
        let stream = self.stream.as_ref().map(|stream| stream.as_raw_fd());
        stream.or(match &self.datagrams {
            Some(Datagrams::Udp(socket, _)) => Some(socket.as_raw_fd()),
            Some(Datagrams::Unix(socket, _)) => Some(socket.as_raw_fd()),
            None => None,
        })
    }

    fn waiting(&self) -> Option<i32> {
        match self.listener.as_ref()? {
            Listener::Tcp(listener) => Some(listener.as_raw_fd()),
            Listener::Unix(listener) => Some(listener.as_raw_fd()),
        }
    }

    /// All descriptors, each with whether to wait until it is readable; `receives`: received data is wanted.
    pub fn descriptors(&self, receives: bool) -> impl Iterator<Item = (i32, bool)> + use<> {
        // A stream is read in any case, to detect its end; so is a listening socket while there is no
        // connection.
        let carrier = self.carrier().map(|own| (own, receives || self.stream.is_some()));
        let waiting = self.waiting().map(|own| (own, self.stream.is_none()));
        carrier.into_iter().chain(waiting)
    }

    /// Whether this is the descriptor for packets.
    pub fn carries(&self, descriptor: i32) -> bool {
        self.carrier() == Some(descriptor)
    }

    /// Whether this is the listening descriptor.
    pub fn listens(&self, descriptor: i32) -> bool {
        self.waiting() == Some(descriptor)
    }

    /// Whether there is a destination to send to.
    pub fn is_ready(&self) -> bool {
        self.stream.is_some() || self.datagrams.is_some() && (!self.answers || self.last.is_some())
    }

    /// Accepts a connection; returns the address of the peer, if it has one.
    ///
    /// # Errors
    /// The operating system's.
    pub fn accept(&mut self, no_delay: bool) -> Result<Option<Ipv4Addr>> {
        let listener = self.listener.as_ref().filter(|_| self.stream.is_none());
        match listener.ok_or(ErrorKind::WouldBlock)? {
            Listener::Tcp(listener) => {
                let (stream, from) = listener.accept()?;
                stream.set_nonblocking(true)?;
                stream.set_nodelay(no_delay)?;
                self.stream = Some(Box::new(stream));
                Ok(if let SocketAddr::V4(from) = from { Some(*from.ip()) } else { None })
            }
            Listener::Unix(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                self.stream = Some(Box::new(stream));
                Ok(None)
            }
        }
    }

    /// Ends a connection; returns its descriptor.
    pub fn end(&mut self) -> Option<i32> {
        self.stream.take().map(|stream| stream.as_raw_fd())
    }

    /// Sends bytes; returns how many were sent.
    ///
    /// # Errors
    /// The operating system's; [`ErrorKind::NotConnected`] without a destination.
    pub fn send(&mut self, bytes: &[u8], noted: Ipv4Addr) -> Result<usize> {
        if let Some(stream) = &mut self.stream {
            return stream.write(bytes);
        }
        let nobody = || Error::from(ErrorKind::NotConnected);
        match (&self.datagrams, &self.last) {
            (Some(Datagrams::Udp(socket, Some(to))), _) if to.ip().is_unspecified() => {
                socket.send_to(bytes, SocketAddrV4::new(noted, to.port()))
            }
            (Some(Datagrams::Udp(socket, Some(_))), _) => socket.send(bytes),
            (Some(Datagrams::Udp(socket, None)), Some(From::Udp(to))) => socket.send_to(bytes, to),
            (Some(Datagrams::Unix(socket, Some(_))), _) => socket.send(bytes),
            (Some(Datagrams::Unix(socket, None)), Some(From::Unix(to))) => socket.send_to(bytes, to),
            _ => Err(nobody()),
        }
    }

    /// Receives data: the number of bytes, and the sender's address, if it is a server.
    ///
    /// # Errors
    /// The operating system's; [`ErrorKind::UnexpectedEof`] if the other end disconnected.
    pub fn receive(&mut self, buffer: &mut [u8]) -> Result<(usize, Option<Ipv4Addr>)> {
        if let Some(stream) = &mut self.stream {
            return match stream.read(buffer)? {
                0 => Err(ErrorKind::UnexpectedEof.into()),
                length => Ok((length, None)),
            };
        }
        match &self.datagrams {
            Some(Datagrams::Udp(socket, _)) => {
                let (length, from) = socket.recv_from(buffer)?;
                let SocketAddr::V4(from) = from else { return Ok((length, None)) };
                self.sender = Some(From::Udp(from));
                Ok((length, self.answers.then_some(*from.ip())))
            }
            Some(Datagrams::Unix(socket, _)) => {
                let (length, from) = socket.recv_from(buffer)?;
                self.sender = from.as_pathname().map(|path| From::Unix(path.to_path_buf()));
                Ok((length, None))
            }
            None => Err(ErrorKind::NotConnected.into()),
        }
    }

    /// Accepts the last sender: a server then replies to it.
    pub fn accept_sender(&mut self) {
        if let Some(sender) = self.sender.take().filter(|_| self.answers) {
            self.last = Some(sender);
        }
    }
}

/// Removes a socket's file.
impl Drop for Link {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            let _ = std::fs::remove_file(file);
        }
    }
}
