//! Checksums, segmentation and VLAN tags of transmitted frames. The chip finds the headers itself, so it computes sums
//! whatever the driver left in their fields.

use crate::engine::{Offloads, Rewritten};
use crate::pieces::{TAG, insert_tag, segments};
use ringway_frame::{HEADERS, LARGEST, Needs, Offload, Reason};
use ringway_wire::ethernet::HEADER_LEN;
use ringway_wire::{Header, Ipv4, Protocol, Tcp, checksum, tcp, udp};

/// Bits of a first word: segmentation; checksums of the IP header, UDP, TCP.
const LARGE_SEND: u64 = 1 << 27;
const IPCS: u64 = 1 << 18;
const UDPCS: u64 = 1 << 17;
const TCPCS: u64 = 1 << 16;
/// A tag is inserted, in the first word's high half.
const TAGGED: u64 = 1 << (32 + 17);
/// Largest number of header bytes: Ethernet with a tag, IP and TCP with all options.
const LONGEST_HEADERS: usize = HEADER_LEN + TAG + 60 + 60;
const TPID: u16 = 0x8100;

/// What a frame's descriptors ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Segmentation, and the size of a segment.
    mss: Option<u16>,
    ip: bool,
    udp: bool,
    tcp: bool,
    /// Content of a VLAN tag to insert.
    tag: Option<u16>,
}

impl Request {
    /// The offloads that a frame's first descriptor requests in its first word.
    #[inline]
    pub fn parse(word: u64) -> Request {
        let has = |bit: u64| word & bit != 0;
        let tag = has(TAGGED).then(|| ((word >> 32) as u16).swap_bytes());
        if has(LARGE_SEND) {
            let mss = (word >> 16) as u16 & 0x7ff;
            return Request { mss: Some(mss), ip: true, udp: false, tcp: true, tag };
        }
        Request { mss: None, ip: has(IPCS), udp: has(UDPCS), tcp: has(TCPCS), tag }
    }

    /// The metadata of a frame whose sums are prepared; `None`: there are none.
    fn fill(&self, headers: &mut [u8], total: usize) -> Result<Option<Offload>, Reason> {
        let is_tagged = headers.get(12..14) == Some(&TPID.to_be_bytes());
        let ip_at = HEADER_LEN + if is_tagged { TAG } else { 0 };
        if headers.get(ip_at - 2..ip_at) != Some(&[8, 0]) {
            return if self.mss.is_some() { Err(Reason::BadOffload) } else { Ok(None) };
        }
        let rest = headers.get_mut(ip_at..).unwrap_or_default();
        let ip_len = u16::try_from(total - ip_at).map_err(|_| Reason::BadOffload)?;
        let Some(ip) = Ipv4::of_mut(rest) else { return Ok(None) };
        let header_len = ip.header_len();
        if ip.version() != 4 || header_len < Ipv4::LEN || header_len > rest.len() {
            return if self.mss.is_some() { Err(Reason::BadOffload) } else { Ok(None) };
        }
        let (network, upper) = rest.split_at_mut(header_len);
        let Some(ip) = Ipv4::of_mut(network) else { return Ok(None) };
        if self.mss.is_some() {
            ip.total_length.set(ip_len);
        }
        // Attack: a length in the header that is not the frame's.
        let upper_len = ip.total_length.get().min(ip_len).saturating_sub(header_len as u16);
        let (protocol, pseudo) = (ip.protocol, ip.pseudo_header(upper_len));
        if self.ip {
            ip.checksum.set(0);
            let sum = checksum::checksum(network);
            if let Some(ip) = Ipv4::of_mut(network) {
                ip.checksum.set(sum);
            }
        }
        let field = match protocol {
            Protocol::TCP if self.tcp => tcp::CHECKSUM_AT,
            Protocol::UDP if self.udp => udp::CHECKSUM_AT,
            _ if self.mss.is_some() => return Err(Reason::BadOffload),
            _ => return Ok(None),
        };
        let place = upper.get_mut(field..field + 2).ok_or(Reason::BadOffload)?;
        place.copy_from_slice(&pseudo.value().to_be_bytes());
        let upper_at = ip_at + header_len;
        let offload = Offload::checksum(upper_at as u16, field as u16);
        let offload = match (self.mss, Tcp::split_mut(upper)) {
            (None, _) => offload,
            (Some(_), None) => return Err(Reason::BadOffload),
            (Some(mss), Some((tcp, _))) => {
                let reduced = tcp.flags.has(tcp::Flags::CWR);
                let hdr_len = upper_at + tcp.header_len();
                if hdr_len > total {
                    return Err(Reason::BadOffload);
                }
                segments(Offload { hdr_len: hdr_len as u16, ..offload }, 1, total, (mss, reduced))
            }
        };
        offload.check(total as u32, Needs::ALL).map(Some).map_err(|_| Reason::BadOffload)
    }
}

impl Offloads for Request {
    #[inline]
    fn rewritten(&self, total: usize) -> usize {
        if *self == Request::default() { 0 } else { total.min(LONGEST_HEADERS) }
    }

    fn offload(&self, _total: usize) -> Result<Offload, Reason> {
        Ok(Offload::default())
    }

    /// What is not IPv4, or another protocol, is left alone, as by the chip.
    fn rewrite(&self, headers: &mut [u8; HEADERS], len: usize, total: usize) -> Rewritten {
        if total > LARGEST as usize - TAG {
            return Err(Reason::BadOffload);
        }
        let mut offload = self.fill(&mut headers[..len], total)?.unwrap_or_default();
        let Some(content) = self.tag else { return Ok((offload, len)) };
        insert_tag(headers, len, (TPID, content), &mut offload);
        Ok((offload, len + TAG))
    }
}
