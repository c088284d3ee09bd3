//! The fields of a dump, read from a packet.
use super::field::{Field, Value};
use core::fmt::Write;
use core::mem::offset_of;
use ringway_click::prelude::*;
use ringway_wire::icmp::v4;
use ringway_wire::ipv4::{DONT_FRAGMENT, FRAGMENT_OFFSET, MORE_FRAGMENTS};
use ringway_wire::{Ethernet, Header as _, Icmp, Ipv4, Protocol, Tcp, Udp};

/// ICMP types that have an identifier and a sequence number.
pub(super) const SEQUENCED: [u8; 6] =
    [v4::ECHO_REPLY, v4::ECHO, v4::TIMESTAMP, v4::TIMESTAMP_REPLY, v4::INFORMATION, v4::INFORMATION_REPLY];

/// The header that contains a field, for messages about packets without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    Ip,
    Ports,
    Of(Protocol),
}

impl Header {
    fn name(self) -> &'static str {
        match self {
            Self::Of(Protocol::TCP) => "TCP",
            Self::Of(Protocol::UDP) => "UDP",
            Self::Of(Protocol::ICMP) => "ICMP",
            _ => "TCP/UDP",
        }
    }
}

/// A packet's headers, as far as they are valid.
#[derive(Debug)]
pub(super) struct View<'a> {
    packet: &'a Packet,
    /// From the IP header to the end of the IP packet; `None` without a valid header.
    ip: Option<&'a [u8]>,
    /// From the network header on, without padding; empty without a network header.
    network: &'a [u8],
    /// Bytes from the transport header on, without padding.
    transport: &'a [u8],
    /// Whether the TCP header is to be ignored.
    bad_tcp: bool,
    /// Number of bytes after the IP packet.
    padding: usize,
    /// Number of bytes that were not captured.
    pub(super) extra: u32,
    /// Description of the packet's first error.
    pub(super) bad: Option<String>,
    with_extra: bool,
}

fn protocol(ip: &[u8]) -> Option<Protocol> {
    ip.get(offset_of!(Ipv4, protocol)).copied().map(Protocol)
}

/// The length of an IP packet according to its header.
fn total_length(ip: &[u8]) -> usize {
    Ipv4::padded(ip).total_length.get().into()
}

impl<'a> View<'a> {
    /// Parses a packet. `careful`: reports a packet shorter than its header's length. `with_extra`: lengths include
    /// bytes that were not captured.
    pub(super) fn new(packet: &'a Packet, careful: bool, with_extra: bool) -> Self {
        let network = packet.network_data().unwrap_or_default();
        let mut view = Self {
            packet,
            ip: None,
            network,
            transport: packet.transport_data().unwrap_or_default(),
            bad_tcp: false,
            padding: 0,
            extra: packet.notes().u32(Annotations::EXTRA_LENGTH),
            bad: None,
            with_extra,
        };
        if packet.network_header().is_some() {
            view.check_ip(careful);
        }
        if let Some(ip) = view.ip {
            view.check_tcp(ip);
            let full = view.network.len() as u64 + u64::from(view.extra);
            let most = u64::from(u16::MAX);
            view.extra =
                if total_length(ip) == usize::from(u16::MAX) { full.saturating_sub(most) as u32 } else { 0 };
        }
        view
    }

    fn say(&mut self, text: core::fmt::Arguments<'_>) {
        if self.bad.is_none() {
            let mut line = String::from("!bad ");
            let _ = line.write_fmt(text);
            self.bad = Some(line);
        }
    }

    fn check_ip(&mut self, careful: bool) {
        let network = self.network;
        if network.len() < offset_of!(Ipv4, identification) {
            return self.say(format_args!("truncated IP header"));
        }
        let ip = Ipv4::padded(network);
        let (length, header) = (usize::from(ip.total_length.get()), ip.header_len());
        if ip.version() != 4 {
            return self.say(format_args!("IP version {}", ip.version()));
        }
        if header < Ipv4::LEN {
            return self.say(format_args!("IP header length {}", header / 4));
        }
        if length < header {
            return self.say(format_args!("IP length {length}"));
        }
        if network.len() > length {
            self.padding = network.len() - length;
            self.extra = self.extra.saturating_add(self.padding as u32);
            self.network = &network[..length];
            let transport = self.transport.len().saturating_sub(self.padding);
            self.transport = &self.transport[..transport];
        } else if careful && network.len() as u64 + u64::from(self.extra) < length as u64 {
            let missing = length as u64 - network.len() as u64 - u64::from(self.extra);
            self.say(format_args!("truncated IP missing {missing}"));
        }
        self.ip = Some(self.network);
    }

