//! Capture files in the next-generation format.

use ringway_wire::pcapng::{Direction, INTERFACES, Packet, Reader};
use ringway_wire::pcapng::{write_interface, write_packet, write_section};

/// Parses `data` as a file; writes the result and parses that again.
pub fn run(data: &[u8]) {
    let mut reader = Reader::new(data);
    let packets: Vec<Packet<'_>> = reader.by_ref().map_while(Result::ok).collect();
    assert!(reader.interfaces().len() <= INTERFACES);
    let mut file = Vec::new();
    write_section(&mut file);
    write_interface(&mut file, "fuzz");
    let packets: Vec<Packet<'_>> =
        packets.into_iter().map(|packet| Packet { interface: 0, ..packet }).collect();
    for packet in &packets {
        write_packet(&mut file, packet);
    }
    let again: Result<Vec<Packet<'_>>, _> = Reader::new(&file).collect();
    assert!(again.as_ref().is_ok_and(|again| again.len() == packets.len()));
    for (first, second) in packets.iter().zip(again.iter().flatten()) {
        assert!(first.data.len() > second.data.len() || first == second);
    }
}

/// A file written by this project, and one by another program in the other byte order.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut ours = Vec::new();
    write_section(&mut ours);
    write_interface(&mut ours, "port");
    for (direction, data) in [(Direction::Unknown, &b""[..]), (Direction::Outbound, b"frame")] {
        let packet = Packet { interface: 0, time: 1 << 60, original_len: 99, direction, data };
        write_packet(&mut ours, &packet);
    }
    let mut theirs = b"\x0a\x0d\x0d\x0a\0\0\0\x1c\x1a\x2b\x3c\x4d\0\x01\0\0".to_vec();
    theirs.extend_from_slice(b"\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\x1c");
    theirs.extend_from_slice(b"\0\0\0\x01\0\0\0\x2c\0\x01\0\0\0\0\0\x04");
    theirs.extend_from_slice(b"\0\x09\0\x01\x8a\0\0\0\0\x0e\0\x08\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\0\x2c");
    theirs.extend_from_slice(b"\0\0\0\x03\0\0\0\x14\0\0\0\x09defg\0\0\0\x14");
    theirs.extend_from_slice(b"\0\0\0\x02\0\0\0\x24\0\0\0\x07\0\0\0\0\0\0\x04\0\0\0\0\x01\0\0\0\x01h\0\0\0");
    theirs.extend_from_slice(b"\0\0\0\x24");
    vec![ours, theirs]
}
