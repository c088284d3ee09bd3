//! Link types of captures: their names, and the offset of IP packets after their headers.
use ringway_click::Packet;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Ipv6, U16, vlan::Tagged};

/// BSD loopback: the address family in the byte order of the capturing host.
const NULL: u16 = 0;
/// Ethernet.
pub const ETHERNET: u16 = 1;
const PPP: u16 = 9;
const FDDI: u16 = 10;
const PPP_HDLC: u16 = 50;
/// LLC/SNAP over ATM (RFC 2684).
const ATM: u16 = 100;
/// IP without a link header.
pub const RAW: u16 = 101;
const RAWS: [u16; 3] = [RAW, 12, 14];
/// Cisco's HDLC.
const HDLC: u16 = 104;
const WIFI: u16 = 105;
/// Linux's "cooked" captures.
const SLL: u16 = 113;
const PRISM: u16 = 119;
const AIRONET: u16 = 120;
const SUNATM: u16 = 123;
const RADIOTAP: u16 = 127;

/// Names of link types in `ENCAP`; the handler `encap` returns a type's first name.
const NAMES: [(&str, u16); 19] = [
    ("NULL", NULL),
    ("IP", RAW),
    ("ETHER", ETHERNET),
    ("ETHERNET", ETHERNET),
    ("FDDI", FDDI),
    ("ATM", ATM),
    ("RFC1483", ATM),
    ("ATM_RFC1483", ATM),
    ("802_11", WIFI),
    ("802.11", WIFI),
    ("802_11_RADIO", RADIOTAP),
    ("802.11_RADIO", RADIOTAP),
    ("SLL", SLL),
    ("AIRONET", AIRONET),
    ("HDLC", HDLC),
    ("PPP_HDLC", PPP_HDLC),
    ("PPP", PPP),
    ("SUNATM", SUNATM),
    ("PRISM", PRISM),
];

/// Maximum number of nested headers. Attack: a frame that consists of nested LLC headers.
const HEADERS: usize = 8;

/// A link type by its name, or by its number after `#`.
pub fn parse_link(text: &str) -> Option<u16> {
    match text.strip_prefix('#') {
        Some(number) => number.parse().ok(),
        None => NAMES.iter().find(|(name, _)| *name == text).map(|(_, link)| *link),
    }
}

/// A link type's name, or its number after `#`.
pub fn link_name(link: u16) -> String {
    let link = canonical(link);
    let named = NAMES.iter().find(|(_, own)| *own == link);
    named.map_or_else(|| format!("#{link}"), |(name, _)| (*name).to_string())
}

/// Replaces the numbers that some systems use for IP without a link header by [`RAW`].
pub fn canonical(link: u16) -> u16 {
    if RAWS.contains(&link) { RAW } else { link }
}

/// Whether IP packets can be recognized with this link type.
pub fn is_known(link: u16) -> bool {
    let link = canonical(link);
    link != AIRONET && NAMES.iter().any(|(_, own)| *own == link)
}

/// A header before IP.
#[derive(Clone, Copy)]
enum Layer {
    Ethernet,
    Fddi,
    Llc,
    Wifi,
}

/// What follows a header.
enum Next {
    /// IP begins after this many bytes.
    Ip(usize),
    /// Another header begins after this many bytes.
    Header(usize, Layer),
}

/// The offset of the IP packet.
fn find_ip(data: &[u8], link: u16) -> Option<usize> {
    let (mut at, mut layer) = match link {
        ETHERNET => (0, Layer::Ethernet),
        FDDI => (0, Layer::Fddi),
        ATM => (0, Layer::Llc),
        SUNATM => (4, Layer::Llc),
        WIFI => (0, Layer::Wifi),
        PRISM => (144, Layer::Wifi),
        RADIOTAP => {
            let length = u16::from_le_bytes([*data.get(2)?, *data.get(3)?]);
            (usize::from(length).max(8), Layer::Wifi)
        }
        _ => return behind_link(data, link),
    };
    for _ in 0..HEADERS {
        match layer.next(data.get(at..)?)? {
            Next::Ip(offset) => return Some(at + offset),
            Next::Header(offset, inner) => (at, layer) = (at + offset, inner),
        }
    }
    None
}

