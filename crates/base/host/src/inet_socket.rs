//! UDP and TCP sockets of wire ports: opening them, and many datagrams with one call (udp(7), recvmmsg(2)).
//!
//! UDP_SEGMENT sends one buffer as several datagrams of equal size, UDP_GRO receives several as one buffer.

use crate::error::{HostError, Named};
use crate::tap::last_error;
use ringway_mem::SpanMut;
use rustix::io::Errno;
use std::ffi::{c_int, c_void};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Largest number of buffers that a call sends or receives.
pub const DATAGRAMS: usize = 32;
/// Largest number of datagrams in one sent buffer (the kernel's UDP_MAX_SEGMENTS before Linux 6.9).
pub const DATAGRAM_SEGMENTS: usize = 64;
/// Bytes of a socket's buffers, if the process may exceed the system's limit.
const BUFFER: c_int = 8 << 20;
/// Smallest MTU of a path: Linux's `min_pmtu`, and RFC 8200, 5.
const LEAST_MTU_V4: u32 = 552;
const LEAST_MTU_V6: u32 = 1280;
/// After this time without an answer, the kernel gives up a TCP connection; in milliseconds.
const SILENCE: u32 = 10_000;

// linux/udp.h, linux/in6.h: not all are in the crate `libc`.
const UDP_SEGMENT: c_int = 103;
const UDP_GRO: c_int = 104;
const UDP_NO_CHECK6_TX: c_int = 101;
const UDP_NO_CHECK6_RX: c_int = 102;
const SOL_UDP: c_int = 17;

/// How datagrams are sent.
#[derive(Clone, Copy, Debug)]
pub struct SenderSettings {
    /// Source address; unspecified if the route decides.
    pub local: IpAddr,
    /// Where to.
    pub peer: SocketAddr,
    /// Whether UDP's checksum is filled in.
    pub checksum: bool,
    /// TTL or hop limit; the system's if none.
    pub ttl: Option<u8>,
}

/// One buffer to send.
#[derive(Clone, Copy, Debug)]
pub struct Datagrams<'b> {
    /// Its bytes.
    pub bytes: &'b [u8],
    /// Bytes of each datagram; 0: the buffer is one datagram.
    pub segment: u16,
    /// TOS or traffic class.
    pub tos: u8,
}

/// One received buffer.
#[derive(Clone, Copy, Debug)]
pub struct Received {
    /// Its bytes.
    pub len: u32,
    /// Bytes of each datagram in it; the last one may be shorter.
    pub segment: u32,
    /// TOS or traffic class.
    pub tos: u8,
    /// Where it came from.
    pub from: IpAddr,
    /// Whether the buffer was too short.
    pub truncated: bool,
}

impl Received {
    /// Number of datagrams in the buffer; an empty one is a datagram too.
    pub fn datagrams(&self) -> usize {
        self.len.div_ceil(self.segment.max(1)).max(1) as usize
    }
}

impl Default for Received {
    fn default() -> Received {
        Received { len: 0, segment: 0, tos: 0, from: IpAddr::V4(Ipv4Addr::UNSPECIFIED), truncated: false }
    }
}

/// Why datagrams were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatagramFault {
    /// The socket's buffer is full, or nothing was received.
    Again,
    /// Longer than the path's MTU.
    TooLong,
    /// The kernel can't cut the buffer into datagrams.
    NoSegmentation,
    /// There is no way to the peer: no route, interface or address.
    Down,
    /// A message about an earlier datagram came back (ICMP); this one was not sent.
    Reported,
    /// The kernel refuses it.
    Refused,
}

impl DatagramFault {
    #[cold]
    fn from(error: Errno) -> DatagramFault {
        match error {
            Errno::AGAIN | Errno::INTR | Errno::NOBUFS | Errno::NOMEM => DatagramFault::Again,
            Errno::MSGSIZE => DatagramFault::TooLong,
            Errno::IO | Errno::INVAL | Errno::OPNOTSUPP => DatagramFault::NoSegmentation,
            Errno::CONNREFUSED | Errno::PROTO => DatagramFault::Reported,
            Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN | Errno::ADDRNOTAVAIL | Errno::NODEV => {
                DatagramFault::Down
            }
            _ => DatagramFault::Refused,
        }
    }
}

