//! The engines of descriptor rings: bursts, reservations, releases, and when interrupts are due. They are the same for
//! all families; a family says how it interrupts ([`Family`]) and what its descriptors look like ([`RxLayout`],
//! [`TxLayout`]).

mod rx;
mod signal;
mod tx;

pub use rx::{Frame, Missing, Reserved, RxEngine, RxLayout};
pub use signal::Signal;
pub use tx::{Found, Offloads, Rewritten, Scan, Taken, TxEngine, TxLayout};

use crate::descriptor_ring::RingState;
use crate::device::{Bus, Raise};
use crate::pieces::Headers;
use crate::techniques::{Switches, Techniques};
use core::fmt::Debug;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use ringway_mem::{Direct, MemoryError};

/// A direction of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Frames that the guest sends.
    Tx,
    /// Frames that the guest gets.
    Rx,
}

/// The rings of a NIC, and what both its sides need with them.
#[derive(Debug)]
pub struct Rings {
    /// The transmit ring.
    pub tx: RingState,
    /// The receive ring.
    pub rx: RingState,
    /// Rewritten headers of the frames of a burst.
    pub headers: Headers,
    /// The techniques in use.
    pub switches: Switches,
    /// How often a doorbell was seen: of the transmit ring, of the receive ring.
    pub doorbells: [AtomicU64; 2],
    /// Until when a worker is about to look at the transmit ring anyway.
    tx_due: AtomicU64,
}

impl Rings {
    /// Rings that are disabled.
    pub fn new() -> Result<Rings, MemoryError> {
        Ok(Rings {
            tx: RingState::default(),
            rx: RingState::default(),
            headers: Headers::new()?,
            switches: Switches::default(),
            doorbells: Default::default(),
            tx_due: AtomicU64::new(0),
        })
    }

    /// The techniques in use.
    pub fn techniques(&self) -> Techniques {
        self.switches.get()
    }

    /// Whether a ring is enabled.
    pub fn is_running(&self) -> bool {
        [&self.rx, &self.tx].iter().any(|ring| ring.generation().is_some())
    }

    /// Disables both.
    pub fn stop(&self) {
        self.rx.stop();
        self.tx.stop();
    }

    /// Whether a worker is about to look at the transmit ring without being woken.
    pub fn is_awaited(&self, now: u64) -> bool {
        let combine = self.techniques().combine;
        if combine == 0 {
            return false;
        }
        // The driver's descriptor or tail was stored before. The worker stores when it looks, executes a barrier, and
        // looks: either it sees what is new, or this sees that it looks no more.
        fence(Ordering::SeqCst);
        let due = self.tx_due.load(Ordering::Relaxed);
        due > now && due - now <= combine
    }
}

/// The block of indices of a guest that uses one.
pub type Block<'t, F> = Option<<F as Family>::Block<'t>>;

/// What a family's two sides share, as its engines need it.
pub trait Family: Debug + Send + Sync + Sized + 'static {
    /// A block of indices in the guest's memory that replaces registers.
    type Block<'t>: Copy;

    /// The rings.
    fn rings(&self) -> &Rings;

    /// Whether the link is up.
    fn link(&self) -> bool;

    /// The block of a guest that uses one.
    fn block<'t>(&self, _translate: &mut Direct<'t, '_>) -> Option<Self::Block<'t>> {
        None
    }

    /// Tells the guest whether to ring.
    fn set_kick(_block: Self::Block<'_>, _direction: Direction, _wanted: bool) {}

    /// Whether the guest wants an interrupt.
    fn wants_interrupt(_block: Self::Block<'_>, _direction: Direction) -> bool {
        true
    }

    /// The chip's delays in nanoseconds: one restarts with each frame, the other runs from the first. 0: none.
    fn delays(&self, _direction: Direction) -> [u64; 2] {
        [0; 2]
    }

    /// Sets causes.
    fn set(bus: &Bus<'_, Self>, block: Option<Self::Block<'_>>, causes: u32) -> Raise;

    /// Sets causes that were held back: they interrupt although they are set.
    fn set_again(&self, causes: u32, now: u64) -> Raise;

    /// Sends interrupts that the chip deferred and whose time has come.
    fn due(&self, _now: u64) -> Raise {
        Raise::NONE
    }

    /// When [`Family::due`] must be called.
    fn next_due(&self) -> Option<u64> {
        None
    }
}
