//! Packet sockets with rings in shared memory (Linux' Documentation/networking/packet_mmap.rst, TPACKET_V3).
//!
//! A socket's mapping has the blocks of the receive ring, then those of the transmit ring. In both rings a frame is
//! preceded by the first ten bytes of `virtio_net_hdr`, little-endian.

use crate::error::{HostError, Named};
use crate::packet_socket::{check, set};
use rustix::io::Errno;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Bytes of a receive block. Attack: the longest frame with its headers must have room, else it is cut.
pub const RX_BLOCK: usize = 128 << 10;
/// Blocks of the receive ring.
pub const RX_BLOCKS: usize = 16;
/// Bytes of a receive block, before its first frame, that the kernel does not touch.
pub const RX_PRIVATE: usize = 8;
/// Bytes of a transmit block, a page size for which the kernel wastes no memory.
const TX_BLOCK: usize = 2 << 20;
/// Blocks of the transmit ring.
const TX_BLOCKS: usize = 8;
/// Bytes of a transmit slot: the longest frame with its headers, and a distance that spreads slots over the cache.
pub const TX_SLOT: usize = (64 << 10) + 2 * 64;
const TX_PER_BLOCK: usize = TX_BLOCK / TX_SLOT;
/// Slots of the transmit ring.
pub const TX_SLOTS: usize = TX_PER_BLOCK * TX_BLOCKS;
/// Bytes of a socket's mapping.
pub const PACKET_RINGS: usize = RX_BLOCK * RX_BLOCKS + TX_BLOCK * TX_BLOCKS;

/// Where a transmit slot begins in the mapping.
pub fn tx_slot(slot: usize) -> usize {
    RX_BLOCK * RX_BLOCKS + slot / TX_PER_BLOCK * TX_BLOCK + slot % TX_PER_BLOCK * TX_SLOT
}

const VERSION_3: c_int = 2;
/// Milliseconds after which a block that is not full is handed over.
const RETIRE: u32 = 1;
const LARGEST_SOCKETS: usize = 16;

/// `struct tpacket_req3`.
#[repr(C)]
struct Request {
    block_size: u32,
    blocks: u32,
    frame_size: u32,
    frames: u32,
    retire: u32,
    private: u32,
    features: u32,
}

/// Opens `count` sockets with rings, 1 to 16, on the interface with this number in the thread's network namespace. Each
/// flow arrives at one of them. `promiscuous`: frames to other addresses arrive, too.
///
/// # Errors
/// The system refused: CAP_NET_RAW is missing, there is no such interface, or no memory.
pub fn open_packet_rings(index: u32, count: usize, promiscuous: bool) -> Result<Vec<OwnedFd>, HostError> {
    let mut sockets: Vec<OwnedFd> = Vec::new();
    let mut group = None;
    for number in 0..count.clamp(1, LARGEST_SOCKETS) {
        let socket = open_one(index, promiscuous && number == 0)?;
        if count > 1 {
            group = Some(join(&socket, group).named("sharing an interface's frames (PACKET_FANOUT)")?);
        }
        sockets.push(socket);
    }
    Ok(sockets)
}

fn open_one(index: u32, promiscuous: bool) -> Result<OwnedFd, HostError> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // With protocol 0 no frame arrives before the socket is bound to its interface.
    // SAFETY: no memory is passed.
    let socket = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) }).named("opening a packet socket")?;
    // SAFETY: the kernel just created it, and it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let on: c_int = 1;
    let packet = |option, value: &c_int| set(&socket, libc::SOL_PACKET, option, value);
    packet(libc::PACKET_VERSION, &VERSION_3).named("asking for TPACKET_V3")?;
    packet(libc::PACKET_VNET_HDR, &on).named("asking for offload headers (PACKET_VNET_HDR)")?;
    packet(libc::PACKET_IGNORE_OUTGOING, &on).named("ignoring outgoing frames (Linux 4.20)")?;
    // A frame that the kernel refuses must not block those after it.
    packet(libc::PACKET_LOSS, &on).named("setting PACKET_LOSS")?;
    packet(libc::PACKET_QDISC_BYPASS, &on).named("setting PACKET_QDISC_BYPASS")?;
    // All slots may be with the device at once.
    let room = (TX_BLOCK * TX_BLOCKS * 2) as c_int;
    if set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &room).is_err() {
        set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &room).named("setting the socket's buffer")?;
    }
    let receive = Request {
        block_size: RX_BLOCK as u32,
        blocks: RX_BLOCKS as u32,
        frame_size: 2048,
        frames: (RX_BLOCK / 2048 * RX_BLOCKS) as u32,
        retire: RETIRE,
        private: RX_PRIVATE as u32,
        features: 0,
    };
    set(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &receive).named("making the receive ring")?;
    let transmit = Request {
        block_size: TX_BLOCK as u32,
        blocks: TX_BLOCKS as u32,
        frame_size: TX_SLOT as u32,
        frames: TX_SLOTS as u32,
        retire: 0,
        private: 0,
        features: 0,
    };
    set(&socket, libc::SOL_PACKET, libc::PACKET_TX_RING, &transmit).named("making the transmit ring")?;
    if promiscuous {
        join_promiscuous(&socket, index).named("making the interface promiscuous")?;
    }
    bind(&socket, index).named("binding a packet socket")?;
    Ok(socket)
}