fn check(result: c_int) -> Result<c_int, Errno> {
    if result < 0 { Err(last_error()) } else { Ok(result) }
}

fn set(socket: &OwnedFd, level: c_int, option: c_int, value: c_int) -> Result<(), Errno> {
    let (pointer, size) = (std::ptr::from_ref(&value), size_of::<c_int>() as libc::socklen_t);
    // SAFETY: the kernel reads an `int`'s bytes.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, pointer.cast(), size) }).map(drop)
}

/// A socket address in the kernel's form.
struct Name {
    storage: libc::sockaddr_storage,
    len: libc::socklen_t,
}

impl Name {
    fn new(address: SocketAddr) -> Name {
        // SAFETY: all zeros is a valid address.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let place = &raw mut storage;
        let len = match address {
            SocketAddr::V4(address) => {
                let name = libc::sockaddr_in {
                    sin_family: libc::AF_INET as libc::sa_family_t,
                    sin_port: address.port().to_be(),
                    sin_addr: libc::in_addr { s_addr: u32::from(*address.ip()).to_be() },
                    sin_zero: [0; 8],
                };
                // SAFETY: the storage is large enough, and aligned for any address.
                unsafe { place.cast::<libc::sockaddr_in>().write(name) };
                size_of::<libc::sockaddr_in>()
            }
            SocketAddr::V6(address) => {
                let name = libc::sockaddr_in6 {
                    sin6_family: libc::AF_INET6 as libc::sa_family_t,
                    sin6_port: address.port().to_be(),
                    sin6_flowinfo: 0,
                    sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                    sin6_scope_id: address.scope_id(),
                };
                // SAFETY: as above.
                unsafe { place.cast::<libc::sockaddr_in6>().write(name) };
                size_of::<libc::sockaddr_in6>()
            }
        };
        Name { storage, len: len as libc::socklen_t }
    }

    fn bind(&self, socket: &OwnedFd) -> Result<(), Errno> {
        // SAFETY: an address of its size, which the kernel only reads.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const self.storage).cast(), self.len) }).map(drop)
    }

    fn connect(&self, socket: &OwnedFd) -> Result<(), Errno> {
        // SAFETY: as for `bind`.
        check(unsafe { libc::connect(socket.as_raw_fd(), (&raw const self.storage).cast(), self.len) })
            .map(drop)
    }
}

fn socket(address: IpAddr) -> Result<OwnedFd, Errno> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let socket = check(unsafe { libc::socket(family, kind, 0) })?;
    // SAFETY: the kernel just created it, and it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    if address.is_ipv6() {
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
    }
    Ok(socket)
}

/// Enlarges a buffer as far as permitted.
fn enlarge(socket: &OwnedFd, force: c_int, usual: c_int) -> Result<(), Errno> {
    set(socket, libc::SOL_SOCKET, force, BUFFER).or_else(|_| set(socket, libc::SOL_SOCKET, usual, BUFFER))
}

/// Opens a non-blocking socket that receives datagrams to `local`, those from `peer` only if there is one. Several
/// sockets of one user may have the same `local`; the one that has the sender as `peer` gets a datagram. `zero`:
/// datagrams over IPv6 may have no checksum.
///
/// # Errors
/// The address is not of this host, another user has the port, or there is no route to the peer.
pub fn open_datagram_receiver(
    local: SocketAddr,
    peer: Option<IpAddr>,
    zero: bool,
) -> Result<OwnedFd, HostError> {
    receiver(local, peer, zero).named("opening a UDP socket to receive with")
}

