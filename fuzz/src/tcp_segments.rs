//! A whole TCP connection against a hostile peer that shares the wire with an honest one.
//!
//! Two stacks exchange streams over a link on which the input drops, repeats, reorders and changes frames and
//! adds forged segments. Unless a forged segment could be accepted as data, SYN or FIN, each program reads a
//! prefix of the other's stream, and the end of the stream only after all of it.

use ringway_frame::{Needs, Offload};
use ringway_netstack::{Cidr, Frames, InterfaceConfig, MS, Settings, SocketId, Stack};
use ringway_wire::{Header, Ipv4, Tcp, ipv4};
use std::collections::VecDeque;

/// One byte for the operation and three for its arguments.
const STEP: usize = 4;
/// Offsets in a frame with an IPv4 header without options.
const IP: usize = 14;
const TCP: usize = 34;
const ACK: usize = TCP + 8;
const FLAGS: usize = TCP + 13;
const WINDOW: usize = TCP + 14;
const OPTIONS: usize = TCP + 20;
/// FIN and SYN, which shift a stream.
const SHIFTS: u8 = 3;
/// A stream's length, in bytes.
const STREAM: u64 = 20_000;
/// Frames on the way to one host.
const FLYING: usize = 256;

#[derive(Clone)]
struct Frame {
    bytes: Vec<u8>,
    /// Whether a bit was inverted: then its checksum must not be made valid again.
    corrupt: bool,
}

struct World {
    now: u64,
    hosts: [Stack; 2],
    listener: SocketId,
    sockets: [Option<SocketId>; 2],
    /// Frames on the way to each host.
    flying: [VecDeque<Frame>; 2],
    sent: [u64; 2],
    read: [u64; 2],
    /// Whether a segment with other bytes at some offset, and a valid checksum, was sent: then the streams may
    /// differ.
    forged: bool,
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

fn host(last: u8, options: u8) -> Stack {
    let on = |bit: u8| options >> bit & 1 != 0;
    let settings = Settings {
        tcp_sack: on(0),
        tcp_timestamps: on(1),
        tcp_window_scaling: on(2),
        tcp_ecn: u8::from(on(3)),
        tcp_syncookies: if on(4) { 2 } else { 1 },
        tcp_rmem: if on(5) { [256, 2000, 3000] } else { [4096, 65_536, 200_000] },
        ..Settings::default()
    };
    let mut stack = Stack::new(settings, [u64::from(last), 3]);
    stack.add_interface(InterfaceConfig {
        mac: [2, 0, 0, 0, 0, last].into(),
        mtu: 1500,
        addresses: vec![Cidr::new([10, 0, 0, last], 24)],
        offloads: Needs::NONE,
    });
    stack
}

/// Makes the TCP and IPv4 checksums valid.
fn sum(frame: &mut [u8]) {
    let network = &mut frame[IP..];
    let Some(packet) = ipv4::Packet::parse(network).filter(|packet| packet.whole) else { return };
    let len = packet.payload.len();
    let (start, pseudo) = (packet.header.header_len(), packet.header.pseudo_header(len as u16));
    let _ = Tcp::fill_checksum(&mut network[start..start + len], pseudo);
    if start == Ipv4::LEN
        && let Some(ip) = Ipv4::of_mut(network)
    {
        ip.fill_checksum(&[]);
    }
}

impl World {
    fn new(options: u8) -> World {
        let mut hosts = [host(1, options), host(2, options)];
        let listener = hosts[1].listen(([0, 0, 0, 0], 80).into(), 4).expect("the port is free");
        let client = hosts[0].connect(0, ([10, 0, 0, 2], 80).into()).expect("there is a route");
        World {
            now: 0,
            hosts,
            listener,
            sockets: [Some(client), None],
            flying: Default::default(),
            sent: [0; 2],
            read: [0; 2],
            forged: false,
        }
    }

    /// Lets both programs read and write, and both hosts send.
    fn turn(&mut self) {
        if self.sockets[1].is_none() {
            self.sockets[1] = self.hosts[1].accept(self.listener).ok().map(|accepted| accepted.socket);
        }
        for end in 0..2 {
            self.hosts[end].expire(self.now);
            while self.hosts[end].next_event().is_some() {}
            if let Some(socket) = self.sockets[end] {
                self.program(end, socket);
            }
            let mut frames = Frames::new(64);
            self.hosts[end].transmit(self.now, 0, &mut frames);
            for (frame, _) in frames.iter() {
                if self.flying[1 - end].len() < FLYING {
                    self.flying[1 - end].push_back(Frame { bytes: frame.to_vec(), corrupt: false });
                }
            }
        }
    }

    fn program(&mut self, end: usize, socket: SocketId) {
        let host = &mut self.hosts[end];
        let more: Vec<u8> = (self.sent[end]..STREAM.min(self.sent[end] + 3000)).map(byte).collect();
        self.sent[end] += host.send(self.now, socket, &more).unwrap_or(0) as u64;
        if self.sent[end] == STREAM {
            let _ = host.shutdown(self.now, socket);
        }
        let mut bytes = [0; 4096];
        while let Ok(count) = host.recv(self.now, socket, &mut bytes) {
            if count == 0 {
                assert!(self.read[end] == STREAM || self.forged, "the stream ends at {}", self.read[end]);
                break;
            }
            for &got in &bytes[..count] {
                assert!(got == byte(self.read[end]) || self.forged, "byte {} of the stream", self.read[end]);
                self.read[end] += 1;
            }
        }
        assert!(host.info(socket).is_ok_and(|info| info.tcpi_snd_mss >= 36));
    }

