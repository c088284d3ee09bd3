//! Frames of a benchmark's source, generated in advance and repeated.

use std::borrow::Borrow;
use std::net::Ipv4Addr;
use std::ops::Range;

/// Ethernet, IPv4 and TCP headers without options, in bytes.
pub const HEADERS: usize = 14 + 20 + 20;
/// PPPoE's and PPP's headers, in bytes.
pub const PPPOE: usize = 8;
/// The destination Ethernet address of session frames.
pub const SERVER: [u8; 6] = [2, 0, 0, 0, 0, 1];
const TCP: u8 = 6;
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Stored bytes of a frame; the rest is zeros that are not read.
pub const KEPT: usize = 64;
/// Minimum number of frames, 1 MB of memory: a source that cycles over less stays within a first-level cache.
pub const LEAST: usize = (1 << 20) / KEPT;

/// Sizes of a simple IMIX, without the frame check sequence: 7 of 60, 4 of 590, 1 of 1514 bytes.
const IMIX: [usize; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 60, 590];

/// Lengths of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// All frames have this many bytes.
    Fixed(usize),
    /// A mix of sizes, 358 bytes on average.
    Imix,
}

/// Bits that a line of 10 Gb/s carries in a microsecond.
const LINE: f64 = 10e3;
/// Bytes of preamble and gap before a frame.
const GAP: f64 = 20.0;
/// Bytes of the frame check sequence.
const CHECK: f64 = 4.0;

impl Length {
    /// Millions of frames a second of a line of 10 Gb/s. Fixed lengths include the frame check sequence, as a line's
    /// frame of 64 bytes does, although frames in rings have none; those of the mix get it.
    pub fn line(self) -> f64 {
        let bytes = match self {
            Length::Fixed(bytes) => bytes as f64,
            Length::Imix => CHECK + IMIX.iter().sum::<usize>() as f64 / IMIX.len() as f64,
        };
        LINE / (8.0 * (bytes + GAP))
    }

    fn of(self, frame: usize, least: usize) -> usize {
        let length = match self {
            Length::Fixed(bytes) => bytes,
            Length::Imix => IMIX[frame % IMIX.len()],
        };
        length.max(least)
    }
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source and destination address.
    pub addresses: [Ipv4Addr; 2],
    /// Source and destination port.
    pub ports: [u16; 2],
    /// Whether this frame opens the connection.
    pub opens: bool,
}

/// A subscriber's session of PPP over Ethernet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    /// The subscriber's Ethernet address.
    pub subscriber: [u8; 6],
    /// Its number.
    pub number: u16,
}

/// A frame's first bytes at the start of its own buffer, as in FastClick.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct Buffer([u8; KEPT], [u8; 2048 - KEPT]);

impl Borrow<[u8; KEPT]> for Buffer {
    #[inline]
    fn borrow(&self) -> &[u8; KEPT] {
        &self.0
    }
}

/// The first bytes of frames.
#[derive(Debug)]
pub enum Heads {
    /// Contiguous.
    Close(Vec<[u8; KEPT]>),
    /// Each in a separate buffer.
    Apart(Vec<Buffer>),
}

impl Default for Heads {
    fn default() -> Self {
        Self::Close(Vec::new())
    }
}

/// A sequence of frames.
#[derive(Debug, Default)]
pub struct Frames {
    heads: Heads,
    lengths: Vec<u16>,
    /// The bytes after the first ones, for frames whose payload matters.
    rests: Vec<Vec<u8>>,
    /// Number of initial frames that are sent only once.
    once: usize,
}

impl Frames {
    /// At least `count` frames, and 1 MB of their first bytes; frame `n` belongs to `flow(n)`.
    pub fn new(length: Length, count: usize, mut flow: impl FnMut(usize) -> Flow) -> Frames {
        Frames::made(length, HEADERS, count.max(LEAST), |number, length| head(length, flow(number)))
    }

