//! pcapng capture files (draft-ietf-opsawg-pcapng), in either byte order.
//!
//! This module does no I/O: a caller passes the bytes read so far to [`Decoder::next`], and calls again with
//! more bytes, up to [`LONGEST_BLOCK`], if there were too few. The writing functions append to a buffer.

use crate::bytes::Cursor;
use crate::pcap;
use alloc::vec::Vec;

/// Longest block that is read. Attack: a block with a length of 4 GB, which its reader would buffer.
pub const LONGEST_BLOCK: u32 = 1 << 20;
/// Maximum number of interfaces of a section. Attack: a file of interface descriptions fills its reader's
/// memory.
pub const INTERFACES: usize = 1024;

const SECTION: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const IF_NAME: u16 = 2;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
const EPB_FLAGS: u16 = 2;
const COMMENT: u16 = 1;
const SHB_USERAPPL: u16 = 4;
const STATISTICS: u32 = 5;
const ISB_STARTTIME: u16 = 2;
const ISB_ENDTIME: u16 = 3;
const ISB_IFRECV: u16 = 4;
const ISB_IFDROP: u16 = 5;
const ISB_FILTERACCEPT: u16 = 6;

/// Why a capture file is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PcapngError {
    /// No section header.
    #[error("not a pcapng file: it doesn't begin with a section header")]
    Magic,
    /// An unsupported version of the format.
    #[error("unsupported pcapng version {0}: convert the file to version 1 with editcap")]
    Version(u16),
    /// An invalid length of a block.
    #[error(
        "a block length of {0}: not a multiple of 4 from 12 to {LONGEST_BLOCK}, or not repeated at its end"
    )]
    BlockLen(u32),
    /// A block too short for its contents.
    #[error("a block of type {0:#x} is too short for its contents")]
    Short(u32),
    /// A packet with an undeclared interface.
    #[error("a packet of interface {0}, which has no description")]
    Interface(u32),
    /// Too many interfaces.
    #[error("more than {INTERFACES} interfaces in one section")]
    Interfaces,
    /// The file ends within a block.
    #[error("the file ends in the middle of a block")]
    Truncated,
}

/// Direction of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Not recorded.
    #[default]
    Unknown,
    /// Received on the interface.
    Inbound,
    /// Sent on the interface.
    Outbound,
}

/// One captured packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Index of the packet's interface in the section, from 0.
    pub interface: u32,
    /// Nanoseconds since 1970-01-01 UTC; 0 if unknown.
    pub time: u64,
    /// Original length of the packet in bytes.
    pub original_len: u32,
    /// The packet's direction.
    pub direction: Direction,
    /// The captured bytes of the packet.
    pub data: &'a [u8],
}

/// Description of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Link type of the packets, for example [`pcap::ETHERNET`].
    pub link_type: u16,
    /// Largest captured length in bytes; 0 means unlimited.
    pub snap_len: u32,
    resolution: u8,
    offset: i64,
}

impl Interface {
    fn nanoseconds(&self, units: u64) -> u64 {
        let power = self.resolution & 0x7f;
        let units = u128::from(units);
        let time = if self.resolution & 0x80 != 0 {
            // Units of 2^-power seconds.
            units.checked_mul(1_000_000_000).and_then(|time| time.checked_shr(power.into())).unwrap_or(0)
        } else {
            match power {
                0..=9 => units * 10u128.pow(9 - u32::from(power)),
                power => 10u128.checked_pow(u32::from(power) - 9).map_or(0, |unit| units / unit),
            }
        };
        let time = time as i128 + i128::from(self.offset) * 1_000_000_000;
        time.clamp(0, i128::from(u64::MAX)) as u64
    }
}

/// A block, by type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// A packet.
    Packet(Packet<'a>),
    /// A new section; interfaces are numbered from 0 again.
    Section,
    /// A new interface.
    Interface(Interface),
    /// Any other block, with its type.
    Other(u32),
}

/// Reads a file block by block.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    big_endian: bool,
    in_section: bool,
    interfaces: Vec<Interface>,
}

