//! Consecutive TCP segments of one flow, as one frame that segmentation turns into the same segments again (generic
//! receive offload).

use super::headers::SEGMENTS;
use super::{HEADERS, Offload};
use ringway_wire::tcp::{self, Flags};
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Ipv6, Protocol, Sum, Tcp, vlan};

/// One segment's headers.
struct Segment {
    /// The headers; the fields that differ between segments are zero.
    template: [u8; HEADERS],
    l3: usize,
    l4: usize,
    /// Length of all headers.
    len: usize,
    /// IPv4 only.
    identification: Option<u16>,
    sequence: u32,
    flags: Flags,
    pseudo: Sum,
}

impl Segment {
    /// Parses a frame that may be joined with others: TCP without options of IP, and with no flag but ACK and PSH.
    fn parse(frame: &[u8]) -> Option<Segment> {
        let (ethernet, rest) = Ethernet::split(frame)?;
        let inner = vlan::untag(ethernet.ethertype, rest)?;
        let l3 = frame.len() - inner.payload.len();
        let (ip_len, identification, pseudo) = match inner.ethertype {
            EtherType::IPV4 => {
                let (ip, options, payload) = Ipv4::parse(inner.payload)?;
                let is_whole =
                    usize::from(ip.total_length.get()) == inner.payload.len() && options.is_empty();
                let is_plain = ip.version() == 4 && ip.protocol == Protocol::TCP && !ip.is_fragment();
                (is_whole && is_plain && ip.is_checksum_valid(options)).then(|| {
                    (Ipv4::LEN, Some(ip.identification.get()), ip.pseudo_header(payload.len() as u16))
                })
            }
            EtherType::IPV6 => {
                let (ip, payload) = Ipv6::split(inner.payload)?;
                let is_whole = usize::from(ip.payload_length.get()) == payload.len();
                let is_plain = ip.version() == 6 && ip.next_header == Protocol::TCP;
                let pseudo = || ip.pseudo_header(Protocol::TCP, payload.len() as u32);
                (is_whole && is_plain).then(|| (Ipv6::LEN, None, pseudo()))
            }
            _ => None,
        }?;
        let l4 = l3 + ip_len;
        let (tcp, _, payload) = Tcp::parse(&frame[l4..])?;
        let len = frame.len() - payload.len();
        let is_plain = tcp.flags.without(Flags::PSH) == Flags::ACK;
        // Segmentation writes 0xffff in place of 0, which is the same number in ones' complement.
        if payload.is_empty() || len > HEADERS || !is_plain || tcp.checksum.get() == 0 {
            return None;
        }
        let mut template = [0; HEADERS];
        template[..len].copy_from_slice(&frame[..len]);
        let (sequence, flags) = (tcp.sequence_number.get(), tcp.flags);
        let mut segment = Segment { template, l3, l4, len, identification, sequence, flags, pseudo };
        segment.fill(0, 0, 0, Flags(0), 0);
        Some(segment)
    }

    /// Whether TCP's checksum is right. Attack: a segment with a wrong one; the joined frame would get a right one.
    fn is_intact(&self, frame: &[u8]) -> bool {
        let mut sum = self.pseudo;
        sum.add(&frame[self.l4..]);
        sum.is_valid()
    }

    /// Writes the fields that differ between segments; `total` is the length of the IP packet, 0 for none.
    fn fill(&mut self, total: usize, identification: u16, sequence: u32, flags: Flags, checksum: u16) {
        let (network, upper) = self.template.split_at_mut(self.l4);
        if self.identification.is_some() {
            if let Some(ip) = Ipv4::of_mut(&mut network[self.l3..]) {
                ip.total_length.set(total as u16);
                ip.identification.set(identification);
                ip.checksum.set(0);
                if total > 0 {
                    ip.fill_checksum(&[]);
                }
            }
        } else if let Some(ip) = Ipv6::of_mut(&mut network[self.l3..]) {
            ip.payload_length.set(total.saturating_sub(Ipv6::LEN) as u16);
        }
        if let Some(tcp) = Tcp::of_mut(upper) {
            tcp.sequence_number.set(sequence);
            (tcp.flags, tcp.checksum) = (flags, checksum.into());
        }
    }
}

/// TCP segments that are being joined into one frame.
pub struct Coalesced {
    first: Segment,
    /// Payload bytes of each segment but the last.
    size: usize,
    payload: usize,
    segments: usize,
    flags: Flags,
    /// No further segment may follow.
    has_ended: bool,
}

impl Coalesced {
    /// A frame of one segment, if others may follow it.
    pub fn begin(frame: &[u8]) -> Option<Coalesced> {
        let first = Segment::parse(frame).filter(|first| first.is_intact(frame))?;
        let (payload, flags) = (frame.len() - first.len, first.flags);
        let has_ended = flags.has(Flags::PSH);
        Some(Coalesced { first, size: payload, payload, segments: 1, flags, has_ended })
    }

