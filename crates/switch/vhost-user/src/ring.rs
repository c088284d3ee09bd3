//! The state of one ring as set by the front-end.

use crate::feature::virtio;
use crate::payload::VringAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Largest number of descriptors of a ring (virtio 1.3, 2.7 and 2.8).
pub(crate) const LARGEST: u32 = 32_768;

/// How the driver kicks.
#[derive(Clone, Debug, Default)]
pub enum Kick {
    /// Not set yet: the ring is stopped.
    #[default]
    Unset,
    /// No kicks: the ring is polled.
    Poll,
    /// By a file descriptor, which becomes readable.
    Fd(Arc<OwnedFd>),
}

/// A ring's settings.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    /// Number of descriptors; 0 if not set.
    pub size: u16,
    /// Addresses of the ring's areas.
    pub addresses: Option<VringAddr>,
    /// Start position: a split ring's available index; a packed ring's index in bits 0 to 14 and wrap counter
    /// in bit 15. `None` if the front-end did not set it: a split ring then starts at its used index, a
    /// packed ring at the beginning.
    pub base: Option<u16>,
    /// How kicks arrive.
    pub kick: Kick,
    /// Descriptor for interrupts; `None` means that the driver polls.
    pub call: Option<Arc<OwnedFd>>,
    /// Descriptor that reports a broken ring to the front-end.
    pub err: Option<Arc<OwnedFd>>,
    /// Whether the ring is enabled. A started but disabled ring is not accessed.
    pub enabled: bool,
    pub(crate) running: bool,
    /// The position when the ring last stopped.
    pub(crate) stopped: Option<u16>,
}

impl Ring {
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let kick = if let Kick::Fd(kick) = &self.kick { Some(kick) } else { None };
        [kick, self.call.as_ref(), self.err.as_ref()].into_iter().flatten().map(|fd| fd.as_fd())
    }

    pub(crate) fn is_ready(&self) -> bool {
        !matches!(self.kick, Kick::Unset) && self.addresses.is_some() && self.size != 0
    }

    /// The position of a stopped ring with these features.
    pub(crate) fn position(&self, features: u64) -> u16 {
        self.base.or(self.stopped).unwrap_or(Ring::first(features))
    }

    /// The initial position of a ring with these features: a packed ring begins with its wrap counter set
    /// (virtio 1.3, 2.8.1).
    pub fn first(features: u64) -> u16 {
        if features & virtio::RING_PACKED != 0 { 0x8000 } else { 0 }
    }

    /// The error in the ring's size or position with these features, if any.
    pub(crate) fn fault(&self, features: u64) -> Option<&'static str> {
        if features & virtio::RING_PACKED == 0 {
            return (!self.size.is_power_of_two()).then_some("size that is not a power of two");
        }
        // Attack: with an index past the end of a packed ring, the first access would be out of bounds.
        self.base.is_some_and(|base| base & 0x7fff >= self.size).then_some("index past its end")
    }
}
