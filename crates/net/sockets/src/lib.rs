//! Sockets for programs: the TCP/IP stack of `ringway-netstack` on a ring port, a TAP interface, or a pair in
//! memory.
//!
//! | interface | types |
//! |---|---|
//! | blocking, in std's shape | [`TcpStream`], [`TcpListener`], [`UdpSocket`] on a [`Network`] |
//! | tokio's `AsyncRead` and `AsyncWrite` | the same names in [`mod@tokio`], on the same [`Network`] |
//! | tables for other programs | [`Network::offer`], [`query`] |
//! | polled, in the caller's thread | [`Host`] and the sockets of [`ringway_netstack::Stack`] |
//!
//! ```
//! use ringway_sockets::{Config, Network, TcpListener, TcpStream, pair};
//! use std::io::{Read, Write};
//!
//! let (one, two) = pair()?;
//! let client = Network::new(one, Config::new("10.0.0.1/24".parse()?))?;
//! let server = Network::new(two, Config::new("10.0.0.2/24".parse()?))?;
//! let listener = TcpListener::bind(&server, "0.0.0.0:80")?;
//! let mut stream = TcpStream::connect(&client, "10.0.0.2:80")?;
//! let (mut accepted, _peer) = listener.accept()?;
//! stream.write_all(b"hello")?;
//! let mut bytes = [0; 5];
//! accepted.read_exact(&mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Read `host.rs` first, then `network.rs`. Memory is bounded by the stack's settings: sockets, and the
//! buffers of each.

#[cfg(test)]
mod copies;
mod device;
mod error;
mod host;
mod mapped;
mod network;
pub mod query;
#[cfg(test)]
mod round_trips;
mod socket;
mod tcp;
#[cfg(feature = "tokio")]
pub mod tokio;
mod udp;
mod waiting;

#[cfg(doctest)]
#[doc = include_str!("../../../../docs/stack.md")]
struct StackPage;

pub use device::{
    Device, DeviceError, LentRing, Pair, Received, RingDevice, RingRequest, Spans, StoredBytes, TapDevice,
    pair,
};
pub use host::{Config, Host, pass};
pub use mapped::Mapped;
pub use network::Network;
pub use ringway_host::TapSettings;
pub use ringway_netstack::congestion::Algorithm;
pub use ringway_netstack::{Cidr, Settings, SocketOptions, Source, Trace, TracePoint};
pub use ringway_ring_client::RingOptions;
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use waiting::Interest;
