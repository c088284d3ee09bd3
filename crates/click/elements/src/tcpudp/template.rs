//! Frames that differ in their ports only.
use core::net::Ipv4Addr;
use ringway_click::HEADROOM;
use ringway_click::prelude::*;
use ringway_wire::checksum::update_u32;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, MacAddress, Protocol, Tcp, U16, Udp};

/// Minimum and maximum length of a frame.
const LEAST: u32 = 60;
const MOST: u32 = 65_535;
/// Offset of the transport header.
const TRANSPORT: usize = Ethernet::LEN + Ipv4::LEN;
const TTL: u8 = 250;

/// A TCP segment in an IPv4 packet, without options; lengths, checksums and annotations are filled.
pub(crate) fn segment_packet(
    mut ip: Ipv4,
    mut tcp: Tcp,
    payload: &[u8],
    cx: &mut Context<'_>,
) -> Option<Packet> {
    let length = (Tcp::LEN + payload.len()) as u16;
    ip.total_length = (Ipv4::LEN as u16 + length).into();
    ip.protocol = Protocol::TCP;
    ip.fill_checksum(&[]);
    tcp.checksum = U16::ZERO;
    let mut sum = ip.pseudo_header(length);
    sum.add(tcp.bytes());
    sum.add(payload);
    tcp.checksum = sum.finish().into();
    let mut packet = cx.packet(&[ip.bytes(), tcp.bytes(), payload].concat())?;
    packet.set_network_header(0, Ipv4::LEN);
    packet.notes_mut().set_dst_ip(ip.destination.get().to_be_bytes());
    Some(packet)
}

/// Addresses, ports and length of frames.
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

    /// Clamps the length to the allowed range.
    pub(super) fn bound(&mut self, cx: &mut Context<'_>) {
        if self.length < LEAST {
            cx.chatter(format_args!("warning: packet length < {LEAST}, defaulting to {LEAST}"));
        }
        // Attack: a configuration that asks for frames larger than any buffer.
        self.length = self.length.clamp(LEAST, MOST);
    }

    /// A frame with ports 0; `header` is the transport header, whose checksum is only computed if `summed`.
    pub(super) fn template(&self, protocol: Protocol, header: &impl Header, summed: bool) -> Template {
        let length = self.length as u16 - Ethernet::LEN as u16;
        let ethernet = Ethernet {
            destination: self.destination_ether,
            source: self.source_ether,
            ethertype: EtherType::IPV4,
        };
        let mut ip = Ipv4 {
            total_length: length.into(),
            ttl: TTL,
            protocol,
            source: self.source.to_bits().into(),
            destination: self.destination.to_bits().into(),
            ..Ipv4::EMPTY
        };
        ip.fill_checksum(&[]);
        let mut frame = [ethernet.bytes(), ip.bytes(), header.bytes()].concat();
        frame.resize(self.length as usize, 0);
        let segment = &mut frame[TRANSPORT..];
        if let (Protocol::UDP, Some(udp)) = (protocol, Udp::of_mut(segment)) {
            udp.length.set(length - Ipv4::LEN as u16);
        }
        let sum = protocol.checksum_at().filter(|_| summed);
        if let Some(at) = sum {
            let mut total = ip.pseudo_header(length - Ipv4::LEN as u16);
            total.add(segment);
            segment[at..at + 2].copy_from_slice(&total.finish_nonzero().to_be_bytes());
        }
        Template { frame, sum: sum.map(|at| TRANSPORT + at), destination: self.destination }
    }
}

/// A frame whose ports are not set yet.
#[derive(Debug)]
pub(super) struct Template {
    frame: Vec<u8>,
    /// Offset of the transport checksum, if it is used.
    sum: Option<usize>,
    destination: Ipv4Addr,
}

impl Default for Template {
    fn default() -> Self {
        Self { frame: Vec::new(), sum: None, destination: Ipv4Addr::UNSPECIFIED }
    }
}

impl Template {
    /// A packet with a copy of the frame and with these ports.
    pub(super) fn packet(&self, ports: [u16; 2], cx: &mut Context<'_>) -> Option<Packet> {
        let mut packet = cx.make_packet(HEADROOM, self.frame.len(), 0)?;
        let data = packet.data_mut();
        data.copy_from_slice(&self.frame);
        if let Some(place) = data.get_mut(TRANSPORT..).and_then(<[U16; 2]>::of_mut) {
            *place = ports.map(U16::new);
        }
        if let Some(checksum) = self.sum.and_then(|at| U16::of_mut(data.get_mut(at..)?)) {
            let new = u32::from(ports[0]) << 16 | u32::from(ports[1]);
            checksum.set(match update_u32(checksum.get(), 0, new) {
                0 => u16::MAX,
                sum => sum,
            });
        }
        packet.set_mac_header(0);
        packet.set_network_header(Ethernet::LEN as isize, Ipv4::LEN);
        packet.notes_mut().set_dst_ip(self.destination.octets());
        packet.set_timestamp(cx.packet_time());
        Some(packet)
    }
}
