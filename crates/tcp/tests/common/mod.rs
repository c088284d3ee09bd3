//! Two stacks with a link between them, in virtual time.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part")]

use ringway_frame::{Needs, Offload};
use ringway_tcp::{Cidr, ConnectionError, Frames, InterfaceConfig, MS, Settings, SocketId, Stack};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub const MTU: usize = 1500;
/// The largest virtual time of a test.
pub const LONG: u64 = 1 << 50;

/// A generator for the link's decisions.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Whether an event of this probability, in millionths, happens.
    pub fn happens(&mut self, millionths: u64) -> bool {
        millionths > 0 && (self.next() >> 20) % 1_000_000 < millionths
    }
}

/// One direction of a link. Probabilities are in millionths.
#[derive(Clone, Debug, Default)]
pub struct Line {
    /// Bytes a second; 0: unlimited.
    pub rate: u64,
    pub delay: u64,
    /// Bytes that wait for the line; 0: unlimited.
    pub buffer: u64,
    pub loss: u64,
    pub duplicate: u64,
    pub corrupt: u64,
    /// Frames that are delayed by up to `jitter`, and overtaken.
    pub reorder: u64,
    pub jitter: u64,
    /// Marks CE above this many waiting bytes; 0: never.
    pub mark: u64,
}

#[derive(Default)]
struct Direction {
    free_at: u64,
    pub dropped: u64,
}

/// Two hosts, 10.0.0.1 and 10.0.0.2 (also fd00::1 and fd00::2), and their link.
pub struct Network {
    pub now: u64,
    pub hosts: [Stack; 2],
    pub lines: [Line; 2],
    directions: [Direction; 2],
    dice: Dice,
    flying: BinaryHeap<Reverse<(u64, u64, usize)>>,
    frames: Vec<Option<(Vec<u8>, Offload)>>,
    sequence: u64,
    scratch: Frames,
    pub sent: [u64; 2],
    pub dropped: [u64; 2],
}

pub fn host(last: u8, settings: Settings, offloads: Needs) -> Stack {
    let mut stack = Stack::new(settings, [u64::from(last), 0x5eed]);
    stack.add_interface(InterfaceConfig {
        mac: [2, 0, 0, 0, 0, last].into(),
        mtu: MTU,
        addresses: vec![
            Cidr::new([10, 0, 0, last], 24),
            Cidr::new([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(last)], 64),
        ],
        offloads,
    });
    stack
}

impl Network {
    pub fn new(settings: &Settings, line: Line, seed: u64) -> Network {
        Network::with_offloads(settings, line, seed, Needs::NONE)
    }

    pub fn with_offloads(settings: &Settings, line: Line, seed: u64, offloads: Needs) -> Network {
        Network {
            now: 0,
            hosts: [host(1, settings.clone(), offloads), host(2, settings.clone(), offloads)],
            lines: [line.clone(), line],
            directions: Default::default(),
            dice: Dice(seed | 1),
            flying: BinaryHeap::new(),
            frames: Vec::new(),
            sequence: 0,
            scratch: Frames::default(),
            sent: [0; 2],
            dropped: [0; 2],
        }
    }

    /// A connection from the first to the second host: its two sockets. Connects again if all requests for the
    /// address of the second were lost.
    pub fn connect(&mut self, address: &str) -> (SocketId, SocketId) {
        let address = address.parse().unwrap();
        let listener = self.hosts[1].listen(address, 16).unwrap();
        let mut client = self.hosts[0].connect(self.now, address).unwrap();
        loop {
            if let Ok(accepted) = self.hosts[1].accept(listener) {
                return (client, accepted.socket);
            }
            if !self.step(self.now + 200_000 * MS) {
                let error = self.hosts[0].error(client);
                assert_eq!(error, Ok(Some(ConnectionError::Unreachable)), "the handshake stops");
                client = self.hosts[0].connect(self.now, address).unwrap();
            }
        }
    }

    fn send(&mut self, from: usize) {
        let mut frames = core::mem::take(&mut self.scratch);
        loop {
            self.hosts[from].transmit(self.now, 0, &mut frames);
            if frames.is_empty() {
                break;
            }
            for (frame, offload) in frames.iter() {
                self.put(from, frame, offload);
            }
            frames.clear();
        }
        self.scratch = frames;
    }

