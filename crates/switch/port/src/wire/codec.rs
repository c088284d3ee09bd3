//! Encapsulation and decapsulation of single frames: headers only, no sockets.

use super::settings::{Dscp, Encapsulation};
use ringway_frame::Reason;
use ringway_mem::{Span, SpanMut};
use ringway_wire::tunnel::{Geneve, GeneveOption, Vxlan};
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, vlan};

/// Longest header in front of a frame: Geneve's with all options.
const LONGEST: usize = Geneve::LEN + 63 * 4;
/// Bytes of a frame in which the inner packet's class is: an Ethernet header, two tags, an IPv4 header.
const CLASS: usize = Ethernet::LEN + 8 + Ipv4::LEN;
/// The bits of TOS that are ECN's (RFC 3168), and their values.
const ECN: u8 = 3;
const NOT_CAPABLE: u8 = 0;
const EXPERIENCED: u8 = 3;
/// ECT(1), which outweighs ECT(0).
const CAPABLE_1: u8 = 1;

/// Encapsulates and decapsulates the frames of a port.
#[derive(Clone, Copy, Debug)]
pub struct Codec {
    encapsulation: Encapsulation,
    vni: u32,
    dscp: Dscp,
}

impl Codec {
    /// For frames of network `vni`.
    pub fn new(encapsulation: Encapsulation, vni: u32, dscp: Dscp) -> Codec {
        Codec { encapsulation, vni: vni & 0xff_ffff, dscp }
    }

    /// Bytes of the header in front of a frame.
    #[inline]
    pub fn header_len(&self) -> usize {
        self.encapsulation.header_len()
    }

    /// The header in front of a frame, in the first [`Codec::header_len`] bytes.
    #[inline]
    pub fn header(&self) -> [u8; 8] {
        let mut bytes = [0; 8];
        let vni = (self.vni << 8).into();
        match self.encapsulation {
            Encapsulation::Vxlan => {
                let header = Vxlan { flags: Vxlan::VALID, reserved: [0; 3], vni };
                bytes.copy_from_slice(header.bytes());
            }
            Encapsulation::Geneve => {
                let header = Geneve { protocol: Geneve::ETHERNET, vni, ..Geneve::default() };
                bytes.copy_from_slice(header.bytes());
            }
            Encapsulation::Udp | Encapsulation::Tcp => {}
        }
        bytes
    }

    /// TOS or traffic class of the outer packet, for a frame that begins with `head`.
    #[inline]
    pub fn outer_tos(&self, head: &[u8]) -> u8 {
        let inner = inner_class(head).map_or(0, |(_, class)| class);
        match self.dscp {
            Dscp::Fixed(dscp) => dscp << 2 | inner & ECN,
            Dscp::Inherit => inner,
        }
    }

    /// The frame in a datagram whose outer packet had `tos`. The mark of congestion is copied to the inner packet.
    ///
    /// # Errors
    /// Why it must be dropped.
    #[inline]
    pub fn decapsulate<'t>(&self, datagram: SpanMut<'t>, tos: u8) -> Result<Span<'t>, Reason> {
        let at = match self.encapsulation {
            Encapsulation::Vxlan => self.vxlan(datagram.as_span())?,
            Encapsulation::Geneve => self.geneve(datagram.as_span())?,
            Encapsulation::Udp | Encapsulation::Tcp => 0,
        };
        let frame = datagram.split(at).1;
        if frame.len() < Ethernet::LEN {
            return Err(Reason::Short);
        }
        if tos & ECN != NOT_CAPABLE {
            congestion(frame, tos & ECN)?;
        }
        Ok(frame.as_span())
    }

    #[inline]
    fn vxlan(&self, datagram: Span<'_>) -> Result<usize, Reason> {
        let bytes = datagram.read_array::<{ Vxlan::LEN }>().ok_or(Reason::BadTunnel)?;
        let header = Vxlan::padded(&bytes);
        // As Linux: flags of extensions that are not used here may change what follows.
        if header.flags != Vxlan::VALID || header.reserved != [0; 3] || header.vni.get() & 0xff != 0 {
            return Err(Reason::BadTunnel);
        }
        self.of_network(header.vni.get())?;
        Ok(Vxlan::LEN)
    }

    #[inline]
    fn geneve(&self, datagram: Span<'_>) -> Result<usize, Reason> {
        let bytes = datagram.read_array::<{ Geneve::LEN }>().ok_or(Reason::BadTunnel)?;
        let header = Geneve::padded(&bytes);
        let is_known = header.version() == 0 && header.protocol == Geneve::ETHERNET;
        // Reserved bits are ignored on receipt, other than VXLAN's (RFC 8926, 3.4). Control messages are not frames.
        if !is_known || header.flags & Geneve::CONTROL != 0 {
            return Err(Reason::BadTunnel);
        }
        let (options, end) = (header.options_len(), Geneve::LEN + header.options_len());
        if end > datagram.len() {
            return Err(Reason::BadTunnel);
        }
        self.of_network(header.vni.get())?;
        if header.flags & Geneve::CRITICAL != 0 {
            return Err(Reason::CriticalOption);
        }
        if options > 0 {
            // Attack: options whose lengths pass the end, and critical ones that the header's flag doesn't announce.
            let mut all = [0; LONGEST];
            datagram.split(Geneve::LEN).1.split(options).0.read(&mut all);
            check_options(&all[..options])?;
        }
        Ok(end)
    }

    #[inline]
    fn of_network(&self, field: u32) -> Result<(), Reason> {
        if field >> 8 == self.vni { Ok(()) } else { Err(Reason::WrongNetwork) }
    }
}

