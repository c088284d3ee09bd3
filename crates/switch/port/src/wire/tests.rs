//! Wire ports over the loopback interface.

use super::{Dscp, Encapsulation, KIND, Settings, open};
use crate::offload::tests::complete;
use crate::peer::State;
use crate::{Context, Doorbell, Peer, Queue, Silent};
use proptest::prelude::*;
use ringway_frame::{
    Burst, Caps, Coalesced, Counters, CountersRef, LARGEST, Needs, Offload, Reason, Segment, Storage,
};
use ringway_host::EventFd;
use ringway_mem::{Reader, Span};
use ringway_spec::{Kind, Port};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1));
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
const STRANGER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3));
const TUNNELS: [Encapsulation; 3] = [Encapsulation::Vxlan, Encapsulation::Geneve, Encapsulation::Udp];
const VNI: u32 = 77;

/// Turns of this test's thread.
struct Turns {
    reader: Reader,
    now: u64,
}

impl Turns {
    fn new() -> Turns {
        Turns { reader: Reader::register().unwrap(), now: 1 }
    }
}

struct Side {
    peer: Box<dyn Peer>,
    queue: Queue,
    counters: CountersRef,
}

impl Side {
    fn new(settings: &Settings) -> Side {
        let port = Port::new("w", Kind::new("wire", settings), None);
        let (check, counters) = (Arc::new(EventFd::new().unwrap()), CountersRef::private());
        let doorbells: Vec<Arc<dyn Doorbell>> = vec![Arc::new(Silent)];
        let counters_of = std::slice::from_ref(&counters);
        let context = Context { port: &port, doorbells, counters: counters_of, check: &check, keeper: None };
        let (peer, mut queues) = (KIND.open)(context).unwrap();
        Side { peer, queue: queues.pop().unwrap(), counters }
    }

    /// With sockets of UDP.
    fn open(settings: &Settings) -> Side {
        let mut side = Side::new(settings);
        side.peer.attach(open::datagrams(settings).unwrap()).unwrap();
        side
    }

    /// Sends frames; returns how many were lost.
    fn send(&mut self, turns: &mut Turns, frames: &[Vec<u8>]) -> u64 {
        turns.now += 2_000_000_000;
        let turn = turns.reader.turn(turns.now);
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        frames.iter().for_each(|frame| burst.push(Offload::default(), Span::of(frame)).unwrap());
        let which: Vec<u16> = (0..frames.len() as u16).collect();
        assert!(self.queue.rx.caps(&turn).is_some());
        assert_eq!(self.queue.rx.reserve(&turn, &burst, &which), frames.len());
        let lost = self.queue.rx.put(&turn, &burst, &which);
        self.queue.rx.publish(&turn);
        turns.reader.rest();
        lost.frames
    }

    /// The frames of one turn, of which `release` are released.
    fn receive(&mut self, turns: &mut Turns, release: usize) -> Vec<(Vec<u8>, Offload)> {
        let turn = turns.reader.turn(turns.now);
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        self.queue.tx.take(&turn, &mut burst);
        let read = |index| {
            let mut bytes = vec![0; burst.meta(index).len as usize];
            burst.read(index, 0, &mut bytes);
            (bytes, burst.meta(index).offload)
        };
        let frames = (0..burst.len()).map(read).collect();
        self.queue.tx.release(&turn, release);
        turns.reader.rest();
        frames
    }

    /// All frames that wait.
    fn drain(&mut self, turns: &mut Turns) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let some = self.receive(turns, usize::MAX);
            let is_done = some.is_empty() && self.queue.tx.arm(&turns.reader.turn(turns.now));
            turns.reader.rest();
            all.extend(some.into_iter().map(|(frame, _)| frame));
            if is_done {
                return all;
            }
        }
    }

    fn drops(&self, reason: Reason) -> [u64; 2] {
        let Counters { tx_drops, rx_drops, .. } = &*self.counters;
        [tx_drops, rx_drops].map(|drops| drops[reason as usize].load(Relaxed))
    }

    fn all_drops(&self) -> u64 {
        let Counters { tx_drops, rx_drops, .. } = &*self.counters;
        tx_drops.iter().chain(rx_drops).map(|drops| drops.load(Relaxed)).sum()
    }
}

