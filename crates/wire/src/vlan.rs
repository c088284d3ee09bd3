//! VLAN tags (IEEE 802.1Q-2022, 9.6).

use crate::WireError;
use crate::bytes::u16_at;
use crate::ethernet::EtherType;

const NAME: &str = "VLAN tag";
/// Bytes of a tag behind the EtherType that announces it.
pub const TAG_LEN: usize = 4;
/// Tags that are looked through. Attack: a frame of nothing but tags has its readers walk all of it.
pub const TAGS: usize = 2;

/// A view of a tag and what follows it, from behind the EtherType that announces it.
#[derive(Clone, Copy, Debug)]
pub struct Tag<'a> {
    header: &'a [u8; TAG_LEN],
    payload: &'a [u8],
}

impl<'a> Tag<'a> {
    /// Checks that there is a whole tag.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Tag<'a>, WireError> {
        let (header, payload) = bytes.split_first_chunk().ok_or(WireError::Truncated { header: NAME })?;
        Ok(Tag { header, payload })
    }

    /// Priority code point, 0 to 7.
    #[inline]
    pub fn priority(&self) -> u8 {
        self.header[0] >> 5
    }

    /// Drop eligible indicator.
    #[inline]
    pub fn drop_eligible(&self) -> bool {
        self.header[0] & 0x10 != 0
    }

    /// VLAN identifier, 0 to 4095.
    #[inline]
    pub fn vid(&self) -> u16 {
        u16_at(self.header, 0) & 0xfff
    }

    /// What the tag is put before.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16_at(self.header, 2))
    }

    /// What follows.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// A tag's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Priority code point, 0 to 7.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
    /// VLAN identifier; 0 is a tag that carries a priority only, 4095 is reserved.
    pub vid: u16,
    /// What the tag is put before.
    pub ethertype: EtherType,
}

impl Repr {
    /// Reads a view; the reserved identifier is illegal.
    pub fn parse(tag: &Tag<'_>) -> Result<Repr, WireError> {
        if tag.vid() == 0xfff {
            return Err(WireError::Illegal { header: NAME, field: "VID" });
        }
        Ok(Repr {
            priority: tag.priority(),
            drop_eligible: tag.drop_eligible(),
            vid: tag.vid(),
            ethertype: tag.ethertype(),
        })
    }

    /// Bytes that `emit` writes.
    pub const fn header_len(&self) -> usize {
        TAG_LEN
    }

    /// Writes the tag to the start of `out`; values too large for their field are an error.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), WireError> {
        if self.priority > 7 {
            return Err(WireError::Illegal { header: NAME, field: "PCP" });
        }
        if self.vid >= 0xfff {
            return Err(WireError::Illegal { header: NAME, field: "VID" });
        }
        let header = out.first_chunk_mut::<TAG_LEN>().ok_or(WireError::NoRoom { header: NAME })?;
        let control = u16::from(self.priority) << 13 | u16::from(self.drop_eligible) << 12 | self.vid;
        header[..2].copy_from_slice(&control.to_be_bytes());
        header[2..].copy_from_slice(&self.ethertype.0.to_be_bytes());
        Ok(())
    }
}

/// What lies behind the tags of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Untagged<'a> {
    /// The first EtherType that announces no tag, or, past [`TAGS`] of them, still announces one.
    pub ethertype: EtherType,
    /// What follows it.
    pub payload: &'a [u8],
    /// How many tags were passed over.
    pub tags: usize,
}

/// Looks through at most [`TAGS`] tags in `payload`, which `ethertype` announced.
#[inline]
pub fn untag(mut ethertype: EtherType, mut payload: &[u8]) -> Result<Untagged<'_>, WireError> {
    let mut tags = 0;
    while ethertype.is_tag() && tags < TAGS {
        let tag = Tag::new_checked(payload)?;
        (ethertype, payload) = (tag.ethertype(), tag.payload);
        tags += 1;
    }
    Ok(Untagged { ethertype, payload, tags })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden() {
        let bytes = [0xb0, 0x64, 0x86, 0xdd, 0x60];
        let tag = Tag::new_checked(&bytes).unwrap();
        let repr = Repr::parse(&tag).unwrap();
        assert_eq!(repr, Repr { priority: 5, drop_eligible: true, vid: 100, ethertype: EtherType::IPV6 });
        assert_eq!(tag.payload(), [0x60]);
    }

    #[test]
    fn two_tags_are_looked_through_and_no_more() {
        let bytes = [0, 1, 0x81, 0x00, 0, 2, 0x81, 0x00, 0, 3, 0x08, 0x00, 0x45];
        let inner = untag(EtherType::SERVICE_VLAN, &bytes).unwrap();
        assert_eq!((inner.ethertype, inner.tags, inner.payload.len()), (EtherType::VLAN, 2, 5));
        let inner = untag(EtherType::VLAN, &bytes[4..]).unwrap();
        assert_eq!((inner.ethertype, inner.tags, inner.payload), (EtherType::IPV4, 2, &[0x45][..]));
        assert!(untag(EtherType::VLAN, &bytes[..3]).is_err());
    }

    #[test]
    fn values_too_large_for_their_field_are_refused() {
        let good = Repr { priority: 7, drop_eligible: false, vid: 4094, ethertype: EtherType::IPV4 };
        assert_eq!(good.emit(&mut [0; 4]), Ok(()));
        assert!(Repr { priority: 8, ..good }.emit(&mut [0; 4]).is_err());
        assert!(Repr { vid: 4095, ..good }.emit(&mut [0; 4]).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(bytes: [u8; 4]) {
            if let Ok(repr) = Repr::parse(&Tag::new_checked(&bytes).unwrap()) {
                let mut out = [0; 4];
                repr.emit(&mut out).unwrap();
                prop_assert_eq!(out, bytes);
            }
        }
    }
}
