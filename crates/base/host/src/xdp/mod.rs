//! AF_XDP sockets and their XDP program (Linux' Documentation/networking/af_xdp.rst).
//!
//! A socket's rings can be mapped only before it is bound. So `control` opens sockets ([`XdpQueue::open`]), `data` maps
//! their rings, and then `control` attaches the program and binds the sockets ([`XdpLink::attach`]).

mod bpf;
mod program;

pub use bpf::Attach;
pub use program::{KEEP_RULES, KeepRule};

use crate::error::{HostError, Named};
use crate::memory::{Mapping, memfd};
use crate::packet_socket::{check, set};
use rustix::io::Errno;
use std::ffi::{c_int, c_void};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Descriptors of each ring, and chunks of each direction: every ring has room for every chunk.
pub const XDP_RING: usize = 2048;
/// Bytes of a chunk that the kernel leaves free before a received frame.
pub const XDP_HEADROOM: usize = 256;
/// Sizes of chunks: of two to a page, and of one.
const CHUNKS: [usize; 2] = [2048, 4096];

/// The smallest chunk that a received frame of `len` bytes fits into, or the largest one.
pub fn xdp_chunk(len: usize) -> usize {
    CHUNKS.into_iter().find(|chunk| XDP_HEADROOM + len <= *chunk).unwrap_or(CHUNKS[1])
}

/// A queue's socket, and its memory: `XDP_RING` chunks for received frames, then as many for others.
#[derive(Debug)]
pub struct XdpQueue {
    /// The socket, which is not bound yet.
    pub socket: OwnedFd,
    /// A sealed memfd.
    pub memory: OwnedFd,
}

impl XdpQueue {
    /// Opens a socket of this thread's network namespace.
    ///
    /// # Errors
    /// CAP_NET_RAW is missing, the kernel has no AF_XDP, or no memory can be pinned.
    pub fn open(chunk: usize) -> Result<XdpQueue, HostError> {
        // SAFETY: no memory is passed.
        let socket = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        let socket = check(socket).named("opening an AF_XDP socket (CONFIG_XDP_SOCKETS)")?;
        // SAFETY: the kernel just created it, and it has no other owner.
        let socket = unsafe { OwnedFd::from_raw_fd(socket) };
        let memory = memfd("ringway-xdp", 2 * XDP_RING * chunk)?;
        // Mapped until the kernel has the pages.
        let region = Mapping::sealed(&memory)?.region();
        let registration = libc::xdp_umem_reg_v1 {
            addr: region.base().expose_provenance().get() as u64,
            len: (2 * XDP_RING * chunk) as u64,
            chunk_size: chunk as u32,
            headroom: 0,
        };
        let xdp = |option, value: &u32| set(&socket, libc::SOL_XDP, option, value);
        set(&socket, libc::SOL_XDP, libc::XDP_UMEM_REG, &registration).named(
            "giving memory to an AF_XDP socket (its pages are pinned: raise `ulimit -l` if you are not root)",
        )?;
        let size = XDP_RING as u32;
        let rings = [
            (libc::XDP_UMEM_FILL_RING, "making the fill ring"),
            (libc::XDP_UMEM_COMPLETION_RING, "making the completion ring"),
            (libc::XDP_RX_RING, "making the receive ring"),
            (libc::XDP_TX_RING, "making the transmit ring"),
        ];
        for (option, call) in rings {
            xdp(option, &size).named(call)?;
        }
        Ok(XdpQueue { socket, memory })
    }
}

/// Where a ring's parts are in its mapping, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct XdpRingPlace {
    /// Offset of the mapping in the socket's file.
    pub offset: u64,
    /// Its length.
    pub len: usize,
    /// The producer's index.
    pub producer: usize,
    /// The consumer's index.
    pub consumer: usize,
    /// Flags.
    pub flags: usize,
    /// The descriptors.
    pub descriptors: usize,
}

