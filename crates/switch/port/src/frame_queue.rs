//! Owned frames on their way between a port and a function of this process, or between two such functions.
//!
//! A [`FrameQueue`] is one direction. Its locks are held for moving a few pointers, and only tried: a side that finds
//! the queue locked tries again in its next turn.

use crate::Doorbell;
use ringway_frame::packet::{Blank, OwnedFrame, SMALL};
use ringway_frame::{CountersRef, Reason};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Largest number of frames that wait in a queue, and of buffers that are ready for further ones.
///
/// Attack: a port that gets more frames than its function handles; each frame occupies 2 KB.
pub const QUEUE_FRAMES: usize = 512;
/// Bytes of frames longer than that from which a queue has no room. What both sides do in a turn may exceed it.
///
/// Attack: a port that gets more frames of 64 KB than its function handles.
const LONG: usize = 4 << 20;

#[derive(Default)]
struct Stock {
    frames: Vec<OwnedFrame>,
    /// Buffers without frames, on their way from the receiver to the sender.
    blanks: Vec<Blank>,
    /// Bytes of the frames that need a larger buffer than a usual one.
    long: usize,
}

impl Stock {
    fn room(&self) -> usize {
        if self.long >= LONG { 0 } else { QUEUE_FRAMES.saturating_sub(self.frames.len()) }
    }

    /// Call before the first `count` frames leave.
    #[inline]
    fn leave(&mut self, count: usize) {
        if self.long > 0 {
            let lengths = self.frames.iter().take(count).map(OwnedFrame::len);
            self.long -= lengths.filter(|length| *length > SMALL).sum::<usize>().min(self.long);
        }
    }
}

/// One direction.
#[derive(Default)]
pub struct FrameQueue {
    stock: Mutex<Stock>,
    /// Set while the receiver must be woken for frames.
    armed: AtomicBool,
    /// Set while the sender must be woken for room.
    starved: AtomicBool,
    receiver: Mutex<Option<Arc<dyn Doorbell>>>,
    sender: Mutex<Option<Arc<dyn Doorbell>>>,
}

fn ring(bell: &Mutex<Option<Arc<dyn Doorbell>>>) {
    // The lock is held only for a wake-up, or a store.
    bell.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|bell| bell.wake());
}

impl FrameQueue {
    fn stock(&self) -> Option<MutexGuard<'_, Stock>> {
        match self.stock.try_lock() {
            Ok(stock) => Some(stock),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Sets the doorbell of the side that receives.
    pub fn wakes_receiver(&self, bell: Arc<dyn Doorbell>) {
        *self.receiver.lock().unwrap_or_else(PoisonError::into_inner) = Some(bell);
    }

    /// Sets the doorbell of the side that sends.
    pub fn wakes_sender(&self, bell: Arc<dyn Doorbell>) {
        *self.sender.lock().unwrap_or_else(PoisonError::into_inner) = Some(bell);
    }

    /// Whether the receiver, having armed the queue, must look at it.
    pub fn has_frames(&self) -> bool {
        !self.armed.load(SeqCst) && self.stock().is_none_or(|stock| !stock.frames.is_empty())
    }

    /// Whether the sender waited for room and must look again.
    pub fn has_room(&self) -> bool {
        !self.starved.load(SeqCst) && self.stock().is_none_or(|stock| stock.room() > 0)
    }

    /// Makes the sender wake the receiver for the next frames; `false` if there are frames already.
    pub fn arm(&self) -> bool {
        self.armed.store(true, SeqCst);
        let is_empty = self.stock().is_some_and(|stock| stock.frames.is_empty());
        if !is_empty {
            self.armed.store(false, SeqCst);
        }
        is_empty
    }

    /// Whether it has no frames.
    pub fn is_empty(&self) -> bool {
        self.stock().is_some_and(|stock| stock.frames.is_empty())
    }

    /// Number of frames that wait; 0 if it is locked now.
    pub fn waiting(&self) -> usize {
        self.stock().map_or(0, |stock| stock.frames.len())
    }

    /// Frees its frames; returns their number.
    pub fn clear(&self) -> usize {
        let mut stock = self.stock.lock().unwrap_or_else(PoisonError::into_inner);
        stock.long = 0;
        let frames = std::mem::take(&mut stock.frames);
        drop(stock);
        frames.len()
    }

    /// The receiver looks by itself from now on.
    pub fn disarm(&self) {
        self.armed.store(false, SeqCst);
    }
}

/// Moves all frames behind those of `to`; without a copy if it has none.
#[inline]
fn move_all(from: &mut Vec<OwnedFrame>, to: &mut Vec<OwnedFrame>) {
    if to.is_empty() {
        std::mem::swap(from, to);
    } else {
        to.append(from);
    }
}

/// The side of a queue that sends. Frames are visible to the receiver after [`Sender::flush`].
pub struct Sender {
    frame_queue: Arc<FrameQueue>,
    staged: Vec<OwnedFrame>,
    /// Bytes of those that need a larger buffer than a usual one.
    long: usize,
    /// Room for frames, staged ones included, at the last look.
    room: usize,
}

impl Sender {
    /// The sender of a queue.
    pub fn new(frame_queue: Arc<FrameQueue>) -> Sender {
        Sender { frame_queue, staged: Vec::new(), long: 0, room: 0 }
    }

