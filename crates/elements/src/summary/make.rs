//! Making a packet of the fields of a record.
use super::field::{Field, Value};
use super::read::Flow;
use alloc::vec::Vec;
use ringway_click::Annotations;
use ringway_wire::checksum::{Sum, checksum};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const UDPLITE: u8 = 136;

/// Longest header of IP and of TCP.
const LONGEST_HEADER: usize = 60;
/// Longest IP packet.
const LONGEST: usize = 0xffff;

/// A packet in the making.
#[derive(Debug, Default)]
pub(super) struct Maker {
    /// The Ethernet header, if there is one.
    pub(super) link: Option<[u8; 14]>,
    /// From the network header on.
    pub(super) network: Vec<u8>,
    /// Bytes of the IP header.
    pub(super) header: usize,
    pub(super) notes: Annotations,
    /// Another Ethernet type was asked for.
    other: bool,
    pub(super) icmp_type: Option<u8>,
    icmp_code: bool,
    /// Whether options were given: then headers are not stretched to fit lengths.
    ip_options: bool,
    tcp_options: bool,
    /// How long the whole packet should be; 0 if nobody said.
    length: usize,
    protocol: u8,
    flow: Option<Flow>,
}

impl Maker {
    /// Begins anew, in the same memory.
    pub(super) fn begin(&mut self, protocol: u8, flow: Option<Flow>) {
        let mut network = core::mem::take(&mut self.network);
        network.clear();
        *self = Self { network, protocol, flow, ..Self::default() };
    }

    pub(super) fn has_ip(&self) -> bool {
        !self.other && self.network.len() >= 20
    }

    fn link_length(&self) -> usize {
        self.link.map_or(0, |link| link.len())
    }

    fn set(&mut self, at: usize, bytes: &[u8]) {
        if let Some(place) = self.network.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    }

    fn get<const N: usize>(&self, at: usize) -> [u8; N] {
        self.network.get(at..).and_then(<[u8]>::first_chunk).copied().unwrap_or([0; N])
    }

    fn set_transport(&mut self, at: usize, bytes: &[u8]) {
        self.set(self.header + at, bytes);
    }

    fn grow(&mut self, length: usize) {
        // Attack: a record that asks for gigabytes.
        let length = length.min(LONGEST);
        if self.network.len() < length {
            self.network.resize(length, 0);
        }
    }

    /// Makes an IP header. False if the packet has another protocol than `protocol`, which is 0 for any.
    fn make_ip(&mut self, protocol: u8) -> bool {
        if self.other {
            return false;
        }
        if self.network.len() < 20 {
            self.grow(20);
            self.header = 20;
            self.set(0, &[0x45]);
            self.set(8, &[100, self.protocol]);
            if let Some(flow) = self.flow {
                self.set(12, &flow.source.octets());
                self.set(16, &flow.destination.octets());
            }
        }
        let own = self.network[9];
        protocol == 0 || own == 0 || own == protocol
    }

    /// Makes a transport header of the protocol there is. False if it would lie in another fragment.
    fn make_transport(&mut self) -> bool {
        if u16::from_be_bytes(self.get(6)) & 0x1fff != 0 {
            return false;
        }
        let protocol = self.network.get(9).copied().unwrap_or(0);
        let had = self.network.len() - self.header;
        if had >= 8 {
            return true;
        }
        let mut length: usize = match protocol {
            TCP => 20,
            UDP | UDPLITE | ICMP => 8,
            DCCP => 12,
            _ => return true,
        };
        let before = self.link_length() + self.header;
        if self.length > 0 && self.length < before + length {
            length = self.length.saturating_sub(before);
        }
        if had < length {
            self.grow(self.header + length);
            if protocol == TCP {
                self.set_transport(12, &[0x50]);
            }
            if let Some(flow) = self.flow {
                self.set_transport(0, &flow.source_port.to_be_bytes());
                self.set_transport(2, &flow.destination_port.to_be_bytes());
            }
        }
        true
    }

    /// Puts a field into the packet.
    pub(super) fn put(&mut self, field: Field, value: Value<'_>) {
        match value {
            Value::Number(number) if field.order() == 100 => self.note(field, number),
            Value::Number(number) if field == Field::EtherType => {
                self.other = !matches!(number, 0x0800 | 0x86dd);
                self.link()[12..].copy_from_slice(&(number as u16).to_be_bytes());
            }
            Value::Bytes(bytes) if field.order() == 200 => {
                let at = if field == Field::EtherSource { 6 } else { 0 };
                if let Some(address) = bytes.first_chunk::<6>() {
                    self.link()[at..at + 6].copy_from_slice(address);
                }
            }
            Value::Number(number) if field.order() < 400 => {
                if self.make_ip(0) {
                    self.put_ip(field, number);
                }
            }
            Value::Bytes(options) if field == Field::IpOptions => {
                if self.make_ip(0) {
                    self.put_ip_options(options);
                }
            }
            Value::Bytes(payload) if field == Field::Payload => self.put_payload(payload),
            Value::Number(length) if field == Field::PayloadLength => {
                let at = self.begin_payload();
                self.stretch(at, length.min(1 << 31) as usize);
            }
            Value::Bytes(options) => {
                if self.make_ip(TCP) && self.make_transport() {
                    self.put_tcp_options(options);
                }
            }
            Value::Number(number) if field.order() < 500 => self.put_transport(field, number),
            Value::Number(_) => {}
        }
    }