impl Decoder {
    /// A decoder at the beginning of a file.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// The interfaces of the current section.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Parses the block at the start of `bytes`; returns the block and its size in bytes. `None` if there are
    /// too few bytes.
    pub fn next<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(Block<'a>, usize)>, PcapngError> {
        let mut cursor = Cursor { rest: bytes, big: self.big_endian };
        let Some(kind) = cursor.u32() else { return Ok(None) };
        if kind == SECTION {
            // The byte-order magic follows the length.
            match bytes.get(8..12) {
                Some([0x1a, 0x2b, 0x3c, 0x4d]) => cursor.big = true,
                Some([0x4d, 0x3c, 0x2b, 0x1a]) => cursor.big = false,
                Some(_) => return Err(PcapngError::Magic),
                None => return Ok(None),
            }
        } else if !self.in_section {
            return Err(PcapngError::Magic);
        }
        let Some(len) = cursor.u32() else { return Ok(None) };
        if !(12..=LONGEST_BLOCK).contains(&len) || !len.is_multiple_of(4) {
            return Err(PcapngError::BlockLen(len));
        }
        let Some(body) = cursor.take(len as usize - 12) else { return Ok(None) };
        match cursor.u32() {
            None => return Ok(None),
            Some(end) if end != len => return Err(PcapngError::BlockLen(end)),
            Some(_) => (),
        }
        let body = Cursor { rest: body, big: cursor.big };
        Ok(Some((self.block(kind, body)?, len as usize)))
    }

    fn block<'a>(&mut self, kind: u32, body: Cursor<'a>) -> Result<Block<'a>, PcapngError> {
        let short = PcapngError::Short(kind);
        match kind {
            SECTION => self.section(body),
            INTERFACE => {
                let interface = interface(body).ok_or(short)?;
                if self.interfaces.len() == INTERFACES {
                    return Err(PcapngError::Interfaces);
                }
                self.interfaces.push(interface);
                Ok(Block::Interface(interface))
            }
            ENHANCED_PACKET | OLD_PACKET => {
                let mut packet = stamped_packet(kind, body).ok_or(short)?;
                let interface = self.interfaces.get(packet.interface as usize);
                let interface = interface.ok_or(PcapngError::Interface(packet.interface))?;
                packet.time = interface.nanoseconds(packet.time);
                Ok(Block::Packet(packet))
            }
            SIMPLE_PACKET => {
                let snap_len = self.interfaces.first().ok_or(PcapngError::Interface(0))?.snap_len;
                Ok(Block::Packet(simple_packet(body, snap_len).ok_or(short)?))
            }
            other => Ok(Block::Other(other)),
        }
    }

    fn section<'a>(&mut self, mut body: Cursor<'a>) -> Result<Block<'a>, PcapngError> {
        let version = body.u32().and_then(|_| body.u16()).ok_or(PcapngError::Short(SECTION))?;
        if version != 1 {
            return Err(PcapngError::Version(version));
        }
        (self.big_endian, self.in_section) = (body.big, true);
        self.interfaces.clear();
        Ok(Block::Section)
    }
}

/// Calls `each` with the options in `list`; `None` if one is truncated.
fn options(mut list: Cursor<'_>, mut each: impl FnMut(u16, Cursor<'_>)) -> Option<()> {
    while !list.rest.is_empty() {
        let (code, len) = (list.u16()?, usize::from(list.u16()?));
        if code == 0 {
            return Some(());
        }
        let value = list.take(len.next_multiple_of(4))?;
        each(code, Cursor { rest: &value[..len], big: list.big });
    }
    Some(())
}

fn interface(mut body: Cursor<'_>) -> Option<Interface> {
    let (link_type, _, snap_len) = (body.u16()?, body.u16()?, body.u32()?);
    let mut interface = Interface { link_type, snap_len, resolution: 6, offset: 0 };
    options(body, |code, mut value| match (code, value.rest) {
        (IF_TSRESOL, &[resolution]) => interface.resolution = resolution,
        (IF_TSOFFSET, _) => interface.offset = value.i64().unwrap_or(0),
        _ => (),
    })?;
    Some(interface)
}

