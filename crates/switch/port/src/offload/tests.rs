use super::*;
use proptest::prelude::*;
use ringway_frame::LARGEST;

const BARE: Caps = Caps { offloads: Needs::NONE, largest: LARGEST };
const CHECKSUMS: Caps = Caps { offloads: Needs::CSUM, largest: LARGEST };

/// The Internet checksum by its definition (RFC 1071, 1), over concatenated pieces.
fn slow_sum(pieces: &[&[u8]]) -> u16 {
    let mut total = 0u32;
    for pair in pieces.concat().chunks(2) {
        total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The structure of a frame.
#[derive(Clone, Debug)]
struct Shape {
    tags: usize,
    six: bool,
    udp: bool,
    /// Length of IPv4 options in words of 4 bytes, or of IPv6 extension headers in words of 8 bytes.
    network_extra: usize,
    tcp_options: usize,
    flags: u8,
    sequence: u32,
    identification: u16,
    payload: Vec<u8>,
}

fn shape(longest: usize) -> impl Strategy<Value = Shape> {
    let payload = (0..longest, any::<u8>())
        .prop_map(|(len, seed)| (0..len).map(|at| (at * 7) as u8 ^ (at >> 8) as u8 ^ seed).collect());
    (0usize..3, any::<(bool, bool)>(), 0usize..8, 0usize..11, any::<(u8, u32, u16)>(), payload).prop_map(
        |(tags, (six, udp), network_extra, tcp_options, (flags, sequence, identification), payload)| Shape {
            tags,
            six,
            udp,
            network_extra,
            tcp_options,
            flags,
            sequence,
            identification,
            payload,
        },
    )
}

impl Shape {
    fn l3(&self) -> usize {
        14 + 4 * self.tags
    }

    fn l4(&self) -> usize {
        self.l3() + if self.six { 40 + 8 * self.network_extra } else { 20 + 4 * self.network_extra }
    }

    fn headers(&self) -> usize {
        self.l4() + if self.udp { 8 } else { 20 + 4 * self.tcp_options }
    }

    fn field(&self) -> usize {
        self.l4() + if self.udp { 6 } else { 16 }
    }

    /// The frame as sent, and its metadata.
    fn frame(&self, gso_size: u16) -> (Vec<u8>, Offload) {
        let mut frame = vec![0x52, 0x54, 0, 0, 0, 1, 0x52, 0x54, 0, 0, 0, 2];
        for tag in 0..self.tags as u8 {
            frame.extend_from_slice(&[0x81, 0x00, 0, tag + 1]);
        }
        let (protocol, behind) =
            (if self.udp { 17 } else { 6 }, self.headers() - self.l4() + self.payload.len());
        let network = self.l4() - self.l3();
        if self.six {
            let [high, low] = ((network - 40 + behind) as u16).to_be_bytes();
            let next = if self.network_extra > 0 { 60 } else { protocol };
            frame.extend_from_slice(&[0x86, 0xdd, 0x60, 0x01, 0x02, 0x03, high, low, next, 64]);
            frame.extend((0..32).map(|at| 0xfe ^ (at * 3)));
            for left in (0..self.network_extra).rev() {
                frame.extend_from_slice(&[if left > 0 { 60 } else { protocol }, 0, 1, 4, 0, 0, 0, 0]);
            }
        } else {
            let [high, low] = ((network + behind) as u16).to_be_bytes();
            let [id_high, id_low] = self.identification.to_be_bytes();
            frame.extend_from_slice(&[
                8,
                0,
                0x40 | (network / 4) as u8,
                0,
                high,
                low,
                id_high,
                id_low,
                0x40,
                0,
            ]);
            frame.extend_from_slice(&[64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
            frame.extend(std::iter::repeat_n(1, network - 20));
            let sum = !slow_sum(&[&frame[self.l3()..]]);
            frame[self.l3() + 10..self.l3() + 12].copy_from_slice(&sum.to_be_bytes());
        }
        let l4 = frame.len();
        frame.extend_from_slice(&[0xc0, 0x00, 0x00, 0x50]);
        if self.udp {
            frame.extend_from_slice(&(behind as u16).to_be_bytes());
            frame.extend_from_slice(&[0, 0]);
        } else {
            frame.extend_from_slice(&self.sequence.to_be_bytes());
            let offset = 0x50 + 0x10 * self.tcp_options as u8;
            frame.extend_from_slice(&[0, 0, 0, 9, offset, self.flags, 1, 2, 0, 0, 0, 0]);
            frame.extend(std::iter::repeat_n(1, 4 * self.tcp_options));
        }
        let pseudo = self.pseudo(&frame, behind);
        let field = self.field();
        frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
        frame.extend_from_slice(&self.payload);
        let gso_type = match (self.udp, self.six) {
            _ if gso_size == 0 => 0,
            (true, _) => 5,
            (false, true) => 4,
            (false, false) => 1,
        };
        let offload = Offload { gso_type, gso_size, ..Offload::checksum(l4 as u16, (field - l4) as u16) };
        (frame, offload)
    }

    /// The pseudo header's sum for an upper layer of `len` bytes.
    fn pseudo(&self, frame: &[u8], len: usize) -> u16 {
        let addresses = if self.six { 8..40 } else { 12..20 };
        let tail = [0, if self.udp { 17 } else { 6 }, (len >> 8) as u8, len as u8];
        slow_sum(&[&frame[self.l3()..][addresses], &tail])
    }
}

/// Splits `frame` at positions from `cuts`, completes it, and returns the resulting frames.
pub(crate) fn complete(
    frame: &[u8],
    offload: Offload,
    cuts: &[usize],
    caps: Caps,
) -> (Vec<(Vec<u8>, Offload)>, Outcome) {
    let mut spans = Vec::new();
    let mut rest = frame;
    for cut in cuts {
        let (piece, behind) = rest.split_at((*cut).min(rest.len()));
        spans.push(Span::of(piece));
        rest = behind;
    }
    spans.push(Span::of(rest));
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    burst.push_pieces(offload, &spans).unwrap();
    let mut completer = Completer::default();
    let completed = completer.complete(&burst, &[0], caps);
    let frames = (0..completed.burst.len())
        .map(|frame| {
            let meta = completed.burst.meta(frame);
            let mut bytes = vec![0; meta.len as usize];
            assert_eq!(completed.burst.read(frame, 0, &mut bytes), bytes.len());
            (bytes, meta.offload)
        })
        .collect();
    (frames, completed.outcomes[0])
}

/// Checks one segment against its shape; returns its payload.
fn check_segment<'f>(shape: &Shape, frame: &'f [u8], number: usize, offset: usize, last: bool) -> &'f [u8] {
    let (l3, l4, field) = (shape.l3(), shape.l4(), shape.field());
    let (original, _) = shape.frame(0);
    let u16_at = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    assert_eq!(frame[..l3], original[..l3]);
    if shape.six {
        assert_eq!(usize::from(u16_at(l3 + 4)), frame.len() - l3 - 40);
        assert_eq!(frame[l3 + 6..l4], original[l3 + 6..l4]);
    } else {
        assert_eq!(usize::from(u16_at(l3 + 2)), frame.len() - l3);
        assert_eq!(u16_at(l3 + 4), shape.identification.wrapping_add(number as u16));
        assert_eq!(slow_sum(&[&frame[l3..l4]]), 0xffff);
        assert_eq!(frame[l3 + 12..l4], original[l3 + 12..l4]);
    }
    assert_eq!(frame[l4..l4 + 4], original[l4..l4 + 4]);
    if shape.udp {
        assert_eq!(usize::from(u16_at(l4 + 4)), frame.len() - l4);
        assert_ne!(u16_at(field), 0);
    } else {
        let sequence = u32::from(u16_at(l4 + 4)) << 16 | u32::from(u16_at(l4 + 6));
        assert_eq!(sequence, shape.sequence.wrapping_add(offset as u32));
        assert_eq!(frame[l4 + 8..l4 + 13], original[l4 + 8..l4 + 13]);
        let gone = if last { 0 } else { 0x09 } | if number == 0 { 0 } else { 0x80 };
        assert_eq!(frame[l4 + 13], shape.flags & !gone);
        assert_eq!(frame[l4 + 14..l4 + 16], original[l4 + 14..l4 + 16]);
        assert_eq!(frame[l4 + 18..shape.headers()], original[l4 + 18..shape.headers()]);
    }
    &frame[shape.headers()..]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 192 } else { 4000 }))]

    #[test]
    fn segments_reassemble_with_valid_checksums(
        shape in shape(20_000),
        gso_size in 100u16..3000,
        cuts in prop::collection::vec(prop_oneof![0usize..100, 0usize..5000], 0..30),
        caps in prop::sample::select(vec![BARE, CHECKSUMS]),
    ) {
        let (frame, offload) = shape.frame(gso_size);
        let (segments, outcome) = complete(&frame, offload, &cuts, caps);
        let count = shape.payload.len().div_ceil(usize::from(gso_size)).max(1);
        prop_assert_eq!(outcome, Outcome::Frames(count as u16));
        prop_assert_eq!(segments.len(), count);
        let mut payload = Vec::new();
        for (number, (segment, left)) in segments.iter().enumerate() {
            let behind = check_segment(&shape, segment, number, payload.len(), number + 1 == count);
            prop_assert!(behind.len() == usize::from(gso_size) || number + 1 == count);
            let pseudo = shape.pseudo(segment, segment.len() - shape.l4());
            let field = u16::from_be_bytes([segment[shape.field()], segment[shape.field() + 1]]);
            if caps == CHECKSUMS {
                prop_assert_eq!(*left, Offload::checksum(offload.csum_start, offload.csum_offset));
                prop_assert_eq!(field, pseudo);
            } else {
                prop_assert_eq!(*left, Offload::default());
                prop_assert_eq!(slow_sum(&[&pseudo.to_be_bytes(), &segment[shape.l4()..]]), 0xffff);
            }
            payload.extend_from_slice(behind);
        }
        prop_assert_eq!(payload, shape.payload);
    }

    #[test]
    fn filling_a_checksum_changes_nothing_else(
        shape in shape(9000), cuts in prop::collection::vec(0usize..300, 0..20),
    ) {
        let (frame, offload) = shape.frame(0);
        let (frames, outcome) = complete(&frame, offload, &cuts, BARE);
        prop_assert_eq!((outcome, frames.len()), (Outcome::Frames(1), 1));
        let (completed, left) = &frames[0];
        prop_assert_eq!(*left, Offload::default());
        let pseudo = shape.pseudo(&frame, frame.len() - shape.l4());
        prop_assert_eq!(slow_sum(&[&pseudo.to_be_bytes(), &completed[shape.l4()..]]), 0xffff);
        let mut unfilled = completed.clone();
        unfilled[shape.field()..shape.field() + 2].copy_from_slice(&frame[shape.field()..shape.field() + 2]);
        prop_assert_eq!(&unfilled, &frame);
        let (passed, _) = complete(&frame, offload, &cuts, CHECKSUMS);
        prop_assert_eq!(&passed[..], &[(frame, offload)][..]);
    }

    #[test]
    fn any_bytes_and_metadata_give_frames_or_a_drop(
        shape in shape(3000), raw: [u8; 10], honest in 0u8..4, at: prop::sample::Index, to: u8,
        cuts in prop::collection::vec(0usize..300, 0..60), largest in 60u32..4000,
    ) {
        let (mut frame, true_offload) = shape.frame(500);
        let at = at.index(frame.len());
        frame[at] = to;
        let lying = Offload::from_bytes(&raw);
        let offload = match honest {
            0 => lying,
            1 => Offload { csum_start: true_offload.csum_start, ..lying },
            2 => Offload { gso_size: lying.gso_size, gso_type: lying.gso_type & 0x85, ..true_offload },
            _ => true_offload,
        };
        for offloads in [Needs::NONE, Needs::CSUM, Needs::TSO4, Needs::CSUM.with(Needs::TSO6)] {
            let caps = Caps { offloads, largest };
            let (frames, outcome) = complete(&frame, offload, &cuts, caps);
            match outcome {
                Outcome::Frames(count) => prop_assert_eq!(usize::from(count), frames.len()),
                Outcome::Dropped(_) => prop_assert!(frames.is_empty()),
            }
            for (frame, left) in &frames {
                prop_assert!(offloads.covers(left.needs()));
                prop_assert!(left.gso() != Ok(None) || frame.len() <= largest as usize);
            }
        }
    }
}

