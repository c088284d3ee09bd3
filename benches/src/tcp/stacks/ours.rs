//! Two of our stacks.

use super::PORT;
use crate::Failure;
use ringway_frame::{Needs, Offload};
use ringway_mem::Span;
use ringway_netstack::{
    Cidr, Frames, InterfaceConfig, MS, Settings, SocketError, SocketId, SocketOptions, Stack,
};

/// The time that frames need from one stack to the other.
const DELAY: u64 = MS / 100;
/// The longest headers of a segment.
const HEADERS: usize = 14 + 40 + 60;

pub struct Pair {
    stacks: [Stack; 2],
    listener: SocketId,
    sockets: Option<[SocketId; 2]>,
    /// Those on their way.
    frames: Frames,
    now: u64,
}

impl Pair {
    pub fn new() -> Result<Pair, Failure> {
        let mut stacks = [1, 2].map(|last| {
            let mut stack = Stack::new(Settings::default(), [u64::from(last), 2]);
            stack.add_interface(InterfaceConfig {
                mac: [2, 0, 0, 0, 0, last].into(),
                mtu: 1500,
                addresses: vec![Cidr::new([10, 0, 0, last], 24)],
                offloads: Needs::NONE,
            });
            stack
        });
        let listener = stacks[1].listen(([0, 0, 0, 0], PORT).into(), 16)?;
        Ok(Pair { stacks, listener, sockets: None, frames: Frames::default(), now: 0 })
    }

    fn socket(&self, host: usize) -> Result<SocketId, Failure> {
        Ok(self.sockets.ok_or("there is no connection")?[host])
    }
}

fn receive(stack: &mut Stack, now: u64, frame: &[u8], offload: Offload) {
    let (head, rest) = frame.split_at(frame.len().min(HEADERS));
    if rest.is_empty() || !stack.receive_in_place(now, 0, head, &[Span::of(rest)], offload, None) {
        stack.receive(now, 0, frame, offload);
    }
}

impl super::Pair for Pair {
    fn connect(&mut self) -> Result<(), Failure> {
        let client = self.stacks[0].connect(self.now, ([10, 0, 0, 2], PORT).into())?;
        let accepted = loop {
            self.pass();
            if let Ok(accepted) = self.stacks[1].accept(self.listener) {
                break accepted.socket;
            }
        };
        self.sockets = Some([client, accepted]);
        let options = SocketOptions { tcp_nodelay: true, ..SocketOptions::default() };
        self.stacks[0].set_options(self.now, client, options)?;
        Ok(self.stacks[1].set_options(self.now, accepted, options)?)
    }

    fn close(&mut self) -> Result<(), Failure> {
        let sockets = self.sockets.take().ok_or("there is no connection")?;
        for (stack, socket) in self.stacks.iter_mut().zip(sockets) {
            stack.close(self.now, socket)?;
            self.now += DELAY;
        }
        self.pass();
        self.pass();
        self.now += super::PAUSE;
        Ok(())
    }

    fn send(&mut self, host: usize, bytes: &[u8]) -> Result<usize, Failure> {
        let socket = self.socket(host)?;
        match self.stacks[host].send(self.now, socket, bytes) {
            Err(SocketError::WouldBlock) => Ok(0),
            other => Ok(other?),
        }
    }

    fn receive(&mut self, host: usize, out: &mut [u8]) -> Result<usize, Failure> {
        let socket = self.socket(host)?;
        match self.stacks[host].recv(self.now, socket, out) {
            Err(SocketError::WouldBlock) => Ok(0),
            other => Ok(other?),
        }
    }

    fn pass(&mut self) {
        let Pair { stacks: [one, two], frames, now, .. } = self;
        *now += DELAY;
        let mut moved = false;
        for is_answer in [false, true] {
            let (from, to) = if is_answer { (&mut *two, &mut *one) } else { (&mut *one, &mut *two) };
            from.expire(*now);
            from.transmit(*now, 0, frames);
            moved |= !frames.is_empty();
            frames.iter().for_each(|(frame, offload)| receive(to, *now, frame, offload));
            frames.clear();
        }
        if !moved && let Some(next) = one.next_deadline().into_iter().chain(two.next_deadline()).min() {
            *now = next.max(*now);
        }
    }
}
