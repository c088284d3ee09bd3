//! Questions about the interfaces of a network namespace, by a socket of it (netdevice(7)).

use crate::tap::last_error;
use rustix::io::Errno;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Size of `struct ifreq`.
pub const INTERFACE_REQUEST: usize = 40;

/// Requests whose answer is in the request itself: name, flags, address, peer's address, broadcast address, mask,
/// metric, MTU, Ethernet address, slave, index, length of the queue, the device's memory.
const QUESTIONS: [u32; 13] =
    [0x8910, 0x8913, 0x8915, 0x8917, 0x8919, 0x891b, 0x891d, 0x8921, 0x8927, 0x8929, 0x8933, 0x8942, 0x8970];
/// The list of interfaces with IPv4 addresses.
const LIST: libc::Ioctl = 0x8912;

/// Asks one of the questions.
///
/// # Errors
/// [`Errno::OPNOTSUPP`]: it is none of them. Else the kernel's.
pub fn ask_interface(
    socket: BorrowedFd<'_>,
    number: u32,
    request: &mut [u8; INTERFACE_REQUEST],
) -> Result<(), Errno> {
    if !QUESTIONS.contains(&number) {
        return Err(Errno::OPNOTSUPP);
    }
    // SAFETY: the descriptor is open; the kernel reads and writes a `struct ifreq` there, and follows no pointer of it.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), number.into(), request.as_mut_ptr()) };
    if done >= 0 { Ok(()) } else { Err(last_error()) }
}

/// Lists interfaces as `SIOCGIFCONF` does, as many as have room. Returns the bytes written, or needed if there is no
/// room at all.
///
/// # Errors
/// The kernel's.
pub fn list_interfaces(socket: BorrowedFd<'_>, out: &mut [u8]) -> Result<usize, Errno> {
    let at = if out.is_empty() { std::ptr::null_mut() } else { out.as_mut_ptr() };
    let mut request = libc::ifconf {
        ifc_len: i32::try_from(out.len()).map_err(|_| Errno::INVAL)?,
        ifc_ifcu: libc::__c_anonymous_ifc_ifcu { ifcu_buf: at.cast() },
    };
    // SAFETY: the descriptor is open; the kernel writes at most `ifc_len` bytes to `out`.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), LIST, &raw mut request) };
    if done >= 0 { usize::try_from(request.ifc_len).map_err(|_| Errno::INVAL) } else { Err(last_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketType, socket};
    use std::os::fd::AsFd;

    #[test]
    fn only_questions_are_asked() {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        let mut request = [0; INTERFACE_REQUEST];
        request[..2].copy_from_slice(b"lo");
        ask_interface(socket.as_fd(), 0x8933, &mut request).unwrap();
        assert_eq!(request[16..20], 1_i32.to_ne_bytes());
        // SIOCSIFFLAGS, SIOCETHTOOL.
        for number in [0x8914, 0x8946, 0] {
            assert_eq!(ask_interface(socket.as_fd(), number, &mut request), Err(Errno::OPNOTSUPP));
        }
        let needed = list_interfaces(socket.as_fd(), &mut []).unwrap();
        assert_eq!(needed % INTERFACE_REQUEST, 0);
        let mut all = vec![0; needed + INTERFACE_REQUEST];
        assert_eq!(list_interfaces(socket.as_fd(), &mut all), Ok(needed));
    }
}
