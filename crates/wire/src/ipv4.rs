//! The IPv4 header (RFC 791, RFC 2474, RFC 3168).

use crate::bytes::{four_at, u16_at};
use crate::checksum::{Sum, checksum};
use crate::ip::Protocol;
use crate::{MacAddress, WireError};
use core::net::Ipv4Addr;

const NAME: &str = "IPv4";
/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Bytes that options may take.
pub const OPTIONS_LEN: usize = 40;

/// A view of a packet. Bytes past its total length, as Ethernet's padding, are left out.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    header: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Checks version, header length and total length against `bytes`. Not the checksum.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let (packet, whole) = Packet::new_prefix(bytes)?;
        if whole { Ok(packet) } else { Err(WireError::Truncated { header: NAME }) }
    }

    /// The same, where `bytes` may be the beginning of a packet only, its whole header included: as much of
    /// the payload as there is, and whether that is all.
    #[inline]
    pub fn new_prefix(bytes: &'a [u8]) -> Result<(Packet<'a>, bool), WireError> {
        let (header, _) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated { header: NAME })?;
        if header[0] >> 4 != 4 {
            return Err(WireError::Illegal { header: NAME, field: "Version" });
        }
        let header_len = usize::from(header[0] & 0xf) * 4;
        if header_len < HEADER_LEN {
            return Err(WireError::Illegal { header: NAME, field: "IHL" });
        }
        let total = usize::from(u16_at(header, 2));
        if total < header_len {
            return Err(WireError::Illegal { header: NAME, field: "Total Length" });
        }
        let present = &bytes[..total.min(bytes.len())];
        let (front, payload) =
            present.split_at_checked(header_len).ok_or(WireError::Truncated { header: NAME })?;
        Ok((Packet { header, options: &front[HEADER_LEN..], payload }, total <= bytes.len()))
    }

    /// Bytes of the header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Differentiated services code point.
    pub fn dscp(&self) -> u8 {
        self.header[1] >> 2
    }

    /// Explicit congestion notification.
    pub fn ecn(&self) -> u8 {
        self.header[1] & 3
    }

    /// Bytes of the packet, header included.
    #[inline]
    pub fn total_len(&self) -> u16 {
        u16_at(self.header, 2)
    }

    /// Identification.
    #[inline]
    pub fn identification(&self) -> u16 {
        u16_at(self.header, 4)
    }

    /// DF.
    pub fn dont_fragment(&self) -> bool {
        self.header[6] & 0x40 != 0
    }

    /// MF.
    pub fn more_fragments(&self) -> bool {
        self.header[6] & 0x20 != 0
    }

    /// Fragment offset in bytes.
    pub fn fragment_offset(&self) -> u16 {
        (u16_at(self.header, 6) & 0x1fff) << 3
    }

    /// Whether it is a fragment, the first one included.
    #[inline]
    pub fn is_fragment(&self) -> bool {
        u16_at(self.header, 6) & 0x3fff != 0
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.header[8]
    }

    /// Protocol.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        Protocol(self.header[9])
    }

    /// Header checksum.
    pub fn checksum(&self) -> u16 {
        u16_at(self.header, 10)
    }

    /// Whether the header checksum is right.
    pub fn is_checksum_valid(&self) -> bool {
        let mut sum = Sum::new();
        sum.add(self.header);
        sum.add(self.options);
        sum.is_valid()
    }

    /// Source address.
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        four_at(self.header, 12).into()
    }

    /// Destination address.
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        four_at(self.header, 16).into()
    }

    /// The options, raw.
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The pseudo header of what follows, `len` bytes of it.
    #[inline]
    pub fn pseudo_header(&self, len: u16) -> Sum {
        Sum::pseudo_v4(self.source(), self.destination(), self.protocol().0, len)
    }
}

/// One option (RFC 791, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpOption<'a> {
    /// The whole type octet: copied flag, class and number.
    pub kind: u8,
    /// What follows type and length.
    pub data: &'a [u8],
}

/// The options in raw bytes: up to the end of the list, no-operations left out. Ends with an error at the
/// first that is broken.
#[derive(Clone, Debug)]
pub struct IpOptions<'a> {
    rest: &'a [u8],
}

