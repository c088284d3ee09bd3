//! Two stacks with a link between them, in virtual time.
#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part")]

use ringway_frame::{Needs, Offload};
use ringway_link::{Capacity, Delay, Frame, Link, Loss, Profile, Queue, mark_ip};
use ringway_netstack::{Cidr, ConnectionError, Frames, InterfaceConfig, MS, Settings, SocketId, Stack};

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

impl Line {
    fn profile(&self, dice: &mut Dice) -> Profile {
        let share = |millionths: u64| millionths as f64 / 1e6;
        let limit = Capacity::Bytes(if self.buffer == 0 { usize::MAX } else { self.buffer as usize });
        let mark = (self.mark > 0).then_some(self.mark as usize);
        let mut late =
            |_| self.delay + if dice.happens(self.reorder) { dice.next() % self.jitter.max(1) } else { 0 };
        Profile {
            rate: (self.rate > 0).then_some(self.rate * 8),
            overhead: 24,
            queue: Queue::DropTail { limit, mark },
            delay: match self.reorder {
                0 => Delay::Constant(self.delay),
                _ => Delay::Trace((0..4099).map(&mut late).collect()),
            },
            reorder: self.reorder > 0,
            loss: Loss::Random(share(self.loss)),
            corrupt: share(self.corrupt),
            duplicate: share(self.duplicate),
            memory: usize::MAX,
            ..Profile::default()
        }
    }
}

/// A frame on the link.
#[derive(Clone)]
struct Flying {
    bytes: Vec<u8>,
    offload: Offload,
}

impl Frame for Flying {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn link_header(&self) -> usize {
        14
    }

    fn duplicate(&mut self) -> Option<Flying> {
        Some(self.clone())
    }

    fn invert(&mut self, bit: usize) {
        self.bytes[bit / 8] ^= 1 << (bit % 8);
    }

    fn mark(&mut self) -> bool {
        mark_ip(&mut self.bytes[14..])
    }

    fn flow(&self, _: u64) -> u64 {
        0
    }
}

/// Two hosts, 10.0.0.1 and 10.0.0.2 (also fd00::1 and fd00::2), and their link.
pub struct Network {
    pub now: u64,
    pub hosts: [Stack; 2],
    /// The directions from each host.
    links: [Link<Flying>; 2],
    /// Hosts look for frames, and at their timers, at multiples of this time only; 0: at once.
    pub every: u64,
    /// Until when a host stands still: frames wait, and no timer is looked at.
    pub still: [u64; 2],
    dice: Dice,
    scratch: Frames,
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
        let mut dice = Dice(seed | 1);
        let links = [0, 1].map(|from| Link::new(line.profile(&mut dice), seed << 1 | from).unwrap());
        let hosts = [host(1, settings.clone(), offloads), host(2, settings.clone(), offloads)];
        Network { now: 0, hosts, links, every: 0, still: [0; 2], dice, scratch: Frames::default() }
    }

    /// Changes the direction from a host.
    pub fn set(&mut self, from: usize, line: &Line) {
        self.links[from].change(line.profile(&mut self.dice), self.now).unwrap();
    }

    /// Bytes that wait for the line in the direction from a host.
    pub fn waiting(&self, from: usize) -> usize {
        self.links[from].backlog().1
    }

    /// A connection from the first to the second host: its two sockets. Connects again if all requests for the
    /// address of the second were lost, or if the answer was damaged, since ARP has no checksum.
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
                let is_expected =
                    matches!(error, Ok(Some(ConnectionError::Unreachable | ConnectionError::TimedOut)));
                assert!(is_expected, "the handshake stops: {error:?}");
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
                self.links[from].send(Flying { bytes: frame.to_vec(), offload }, self.now);
            }
            frames.clear();
        }
        self.scratch = frames;
    }

    /// Goes to the next event, at most to `until`. `false`: nothing happens until then.
    pub fn step(&mut self, until: u64) -> bool {
        let (still, now) = (self.still, self.now);
        for from in (0..2).filter(|from| still[*from] <= now) {
            self.hosts[from].expire(self.now);
            self.send(from);
        }
        let links = self.links.iter().zip([1, 0]);
        let arrivals = links.filter_map(|(link, to)| Some(link.due()?.max(self.still[to])));
        let hosts = self.hosts.iter().zip(self.still);
        let deadlines = hosts.filter_map(|(host, still)| Some(host.next_deadline()?.max(still)));
        let Some(next) = deadlines.chain(arrivals).min().filter(|&next| next <= until) else {
            self.now = self.now.max(until.min(LONG));
            return false;
        };
        self.now = self.now.max(next);
        if self.every > 0 {
            self.now = self.now.next_multiple_of(self.every);
        }
        let now = self.now;
        for from in (0..2).filter(|from| still[1 - *from] <= now) {
            while let Some((frame, _)) = self.links[from].receive(self.now) {
                self.hosts[1 - from].receive(self.now, 0, &frame.bytes, frame.offload);
                if self.every == 0 && self.links[from].profile().rate.is_some() {
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

/// A connection of a network, which carries a stream from one of its hosts to the other.
pub struct Pair {
    pub network: Network,
    pub sockets: [SocketId; 2],
    /// The host that sends.
    pub from: usize,
    pub sent: u64,
    pub read: u64,
}

impl Pair {
    pub fn new(mut network: Network, address: &str, from: usize) -> Pair {
        let (client, server) = network.connect(address);
        Pair { network, sockets: [client, server], from, sent: 0, read: 0 }
    }

    /// Lets `time` pass.
    pub fn wait(&mut self, time: u64) {
        let until = self.network.now + time;
        self.network.run(until);
    }

    /// Sends so many bytes; waits until they were read.
    pub fn pass(&mut self, len: u64) {
        let (end, from, to) = (self.read + len, self.from, 1 - self.from);
        while self.read < end {
            let now = self.network.now;
            self.sent = fill(&mut self.network.hosts[from], now, self.sockets[from], self.sent, end);
            self.read = drain(&mut self.network.hosts[to], now, self.sockets[to], self.read);
            assert!(self.read == end || self.network.step(LONG), "the stream stops at {}", self.read);
        }
    }
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

/// Reads the available bytes and compares them with the stream; returns how many bytes were read in all.
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
