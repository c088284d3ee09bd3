//! Constructing a packet from the fields of a record.
use super::field::{Field, Value};
use super::read::Flow;
use super::view::{SEQUENCED, place};
use core::mem::offset_of;
use ringway_click::prelude::*;
use ringway_wire::checksum::checksum;
use ringway_wire::icmp::v4;
use ringway_wire::{EtherType, Ethernet, Header, Icmp, Ipv4, MacAddress, Protocol, Sum, Tcp, Udp};

/// Maximum length of an IP header and of a TCP header.
const LONGEST_HEADER: usize = 60;
/// Any protocol is accepted.
const ANY: Protocol = Protocol(0);
/// Maximum length of an IP packet.
const LONGEST: usize = 0xffff;

/// Builds a packet.
#[derive(Debug, Default)]
pub(super) struct Maker {
    /// The Ethernet header, if there is one.
    pub(super) link: Option<Ethernet>,
    /// The packet from its network header on.
    pub(super) network: Vec<u8>,
    /// Length of the IP header.
    pub(super) header: usize,
    pub(super) notes: Annotations,
    pub(super) timestamp: u64,
    /// Whether another EtherType was requested.
    other: bool,
    pub(super) icmp_type: Option<u8>,
    icmp_code: bool,
    /// Whether options were given; if so, headers are not extended to fit the lengths.
    ip_options: bool,
    tcp_options: bool,
    /// Requested length of the whole packet; 0 if none.
    length: usize,
    protocol: Protocol,
    flow: Option<Flow>,
}

impl Maker {
    /// Begins a new packet in the same memory.
    pub(super) fn begin(&mut self, protocol: Protocol, flow: Option<Flow>) {
        let mut network = core::mem::take(&mut self.network);
        network.clear();
        *self = Self { network, protocol, flow, ..Self::default() };
    }

    pub(super) fn has_ip(&self) -> bool {
        !self.other && self.network.len() >= Ipv4::LEN
    }

