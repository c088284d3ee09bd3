//! The headers of a frame to segment: parsed, checked, and written for each segment.

use super::{Gso, Offload};
use crate::Reason;
use ringway_wire::tcp::Flags;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Ipv6, Protocol, Sum, Tcp, Udp};
use ringway_wire::{ipv4, ipv6, tcp, udp, vlan};

/// Largest total size of a frame's headers.
pub const HEADERS: usize = 256;
/// Maximum number of segments of one frame. Attack: 64 KB with a segment size of 1 would take the work of
/// 65,000 frames. With TCP's smallest usual segment size, 536 bytes, 64 KB take 123 segments.
pub(super) const SEGMENTS: usize = 256;

const BAD: Reason = Reason::BadOffload;

/// The fields of the upper-layer header that change from segment to segment.
#[derive(Clone, Copy, Debug)]
enum Upper {
    Tcp { sequence: u32, offset: u8, flags: Flags },
    Udp,
}

/// The headers of all segments: their bytes, with the changing fields zeroed, and their checksums' partial
/// sums.
#[derive(Clone, Debug)]
pub struct Headers {
    bytes: [u8; HEADERS],
    len: usize,
    l3: usize,
    l4: usize,
    /// IPv4 only: the header's sum, and the first segment's identification.
    ipv4: Option<(Sum, u16)>,
    upper: Upper,
    pseudo: Sum,
    header: Sum,
}

/// One segment's position in its frame.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Number of the segment, from 0.
    pub number: usize,
    /// Whether it is the last segment.
    pub last: bool,
    /// Offset of the segment's payload in the frame's payload.
    pub offset: usize,
    /// Length of the segment's payload in bytes.
    pub len: usize,
}

/// The network layer's protocol and offset.
fn network(bytes: &[u8]) -> Option<(EtherType, usize)> {
    let (frame, payload) = Ethernet::split(bytes)?;
    let inner = vlan::untag(frame.ethertype, payload)?;
    Some((inner.ethertype, Ethernet::LEN + inner.tags * vlan::TAG_LEN))
}

/// Information from the network-layer header.
struct Network {
    /// The upper layer's protocol and offset.
    protocol: Protocol,
    l4: usize,
    /// The sum of the pseudo header with a length of 0, if this header has the final destination.
    pseudo: Option<Sum>,
    identification: Option<u16>,
}

fn ipv4_network(bytes: &[u8], l3: usize) -> Option<Network> {
    let header = ipv4::Packet::parse(&bytes[l3..])?.header;
    (!header.is_fragment()).then(|| Network {
        protocol: header.protocol,
        l4: l3 + header.header_len(),
        pseudo: Some(header.pseudo_header(0)),
        identification: Some(header.identification.get()),
    })
}

fn ipv6_network(bytes: &[u8], l3: usize) -> Option<Network> {
    let packet = ipv6::Packet::parse(&bytes[l3..])?;
    let upper = packet.upper().filter(|upper| !upper.fragment)?;
    let extensions = packet.payload.len() - upper.payload.len();
    // With a routing header, the final destination isn't in the IPv6 header.
    let pseudo = (!upper.routed).then(|| packet.header.pseudo_header(upper.protocol, 0));
    let l4 = l3 + Ipv6::LEN + extensions;
    Some(Network { protocol: upper.protocol, l4, pseudo, identification: None })
}

impl Headers {
    /// Parses the headers of a frame of `total` bytes. `bytes` are the frame's first bytes, at least
    /// [`HEADERS`] of them if it is that long.
    ///
    /// # Errors
    /// [`Reason::BadOffload`] if the headers contradict the metadata, [`Reason::NoOffload`] if they are too
    /// long.
    pub fn parse(bytes: &[u8], total: usize, offload: Offload, gso: Gso) -> Result<Headers, Reason> {
        let (ethertype, l3) = network(bytes).ok_or(BAD)?;
        Headers::parse_network(l3, ethertype, bytes, total, offload, gso)
    }

    /// As [`Headers::parse`], for a network header at offset `l3`; the bytes before it are not parsed.
    ///
    /// # Errors
    /// As [`Headers::parse`].
    pub fn parse_at(
        l3: usize,
        bytes: &[u8],
        total: usize,
        offload: Offload,
        gso: Gso,
    ) -> Result<Headers, Reason> {
        let ethertype = match bytes.get(l3).ok_or(BAD)? >> 4 {
            4 => EtherType::IPV4,
            6 => EtherType::IPV6,
            _ => return Err(BAD),
        };
        Headers::parse_network(l3, ethertype, bytes, total, offload, gso)
    }

