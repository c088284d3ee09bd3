//! What is known of a frame while it is in the tables: its headers' fields, its port, metadata and registers.

/// Words of a [`Key`].
pub const WORDS: usize = 18;

/// The bit of `vlan_tci` that says that a frame has a tag, in place of the tag's drop eligible indicator.
pub const TAGGED: u16 = 0x1000;
/// `dl_type` of a frame whose EtherType is a length (IEEE 802.3), as in Open vSwitch.
pub const LENGTH: u16 = 0x05ff;
/// Bit of `nw_frag`: the packet is a fragment.
pub const FRAGMENT: u8 = 1;
/// Bit of `nw_frag`: it is not the first one.
pub const LATER: u8 = 2;

/// Where a field is in a key: a word, the number of its lowest bit there, and its width. A field of 128 bits takes the
/// word and the next one, the upper half first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    word: u8,
    shift: u8,
    bits: u8,
}

impl Place {
    const fn new(word: u8, shift: u8, bits: u8) -> Place {
        Place { word, shift, bits }
    }

    /// Its width.
    pub const fn bits(self) -> u8 {
        self.bits
    }

    /// The greatest value, which is also the mask of an exact match.
    pub const fn all(self) -> u128 {
        ones(self.bits)
    }

    /// A part of it: `bits` bits from bit `first` on.
    pub const fn part(self, first: u8, bits: u8) -> Place {
        // The parts of a field of 128 bits: that of a half is in one word.
        match self.bits {
            128 if bits == 128 => self,
            128 if first >= 64 => Place { word: self.word, shift: first - 64, bits },
            128 => Place { word: self.word + 1, shift: first, bits },
            _ => Place { word: self.word, shift: self.shift + first, bits },
        }
    }

    /// Whether it is this field or a part of it.
    pub const fn is_in(self, field: Place) -> bool {
        if field.bits == 128 {
            return self.word == field.word || self.word == field.word + 1;
        }
        self.word == field.word
            && self.shift >= field.shift
            && self.shift + self.bits <= field.shift + field.bits
    }
}

/// A number with so many bits set, from the lowest.
pub const fn ones(bits: u8) -> u128 {
    if bits >= 128 { u128::MAX } else { (1 << bits) - 1 }
}

/// The places of fields.
pub mod place {
    use super::Place;

    /// Destination address.
    pub const ETH_DST: Place = Place::new(0, 16, 48);
    /// Number of the port that the frame came from.
    pub const IN_PORT: Place = Place::new(0, 0, 16);
    /// Source address.
    pub const ETH_SRC: Place = Place::new(1, 16, 48);
    /// EtherType behind the first tag.
    pub const ETH_TYPE: Place = Place::new(1, 0, 16);
    /// The first tag, with [`super::TAGGED`]; 0: none.
    pub const VLAN_TCI: Place = Place::new(2, 48, 16);
    /// The number of the first tag's VLAN, with [`super::TAGGED`].
    pub const VLAN_VID: Place = Place::new(2, 48, 13);
    /// As [`VLAN_VID`], without [`super::TAGGED`]: what actions write.
    pub const VLAN_NUMBER: Place = Place::new(2, 48, 12);
    /// The first tag's priority.
    pub const VLAN_PCP: Place = Place::new(2, 61, 3);
    /// IP's protocol, or ARP's operation.
    pub const NW_PROTO: Place = Place::new(2, 40, 8);
    /// Differentiated services code point.
    pub const DSCP: Place = Place::new(2, 34, 6);
    /// Explicit congestion notification.
    pub const ECN: Place = Place::new(2, 32, 2);
    /// Both of them: the type of service.
    pub const TOS: Place = Place::new(2, 32, 8);
    /// Time to live, or hop limit.
    pub const TTL: Place = Place::new(2, 24, 8);
    /// [`super::FRAGMENT`], [`super::LATER`].
    pub const FRAG: Place = Place::new(2, 16, 2);
    /// TCP's flags.
    pub const TCP_FLAGS: Place = Place::new(2, 0, 12);
    /// IPv4 source, or ARP's sender.
    pub const NW_SRC: Place = Place::new(3, 32, 32);
    /// IPv4 destination, or ARP's target.
    pub const NW_DST: Place = Place::new(3, 0, 32);
    /// Source port, or ICMP's type.
    pub const TP_SRC: Place = Place::new(4, 48, 16);
    /// Destination port, or ICMP's code.
    pub const TP_DST: Place = Place::new(4, 32, 16);
    /// IPv6 flow label.
    pub const IPV6_LABEL: Place = Place::new(4, 0, 20);
    /// IPv6 source.
    pub const IPV6_SRC: Place = Place::new(5, 0, 128);
    /// IPv6 destination.
    pub const IPV6_DST: Place = Place::new(7, 0, 128);
    /// ARP's sender, or the source link-layer address of neighbor discovery.
    pub const ARP_SHA: Place = Place::new(9, 0, 48);
    /// ARP's target, or the target link-layer address of neighbor discovery.
    pub const ARP_THA: Place = Place::new(10, 0, 48);
    /// Target of neighbor discovery.
    pub const ND_TARGET: Place = Place::new(11, 0, 128);
    /// Metadata, which tables pass to each other.
    pub const METADATA: Place = Place::new(13, 0, 64);
    /// Registers, which tables pass to each other.
    pub const REGS: [Place; super::REGISTERS] = [
        Place::new(14, 32, 32),
        Place::new(14, 0, 32),
        Place::new(15, 32, 32),
        Place::new(15, 0, 32),
        Place::new(16, 32, 32),
        Place::new(16, 0, 32),
        Place::new(17, 32, 32),
        Place::new(17, 0, 32),
    ];