    fn link_length(&self) -> usize {
        self.link.map_or(0, |_| Ethernet::LEN)
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.network.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    /// The IP header; zeros without one.
    fn ip(&self) -> Ipv4 {
        Ipv4::padded(&self.network)
    }

    /// The IP header, mutably.
    fn ip_mut(&mut self) -> Option<&mut Ipv4> {
        Ipv4::of_mut(&mut self.network)
    }

    /// Sets the header length field of the IP header.
    fn set_header(&mut self, header: usize) {
        self.header = self.header.max(header);
        if let Some(ip) = self.ip_mut() {
            ip.version_ihl = 4 << 4 | (header / 4) as u8;
        }
    }

    /// The payload of the IP packet.
    fn transport(&self) -> &[u8] {
        self.network.get(self.header..).unwrap_or_default()
    }

    fn tcp(&self) -> Tcp {
        Tcp::padded(self.transport())
    }

    /// Sets the data offset field of the TCP header.
    fn set_tcp_header(&mut self, header: usize) {
        let offset = (header as u8) << 2 | self.tcp().data_offset & 15;
        self.set_transport(offset_of!(Tcp, data_offset), &[offset]);
    }

    fn set_transport(&mut self, at: usize, bytes: &[u8]) {
        self.set(self.header + at, bytes);
    }

    fn grow(&mut self, length: usize) {
        // Attack: a record that requests gigabytes.
        let length = length.min(LONGEST);
        if self.network.len() < length {
            self.network.resize(length, 0);
        }
    }

    /// Creates an IP header. False if the packet has another protocol than `protocol`; 0 is any protocol.
    fn make_ip(&mut self, protocol: Protocol) -> bool {
        if self.other {
            return false;
        }
        if !self.has_ip() {
            self.grow(Ipv4::LEN);
            let (ends, protocol) = (self.flow.map(|flow| [flow.source, flow.destination]), self.protocol);
            let [source, destination] = ends.map_or([0; 2], |ends| ends.map(|end| end.to_bits()));
            self.header = Ipv4::LEN;
            if let Some(ip) = self.ip_mut() {
                let (source, destination) = (source.into(), destination.into());
                *ip = Ipv4 { ttl: 100, protocol, source, destination, ..Ipv4::EMPTY };
            }
        }
        let own = self.ip().protocol;
        protocol == ANY || own == ANY || own == protocol
    }

    /// Creates a transport header of the packet's protocol. False if that header would be in another fragment.
    fn make_transport(&mut self) -> bool {
        let Ipv4 { protocol, .. } = self.ip();
        if self.ip().is_later_fragment() {
            return false;
        }
        let had = self.network.len() - self.header;
        if had >= 8 {
            return true;
        }
        let mut length: usize = match protocol {
            Protocol::TCP => Tcp::LEN,
            Protocol::UDP | Protocol::UDP_LITE | Protocol::ICMP => Udp::LEN,
            Protocol::DCCP => 12,
            _ => return true,
        };
        let before = self.link_length() + self.header;
        if self.length > 0 && self.length < before + length {
            length = self.length.saturating_sub(before);
        }
        if had < length {
            self.grow(self.header + length);
            if protocol == Protocol::TCP {
                self.set_transport(offset_of!(Tcp, data_offset), &[Tcp::EMPTY.data_offset]);
            }
            if let Some(flow) = self.flow {
                self.set_transport(offset_of!(Udp, source_port), &flow.source_port.to_be_bytes());
                self.set_transport(offset_of!(Udp, destination_port), &flow.destination_port.to_be_bytes());
            }
        }
        true
    }

    /// Writes a field into the packet.
    pub(super) fn put(&mut self, field: Field, value: Value<'_>) {
        match value {
            Value::Number(number) if field.order() == 100 => self.note(field, number),
            Value::Number(number) if field == Field::EtherType => {
                let ethertype = EtherType::new(number as u16);
                let ip = matches!(ethertype, EtherType::IPV4 | EtherType::IPV6);
                self.other = !ip || number > u16::MAX.into();
                self.link().ethertype = ethertype;
            }
            Value::Bytes(bytes) if field.order() == 200 => {
                if let Some(address) = MacAddress::of(bytes) {
                    let Ethernet { source, destination, .. } = self.link();
                    *(if field == Field::EtherSource { source } else { destination }) = *address;
                }
            }
            Value::Number(number) if field.order() < 400 => {
                if self.make_ip(ANY) {
                    self.put_ip(field, number);
                }
            }
            Value::Bytes(options) if field == Field::IpOptions => {
                if self.make_ip(ANY) {
                    self.put_ip_options(options);
                }
            }
            Value::Bytes(payload) if field == Field::Payload => self.put_payload(payload),
            Value::Number(length) if field == Field::PayloadLength => {
                let at = self.begin_payload();
                self.stretch(at, length.min(1 << 31) as usize);
            }
            Value::Bytes(options) => {
                if self.make_ip(Protocol::TCP) && self.make_transport() {
                    self.put_tcp_options(options);
                }
            }
            Value::Number(number) if field.order() < 500 => self.put_transport(field, number),
            Value::Number(_) => {}
        }
    }

    fn link(&mut self) -> &mut Ethernet {
        self.link.get_or_insert(Ethernet { ethertype: EtherType::IPV4, ..Ethernet::default() })
    }

    fn note(&mut self, field: Field, number: u64) {
        let notes = &mut self.notes;
        let time = self.timestamp as i64;
        match field {
            Field::Timestamp | Field::NanoTimestamp => self.timestamp = number,
            Field::Seconds => {
                let rest = time.rem_euclid(1_000_000_000);
                self.timestamp = (i64::from(number as u32) * 1_000_000_000 + rest) as u64;
            }
            Field::Microseconds => {
                let whole = time.div_euclid(1_000_000_000) * 1_000_000_000;
                self.timestamp = (whole + number as i64 % 1_000_000 * 1000) as u64;
            }
            Field::AllMicroseconds => self.timestamp = number.wrapping_mul(1000),
            Field::FirstTimestamp | Field::FirstNanoTimestamp => {
                notes.set_u64(Annotations::FIRST_TIMESTAMP, number);
            }
            Field::Count => notes.set_u32(Annotations::EXTRA_PACKETS, (number as u32).saturating_sub(1)),
            Field::Link | Field::Paint | Field::Direction => notes.set_u8(Annotations::PAINT, number as u8),
            Field::Aggregate => notes.set_u32(Annotations::AGGREGATE, number as u32),
            Field::WireLength => self.length = number.min(1 << 31) as usize,
            _ => {}
        }
    }

    fn put_ip(&mut self, field: Field, number: u64) {
        let (byte, tos) = (number as u8, self.ip().tos);
        match field {
            Field::IpDscp => self.set(offset_of!(Ipv4, tos), &[byte << 2 | tos & 3]),
            Field::IpEcn => self.set(offset_of!(Ipv4, tos), &[byte & 3 | tos & !3]),
            Field::IpHeaderLength => {
                self.ip_options = true;
                let header = usize::from(byte).next_multiple_of(4).min(LONGEST_HEADER);
                self.grow(header);
                self.set_header(header);
            }
            Field::IpLength => self.length = self.link_length() + number.min(LONGEST as u64) as usize,
            _ => self.put_number(field, 0, number),
        }
    }

    /// Writes a numeric field into a header that begins at `begin`.
    fn put_number(&mut self, field: Field, begin: usize, number: u64) {
        if let Some((_, at, size)) = place(field) {
            self.set(begin + at, &number.to_be_bytes()[size_of::<u64>() - size..]);
        }
    }

    fn put_ip_options(&mut self, options: &[u8]) {
        self.ip_options = true;
        let header = (Ipv4::LEN + options.len()).next_multiple_of(4);
        if options.is_empty() || header > LONGEST_HEADER {
            return;
        }
        self.grow(header);
        self.set_header(self.header.max(header));
        self.set(Ipv4::LEN, options);
    }

    fn put_tcp_options(&mut self, options: &[u8]) {
        self.tcp_options = true;
        let header = (Tcp::LEN + options.len()).next_multiple_of(4);
        if options.is_empty() || header > LONGEST_HEADER {
            return;
        }
        self.grow(self.header + header);
        if header > self.tcp().header_len() {
            self.set_tcp_header(header);
        }
        self.set_transport(Tcp::LEN, options);
    }

    fn put_transport(&mut self, field: Field, number: u64) {
        let ports = [ANY, Protocol::TCP, Protocol::UDP, Protocol::DCCP, Protocol::UDP_LITE];
        let icmp = matches!(
            field,
            Field::IcmpType
                | Field::IcmpTypeName
                | Field::IcmpCode
                | Field::IcmpCodeName
                | Field::IcmpFlow
                | Field::IcmpSequence
                | Field::IcmpMtu
        );
        let wanted: &[Protocol] = match field {
            Field::SourcePort | Field::DestinationPort => &ports,
            Field::UdpLength => &[ANY, Protocol::UDP, Protocol::UDP_LITE],
            _ if icmp => &[ANY, Protocol::ICMP],
            _ => &[ANY, Protocol::TCP],
        };
        if !self.make_ip(ANY) || !wanted.contains(&self.ip().protocol) || !self.make_transport() {
            return;
        }
        match field {
            _ if icmp => self.put_icmp(field, number),
            Field::TcpFlags => {
                let before = u64::from(self.tcp().data_offset & 0xf0) << 8;
                self.put_number(field, self.header, before | number & 0xfff);
            }
            Field::TcpOffset => {
                self.tcp_options = true;
                let header = (number as usize).next_multiple_of(4).min(LONGEST_HEADER);
                self.grow(self.header + header);
                self.set_tcp_header(header);
            }
            _ => self.put_number(field, self.header, number),
        }
    }

    fn put_icmp(&mut self, field: Field, number: u64) {
        self.grow(self.header + Icmp::LEN);
        let byte = number as u8;
        let sequenced = self.icmp_type.is_none_or(|own| SEQUENCED.contains(&own));
        let Icmp { kind, code, .. } = Icmp::padded(self.transport());
        let too_big = (self.icmp_type.is_none() || kind == v4::UNREACHABLE)
            && (!self.icmp_code || code == v4::NEEDS_FRAGMENTATION);
        match field {
            Field::IcmpType | Field::IcmpTypeName => {
                self.icmp_type = Some(byte);
                self.put_number(field, self.header, number);
                if matches!(byte, v4::TIMESTAMP | v4::TIMESTAMP_REPLY) {
                    self.grow(self.header + 20);
                }
            }
            Field::IcmpCode | Field::IcmpCodeName => {
                self.icmp_code = true;
                self.set_transport(offset_of!(Icmp, code), &[byte]);
            }
            Field::IcmpFlow | Field::IcmpSequence if !sequenced => {}
            Field::IcmpMtu if !too_big => {}
            _ => self.put_number(field, self.header, number),
        }
    }

    /// Creates the headers; returns the payload's offset from the network header.
    fn begin_payload(&mut self) -> usize {
        if self.make_ip(ANY) {
            self.make_transport();
        }
        if self.has_ip() { self.payload_at() } else { 0 }
    }

    fn payload_at(&self) -> usize {
        let ip = self.ip();
        self.header
            + match ip.protocol {
                _ if ip.is_later_fragment() => 0,
                Protocol::TCP => self.tcp().header_len().max(Tcp::LEN),
                Protocol::UDP | Protocol::UDP_LITE => Udp::LEN,
                _ => 0,
            }
    }

    /// Accounts for the payload's length. If a longer packet length was requested, the TCP options and then the IP
    /// options are extended. Returns the payload's offset.
    fn stretch(&mut self, at: usize, payload: usize) -> usize {
        if !self.has_ip() || self.length == 0 {
            self.length = self.link_length() + at + payload;
            return at;
        }
        let mut spare = self.length.saturating_sub(self.link_length() + at + payload);
        let is_tcp = self.ip().protocol == Protocol::TCP && !self.ip().is_later_fragment();
        if is_tcp && !self.tcp_options && self.tcp().header_len() == Tcp::LEN {
            let more = (spare & !3).min(LONGEST_HEADER - Tcp::LEN);
            self.insert(self.header + Tcp::LEN, more);
            self.set_tcp_header(Tcp::LEN + more);
            spare -= more;
        }
        if !self.ip_options && self.header == Ipv4::LEN {
            let more = (spare & !3).min(LONGEST_HEADER - Ipv4::LEN);
            self.insert(Ipv4::LEN, more);
            self.set_header(Ipv4::LEN + more);
        }
        self.payload_at()
    }

    fn insert(&mut self, at: usize, bytes: usize) {
        let at = at.min(self.network.len());
        self.network.splice(at..at, core::iter::repeat_n(0, bytes));
    }

    fn put_payload(&mut self, payload: &[u8]) {
        if payload.is_empty() {
            return;
        }
        let at = self.begin_payload();
        let at = self.stretch(at, payload.len());
        self.grow(at + payload.len());
        let length = payload.len().min(self.network.len().saturating_sub(at));
        self.set(at, &payload[..length]);
    }

    /// Finishes the packet: adds missing headers and lengths, and with `checksums` also checksums and data up to the
    /// length.
    pub(super) fn end(&mut self, checksums: bool) {
        if self.flow.is_some() {
            self.make_ip(ANY);
        }
        if self.has_ip() {
            self.make_transport();
            self.end_ip(checksums);
        }
        let length = self.link_length() + self.network.len();
        let extra = self.length.saturating_sub(length) as u32;
        if extra > 0 {
            self.notes.set_u32(Annotations::EXTRA_LENGTH, extra);
        }
    }

    fn end_ip(&mut self, checksums: bool) {
        let length = match self.length.saturating_sub(self.link_length()) {
            0 => self.network.len(),
            length => length,
        };
        let length = length.min(LONGEST);
        let ip = self.ip();
        if let Some(ip) = self.ip_mut() {
            ip.total_length.set(length as u16);
        }
        let is_udp = ip.protocol == Protocol::UDP && !ip.is_later_fragment();
        if is_udp && Udp::padded(self.transport()).length == 0 {
            let length = length.saturating_sub(self.header) as u16;
            self.set_transport(offset_of!(Udp, length), &length.to_be_bytes());
        }
        self.notes.set_dst_ip(ip.destination.to_bytes());
        if checksums {
            self.grow(length);
            self.set_checksums();
        }
    }

    fn set_checksums(&mut self) {
        let header = self.header.min(self.ip().header_len()).min(self.network.len());
        self.set(offset_of!(Ipv4, checksum), &[0; 2]);
        let sum = checksum(&self.network[..header]);
        self.set(offset_of!(Ipv4, checksum), &sum.to_be_bytes());
        let ip = self.ip();
        let summed = matches!(ip.protocol, Protocol::TCP | Protocol::UDP | Protocol::ICMP);
        let Some(at) = ip.protocol.checksum_at().filter(|_| summed && !ip.is_fragment()) else { return };
        self.set_transport(at, &[0; 2]);
        let transport = self.transport();
        let is_icmp = ip.protocol == Protocol::ICMP;
        let mut sum = if is_icmp { Sum::new() } else { ip.pseudo_header(transport.len() as u16) };
        sum.add(transport);
        let sum = if ip.protocol == Protocol::UDP { sum.finish_nonzero() } else { sum.finish() };
        self.set_transport(at, &sum.to_be_bytes());
    }
}
