//! Sockets by path: listening for peers, and connecting to listening peers. Nothing here blocks.

use crate::socket_file::{SocketFile, SocketFileError, SocketRights, stream};
use rustix::net::SocketAddrUnix;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Largest length of a socket's path in bytes (`sun_path` has 108, with the terminator).
const LONGEST: usize = 107;
/// Default mode: only the owner may connect.
const MODE: u32 = 0o600;
/// The first and the longest delay between attempts.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Why a socket can't be opened. The text has the path, the error and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path is too long.
    #[error("{}: the path has {len} bytes, a socket's has at most {LONGEST}; use a shorter one", .path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
        /// Its length.
        len: usize,
    },
    /// A file that is not a socket exists.
    #[error("{}: exists and is not a socket; remove it or use another path", .path.display())]
    Taken {
        /// The path.
        path: PathBuf,
    },
    /// Another process listens on the path.
    #[error("{}: another program listens on this socket; stop it or use another path", .path.display())]
    Alive {
        /// The path.
        path: PathBuf,
    },
    /// The socket has no listener, but belongs to another user.
    #[error("{}: a leftover socket of user {owner} is there; remove it or use another path", .path.display())]
    Foreign {
        /// The path.
        path: PathBuf,
        /// The owner.
        owner: u32,
    },
    /// No front-end listens yet.
    #[error("{}: no front-end listens yet ({error})", .path.display())]
    WouldRetry {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
    /// The system refused.
    #[error("{}: {error}{}", .path.display(), advice(.error))]
    System {
        /// The path.
        path: PathBuf,
        /// The operating system's error.
        error: io::Error,
    },
}

/// Advice for an error of the operating system.
fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound => "; make its folder",
        io::ErrorKind::PermissionDenied => {
            "; use a folder that this user may write to, and an owner and group it is"
        }
        _ => "",
    }
}

/// Access rights of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// User id of its owner; ours if none.
    pub owner: Option<u32>,
    /// Its group id; ours if none.
    pub group: Option<u32>,
    /// Its permission bits; 0600 if none.
    pub mode: Option<u32>,
}

/// A socket on which front-ends connect (`mode = "server"`). Its file is removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: SocketFile,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`. A socket left there by an earlier run is replaced; nothing else is.
    pub fn bind(path: &Path, access: Access) -> Result<Listener, OpenError> {
        check_length(path)?;
        let path = path.to_path_buf();
        let mode = access.mode.unwrap_or(MODE) & 0o777;
        let rights = SocketRights { owner: access.owner, group: access.group, mode };
        Listener::of(path.clone(), SocketFile::bind(&path, rights))
    }

    /// Goes on with a socket that another process has bound to `path`.
    pub fn adopt(path: &Path, socket: OwnedFd) -> Result<Listener, OpenError> {
        Listener::of(path.to_path_buf(), SocketFile::adopt(path, socket))
    }

    fn of(path: PathBuf, socket: Result<SocketFile, SocketFileError>) -> Result<Listener, OpenError> {
        let socket = match socket {
            Ok(socket) => socket,
            Err(SocketFileError::Taken) => return Err(OpenError::Taken { path }),
            Err(SocketFileError::Alive) => return Err(OpenError::Alive { path }),
            Err(SocketFileError::Foreign(owner)) => return Err(OpenError::Foreign { path, owner }),
            Err(SocketFileError::System(error)) => {
                return Err(OpenError::System { path, error: error.into() });
            }
        };
        match socket.socket().set_nonblocking(true) {
            Ok(()) => Ok(Listener { socket, path }),
            Err(error) => Err(OpenError::System { path, error }),
        }
    }

    /// The next front-end, if one is waiting.
    pub fn accept(&self) -> Result<Option<OwnedFd>, OpenError> {
        match self.socket.socket().accept() {
            Ok((stream, _)) => Ok(Some(stream.into())),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted) =>
            {
                Ok(None)
            }
            Err(error) => Err(OpenError::System { path: self.path.clone(), error }),
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl std::os::fd::AsFd for Listener {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Connects to the front-end that listens at `path` (`mode = "client"`). Returns the temporary error
/// [`OpenError::WouldRetry`] if no front-end listens there.
pub fn connect(path: &Path) -> Result<OwnedFd, OpenError> {
    check_length(path)?;
    match std::fs::metadata(path) {
        Ok(seen) if !seen.file_type().is_socket() => return Err(OpenError::Taken { path: path.into() }),
        _ => {}
    }
    connect_now(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock => {
            OpenError::WouldRetry { path: path.into(), error }
        }
        _ => OpenError::System { path: path.into(), error },
    })
}

/// Connects to a socket without waiting.
/// Attack: a front-end that listens and accepts nothing: once its queue is full, connecting would block.
///
/// # Errors
/// `WouldBlock` if the queue is full, or the system's.
pub fn connect_now(path: &Path) -> io::Result<OwnedFd> {
    let socket = stream()?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::io::ioctl_fionbio(&socket, false)?;
    Ok(socket)
}

/// Delays between connection attempts: short at first, then one second.
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    wait: Duration,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { wait: RETRY.0 }
    }
}

impl Retry {
    /// The delay before the next attempt.
    pub fn wait(&mut self) -> Duration {
        let wait = self.wait;
        self.wait = (wait * 2).min(RETRY.1);
        wait
    }
}

fn check_length(path: &Path) -> Result<(), OpenError> {
    let len = path.as_os_str().len();
    if len > LONGEST { Err(OpenError::TooLong { path: path.into(), len }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_front_end_that_accepts_nothing_blocks_nobody() {
        let path = std::env::temp_dir().join(format!("ringway-full-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let tries: Vec<_> = (0..4).map(|_| connect(&path)).collect();
        std::fs::remove_file(&path).unwrap();
        assert!(tries[0].is_ok());
        assert!(matches!(tries[3], Err(OpenError::WouldRetry { .. })), "{tries:?}");
    }
}