fn receiver(local: SocketAddr, peer: Option<IpAddr>, zero: bool) -> Result<OwnedFd, Errno> {
    let socket = socket(local.ip())?;
    set(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
    set(&socket, SOL_UDP, UDP_GRO, 1)?;
    if local.is_ipv4() {
        set(&socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
    } else {
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set(&socket, SOL_UDP, UDP_NO_CHECK6_RX, zero.into())?;
    }
    if peer.is_some() {
        enlarge(&socket, libc::SO_RCVBUFFORCE, libc::SO_RCVBUF)?;
    }
    Name::new(local).bind(&socket)?;
    if let Some(peer) = peer {
        // Port 0 stands for every port: the peer's source ports differ by flow.
        Name::new(SocketAddr::new(peer, 0)).connect(&socket)?;
    }
    Ok(socket)
}

/// Opens a non-blocking socket with a source port of the system's choice, which sends to one peer and never lets a
/// datagram be fragmented.
///
/// # Errors
/// The address is not of this host, or there is no route to the peer.
pub fn open_datagram_sender(settings: &SenderSettings) -> Result<OwnedFd, HostError> {
    sender(settings).named("opening a UDP socket to send with")
}

fn sender(settings: &SenderSettings) -> Result<OwnedFd, Errno> {
    let SenderSettings { local, peer, checksum, ttl } = *settings;
    let socket = socket(peer.ip())?;
    if peer.is_ipv4() {
        set(&socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        set(&socket, libc::SOL_SOCKET, libc::SO_NO_CHECK, (!checksum).into())?;
    } else {
        set(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
        set(&socket, SOL_UDP, UDP_NO_CHECK6_TX, (!checksum).into())?;
    }
    if let Some(ttl) = ttl {
        let (level, option) = match peer {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TTL),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS),
        };
        set(&socket, level, option, ttl.into())?;
    }
    // Nothing is read from it: it shall keep no datagrams.
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 0)?;
    enlarge(&socket, libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)?;
    Name::new(SocketAddr::new(local, 0)).bind(&socket)?;
    Name::new(peer).connect(&socket)?;
    Ok(socket)
}

/// MTU of the path from a connected socket to its peer, IP header included; `None` if there is no path.
pub fn path_mtu(socket: BorrowedFd<'_>, ipv6: bool) -> Option<u32> {
    let (level, option) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    let (mut value, mut size): (c_int, _) = (0, size_of::<c_int>() as libc::socklen_t);
    let pointer = std::ptr::from_mut(&mut value);
    // SAFETY: the kernel writes at most `size` bytes, an `int`.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, pointer.cast(), &mut size) };
    // After its interface went, a socket tells the MTU of a device that takes nothing until it sends again.
    let least = if ipv6 { LEAST_MTU_V6 } else { LEAST_MTU_V4 };
    (got == 0).then_some(value).and_then(|value| u32::try_from(value).ok()).filter(|mtu| *mtu >= least)
}

/// Prepares a connected TCP socket: small frames leave at once, and a connection whose peer is silent ends.
///
/// # Errors
/// The system's.
pub fn prepare_stream(socket: impl AsFd) -> Result<(), HostError> {
    use rustix::net::sockopt;
    let set = || {
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, std::time::Duration::from_secs(3))?;
        sockopt::set_tcp_keepintvl(&socket, std::time::Duration::from_secs(2))?;
        sockopt::set_tcp_user_timeout(&socket, SILENCE)
    };
    set().named("preparing a TCP socket")?;
    crate::set_nonblocking(socket.as_fd())
}

/// Receives from a stream; 0 bytes if its other end is closed.
///
/// # Errors
/// `AGAIN` if there is nothing; the kernel's.
pub fn stream_receive(socket: BorrowedFd<'_>, to: SpanMut<'_>) -> Result<usize, Errno> {
    let pointer = std::ptr::with_exposed_provenance_mut::<c_void>(to.as_span().address());
    // SAFETY: the span's bytes are mapped writable, and no reference covers them.
    let count = unsafe { libc::recv(socket.as_raw_fd(), pointer, to.len(), libc::MSG_DONTWAIT) };
    usize::try_from(count).map_err(|_| last_error())
}

/// Sends on a stream without blocking; returns the number of bytes sent.
///
/// # Errors
/// `AGAIN` if there is no room; the kernel's.
pub fn stream_send(socket: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    let flags = rustix::net::SendFlags::NOSIGNAL | rustix::net::SendFlags::DONTWAIT;
    rustix::net::send(socket, bytes, flags)
}

