//! Tests of descriptions.

use super::*;
use crate::filter::{Filter, Subject};
use crate::pcapng::Direction;
use crate::{Sum, ipv4};
use proptest::prelude::*;

fn frame(text: &str) -> Vec<u8> {
    Described::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).frame
}

/// Whether the frame of a description matches a capture filter.
fn is(text: &str, filter: &str) -> bool {
    let data = frame(text);
    let subject = Subject { data: &data, len: data.len() as u32, direction: Direction::Inbound };
    Filter::parse(filter).unwrap().matches(&subject)
}

#[test]
fn fields_are_those_that_filters_see() {
    for (text, filter) in [
        ("dl_src=02:00:00:00:00:01,dl_dst=02:00:00:00:00:02", "ether src 02:00:00:00:00:01"),
        ("eth_dst=ff:ff:ff:ff:ff:ff", "ether broadcast"),
        ("tcp,nw_src=10.0.0.1,nw_dst=10.0.0.2,tp_src=1,tp_dst=80", "src host 10.0.0.1 and tcp dst port 80"),
        ("udp6, ipv6_src=fd00::1, udp_dst=53", "ip6 src host fd00::1 and udp dst port 53"),
        ("arp,arp_spa=10.0.0.1,nw_dst=10.0.0.9,dl_src=02:00:00:00:00:07", "arp host 10.0.0.9"),
        ("arp,dl_src=02:00:00:00:00:07", "ether[22:4] = 0x02000000 and arp[6:2] = 1"),
        ("icmp,icmp_type=3,icmp_code=4", "icmp[0] = 3 and icmp[1] = 4"),
        ("icmp", "icmp[icmptype] = icmp-echo"),
        ("icmp6,icmpv6_type=136", "icmp6 and ip6[40] = 136"),
        ("dl_vlan=100,dl_vlan_pcp=5,udp,tp_dst=7", "vlan 100 and udp port 7"),
        ("dl_type=0x88cc", "ether proto 0x88cc"),
        ("ip,nw_proto=89,nw_ttl=1,nw_tos=0x10", "ip proto 89 and ip[8] = 1 and ip[1] = 16"),
        ("tcp,tcp_flags=syn+ack", "tcp[tcpflags] = tcp-syn|tcp-ack"),
        ("tcp,tcp_flags=+syn-ack", "tcp[tcpflags] = tcp-syn"),
        ("tcp,len=1514", "greater 1514 and ip[2:2] = 1500"),
        ("udp", "greater 60 and less 60 and udp[4:2] = 8"),
        ("ip,tcp,nw_proto=6", "tcp"),
    ] {
        assert!(is(text, filter), "{text}: {filter}");
    }
    let port = Described::parse("in_port=left,udp").unwrap().in_port;
    assert_eq!(port, Some(("left".into(), 9)));
    assert_eq!(frame("len=3").len(), 3);
    assert_eq!(frame("tcp,len=20").len(), 20, "cut within the IP header");
    assert_eq!(frame("tcp6,len=65557").len(), 65_557);
}

#[test]
fn mistakes_are_shown_with_their_column() {
    for (text, expected) in [
        ("", "column 1: a word is missing, such as `tcp` or `dl_dst=02:00:00:00:00:02`"),
        ("tcp,", "column 5: a word is missing, such as `tcp` or `dl_dst=02:00:00:00:00:02`"),
        ("tcp, nw_dts=1", "column 6: unknown word `nw_dts`; the fields are those of `man ovs-fields`"),
        ("tcp,nw_dst=10.0.0", "column 12: `10.0.0` is not an IPv4 address, such as 10.0.0.1"),
        ("tcp,nw_dst = x", "column 14: `x` is not an IPv4 address, such as 10.0.0.1"),
        (
            "tcp,nw_dst=10.0.0.0/8",
            "column 12: `10.0.0.0/8` has a mask; a frame has one value, so leave the mask out",
        ),
        ("nw_dst=10.0.0.1", "column 1: `nw_dst` needs ip, tcp, udp, icmp or arp"),
        ("udp,tcp_flags=syn", "column 5: `tcp_flags` needs tcp or tcp6"),
        ("tcp,udp", "column 5: `udp` contradicts what is before it; a frame has one value of each field"),
        ("dl_vlan=4096", "column 9: `4096` is not a number from 0 to 4095"),
        ("dl_vlan=+1", "column 9: `+1` is not a number from 0 to 4095"),
        ("dl_vlan", "column 1: `dl_vlan` needs a value, as in dl_vlan=VALUE"),
        ("dl_vlan=", "column 1: `dl_vlan` needs a value, as in dl_vlan=VALUE"),
        ("in_port", "column 1: `in_port` needs a value, as in in_port=VALUE"),
        ("tcp=1", "column 5: `tcp` takes no value; separate fields by commas"),
        ("dl_dst=02:00", "column 8: `02:00` is not a MAC address, such as 02:00:00:00:00:01"),
        (
            "tcp,tcp_flags=syn+x",
            "column 15: `syn+x` is not a list of TCP flags, such as syn+ack; there are fin, syn, rst, psh, \
             ack, urg, ece, cwr, ns",
        ),
    ] {
        let error = Described::parse(text).expect_err(text).to_string();
        assert_eq!(error, expected, "{text}");
    }
    assert!(Described::parse(&"tcp,".repeat(LONGEST)).is_err());
}