    fn check_tcp(&mut self, ip: &[u8]) {
        let length = self.header(ip, Protocol::TCP).and_then(Tcp::header_len_of);
        if let Some(length) = length.filter(|length| *length < Tcp::LEN) {
            self.bad_tcp = true;
            self.say(format_args!("TCP header length {}", length / 4));
        }
    }

    fn first_fragment(ip: &[u8]) -> bool {
        ip.len() >= offset_of!(Ipv4, ttl) && !Ipv4::padded(ip).is_later_fragment()
    }

    /// The transport header, if it is of this protocol and present.
    fn header(&self, ip: &[u8], wanted: Protocol) -> Option<&'a [u8]> {
        let own = protocol(ip) == Some(wanted) && Self::first_fragment(ip);
        (own && ip.len() > Ipv4::padded(ip).header_len() && self.packet.transport_header().is_some())
            .then_some(self.transport)
    }

    /// Records why a field that ends `length` bytes into a header is missing.
    fn missing(&mut self, header: Header, length: usize) {
        if self.bad.is_some() {
            return;
        }
        let Some(ip) = self.ip else { return self.say(format_args!("no IP header")) };
        let protocol = protocol(ip);
        let name = header.name();
        match header {
            Header::Ip => self.say(format_args!("truncated IP header capture")),
            // A packet of another protocol is not malformed.
            Header::Of(wanted) if protocol.is_some_and(|own| own != wanted) => {}
            Header::Ports if protocol.is_some_and(|own| own != Protocol::TCP && own != Protocol::UDP) => {}
            _ if !Self::first_fragment(ip) => self.say(format_args!("fragmented {name} header")),
            _ if self.transport.len() as u64
                + u64::from(self.packet.notes().u32(Annotations::EXTRA_LENGTH))
                >= length as u64 =>
            {
                self.say(format_args!("truncated {name} header capture"));
            }
            _ => self.say(format_args!("truncated {name} header")),
        }
    }

    /// The value of a field; `None` if the packet lacks the field, in which case an error in the packet is recorded.
    pub(super) fn value(&mut self, field: Field) -> Option<Value<'a>> {
        if let Some(value) = self.noted(field) {
            return Some(Value::Number(value));
        }
        match field {
            Field::EtherSource | Field::EtherDestination | Field::EtherType => self.link(field),
            Field::IpLength | Field::CaptureLength => Some(Value::Number(self.length(field))),
            Field::PayloadLength => Some(Value::Number(self.payload_length())),
            Field::Payload | Field::PayloadMd5 | Field::PayloadMd5Hex => self.payload().map(Value::Bytes),
            Field::IpOptions => self.ip_options().map(Value::Bytes),
            Field::TcpOptions | Field::TcpOtherOptions | Field::TcpSack => {
                self.tcp_options().map(Value::Bytes)
            }
            _ => self.number(field).map(Value::Number),
        }
    }

    fn noted(&self, field: Field) -> Option<u64> {
        let (notes, time) = (self.packet.notes(), self.packet.timestamp());
        Some(match field {
            Field::Timestamp | Field::NanoTimestamp => time,
            Field::Seconds => (time as i64).div_euclid(1_000_000_000) as u32 as u64,
            Field::Microseconds => (time as i64).rem_euclid(1_000_000_000) as u64 / 1000,
            Field::AllMicroseconds => (time as i64).div_euclid(1000) as u64,
            Field::FirstTimestamp | Field::FirstNanoTimestamp => notes.u64(Annotations::FIRST_TIMESTAMP),
            Field::Count => 1 + u64::from(notes.u32(Annotations::EXTRA_PACKETS)),
            Field::Link | Field::Paint | Field::Direction => notes.paint().into(),
            Field::Aggregate => notes.u32(Annotations::AGGREGATE).into(),
            Field::WireLength => self.packet.len() as u64,
            _ => return None,
        })
    }

    fn link(&mut self, field: Field) -> Option<Value<'a>> {
        let before_network = self.packet.network_header().is_none_or(|at| at > 0);
        let at = self.packet.mac_header().or(before_network.then_some(0));
        let end = self.packet.network_header().unwrap_or(self.packet.len() as isize);
        let (buffer, range) = self.packet.buffer();
        let header = at.filter(|at| at + Ethernet::LEN as isize == end).and_then(|at| {
            let begin = range.start.checked_add_signed(at)?;
            Ethernet::of(buffer.get(begin..)?)
        });
        let Some(header) = header else {
            self.say(format_args!("Ethernet header"));
            return None;
        };
        Some(match field {
            Field::EtherSource => Value::Bytes(&header.source.0),
            Field::EtherDestination => Value::Bytes(&header.destination.0),
            _ => Value::Number(header.ethertype.get().into()),
        })
    }

    fn length(&self, field: Field) -> u64 {
        let all = self.packet.len().saturating_sub(self.padding) as u64;
        let ip_length = self.ip.map(|ip| total_length(ip) as u64);
        if field == Field::CaptureLength {
            return ip_length.map_or(all, |ip_length| ip_length.min(self.network.len() as u64));
        }
        ip_length.unwrap_or(all) + if self.with_extra { u64::from(self.extra) } else { 0 }
    }

    /// The payload's offset from the network header, and its length according to the headers.
    fn payload_place(&self, ip: &[u8]) -> (usize, usize) {
        let mut at = self.packet.network_header_len().unwrap_or(0);
        if Self::first_fragment(ip) {
            at += match protocol(ip) {
                Some(Protocol::TCP) => Tcp::header_len_of(self.transport).unwrap_or(0).max(Tcp::LEN),
                Some(Protocol::UDP | Protocol::UDP_LITE) => Udp::LEN,
                _ => 0,
            };
        }
        (at, total_length(ip).saturating_sub(at))
    }

    fn payload_length(&self) -> u64 {
        match self.ip {
            Some(ip) => {
                self.payload_place(ip).1 as u64 + if self.with_extra { u64::from(self.extra) } else { 0 }
            }
            None => (self.packet.len().saturating_sub(self.padding)) as u64 + u64::from(self.extra),
        }
    }

    fn payload(&self) -> Option<&'a [u8]> {
        let Some(ip) = self.ip else { return Some(self.packet.data()) };
        let (at, length) = self.payload_place(ip);
        if length == 0 {
            return Some(&[]);
        }
        let rest = self.network.get(at..).filter(|rest| !rest.is_empty())?;
        Some(&rest[..length.min(rest.len())])
    }

    fn ip_options(&mut self) -> Option<&'a [u8]> {
        let header = self.ip.map_or(Ipv4::LEN, |ip| Ipv4::padded(ip).header_len());
        let options = self.ip.and_then(|ip| ip.get(Ipv4::LEN.min(header)..header));
        if options.is_none() {
            self.missing(Header::Ip, header);
        }
        options
    }

    fn tcp_options(&mut self) -> Option<&'a [u8]> {
        let options = self.tcp().and_then(|tcp| {
            let end = Tcp::header_len_of(tcp)?;
            if end <= Tcp::LEN { Some(&[][..]) } else { tcp.get(Tcp::LEN..end) }
        });
        if options.is_none() {
            self.missing(Header::Of(Protocol::TCP), self.transport.len() + 1);
        }
        options
    }

    fn tcp(&self) -> Option<&'a [u8]> {
        self.ip.and_then(|ip| self.header(ip, Protocol::TCP)).filter(|_| !self.bad_tcp)
    }

    /// The value of a numeric header field.
    fn number(&mut self, field: Field) -> Option<u64> {
        let (header, at, size) = place(field)?;
        let needed = at + size;
        let bytes = match header {
            Header::Ip => self.ip,
            Header::Ports => {
                let ip = self.ip;
                let protocols = [Protocol::TCP, Protocol::UDP, Protocol::DCCP, Protocol::UDP_LITE];
                protocols.into_iter().find_map(|protocol| self.header(ip?, protocol))
            }
            Header::Of(Protocol::TCP) => self.tcp(),
            Header::Of(protocol) => self.ip.and_then(|ip| self.header(ip, protocol)),
        };
        let Some(bytes) = bytes.filter(|bytes| bytes.len() >= needed) else {
            self.missing(header, needed);
            return None;
        };
        let number = bytes[at..needed].iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        let Icmp { kind, code, .. } = Icmp::padded(bytes);
        match field {
            Field::IpDscp => Some(number >> 2),
            Field::IpEcn => Some(number & 3),
            Field::IpFragment => Some(fragment(number)),
            Field::IpHeaderLength => Some((number & 15) * 4),
            Field::TcpFlags => Some(number & 0xfff),
            Field::TcpOffset => Some((number >> 4) * 4),
            Field::IcmpFlow | Field::IcmpSequence if !SEQUENCED.contains(&kind) => None,
            Field::IcmpMtu if (kind, code) != (v4::UNREACHABLE, v4::NEEDS_FRAGMENTATION) => None,
            _ => Some(number),
        }
    }
}