fn tcp4(payload: usize) -> Shape {
    Shape {
        tags: 0,
        six: false,
        udp: false,
        network_extra: 0,
        tcp_options: 3,
        flags: 0x10,
        sequence: u32::MAX - 5,
        identification: u16::MAX,
        payload: vec![7; payload],
    }
}

#[test]
fn tiny_segments_are_refused() {
    let outcome = |payload, size| {
        let (frame, offload) = tcp4(payload).frame(size);
        complete(&frame, offload, &[66], BARE).1
    };
    assert_eq!(outcome(256, 1), Outcome::Frames(256));
    assert_eq!(outcome(257, 1), Outcome::Dropped(Reason::BadOffload));
    assert_eq!(outcome(65_000, 1), Outcome::Dropped(Reason::BadOffload));
    assert_eq!(outcome(65_000, 536), Outcome::Frames(122));
}

#[test]
fn oversized_frames_are_dropped_after_completion() {
    let caps = Caps { offloads: Needs::CSUM.with(Needs::TSO4), largest: 1514 };
    let (frame, offload) = tcp4(9000).frame(1449);
    let bare = Caps { offloads: Needs::NONE, ..caps };
    assert_eq!(complete(&frame, offload, &[], bare).1, Outcome::Dropped(Reason::Long));
    assert_eq!(complete(&frame, offload, &[], caps).1, Outcome::Frames(1));
    let (frame, offload) = tcp4(9000).frame(1448);
    assert_eq!(complete(&frame, offload, &[], bare).1, Outcome::Frames(7));
    let (frame, offload) = tcp4(1449).frame(0);
    assert_eq!(complete(&frame, offload, &[], bare).1, Outcome::Dropped(Reason::Long));
    assert_eq!(complete(&frame, offload, &[], caps).1, Outcome::Dropped(Reason::Long));
}