    /// The queue.
    pub fn frame_queue(&self) -> &Arc<FrameQueue> {
        &self.frame_queue
    }

    /// Sends to another queue from now on; frames that were not flushed go there.
    pub fn turn_to(&mut self, frame_queue: Arc<FrameQueue>) {
        (self.frame_queue, self.room) = (frame_queue, 0);
    }

    /// Number of frames that were not flushed.
    pub fn staged(&self) -> usize {
        self.staged.len()
    }

    /// Room for further frames: at least `wanted` if the queue has it.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        if self.long >= LONG {
            return 0;
        }
        if self.room < self.staged.len() + wanted
            && let Some(stock) = self.frame_queue.stock()
        {
            self.room = stock.room();
        }
        self.room.saturating_sub(self.staged.len())
    }

    /// Whether at least half of the queue's buffers hold frames that wait; the sender has `blanks` more without frames.
    /// The receiver replaces buffers as it takes frames, so that a busy queue has fewer than [`QUEUE_FRAMES`].
    pub fn is_half_full(&self, blanks: usize) -> bool {
        self.frame_queue.stock().is_some_and(|stock| {
            let (waiting, ready) = (stock.frames.len() + self.staged.len(), stock.blanks.len() + blanks);
            waiting > 0 && waiting >= ready
        })
    }

    /// Makes the receiver wake the sender when there is room; `false` if there is some already, or if the queue is
    /// locked now: the receiver may just have taken frames, and does not wake the sender for those.
    pub fn wait_for_room(&mut self) -> bool {
        self.frame_queue.starved.store(true, SeqCst);
        let is_full = self.frame_queue.stock().is_some_and(|stock| {
            self.room = stock.room();
            self.room <= self.staged.len() || self.long >= LONG
        });
        if !is_full {
            self.frame_queue.starved.store(false, SeqCst);
        }
        is_full
    }

    /// Moves up to `most` empty buffers that the receiver gave back to `to`.
    #[inline]
    pub fn blanks(&mut self, most: usize, to: &mut Vec<Blank>) {
        if let Some(mut stock) = self.frame_queue.stock() {
            let kept = stock.blanks.len().saturating_sub(most);
            to.extend(stock.blanks.drain(kept..));
        }
    }

    /// Appends a frame for which there is room.
    #[inline]
    pub fn push(&mut self, owned_frame: OwnedFrame) {
        if owned_frame.len() > SMALL {
            self.long += owned_frame.len();
        }
        self.staged.push(owned_frame);
    }

    /// Appends frames of the usual size by `append`, which returns what it did; there is room for them.
    #[inline]
    pub fn push_all<R>(&mut self, append: impl FnOnce(&mut Vec<OwnedFrame>) -> R) -> R {
        append(&mut self.staged)
    }

    /// Makes the frames visible, and wakes the receiver if it waits; `false` if the queue is locked now.
    #[inline]
    pub fn flush(&mut self) -> bool {
        if self.staged.is_empty() {
            return true;
        }
        let Some(mut stock) = self.frame_queue.stock() else { return false };
        move_all(&mut self.staged, &mut stock.frames);
        stock.long += std::mem::take(&mut self.long);
        self.room = stock.room();
        drop(stock);
        if self.frame_queue.armed.load(SeqCst) && self.frame_queue.armed.swap(false, SeqCst) {
            ring(&self.frame_queue.receiver);
        }
        true
    }
}

/// The side of a queue that receives.
pub struct Receiver {
    frame_queue: Arc<FrameQueue>,
}

impl Receiver {
    /// The receiver of a queue.
    pub fn new(frame_queue: Arc<FrameQueue>) -> Receiver {
        Receiver { frame_queue }
    }

    /// The queue.
    pub fn frame_queue(&self) -> &Arc<FrameQueue> {
        &self.frame_queue
    }