/// An enhanced packet block or an obsolete packet block; the packet's time is in the interface's units.
fn stamped_packet<'a>(kind: u32, mut body: Cursor<'a>) -> Option<Packet<'a>> {
    let interface = if kind == OLD_PACKET {
        let interface = body.u16()?;
        body.u16()?;
        u32::from(interface)
    } else {
        body.u32()?
    };
    let time = u64::from(body.u32()?) << 32 | u64::from(body.u32()?);
    let (captured_len, original_len) = (body.u32()?, body.u32()?);
    let data = body.take(captured_len as usize)?;
    body.take(data.len().next_multiple_of(4) - data.len())?;
    let mut direction = Direction::Unknown;
    options(body, |code, mut value| {
        if let (EPB_FLAGS, Some(flags)) = (code, value.u32()) {
            direction = match flags & 3 {
                1 => Direction::Inbound,
                2 => Direction::Outbound,
                _ => Direction::Unknown,
            };
        }
    })?;
    Some(Packet { interface, time, original_len, direction, data })
}

fn simple_packet(mut body: Cursor<'_>, snap_len: u32) -> Option<Packet<'_>> {
    let original_len = body.u32()?;
    let captured_len = if snap_len == 0 { original_len } else { original_len.min(snap_len) };
    let data = body.take(captured_len as usize)?;
    Some(Packet { interface: 0, time: 0, original_len, direction: Direction::Unknown, data })
}

/// The packets of a whole file in memory; ends after the first error.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    decoder: Decoder,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads `file` from its start.
    pub fn new(file: &'a [u8]) -> Reader<'a> {
        Reader { decoder: Decoder::new(), rest: file }
    }

    /// The interfaces of the last packet's section.
    pub fn interfaces(&self) -> &[Interface] {
        self.decoder.interfaces()
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Packet<'a>, PcapngError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.rest.is_empty() {
            let (block, len) = match self.decoder.next(self.rest) {
                Ok(Some(found)) => found,
                Ok(None) => {
                    self.rest = &[];
                    return Some(Err(PcapngError::Truncated));
                }
                Err(error) => {
                    self.rest = &[];
                    return Some(Err(error));
                }
            };
            self.rest = self.rest.get(len..).unwrap_or(&[]);
            if let Block::Packet(packet) = block {
                return Some(Ok(packet));
            }
        }
        None
    }
}

fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    out.resize(start + (out.len() - start).next_multiple_of(4), 0);
    let len = ((out.len() - start + 4) as u32).to_le_bytes();
    out[start + 4..start + 8].copy_from_slice(&len);
    out.extend_from_slice(&len);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(1024)];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    out.resize(out.len() + value.len().next_multiple_of(4) - value.len(), 0);
}

/// Appends a little-endian section header, the first block of a file.
pub fn write_section(out: &mut Vec<u8>) {
    block(out, SECTION, |out| {
        out.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        out.extend_from_slice(&[1, 0, 0, 0]);
        out.extend_from_slice(&u64::MAX.to_le_bytes());
    });
}

/// Appends a little-endian section header with the name of the program that writes the file.
pub fn write_section_of(out: &mut Vec<u8>, program: &str) {
    block(out, SECTION, |out| {
        out.extend_from_slice(&BYTE_ORDER.to_le_bytes());
        out.extend_from_slice(&[1, 0, 0, 0]);
        out.extend_from_slice(&u64::MAX.to_le_bytes());
        option(out, SHB_USERAPPL, program.as_bytes());
        option(out, 0, &[]);
    });
}

/// Appends an Ethernet interface with times in nanoseconds; its name is truncated to 1024 bytes.
pub fn write_interface(out: &mut Vec<u8>, name: &str) {
    write_interface_of(out, name, pcap::LONGEST);
}