    fn put(&mut self, from: usize, frame: &[u8], offload: Offload) {
        let line = &self.lines[from];
        self.sent[from] += 1;
        let direction = &mut self.directions[from];
        let begin = direction.free_at.max(self.now);
        let waiting =
            if line.rate == 0 { 0 } else { (begin - self.now) as u128 * line.rate as u128 / 1_000_000_000 }
                as u64;
        let mut frame = frame.to_vec();
        if (line.buffer > 0 && waiting + frame.len() as u64 > line.buffer) || self.dice.happens(line.loss) {
            self.dropped[from] += 1;
            return;
        }
        if line.mark > 0 && waiting > line.mark && frame[15] & 3 == 2 && frame[12..14] == [8, 0] {
            mark(&mut frame);
        }
        let wire = frame.len() as u64 + 24;
        direction.free_at = begin + (wire * 1_000_000_000).checked_div(line.rate).unwrap_or(0);
        let mut at = direction.free_at + line.delay;
        if self.dice.happens(line.reorder) {
            at += self.dice.next() % line.jitter.max(1);
        }
        if self.dice.happens(line.corrupt) {
            let byte = self.dice.next() as usize % frame.len();
            frame[byte] ^= 1 << (self.dice.next() % 8);
        }
        let copies = 1 + usize::from(self.dice.happens(line.duplicate));
        for copy in 0..copies {
            self.sequence += 1;
            let number = self.frames.iter().position(Option::is_none).unwrap_or(self.frames.len());
            if number == self.frames.len() {
                self.frames.push(None);
            }
            self.frames[number] = Some((frame.clone(), offload));
            self.flying.push(Reverse((at + copy as u64 * MS, self.sequence, number * 2 + 1 - from)));
        }
    }

    /// Goes to the next event, at most to `until`. `false`: nothing happens until then.
    pub fn step(&mut self, until: u64) -> bool {
        for from in 0..2 {
            self.hosts[from].expire(self.now);
            self.send(from);
        }
        let arrival = self.flying.peek().map(|Reverse((at, ..))| *at);
        let deadlines = self.hosts.iter().filter_map(Stack::next_deadline);
        let Some(next) = deadlines.chain(arrival).min().filter(|&next| next <= until) else {
            self.now = self.now.max(until.min(LONG));
            return false;
        };
        self.now = self.now.max(next);
        while let Some(&Reverse((at, _, place))) = self.flying.peek() {
            if at > self.now {
                break;
            }
            self.flying.pop();
            if let Some((frame, offload)) = self.frames[place / 2].take() {
                self.hosts[place % 2].receive(self.now, 0, &frame, offload);
                if self.lines[1 - place % 2].rate > 0 {
                    break;
                }
            }
        }
        true
    }

    /// Runs until a time.
    pub fn run(&mut self, until: u64) {
        while self.step(until) {}
    }
}

/// Sets CE in an IPv4 header.
fn mark(frame: &mut [u8]) {
    frame[15] |= 3;
    frame[24..26].fill(0);
    let sum = ringway_wire::checksum::checksum(&frame[14..34]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
}

/// Byte `at` of a stream that has no short period.
pub fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

/// Sends a stream of `len` bytes as far as there is room; returns how many were sent in all.
pub fn fill(stack: &mut Stack, now: u64, socket: SocketId, sent: u64, len: u64) -> u64 {
    let mut sent = sent;
    while sent < len {
        let count = (len - sent).min(4096);
        let bytes: Vec<u8> = (sent..sent + count).map(byte).collect();
        match stack.send(now, socket, &bytes) {
            Ok(count) => sent += count as u64,
            Err(_) => break,
        }
    }
    sent
}

/// Reads what there is and compares it with the stream; returns how many bytes were read in all.
pub fn drain(stack: &mut Stack, now: u64, socket: SocketId, read: u64) -> u64 {
    let mut bytes = [0; 4096];
    let mut read = read;
    while let Ok(count) = stack.recv(now, socket, &mut bytes) {
        if count == 0 {
            break;
        }
        for (at, &got) in bytes[..count].iter().enumerate() {
            assert_eq!(got, byte(read + at as u64), "byte {} of the stream", read + at as u64);
        }
        read += count as u64;
    }
    read
}
