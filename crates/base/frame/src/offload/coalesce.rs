//! Consecutive segments of one flow, as one frame that segmentation turns into the same segments again (generic
//! receive offload): TCP's, and UDP datagrams of one length.

use super::headers::SEGMENTS;
use super::{Gso, HEADERS, Needs, Offload};
use ringway_wire::tcp::{self, Flags};
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Ipv6, Protocol, Sum, Tcp, Udp, udp, vlan};

/// Maximum number of datagrams in a frame, as Linux has it (UDP_GRO_CNT_MAX).
const DATAGRAMS: usize = 64;
/// Offset of the flags in a TCP header.
const FLAGS: usize = 13;

/// The headers of a TCP segment or a UDP datagram, without options of IP, that is no fragment.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    gso: Gso,
    is_v4: bool,
    l3: usize,
    l4: usize,
    /// Length of all headers.
    len: usize,
    /// Length of the payload.
    payload: usize,
    /// IPv4 only; otherwise 0.
    identification: u16,
    /// TCP only; otherwise 0.
    sequence: u32,
    flags: Flags,
    checksum: u16,
    pseudo: Sum,
}

/// What the network header says.
struct Network {
    len: usize,
    protocol: Protocol,
    /// Length of what follows it.
    upper: usize,
    identification: u16,
    pseudo: Sum,
}

fn ipv4(packet: &[u8], total: usize) -> Option<Network> {
    let ip = Ipv4::of(packet)?;
    // Segmentation writes 0 in place of 0xffff, which is the same number in ones' complement.
    let is_plain = ip.version_ihl == 0x45 && !ip.is_fragment() && ip.checksum.get() != 0xffff;
    let upper = total.checked_sub(Ipv4::LEN)?;
    let is_whole = usize::from(ip.total_length.get()) == total;
    (is_plain && is_whole && ip.is_checksum_valid(&[])).then(|| Network {
        len: Ipv4::LEN,
        protocol: ip.protocol,
        upper,
        identification: ip.identification.get(),
        pseudo: ip.pseudo_header(upper as u16),
    })
}

fn ipv6(packet: &[u8], total: usize) -> Option<Network> {
    let ip = Ipv6::of(packet).filter(|ip| ip.version() == 6)?;
    let upper = total.checked_sub(Ipv6::LEN)?;
    (usize::from(ip.payload_length.get()) == upper).then(|| Network {
        len: Ipv6::LEN,
        protocol: ip.next_header,
        upper,
        identification: 0,
        pseudo: ip.pseudo_header(ip.next_header, upper as u32),
    })
}

impl Segment {
    /// The most bytes of a frame that are read as headers: Ethernet, two tags, IPv6, and TCP with all options.
    pub const LONGEST: usize = 14 + 8 + 40 + 60;

    /// Parses the headers of a frame of `total` bytes that begins with `head`, at least [`Segment::LONGEST`] bytes of
    /// it if it is that long.
    pub fn parse(head: &[u8], total: usize) -> Option<Segment> {
        let (ethernet, rest) = Ethernet::split(head)?;
        let inner = vlan::untag(ethernet.ethertype, rest)?;
        let l3 = head.len() - inner.payload.len();
        let is_v4 = inner.ethertype == EtherType::IPV4;
        let network = match inner.ethertype {
            EtherType::IPV4 => ipv4(inner.payload, total.checked_sub(l3)?),
            EtherType::IPV6 => ipv6(inner.payload, total.checked_sub(l3)?),
            _ => None,
        }?;
        let Network { protocol, upper, identification, pseudo, .. } = network;
        let l4 = l3 + network.len;
        let transport = head.get(l4..)?;
        let (gso, header, sequence, flags, checksum) = match protocol {
            Protocol::TCP => {
                let (tcp, ..) = Tcp::parse(transport)?;
                let gso = if is_v4 { Gso::Tcp4 } else { Gso::Tcp6 };
                (gso, tcp.header_len(), tcp.sequence_number.get(), tcp.flags, tcp.checksum.get())
            }
            Protocol::UDP => {
                let udp = Udp::of(transport).filter(|udp| usize::from(udp.length.get()) == upper)?;
                (Gso::UdpL4, Udp::LEN, 0, Flags(0), udp.checksum.get())
            }
            _ => return None,
        };
        let (len, payload) = (l4 + header, upper.checked_sub(header)?);
        let segment =
            Segment { gso, is_v4, l3, l4, len, payload, identification, sequence, flags, checksum, pseudo };
        (len <= Segment::LONGEST).then_some(segment)
    }

    /// Whether others may be joined with it: it has a payload, and of TCP's flags none but ACK and PSH.
    pub fn may_be_joined(&self) -> bool {
        let is_plain = self.gso == Gso::UdpL4 || self.flags.without(Flags::PSH) == Flags::ACK;
        // Segmentation writes 0xffff in place of 0, which is the same number in ones' complement. A datagram with 0
        // has no checksum.
        self.payload > 0 && is_plain && self.checksum != 0
    }

