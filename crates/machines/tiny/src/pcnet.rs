//! PCnet cards (Am79C970A) in software style 2, with registers of 32 bits. CSR0 stays selected, so that its accesses
//! need none to the address register.

use crate::card_memory::{BUFFER, CardMemory, RX, TX};
use crate::e1000::Registers;
use crate::net_device::NetDeviceError;
use crate::owned_rings::Chip;
use crate::settings::Settings;

/// Data register, address register, reset by a read, data register of the BCRs.
const RDP: u32 = 0x10;
const RAP: u32 = 0x14;
const RESET: u32 = 0x18;
const BDP: u32 = 0x1c;
/// CSR0: initialize, start, stopped, look at the transmit ring; interrupts enabled; initialized; all causes.
const INIT: u32 = 1 << 0;
const STRT: u32 = 1 << 1;
const STOP: u32 = 1 << 2;
const TDMD: u32 = 1 << 3;
const IENA: u32 = 1 << 6;
const IDON: u32 = 1 << 8;
const CAUSES: u32 = 0x7f00;
/// CSR3: causes that don't interrupt: initialized, a bad address, no receive descriptor.
const MASKED: u32 = 1 << 8 | 1 << 11 | 1 << 12;
/// BCR20, and the software style with descriptors of 32 bits.
const STYLE: u32 = 20;
const STYLE_32: u32 = 2;
/// Most descriptors of a ring.
const SLOTS: u32 = 512;
/// First word of a descriptor: an error, first and last part of a frame; bits that are always set, and where the
/// negated size is.
const ERROR: u64 = 1 << 62;
const WHOLE: u64 = 1 << 57 | 1 << 56;
const ONES: u64 = 0xf << 44;
const SIZE_AT: u32 = 32;
/// Second word: length of what was received.
const LENGTH: u64 = 0xfff;

/// The chip; see [`OwnedRings`](crate::OwnedRings).
#[derive(Debug)]
pub struct Pcnet;

impl Pcnet {
    /// Vendor and device, as the configuration space has them.
    pub const ID: u32 = 0x2000_1022;
}

/// A descriptor's buffer of `len` bytes.
fn buffer(memory: &CardMemory, ring: usize, index: u32, len: usize) -> u64 {
    let address = memory.base + memory.buffer_at(ring, index) as u64;
    let size = (0x1000 - len as u64) & 0xfff;
    address & 0xffff_ffff | ONES | size << SIZE_AT
}

impl Chip for Pcnet {
    const OWN: u64 = 1 << 63;
    const HAS_CSB: bool = false;

    fn slots(wanted: u32) -> u32 {
        1 << wanted.clamp(8, SLOTS).ilog2()
    }

    fn start<R: Registers>(
        registers: &mut R,
        memory: &CardMemory,
        settings: &Settings,
    ) -> Result<(), NetDeviceError> {
        // The first write of 32 bits makes all registers wide.
        registers.write(RDP, 0);
        registers.read(RESET);
        if registers.read(RDP) & STOP == 0 {
            return Err(NetDeviceError::Reset);
        }
        registers.write(RAP, STYLE);
        registers.write(BDP, STYLE_32);
        let [a, b, c, d, e, f] = settings.mac;
        let log = memory.slots.ilog2();
        let ring = |ring: usize| memory.base as u32 + memory.ring_at(ring) as u32;
        // Mode and lengths, address, no groups, both rings.
        let words = [
            log << 28 | log << 20,
            u32::from_le_bytes([a, b, c, d]),
            u32::from_le_bytes([e, f, 0, 0]),
            0,
            0,
            ring(RX),
            ring(TX),
        ];
        words.iter().enumerate().for_each(|(at, word)| memory.store(at, *word));
        let block = memory.base as u32;
        for (number, value) in [(1, block & 0xffff), (2, block >> 16), (3, MASKED), (0, INIT)] {
            registers.write(RAP, number);
            registers.write(RDP, value);
        }
        if registers.read(RDP) & IDON == 0 {
            return Err(NetDeviceError::Reset);
        }
        registers.write(RDP, STRT | IENA | CAUSES);
        Ok(())
    }

    fn describe(memory: &CardMemory, ring: usize, index: u32) {
        memory.describe(ring, index, 0, buffer(memory, ring, index, BUFFER));
    }

    fn send(memory: &CardMemory, index: u32, len: usize) {
        memory.describe(TX, index, 0, Self::OWN | WHOLE | buffer(memory, TX, index, len));
    }

    fn give(memory: &CardMemory, index: u32) {
        memory.describe(RX, index, 1, 0);
        memory.describe(RX, index, 0, Self::OWN | buffer(memory, RX, index, BUFFER));
    }

    fn received(memory: &CardMemory, index: u32) -> Option<usize> {
        let is_whole = memory.word(RX, index, 0) & (WHOLE | ERROR) == WHOLE;
        is_whole.then_some((memory.word(RX, index, 1) & LENGTH) as usize)
    }

    fn ring<R: Registers>(registers: &mut R) {
        registers.write(RDP, TDMD | IENA);
    }

    fn clear<R: Registers>(registers: &mut R) {
        registers.write(RDP, IENA | CAUSES);
        registers.read(RDP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_negated_and_rings_powers_of_two() {
        assert_eq!([8, 9, 256, 1000, 4096].map(Pcnet::slots), [8, 8, 256, 512, 512]);
        let memory = CardMemory::new(8).unwrap();
        Pcnet::send(&memory, 3, 60);
        let word = memory.word(TX, 3, 0);
        assert_eq!(word >> 32, 0x8300_ffc4);
        assert_eq!(word as u32, (memory.base + memory.buffer_at(TX, 3) as u64) as u32);
        Pcnet::give(&memory, 0);
        assert_eq!(memory.word(RX, 0, 0) >> 32, 0x8000_f800);
    }
}