/// Whether a socket has room for a large part of its buffer.
pub fn is_writable(socket: BorrowedFd<'_>) -> bool {
    let mut poll = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    // SAFETY: one element, which outlives the call.
    unsafe { libc::poll(&mut poll, 1, 0) != 0 }
}

/// Memory for the control messages of a buffer, aligned for their headers.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; Control::LEN]);

impl Control {
    const LEN: usize = 64;
    const EMPTY: Control = Control([0; Control::LEN]);

    /// Appends an `int` or a shorter value after `used` bytes; returns the bytes used then.
    fn push<T>(&mut self, used: usize, level: c_int, kind: c_int, value: T) -> usize {
        const { assert!(size_of::<T>() <= size_of::<c_int>()) };
        // SAFETY: the two are arithmetic.
        let (space, len) =
            unsafe { (libc::CMSG_SPACE(size_of::<T>() as u32), libc::CMSG_LEN(size_of::<T>() as u32)) };
        let end = used + space as usize;
        if end > Control::LEN {
            return used;
        }
        // SAFETY: all zeros is a valid header.
        let mut header: libc::cmsghdr = unsafe { std::mem::zeroed() };
        (header.cmsg_len, header.cmsg_level, header.cmsg_type) = (len as _, level, kind);
        // SAFETY: `end`, which is checked above, is after the header and the value; the writes need no alignment.
        unsafe {
            let place = self.0.as_mut_ptr().add(used);
            place.cast::<libc::cmsghdr>().write_unaligned(header);
            let data = place.add(libc::CMSG_LEN(0) as usize);
            data.cast::<T>().write_unaligned(value);
        }
        end
    }
}

/// Sends buffers, at most [`DATAGRAMS`] of them, on a connected socket; returns how many were sent.
///
/// # Errors
/// Why the first was not sent.
pub fn send_datagrams(
    socket: BorrowedFd<'_>,
    ipv6: bool,
    list: &[Datagrams<'_>],
) -> Result<usize, DatagramFault> {
    let count = list.len().min(DATAGRAMS);
    // SAFETY: all zeros are valid messages and pieces.
    let (mut messages, mut pieces): ([libc::mmsghdr; DATAGRAMS], [libc::iovec; DATAGRAMS]) =
        unsafe { std::mem::zeroed() };
    let mut controls = [Control::EMPTY; DATAGRAMS];
    let (level, option) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) } else { (libc::IPPROTO_IP, libc::IP_TOS) };
    for (at, datagrams) in list[..count].iter().enumerate() {
        let control = &mut controls[at];
        let mut used = 0;
        if datagrams.segment != 0 {
            used = control.push(used, SOL_UDP, UDP_SEGMENT, datagrams.segment);
        }
        if datagrams.tos != 0 {
            used = control.push(used, level, option, c_int::from(datagrams.tos));
        }
        let iov_base = datagrams.bytes.as_ptr().cast_mut().cast();
        pieces[at] = libc::iovec { iov_base, iov_len: datagrams.bytes.len() };
        let message = &mut messages[at].msg_hdr;
        message.msg_iov = &raw mut pieces[at];
        message.msg_iovlen = 1;
        if used > 0 {
            message.msg_control = control.0.as_mut_ptr().cast();
            message.msg_controllen = used as _;
        }
    }
    // SAFETY: `count` messages, which name bytes and control messages that outlive the call; the kernel only reads
    // them.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT as _)
    };
    usize::try_from(sent).map_err(|_| DatagramFault::from(last_error()))
}