#[test]
fn hexadecimal_digits_are_a_frame_too() {
    let read = |text: &str| Described::read(text).map(|described| described.frame);
    let bytes = [2, 0, 0, 0, 0, 0x1a];
    for text in [
        "02000000001a",
        "02:00:00:00:00:1A",
        "0200 0000\n 001a",
        "0x02000000001a",
        " 0x0000:  0200 0000\n\t0x0004:  001a",
    ] {
        assert_eq!(read(text).as_deref(), Ok(&bytes[..]), "{text}");
    }
    assert_eq!(read("arp"), Described::parse("arp").map(|described| described.frame), "a protocol's name");
    assert!(read("dl_type=0x88cc").is_ok());
    for (text, expected) in [
        ("02000", "column 5: the last byte has one digit; a byte has two"),
        ("0200zz", "column 5: `z` is no hexadecimal digit"),
        ("02\n0g", "column 5: `g` is no hexadecimal digit"),
        ("", "column 1: a word is missing, such as `tcp` or `dl_dst=02:00:00:00:00:02`"),
    ] {
        assert_eq!(read(text).unwrap_err().to_string(), expected, "{text}");
    }
    assert!(read(&"00".repeat(65_558)).is_err() && read(&"00".repeat(65_557)).is_ok());
}

proptest! {
    #[test]
    fn digits_are_read_back(bytes in prop::collection::vec(any::<u8>(), 1..100), joined: bool) {
        let separator = if joined { "" } else { " " };
        let text: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        prop_assert_eq!(Described::read(&text.join(separator)).unwrap().frame, bytes);
    }

    #[test]
    fn any_text_gives_a_frame_or_an_error_at_a_column_of_it(
        text in "((tcp|udp6|arp|icmp6|dl_vlan|nw_src|ipv6_dst|é)(=([0-9a-f.:+x/-]{0,9}))?,?){0,5}"
    ) {
        match Described::parse(&text) {
            Ok(described) => prop_assert!(described.frame.len() as u128 <= LARGEST),
            Err(error) => prop_assert!((1..=text.chars().count() + 1).contains(&error.column), "{}", error),
        }
    }

    #[test]
    fn checksums_are_valid_at_any_length(
        source: u32, destination: u32, port: u16, len in 54_usize..3000, is_udp: bool,
    ) {
        let (source, destination) = (Ipv4Addr::from_bits(source), Ipv4Addr::from_bits(destination));
        let word = if is_udp { "udp" } else { "tcp" };
        let data = frame(&format!("{word},nw_src={source},nw_dst={destination},tp_dst={port},len={len}"));
        prop_assert_eq!(data.len(), len);
        let packet = ipv4::Packet::parse(&data[14..]).unwrap();
        let mut header = Sum::new();
        header.add(&data[14..34]);
        prop_assert!(header.is_valid());
        let upper = packet.payload;
        let mut sum = Sum::pseudo_v4(source, destination, if is_udp { 17 } else { 6 }, upper.len() as u16);
        sum.add(upper);
        prop_assert!(sum.is_valid());
    }
}
