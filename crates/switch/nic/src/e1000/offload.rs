//! Checksums, segmentation and VLAN tags of transmitted frames: what descriptors ask for becomes offload metadata. The
//! device never segments; headers that metadata can't describe are rewritten in a copy.

use crate::engine::{Offloads, Rewritten};
use crate::pieces::{ADDRESSES, TAG, insert_tag, segments};
use ringway_frame::{HEADERS, LARGEST, Needs, Offload, Reason};
use ringway_wire::{Header, Ipv4, Ipv6, Protocol, Sum, Tcp, checksum, tcp};

/// TUCMD: TCP, IPv4, segmentation.
const TCP: u8 = 1;
const IPV4: u8 = 2;
/// Largest number of rewritten header bytes; a tag may be added.
const LARGEST_HEADERS: usize = HEADERS - TAG;

const BAD: Reason = Reason::BadOffload;

/// A context descriptor.
#[derive(Clone, Copy, Debug, Default)]
pub struct Context {
    /// Where the IP header and its checksum field are, and the header's last byte.
    ip: (u8, u8, u16),
    /// Where the upper layer's header and its checksum field are, and its last byte; 0: the frame's last one.
    upper: (u8, u8, u16),
    command: u8,
    header_len: u8,
    mss: u16,
}

impl Context {
    /// Whether it is about segmentation: the device keeps one context for that, and one for checksums.
    pub const fn is_segmentation(words: [u64; 2]) -> bool {
        words[1] >> 26 & 1 != 0
    }

    pub fn parse([first, second]: [u64; 2]) -> Context {
        let fields = |word: u64| (word as u8, (word >> 8) as u8, (word >> 16) as u16);
        Context {
            ip: fields(first),
            upper: fields(first >> 32),
            command: (second >> 24) as u8,
            header_len: (second >> 40) as u8,
            mss: (second >> 48) as u16,
        }
    }
}

/// What a frame's descriptors ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// Segmentation.
    pub segment: bool,
    /// Insert the IP header's checksum, the upper layer's.
    pub ip: bool,
    pub upper: bool,
    /// A legacy descriptor's checksum: where the sum starts, and where it is stored.
    pub legacy: Option<(u8, u8)>,
    /// EtherType and content of a VLAN tag to insert.
    pub tag: Option<(u16, u16)>,
    /// The context in force.
    pub context: Context,
}

impl Request {
    /// How many header bytes a rewrite reads.
    fn header_len(&self) -> usize {
        let segment = if self.segment { usize::from(self.context.header_len) } else { 0 };
        let (_, field, end) = self.context.ip;
        let ip = if self.ip { usize::from(end).max(usize::from(field) + 1) + 1 } else { 0 };
        segment.max(ip).max(ADDRESSES)
    }
}

impl Offloads for Request {
    #[inline]
    fn rewritten(&self, _total: usize) -> usize {
        if self.segment || self.ip || self.tag.is_some() { self.header_len() } else { 0 }
    }

    #[inline]
    fn offload(&self, total: usize) -> Result<Offload, Reason> {
        let offload = if self.upper {
            let (start, field, end) = self.context.upper;
            // A sum that ends before the frame can't be described.
            if end != 0 && usize::from(end) + 1 < total {
                return Err(BAD);
            }
            fill(start, field)?
        } else if let Some((start, field)) = self.legacy {
            fill(start, field)?
        } else {
            return Ok(Offload::default());
        };
        offload.check(total as u32, Needs::ALL).map_err(|_| BAD)
    }

    /// Attack: a context that contradicts the headers.
    fn rewrite(&self, headers: &mut [u8; HEADERS], len: usize, total: usize) -> Rewritten {
        if len > LARGEST_HEADERS {
            return Err(Reason::NoOffload);
        }
        if total > LARGEST as usize - TAG || len > total {
            return Err(BAD);
        }
        let bytes = &mut headers[..len];
        let mut offload = if self.segment {
            let offload = segmented(&self.context, bytes, total)?;
            offload.check(total as u32, Needs::ALL).map_err(|_| BAD)?
        } else {
            self.offload(total)?
        };
        if self.ip {
            let (start, field, end) = self.context.ip;
            let range = usize::from(start)..usize::from(end) + 1;
            let sum = checksum::checksum(bytes.get(range).ok_or(BAD)?);
            let place = bytes.get_mut(usize::from(field)..usize::from(field) + 2).ok_or(BAD)?;
            place.copy_from_slice(&sum.to_be_bytes());
        }
        let Some(tag) = self.tag else { return Ok((offload, len)) };
        insert_tag(headers, len, tag, &mut offload);
        Ok((offload, len + TAG))
    }
}

fn fill(start: u8, field: u8) -> Result<Offload, Reason> {
    let offset = field.checked_sub(start).ok_or(BAD)?;
    Ok(Offload::checksum(start.into(), offset.into()))
}

/// Prepares the headers of a frame of `total` bytes for segmentation: drivers leave the lengths out, which change from
/// segment to segment, but receivers of the whole frame need them.
fn segmented(context: &Context, headers: &mut [u8], total: usize) -> Result<Offload, Reason> {
    let (ip_at, tcp_at) = (usize::from(context.ip.0), usize::from(context.upper.0));
    let (ip_len, tcp_len) = (total.checked_sub(ip_at).ok_or(BAD)?, total.checked_sub(tcp_at).ok_or(BAD)?);
    if context.command & TCP == 0 || usize::from(context.upper.1) != tcp_at + tcp::CHECKSUM_AT {
        return Err(BAD);
    }
    let (network, upper) = headers.split_at_mut_checked(tcp_at).ok_or(BAD)?;
    let network = network.get_mut(ip_at..).ok_or(BAD)?;
    let header_len = network.len();
    let gso_type = if context.command & IPV4 != 0 {
        let ip = Ipv4::of_mut(network).ok_or(BAD)?;
        let is_whole = ip.version() == 4 && ip.header_len() == header_len;
        if !is_whole || ip.protocol != Protocol::TCP {
            return Err(BAD);
        }
        ip.total_length.set(u16::try_from(ip_len).map_err(|_| BAD)?);
        1
    } else {
        let ip = Ipv6::of_mut(network).ok_or(BAD)?;
        if ip.version() != 6 {
            return Err(BAD);
        }
        let payload = ip_len.checked_sub(Ipv6::LEN).ok_or(BAD)?;
        ip.payload_length.set(u16::try_from(payload).map_err(|_| BAD)?);
        4
    };
    let (tcp, _) = Tcp::split_mut(upper).ok_or(BAD)?;
    let mut sum = Sum::new();
    sum.add_u16(tcp.checksum.get());
    sum.add_u32(tcp_len as u32);
    tcp.checksum.set(sum.value());
    let offload = Offload { hdr_len: context.header_len.into(), ..fill(context.upper.0, context.upper.1)? };
    Ok(segments(offload, gso_type, total, (context.mss, tcp.flags.has(tcp::Flags::CWR))))
}
