//! A queue in our own memory before a port's queues: senders copy frames to it, and the worker of the port copies them
//! on. So no sender accesses the memory of the port's peer, however long such an access takes.

use crate::frame_queue::{FrameQueue, QUEUE_FRAMES, Receiver, Sender};
use ringway_frame::packet::{Lent, OwnedFrame};
use ringway_frame::{BURST, Burst, Caps, CountersRef, LARGEST, Lost, Needs, Reason, RxQueue, TxQueue};
use ringway_mem::Turn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often the queue is looked at again while the other side moves frames.
const TRIES: usize = 16;

/// Both ends of such a queue. `counters` are those of the port, which count frames that found no room.
///
/// Attack: a port that takes no frames. The queue has the bounds of a [`FrameQueue`], and senders never wait for it.
pub fn relay(frame_queue: &Arc<FrameQueue>, counters: CountersRef) -> (Box<dyn RxQueue>, Box<dyn TxQueue>) {
    let dropped = Arc::new(AtomicU64::new(0));
    let rx = RelayRx { sender: Sender::new(frame_queue.clone()), dropped: dropped.clone() };
    let (lent, taken) = (Lent::default(), Vec::new());
    let tx = RelayTx { receiver: Receiver::new(frame_queue.clone()), lent, taken, dropped, counters };
    (Box::new(rx), Box::new(tx))
}

/// The end to which senders copy frames.
struct RelayRx {
    sender: Sender,
    /// Number of frames that found no room. The other end counts them, since it alone writes the port's counters.
    dropped: Arc<AtomicU64>,
}

impl RelayRx {
    /// Copies a frame; `false` if there is no room.
    fn push(&mut self, burst: &Burst<'_>, frame: usize) -> bool {
        if self.sender.room(1) == 0 {
            return false;
        }
        let mut owned_frame = OwnedFrame::large(burst.meta(frame).len as usize);
        let is_filled = owned_frame.fill(burst, frame);
        if is_filled {
            self.sender.push(owned_frame);
        }
        is_filled
    }
}

impl RxQueue for RelayRx {
    fn caps(&mut self, _turn: &Turn<'_>) -> Option<Caps> {
        Some(Caps { offloads: Needs::ALL, largest: LARGEST })
    }

    fn reserve(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
        // The other end has the queue locked only while it moves pointers.
        let _ = (0..TRIES).any(|_| self.sender.room(which.len()) >= which.len());
        which.len()
    }

    fn put(&mut self, _turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let mut lost = Lost::default();
        for &frame in which {
            if !self.push(burst, usize::from(frame)) {
                lost += Lost { frames: 1, bytes: burst.meta(usize::from(frame)).len.into() };
            }
        }
        if lost.frames > 0 {
            self.dropped.fetch_add(lost.frames, Relaxed);
        }
        lost
    }

    fn publish(&mut self, _turn: &Turn<'_>) {
        self.sender.flush();
    }

    fn next_due(&self) -> Option<u64> {
        (self.sender.staged() > 0).then_some(0)
    }
}

/// The end from which the port's worker takes frames.
struct RelayTx {
    receiver: Receiver,
    lent: Lent,
    taken: Vec<OwnedFrame>,
    dropped: Arc<AtomicU64>,
    counters: CountersRef,
}

impl TxQueue for RelayTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        if self.dropped.load(Relaxed) > 0 {
            let dropped = self.dropped.swap(0, Relaxed);
            self.counters.drop_rx(Reason::Full, usize::try_from(dropped).unwrap_or(usize::MAX));
        }
        // Senders make their own buffers.
        let mut blanks = Vec::new();
        self.lent.reclaim(&mut blanks);
        blanks.clear();
        let most = BURST.saturating_sub(self.lent.len());
        self.receiver.receive(most, &mut self.taken, &mut blanks);
        self.taken.drain(..).for_each(|owned_frame| self.lent.push(owned_frame));
        self.lent.lend(turn, burst);
    }

    fn release(&mut self, _turn: &Turn<'_>, frames: usize) {
        self.lent.release(frames);
    }

    fn arm(&mut self, _turn: &Turn<'_>) -> bool {
        self.lent.is_empty() && self.receiver.frame_queue().arm()
    }

    fn disarm(&mut self, _turn: &Turn<'_>) {
        self.receiver.frame_queue().disarm();
    }

    fn is_half_full(&mut self, _turn: &Turn<'_>) -> Option<bool> {
        Some(2 * (self.lent.len() + self.receiver.frame_queue().waiting()) >= QUEUE_FRAMES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::{Offload, Storage};
    use ringway_mem::{Reader, Span};

    #[test]
    fn frames_pass_in_order_and_those_without_room_are_counted() {
        let (queue, counters) = (Arc::new(FrameQueue::default()), CountersRef::private());
        let (mut rx, mut tx) = relay(&queue, counters.clone());
        let mut reader = Reader::register().unwrap();
        let sent: Vec<[u8; 60]> = (0..QUEUE_FRAMES + BURST).map(|frame| [frame as u8; 60]).collect();
        let mut lost = 0;
        for frames in sent.chunks(BURST) {
            let turn = reader.turn(0);
            let mut storage = Storage::default();
            let mut burst = Burst::begin(&mut storage);
            for frame in frames {
                burst.push(Offload::default(), Span::of(frame)).unwrap();
            }
            let which: Vec<u16> = (0..frames.len() as u16).collect();
            assert_eq!(rx.reserve(&turn, &burst, &which), which.len(), "senders never wait");
            lost += rx.put(&turn, &burst, &which).frames;
            rx.publish(&turn);
        }
        assert_eq!(lost, BURST as u64);
        let mut expected = sent[..QUEUE_FRAMES].iter();
        loop {
            let turn = reader.turn(0);
            let mut storage = Storage::default();
            let mut burst = Burst::begin(&mut storage);
            tx.take(&turn, &mut burst);
            for frame in 0..burst.len() {
                let mut bytes = [0; 60];
                burst.read(frame, 0, &mut bytes);
                assert_eq!(Some(&bytes), expected.next());
            }
            let taken = burst.len();
            tx.release(&turn, taken);
            if taken == 0 {
                break;
            }
        }
        assert_eq!(expected.next(), None);
        assert_eq!(counters.rx_drops[Reason::Full as usize].load(Relaxed), BURST as u64);
    }
}
