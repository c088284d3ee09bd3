use super::super::Completer;
use super::*;
use proptest::prelude::*;
use ringway_frame::{LARGEST, Offload};
use ringway_wire::tcp::Flags;
use ringway_wire::{Header, Ipv4, Ipv6, Protocol, Tcp, Udp};

const ALL: Caps = Caps { offloads: Needs::ALL, largest: LARGEST };
const BARE: Caps = Caps { offloads: Needs::NONE, largest: LARGEST };
/// A segment's payload with timestamps in 1500 bytes.
const PAYLOAD: usize = 1448;

/// What a frame of a flow is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Next,
    Short,
    Pushed,
    Ack,
    Fin,
    Ecn,
    OtherTtl,
    OtherWindow,
    OtherOption,
    Fragment,
    BadChecksum,
    BadHeader,
    Lost,
}

const KINDS: [Kind; 12] = [
    Kind::Short,
    Kind::Pushed,
    Kind::Ack,
    Kind::Fin,
    Kind::Ecn,
    Kind::OtherTtl,
    Kind::OtherWindow,
    Kind::OtherOption,
    Kind::Fragment,
    Kind::BadChecksum,
    Kind::BadHeader,
    Kind::Lost,
];

/// What the checksum of a frame is.
#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Filled,
    Checked,
    Pending,
}

/// A flow, and how far it is.
#[derive(Clone, Debug)]
struct Flow {
    id: u8,
    ipv6: bool,
    udp: bool,
    tagged: bool,
    sequence: u32,
    identification: u16,
}

impl Flow {
    fn new(id: u8, (ipv6, udp, tagged): (bool, bool, bool)) -> Flow {
        Flow { id, ipv6, udp, tagged, sequence: u32::MAX - 2000, identification: 65_530 }
    }

    /// The next frame with `len` bytes of payload, and its metadata.
    fn frame(&mut self, kind: Kind, len: usize, state: State) -> (Vec<u8>, Offload) {
        let len = match kind {
            Kind::Ack => 0,
            Kind::Short => len / 2 + 1,
            _ => len,
        };
        if kind == Kind::Lost {
            (self.sequence, self.identification) =
                (self.sequence.wrapping_add(len as u32), self.identification.wrapping_add(1));
        }
        let payload: Vec<u8> = (0..len).map(|at| (at as u8).wrapping_mul(7) ^ self.sequence as u8).collect();
        let protocol = if self.udp { Protocol::UDP } else { Protocol::TCP };
        let mut upper = self.upper(kind, &payload);
        let mut out = [&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, self.id][..]].concat();
        if self.tagged {
            out.extend([0x81, 0, 0, 7]);
        }
        let mut sum = self.network(kind, upper.len(), &mut out);
        let field = protocol.checksum_at().unwrap();
        let offload = match state {
            State::Filled => Offload::default(),
            State::Checked => Offload { flags: 2, ..Offload::default() },
            State::Pending => Offload::checksum(out.len() as u16, field as u16),
        };
        let value = if state == State::Pending {
            sum.value()
        } else {
            sum.add(&upper);
            sum.finish_nonzero()
        };
        let value = value ^ u16::from(kind == Kind::BadChecksum && state != State::Checked);
        upper[field..field + 2].copy_from_slice(&value.to_be_bytes());
        out.extend(upper);
        self.sequence = self.sequence.wrapping_add(len as u32);
        self.identification = self.identification.wrapping_add(1);
        (out, offload)
    }

    /// Adds the header of an IP packet with so many bytes behind it; returns the sum of the pseudo header.
    fn network(&self, kind: Kind, len: usize, out: &mut Vec<u8>) -> Sum {
        let protocol = if self.udp { Protocol::UDP } else { Protocol::TCP };
        let ttl = if kind == Kind::OtherTtl { 63 } else { 64 };
        let tos = u8::from(kind == Kind::Ecn) * 3;
        if self.ipv6 {
            let mut ip = Ipv6 {
                payload_length: (len as u16).into(),
                next_header: protocol,
                hop_limit: ttl,
                source: (0xfd << 120 | u128::from(self.id)).into(),
                destination: (0xfd << 120 | 9).into(),
                ..Ipv6::EMPTY
            };
            let sum = ip.pseudo_header(protocol, len as u32);
            ip.payload_length.set(ip.payload_length.get() + u16::from(kind == Kind::Fragment));
            out.extend([0x86, 0xdd]);
            out.extend(ip.bytes());
            let at = out.len() - Ipv6::LEN;
            out[at + 1] |= tos << 4;
            sum
        } else {
            let mut ip = Ipv4 {
                tos,
                total_length: ((20 + len) as u16).into(),
                identification: self.identification.into(),
                fragment: (if kind == Kind::Fragment { 0x2000 } else { 0x4000 }).into(),
                ttl,
                protocol,
                source: (0x0a00_0000 | u32::from(self.id)).into(),
                destination: 0x0a00_0009.into(),
                ..Ipv4::EMPTY
            };
            let sum = ip.pseudo_header(len as u16);
            ip.fill_checksum(&[]);
            if kind == Kind::BadHeader {
                ip.checksum.set(ip.checksum.get() ^ 1);
            }
            out.extend([8, 0]);
            out.extend(ip.bytes());
            sum
        }
    }

    fn upper(&self, kind: Kind, payload: &[u8]) -> Vec<u8> {
        if self.udp {
            let mut udp = Udp { length: ((8 + payload.len()) as u16).into(), ..Udp::default() };
            udp.source_port.set(u16::from(self.id));
            return [udp.bytes(), payload].concat();
        }
        let mut flags = Flags::ACK;
        match kind {
            Kind::Pushed => flags = flags.with(Flags::PSH),
            Kind::Fin => flags = flags.with(Flags::FIN),
            _ => {}
        }
        let mut tcp = Tcp { flags, data_offset: 8 << 4, ..Tcp::EMPTY };
        tcp.source_port.set(u16::from(self.id));
        tcp.sequence_number.set(self.sequence);
        tcp.window.set(500 + u16::from(kind == Kind::OtherWindow));
        let timestamp = [1, 1, 8, 10, 0, 0, 0, 1 + u8::from(kind == Kind::OtherOption), 0, 0, 0, 2];
        [tcp.bytes(), &timestamp, payload].concat()
    }
}

