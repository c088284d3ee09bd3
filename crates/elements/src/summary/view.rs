//! A packet as the fields of a dump see it.
use super::field::{Field, Value};
use alloc::string::String;
use core::fmt::Write;
use ringway_click::{Annotations, Packet};

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;
const DCCP: u8 = 33;
const UDPLITE: u8 = 136;

/// ICMP types that have an identifier and a sequence number.
const SEQUENCED: [u8; 6] = [0, 8, 13, 14, 15, 16];

/// Whose header a field belongs to, for what is said of packets that have none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Header {
    Ip,
    Ports,
    Of(u8),
}

impl Header {
    fn name(self) -> &'static str {
        match self {
            Self::Of(TCP) => "TCP",
            Self::Of(UDP) => "UDP",
            Self::Of(ICMP) => "ICMP",
            _ => "TCP/UDP",
        }
    }
}

/// A packet's headers, as far as they are sound.
#[derive(Debug)]
pub(super) struct View<'a> {
    packet: &'a Packet,
    /// From the IP header to the end of the IP packet; nothing if there is no sound header.
    ip: Option<&'a [u8]>,
    /// From the network header on, without padding; empty if there is none.
    network: &'a [u8],
    /// From the transport header on, without padding.
    transport: &'a [u8],
    /// Whether the TCP header is to be ignored.
    bad_tcp: bool,
    /// Bytes behind the IP packet.
    padding: usize,
    /// Bytes it had besides those captured.
    pub(super) extra: u32,
    /// What is wrong with it.
    pub(super) bad: Option<String>,
    with_extra: bool,
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl<'a> View<'a> {
    /// Looks at a packet. `careful`: says if it is shorter than its header says. `with_extra`: lengths
    /// include what was not captured.
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
            let length = be16(ip, 2).unwrap_or(0);
            let full = view.network.len() as u64 + u64::from(view.extra);
            let most = u64::from(u16::MAX);
            view.extra = if length == u16::MAX { full.saturating_sub(most) as u32 } else { 0 };
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
        let (Some(&first), Some(length)) = (network.first(), be16(network, 2)) else {
            return self.say(format_args!("truncated IP header"));
        };
        let (length, header) = (usize::from(length), usize::from(first & 15) * 4);
        if first >> 4 != 4 {
            return self.say(format_args!("IP version {}", first >> 4));
        }
        if header < 20 {
            return self.say(format_args!("IP header length {}", first & 15));
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
        if self.header(ip, TCP).is_some_and(|tcp| tcp.len() > 12 && tcp[12] >> 4 < 5) {
            self.bad_tcp = true;
            self.say(format_args!("TCP header length {}", self.transport[12] >> 4));
        }
    }

    fn header_length(ip: &[u8]) -> usize {
        usize::from(ip.first().copied().unwrap_or(0) & 15) * 4
    }

    fn first_fragment(ip: &[u8]) -> bool {
        be16(ip, 6).is_some_and(|offset| offset & 0x1fff == 0)
    }

    /// The transport header, if it is of this protocol and at hand.
    fn header(&self, ip: &[u8], protocol: u8) -> Option<&'a [u8]> {
        let own = ip.get(9) == Some(&protocol) && Self::first_fragment(ip);
        (own && ip.len() > Self::header_length(ip) && self.packet.transport_header().is_some())
            .then_some(self.transport)
    }

    /// Says why a field of `length` bytes into a header is missing.
    fn missing(&mut self, header: Header, length: usize) {
        if self.bad.is_some() {
            return;
        }
        let Some(ip) = self.ip else { return self.say(format_args!("no IP header")) };
        let protocol = ip.get(9).copied();
        let name = header.name();
        match header {
            Header::Ip => self.say(format_args!("truncated IP header capture")),
            // Another protocol is no fault.
            Header::Of(wanted) if protocol.is_some_and(|own| own != wanted) => {}
            Header::Ports if protocol.is_some_and(|own| own != TCP && own != UDP) => {}
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

    /// What a field holds; nothing if the packet has no such field, and what is wrong with it is then noted.
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
        let notes = self.packet.notes();
        Some(match field {
            Field::Timestamp | Field::NanoTimestamp => notes.timestamp,
            Field::Seconds => (notes.timestamp as i64).div_euclid(1_000_000_000) as u32 as u64,
            Field::Microseconds => (notes.timestamp as i64).rem_euclid(1_000_000_000) as u64 / 1000,
            Field::AllMicroseconds => (notes.timestamp as i64).div_euclid(1000) as u64,
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
        let header = at.filter(|at| at + 14 == end).and_then(|at| {
            let begin = range.start.checked_add_signed(at)?;
            buffer.get(begin..begin + 14)
        });
        let Some(header) = header else {
            self.say(format_args!("Ethernet header"));
            return None;
        };
        Some(match field {
            Field::EtherSource => Value::Bytes(&header[6..12]),
            Field::EtherDestination => Value::Bytes(&header[..6]),
            _ => Value::Number(be16(header, 12)?.into()),
        })
    }

    fn length(&self, field: Field) -> u64 {
        let all = self.packet.len().saturating_sub(self.padding) as u64;
        let said = self.ip.and_then(|ip| be16(ip, 2)).map(u64::from);
        if field == Field::CaptureLength {
            return said.map_or(all, |said| said.min(self.network.len() as u64));
        }
        said.unwrap_or(all) + if self.with_extra { u64::from(self.extra) } else { 0 }
    }

    /// Where the payload begins, counted from the network header, and how long it should be.
    fn payload_place(&self, ip: &[u8]) -> (usize, usize) {
        let mut at = self.packet.network_header_len().unwrap_or(0);
        if Self::first_fragment(ip) {
            at += match ip.get(9) {
                Some(&TCP) => {
                    self.transport.get(12).map_or(20, |offset| usize::from(offset >> 4) * 4).max(20)
                }
                Some(&(UDP | UDPLITE)) => 8,
                _ => 0,
            };
        }
        (at, usize::from(be16(ip, 2).unwrap_or(0)).saturating_sub(at))
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
        let header = self.ip.map_or(20, Self::header_length);
        let options = self.ip.and_then(|ip| ip.get(20.min(header)..header));
        if options.is_none() {
            self.missing(Header::Ip, header);
        }
        options
    }

    fn tcp_options(&mut self) -> Option<&'a [u8]> {
        let options = self.tcp().and_then(|tcp| {
            let end = usize::from(*tcp.get(12)? >> 4) * 4;
            if end <= 20 { Some(&[][..]) } else { tcp.get(20..end) }
        });
        if options.is_none() {
            self.missing(Header::Of(TCP), self.transport.len() + 1);
        }
        options
    }

    fn tcp(&self) -> Option<&'a [u8]> {
        self.ip.and_then(|ip| self.header(ip, TCP)).filter(|_| !self.bad_tcp)
    }

    /// A field that is a number somewhere in a header.
    fn number(&mut self, field: Field) -> Option<u64> {
        let (header, needed) = place(field)?;
        let bytes = match header {
            Header::Ip => self.ip,
            Header::Ports => {
                let ip = self.ip;
                let protocols = [TCP, UDP, DCCP, UDPLITE];
                protocols.into_iter().find_map(|protocol| self.header(ip?, protocol))
            }
            Header::Of(TCP) => self.tcp(),
            Header::Of(protocol) => self.ip.and_then(|ip| self.header(ip, protocol)),
        };
        let Some(bytes) = bytes.filter(|bytes| bytes.len() >= needed) else {
            self.missing(header, needed);
            return None;
        };
        let byte = |at: usize| bytes.get(at).map(|byte| u64::from(*byte));
        let word = |at| be16(bytes, at).map(u64::from);
        let long = |at| be32(bytes, at).map(u64::from);
        let typed = |types: &[u8]| bytes.first().is_some_and(|own| types.contains(own));
        match field {
            Field::IpSource => long(12),
            Field::IpDestination => long(16),
            Field::IpTos => byte(1),
            Field::IpDscp => byte(1).map(|tos| tos >> 2),
            Field::IpEcn => byte(1).map(|tos| tos & 3),
            Field::IpTtl => byte(8),
            Field::IpFragment => word(6).map(fragment),
            Field::IpFragmentOffset => word(6),
            Field::IpId => word(4),
            Field::IpChecksum => word(10),
            Field::IpProtocol => byte(9),
            Field::IpHeaderLength => byte(0).map(|first| (first & 15) * 4),
            Field::SourcePort => word(0),
            Field::DestinationPort => word(2),
            Field::TcpSequence => long(4),
            Field::TcpAcknowledgement => long(8),
            Field::TcpFlags => word(12).map(|flags| flags & 0xfff),
            Field::TcpOffset => byte(12).map(|offset| (offset >> 4) * 4),
            Field::TcpWindow => word(14),
            Field::TcpUrgent => word(18),
            Field::UdpLength => word(4),
            Field::IcmpType | Field::IcmpTypeName => byte(0),
            Field::IcmpCode => byte(1),
            // The type is needed to name it.
            Field::IcmpCodeName => word(0),
            Field::IcmpFlow if typed(&SEQUENCED) => word(4),
            Field::IcmpSequence if typed(&SEQUENCED) => word(6),
            Field::IcmpMtu if bytes.first_chunk() == Some(&[3, 4]) => word(6),
            _ => None,
        }
    }
}

