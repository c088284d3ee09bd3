//! Memory of idle connections.
#![allow(clippy::unwrap_used)]

use crate::common::{LONG, Line, Network, Pair, byte, drain, fill};
use ringway_frame::{Needs, Offload};
use ringway_netstack::{
    Cidr, ConnectionError, Frames, InterfaceConfig, MS, SECOND, Settings, SocketId, SocketOptions, Stack,
};
use ringway_wire::{Ethernet, Header, Ipv4, Tcp, U16, U32};

#[test]
fn an_idle_connection_is_looked_at_once_to_return_the_memory_of_its_buffers() {
    const LEN: u64 = 1 << 20;
    let line = Line { delay: MS, ..Line::default() };
    let mut network = Network::with_offloads(&Settings::default(), line, 1, Needs::ALL);
    let (client, server) = network.connect("10.0.0.2:80");
    let (mut sent, mut read) = (0, 0);
    while read < LEN {
        let now = network.now;
        sent = fill(&mut network.hosts[0], now, client, sent, LEN);
        read = drain(&mut network.hosts[1], now, server, read);
        assert!(read == LEN || network.step(LONG), "the stream stops at {read}");
    }
    let idle = network.now + SECOND / 2;
    network.run(idle);
    for host in &network.hosts {
        assert!(host.next_timer().is_some_and(|at| at > idle && at <= idle + SECOND));
    }
    network.run(idle + 2 * SECOND);
    for host in &network.hosts {
        assert_eq!(host.next_timer(), None);
    }
}

/// A connection whose second program reads each byte.
fn connected(settings: &Settings) -> Pair {
    let line = Line { delay: MS, ..Line::default() };
    Pair::new(Network::with_offloads(settings, line, 1, Needs::ALL), "10.0.0.2:80", 0)
}

impl Pair {
    fn memory(&self) -> [usize; 2] {
        [0, 1].map(|side| self.network.hosts[side].buffer_memory(self.sockets[side]).unwrap())
    }
}

#[test]
fn an_idle_connection_has_no_memory_for_bytes() {
    for len in [1, 100, 1 << 20] {
        let mut pair = connected(&Settings::default());
        pair.pass(len);
        pair.wait(MS);
        let used = pair.memory();
        assert!(used.iter().all(|used| *used > 0), "{used:?}");
        pair.wait(3 * SECOND);
        assert_eq!(pair.memory(), [0, 0], "after {len} bytes");
    }
}

#[test]
fn a_peer_that_sends_a_byte_now_and_then_does_not_keep_memory() {
    let mut pair = connected(&Settings::default());
    pair.pass(16 << 20);
    for _ in 0..4 {
        pair.wait(SECOND);
        pair.pass(1);
    }
    let [_, receiving] = pair.memory();
    assert!(receiving <= 128 << 10, "{receiving}");
}

#[test]
fn a_small_buffer_takes_no_more_than_its_setting_permits() {
    let buffer = 4096;
    let settings = Settings { tcp_rmem: [buffer; 3], tcp_wmem: [buffer; 3], ..Settings::default() };
    assert_eq!(settings.receive_memory(), 2 * buffer);
    let mut pair = connected(&settings);
    let mut most = [0; 2];
    for _ in 0..500 {
        pair.pass(1000);
        most = [0, 1].map(|side| most[side].max(pair.memory()[side]));
    }
    assert!(most[0] <= buffer && most[1] <= 2 * buffer, "{most:?}");
}

#[test]
fn a_connection_that_sent_only_its_syn_returns_the_memory_of_its_scoreboard() {
    let line = Line { delay: MS, ..Line::default() };
    let mut network = Network::new(&Settings::default(), line, 1);
    network.connect("10.0.0.2:80");
    network.run(network.now + SECOND / 2);
    for host in &network.hosts {
        assert!(host.next_timer().is_some_and(|at| at <= network.now + SECOND));
    }
    network.run(network.now + SECOND);
    for host in &network.hosts {
        assert_eq!(host.next_timer(), None);
    }
}