    fn deliver(&mut self, to: usize) {
        if let Some(frame) = self.flying[to].pop_front() {
            self.hosts[to].receive(self.now, 0, &frame.bytes, Offload::default());
        }
    }

    /// Both hosts exchange everything that is on the way.
    fn exchange(&mut self) {
        self.turn();
        for to in 0..2 {
            (0..self.flying[to].len()).for_each(|_| self.deliver(to));
        }
    }

    fn step(&mut self, what: u8, [a, b, c]: [u8; 3]) {
        let to = usize::from(what >> 7);
        let flying = &mut self.flying[to];
        match (what & 0x7f) % 10 {
            0 => self.now += u64::from(a) * MS,
            1 => self.now += u64::from(a) << (b % 34),
            2 => drop(flying.pop_front()),
            3 => {
                let front = flying.front().cloned();
                flying.extend(front);
            }
            4 => {
                let len = flying.len().max(1);
                flying.rotate_left(usize::from(a) % len);
            }
            // The checksums show a single inverted bit; two may cancel each other.
            5 => {
                if let Some(frame) = flying.front_mut().filter(|frame| !frame.corrupt) {
                    let at = IP + usize::from(u16::from_le_bytes([a, b])) % (frame.bytes.len() - IP);
                    frame.bytes[at] ^= 1 << (c % 8);
                    frame.corrupt = true;
                }
            }
            6 => {
                if let Some(forged) = self.forge(to, [a, b, c]) {
                    self.flying[to].push_front(forged);
                }
            }
            7 => {
                if let Some(forged) = self.forge(to, [a, b, c]) {
                    self.flying[to][0] = forged;
                }
            }
            8 => self.deliver(to),
            _ => self.exchange(),
        }
    }

    /// The next segment to a host with one field changed and valid checksums.
    fn forge(&mut self, to: usize, [field, at, value]: [u8; 3]) -> Option<Frame> {
        let at = usize::from(at);
        let is_segment = |bytes: &[u8]| bytes.len() >= OPTIONS && bytes[12..14] == [8, 0];
        let mut frame = self.flying[to].front().filter(|f| !f.corrupt && is_segment(&f.bytes))?.clone();
        let bytes = &mut frame.bytes;
        match field % 8 {
            0 => {
                bytes[FLAGS] ^= value;
                self.forged |= value & SHIFTS != 0;
            }
            1 => bytes[ACK + at % 4] ^= value,
            2 => bytes[WINDOW + at % 2] = value,
            // SACK blocks, timestamps, lengths.
            3 | 4 => {
                let len = usize::from(bytes[TCP + 12] >> 4) * 4;
                let options = bytes.get_mut(OPTIONS..TCP + len).filter(|options| !options.is_empty())?;
                options[at % options.len()] = value;
            }
            5 => {
                bytes[TCP + 4 + at % 4] ^= value;
                self.forged = true;
            }
            6 => {
                let at = at % (bytes.len() - TCP);
                bytes[TCP + at] = value;
                self.forged = true;
            }
            _ => bytes[IP + 1] = value,
        }
        sum(bytes);
        Some(frame)
    }
}

/// Runs a connection under the operations in `data`.
pub fn run(data: &[u8]) {
    let [options, data @ ..] = data else { return };
    let mut world = World::new(*options);
    for &[what, a, b, c] in data.as_chunks::<STEP>().0.iter().take(400) {
        world.step(what, [a, b, c]);
        world.turn();
    }
    for _ in 0..8 {
        world.exchange();
        world.now += 100 * MS;
    }
}

/// Exchanges, with losses, repetitions, forged acknowledgments, SACK blocks and resets between them.
pub fn seeds() -> Vec<Vec<u8>> {
    let steps = |options: u8, steps: &[[u8; 4]]| {
        // A handshake behind SYN cookies takes more than a second, since the first SYN-ACK is lost.
        let mut seed = vec![options];
        for _ in 0..6 {
            seed.extend_from_slice(&[9, 0, 0, 0, 0, 250, 0, 0]);
        }
        for step in steps {
            seed.extend_from_slice(step);
            seed.extend_from_slice(&[9, 0, 0, 0, 0, 30, 0, 0]);
        }
        seed
    };
    vec![
        steps(0x07, &[[2, 0, 0, 0], [0x82, 0, 0, 0], [3, 0, 0, 0], [4, 3, 0, 0], [1, 200, 22, 0]]),
        steps(0x0f, &[[6, 1, 2, 5], [0x86, 3, 9, 77], [7, 0, 0, 4], [5, 50, 0, 3], [7, 7, 0, 3]]),
        steps(0x25, &[[6, 2, 0, 0], [6, 5, 1, 9], [6, 6, 40, 1], [8, 0, 0, 0]]),
        steps(0x17, &[[7, 4, 3, 200], [1, 255, 33, 0], [0x88, 0, 0, 0]]),
    ]
}
