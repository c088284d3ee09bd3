//! Frames: the interface to whoever carries them, and headers.

pub(crate) mod dhcp;
pub(crate) mod fragment;
pub(crate) mod ip;
pub(crate) mod neighbor;
pub(crate) mod route;
pub(crate) mod slaac;

use crate::connection::options::{OPTIONS, Options};
use crate::demux::Tuple;
use alloc::vec::Vec;
use core::net::IpAddr;
use ringway_frame::{Needs, Offload};
use ringway_mem::Span;
use ringway_wire::ipv4::DONT_FRAGMENT;
use ringway_wire::tcp::{CHECKSUM_AT, Flags, HEADER_LEN};
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Ipv6, MacAddress, Protocol, Sum, Tcp, U16, U32, U128};

/// Largest total length of the headers that a connection sends.
const HEADERS: usize = Ethernet::LEN + Ipv6::LEN + HEADER_LEN + OPTIONS;
/// The ECN codepoint ECT(0) (RFC 3168, 5).
const ECT: u8 = 2;
/// VIRTIO_NET_HDR_GSO_TCPV4, _TCPV6 and _ECN.
const GSO: [u8; 3] = [1, 4, 0x80];

/// Where a stack puts frames.
pub trait Transmit {
    /// Takes a frame, which is in pieces: headers, and a payload that others may change, of at most
    /// [`crate::PIECES`]. Its metadata has only
    /// offloads that the interface supports. `false`: there is no room, and the stack keeps the frame for the next
    /// call of [`crate::Stack::transmit`].
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool;
}

/// Frames in memory.
#[derive(Clone, Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    frames: Vec<(usize, Offload)>,
    most: usize,
}

impl Default for Frames {
    /// Room for a burst.
    fn default() -> Frames {
        Frames::new(ringway_frame::BURST)
    }
}

impl Frames {
    /// Room for `most` frames.
    pub fn new(most: usize) -> Frames {
        Frames { bytes: Vec::new(), frames: Vec::new(), most }
    }

    /// The frames.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Offload)> {
        let mut start = 0;
        self.frames.iter().map(move |&(end, offload)| {
            let frame = &self.bytes[start..end];
            start = end;
            (frame, offload)
        })
    }

    /// Whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Removes all frames.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.frames.clear();
    }
}

impl Transmit for Frames {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        if self.frames.len() >= self.most {
            return false;
        }
        self.bytes.extend_from_slice(headers);
        for piece in payload {
            let at = self.bytes.len();
            self.bytes.resize(at + piece.len(), 0);
            piece.read(&mut self.bytes[at..]);
        }
        self.frames.push((self.bytes.len(), offload));
        true
    }
}

/// A TCP segment to send.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outgoing<'a> {
    pub seq: u32,
    pub ack: u32,
    pub flags: Flags,
    pub window: u16,
    pub payload: &'a [Span<'a>],
    /// Payload of each segment; a larger one needs segmentation.
    pub mss: usize,
    /// Whether the packet may be CE-marked instead of dropped.
    pub ect: bool,
}

/// The way to a neighbour.
pub(crate) struct Link<'a> {
    pub out: &'a mut dyn Transmit,
    pub source: MacAddress,
    pub destination: MacAddress,
    pub offloads: Needs,
    pub ttl: u8,
    /// The next IPv4 identification.
    pub identification: &'a mut u16,
}

