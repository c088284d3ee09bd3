//! Listening sockets of ControlSocket and ChatterSocket.
use ringway_click::arg::{Args, Raw, Word};
use ringway_click::{Context, Failed};
use ringway_host::try_receive_with;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};

/// Number of ports tried if `+` permits it.
const TRIES: u16 = 1000;

pub(super) use ringway_elements::platform::control_socket::MOST;

/// A non-blocking connection.
pub(super) trait Stream: Read + Write {
    fn descriptor(&self) -> i32;

    /// Sends as many of `bytes` as possible without blocking; returns their number, and whether the
    /// connection is alive.
    fn send(&mut self, bytes: &[u8]) -> (usize, bool) {
        let mut sent = 0;
        while let Some(rest) = bytes.get(sent..).filter(|rest| !rest.is_empty()) {
            match self.write(rest) {
                Ok(count) if count > 0 => sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                _ => return (sent, false),
            }
        }
        (sent, true)
    }
}

impl Stream for TcpStream {
    fn descriptor(&self) -> i32 {
        self.as_raw_fd()
    }
}

impl Stream for UnixStream {
    fn descriptor(&self) -> i32 {
        self.as_raw_fd()
    }
}

/// The configured place of an element and its listening socket. An element of a new configuration with the
/// same place takes the socket over.
#[derive(Default)]
pub(super) struct ListeningSocket {
    unix: bool,
    place: String,
    localhost: bool,
    listener: Option<Listener>,
}

/// The arguments that define the place.
pub(super) struct Where {
    kind: Word,
    place: Raw,
    localhost: bool,
}

impl Where {
    /// Reads `TYPE`, `PORT` or `FILENAME`, the arguments of `more`, and `LOCALHOST`; ignores `RETRIES` and
    /// `RETRY_WARNINGS`.
    pub(super) fn read(args: &mut Args, more: impl FnOnce(&mut Args)) -> Self {
        let mut own = Self { kind: Word::default(), place: Raw::default(), localhost: true };
        let mut ignored = Raw::default();
        args.read_mp("TYPE", &mut own.kind);
        let named = if args.has("FILENAME") { "FILENAME" } else { "PORT" };
        args.read_mp(named, &mut own.place);
        more(args);
        args.read("LOCALHOST", &mut own.localhost);
        args.read("RETRIES", &mut ignored);
        args.read("RETRY_WARNINGS", &mut ignored);
        own
    }

    /// The socket at that place, which does not listen yet.
    pub(super) fn listening(self, cx: &mut Context<'_>) -> std::result::Result<ListeningSocket, Failed> {
        let unix = match self.kind.0.to_uppercase().as_str() {
            "TCP" => false,
            "UNIX" => true,
            _ => return Err(cx.error("unknown socket type")),
        };
        let place = ringway_click_lang::config::unquote_text(&self.place.0);
        Ok(ListeningSocket { unix, place, localhost: self.localhost, listener: None })
    }
}

impl ListeningSocket {
    /// Listens.
    pub(super) fn open(&mut self, cx: &mut Context<'_>) -> std::result::Result<(), Failed> {
        let listener = Listener::open(self.unix, &self.place, self.localhost)
            .map_err(|error| cx.error(format!("{}: {error}", self.place)))?;
        self.listener = Some(listener);
        self.watch(cx);
        Ok(())
    }

    fn watch(&self, cx: &mut Context<'_>) {
        if let Some(listener) = &self.listener {
            cx.select(listener.descriptor(), true, false);
        }
    }

    /// Accepts the next connection, given `connected` existing ones; connections beyond the limit are closed,
    /// a limited number at a time.
    pub(super) fn accept(&self, connected: usize) -> Option<Box<dyn Stream>> {
        for _ in 0..MOST {
            let stream = self.listener.as_ref()?.accept().ok()?;
            if connected < MOST {
                return Some(stream);
            }
        }
        None
    }

    /// Whether the other has the same place.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        (self.unix, &self.place) == (other.unix, &other.place)
    }

    /// Takes over the other's socket.
    pub(super) fn take_over(&mut self, from: &mut Self, cx: &mut Context<'_>) {
        self.listener = from.listener.take();
        self.watch(cx);
    }

    /// The TCP port in use, or the configured place.
    pub(super) fn port(&self) -> String {
        let port = self.listener.as_ref().and_then(Listener::port);
        port.map_or_else(|| self.place.clone(), |port| port.to_string())
    }

    /// Stops listening.
    pub(super) fn close(&mut self) {
        if let Some(listener) = self.listener.take() {
            listener.remove_file();
        }
    }
}

/// A socket that listens.
enum Listener {
    Tcp(TcpListener),
    /// A listener on a path, and the file to remove at the end.
    Unix(UnixListener, Option<String>),
    /// Another process accepts connections and passes them on.
    Passed(UnixStream),
}

impl Listener {
    /// Listens on a UNIX socket file; or on a TCP port, with a `+` suffix on this or a later free one.
    fn open(unix: bool, place: &str, localhost: bool) -> Result<Self> {
        if let Some(callers) = crate::inherited::callers(place).filter(|_| unix) {
            return Ok(Self::Passed(callers));
        }
        if unix {
            let inherited = crate::inherited::listener(place);
            // The file of a socket that was handed over is not ours to remove.
            let path = inherited.is_none().then(|| place.to_string());
            let listener = inherited.map_or_else(|| UnixListener::bind(place), Ok)?;
            listener.set_nonblocking(true)?;
            return Ok(Self::Unix(listener, path));
        }
        let address = if localhost { Ipv4Addr::LOCALHOST } else { Ipv4Addr::UNSPECIFIED };
        let (first, more) = match place.strip_suffix('+') {
            Some(first) => (first, TRIES),
            None => (place, 0),
        };
        let wrong = |_| Error::new(ErrorKind::InvalidInput, "bad port");
        let first: u16 = first.trim().parse().map_err(wrong)?;
        let mut port = first;
        let listener = loop {
            match TcpListener::bind((address, port)) {
                Err(error)
                    if error.kind() == ErrorKind::AddrInUse && port - first < more && port < u16::MAX =>
                {
                    port += 1
                }
                result => break result?,
            }
        };
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    fn descriptor(&self) -> i32 {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener, _) => listener.as_raw_fd(),
            Self::Passed(callers) => callers.as_raw_fd(),
        }
    }

    /// The next program that connects.
    fn accept(&self) -> Result<Box<dyn Stream>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
            Self::Unix(listener, _) => {
                let (stream, _) = listener.accept()?;
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
            Self::Passed(callers) => {
                let received = try_receive_with(callers, &mut [0], 1).map_err(Error::other)?;
                let stream = received.and_then(|(_, mut descriptors)| descriptors.pop());
                let stream = UnixStream::from(stream.ok_or(ErrorKind::WouldBlock)?);
                stream.set_nonblocking(true)?;
                Ok(Box::new(stream))
            }
        }
    }

    /// The TCP port.
    fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
            Self::Unix(..) | Self::Passed(_) => None,
        }
    }

    fn remove_file(&self) {
        if let Self::Unix(_, Some(path)) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}
