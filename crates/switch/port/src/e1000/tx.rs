//! The TX queue: frames from a guest.

use super::card::Card;
use ringway_frame::{Burst, CountersRef, TxQueue};
use ringway_mem::{Published, Turn};
use ringway_nic::{Chip, Transmit};
use std::sync::Arc;

/// A card's transmit queue, used by one worker.
pub(super) struct CardTx<N: Chip> {
    card: Arc<Published<Card<N::Shared>>>,
    engine: N::Tx,
    counters: CountersRef,
}

impl<N: Chip> CardTx<N> {
    pub fn new(card: Arc<Published<Card<N::Shared>>>, engine: N::Tx, counters: CountersRef) -> Self {
        CardTx { card, engine, counters }
    }
}

impl<N: Chip> TxQueue for CardTx<N> {
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