    fn parse_network(
        l3: usize,
        ethertype: EtherType,
        bytes: &[u8],
        total: usize,
        offload: Offload,
        gso: Gso,
    ) -> Result<Headers, Reason> {
        let bytes = &bytes[..bytes.len().min(HEADERS)];
        let network = match (ethertype, gso) {
            (EtherType::IPV4, Gso::Tcp4 | Gso::UdpL4) => ipv4_network(bytes, l3),
            (EtherType::IPV6, Gso::Tcp6 | Gso::UdpL4) => ipv6_network(bytes, l3),
            _ => None,
        };
        let network = network.ok_or(BAD)?;
        let l4 = network.l4;
        let (expected, field) = match gso {
            Gso::Tcp4 | Gso::Tcp6 => (Protocol::TCP, tcp::CHECKSUM_AT),
            Gso::UdpL4 => (Protocol::UDP, udp::CHECKSUM_AT),
        };
        // Attack: metadata that contradicts the headers would make us write at wrong offsets.
        if network.protocol != expected
            || usize::from(offload.csum_start) != l4
            || usize::from(offload.csum_offset) != field
        {
            return Err(BAD);
        }
        let transport = bytes.get(l4..).ok_or(BAD)?;
        let (upper, len) = match gso {
            Gso::Tcp4 | Gso::Tcp6 => {
                let (tcp, ..) = Tcp::parse(transport).ok_or_else(|| too_long_or_bad(bytes, total))?;
                let (sequence, offset) = (tcp.sequence_number.get(), tcp.data_offset);
                (Upper::Tcp { sequence, offset, flags: tcp.flags }, l4 + tcp.header_len())
            }
            Gso::UdpL4 if transport.len() >= Udp::LEN => (Upper::Udp, l4 + Udp::LEN),
            Gso::UdpL4 => return Err(too_long_or_bad(bytes, total)),
        };
        let pseudo = network.pseudo.unwrap_or_else(|| {
            // The sender's pseudo-header sum in the checksum field, less the length.
            let mut sum = Sum::new();
            sum.add(&transport[field..field + 2]);
            sum.add_u16(!((total - l4) as u16));
            sum
        });
        let mut copy = [0; HEADERS];
        copy[..len].copy_from_slice(&bytes[..len]);
        let mut headers = Headers {
            bytes: copy,
            len,
            l3,
            l4,
            ipv4: network.identification.map(|first| (Sum::new(), first)),
            upper,
            pseudo,
            header: Sum::new(),
        };
        headers.clear();
        Ok(headers)
    }

    /// Zeroes the fields that change from segment to segment, and sums the others.
    fn clear(&mut self) {
        let (network, upper) = self.bytes.split_at_mut(self.l4);
        let network = &mut network[self.l3..];
        if let Some((sum, _)) = &mut self.ipv4
            && let Some(ip) = Ipv4::of_mut(network)
        {
            (ip.total_length, ip.identification, ip.checksum) = Default::default();
            sum.add(network);
        }
        match self.upper {
            Upper::Tcp { .. } => {
                if let Some(tcp) = Tcp::of_mut(upper) {
                    (tcp.sequence_number, tcp.data_offset, tcp.flags, tcp.checksum) = Default::default();
                }
            }
            Upper::Udp => {
                if let Some(udp) = Udp::of_mut(upper) {
                    (udp.length, udp.checksum) = Default::default();
                }
            }
        }
        self.header = self.pseudo;
        self.header.add(&self.bytes[self.l4..self.len]);
    }

    /// Total size of all headers.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Longest payload of a segment that the network header's length field permits.
    fn max_payload(&self) -> usize {
        // IPv6's length field doesn't count its own header.
        let start = match self.ipv4 {
            Some(_) => self.l3,
            None => self.l3 + Ipv6::LEN,
        };
        usize::from(u16::MAX).saturating_sub(self.len - start)
    }

    /// Splits `payload` bytes into segments of `size` bytes; the last one may be shorter.
    ///
    /// # Errors
    /// [`Reason::BadOffload`] if there would be too many segments, or a segment would be too long.
    pub fn parts(&self, payload: usize, size: usize) -> Result<impl Iterator<Item = Part> + use<>, Reason> {
        if size == 0 || payload.div_ceil(size) > SEGMENTS || size.min(payload) > self.max_payload() {
            return Err(BAD);
        }
        Ok((0..payload.div_ceil(size).max(1)).map(move |number| {
            let offset = number * size;
            let len = size.min(payload - offset);
            Part { number, last: offset + len == payload, offset, len }
        }))
    }