fn check_options(mut rest: &[u8]) -> Result<(), Reason> {
    while !rest.is_empty() {
        let (option, data) = GeneveOption::split(rest).ok_or(Reason::BadTunnel)?;
        if option.kind & GeneveOption::CRITICAL != 0 {
            return Err(Reason::CriticalOption);
        }
        rest = data.get(option.data_len()..).ok_or(Reason::BadTunnel)?;
    }
    Ok(())
}

/// Offset of the IP header in a frame that begins with `head`, and its TOS or traffic class.
#[inline]
fn inner_class(head: &[u8]) -> Option<(usize, u8)> {
    let (ethernet, rest) = Ethernet::split(head)?;
    let inner = vlan::untag(ethernet.ethertype, rest)?;
    let at = head.len() - inner.payload.len();
    let [first, second, ..] = *inner.payload else { return None };
    match (inner.ethertype, first >> 4) {
        (EtherType::IPV4, 4) => Some((at, second)),
        (EtherType::IPV6, 6) => Some((at, first << 4 | second >> 4)),
        _ => None,
    }
}

/// Combines the outer ECN field with the inner packet's (RFC 6040, 4.2).
fn congestion(frame: SpanMut<'_>, outer: u8) -> Result<(), Reason> {
    let mut head = [0; CLASS];
    let len = frame.as_span().read(&mut head);
    let Some((at, class)) = inner_class(&head[..len]) else { return Ok(()) };
    let ecn = match (class & ECN, outer) {
        (NOT_CAPABLE, EXPERIENCED) => return Err(Reason::BadTunnel),
        (NOT_CAPABLE, _) | (EXPERIENCED, _) => return Ok(()),
        (_, EXPERIENCED) => EXPERIENCED,
        (_, CAPABLE_1) => CAPABLE_1,
        (inner, _) => inner,
    };
    let new = class & !ECN | ecn;
    if new == class {
        return Ok(());
    }
    if head[at] >> 4 == 6 {
        frame.write_at(at, [head[at] & 0xf0 | new >> 4, head[at + 1] & 0x0f | new << 4]);
    } else if let Some(header) = Ipv4::of_mut(&mut head[at..len]) {
        header.set_tos(new);
        let mut bytes = [0; Ipv4::LEN];
        bytes.copy_from_slice(header.bytes());
        frame.write_at(at, bytes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_wire::checksum::checksum;

    const TUNNELS: [Encapsulation; 3] = [Encapsulation::Vxlan, Encapsulation::Geneve, Encapsulation::Udp];

    fn codec(encapsulation: Encapsulation) -> Codec {
        Codec::new(encapsulation, 0x12_3456, Dscp::Fixed(0))
    }

    fn decapsulated(codec: &Codec, datagram: &mut [u8], tos: u8) -> Result<Vec<u8>, Reason> {
        codec.decapsulate(SpanMut::of(datagram), tos).map(|frame| {
            let mut bytes = vec![0; frame.len()];
            frame.read(&mut bytes);
            bytes
        })
    }

    /// A frame with an IP packet of this class.
    fn frame(ipv6: bool, tags: usize, class: u8) -> Vec<u8> {
        let mut bytes = vec![2; 12];
        bytes.extend([[0x81, 0, 0, 7]; 2].concat().iter().take(4 * tags));
        if ipv6 {
            bytes.extend([0x86, 0xdd, 0x60 | class >> 4, class << 4 | 5]);
            bytes.resize(bytes.len() + 60, 9);
        } else {
            bytes.extend([8, 0]);
            let mut header = Ipv4 { tos: class, ttl: 3, total_length: 60.into(), ..Ipv4::EMPTY };
            header.fill_checksum(&[]);
            bytes.extend(header.bytes());
            bytes.resize(bytes.len() + 40, 9);
        }
        bytes
    }

    fn vxlan() -> Vec<u8> {
        let header = codec(Encapsulation::Vxlan).header();
        assert_eq!(header, [8, 0, 0, 0, 0x12, 0x34, 0x56, 0]);
        [&header[..], &frame(false, 0, 0)].concat()
    }

    fn geneve(options: &[u8]) -> Vec<u8> {
        let mut header = codec(Encapsulation::Geneve).header();
        assert_eq!(header, [0, 0, 0x65, 0x58, 0x12, 0x34, 0x56, 0]);
        header[0] = (options.len() / 4) as u8;
        [&header[..], options, &frame(false, 0, 0)].concat()
    }

    proptest! {
        #[test]
        fn a_frame_comes_out_as_it_went_in(
            bytes in prop::collection::vec(any::<u8>(), Ethernet::LEN..300), vni in 0u32..1 << 24,
        ) {
            for encapsulation in TUNNELS {
                let codec = Codec::new(encapsulation, vni, Dscp::Inherit);
                let header = codec.header();
                let mut datagram = [&header[..codec.header_len()], &bytes].concat();
                let tos = codec.outer_tos(&bytes[..bytes.len().min(64)]);
                prop_assert_eq!(decapsulated(&codec, &mut datagram, tos), Ok(bytes.clone()));
                let other = Codec::new(encapsulation, vni ^ 1, Dscp::Inherit);
                if encapsulation.has_network() {
                    let refused = decapsulated(&other, &mut datagram, tos);
                    prop_assert_eq!(refused, Err(Reason::WrongNetwork));
                }
            }
        }

        #[test]
        fn any_datagram_gives_a_part_of_itself_or_a_reason(
            mut bytes in prop::collection::vec(any::<u8>(), 0..400), first in 0u8..3, tos: u8,
        ) {
            for encapsulation in TUNNELS {
                let codec = Codec::new(encapsulation, 0, Dscp::Fixed(0));
                // Some pass the first checks.
                if first > 0 && bytes.len() >= 8 {
                    let header = codec.header();
                    let kept = if first == 1 { 8 } else { codec.header_len().max(1) };
                    bytes[1..kept].copy_from_slice(&header[1..kept]);
                }
                let mut datagram = bytes.clone();
                if let Ok(frame) = decapsulated(&codec, &mut datagram, tos & !ECN) {
                    prop_assert!(frame.len() >= Ethernet::LEN && bytes.ends_with(&frame));
                }
                let _ = decapsulated(&codec, &mut datagram, tos);
            }
        }
    }

    #[test]
    fn each_wrong_vxlan_header_has_its_reason() {
        let codec = codec(Encapsulation::Vxlan);
        assert_eq!(decapsulated(&codec, &mut vxlan(), 0), Ok(frame(false, 0, 0)));
        for (at, flip) in [(0, 8), (0, 4), (0, 0x40), (1, 1), (2, 1), (3, 0x80), (7, 1)] {
            let mut wrong = vxlan();
            wrong[at] ^= flip;
            assert_eq!(decapsulated(&codec, &mut wrong, 0), Err(Reason::BadTunnel), "{at} {flip}");
        }
        for at in 4..7 {
            let mut other = vxlan();
            other[at] ^= 1;
            assert_eq!(decapsulated(&codec, &mut other, 0), Err(Reason::WrongNetwork));
        }
        for len in 0..8 + Ethernet::LEN {
            let reason = if len < 8 { Reason::BadTunnel } else { Reason::Short };
            assert_eq!(decapsulated(&codec, &mut vxlan()[..len], 0), Err(reason), "{len}");
        }
    }

    #[test]
    fn geneve_s_options_are_skipped_unless_they_are_critical_or_wrong() {
        let codec = codec(Encapsulation::Geneve);
        let good: [&[u8]; 3] = [&[], &[1, 2, 3, 0], &[1, 2, 3, 1, 9, 9, 9, 9, 0, 0, 0, 0]];
        for options in good {
            let mut datagram = geneve(options);
            assert_eq!(decapsulated(&codec, &mut datagram, 0), Ok(frame(false, 0, 0)));
            datagram[7] = 0xff;
            datagram[1] = 0x3f;
            assert!(decapsulated(&codec, &mut datagram, 0).is_ok(), "reserved bits are ignored");
        }
        let refused = |options: &[u8]| decapsulated(&codec, &mut geneve(options), 0);
        assert_eq!(refused(&[1, 2, 0x83, 0]), Err(Reason::CriticalOption));
        assert_eq!(refused(&[1, 2, 3, 0, 0, 0, 0x80, 0]), Err(Reason::CriticalOption));
        assert_eq!(refused(&[1, 2, 3, 2, 0, 0, 0, 0]), Err(Reason::BadTunnel), "it passes the end");
        let wrong = |at: usize, value: u8| {
            let mut datagram = geneve(&[]);
            datagram[at] = value;
            decapsulated(&codec, &mut datagram, 0)
        };
        assert_eq!(wrong(0, 0x40), Err(Reason::BadTunnel), "version 1");
        assert_eq!(wrong(0, 63), Err(Reason::BadTunnel), "options after the end");
        assert_eq!(wrong(1, Geneve::CONTROL), Err(Reason::BadTunnel));
        assert_eq!(wrong(1, Geneve::CRITICAL), Err(Reason::CriticalOption));
        assert_eq!(wrong(3, 0x59), Err(Reason::BadTunnel), "not Ethernet");
        assert_eq!(wrong(5, 0), Err(Reason::WrongNetwork));
    }

    #[test]
    fn the_class_is_carried_as_configured() {
        let class = 0x2e << 2 | 2;
        for (ipv6, tags) in [(false, 0), (false, 2), (true, 0), (true, 1)] {
            let head = frame(ipv6, tags, class);
            let of = |dscp| Codec::new(Encapsulation::Vxlan, 1, dscp).outer_tos(&head[..64]);
            assert_eq!(of(Dscp::Fixed(0)), 2);
            assert_eq!(of(Dscp::Fixed(10)), 10 << 2 | 2);
            assert_eq!(of(Dscp::Inherit), class);
        }
        assert_eq!(Codec::new(Encapsulation::Vxlan, 1, Dscp::Inherit).outer_tos(&[7; 64]), 0);
    }

    #[test]
    fn marks_of_congestion_follow_the_table_of_rfc_6040() {
        // By inner and outer field: Not-ECT, ECT(1), ECT(0), CE.
        let expected = [
            [Some(0), Some(0), Some(0), None],
            [Some(1), Some(1), Some(1), Some(3)],
            [Some(2), Some(1), Some(2), Some(3)],
            [Some(3), Some(3), Some(3), Some(3)],
        ];
        for (inner, row) in expected.iter().enumerate() {
            for (outer, result) in row.iter().enumerate() {
                for (ipv6, tags) in [(false, 0), (false, 1), (true, 0), (true, 2)] {
                    let mut datagram = frame(ipv6, tags, 0x50 | inner as u8);
                    let codec = codec(Encapsulation::Udp);
                    let got = decapsulated(&codec, &mut datagram, outer as u8);
                    let Some(ecn) = result else {
                        assert_eq!(got, Err(Reason::BadTunnel));
                        continue;
                    };
                    let got = got.unwrap();
                    assert_eq!(got, frame(ipv6, tags, 0x50 | ecn), "{inner} {outer}");
                    let at = Ethernet::LEN + 4 * tags;
                    assert!(ipv6 || checksum(&got[at..at + 20]) == 0);
                }
            }
        }
    }
}