#[test]
fn what_is_peeked_and_shown_in_place_is_what_is_read() {
    const LEN: u64 = 200_000;
    let settings = Settings { tcp_rmem: [4096, 256 << 10, 6 << 20], ..Settings::default() };
    let mut pair = connected(&settings);
    // So that the bytes don't begin with a chunk.
    pair.pass(30_001);
    let end = pair.sent + LEN;
    while pair.network.hosts[1].unread(pair.sockets[1]).unwrap() < LEN as usize {
        let now = pair.network.now;
        pair.sent = fill(&mut pair.network.hosts[0], now, pair.sockets[0], pair.sent, end);
        assert!(pair.network.step(LONG), "the stream stops");
    }
    let (now, socket, host) = (pair.network.now, pair.sockets[1], &mut pair.network.hosts[1]);
    let (mut peeked, mut received) = (vec![0; 2 * LEN as usize], vec![0; 2 * LEN as usize]);
    let shown = host.received(socket).unwrap().concat();
    assert_eq!(host.peek(socket, &mut peeked).unwrap() as u64, LEN);
    assert_eq!(host.recv(now, socket, &mut received).unwrap() as u64, LEN);
    assert!(peeked == received && received.starts_with(&shown) && shown.len() >= 64 << 10);
    let first = pair.read;
    assert!((first..first + LEN).zip(received).all(|(at, got)| byte(at) == got));
}

/// Connections between two hosts, of which `limited` has little memory for all of them.
struct Many {
    network: Network,
    sockets: Vec<[SocketId; 2]>,
    sent: Vec<u64>,
    read: Vec<u64>,
    limited: usize,
    most: usize,
}

const MANY: usize = 100;
const LEN: u64 = 200_000;

impl Many {
    fn new(limited: usize) -> Many {
        let line = Line { delay: MS, loss: 1000, ..Line::default() };
        let settings = Settings { tcp_wmem: [4 << 10, 128 << 10, 4 << 20], ..Settings::default() };
        let mut network = Network::with_offloads(&settings, line, 1, Needs::ALL);
        let settings = Settings { tcp_mem: [1 << 20, 2 << 20, 4 << 20], ..settings };
        network.hosts[limited].set_settings(settings);
        let sockets = (0..MANY).map(|number| network.connect(&format!("10.0.0.2:{}", 1000 + number)).into());
        let sockets = sockets.collect();
        Many { network, sockets, sent: vec![0; MANY], read: vec![0; MANY], limited, most: 0 }
    }

    /// All programs write what has room, and those of the second host read, until a time, or until all was read.
    fn run(&mut self, until: u64, reads: bool) {
        while self.network.now < until && self.read.iter().any(|read| *read < LEN) {
            let now = self.network.now;
            for (number, [client, server]) in self.sockets.iter().enumerate() {
                let [first, second] = &mut self.network.hosts;
                self.sent[number] = fill(first, now, *client, self.sent[number], LEN);
                if reads {
                    self.read[number] = drain(second, now, *server, self.read[number]);
                }
            }
            if !self.network.step(until) {
                break;
            }
            // A frame and the least that each connection has may exceed the limit.
            let memory = self.network.hosts[self.limited].memory();
            assert!(memory <= (4 << 20) + (64 << 10) + MANY * (8 << 10), "{memory}");
            self.most = self.most.max(memory);
        }
    }
}

#[test]
fn the_memory_of_all_connections_is_bounded_though_peers_are_greedy() {
    for limited in [0, 1] {
        let mut many = Many::new(limited);
        many.run(5 * SECOND, false);
        let host = &many.network.hosts[limited];
        assert!(many.most > 4 << 20 && host.statistics().memory_pressures > 0, "{}", many.most);
        let counted: usize =
            many.sockets.iter().map(|sockets| host.buffer_memory(sockets[limited]).unwrap()).sum();
        assert_eq!(host.memory(), counted);
        // Once the programs read, all of it arrives, and the memory is free again.
        many.run(1000 * SECOND, true);
        assert!(many.read.iter().all(|read| *read == LEN), "{:?}", many.read);
        many.network.run(many.network.now + 10 * SECOND);
        assert_eq!(many.network.hosts[limited].memory(), 0);
    }
}

