//! Programs that connect to a socket of another one, which serves one of them at a time and never waits for it.

use ringway_host::wait_readable;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// The socket, and the program that has connected last.
#[derive(Debug)]
pub struct Clients {
    listener: UnixListener,
    pending: Option<(UnixStream, Instant)>,
    /// How long a program that has connected may take to send something.
    timeout: Duration,
}

impl Clients {
    /// Listens at a path, in the place of a socket that a program has left there.
    ///
    /// # Errors
    /// The system refused.
    pub fn bind(path: &Path, timeout: Duration) -> std::io::Result<Clients> {
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Clients::of(listener, timeout))
    }

    /// Those of a socket that does not block.
    pub fn of(listener: UnixListener, timeout: Duration) -> Clients {
        Clients { listener, pending: None, timeout }
    }

    /// The socket.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }

    /// The program that has connected and sent nothing yet.
    pub fn pending(&self) -> Option<BorrowedFd<'_>> {
        self.pending.as_ref().map(|(stream, _)| stream.as_fd())
    }

    /// A program that has sent something, or has gone, if there is one. It does not block.
    pub fn next(&mut self) -> Option<UnixStream> {
        if self.pending.is_none() {
            self.pending = self.listener.accept().ok().map(|(stream, _)| (stream, Instant::now()));
        }
        let (stream, since) = self.pending.take()?;
        // Attack: a program that connects and sends nothing, so that no other one is served.
        if !wait_readable(&[stream.as_fd()], Some(0)).is_ok_and(|ready| ready.contains(&true)) {
            self.pending = (since.elapsed() < self.timeout).then_some((stream, since));
            return None;
        }
        Some(stream)
    }

    /// When the program has connected that has sent nothing yet.
    #[cfg(test)]
    pub fn since(&self) -> Option<Instant> {
        self.pending.as_ref().map(|(_, since)| *since)
    }

    /// Makes the program that has connected as late as may be.
    #[cfg(test)]
    pub fn age(&mut self) {
        let timeout = self.timeout;
        if let Some((_, since)) = &mut self.pending {
            *since = since.checked_sub(timeout).unwrap_or(*since);
        }
    }
}
