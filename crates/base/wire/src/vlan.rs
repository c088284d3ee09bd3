//! VLAN tags (IEEE 802.1Q-2022, 9.6).

use crate::{EtherType, Ethernet, Header, U16};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a tag, without the EtherType before it.
pub const TAG_LEN: usize = Vlan::LEN;
/// Maximum number of tags that are skipped. Attack: a frame of tags only, all of which its readers would
/// parse.
pub const TAGS: usize = 2;

/// A tag, without the EtherType before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Vlan {
    /// Tag control information: priority, drop eligible indicator, VLAN identifier.
    pub tci: U16,
    /// EtherType of the tagged content.
    pub ethertype: EtherType,
}

/// The headers of a frame with one tag.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Tagged {
    /// The Ethernet header, whose EtherType is a tag's.
    pub ethernet: Ethernet,
    /// The tag.
    pub tag: Vlan,
}

/// The content of a frame after its tags.
#[derive(Clone, Copy, Debug)]
pub struct Untagged<'a> {
    /// The EtherType after the last skipped tag; after [`TAGS`] tags, it may be another tag's.
    pub ethertype: EtherType,
    /// The bytes after the EtherType.
    pub payload: &'a [u8],
    /// Number of skipped tags.
    pub tags: usize,
}

/// Skips at most [`TAGS`] tags in `payload`, whose first EtherType is `ethertype`; `None` if one is
/// truncated.
#[inline]
pub fn untag(mut ethertype: EtherType, mut payload: &[u8]) -> Option<Untagged<'_>> {
    let mut tags = 0;
    while ethertype.is_tag() && tags < TAGS {
        let (tag, rest) = Vlan::split(payload)?;
        (ethertype, payload) = (tag.ethertype, rest);
        tags += 1;
    }
    Some(Untagged { ethertype, payload, tags })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_two_tags_are_skipped() {
        let bytes = [0, 1, 0x81, 0x00, 0, 2, 0x81, 0x00, 0, 3, 0x08, 0x00, 0x45];
        let inner = untag(EtherType::SERVICE_VLAN, &bytes).unwrap();
        assert_eq!((inner.ethertype, inner.tags, inner.payload.len()), (EtherType::VLAN, 2, 5));
        let inner = untag(EtherType::VLAN, &bytes[4..]).unwrap();
        assert_eq!((inner.ethertype, inner.tags, inner.payload), (EtherType::IPV4, 2, &[0x45][..]));
        assert!(untag(EtherType::VLAN, &bytes[..3]).is_none());
    }
}
