//! IP summary dumps, as lines and packed.

use ringway_click::{HEADROOM, Pool};
use ringway_elements::summary::{Item, Reader, Writer, record_length};

/// Fields of every kind.
const FIELDS: &str = "timestamp ip_len ip_hl ip_opt tcp_opt tcp_off payload payload_len icmp_type_name \
    eth_src ip_fragoff count sport tcp_flags wire_len";

/// Reads `data` as lines, then as a packed record; writes each packet both ways.
pub fn run(data: &[u8]) {
    let pool = Pool::new();
    let make = &mut |length| pool.make(HEADROOM, length, 0);
    let Ok(text) = Writer::new(FIELDS, false) else { return };
    let mut reader = Reader::default();
    reader.checksums = data.len() % 2 == 1;
    reader.set_fields(FIELDS);
    let mut out = Vec::new();
    for line in String::from_utf8_lossy(data).lines() {
        if let Item::Packet(mut packet) = reader.line(line, make) {
            text.packet(&mut packet, &mut out);
            assert_eq!(out.last(), Some(&b'\n'));
        }
    }
    let packed = FIELDS.replace("payload ", "");
    let Ok(binary) = Writer::new(&packed, true) else { return };
    reader.set_fields(&packed);
    if let Item::Packet(mut packet) = reader.record(data, make) {
        let mut record = Vec::new();
        binary.packet(&mut packet, &mut record);
        let length = record.first_chunk().map(|word| record_length(*word));
        assert_eq!(length.and_then(Result::ok).map(|length| length.bytes + 4), Some(record.len()));
    }
}

/// Typical lines.
pub fn seeds() -> Vec<Vec<u8>> {
    let lines = [
        "1.5 100 20 rr{1.2.3.4}+2 mss1400;sackok 20 \"hi\" 2 - 1-2-3-4-5-6 0+ 3 80 SA 114",
        "!data src sport dst dport proto\n!proto U\n1.0.0.1 5 2.0.0.2 6 T",
        "!flowid 1.0.0.1 5 2.0.0.2 6 I\n!data icmp_type_name icmp_code_name\nunreachable needfrag",
    ];
    lines.iter().map(|line| line.as_bytes().to_vec()).collect()
}
