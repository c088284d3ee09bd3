use super::*;
use ringway_click::prelude::*;
use ringway_click::{HEADROOM, Pool};

/// Reads a dump's text, and writes its packets with these fields.
fn through(dump: &str, fields: &str) -> String {
    let pool = Pool::new();
    let mut reader = Reader::default();
    reader.checksums = true;
    let writer = Writer::new(fields, false).unwrap();
    let mut out = Vec::new();
    for line in dump.lines() {
        match reader.line(line, &mut |n| pool.make(HEADROOM, n, 0)) {
            Item::Packet(mut packet) => writer.packet(&mut packet, &mut out),
            Item::Warning(text) | Item::Error(text) => out.extend(alloc::format!("? {text}\n").bytes()),
            Item::Nothing | Item::Binary => {}
        }
    }
    String::from_utf8(out).unwrap()
}

#[test]
fn every_field_round_trips() {
    let lines = [
        ("timestamp ts_sec ts_usec1", "1.500000 1 1500000"),
        ("count link direction aggregate", "3 2 2 77"),
        ("ip_src ip_dst ip_tos ip_ttl ip_id ip_proto ip_hl", "1.0.0.1 2.0.0.2 7 9 300 99 20"),
        ("ip_dscp ip_ecn ip_fragoff", "9 ce 24+"),
        ("sport dport ip_proto", "22 80 U"),
        ("tcp_seq tcp_ack tcp_flags tcp_window tcp_urp tcp_off", "1 2 SA 3 4 20"),
        ("tcp_opt ip_opt", "mss1400;sackok rr{1.2.3.4}+2"),
        ("ip_proto udp_len", "U 34"),
        ("ip_proto icmp_type_name icmp_code_name icmp_nextmtu", "I unreachable needfrag 576"),
        ("ip_proto icmp_type icmp_flowid icmp_seq", "I 8 10 11"),
        ("ip_proto payload payload_len", "U \"hi there\\n\" 9"),
        ("eth_src eth_dst eth_type", "00-0A-95-A6-D9-BC 01-02-03-04-05-06 0800"),
        ("ip_len payload_len", "1000 960"),
    ];
    for (fields, values) in lines {
        let dump = alloc::format!("!data {fields}\n{values}\n");
        assert_eq!(through(&dump, fields), alloc::format!("{values}\n"));
    }
}

#[test]
fn md5_is_written_both_ways() {
    let dump = "!data payload\n\"hi there\\n\"\n";
    let expected = "sy@Uze03MHB84qQruJ_zma 12f6bb1941df66b8f138a446d4e8670c\n";
    assert_eq!(through(dump, "payload_md5 payload_md5_hex"), expected);
}

#[test]
fn missing_fields_are_written_as_a_dash() {
    assert_eq!(through("!proto I\n!data ip_src\n1.0.0.1\n", "sport tcp_seq src"), "- - 1.0.0.1\n");
    let dump = "!flowid 1.0.0.1 10 2.0.0.2 20 U\n!data ip_id sport\n5 -\n6 7\n";
    let expected = "5 1.0.0.1 10 2.0.0.2 20 U\n6 1.0.0.1 7 2.0.0.2 20 U\n";
    assert_eq!(through(dump, "ip_id src sport dst dport p"), expected);
}

#[test]
fn invalid_lines_are_reported_once() {
    assert_eq!(through("1 2\n3 4\n", "src"), "? no '!data' provided\n");
    assert_eq!(through("!data src\nx\ny\n", "src"), "? packet parse error\n");
    assert_eq!(through("!data nonsense src\n", "src"), "? unknown content type 'nonsense'\n");
}

#[test]
fn invalid_packets_are_marked() {
    let pool = Pool::new();
    let writer = Writer { bad_packets: true, ..Writer::new("sport tcp_seq", false).unwrap() };
    let mut reader = Reader::default();
    reader.set_fields("ip_src sport tcp_seq");
    let Item::Packet(mut packet) = reader.line("1.0.0.1 5 6", &mut |n| pool.make(HEADROOM, n, 0)) else {
        panic!("no packet")
    };
    packet.take(18);
    let mut out = Vec::new();
    writer.packet(&mut packet, &mut out);
    let text = String::from_utf8(out).unwrap();
    assert_eq!(text, "!bad truncated IP missing 18\n5 -\n");
}

