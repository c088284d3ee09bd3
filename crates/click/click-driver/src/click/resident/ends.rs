//! The function's ends of its ports: the queues of each, on the function's thread.

use ringway_click::Pool;
use ringway_frame::add;
use ringway_frame::packet::{Blank, OwnedFrame, PacketBurst, Unpacked};
use ringway_port::frame_queue::{Inside, Left, QUEUE_FRAMES, Receiver, Sender};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

thread_local! {
    /// The ends of the function whose configuration is being built on this thread, by port.
    static BUILDING: RefCell<BTreeMap<String, Rc<RefCell<Ends>>>> = RefCell::default();
}

/// Both queues of a port. Elements of successive configurations share it.
pub(super) struct Ends {
    /// Nanoseconds for which the queue is polled after the last frame.
    spin: u64,
    /// When the function's turn began, on the machine's clock: a configuration may slow its own down.
    pub now: u64,
    /// When frames last came.
    last: Option<u64>,
    /// Whether FromPort waits for frames, and nothing wakes the function for them.
    polls: bool,
    /// Stands for a descriptor: reported as readable when there are frames, as writable when there is room.
    pub descriptor: i32,
    pub inside: Arc<Inside>,
    receiver: Receiver,
    sender: Sender,
    /// The function that gets the frames in place of the port, as of `changes`.
    next: Option<Arc<Inside>>,
    changes: u64,
    /// Whether the function that gets the frames changed, so that an element that waits for room must look again.
    has_turned: bool,
    /// Frames for it that were not flushed, and their bytes.
    handed: (u64, u64),
    /// Number of buffers that the queue to the function lacks, at the last look.
    missing: usize,
    taken: Vec<OwnedFrame>,
    blanks: Vec<Blank>,
}

impl Ends {
    pub fn new(number: usize, inside: Arc<Inside>, spin: u64) -> Ends {
        Ends {
            spin,
            now: 0,
            last: None,
            polls: false,
            // Descriptors of the system are not negative.
            descriptor: -2 - i32::try_from(number).unwrap_or(0),
            receiver: Receiver::new(inside.to.clone()),
            sender: Sender::new(inside.from.clone()),
            inside,
            next: None,
            changes: 0,
            has_turned: false,
            handed: (0, 0),
            missing: QUEUE_FRAMES,
            taken: Vec::new(),
            blanks: Vec::new(),
        }
    }

    /// Takes up to `most` frames off the queue, of which none are left from before; buffers of `pool` replace them.
    /// Returns whether more wait.
    #[inline]
    pub fn receive(&mut self, most: usize, pool: &Pool) -> bool {
        let more = self.missing.saturating_sub(self.blanks.len()).min(most);
        pool.blanks(more, &mut self.blanks);
        let left = self.exchange(most);
        // What the queue can't use is not lost.
        pool.keep(&mut self.blanks);
        left.is_none_or(|left| left.frames > 0)
    }

    /// Whether the last [`Ends::receive`] took frames.
    #[inline]
    pub fn has_frames(&self) -> bool {
        !self.taken.is_empty()
    }

    /// Appends those frames, received at `timestamp`, to a burst with room for them.
    #[inline]
    pub fn unpack(&mut self, burst: &mut PacketBurst, pool: &Pool, timestamp: u64) -> Unpacked {
        self.last = Some(self.now);
        pool.unpack_all(&mut self.taken, burst, timestamp)
    }

    #[inline]
    fn exchange(&mut self, most: usize) -> Option<Left> {
        let left = self.receiver.receive(most, &mut self.taken, &mut self.blanks);
        self.missing = left.map_or(self.missing, |left| left.missing);
        left
    }

    /// Gives the port all buffers that frames for the function may use.
    pub fn stock(&mut self, pool: &Pool) {
        pool.blanks(self.missing.saturating_sub(self.blanks.len()), &mut self.blanks);
        self.exchange(0);
    }

    /// Whether the port has all buffers that frames may use.
    pub fn is_stocked(&self) -> bool {
        self.missing == 0
    }

    /// Call when there are no frames: they are polled for a while, then they wake the function. `false` if there are
    /// some already.
    pub fn rest(&mut self) -> bool {
        self.polls = !self.is_over(self.now);
        self.polls || self.receiver.frame_queue().arm()
    }

    fn is_over(&self, now: u64) -> bool {
        self.last.is_none_or(|last| now.saturating_sub(last) >= self.spin)
    }

    /// Whether the queue is polled.
    pub fn polls(&self) -> bool {
        self.polls
    }

    /// Whether the queue is polled and has frames. Polling ends some time after the last frame; then frames wake the
    /// function.
    pub fn poll(&mut self, now: u64) -> bool {
        if self.polls && self.is_over(now) && self.receiver.frame_queue().arm() {
            self.polls = false;
        }
        self.polls && !self.receiver.frame_queue().is_empty()
    }

    /// Whether the queue is polled and has frames, which end polling.
    pub fn found(&mut self) -> bool {
        let found = self.polls && !self.receiver.frame_queue().is_empty();
        self.polls &= !found;
        found
    }

    pub fn disarm(&self) {
        self.receiver.frame_queue().disarm();
    }

