//! Capture files in the classic format.

use ringway_wire::pcap::{Header, Reader, Record};

/// Parses `data` as a file; writes the result and parses that again.
pub fn run(data: &[u8]) {
    let Ok(reader) = Reader::new(data) else { return };
    let header = reader.header();
    let records: Vec<Record<'_>> = reader.map_while(Result::ok).collect();
    let mut file = header.to_bytes().to_vec();
    for record in &records {
        file.extend_from_slice(&header.record_header(
            record.time,
            record.data.len() as u32,
            record.original_len,
        ));
        file.extend_from_slice(record.data);
    }
    let again = Reader::new(&file).map(|reader| reader.filter_map(Result::ok).count());
    assert_eq!(again, Ok(records.len()));
}

/// A file in each byte order.
pub fn seeds() -> Vec<Vec<u8>> {
    let file = |big_endian, nanoseconds| {
        let header = Header { big_endian, nanoseconds, ..Header::ethernet() };
        let mut file = header.to_bytes().to_vec();
        for len in [0u8, 1, 60] {
            file.extend_from_slice(&header.record_header(1_700_000_000_123_456_789, len.into(), 1514));
            file.extend(0..len);
        }
        file
    };
    vec![file(false, true), file(true, true), file(false, false), file(true, false)]
}
