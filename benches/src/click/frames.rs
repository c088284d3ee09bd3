//! What a benchmark's source sends: frames made beforehand, over and over.

use std::net::Ipv4Addr;

/// Ethernet, IPv4 and TCP headers without options, in bytes.
const HEADERS: usize = 14 + 20 + 20;
const TCP: u8 = 6;
const SYN: u8 = 2;
const ACK: u8 = 16;
/// Bytes that are kept of a frame; those behind them are zeros, which nobody looks at.
pub const KEPT: usize = 64;
/// Least number of frames, so that 1 MB is kept: a source that cycles over less works within a cache of the first
/// level.
const LEAST: usize = (1 << 20) / KEPT;

/// Sizes of a simple IMIX, without the frame check sequence: 7 of 60, 4 of 590, 1 of 1514 bytes.
const IMIX: [usize; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 60, 590];

/// How long frames are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// All the same, in bytes.
    Fixed(usize),
    /// A mix of sizes, 353 bytes on average.
    Imix,
}

impl Length {
    fn of(self, frame: usize) -> usize {
        match self {
            Length::Fixed(bytes) => bytes.max(HEADERS),
            Length::Imix => IMIX[frame % IMIX.len()],
        }
    }
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Addresses: from, to.
    pub addresses: [Ipv4Addr; 2],
    /// TCP ports: from, to.
    pub ports: [u16; 2],
    /// It begins with this frame.
    pub opens: bool,
}

/// Frames one after the other.
#[derive(Debug, Default)]
pub struct Frames {
    heads: Vec<[u8; KEPT]>,
    lengths: Vec<u16>,
}

impl Frames {
    /// At least `count` frames, and 1 MB of their first bytes; frame `n` belongs to what `flow(n)` says.
    pub fn new(length: Length, count: usize, mut flow: impl FnMut(usize) -> Flow) -> Frames {
        let lengths: Vec<u16> = (0..count.max(LEAST)).map(|number| length.of(number) as u16).collect();
        let heads = lengths.iter().enumerate().map(|(number, length)| head(*length, flow(number)));
        Frames { heads: heads.collect(), lengths }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// The first bytes of frame `number`, and its length.
    #[inline]
    pub fn get(&self, number: usize) -> (&[u8; KEPT], usize) {
        (&self.heads[number], usize::from(self.lengths[number]))
    }
}

fn head(length: u16, flow: Flow) -> [u8; KEPT] {
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

/// Numbers that look random and are the same each time (Steele, Lea, Flood: SplitMix, 2014).
#[derive(Clone, Copy, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next.
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
    fn frames_are_right_and_many() {
        let frames = Frames::new(Length::Imix, 5, flow);
        assert_eq!(frames.len(), LEAST);
        let (third, length) = frames.get(2);
        let (packet, _) = ringway_wire::ipv4::Packet::new_prefix(&third[14..]).unwrap();
        assert!(packet.is_checksum_valid());
        assert_eq!((packet.destination(), length), (Ipv4Addr::new(0, 0, 0, 2), 60));
    }
}