fn fragment(word: u64) -> u64 {
    let letter = match (word & 0x1fff, word & 0x2000, word & 0x4000) {
        (0, 0, 0) => b'.',
        (0, 0, _) => b'!',
        (0, ..) => b'F',
        _ => b'f',
    };
    letter.into()
}

/// In which header a field stands, and how much of it must be there.
fn place(field: Field) -> Option<(Header, usize)> {
    Some(match field {
        Field::IpHeaderLength => (Header::Ip, 1),
        Field::IpTos | Field::IpDscp | Field::IpEcn => (Header::Ip, 2),
        Field::IpId => (Header::Ip, 6),
        Field::IpFragment | Field::IpFragmentOffset => (Header::Ip, 8),
        Field::IpTtl => (Header::Ip, 9),
        Field::IpProtocol => (Header::Ip, 10),
        Field::IpChecksum => (Header::Ip, 12),
        Field::IpSource => (Header::Ip, 16),
        Field::IpDestination => (Header::Ip, 20),
        Field::SourcePort => (Header::Ports, 2),
        Field::DestinationPort => (Header::Ports, 4),
        Field::TcpSequence => (Header::Of(TCP), 8),
        Field::TcpAcknowledgement => (Header::Of(TCP), 12),
        Field::TcpOffset => (Header::Of(TCP), 13),
        Field::TcpFlags => (Header::Of(TCP), 14),
        Field::TcpWindow => (Header::Of(TCP), 16),
        Field::TcpUrgent => (Header::Of(TCP), 20),
        Field::UdpLength => (Header::Of(UDP), 6),
        Field::IcmpType | Field::IcmpTypeName => (Header::Of(ICMP), 1),
        Field::IcmpCode | Field::IcmpCodeName => (Header::Of(ICMP), 2),
        Field::IcmpFlow => (Header::Of(ICMP), 6),
        Field::IcmpSequence | Field::IcmpMtu => (Header::Of(ICMP), 8),
        _ => return None,
    })
}
