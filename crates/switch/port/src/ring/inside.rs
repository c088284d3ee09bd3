//! The queues of a port that a function of this process has: frames are copied once into owned buffers, and once out of
//! them.

use crate::frame_queue::{Inside, QUEUE_FRAMES, Receiver, Sender};
use ringway_frame::packet::{Blank, Lent, OwnedFrame};
use ringway_frame::{BURST, Burst, Caps, Counters, LARGEST, Needs, Reason};
use ringway_mem::Turn;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

/// Bytes of an Ethernet header.
const HEADER: usize = 14;

/// Frames to the function.
pub(super) struct InsideRx {
    /// Number of the session.
    pub number: u64,
    inside: Arc<Inside>,
    sender: Sender,
    /// Buffers for the next frames.
    blanks: Vec<Blank>,
}

impl InsideRx {
    pub fn new(number: u64, inside: &Arc<Inside>) -> InsideRx {
        let sender = Sender::new(inside.to.clone());
        InsideRx { number, inside: inside.clone(), sender, blanks: Vec::new() }
    }

    pub fn caps(&self) -> Caps {
        let offloads = if self.inside.offloads.load(Relaxed) { Needs::ALL } else { Needs::NONE };
        Caps { offloads, largest: LARGEST }
    }

    /// The number of frames, of `wanted`, for which there are buffers.
    pub fn reserve(&mut self, wanted: usize) -> usize {
        if let Some(missing) = wanted.checked_sub(self.blanks.len()) {
            self.sender.blanks(missing, &mut self.blanks);
        }
        self.blanks.len().min(wanted).min(self.sender.room(wanted))
    }

    /// Whether at least half of its buffers hold frames that wait.
    pub fn is_half_full(&self) -> bool {
        self.sender.is_half_full(self.blanks.len())
    }

    /// Number of frames that wait.
    pub fn waiting(&self) -> usize {
        self.sender.frame_queue().waiting()
    }

    /// Copies frame `index`, for which room was reserved.
    pub fn put(&mut self, burst: &Burst<'_>, index: usize) {
        let Some(mut owned_frame) = self.blanks.pop().map(OwnedFrame::from) else { return };
        if !owned_frame.fill(burst, index) {
            owned_frame = OwnedFrame::large(burst.meta(index).len as usize);
            if !owned_frame.fill(burst, index) {
                return;
            }
        }
        self.sender.push(owned_frame);
    }

    pub fn publish(&mut self) {
        self.sender.flush();
    }

    /// Whether `publish` must be called again.
    pub fn is_unpublished(&self) -> bool {
        self.sender.staged() > 0
    }
}

/// Frames from the function.
pub(super) struct InsideTx {
    /// Number of the session.
    pub number: u64,
    inside: Arc<Inside>,
    receiver: Receiver,
    lent: Lent,
    taken: Vec<OwnedFrame>,
    /// Buffers that go back to the function.
    blanks: Vec<Blank>,
}

impl InsideTx {
    pub fn new(number: u64, inside: &Arc<Inside>) -> InsideTx {
        let receiver = Receiver::new(inside.from.clone());
        InsideTx {
            number,
            inside: inside.clone(),
            receiver,
            lent: Lent::default(),
            taken: Vec::new(),
            blanks: Vec::new(),
        }
    }

    pub fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>, counters: &Counters) {
        self.lent.reclaim(&mut self.blanks);
        let most = BURST.saturating_sub(self.lent.len());
        self.receiver.receive(most, &mut self.taken, &mut self.blanks);
        // Buffers that found no room are freed.
        self.blanks.clear();
        for owned_frame in self.taken.drain(..) {
            match fault(&owned_frame) {
                None => self.lent.push(owned_frame),
                Some(reason) => counters.drop_tx(reason, 1),
            }
        }
        self.inside.lent.store(self.lent.len(), Release);
        self.lent.lend(turn, burst);
    }

    /// Whether these are the function's queues.
    pub fn is_of(&self, inside: &Inside) -> bool {
        Arc::ptr_eq(self.receiver.frame_queue(), &inside.from)
    }

    /// Number of frames that left the queue and were not sent.
    pub fn held(&self) -> usize {
        self.lent.len()
    }

    /// Frees the frames that were not sent, when the function has ended; returns their number.
    pub fn abandon(&self) -> usize {
        self.inside.lent.store(0, Release);
        self.lent.len() + self.receiver.frame_queue().clear()
    }

    /// Whether at least half of the frames that the queue can hold wait.
    pub fn is_half_full(&self) -> bool {
        2 * (self.lent.len() + self.receiver.frame_queue().waiting()) >= QUEUE_FRAMES
    }

    pub fn release(&mut self, frames: usize) {
        self.lent.release(frames);
        self.inside.lent.store(self.lent.len(), Release);
    }

    pub fn arm(&self) -> bool {
        self.lent.is_empty() && self.receiver.frame_queue().arm()
    }

    pub fn disarm(&self) {
        self.receiver.frame_queue().disarm();
    }
}

/// Why a frame of a function can't be sent.
fn fault(owned_frame: &OwnedFrame) -> Option<Reason> {
    let len = owned_frame.len();
    match u32::try_from(len).ok().filter(|len| *len <= LARGEST) {
        None => Some(Reason::Long),
        Some(_) if len < HEADER => Some(Reason::Short),
        Some(len) => owned_frame.offload().check(len, Needs::ALL).err().map(|_| Reason::BadOffload),
    }
}
