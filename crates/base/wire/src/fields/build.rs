//! The frame of a description.

use super::{Field, Values};
use crate::Sum;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

pub(super) const IPV4: u16 = 0x0800;
pub(super) const ARP: u16 = 0x0806;
pub(super) const IPV6: u16 = 0x86dd;
pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMP6: u8 = 58;

/// Length of a frame without `len`, without the frame check sequence.
const SHORTEST: usize = 60;
/// Time to live without `nw_ttl`.
const TTL: u128 = 64;
/// Neighbor solicitation and advertisement (RFC 4861), which have a target.
const NEIGHBOR: [u8; 2] = [135, 136];

/// The low bytes of a field, 0 if it is not given.
fn bytes<const N: usize>(values: &Values, field: Field) -> [u8; N] {
    let all = values.get(field).unwrap_or(0).to_be_bytes();
    let mut low = [0; N];
    low.copy_from_slice(&all[all.len() - N..]);
    low
}

/// Makes the frame.
pub(super) fn frame(values: &Values) -> Vec<u8> {
    let mut frame = Vec::with_capacity(SHORTEST);
    frame.extend(bytes::<6>(values, Field::DlDst));
    frame.extend(bytes::<6>(values, Field::DlSrc));
    if values.get(Field::Vlan).or(values.get(Field::Priority)).is_some() {
        let priority = values.get(Field::Priority).unwrap_or(0) as u16;
        let tag = priority << 13 | values.get(Field::Vlan).unwrap_or(0) as u16;
        frame.extend(0x8100_u16.to_be_bytes());
        frame.extend(tag.to_be_bytes());
    }
    let ethertype = bytes::<2>(values, Field::DlType);
    frame.extend(ethertype);
    let length = values.get(Field::Length).and_then(|length| usize::try_from(length).ok());
    // Bytes behind the headers, if the length is given.
    let room = length.map(|length| length.saturating_sub(frame.len()));
    match u16::from_be_bytes(ethertype) {
        IPV4 => ipv4(values, room, &mut frame),
        IPV6 => ipv6(values, room, &mut frame),
        ARP => arp(values, &mut frame),
        _ => {}
    }
    frame.resize(length.unwrap_or(frame.len().max(SHORTEST)), 0);
    frame
}

fn arp(values: &Values, frame: &mut Vec<u8>) {
    let or = |first: Field, second: Field| if values.get(first).is_some() { first } else { second };
    frame.extend([0, 1, 8, 0, 6, 4]);
    frame.extend((values.get(Field::ArpOp).unwrap_or(1) as u16).to_be_bytes());
    frame.extend(bytes::<6>(values, or(Field::ArpSha, Field::DlSrc)));
    frame.extend(bytes::<4>(values, or(Field::ArpSpa, Field::NwSrc)));
    frame.extend(bytes::<6>(values, Field::ArpTha));
    frame.extend(bytes::<4>(values, or(Field::ArpTpa, Field::NwDst)));
}

fn ipv4(values: &Values, room: Option<usize>, frame: &mut Vec<u8>) {
    const HEADER: usize = 20;
    let protocol = values.get(Field::Protocol).unwrap_or(0) as u8;
    let upper = upper(values, protocol, room.map(|room| room.saturating_sub(HEADER)), 0xffff - HEADER);
    let (source, destination) = (bytes::<4>(values, Field::NwSrc), bytes::<4>(values, Field::NwDst));
    let upper = summed(upper, protocol, |len| {
        Sum::pseudo_v4(Ipv4Addr::from(source), Ipv4Addr::from(destination), protocol, len as u16)
    });
    let [high, low] = ((HEADER + upper.len()) as u16).to_be_bytes();
    let [tos] = bytes::<1>(values, Field::Tos);
    let ttl = values.get(Field::Ttl).unwrap_or(TTL) as u8;
    let mut header = [0; HEADER];
    header[..10].copy_from_slice(&[0x45, tos, high, low, 0, 0, 0, 0, ttl, protocol]);
    header[12..16].copy_from_slice(&source);
    header[16..].copy_from_slice(&destination);
    let mut sum = Sum::new();
    sum.add(&header);
    header[10..12].copy_from_slice(&sum.finish().to_be_bytes());
    frame.extend(header);
    frame.extend(upper);
}

