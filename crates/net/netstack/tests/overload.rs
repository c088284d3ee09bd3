//! A stack that is offered more than it, or its program, takes (receive livelock): in virtual time, so what is shown is
//! that excess takes no room and no turn of what is read.

use crate::common::{drain, fill, host};
use ringway_frame::{Needs, Offload};
use ringway_netstack::{Frames, Settings, SocketId, Stack};

/// Datagrams that the program reads in a step.
const READS: usize = 8;
const STEPS: usize = 200;
/// Nanoseconds of a step.
const STEP: u64 = 100_000;

/// A sender, a receiver, and what is in flight.
struct Pair {
    hosts: [Stack; 2],
    now: u64,
}

impl Pair {
    fn new() -> Pair {
        Pair { hosts: [1, 2].map(|last| host(last, Settings::default(), Needs::NONE)), now: 0 }
    }

    /// Carries all frames, one round.
    fn carry(&mut self) {
        let mut frames = Frames::default();
        for from in 0..2 {
            self.hosts[from].expire(self.now);
            self.hosts[from].transmit(self.now, 0, &mut frames);
            frames.iter().for_each(|(frame, offload)| {
                self.hosts[1 - from].receive(self.now, 0, frame, offload);
            });
            frames.clear();
        }
        self.now += STEP;
    }

    /// A datagram of the sender for a port of the receiver, as a frame.
    fn datagram(&mut self, port: u16) -> Vec<u8> {
        let from = self.hosts[0].bind("10.0.0.1:5000".parse().unwrap()).unwrap();
        let to = ([10, 0, 0, 2], port).into();
        let mut frames = Frames::default();
        loop {
            self.hosts[0].send_to(self.now, from, &[7; 100], to).unwrap();
            self.hosts[0].transmit(self.now, 0, &mut frames);
            let found = frames.iter().find(|(frame, _)| frame.len() > 100).map(|(frame, _)| frame.to_vec());
            frames.iter().for_each(|(frame, offload)| {
                self.hosts[1].receive(self.now, 0, frame, offload);
            });
            frames.clear();
            match found {
                Some(frame) => return frame,
                // The neighbour is asked for first.
                None => self.carry(),
            }
        }
    }

    fn offer(&mut self, frame: &[u8], count: usize) {
        (0..count).for_each(|_| self.hosts[1].receive(self.now, 0, frame, Offload::default()));
    }
}

/// Reads up to so many datagrams.
fn read(stack: &mut Stack, socket: SocketId, most: usize) -> usize {
    (0..most).take_while(|_| stack.recv_from(socket).is_ok()).count()
}

#[test]
fn datagrams_are_read_as_fast_however_many_are_offered() {
    let mut left = Vec::new();
    for times in [1, 2, 10, 100] {
        let mut pair = Pair::new();
        let socket = pair.hosts[1].bind("10.0.0.2:53".parse().unwrap()).unwrap();
        let frame = pair.datagram(53);
        read(&mut pair.hosts[1], socket, usize::MAX);
        let mut goodput = 0;
        for _ in 0..STEPS {
            pair.offer(&frame, times * READS);
            goodput += read(&mut pair.hosts[1], socket, READS);
            pair.carry();
        }
        assert_eq!(goodput, STEPS * READS, "{times} times");
        left.push(read(&mut pair.hosts[1], socket, usize::MAX));
    }
    assert!(left[0] == 0 && left[2] == left[3], "what waits is bounded: {left:?}");
}

#[test]
fn a_stream_goes_on_beside_datagrams_that_nobody_reads() {
    let stream = |flood: usize| {
        let mut pair = Pair::new();
        let listener = pair.hosts[1].listen("10.0.0.2:80".parse().unwrap(), 16).unwrap();
        pair.hosts[1].bind("10.0.0.2:53".parse().unwrap()).unwrap();
        let frame = pair.datagram(53);
        let client = pair.hosts[0].connect(pair.now, "10.0.0.2:80".parse().unwrap()).unwrap();
        (0..4).for_each(|_| pair.carry());
        let server = pair.hosts[1].accept(listener).unwrap().socket;
        let (mut sent, mut came) = (0, 0);
        for _ in 0..STEPS {
            sent = fill(&mut pair.hosts[0], pair.now, client, sent, u64::MAX);
            pair.offer(&frame, flood);
            pair.carry();
            came = drain(&mut pair.hosts[1], pair.now, server, came);
        }
        came
    };
    let alone = stream(0);
    assert!(alone > 1_000_000, "{alone} bytes");
    assert_eq!(stream(1_000), alone);
}