    fn link(&mut self) -> &mut [u8; 14] {
        self.link.get_or_insert([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0])
    }

    fn note(&mut self, field: Field, number: u64) {
        let notes = &mut self.notes;
        let time = notes.timestamp as i64;
        match field {
            Field::Timestamp | Field::NanoTimestamp => notes.timestamp = number,
            Field::Seconds => {
                let rest = time.rem_euclid(1_000_000_000);
                notes.timestamp = (i64::from(number as u32) * 1_000_000_000 + rest) as u64;
            }
            Field::Microseconds => {
                let whole = time.div_euclid(1_000_000_000) * 1_000_000_000;
                notes.timestamp = (whole + number as i64 % 1_000_000 * 1000) as u64;
            }
            Field::AllMicroseconds => notes.timestamp = number.wrapping_mul(1000),
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
        let word = (number as u16).to_be_bytes();
        let byte = number as u8;
        let [tos] = self.get(1);
        match field {
            Field::IpSource => self.set(12, &(number as u32).to_be_bytes()),
            Field::IpDestination => self.set(16, &(number as u32).to_be_bytes()),
            Field::IpTos => self.set(1, &[byte]),
            Field::IpDscp => self.set(1, &[byte << 2 | tos & 3]),
            Field::IpEcn => self.set(1, &[byte & 3 | tos & !3]),
            Field::IpTtl => self.set(8, &[byte]),
            Field::IpFragment | Field::IpFragmentOffset => self.set(6, &word),
            Field::IpId => self.set(4, &word),
            Field::IpChecksum => self.set(10, &word),
            Field::IpProtocol => self.set(9, &[byte]),
            Field::IpHeaderLength => {
                self.ip_options = true;
                let header = usize::from(byte).next_multiple_of(4).min(LONGEST_HEADER);
                self.grow(header);
                self.header = self.header.max(header);
                self.set(0, &[0x40 | (header / 4) as u8]);
            }
            Field::IpLength => self.length = self.link_length() + number.min(LONGEST as u64) as usize,
            _ => {}
        }
    }

    fn put_ip_options(&mut self, options: &[u8]) {
        self.ip_options = true;
        let header = (20 + options.len()).next_multiple_of(4);
        if options.is_empty() || header > LONGEST_HEADER {
            return;
        }
        self.grow(header);
        self.header = self.header.max(header);
        self.set(0, &[0x40 | (self.header / 4) as u8]);
        self.set(20, options);
    }

    fn put_tcp_options(&mut self, options: &[u8]) {
        self.tcp_options = true;
        let header = (20 + options.len()).next_multiple_of(4);
        if options.is_empty() || header > LONGEST_HEADER {
            return;
        }
        self.grow(self.header + header);
        let [offset] = self.get(self.header + 12);
        if header > usize::from(offset >> 4) * 4 {
            self.set_transport(12, &[(header as u8) << 2 | offset & 15]);
        }
        self.set_transport(20, options);
    }

    fn put_transport(&mut self, field: Field, number: u64) {
        let ports = [0, TCP, UDP, DCCP, UDPLITE];
        let wanted: &[u8] = match field {
            Field::SourcePort | Field::DestinationPort => &ports,
            Field::UdpLength => &[0, UDP, UDPLITE],
            Field::IcmpType
            | Field::IcmpTypeName
            | Field::IcmpCode
            | Field::IcmpCodeName
            | Field::IcmpFlow
            | Field::IcmpSequence
            | Field::IcmpMtu => &[0, ICMP],
            _ => &[0, TCP],
        };
        if !self.make_ip(0) || !wanted.contains(&self.network[9]) || !self.make_transport() {
            return;
        }
        let word = (number as u16).to_be_bytes();
        let long = (number as u32).to_be_bytes();
        let [offset, flags] = self.get(self.header + 12);
        match field {
            Field::SourcePort => self.set_transport(0, &word),
            Field::DestinationPort => self.set_transport(2, &word),
            Field::UdpLength => self.set_transport(4, &word),
            Field::TcpSequence => self.set_transport(4, &long),
            Field::TcpAcknowledgement => self.set_transport(8, &long),
            Field::TcpWindow => self.set_transport(14, &word),
            Field::TcpUrgent => self.set_transport(18, &word),
            Field::TcpFlags => self.set_transport(12, &[offset & 0xf0 | word[0] & 15, word[1]]),
            Field::TcpOffset => {
                self.tcp_options = true;
                let header = (number as usize).next_multiple_of(4).min(LONGEST_HEADER);
                self.grow(self.header + header);
                self.set_transport(12, &[(header as u8) << 2 | offset & 15, flags]);
            }
            _ => self.put_icmp(field, number as u8, word),
        }
    }

    fn put_icmp(&mut self, field: Field, byte: u8, word: [u8; 2]) {
        self.grow(self.header + 8);
        let sequenced = self.icmp_type.is_none_or(|own| matches!(own, 0 | 8 | 13..=16));
        let [own, code] = self.get(self.header);
        match field {
            Field::IcmpType | Field::IcmpTypeName => {
                self.icmp_type = Some(byte);
                self.set_transport(0, &[byte]);
                if matches!(byte, 13 | 14) {
                    self.grow(self.header + 20);
                }
            }
            Field::IcmpCode | Field::IcmpCodeName => {
                self.icmp_code = true;
                self.set_transport(1, &[byte]);
            }
            Field::IcmpFlow if sequenced => self.set_transport(4, &word),
            Field::IcmpSequence if sequenced => self.set_transport(6, &word),
            Field::IcmpMtu if (self.icmp_type.is_none() || own == 3) && (!self.icmp_code || code == 4) => {
                self.set_transport(6, &word);
            }
            _ => {}
        }
    }

    /// Makes headers; answers where the payload begins, from the network header on.
    fn begin_payload(&mut self) -> usize {
        if self.make_ip(0) {
            self.make_transport();
        }
        if self.has_ip() { self.payload_at() } else { 0 }
    }

    fn payload_at(&self) -> usize {
        let first = u16::from_be_bytes(self.get(6)) & 0x1fff == 0;
        self.header
            + match self.network.get(9) {
                _ if !first => 0,
                Some(&TCP) => (usize::from(self.get::<1>(self.header + 12)[0] >> 4) * 4).max(20),
                Some(&(UDP | UDPLITE)) => 8,
                _ => 0,
            }
    }

    /// Takes note of the payload's length. If the packet's length was given and is more, TCP's and then
    /// IP's options get the rest. Answers where the payload begins.
    fn stretch(&mut self, at: usize, payload: usize) -> usize {
        if !self.has_ip() || self.length == 0 {
            self.length = self.link_length() + at + payload;
            return at;
        }
        let mut spare = self.length.saturating_sub(self.link_length() + at + payload);
        let first = u16::from_be_bytes(self.get(6)) & 0x1fff == 0;
        let [offset] = self.get(self.header + 12);
        if first && self.network[9] == TCP && !self.tcp_options && offset >> 4 == 5 {
            let more = (spare & !3).min(LONGEST_HEADER - 20);
            self.insert(self.header + 20, more);
            self.set_transport(12, &[((20 + more) as u8) << 2 | offset & 15]);
            spare -= more;
        }
        if !self.ip_options && self.header == 20 {
            let more = (spare & !3).min(LONGEST_HEADER - 20);
            self.insert(20, more);
            self.header += more;
            self.set(0, &[0x40 | (self.header / 4) as u8]);
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

    /// Ends: headers that are missing, lengths, with `checksums` these and all of the length.
    pub(super) fn end(&mut self, checksums: bool) {
        if self.flow.is_some() {
            self.make_ip(0);
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
        self.set(2, &(length as u16).to_be_bytes());
        let first = u16::from_be_bytes(self.get(6)) & 0x1fff == 0;
        if first && self.network[9] == UDP && self.get(self.header + 4) == [0, 0] {
            self.set_transport(4, &(length.saturating_sub(self.header) as u16).to_be_bytes());
        }
        self.notes.set_dst_ip(self.get(16));
        if checksums {
            self.grow(length);
            self.set_checksums();
        }
    }

    fn set_checksums(&mut self) {
        let header = self.header.min(usize::from(self.network[0] & 15) * 4).min(self.network.len());
        self.set(10, &[0, 0]);
        let sum = checksum(&self.network[..header]);
        self.set(10, &sum.to_be_bytes());
        if u16::from_be_bytes(self.get(6)) & 0x3fff != 0 {
            return;
        }
        let protocol = self.network[9];
        let at = match protocol {
            TCP => 16,
            UDP => 6,
            ICMP => 2,
            _ => return,
        };
        self.set_transport(at, &[0, 0]);
        let transport = self.network.get(self.header..).unwrap_or_default();
        let mut sum = if protocol == ICMP {
            Sum::new()
        } else {
            let (source, destination) = (self.get(12).into(), self.get(16).into());
            Sum::pseudo_v4(source, destination, protocol, transport.len() as u16)
        };
        sum.add(transport);
        let sum = if protocol == UDP { sum.finish_nonzero() } else { sum.finish() };
        self.set_transport(at, &sum.to_be_bytes());
    }
}