fn ipv6(values: &Values, room: Option<usize>, frame: &mut Vec<u8>) {
    const HEADER: usize = 40;
    let protocol = values.get(Field::Protocol).map_or(59, |protocol| protocol as u8);
    let upper = upper(values, protocol, room.map(|room| room.saturating_sub(HEADER)), 0xffff);
    let (source, destination) = (bytes::<16>(values, Field::Ip6Src), bytes::<16>(values, Field::Ip6Dst));
    let upper = summed(upper, protocol, |len| {
        Sum::pseudo_v6(Ipv6Addr::from(source), Ipv6Addr::from(destination), protocol, len as u32)
    });
    let [tos] = bytes::<1>(values, Field::Tos);
    frame.extend((6 << 28 | u32::from(tos) << 20).to_be_bytes());
    frame.extend((upper.len() as u16).to_be_bytes());
    frame.extend([protocol, values.get(Field::Ttl).unwrap_or(TTL) as u8]);
    frame.extend(source);
    frame.extend(destination);
    frame.extend(upper);
}

/// The header of the protocol and its payload, without a checksum: `room` bytes, at most `most`.
fn upper(values: &Values, protocol: u8, room: Option<usize>, most: usize) -> Vec<u8> {
    let (source, destination) = (bytes::<2>(values, Field::TpSrc), bytes::<2>(values, Field::TpDst));
    let mut upper = Vec::new();
    match protocol {
        TCP => {
            upper.extend([source, destination].concat());
            upper.extend([0; 8]);
            upper.extend((5 << 12 | values.get(Field::TcpFlags).unwrap_or(0) as u16).to_be_bytes());
            upper.extend([0; 6]);
        }
        UDP => {
            upper.extend([source, destination].concat());
            upper.extend([0; 4]);
        }
        ICMP => {
            // An echo request, unless the description says another type.
            upper.extend([
                values.get(Field::IcmpType).unwrap_or(8) as u8,
                bytes::<1>(values, Field::IcmpCode)[0],
            ]);
            upper.extend([0; 6]);
        }
        ICMP6 => {
            let default = if values.get(Field::NdTarget).is_some() { u128::from(NEIGHBOR[0]) } else { 128 };
            let kind = values.get(Field::Icmp6Type).unwrap_or(default) as u8;
            upper.extend([kind, bytes::<1>(values, Field::Icmp6Code)[0]]);
            upper.extend([0; 6]);
            if NEIGHBOR.contains(&kind) {
                upper.extend(bytes::<16>(values, Field::NdTarget));
            }
        }
        _ => {}
    }
    upper.resize(room.unwrap_or(0).clamp(upper.len(), most), 0);
    if protocol == UDP {
        let len = (upper.len() as u16).to_be_bytes();
        upper[4..6].copy_from_slice(&len);
    }
    upper
}

/// Fills the checksum of the protocol. `pseudo` is the sum of the pseudo header for a length.
fn summed(mut upper: Vec<u8>, protocol: u8, pseudo: impl Fn(usize) -> Sum) -> Vec<u8> {
    let (at, mut sum) = match protocol {
        TCP => (16, pseudo(upper.len())),
        UDP => (6, pseudo(upper.len())),
        ICMP6 => (2, pseudo(upper.len())),
        ICMP => (2, Sum::new()),
        _ => return upper,
    };
    sum.add(&upper);
    let checksum = if protocol == UDP { sum.finish_nonzero() } else { sum.finish() };
    upper[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    upper
}
