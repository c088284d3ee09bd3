//! Intel 82540EM: the desktop adapter that Linux's e1000 and FreeBSD's em drive.

use crate::e1000::registers::COMMON;
use crate::e1000::{Model, Pins};
use crate::pci::{Bar, Capability, ETHERNET, Identity, Space};

/// The model.
pub static MODEL: Model = Model {
    name: "82540em",
    driver: "e1000",
    identity: Identity {
        vendor: 0x8086,
        device: 0x100e,
        subsystem: 0x001e,
        revision: 2,
        class: ETHERNET,
        pin: true,
        bars: [
            Some(Bar { space: Space::Memory, size: 128 << 10 }),
            Some(Bar { space: Space::Io, size: 64 }),
            None,
            None,
            None,
            None,
        ],
        capabilities: &[(0xdc, Capability::Power), (0xf0, Capability::Msi)],
    },
    tables: &[COMMON],
    // Marvell 88E1011.
    phy: 0x0141_0c20,
    // Both initialization words, PCI identity, and: PAUSE in both directions.
    eeprom: &[
        (3, 0x0000),
        (10, 0x4003),
        (11, 0x001e),
        (12, 0x8086),
        (13, 0x100e),
        (14, 0x8086),
        (15, 0x3040),
        (36, 0x0000),
    ],
    // An EEPROM of 64 words is present.
    pins: Pins { present: 1 << 8, done: 1 << 4, address: 8 },
    extended: false,
};
