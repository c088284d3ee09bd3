//! PCI configuration space of type 0.

use alloc::vec;
use alloc::vec::Vec;

/// Command: memory and I/O accesses, bus mastering, INTx disabled.
const COMMAND: usize = 0x04;
const COMMAND_BITS: u16 = 0x0547;
const BUS_MASTER: u16 = 1 << 2;
const INTX_DISABLE: u16 = 1 << 10;
/// Status: the INTx line's state, and whether there are capabilities.
const STATUS: usize = 0x06;
const INTX_STATUS: u8 = 1 << 3;
const HAS_CAPABILITIES: u8 = 1 << 4;

/// What kind of address space a base address register asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Memory below 4 GB.
    Memory,
    /// Memory anywhere, without side effects of reads; it takes the next register too.
    Memory64,
    /// I/O ports.
    Io,
}

/// One base address register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// Its kind.
    pub space: Space,
    /// Its size in bytes, a power of two.
    pub size: u32,
}

/// A capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// Power management.
    Power,
    /// One message-signalled interrupt.
    Msi,
    /// So many message-signalled interrupts; their table is at the start of this BAR, the pending bits at 0x2000.
    MsiX(u16, u8),
    /// A PCI Express endpoint.
    Express,
}

/// The class of an Ethernet controller.
pub const ETHERNET: [u8; 2] = [2, 0];
/// The class of memory.
pub const MEMORY: [u8; 2] = [5, 0];

/// What identifies a device and its resources.
#[derive(Clone, Copy, Debug)]
pub struct Identity {
    /// Vendor.
    pub vendor: u16,
    /// Device.
    pub device: u16,
    /// Subsystem; its vendor is the device's.
    pub subsystem: u16,
    /// Revision.
    pub revision: u8,
    /// Base class and subclass.
    pub class: [u8; 2],
    /// Whether it has an interrupt pin.
    pub pin: bool,
    /// Base address registers by number.
    pub bars: [Option<Bar>; 6],
    /// Capabilities and their offsets, in the order of the list.
    pub capabilities: &'static [(u8, Capability)],
}

/// The configuration space of a device.
#[derive(Debug)]
pub struct ConfigSpace {
    bytes: Vec<u8>,
    /// Which bits the guest may write.
    writable: Vec<u8>,
    msi: Option<usize>,
    msix: Option<usize>,
}

impl ConfigSpace {
    /// The space after power-on.
    pub fn new(identity: &Identity) -> ConfigSpace {
        let express = identity.capabilities.iter().any(|(_, kind)| *kind == Capability::Express);
        let len = if express { 4096 } else { 256 };
        let mut config = ConfigSpace { bytes: vec![0; len], writable: vec![0; len], msi: None, msix: None };
        config.set(0x00, &identity.vendor.to_le_bytes());
        config.set(0x02, &identity.device.to_le_bytes());
        let [class, subclass] = identity.class;
        config.set(0x08, &[identity.revision, 0, subclass, class]);
        config.set(0x2c, &identity.vendor.to_le_bytes());
        config.set(0x2e, &identity.subsystem.to_le_bytes());
        // Interrupt pin A, or none.
        config.set(0x3d, &[u8::from(identity.pin)]);
        config.allow(COMMAND, &COMMAND_BITS.to_le_bytes());
        config.allow(0x0c, &[0xff, 0xff]);
        config.allow(0x3c, &[0xff]);
        for (number, bar) in identity.bars.iter().enumerate() {
            let Some(bar) = bar else { continue };
            let kind = match bar.space {
                Space::Memory => 0,
                Space::Io => 1,
                // 64 bits, prefetchable.
                Space::Memory64 => 0xc,
            };
            config.set(0x10 + 4 * number, &[kind]);
            if bar.space == Space::Memory64 && number < 5 {
                config.allow(0x14 + 4 * number, &[0xff; 4]);
            }
            // The bits below the size read as zero, so the guest finds the size.
            config.allow(0x10 + 4 * number, &(!(bar.size.max(16) - 1)).to_le_bytes());
        }
        config.add_capabilities(identity.capabilities);
        config
    }

