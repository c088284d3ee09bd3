//! The shared block (CSB) of netmap's paravirtual e1000: indices and flags in the guest's memory, so that neither side
//! needs a register for each frame. The guest writes the first line, the device the second; the constants are the
//! numbers of their words. The RTL8139 has the same block; its descriptors say who owns them, so it reads no tails.
//!
//! To netmap's block, ours adds a number: a guest counts its requests for interrupts in [`GUEST_REQUEST`], and the
//! device copies the number to [`HOST_ANSWERED`] when it interrupts. So each request has one interrupt, the guest knows
//! whether it is on its way, and nobody reads ICR.

use crate::device::Raise;
use crate::engine::Direction;
use crate::pci::{ConfigSpace, Identity};
use ringway_mem::{Direct, Translate, Words};

/// Subsystem of a device with a shared block, by which its driver finds it.
pub const SUBSYSTEM: u16 = 0x1101;

/// Bytes in use, at the start of a page.
pub(crate) const LEN: u32 = 128;

/// Transmit tail.
pub const GUEST_TDT: usize = 0;
/// The guest wants an interrupt when frames are transmitted.
pub const GUEST_NEED_TXKICK: usize = 1;
/// The guest wants an interrupt when frames are received.
pub const GUEST_NEED_RXKICK: usize = 2;
/// The block is in use.
pub const GUEST_CSB_ON: usize = 3;
/// Receive tail.
pub const GUEST_RDT: usize = 4;
/// Number of the newest request for interrupts; 0: requests aren't counted, and ICR acknowledges interrupts.
pub const GUEST_REQUEST: usize = 5;
/// Transmit head.
pub const HOST_TDH: usize = 16;
/// The device wants TDT written.
pub const HOST_NEED_TXKICK: usize = 17;
/// Receive head.
pub const HOST_RDH: usize = 20;
/// The device wants RDT written.
pub const HOST_NEED_RXKICK: usize = 21;
/// A copy of the causes that were set last.
pub const HOST_ISR: usize = 22;
/// Number of the last request that had its interrupt.
pub const HOST_ANSWERED: usize = 26;

/// The configuration space of a card with or without a shared block.
pub(crate) fn config(identity: &Identity, has_block: bool) -> ConfigSpace {
    let subsystem = if has_block { SUBSYSTEM } else { identity.subsystem };
    ConfigSpace::new(&Identity { subsystem, ..*identity })
}

/// The block of a guest that uses it.
#[derive(Clone, Copy, Debug)]
pub struct Csb<'t>(Words<'t, u32>);

impl<'t> Csb<'t> {
    /// The block at `address`, if the guest turned it on. Attack: an address outside memory, or one that is not
    /// aligned; the block is then not used.
    pub fn at(address: u64, translate: &mut Direct<'t, '_>) -> Option<Csb<'t>> {
        if address == 0 {
            return None;
        }
        let span = translate.write(address, LEN).ok().filter(|span| span.len() == LEN as usize)?;
        let words = Words::new(span)?;
        (words.load(GUEST_CSB_ON) != 0).then_some(Csb(words))
    }

    /// The tail.
    pub fn tail(self, direction: Direction) -> u32 {
        let at = if direction == Direction::Tx { GUEST_TDT } else { GUEST_RDT };
        self.0.load_acquire(at)
    }

    /// Whether the guest wants an interrupt that it has not had yet.
    pub fn wants_interrupt(self, direction: Direction) -> bool {
        let tx = direction == Direction::Tx;
        if self.0.load(if tx { GUEST_NEED_TXKICK } else { GUEST_NEED_RXKICK }) == 0 {
            return false;
        }
        let request = self.0.load(GUEST_REQUEST);
        request == 0 || request != self.0.load(HOST_ANSWERED)
    }

    /// Notes that the newest request has its interrupt; `false`: the guest doesn't count them.
    pub fn answer(self) -> bool {
        let request = self.0.load(GUEST_REQUEST);
        if request != 0 {
            self.0.store_release(HOST_ANSWERED, request);
        }
        request != 0
    }

    /// Stores the head.
    pub fn set_head(self, direction: Direction, head: u32) {
        let at = if direction == Direction::Tx { HOST_TDH } else { HOST_RDH };
        self.0.store_release(at, head);
    }

    /// Tells the guest whether to write the tail register.
    pub fn set_kick(self, direction: Direction, wanted: bool) {
        let tx = direction == Direction::Tx;
        let at = if tx { HOST_NEED_TXKICK } else { HOST_NEED_RXKICK };
        self.0.store(at, wanted.into());
    }

    /// Stores the causes of an interrupt that is sent.
    pub fn set_causes(self, causes: u32, raise: Raise) {
        if !raise.is_none() {
            self.0.store(HOST_ISR, causes);
        }
    }
}