/// Places of the rings: received frames, frames to send, chunks to fill, chunks whose frames were sent.
///
/// # Errors
/// It is no AF_XDP socket.
pub fn xdp_rings(socket: BorrowedFd<'_>) -> Result<[XdpRingPlace; 4], HostError> {
    let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let mut all = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
    get(socket, libc::XDP_MMAP_OFFSETS, &mut all).named("asking for an AF_XDP socket's rings")?;
    let place = |ring: libc::xdp_ring_offset, offset: u64, each: usize| XdpRingPlace {
        offset,
        len: (ring.desc as usize + XDP_RING * each).next_multiple_of(4096),
        producer: ring.producer as usize,
        consumer: ring.consumer as usize,
        flags: ring.flags as usize,
        descriptors: ring.desc as usize,
    };
    Ok([
        place(all.rx, libc::XDP_PGOFF_RX_RING as u64, 16),
        place(all.tx, libc::XDP_PGOFF_TX_RING as u64, 16),
        place(all.fr, libc::XDP_UMEM_PGOFF_FILL_RING, 8),
        place(all.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING, 8),
    ])
}

fn get<T>(socket: BorrowedFd<'_>, option: c_int, value: &mut T) -> Result<(), Errno> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let at: *mut T = value;
    // SAFETY: the kernel writes at most as many bytes as `value` has; callers give structures of numbers.
    let done =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, option, at.cast::<c_void>(), &mut len) };
    check(done).map(drop)
}

/// Whether the driver passes frames of a bound socket without copying them.
pub fn xdp_is_zero_copy(socket: BorrowedFd<'_>) -> bool {
    let mut options = libc::xdp_options { flags: 0 };
    get(socket, libc::XDP_OPTIONS, &mut options).is_ok() && options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0
}

/// Frames that a socket lost, since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpLosses {
    /// They were longer than a chunk, or there was another reason.
    pub dropped: u64,
    /// The receive ring was full.
    pub full: u64,
    /// No chunk was there to fill.
    pub unfilled: u64,
    /// Descriptors that the kernel refused.
    pub invalid: u64,
}

/// What a socket lost.
pub fn xdp_losses(socket: BorrowedFd<'_>) -> XdpLosses {
    let mut figures = [0_u64; 6];
    if get(socket, libc::XDP_STATISTICS, &mut figures).is_err() {
        return XdpLosses::default();
    }
    let [dropped, invalid_rx, invalid_tx, full, unfilled, _] = figures;
    XdpLosses { dropped, full, unfilled, invalid: invalid_rx + invalid_tx }
}