impl<'a> IpOptions<'a> {
    /// Reads `bytes`, of which only the first 40 can be options.
    pub fn new(bytes: &'a [u8]) -> IpOptions<'a> {
        IpOptions { rest: &bytes[..bytes.len().min(OPTIONS_LEN)] }
    }
}

impl<'a> Iterator for IpOptions<'a> {
    type Item = Result<IpOption<'a>, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (&kind, behind) = self.rest.split_first()?;
            match kind {
                0 => return None,
                1 => self.rest = behind,
                _ => {
                    let whole = behind.first().map_or(0, |&len| usize::from(len));
                    // Attack: an option of less than its own two bytes has its reader go in circles.
                    let Some(data) = self.rest.get(2..whole) else {
                        self.rest = &[];
                        return Some(Err(WireError::Illegal { header: NAME, field: "option length" }));
                    };
                    self.rest = &self.rest[whole..];
                    return Some(Ok(IpOption { kind, data }));
                }
            }
        }
    }
}

/// The header's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr<'a> {
    /// Differentiated services code point, below 64.
    pub dscp: u8,
    /// Explicit congestion notification, below 4.
    pub ecn: u8,
    /// Identification.
    pub identification: u16,
    /// DF.
    pub dont_fragment: bool,
    /// MF.
    pub more_fragments: bool,
    /// Fragment offset in bytes, a multiple of 8.
    pub fragment_offset: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol.
    pub protocol: Protocol,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Options, raw, a multiple of 4 bytes.
    pub options: &'a [u8],
    /// Bytes that follow the header.
    pub payload_len: u16,
}

impl<'a> Repr<'a> {
    /// Reads a view whose checksum is right and whose reserved flag is clear.
    pub fn parse(packet: &Packet<'a>) -> Result<Repr<'a>, WireError> {
        if !packet.is_checksum_valid() {
            return Err(WireError::Illegal { header: NAME, field: "Header Checksum" });
        }
        if packet.header[6] & 0x80 != 0 {
            return Err(WireError::Illegal { header: NAME, field: "Flags" });
        }
        Ok(Repr {
            dscp: packet.dscp(),
            ecn: packet.ecn(),
            identification: packet.identification(),
            dont_fragment: packet.dont_fragment(),
            more_fragments: packet.more_fragments(),
            fragment_offset: packet.fragment_offset(),
            ttl: packet.ttl(),
            protocol: packet.protocol(),
            source: packet.source(),
            destination: packet.destination(),
            options: packet.options,
            payload_len: packet.total_len() - packet.header_len() as u16,
        })
    }

    /// Bytes that `emit` writes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header, with its checksum, to the start of `out`.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), WireError> {
        let illegal = |field| Err(WireError::Illegal { header: NAME, field });
        if self.options.len() > OPTIONS_LEN || !self.options.len().is_multiple_of(4) {
            return illegal("options");
        }
        if self.dscp > 63 || self.ecn > 3 {
            return illegal("Type of Service");
        }
        if !self.fragment_offset.is_multiple_of(8) {
            return illegal("Fragment Offset");
        }
        let len = self.header_len();
        let Ok(total) = u16::try_from(len + usize::from(self.payload_len)) else {
            return illegal("Total Length");
        };
        let header = out.get_mut(..len).ok_or(WireError::NoRoom { header: NAME })?;
        let (fixed, options) =
            header.split_first_chunk_mut::<HEADER_LEN>().ok_or(WireError::NoRoom { header: NAME })?;
        fixed[0] = 0x40 | (len / 4) as u8;
        fixed[1] = self.dscp << 2 | self.ecn;
        fixed[2..4].copy_from_slice(&total.to_be_bytes());
        fixed[4..6].copy_from_slice(&self.identification.to_be_bytes());
        let flags = u16::from(self.dont_fragment) << 14 | u16::from(self.more_fragments) << 13;
        fixed[6..8].copy_from_slice(&(flags | self.fragment_offset >> 3).to_be_bytes());
        fixed[8] = self.ttl;
        fixed[9] = self.protocol.0;
        fixed[10..12].fill(0);
        fixed[12..16].copy_from_slice(&self.source.octets());
        fixed[16..].copy_from_slice(&self.destination.octets());
        options.copy_from_slice(self.options);
        let sum = checksum(header).to_be_bytes();
        header[10..12].copy_from_slice(&sum);
        Ok(())
    }
}