    /// Moves up to `most` frames, in order, to `to`, and the empty buffers `blanks` to the sender, as many as it can
    /// use. Returns what is left; `None` if the queue is locked now, and nothing is moved.
    #[inline]
    pub fn receive(
        &mut self,
        most: usize,
        to: &mut Vec<OwnedFrame>,
        blanks: &mut Vec<Blank>,
    ) -> Option<Left> {
        let mut stock = self.frame_queue.stock()?;
        let count = most.min(stock.frames.len());
        stock.leave(count);
        if count == stock.frames.len() {
            move_all(&mut stock.frames, to);
        } else {
            to.extend(stock.frames.drain(..count));
        }
        let room = QUEUE_FRAMES.saturating_sub(stock.blanks.len());
        stock.blanks.extend(blanks.drain(blanks.len().saturating_sub(room)..));
        let (frames, ready) = (stock.frames.len(), stock.blanks.len());
        drop(stock);
        if count > 0 && self.frame_queue.starved.load(SeqCst) && self.frame_queue.starved.swap(false, SeqCst)
        {
            ring(&self.frame_queue.sender);
        }
        Some(Left { frames, missing: QUEUE_FRAMES.saturating_sub(ready + frames) })
    }
}

/// A queue after a look at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Number of frames that wait.
    pub frames: usize,
    /// Number of empty buffers that the sender can use in addition.
    pub missing: usize,
}

/// What a port shares with the function of this process that has it.
pub struct Inside {
    /// The function's name.
    pub function: String,
    /// The port's name.
    pub port: String,
    /// Frames to the function.
    pub to: Arc<FrameQueue>,
    /// Frames from the function.
    pub from: Arc<FrameQueue>,
    /// Whether the function takes frames with checksums to fill and segmentation to do.
    pub offloads: AtomicBool,
    /// The counters of the port.
    pub counters: CountersRef,
    bell: Arc<dyn Doorbell>,
    /// The function that gets the frames in place of the port, and how often that changed.
    next: Mutex<Option<Arc<Inside>>>,
    changes: AtomicU64,
    /// Number of frames that the port has taken and not sent.
    pub lent: AtomicUsize,
}

impl std::fmt::Debug for Inside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inside").field("function", &self.function).field("port", &self.port).finish()
    }
}

impl Inside {
    /// The queues of `port`, which has these counters, and `function`, which `bell` wakes.
    pub fn new(function: &str, port: &str, bell: &Arc<dyn Doorbell>, counters: CountersRef) -> Arc<Inside> {
        let inside = Inside {
            function: function.into(),
            port: port.into(),
            to: Arc::default(),
            from: Arc::default(),
            offloads: AtomicBool::new(false),
            counters,
            bell: bell.clone(),
            next: Mutex::default(),
            changes: AtomicU64::new(0),
            lent: AtomicUsize::new(0),
        };
        inside.to.wakes_receiver(bell.clone());
        inside.from.wakes_sender(bell.clone());
        Arc::new(inside)
    }

    /// Frames of the function go to the function of `next`, by ownership; with `None` to the port.
    pub fn hand_to(&self, next: Option<&Arc<Inside>>) {
        // The lock is held only for a store or a clone.
        let mut own = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let is_same = match (&*own, next) {
            (Some(own), Some(next)) => Arc::ptr_eq(own, next),
            (own, next) => own.is_none() && next.is_none(),
        };
        if is_same {
            return;
        }
        next.into_iter().for_each(|next| next.to.wakes_sender(self.bell.clone()));
        let former = std::mem::replace(&mut *own, next.cloned());
        drop(own);
        drop(former);
        self.changes.fetch_add(1, SeqCst);
        // A sender may wait for room in the former queue.
        self.bell.wake();
    }