    /// Whether a place is metadata's or a register's, which are not of the frame.
    pub const fn is_metadata(at: Place) -> bool {
        at.word >= METADATA.word
    }
}

/// Number of registers.
pub const REGISTERS: usize = 8;

/// The fields of a frame; or a mask of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub [u64; WORDS]);

impl Default for Key {
    fn default() -> Key {
        Key::EMPTY
    }
}

impl Key {
    /// All fields are 0; a mask that matches everything.
    pub const EMPTY: Key = Key([0; WORDS]);

    /// The value of a field.
    #[inline]
    pub fn get(&self, place: Place) -> u128 {
        let word = usize::from(place.word);
        if place.bits == 128 {
            return u128::from(self.0[word]) << 64 | u128::from(self.0[word + 1]);
        }
        u128::from(self.0[word] >> place.shift) & place.all()
    }

    /// A field of at most 16 bits.
    #[inline]
    pub fn get16(&self, place: Place) -> u16 {
        self.get(place) as u16
    }

    /// A field of at most 8 bits.
    #[inline]
    pub fn get8(&self, place: Place) -> u8 {
        self.get(place) as u8
    }

    /// Sets a field; bits of `value` beyond the field's width are ignored.
    #[inline]
    pub fn set(&mut self, place: Place, value: impl Into<u128>) {
        let (word, value) = (usize::from(place.word), value.into());
        if place.bits == 128 {
            (self.0[word], self.0[word + 1]) = ((value >> 64) as u64, value as u64);
            return;
        }
        let all = (place.all() as u64) << place.shift;
        self.0[word] = self.0[word] & !all | (value as u64) << place.shift & all;
    }

    /// This key where `mask` has bits.
    #[inline]
    pub fn masked(&self, mask: &Key) -> Key {
        Key(core::array::from_fn(|word| self.0[word] & mask.0[word]))
    }

    /// Whether every bit of `other` is in this mask.
    pub fn covers(&self, other: &Key) -> bool {
        self.0.iter().zip(other.0).all(|(own, other)| other & !own == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_do_not_touch_each_other() {
        use place::*;
        let mut all = vec![
            ETH_DST, IN_PORT, ETH_SRC, ETH_TYPE, VLAN_TCI, NW_PROTO, TOS, TTL, FRAG, TCP_FLAGS, NW_SRC,
            NW_DST, TP_SRC, TP_DST, IPV6_LABEL, IPV6_SRC, IPV6_DST, ARP_SHA, ARP_THA, ND_TARGET, METADATA,
        ];
        all.extend(REGS);
        let mut key = Key::EMPTY;
        for (at, place) in all.iter().enumerate() {
            let before: Vec<u128> = all.iter().map(|place| key.get(*place)).collect();
            key.set(*place, u128::MAX);
            assert_eq!(key.get(*place), place.all());
            for (other, before) in before.iter().enumerate().filter(|(other, _)| *other != at) {
                assert_eq!(key.get(all[other]), *before, "{at} changes {other}");
            }
        }
        key.set(VLAN_PCP, 0u8);
        assert_eq!(key.get(VLAN_TCI), 0x1fff);
        key.set(ECN, 0u8);
        assert_eq!((key.get(TOS), key.get(DSCP)), (0xfc, 0x3f));
    }

    #[test]
    fn a_part_of_a_field() {
        let mut key = Key::EMPTY;
        key.set(place::IPV6_SRC, 0x0123_4567_89ab_cdef_0011_2233_4455_6677u128);
        assert_eq!(key.get(place::IPV6_SRC.part(0, 16)), 0x6677);
        assert_eq!(key.get(place::IPV6_SRC.part(64, 8)), 0xef);
        key.set(place::REGS[3].part(4, 8), 0xabu8);
        assert_eq!((key.get(place::REGS[3]), key.get(place::REGS[2])), (0xab0, 0));
    }
}
