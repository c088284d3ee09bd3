//! What the models of the e1000 family share. Read `nic.rs` first, then `tx.rs` and `rx.rs`, which describe its
//! descriptors to the engines.

mod eeprom;
mod filter;
mod interrupts;
mod loopback;
mod nic;
mod offload;
mod phy;
pub mod registers;
mod rx;
mod shared;
mod stats;
mod tail;
mod tx;

pub use crate::csb;
pub use crate::device::{Accesses, Area, Effects, Host, Raise};
use crate::engine::{RxEngine as RxOf, TxEngine as TxOf};
pub(crate) use eeprom::Pins;
pub use interrupts::Interrupts;
pub use nic::{Model, Nic, Settings};
pub use registers::{Access, Register};
pub use shared::{Bus, PAGES, Shared};

/// The engine of a receive ring.
pub type RxEngine = RxOf<rx::Descriptors>;
/// The engine of a transmit ring.
pub type TxEngine = TxOf<tx::Descriptors>;
