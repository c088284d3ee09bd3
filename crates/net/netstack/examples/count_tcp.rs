//! Moves bytes between two stacks in virtual time, for callgrind, which counts the instructions of [`run`]
//! (`scripts/counts.sh`): `count_tcp CASE NUMBER`.
//!
//! - `bulk`: NUMBER segments of 1448 bytes, from `send` to `recv`, with checksums and acknowledgments;
//! - `offload`: the same bytes in frames of up to 64 KB, without checksums, received in place, as through a ring;
//! - `rr`: NUMBER requests of one byte and their answers on one connection;
//! - `crr`: NUMBER connections with one request and its answer each.
#![allow(clippy::print_stdout)]

use ringway_frame::{BURST, LARGEST, Needs, Offload};
use ringway_mem::Span;
use ringway_netstack::{
    Cidr, InterfaceConfig, MS, Settings, SocketError, SocketId, SocketOptions, Stack, Transmit,
};
use std::error::Error;

/// Bytes of a segment: an MTU of 1500 without headers and the timestamps option.
const SEGMENT: usize = 1448;
/// The longest headers of a segment.
const HEADERS: usize = 14 + 40 + 60;
/// The time that frames need from one stack to the other.
const DELAY: u64 = MS / 100;
const PORT: u16 = 80;

/// Frames on their way: the device's own copy is one for each byte.
struct Wire {
    bytes: Vec<u8>,
    /// Where each ends.
    frames: Vec<(usize, Offload)>,
}

impl Wire {
    fn new() -> Wire {
        Wire { bytes: vec![0; BURST * LARGEST as usize], frames: Vec::with_capacity(BURST) }
    }

    fn end(&self) -> usize {
        self.frames.last().map_or(0, |(end, _)| *end)
    }
}

impl Transmit for Wire {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        if self.frames.len() == BURST {
            return false;
        }
        let mut at = self.end();
        for piece in [Span::of(headers)].iter().chain(payload) {
            at += piece.read(&mut self.bytes[at..]);
        }
        self.frames.push((at, offload));
        true
    }
}

struct Network {
    stacks: [Stack; 2],
    listener: SocketId,
    wire: Wire,
    now: u64,
}

impl Network {
    fn new(offloads: Needs) -> Result<Network, SocketError> {
        let mut stacks = [1, 2].map(|last| {
            let mut stack = Stack::new(Settings::default(), [u64::from(last), 2]);
            stack.add_interface(InterfaceConfig {
                mac: [2, 0, 0, 0, 0, last].into(),
                mtu: 1500,
                addresses: vec![Cidr::new([10, 0, 0, last], 24)],
                offloads,
            });
            stack
        });
        let listener = stacks[1].listen(([0, 0, 0, 0], PORT).into(), 16)?;
        Ok(Network { stacks, listener, wire: Wire::new(), now: 0 })
    }

    /// Passes what both stacks send. If that is nothing, the time of the next deadline comes.
    fn pass(&mut self) {
        let Network { stacks: [one, two], wire, now, .. } = self;
        *now += DELAY;
        let mut moved = false;
        for is_answer in [false, true] {
            let (from, to) = if is_answer { (&mut *two, &mut *one) } else { (&mut *one, &mut *two) };
            from.expire(*now);
            from.transmit(*now, 0, wire);
            let mut start = 0;
            for &(end, offload) in &wire.frames {
                moved = true;
                receive(to, *now, &wire.bytes[start..end], offload);
                start = end;
            }
            wire.frames.clear();
        }
        if !moved && let Some(next) = one.next_deadline().into_iter().chain(two.next_deadline()).min() {
            *now = next.max(*now);
        }
    }

    fn connect(&mut self) -> Result<[SocketId; 2], SocketError> {
        let client = self.stacks[0].connect(self.now, ([10, 0, 0, 2], PORT).into())?;
        loop {
            self.pass();
            if let Ok(accepted) = self.stacks[1].accept(self.listener) {
                return Ok([client, accepted.socket]);
            }
        }
    }

    /// Sends a byte from one stack to the other, which reads it.
    fn byte(&mut self, from: usize, sockets: [SocketId; 2]) -> Result<(), SocketError> {
        self.stacks[from].send(self.now, sockets[from], b"x")?;
        loop {
            self.pass();
            match self.stacks[1 - from].recv(self.now, sockets[1 - from], &mut [0]) {
                Err(SocketError::WouldBlock) => {}
                other => return other.map(drop),
            }
        }
    }
}

/// Receives a frame as a program does whose device keeps its bytes.
fn receive(stack: &mut Stack, now: u64, frame: &[u8], offload: Offload) {
    let (head, rest) = frame.split_at(frame.len().min(HEADERS));
    if rest.is_empty() || !stack.receive_in_place(now, 0, head, &[Span::of(rest)], offload, None) {
        stack.receive(now, 0, frame, offload);
    }
}

fn bulk(network: &mut Network, number: usize) -> Result<(), SocketError> {
    let [client, server] = network.connect()?;
    let (bytes, mut out) = (vec![0x5a; 1 << 16], vec![0; 1 << 16]);
    let (mut sent, mut received, end) = (0, 0, number * SEGMENT);
    while received < end {
        if sent < end {
            let part = &bytes[..bytes.len().min(end - sent)];
            sent += network.stacks[0].send(network.now, client, part).unwrap_or(0);
        }
        network.pass();
        while let Ok(count @ 1..) = network.stacks[1].recv(network.now, server, &mut out) {
            received += count;
        }
    }
    let info = network.stacks[0].info(client)?;
    println!("{} segments, {} sent again", info.tcpi_data_segs_out, info.tcpi_total_retrans);
    Ok(())
}

fn transactions(network: &mut Network, number: usize) -> Result<(), SocketError> {
    let sockets = network.connect()?;
    for (stack, socket) in network.stacks.iter_mut().zip(sockets) {
        let options = SocketOptions { tcp_nodelay: true, ..SocketOptions::default() };
        stack.set_options(network.now, socket, options)?;
    }
    (0..number).try_for_each(|_| {
        network.byte(0, sockets)?;
        network.byte(1, sockets)
    })
}

fn connections(network: &mut Network, number: usize) -> Result<(), SocketError> {
    for _ in 0..number {
        let sockets = network.connect()?;
        network.byte(0, sockets)?;
        network.byte(1, sockets)?;
        for (stack, socket) in network.stacks.iter_mut().zip(sockets) {
            stack.close(network.now, socket)?;
            network.now += DELAY;
        }
        network.pass();
        network.pass();
    }
    Ok(())
}

/// What callgrind counts.
#[inline(never)]
fn run(case: &str, network: &mut Network, number: usize) -> Result<(), Box<dyn Error>> {
    match case {
        "bulk" | "offload" => bulk(network, number)?,
        "rr" => transactions(network, number)?,
        "crr" => connections(network, number)?,
        _ => return Err("the case is bulk, offload, rr or crr".into()),
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [case, number] = &words[..] else { return Err("a case and a number are needed".into()) };
    let offloads = if case == "offload" { Needs::ALL } else { Needs::NONE };
    run(case, &mut Network::new(offloads)?, number.parse()?)
}