/// A free UDP port below those that the kernel gives to sockets of other tests.
fn free_port(address: IpAddr) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let number = std::process::id() as u16 ^ NEXT.fetch_add(1, Relaxed);
        let port = 12_000 + number % 16_000;
        if UdpSocket::bind((address, port)).is_ok() {
            return port;
        }
    }
}

fn settings(encapsulation: Encapsulation, local: SocketAddr, peer: SocketAddr) -> Settings {
    Settings {
        encapsulation,
        peer,
        local,
        vni: VNI,
        source_ports: 4,
        mtu: None,
        checksum: peer.is_ipv6(),
        dscp: Dscp::Inherit,
        ttl: None,
        server: false,
        namespace: None,
    }
}

/// The settings of both ends.
fn ends(encapsulation: Encapsulation, ipv6: bool) -> [Settings; 2] {
    let at = if ipv6 { [IpAddr::V6(Ipv6Addr::LOCALHOST); 2] } else { [HERE, THERE] };
    let [left, right] = at.map(|address| SocketAddr::new(address, free_port(address)));
    [settings(encapsulation, left, right), settings(encapsulation, right, left)]
}

/// A frame of a flow: UDP over IPv4 with DF, whose payload is `number`.
fn frame(flow: u8, number: u32, len: usize) -> Vec<u8> {
    use ringway_wire::{Header, Ipv4, Protocol, ipv4};
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut header = Ipv4 {
        total_length: (len.saturating_sub(14) as u16).into(),
        fragment: ipv4::DONT_FRAGMENT.into(),
        ttl: 64,
        tos: flow & 1,
        protocol: Protocol::UDP,
        source: (0x0a00_0100 + u32::from(flow)).into(),
        destination: 0x0a00_0002.into(),
        ..Ipv4::EMPTY
    };
    header.fill_checksum(&[]);
    bytes.extend_from_slice(header.bytes());
    bytes.extend([4, flow, 0, 53, 0, 0, 0, 0]);
    bytes.extend(number.to_be_bytes());
    bytes.resize(len.max(bytes.len()), number as u8);
    bytes
}

fn by_flow(frames: &[Vec<u8>], flow: u8) -> Vec<&Vec<u8>> {
    frames.iter().filter(|frame| frame[29] == flow).collect()
}

#[test]
fn frames_arrive_unchanged_each_flow_s_in_their_order() {
    let mut turns = Turns::new();
    for (encapsulation, ipv6) in TUNNELS.iter().flat_map(|of| [(*of, false), (*of, true)]) {
        let ends = ends(encapsulation, ipv6);
        let [mut left, mut right] = [Side::open(&ends[0]), Side::open(&ends[1])];
        for round in 0..20_u32 {
            // Runs of equal and of decreasing size, and frames alone.
            let lens = [1400, 1400, 1400, 700, 64, 1400, 60, 60, 9000];
            let make = |at: u32| frame((at / 5 % 7) as u8, round << 8 | at, lens[(at + round) as usize % 9]);
            let sent: Vec<Vec<u8>> = (0..50).map(make).collect();
            assert_eq!(left.send(&mut turns, &sent), 0);
            let received = right.drain(&mut turns);
            assert_eq!(received.len(), sent.len(), "{encapsulation:?} {ipv6}");
            for flow in 0..7 {
                assert_eq!(by_flow(&received, flow), by_flow(&sent, flow));
            }
            assert_eq!(right.send(&mut turns, &received), 0);
            assert_eq!(left.drain(&mut turns).len(), 50);
        }
        assert_eq!((left.all_drops(), right.all_drops()), (0, 0));
        assert_eq!(left.peer.state().0, State::Up);
    }
}

