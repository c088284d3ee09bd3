//! Intel 82574L: the PCI Express adapter that Linux's e1000e drives, with MSI-X and extended receive descriptors.

use crate::e1000::registers::{COMMON, EXPRESS};
use crate::e1000::{Model, Pins};
use crate::pci::{Bar, Capability, ETHERNET, Identity, Space};

/// The model.
pub static MODEL: Model = Model {
    name: "82574l",
    driver: "e1000e",
    identity: Identity {
        vendor: 0x8086,
        device: 0x10d3,
        subsystem: 0xa01f,
        revision: 0,
        class: ETHERNET,
        pin: true,
        bars: [
            Some(Bar { space: Space::Memory, size: 128 << 10 }),
            // Flash.
            Some(Bar { space: Space::Memory, size: 128 << 10 }),
            Some(Bar { space: Space::Io, size: 32 }),
            Some(Bar { space: Space::Memory, size: 16 << 10 }),
            None,
            None,
        ],
        capabilities: &[
            (0xc8, Capability::Power),
            (0xd0, Capability::Msi),
            (0xe0, Capability::Express),
            (0xa0, Capability::MsiX(5, 3)),
        ],
    },
    tables: &[COMMON, EXPRESS],
    // Marvell BME1000, revision 2.
    phy: 0x0141_0cb1,
    // Both initialization words and PCI identity; no management firmware.
    eeprom: &[
        (3, 0x0000),
        (10, 0x4003),
        (11, 0xa01f),
        (12, 0x8086),
        (13, 0x10d3),
        (14, 0x8086),
        (15, 0x0040),
        (36, 0x0000),
    ],
    // An EEPROM of 64 words is present, and was read.
    pins: Pins { present: 1 << 8 | 1 << 9, done: 1 << 1, address: 2 },
    extended: true,
};