/// Receives one buffer into each of `spaces`, at most [`DATAGRAMS`]; returns how many arrived.
///
/// # Errors
/// [`DatagramFault::Again`] if there are none; the kernel's.
pub fn receive_datagrams(
    socket: BorrowedFd<'_>,
    spaces: &[SpanMut<'_>],
    out: &mut [Received],
) -> Result<usize, DatagramFault> {
    let count = spaces.len().min(out.len()).min(DATAGRAMS);
    // SAFETY: all zeros are valid messages, pieces and names.
    let (mut messages, mut pieces, mut names): (
        [libc::mmsghdr; DATAGRAMS],
        [libc::iovec; DATAGRAMS],
        [libc::sockaddr_in6; DATAGRAMS],
    ) = unsafe { std::mem::zeroed() };
    let mut controls = [Control::EMPTY; DATAGRAMS];
    for (at, space) in spaces[..count].iter().enumerate() {
        let iov_base = std::ptr::with_exposed_provenance_mut::<c_void>(space.as_span().address());
        pieces[at] = libc::iovec { iov_base, iov_len: space.len() };
        let message = &mut messages[at].msg_hdr;
        message.msg_name = (&raw mut names[at]).cast();
        message.msg_namelen = size_of::<libc::sockaddr_in6>() as libc::socklen_t;
        message.msg_iov = &raw mut pieces[at];
        message.msg_iovlen = 1;
        message.msg_control = controls[at].0.as_mut_ptr().cast();
        message.msg_controllen = Control::LEN as _;
    }
    // SAFETY: `count` messages, whose memory outlives the call; the spans are mapped writable, and no reference covers
    // them.
    let received = unsafe {
        let (number, none) = (socket.as_raw_fd(), std::ptr::null_mut());
        libc::recvmmsg(number, messages.as_mut_ptr(), count as u32, libc::MSG_DONTWAIT as _, none)
    };
    let received = usize::try_from(received).map_err(|_| DatagramFault::from(last_error()))?;
    for at in 0..received.min(count) {
        let message = &messages[at];
        let mut one = Received {
            len: message.msg_len,
            segment: message.msg_len,
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
            from: address(&names[at]),
            ..Received::default()
        };
        read_control(&message.msg_hdr, &mut one);
        out[at] = one;
    }
    Ok(received.min(count))
}

/// The address in a name of either family.
fn address(name: &libc::sockaddr_in6) -> IpAddr {
    if c_int::from(name.sin6_family) == libc::AF_INET6 {
        return IpAddr::V6(Ipv6Addr::from(name.sin6_addr.s6_addr));
    }
    // A `sockaddr_in` has its address where a `sockaddr_in6` has the flow information.
    IpAddr::V4(Ipv4Addr::from(name.sin6_flowinfo.to_ne_bytes()))
}

/// Reads the control messages of a received buffer.
fn read_control(message: &libc::msghdr, one: &mut Received) {
    // SAFETY: the kernel filled the control memory as far as the message says now.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !next.is_null() {
        // SAFETY: a header of a control message that the kernel wrote, whole.
        let header = unsafe { next.read_unaligned() };
        // SAFETY: its data is behind it; they are read only if they are long enough.
        let (data, short) = unsafe { (libc::CMSG_DATA(next), libc::CMSG_LEN(0) as usize) };
        let len = (header.cmsg_len as usize).saturating_sub(short);
        match (header.cmsg_level, header.cmsg_type) {
            (SOL_UDP, UDP_GRO) if len >= size_of::<c_int>() => {
                // SAFETY: this many bytes are available.
                let segment = unsafe { data.cast::<c_int>().read_unaligned() };
                one.segment = u32::try_from(segment).unwrap_or(0);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) if len >= 1 => {
                // Little-endian machines have an `int`'s value in its first byte; IP_TOS is one byte long.
                let last = if cfg!(target_endian = "big") { len - 1 } else { 0 };
                // SAFETY: `last` is below `len`.
                one.tos = unsafe { data.add(last).read() };
            }
            _ => {}
        }
        // SAFETY: the message and a header in it.
        next = unsafe { libc::CMSG_NXTHDR(message, next) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn local(socket: &OwnedFd) -> SocketAddr {
        rustix::net::getsockname(socket).unwrap().try_into().unwrap()
    }

    fn sender_to(peer: SocketAddr, checksum: bool) -> OwnedFd {
        open_datagram_sender(&SenderSettings { local: peer.ip(), peer, checksum, ttl: Some(9) }).unwrap()
    }

    fn receive(socket: &OwnedFd) -> Vec<(Received, Vec<u8>)> {
        let mut memory = vec![[0; 70_000]; 4];
        let mut out = [Received::default(); 4];
        let spaces: Vec<SpanMut<'_>> = memory.iter_mut().map(|space| SpanMut::of(space)).collect();
        let count = receive_datagrams(socket.as_fd(), &spaces, &mut out).unwrap_or(0);
        let bytes = out.iter().zip(&memory).map(|(one, space)| space[..one.len as usize].to_vec());
        out.into_iter().zip(bytes).take(count).collect()
    }

    #[test]
    fn datagrams_arrive_with_their_class_and_segments() {
        for here in [HERE, IpAddr::V6(Ipv6Addr::LOCALHOST)] {
            let receiver = open_datagram_receiver(SocketAddr::new(here, 0), Some(here), true).unwrap();
            let peer = local(&receiver);
            let (filled, zero) = (sender_to(peer, true), sender_to(peer, false));
            assert!(path_mtu(filled.as_fd(), here.is_ipv6()).unwrap() >= 1280);
            let one = Datagrams { bytes: &[1; 100], segment: 0, tos: 0x2e << 2 | 1 };
            assert_eq!(send_datagrams(zero.as_fd(), here.is_ipv6(), &[one, one]), Ok(2));
            let got = receive(&receiver);
            assert_eq!(got.len(), 2);
            for (received, bytes) in got {
                assert_eq!((received.tos, received.from, &*bytes), (0x2e << 2 | 1, here, &[1; 100][..]));
                assert_eq!((received.segment, received.truncated), (100, false));
            }
            let many = Datagrams { bytes: &[2; 250], segment: 100, tos: 0 };
            assert_eq!(send_datagrams(filled.as_fd(), here.is_ipv6(), &[many]), Ok(1));
            let got = receive(&receiver);
            let total: usize = got.iter().map(|(_, bytes)| bytes.len()).sum();
            assert_eq!((total, got[0].0.segment, got[0].0.tos), (250, 100, 0));
            assert!(receive(&receiver).is_empty());
            let none =
                receive_datagrams(receiver.as_fd(), &[SpanMut::of(&mut [0; 10])], &mut [Received::default()]);
            assert_eq!(none, Err(DatagramFault::Again));
            assert!(is_writable(filled.as_fd()));
        }
    }

    #[test]
    fn a_socket_with_a_peer_gets_its_datagrams_and_another_one_the_rest() {
        let stranger: IpAddr = Ipv4Addr::new(127, 0, 0, 2).into();
        let strangers = open_datagram_receiver(SocketAddr::new(HERE, 0), None, false).unwrap();
        let at = local(&strangers);
        let ours = open_datagram_receiver(at, Some(HERE), false).unwrap();
        let other = SenderSettings { local: stranger, peer: at, checksum: true, ttl: None };
        let other = open_datagram_sender(&other).unwrap();
        let datagram = |byte: &'static [u8]| [Datagrams { bytes: byte, segment: 0, tos: 0 }];
        assert_eq!(send_datagrams(other.as_fd(), false, &datagram(&[2])), Ok(1));
        assert_eq!(send_datagrams(sender_to(at, true).as_fd(), false, &datagram(&[1])), Ok(1));
        assert_eq!(receive(&ours).iter().map(|one| (one.0.from, one.1[0])).collect::<Vec<_>>(), [(HERE, 1)]);
        let got = receive(&strangers);
        assert_eq!(got.iter().map(|one| (one.0.from, one.1[0])).collect::<Vec<_>>(), [(stranger, 2)]);
    }

    #[test]
    fn a_message_that_came_back_is_reported_once() {
        let peer = {
            let gone = open_datagram_receiver(SocketAddr::new(HERE, 0), None, false).unwrap();
            local(&gone)
        };
        let sender = sender_to(peer, true);
        let one = [Datagrams { bytes: &[1], segment: 0, tos: 0 }];
        assert_eq!(send_datagrams(sender.as_fd(), false, &one), Ok(1));
        assert_eq!(send_datagrams(sender.as_fd(), false, &one), Err(DatagramFault::Reported));
        assert_eq!(send_datagrams(sender.as_fd(), false, &one), Ok(1));
    }
}