/// The group MAC address of a multicast address (RFC 1112, 6.4).
pub fn multicast_mac(group: Ipv4Addr) -> MacAddress {
    let [_, b, c, d] = group.octets();
    MacAddress([0x01, 0x00, 0x5e, b & 0x7f, c, d])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOLDEN: [u8; 20] = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0,
        0xa8, 0x00, 0xc7,
    ];

    #[test]
    fn golden() {
        let mut bytes = [0; 120];
        bytes[..20].copy_from_slice(&GOLDEN);
        let packet = Packet::new_checked(&bytes).unwrap();
        assert_eq!(packet.payload().len(), 95);
        let repr = Repr::parse(&packet).unwrap();
        assert_eq!(
            repr,
            Repr {
                dscp: 0,
                ecn: 0,
                identification: 0,
                dont_fragment: true,
                more_fragments: false,
                fragment_offset: 0,
                ttl: 64,
                protocol: Protocol::UDP,
                source: Ipv4Addr::new(192, 168, 0, 1),
                destination: Ipv4Addr::new(192, 168, 0, 199),
                options: &[],
                payload_len: 95,
            }
        );
        let mut out = [0xaa; 20];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        let good = |change: fn(&mut [u8; 20])| {
            let mut bytes = GOLDEN;
            bytes[3] = 20;
            change(&mut bytes);
            Packet::new_checked(&bytes).map(|packet| packet.payload().len())
        };
        assert_eq!(good(|_| ()), Ok(0));
        assert!(good(|bytes| bytes[0] = 0x44).is_err());
        assert!(good(|bytes| bytes[0] = 0x46).is_err());
        assert!(good(|bytes| bytes[0] = 0x65).is_err());
        assert!(good(|bytes| bytes[3] = 19).is_err());
        assert!(good(|bytes| bytes[3] = 21).is_err());
    }

    #[test]
    fn options_end_at_the_list_or_at_the_first_broken_one() {
        let list: Vec<_> = IpOptions::new(&[1, 148, 4, 0, 0, 1, 0, 148]).collect();
        assert_eq!(list, [Ok(IpOption { kind: 148, data: &[0, 0] })]);
        for broken in [&[7, 0][..], &[7, 1], &[7], &[7, 9, 1]] {
            let list: Vec<_> = IpOptions::new(broken).collect();
            assert!(matches!(list[..], [Err(_)]), "{broken:?}");
        }
    }

    #[test]
    fn a_group_has_its_mac_address() {
        let mac = multicast_mac(Ipv4Addr::new(224, 129, 2, 3));
        assert_eq!(mac, MacAddress([0x01, 0, 0x5e, 1, 2, 3]));
    }

    proptest! {
        #[test]
        fn round_trip(
            fixed: [u8; 20], options in prop::collection::vec(any::<u8>(), 0..10), payload_len in 0u16..100,
        ) {
            let options: Vec<u8> = options.iter().flat_map(|&byte| [byte; 4]).collect();
            let repr = Repr {
                dscp: fixed[0] >> 2,
                ecn: fixed[0] & 3,
                identification: u16::from_be_bytes([fixed[1], fixed[2]]),
                dont_fragment: fixed[3] & 1 != 0,
                more_fragments: fixed[3] & 2 != 0,
                fragment_offset: u16::from_be_bytes([fixed[4], fixed[5]]) & 0xfff8,
                ttl: fixed[6],
                protocol: Protocol(fixed[7]),
                source: Ipv4Addr::new(fixed[8], fixed[9], fixed[10], fixed[11]),
                destination: Ipv4Addr::new(fixed[12], fixed[13], fixed[14], fixed[15]),
                options: &options,
                payload_len,
            };
            let mut out = vec![0; repr.header_len() + usize::from(payload_len)];
            repr.emit(&mut out).unwrap();
            let packet = Packet::new_checked(&out).unwrap();
            prop_assert_eq!(Repr::parse(&packet).unwrap(), repr);
            for option in IpOptions::new(packet.options()) {
                prop_assert!(option.is_err() || option.unwrap().data.len() <= 38);
            }
        }

        #[test]
        fn any_bytes_parse_or_fail(
            mut bytes in prop::collection::vec(any::<u8>(), 0..80), first in 0x44u8..0x50,
        ) {
            if let Some(byte) = bytes.first_mut() {
                *byte = first;
            }
            if let Ok((packet, whole)) = Packet::new_prefix(&bytes) {
                let shown = packet.header_len() + packet.payload().len();
                prop_assert!(shown <= bytes.len());
                prop_assert_eq!(whole, shown == usize::from(packet.total_len()));
                prop_assert!(IpOptions::new(packet.options()).count() <= 40);
            }
        }
    }
}