fn fragment(word: u64) -> u64 {
    let word = word as u16;
    let letter = match (word & FRAGMENT_OFFSET, word & MORE_FRAGMENTS, word & DONT_FRAGMENT) {
        (0, 0, 0) => b'.',
        (0, 0, _) => b'!',
        (0, ..) => b'F',
        _ => b'f',
    };
    letter.into()
}

/// The header that contains a field, the field's offset and its length in bytes.
pub(super) fn place(field: Field) -> Option<(Header, usize, usize)> {
    let (tcp, icmp) = (Header::Of(Protocol::TCP), Header::Of(Protocol::ICMP));
    Some(match field {
        Field::IpHeaderLength => (Header::Ip, offset_of!(Ipv4, version_ihl), 1),
        Field::IpTos | Field::IpDscp | Field::IpEcn => (Header::Ip, offset_of!(Ipv4, tos), 1),
        Field::IpId => (Header::Ip, offset_of!(Ipv4, identification), 2),
        Field::IpFragment | Field::IpFragmentOffset => (Header::Ip, offset_of!(Ipv4, fragment), 2),
        Field::IpTtl => (Header::Ip, offset_of!(Ipv4, ttl), 1),
        Field::IpProtocol => (Header::Ip, offset_of!(Ipv4, protocol), 1),
        Field::IpChecksum => (Header::Ip, offset_of!(Ipv4, checksum), 2),
        Field::IpSource => (Header::Ip, offset_of!(Ipv4, source), 4),
        Field::IpDestination => (Header::Ip, offset_of!(Ipv4, destination), 4),
        Field::SourcePort => (Header::Ports, offset_of!(Udp, source_port), 2),
        Field::DestinationPort => (Header::Ports, offset_of!(Udp, destination_port), 2),
        Field::TcpSequence => (tcp, offset_of!(Tcp, sequence_number), 4),
        Field::TcpAcknowledgement => (tcp, offset_of!(Tcp, acknowledgment_number), 4),
        Field::TcpOffset => (tcp, offset_of!(Tcp, data_offset), 1),
        // The reserved bits before the flags are included.
        Field::TcpFlags => (tcp, offset_of!(Tcp, data_offset), 2),
        Field::TcpWindow => (tcp, offset_of!(Tcp, window), 2),
        Field::TcpUrgent => (tcp, offset_of!(Tcp, urgent_pointer), 2),
        Field::UdpLength => (Header::Of(Protocol::UDP), offset_of!(Udp, length), 2),
        Field::IcmpType | Field::IcmpTypeName => (icmp, offset_of!(Icmp, kind), 1),
        Field::IcmpCode => (icmp, offset_of!(Icmp, code), 1),
        // With the type, which determines the code's name.
        Field::IcmpCodeName => (icmp, offset_of!(Icmp, kind), 2),
        Field::IcmpFlow => (icmp, offset_of!(Icmp, identifier), 2),
        Field::IcmpSequence | Field::IcmpMtu => (icmp, offset_of!(Icmp, sequence_number), 2),
        _ => return None,
    })
}
