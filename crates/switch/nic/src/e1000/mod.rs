//! What the models of the e1000 family share. Read `nic.rs` first, then `tx.rs` and `rx.rs`.

pub mod csb;
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
mod signal;
mod stats;
mod tail;
mod tx;

pub use crate::device::{Accesses, Area, Effects, Host, Raise};
pub(crate) use eeprom::Pins;
pub use interrupts::Interrupts;
pub use nic::{Model, Nic, Settings};
pub use registers::{Access, Register};
pub use rx::RxEngine;
pub use shared::{Bus, PAGES, Shared};
pub use tx::TxEngine;
