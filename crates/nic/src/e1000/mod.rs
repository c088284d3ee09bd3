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
mod ring;
mod rx;
mod shared;
mod signal;
mod stats;
mod tx;

pub(crate) use eeprom::Pins;
pub use interrupts::{Interrupts, Raise};
pub use nic::{Accesses, Area, Effects, Host, Model, Nic, Settings};
pub use registers::{Access, Register};
pub use rx::RxEngine;
pub use shared::{Bus, PAGES, Shared};
pub use tx::TxEngine;