    /// Length of all headers.
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// What a destination must support to get a frame of such segments.
    pub fn needs(&self) -> Needs {
        Needs::CSUM.with(match self.gso {
            Gso::Tcp4 => Needs::TSO4,
            Gso::Tcp6 => Needs::TSO6,
            Gso::UdpL4 => Needs::USO,
        })
    }

    /// Offset of the checksum in the upper layer's header.
    fn field(&self) -> usize {
        match self.gso {
            Gso::Tcp4 | Gso::Tcp6 => tcp::CHECKSUM_AT,
            Gso::UdpL4 => udp::CHECKSUM_AT,
        }
    }

    /// Whether its checksum is right, or left to its receiver. `head` has its headers; `payload` adds the bytes from an
    /// offset of the frame on to a sum.
    ///
    /// Attack: a segment with a wrong one, also one that a guest says is right; the joined frame would get a right one.
    pub fn is_intact(&self, head: &[u8], offload: Offload, payload: impl FnOnce(usize, &mut Sum)) -> bool {
        if offload.needs_checksum() {
            let is_own = usize::from(offload.csum_start) == self.l4
                && usize::from(offload.csum_offset) == self.field();
            return is_own && offload.gso() == Ok(None) && self.checksum == self.pseudo.value();
        }
        let Some(header) = head.get(self.l4..self.len) else { return false };
        let mut sum = self.pseudo;
        sum.add(header);
        payload(self.len, &mut sum);
        sum.is_valid()
    }

    /// Whether both are of one flow: the same addresses and ports, in the same layers. `heads` have their headers.
    pub fn is_of_flow(&self, other: &Segment, heads: (&[u8], &[u8])) -> bool {
        let addresses = if self.is_v4 { self.l3 + 12 } else { self.l3 + 8 };
        // The ports follow the addresses: there are no options.
        let equals = || heads.0.get(addresses..self.l4 + 4) == heads.1.get(addresses..self.l4 + 4);
        (self.gso, self.l3) == (other.gso, other.l3) && self.is_v4 == other.is_v4 && equals()
    }

    /// Whether the headers of both are the same but for what differs between the segments of a frame.
    fn has_same_headers(&self, other: &Segment, own: &[u8], others: &[u8]) -> bool {
        let Segment { l3, l4, len, .. } = *self;
        let same = |from: usize, to: usize| own.get(from..to) == others.get(from..to);
        let network = match self.is_v4 {
            // Total length, identification, checksum.
            true => same(0, l3 + 2) && same(l3 + 6, l3 + 10) && same(l3 + 12, l4),
            // Payload length.
            false => same(0, l3 + 4) && same(l3 + 6, l4),
        };
        let upper = match self.gso {
            // Length, checksum.
            Gso::UdpL4 => same(l4, l4 + 4),
            // Sequence number, flags, checksum.
            Gso::Tcp4 | Gso::Tcp6 => {
                same(l4, l4 + 4)
                    && same(l4 + 8, l4 + FLAGS)
                    && same(l4 + FLAGS + 1, l4 + tcp::CHECKSUM_AT)
                    && same(l4 + tcp::CHECKSUM_AT + 2, len)
            }
        };
        (self.gso, self.is_v4, l3, l4, len) == (other.gso, other.is_v4, other.l3, other.l4, other.len)
            && network
            && upper
    }
}

/// Segments that are being joined into one frame.
#[derive(Debug)]
pub struct Coalesced {
    first: Segment,
    head: [u8; Segment::LONGEST],
    /// Payload bytes of all segments.
    payload: usize,
    segments: usize,
    flags: Flags,
    /// No further segment may follow.
    has_ended: bool,
}

impl Coalesced {
    /// A frame of one segment, whose headers `head` has.
    pub fn of(first: &Segment, head: &[u8]) -> Coalesced {
        let mut own = [0; Segment::LONGEST];
        let len = first.len.min(head.len());
        own[..len].copy_from_slice(&head[..len]);
        Coalesced {
            first: *first,
            head: own,
            payload: first.payload,
            segments: 1,
            flags: first.flags,
            has_ended: first.flags.has(Flags::PSH),
        }
    }

    /// The first segment, and its headers.
    pub fn first(&self) -> (&Segment, &[u8]) {
        (&self.first, &self.head)
    }

