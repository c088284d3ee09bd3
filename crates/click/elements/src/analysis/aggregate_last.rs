//! `AggregateLast([STOP_AFTER_CLEAR, NOTIFIER])`: stores the last packet of each aggregate, and emits it on `clear`,
//! with annotations for the aggregate's packets, bytes and first timestamp (extra packets, extra length, first
//! timestamp).
//!
//! Ports: one push input; one push output, and optionally a second one for packets that are not the last.
//!
//! Arguments:
//! - `STOP_AFTER_CLEAR`: the driver stops after `clear`; false by default.
//! - `NOTIFIER`: an element that numbers aggregates; ignored, since memory is bounded without it.
//!
//! At most 65536 aggregates are stored; if there are more, the packet of the least recently used of sixteen is
//! emitted, and that aggregate is removed.
//!
//! Handlers: `count` (stored aggregates) (read); `clear` (write): emits all packets and removes the aggregates.
use crate::flow::table::FlowTable;
use ringway_click::arg::Word;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("AggregateLast", || Box::<AggregateLast>::default()).ports("1/1-2").processing("h");

/// Maximum number of packets kept. Attack: endless aggregates, each of which keeps a packet.
const MOST: u32 = 1 << 16;

#[derive(Debug, Default)]
struct Seen {
    last: Option<Packet>,
    packets: u32,
    bytes: u32,
    first: u64,
}

#[derive(Debug)]
pub struct AggregateLast {
    aggregates: FlowTable<u32, Seen>,
    seed: u64,
    stop: bool,
}

impl Default for AggregateLast {
    fn default() -> Self {
        Self { aggregates: FlowTable::new(MOST, 0), seed: 0, stop: false }
    }
}

/// The last packet, with its annotations set.
fn finished(seen: Seen) -> Option<Packet> {
    let mut packet = seen.last?;
    let length = packet.len() as u32;
    let notes = packet.notes_mut();
    notes.set_u32(Annotations::EXTRA_PACKETS, seen.packets.wrapping_sub(1));
    notes.set_u32(Annotations::EXTRA_LENGTH, seen.bytes.wrapping_sub(length));
    notes.set_u64(Annotations::FIRST_TIMESTAMP, seen.first);
    Some(packet)
}

impl AggregateLast {
    /// Emits the last packet of each aggregate, and removes all aggregates.
    fn clear(&mut self, cx: &mut Context<'_>) {
        let mut steps = self.aggregates.slots();
        while let Some(number) = self.aggregates.next_old(&mut steps, |_, _| true) {
            if let Some(packet) = self.aggregates.remove(number).and_then(|(_, seen)| finished(seen)) {
                cx.push(0, packet);
            }
        }
        self.aggregates = FlowTable::new(MOST, self.seed);
        cx.flush();
        if self.stop {
            cx.stop();
        }
    }
}

impl Element for AggregateLast {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        args.read("STOP_AFTER_CLEAR", &mut self.stop);
        args.read("NOTIFIER", &mut Word::default());
        self.seed = cx.own_seed();
        self.aggregates = FlowTable::new(MOST, self.seed);
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        for packet in burst.drain() {
            let aggregate = packet.notes().u32(Annotations::AGGREGATE);
            // Extra packets that the packet represents are counted too.
            let more = packet.notes().u32(Annotations::EXTRA_PACKETS).wrapping_add(1);
            let length = packet.notes().u32(Annotations::EXTRA_LENGTH).wrapping_add(packet.len() as u32);
            let number = self.aggregates.find_one(aggregate).unwrap_or_else(|| {
                let seen = Seen { first: packet.timestamp(), ..Seen::default() };
                let (number, evicted) = self.aggregates.add_one(aggregate, seen, now);
                if let Some(packet) = evicted.and_then(|(_, seen)| finished(seen)) {
                    cx.push(0, packet);
                }
                number
            });
            let Some(seen) = self.aggregates.touch(number, now) else { continue };
            seen.packets = seen.packets.wrapping_add(more);
            seen.bytes = seen.bytes.wrapping_add(length);
            if let Some(before) = seen.last.replace(packet) {
                cx.push(1, before);
            }
        }
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.seed = cx.own_seed();
        self.aggregates.reseed(self.seed);
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        core::mem::swap(&mut self.aggregates, &mut from.aggregates);
        self.seed = from.seed;
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("count", |e: &Self| e.aggregates.len()), Handler::button("clear", Self::clear)].into()
    }
}
