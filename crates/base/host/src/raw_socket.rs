//! Raw sockets: IPv4 packets with their headers (raw(7)).

use crate::error::{HostError, Named};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Protocol, RawProtocol, SocketFlags, SocketType};
use std::ffi::c_int;
use std::os::fd::{AsRawFd, OwnedFd};

/// Opens a non-blocking socket that receives a copy of each packet of a protocol sent to this host, and sends
/// packets with their own headers, also to broadcast addresses.
///
/// # Errors
/// [`HostError::Call`]: CAP_NET_RAW is missing.
pub fn open_raw(protocol: u8) -> Result<OwnedFd, HostError> {
    open(protocol).named("opening a raw socket")
}

fn open(protocol: u8) -> Result<OwnedFd, Errno> {
    let number = RawProtocol::new(protocol.into()).ok_or(Errno::INVAL)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let protocol = Some(Protocol::from_raw(number));
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::RAW, flags, protocol)?;
    rustix::net::sockopt::set_socket_broadcast(&socket, true)?;
    let on: c_int = 1;
    // SAFETY: the kernel reads an `int`'s bytes.
    let done = unsafe {
        let value: *const c_int = &on;
        let size = size_of::<c_int>() as libc::socklen_t;
        libc::setsockopt(socket.as_raw_fd(), libc::IPPROTO_IP, libc::IP_HDRINCL, value.cast(), size)
    };
    if done == 0 { Ok(socket) } else { Err(crate::tap::last_error()) }
}