    /// Writes the headers of one segment, except for the upper layer's checksum. Returns two sums: of the
    /// pseudo header, and of the pseudo header with the upper-layer header.
    pub fn emit(&self, part: &Part, out: &mut [u8; HEADERS]) -> (Sum, Sum) {
        out[..self.len].copy_from_slice(&self.bytes[..self.len]);
        let (network, upper) = out.split_at_mut(self.l4);
        let network = &mut network[self.l3..];
        let total = self.len - self.l3 + part.len;
        if let Some((mut sum, first)) = self.ipv4 {
            if let Some(ip) = Ipv4::of_mut(network) {
                let identification = first.wrapping_add(part.number as u16);
                sum.add_u16(total as u16);
                sum.add_u16(identification);
                ip.total_length.set(total as u16);
                ip.identification.set(identification);
                ip.checksum.set(sum.finish());
            }
        } else if let Some(ip) = Ipv6::of_mut(network) {
            ip.payload_length.set((total - Ipv6::LEN) as u16);
        }
        let upper_len = (self.len - self.l4 + part.len) as u16;
        let (mut pseudo, mut header) = (self.pseudo, self.header);
        pseudo.add_u16(upper_len);
        header.add_u16(upper_len);
        match self.upper {
            Upper::Tcp { sequence, offset, flags } => {
                if let Some(tcp) = Tcp::of_mut(upper) {
                    let sequence = sequence.wrapping_add(part.offset as u32);
                    let flags = segment_flags(flags, part);
                    header.add_u32(sequence);
                    header.add_u16(u16::from(offset) << 8 | u16::from(flags.0));
                    tcp.sequence_number.set(sequence);
                    (tcp.data_offset, tcp.flags) = (offset, flags);
                }
            }
            Upper::Udp => {
                if let Some(udp) = Udp::of_mut(upper) {
                    header.add_u16(upper_len);
                    udp.length.set(upper_len);
                }
            }
        }
        (pseudo, header)
    }

    /// Writes the upper layer's checksum field.
    pub fn put_checksum(&self, field: u16, out: &mut [u8; HEADERS]) {
        let at = self.l4
            + match self.upper {
                Upper::Tcp { .. } => tcp::CHECKSUM_AT,
                Upper::Udp => udp::CHECKSUM_AT,
            };
        out[at..at + 2].copy_from_slice(&field.to_be_bytes());
    }
}

/// FIN and PSH are sent in the last segment, CWR in the first (RFC 3168, 6.1.2: once per reduced window).
fn segment_flags(flags: Flags, part: &Part) -> Flags {
    let flags = if part.last { flags } else { flags.without(Flags::FIN).without(Flags::PSH) };
    if part.number == 0 { flags } else { flags.without(Flags::CWR) }
}

/// Why the headers don't end within `bytes`: they are longer than supported, or longer than the frame.
fn too_long_or_bad(bytes: &[u8], total: usize) -> Reason {
    if total > bytes.len() { Reason::NoOffload } else { BAD }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Headers of a UDP datagram over IPv4 without options.
    fn headers() -> Headers {
        Headers {
            bytes: [0; HEADERS],
            len: 42,
            l3: 14,
            l4: 34,
            ipv4: Some((Sum::new(), 0)),
            upper: Upper::Udp,
            pseudo: Sum::new(),
            header: Sum::new(),
        }
    }

    #[test]
    fn segments_cover_the_payload_once_in_order() {
        for (payload, size) in [(0, 1), (1, 1), (99, 100), (100, 100), (101, 100), (SEGMENTS * 7, 7)] {
            let parts: Vec<Part> = headers().parts(payload, size).unwrap().collect();
            let mut end = 0;
            for (number, part) in parts.iter().enumerate() {
                assert_eq!((part.number, part.offset), (number, end));
                assert_eq!(part.last, number + 1 == parts.len());
                end += part.len;
            }
            assert_eq!((end, parts.len()), (payload, payload.div_ceil(size).max(1)));
        }
    }

    #[test]
    fn too_many_and_too_long_segments_are_refused() {
        for (payload, size) in [(10, 0), (SEGMENTS * 7 + 1, 7), (65_508, 65_508)] {
            assert!(headers().parts(payload, size).is_err(), "{payload} by {size}");
        }
        assert!(headers().parts(65_507, 65_507).is_ok());
    }
}