/// A complete segment of TCP over IPv4, whose payload begins at `offset` of its stream.
fn segment(number: u16, offset: usize, payload: &[u8]) -> Vec<u8> {
    use ringway_wire::{Header, Ipv4, Protocol, Tcp, tcp::Flags};
    let mut tcp = Tcp { flags: Flags::ACK, ..Tcp::EMPTY };
    tcp.sequence_number.set(offset as u32);
    let mut upper = [tcp.bytes(), payload].concat();
    let mut ip = Ipv4 {
        total_length: ((Ipv4::LEN + upper.len()) as u16).into(),
        identification: number.into(),
        ttl: 64,
        protocol: Protocol::TCP,
        source: 0x0a00_0001.into(),
        destination: 0x0a00_0002.into(),
        ..Ipv4::EMPTY
    };
    ip.fill_checksum(&[]);
    let pseudo = ip.pseudo_header(upper.len() as u16);
    Tcp::fill_checksum(&mut upper, pseudo).unwrap();
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], ip.bytes(), &upper].concat()
}

/// The frames that a destination without offloads gets.
fn completed(frame: &[u8], offload: Offload) -> Vec<Vec<u8>> {
    let (frames, _) = complete(frame, offload, &[], Caps { offloads: Needs::NONE, largest: LARGEST });
    frames.into_iter().map(|(bytes, _)| bytes).collect()
}

#[test]
fn consecutive_segments_arrive_as_one_frame_which_is_cut_into_the_same_ones() {
    let mut turns = Turns::new();
    for (encapsulation, ipv6) in TUNNELS.iter().flat_map(|of| [(*of, false), (*of, true)]) {
        let ends = ends(encapsulation, ipv6);
        let [mut left, mut right] = [Side::open(&ends[0]), Side::open(&ends[1])];
        let payload = |number: usize| vec![number as u8; if number == 39 { 700 } else { 1400 }];
        let mut sent: Vec<Vec<u8>> =
            (0..40).map(|number| segment(number as u16, 1400 * number, &payload(number))).collect();
        // One that is lost, one that comes twice, one that was damaged.
        sent.remove(20);
        sent.insert(25, sent[24].clone());
        *sent[30].last_mut().unwrap() ^= 1;
        assert_eq!(left.send(&mut turns, &sent), 0);
        let mut received = Vec::new();
        loop {
            let some = right.receive(&mut turns, usize::MAX);
            if some.is_empty() && right.queue.tx.arm(&turns.reader.turn(turns.now)) {
                break;
            }
            received.extend(some);
        }
        let whole: Vec<Vec<u8>> =
            received.iter().flat_map(|(bytes, offload)| completed(bytes, *offload)).collect();
        assert_eq!(whole, sent);
        assert!(received.len() <= 8, "{} frames", received.len());
        assert_eq!(right.all_drops(), 0);
    }
}

/// A complete datagram of UDP over IPv4.
fn datagram(number: u16, len: usize) -> Vec<u8> {
    use ringway_wire::{Header, Ipv4, Protocol, Udp};
    let mut udp = Udp { length: ((Udp::LEN + len) as u16).into(), ..Udp::default() };
    udp.destination_port.set(53);
    let mut upper = [udp.bytes(), &vec![number as u8; len]].concat();
    let mut ip = Ipv4 {
        total_length: ((Ipv4::LEN + upper.len()) as u16).into(),
        identification: number.into(),
        ttl: 64,
        protocol: Protocol::UDP,
        source: 0x0a00_0001.into(),
        destination: 0x0a00_0002.into(),
        ..Ipv4::EMPTY
    };
    ip.fill_checksum(&[]);
    let mut sum = ip.pseudo_header(upper.len() as u16);
    sum.add(&upper);
    upper[6..8].copy_from_slice(&sum.finish_nonzero().to_be_bytes());
    [&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0], ip.bytes(), &upper].concat()
}

#[test]
fn datagrams_of_udp_arrive_as_they_were_sent() {
    let mut turns = Turns::new();
    let ends = ends(Encapsulation::Vxlan, false);
    let [mut left, mut right] = [Side::open(&ends[0]), Side::open(&ends[1])];
    let sent: Vec<_> = (0..20).map(|number| datagram(number, 1000)).collect();
    let first = Segment::parse(&sent[0], sent[0].len()).unwrap();
    let begun = Coalesced::begin(&first, &sent[0]);
    assert!(begun.is_some_and(|mut first| first.append(&sent[1]).is_some()), "they could be joined");
    assert_eq!(left.send(&mut turns, &sent), 0);
    let mut received = Vec::new();
    while received.len() < sent.len() {
        received.extend(right.receive(&mut turns, usize::MAX));
    }
    assert!(received.iter().all(|(_, offload)| *offload == Offload::default()));
    assert!(received.iter().map(|(bytes, _)| bytes).eq(&sent));
}