    /// Number of its segments.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Whether no further segment may follow.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Whether a segment, whose headers `head` has, is the next one.
    pub fn is_followed_by(&self, next: &Segment, head: &[u8]) -> bool {
        let most = if self.first.gso == Gso::UdpL4 { DATAGRAMS } else { SEGMENTS };
        if self.has_ended || self.segments >= most || !next.may_be_joined() {
            return false;
        }
        let first = &self.first;
        let identification = match first.is_v4 {
            true => first.identification.wrapping_add(self.segments as u16),
            false => 0,
        };
        let sequence = match first.gso {
            Gso::UdpL4 => 0,
            Gso::Tcp4 | Gso::Tcp6 => first.sequence.wrapping_add(self.payload as u32),
        };
        let total = first.len - first.l3 + self.payload + next.payload;
        (next.identification, next.sequence) == (identification, sequence)
            && next.payload <= first.payload
            && total <= usize::from(u16::MAX)
            && first.has_same_headers(next, &self.head, head)
    }

    /// Adds a segment that follows.
    pub fn add(&mut self, next: &Segment) {
        self.payload += next.payload;
        self.segments += 1;
        self.flags = next.flags;
        self.has_ended = next.payload < self.first.payload || next.flags.has(Flags::PSH);
    }

    /// A frame of one segment, if others may follow it. `frame` has all its bytes, of which `first` was parsed.
    pub fn begin(first: &Segment, frame: &[u8]) -> Option<Coalesced> {
        let payload = |at: usize, sum: &mut Sum| sum.add(frame.get(at..).unwrap_or_default());
        let may_begin = first.may_be_joined() && first.is_intact(frame, Offload::default(), payload);
        may_begin.then(|| Coalesced::of(first, frame))
    }

    /// Adds a segment if it is the next one; returns the offset of its payload. `frame` has all its bytes.
    pub fn append(&mut self, frame: &[u8]) -> Option<usize> {
        let next = Segment::parse(frame, frame.len())?;
        let payload = |at: usize, sum: &mut Sum| sum.add(frame.get(at..).unwrap_or_default());
        let follows = self.is_followed_by(&next, frame);
        if !follows || !next.is_intact(frame, Offload::default(), payload) {
            return None;
        }
        self.add(&next);
        Some(next.len)
    }

    /// The frame's headers, their length and its offload metadata; `None` if no segment was appended: it is as it was.
    pub fn finish(self) -> Option<([u8; HEADERS], usize, Offload)> {
        if self.segments == 1 {
            return None;
        }
        let mut headers = [0; HEADERS];
        let (len, offload) = self.write(&mut headers);
        Some((headers, len, offload))
    }

    /// Writes the frame's headers; returns their length, and the frame's offload metadata.
    pub fn write(&self, out: &mut [u8; HEADERS]) -> (usize, Offload) {
        let Segment { gso, is_v4, l3, l4, len, payload: size, mut pseudo, .. } = self.first;
        out[..len].copy_from_slice(&self.head[..len]);
        // The first segment's length is in its pseudo header.
        pseudo.add_u16((self.payload - size) as u16);
        let total = len - l3 + self.payload;
        let (network, upper) = out.split_at_mut(l4);
        if !is_v4 {
            if let Some(ip) = Ipv6::of_mut(&mut network[l3..]) {
                ip.payload_length.set(total.saturating_sub(Ipv6::LEN) as u16);
            }
        } else if let Some(ip) = Ipv4::of_mut(&mut network[l3..]) {
            ip.total_length.set(total as u16);
            ip.checksum.set(0);
            ip.fill_checksum(&[]);
        }
        let gso_type = match gso {
            Gso::Tcp4 => 1,
            Gso::Tcp6 => 4,
            Gso::UdpL4 => 5,
        };
        if gso != Gso::UdpL4 {
            if let Some(tcp) = Tcp::of_mut(upper) {
                (tcp.flags, tcp.checksum) = (self.flags, pseudo.value().into());
            }
        } else if let Some(udp) = Udp::of_mut(upper) {
            udp.length.set((Udp::LEN + self.payload) as u16);
            udp.checksum.set(pseudo.value());
        }
        let checksum = Offload::checksum(l4 as u16, self.first.field() as u16);
        (len, Offload { gso_type, hdr_len: len as u16, gso_size: size as u16, ..checksum })
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
        udp: bool,
        tags: usize,
        options: usize,
        sequence: u32,
        identification: u16,
    }

    fn flow() -> impl Strategy<Value = Flow> {
        (any::<(bool, bool)>(), 0..3usize, 0..4usize, any::<u32>(), any::<u16>()).prop_map(
            |((ipv6, udp), tags, options, sequence, identification)| Flow {
                ipv6,
                udp,
                tags,
                options,
                sequence,
                identification,
            },
        )
    }

    fn fill_checksum(segment: &mut [u8], protocol: Protocol, mut sum: Sum) {
        sum.add(segment);
        let field = protocol.checksum_at().unwrap();
        segment[field..field + 2].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
    }

