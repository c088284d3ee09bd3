//! The IPv6 header and its extension headers (RFC 8200).

use crate::checksum::Sum;
use crate::{Header, MacAddress, Protocol, U16, U32, U128};
use core::net::Ipv6Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the fixed header.
pub const HEADER_LEN: usize = Ipv6::LEN;
/// Maximum number of extension headers. Attack: a chain of many 8-byte headers, all of which every hop would
/// parse.
pub const EXTENSIONS: usize = 8;

/// The fixed header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv6 {
    /// Version, traffic class and flow label.
    pub version_class_label: U32,
    /// Length of the payload in bytes, extension headers included.
    pub payload_length: U16,
    /// Type of the next header.
    pub next_header: Protocol,
    /// Hop limit.
    pub hop_limit: u8,
    /// Source address.
    pub source: U128,
    /// Destination address.
    pub destination: U128,
}

impl Ipv6 {
    /// A header whose fields are 0, except for the version.
    pub const EMPTY: Ipv6 = Ipv6 {
        version_class_label: U32::new(6 << 28),
        payload_length: U16::ZERO,
        next_header: Protocol(0),
        hop_limit: 0,
        source: U128::ZERO,
        destination: U128::ZERO,
    };

    /// Version.
    #[inline]
    pub fn version(&self) -> u8 {
        (self.version_class_label.get() >> 28) as u8
    }

    /// Traffic class: DSCP and ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (self.version_class_label.get() >> 20) as u8
    }

    /// Sets the traffic class.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        let rest = self.version_class_label.get() & !(0xff << 20);
        self.version_class_label.set(rest | u32::from(class) << 20);
    }

    /// Source address.
    #[inline]
    pub fn source_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.source.get())
    }

    /// Destination address.
    #[inline]
    pub fn destination_addr(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.destination.get())
    }

    /// The sum of the pseudo header of an upper-layer packet of `len` bytes. Not for packets whose routing
    /// header has the final destination.
    #[inline]
    pub fn pseudo_header(&self, protocol: Protocol, len: u32) -> Sum {
        Sum::pseudo_v6(self.source_addr(), self.destination_addr(), protocol.0, len)
    }
}

/// A packet with a valid fixed header. Bytes after its payload length, such as Ethernet padding, are
/// excluded.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The fixed header.
    pub header: &'a Ipv6,
    /// Extension headers and payload, possibly truncated.
    pub payload: &'a [u8],
    /// Whether `payload` is complete.
    pub whole: bool,
}

impl<'a> Packet<'a> {
    /// Checks the version; `bytes` may be a truncated packet.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let (header, rest) = Ipv6::split(bytes).filter(|(header, _)| header.version() == 6)?;
        let len = usize::from(header.payload_length.get());
        Some(Packet { header, payload: &rest[..len.min(rest.len())], whole: len <= rest.len() })
    }

    /// The extension headers.
    pub fn extensions(&self) -> Extensions<'a> {
        Extensions { next: self.header.next_header, rest: self.payload, left: EXTENSIONS }
    }

    /// Skips the extension headers; `None` if one is invalid, or if there are too many.
    #[inline]
    pub fn upper(&self) -> Option<Upper<'a>> {
        let protocol = self.header.next_header;
        if protocol.has_ports() {
            return Some(Upper { protocol, payload: self.payload, fragment: false, routed: false });
        }
        upper_slow(self.extensions())
    }
}

/// The fragment header (RFC 8200, 4.5).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Fragment {
    /// Type of the next header.
    pub next_header: Protocol,
    /// Reserved.
    pub reserved: u8,
    /// Offset in bytes, a multiple of 8; the lowest bit indicates whether more fragments follow.
    pub offset: U16,
    /// Identification.
    pub identification: U32,
}

impl Fragment {
    /// Offset in bytes.
    pub fn offset(&self) -> u16 {
        self.offset.get() & !7
    }

    /// Whether more fragments follow.
    pub fn more(&self) -> bool {
        self.offset.get() & 1 != 0
    }
}

