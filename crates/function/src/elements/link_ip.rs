//! Locating IP packets behind link headers.
use ringway_click::Packet;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Ipv6, vlan::Tagged};

/// Link types of captures: Ethernet; packets without a link header, in several systems' numbers.
pub const ETHERNET: u16 = 1;
/// IP without a link header.
pub const RAW: u16 = 101;
const RAWS: [u16; 3] = [RAW, 12, 14];

/// Whether IP packets can be recognized with this link type.
pub fn is_known(link: u16) -> bool {
    link == ETHERNET || RAWS.contains(&link)
}

/// Sets the network header of an IPv4 or IPv6 packet, and the destination annotation of IPv4; behind
/// Ethernet's header also with one VLAN tag. False if it is not an IP packet, or its header is truncated.
pub fn mark_ip(packet: &mut Packet, link: u16) -> bool {
    let data = packet.data();
    let ip_type = |ethertype| matches!(ethertype, EtherType::IPV4 | EtherType::IPV6);
    let at = match (link, Ethernet::of(data), Tagged::of(data)) {
        _ if RAWS.contains(&link) => 0,
        (ETHERNET, Some(frame), _) if ip_type(frame.ethertype) => Ethernet::LEN,
        (ETHERNET, _, Some(frame))
            if frame.ethernet.ethertype == EtherType::VLAN && ip_type(frame.tag.ethertype) =>
        {
            Tagged::LEN
        }
        _ => return false,
    };
    let header = data.get(at..).unwrap_or_default();
    let (length, destination) = match header.first().map_or(0, |first| first >> 4) {
        6 if header.len() >= Ipv6::LEN => (Ipv6::LEN, None),
        4 => match Ipv4::parse(header) {
            Some((ip, ..)) => (ip.header_len(), Some(ip.destination.to_bytes())),
            None => return false,
        },
        _ => return false,
    };
    packet.set_network_header(at as isize, length);
    if let Some(destination) = destination {
        packet.notes_mut().set_dst_ip(destination);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_click::Pool;

    fn marked(bytes: &[u8], link: u16) -> Option<(Option<isize>, [u8; 4])> {
        let mut packet = Pool::new().copy(bytes)?;
        mark_ip(&mut packet, link).then(|| (packet.network_header(), packet.notes().dst_ip()))
    }

    #[test]
    fn ip_headers_are_found_after_tags_and_without_a_link_header() {
        let mut v4 = [0; 20];
        v4[0] = 0x45;
        v4[16..].copy_from_slice(&[10, 0, 0, 9]);
        let mut v6 = [0; 40];
        v6[0] = 0x60;
        let behind = |kind: &[u8], packet: &[u8]| [&[0; 12][..], kind, packet].concat();
        assert_eq!(marked(&v4, RAW), Some((Some(0), [10, 0, 0, 9])));
        assert_eq!(marked(&behind(&[8, 0], &v4), ETHERNET), Some((Some(14), [10, 0, 0, 9])));
        assert_eq!(marked(&behind(&[0x81, 0, 0, 7, 8, 0], &v4), ETHERNET), Some((Some(18), [10, 0, 0, 9])));
        assert_eq!(marked(&behind(&[0x86, 0xdd], &v6), ETHERNET), Some((Some(14), [0; 4])));
        assert_eq!(marked(&behind(&[8, 6], &v4), ETHERNET), None);
    }

    #[test]
    fn truncated_headers_are_not_found() {
        assert_eq!(marked(&[0x45; 19], RAW), None);
        assert_eq!(marked(&[0x60; 39], RAW), None);
        assert_eq!(marked(&[0x46; 20], RAW), None);
        assert_eq!(marked(&[0x43; 40], RAW), None);
        assert_eq!(marked(&[8, 0], ETHERNET), None);
    }
}
