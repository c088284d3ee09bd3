//! The RX queue: frames to a guest.

use super::card::Card;
use super::device::LINK;
use ringway_frame::{Burst, Caps, CountersRef, Lost, Reason, RxQueue};
use ringway_mem::{Published, Turn};
use ringway_nic::{Chip, Receive};
use std::sync::Arc;

/// A card's receive queue, used by one worker at a time.
pub(super) struct CardRx<N: Chip> {
    card: Arc<Published<Card<N::Shared>>>,
    engine: N::Rx,
    counters: CountersRef,
}

impl<N: Chip> CardRx<N> {
    pub fn new(card: Arc<Published<Card<N::Shared>>>, engine: N::Rx, counters: CountersRef) -> Self {
        CardRx { card, engine, counters }
    }
}

impl<N: Chip> RxQueue for CardRx<N> {
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

    fn framing(&self) -> u32 {
        LINK
    }

    fn refusal(&self, place: usize) -> Option<Reason> {
        self.engine.refusal(place)
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