/// The offset of the IP packet after a header that no other header follows.
fn behind_link(data: &[u8], link: u16) -> Option<usize> {
    const PPP_ADDRESS: u8 = 0xff;
    let is_ppp_ip = |protocol: u8| matches!(protocol, 0x21 | 0x57);
    match (link, data) {
        _ if canonical(link) == RAW => Some(0),
        (SLL, _) => is_ip(data, 14).then_some(16),
        (HDLC, _) | (PPP_HDLC, [0x0f | 0x8f, ..]) => is_ip(data, 2).then_some(4),
        (PPP_HDLC, [PPP_ADDRESS, _, 0, protocol, ..]) if is_ppp_ip(*protocol) => Some(4),
        (PPP, _) => {
            let skipped = if data.starts_with(&[PPP_ADDRESS, 3]) { 2 } else { 0 };
            match data.get(skipped..)? {
                [protocol, _, ..] if is_ppp_ip(*protocol) => Some(skipped + 1),
                [0, protocol, ..] if is_ppp_ip(*protocol) => Some(skipped + 2),
                _ => None,
            }
        }
        (NULL, &[a, b, c, d, ..]) => {
            let little = u16::from_le_bytes([a, b]);
            let family = if little == 0 { u16::from_be_bytes([c, d]) } else { little };
            // AF_INET; AF_INET6 of the BSDs.
            matches!(family, 2 | 24 | 28 | 30).then_some(4)
        }
        _ => None,
    }
}

/// Whether the Ethernet type at an offset is IPv4's or IPv6's.
fn is_ip(data: &[u8], at: usize) -> bool {
    let ethertype = data.get(at..).and_then(U16::of).map(|number| EtherType(*number));
    matches!(ethertype, Some(EtherType::IPV4 | EtherType::IPV6))
}

impl Layer {
    /// What follows the header at the beginning of `data`.
    fn next(self, data: &[u8]) -> Option<Next> {
        // IEEE 802.11's frame control: data frames; To DS and From DS, with four addresses.
        const DATA: (u8, u8) = (0x0c, 8);
        const FOUR: u8 = 3;
        match self {
            Layer::Ethernet if is_ip(data, Ethernet::LEN - 2) => Some(Next::Ip(Ethernet::LEN)),
            Layer::Ethernet => {
                let frame = Tagged::of(data)?;
                (frame.ethernet.ethertype == EtherType::VLAN && is_ip(data, Tagged::LEN - 2))
                    .then_some(Next::Ip(Tagged::LEN))
            }
            Layer::Fddi => (data.first()? & 0xf0 == 0x50).then_some(Next::Header(13, Layer::Llc)),
            Layer::Wifi => {
                let [kind, flags, ..] = *data else { return None };
                let length = if flags & FOUR == FOUR { 30 } else { 24 };
                (kind & DATA.0 == DATA.1).then_some(Next::Header(length, Layer::Llc))
            }
            Layer::Llc => match data {
                [0xaa, 0xaa, 3, 0, 0, 0, ..] if is_ip(data, 6) => Some(Next::Ip(8)),
                // EtherType after an OUI of zero or of Cisco.
                [0xaa, 0xaa, _, 0, 0, 0 | 0xf8, ..] => {
                    let tagged = data.get(6..8)? == EtherType::VLAN.bytes();
                    (tagged && is_ip(data, 10)).then_some(Next::Ip(12))
                }
                // Bridged Ethernet (RFC 2684), with and without a frame check sequence.
                [0xaa, 0xaa, _, 0, 0x80, 0xc2, 0, 1 | 7, ..] => Some(Next::Header(8, Layer::Ethernet)),
                [0xaa, 0xaa, _, 0, 0x80, 0xc2, 0, 4 | 10, ..] => Some(Next::Header(9, Layer::Fddi)),
                _ => None,
            },
        }
    }
}

/// Sets the network header of an IPv4 or IPv6 packet, and the destination annotation of IPv4. False if it is
/// not an IP packet, or its header is truncated.
pub fn mark_ip(packet: &mut Packet, link: u16) -> bool {
    let Some(at) = find_ip(packet.data(), link) else { return false };
    let header = packet.data().get(at..).unwrap_or_default();
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