#[test]
fn binary_records_round_trip() {
    let pool = Pool::new();
    let fields = "timestamp ip_src sport tcp_opt ip_opt ip_frag count tcp_flags eth_src ts_usec1 payload_md5";
    let (binary, text) = (Writer::new(fields, true).unwrap(), Writer::new(fields, false).unwrap());
    let mut reader = Reader::default();
    reader.set_fields(fields);
    let line = "5.250000 1.2.3.4 22 mss1400 . ! 9 SA 01-02-03-04-05-06 5250000 -";
    let Item::Packet(mut packet) = reader.line(line, &mut |n| pool.make(HEADROOM, n, 0)) else {
        panic!("no packet")
    };
    let mut record = Vec::new();
    binary.packet(&mut packet, &mut record);
    let length = record_length(*record.first_chunk().unwrap()).unwrap();
    assert_eq!((length.bytes + 4, length.text), (record.len(), false));
    let Item::Packet(mut again) = reader.record(&record[4..], &mut |n| pool.make(HEADROOM, n, 0)) else {
        panic!("no packet")
    };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    text.packet(&mut packet, &mut first);
    text.packet(&mut again, &mut second);
    assert_eq!(String::from_utf8(first), String::from_utf8(second));
}

#[test]
fn times_may_be_negative() {
    assert_eq!(alloc::format!("{} {}", Time(-900_000_000), Time(1_000_000_001)), "-0.900000 1.000000001");
}

fn junk(bytes: &[u8], pool: &Pool) -> Option<Packet> {
    let mut packet = pool.copy(bytes)?;
    packet.set_network_header(14, 20);
    packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, 7);
    Some(packet)
}

/// All fields, by name.
const ALL: &str = "timestamp ip_src ip_dst ip_frag ip_fragoff ip_len ip_proto ip_hl \
    ip_id ip_tos ip_dscp ip_ecn \
    ip_ttl ip_sum ip_opt sport dport tcp_seq tcp_ack tcp_off tcp_flags tcp_opt tcp_ntopt tcp_sack \
    tcp_window tcp_urp udp_len icmp_type icmp_code icmp_type_name icmp_code_name icmp_flowid \
    icmp_seq icmp_nextmtu payload payload_len payload_md5 payload_md5_hex ip_capture_len count \
    direction link aggregate first_timestamp eth_src eth_dst eth_type wire_len";

proptest::proptest! {
    #[test]
    fn any_packet_can_be_written(bytes in proptest::collection::vec(0u8.., 0..120), header in 0x40u8..0x50) {
        let pool = Pool::new();
        let mut bytes = bytes;
        if let Some(first) = bytes.get_mut(14) {
            *first = header;
        }
        let mut out = Vec::new();
        if let Some(mut packet) = junk(&bytes, &pool) {
            let writer = Writer { bad_packets: true, ..Writer::new(ALL, false).unwrap() };
            writer.packet(&mut packet, &mut out);
        }
        assert_eq!(out.last(), Some(&b'\n'));
    }

    #[test]
    fn any_line_can_be_read(lines in proptest::collection::vec("[-!0-9.a-z{}^+;:=\" ]{0,60}", 0..4)) {
        let pool = Pool::new();
        let mut reader = Reader::default();
reader.checksums = true;
        reader.set_fields("ip_len ip_opt tcp_opt payload ip_hl tcp_off payload_len icmp_type");
        for line in lines {
            if let Item::Packet(mut packet) = reader.line(&line, &mut |n| pool.make(HEADROOM, n, 0)) {
                Writer::new(ALL, false).unwrap().packet(&mut packet, &mut Vec::new());
            }
            reader.record(line.as_bytes(), &mut |n| pool.make(HEADROOM, n, 0));
        }
    }
}
