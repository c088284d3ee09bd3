//! The frames that are sent: sizes, flows, and what makes each of them known again.
//!
//! A frame is Ethernet, a VLAN tag if that is asked for, IPv4, UDP without a checksum (RFC 768), and then the tag of
//! `tag.rs`. Lengths are without FCS.

use crate::tag::{MASK, TAG, Tag, fill, headers_check};
use ringway_wire::MacAddress;
use ringway_wire::checksum::checksum;
use std::fmt;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Bytes of the smallest and of the largest frame, without FCS.
pub const SMALLEST: usize = 60;
/// See [`SMALLEST`].
pub const LARGEST: usize = 9214;
/// Most flows; each keeps its headers.
const MOST_FLOWS: u32 = 65_536;
/// Marks a generated frame in the field "Identification" of IPv4 (RFC 791, 3.1).
pub const MARK: u16 = 0x5257;
/// IPv4's and UDP's headers.
pub const IP_UDP: usize = 28;

/// Sizes of twelve frames of the simple IMIX: 7 of 64 bytes, 4 of 594, 1 of 1518, with FCS, spread evenly.
const IMIX: [u16; 12] = [60, 590, 60, 60, 590, 60, 1514, 60, 590, 60, 590, 60];

/// Why frames can't be as they were asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// A size out of range.
    #[error("frames of {0} bytes are not possible; use a size from {SMALLEST} to {LARGEST}, without FCS")]
    Size(u64),
    /// Flows out of range.
    #[error("{0} flows are not possible; use a number from 1 to {MOST_FLOWS}")]
    Flows(u64),
    /// A VLAN out of range.
    #[error("there is no VLAN {0}; use a number from 1 to 4094")]
    Vlan(u64),
    /// Too few destination ports.
    #[error("there are not {0} destination ports from {1} on; begin lower, or use fewer flows")]
    Ports(u32, u16),
    /// A field that flows can't vary.
    #[error("flows can't differ in \"{0}\"; use from, to, from-ip, to-ip, from-port, to-port or vlan")]
    Vary(String),
    /// `vlan` varies, but frames have none.
    #[error("flows differ in their VLAN, but frames have none; give the first one")]
    NoVlan,
}

/// Sizes of frames in bytes, without FCS; they repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Vec<u16>);

impl Sizes {
    /// All frames have `bytes`.
    pub fn all(bytes: usize) -> Result<Sizes, ShapeError> {
        let size = u16::try_from(bytes).ok().filter(|_| (SMALLEST..=LARGEST).contains(&bytes));
        Ok(Sizes(vec![size.ok_or(ShapeError::Size(bytes as u64))?]))
    }

    /// The simple IMIX.
    pub fn imix() -> Sizes {
        Sizes(IMIX.into())
    }

    /// The largest of them.
    pub fn largest(&self) -> usize {
        self.0.iter().copied().max().map_or(SMALLEST, usize::from)
    }

    /// Their mean.
    pub fn mean(&self) -> f64 {
        self.0.iter().map(|size| f64::from(*size)).sum::<f64>() / self.0.len() as f64
    }
}

/// A field in which flows differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vary {
    /// Source MAC address.
    From,
    /// Destination MAC address.
    To,
    /// Source IP address.
    FromIp,
    /// Destination IP address.
    ToIp,
    /// Source port.
    FromPort,
    /// Destination port.
    ToPort,
    /// VLAN.
    Vlan,
}

impl FromStr for Vary {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Vary, ShapeError> {
        Ok(match text {
            "from" => Vary::From,
            "to" => Vary::To,
            "from-ip" => Vary::FromIp,
            "to-ip" => Vary::ToIp,
            "from-port" => Vary::FromPort,
            "to-port" => Vary::ToPort,
            "vlan" => Vary::Vlan,
            other => return Err(ShapeError::Vary(other.into())),
        })
    }
}