/// One extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Type of this header.
    pub kind: Protocol,
    /// Type of the next header.
    pub next: Protocol,
    /// The header's bytes: next header, length, contents.
    pub bytes: &'a [u8],
}

impl Extension<'_> {
    /// This header, if it is a fragment header.
    pub fn fragment(&self) -> Option<&Fragment> {
        Fragment::of(self.bytes).filter(|_| self.kind == Protocol::FRAGMENT)
    }
}

/// The extension headers of a packet, at most [`EXTENSIONS`]. An invalid header, or one too many, is returned
/// as `None` and ends the iterator.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    next: Protocol,
    rest: &'a [u8],
    left: usize,
}

impl<'a> Extensions<'a> {
    /// The first protocol that is not an extension header, and its bytes. Valid after the iterator has ended
    /// without an error.
    pub fn remainder(&self) -> (Protocol, &'a [u8]) {
        (self.next, self.rest)
    }

    /// Consumes a header of `len` bytes.
    fn step(&mut self, len: usize) -> Option<Extension<'a>> {
        self.left = self.left.checked_sub(1)?;
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        let kind = self.next;
        (self.next, self.rest) = (Protocol(*bytes.first()?), rest);
        Some(Extension { kind, next: self.next, bytes })
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Option<Extension<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let units = self.rest.get(1).map_or(usize::MAX >> 4, |units| usize::from(*units));
        let step = match self.next {
            Protocol::HOP_BY_HOP | Protocol::ROUTING | Protocol::DESTINATION => self.step((units + 1) * 8),
            // The fragment header's length field is reserved (RFC 8200, 4.5).
            Protocol::FRAGMENT => self.step(Fragment::LEN),
            // RFC 4302, 2.2: in 32-bit words, minus two.
            Protocol::AUTHENTICATION => self.step((units + 2) * 4),
            _ => return None,
        };
        if step.is_none() {
            (self.next, self.rest) = (Protocol::NONE, &[]);
        }
        Some(step)
    }
}

/// The upper layer: what follows the extension headers.
#[derive(Clone, Copy, Debug)]
pub struct Upper<'a> {
    /// The protocol.
    pub protocol: Protocol,
    /// The bytes. In fragments other than the first, they don't begin with a header.
    pub payload: &'a [u8],
    /// Whether there was a fragment header, even that of an unfragmented packet (RFC 6946).
    pub fragment: bool,
    /// Whether a routing header has segments left, so that the destination address is not the final one.
    pub routed: bool,
}

