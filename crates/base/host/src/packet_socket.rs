//! Packet sockets: the frames of a network interface (packet(7)).
//!
//! A frame is preceded by the first ten bytes of `virtio_net_hdr`, little-endian, as with a TAP: they
//! describe offloads that the kernel left to the receiver, or that the sender leaves to the kernel.

use crate::error::{HostError, Named};
use rustix::io::Errno;
use std::ffi::{CString, c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Bytes of the header in front of each frame.
pub const PACKET_HEADER: usize = 10;

/// Settings of a packet socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct PacketSettings<'s> {
    /// Its name.
    pub interface: &'s str,
    /// Only frames of this Ethernet type; all if none.
    pub protocol: Option<u16>,
    /// Whether frames to other addresses are received.
    pub promiscuous: bool,
    /// Whether frames are only sent.
    pub only_sends: bool,
}

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub struct PacketReceived {
    /// Bytes written to memory, including the header.
    pub len: usize,
    /// Length of the frame, with the header.
    pub whole: usize,
    /// Type of destination (`PACKET_HOST` and so on).
    pub kind: u8,
    /// The VLAN tag removed by the kernel: its type and its control information.
    pub tag: Option<[u16; 2]>,
    /// Arrival time in nanoseconds since 1970; 0 if unknown.
    pub time: u64,
}

/// Memory for the control messages of a frame, aligned for their headers.
#[repr(align(8))]
struct Control([u8; 128]);

fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

pub(crate) fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

pub(crate) fn set<T>(socket: &OwnedFd, level: c_int, option: c_int, value: &T) -> Result<(), Errno> {
    // SAFETY: the kernel reads as many bytes of `value` as it has.
    let done = unsafe {
        let value: *const T = value;
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            value.cast::<c_void>(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    check(done).map(drop)
}

/// Opens a non-blocking socket on an interface.
///
/// # Errors
/// [`HostError::Call`]: the interface does not exist, or CAP_NET_RAW is missing.
pub fn open_packet(settings: &PacketSettings<'_>) -> Result<OwnedFd, HostError> {
    open(settings).named("opening a packet socket")
}

fn open(settings: &PacketSettings<'_>) -> Result<OwnedFd, Errno> {
    let name = CString::new(settings.interface).map_err(|_| Errno::INVAL)?;
    // SAFETY: the name ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(Errno::NODEV);
    }
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // With protocol 0 no frame arrives before the socket is bound to its interface.
    // SAFETY: no memory is passed.
    let socket = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the kernel just created it, and it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let on: c_int = 1;
    set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, &on)?;
    if !settings.only_sends {
        set(&socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
    }
    if settings.promiscuous {
        let request = libc::packet_mreq {
            mr_ifindex: index as c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set(&socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)?;
    }
    let protocol = if settings.only_sends { 0 } else { settings.protocol.unwrap_or(libc::ETH_P_ALL as u16) };
    // SAFETY: all zeros is a valid address of this kind.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index as c_int;
    let pointer: *const libc::sockaddr_ll = &address;
    // SAFETY: an address of its size, which the kernel only reads.
    check(unsafe {
        libc::bind(socket.as_raw_fd(), pointer.cast(), size_of::<libc::sockaddr_ll>() as libc::socklen_t)
    })?;
    Ok(socket)
}

/// Receives the next frame with its header; `None` if there is none.
///
/// # Errors
/// The kernel's: `NETDOWN` if the interface is down, `NXIO` or `NODEV` if it is gone.
pub fn packet_receive(socket: BorrowedFd<'_>, to: &mut [u8]) -> Result<Option<PacketReceived>, Errno> {
    let mut control = Control([0; 128]);
    // SAFETY: all zeros is a valid address of this kind, and a valid message.
    let (mut from, mut message): (libc::sockaddr_ll, libc::msghdr) = unsafe { std::mem::zeroed() };
    let mut piece = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    message.msg_name = std::ptr::from_mut(&mut from).cast();
    message.msg_namelen = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    message.msg_iov = &mut piece;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: the message names memory that is ours, with its sizes.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, libc::MSG_TRUNC) };
    let Ok(whole) = usize::try_from(len) else {
        return match last_error() {
            Errno::AGAIN | Errno::INTR => Ok(None),
            error => Err(error),
        };
    };
    let mut received =
        PacketReceived { len: whole.min(to.len()), whole, kind: from.sll_pkttype, tag: None, time: 0 };
    // SAFETY: the kernel filled `control` in as far as the message says now.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&message) };
    while !next.is_null() {
        // SAFETY: a header of a control message that the kernel wrote, whole.
        let header = unsafe { next.read_unaligned() };
        // SAFETY: its data stand behind it.
        let data = unsafe { libc::CMSG_DATA(next) };
        // SAFETY: as many bytes as the header counts are there; they are read only if they are enough.
        let read = |size: usize| header.cmsg_len >= unsafe { libc::CMSG_LEN(size as u32) } as usize;
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) if read(size_of::<libc::timespec>()) => {
                // SAFETY: this many bytes are available.
                let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
                let (seconds, rest) = (time.tv_sec as u64, time.tv_nsec as u64);
                received.time = seconds.saturating_mul(1_000_000_000).saturating_add(rest);
            }
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) if read(size_of::<libc::tpacket_auxdata>()) => {
                // SAFETY: this many bytes are available.
                let about = unsafe { data.cast::<libc::tpacket_auxdata>().read_unaligned() };
                if about.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                    let known = about.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
                    let kind = if known { about.tp_vlan_tpid } else { 0x8100 };
                    received.tag = Some([kind, about.tp_vlan_tci]);
                }
            }
            _ => {}
        }
        // SAFETY: the message and a header in it.
        next = unsafe { libc::CMSG_NXTHDR(&message, next) };
    }
    Ok(Some(received))
}

/// Sends a frame with its header; false if there is no room.
///
/// # Errors
/// The kernel's: `MSGSIZE` if the frame is longer than the interface's MTU.
pub fn packet_send(
    socket: BorrowedFd<'_>,
    header: &[u8; PACKET_HEADER],
    frame: &[u8],
) -> Result<bool, Errno> {
    let pieces = [std::io::IoSlice::new(header), std::io::IoSlice::new(frame)];
    match rustix::io::writev(socket, &pieces) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::NOBUFS | Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}
