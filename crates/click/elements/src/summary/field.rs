//! The fields of a dump.

/// How a field is stored in a binary record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// This many bytes, most significant first.
    Bytes(usize),
    /// Seconds and microseconds, 4 bytes each.
    Micro,
    /// Seconds and nanoseconds, 4 bytes each.
    Nano,
    /// A length byte and that many bytes.
    Counted,
    /// Not stored.
    Never,
}

macro_rules! fields {
    ($($field:ident $name:literal $stored:expr, $order:expr, $read:literal, $doc:literal;)*) => {
        /// A field of a dump.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Field {
            $(#[doc = $doc] $field,)*
        }

        /// Name, field, storage, order of writing into a packet, and whether the field can be read from a dump.
        const FACTS: &[(&str, Field, Stored, u16, bool)] =
            &[$(($name, Field::$field, $stored, $order, $read),)*];
    };
}

use Stored::{Bytes, Counted, Micro, Nano, Never};

fields! {
    Nothing "none" Bytes(0), 100, true, "No field: skipped.";
    Timestamp "timestamp" Micro, 100, true, "When the packet was seen.";
    NanoTimestamp "ntimestamp" Nano, 100, true, "The same, stored with nanoseconds.";
    Seconds "ts_sec" Bytes(4), 100, true, "Seconds of that.";
    Microseconds "ts_usec" Bytes(4), 100, true, "Microseconds of that.";
    AllMicroseconds "ts_usec1" Bytes(8), 100, true, "All of it in microseconds.";
    FirstTimestamp "first_timestamp" Micro, 100, true, "When the first of several packets was seen.";
    FirstNanoTimestamp "first_ntimestamp" Nano, 100, true, "The same, stored with nanoseconds.";
    Count "count" Bytes(4), 100, true, "How many packets this stands for.";
    Link "link" Bytes(1), 100, true, "Paint, as a number.";
    Paint "paint" Bytes(1), 100, true, "Paint, as a number.";
    Direction "direction" Bytes(1), 100, true, "Paint, `>` and `<` for 0 and 1.";
    Aggregate "aggregate" Bytes(4), 100, true, "Aggregate number.";
    WireLength "wire_len" Bytes(4), 100, true, "Length of the whole packet.";
    EtherSource "eth_src" Bytes(6), 200, true, "Ethernet source.";
    EtherDestination "eth_dst" Bytes(6), 200, true, "Ethernet destination.";
    EtherType "eth_type" Bytes(2), 200, true, "Ethernet type, in hexadecimal.";
    IpFragment "ip_frag" Bytes(1), 298, true, "`F`, `f`, `!` or `.`.";
    IpFragmentOffset "ip_fragoff" Bytes(2), 299, true, "Fragment offset in bytes, `+` and `!` for MF and DF.";
    IpHeaderLength "ip_hl" Bytes(1), 299, true, "IP header length in bytes.";
    IpSource "ip_src" Bytes(4), 300, true, "IP source address.";
    IpDestination "ip_dst" Bytes(4), 300, true, "IP destination address.";
    IpTos "ip_tos" Bytes(1), 300, true, "IP type of service.";
    IpDscp "ip_dscp" Bytes(1), 300, true, "Its upper six bits.";
    IpEcn "ip_ecn" Bytes(1), 300, true, "Its lower two bits.";
    IpTtl "ip_ttl" Bytes(1), 300, true, "IP time to live.";
    IpId "ip_id" Bytes(2), 300, true, "IP identification.";
    IpProtocol "ip_proto" Bytes(1), 300, true, "IP protocol.";
    IpOptions "ip_opt" Counted, 300, true, "IP options.";
    IpLength "ip_len" Bytes(4), 301, true, "IP length.";
    IpChecksum "ip_sum" Bytes(2), 302, true, "IP checksum.";
    SourcePort "sport" Bytes(2), 400, true, "TCP or UDP source port.";
    DestinationPort "dport" Bytes(2), 400, true, "TCP or UDP destination port.";
    TcpSequence "tcp_seq" Bytes(4), 400, true, "TCP sequence number.";
    TcpAcknowledgement "tcp_ack" Bytes(4), 400, true, "TCP acknowledgement number.";
    TcpOffset "tcp_off" Bytes(1), 400, true, "TCP header length in bytes.";
    TcpFlags "tcp_flags" Bytes(1), 400, true, "TCP flags.";
    TcpWindow "tcp_window" Bytes(2), 400, true, "TCP window.";
    TcpUrgent "tcp_urp" Bytes(2), 400, true, "TCP urgent pointer.";
    TcpOptions "tcp_opt" Counted, 400, true, "TCP options.";
    TcpOtherOptions "tcp_ntopt" Counted, 400, true, "TCP options except timestamps.";
    TcpSack "tcp_sack" Counted, 400, true, "TCP selective acknowledgements.";
    UdpLength "udp_len" Bytes(4), 400, true, "UDP length.";
    IcmpType "icmp_type" Bytes(1), 400, true, "ICMP type.";
    IcmpTypeName "icmp_type_name" Bytes(1), 400, true, "ICMP type by name.";
    IcmpCode "icmp_code" Bytes(1), 401, true, "ICMP code.";
    IcmpCodeName "icmp_code_name" Bytes(1), 401, true, "ICMP code by name.";
    IcmpFlow "icmp_flowid" Bytes(2), 402, true, "ICMP identifier.";
    IcmpSequence "icmp_seq" Bytes(2), 402, true, "ICMP sequence number.";
    IcmpMtu "icmp_nextmtu" Bytes(2), 402, true, "ICMP next hop's MTU.";
    Payload "payload" Never, 500, true, "Payload, as a string.";
    PayloadLength "payload_len" Bytes(4), 501, true, "Payload length.";
    PayloadMd5 "payload_md5" Bytes(16), 501, false, "MD5 of the payload, in 22 characters.";
    PayloadMd5Hex "payload_md5_hex" Bytes(16), 501, false, "MD5 of the payload, in hexadecimal.";
    CaptureLength "ip_capture_len" Bytes(4), 502, true, "How much of the IP length was captured.";
}