    /// Looks where frames go now.
    #[inline]
    fn follow(&mut self) {
        let changes = self.inside.changes();
        // Frames on their way through the port come first.
        if changes != self.changes && (self.next.is_some() || self.inside.is_sent()) {
            self.turn(changes);
        }
    }

    #[cold]
    fn turn(&mut self, changes: u64) {
        (self.changes, self.next) = (changes, self.inside.next());
        let frame_queue = self.next.as_ref().map_or(&self.inside.from, |next| &next.to);
        self.sender.turn_to(frame_queue.clone());
        (self.handed, self.has_turned) = ((0, 0), true);
    }

    /// Whether the receiver takes frames with checksums to fill and segmentation to do; a port completes them.
    pub fn takes_offloads(&self) -> bool {
        self.next.as_ref().is_none_or(|next| next.offloads.load(Relaxed))
    }

    /// Room for frames to the port, at least `wanted` if there is.
    #[inline]
    pub fn room(&mut self, wanted: usize) -> usize {
        self.follow();
        self.sender.room(wanted)
    }

    pub fn wait_for_room(&mut self) -> bool {
        self.sender.wait_for_room()
    }

    /// Appends a frame to the port, for which there is room.
    #[inline]
    pub fn push(&mut self, owned_frame: OwnedFrame) {
        if self.next.is_some() {
            self.handed.0 += 1;
            self.handed.1 += owned_frame.len() as u64;
        }
        self.sender.push(owned_frame);
    }

    /// Appends the packets of a burst, for which there is room, if all are of the usual kind ([`Pool::pack`]). Returns
    /// the number of their bytes.
    #[inline]
    pub fn push_all(&mut self, burst: &mut PacketBurst, pool: &Pool) -> Option<u64> {
        let count = burst.len() as u64;
        let bytes = self.sender.push_all(|staged| pool.pack(burst, staged))?;
        if self.next.is_some() {
            self.handed.0 += count;
            self.handed.1 += bytes;
        }
        Some(bytes)
    }

    /// Sends the frames, and returns buffers of frames that were sent to `pool`. `false` if it must be called again.
    pub fn flush(&mut self, pool: &Pool) -> bool {
        if self.sender.staged() == 0 {
            return true;
        }
        self.follow();
        // As many buffers as leave: another function that gets frames replaces each.
        self.sender.blanks(self.sender.staged(), &mut self.blanks);
        pool.keep(&mut self.blanks);
        let is_flushed = self.sender.flush();
        if is_flushed && let Some(next) = &self.next {
            // As if the ports had passed them on; nobody else writes these counters meanwhile.
            let (frames, bytes) = std::mem::take(&mut self.handed);
            let (own, other) = (&*self.inside.counters, &*next.counters);
            add(&own.tx_frames, frames);
            add(&own.tx_bytes, bytes);
            add(&other.rx_frames, frames);
            add(&other.rx_bytes, bytes);
        }
        is_flushed
    }

    /// What the function must look at: frames, room.
    pub fn ready(&mut self) -> (bool, bool) {
        self.follow();
        let may_have_room = std::mem::take(&mut self.has_turned) || self.sender.frame_queue().has_room();
        (self.inside.to.has_frames(), may_have_room)
    }
}

/// Runs `build` with these ends for elements of the ports; returns its result. Afterwards the previous ends are
/// restored, also after a panic.
pub(super) fn with<R>(ends: &[Rc<RefCell<Ends>>], build: impl FnOnce() -> R) -> R {
    let name = |ends: &Rc<RefCell<Ends>>| ends.borrow().inside.port.clone();
    let own = ends.iter().map(|ends| (name(ends), ends.clone())).collect();
    let _former = Former(BUILDING.replace(own));
    build()
}

struct Former(BTreeMap<String, Rc<RefCell<Ends>>>);

impl Drop for Former {
    fn drop(&mut self) {
        BUILDING.replace(std::mem::take(&mut self.0));
    }
}

/// The ends of a port of the function that is being built.
pub(super) fn of(port: &str) -> Option<Rc<RefCell<Ends>>> {
    BUILDING.with_borrow(|all| all.get(port).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inherited::{self, Inherited};
    use ringway_frame::CountersRef;
    use ringway_port::{Doorbell, Silent};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_panic_leaves_no_ends_behind() {
        let bell: Arc<dyn Doorbell> = Arc::new(Silent);
        let ends = Ends::new(0, Inside::new("f", "a", &bell, CountersRef::private()), 0);
        let ends = [Rc::new(RefCell::new(ends))];
        let inherited = || Some(Inherited { ports: vec!["a".into()], ..Inherited::default() });
        let build = || {
            assert!(of("a").is_some() && inherited::check_port("b").is_err());
            panic!("as this test wants it");
        };
        let built = catch_unwind(AssertUnwindSafe(|| inherited::with(inherited(), || with(&ends, build))));
        assert!(built.is_err() && of("a").is_none() && inherited::check_port("b").is_ok());
        let (there, rest) = inherited::with(inherited(), || with(&ends, || of("a").is_some()));
        assert!(there && rest.is_some_and(|rest| rest.ports == ["a"]) && of("a").is_none());
    }
}