/// Makes the kernel send, as far as it can now. `false`: some frames are left, and it must be asked again.
///
/// # Errors
/// `NETDOWN` or `NXIO`: the interface is down or gone.
pub fn xdp_kick(socket: BorrowedFd<'_>) -> Result<bool, Errno> {
    match rustix::net::send(socket, &[], rustix::net::SendFlags::DONTWAIT) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Makes the driver look for chunks to fill.
pub fn xdp_wake_receive(socket: BorrowedFd<'_>) {
    let none: &mut [u8] = &mut [];
    // That there is nothing to read is no error.
    let _ = rustix::net::recv(socket, none, rustix::net::RecvFlags::DONTWAIT);
}

/// Why an interface's program can't be attached, or a socket can't be bound.
#[derive(Debug, thiserror::Error)]
pub enum XdpError {
    /// Another program has it.
    #[error("{}", foreign(*.0))]
    Foreign(u32),
    /// The interface has no such queue.
    #[error("it has no queue {0}; use fewer `queues`, or give it more with `ethtool -L`")]
    NoQueue(u32),
    /// Another socket has the queue.
    #[error("another AF_XDP socket has its queue {0}; stop the program that opened it")]
    BusyQueue(u32),
    /// A system call failed.
    #[error(transparent)]
    Host(#[from] HostError),
}

fn foreign(program: u32) -> String {
    let name = bpf::name_of(program);
    let name = if name.is_empty() { name } else { format!(" ({name})") };
    format!(
        "the XDP program {program}{name} is attached to it; stop what attached it, or detach it with \
         `ip link set dev INTERFACE xdp off`, or use kind = \"packet\""
    )
}

/// An attached program. It is detached when this is dropped, also when the process is killed.
#[derive(Debug)]
pub struct XdpLink {
    _link: OwnedFd,
    /// How it is attached.
    pub how: Attach,
    /// Whether all sockets are without copies.
    pub is_zero_copy: bool,
}

/// What a program is made for.
#[derive(Clone, Debug)]
pub struct XdpTarget {
    /// Number of the interface.
    pub interface: u32,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// The host's addresses.
    pub addresses: Vec<IpAddr>,
    /// What stays with the host.
    pub rules: Vec<KeepRule>,
    /// Whether it is attached in the kernel's stack even if the driver could run it.
    pub generic: bool,
}

impl XdpLink {
    /// Attaches the program, in the driver if that is possible, and binds the sockets to queues from 0 on. Must be
    /// called in the interface's network namespace.
    ///
    /// # Errors
    /// Another program is there, or the system refused.
    pub fn attach(target: &XdpTarget, sockets: &[OwnedFd]) -> Result<XdpLink, XdpError> {
        let map = bpf::socket_map(sockets.len().max(1) as u32).named("creating a map (bpf(2))")?;
        let code = program::assemble(map.as_raw_fd(), target.mac, &target.addresses, &target.rules);
        let program = bpf::load("ringway", &code).named("loading an XDP program (bpf(2))")?;
        let taken = |error: &Errno| matches!(*error, Errno::BUSY | Errno::EXIST);
        let is_final = |error: &Errno| taken(error) || matches!(*error, Errno::PERM | Errno::NODEV);
        let attach = |how| bpf::attach(&program, target.interface, how).map(|link| (link, how));
        let first = if target.generic { Attach::Generic } else { Attach::Native };
        let attached = attach(first).or_else(|error| match is_final(&error) {
            true => Err(error),
            false => attach(Attach::Generic),
        });
        let (link, how) = attached.map_err(|error| match taken(&error) {
            true => XdpError::Foreign(0),
            false => HostError::Call { call: "attaching an XDP program", error }.into(),
        })?;
        for (queue, socket) in (0..).zip(sockets) {
            bind(socket, target.interface, queue, how)?;
            bpf::set_socket(&map, queue, socket).named("giving a queue its socket")?;
        }
        let is_zero_copy = !sockets.is_empty()
            && sockets.iter().all(|socket| xdp_is_zero_copy(std::os::fd::AsFd::as_fd(socket)));
        Ok(XdpLink { _link: link, how, is_zero_copy })
    }
}

fn bind(socket: &OwnedFd, interface: u32, queue: u32, how: Attach) -> Result<(), XdpError> {
    let copy = if how == Attach::Generic { libc::XDP_COPY } else { 0 };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: copy | libc::XDP_USE_NEED_WAKEUP,
        sxdp_ifindex: interface,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    let (pointer, len) = (&raw const address, size_of_val(&address) as u32);
    // SAFETY: an address of its size, which the kernel only reads.
    let bound = check(unsafe { libc::bind(socket.as_raw_fd(), pointer.cast(), len) });
    bound.map(drop).map_err(|error| match error {
        Errno::INVAL => XdpError::NoQueue(queue),
        Errno::BUSY => XdpError::BusyQueue(queue),
        error => HostError::Call { call: "binding an AF_XDP socket", error }.into(),
    })
}

/// Receive queues of the interface of this name in this thread's network namespace; 0 if the driver does not tell.
pub fn receive_queues(name: &str) -> u32 {
    // `struct ethtool_channels`: command; the most receive, transmit, other and combined queues; how many there are.
    const GET_CHANNELS: u32 = 0x3c;
    let mut channels = [GET_CHANNELS, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: all zeros is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let bytes = name.bytes().take(libc::IFNAMSIZ - 1);
    request.ifr_name.iter_mut().zip(bytes).for_each(|(to, from)| *to = from as libc::c_char);
    request.ifr_ifru.ifru_data = channels.as_mut_ptr().cast();
    let Ok(socket) =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::DGRAM, None)
    else {
        return 0;
    };
    // SAFETY: the request's pointer leads to a structure of the command's size, which the kernel fills.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &mut request) };
    if done < 0 { 0 } else { channels[5].saturating_add(channels[8]) }
}

#[cfg(test)]
mod tests;
