//! The kinds of port, one folder each.

mod doorbell;
pub mod null;
pub mod offload;
pub mod pipe;
pub mod ring;
pub mod source;
pub mod tap;
pub mod vhost_user;

pub use doorbell::{Doorbell, Silent};

use ringway_frame::{RxQueue, TxQueue};

/// Both directions of one queue pair of a port.
pub struct Queue {
    /// Where the peer's frames enter.
    pub tx: Box<dyn TxQueue>,
    /// Where frames leave to the peer.
    pub rx: Box<dyn RxQueue>,
}
