//! When a ring's causes are set: the port's own policy (`Notifier`); the chip has no delays.

use super::shared::Bus;
use crate::device::Raise;
use crate::techniques::Techniques;
use ringway_ring::{Notifier, Policy, View};

/// The causes of one ring.
#[derive(Debug)]
pub(crate) struct Signal {
    techniques: Techniques,
    notifier: Notifier,
    /// Held back by the notifier.
    causes: u32,
}

struct Side<'a, 't> {
    bus: &'a Bus<'t>,
    causes: &'a mut u32,
    raise: &'a mut Raise,
}

impl View for Side<'_, '_> {
    fn pending(&mut self) -> bool {
        false
    }

    /// The driver always rings.
    fn set_flag(&mut self, _wanted: bool) {}

    fn notify(&mut self, _check_flag: bool) -> bool {
        *self.raise |= self.bus.shared.interrupts.set(core::mem::take(self.causes));
        true
    }
}

impl Signal {
    pub fn new() -> Signal {
        Signal { techniques: Techniques::default(), notifier: Notifier::new(Policy::default()), causes: 0 }
    }

    /// The techniques adopted last.
    pub fn techniques(&self) -> Techniques {
        self.techniques
    }

    /// Forgets pending causes: the ring was reset.
    pub fn reset(&mut self) {
        (self.causes, self.notifier) = (0, Notifier::new(self.techniques.policy()));
    }

    /// Takes over changed techniques; causes held back by the former ones are set, even if they are set already.
    #[inline]
    pub fn adopt(&mut self, bus: &Bus<'_>, raise: &mut Raise) {
        let techniques = bus.shared.switches.get();
        if techniques != self.techniques {
            self.techniques = techniques;
            self.notifier = Notifier::new(techniques.policy());
            *raise |= bus.shared.interrupts.set_again(core::mem::take(&mut self.causes));
        }
    }

    fn split<'a, 't>(
        &'a mut self,
        bus: &'a Bus<'t>,
        raise: &'a mut Raise,
    ) -> (&'a mut Notifier, Side<'a, 't>) {
        (&mut self.notifier, Side { bus, causes: &mut self.causes, raise })
    }

    /// Descriptors were published. `answers`: the guest may reply in this turn.
    pub fn published(&mut self, bus: &Bus<'_>, causes: u32, answers: bool, raise: &mut Raise) {
        self.causes |= causes;
        if answers {
            self.notifier.expect_answer(bus.now);
        }
        let (notifier, mut side) = self.split(bus, raise);
        notifier.published(bus.now, &mut side);
    }

    /// Sets the causes whose time has come.
    pub fn due(&mut self, bus: &Bus<'_>, raise: &mut Raise) {
        let (notifier, mut side) = self.split(bus, raise);
        notifier.due(bus.now, &mut side);
    }

    /// The turn ends: no more frames are to be waited for.
    pub fn end_turn(&mut self, bus: &Bus<'_>, raise: &mut Raise) {
        let (notifier, mut side) = self.split(bus, raise);
        notifier.answered(bus.now, &mut side);
    }

    /// Whether a cause waits for the end of the turn.
    pub fn waits_for_turn(&self) -> bool {
        self.notifier.waits_for_answer()
    }

    /// When [`Signal::due`] must be called.
    pub fn next_due(&self) -> Option<u64> {
        self.notifier.next_due()
    }
}
