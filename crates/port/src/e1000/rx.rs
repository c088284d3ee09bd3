//! The RX queue: frames to a guest.

use super::card::Card;
use ringway_frame::{Burst, Caps, CountersRef, Lost, RxQueue};
use ringway_mem::{Published, Turn};
use ringway_nic::e1000::RxEngine;
use std::sync::Arc;

/// A card's receive queue, used by one worker at a time.
pub(super) struct CardRx {
    card: Arc<Published<Card>>,
    engine: RxEngine,
    counters: CountersRef,
}

impl CardRx {
    pub fn new(card: Arc<Published<Card>>, counters: CountersRef) -> CardRx {
        CardRx { card, engine: RxEngine::new(counters.clone()), counters }
    }
}

impl RxQueue for CardRx {
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps> {
        let card = self.card.read(turn);
        let caps = self.engine.caps(&card.bus(turn.now))?;
        Some(Caps { largest: caps.largest.min(card.largest), ..caps })
    }

    fn reserve(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> usize {
        let card = self.card.read(turn);
        let (count, raise) = self.engine.reserve(&card.bus(turn.now), burst, which);
        card.raise(raise, &self.counters);
        count
    }

    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let card = self.card.read(turn);
        let (lost, raise) = self.engine.put(&card.bus(turn.now), burst, which);
        card.raise(raise, &self.counters);
        lost
    }

    fn publish(&mut self, turn: &Turn<'_>) {
        let card = self.card.read(turn);
        let raise = self.engine.publish(&card.bus(turn.now));
        card.raise(raise, &self.counters);
    }

    fn defers_signal(&self) -> bool {
        self.engine.defers_signal()
    }

    fn end_turn(&mut self, turn: &Turn<'_>) {
        let card = self.card.read(turn);
        let raise = self.engine.end_turn(&card.bus(turn.now));
        card.raise(raise, &self.counters);
    }

    fn next_due(&self) -> Option<u64> {
        self.engine.next_due()
    }
}