    /// As [`Frames::new`], with flows of any protocol whose first four bytes are ports.
    pub fn with_protocols(length: Length, count: usize, mut of: impl FnMut(usize) -> (u8, Flow)) -> Frames {
        Frames::made(length, HEADERS, count.max(LEAST), |number, length| {
            let (protocol, flow) = of(number);
            let mut frame = head(length, flow);
            let ip = &mut frame[14..34];
            ip[9..12].copy_from_slice(&[protocol, 0, 0]);
            let sum = ringway_wire::checksum::checksum(ip).to_be_bytes();
            ip[10..12].copy_from_slice(&sum);
            frame
        })
    }

    /// As [`Frames::new`], with PPPoE session frames.
    pub fn sessions(length: Length, count: usize, mut of: impl FnMut(usize) -> (Session, Flow)) -> Frames {
        Frames::made(length, HEADERS + PPPOE, count.max(LEAST), |number, length| {
            let (session, flow) = of(number);
            in_session(length, session, flow)
        })
    }

    /// Whole frames, at least `count` and 1 MB of them; `payload(n, l)` is the payload of frame `n`, `l` bytes long.
    pub fn whole(
        length: Length,
        count: usize,
        mut flow: impl FnMut(usize) -> Flow,
        mut payload: impl FnMut(usize, usize) -> Vec<u8>,
    ) -> Frames {
        let each = length.of(6, HEADERS).max(KEPT);
        let mut rests = Vec::new();
        let mut frames = Frames::made(length, HEADERS, count.max((1 << 20) / each), |number, length| {
            let mut head = head(length, flow(number));
            let text = payload(number, usize::from(length) - HEADERS);
            let (front, rest) = text.split_at(text.len().min(KEPT - HEADERS));
            head[HEADERS..HEADERS + front.len()].copy_from_slice(front);
            rests.push(rest.to_vec());
            head
        });
        frames.rests = rests;
        frames
    }

    /// `count` frames of at least `least` bytes, whose first bytes `head(n, l)` writes.
    pub fn made(
        length: Length,
        least: usize,
        count: usize,
        mut head: impl FnMut(usize, u16) -> [u8; KEPT],
    ) -> Frames {
        let lengths: Vec<u16> = (0..count).map(|number| length.of(number, least) as u16).collect();
        let heads = lengths.iter().enumerate().map(|(number, length)| head(number, *length));
        Frames { heads: Heads::Close(heads.collect()), lengths, ..Frames::default() }
    }

    /// Each frame in a separate buffer.
    pub fn apart(mut self) -> Frames {
        if let Heads::Close(heads) = &self.heads {
            self.heads = Heads::Apart(heads.iter().map(|head| Buffer(*head, [0; 2048 - KEPT])).collect());
        }
        self
    }

    /// The first `count` frames are sent only once.
    pub fn with_once(self, count: usize) -> Frames {
        Frames { once: count, ..self }
    }