    impl Flow {
        /// Segment `number`, whose payload begins after `before` bytes of the flow.
        fn segment(&self, number: u16, before: usize, payload: &[u8], flags: Flags) -> Vec<u8> {
            let mut tcp = Tcp { flags, data_offset: (5 + self.options as u8) << 4, ..Tcp::EMPTY };
            tcp.sequence_number.set(self.sequence.wrapping_add(before as u32));
            tcp.window.set(512);
            let udp = Udp { length: ((8 + payload.len()) as u16).into(), ..Udp::default() };
            let protocol = self.protocol();
            let mut upper = match self.udp {
                true => [udp.bytes(), payload].concat(),
                false => [tcp.bytes(), &vec![1; 4 * self.options], payload].concat(),
            };
            let mut bytes = vec![2; 12];
            bytes.extend([[0x81, 0, 0, 7]; 2].concat().iter().take(4 * self.tags));
            let len = upper.len();
            if self.ipv6 {
                let ip = Ipv6 {
                    payload_length: (len as u16).into(),
                    next_header: protocol,
                    source: 1.into(),
                    destination: 2.into(),
                    ..Ipv6::EMPTY
                };
                fill_checksum(&mut upper, protocol, ip.pseudo_header(protocol, len as u32));
                return [&bytes[..], &[0x86, 0xdd], ip.bytes(), &upper].concat();
            }
            let mut ip = Ipv4 {
                total_length: ((20 + len) as u16).into(),
                identification: self.identification.wrapping_add(number).into(),
                protocol,
                ttl: 9,
                source: 0x0a00_0001.into(),
                destination: 0x0a00_0002.into(),
                ..Ipv4::EMPTY
            };
            ip.fill_checksum(&[]);
            fill_checksum(&mut upper, protocol, ip.pseudo_header(len as u16));
            [&bytes[..], &[8, 0], ip.bytes(), &upper].concat()
        }

        fn gso(&self) -> Gso {
            match (self.udp, self.ipv6) {
                (true, _) => Gso::UdpL4,
                (false, true) => Gso::Tcp6,
                (false, false) => Gso::Tcp4,
            }
        }

        fn protocol(&self) -> Protocol {
            if self.udp { Protocol::UDP } else { Protocol::TCP }
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
        let mut frame = segments[0].clone();
        let mut coalesced = Coalesced::begin(&Segment::parse(&frame, frame.len())?, &frame)?;
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
            let may_join = if flow.udp { count.min(DATAGRAMS) } else { count.min(pushed + 1).min(SEGMENTS) };
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
        let flow = Flow {
            ipv6: false,
            udp: false,
            tags: 0,
            options: 3,
            sequence: u32::MAX - 70,
            identification: 65_535,
        };
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
        let flow = Flow { udp: true, ..flow };
        let segment = |number, len| flow.segment(number, 0, &vec![5; len], Flags::ACK);
        let is_joined = |second| joined(&[segment(0, 50), second]).is_some();
        assert!(is_joined(segment(1, 50)) && is_joined(segment(1, 9)));
        assert!(!is_joined(segment(1, 51)) && !is_joined(segment(2, 50)));
    }

    #[test]
    fn checksums_are_right_or_left_to_the_receiver() {
        let flow = Flow { ipv6: true, udp: false, tags: 1, options: 3, sequence: 7, identification: 0 };
        let whole = flow.segment(0, 0, &[5; 51], Flags::ACK);
        let segment = Segment::parse(&whole, whole.len()).unwrap();
        let is_intact = |frame: &[u8], offload: Offload| {
            segment.is_intact(frame, offload, |at, sum: &mut Sum| sum.add(&frame[at..]))
        };
        let mut broken = whole.clone();
        broken[whole.len() - 1] ^= 1;
        assert!(is_intact(&whole, Offload::default()) && !is_intact(&broken, Offload::default()));
        let checked = Offload { flags: 2, ..Offload::default() };
        assert!(!is_intact(&broken, checked), "whoever says that it was checked");
        let pending = Offload::checksum(segment.l4 as u16, 16);
        assert!(!is_intact(&whole, pending), "the field has no sum of the pseudo header");
        let mut unfilled = whole.clone();
        let field = segment.l4 + 16;
        unfilled[field..field + 2].copy_from_slice(&segment.pseudo.value().to_be_bytes());
        let segment = Segment::parse(&unfilled, unfilled.len()).unwrap();
        let is_intact = |offload| segment.is_intact(&unfilled, offload, |_, _| ());
        assert!(is_intact(pending));
        assert!(!is_intact(Offload::checksum(segment.l4 as u16, 6)), "another field");
        assert!(!is_intact(Offload { gso_type: 4, gso_size: 9, ..pending }), "it is cut into segments");
        // What is cut off is known to be there.
        assert!(Segment::parse(&whole[..Segment::LONGEST.min(whole.len())], whole.len()).is_some());
        assert!(Segment::parse(&whole, whole.len() + 1).is_none(), "padded");
    }
}
