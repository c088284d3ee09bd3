//! pcap capture files (draft-ietf-opsawg-pcap), in either byte order, with times in micro- or nanoseconds.
//!
//! This module does no I/O: a caller passes the bytes read so far to [`Header::parse`] and
//! [`Header::record`], and calls again with more bytes if there were too few. [`LONGEST`] and [`RECORD_LEN`]
//! limit how many are needed.

use crate::bytes::Cursor;

/// Length of the file header.
pub const HEADER_LEN: usize = 24;
/// Length of a record header.
pub const RECORD_LEN: usize = 16;
/// Longest packet that is read. Attack: a record with a length of 4 GB, which its reader would buffer.
pub const LONGEST: u32 = 256 << 10;
/// Link type of Ethernet.
pub const ETHERNET: u16 = 1;

const MICROSECONDS: u32 = 0xa1b2_c3d4;
const NANOSECONDS: u32 = 0xa1b2_3c4d;

/// Why a capture file is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcapError {
    /// An unknown magic number.
    #[error("not a pcap file: unknown magic number")]
    Magic,
    /// An unsupported version of the format.
    #[error("unsupported pcap version {0}.{1}: convert the file to version 2.4 with editcap")]
    Version(u16, u16),
    /// A record longer than any packet.
    #[error("a record of {0} bytes, more than the maximum of {LONGEST}: the file is corrupt")]
    Long(u32),
    /// The file ends within a header or record.
    #[error("the file ends in the middle of a record")]
    Truncated,
}

/// The file's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Whether numbers are big-endian.
    pub big_endian: bool,
    /// Whether times are in nanoseconds instead of microseconds.
    pub nanoseconds: bool,
    /// Largest captured length in bytes; 0 means unlimited.
    pub snap_len: u32,
    /// Link type of the packets, for example [`ETHERNET`].
    pub link_type: u16,
}

/// One captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Nanoseconds since 1970-01-01 UTC.
    pub time: u64,
    /// Original length of the packet in bytes.
    pub original_len: u32,
    /// The captured bytes of the packet.
    pub data: &'a [u8],
}

impl Header {
    /// The header that Ringway writes: little-endian, nanoseconds, Ethernet, packets of up to [`LONGEST`]
    /// bytes.
    pub const fn ethernet() -> Header {
        Header { big_endian: false, nanoseconds: true, snap_len: LONGEST, link_type: ETHERNET }
    }

    /// Parses the first [`HEADER_LEN`] bytes of a file; `None` if there are fewer.
    pub fn parse(bytes: &[u8]) -> Result<Option<Header>, PcapError> {
        let mut cursor = Cursor { rest: bytes, big: false };
        let Some(magic) = cursor.u32() else { return Ok(None) };
        let (big_endian, nanoseconds) = match (magic, magic.swap_bytes()) {
            (MICROSECONDS, _) => (false, false),
            (NANOSECONDS, _) => (false, true),
            (_, MICROSECONDS) => (true, false),
            (_, NANOSECONDS) => (true, true),
            _ => return Err(PcapError::Magic),
        };
        cursor.big = big_endian;
        let mut rest = || {
            let version = (cursor.u16()?, cursor.u16()?);
            cursor.take(8)?;
            Some((version, cursor.u32()?, cursor.u32()?))
        };
        let Some((version, snap_len, link)) = rest() else { return Ok(None) };
        if version != (2, 4) {
            return Err(PcapError::Version(version.0, version.1));
        }
        // The upper half has flags about frame check sequences.
        Ok(Some(Header { big_endian, nanoseconds, snap_len, link_type: link as u16 }))
    }

    /// Parses the record at the start of `bytes`; returns the record and its size in bytes. `None` if there
    /// are too few bytes.
    pub fn record<'a>(&self, bytes: &'a [u8]) -> Result<Option<(Record<'a>, usize)>, PcapError> {
        let mut cursor = Cursor { rest: bytes, big: self.big_endian };
        let mut fields = || Some((cursor.u32()?, cursor.u32()?, cursor.u32()?, cursor.u32()?));
        let Some((seconds, fraction, captured_len, original_len)) = fields() else { return Ok(None) };
        if captured_len > LONGEST {
            return Err(PcapError::Long(captured_len));
        }
        let Some(data) = cursor.take(captured_len as usize) else { return Ok(None) };
        let unit = if self.nanoseconds { 1 } else { 1000 };
        let time = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * unit;
        Ok(Some((Record { time, original_len, data }, RECORD_LEN + data.len())))
    }

    fn encode(&self, number: u32) -> [u8; 4] {
        if self.big_endian { number.to_be_bytes() } else { number.to_le_bytes() }
    }

    /// The encoded header.
    pub fn to_bytes(&self) -> [u8; HEADER_LEN] {
        let magic = if self.nanoseconds { NANOSECONDS } else { MICROSECONDS };
        let version = if self.big_endian { 2 << 16 | 4 } else { 4 << 16 | 2 };
        let words = [magic, version, 0, 0, self.snap_len, u32::from(self.link_type)];
        let mut out = [0; HEADER_LEN];
        for (slot, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *slot = self.encode(word);
        }
        out
    }

    /// The header of a record with a packet's first `captured_len` bytes, captured at `time` nanoseconds
    /// since
    /// 1970. The seconds wrap in 2106, since the format has 32 bits for them.
    pub fn record_header(&self, time: u64, captured_len: u32, original_len: u32) -> [u8; RECORD_LEN] {
        let fraction = (time % 1_000_000_000) as u32 / if self.nanoseconds { 1 } else { 1000 };
        let words = [(time / 1_000_000_000) as u32, fraction, captured_len, original_len];
        let mut out = [0; RECORD_LEN];
        for (slot, word) in out.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *slot = self.encode(word);
        }
        out
    }
}

