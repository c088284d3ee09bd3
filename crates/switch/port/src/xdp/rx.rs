//! Frames to the interface: the transmit ring and the completion ring.

use super::{Shared, Socket, mode};
use ringway_frame::{Burst, Caps, HEAD, Lost, Needs, Reason, RxQueue};
use ringway_host::{XDP_RING, xdp_kick};
use ringway_mem::{Hint, Turn};
use std::os::fd::AsFd;

/// An Ethernet header and two VLAN tags.
const FRAMING: u32 = 14 + 8;
/// Nanoseconds after which frames that the kernel could not take yet are offered again.
const RETRY: u64 = 50_000;
/// The same while the interface is down.
const RETRY_DOWN: u64 = 20_000_000;
/// Calls in a row. In copy mode nothing leaves without a call, and each sends 32 frames at most.
const KICKS: usize = 8;
/// Frames begin at different lines of their chunks, so that they are in different sets of the cache.
const LINES: usize = 8;

pub(super) struct XdpRx {
    shared: Shared,
    /// Number of the interface that the rest is about.
    number: u64,
    /// Chunks that may be filled, and for each chunk whether the kernel has it.
    free: Vec<u32>,
    is_sent: Vec<bool>,
    /// Index after the last descriptor that was shown, and after the last one that was filled.
    shown: u32,
    filled: u32,
    /// The completion that is looked at next.
    completed: u32,
    due: Option<u64>,
}

impl XdpRx {
    pub fn new(shared: Shared) -> XdpRx {
        XdpRx {
            shared,
            number: 0,
            free: Vec::with_capacity(XDP_RING),
            is_sent: vec![false; XDP_RING],
            shown: 0,
            filled: 0,
            completed: 0,
            due: None,
        }
    }

    fn socket<'t>(&mut self, turn: &'t Turn<'_>) -> Option<&'t Socket> {
        let (socket, _, number) = self.shared.socket(turn)?;
        if number != self.number {
            (self.number, self.shown, self.filled, self.completed) = (number, 0, 0, 0);
            self.due = None;
            self.free.clear();
            self.free.extend(0..XDP_RING as u32);
            self.is_sent.fill(false);
        }
        Some(socket)
    }

    /// Takes the chunks back whose frames were sent.
    fn complete(&mut self, socket: &Socket) {
        let count = socket.sent.available(self.completed);
        for _ in 0..count {
            let chunk = (socket.sent.address(self.completed) / socket.chunk.max(1) as u64) as usize;
            self.completed = self.completed.wrapping_add(1);
            // Attack: a chunk that is not the kernel's, which would be used for two frames.
            if let Some(is_sent) = chunk.checked_sub(XDP_RING).and_then(|chunk| self.is_sent.get_mut(chunk))
                && std::mem::take(is_sent)
            {
                self.free.push((chunk - XDP_RING) as u32);
            }
        }
        if count > 0 {
            socket.sent.set_consumer(self.completed);
        }
    }

    /// Makes the kernel send, and notes whether it must be asked again.
    fn kick(&mut self, turn: &Turn<'_>, socket: &Socket) {
        let left = |socket: &Socket, shown: u32| shown.wrapping_sub(socket.send.consumer());
        let mut retry = RETRY;
        for _ in 0..KICKS {
            if left(socket, self.shown) == 0 || !socket.send.needs_wakeup() {
                break;
            }
            if xdp_kick(socket.socket.as_fd()).is_err() {
                // The interface is down: what waits is sent when it is up.
                retry = RETRY_DOWN;
                break;
            }
        }
        self.complete(socket);
        let is_left = left(socket, self.shown) > 0 && socket.send.needs_wakeup();
        self.due = is_left.then(|| turn.now + retry);
    }
}

impl RxQueue for XdpRx {
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        let (socket, page, _) = self.shared.socket(turn)?;
        let is_up = page.has_carrier() && page.mode() & mode::BOUND != 0;
        let largest = (page.mtu() + FRAMING).min(socket.chunk as u32);
        is_up.then_some(Caps { offloads: Needs::NONE, largest })
    }

    fn reserve(&mut self, turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
        let Some(socket) = self.socket(turn) else { return which.len() };
        if self.free.len() < which.len() {
            self.complete(socket);
        }
        which.len().min(self.free.len())
    }

    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let Some(socket) = self.socket(turn) else {
            return Lost::count(&self.shared.counters, Reason::Down, burst, which);
        };
        let mut lost = Lost::default();
        for (place, &frame) in which.iter().enumerate() {
            let len = burst.meta(usize::from(frame)).len as usize;
            let Some(&chunk) = self.free.last() else {
                lost += Lost::count(&self.shared.counters, Reason::Full, burst, &which[place..]);
                break;
            };
            let skip = chunk as usize % LINES * 64;
            let skip = if len.max(HEAD) + skip <= socket.chunk { skip } else { 0 };
            let at = (XDP_RING + chunk as usize) * socket.chunk + skip;
            let room = socket.chunk - skip;
            let space = socket.memory.span_mut(at as u64, room as u32, &mut Hint::default());
            let Some(space) = space.filter(|_| len <= room) else {
                lost += Lost::count(&self.shared.counters, Reason::Long, burst, &which[place..=place]);
                continue;
            };
            burst.copy_to(usize::from(frame), space.split(len.max(HEAD)).0);
            socket.send.set_frame(self.filled, at as u64, len as u32);
            self.free.pop();
            if let Some(is_sent) = self.is_sent.get_mut(chunk as usize) {
                *is_sent = true;
            }
            self.filled = self.filled.wrapping_add(1);
        }
        lost
    }

    fn publish(&mut self, turn: &Turn<'_>) {
        let Some(socket) = self.socket(turn) else { return };
        if self.shown != self.filled {
            self.shown = self.filled;
            socket.send.set_producer(self.shown);
        }
        self.kick(turn, socket);
    }

    fn next_due(&self) -> Option<u64> {
        self.due
    }
}