#[test]
fn a_peer_that_never_reads_costs_two_buffers_and_its_connection_lasts_unless_a_timeout_is_set() {
    for timeout in [0, 60 * SECOND] {
        let settings = Settings { tcp_wmem: [4096, 16_384, 100_000], ..Settings::default() };
        let mut pair = connected(&settings);
        let [client, server] = pair.sockets;
        let options = SocketOptions { tcp_user_timeout: timeout, ..SocketOptions::default() };
        pair.network.hosts[0].set_options(0, client, options).unwrap();
        let until = pair.network.now + 1000 * SECOND;
        while pair.network.now < until {
            let now = pair.network.now;
            pair.sent = fill(&mut pair.network.hosts[0], now, client, pair.sent, u64::MAX);
            pair.network.step(until);
            let [sending, receiving] = pair.memory();
            assert!(sending <= 100_000 && receiving <= settings.receive_memory(), "{sending} {receiving}");
        }
        let ended = pair.network.hosts[0].error(client).unwrap();
        assert_eq!(ended, (timeout > 0).then_some(ConnectionError::TimedOut));
        // Once it reads, what was sent arrives.
        if timeout == 0 {
            let sent = pair.sent;
            while pair.read < sent {
                let now = pair.network.now;
                pair.read = drain(&mut pair.network.hosts[1], now, server, pair.read);
                assert!(pair.read == sent || pair.network.step(LONG), "the stream stops at {}", pair.read);
            }
        }
    }
}

/// A peer that sends the bytes of its stream in any order. It knows the numbers of a connection from a frame.
struct Forger {
    ethernet: Ethernet,
    ip: Ipv4,
    tcp: Tcp,
}

impl Forger {
    fn new(frame: &[u8]) -> Forger {
        let (ethernet, packet) = Ethernet::split(frame).unwrap();
        let (ip, _, segment) = Ipv4::parse(packet).unwrap();
        let (tcp, _, _) = Tcp::parse(segment).unwrap();
        Forger { ethernet: *ethernet, ip: *ip, tcp: *tcp }
    }

    /// A segment with `len` bytes from `at` on; the frame begins with the byte at `base`.
    fn frame(&self, base: u64, at: u64, len: u64) -> Vec<u8> {
        let tcp = Tcp {
            sequence_number: U32::new(self.tcp.sequence_number.get().wrapping_add((at - base) as u32)),
            data_offset: 5 << 4,
            ..self.tcp
        };
        let payload: Vec<u8> = (at..at + len).map(byte).collect();
        let mut segment = [tcp.bytes(), &payload].concat();
        let mut ip = Ipv4 { total_length: U16::new((Ipv4::LEN + segment.len()) as u16), ..self.ip };
        ip.fill_checksum(&[]);
        let sum = ip.pseudo_header(segment.len() as u16);
        Tcp::fill_checksum(&mut segment, sum).unwrap();
        [self.ethernet.bytes(), ip.bytes(), &segment].concat()
    }
}

