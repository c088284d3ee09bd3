//! A sans-I/O TCP/IP stack: IPv4 and IPv6 on Ethernet, ARP, neighbour discovery, ICMP, UDP, TCP.
//!
//! The stack has no clock, no randomness and no I/O of its own: every call takes the time in nanoseconds, a stack gets
//! its seed once, and frames go in and out in bursts with virtio-net offload metadata. Equal calls give equal
//! results, so a whole network runs in virtual time.
//!
//! # Structure
//!
//! [`Stack`] has interfaces, routes and sockets. [`Stack::poll`] receives a burst, handles the deadlines that
//! have passed, sends what can be sent, and returns when it must be called again. Its parts:
//!
//! | module | content |
//! |---|---|
//! | `stack` | frames in, layer by layer; sockets as programs see them; listeners and SYN cookies; ICMP |
//! | `net` | headers, routes, neighbours, reassembly, SLAAC, DHCP |
//! | `connection` | one TCP connection: `input`, `recovery` (ACKs, RACK-TLP, PRR, F-RTO), `output`, `timers` |
//! | `congestion` | a trait, and a file for each controller |
//! | `demux`, `timer` | from addresses to a socket in O(1), by a keyed hash; deadlines exact to the nanosecond |
//! | `codec`, `connection/repair`, `stack/repair` | a connection as bytes, so that it moves to another stack |
//! | `stack/tables` | what it has, for programs that show it: sockets, counters, routes, neighbours |
//! | `trace` | the state of one connection against time, as CSV, qlog and SVG |
//!
//! Positions in a stream are 64-bit offsets; sequence numbers exist only in segments. What was sent is kept
//! once, in the send buffer; the scoreboard has one record for each run of bytes with the same fate, which is
//! what RACK, SACK and delivery-rate samples need. A segment of up to 64 KB is sent as one frame if the
//! interface segments: its header is written once, and its payload is handed over as slices of the send buffer.
//! Received bytes are placed in the receive buffer by their offset, in order or not.
//!
//! Everything that a peer can size is bounded, with a comment that begins with `Attack:`.
//!
//! # Example
//!
//! ```
//! use ringway_netstack::{Cidr, Frames, InterfaceConfig, Settings, Stack};
//! use ringway_frame::{Needs, Offload};
//!
//! let host = |last: u8| {
//!     let mut stack = Stack::new(Settings::default(), [u64::from(last), 2]);
//!     stack.add_interface(InterfaceConfig {
//!         mac: [2, 0, 0, 0, 0, last].into(),
//!         mtu: 1500,
//!         addresses: vec![Cidr::new([10, 0, 0, last], 24)],
//!         offloads: Needs::NONE,
//!     });
//!     stack
//! };
//! let (mut client, mut server) = (host(1), host(2));
//! let listener = server.listen(([0, 0, 0, 0], 80).into(), 16)?;
//! let socket = client.connect(0, ([10, 0, 0, 2], 80).into())?;
//! client.send(0, socket, b"hello")?;
//! let mut frames = Frames::default();
//! for now in 0..4 {
//!     for (from, to) in [(true, false), (false, true)] {
//!         let (from, to) = if from && !to { (&mut client, &mut server) } else { (&mut server, &mut client) };
//!         from.transmit(now, 0, &mut frames);
//!         frames.iter().for_each(|(frame, offload)| to.receive(now, 0, frame, offload));
//!         frames.clear();
//!     }
//! }
//! let accepted = server.accept(listener)?.socket;
//! let mut bytes = [0; 16];
//! let count = server.recv(4, accepted, &mut bytes)?;
//! assert_eq!(&bytes[..count], b"hello");
//! # Ok::<(), ringway_netstack::SocketError>(())
//! ```
//!
//! # Not here yet
//!
//! IGMP and MLD, the reaction of BBR version 3 to ECN, urgent data, VLAN tags, and a compact
//! form of TIME-WAIT. Of TCP segments whose checksum needs no check, only headers are copied before
//! [`Stack::receive_in_place`] copies their bytes to the receive buffer; other frames are copied as a whole first.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod codec;
pub mod congestion;
mod connection;
mod demux;
mod hash;
mod memory;
mod minmax;
mod net;
mod settings;
mod stack;
mod sysctl;
mod timer;
mod trace;
mod udp;

pub use connection::buffer::PIECES;
pub use connection::shared::Source;
pub use connection::{ConnectionError, Readiness, State, TcpInfo};
pub use net::neighbor::Reachability;
pub use net::route::{Cidr, CidrError};
pub use net::{Frames, Transmit};
pub use settings::{MS, Pacing, SECOND, Settings, SocketOptions};
pub use stack::{
    Accepted, Diverted, InterfaceConfig, NeighborEntry, Reader, RepairError, RouteEntry, SocketEntry,
    SocketError, SocketId, SocketKind, Stack, Statistics, Totals,
};
pub use sysctl::sysctls;
pub use trace::{Trace, TracePoint};
