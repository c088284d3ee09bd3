//! When a ring's causes are set: the port's own policy (`Notifier`), then the chip's delays.

use super::csb::{Csb, Direction};
use super::registers as reg;
use super::shared::Bus;
use super::tail::tail;
use crate::device::Raise;
use crate::techniques::Techniques;
use core::sync::atomic::Ordering;
use ringway_mem::Direct;
use ringway_ring::{Notifier, Policy, View};

/// Nanoseconds of a unit of RDTR, RADV, TIDV and TADV.
const DELAY_UNIT: u64 = 1024;

/// The chip's delays: one restarts with each frame, the other runs from the first. 0: not running.
#[derive(Clone, Copy, Debug, Default)]
struct Delay {
    packet: u64,
    absolute: u64,
}

impl Delay {
    fn start(&mut self, now: u64, packet: u64, absolute: u64) {
        self.packet = now.saturating_add(packet);
        if self.absolute == 0 {
            self.absolute = if absolute == 0 { u64::MAX } else { now.saturating_add(absolute) };
        }
    }

    fn due(&self) -> Option<u64> {
        (self.packet != 0).then(|| self.packet.min(self.absolute))
    }
}

/// Causes on their way to ICR.
#[derive(Clone, Copy, Debug, Default)]
struct Pending {
    /// Held back by the notifier.
    causes: u32,
    /// Whether one of them may not be delayed by the chip.
    urgent: bool,
    /// Delayed by the chip.
    delayed: u32,
    delay: Delay,
}

/// The causes of one ring.
#[derive(Debug)]
pub(crate) struct Signal {
    direction: Direction,
    techniques: Techniques,
    notifier: Notifier,
    pending: Pending,
    armed: bool,
    /// The shared block was in use when the ring was last looked at.
    has_csb: bool,
}

struct Side<'a, 't> {
    bus: &'a Bus<'t>,
    csb: Option<Csb<'t>>,
    direction: Direction,
    timers: bool,
    /// The tail when the ring was last looked at.
    seen: u32,
    pending: &'a mut Pending,
    raise: &'a mut Raise,
}

impl View for Side<'_, '_> {
    fn pending(&mut self) -> bool {
        tail(self.bus, self.csb, self.direction) != self.seen
    }

    fn set_flag(&mut self, wanted: bool) {
        if let Some(csb) = self.csb {
            csb.set_kick(self.direction, wanted);
        }
    }

    fn notify(&mut self, ask: bool) -> bool {
        let causes = core::mem::take(&mut self.pending.causes);
        let urgent = core::mem::take(&mut self.pending.urgent);
        if ask && self.csb.is_some_and(|csb| !csb.wants_interrupt(self.direction)) {
            return false;
        }
        let Bus { shared, now, .. } = *self.bus;
        let delays = match self.direction {
            Direction::Tx => [reg::TIDV, reg::TADV],
            Direction::Rx => [reg::RDTR, reg::RADV],
        };
        let [packet, absolute] =
            delays.map(|register| u64::from(shared.load(register) & 0xffff) * DELAY_UNIT);
        if self.timers && !urgent && packet > 0 {
            self.pending.delayed |= causes;
            self.pending.delay.start(now, packet, absolute);
        } else {
            self.set(causes);
        }
        true
    }
}

impl Side<'_, '_> {
    fn set(&mut self, causes: u32) {
        let Bus { shared, now, .. } = *self.bus;
        let raise = match self.csb {
            // The driver doesn't read ICR, so causes are still set there.
            Some(csb) if csb.answer() => shared.interrupts.set_again(causes, now),
            _ => shared.interrupts.set(causes, now),
        };
        if let Some(csb) = self.csb {
            csb.set_causes(causes, raise);
        }
        *self.raise |= raise;
    }
}

impl Signal {
    pub fn new(direction: Direction) -> Signal {
        let techniques = Techniques::default();
        let notifier = Notifier::new(Policy::default());
        Signal { direction, techniques, notifier, pending: Pending::default(), armed: false, has_csb: false }
    }

    /// Whether to publish once a burst.
    pub fn batches(&self) -> bool {
        self.techniques.batch
    }

    /// The techniques adopted last.
    pub fn techniques(&self) -> Techniques {
        self.techniques
    }

