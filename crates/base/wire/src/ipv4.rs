//! The IPv4 header (RFC 791, RFC 2474, RFC 3168).

use crate::checksum::{Sum, is_valid, update};
use crate::{Header, MacAddress, Protocol, U16, U32};
use core::net::Ipv4Addr;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned, transmute_ref};

/// Length of a header without options.
pub const HEADER_LEN: usize = Ipv4::LEN;
/// Maximum length of the options.
pub const OPTIONS_LEN: usize = 40;

/// Reserved flag, which is 0.
pub const RESERVED: u16 = 0x8000;
/// DF.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// MF.
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// The bits of the fragment offset, in units of eight bytes.
pub const FRAGMENT_OFFSET: u16 = 0x1fff;

/// Types of options.
pub mod option {
    /// End of the list.
    pub const END: u8 = 0;
    /// No operation.
    pub const NOP: u8 = 1;
    /// Record route.
    pub const RECORD_ROUTE: u8 = 7;
    /// Timestamp.
    pub const TIMESTAMP: u8 = 68;
    /// Loose source and record route.
    pub const LOOSE_ROUTE: u8 = 131;
    /// Strict source and record route.
    pub const STRICT_ROUTE: u8 = 137;
    /// Flag in the type: the option is copied to every fragment.
    pub const COPIED: u8 = 0x80;
}

/// The header, without its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Ipv4 {
    /// Version, and the header's length in 32-bit words.
    pub version_ihl: u8,
    /// Type of service: differentiated services code point and ECN.
    pub tos: u8,
    /// Length of the packet in bytes, header included.
    pub total_length: U16,
    /// Identification.
    pub identification: U16,
    /// Flags and fragment offset.
    pub fragment: U16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol.
    pub protocol: Protocol,
    /// Header checksum.
    pub checksum: U16,
    /// Source address.
    pub source: U32,
    /// Destination address.
    pub destination: U32,
}

impl Ipv4 {
    /// A header without options; all other fields are 0.
    pub const EMPTY: Ipv4 = Ipv4 {
        version_ihl: 0x45,
        tos: 0,
        total_length: U16::ZERO,
        identification: U16::ZERO,
        fragment: U16::ZERO,
        ttl: 0,
        protocol: Protocol(0),
        checksum: U16::ZERO,
        source: U32::ZERO,
        destination: U32::ZERO,
    };

    /// The header at the start of `bytes`, its options, and the bytes after them; `None` if the header is
    /// truncated. The version is not checked.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(&Ipv4, &[u8], &[u8])> {
        let (ip, rest) = Ipv4::split(bytes)?;
        let (options, payload) = rest.split_at_checked(ip.header_len().checked_sub(HEADER_LEN)?)?;
        Some((ip, options, payload))
    }

    /// As [`Ipv4::parse`], mutable.
    #[inline]
    pub fn parse_mut(bytes: &mut [u8]) -> Option<(&mut Ipv4, &mut [u8], &mut [u8])> {
        let (ip, rest) = Ipv4::split_mut(bytes)?;
        let (options, payload) = rest.split_at_mut_checked(ip.header_len().checked_sub(HEADER_LEN)?)?;
        Some((ip, options, payload))
    }

    /// Version.
    #[inline]
    pub fn version(&self) -> u8 {
        self.version_ihl >> 4
    }

    /// Length of the header in bytes, options included; below 20 if the field is invalid.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.version_ihl & 0xf) * 4
    }

    /// MF.
    #[inline]
    pub fn more_fragments(&self) -> bool {
        self.fragment.get() & MORE_FRAGMENTS != 0
    }

    /// Fragment offset in bytes.
    #[inline]
    pub fn fragment_offset(&self) -> u16 {
        self.fragment.get() << 3
    }

    /// Whether the packet is a fragment, the first one included.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        self.fragment.get() & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0
    }

    /// Whether the packet is a fragment other than the first.
    #[inline]
    pub fn is_later_fragment(&self) -> bool {
        self.fragment.get() & FRAGMENT_OFFSET != 0
    }

    /// Source address.
    #[inline]
    pub fn source_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.source.get())
    }

    /// Destination address.
    #[inline]
    pub fn destination_addr(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.destination.get())
    }

    /// The sum of the pseudo header for `len` bytes of payload.
    #[inline]
    pub fn pseudo_header(&self, len: u16) -> Sum {
        Sum::pseudo_v4(self.source_addr(), self.destination_addr(), self.protocol.0, len)
    }

    /// Fills the checksum of the header and its options.
    #[inline]
    pub fn fill_checksum(&mut self, options: &[u8]) {
        self.checksum.set(0);
        let mut sum = Sum::new();
        sum.add(self.bytes());
        sum.add(options);
        self.checksum.set(sum.finish());
    }

    /// Whether the checksum of the header and its options is valid.
    #[inline(always)]
    pub fn is_checksum_valid(&self, options: &[u8]) -> bool {
        if options.is_empty() {
            let bytes: &[u8; HEADER_LEN] = transmute_ref!(self);
            return is_valid(bytes);
        }
        let mut sum = Sum::new();
        sum.add(self.bytes());
        sum.add(options);
        sum.is_valid()
    }

    /// Sets the type of service and updates the checksum (RFC 1624).
    #[inline]
    pub fn set_tos(&mut self, tos: u8) {
        self.checksum.set(update(self.checksum.get(), self.tos.into(), tos.into()));
        self.tos = tos;
    }

    /// Sets the time to live and updates the checksum (RFC 1624).
    #[inline]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.checksum.set(update(self.checksum.get(), u16::from(self.ttl) << 8, u16::from(ttl) << 8));
        self.ttl = ttl;
    }

    /// Decrements the time to live, which must not be 0, and updates the checksum (RFC 1624, equation 3).
    #[inline(always)]
    pub fn decrement_ttl(&mut self) {
        self.ttl -= 1;
        // In memory byte order, since the sum is independent of it (RFC 1071, 2(B)).
        let sum = 0xffff + 0xfffe - u32::from(u16::from_le_bytes(self.checksum.to_bytes()));
        self.checksum = U16::from_bytes((!((sum + (sum >> 16)) as u16)).to_le_bytes());
    }
}

