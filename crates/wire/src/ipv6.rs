//! The IPv6 header and its extension headers (RFC 8200).

use crate::bytes::{sixteen_at, u16_at, u32_at};
use crate::checksum::Sum;
use crate::ip::Protocol;
use crate::{MacAddress, WireError};
use core::net::Ipv6Addr;

const NAME: &str = "IPv6";
const EXTENSION: &str = "IPv6 extension header";
/// Bytes of the fixed header.
pub const HEADER_LEN: usize = 40;
/// Extension headers that are walked. Attack: a chain of many 8-byte headers has every hop walk all of it.
pub const EXTENSIONS: usize = 8;

/// A view of a packet. Bytes past its payload length, as Ethernet's padding, are left out.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks version and payload length against `bytes`.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let (packet, whole) = Packet::new_prefix(bytes)?;
        if whole { Ok(packet) } else { Err(WireError::Truncated { header: NAME }) }
    }

    /// The same, where `bytes` may be the beginning of a packet only: as much of the payload as there is, and
    /// whether that is all.
    #[inline]
    pub fn new_prefix(bytes: &'a [u8]) -> Result<(Packet<'a>, bool), WireError> {
        let (header, rest) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated { header: NAME })?;
        if header[0] >> 4 != 6 {
            return Err(WireError::Illegal { header: NAME, field: "Version" });
        }
        let len = usize::from(u16_at(header, 4));
        Ok((Packet { header, payload: &rest[..len.min(rest.len())] }, len <= rest.len()))
    }

    /// Traffic class: DSCP and ECN.
    pub fn traffic_class(&self) -> u8 {
        (u16_at(self.header, 0) >> 4) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32_at(self.header, 0) & 0xf_ffff
    }

    /// Bytes behind the fixed header.
    #[inline]
    pub fn payload_len(&self) -> u16 {
        u16_at(self.header, 4)
    }

    /// What follows the fixed header.
    #[inline]
    pub fn next_header(&self) -> Protocol {
        Protocol(self.header[6])
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        sixteen_at(self.header, 8).into()
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        sixteen_at(self.header, 24).into()
    }

    /// What follows the fixed header, extension headers included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The extension headers.
    pub fn extensions(&self) -> Extensions<'a> {
        Extensions { next: self.next_header(), rest: self.payload, left: EXTENSIONS }
    }

    /// Walks the extension headers.
    #[inline]
    pub fn upper(&self) -> Result<Upper<'a>, WireError> {
        let next = self.next_header();
        if next.has_ports() {
            return Ok(Upper { protocol: next, payload: self.payload, fragment: false, routed: false });
        }
        upper_slow(self.extensions())
    }

    /// The pseudo header of an upper layer of `len` bytes; not for a packet that a routing header leads
    /// elsewhere.
    #[inline]
    pub fn pseudo_header(&self, protocol: Protocol, len: u32) -> Sum {
        Sum::pseudo_v6(self.source(), self.destination(), protocol.0, len)
    }
}

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Which one.
    pub kind: Protocol,
    /// What follows it.
    pub next: Protocol,
    /// All its bytes: next header, length, contents.
    pub bytes: &'a [u8],
}

impl Extension<'_> {
    /// Of a fragment header: the offset in bytes, whether more follow, and the identification.
    pub fn fragment(&self) -> Option<(u16, bool, u32)> {
        if self.kind != Protocol::FRAGMENT {
            return None;
        }
        let bytes: &[u8; 8] = self.bytes.first_chunk()?;
        let offset = u16_at(bytes, 2);
        Some((offset & 0xfff8, offset & 1 != 0, u32_at(bytes, 4)))
    }
}

/// The extension headers of a packet, at most [`EXTENSIONS`] of them; ends with an error at one that is
/// broken or one too many.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    next: Protocol,
    rest: &'a [u8],
    left: usize,
}

impl<'a> Extensions<'a> {
    /// The first protocol that is no extension header, and its bytes; final once the iterator has ended well.
    pub fn behind(&self) -> (Protocol, &'a [u8]) {
        (self.next, self.rest)
    }