    /// The shared block in use. A block that is new asks for doorbells until it is told otherwise.
    #[inline]
    pub fn csb<'t>(&mut self, bus: &Bus<'t>, translate: &mut Direct<'t, '_>) -> Option<Csb<'t>> {
        let csb = Csb::at(bus.shared.csb.load(Ordering::Relaxed), translate);
        if csb.is_some() != core::mem::replace(&mut self.has_csb, csb.is_some())
            && let Some(csb) = csb
        {
            csb.set_kick(self.direction, self.armed);
        }
        csb
    }

    /// Forgets pending causes: the ring was reset.
    pub fn reset(&mut self) {
        self.pending = Pending::default();
        self.notifier = Notifier::new(self.techniques.policy());
    }

    fn split<'a, 't>(
        &'a mut self,
        bus: &'a Bus<'t>,
        csb: Option<Csb<'t>>,
        seen: u32,
        raise: &'a mut Raise,
    ) -> (&'a mut Notifier, Side<'a, 't>) {
        let Signal { direction, techniques, notifier, pending, .. } = self;
        let timers = techniques.timers;
        (notifier, Side { bus, csb, direction: *direction, timers, seen, pending, raise })
    }

    /// Takes over changed techniques; a cause held back by the former ones is set, even if it is set already.
    #[inline]
    pub fn adopt(&mut self, bus: &Bus<'_>, raise: &mut Raise) {
        let techniques = bus.shared.techniques();
        if techniques != self.techniques {
            self.techniques = techniques;
            self.notifier = Notifier::new(techniques.policy());
            let causes = core::mem::take(&mut self.pending.causes);
            if causes != 0 {
                *raise |= bus.shared.interrupts.set_again(causes, bus.now);
            }
        }
    }

    /// Descriptors were published. `urgent`: without the chip's delays.
    pub fn published(
        &mut self,
        bus: &Bus<'_>,
        csb: Option<Csb<'_>>,
        (causes, urgent): (u32, bool),
        raise: &mut Raise,
    ) {
        self.pending.causes |= causes;
        self.pending.urgent |= urgent;
        if self.direction == Direction::Rx {
            self.notifier.expect_answer(bus.now);
        }
        let (notifier, mut side) = self.split(bus, csb, 0, raise);
        notifier.published(bus.now, &mut side);
    }

    /// Sets the causes whose time has come.
    pub fn due(&mut self, bus: &Bus<'_>, csb: Option<Csb<'_>>, raise: &mut Raise) {
        let (notifier, mut side) = self.split(bus, csb, 0, raise);
        notifier.due(bus.now, &mut side);
        if side.pending.delay.due().is_some_and(|due| due <= bus.now) {
            side.pending.delay = Delay::default();
            let causes = core::mem::take(&mut side.pending.delayed);
            side.set(causes);
        }
        *raise |= bus.shared.interrupts.due(bus.now);
    }

    /// The turn ends: no more frames are to be waited for.
    pub fn end_turn(&mut self, bus: &Bus<'_>, csb: Option<Csb<'_>>, raise: &mut Raise) {
        let (notifier, mut side) = self.split(bus, csb, 0, raise);
        notifier.answered(bus.now, &mut side);
    }

    /// Whether a cause waits for the end of the turn.
    pub fn waits_for_turn(&self) -> bool {
        self.notifier.waits_for_answer()
    }

    /// When [`Signal::due`] must be called.
    pub fn next_due(&self, bus: &Bus<'_>) -> Option<u64> {
        let delays = [self.notifier.next_due(), self.pending.delay.due(), bus.shared.interrupts.next_due()];
        delays.into_iter().flatten().min()
    }

    /// Asks for doorbells. `false`: the tail has moved from `seen` meanwhile.
    pub fn arm(&mut self, bus: &Bus<'_>, csb: Option<Csb<'_>>, seen: u32) -> bool {
        let mut none = Raise::NONE;
        let (notifier, mut side) = self.split(bus, csb, seen, &mut none);
        let armed = notifier.arm(&mut side);
        self.armed = armed;
        armed
    }

    /// Asks for no doorbells.
    pub fn disarm(&mut self, bus: &Bus<'_>, csb: Option<Csb<'_>>) {
        let mut none = Raise::NONE;
        let (notifier, mut side) = self.split(bus, csb, 0, &mut none);
        notifier.disarm(&mut side);
        self.armed = false;
    }
}