/// A packet with a valid header. Bytes after its total length, such as Ethernet padding, are excluded.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// The header.
    pub header: &'a Ipv4,
    /// The options, raw.
    pub options: &'a [u8],
    /// The payload, possibly truncated.
    pub payload: &'a [u8],
    /// Whether the payload is complete.
    pub whole: bool,
}

impl<'a> Packet<'a> {
    /// Checks version, header length and total length, but not the checksum. `bytes` may be a truncated
    /// packet, but must include the whole header.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let header = Ipv4::of(bytes)?;
        let (header_len, total) = (header.header_len(), usize::from(header.total_length.get()));
        if header.version() != 4 || header_len < HEADER_LEN || total < header_len {
            return None;
        }
        let (front, payload) = bytes[..total.min(bytes.len())].split_at_checked(header_len)?;
        Some(Packet { header, options: &front[HEADER_LEN..], payload, whole: total <= bytes.len() })
    }
}

/// Whether an address can be that of a single host (RFC 1122, 3.2.1.3), which network it may be in being unknown. As in
/// Linux, it may be of class E. Attack: an answer to another address reaches many hosts, or the answering one itself.
pub fn is_host(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 127) && !address.is_multicast() && !address.is_broadcast()
}

/// The MAC address of an IPv4 multicast group (RFC 1112, 6.4).
pub fn multicast_mac(group: Ipv4Addr) -> MacAddress {
    let [_, b, c, d] = group.octets();
    MacAddress([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::tests::slow;
    use proptest::prelude::*;

    const GOLDEN: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x01, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x60, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];

    #[test]
    fn golden() {
        let mut ip = Ipv4 {
            total_length: U16::new(0x73),
            identification: U16::new(1),
            fragment: U16::new(DONT_FRAGMENT),
            ttl: 64,
            protocol: Protocol::UDP,
            source: U32::from_bytes([192, 168, 0, 1]),
            destination: U32::from_bytes([192, 168, 0, 199]),
            ..Ipv4::EMPTY
        };
        ip.fill_checksum(&[]);
        assert_eq!(ip.bytes(), GOLDEN);
        let mut bytes = [0; 120];
        bytes[..20].copy_from_slice(&GOLDEN);
        let packet = Packet::parse(&bytes).unwrap();
        assert_eq!((packet.header, packet.payload.len(), packet.whole), (&ip, 95, true));
        assert!(packet.header.is_checksum_valid(packet.options));
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        let good = |change: fn(&mut Ipv4)| {
            let mut bytes = GOLDEN;
            let ip = Ipv4::of_mut(&mut bytes).unwrap();
            ip.total_length.set(20);
            change(ip);
            Packet::parse(&bytes).is_some_and(|packet| packet.whole)
        };
        assert!(good(|_| ()));
        assert!(!good(|ip| ip.version_ihl = 0x44));
        assert!(!good(|ip| ip.version_ihl = 0x46));
        assert!(!good(|ip| ip.version_ihl = 0x65));
        assert!(!good(|ip| ip.total_length.set(19)));
        assert!(!good(|ip| ip.total_length.set(21)));
    }

    #[test]
    fn a_group_has_its_mac_address() {
        let mac = multicast_mac(Ipv4Addr::new(224, 129, 2, 3));
        assert_eq!(mac, MacAddress([0x01, 0, 0x5e, 1, 2, 3]));
    }

    proptest! {
        #[test]
        fn setters_keep_the_checksum_valid(mut bytes: [u8; 20], tos: u8, ttl in 1u8..) {
            bytes[0] = 0x45;
            let ip = Ipv4::of_mut(&mut bytes).unwrap();
            ip.fill_checksum(&[]);
            prop_assert_eq!(slow(ip.bytes()), 0);
            ip.set_tos(tos);
            ip.set_ttl(ttl);
            ip.decrement_ttl();
            prop_assert_eq!((ip.tos, ip.ttl), (tos, ttl - 1));
            prop_assert_eq!(slow(&bytes), 0);
        }

        #[test]
        fn any_bytes_parse_or_fail(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80), first in 0x44u8..0x50,
        ) {
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            if let Some(packet) = Packet::parse(&bytes) {
                let shown = packet.header.header_len() + packet.payload.len();
                prop_assert!(shown <= bytes.len());
                prop_assert_eq!(packet.whole, shown == usize::from(packet.header.total_length.get()));
            }
        }
    }
}
