//! Which received frames the device accepts.

use super::registers as reg;
use super::shared::Shared;
use ringway_frame::Reason;
use ringway_wire::ethernet::HEADER_LEN;

/// RCR: accept all unicast frames, own ones, multicast ones by their hash, broadcast.
const AAP: u64 = 1 << 0;
const APM: u64 = 1 << 1;
const AM: u64 = 1 << 2;
const AB: u64 = 1 << 3;
/// CPCR: checksums are reported, tags are removed.
const CHECKSUMS: u64 = 1 << 5;
const VLAN: u64 = 1 << 6;
/// EtherType of tags.
const TPID: [u8; 2] = [0x81, 0];

/// Longest frame without its CRC: a descriptor's length has 13 bits.
pub(crate) const LONGEST: u32 = 8187;

/// What the device does with received frames, read once a burst.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    rcr: u64,
    /// The MAC address as the six low bytes.
    own: u64,
    groups: u64,
    strips: bool,
    /// Whether checksums are reported.
    pub reports_checksum: bool,
}

impl Mode {
    pub fn load(shared: &Shared) -> Mode {
        let command = shared.load(reg::CPCR);
        Mode {
            rcr: shared.load(reg::RCR),
            own: shared.load(reg::IDR),
            groups: shared.load(reg::MAR),
            strips: command & VLAN != 0,
            reports_checksum: command & CHECKSUMS != 0,
        }
    }

    /// Whether the device receives the frame; if so, the tag that is removed from it.
    #[inline]
    pub fn accept(&self, head: &[u8; 64], len: u32) -> Result<Option<u16>, Reason> {
        if len < HEADER_LEN as u32 {
            return Err(Reason::Short);
        }
        if len > LONGEST {
            return Err(Reason::Long);
        }
        let [a0, a1, a2, a3, a4, a5, ..] = *head;
        let address = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, 0, 0]);
        let accepted = if address == 0xffff_ffff_ffff {
            self.rcr & AB != 0
        } else if a0 & 1 != 0 {
            self.rcr & AM != 0 && self.groups >> hash([a0, a1, a2, a3, a4, a5]) & 1 != 0
        } else {
            self.rcr & AAP != 0 || self.rcr & APM != 0 && address == self.own
        };
        if !accepted {
            return Err(Reason::Filtered);
        }
        let tagged = self.strips && len >= 18 && head[12..14] == TPID;
        Ok(tagged.then(|| u16::from_be_bytes([head[14], head[15]])))
    }
}

/// The bit of the multicast filter that an address has: the six highest bits of its CRC.
fn hash(address: [u8; 6]) -> u32 {
    let mut crc = u32::MAX;
    for byte in address {
        for bit in 0..8 {
            let carry = crc >> 31 ^ u32::from(byte >> bit & 1);
            crc = crc << 1 ^ if carry != 0 { 0x04c1_1db7 } else { 0 };
        }
    }
    crc >> 26
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: [u8; 6] = [1, 0, 0x5e, 0, 0, 1];

    fn mode(rcr: u64) -> Mode {
        Mode { rcr, own: 0x0100_0000_0002, groups: 0, strips: true, reports_checksum: false }
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
        assert_eq!(accepted(mode(0)), [false; 4]);
        assert_eq!(accepted(mode(APM | AB | AM)), [true, false, false, true]);
        assert_eq!(accepted(mode(AAP)), [true, true, false, false]);
        // Their CRCs are 0x7fa3_2d9b and 0xf99b_aaba.
        assert_eq!([GROUP, [0x33, 0x33, 0, 0, 0, 1]].map(hash), [31, 62]);
        let groups = 1 << 31;
        assert_eq!(accepted(Mode { groups, ..mode(AM) }), [false, false, true, false]);
        assert_eq!(accepted(Mode { groups: !groups, ..mode(AM) }), [false; 4]);
    }

    #[test]
    fn tags_are_removed_and_lengths_limited() {
        let mut tagged = head([0xff; 6]);
        tagged[12..16].copy_from_slice(&[0x81, 0, 0x21, 0x23]);
        assert_eq!(mode(AB).accept(&tagged, 64), Ok(Some(0x2123)));
        assert_eq!(Mode { strips: false, ..mode(AB) }.accept(&tagged, 64), Ok(None));
        assert_eq!(
            [13, 14, 8187, 8188].map(|len| mode(AB).accept(&head([0xff; 6]), len).err()),
            [Some(Reason::Short), None, None, Some(Reason::Long)]
        );
    }
}
