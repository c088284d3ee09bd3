//! Frames whose checksum or segmentation their sender leaves to the host, as a guest's driver does.

use ringway_frame::Offload;
use ringway_wire::{EtherType, Ethernet, Header, Sum, vlan};
use std::net::{Ipv4Addr, Ipv6Addr};

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Values of `gso_type` (virtio 1.3, 5.1.6).
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;

/// Why a frame can't have offloads.
const NEITHER: &str = "the frame is neither TCP nor UDP in IP, so that it has no offloads; leave \
                       checksum offload and GSO size out";

/// The offload header of a frame that leaves its checksum to the host, or its segmentation, with so many bytes of
/// payload a segment, too. The checksum field then has the sum of the pseudo header.
pub fn leave(frame: &mut [u8], (checksum, gso_size): (bool, Option<u16>)) -> Result<[u8; 10], &'static str> {
    if !checksum && gso_size.is_none() {
        return Ok([0; 10]);
    }
    if gso_size == Some(0) {
        return Err("the GSO size is 0; a segment has a byte of payload at least");
    }
    let (is_v4, protocol, start, pseudo) = transport(frame).ok_or(NEITHER)?;
    let (offset, gso_type) = match (protocol, is_v4) {
        (TCP, true) => (16, GSO_TCPV4),
        (TCP, false) => (16, GSO_TCPV6),
        (UDP, _) => (6, GSO_UDP_L4),
        _ => return Err(NEITHER),
    };
    let field =
        frame.get_mut(start + offset..start + offset + 2).ok_or("the frame ends within its header")?;
    field.copy_from_slice(&pseudo.value().to_be_bytes());
    let start = u16::try_from(start).map_err(|_| NEITHER)?;
    let mut offload = Offload::checksum(start, offset as u16);
    if let Some(size) = gso_size {
        (offload.gso_type, offload.gso_size) = (gso_type, size);
    }
    Ok(offload.to_bytes())
}

/// Whether the frame is IPv4, its protocol, where the transport's header begins, and the sum of the pseudo header.
fn transport(frame: &[u8]) -> Option<(bool, u8, usize, Sum)> {
    let (ethernet, payload) = Ethernet::split(frame)?;
    let inner = vlan::untag(ethernet.ethertype, payload)?;
    let at = frame.len() - inner.payload.len();
    let packet = inner.payload;
    let address = |from: usize| packet.get(from..from + 16)?.try_into().ok().map(u128::from_be_bytes);
    match inner.ethertype {
        EtherType::IPV4 => {
            let header = 4 * usize::from(packet.first()? & 15);
            let word = |from: usize| Some(u32::from_be_bytes(packet.get(from..from + 4)?.try_into().ok()?));
            let (source, destination) = (Ipv4Addr::from(word(12)?), Ipv4Addr::from(word(16)?));
            let len = u16::from_be_bytes([*packet.get(2)?, *packet.get(3)?]);
            let len = len.saturating_sub(header as u16);
            let protocol = *packet.get(9)?;
            Some((true, protocol, at + header, Sum::pseudo_v4(source, destination, protocol, len)))
        }
        EtherType::IPV6 => {
            let len = u32::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
            let protocol = *packet.get(6)?;
            let (source, destination) = (Ipv6Addr::from(address(8)?), Ipv6Addr::from(address(24)?));
            Some((false, protocol, at + 40, Sum::pseudo_v6(source, destination, protocol, len)))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_wire::fields::Described;

    #[test]
    fn offloads_are_those_of_the_protocol() {
        for (fields, gso_type, start) in [
            ("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,len=3000", GSO_TCPV4, 34),
            ("tcp6,ipv6_src=fd00::1,ipv6_dst=fd00::2,len=3000", GSO_TCPV6, 54),
            ("dl_vlan=5,udp,nw_dst=10.0.0.2,len=3000", GSO_UDP_L4, 38),
        ] {
            let mut frame = Described::parse(fields).unwrap().frame;
            let offload = Offload::from_bytes(&leave(&mut frame, (false, Some(1460))).unwrap());
            assert_eq!((offload.gso_type, offload.gso_size, offload.csum_start), (gso_type, 1460, start));
            // Summing all from there on completes the checksum.
            let mut sum = Sum::new();
            sum.add(&frame[usize::from(start)..]);
            let field = usize::from(start + offload.csum_offset);
            frame[field..field + 2].copy_from_slice(&sum.finish().to_be_bytes());
            let whole = Described::parse(fields).unwrap().frame;
            assert_eq!(frame, whole, "{fields}");
        }
        assert_eq!(leave(&mut [0; 60], (true, None)), Err(NEITHER));
        assert!(leave(&mut [0; 60], (false, None)) == Ok([0; 10]));
        let mut cut = Described::parse("tcp,len=40").unwrap().frame;
        assert_eq!(leave(&mut cut, (true, None)), Err("the frame ends within its header"));
    }
}
