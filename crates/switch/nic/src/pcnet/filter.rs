//! Which received frames the device accepts.

use super::registers as reg;
use super::shared::Shared;
use ringway_frame::Reason;
use ringway_wire::ethernet::HEADER_LEN;

/// CSR15: promiscuous; neither broadcasts nor frames to the own address are received.
const PROM: u16 = 1 << 15;
const DRCVBC: u16 = 1 << 14;
const DRCVPA: u16 = 1 << 13;

/// Longest frame without its CRC: a descriptor's count of bytes has 12 bits.
pub(crate) const LONGEST: u32 = 4091;

/// What the device does with received frames, read once a burst.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    mode: u16,
    /// The MAC address as the six low bytes.
    own: u64,
    groups: u64,
}

impl Mode {
    pub fn load(shared: &Shared) -> Mode {
        let words = |first: u16, count: u16| {
            (0..count).fold(0, |all, word| all | u64::from(shared.csr(first + word)) << (16 * word))
        };
        Mode {
            mode: shared.csr(reg::CSR15_MODE),
            own: words(reg::CSR12_PADR, 3),
            groups: words(reg::CSR8_LADRF, 4),
        }
    }

    /// Whether the device receives the frame.
    #[inline]
    pub fn accept(&self, head: &[u8; 64], len: u32) -> Result<(), Reason> {
        if len < HEADER_LEN as u32 {
            return Err(Reason::Short);
        }
        if len > LONGEST {
            return Err(Reason::Long);
        }
        let [a0, a1, a2, a3, a4, a5, ..] = *head;
        let address = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, 0, 0]);
        let accepted = if self.mode & PROM != 0 {
            true
        } else if address == 0xffff_ffff_ffff {
            self.mode & DRCVBC == 0
        } else if a0 & 1 != 0 {
            self.groups >> hash([a0, a1, a2, a3, a4, a5]) & 1 != 0
        } else {
            self.mode & DRCVPA == 0 && address == self.own
        };
        if accepted { Ok(()) } else { Err(Reason::Filtered) }
    }
}

/// The bit of the multicast filter that an address has: the six highest bits of its CRC, whose lowest bit comes first.
fn hash(address: [u8; 6]) -> u32 {
    let mut crc = u32::MAX;
    for byte in address {
        for bit in 0..8 {
            let carry = crc & 1 ^ u32::from(byte >> bit & 1);
            crc = crc >> 1 ^ if carry != 0 { 0xedb8_8320 } else { 0 };
        }
    }
    crc >> 26
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];

    fn mode(mode: u16) -> Mode {
        Mode { mode, own: 0x0100_0000_0002, groups: 0 }
    }

    fn head(address: [u8; 6]) -> [u8; 64] {
        let mut head = [0; 64];
        head[..6].copy_from_slice(&address);
        head
    }

    #[test]
    fn frames_are_accepted_by_address() {
        let all = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], GROUP, [0xff; 6]];
        let accepted = |mode: Mode| all.map(|address| mode.accept(&head(address), 60).is_ok());
        assert_eq!(accepted(mode(0)), [true, false, false, true]);
        assert_eq!(accepted(mode(DRCVBC | DRCVPA)), [false; 4]);
        assert_eq!(accepted(mode(PROM | DRCVBC | DRCVPA)), [true; 4]);
        // The bits of an address in the two orders of a CRC are reversed: the other one is 0x7fa3_2d9b.
        let bit = (0x7fa3_2d9b_u32.reverse_bits() >> 26) as u64;
        assert_eq!(u64::from(hash(GROUP)), bit);
        assert_eq!(accepted(Mode { groups: 1 << bit, ..mode(0) }), [true, false, true, true]);
        assert_eq!(accepted(Mode { groups: !(1 << bit), ..mode(0) }), [true, false, false, true]);
    }

    #[test]
    fn lengths_are_limited() {
        assert_eq!(
            [13, 14, 4091, 4092].map(|len| mode(0).accept(&head([0xff; 6]), len).err()),
            [Some(Reason::Short), None, None, Some(Reason::Long)]
        );
    }
}