    fn step(&mut self, unit: usize, extra: usize) -> Result<Extension<'a>, WireError> {
        if self.left == 0 {
            return Err(WireError::Illegal { header: EXTENSION, field: "Next Header" });
        }
        self.left -= 1;
        let truncated = WireError::Truncated { header: EXTENSION };
        let (&[next, len], _) = self.rest.split_first_chunk::<2>().ok_or(truncated)?;
        let len = (usize::from(len) + extra) * unit;
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(truncated)?;
        let kind = self.next;
        (self.next, self.rest) = (Protocol(next), rest);
        Ok(Extension { kind, next: self.next, bytes })
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<Extension<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        let step = match self.next {
            Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DESTINATION => self.step(8, 1),
            // Its length field is reserved (RFC 8200, 4.5): eight bytes always.
            Protocol::FRAGMENT => match self.rest.first_chunk::<8>() {
                Some(&[next, ..]) if self.left > 0 => {
                    self.left -= 1;
                    let (bytes, rest) = self.rest.split_at(8);
                    (self.next, self.rest) = (Protocol(next), rest);
                    Ok(Extension { kind: Protocol::FRAGMENT, next: self.next, bytes })
                }
                Some(_) => Err(WireError::Illegal { header: EXTENSION, field: "Next Header" }),
                None => Err(WireError::Truncated { header: EXTENSION }),
            },
            // RFC 4302, 2.2: in words of four bytes, minus two.
            Protocol::AUTHENTICATION => self.step(4, 2),
            _ => return None,
        };
        if step.is_err() {
            (self.next, self.rest) = (Protocol::NONE, &[]);
        }
        Some(step)
    }
}

/// What lies behind the extension headers.
#[derive(Clone, Copy, Debug)]
pub struct Upper<'a> {
    /// Which protocol.
    pub protocol: Protocol,
    /// Its bytes; of a later fragment they begin anywhere.
    pub payload: &'a [u8],
    /// Whether there was a fragment header, even one of a whole packet (RFC 6946).
    pub fragment: bool,
    /// Whether a routing header still has segments left, so that the final destination is another.
    pub routed: bool,
}

#[inline(never)]
fn upper_slow(mut extensions: Extensions<'_>) -> Result<Upper<'_>, WireError> {
    let (mut fragment, mut routed) = (false, false);
    for extension in &mut extensions {
        let extension = extension?;
        routed |=
            extension.kind == Protocol::ROUTING && extension.bytes.get(3).is_some_and(|&left| left != 0);
        if let Some((offset, ..)) = extension.fragment() {
            fragment = true;
            if offset != 0 {
                // Later fragments begin in the middle of what follows: there is nothing to walk.
                let (protocol, payload) = extensions.behind();
                return Ok(Upper { protocol, payload, fragment, routed });
            }
        }
    }
    let (protocol, payload) = extensions.behind();
    Ok(Upper { protocol, payload, fragment, routed })
}

/// The fixed header's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, below 2^20.
    pub flow_label: u32,
    /// Bytes behind the fixed header.
    pub payload_len: u16,
    /// What follows the fixed header.
    pub next_header: Protocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl Repr {
    /// Reads a view; a group as the source is illegal (RFC 4291, 2.7).
    pub fn parse(packet: &Packet<'_>) -> Result<Repr, WireError> {
        if packet.source().is_multicast() {
            return Err(WireError::Illegal { header: NAME, field: "Source Address" });
        }
        Ok(Repr {
            traffic_class: packet.traffic_class(),
            flow_label: packet.flow_label(),
            payload_len: packet.payload_len(),
            next_header: packet.next_header(),
            hop_limit: packet.hop_limit(),
            source: packet.source(),
            destination: packet.destination(),
        })
    }

    /// Bytes that `emit` writes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the fixed header to the start of `out`.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), WireError> {
        if self.flow_label > 0xf_ffff {
            return Err(WireError::Illegal { header: NAME, field: "Flow Label" });
        }
        let header = out.first_chunk_mut::<HEADER_LEN>().ok_or(WireError::NoRoom { header: NAME })?;
        let first = 6 << 28 | u32::from(self.traffic_class) << 20 | self.flow_label;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        header[6] = self.next_header.0;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..].copy_from_slice(&self.destination.octets());
        Ok(())
    }
}

