//! When a ring's causes are set: the port's own policy (`Notifier`), then the chip's delays.

use super::{Block, Direction, Family};
use crate::device::{Bus, Raise};
use crate::techniques::Techniques;
use core::marker::PhantomData;
use ringway_mem::Direct;
use ringway_ring::{Notifier, Policy, View};

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

/// Causes that are not set yet.
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
pub struct Signal<F> {
    direction: Direction,
    techniques: Techniques,
    notifier: Notifier,
    pending: Pending,
    armed: bool,
    /// The block was in use when the ring was last looked at.
    has_block: bool,
    family: PhantomData<fn(F)>,
}

struct Side<'a, 't, 'b, F: Family, M> {
    bus: &'a Bus<'t, F>,
    block: Block<'b, F>,
    direction: Direction,
    timers: bool,
    /// Whether descriptors came since the ring was last looked at.
    has_more: M,
    pending: &'a mut Pending,
    raise: &'a mut Raise,
}

impl<F: Family, M: FnMut() -> bool> View for Side<'_, '_, '_, F, M> {
    fn pending(&mut self) -> bool {
        (self.has_more)()
    }

    fn set_flag(&mut self, wanted: bool) {
        if let Some(block) = self.block {
            F::set_kick(block, self.direction, wanted);
        }
    }

    fn notify(&mut self, ask: bool) -> bool {
        let causes = core::mem::take(&mut self.pending.causes);
        let urgent = core::mem::take(&mut self.pending.urgent);
        if ask && self.block.is_some_and(|block| !F::wants_interrupt(block, self.direction)) {
            return false;
        }
        let [packet, absolute] = self.bus.shared.delays(self.direction);
        if self.timers && !urgent && packet > 0 {
            self.pending.delayed |= causes;
            self.pending.delay.start(self.bus.now, packet, absolute);
        } else {
            *self.raise |= F::set(self.bus, self.block, causes);
        }
        true
    }
}

impl<F: Family> Signal<F> {
    /// The signal of a ring without pending causes.
    pub fn new(direction: Direction) -> Signal<F> {
        Signal {
            direction,
            techniques: Techniques::default(),
            notifier: Notifier::new(Policy::default()),
            pending: Pending::default(),
            armed: false,
            has_block: false,
            family: PhantomData,
        }
    }

    /// The techniques adopted last.
    pub fn techniques(&self) -> Techniques {
        self.techniques
    }

    /// The block of indices in use. A block that is new asks for doorbells until it is told otherwise.
    #[inline]
    pub fn block<'t>(&mut self, bus: &Bus<'t, F>, translate: &mut Direct<'t, '_>) -> Block<'t, F> {
        let block = bus.shared.block(translate);
        if block.is_some() != core::mem::replace(&mut self.has_block, block.is_some())
            && let Some(block) = block
        {
            F::set_kick(block, self.direction, self.armed);
        }
        block
    }

    /// Forgets pending causes: the ring was reset.
    pub fn reset(&mut self) {
        self.pending = Pending::default();
        self.notifier = Notifier::new(self.techniques.policy());
    }

    fn split<'a, 't, 'b, M: FnMut() -> bool>(
        &'a mut self,
        bus: &'a Bus<'t, F>,
        block: Block<'b, F>,
        has_more: M,
        raise: &'a mut Raise,
    ) -> (&'a mut Notifier, Side<'a, 't, 'b, F, M>) {
        let Signal { direction, techniques, notifier, pending, .. } = self;
        let timers = techniques.timers;
        (notifier, Side { bus, block, direction: *direction, timers, has_more, pending, raise })
    }

    /// Takes over changed techniques; a cause held back by the former ones is set, even if it is set already.
    #[inline]
    pub fn adopt(&mut self, bus: &Bus<'_, F>, raise: &mut Raise) {
        let techniques = bus.shared.rings().techniques();
        if techniques != self.techniques {
            self.techniques = techniques;
            self.notifier = Notifier::new(techniques.policy());
            let causes = core::mem::take(&mut self.pending.causes);
            if causes != 0 {
                *raise |= bus.shared.set_again(causes, bus.now);
            }
        }
    }

    /// Descriptors were published. `urgent`: without the chip's delays.
    pub fn published(
        &mut self,
        bus: &Bus<'_, F>,
        block: Block<'_, F>,
        (causes, urgent): (u32, bool),
        raise: &mut Raise,
    ) {
        self.pending.causes |= causes;
        self.pending.urgent |= urgent;
        if self.direction == Direction::Rx {
            self.notifier.expect_answer(bus.now);
        }
        let (notifier, mut side) = self.split(bus, block, || false, raise);
        notifier.published(bus.now, &mut side);
    }

    /// Sets the causes whose time has come.
    pub fn due(&mut self, bus: &Bus<'_, F>, block: Block<'_, F>, raise: &mut Raise) {
        let (notifier, mut side) = self.split(bus, block, || false, raise);
        notifier.due(bus.now, &mut side);
        if self.pending.delay.due().is_some_and(|due| due <= bus.now) {
            self.pending.delay = Delay::default();
            *raise |= F::set(bus, block, core::mem::take(&mut self.pending.delayed));
        }
        *raise |= bus.shared.due(bus.now);
    }

    /// The turn ends: no more frames are to be waited for.
    pub fn end_turn(&mut self, bus: &Bus<'_, F>, block: Block<'_, F>, raise: &mut Raise) {
        let (notifier, mut side) = self.split(bus, block, || false, raise);
        notifier.answered(bus.now, &mut side);
    }

    /// Whether a cause waits for the end of the turn.
    pub fn waits_for_turn(&self) -> bool {
        self.notifier.waits_for_answer()
    }

    /// When [`Signal::due`] must be called.
    pub fn next_due(&self, bus: &Bus<'_, F>) -> Option<u64> {
        let delays = [self.notifier.next_due(), self.pending.delay.due(), bus.shared.next_due()];
        delays.into_iter().flatten().min()
    }

    /// Asks for doorbells. `false`: there are more descriptors meanwhile.
    pub fn arm(&mut self, bus: &Bus<'_, F>, block: Block<'_, F>, has_more: impl FnMut() -> bool) -> bool {
        let mut none = Raise::NONE;
        let (notifier, mut side) = self.split(bus, block, has_more, &mut none);
        self.armed = notifier.arm(&mut side);
        self.armed
    }

    /// Asks for no doorbells.
    pub fn disarm(&mut self, bus: &Bus<'_, F>, block: Block<'_, F>) {
        let mut none = Raise::NONE;
        let (notifier, mut side) = self.split(bus, block, || false, &mut none);
        notifier.disarm(&mut side);
        self.armed = false;
    }
}
