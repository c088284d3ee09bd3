//! `AggregateFirst([NOTIFIER])`: passes the first packet of each aggregate.
//!
//! Ports: one input; one output, and optionally a push output for all later packets.
//!
//! Arguments:
//! - `NOTIFIER`: an element that numbers aggregates; ignored, since memory is bounded without it.
//!
//! At most 16777216 aggregates are remembered; if there are more, an old one is forgotten, and its next packet counts
//! as its first.
//!
//! Handlers: `count` (remembered aggregates) (read); `clear` (write): forgets all aggregates.
use crate::flow::table::{FlowTable, LARGEST};
use crate::packet::divert;
use ringway_click::arg::Word;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("AggregateFirst", || Box::<AggregateFirst>::default()).ports("1/1-2").processing("a/ah");

#[derive(Debug, Default)]
pub struct AggregateFirst {
    known: FlowTable<u32, ()>,
    seed: u64,
}

impl Element for AggregateFirst {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.seed = cx.own_seed();
        self.known = FlowTable::new(LARGEST, self.seed);
        args.read("NOTIFIER", &mut Word::default());
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        divert(burst, cx, |packet, _| {
            let aggregate = packet.notes().u32(Annotations::AGGREGATE);
            let first = self.known.find_one(aggregate).is_none();
            if first {
                self.known.add_one(aggregate, (), now);
            }
            first
        });
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.seed = cx.own_seed();
        self.known.reseed(self.seed);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.known.len()),
            Handler::button("clear", |e: &mut Self, _| e.known = FlowTable::new(LARGEST, e.seed)),
        ]
        .into()
    }
}
