//! A guest's port: an emulated network card that the guest's monitor attaches over a vfio-user socket.
//!
//! The session thread owns the model's registers (`device.rs`) and serves the socket (`session_loop.rs`,
//! `pci_session.rs`); workers own the engines of the rings. Both share the model's atomics, so a register write takes
//! effect without a lock. The client's memory and its interrupts are a `Card`, published by pointer and replaced as a
//! whole; a stopped ring and unmapped memory are no longer used when every worker's turn in progress has ended.

mod card;
mod device;
mod peer;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

pub use peer::KIND;

use crate::peer::{Context, Opened};
use ringway_nic::pci::{Capability, Identity};
use ringway_nic::{self as nic, Doorbells};
use ringway_spec::MacAddress;
use serde::{Deserialize, Serialize};

/// The connection to a card's client.
type Backend<N> = crate::pci_session::Backend<device::CardDevice<N>>;

/// A model of a card.
#[derive(Debug)]
pub struct Model {
    /// Its name in the fabric file.
    pub name: &'static str,
    /// Its driver in Linux.
    pub driver: &'static str,
    identity: &'static Identity,
    /// Whether it has registers that a client may map.
    pub may_map: bool,
    /// Whether it has the shared block.
    pub has_csb: bool,
    open: fn(Settings, Context<'_>) -> Opened,
}

/// The row of a model: the module in the crate `ringway-nic` that describes it, that of its family, and whether it has
/// registers that a client may map, and the shared block.
macro_rules! model {
    ($module:ident, $family:ident, $may_map:literal, $has_csb:literal) => {
        Model {
            name: nic::$module::MODEL.name,
            driver: nic::$module::MODEL.driver,
            identity: &nic::$module::MODEL.identity,
            may_map: $may_map,
            has_csb: $has_csb,
            open: |settings, context| {
                peer::open_as::<nic::$family::Nic>(&nic::$module::MODEL, settings, context)
            },
        }
    };
}

/// The models that a port can have.
pub static MODELS: [Model; 4] = [
    model!(i82540em, e1000, true, true),
    model!(i82574l, e1000, true, true),
    model!(rtl8139, rtl8139, false, true),
    model!(pcnet, pcnet, false, false),
];

impl Model {
    /// The model of this name.
    pub fn of(name: &str) -> Option<&'static Model> {
        MODELS.iter().find(|model| model.name == name)
    }
}

/// Settings of a port of this kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Name of its model, one of [`MODELS`].
    pub model: String,
    /// The card's address, which it must have.
    pub mac: Option<MacAddress>,
    /// Largest IP packet that the guest gets, if it is limited.
    pub mtu: Option<u16>,
    /// Bytes of memory that a client may share.
    pub memory: u64,
    /// Whether the card has a carrier: a connected cable.
    #[serde(default = "crate::carrier")]
    pub carrier: bool,
    /// What makes it fast.
    #[serde(default)]
    pub techniques: Techniques,
}

/// The techniques of a card, each with its own switch. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Techniques {
    /// The window with at most one interrupt for each ring, besides the chip's own; 0: none.
    pub moderate: u64,
    /// The chip's own interrupt delays.
    pub timers: bool,
    /// Interrupts of a turn are combined, and doorbells wake no worker that is about to look.
    pub combine: bool,
    /// One interrupt a burst instead of one a frame.
    pub batch: bool,
    /// Whether the registers of the rings are mapped; by default if the client may map registers and the model's
    /// drivers use message-signalled interrupts.
    pub mapped: Option<bool>,
    /// The interval at which a sleeping worker looks at mapped doorbells.
    pub poll: u64,
    /// Whether filter registers are mapped, too.
    pub in_place: bool,
    /// Whether the shared block (CSB) is offered.
    pub csb: bool,
    /// The translation used last is kept from burst to burst.
    pub cached: bool,
}

impl Default for Techniques {
    fn default() -> Techniques {
        let nic::Techniques { moderate, timers, batch, poll, in_place, csb, cached, .. } =
            nic::Techniques::default();
        Techniques { moderate, timers, combine: false, batch, mapped: None, poll, in_place, csb, cached }
    }
}

/// The longest time for which [`Techniques::combine`] holds an interrupt back.
const COMBINE: u64 = 20_000;

impl Techniques {
    /// As the model has them, for a client that may map registers or not.
    fn of(self, identity: &Identity, may_map: bool) -> nic::Techniques {
        let Techniques { moderate, timers, combine, batch, mapped, poll, in_place, csb, cached } = self;
        let is_mapped = may_map && mapped.unwrap_or_else(|| uses_messages(identity));
        let doorbells = if is_mapped { Doorbells::Mapped } else { Doorbells::Trapped };
        let in_place = may_map && in_place;
        let combine = if combine { COMBINE } else { 0 };
        nic::Techniques { moderate, timers, combine, batch, doorbells, poll, in_place, csb, cached }
    }

    /// Whether a client needs a file of [`PAGES`]. `exits`: its accesses to registers are exits from KVM, which cost
    /// far more than a translator's.
    pub fn maps(&self, model: &str, exits: impl FnOnce() -> bool) -> bool {
        let Some(model) = Model::of(model).filter(|model| model.may_map) else { return false };
        let suits = || uses_messages(model.identity) && exits();
        self.in_place || self.mapped.unwrap_or_else(suits)
    }
}

/// Whether a model's drivers use MSI-X. For the pin, a client removes its mappings, or its driver accesses registers
/// at each interrupt, which is slower once any is mapped.
fn uses_messages(identity: &Identity) -> bool {
    identity.capabilities.iter().any(|(_, capability)| matches!(capability, Capability::MsiX(..)))
}

/// Bytes of the memory for registers that clients map: a peer is attached with its socket, and with such a file if it
/// may map them.
pub const PAGES: usize = (nic::e1000::PAGES.0 + nic::e1000::PAGES.1) as usize;

/// Default of [`Settings::memory`].
pub const MEMORY: u64 = crate::vhost_user::MEMORY;
