//! The counters of queues, in memory that other processes may read.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

macro_rules! reasons {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal,)*) => {
        /// Why a frame was dropped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Reason { $($(#[doc = $doc])* $name,)* }

        impl Reason {
            /// Every reason, in the order of the counters of drops.
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// Number of reasons.
            pub const COUNT: usize = Reason::ALL.len();

            /// The name in logs, statistics and the API.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// The destination stayed full for longer than `hold`.
    Full = "full",
    /// The destination is unavailable: its peer is disconnected, or its ring is disabled.
    Down = "down",
    /// No destination port: the switch has no ports, or the lookup finds none.
    NoPort = "no-port",
    /// The destination is the port that the frame came from.
    Hairpin = "hairpin",
    /// Shorter than an Ethernet header.
    Short = "short",
    /// Longer than the destination accepts, or than any frame may be.
    Long = "long",
    /// The frame's offload metadata is inconsistent.
    BadOffload = "bad-offload",
    /// The destination lacks an offload, and software can't do it for this frame.
    NoOffload = "no-offload",
    /// The frame's descriptors violate the ring's rules.
    BadDescriptor = "bad-descriptor",
    /// The frame's address is outside the memory that the peer shared.
    BadAddress = "bad-address",
    /// The operating system refused the frame.
    System = "system",
    /// The frame's source address is a group address, or one known at another port of a switch that refuses moves.
    BadSource = "bad-source",
    /// Another worker held the destination's queue for longer than `hold`.
    Busy = "busy",
    /// The destination NIC's filters don't accept the frame's address or VLAN.
    Filtered = "filtered",
    /// An emulated link lost it.
    Lost = "lost",
    /// The queue of an emulated link dropped it before it was full.
    Early = "early",
    /// A frame of a protocol between neighbours, such as PAUSE, which a switch does not forward (IEEE 802.1Q, 8.6.3).
    Reserved = "reserved",
    /// What a tunnel carries violates its rules: a truncated header, reserved flags, an unknown version or
    /// payload, or a
    /// mark of congestion on a packet that can't have one (RFC 6040, 4.2).
    BadTunnel = "bad-tunnel",
    /// A frame of another network than the tunnel's (VNI).
    WrongNetwork = "wrong-network",
    /// A tunnel's header has a critical option, none of which is known (RFC 8926, 3.5.1).
    CriticalOption = "critical-option",
    /// A datagram for a tunnel from an address that is not the peer's.
    WrongPeer = "wrong-peer",
    /// The port that it comes from, or is for, does not carry the frame's VLAN.
    WrongVlan = "wrong-vlan",
    /// Both its port and the destination are isolated.
    Isolated = "isolated",
    /// It claims an address that its port may not use.
    Spoofed = "spoofed",
    /// A message of a router or of a DHCP server, from a port that may be neither.
    Rogue = "rogue",
    /// Its headers can't be read, and its port may not use every address.
    Unreadable = "unreadable",
    /// Its port sent more than its rate.
    RateFrom = "rate-from",
    /// The destination gets more than its rate.
    RateTo = "rate-to",
    /// It would be flooded, and its port has sent too many such frames.
    Storm = "storm",
    /// No flow of the switch's tables sends it anywhere.
    Flow = "flow",
    /// It is beyond the rate of a meter of the switch's flows.
    Meter = "meter",
    /// The switch's flows have no end for it, or make too many copies.
    FlowLimit = "flow-limit",
    /// Its headers are longer than those by which flows are looked up.
    LongHeaders = "long-headers",
}

/// Number of reasons whose counters are adjacent, in [`Counters::tx_drops`] and [`Counters::rx_drops`]. Those of later
/// reasons are elsewhere, so that the layout stays that of the first format.
pub const FIRST_REASONS: usize = 21;
const LATER_REASONS: usize = Reason::COUNT - FIRST_REASONS;

/// Counters of one queue, and the state from which a restarted data path resumes. One thread writes at a time; any
/// thread or process may read. Each counter is an 8-byte little-endian number that only grows.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Counters {
    /// Frames that entered the fabric through this queue.
    pub tx_frames: AtomicU64,
    /// Bytes of these frames.
    pub tx_bytes: AtomicU64,
    /// Frames that left the fabric through this queue.
    pub rx_frames: AtomicU64,
    /// Bytes of these frames.
    pub rx_bytes: AtomicU64,
    /// Notifications received from the peer.
    pub kicks: AtomicU64,
    /// Notifications sent to the peer.
    pub interrupts: AtomicU64,
    /// Bursts taken.
    pub bursts: AtomicU64,
    /// Protocol violations by the peer.
    pub faults: AtomicU64,
    /// Frames that entered through this queue and were dropped, by [`Reason`]; only of the first reasons, see
    /// [`Counters::tx_drops_of`].
    pub tx_drops: [AtomicU64; FIRST_REASONS],
    /// Frames for this queue that were dropped, by [`Reason`]; only of the first reasons, see
    /// [`Counters::rx_drops_of`].
    pub rx_drops: [AtomicU64; FIRST_REASONS],
    /// IOTLB hits for frames that entered through this queue.
    pub iotlb_hits: AtomicU64,
    /// IOTLB misses. Several threads add to this counter and the next two.
    pub iotlb_misses: AtomicU64,
    /// IOTLB invalidations by the front-end.
    pub iotlb_invalidations: AtomicU64,
    /// Accesses that the guest's IOMMU refused.
    pub iotlb_faults: AtomicU64,
    /// IOTLB hits for frames that left through this queue.
    pub iotlb_rx_hits: AtomicU64,
    /// Resident bytes of the files behind a guest's memory. Unlike the other counters, this one can decrease.
    pub memory_resident: AtomicU64,
    /// Bytes by which these files grew while the port used them.
    pub memory_grown: AtomicU64,
    /// Addresses that this queue sent from while the switch knew them at another port.
    pub moved: AtomicU64,
    /// Pauses of the peer's session: it was woken too often without a message.
    pub session_pauses: AtomicU64,
    /// Not a counter: whether a restarted data path can go on with the port's session. Only the first
    /// queue's is used.
    pub session: AtomicU64,
    /// Not a counter: settings that the peer made by commands.
    pub settings: AtomicU64,
    /// Frames whose source address was not learned, since its port has learned too many.
    pub unlearned: AtomicU64,
    /// Frames for this queue that became part of the frame before them, which was counted.
    pub joined: AtomicU64,
    /// Not used yet.
    pub spare: [AtomicU64; 128 / 8 * 4 - 21 - 2 * FIRST_REASONS],
    /// Not a counter: where the ring of frames from the peer is.
    pub tx_place: RingPlace,
    /// Not a counter: where the ring of frames to the peer is.
    pub rx_place: RingPlace,
    /// Not a counter: where the port's ring of commands is. Only the first queue's is used.
    pub control_place: RingPlace,
}

