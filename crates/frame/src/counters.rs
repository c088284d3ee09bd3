//! Counters of every queue, in memory that another process may read.

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
            /// Every reason, in the order of [`Counters::drops`].
            pub const ALL: &'static [Reason] = &[$(Reason::$name,)*];

            /// The name that people and programs see.
            pub const fn name(self) -> &'static str {
                match self { $(Reason::$name => $text,)* }
            }
        }
    };
}

reasons! {
    /// The destination stayed full for longer than `hold`.
    Full = "full",
    /// The destination is not there: its peer is away, or its ring is not enabled.
    Down = "down",
    /// No destination port: the switch is empty, or the lookup finds none.
    NoPort = "no-port",
    /// It would have gone back where it came from.
    Hairpin = "hairpin",
    /// Shorter than an Ethernet header.
    Short = "short",
    /// Longer than the destination takes, or than a frame can be.
    Long = "long",
    /// Its offload metadata is inconsistent.
    BadOffload = "bad-offload",
    /// The destination lacks an offload and software can't do it for this frame.
    NoOffload = "no-offload",
    /// Its descriptors break the ring's rules.
    BadDescriptor = "bad-descriptor",
    /// Its bytes lie outside what the peer shared.
    BadAddress = "bad-address",
    /// The system refused to take it.
    System = "system",
    /// Its source address is a group address.
    BadSource = "bad-source",
    /// Another worker had the destination's queue for longer than `hold`.
    Busy = "busy",
}

/// Counters of one queue. One thread writes at a time; any thread or process may read: each field is an 8-byte
/// little-endian number that only grows.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub struct Counters {
    /// Frames that entered the fabric here.
    pub tx_frames: AtomicU64,
    /// Their bytes.
    pub tx_bytes: AtomicU64,
    /// Frames that left the fabric here.
    pub rx_frames: AtomicU64,
    /// Their bytes.
    pub rx_bytes: AtomicU64,
    /// Notifications the peer sent us.
    pub kicks: AtomicU64,
    /// Notifications we sent the peer.
    pub interrupts: AtomicU64,
    /// Bursts taken.
    pub bursts: AtomicU64,
    /// Breaches of protocol by the peer.
    pub faults: AtomicU64,
    /// Frames that came in here and were dropped, by [`Reason`].
    pub tx_drops: [AtomicU64; 13],
    /// Frames for this queue that were dropped, by [`Reason`].
    pub rx_drops: [AtomicU64; 13],
    /// IOTLB hits for frames that entered here.
    pub iotlb_hits: AtomicU64,
    /// IOTLB misses. Several threads add to this and the next two.
    pub iotlb_misses: AtomicU64,
    /// IOTLB invalidations by the front-end.
    pub iotlb_invalidations: AtomicU64,
    /// Accesses that the guest's IOMMU refused.
    pub iotlb_faults: AtomicU64,
    /// IOTLB hits for frames that left here.
    pub iotlb_rx_hits: AtomicU64,
    /// Bytes in memory of the files behind a guest's memory. This one also shrinks.
    pub memory_resident: AtomicU64,
    /// Bytes by which such files grew while the port used them.
    pub memory_grown: AtomicU64,
    /// Not used yet.
    pub spare: [AtomicU64; 7],
}

const _: () = assert!(Reason::ALL.len() == 13);
// No padding: every byte is a word of a counter.
const _: () = assert!(size_of::<Counters>() == (8 + 13 + 13 + 7 + 7) * 8);

/// Adds to a counter that this thread alone writes: no locked instruction.
#[inline]
pub fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
}

impl Counters {
    /// Eight-byte words that one entry has.
    pub const WORDS: usize = size_of::<Counters>() / 8;

    /// Shared memory as counters; as many as fit wholly behind the first place aligned for them.
    #[inline]
    pub fn of(words: &[AtomicU64]) -> &[Counters] {
        // SAFETY: `Counters` is `repr(C)` and consists of `AtomicU64`s alone (its size is theirs, checked below), so
        // any words are valid counters; `align_to` sees to the alignment.
        unsafe { words.align_to::<Counters>().1 }
    }

    /// Counts frames that came in here and go nowhere.
    #[inline]
    pub fn drop_tx(&self, reason: Reason, count: usize) {
        add(&self.tx_drops[reason as usize], count as u64);
    }

    /// Counts frames for this queue that it doesn't get.
    #[inline]
    pub fn drop_rx(&self, reason: Reason, count: usize) {
        add(&self.rx_drops[reason as usize], count as u64);
    }
}

/// Memory that holds counters.
pub trait CountersPage: Send + Sync + core::fmt::Debug {
    /// All of them.
    fn counters(&self) -> &[Counters];
}

impl CountersPage for Vec<Counters> {
    fn counters(&self) -> &[Counters] {
        self
    }
}

/// A handle to one queue's counters.
#[derive(Clone, Debug)]
pub struct CountersRef {
    page: Arc<dyn CountersPage>,
    index: usize,
}

impl CountersRef {
    /// The counters at `index` of `page`, if it has so many.
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