#[test]
fn unreleased_frames_come_again_and_the_burst_of_a_long_run_is_not_lost() {
    let mut turns = Turns::new();
    let ends = ends(Encapsulation::Vxlan, false);
    let [mut left, mut right] = [Side::open(&ends[0]), Side::open(&ends[1])];
    let sent: Vec<Vec<u8>> = (0..60).map(|number| frame(1, number, 200)).collect();
    left.send(&mut turns, &sent);
    left.send(&mut turns, &sent);
    let mut received = Vec::new();
    while received.len() < 120 {
        let frames = right.receive(&mut turns, 7);
        assert!(!frames.is_empty());
        received.extend(frames.into_iter().take(7).map(|(frame, _)| frame));
    }
    assert_eq!(received, [&sent[..], &sent].concat());
}

#[test]
fn flows_have_different_source_ports_and_a_flow_has_one() {
    let mut turns = Turns::new();
    let [mut ends, _] = ends(Encapsulation::Udp, false);
    let other = UdpSocket::bind(ends.peer).unwrap();
    other.set_nonblocking(true).unwrap();
    ends.source_ports = 16;
    let mut side = Side::open(&ends);
    let mut ports = std::collections::BTreeMap::<u8, std::collections::BTreeSet<u16>>::new();
    for flow in 0..40 {
        let frames: Vec<Vec<u8>> = (0..3).map(|number| frame(flow, number, 100 + number as usize)).collect();
        side.send(&mut turns, &frames);
        let mut bytes = [0; 2000];
        while let Ok((len, from)) = other.recv_from(&mut bytes) {
            assert!(len >= 100);
            ports.entry(flow).or_default().insert(from.port());
        }
    }
    // A run goes with the checksummed socket of the same number: at most two ports for each flow.
    assert!(ports.len() == 40 && ports.values().all(|ports| ports.len() <= 2), "{ports:?}");
    let all: std::collections::BTreeSet<u16> = ports.values().flatten().copied().collect();
    assert!(all.len() > 6, "{all:?}");
}

#[test]
fn frames_that_are_too_long_are_answered_and_counted() {
    let mut turns = Turns::new();
    let [left, right] = ends(Encapsulation::Vxlan, false);
    let mut left = Side::open(&Settings { mtu: Some(1450), ..left });
    let mut right = Side::open(&right);
    assert_eq!(left.peer.gauges()["mtu"], 1450);
    let frames = [frame(0, 1, 1464), frame(0, 2, 1465), frame(0, 3, 1464)];
    assert_eq!(left.send(&mut turns, &frames), 1);
    assert_eq!(left.drops(Reason::Long), [0, 1]);
    assert_eq!(right.drain(&mut turns), [frames[0].clone(), frames[2].clone()]);
    let answers = left.drain(&mut turns);
    assert_eq!(answers.len(), 1);
    assert_eq!((&answers[0][..6], answers[0][34], answers[0][35]), (&frames[1][6..12], 3, 4));
    assert_eq!(answers[0][40..42], 1450_u16.to_be_bytes());
    // Attack: many such frames get few answers.
    let many: Vec<Vec<u8>> = (0..60).map(|number| frame(0, number, 2000)).collect();
    assert_eq!(left.send(&mut turns, &many), 60);
    assert_eq!(left.drain(&mut turns).len(), 1);
}