    /// Number of frames at the beginning that are sent only once.
    pub fn once(&self) -> usize {
        self.once
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// The first bytes of frame `number`, and its length.
    #[inline]
    pub fn get(&self, number: usize) -> (&[u8; KEPT], usize) {
        let head = match &self.heads {
            Heads::Close(heads) => &heads[number],
            Heads::Apart(buffers) => buffers[number].borrow(),
        };
        (head, usize::from(self.lengths[number]))
    }

    /// All first bytes.
    #[inline]
    pub fn heads(&self) -> &Heads {
        &self.heads
    }

    /// Lengths of a range of frames.
    #[inline]
    pub fn lengths(&self, numbers: Range<usize>) -> &[u16] {
        &self.lengths[numbers]
    }

    /// The bytes after the first ones, if they matter.
    #[inline]
    pub fn rest(&self, number: usize) -> &[u8] {
        self.rests.get(number).map_or(&[], Vec::as_slice)
    }
}

/// A flow's frame with PPPoE and PPP headers after the Ethernet header (RFC 2516, 4).
pub fn in_session(length: u16, session: Session, flow: Flow) -> [u8; KEPT] {
    let inner = head(length - PPPOE as u16, flow);
    let mut frame = [0; KEPT];
    frame[..6].copy_from_slice(&SERVER);
    frame[6..12].copy_from_slice(&session.subscriber);
    frame[12..16].copy_from_slice(&[0x88, 0x64, 0x11, 0]);
    frame[16..18].copy_from_slice(&session.number.to_be_bytes());
    frame[18..20].copy_from_slice(&(length - 20).to_be_bytes());
    frame[20..22].copy_from_slice(&[0, 0x21]);
    frame[22..].copy_from_slice(&inner[14..KEPT - PPPOE]);
    frame
}

/// The first bytes of a flow's frame.
pub fn head(length: u16, flow: Flow) -> [u8; KEPT] {
    let mut frame = [0; KEPT];
    let [from, to] = flow.addresses.map(|address| address.octets());
    let ip_length = (length - 14).to_be_bytes();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
    frame[12..14].copy_from_slice(&[8, 0]);
    let (ip, tcp) = frame[14..].split_at_mut(20);
    ip[..4].copy_from_slice(&[0x45, 0, ip_length[0], ip_length[1]]);
    ip[8..10].copy_from_slice(&[64, TCP]);
    ip[12..16].copy_from_slice(&from);
    ip[16..20].copy_from_slice(&to);
    let sum = ringway_wire::checksum::checksum(ip).to_be_bytes();
    ip[10..12].copy_from_slice(&sum);
    tcp[..2].copy_from_slice(&flow.ports[0].to_be_bytes());
    tcp[2..4].copy_from_slice(&flow.ports[1].to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = if flow.opens { SYN } else { ACK };
    tcp[14..16].copy_from_slice(&[0x20, 0]);
    let [from, to] = flow.addresses;
    let mut sum = ringway_wire::checksum::Sum::pseudo_v4(from, to, TCP, length - 34);
    sum.add(tcp);
    let sum = sum.finish().to_be_bytes();
    tcp[16..18].copy_from_slice(&sum);
    frame
}

/// Reproducible pseudo-random numbers (Steele, Lea, Flood: SplitMix, 2014).
#[derive(Clone, Copy, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(number: usize) -> Flow {
        let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::from(number as u32)];
        Flow { addresses, ports: [1, 2], opens: number.is_multiple_of(10) }
    }

    #[test]
    fn generated_frames_are_valid_and_numerous() {
        let frames = Frames::new(Length::Imix, 5, flow);
        assert_eq!(frames.len(), LEAST);
        let (third, length) = frames.get(2);
        let packet = ringway_wire::ipv4::Packet::parse(&third[14..]).unwrap();
        assert!(packet.header.is_checksum_valid(packet.options));
        assert_eq!((packet.header.destination_addr(), length), (Ipv4Addr::new(0, 0, 0, 2), 60));
    }

    #[test]
    fn a_line_of_10_gbit_has_known_rates() {
        let rate = |length: Length| (length.line() * 100.0).round() / 100.0;
        assert_eq!(rate(Length::Fixed(64)), 14.88);
        assert_eq!((rate(Length::Fixed(1500)), rate(Length::Imix)), (0.82, 3.27));
    }

    #[test]
    fn a_session_frame_contains_the_packet() {
        let session = Session { subscriber: [2, 0, 0, 0, 9, 9], number: 7 };
        let frames = Frames::sessions(Length::Fixed(64), 1, |number| (session, flow(number)));
        let (frame, length) = frames.get(3);
        let packet = ringway_wire::ipv4::Packet::parse(&frame[22..]).unwrap();
        assert!(packet.header.is_checksum_valid(packet.options));
        assert_eq!((length, frame[18..20].to_vec(), packet.header.total_length.get()), (64, vec![0, 44], 42));
    }

    #[test]
    fn a_whole_frame_has_its_payload() {
        let frames = Frames::whole(Length::Fixed(100), 3, flow, |number, length| vec![number as u8; length]);
        let (head, length) = frames.get(2);
        assert_eq!((&head[HEADERS..], frames.rest(2), length), (&[2u8; 10][..], &[2u8; 36][..], 100));
    }
}
