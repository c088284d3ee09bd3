//! What the front-end said about one ring.

use crate::feature::virtio;
use crate::payload::VringAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Most descriptors a ring has (virtio 1.3, 2.7 and 2.8).
pub(crate) const LARGEST: u32 = 32_768;

/// How the driver's kicks arrive.
#[derive(Clone, Debug, Default)]
pub enum Kick {
    /// Not said yet: the ring is stopped.
    #[default]
    Unset,
    /// They don't: the ring is to be polled.
    Poll,
    /// The descriptor becomes readable.
    Fd(Arc<OwnedFd>),
}

/// A ring as the front-end described it.
#[derive(Clone, Debug, Default)]
pub struct Ring {
    /// Descriptors; 0 while unknown.
    pub size: u16,
    /// Where it lies.
    pub addresses: Option<VringAddr>,
    /// Where to start: the available index of a split ring; of a packed ring the index in bits 0-14 and the
    /// wrap counter in bit 15. `None`, since front-ends may skip saying it: where the used index of a split
    /// ring stands, and at the beginning of a packed one.
    pub base: Option<u16>,
    /// How kicks arrive.
    pub kick: Kick,
    /// Where the driver is interrupted; `None` means that it polls.
    pub call: Option<Arc<OwnedFd>>,
    /// Where the front-end hears that the ring is broken.
    pub err: Option<Arc<OwnedFd>>,
    /// Whether frames pass. A started ring that is disabled is left alone.
    pub enabled: bool,
    pub(crate) running: bool,
    /// Where it stopped last.
    pub(crate) stopped: Option<u16>,
}

impl Ring {
    pub(crate) fn is_ready(&self) -> bool {
        !matches!(self.kick, Kick::Unset) && self.addresses.is_some() && self.size != 0
    }

    /// Where a stopped ring stands, under `features`.
    pub(crate) fn position(&self, features: u64) -> u16 {
        self.base.or(self.stopped).unwrap_or(Ring::first(features))
    }

    /// The beginning of a ring under `features`: a packed one begins with its wrap counter set (virtio 1.3,
    /// 2.8.1).
    pub fn first(features: u64) -> u16 {
        if features & virtio::RING_PACKED != 0 { 0x8000 } else { 0 }
    }

    /// What is wrong with the ring's size or index under `features`.
    pub(crate) fn fault(&self, features: u64) -> Option<&'static str> {
        if features & virtio::RING_PACKED == 0 {
            return (!self.size.is_power_of_two()).then_some("size that is not a power of two");
        }
        // Attack: an index past a packed ring has the first look at it land outside.
        self.base.is_some_and(|base| base & 0x7fff >= self.size).then_some("index past its end")
    }
}