    /// The function that gets the frames in place of the port.
    pub fn next(&self) -> Option<Arc<Inside>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often [`Inside::next`] changed.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes.load(Acquire)
    }

    /// Whether the port has sent all frames of the function.
    pub fn is_sent(&self) -> bool {
        self.from.is_empty() && self.lent.load(Acquire) == 0
    }

    /// Whether no frame waits in its queues.
    pub fn is_quiet(&self) -> bool {
        self.to.is_empty() && self.is_sent()
    }

    /// Counts the frames for the function, which has ended, as dropped.
    pub fn abandon(&self) {
        let lost = self.to.clear();
        if lost > 0 {
            self.counters.drop_rx(Reason::Down, lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_frame::packet::Pool;
    use std::os::fd::OwnedFd;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Doorbell for Count {
        fn wake(&self) {
            self.0.fetch_add(1, SeqCst);
        }

        fn watch(&self, _kick: Arc<OwnedFd>) {}

        fn unwatch(&self) {}
    }

    fn frame(pool: &Pool, byte: u8) -> OwnedFrame {
        pool.copy(&[byte; 60]).unwrap().into_parcel()
    }

    #[test]
    fn each_side_is_woken_once_when_it_waits() {
        let (pool, bell) = (Pool::new(), Arc::new(Count::default()));
        let frame_queue = Arc::new(FrameQueue::default());
        frame_queue.wakes_receiver(bell.clone());
        let (mut sender, mut receiver) =
            (Sender::new(frame_queue.clone()), Receiver::new(frame_queue.clone()));
        assert!(frame_queue.arm());
        for byte in 0..2 {
            assert!(sender.room(1) > 0);
            sender.push(frame(&pool, byte));
            assert!(sender.flush());
        }
        assert_eq!(bell.0.load(SeqCst), 1, "the second frame finds the receiver awake");
        assert!(!frame_queue.arm() && frame_queue.has_frames());
        let (mut got, mut blanks) = (Vec::new(), vec![pool.blank()]);
        assert_eq!(
            receiver.receive(64, &mut got, &mut blanks),
            Some(Left { frames: 0, missing: QUEUE_FRAMES - 1 })
        );
        assert_eq!(got.iter().map(|owned_frame| owned_frame.data()[0]).collect::<Vec<_>>(), [0, 1]);
        sender.blanks(64, &mut blanks);
        assert_eq!(blanks.len(), 1);
    }

    #[test]
    fn a_full_lane_has_no_room() {
        let (pool, bell) = (Pool::new(), Arc::new(Count::default()));
        let frame_queue = Arc::new(FrameQueue::default());
        frame_queue.wakes_sender(bell.clone());
        let (mut sender, mut receiver) =
            (Sender::new(frame_queue.clone()), Receiver::new(frame_queue.clone()));
        while sender.room(1) > 0 {
            sender.push(frame(&pool, 0));
        }
        assert!(sender.flush() && sender.room(1) == 0);
        assert!(sender.wait_for_room() && !frame_queue.has_room());
        let mut got = Vec::new();
        assert_eq!(
            receiver.receive(1, &mut got, &mut Vec::new()),
            Some(Left { frames: QUEUE_FRAMES - 1, missing: 1 })
        );
        assert!(bell.0.load(SeqCst) == 1 && frame_queue.has_room() && sender.room(2) == 1 && got.len() == 1);
    }

    #[test]
    fn bytes_of_long_frames_are_limited() {
        let (pool, bell) = (Pool::new(), Arc::new(Count::default()));
        let frame_queue = Arc::new(FrameQueue::default());
        frame_queue.wakes_sender(bell.clone());
        let (mut sender, mut receiver) =
            (Sender::new(frame_queue.clone()), Receiver::new(frame_queue.clone()));
        let long = || pool.copy(&[0; 65_000]).unwrap().into_parcel();
        let mut sent = 0;
        while sender.room(1) > 0 {
            sender.push(long());
            sent += 1;
        }
        assert!((LONG..LONG + 65_000).contains(&(sent * 65_000)), "staged frames count");
        assert!(sender.flush() && sender.room(1) == 0 && sender.wait_for_room() && !frame_queue.has_room());
        let mut got = Vec::new();
        assert!(receiver.receive(1, &mut got, &mut Vec::new()).is_some());
        assert!(bell.0.load(SeqCst) == 1 && frame_queue.has_room() && sender.room(1) > 0);
        sender.push(frame(&pool, 1));
        assert!(sender.flush() && receiver.receive(QUEUE_FRAMES, &mut got, &mut Vec::new()).is_some());
        assert!(got.len() == sent + 1 && frame_queue.stock().is_some_and(|stock| stock.long == 0));
    }

    #[test]
    fn frames_are_handed_to_another_function_while_it_is_next() {
        let (pool, bell) = (Pool::new(), Arc::new(Count::default()));
        let wake: Arc<dyn Doorbell> = bell.clone();
        let [one, other] = ["one", "other"].map(|name| Inside::new(name, "p", &wake, CountersRef::private()));
        let mut sender = Sender::new(one.from.clone());
        one.hand_to(Some(&other));
        one.hand_to(Some(&other));
        assert_eq!((one.changes(), bell.0.load(SeqCst)), (1, 1));
        sender.push(frame(&pool, 1));
        sender.turn_to(one.next().unwrap().to.clone());
        assert!(sender.room(1) > 0 && sender.flush() && one.is_quiet() && !other.is_quiet());
        one.hand_to(None);
        assert!(one.next().is_none() && one.changes() == 2);
        other.abandon();
        assert!(other.is_quiet());
        assert_eq!(other.counters.rx_drops[Reason::Down as usize].load(SeqCst), 1);
    }

    #[test]
    fn a_sender_does_not_wait_while_it_does_not_know_whether_there_is_room() {
        let frame_queue = Arc::new(FrameQueue::default());
        let mut sender = Sender::new(frame_queue.clone());
        {
            let _locked = frame_queue.stock().unwrap();
            assert!(!sender.wait_for_room(), "the frame_queue may have room");
        }
        assert!(!frame_queue.starved.load(SeqCst) && frame_queue.has_room());
        let pool = Pool::new();
        (0..QUEUE_FRAMES).for_each(|_| sender.push(pool.blank().into()));
        assert!(sender.flush() && sender.wait_for_room(), "the frame_queue is full");
        assert!(frame_queue.starved.load(SeqCst));
    }
}
