//! Realtek RTL8139C+: Fast Ethernet with descriptor rings (C+ mode), as Linux's 8139cp drives it. Read `nic.rs` first,
//! then `tx.rs` and `rx.rs`, which describe its descriptors to the engines.
//!
//! Absent: the older mode with four transmit registers and a receive buffer, whose drivers refuse this revision; the
//! high-priority transmit ring, the timer, loopback, wakeup, and writes to the EEPROM. Missed frames are counted by the
//! worker instead of MPC.

mod filter;
mod interrupts;
mod nic;
mod offload;
pub mod registers;
mod rx;
mod shared;
mod stats;
mod tx;

use crate::chip::Model;
use crate::engine::{RxEngine as RxOf, TxEngine as TxOf};
use crate::pci::{Bar, Capability, ETHERNET, Identity, Space};
pub use nic::Nic;
pub use shared::Shared;

/// The engine of a receive ring.
pub type RxEngine = RxOf<rx::Descriptors>;
/// The engine of a transmit ring.
pub type TxEngine = TxOf<tx::Descriptors>;

/// The model.
pub static MODEL: Model = Model {
    name: "rtl8139",
    driver: "8139cp",
    identity: Identity {
        vendor: 0x10ec,
        device: 0x8139,
        subsystem: 0x8139,
        // Revision 0x20 and later ones are an RTL8139C+.
        revision: 0x20,
        class: ETHERNET,
        pin: true,
        bars: [
            Some(Bar { space: Space::Io, size: registers::SIZE }),
            Some(Bar { space: Space::Memory, size: registers::SIZE }),
            None,
            None,
            None,
            None,
        ],
        capabilities: &[(0x50, Capability::Power)],
    },
};

/// Descriptors of a ring, at most.
pub(crate) const RING: u32 = 64;

/// Bits of a descriptor's first word: the device owns it, the ring ends here, first and last part of a frame.
pub(crate) const OWN: u64 = 1 << 31;
pub(crate) const EOR: u64 = 1 << 30;
pub(crate) const FIRST: u64 = 1 << 29;
pub(crate) const LAST: u64 = 1 << 28;

/// The index after a descriptor with this first word.
pub(crate) fn after(index: u32, word: u64) -> u32 {
    if word & EOR != 0 || index + 1 >= RING { 0 } else { index + 1 }
}
