//! Filter expressions of captures, applied to frames.

use ringway_wire::filter::{Filter, Subject};
use ringway_wire::pcapng::{
    Direction, Packet, Reader, write_commented, write_interface_of, write_section_of,
};

/// Splits `data` at its first zero byte: an expression, and a frame that it is applied to, whole and truncated.
pub fn run(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let Ok(text) = std::str::from_utf8(&data[..end]) else { return };
    let frame = data.get(end + 1..).unwrap_or(&[]);
    written(text, frame);
    let Ok(filter) = Filter::parse(text) else { return };
    let all = Filter::parse(&format!("({text}) or not ({text})"));
    for len in [frame.len(), frame.len() / 2, 0] {
        for direction in [Direction::Inbound, Direction::Outbound] {
            let subject = Subject { data: &frame[..len], len: frame.len() as u32, direction };
            let matches = filter.matches(&subject);
            // A tag shifts what follows it, so that the second half may need other bytes.
            if let Ok(all) = &all
                && matches
                && !text.contains("vlan")
            {
                assert!(all.matches(&subject), "{text}");
            }
        }
    }
}

/// A frame with a comment that a client writes is read back.
fn written(comment: &str, frame: &[u8]) {
    let packet = Packet {
        interface: 0,
        time: frame.len() as u64,
        original_len: frame.len() as u32,
        direction: Direction::Outbound,
        data: frame,
    };
    let mut file = Vec::new();
    write_section_of(&mut file, comment);
    write_interface_of(&mut file, comment, 96);
    write_commented(&mut file, &packet, comment);
    assert_eq!(Reader::new(&file).collect::<Vec<_>>(), [Ok(packet)]);
}

/// Expressions of each kind, with a frame.
pub fn seeds() -> Vec<Vec<u8>> {
    let ethernet = b"\0\x02\0\0\0\0\x02\x02\0\0\0\0\x01\x08\0";
    let ip = b"\x45\0\0\x28\0\x01\0\0\x40\x06\0\0\x0a\0\0\x01\x0a\0\0\x02\0\x50\x03\xe8";
    let frame = [&ethernet[..], ip].concat();
    let texts = [
        "tcp port 80 or 443 and not src host 10.0.0.1",
        "vlan 5 and (udp portrange 1-100 or ip6 net fe80::/16)",
        "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 && ip[2:2] - ((ip[0]&0xf)<<2) > 20",
        "ether src 02:00:00:00:00:01 or broadcast or less 60 or inbound",
    ];
    texts.iter().map(|text| [text.as_bytes(), &frame].concat()).collect()
}
