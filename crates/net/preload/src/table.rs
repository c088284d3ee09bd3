//! The state of each descriptor of this process.

use crate::abi::ADDRESSES;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64};

/// Most descriptors that the library knows; those with larger numbers are the kernel's. Attack: a program that opens
/// as many as it may.
pub const MAX_DESCRIPTORS: usize = 1 << 16;

/// Words with a connection's addresses.
pub const ADDRESS_WORDS: usize = ADDRESSES.div_ceil(8);

/// A descriptor that does not concern the library.
pub const NONE: u32 = 0;
/// A TCP socket of this process alone, which may enter direct mode.
pub const CANDIDATE: u32 = 1;
/// A candidate whose connection is entering the shared stack.
pub const ENTERING: u32 = 2;
/// A TCP socket whose connection is in the shared stack.
pub const DIRECT: u32 = 3;
/// An epoll set.
pub const EPOLL: u32 = 4;
/// A descriptor of the library itself.
pub const LIBRARY: u32 = 5;

/// What the library knows of a descriptor.
#[derive(Debug)]
pub struct Slot {
    pub state: AtomicU32,
    /// Calls on a candidate so far, and the number of the call at which it may enter next.
    pub calls: AtomicU32,
    pub next_try: AtomicU32,
    /// How often the connection has entered.
    pub entries: AtomicU32,
    /// Threads within the kernel's calls on a candidate, or on a set without direct members.
    pub busy: AtomicU32,
    /// Threads that sleep for a set with direct members.
    pub sleepers: AtomicU32,
    /// The place of a socket in the set in which it was found last.
    pub place: AtomicU32,
    /// The program has waited for a candidate by a call that the library sees.
    pub is_awaited: AtomicBool,
    /// The kernel's socket may have bytes that arrived before the connection entered.
    pub may_have_unread: AtomicBool,
    /// The socket listens: while it is direct, connections are accepted in the shared stack.
    pub is_listening: AtomicBool,
    /// A direct connection that was accepted in the shared stack: the agent does not know it, and the kernel's socket
    /// is connected to nothing, and in no epoll set.
    pub is_unknown: AtomicBool,
    /// Its addresses, in the form of the image's.
    pub addresses: [AtomicU64; ADDRESS_WORDS],
    /// The handle of a direct connection; the number of members of an epoll set that the
    /// library serves.
    pub value: AtomicU64,
    /// How long blocking calls may take, in nanoseconds; 0: for ever.
    pub receive_time: AtomicU64,
    pub send_time: AtomicU64,
}

impl Slot {
    const fn new() -> Slot {
        Slot {
            state: AtomicU32::new(NONE),
            calls: AtomicU32::new(0),
            next_try: AtomicU32::new(0),
            entries: AtomicU32::new(0),
            busy: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
            place: AtomicU32::new(0),
            is_awaited: AtomicBool::new(false),
            may_have_unread: AtomicBool::new(false),
            is_listening: AtomicBool::new(false),
            is_unknown: AtomicBool::new(false),
            addresses: [const { AtomicU64::new(0) }; ADDRESS_WORDS],
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

    pub fn listens(&self) -> bool {
        self.is_listening.load(SeqCst)
    }

    /// Whether it is a direct connection that the agent does not know.
    pub fn is_unknown(&self) -> bool {
        self.is(DIRECT) && self.is_unknown.load(SeqCst)
    }
}

static SLOTS: [Slot; MAX_DESCRIPTORS] = [const { Slot::new() }; MAX_DESCRIPTORS];
/// All known descriptors have smaller numbers.
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

/// Gives a new descriptor a state.
pub fn init(fd: i32, state: u32) {
    let Some(slot) = slot(fd) else { return };
    for word in [&slot.calls, &slot.next_try, &slot.entries, &slot.busy, &slot.sleepers] {
        word.store(0, SeqCst);
    }
    for word in [&slot.value, &slot.receive_time, &slot.send_time] {
        word.store(0, SeqCst);
    }
    slot.is_awaited.store(false, SeqCst);
    slot.may_have_unread.store(false, SeqCst);
    slot.is_listening.store(false, SeqCst);
    slot.is_unknown.store(false, SeqCst);
    END.fetch_max(fd + 1, SeqCst);
    slot.state.store(state, SeqCst);
}

/// All that are known, with their states.
pub fn all() -> impl Iterator<Item = (i32, u32)> {
    (0..END.load(SeqCst)).map(|fd| (fd, state(fd))).filter(|(_, state)| *state != NONE)
}