#[inline(never)]
fn upper_slow(mut extensions: Extensions<'_>) -> Option<Upper<'_>> {
    let (mut fragment, mut routed) = (false, false);
    for extension in &mut extensions {
        let extension = extension?;
        routed |=
            extension.kind == Protocol::ROUTING && extension.bytes.get(3).is_some_and(|&left| left != 0);
        if let Some(header) = extension.fragment() {
            fragment = true;
            if header.offset() != 0 {
                // Only the first fragment has the headers that follow.
                let (protocol, payload) = extensions.remainder();
                return Some(Upper { protocol, payload, fragment, routed });
            }
        }
    }
    let (protocol, payload) = extensions.remainder();
    Some(Upper { protocol, payload, fragment, routed })
}

/// Whether an address can be that of a single host (RFC 4291, 2.5.2, 2.5.3, 2.5.5 and 2.7). Attack: an answer to
/// another address reaches many hosts, or the answering one itself.
pub fn is_host(address: Ipv6Addr) -> bool {
    let is_special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    !is_special && address.to_ipv4_mapped().is_none()
}

/// The MAC address of an IPv6 multicast group (RFC 2464, 7).
pub fn multicast_mac(group: Ipv6Addr) -> MacAddress {
    let [.., a, b, c, d] = group.octets();
    MacAddress([0x33, 0x33, a, b, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(next: Protocol, payload: &[u8]) -> Vec<u8> {
        let mut header = Ipv6 {
            version_class_label: U32::new(0x6001_2345),
            payload_length: U16::new(payload.len() as u16),
            next_header: next,
            hop_limit: 64,
            source: U128::new(0xfe80 << 112 | 1),
            destination: U128::new(0xff02 << 112 | 2),
        };
        header.set_traffic_class(0xa5);
        [header.bytes(), payload].concat()
    }

    #[test]
    fn golden() {
        let bytes = packet(Protocol::UDP, &[1, 2, 3]);
        assert_eq!(bytes[..8], [0x6a, 0x51, 0x23, 0x45, 0, 3, 17, 64]);
        let view = Packet::parse(&bytes).unwrap();
        assert_eq!((view.header.version(), view.header.traffic_class(), view.whole), (6, 0xa5, true));
        assert_eq!(view.header.source_addr(), "fe80::1".parse::<Ipv6Addr>().unwrap());
        let group = multicast_mac(view.header.destination_addr());
        assert_eq!(group, MacAddress([0x33, 0x33, 0, 0, 0, 2]));
        let upper = view.upper().unwrap();
        assert_eq!((upper.protocol, upper.payload), (Protocol::UDP, &[1, 2, 3][..]));
        assert!(!Packet::parse(&bytes[..42]).unwrap().whole);
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
        let view = Packet::parse(&bytes).unwrap();
        let kinds: Vec<u8> = view.extensions().map(|extension| extension.unwrap().kind.0).collect();
        assert_eq!(kinds, [0, 60, 43, 44, 51]);
        let upper = view.upper().unwrap();
        assert_eq!((upper.protocol, upper.payload), (Protocol::TCP, &b"upper"[..]));
        assert!(upper.fragment && upper.routed);
        let extension = view.extensions().nth(3).unwrap().unwrap();
        let fragment = extension.fragment().unwrap();
        assert_eq!((fragment.offset(), fragment.more(), fragment.identification.get()), (0, true, 9));
    }

    #[test]
    fn too_many_extension_headers_are_an_error() {
        let one = [60, 0, 1, 4, 0, 0, 0, 0];
        let mut payload = one.repeat(EXTENSIONS);
        *payload.iter_mut().nth_back(7).unwrap() = 6;
        let bytes = packet(Protocol::DESTINATION, &payload);
        assert_eq!(Packet::parse(&bytes).unwrap().upper().unwrap().protocol, Protocol::TCP);
        let bytes = packet(Protocol::DESTINATION, &one.repeat(EXTENSIONS + 1));
        assert!(Packet::parse(&bytes).unwrap().upper().is_none());
        let bytes = packet(Protocol::DESTINATION, &[6, 1, 0, 0, 0, 0, 0, 0]);
        assert!(Packet::parse(&bytes).unwrap().upper().is_none());
    }

    #[test]
    fn a_later_fragment_is_not_walked_further() {
        let bytes = packet(Protocol::FRAGMENT, &[60, 0, 0, 8, 0, 0, 0, 1, 6, 0, 0, 0, 0, 0, 0, 0]);
        let upper = Packet::parse(&bytes).unwrap().upper().unwrap();
        assert_eq!((upper.protocol, upper.payload.len()), (Protocol::DESTINATION, 8));
    }

    proptest! {
        #[test]
        fn any_chain_ends(
            next in prop::sample::select(vec![0u8, 43, 44, 51, 60, 6]),
            mut payload in prop::collection::vec(
                prop::sample::select(vec![0u8, 1, 2, 43, 44, 51, 60, 6]), 0..300,
            ),
        ) {
            let bytes = packet(Protocol(next), &payload);
            let view = Packet::parse(&bytes).unwrap();
            prop_assert!(view.extensions().count() <= EXTENSIONS + 1);
            if let Some(upper) = view.upper() {
                payload.drain(..payload.len() - upper.payload.len());
                prop_assert_eq!(&payload[..], upper.payload);
            }
        }
    }
}
