//! The TX queue: frames from a guest.

use super::card::Card;
use ringway_frame::{Burst, CountersRef, TxQueue};
use ringway_mem::{Published, Turn};
use ringway_nic::e1000::TxEngine;
use std::sync::Arc;

/// A card's transmit queue, used by one worker.
pub(super) struct CardTx {
    card: Arc<Published<Card>>,
    engine: TxEngine,
    counters: CountersRef,
}

impl CardTx {
    pub fn new(card: Arc<Published<Card>>, counters: CountersRef) -> CardTx {
        CardTx { card, engine: TxEngine::new(counters.clone()), counters }
    }
}

impl TxQueue for CardTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        let card = self.card.read(turn);
        let raise = self.engine.take(&card.bus(turn.now), burst);
        card.raise(raise, &self.counters);
    }

    fn release(&mut self, turn: &Turn<'_>, frames: usize) {
        let card = self.card.read(turn);
        let raise = self.engine.release(&card.bus(turn.now), frames);
        card.raise(raise, &self.counters);
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        self.engine.arm(&self.card.read(turn).bus(turn.now))
    }

    fn disarm(&mut self, turn: &Turn<'_>) {
        self.engine.disarm(&self.card.read(turn).bus(turn.now));
    }

    fn next_due(&self) -> Option<u64> {
        self.engine.next_due()
    }
}