    /// Adds a segment if it is the next one; returns the offset of its payload.
    pub fn append(&mut self, frame: &[u8]) -> Option<usize> {
        if self.has_ended || self.segments == SEGMENTS {
            return None;
        }
        let next = Segment::parse(frame)?;
        let payload = frame.len() - next.len;
        let identification = self.first.identification.map(|first| first.wrapping_add(self.segments as u16));
        let sequence = self.first.sequence.wrapping_add(self.payload as u32);
        let follows = (next.identification, next.sequence) == (identification, sequence)
            && next.len == self.first.len
            && next.template[..next.len] == self.first.template[..next.len];
        let fits =
            payload <= self.size && next.len - next.l3 + self.payload + payload <= usize::from(u16::MAX);
        if !follows || !fits || !next.is_intact(frame) {
            return None;
        }
        self.payload += payload;
        self.segments += 1;
        self.flags = next.flags;
        self.has_ended = payload < self.size || next.flags.has(Flags::PSH);
        Some(next.len)
    }

    /// The frame's headers, their length and its offload metadata; `None` if no segment was appended: it is as it was.
    pub fn finish(mut self) -> Option<([u8; HEADERS], usize, Offload)> {
        let Segment { l3, l4, len, sequence, mut pseudo, .. } = self.first;
        if self.segments == 1 {
            return None;
        }
        // The first segment's length is in its pseudo header.
        pseudo.add_u16((self.payload - self.size) as u16);
        let identification = self.first.identification.unwrap_or(0);
        let total = len - l3 + self.payload;
        self.first.fill(total, identification, sequence, self.flags, pseudo.value());
        let offload = Offload {
            gso_type: if self.first.identification.is_some() { 1 } else { 4 },
            hdr_len: len as u16,
            gso_size: self.size as u16,
            ..Offload::checksum(l4 as u16, tcp::CHECKSUM_AT as u16)
        };
        Some((self.first.template, len, offload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Gso, Headers, Needs};
    use proptest::prelude::*;

    /// How a flow begins.
    #[derive(Clone, Debug)]
    struct Flow {
        ipv6: bool,
        tags: usize,
        options: usize,
        sequence: u32,
        identification: u16,
    }

    fn flow() -> impl Strategy<Value = Flow> {
        (any::<bool>(), 0..3usize, 0..4usize, any::<u32>(), any::<u16>()).prop_map(
            |(ipv6, tags, options, sequence, identification)| Flow {
                ipv6,
                tags,
                options,
                sequence,
                identification,
            },
        )
    }

    fn fill_checksum(segment: &mut [u8], mut sum: Sum) {
        sum.add(segment);
        Tcp::of_mut(segment).unwrap().checksum.set(sum.finish_nonzero());
    }

    impl Flow {
        /// Segment `number`, whose payload begins after `before` bytes of the flow.
        fn segment(&self, number: u16, before: usize, payload: &[u8], flags: Flags) -> Vec<u8> {
            let mut tcp = Tcp { flags, data_offset: (5 + self.options as u8) << 4, ..Tcp::EMPTY };
            tcp.sequence_number.set(self.sequence.wrapping_add(before as u32));
            tcp.window.set(512);
            let mut upper = [tcp.bytes(), &vec![1; 4 * self.options], payload].concat();
            let mut bytes = vec![2; 12];
            bytes.extend([[0x81, 0, 0, 7]; 2].concat().iter().take(4 * self.tags));
            let len = upper.len();
            if self.ipv6 {
                let ip = Ipv6 {
                    payload_length: (len as u16).into(),
                    next_header: Protocol::TCP,
                    source: 1.into(),
                    destination: 2.into(),
                    ..Ipv6::EMPTY
                };
                fill_checksum(&mut upper, ip.pseudo_header(Protocol::TCP, len as u32));
                return [&bytes[..], &[0x86, 0xdd], ip.bytes(), &upper].concat();
            }
            let mut ip = Ipv4 {
                total_length: ((20 + len) as u16).into(),
                identification: self.identification.wrapping_add(number).into(),
                protocol: Protocol::TCP,
                ttl: 9,
                source: 0x0a00_0001.into(),
                destination: 0x0a00_0002.into(),
                ..Ipv4::EMPTY
            };
            ip.fill_checksum(&[]);
            fill_checksum(&mut upper, ip.pseudo_header(len as u16));
            [&bytes[..], &[8, 0], ip.bytes(), &upper].concat()
        }

        fn gso(&self) -> Gso {
            if self.ipv6 { Gso::Tcp6 } else { Gso::Tcp4 }
        }
    }

    /// A frame's segments.
    fn segmented(frame: &[u8], offload: Offload, gso: Gso) -> Vec<Vec<u8>> {
        let headers = Headers::parse(&frame[..frame.len().min(HEADERS)], frame.len(), offload, gso).unwrap();
        let payload = &frame[headers.len()..];
        let parts = headers.parts(payload.len(), usize::from(offload.gso_size)).unwrap();
        let one = |part: super::super::Part| {
            let mut out = [0; HEADERS];
            let (_, mut sum) = headers.emit(&part, &mut out);
            let payload = &payload[part.offset..part.offset + part.len];
            sum.add(payload);
            headers.put_checksum(sum.finish_nonzero(), &mut out);
            [&out[..headers.len()], payload].concat()
        };
        parts.map(one).collect()
    }

    /// Joins as many of these segments as possible; returns the frame, and how many.
    fn joined(segments: &[Vec<u8>]) -> Option<(Vec<u8>, Offload, usize)> {
        let mut coalesced = Coalesced::begin(&segments[0])?;
        let mut frame = segments[0].clone();
        for segment in &segments[1..] {
            let Some(at) = coalesced.append(segment) else { break };
            frame.extend(&segment[at..]);
        }
        let count = coalesced.segments;
        let (headers, len, offload) = coalesced.finish()?;
        frame[..len].copy_from_slice(&headers[..len]);
        Some((frame, offload, count))
    }

    proptest! {
        #[test]
        fn a_joined_frame_is_cut_into_the_same_segments(
            flow in flow(), size in 1..1500usize, count in 2..300usize, last in 1..1500usize,
            pushed in 1..400usize,
        ) {
            let payload: Vec<u8> = (0..size).map(|at| at as u8).collect();
            let mut segments = Vec::new();
            for number in 0..count {
                let len = if number + 1 == count { last.min(size) } else { size };
                let flags = if number == pushed { Flags::ACK.with(Flags::PSH) } else { Flags::ACK };
                segments.push(flow.segment(number as u16, number * size, &payload[..len], flags));
            }
            let (frame, offload, joined) = joined(&segments).unwrap();
            let headers = segments[0].len() - size;
            let most = 65_535 + 14 + 4 * flow.tags - headers;
            let payload = |one: &Vec<u8>| one.len() - headers;
            let fits = |count: &usize| segments[..*count].iter().map(payload).sum::<usize>() <= most;
            let may_join = count.min(pushed + 1).min(SEGMENTS);
            prop_assert_eq!(Some(joined), (1..=may_join).rev().find(fits));
            prop_assert_eq!(offload.check(frame.len() as u32, Needs::ALL), Ok(offload));
            prop_assert_eq!(segmented(&frame, offload, flow.gso()), &segments[..joined]);
        }

        #[test]
        fn what_segmentation_would_not_restore_is_not_joined(
            flow in flow(), at in 0..120usize, bit in 0..8u8, second: bool,
        ) {
            let mut segments =
                vec![flow.segment(0, 0, &[3; 50], Flags::ACK), flow.segment(1, 50, &[4; 50], Flags::ACK)];
            let segment = &mut segments[usize::from(second)];
            let at = at % segment.len();
            segment[at] ^= 1 << bit;
            if let Some((frame, offload, count)) = joined(&segments) {
                prop_assert_eq!(segmented(&frame, offload, flow.gso()), &segments[..count]);
            }
        }

        #[test]
        fn any_bytes_are_joined_or_not(one: Vec<u8>, other: Vec<u8>) {
            if let Some((frame, ..)) = joined(&[one.clone(), other.clone()]) {
                prop_assert!(frame.len() <= one.len() + other.len());
            }
        }
    }

    #[test]
    fn only_the_next_segment_is_joined() {
        let flow = Flow { ipv6: false, tags: 0, options: 3, sequence: u32::MAX - 70, identification: 65_535 };
        let segment = |number, before, len, flags| flow.segment(number, before, &vec![5; len], flags);
        let first = segment(0, 0, 50, Flags::ACK);
        let is_joined = |second| joined(&[first.clone(), second]).is_some();
        assert!(is_joined(segment(1, 50, 50, Flags::ACK)));
        for wrong in [
            segment(1, 51, 50, Flags::ACK),
            segment(2, 50, 50, Flags::ACK),
            segment(1, 50, 51, Flags::ACK),
            segment(1, 50, 0, Flags::ACK),
            segment(1, 50, 50, Flags::ACK.with(Flags::FIN)),
            segment(1, 50, 50, Flags::ACK.with(Flags::CWR)),
            segment(1, 50, 50, Flags::ACK.with(Flags::URG)),
            Flow { options: 2, ..flow.clone() }.segment(1, 50, &[5; 50], Flags::ACK),
            Flow { tags: 1, ..flow.clone() }.segment(1, 50, &[5; 50], Flags::ACK),
        ] {
            assert!(!is_joined(wrong));
        }
    }
}
