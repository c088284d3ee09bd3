//! Discovery packets of PPPoE (RFC 2516, 5).
use super::packet::MRU;
use alloc::vec::Vec;
use ringway_wire::{EtherType, Ethernet, Header, MacAddress};

/// EtherType of discovery.
pub(super) const DISCOVERY: EtherType = EtherType::new(0x8863);

pub(super) const PADI: u8 = 0x09;
pub(super) const PADO: u8 = 0x07;
pub(super) const PADR: u8 = 0x19;
pub(super) const PADS: u8 = 0x65;
pub(super) const PADT: u8 = 0xa7;

/// Types of tags.
pub(super) mod tag {
    pub const END: u16 = 0x0000;
    pub const SERVICE_NAME: u16 = 0x0101;
    pub const AC_NAME: u16 = 0x0102;
    pub const HOST_UNIQ: u16 = 0x0103;
    pub const AC_COOKIE: u16 = 0x0104;
    pub const RELAY_SESSION: u16 = 0x0110;
    pub const SERVICE_NAME_ERROR: u16 = 0x0201;
    pub const AC_SYSTEM_ERROR: u16 = 0x0202;
}

/// Version, type, code, session and length, behind the Ethernet header.
const HEADER: usize = 6;
const VERSION_TYPE: u8 = 0x11;

/// A discovery packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Discovery<'a> {
    pub(super) destination: MacAddress,
    pub(super) source: MacAddress,
    pub(super) code: u8,
    pub(super) session: u16,
    tags: &'a [u8],
}

impl<'a> Discovery<'a> {
    /// Parses a frame whose EtherType is [`DISCOVERY`]. `None` if it is malformed.
    pub(super) fn of(frame: &'a [u8]) -> Option<Self> {
        let (ethernet, rest) = Ethernet::split(frame)?;
        let (header, rest) = rest.split_first_chunk::<HEADER>()?;
        let [version, code, a, b, c, d] = *header;
        let tags = rest.get(..u16::from_be_bytes([c, d]).into())?;
        let session = u16::from_be_bytes([a, b]);
        let (destination, source) = (ethernet.destination, ethernet.source);
        // Attack: an answer that is longer than a frame, or goes to a group.
        let fits = tags.len() <= usize::from(MRU) - HEADER && source.is_unicast();
        (version == VERSION_TYPE && fits).then_some(Self { destination, source, code, session, tags })
    }

    /// Its tags, as far as they are well-formed.
    fn tags(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        let mut rest = self.tags;
        core::iter::from_fn(move || {
            let ([a, b, c, d], more) = rest.split_first_chunk()?;
            let (value, more) = more.split_at_checked(u16::from_be_bytes([*c, *d]).into())?;
            rest = more;
            Some((u16::from_be_bytes([*a, *b]), value)).filter(|(kind, _)| *kind != tag::END)
        })
    }

    /// The value of its first tag of a type.
    pub(super) fn tag(&self, wanted: u16) -> Option<&'a [u8]> {
        self.tags().find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
    }

    /// The packet's tags that an answer has to repeat.
    pub(super) fn repeated(&self) -> impl Iterator<Item = (u16, &'a [u8])> + use<'a> {
        self.tags().filter(|(kind, _)| matches!(*kind, tag::HOST_UNIQ | tag::RELAY_SESSION))
    }
}

/// A discovery frame; `None` if the tags don't fit.
pub(super) fn frame<'a>(
    (to, from): (MacAddress, MacAddress),
    (code, session): (u8, u16),
    tags: impl IntoIterator<Item = (u16, &'a [u8])>,
) -> Option<Vec<u8>> {
    let ethernet = Ethernet { destination: to, source: from, ethertype: DISCOVERY };
    let mut frame = ethernet.bytes().to_vec();
    let [high, low] = session.to_be_bytes();
    frame.extend_from_slice(&[VERSION_TYPE, code, high, low, 0, 0]);
    let begin = frame.len();
    for (kind, value) in tags {
        frame.extend_from_slice(&kind.to_be_bytes());
        frame.extend_from_slice(&(value.len() as u16).to_be_bytes());
        frame.extend_from_slice(value);
    }
    let length = frame.len() - begin;
    frame.get_mut(begin - 2..begin)?.copy_from_slice(&(length as u16).to_be_bytes());
    (length <= usize::from(MRU) - HEADER).then_some(frame)
}
