//! The flow of a frame as a function's instances see it.

use crate::FlowHash;
use ringway_frame::Burst;
use ringway_wire::arp::Arp;
use ringway_wire::flow::Flow;
use ringway_wire::icmp::{Icmp, v4, v6};
use ringway_wire::{EtherType, Ethernet, Header, Protocol, ipv4, ipv6, vlan};

/// Bytes of a frame that are read for its key: two tags, IPv6 with extensions, ICMP and the headers that it quotes.
const READ: usize = 192;

/// The key of a frame's flow, equal for both directions. Frames that belong to a flow without being part of it have its
/// key: errors of ICMP have that of the flow that they quote. An answer of ARP or of neighbor discovery has the key of
/// the question, and echoes of ICMP are distinguished by their identifier.
#[inline]
pub fn flow_key(hash: FlowHash, burst: &Burst<'_>, index: usize) -> u64 {
    let Some(flow) = Flow::parse(burst.head(index)) else { return 0 };
    let is_plain = flow.ethertype != EtherType::ARP
        && !matches!(flow.protocol, Protocol::ICMP | Protocol::ICMPV6 | Protocol(0));
    hash.wide(&if is_plain { flow } else { related(burst, index).unwrap_or(flow) })
}

/// The flow of a frame that is not part of one with ports; `None` if it is that of its addresses.
#[cold]
fn related(burst: &Burst<'_>, index: usize) -> Option<Flow> {
    let mut bytes = [0; READ];
    let length = burst.read(index, 0, &mut bytes);
    let (frame, payload) = Ethernet::split(bytes.get(..length)?)?;
    let inner = vlan::untag(frame.ethertype, payload)?;
    match inner.ethertype {
        EtherType::ARP => {
            let arp = Arp::of(inner.payload)?;
            let mut flow = Flow { ethertype: EtherType::ARP, ..Flow::default() };
            flow.source.address[..4].copy_from_slice(&arp.sender_protocol.to_bytes());
            flow.destination.address[..4].copy_from_slice(&arp.target_protocol.to_bytes());
            Some(flow)
        }
        EtherType::IPV4 => {
            let packet = ipv4::Packet::parse(inner.payload)?;
            let is_icmp = packet.header.protocol == Protocol::ICMP && !packet.header.is_fragment();
            let message = is_icmp.then_some(packet.payload)?;
            match Icmp::of(message)?.kind {
                kind if v4::is_error(kind) => Flow::of_ip(message.get(8..)?),
                v4::ECHO | v4::ECHO_REPLY => identified(inner.payload, message),
                _ => None,
            }
        }
        EtherType::IPV6 => {
            let packet = ipv6::Packet::parse(inner.payload)?;
            let upper =
                packet.upper().filter(|upper| upper.protocol == Protocol::ICMPV6 && !upper.fragment)?;
            let message = upper.payload;
            let target = || Some(<[u8; 16]>::try_from(message.get(8..24)?).ok());
            let (source, destination) = (packet.header.source, packet.header.destination);
            match Icmp::of(message)?.kind {
                v6::UNREACHABLE..v6::ECHO => Flow::of_ip(message.get(8..)?),
                v6::ECHO | v6::ECHO_REPLY => identified(inner.payload, message),
                v6::NEIGHBOR_SOLICITATION => Some(neighbors(source.to_bytes(), target()??)),
                v6::NEIGHBOR_ADVERTISEMENT => Some(neighbors(destination.to_bytes(), target()??)),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The flow of an echo, with its identifier in place of ports.
fn identified(packet: &[u8], message: &[u8]) -> Option<Flow> {
    let (mut flow, identifier) = (Flow::of_ip(packet)?, Icmp::of(message)?.identifier.get());
    (flow.source.port, flow.destination.port) = (identifier, identifier);
    Some(flow)
}

/// The flow of a question about `target`, and of its answer.
fn neighbors(asks: [u8; 16], target: [u8; 16]) -> Flow {
    let mut flow = Flow { ethertype: EtherType::IPV6, protocol: Protocol::ICMPV6, ..Flow::default() };
    (flow.source.address, flow.destination.address) = (asks, target);
    flow
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::{Offload, Storage};
    use ringway_mem::Span;

    fn key(frame: &[u8]) -> u64 {
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(frame)).unwrap();
        flow_key(FlowHash::new(77), &burst, 0)
    }

    /// An IPv4 frame.
    fn ip4(protocol: u8, [source, destination]: [u8; 2], payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 20 + payload.len() as u8, 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend([10, 0, 0, source, 10, 0, 0, destination]);
        frame.extend(payload);
        frame.resize(frame.len().max(60), 0);
        frame
    }

    fn udp(ends: [u8; 2], ports: [u8; 2]) -> Vec<u8> {
        ip4(17, ends, &[0, ports[0], 0, ports[1], 0, 8, 0, 0])
    }

    #[test]
    fn an_error_has_the_key_of_the_flow_that_it_quotes() {
        let quoted = udp([1, 2], [7, 9]);
        for kind in [3, 11] {
            let mut message = vec![kind, 0, 0, 0, 0, 0, 0, 0];
            message.extend(&quoted[14..42]);
            let error = ip4(1, [200, 1], &message);
            assert_eq!(key(&error), key(&quoted));
            assert_eq!(key(&error), key(&udp([2, 1], [9, 7])), "both directions");
            // Attack: a message that ends within the quoted header.
            assert_ne!(key(&ip4(1, [200, 1], &message[..20])), key(&quoted));
        }
        let mut outer = [0; 14];
        (outer[12], outer[13]) = (0x86, 0xdd);
        let packet = |source: u8, destination: u8, next: u8, payload: &[u8]| {
            let mut bytes = vec![0x60, 0, 0, 0, 0, payload.len() as u8, next, 64];
            for end in [source, destination] {
                bytes.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
            }
            bytes.extend(payload);
            bytes
        };
        let inner = packet(1, 2, 6, &[0, 80, 1, 1, 0, 0, 0, 0]);
        let quoted = [&outer[..], &inner].concat();
        let error = packet(9, 1, 58, &[&[1, 0, 0, 0, 0, 0, 0, 0][..], &inner].concat());
        assert_eq!(key(&[&outer[..], &error].concat()), key(&quoted));
    }

    #[test]
    fn answers_of_neighbours_have_the_key_of_the_question() {
        let arp = |operation: u8, from: u8, to: u8| {
            let mut frame = vec![from; 12];
            frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation, 2, 2, 2, 2, 2, from, 10, 0, 0, from]);
            frame.extend([2, 2, 2, 2, 2, to, 10, 0, 0, to]);
            frame.resize(60, 0);
            frame
        };
        assert_eq!(key(&arp(1, 1, 2)), key(&arp(2, 2, 1)));
        assert_ne!(key(&arp(1, 1, 2)), key(&arp(1, 1, 3)));
        let neighbor = |kind: u8, source: u8, destination: u8, target: u8| {
            let mut frame = vec![2; 12];
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, 58, 255]);
            for end in [source, destination] {
                frame.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, end]);
            }
            frame.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
            frame.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, target]);
            frame
        };
        assert_eq!(key(&neighbor(135, 1, 77, 2)), key(&neighbor(136, 2, 1, 2)));
        assert_ne!(key(&neighbor(135, 1, 77, 2)), key(&neighbor(135, 1, 77, 3)));
    }

    #[test]
    fn echoes_differ_by_their_identifier() {
        let echo = |kind, ends, identifier| ip4(1, ends, &[kind, 0, 0, 0, 0, identifier, 0, 1]);
        assert_eq!(key(&echo(8, [1, 2], 5)), key(&echo(0, [2, 1], 5)));
        assert_ne!(key(&echo(8, [1, 2], 5)), key(&echo(8, [1, 2], 6)));
    }
}
