//! What all sockets have: a handle, a mode, timeouts.

use crate::waiting::Interest;
use crate::{Host, Network};
use ringway_netstack::{SocketError, SocketId};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
#[cfg(feature = "tokio")]
use std::task::{Context, Poll};
use std::time::Duration;

/// An open socket; closed when dropped.
#[derive(Debug)]
pub(crate) struct Socket {
    pub network: Network,
    pub id: SocketId,
    nonblocking: AtomicBool,
    /// Timeouts of reading and of writing in nanoseconds; 0: none.
    timeouts: [AtomicU64; 2],
}

impl Socket {
    pub fn new(network: &Network, id: SocketId) -> Socket {
        let (nonblocking, timeouts) = Default::default();
        Socket { network: network.clone(), id, nonblocking, timeouts }
    }

    /// Calls the stack, as the mode says.
    pub fn call<T>(
        &self,
        interest: Interest,
        call: impl FnMut(&mut Host) -> Result<T, SocketError>,
    ) -> io::Result<T> {
        if self.nonblocking.load(Relaxed) {
            return self.network.attempt(call);
        }
        self.network.block(Some(self.id), interest, self.timeout(interest), call)
    }

    /// Calls the stack for a task.
    #[cfg(feature = "tokio")]
    pub fn poll<T>(
        &self,
        cx: &Context<'_>,
        interest: Interest,
        call: impl FnMut(&mut Host) -> Result<T, SocketError>,
    ) -> Poll<io::Result<T>> {
        self.network.poll(cx, self.id, interest, call)
    }

    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Relaxed);
    }

    fn timeout_index(interest: Interest) -> usize {
        usize::from(interest != Interest::Read)
    }

    pub fn timeout(&self, interest: Interest) -> Option<Duration> {
        let nanoseconds = self.timeouts[Socket::timeout_index(interest)].load(Relaxed);
        (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
    }

    pub fn set_timeout(&self, interest: Interest, timeout: Option<Duration>) -> io::Result<()> {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a timeout must be longer than 0"));
        }
        let nanoseconds = timeout.map_or(0, |timeout| timeout.as_nanos() as u64);
        self.timeouts[Socket::timeout_index(interest)].store(nanoseconds, Relaxed);
        Ok(())
    }

    /// The address that it is bound to.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.network.attempt(|host| host.stack().local_address(self.id))
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.network.close(self.id);
    }
}

/// Tries each address until one succeeds.
pub(crate) fn each<T>(
    addresses: impl ToSocketAddrs,
    mut call: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "no address was given");
    for address in addresses.to_socket_addrs()? {
        match call(address) {
            Ok(done) => return Ok(done),
            Err(error) => last = error,
        }
    }
    Err(last)
}