#[test]
fn hostile_datagrams_are_dropped_by_reason() {
    let mut turns = Turns::new();
    let [settings, _] = ends(Encapsulation::Geneve, false);
    let mut side = Side::open(&settings);
    let peer = UdpSocket::bind((THERE, 0)).unwrap();
    let codec = super::Codec::new(Encapsulation::Geneve, VNI, Dscp::Inherit);
    let good = [&codec.header()[..], &frame(0, 1, 60)].concat();
    let with = |at: usize, value: u8| {
        let mut wrong = good.clone();
        wrong[at] = value;
        wrong
    };
    let list = [
        (good[..7].to_vec(), Reason::BadTunnel),
        (with(0, 0xc0), Reason::BadTunnel),
        (with(1, 0x40), Reason::CriticalOption),
        (with(6, 99), Reason::WrongNetwork),
        (good[..20].to_vec(), Reason::Short),
        (Vec::new(), Reason::Short),
    ];
    for (datagram, _) in &list {
        peer.send_to(datagram, settings.local).unwrap();
    }
    UdpSocket::bind((STRANGER, 0)).unwrap().send_to(&good, settings.local).unwrap();
    peer.send_to(&good, settings.local).unwrap();
    assert_eq!(side.drain(&mut turns), [frame(0, 1, 60)]);
    for (reason, count) in [
        (Reason::BadTunnel, 2),
        (Reason::CriticalOption, 1),
        (Reason::WrongNetwork, 1),
        (Reason::Short, 2),
        (Reason::WrongPeer, 1),
    ] {
        assert_eq!(side.drops(reason), [count, 0], "{reason:?}");
    }
    assert_eq!(side.all_drops(), 7);
}

#[test]
fn two_ports_share_an_address_each_with_its_peer() {
    let mut turns = Turns::new();
    let [first, far] = ends(Encapsulation::Vxlan, false);
    let stranger = SocketAddr::new(STRANGER, free_port(STRANGER));
    let second = Settings { peer: stranger, ..first.clone() };
    let other = Settings { local: stranger, peer: first.local, ..far.clone() };
    let [mut first, mut second] = [Side::open(&first), Side::open(&second)];
    let [mut far, mut other] = [Side::open(&far), Side::open(&other)];
    far.send(&mut turns, &[frame(1, 1, 100)]);
    other.send(&mut turns, &[frame(2, 2, 100)]);
    assert_eq!(first.drain(&mut turns), [frame(1, 1, 100)]);
    assert_eq!(second.drain(&mut turns), [frame(2, 2, 100)]);
    assert_eq!(first.all_drops() + second.all_drops(), 0);
}

#[test]
fn a_peer_that_does_not_listen_loses_frames_and_comes_back() {
    let mut turns = Turns::new();
    let ends = ends(Encapsulation::Vxlan, false);
    let mut left = Side::open(&ends[0]);
    // The first is sent; that nobody listens is told with the next one, which is sent again.
    for number in 0..5 {
        left.send(&mut turns, &[frame(0, number, 100)]);
    }
    let mut right = Side::open(&ends[1]);
    left.send(&mut turns, &[frame(0, 9, 100)]);
    assert_eq!(right.drain(&mut turns), [frame(0, 9, 100)]);
    left.peer.detach();
    assert!(left.queue.rx.caps(&turns.reader.turn(1)).is_none());
    turns.reader.rest();
    assert_eq!(left.peer.state().0, State::Waiting);
    assert!(left.drain(&mut turns).is_empty());
    left.peer.attach(open::datagrams(&ends[0]).unwrap()).unwrap();
    right.send(&mut turns, &[frame(0, 10, 100)]);
    assert_eq!(left.drain(&mut turns), [frame(0, 10, 100)]);
}

/// A port over TCP and the other end of its stream.
fn stream() -> (Side, std::net::TcpStream) {
    let at = SocketAddr::new(HERE, 0);
    let settings = settings(Encapsulation::Tcp, at, at);
    let listener = open::listen(&settings).unwrap();
    let settings = Settings { peer: listener.local_addr().unwrap(), ..settings };
    let mut side = Side::new(&settings);
    side.peer.attach(vec![open::connect(&settings).unwrap()]).unwrap();
    listener.set_nonblocking(false).unwrap();
    (side, listener.accept().unwrap().0)
}

#[test]
fn a_stream_carries_frames_behind_their_lengths() {
    let mut turns = Turns::new();
    let (mut side, mut end) = stream();
    let sent: Vec<Vec<u8>> = [14, 60, 1514, 65_557].iter().map(|len| vec![*len as u8; *len]).collect();
    assert_eq!(side.send(&mut turns, &sent), 0);
    for frame in &sent {
        let mut bytes = vec![0; 4 + frame.len()];
        end.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes[..4], (frame.len() as u32).to_be_bytes());
        assert_eq!(bytes[4..], *frame);
    }
    assert_eq!((side.peer.state().0, side.all_drops()), (State::Up, 0));
}

