//! AMD PCnet-PCI II (Am79C970A), as Linux's pcnet32 and iPXE drive it. Read `nic.rs` first, then `tx.rs` and `rx.rs`,
//! which describe its descriptors to the engines.
//!
//! Absent: software styles other than 2, and so descriptors and initialization blocks of 16 bits; loopback, the media
//! other than twisted pair, the counters of collisions and of short frames, and writes to the address PROM. Missed
//! frames are counted by the worker instead of CSR112. A suspended chip finishes the burst that is under way.

mod filter;
mod interrupts;
mod nic;
pub mod registers;
mod rx;
mod shared;
mod tx;

use crate::chip::Model;
use crate::engine::{RxEngine as RxOf, TxEngine as TxOf};
use crate::pci::{Bar, ETHERNET, Identity, Space};
pub use nic::Nic;
pub use shared::Shared;

/// The engine of a receive ring.
pub type RxEngine = RxOf<rx::Descriptors>;
/// The engine of a transmit ring.
pub type TxEngine = TxOf<tx::Descriptors>;

/// The model.
pub static MODEL: Model = Model {
    name: "pcnet",
    driver: "pcnet32",
    identity: Identity {
        vendor: 0x1022,
        device: 0x2000,
        subsystem: 0x2000,
        // Revisions from 0x10 on are an Am79C970A.
        revision: 0x16,
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
        capabilities: &[],
    },
};

/// Largest ring in descriptors, as a power of two.
pub(crate) const LOG_RING: u64 = 9;

/// Bits of a descriptor's first word: the device owns it, an error, first and last part of a frame.
pub(crate) const OWN: u64 = 1 << 63;
pub(crate) const ERR: u64 = 1 << 62;
pub(crate) const STP: u64 = 1 << 57;
pub(crate) const ENP: u64 = 1 << 56;

/// The buffer of a descriptor: its address, and its size, which is stored negated in 12 bits.
pub(crate) fn buffer(word: u64) -> (u64, u32) {
    (word & 0xffff_ffff, 0x1000 - (word >> 32 & 0xfff) as u32)
}