const SYNONYMS: &[(&str, &str)] = &[
    ("utimestamp", "timestamp"),
    ("ts", "timestamp"),
    ("sec", "ts_sec"),
    ("usec", "ts_usec"),
    ("usec1", "ts_usec1"),
    ("first_utimestamp", "first_timestamp"),
    ("first_ts", "first_timestamp"),
    ("pkt_count", "count"),
    ("packet_count", "count"),
    ("agg", "aggregate"),
    ("wire_length", "wire_len"),
    ("ether_src", "eth_src"),
    ("ether_dst", "eth_dst"),
    ("ether_type", "eth_type"),
    ("length", "ip_len"),
    ("ip_p", "ip_proto"),
    ("tcp_sackopt", "tcp_sack"),
    ("tcp_win", "tcp_window"),
    ("payload_length", "payload_len"),
];

impl Field {
    /// The field with this name. Spaces may replace underscores, and `ip_` may be omitted.
    pub fn find(name: &str) -> Option<Self> {
        let exact = |name: &str| {
            let name = SYNONYMS.iter().find(|(other, _)| *other == name).map_or(name, |(_, own)| own);
            FACTS.iter().find(|fact| fact.0 == name).map(|fact| fact.1)
        };
        let name = name.replace(' ', "_");
        exact(&name).or_else(|| if name.contains('_') { None } else { exact(&alloc::format!("ip_{name}")) })
    }

    fn properties(self) -> &'static (&'static str, Field, Stored, u16, bool) {
        FACTS.iter().find(|fact| fact.1 == self).unwrap_or(&FACTS[0])
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.properties().0
    }

    /// How it is stored.
    pub(super) fn stored(self) -> Stored {
        self.properties().2
    }

    /// Whether a binary dump can contain the field.
    pub fn is_binary(self) -> bool {
        self.stored() != Never
    }

    /// The order in which fields are written into a packet: fields that determine a header's layout come first.
    pub(super) fn order(self) -> u16 {
        self.properties().3
    }

    /// Whether packets can be made from the field.
    pub fn is_readable(self) -> bool {
        self.properties().4
    }
}

/// The value of a field: addresses, options and payloads as in a packet, times in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}