/// The records of a whole file in memory; ends after the first error.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    header: Header,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads the header.
    pub fn new(file: &'a [u8]) -> Result<Reader<'a>, PcapError> {
        let header = Header::parse(file)?.ok_or(PcapError::Truncated)?;
        Ok(Reader { header, rest: file.get(HEADER_LEN..).unwrap_or(&[]) })
    }

    /// The file's header.
    pub fn header(&self) -> Header {
        self.header
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, PcapError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.header.record(self.rest).and_then(|found| found.ok_or(PcapError::Truncated));
        Some(match record {
            Ok((record, len)) => {
                self.rest = self.rest.get(len..).unwrap_or(&[]);
                Ok(record)
            }
            Err(error) => {
                self.rest = &[];
                Err(error)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden() {
        let mut file = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\x04\0\x01\0\0\0".to_vec();
        file.extend_from_slice(b"\x01\0\0\0\x02\0\0\0\x03\0\0\0\x2a\0\0\0abc");
        let mut reader = Reader::new(&file).unwrap();
        let header = Header { nanoseconds: false, ..Header::ethernet() };
        assert_eq!(reader.header(), header);
        let record = Record { time: 1_000_002_000, original_len: 42, data: b"abc" };
        assert_eq!(reader.next(), Some(Ok(record)));
        assert_eq!(reader.next(), None);
        assert_eq!(header.to_bytes(), file[..24]);
        assert_eq!(header.record_header(record.time, 3, 42), file[24..40]);
    }

    #[test]
    fn errors_are_classified() {
        assert_eq!(Reader::new(&[0; 24]).unwrap_err(), PcapError::Magic);
        assert_eq!(Reader::new(&[0xd4, 0xc3, 0xb2]).unwrap_err(), PcapError::Truncated);
        let mut file = Header::ethernet().to_bytes().to_vec();
        file.extend_from_slice(&Header::ethernet().record_header(0, LONGEST + 1, 0));
        let list: Vec<_> = Reader::new(&file).unwrap().collect();
        assert_eq!(list, [Err(PcapError::Long(LONGEST + 1))]);
        file.pop();
        let list: Vec<_> = Reader::new(&file).unwrap().collect();
        assert_eq!(list, [Err(PcapError::Truncated)]);
        file[4] = 3;
        assert_eq!(Reader::new(&file).unwrap_err(), PcapError::Version(3, 4));
    }

    proptest! {
        #[test]
        fn round_trip(
            big_endian: bool, nanoseconds: bool, snap_len: u32, link_type: u16,
            packets in prop::collection::vec(
                (any::<u32>(), 0u32..1_000_000, any::<u32>(), 0usize..200), 0..5,
            ),
            cut: prop::sample::Index,
        ) {
            let header = Header { big_endian, nanoseconds, snap_len, link_type };
            let mut file = header.to_bytes().to_vec();
            let data = [0x5a; 200];
            let mut records = Vec::new();
            for (seconds, micros, original_len, len) in packets {
                let time = u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1000;
                file.extend_from_slice(&header.record_header(time, len as u32, original_len));
                file.extend_from_slice(&data[..len]);
                records.push(Ok(Record { time, original_len, data: &data[..len] }));
            }
            let reader = Reader::new(&file).unwrap();
            prop_assert_eq!(reader.header(), header);
            prop_assert_eq!(reader.collect::<Vec<_>>(), &records[..]);
            if let Ok(reader) = Reader::new(&file[..cut.index(file.len())]) {
                let read: Vec<_> = reader.collect();
                let whole = read.iter().take_while(|record| record.is_ok()).count();
                prop_assert!(read.len() <= whole + 1);
                prop_assert_eq!(&read[..whole], &records[..whole]);
            }
        }

        #[test]
        fn any_bytes_end(mut bytes in prop::collection::vec(0u8..4, 24..200), magic in 0usize..4) {
            let magics = [MICROSECONDS, NANOSECONDS, MICROSECONDS.swap_bytes(), NANOSECONDS.swap_bytes()];
            bytes[..4].copy_from_slice(&magics[magic].to_le_bytes());
            bytes[4..8].copy_from_slice(if magic < 2 { &[2, 0, 4, 0] } else { &[0, 2, 0, 4] });
            prop_assert!(Reader::new(&bytes).unwrap().count() <= bytes.len() / 16);
        }
    }
}