impl Link<'_> {
    /// Sends a TCP segment. `false`: there was no room.
    pub(crate) fn tcp(&mut self, tuple: &Tuple, segment: &Outgoing<'_>, options: &Options) -> bool {
        let mut listed = [0; OPTIONS];
        let options_len = options.emit(&mut listed);
        let options = &listed[..options_len];
        let payload: usize = segment.payload.iter().map(|piece| piece.len()).sum();
        let header = HEADER_LEN + options.len();
        let mut bytes = [0; HEADERS];
        let at = self.network(&mut bytes, tuple, segment.ect, header + payload);
        let tcp = Tcp {
            source_port: U16::new(tuple.local.port()),
            destination_port: U16::new(tuple.remote.port()),
            sequence_number: U32::new(segment.seq),
            acknowledgment_number: U32::new(segment.ack),
            data_offset: (header / 4) as u8 * 16,
            flags: segment.flags,
            window: U16::new(segment.window),
            ..Tcp::EMPTY
        };
        bytes[at..at + HEADER_LEN].copy_from_slice(tcp.bytes());
        bytes[at + HEADER_LEN..at + header].copy_from_slice(options);
        let end = at + header;
        let mut sum = pseudo(tuple.local.ip(), tuple.remote.ip(), Protocol::TCP, header + payload);
        let mut offload = Offload::default();
        let field = if self.offloads.covers(Needs::CSUM) {
            offload = Offload::checksum(at as u16, CHECKSUM_AT as u16);
            sum.value()
        } else {
            sum.add(&bytes[at..end]);
            segment.payload.iter().for_each(|piece| add(&mut sum, *piece));
            sum.finish()
        };
        bytes[at + CHECKSUM_AT..at + CHECKSUM_AT + 2].copy_from_slice(&field.to_be_bytes());
        if segment.mss > 0 && payload > segment.mss {
            offload.gso_type = GSO[usize::from(tuple.local.is_ipv6())];
            if segment.flags.has(Flags::CWR) {
                offload.gso_type |= GSO[2];
            }
            (offload.gso_size, offload.hdr_len) = (segment.mss as u16, end as u16);
        }
        self.out.frame(offload, &bytes[..end], segment.payload)
    }

    /// Writes the headers below TCP; returns their length.
    fn network(&mut self, bytes: &mut [u8; HEADERS], tuple: &Tuple, ect: bool, len: usize) -> usize {
        let tos = if ect { ECT } else { 0 };
        *self.identification = self.identification.wrapping_add(1);
        let header = Network {
            source: tuple.local.ip(),
            destination: tuple.remote.ip(),
            protocol: Protocol::TCP,
            ttl: self.ttl,
            tos,
            identification: *self.identification,
            fragment: DONT_FRAGMENT,
        };
        header.write(self.source, self.destination, len, bytes)
    }
}

/// Adds bytes to a checksum. If others change them before they are sent, the peer drops the segment.
fn add(sum: &mut Sum, piece: Span<'_>) {
    let (mut bytes, mut rest) = ([0; 512], piece);
    while !rest.is_empty() {
        let count = rest.read(&mut bytes);
        sum.add(&bytes[..count]);
        rest = rest.split(count).1;
    }
}

/// What an IP header says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub protocol: Protocol,
    pub ttl: u8,
    pub tos: u8,
    pub identification: u16,
    /// Flags and fragment offset of IPv4.
    pub fragment: u16,
}

impl Network {
    /// Length of the Ethernet and IP headers.
    pub(crate) fn headers_len(address: IpAddr) -> usize {
        Ethernet::LEN + if address.is_ipv4() { Ipv4::LEN } else { Ipv6::LEN }
    }

    /// Writes an Ethernet and an IP header before `len` bytes; returns their length. Both addresses are of the
    /// same family, and `out` is long enough.
    pub(crate) fn write(&self, from: MacAddress, to: MacAddress, len: usize, out: &mut [u8]) -> usize {
        let ethertype = if self.source.is_ipv4() { EtherType::IPV4 } else { EtherType::IPV6 };
        let ethernet = Ethernet { destination: to, source: from, ethertype };
        out[..Ethernet::LEN].copy_from_slice(ethernet.bytes());
        let end = Network::headers_len(self.source);
        let space = &mut out[Ethernet::LEN..end];
        match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut ip = Ipv4 {
                    tos: self.tos,
                    total_length: U16::new((Ipv4::LEN + len) as u16),
                    identification: U16::new(self.identification),
                    fragment: U16::new(self.fragment),
                    ttl: self.ttl,
                    protocol: self.protocol,
                    source: U32::new(source.to_bits()),
                    destination: U32::new(destination.to_bits()),
                    ..Ipv4::EMPTY
                };
                ip.fill_checksum(&[]);
                space.copy_from_slice(ip.bytes());
            }
            (source, destination) => {
                let mut ip = Ipv6 {
                    payload_length: U16::new(len as u16),
                    next_header: self.protocol,
                    hop_limit: self.ttl,
                    source: U128::new(bits(source)),
                    destination: U128::new(bits(destination)),
                    ..Ipv6::EMPTY
                };
                ip.set_traffic_class(self.tos);
                space.copy_from_slice(ip.bytes());
            }
        }
        end
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// The sum of the pseudo header.
pub(crate) fn pseudo(source: IpAddr, destination: IpAddr, protocol: Protocol, len: usize) -> Sum {
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Sum::pseudo_v4(source, destination, protocol.0, len as u16)
        }
        (source, destination) => {
            Sum::pseudo_v6(bits(source).into(), bits(destination).into(), protocol.0, len as u32)
        }
    }
}