/// Adds a frame, in pieces that end at the cuts.
fn push<'t>(burst: &mut Burst<'t>, (bytes, offload): &'t (Vec<u8>, Offload), cuts: &[usize]) {
    let (mut spans, mut rest) = (Vec::new(), &bytes[..]);
    for cut in cuts {
        let (piece, behind) = rest.split_at((*cut).min(rest.len()));
        spans.push(Span::of(piece));
        rest = behind;
    }
    spans.push(Span::of(rest));
    burst.push_pieces(*offload, &spans).unwrap();
}

/// Each frame of a burst as a destination without offloads gets it: its frames.
fn completed(burst: &Burst<'_>) -> Vec<Vec<Vec<u8>>> {
    let mut completer = Completer::default();
    let each = |frame: usize| {
        let done = completer.complete(burst, &[frame as u16], BARE);
        let one = |frame: usize| {
            let mut bytes = vec![0; done.burst.meta(frame).len as usize];
            assert_eq!(done.burst.read(frame, 0, &mut bytes), bytes.len());
            bytes
        };
        (0..done.burst.len()).map(one).collect()
    };
    (0..burst.len()).map(each).collect()
}

/// The frames of each flow, by the last byte of its Ethernet address, in their order.
fn by_flow(frames: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<Vec<u8>>> {
    let mut flows = vec![Vec::new(); 16];
    frames.for_each(|frame| flows[usize::from(frame[11])].push(frame));
    flows
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn segmentation_gives_the_original_frames_again(
        kinds in prop::collection::vec(any::<(bool, bool, bool)>(), 1..10),
        frames in prop::collection::vec((0usize..10, 0usize..80, 0u8..3), 1..64),
        payload in 1usize..1449,
        cuts in prop::collection::vec(0usize..200, 0..3),
        caps in prop_oneof![Just(ALL), Just(Caps { offloads: Needs::CSUM.with(Needs::TSO4), ..ALL })],
    ) {
        let mut flows: Vec<Flow> =
            kinds.iter().enumerate().map(|(id, kind)| Flow::new(id as u8, *kind)).collect();
        let count = flows.len();
        let frames: Vec<_> = frames
            .iter()
            .map(|(flow, kind, state)| {
                let kind = KINDS.get(*kind).copied().unwrap_or(Kind::Next);
                let state = [State::Filled, State::Checked, State::Pending][usize::from(*state)];
                flows[flow % count].frame(kind, payload, state)
            })
            .collect();
        let (mut storage, mut reassembler) = (Storage::default(), Reassembler::default());
        let mut burst = Burst::begin(&mut storage);
        frames.iter().for_each(|frame| push(&mut burst, frame, &cuts));
        let which: Vec<u16> = (0..burst.len() as u16).collect();
        let originals = completed(&burst);
        // Twice: nothing stays of the first time.
        for _ in 0..2 {
            let Some(joined) = reassembler.join(&burst, &which, caps) else { continue };
            prop_assert!(joined.burst.len() < burst.len());
            prop_assert!(joined.firsts.is_sorted() && joined.firsts.len() == joined.burst.len());
            for frame in 0..joined.burst.len() {
                let (offload, len) = (joined.burst.meta(frame).offload, joined.burst.meta(frame).len);
                prop_assert_eq!(offload.check(len, caps.offloads).is_ok(), true);
            }
            let again = by_flow(completed(&joined.burst).into_iter().flatten());
            prop_assert_eq!(again, by_flow(originals.iter().flatten().cloned()));
        }
    }
}

/// How many frames result of these.
fn outputs(frames: &[(Vec<u8>, Offload)], caps: Caps) -> usize {
    let (mut storage, mut reassembler) = (Storage::default(), Reassembler::default());
    let mut burst = Burst::begin(&mut storage);
    frames.iter().for_each(|frame| push(&mut burst, frame, &[]));
    let which: Vec<u16> = (0..burst.len() as u16).collect();
    assert_eq!(may_join(&burst, &which), burst.len() > 1);
    reassembler.join(&burst, &which, caps).map_or(burst.len(), |joined| joined.burst.len())
}

#[test]
fn a_stream_becomes_one_frame_and_two_become_two() {
    for (ipv6, udp, tagged) in [(false, false, false), (true, false, true), (false, true, false)] {
        for state in [State::Filled, State::Checked, State::Pending] {
            let mut flows = [Flow::new(1, (ipv6, udp, tagged)), Flow::new(2, (ipv6, udp, tagged))];
            let one: Vec<_> = (0..40).map(|_| flows[0].frame(Kind::Next, PAYLOAD, state)).collect();
            assert_eq!(outputs(&one, ALL), if udp { 2 } else { 1 }, "40 segments of 1448 bytes");
            let both: Vec<_> = (0..40).map(|at| flows[at % 2].frame(Kind::Next, PAYLOAD, state)).collect();
            assert_eq!(outputs(&both, ALL), 2);
            assert_eq!(outputs(&both, BARE), 40);
            let csum = Caps { offloads: Needs::CSUM, ..ALL };
            assert_eq!(outputs(&both, csum), 40);
        }
    }
    assert!(takes_large(&ALL) && !takes_large(&BARE));
    assert!(!takes_large(&Caps { offloads: Needs::TSO4, ..ALL }), "checksums are pending too");
}

#[test]
fn what_differs_ends_a_frame() {
    for kind in KINDS {
        for ipv6 in [false, true] {
            let mut flow = Flow::new(1, (ipv6, false, false));
            let mut add = |kind: Kind| flow.frame(kind, PAYLOAD, State::Filled);
            let frames = [add(Kind::Next), add(Kind::Next), add(kind), add(Kind::Next), add(Kind::Next)];
            let expected = match kind {
                // The last of its frame.
                Kind::Short | Kind::Pushed => 2,
                // The first of the next one.
                Kind::Lost => 2,
                // IPv6 has no checksum of its header.
                Kind::BadHeader if ipv6 => 1,
                _ => 3,
            };
            assert_eq!(outputs(&frames, ALL), expected, "{kind:?}");
        }
    }
    let mut flow = Flow::new(1, (false, false, false));
    let many: Vec<_> = (0..64).map(|_| flow.frame(Kind::Next, PAYLOAD, State::Checked)).collect();
    assert_eq!(outputs(&many, ALL), 2, "no packet is longer than 64 KB");
}
