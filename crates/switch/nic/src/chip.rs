//! The interface of models, whatever their family.

use crate::device::{Accesses, Area, Bus, Effects, Host, Raise};
use crate::pci::{ConfigSpace, Identity};
use crate::techniques::Techniques;
use alloc::sync::Arc;
use alloc::vec::Vec;
use ringway_frame::{Burst, Caps, CountersRef, Lost, Reason};
use ringway_mem::{MemoryError, Region};

/// What a NIC starts with. `M`: what its family says of a model.
#[derive(Debug)]
pub struct Settings<M> {
    /// The model.
    pub model: M,
    /// The MAC address.
    pub mac: [u8; 6],
    /// The techniques in use.
    pub techniques: Techniques,
    /// Whether the link is up.
    pub link: bool,
    /// Memory for the registers that can be mapped ([`Chip::PAGES`]); `None`: private memory.
    pub pages: Option<Region>,
}

/// What names and identifies a chip that is the only one of its family.
#[derive(Debug)]
pub struct Model {
    /// Its name in the fabric file.
    pub name: &'static str,
    /// Its driver in Linux.
    pub driver: &'static str,
    /// Its PCI identity.
    pub identity: Identity,
}

/// A NIC as its session sees it: configuration space, registers, link.
pub trait Chip: Sized + Send + 'static {
    /// What distinguishes the models of the family.
    type Model: Copy + Send + 'static;
    /// What the session's side and the workers share.
    type Shared: Send + Sync + core::fmt::Debug + 'static;
    /// The engine of a transmit ring.
    type Tx: Transmit<Self::Shared> + 'static;
    /// The engine of a receive ring.
    type Rx: Receive<Self::Shared> + 'static;

    /// Offset and length of the range with registers that can be mapped, in BAR 0; empty: there are none.
    const PAGES: (u32, u32);
    /// The register whose writes only wake the worker of the transmit ring.
    const KICK: Option<u32>;

    /// A NIC after power-on.
    ///
    /// # Errors
    /// If the memory for mapped registers is too small.
    fn new(settings: Settings<Self::Model>) -> Result<Self, MemoryError>;

    /// Engines that add drops and faults to `counters`.
    fn engines(counters: &CountersRef) -> (Self::Tx, Self::Rx);

    /// What workers need.
    fn shared(&self) -> &Arc<Self::Shared>;

    /// The model's name, and what identifies it.
    fn identity(&self) -> (&'static str, &'static Identity);

    /// The configuration space.
    fn config(&self) -> &ConfigSpace;

    /// Accesses that reached the model, by register, and whether the register is mapped; those without any are left
    /// out.
    fn accesses(&self) -> Vec<(&'static str, bool, Accesses)>;

    /// How often a worker saw a doorbell of the transmit ring, and of the receive ring.
    fn doorbells(&self) -> [u64; 2];

    /// Whether the interrupt line (INTx) is asserted.
    fn level(&self) -> bool;

    /// Interrupts sent, and those deferred by the chip.
    fn interrupts(&self) -> (u64, u64);

    /// Offsets and lengths of the parts of BAR 0 that the guest may map, in the memory given for [`Chip::PAGES`].
    fn mappable(&self) -> Vec<(u32, u32)>;

    /// The techniques in use.
    fn techniques(&self) -> Techniques;

    /// Changes the techniques.
    fn set_techniques(&mut self, techniques: Techniques, now: u64);

    /// Connects or disconnects the cable.
    fn set_link(&mut self, link: bool, now: u64) -> Effects;

    /// Whether the driver enabled a ring.
    fn is_running(&self) -> bool;

    /// When a worker must send interrupts that the chip deferred.
    fn next_due(&self) -> Option<u64>;

    /// Resets the whole device, as at power-on; the link stays.
    fn reset(&mut self, host: &mut Host<'_>);

    /// Reads from an area; past its end there are zeros.
    fn read(&mut self, area: Area, offset: u64, out: &mut [u8]);

    /// Writes to an area; nothing is written past its end.
    fn write(&mut self, area: Area, offset: u64, data: &[u8], host: &mut Host<'_>) -> Effects;
}

/// The engine of a transmit ring: frames that the guest sends. One worker owns it.
pub trait Transmit<S>: Send {
    /// Adds the next frames to `burst`. They stay in the ring until they are released; a further call returns the same
    /// frames again.
    fn take<'t>(&mut self, bus: &Bus<'t, S>, burst: &mut Burst<'t>) -> Raise;

    /// Returns the next `frames` frames of the last burst to the driver.
    fn release(&mut self, bus: &Bus<'_, S>, frames: usize) -> Raise;

    /// Before sleep: asks for doorbells. `false`: there are frames already.
    fn arm(&mut self, bus: &Bus<'_, S>) -> bool;

    /// After sleep: asks for no doorbells.
    fn disarm(&mut self, bus: &Bus<'_, S>);

    /// When [`Transmit::take`] must be called although nobody rang.
    fn next_due(&self) -> Option<u64>;
}

/// The engine of a receive ring: frames that the guest gets. One worker at a time uses it.
pub trait Receive<S>: Send {
    /// Whether the guest receives, and how long a frame may be.
    fn caps(&self, bus: &Bus<'_, S>) -> Option<Caps>;

    /// Reserves descriptors for the frames of `burst` named by `which`, in that order; returns how many of them, from
    /// the first on, have room. Frames that the device doesn't receive need none. Earlier reservations are dropped.
    fn reserve(&mut self, bus: &Bus<'_, S>, burst: &Burst<'_>, which: &[u16]) -> (usize, Raise);

    /// Why the device doesn't receive the frame at `place` of the last `reserve`.
    fn refusal(&self, place: usize) -> Option<Reason>;

    /// Copies the frames named by `which`, the first ones of the last `reserve`.
    fn put(&mut self, bus: &Bus<'_, S>, burst: &Burst<'_>, which: &[u16]) -> (Lost, Raise);

    /// Makes the copied frames visible to the driver, and interrupts it if that is due.
    fn publish(&mut self, bus: &Bus<'_, S>) -> Raise;

    /// Whether an interrupt waits for the end of the turn.
    fn defers_signal(&self) -> bool;

    /// The turn ends: an interrupt that waited for more frames is sent.
    fn end_turn(&mut self, bus: &Bus<'_, S>) -> Raise;

    /// When [`Receive::publish`] must be called again although nothing was copied.
    fn next_due(&self) -> Option<u64>;
}
