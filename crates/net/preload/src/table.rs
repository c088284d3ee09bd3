//! What each descriptor of this process is to the library.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

/// Descriptors that are known; those with larger numbers are the kernel's. Attack: a program that opens as many as it
/// may.
pub const MOST: usize = 1 << 16;

/// Nothing that concerns the library.
pub const NONE: u32 = 0;
/// A TCP socket of this process alone, which may enter direct mode.
pub const CANDIDATE: u32 = 1;
/// One that is on its way.
pub const ENTERING: u32 = 2;
/// Its connection is in the shared stack.
pub const DIRECT: u32 = 3;
/// An epoll set.
pub const SET: u32 = 4;
/// The library's own.
pub const OWN: u32 = 5;

/// A descriptor.
#[derive(Debug)]
pub struct Slot {
    pub state: AtomicU32,
    /// Calls on a candidate so far, and when it is tried next.
    pub calls: AtomicU32,
    pub next: AtomicU32,
    /// How often it has entered.
    pub entries: AtomicU32,
    /// Threads within the kernel's calls on a candidate, or on a set without direct members.
    pub busy: AtomicU32,
    /// Its program has waited for a candidate by a call that the library sees.
    pub is_awaited: AtomicBool,
    /// Bytes that came before may be in the socket.
    pub has_rest: AtomicBool,
    /// Of a direct one: its handle. Of a set: how many of its members are direct.
    pub value: AtomicU64,
    /// How long its blocking calls may take, in nanoseconds; 0: for ever.
    pub receive_time: AtomicU64,
    pub send_time: AtomicU64,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            state: AtomicU32::new(NONE),
            calls: AtomicU32::new(0),
            next: AtomicU32::new(0),
            entries: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            is_awaited: AtomicBool::new(false),
            has_rest: AtomicBool::new(false),
            value: AtomicU64::new(0),
            receive_time: AtomicU64::new(0),
            send_time: AtomicU64::new(0),
        }
    }

    pub fn is(&self, state: u32) -> bool {
        self.state.load(SeqCst) == state
    }

    pub fn handle(&self) -> u64 {
        self.value.load(SeqCst)
    }
}

static SLOTS: [Slot; MOST] = [const { Slot::new() }; MOST];
/// No descriptor that is known has this number or a larger one.
static END: AtomicI32 = AtomicI32::new(0);

/// A descriptor, if it can be known.
pub fn slot(fd: i32) -> Option<&'static Slot> {
    SLOTS.get(usize::try_from(fd).ok()?)
}

/// A descriptor that is known to be something.
pub fn known(fd: i32) -> Option<&'static Slot> {
    slot(fd).filter(|slot| slot.state.load(Relaxed) != NONE)
}

/// The state of a descriptor.
pub fn state(fd: i32) -> u32 {
    slot(fd).map_or(NONE, |slot| slot.state.load(SeqCst))
}

/// A new descriptor is this.
pub fn begin(fd: i32, state: u32) {
    let Some(slot) = slot(fd) else { return };
    for word in [&slot.calls, &slot.next, &slot.entries, &slot.busy] {
        word.store(0, SeqCst);
    }
    for word in [&slot.value, &slot.receive_time, &slot.send_time] {
        word.store(0, SeqCst);
    }
    slot.is_awaited.store(false, SeqCst);
    slot.has_rest.store(false, SeqCst);
    END.fetch_max(fd + 1, SeqCst);
    slot.state.store(state, SeqCst);
}

/// All that are known, with their states.
pub fn all() -> impl Iterator<Item = (i32, u32)> {
    (0..END.load(SeqCst)).map(|fd| (fd, state(fd))).filter(|(_, state)| *state != NONE)
}