impl fmt::Display for Vary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Vary::From => "from",
            Vary::To => "to",
            Vary::FromIp => "from-ip",
            Vary::ToIp => "to-ip",
            Vary::FromPort => "from-port",
            Vary::ToPort => "to-port",
            Vary::Vlan => "vlan",
        })
    }
}

/// Headers of the frames: those of the first flow, and in what the others differ from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flows {
    /// Destination MAC address.
    pub to: MacAddress,
    /// Source MAC address.
    pub from: MacAddress,
    /// VLAN.
    pub vlan: Option<u16>,
    /// Source IP address.
    pub from_ip: Ipv4Addr,
    /// Destination IP address.
    pub to_ip: Ipv4Addr,
    /// Source port.
    pub from_port: u16,
    /// Destination port.
    pub to_port: u16,
    /// Number of flows; frames go round.
    pub count: u32,
    /// The fields that grow by one from flow to flow.
    pub vary: Vec<Vary>,
}

/// One flow of the addresses for tests between devices (RFC 2544, C.2.2), to the discard port (RFC 863).
impl Default for Flows {
    fn default() -> Flows {
        Flows {
            to: MacAddress::BROADCAST,
            from: MacAddress([2, 0, 0, 0, 0, 1]),
            vlan: None,
            from_ip: Ipv4Addr::new(198, 18, 0, 1),
            to_ip: Ipv4Addr::new(198, 19, 0, 1),
            from_port: 49_152,
            to_port: 9,
            count: 1,
            vary: vec![Vary::FromPort],
        }
    }
}

impl Flows {
    fn check(&self) -> Result<(), ShapeError> {
        if !(1..=MOST_FLOWS).contains(&self.count) {
            return Err(ShapeError::Flows(self.count.into()));
        }
        if self.count > 1 && self.vary.contains(&Vary::Vlan) && self.vlan.is_none() {
            return Err(ShapeError::NoVlan);
        }
        if self.vary.contains(&Vary::ToPort) && u32::from(self.to_port) + self.count - 1 > u16::MAX.into() {
            return Err(ShapeError::Ports(self.count, self.to_port));
        }
        let last = |first: u16| {
            u64::from(first) + if self.vary.contains(&Vary::Vlan) { u64::from(self.count) - 1 } else { 0 }
        };
        match self.vlan {
            Some(first) if first == 0 || last(first) > 4094 => {
                Err(ShapeError::Vlan(if first == 0 { 0 } else { last(first) }))
            }
            _ => Ok(()),
        }
    }

    /// The flow of this number.
    fn flow(&self, number: u32) -> Flows {
        let more = |field: Vary| if self.vary.contains(&field) { number } else { 0 };
        let mac =
            |address: MacAddress, field| MacAddress::from_u64(address.to_u64() + u64::from(more(field)));
        let ip = |address: Ipv4Addr, field| Ipv4Addr::from(address.to_bits().wrapping_add(more(field)));
        let port = |port: u16, field| port.wrapping_add(more(field) as u16);
        Flows {
            to: mac(self.to, Vary::To),
            from: mac(self.from, Vary::From),
            vlan: self.vlan.map(|vlan| port(vlan, Vary::Vlan)),
            from_ip: ip(self.from_ip, Vary::FromIp),
            to_ip: ip(self.to_ip, Vary::ToIp),
            from_port: port(self.from_port, Vary::FromPort),
            to_port: port(self.to_port, Vary::ToPort),
            count: 1,
            vary: Vec::new(),
        }
    }

