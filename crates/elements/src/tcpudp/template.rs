//! Frames that differ in their ports only.
use crate::packet::{fill_ip_checksum, put, u16_at};
use alloc::vec;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use ringway_click::arg::Args;
use ringway_click::{Context, HEADROOM, Packet};
use ringway_wire::MacAddress;
use ringway_wire::checksum::{Sum, update_u32};

/// Bytes of a frame at least, and at most.
const LEAST: u32 = 60;
const MOST: u32 = 65_535;
/// Where the transport header begins.
const TRANSPORT: usize = 34;
const UDP: u8 = 17;
const TTL: u8 = 250;

/// Where frames come from and go to, and how long they are.
#[derive(Debug)]
pub(super) struct Ends {
    pub(super) length: u32,
    source_ether: MacAddress,
    source: Ipv4Addr,
    pub(super) source_port: u16,
    destination_ether: MacAddress,
    destination: Ipv4Addr,
    pub(super) destination_port: u16,
}

impl Default for Ends {
    fn default() -> Self {
        Self {
            length: LEAST,
            source_ether: MacAddress::default(),
            source: Ipv4Addr::UNSPECIFIED,
            source_port: 0,
            destination_ether: MacAddress::default(),
            destination: Ipv4Addr::UNSPECIFIED,
            destination_port: 0,
        }
    }
}

impl Ends {
    /// Reads LENGTH, addresses, and ports if there are any.
    pub(super) fn read_arguments(&mut self, args: &mut Args, ports: bool) {
        args.read_mp("LENGTH", &mut self.length);
        args.read_mp("SRCETH", &mut self.source_ether);
        args.read_mp("SRCIP", &mut self.source);
        if ports {
            args.read_mp("SPORT", &mut self.source_port);
        }
        args.read_mp("DSTETH", &mut self.destination_ether);
        args.read_mp("DSTIP", &mut self.destination);
        if ports {
            args.read_mp("DPORT", &mut self.destination_port);
        }
    }

    /// Keeps the length within bounds.
    pub(super) fn bound(&mut self, cx: &mut Context<'_>) {
        if self.length < LEAST {
            cx.chatter(format_args!("warning: packet length < {LEAST}, defaulting to {LEAST}"));
        }
        // Attack: a configuration that asks for frames larger than any buffer.
        self.length = self.length.clamp(LEAST, MOST);
    }

    /// A frame whose ports are 0; `header` is that of the transport layer, its checksum at `sum`, 0 if there is to be
    /// none.
    pub(super) fn template(&self, protocol: u8, header: &[u8], sum: Option<usize>) -> Template {
        let mut frame = vec![0; self.length as usize];
        put(&mut frame, 0, self.destination_ether.0);
        put(&mut frame, 6, self.source_ether.0);
        put(&mut frame, 12, [8, 0]);
        let (_, packet) = frame.split_at_mut(14);
        let length = packet.len() as u16;
        (packet[0], packet[8], packet[9]) = (0x45, TTL, protocol);
        put(packet, 2, length.to_be_bytes());
        put(packet, 12, self.source.octets());
        put(packet, 16, self.destination.octets());
        let (ip, segment) = packet.split_at_mut(20);
        fill_ip_checksum(ip);
        segment[..header.len()].copy_from_slice(header);
        if protocol == UDP {
            put(segment, 4, (length - 20).to_be_bytes());
        }
        if let Some(at) = sum {
            let mut total = Sum::pseudo_v4(self.source, self.destination, protocol, length - 20);
            total.add(segment);
            put(segment, at, total.finish_nonzero().to_be_bytes());
        }
        Template { frame, sum: sum.map(|at| TRANSPORT + at), destination: self.destination }
    }
}

/// A frame without ports.
#[derive(Debug)]
pub(super) struct Template {
    frame: Vec<u8>,
    /// Where its checksum is, if it has one.
    sum: Option<usize>,
    destination: Ipv4Addr,
}

impl Default for Template {
    fn default() -> Self {
        Self { frame: Vec::new(), sum: None, destination: Ipv4Addr::UNSPECIFIED }
    }
}

impl Template {
    /// A packet of it with ports.
    pub(super) fn packet(&self, ports: [u16; 2], cx: &mut Context<'_>) -> Option<Packet> {
        let mut packet = cx.make_packet(HEADROOM, self.frame.len(), 0)?;
        let data = packet.data_mut();
        data.copy_from_slice(&self.frame);
        put(data, TRANSPORT, ports[0].to_be_bytes());
        put(data, TRANSPORT + 2, ports[1].to_be_bytes());
        if let Some(at) = self.sum {
            let new = u32::from(ports[0]) << 16 | u32::from(ports[1]);
            let sum = match update_u32(u16_at(data, at), 0, new) {
                0 => u16::MAX,
                sum => sum,
            };
            put(data, at, sum.to_be_bytes());
        }
        packet.set_mac_header(0);
        packet.set_network_header(14, 20);
        packet.notes_mut().set_dst_ip(self.destination.octets());
        packet.notes_mut().timestamp = cx.packet_time();
        Some(packet)
    }
}
