//! What flows need before their frames pass: neighbors that are known, or connections.

use super::ends::{Opening, station};
use super::seen::Seen;
use crate::click::frames::{Flow, KEPT, head};
use ringway_wire::tcp::Flags;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, MacAddress, Protocol, Tcp};
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};

/// The first bytes of a flow's frame, to this station or to the one of the destination.
pub fn frame(length: u16, flow: Flow, to: Option<MacAddress>) -> [u8; KEPT] {
    let [source, destination] = flow.addresses.map(|address| station(address.into()));
    let ethernet = Ethernet { destination: to.unwrap_or(destination), source, ethertype: EtherType::IPV4 };
    let mut frame = head(length, flow);
    frame[..Ethernet::LEN].copy_from_slice(ethernet.bytes());
    frame
}

/// Frames that pass when their next hops are known.
pub struct Once {
    frames: Vec<[u8; KEPT]>,
    passed: HashSet<([IpAddr; 2], [u16; 2])>,
}

impl Once {
    /// These frames; their addresses and ports pass unchanged.
    pub fn of(frames: Vec<[u8; KEPT]>) -> Once {
        Once { frames, passed: HashSet::new() }
    }
}

impl Opening for Once {
    fn count(&self) -> usize {
        self.frames.len()
    }

    fn is_open(&self, number: usize) -> bool {
        Seen::of(&self.frames[number]).is_some_and(|seen| self.passed.contains(&(seen.addresses, seen.ports)))
    }

    fn begin(&mut self, number: usize) -> Vec<u8> {
        self.frames[number].to_vec()
    }

    fn near(&mut self, _: &[u8]) -> Vec<Vec<u8>> {
        Vec::new()
    }

    fn far(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        self.passed.extend(Seen::of(frame).map(|seen| (seen.addresses, seen.ports)));
        Vec::new()
    }
}

/// TCP connections: SYN, SYN with ACK, ACK.
pub struct Connections {
    flows: Vec<Flow>,
    to: Option<MacAddress>,
    numbers: HashMap<(IpAddr, u16), usize>,
    open: Vec<bool>,
}

impl Connections {
    /// Connections of clients with these flows, by this station.
    pub fn of(flows: Vec<Flow>, to: Option<MacAddress>) -> Connections {
        let client = |flow: &Flow| (IpAddr::V4(flow.addresses[0]), flow.ports[0]);
        let numbers = flows.iter().enumerate().map(|(number, flow)| (client(flow), number)).collect();
        let open = vec![false; flows.len()];
        Connections { flows, to, numbers, open }
    }
}

impl Connections {
    /// The client's acknowledgment of the server's first segment.
    fn acknowledged(&mut self, seen: &Seen) -> Option<Vec<u8>> {
        let number = *self.numbers.get(&(seen.addresses[1], seen.ports[1]))?;
        self.open[number] = true;
        Some(frame(KEPT as u16, Flow { opens: false, ..self.flows[number] }, self.to).to_vec())
    }
}

const ACCEPTS: Flags = Flags::SYN.with(Flags::ACK);

impl Opening for Connections {
    fn count(&self) -> usize {
        self.flows.len()
    }

    fn is_open(&self, number: usize) -> bool {
        self.open[number]
    }

    fn begin(&mut self, number: usize) -> Vec<u8> {
        frame(KEPT as u16, Flow { opens: true, ..self.flows[number] }, self.to).to_vec()
    }

    fn near(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        segment(frame, ACCEPTS).and_then(|seen| self.acknowledged(&seen)).into_iter().collect()
    }

    fn far(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        segment(frame, Flags::SYN).and_then(|seen| accepted(&seen)).into_iter().collect()
    }
}

/// A valid segment with these flags.
fn segment(frame: &[u8], flags: Flags) -> Option<Seen> {
    Seen::of(frame).filter(|seen| seen.flags == flags && seen.is_sound && seen.is_whole)
}

/// The segment that accepts a connection.
fn accepted(seen: &Seen) -> Option<Vec<u8>> {
    let [destination, source]: [Ipv4Addr; 2] = [seen.v4(0), seen.v4(1)];
    let mut tcp = Tcp {
        source_port: seen.ports[1].into(),
        destination_port: seen.ports[0].into(),
        acknowledgment_number: seen.sequence.wrapping_add(1).into(),
        flags: ACCEPTS,
        window: 0x2000.into(),
        ..Tcp::EMPTY
    };
    let mut ip = Ipv4 {
        total_length: ((Ipv4::LEN + Tcp::LEN) as u16).into(),
        ttl: 64,
        protocol: Protocol::TCP,
        source: u32::from(source).into(),
        destination: u32::from(destination).into(),
        ..Ipv4::EMPTY
    };
    ip.fill_checksum(&[]);
    Tcp::fill_checksum(tcp.bytes_mut(), ip.pseudo_header(Tcp::LEN as u16))?;
    let [to, from] = [seen.stations[1], seen.stations[0]];
    let ethernet = Ethernet { destination: to, source: from, ethertype: EtherType::IPV4 };
    Some([ethernet.bytes(), ip.bytes(), tcp.bytes(), &[0; 6]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_open_when_it_is_accepted() {
        let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 1)];
        let flow = Flow { addresses, ports: [1000, 80], opens: false };
        let mut all = Connections::of(vec![flow], None);
        let syn = all.begin(0);
        let accepts = all.far(&syn).remove(0);
        let seen = Seen::of(&accepts).unwrap();
        assert_eq!((seen.v4(0), seen.v4(1), seen.ports), (addresses[1], addresses[0], [80, 1000]));
        assert!(seen.is_sound && seen.is_whole && !all.is_open(0));
        let ack = all.near(&accepts).remove(0);
        assert!(all.is_open(0));
        assert_eq!(Seen::of(&ack).unwrap().flags, Flags::ACK);
        assert!(all.far(&ack).is_empty() && all.near(&ack).is_empty());
    }
}
