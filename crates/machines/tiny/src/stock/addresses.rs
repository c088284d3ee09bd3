//! Addresses at which registers of devices may be.

use super::pci::Bar;

/// What devices must leave alone whatever the machine: the memory of old PCs, whose registers the image uses no more
/// than their firmware; the interrupt controllers, and the addresses of messages, which are interrupts.
const OTHERS: [[u64; 2]; 3] = [[0, 0x10_0000], [0xfec0_0000, 0xfec0_1000], [0xfee0_0000, 0xfef0_0000]];
/// Address bits of a processor that does not tell, and of any.
const BITS: u32 = 36;
const MOST: u32 = 52;

/// The addresses of a machine.
#[derive(Clone, Copy, Debug)]
pub struct Places<'a> {
    /// Memory: begin and end.
    ram: &'a [[u64; 2]],
    /// End of what the processor can address.
    end: u64,
}

impl<'a> Places<'a> {
    /// The places of a machine with this memory, and a processor with so many address bits; 0 if it does not tell.
    pub fn new(ram: &'a [[u64; 2]], bits: u32) -> Places<'a> {
        Places { ram, end: 1 << if bits == 0 { BITS } else { bits.clamp(32, MOST) } }
    }

    /// Whether registers may be there. Attack: a device whose registers are the image's memory or an interrupt
    /// controller, which the driver then writes to.
    pub fn permit(&self, Bar { address, len }: Bar) -> bool {
        let Some(end) = address.checked_add(len.into()) else { return false };
        let apart = |[from, to]: &[u64; 2]| end <= *from || address >= *to;
        len > 0 && end <= self.end && OTHERS.iter().chain(self.ram).all(apart)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_neither_in_memory_nor_in_interrupt_controllers_nor_beyond_all_addresses() {
        let ram = [[0, 0xa_0000], [0x10_0000, 0x800_0000], [1 << 32, 5 << 30]];
        let places = Places::new(&ram, 39);
        let permit = |address, len| places.permit(Bar { address, len });
        for (address, len) in [
            (0xfebc_0000, 0x4000),
            (0x800_0000, 0x1000),
            (0xfec0_1000, 0x200),
            (0xfeb0_0e00, 0x200),
            (5 << 30, 0x1000),
            ((1 << 39) - 0x1000, 0x1000),
        ] {
            assert!(permit(address, len), "{address:#x}");
        }
        for (address, len) in [
            (0, 0x200),
            (0xc_0000, 0x200),
            (0x20_0000, 0x1000),
            (0x7ff_f000, 0x1001),
            ((1 << 32) - 0x1000, 0x1001),
            (0xfec0_0000, 0x1000),
            (0xfebf_ffff, 2),
            (0xfee0_0000, 0x1000),
            (0xfee0_00b0, 4),
            ((1 << 39) - 0x1000, 0x1001),
            (1 << 40, 0x1000),
            (u64::MAX - 8, 0x1000),
            (0xfebc_0000, 0),
        ] {
            assert!(!permit(address, len), "{address:#x}");
        }
        assert!(Places::new(&[], 0).permit(Bar { address: 0xf_0000_0000, len: 16 }));
        assert!(!Places::new(&[], 0).permit(Bar { address: 0x10_0000_0000, len: 16 }));
        assert!(!Places::new(&[], 255).permit(Bar { address: 1 << 52, len: 16 }));
    }
}