#[test]
fn a_frame_with_the_most_spans_is_completed() {
    let (frame, offload) = tcp4(30_000).frame(0);
    let cuts: Vec<usize> = [100].into_iter().chain(std::iter::repeat_n(400, 62)).collect();
    assert_eq!(complete(&frame, offload, &cuts, BARE).1, Outcome::Frames(1));
    let (frame, offload) = tcp4(30_000).frame(29_990);
    assert_eq!(complete(&frame, offload, &cuts, BARE).1, Outcome::Frames(2));
}

#[test]
fn only_completely_sent_frames_count_as_delivered() {
    let (frame, offload) = tcp4(65_000).frame(536);
    let small = [9u8; 60];
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    burst.push(Offload::default(), Span::of(&small)).unwrap();
    for _ in 0..3 {
        burst.push(offload, Span::of(&frame)).unwrap();
    }
    burst.push(Offload { gso_type: 2, ..offload }, Span::of(&small)).unwrap();
    let mut completer = Completer::default();
    let completed = completer.complete(&burst, &[4, 0, 1, 2, 3], BARE);
    let (bad, many) = (Outcome::Dropped(Reason::BadOffload), Outcome::Frames(122));
    assert_eq!(completed.outcomes, [bad, Outcome::Frames(1), many, many, many]);
    assert_eq!(completed.names().len(), 367);
    assert_eq!(completed.whole(0), Whole { inputs: 1, outputs: 0 });
    assert_eq!(completed.whole(122), Whole { inputs: 2, outputs: 1 });
    assert_eq!(completed.whole(123), Whole { inputs: 3, outputs: 123 });
    assert_eq!(completed.whole(1000), Whole { inputs: 5, outputs: 367 });
    let which: Vec<u16> = [1; 9].to_vec();
    let completed = completer.complete(&burst, &which, BARE);
    assert_eq!(completed.outcomes, [many; 3]);
    assert_eq!(completed.burst.len(), 366);
}
