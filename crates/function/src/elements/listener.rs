//! Where ControlSocket and ChatterSocket wait for programs that connect.
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};

/// Ports tried where a `+` allows it.
const TRIES: u16 = 1000;

/// A connection, which never waits.
pub(super) trait Stream: Read + Write {
    fn descriptor(&self) -> i32;
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

/// A socket that listens.
pub(super) enum Listener {
    Tcp(TcpListener),
    /// With the file to remove in the end.
    Unix(UnixListener, Option<String>),
}

impl Listener {
    /// Listens at a UNIX socket's file; or at a TCP port, with `+` behind it at that or a later one that
    /// is free.
    pub(super) fn open(unix: bool, place: &str, localhost: bool) -> Result<Self> {
        if unix {
            let handed = crate::handed::listener(place);
            // The file of a socket that was handed over is not ours to remove.
            let path = handed.is_none().then(|| place.to_string());
            let listener = handed.map_or_else(|| UnixListener::bind(place), Ok)?;
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

    pub(super) fn descriptor(&self) -> i32 {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener, _) => listener.as_raw_fd(),
        }
    }

    /// The next program that connects.
    pub(super) fn accept(&self) -> Result<Box<dyn Stream>> {
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
        }
    }

    /// The TCP port.
    pub(super) fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
            Self::Unix(..) => None,
        }
    }

    /// Takes the file away.
    pub(super) fn remove_file(&self) {
        if let Self::Unix(_, Some(path)) = self {
            let _ = std::fs::remove_file(path);
        }
    }
}