#[test]
fn a_stream_without_room_holds_frames_back_and_loses_none() {
    let mut turns = Turns::new();
    let (mut side, mut end) = stream();
    let frame: Vec<u8> = (0..60_000_u32).map(|byte| byte as u8).collect();
    let mut accepted = 0;
    // Until the sockets and the port are full.
    loop {
        let turn = turns.reader.turn(turns.now);
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(&frame)).unwrap();
        if side.queue.rx.reserve(&turn, &burst, &[0]) == 0 {
            break;
        }
        assert_eq!(side.queue.rx.put(&turn, &burst, &[0]).frames, 0);
        accepted += 1;
    }
    assert!(side.queue.rx.next_due().is_some());
    let reader = std::thread::spawn(move || {
        let mut bytes = vec![0; 60_004];
        for _ in 0..accepted {
            end.read_exact(&mut bytes).unwrap();
            assert_eq!(bytes[..4], 60_000_u32.to_be_bytes());
            assert!(bytes[4..].iter().enumerate().all(|(at, byte)| *byte == at as u8));
        }
        end
    });
    while side.queue.rx.next_due().is_some() {
        side.queue.rx.publish(&turns.reader.turn(turns.now));
        std::thread::yield_now();
    }
    drop(reader.join().unwrap());
}

#[test]
fn a_stream_that_ends_or_has_an_impossible_length_ends_the_peer_and_another_one_goes_on() {
    let mut turns = Turns::new();
    for length in [0_u32, 13, 65_558, u32::MAX] {
        let (mut side, mut end) = stream();
        end.write_all(&length.to_be_bytes()).unwrap();
        assert!(gone(&mut side, &mut turns).fault);
    }
    let (mut side, mut end) = stream();
    // Half a frame in each direction must not shift the next stream.
    end.write_all(&[0, 0, 0, 60, 1]).unwrap();
    drop(end);
    let gone = gone(&mut side, &mut turns);
    assert!(!gone.fault && gone.reason.contains("closed"), "{}", gone.reason);
    assert_eq!(side.peer.state().0, State::Waiting);
    let (_, mut end) = {
        let at = SocketAddr::new(HERE, 0);
        let listener = std::net::TcpListener::bind(at).unwrap();
        let peer = listener.local_addr().unwrap();
        let settings = settings(Encapsulation::Tcp, at, peer);
        side.peer.attach(vec![open::connect(&settings).unwrap()]).unwrap();
        (settings, listener.accept().unwrap().0)
    };
    end.write_all(&[&60_u32.to_be_bytes()[..], &[9; 60]].concat()).unwrap();
    let mut frames = Vec::new();
    while frames.is_empty() {
        frames = side.drain(&mut turns);
    }
    assert_eq!(frames, [vec![9; 60]]);
}

/// Why the peer is gone, when a worker has noticed it.
fn gone(side: &mut Side, turns: &mut Turns) -> crate::Gone {
    for _ in 0..1_000_000 {
        side.receive(turns, usize::MAX);
        if let Err(gone) = side.peer.check() {
            return gone;
        }
        std::thread::yield_now();
    }
    panic!("the peer is not gone")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_frames(
        lens in prop::collection::vec(prop_oneof![14usize..100, 14usize..5000, 60_000usize..65_557], 1..20),
        cuts in prop::collection::vec(1usize..70_000, 1..40),
    ) {
        let mut turns = Turns::new();
        let (mut side, mut end) = stream();
        let sent: Vec<Vec<u8>> =
            lens.iter().enumerate().map(|(at, len)| vec![at as u8; *len]).collect();
        let bytes: Vec<u8> =
            sent.iter().flat_map(|frame| [&(frame.len() as u32).to_be_bytes()[..], frame].concat()).collect();
        let (mut at, mut received) = (0, Vec::new());
        for cut in cuts.iter().cycle() {
            let next = (at + cut).min(bytes.len());
            end.write_all(&bytes[at..next]).unwrap();
            at = next;
            received.extend(side.drain(&mut turns));
            if at == bytes.len() {
                break;
            }
        }
        while received.len() < sent.len() {
            received.extend(side.drain(&mut turns));
        }
        prop_assert_eq!(received, sent);
    }
}
