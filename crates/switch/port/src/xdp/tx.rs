//! Frames from the interface: the receive ring and the fill ring.

use super::{Shared, Socket, mode};
use crate::offload::unfinished;
use ringway_frame::{BURST, Burst, Needs, Offload, Reason, TxQueue};
use ringway_host::{XDP_RING, XdpLosses, xdp_losses, xdp_wake_receive};
use ringway_mem::{Hint, Turn};
use std::collections::VecDeque;
use std::os::fd::AsFd;

const SHORTEST: u32 = 14;
/// Bursts after which a busy queue asks the kernel what it lost.
const ASK_EVERY: u32 = 4096;

/// A frame that was taken and not yet released.
struct Held {
    at: u64,
    len: u32,
    offload: Offload,
    /// Descriptors that are released with it: its own, and invalid ones after it.
    count: u32,
}

pub(super) struct XdpTx {
    shared: Shared,
    /// Number of the interface that the rest is about.
    number: u64,
    held: VecDeque<Held>,
    /// The first descriptor that was not released, and the first one that was not looked at.
    released: u32,
    next: u32,
    /// Index of the fill ring.
    filled: u32,
    /// What the socket lost, as far as it is counted, and calls of `release` until the kernel is asked again.
    losses: XdpLosses,
    until_asked: u32,
}

impl XdpTx {
    pub fn new(shared: Shared) -> XdpTx {
        XdpTx {
            shared,
            number: 0,
            held: VecDeque::with_capacity(BURST),
            released: 0,
            next: 0,
            filled: 0,
            losses: XdpLosses::default(),
            until_asked: ASK_EVERY,
        }
    }

    /// The socket, and whether frames may have partial checksums.
    fn socket<'t>(&mut self, turn: &'t Turn<'_>) -> Option<(&'t Socket, bool)> {
        let found = self.shared.socket(turn);
        let number = found.map_or(0, |(.., number)| number);
        if number != self.number {
            self.held.clear();
            (self.number, self.released, self.next, self.filled) = (number, 0, 0, XDP_RING as u32);
            self.losses = XdpLosses::default();
        }
        // Without copies, frames come from a card, which checks whole ones.
        found.map(|(socket, page, _)| (socket, page.mode() & mode::ZERO_COPY == 0))
    }

    /// Counts frames that the kernel lost before they came here, and descriptors of ours that it refused.
    fn count_losses(&mut self, socket: &Socket) {
        self.until_asked = ASK_EVERY;
        let now = xdp_losses(socket.socket.as_fd());
        let before = std::mem::replace(&mut self.losses, now);
        let more = [
            (Reason::Long, now.dropped.saturating_sub(before.dropped)),
            (Reason::Full, (now.full + now.unfilled).saturating_sub(before.full + before.unfilled)),
            (Reason::System, now.invalid.saturating_sub(before.invalid)),
        ];
        for (reason, count) in more.into_iter().filter(|(_, count)| *count > 0) {
            self.shared.counters.drop_tx(reason, count as usize);
        }
    }

    /// The frame of a descriptor. The kernel writes descriptors; they are checked all the same.
    #[inline]
    fn look(&self, socket: &Socket, is_partial: bool) -> Result<Held, Reason> {
        let (at, len) = socket.received.frame(self.next);
        let chunk = (at / socket.chunk.max(1) as u64) as usize;
        let within = at as usize % socket.chunk.max(1);
        if chunk >= XDP_RING || within + len as usize > socket.chunk {
            return Err(Reason::BadDescriptor);
        }
        if len < SHORTEST {
            return Err(Reason::Short);
        }
        let frame = socket.memory.span(at, len, &mut Hint::default()).ok_or(Reason::BadDescriptor)?;
        let offload = if is_partial { unfinished::offload(frame, usize::MAX) } else { Offload::default() };
        let offload = offload.check(len, Needs::ALL).map_err(|_| Reason::BadOffload)?;
        Ok(Held { at, len, offload, count: 1 })
    }

    /// Gives the chunks of the next `count` descriptors to the kernel again.
    fn give_back(&mut self, socket: &Socket, count: u32) {
        for _ in 0..count {
            let (at, _) = socket.received.frame(self.released);
            let chunk = at / socket.chunk.max(1) as u64;
            // Attack: an address that is no received frame's, which the kernel would write the next frame to.
            if chunk < XDP_RING as u64 {
                socket.fill.set_address(self.filled, chunk * socket.chunk as u64);
                self.filled = self.filled.wrapping_add(1);
            }
            self.released = self.released.wrapping_add(1);
        }
        socket.fill.set_producer(self.filled);
        socket.received.set_consumer(self.released);
        if socket.fill.needs_wakeup() {
            xdp_wake_receive(socket.socket.as_fd());
        }
    }
}

#[inline]
fn push<'t>(socket: &'t Socket, held: &Held, burst: &mut Burst<'t>) -> bool {
    let frame = socket.memory.span(held.at, held.len, &mut Hint::default());
    frame.is_some_and(|frame| burst.push(held.offload, frame).is_ok())
}

impl TxQueue for XdpTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let Some((socket, is_partial)) = self.socket(turn) else { return };
        for held in &self.held {
            if !push(socket, held, burst) {
                return;
            }
        }
        let mut left = socket.received.available(self.next);
        // Attack: frames that are all invalid must not keep the worker in this loop.
        let mut refused = 0;
        while left > 0 && burst.room() > 0 && self.held.len() < BURST && refused < BURST {
            let found = self.look(socket, is_partial);
            self.next = self.next.wrapping_add(1);
            left -= 1;
            match found {
                Ok(held) => {
                    let pushed = push(socket, &held, burst);
                    self.held.push_back(held);
                    // The burst may have other queues' frames already; this frame is in the next one.
                    if !pushed {
                        return;
                    }
                }
                Err(reason) => {
                    self.shared.counters.drop_tx(reason, 1);
                    refused += 1;
                    match self.held.back_mut() {
                        Some(held) => held.count += 1,
                        None => self.give_back(socket, 1),
                    }
                }
            }
        }
    }

    fn release(&mut self, turn: &Turn<'_>, frames: usize) {
        let Some((socket, _)) = self.socket(turn) else { return };
        let count = self.held.drain(..frames.min(self.held.len())).map(|held| held.count).sum();
        if count > 0 {
            self.give_back(socket, count);
        }
        self.until_asked -= 1;
        if self.until_asked == 0 {
            self.count_losses(socket);
        }
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        let Some((socket, _)) = self.socket(turn) else { return true };
        if !self.held.is_empty() || socket.received.available(self.next) > 0 {
            return false;
        }
        self.count_losses(socket);
        // The descriptor is reported at once if there is a frame already.
        self.shared.doorbell.watch(socket.socket.clone());
        true
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {
        // While the queue is polled, the worker must not be woken for each frame.
        self.shared.doorbell.unwatch();
    }

    fn is_half_full(&mut self, turn: &Turn<'_>) -> Option<bool> {
        let (socket, _) = self.socket(turn)?;
        Some(socket.received.available(self.released) >= XDP_RING as u32 / 2)
    }
}
