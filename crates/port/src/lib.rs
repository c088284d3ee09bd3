//! The kinds of port, one folder each: `rx` and `tx` are its queues, `peer` is what is behind it, and [`KINDS`] has
//! a row for it. [`Peer`] is what every kind implements.

mod doorbell;
mod kinds;
pub mod null;
pub mod offload;
mod peer;
pub mod pipe;
pub mod ring;
pub mod source;
pub mod tap;
pub mod vhost_user;

pub use doorbell::{Doorbell, Silent};
pub use kinds::KINDS;
pub use peer::{Alarm, Context, Gone, Kind, NoPeer, Opened, Peer, PeerError, State, exactly};

use ringway_frame::{RxQueue, TxQueue};

/// Both directions of one queue pair of a port.
pub struct Queue {
    /// Where the peer's frames enter.
    pub tx: Box<dyn TxQueue>,
    /// Where frames leave to the peer.
    pub rx: Box<dyn RxQueue>,
}
