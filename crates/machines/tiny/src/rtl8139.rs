//! RTL8139C+ cards: rings of up to 64 descriptors, the last of which says that it is.

use crate::card_memory::{BUFFER, CardMemory, RX, TX};
use crate::e1000::Registers;
use crate::net_device::NetDeviceError;
use crate::owned_rings::Chip;
use crate::settings::Settings;
use ringway_nic::rtl8139::registers as register;

/// Most descriptors of a ring, and the number of which there must be a multiple: rings begin at multiples of 256 bytes.
const SLOTS: u32 = 64;
const STEP: u32 = 16;
/// CR: reset; receiver and transmitter enabled.
const RESET: u32 = 1 << 4;
const ENABLE: u32 = 1 << 3 | 1 << 2;
/// CPCR: both rings enabled.
const RINGS: u32 = 1 << 1 | 1 << 0;
/// RCR: own address and broadcast accepted.
const ACCEPT: u32 = 1 << 1 | 1 << 3;
/// TPPOLL: there are frames to send.
const POLL: u32 = 1 << 6;
/// Frames received, sent, each well or not.
const INTERRUPTS: u32 = 0xf;
/// All causes, in the half of the word with IMR that is ISR.
const CLEAR: u32 = 0xffff << 16;
/// First word of a descriptor: the ring ends here, first and last part of a frame, an error; length of what was
/// received.
const END: u64 = 1 << 30;
const WHOLE: u64 = 1 << 29 | 1 << 28;
const ERROR: u64 = 1 << 20;
const LENGTH: u64 = 0x1fff;

/// The chip; see [`OwnedRings`](crate::OwnedRings).
#[derive(Debug)]
pub struct Rtl8139;

impl Rtl8139 {
    /// Vendor and device, as the configuration space has them.
    pub const ID: u32 = 0x8139_10ec;
}

/// Writes a register of one byte; those beside it get zeros, which do nothing.
fn write_byte(registers: &mut impl Registers, register: u32, value: u32) {
    registers.write(register & !3, value << (8 * (register & 3)));
}

/// The bit of a ring's last descriptor.
fn end(memory: &CardMemory, index: u32) -> u64 {
    if index + 1 == memory.slots { END } else { 0 }
}

impl Chip for Rtl8139 {
    const OWN: u64 = 1 << 31;
    const HAS_CSB: bool = true;

    fn slots(wanted: u32) -> u32 {
        (wanted.min(SLOTS) / STEP * STEP).max(STEP)
    }

    fn start<R: Registers>(
        registers: &mut R,
        memory: &CardMemory,
        settings: &Settings,
    ) -> Result<(), NetDeviceError> {
        write_byte(registers, register::CR, RESET);
        if registers.read(register::CR & !3) >> (8 * (register::CR & 3)) & RESET != 0 {
            return Err(NetDeviceError::Reset);
        }
        let [a, b, c, d, e, f] = settings.mac;
        registers.write(register::IDR, u32::from_le_bytes([a, b, c, d]));
        registers.write(register::IDR + 4, u32::from_le_bytes([e, f, 0, 0]));
        registers.write(register::CPCR, RINGS);
        let ring = |ring: usize| memory.base + memory.ring_at(ring) as u64;
        let block = settings.csb.then_some((register::CSBA, memory.base));
        // The half with the lowest byte comes last.
        for (base, address) in
            [(register::TNPDS, ring(TX)), (register::RDSAR, ring(RX))].into_iter().chain(block)
        {
            registers.write(base + 4, (address >> 32) as u32);
            registers.write(base, address as u32);
        }
        write_byte(registers, register::CR, ENABLE);
        registers.write(register::RCR, ACCEPT);
        Rtl8139::clear(registers);
        Ok(())
    }

    fn describe(memory: &CardMemory, ring: usize, index: u32) {
        memory.describe(ring, index, 1, memory.base + memory.buffer_at(ring, index) as u64);
        memory.describe(ring, index, 0, end(memory, index));
    }

    fn send(memory: &CardMemory, index: u32, len: usize) {
        memory.describe(TX, index, 0, Self::OWN | end(memory, index) | WHOLE | len as u64);
    }

    fn give(memory: &CardMemory, index: u32) {
        memory.describe(RX, index, 0, Self::OWN | end(memory, index) | BUFFER as u64);
    }

    fn received(memory: &CardMemory, index: u32) -> Option<usize> {
        let word = memory.word(RX, index, 0);
        (word & (WHOLE | ERROR) == WHOLE).then_some((word & LENGTH) as usize)
    }

    fn ring<R: Registers>(registers: &mut R) {
        write_byte(registers, register::TPPOLL, POLL);
    }

    fn kick<R: Registers>(registers: &mut R) {
        registers.write(register::CSBTXKICK, 1);
    }

    fn clear<R: Registers>(registers: &mut R) {
        registers.write(register::IMR, INTERRUPTS | CLEAR);
        registers.read(register::IMR);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_end_at_their_last_descriptor_and_begin_where_the_card_finds_them() {
        for (wanted, slots) in [(256, 64), (64, 64), (40, 32), (8, 16)] {
            assert_eq!(Rtl8139::slots(wanted), slots);
            let memory = CardMemory::new(slots).unwrap();
            assert!(memory.ring_at(TX).is_multiple_of(256) && memory.ring_at(RX).is_multiple_of(256));
            assert!(memory.base.is_multiple_of(256));
            (0..slots).for_each(|index| Rtl8139::give(&memory, index));
            let ends = (0..slots).filter(|index| memory.word(RX, *index, 0) & END != 0);
            assert!(ends.eq([slots - 1]));
        }
    }
}