    /// A frame from each of its receivers, without which a switch does not know where they are.
    pub fn announcements(&self) -> impl Iterator<Item = [u8; SMALLEST]> + use<'_> {
        let count = if self.vary.contains(&Vary::To) { self.count } else { 1 };
        (0..count).map(|number| {
            let flow = self.flow(number);
            let mut frame = [0; SMALLEST];
            frame[..6].copy_from_slice(&flow.from.0);
            frame[6..12].copy_from_slice(&flow.to.0);
            // For local experiments (IEEE 802, 9.2.4), behind the VLAN.
            let at = match flow.vlan {
                Some(vlan) => {
                    frame[12..14].copy_from_slice(&[0x81, 0]);
                    frame[14..16].copy_from_slice(&vlan.to_be_bytes());
                    16
                }
                None => 12,
            };
            frame[at..at + 2].copy_from_slice(&[0x88, 0xb5]);
            frame
        })
    }

    /// The UDP ports that its frames are for.
    pub fn ports(&self) -> RangeInclusive<u16> {
        match self.vary.contains(&Vary::ToPort) {
            true => {
                self.to_port..=u16::try_from(u32::from(self.to_port) + self.count - 1).unwrap_or(u16::MAX)
            }
            false => self.to_port..=self.to_port,
        }
    }

    /// Its headers in a frame of `size` bytes.
    fn headers(&self, size: u16) -> Headers {
        let mut bytes = Vec::with_capacity(MOST_HEADERS);
        bytes.extend(self.to.0);
        bytes.extend(self.from.0);
        if let Some(vlan) = self.vlan {
            bytes.extend([0x81, 0]);
            bytes.extend(vlan.to_be_bytes());
        }
        bytes.extend([8, 0]);
        let ip = bytes.len();
        let len = size - ip as u16;
        bytes.extend([0x45, 0]);
        bytes.extend(len.to_be_bytes());
        bytes.extend(MARK.to_be_bytes());
        // Not to be fragmented; a TTL of 64; UDP; the checksum follows.
        bytes.extend([0x40, 0, 64, 17, 0, 0]);
        bytes.extend(self.from_ip.octets());
        bytes.extend(self.to_ip.octets());
        let sum = checksum(&bytes[ip..]);
        bytes[ip + 10..ip + 12].copy_from_slice(&sum.to_be_bytes());
        bytes.extend(self.from_port.to_be_bytes());
        bytes.extend(self.to_port.to_be_bytes());
        bytes.extend((len - 20).to_be_bytes());
        bytes.extend([0, 0]);
        let mut headers =
            Headers { size, len: bytes.len() as u8, check: headers_check(&bytes), bytes: [0; MOST_HEADERS] };
        headers.bytes[..bytes.len()].copy_from_slice(&bytes);
        headers
    }
}

/// Bytes of headers with a VLAN tag, rounded.
const MOST_HEADERS: usize = 48;

/// Headers of a frame.
#[derive(Clone, Copy, Debug)]
struct Headers {
    /// Bytes of the frame.
    size: u16,
    len: u8,
    check: u16,
    bytes: [u8; MOST_HEADERS],
}

/// Writes frames, each by its number.
#[derive(Clone, Debug)]
pub struct Generator {
    /// For each size those of all flows.
    headers: Vec<Headers>,
    /// The place in `headers` of the first flow of each size.
    sizes: Vec<u32>,
    flows: u32,
    largest: usize,
}

impl Generator {
    /// A generator of frames of these sizes and flows.
    pub fn new(sizes: &Sizes, flows: &Flows) -> Result<Generator, ShapeError> {
        flows.check()?;
        let mut distinct: Vec<u16> = Vec::new();
        let mut places = Vec::new();
        for size in &sizes.0 {
            let place = distinct.iter().position(|known| known == size).unwrap_or(distinct.len());
            if place == distinct.len() {
                distinct.push(*size);
            }
            places.push(place as u32 * flows.count);
        }
        let all =
            distinct.iter().flat_map(|size| (0..flows.count).map(|flow| flows.flow(flow).headers(*size)));
        Ok(Generator { headers: all.collect(), sizes: places, flows: flows.count, largest: sizes.largest() })
    }

    /// The size of its largest frame.
    pub fn largest(&self) -> usize {
        self.largest
    }