    fn add_capabilities(&mut self, capabilities: &[(u8, Capability)]) {
        let mut link = 0x34;
        for &(offset, kind) in capabilities {
            self.set(link, &[offset]);
            self.bytes[STATUS] |= HAS_CAPABILITIES;
            let at = usize::from(offset);
            link = at + 1;
            match kind {
                Capability::Power => {
                    // Version 2, without wake events.
                    self.set(at, &[0x01, 0, 0x02, 0]);
                    self.allow(at + 4, &[0x03, 0]);
                }
                Capability::Msi => {
                    // Addresses of 64 bits.
                    self.set(at, &[0x05, 0, 0x80, 0]);
                    self.allow(at + 2, &[1, 0, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
                    self.msi = Some(at + 2);
                }
                Capability::MsiX(vectors, bar) => {
                    self.set(at, &[0x11, 0]);
                    self.set(at + 2, &vectors.saturating_sub(1).to_le_bytes());
                    self.set(at + 4, &[bar]);
                    self.set(at + 8, &(0x2000 | u32::from(bar)).to_le_bytes());
                    self.allow(at + 3, &[0xc0]);
                    self.msix = Some(at + 3);
                }
                Capability::Express => {
                    // Version 1, endpoint; 2.5 GT/s, one lane.
                    self.set(at, &[0x10, 0, 0x01, 0]);
                    self.set(at + 12, &[0x11]);
                    self.set(at + 18, &[0x11]);
                    self.allow(at + 8, &[0xff, 0x7f]);
                    self.allow(at + 16, &[0xc3, 0]);
                }
            }
        }
    }

    fn set(&mut self, at: usize, value: &[u8]) {
        self.bytes[at..at + value.len()].copy_from_slice(value);
    }

    fn allow(&mut self, at: usize, bits: &[u8]) {
        self.writable[at..at + bits.len()].copy_from_slice(bits);
    }

    /// Size in bytes.
    #[expect(clippy::len_without_is_empty, reason = "it always has some")]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Reads bytes; past the end they are zero. `intx`: the interrupt line is asserted.
    pub fn read(&self, offset: u64, out: &mut [u8], intx: bool) {
        out.fill(0);
        let Some(from) = usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..)) else { return };
        let count = out.len().min(from.len());
        out[..count].copy_from_slice(&from[..count]);
        if let Some(status) = STATUS.checked_sub(offset as usize).and_then(|at| out.get_mut(at))
            && intx
        {
            *status |= INTX_STATUS;
        }
    }

    /// Writes the bits that may be written.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        // Attack: an offset near the end of its type.
        let Ok(offset) = usize::try_from(offset) else { return };
        let places = self.bytes.iter_mut().zip(&self.writable).skip(offset);
        for ((byte, mask), value) in places.zip(data) {
            *byte = *byte & !mask | value & mask;
        }
    }

    fn command(&self) -> u16 {
        u16::from_le_bytes([self.bytes[COMMAND], self.bytes[COMMAND + 1]])
    }

    /// Whether the device may access memory.
    pub fn is_master(&self) -> bool {
        self.command() & BUS_MASTER != 0
    }

    /// Whether the interrupt line may be asserted.
    pub fn intx_enabled(&self) -> bool {
        self.command() & INTX_DISABLE == 0 && !self.msi_enabled() && !self.msix_enabled()
    }

    /// Whether the driver enabled MSI.
    pub fn msi_enabled(&self) -> bool {
        self.msi.is_some_and(|at| self.bytes[at] & 1 != 0)
    }

    /// Whether the driver enabled MSI-X.
    pub fn msix_enabled(&self) -> bool {
        self.msix.is_some_and(|at| self.bytes[at] & 0x80 != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ConfigSpace {
        let mut bars = [None; 6];
        bars[0] = Some(Bar { space: Space::Memory, size: 1 << 17 });
        bars[1] = Some(Bar { space: Space::Io, size: 64 });
        let capabilities =
            &[(0xc8, Capability::Power), (0xd0, Capability::Msi), (0xa0, Capability::MsiX(5, 3))];
        bars[4] = Some(Bar { space: Space::Memory64, size: 1 << 22 });
        let (vendor, device, subsystem, revision) = (0x8086, 0x10d3, 0, 0);
        let (class, pin) = (ETHERNET, true);
        ConfigSpace::new(&Identity { vendor, device, subsystem, revision, class, pin, bars, capabilities })
    }

    fn word(config: &ConfigSpace, at: u64) -> u32 {
        let mut out = [0; 4];
        config.read(at, &mut out, false);
        u32::from_le_bytes(out)
    }

    #[test]
    fn bars_tell_their_size_and_ids_cannot_be_written() {
        let mut config = config();
        config.write(0, &[0xff; 0x40]);
        assert_eq!(word(&config, 0), 0x10d3_8086);
        assert_eq!(word(&config, 0x10), 0xfffe_0000);
        assert_eq!(word(&config, 0x14), 0xffff_ffc1);
        assert_eq!(word(&config, 0x18), 0);
        assert_eq!((word(&config, 0x20), word(&config, 0x24)), (0xffc0_000c, u32::MAX));
        assert_eq!((word(&config, 8), word(&config, 0x3c)), (0x0200_0000, 0x01ff), "Ethernet, pin A");
        config.write(u64::MAX, &[0xff; 4]);
        config.write(0xfe, &[0xff; 9]);
        assert_eq!(word(&config, u64::MAX), 0);
    }

    #[test]
    fn capabilities_are_linked_and_enabled() {
        let mut config = config();
        assert_eq!(word(&config, 0x34) & 0xff, 0xc8);
        assert_eq!([0xc8, 0xd0, 0xa0].map(|at| word(&config, at) & 0xffff), [0xd001, 0xa005, 0x0011]);
        assert_eq!((word(&config, 0xa0) >> 16, word(&config, 0xa4), word(&config, 0xa8)), (4, 3, 0x2003));
        assert!(!config.is_master() && config.intx_enabled());
        config.write(4, &[4, 0]);
        config.write(0xd2, &[1, 0]);
        assert!(config.is_master() && config.msi_enabled() && !config.intx_enabled());
        config.write(0xa2, &[4, 0x80]);
        assert!(config.msix_enabled());
        let mut status = [0; 3];
        config.read(5, &mut status, true);
        assert_eq!(status[1], INTX_STATUS | HAS_CAPABILITIES);
    }
}
