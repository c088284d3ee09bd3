//! Received frames whose checksums the peer's kernel left to its network card.
//!
//! Where both ends are on one machine, no card sees the frames: Linux's tunnels and veth then deliver them with the
//! sum of the pseudo header in place of the checksum, and TCP's not cut into segments. A complete frame whose checksum
//! equals that sum by chance (1 of 65,536) gets the same checksum again.

use ringway_frame::Offload;
use ringway_mem::Span;
use ringway_wire::{EtherType, Ethernet, Header, Protocol, Sum, Tcp, ipv4, ipv6, vlan};

/// Bytes of a frame that are looked at.
const LOOKED: usize = 128;

/// The upper-layer header of a frame.
struct Upper {
    at: usize,
    protocol: Protocol,
    pseudo: Sum,
    gso_type: u8,
}

fn upper(head: &[u8], len: usize) -> Option<Upper> {
    let (ethernet, rest) = Ethernet::split(head)?;
    let inner = vlan::untag(ethernet.ethertype, rest)?;
    let at = head.len() - inner.payload.len();
    match inner.ethertype {
        EtherType::IPV4 => {
            let packet = ipv4::Packet::parse(inner.payload)?;
            let (ip, header) = (packet.header, packet.header.header_len());
            let payload = usize::from(ip.total_length.get()).checked_sub(header)?;
            let is_whole = !ip.is_fragment() && at + header + payload <= len;
            let pseudo = ip.pseudo_header(payload as u16);
            is_whole.then_some(Upper { at: at + header, protocol: ip.protocol, pseudo, gso_type: 1 })
        }
        EtherType::IPV6 => {
            let packet = ipv6::Packet::parse(inner.payload)?;
            let (ip, found) =
                (packet.header, packet.upper().filter(|upper| !upper.fragment && !upper.routed)?);
            let start = head.len() - found.payload.len();
            let end = at + ipv6::HEADER_LEN + usize::from(ip.payload_length.get());
            let payload = end.checked_sub(start).filter(|_| end <= len)?;
            let pseudo = ip.pseudo_header(found.protocol, payload as u32);
            Some(Upper { at: start, protocol: found.protocol, pseudo, gso_type: 4 })
        }
        _ => None,
    }
}

/// What is left to do for a frame: nothing, in most cases. Segments are cut so that frames have `most` bytes.
pub fn offload(frame: Span<'_>, most: usize) -> Offload {
    let mut head = [0; LOOKED];
    let head_len = frame.read(&mut head);
    find(&head[..head_len], frame.len(), most).unwrap_or_default()
}

fn find(head: &[u8], len: usize, most: usize) -> Option<Offload> {
    let found = upper(head, len)?;
    if found.protocol != Protocol::TCP && found.protocol != Protocol::UDP {
        return None;
    }
    let offset = found.protocol.checksum_at()?;
    let field = head.get(found.at + offset..found.at + offset + 2)?;
    if *field == [0, 0] || *field != found.pseudo.value().to_be_bytes() {
        return None;
    }
    let checksum = Offload::checksum(found.at as u16, offset as u16);
    if found.protocol == Protocol::UDP || len <= most {
        return Some(checksum);
    }
    let tcp = Tcp::of(&head[found.at..])?;
    let headers = found.at + tcp.header_len();
    let gso_size = most.checked_sub(headers).filter(|size| *size > 0)?;
    // A first segment with CWR: only that one has the flag.
    let ecn = if head[found.at + 13] & 0x80 != 0 { 0x80 } else { 0 };
    Some(Offload {
        gso_type: found.gso_type | ecn,
        hdr_len: headers as u16,
        gso_size: gso_size as u16,
        ..checksum
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::{Gso, Needs};
    use ringway_wire::{Ipv4, Ipv6};

    /// A TCP or UDP frame of `payload` bytes, whose checksum field has the sum of the pseudo header.
    fn frame(ipv6: bool, protocol: Protocol, payload: usize, flags: u8) -> Vec<u8> {
        let header = if protocol == Protocol::TCP { 20 } else { 8 };
        let len = header + payload;
        let mut bytes = vec![2; 12];
        let pseudo = if ipv6 {
            let ip = Ipv6 {
                payload_length: (len as u16).into(),
                next_header: protocol,
                source: 1.into(),
                destination: 2.into(),
                ..Ipv6::EMPTY
            };
            bytes.extend([0x86, 0xdd]);
            bytes.extend(ip.bytes());
            ip.pseudo_header(protocol, len as u32)
        } else {
            let ip = Ipv4 {
                total_length: ((20 + len) as u16).into(),
                protocol,
                source: 0x0a00_0001.into(),
                destination: 0x0a00_0002.into(),
                ..Ipv4::EMPTY
            };
            bytes.extend([8, 0]);
            bytes.extend(ip.bytes());
            ip.pseudo_header(len as u16)
        };
        let at = bytes.len();
        bytes.resize(at + len, 7);
        if protocol == Protocol::TCP {
            (bytes[at + 12], bytes[at + 13]) = (0x50, flags);
        }
        let field = at + protocol.checksum_at().unwrap();
        bytes[field..field + 2].copy_from_slice(&pseudo.value().to_be_bytes());
        bytes
    }

    #[test]
    fn an_unfinished_checksum_is_left_to_the_receiver_and_long_segments_are_cut() {
        for (ipv6, start) in [(false, 34), (true, 54)] {
            let short = frame(ipv6, Protocol::TCP, 100, 0x10);
            let found = offload(Span::of(&short), 1464);
            assert_eq!(found, Offload::checksum(start, 16));
            let udp = frame(ipv6, Protocol::UDP, 100, 0);
            assert_eq!(offload(Span::of(&udp), 1464), Offload::checksum(start, 6));
            let long = frame(ipv6, Protocol::TCP, 20_000, 0x90);
            let found = offload(Span::of(&long), 1464);
            let gso = if ipv6 { Gso::Tcp6 } else { Gso::Tcp4 };
            assert_eq!((found.gso(), found.has_ecn()), (Ok(Some(gso)), true));
            assert_eq!(usize::from(found.gso_size) + usize::from(start) + 20, 1464);
            assert!(found.check(long.len() as u32, Needs::ALL).is_ok());
        }
    }

    #[test]
    fn finished_and_foreign_frames_are_left_alone() {
        let nothing = |bytes: &[u8]| offload(Span::of(bytes), 1464) == Offload::default();
        for ipv6 in [false, true] {
            let mut done = frame(ipv6, Protocol::TCP, 100, 0x10);
            let field = if ipv6 { 70 } else { 50 };
            done[field] ^= 1;
            assert!(nothing(&done));
            let mut none = frame(ipv6, Protocol::UDP, 100, 0);
            let field = if ipv6 { 60 } else { 40 };
            (none[field], none[field + 1]) = (0, 0);
            assert!(nothing(&none));
            let whole = frame(ipv6, Protocol::TCP, 100, 0x10);
            for len in 0..whole.len() {
                assert!(nothing(&whole[..len]), "{len}: its packet is cut");
            }
        }
        let mut fragment = frame(false, Protocol::TCP, 100, 0x10);
        fragment[20] = 0x20;
        assert!(nothing(&fragment));
    }
}
