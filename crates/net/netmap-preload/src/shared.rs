//! What the processes that have a port share about it, behind the memory that programs map.

use crate::Result;
use crate::lock::{Guard, lock};
use crate::monitor::{MONITORS, Words};
use crate::side::Side;
use ringway_mem::Region;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// Bytes of a state.
pub const STATE: u64 = 256;
const _: () = assert!((MONITOR + MONITORS * size_of::<Words>() / 4) * 4 <= STATE as usize);

/// Words of a state.
const LOCK: usize = 0;
/// Counts changes of the port's descriptors.
const VERSION: usize = 1;
/// The process that synced last.
const OWNER: usize = 2;
const FLAGS: usize = 3;
/// Bytes before each frame.
const HEADER: usize = 4;
/// Of a monitor: its program waits for frames.
const WAITING: usize = 5;
/// The buffer that goes from a slot of netmap's to one of the port's ring.
const MOVING: usize = 6;
const SIDES: [usize; 2] = [8, 16];
/// Which monitors a port has, and what is known about each.
const MONITOR_MASK: usize = 24;
const MONITOR: usize = 25;

/// The flag of a port that is lost.
pub const GONE: u32 = 1;
/// The flag of a port in whose rings are buffers of others.
pub const HAS_OTHERS: u32 = 2;

/// A state. Attack: a process that has the memory writes anything at any time; each word is read once, and what it
/// means is checked by its reader.
#[derive(Clone, Debug)]
pub struct State {
    memory: Region,
    at: usize,
}

impl State {
    /// The state at an offset; `None`: it is not within the memory.
    pub fn new(memory: &Region, at: u64) -> Option<State> {
        let is_within = at.is_multiple_of(STATE) && at.checked_add(STATE)? <= memory.len;
        is_within.then(|| State { memory: memory.clone(), at: at as usize })
    }

    fn word(&self, index: usize) -> &AtomicU32 {
        // SAFETY: `new` checked that it is within the memory, which stays mapped, and it is aligned; others access it
        // as an atomic, too.
        unsafe { AtomicU32::from_ptr(self.memory.base().as_ptr().add(self.at + index * 4).cast()) }
    }

    /// Takes the port for this thread alone.
    pub fn lock(&self) -> Result<Guard<'_>> {
        lock(self.word(LOCK))
    }

    pub fn version(&self) -> u32 {
        self.word(VERSION).load(Acquire)
    }

    /// The port's descriptors are others now.
    pub fn set_version(&self, version: u32) {
        self.word(VERSION).store(version, Release);
    }

    /// Makes this process the one that syncs; whether it was before.
    pub fn take(&self, own: u32) -> bool {
        self.word(OWNER).swap(own, Acquire) == own
    }

    pub fn has(&self, flag: u32) -> bool {
        self.word(FLAGS).load(Acquire) & flag != 0
    }

    pub fn set(&self, flag: u32) {
        self.word(FLAGS).fetch_or(flag, Release);
    }

    /// Of a new port.
    pub fn reset(&self) {
        for word in [LOCK, OWNER, FLAGS, HEADER, WAITING, MOVING, MONITOR_MASK] {
            self.word(word).store(0, Release);
        }
    }

    pub fn header_len(&self) -> u32 {
        self.word(HEADER).load(Relaxed)
    }

    pub fn set_header_len(&self, len: u32) {
        self.word(HEADER).store(len, Relaxed);
    }

    /// The buffer that a process was moving when it was killed, if it was.
    pub fn moving(&self) -> u32 {
        self.word(MOVING).load(Acquire)
    }

    pub fn set_moving(&self, buf_idx: u32) {
        self.word(MOVING).store(buf_idx, Release);
    }

    /// Of a monitor: whether its program waits; whether it did before.
    pub fn set_waiting(&self, waits: bool) -> bool {
        self.word(WAITING).swap(waits.into(), Relaxed) != 0
    }

    #[inline]
    pub fn has_monitors(&self) -> bool {
        self.word(MONITOR_MASK).load(Relaxed) != 0
    }

    pub fn has_monitor(&self, index: usize) -> bool {
        self.word(MONITOR_MASK).load(Relaxed) & 1 << index != 0
    }

    /// What is known about a monitor that the port has.
    pub fn monitor(&self, index: usize) -> Option<Words> {
        let at = MONITOR + (index % MONITORS) * size_of::<Words>() / 4;
        let words = std::array::from_fn(|word| self.word(at + word).load(Relaxed));
        self.has_monitor(index).then_some(words)
    }

    pub fn set_monitor(&self, index: usize, words: Words) {
        let at = MONITOR + (index % MONITORS) * size_of::<Words>() / 4;
        for (word, value) in words.into_iter().enumerate() {
            self.word(at + word).store(value, Relaxed);
        }
        self.word(MONITOR_MASK).fetch_or(1 << index, Release);
    }

    pub fn remove_monitor(&self, index: usize) {
        self.word(MONITOR_MASK).fetch_and(!(1 << index), Release);
    }

    /// The positions of a ring of `slots` slots; `None`: impossible ones.
    pub fn side(&self, dir: usize, slots: u32) -> Option<Side> {
        let word = |index| self.word(SIDES[dir & 1] + index).load(Relaxed);
        let [head, cur, tail, next] = [0, 1, 2, 3].map(word);
        let is_possible = slots == 0 || [head, cur, tail, next].into_iter().all(|at| at < slots);
        is_possible.then_some(Side { slots, head, cur, tail, next, is_full: word(4) != 0 })
    }

    pub fn set_side(&self, dir: usize, side: &Side) {
        let words = [side.head, side.cur, side.tail, side.next, u32::from(side.is_full)];
        for (index, value) in words.into_iter().enumerate() {
            self.word(SIDES[dir & 1] + index).store(value, Relaxed);
        }
    }
}
