//! Which received frames the device accepts.

use super::registers as reg;
use super::shared::Shared;
use crate::pieces::CRC;
use ringway_frame::Reason;
use ringway_wire::ethernet::HEADER_LEN;

/// RCTL: accept all unicast frames, all multicast ones, long frames, broadcast; filter by VLAN; larger buffers;
/// strip the CRC.
const UPE: u32 = 1 << 3;
const MPE: u32 = 1 << 4;
const LPE: u32 = 1 << 5;
const BAM: u32 = 1 << 15;
const VFE: u32 = 1 << 18;
const BSEX: u32 = 1 << 25;
const SECRC: u32 = 1 << 26;
/// RCTL: descriptors for split packets, with several buffers.
const DTYP: u32 = 3 << 10;
const SPLIT: u32 = 1 << 10;
/// RAH: the address is valid.
pub(crate) const VALID: u32 = 1 << 31;
/// CTRL: tags are removed.
pub(crate) const VME: u32 = 1 << 30;
/// RXCSUM: checksums of TCP and UDP are reported.
const TUOFL: u32 = 1 << 9;
/// RFCTL: extended descriptors.
const EXTEN: u32 = 1 << 15;

/// Longest frame without its CRC: with a tag, and with LPE.
const STANDARD: u32 = 1518;
const LONG: u32 = 16_380;

/// What the device does with received frames, read once a burst.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    rctl: u32,
    /// The first receive address, if valid, as the six low bytes.
    own: Option<u64>,
    /// EtherType of tags.
    vet: u16,
    /// Tags are removed.
    strips: bool,
    /// Whether checksums are reported.
    pub reports_checksum: bool,
    /// Whether descriptors are extended.
    pub extended: bool,
    /// Whether they have several buffers.
    pub split: bool,
    psrctl: u32,
}

impl Mode {
    pub fn load(shared: &Shared) -> Mode {
        let (rctl, rfctl) = (shared.load(reg::RCTL), shared.load(reg::RFCTL));
        let extended = shared.extended && rfctl & EXTEN != 0;
        Mode {
            rctl,
            own: station(shared, 0),
            vet: shared.load(reg::VET) as u16,
            strips: shared.load(reg::CTRL) & VME != 0,
            reports_checksum: shared.load(reg::RXCSUM) & TUOFL != 0,
            extended,
            split: extended && rctl & DTYP == SPLIT,
            psrctl: shared.load(reg::PSRCTL),
        }
    }

    /// Sizes of a descriptor's buffers in bytes.
    pub fn buffers(&self) -> [u32; 4] {
        if self.split {
            // PSRCTL has the first size in units of 128 bytes, the others in units of 1 KB.
            let size = |shift: u32| (self.psrctl >> shift & 0x3f) << 10;
            return [(self.psrctl & 0x7f) << 7, size(8), size(16), size(24)];
        }
        let size = 2048 >> (self.rctl >> 16 & 3);
        // The smallest size is not larger with BSEX: that combination is reserved.
        [if self.rctl & BSEX != 0 && size < 2048 { 16 * size } else { size }, 0, 0, 0]
    }

    /// Bytes of the CRC that are counted as received.
    pub fn crc(&self) -> u32 {
        if self.rctl & SECRC != 0 { 0 } else { CRC }
    }

    /// The VLAN tag of a frame's head, if it has one.
    fn tag(&self, head: &[u8; 64]) -> Option<u16> {
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        (word(12) == self.vet).then(|| word(14))
    }

    /// Whether the device receives the frame; if so, the tag that is removed from it.
    #[inline]
    pub fn accept(&self, shared: &Shared, head: &[u8; 64], len: u32) -> Result<Option<u16>, Reason> {
        // Attack: formats that the device doesn't have, and buffers without bytes.
        if self.rctl & DTYP != 0 && (!self.split || self.buffers() == [0; 4]) {
            return Err(Reason::BadDescriptor);
        }
        if len < HEADER_LEN as u32 {
            return Err(Reason::Short);
        }
        if len > largest(self.rctl) {
            return Err(Reason::Long);
        }
        if !self.is_for_us(shared, head) {
            return Err(Reason::Filtered);
        }
        let tag = self.tag(head).filter(|_| len >= 18);
        if self.rctl & VFE != 0
            && let Some(tag) = tag
            && shared.load(reg::VFTA + 4 * u32::from(tag >> 5 & 0x7f)) >> (tag & 31) & 1 == 0
        {
            return Err(Reason::Filtered);
        }
        Ok(tag.filter(|_| self.strips))
    }