    fn of(&self, number: u64) -> &Headers {
        // With several sizes, flows move on against them, so that each flow has all sizes.
        let (size, turn) = match self.sizes.as_slice() {
            [only] => (*only, number),
            sizes => {
                let (round, at) = (number / sizes.len() as u64, number % sizes.len() as u64);
                (sizes[at as usize], number + round)
            }
        };
        let flow = if self.flows == 1 { 0 } else { (turn % u64::from(self.flows)) as u32 };
        &self.headers[(size + flow) as usize]
    }

    /// The size of frame `number` in bytes.
    #[inline]
    pub fn size(&self, number: u64) -> usize {
        self.of(number).size.into()
    }

    /// Writes frame `number`, sent at `now`, to the begin of `out`, which has room for the largest; returns its size.
    #[inline]
    pub fn write(&self, number: u64, now: u64, out: &mut [u8]) -> usize {
        let Headers { size, len, check, bytes } = self.of(number);
        let (size, len) = (usize::from(*size), usize::from(*len));
        out[..MOST_HEADERS].copy_from_slice(bytes);
        let tag = Tag { number: number & MASK, time: now & MASK };
        out[len..len + TAG].copy_from_slice(&tag.to_bytes(*check));
        fill(&mut out[len + TAG..size], number);
        size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_wire::{Header, Ipv4, Udp};

    #[test]
    fn frames_have_valid_headers_and_differ_as_asked() {
        let flows =
            Flows { count: 3, vary: vec![Vary::From, Vary::ToIp, Vary::FromPort], ..Flows::default() };
        let generator = Generator::new(&Sizes::imix(), &flows).unwrap();
        let mut out = [0; LARGEST];
        let mut total = 0;
        for number in 0..12 {
            let size = generator.write(number, 5, &mut out);
            assert_eq!(size, generator.size(number));
            total += size;
            assert_eq!(checksum(&out[14..34]), 0, "IPv4's checksum is valid");
            let ip = Ipv4::of(&out[14..size]).unwrap();
            let udp = Udp::of(&out[34..size]).unwrap();
            let flow = (number % 3) as u8;
            assert_eq!((usize::from(u16::from(ip.total_length)), out[11]), (size - 14, 1 + flow));
            assert_eq!(out[30..34], [198, 19, 0, 1 + flow]);
            assert_eq!(
                (u16::from(udp.source_port), u16::from(udp.destination_port)),
                (49_152 + u16::from(flow), 9)
            );
        }
        assert_eq!((total as f64 / 12.0, Sizes::imix().largest()), (Sizes::imix().mean(), 1514));
    }

    #[test]
    fn impossible_shapes_are_refused() {
        let of = |flows: Flows| {
            Generator::new(&Sizes::imix(), &flows).map(drop).map_err(|error| error.to_string())
        };
        assert_eq!(Sizes::all(59), Err(ShapeError::Size(59)));
        assert_eq!(Sizes::all(70_000), Err(ShapeError::Size(70_000)));
        assert!(of(Flows { count: 0, ..Flows::default() }).unwrap_err().contains("0 flows"));
        assert!(of(Flows { count: 1 << 20, ..Flows::default() }).unwrap_err().contains("65536"));
        let vlan = Flows { count: 10, vary: vec![Vary::Vlan], ..Flows::default() };
        assert_eq!(of(vlan.clone()), Err(ShapeError::NoVlan.to_string()));
        assert!(of(Flows { vlan: Some(4090), ..vlan.clone() }).unwrap_err().contains("VLAN 4099"));
        assert_eq!(of(Flows { vlan: Some(100), ..vlan }), Ok(()));
        assert!("colour".parse::<Vary>().unwrap_err().to_string().contains("from-port"));
        for name in ["from", "to", "from-ip", "to-ip", "from-port", "to-port", "vlan"] {
            assert_eq!(name.parse::<Vary>().map(|vary| vary.to_string()), Ok(name.into()));
        }
    }
}