/// The group MAC address of a multicast address (RFC 2464, 7).
pub fn multicast_mac(group: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = group.octets();
    MacAddress([0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(next: Protocol, payload: &[u8]) -> Vec<u8> {
        let repr = Repr {
            traffic_class: 0xa5,
            flow_label: 0x12345,
            payload_len: payload.len() as u16,
            next_header: next,
            hop_limit: 64,
            source: "fe80::1".parse().unwrap(),
            destination: "ff02::2".parse().unwrap(),
        };
        let mut out = vec![0; 40];
        repr.emit(&mut out).unwrap();
        out.extend_from_slice(payload);
        out
    }

    #[test]
    fn golden() {
        let bytes = packet(Protocol::UDP, &[1, 2, 3]);
        assert_eq!(bytes[..8], [0x6a, 0x51, 0x23, 0x45, 0, 3, 17, 64]);
        let view = Packet::new_checked(&bytes).unwrap();
        assert_eq!((view.traffic_class(), view.flow_label(), view.payload_len()), (0xa5, 0x12345, 3));
        assert_eq!((view.source(), view.hop_limit()), ("fe80::1".parse().unwrap(), 64));
        assert_eq!(multicast_mac(view.destination()), MacAddress([0x33, 0x33, 0, 0, 0, 2]));
        let upper = view.upper().unwrap();
        assert_eq!((upper.protocol, upper.payload), (Protocol::UDP, &[1, 2, 3][..]));
        assert!(Packet::new_checked(&bytes[..42]).is_err());
    }

    #[test]
    fn extension_headers_are_walked() {
        let mut payload = vec![60, 0, 1, 4, 0, 0, 0, 0];
        payload.extend_from_slice(&[43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        payload.extend_from_slice(&[44, 0, 4, 1, 0, 0, 0, 0]);
        payload.extend_from_slice(&[51, 0, 0, 1, 0, 0, 0, 9]);
        payload.extend_from_slice(&[6, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]);
        payload.extend_from_slice(b"upper");
        let bytes = packet(Protocol::HOP_BY_HOP, &payload);
        let view = Packet::new_checked(&bytes).unwrap();
        let kinds: Vec<u8> = view.extensions().map(|extension| extension.unwrap().kind.0).collect();
        assert_eq!(kinds, [0, 60, 43, 44, 51]);
        let upper = view.upper().unwrap();
        assert_eq!((upper.protocol, upper.payload), (Protocol::TCP, &b"upper"[..]));
        assert!(upper.fragment && upper.routed);
        let fragment = view.extensions().nth(3).unwrap().unwrap().fragment();
        assert_eq!(fragment, Some((0, true, 9)));
    }

    #[test]
    fn too_many_extension_headers_are_an_error() {
        let one = [60, 0, 1, 4, 0, 0, 0, 0];
        let mut payload = one.repeat(EXTENSIONS);
        *payload.iter_mut().nth_back(7).unwrap() = 6;
        let bytes = packet(Protocol::DESTINATION, &payload);
        assert_eq!(Packet::new_checked(&bytes).unwrap().upper().unwrap().protocol, Protocol::TCP);
        let bytes = packet(Protocol::DESTINATION, &one.repeat(EXTENSIONS + 1));
        assert!(Packet::new_checked(&bytes).unwrap().upper().is_err());
        let bytes = packet(Protocol::DESTINATION, &[6, 1, 0, 0, 0, 0, 0, 0]);
        assert!(Packet::new_checked(&bytes).unwrap().upper().is_err());
    }

    #[test]
    fn a_later_fragment_is_not_walked_further() {
        let bytes = packet(Protocol::FRAGMENT, &[60, 0, 0, 8, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0, 0]);
        let upper = Packet::new_checked(&bytes).unwrap().upper().unwrap();
        assert_eq!((upper.protocol, upper.payload.len()), (Protocol::DESTINATION, 8));
    }

    proptest! {
        #[test]
        fn round_trip(mut bytes: [u8; 40]) {
            bytes[0] = 0x60 | bytes[0] & 0xf;
            bytes[4..6].fill(0);
            let view = Packet::new_checked(&bytes).unwrap();
            if let Ok(repr) = Repr::parse(&view) {
                let mut out = [0; 40];
                repr.emit(&mut out).unwrap();
                prop_assert_eq!(out, bytes);
            }
        }

        #[test]
        fn any_chain_ends(
            next in prop::sample::select(vec![0u8, 43, 44, 51, 60, 6]),
            mut payload in prop::collection::vec(
                prop::sample::select(vec![0u8, 1, 2, 43, 44, 51, 60, 6]), 0..300,
            ),
        ) {
            let bytes = packet(Protocol(next), &payload);
            let view = Packet::new_checked(&bytes).unwrap();
            prop_assert!(view.extensions().count() <= EXTENSIONS + 1);
            if let Ok(upper) = view.upper() {
                payload.drain(..payload.len() - upper.payload.len());
                prop_assert_eq!(&payload[..], upper.payload);
            }
        }
    }
}