    #[inline]
    fn is_for_us(&self, shared: &Shared, head: &[u8; 64]) -> bool {
        let [a0, a1, a2, a3, a4, a5, ..] = *head;
        let address = u64::from_le_bytes([a0, a1, a2, a3, a4, a5, 0, 0]);
        if self.own == Some(address) {
            return true;
        }
        if address == 0xffff_ffff_ffff {
            return self.rctl & (BAM | MPE) != 0;
        }
        let multicast = a0 & 1 != 0;
        if self.rctl & if multicast { MPE } else { UPE } != 0 {
            return true;
        }
        if (1..16).any(|number| station(shared, number) == Some(address)) {
            return true;
        }
        // The table is indexed by twelve bits of the address; RCTL says which.
        let hash =
            (u32::from(a5) << 8 | u32::from(a4)) >> [4, 3, 2, 0][(self.rctl >> 12 & 3) as usize] & 0xfff;
        multicast && shared.load(reg::MTA + 4 * (hash >> 5)) >> (hash & 31) & 1 != 0
    }
}

/// The longest frame.
pub(crate) fn largest(rctl: u32) -> u32 {
    if rctl & LPE != 0 { LONG } else { STANDARD }
}

/// Free descriptors below which the driver is interrupted, in a ring of `count`.
pub(crate) fn threshold(shared: &Shared, count: u32) -> u32 {
    count >> ((shared.load(reg::RCTL) >> 8 & 3) + 1)
}

/// Receive address `number`, if valid.
fn station(shared: &Shared, number: u32) -> Option<u64> {
    let high = shared.load(reg::RA + 8 * number + 4);
    (high & VALID != 0).then(|| u64::from(high & 0xffff) << 32 | u64::from(shared.load(reg::RA + 8 * number)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(address: [u8; 6], tag: Option<u16>) -> [u8; 64] {
        let mut head = [0; 64];
        head[..6].copy_from_slice(&address);
        if let Some(tag) = tag {
            head[12..14].copy_from_slice(&[0x81, 0]);
            head[14..16].copy_from_slice(&tag.to_be_bytes());
        }
        head
    }

    const MULTICAST: [u8; 6] = [1, 0, 0x5e, 0, 0, 0xfb];

    fn accepts(shared: &Shared, address: [u8; 6], tag: Option<u16>, len: u32) -> Result<Option<u16>, Reason> {
        Mode::load(shared).accept(shared, &head(address, tag), len)
    }

    #[test]
    fn frames_are_accepted_by_address() {
        let shared = Shared::new(None, false).unwrap();
        let (own, other) = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
        shared.store(reg::RA, 2);
        shared.store(reg::RA + 4, VALID | 0x0100);
        let all = [own, other, MULTICAST, [0xff; 6]];
        let accepted = |rctl: u32| {
            shared.store(reg::RCTL, rctl);
            all.map(|address| accepts(&shared, address, None, 60).is_ok())
        };
        assert_eq!(accepted(0), [true, false, false, false]);
        assert_eq!(accepted(BAM), [true, false, false, true]);
        assert_eq!(accepted(UPE), [true, true, false, false]);
        assert_eq!(accepted(MPE), [true, false, true, true]);
        shared.store(reg::RA + 8 * 15, 2);
        shared.store(reg::RA + 8 * 15 + 4, VALID | 0x0200);
        assert_eq!(accepted(0), [true, true, false, false]);
        // Bits 47 to 36 of the address: 0xfb0.
        shared.store(reg::MTA + 4 * (0xfb0 >> 5), 1 << (0xfb0 & 31));
        assert_eq!(accepted(0), [true, true, true, false]);
        assert_eq!(accepted(3 << 12), [true, true, false, false], "bits 43 to 32");
    }

    #[test]
    fn vlans_are_filtered_and_lengths_limited() {
        let shared = Shared::new(None, false).unwrap();
        shared.store(reg::VET, 0x8100);
        shared.store(reg::RCTL, MPE | VFE);
        let tagged = |tag: u16, len: u32| accepts(&shared, MULTICAST, Some(tag), len);
        assert_eq!(tagged(0x2123, 64), Err(Reason::Filtered));
        shared.store(reg::VFTA + 4 * (0x123 >> 5), 1 << (0x123 & 31));
        assert_eq!((tagged(0x2123, 64), tagged(0x2124, 64)), (Ok(None), Err(Reason::Filtered)));
        shared.store(reg::CTRL, VME);
        assert_eq!(tagged(0x2123, 64), Ok(Some(0x2123)));
        assert_eq!(tagged(0x2123, 1519), Err(Reason::Long));
        shared.store(reg::RCTL, MPE | LPE);
        assert_eq!((tagged(1, 16_380).is_ok(), tagged(1, 16_381)), (true, Err(Reason::Long)));
        assert_eq!(tagged(1, 13), Err(Reason::Short));
    }

    #[test]
    fn buffers_have_the_chips_sizes() {
        let shared = Shared::new(None, false).unwrap();
        let sizes = [0, 1, 2, 3].map(|size: u32| {
            [0, BSEX].map(|large| {
                shared.store(reg::RCTL, size << 16 | large);
                Mode::load(&shared).buffers()[0]
            })
        });
        assert_eq!(sizes, [[2048, 2048], [1024, 16384], [512, 8192], [256, 4096]]);
    }
}