#[test]
fn blocks_far_behind_a_hole_give_no_right_to_more_memory() {
    const PEERS: usize = 16;
    const CHUNK: u64 = 64 << 10;
    const BEGIN: u64 = 1000;
    const END: u64 = BEGIN + 24 * CHUNK;
    const FULL: usize = 3 << 20;
    const SEGMENT: u64 = 1400;
    let line = Line { delay: MS, ..Line::default() };
    let settings = Settings { tcp_rmem: [4 << 10, 2 << 20, 2 << 20], ..Settings::default() };
    let mut network = Network::new(&settings, line, 1);
    network.hosts[1].set_settings(Settings { tcp_mem: [1 << 20, 2 << 20, FULL], ..settings });
    let sockets: Vec<_> =
        (0..PEERS).map(|number| network.connect(&format!("10.0.0.2:{}", 1000 + number))).collect();
    for (client, server) in &sockets {
        fill(&mut network.hosts[0], network.now, *client, 0, BEGIN);
        network.run(network.now + SECOND / 2);
        assert_eq!(drain(&mut network.hosts[1], network.now, *server, 0), BEGIN);
    }
    // Windows of 2 MB are announced.
    network.run(network.now + SECOND / 2);
    let (now, [first, second]) = (network.now, &mut network.hosts);
    let mut frames = Frames::default();
    let peers = sockets.iter().map(|(client, _)| {
        fill(first, now, *client, BEGIN, BEGIN + 100);
        frames.clear();
        first.transmit(now, 0, &mut frames);
        Forger::new(frames.iter().next().unwrap().0)
    });
    let peers: Vec<Forger> = peers.collect();
    let send = |host: &mut Stack, peer: usize, at: u64| {
        let frame = peers[peer].frame(BEGIN, at, SEGMENT.min(END - at));
        host.receive(now, 0, &frame, Offload::default());
        // For each connection: a chunk for its first bytes, and one that is read in part.
        assert!(host.memory() <= FULL + PEERS * 2 * CHUNK as usize, "{}", host.memory());
    };
    for peer in 0..PEERS {
        (1..=4).for_each(|number| send(second, peer, END - number * CHUNK));
    }
    assert!(second.memory() >= FULL, "{}", second.memory());
    for peer in 0..PEERS {
        (BEGIN..END).step_by(SEGMENT as usize).for_each(|at| send(second, peer, at));
    }
    assert!(second.statistics().memory_dropped > 0);
    // Once the programs read, the rest arrives.
    for (peer, (_, server)) in sockets.iter().enumerate() {
        let mut read = BEGIN;
        while read < END {
            let before = read;
            (read..END).step_by(SEGMENT as usize).take(64).for_each(|at| send(second, peer, at));
            read = drain(second, now, *server, read);
            assert!(read > before, "the stream of {peer} stops at {read}");
        }
    }
}

/// A host whose interface has an MTU of 9000.
fn jumbo(last: u8, settings: &Settings) -> Stack {
    let mut stack = Stack::new(settings.clone(), [u64::from(last), 0x5eed]);
    stack.add_interface(InterfaceConfig {
        mac: [2, 0, 0, 0, 0, last].into(),
        mtu: 9000,
        addresses: vec![Cidr::new([10, 0, 0, last], 24)],
        offloads: Needs::NONE,
    });
    stack
}

#[test]
fn a_stream_of_large_segments_goes_on_though_memory_is_full() {
    let settings = Settings::default();
    let mut network = Network::new(&settings, Line { delay: MS, ..Line::default() }, 1);
    network.hosts = [1, 2].map(|last| jumbo(last, &settings));
    // What a program does not read takes all of the memory.
    let (unread, _) = network.connect("10.0.0.2:79");
    fill(&mut network.hosts[0], network.now, unread, 0, 10_000);
    network.run(network.now + SECOND);
    let mut pair = Pair::new(network, "10.0.0.2:80", 0);
    pair.network.hosts[1].set_settings(Settings { tcp_mem: [1, 2, 3], ..settings });
    // More than the first window.
    pair.pass(300_000);
    assert!(pair.network.hosts[1].statistics().memory_dropped > 0);
}

#[test]
fn a_first_value_of_zero_does_not_stop_a_stream() {
    let settings = Settings::default();
    let mut pair = connected(&settings);
    let (unread, _) = pair.network.connect("10.0.0.2:79");
    fill(&mut pair.network.hosts[0], pair.network.now, unread, 0, 10_000);
    pair.wait(SECOND);
    for number in 0..2 {
        let [tcp_rmem, tcp_wmem] = [settings.tcp_rmem, settings.tcp_wmem].map(|[_, b, c]| [0, b, c]);
        let settings = Settings { tcp_mem: [0; 3], tcp_rmem, tcp_wmem, ..settings.clone() };
        pair.network.hosts[number].set_settings(settings);
    }
    pair.pass(100);
}