/// As [`write_interface`], with the largest captured length in bytes.
pub fn write_interface_of(out: &mut Vec<u8>, name: &str, snap_len: u32) {
    block(out, INTERFACE, |out| {
        out.extend_from_slice(&pcap::ETHERNET.to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(&snap_len.to_le_bytes());
        option(out, IF_NAME, name.as_bytes());
        option(out, IF_TSRESOL, &[9]);
        option(out, 0, &[]);
    });
}

/// Appends a packet of an interface written by [`write_interface`]; its data is truncated to
/// [`pcap::LONGEST`] bytes.
pub fn write_packet(out: &mut Vec<u8>, packet: &Packet<'_>) {
    write_commented(out, packet, "");
}

/// As [`write_packet`], with a comment; none if it is empty.
pub fn write_commented(out: &mut Vec<u8>, packet: &Packet<'_>, comment: &str) {
    let data = &packet.data[..packet.data.len().min(pcap::LONGEST as usize)];
    let words = [
        packet.interface,
        (packet.time >> 32) as u32,
        packet.time as u32,
        data.len() as u32,
        packet.original_len,
    ];
    block(out, ENHANCED_PACKET, |out| {
        for word in words {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(data);
        out.resize(out.len() + data.len().next_multiple_of(4) - data.len(), 0);
        let flags = match packet.direction {
            Direction::Unknown => None,
            Direction::Inbound => Some(1u32),
            Direction::Outbound => Some(2),
        };
        if !comment.is_empty() {
            option(out, COMMENT, comment.as_bytes());
        }
        if let Some(flags) = flags {
            option(out, EPB_FLAGS, &flags.to_le_bytes());
        }
        if flags.is_some() || !comment.is_empty() {
            option(out, 0, &[]);
        }
    });
}

/// Statistics of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Index of the interface.
    pub interface: u32,
    /// When the capture began and ended, in nanoseconds since 1970.
    pub times: (u64, u64),
    /// Packets that passed the interface.
    pub received: u64,
    /// Frames that the filter accepted.
    pub accepted: u64,
    /// Accepted ones that are not in the file, for lack of room.
    pub dropped: u64,
}

/// Appends statistics of an interface written by [`write_interface`].
pub fn write_statistics(out: &mut Vec<u8>, statistics: &Statistics) {
    // The halves of a time are little-endian each, the upper one first.
    let halves = |time: u64| time.rotate_right(32).to_le_bytes();
    let (begin, end) = statistics.times;
    block(out, STATISTICS, |out| {
        out.extend_from_slice(&statistics.interface.to_le_bytes());
        out.extend_from_slice(&halves(end));
        option(out, ISB_STARTTIME, &halves(begin));
        option(out, ISB_ENDTIME, &halves(end));
        option(out, ISB_IFRECV, &statistics.received.to_le_bytes());
        option(out, ISB_IFDROP, &statistics.dropped.to_le_bytes());
        option(out, ISB_FILTERACCEPT, &statistics.accepted.to_le_bytes());
        option(out, 0, &[]);
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A big-endian file as another program would write it: one interface in units of 2^-10 s, a packet of
    /// each kind, and a block of statistics between them.
    fn golden() -> Vec<u8> {
        let mut file = b"\x0a\x0d\x0d\x0a\0\0\0\x1c\x1a\x2b\x3c\x4d\0\x01\0\0".to_vec();
        file.extend_from_slice(b"\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\x1c");
        file.extend_from_slice(b"\0\0\0\x01\0\0\0\x2c\0\x01\0\0\0\0\0\x04");
        file.extend_from_slice(b"\0\x09\0\x01\x8a\0\0\0\0\x0e\0\x08\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\0\x2c");
        file.extend_from_slice(b"\0\0\0\x06\0\0\0\x2c\0\0\0\0\0\0\0\0\0\0\x06\0\0\0\0\x03\0\0\0\x09abc\0");
        file.extend_from_slice(b"\0\x02\0\x04\0\0\0\x01\0\0\0\x2c");
        file.extend_from_slice(b"\0\0\0\x05\0\0\0\x0c\0\0\0\x0c");
        file.extend_from_slice(b"\0\0\0\x03\0\0\0\x14\0\0\0\x09defg\0\0\0\x14");
        file.extend_from_slice(
            b"\0\0\0\x02\0\0\0\x24\0\0\0\x07\0\0\0\0\0\0\x04\0\0\0\0\x01\0\0\0\x01h\0\0\0",
        );
        file.extend_from_slice(b"\0\0\0\x24");
        file
    }

    #[test]
    fn golden_file() {
        let file = golden();
        let packets: Vec<_> = Reader::new(&file).map(|packet| packet.unwrap()).collect();
        let inbound = Direction::Inbound;
        let first =
            Packet { interface: 0, time: 101_500_000_000, original_len: 9, direction: inbound, data: b"abc" };
        let unknown = Direction::Unknown;
        let second = Packet { interface: 0, time: 0, original_len: 9, direction: unknown, data: b"defg" };
        let third =
            Packet { interface: 0, time: 101_000_000_000, original_len: 1, direction: unknown, data: b"h" };
        assert_eq!(packets, [first, second, third]);
    }

    #[test]
    fn every_cut_of_the_golden_file_is_an_error_or_a_shorter_file() {
        let file = golden();
        for len in 1..file.len() {
            let read: Vec<_> = Reader::new(&file[..len]).collect();
            assert!(read.iter().filter(|packet| packet.is_err()).count() <= 1, "{len}");
        }
    }

    #[test]
    fn errors_are_classified() {
        let first = |bytes: &[u8]| Reader::new(bytes).next().and_then(Result::err);
        assert_eq!(first(&[0; 12]), Some(PcapngError::Magic));
        let mut file = Vec::new();
        write_section(&mut file);
        let good = file.clone();
        file[4] = 13;
        assert_eq!(first(&file), Some(PcapngError::BlockLen(13)));
        file.clone_from(&good);
        file[12] = 2;
        assert_eq!(first(&file), Some(PcapngError::Version(2)));
        file.clone_from(&good);
        let packet =
            Packet { interface: 3, time: 0, original_len: 0, direction: Direction::Unknown, data: b"" };
        write_packet(&mut file, &packet);
        assert_eq!(first(&file), Some(PcapngError::Interface(3)));
        file.clone_from(&good);
        for _ in 0..=INTERFACES {
            write_interface(&mut file, "x");
        }
        assert_eq!(first(&file), Some(PcapngError::Interfaces));
        file.clone_from(&good);
        block(&mut file, ENHANCED_PACKET, |out| out.extend_from_slice(&[0; 16]));
        assert_eq!(first(&file), Some(PcapngError::Short(ENHANCED_PACKET)));
    }

    #[test]
    fn extreme_times_neither_wrap_nor_panic() {
        for resolution in 0..=255 {
            for offset in [i64::MIN, -1, 0, i64::MAX] {
                let interface = Interface { link_type: 1, snap_len: 0, resolution, offset };
                let times = [0, 1, u64::MAX / 2, u64::MAX].map(|units| interface.nanoseconds(units));
                assert!(times.is_sorted(), "{resolution} {offset} {times:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn round_trip(
            name in "[a-z]{0,20}",
            packets in prop::collection::vec(
                (0u32..2, any::<u64>(), any::<u32>(), 0usize..3, 0usize..100), 0..6,
            ),
            (flips, at, to) in (any::<bool>(), any::<prop::sample::Index>(), any::<u8>()),
        ) {
            let mut file = Vec::new();
            write_section(&mut file);
            write_interface(&mut file, &name);
            write_interface(&mut file, "");
            let data = [0x5a; 100];
            let mut written = Vec::new();
            for (interface, time, original_len, direction, len) in packets {
                let direction = [Direction::Unknown, Direction::Inbound, Direction::Outbound][direction];
                let packet = Packet { interface, time, original_len, direction, data: &data[..len] };
                write_packet(&mut file, &packet);
                written.push(Ok(packet));
            }
            prop_assert_eq!(Reader::new(&file).collect::<Vec<_>>(), written);
            if flips {
                let at = at.index(file.len());
                file[at] = to;
                prop_assert!(Reader::new(&file).count() <= file.len() / 12 + 1);
            }
        }
    }

    #[test]
    fn comments_and_statistics_are_skipped_by_a_reader_of_packets() {
        let mut file = Vec::new();
        write_section_of(&mut file, "ringway");
        write_interface_of(&mut file, "left", 100);
        let packet =
            Packet { interface: 0, time: 7, original_len: 9, direction: Direction::Outbound, data: b"abc" };
        write_commented(&mut file, &packet, "dropped: full");
        let statistics =
            Statistics { interface: 0, times: (1 << 32 | 2, 3), received: 5, accepted: 4, dropped: 1 };
        write_statistics(&mut file, &statistics);
        let mut decoder = Decoder::new();
        let mut blocks = Vec::new();
        let mut rest = &file[..];
        while let Some((block, len)) = decoder.next(rest).unwrap() {
            blocks.push(block);
            rest = &rest[len..];
        }
        assert!(rest.is_empty());
        assert_eq!(decoder.interfaces()[0].snap_len, 100);
        assert_eq!(blocks[2..], [Block::Packet(packet), Block::Other(STATISTICS)]);
        let at = file.windows(12).position(|window| window == b"\x02\0\x08\0\x01\0\0\0\x02\0\0\0");
        assert!(at.is_some(), "the upper half of a time comes first");
    }
}