/// Makes an interface promiscuous as long as the socket is open.
fn join_promiscuous(socket: &OwnedFd, index: u32) -> Result<(), Errno> {
    let request = libc::packet_mreq {
        mr_ifindex: index as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// A socket that only makes an interface promiscuous.
///
/// # Errors
/// The system refused.
pub fn hold_promiscuous(index: u32) -> Result<OwnedFd, HostError> {
    const CALL: &str = "making the interface promiscuous";
    // SAFETY: no memory is passed.
    let socket = check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) });
    // SAFETY: the kernel just created it, and it has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket.named(CALL)?) };
    join_promiscuous(&socket, index).named(CALL)?;
    Ok(socket)
}

fn bind(socket: &OwnedFd, index: u32) -> Result<(), Errno> {
    // SAFETY: all zeros is a valid address of this kind.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as c_int;
    let (pointer, len) = (&raw const address, size_of_val(&address) as u32);
    // SAFETY: an address of its size, which the kernel only reads.
    check(unsafe { libc::bind(socket.as_raw_fd(), pointer.cast(), len) }).map(drop)
}

/// PACKET_FANOUT's flags (linux/if_packet.h): the kernel chooses the group's number; its sockets ignore outgoing
/// frames.
const UNIQUE: c_int = 0x2000;
const IGNORE_OUTGOING: c_int = 0x4000;

/// Joins a group of sockets that share an interface's frames by flow, or founds one; returns its number.
fn join(socket: &OwnedFd, group: Option<c_int>) -> Result<c_int, Errno> {
    let flags = IGNORE_OUTGOING | if group.is_none() { UNIQUE } else { 0 };
    // PACKET_FANOUT_HASH is 0.
    let request = group.unwrap_or_default() | flags << 16;
    set(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, &request)?;
    let mut now: c_int = 0;
    get(socket.as_raw_fd(), libc::PACKET_FANOUT, &mut now)?;
    Ok(now & 0xffff)
}

fn get<T>(socket: c_int, option: c_int, value: &mut T) -> Result<(), Errno> {
    let mut len = size_of::<T>() as libc::socklen_t;
    let at: *mut T = value;
    // SAFETY: the kernel writes at most as many bytes as `value` has; callers give types that any bytes are valid for.
    check(unsafe { libc::getsockopt(socket, libc::SOL_PACKET, option, at.cast::<c_void>(), &mut len) })
        .map(drop)
}

/// Makes the kernel send what waits in the transmit ring, as far as it can now. `false`: the interface is down or gone.
pub fn packet_kick(socket: BorrowedFd<'_>) -> bool {
    let flags = rustix::net::SendFlags::DONTWAIT;
    !matches!(rustix::net::send(socket, &[], flags), Err(Errno::NETDOWN | Errno::NXIO | Errno::NODEV))
}

/// Frames that the kernel could not put into the receive ring since the last call.
pub fn packet_missed(socket: BorrowedFd<'_>) -> u32 {
    // `struct tpacket_stats_v3`: frames, lost ones, times that the ring was full.
    let mut figures = [0_u32; 3];
    let read = get(socket.as_raw_fd(), libc::PACKET_STATISTICS, &mut figures);
    read.map_or(0, |()| figures[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_within_their_blocks() {
        for slot in 0..TX_SLOTS {
            let at = tx_slot(slot) - RX_BLOCK * RX_BLOCKS;
            assert_eq!(at / TX_BLOCK, (at + TX_SLOT - 1) / TX_BLOCK, "{slot}");
            assert!(slot == 0 || tx_slot(slot) >= tx_slot(slot - 1) + TX_SLOT);
        }
        assert!(tx_slot(TX_SLOTS - 1) + TX_SLOT <= PACKET_RINGS);
    }

    #[test]
    fn a_socket_has_its_rings() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: packet sockets need root");
            return;
        }
        let sockets = open_packet_rings(1, 2, false).unwrap();
        for socket in &sockets {
            let mapping = crate::Mapping::of_device(socket, 0, PACKET_RINGS).unwrap();
            assert_eq!(mapping.len(), PACKET_RINGS);
            let _ = packet_missed(std::os::fd::AsFd::as_fd(socket));
        }
        assert!(open_packet_rings(1 << 30, 1, false).is_err());
        let error = open_packet_rings(1 << 30, 1, true).unwrap_err().to_string();
        assert!(error.starts_with("making the interface promiscuous"), "{error}");
    }
}