/// Where a ring is, for a data path that is started again after it crashed; its kind of port knows the words' meaning.
/// In cache lines of its own: a worker writes them every burst.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct RingPlace {
    /// Its positions; 0: none.
    pub position: AtomicU64,
    /// A word of the ring that is written last.
    pub first: AtomicU64,
    /// Dropped frames of the direction, by the reasons from [`FIRST_REASONS`] on.
    pub later_drops: [AtomicU64; LATER_REASONS],
    spare: [AtomicU64; 13 - LATER_REASONS],
    /// Frames that entered through this queue, were too long for their destination, and whose senders were told so.
    /// Only the place of frames from the peer has them.
    pub answered: AtomicU64,
}

// No padding: every byte is a word of a counter.
const _: () = assert!(size_of::<Counters>() == Counters::WORDS * 8);

/// Adds to a counter that only this thread writes, without a locked instruction.
#[inline]
pub fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

impl Counters {
    /// Number of 8-byte words of one queue's counters.
    pub const WORDS: usize = 112;

    /// The counters in shared memory, from the first aligned address on.
    #[inline]
    pub fn of(words: &[AtomicU64]) -> &[Counters] {
        // SAFETY: `Counters` is `repr(C)` and consists of `AtomicU64`s only (its size is checked above), so
        // any words are valid counters; `align_to` ensures the alignment.
        unsafe { words.align_to::<Counters>().1 }
    }

    /// Counts frames that entered through this queue and were dropped.
    #[inline]
    pub fn drop_tx(&self, reason: Reason, count: usize) {
        add(self.tx_drops_of(reason), count as u64);
    }

    /// Counts frames for this queue that were dropped.
    #[inline]
    pub fn drop_rx(&self, reason: Reason, count: usize) {
        add(self.rx_drops_of(reason), count as u64);
    }

    /// The counter of frames that entered through this queue and were dropped for a reason.
    #[inline]
    pub fn tx_drops_of(&self, reason: Reason) -> &AtomicU64 {
        drops_of(&self.tx_drops, &self.tx_place, reason)
    }

    /// The counter of frames for this queue that were dropped for a reason.
    #[inline]
    pub fn rx_drops_of(&self, reason: Reason) -> &AtomicU64 {
        drops_of(&self.rx_drops, &self.rx_place, reason)
    }

    /// The counters of dropped frames that entered through this queue, in the order of [`Reason::ALL`].
    pub fn all_tx_drops(&self) -> impl Iterator<Item = &AtomicU64> {
        self.tx_drops.iter().chain(&self.tx_place.later_drops)
    }

    /// The counters of dropped frames for this queue, in the order of [`Reason::ALL`].
    pub fn all_rx_drops(&self) -> impl Iterator<Item = &AtomicU64> {
        self.rx_drops.iter().chain(&self.rx_place.later_drops)
    }
}

#[inline]
fn drops_of<'c>(
    drops: &'c [AtomicU64; FIRST_REASONS],
    place: &'c RingPlace,
    reason: Reason,
) -> &'c AtomicU64 {
    match drops.get(reason as usize) {
        Some(counter) => counter,
        None => &place.later_drops[reason as usize - FIRST_REASONS],
    }
}

/// Memory that holds counters.
pub trait CountersPage: Send + Sync + core::fmt::Debug {
    /// The counters of all queues.
    fn counters(&self) -> &[Counters];
}

impl CountersPage for Vec<Counters> {
    fn counters(&self) -> &[Counters] {
        self
    }
}

/// A reference to one queue's counters.
#[derive(Clone, Debug)]
pub struct CountersRef {
    page: Arc<dyn CountersPage>,
    index: usize,
}

impl CountersRef {
    /// The counters at `index` of `page`, if they exist.
    pub fn new(page: Arc<dyn CountersPage>, index: usize) -> Option<CountersRef> {
        page.counters().get(index)?;
        Some(CountersRef { page, index })
    }

    /// Counters in private memory.
    pub fn private() -> CountersRef {
        CountersRef { page: Arc::new(alloc::vec![Counters::default()]), index: 0 }
    }
}

impl core::ops::Deref for CountersRef {
    type Target = Counters;

    #[inline]
    fn deref(&self) -> &Counters {
        &self.page.counters()[self.index]
    }
}
