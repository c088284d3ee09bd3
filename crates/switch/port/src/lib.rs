//! The kinds of port, one folder each: `rx` and `tx` are its queues, `peer` is its peer.
//!
//! Every kind implements [`Peer`] and has a row in [`KINDS`]. `offload` completes frames in software for
//! queues that lack an offload. Read `peer.rs` first, then the folder `null`, the smallest kind.

mod doorbell;
pub mod e1000;
pub mod frame_queue;
pub mod interface_open;
mod interface_page;
mod kinds;
pub mod link;
pub mod null;
pub mod offload;
pub mod packet;
pub mod pcap;
mod pci_session;
mod peer;
pub mod pipe;
mod relay;
pub mod ring;
pub mod ring_pci;
mod session_loop;
mod session_socket;
pub mod source;
pub mod tap;
pub mod too_big;
pub mod vhost_user;
pub mod wire;
pub mod xdp;

pub use doorbell::{Doorbell, Silent};
pub use interface_page::{InterfacePage, InterfaceState};
pub use kinds::KINDS;
pub use peer::{
    Alarm, Context, Exits, Gone, NoPeer, Opened, Peer, PeerError, PeerRecord, PeerRecords, PortKind,
    RegisterExits, State, exactly,
};
pub use relay::relay;
pub use ringway_vhost_user::{RECORD_KEYS, UNRESTORABLE};
pub use session_socket::SocketError;

use ringway_frame::{RxQueue, TxQueue};

/// Default of the settings `carrier`.
fn carrier() -> bool {
    true
}

/// Both directions of one queue pair of a port.
pub struct Queue {
    /// Frames from the peer.
    pub tx: Box<dyn TxQueue>,
    /// Frames to the peer.
    pub rx: Box<dyn RxQueue>,
}
