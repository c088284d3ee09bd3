//! `AggregateIPAddrPair(TIMEOUT, REAP)`: sets packets' aggregate annotation to the number of their pair of IPv4
//! addresses, counted from 1, and the paint to their direction: 0 in the direction of the pair's first packet, 1 for
//! replies.
//!
//! Ports: one input, one output, push or pull; a second output, push, gets packets without an IPv4 header, and those
//! of new pairs if there are 1048576 already; without a second output these are dropped.
//!
//! Arguments:
//! - `TIMEOUT`: time without packets after which a pair gets a new number; never by default.
//! - `REAP`: interval at which expired pairs are removed; 20 minutes.
//!
//! Times are the packets' timestamps.
//!
//! Handlers: `clear` (write): removes all pairs.
use crate::packet::divert;
use ringway_click::OrderedMap;
use ringway_click::arg::Seconds;
use ringway_click::prelude::*;
use ringway_wire::Ipv4;

pub static CLASS: Class = Class::new("AggregateIPAddrPair", || Box::<AggregateIpAddrPair>::default())
    .ports("1/1-2")
    .processing("a/ah");

/// Maximum number of pairs. Attack: packets with ever new addresses.
const MOST: usize = 1 << 20;

#[derive(Debug)]
struct Pair {
    number: u32,
    /// The source address of the pair's first packet.
    first: u32,
    last: u64,
}

#[derive(Debug)]
pub struct AggregateIpAddrPair {
    pairs: OrderedMap<(u32, u32), Pair>,
    next: u32,
    timeout: Option<u64>,
    reap: u64,
    reap_at: u64,
}

impl Default for AggregateIpAddrPair {
    fn default() -> Self {
        Self { pairs: OrderedMap::new(), next: 1, timeout: None, reap: 1200 * SECOND, reap_at: 0 }
    }
}

impl AggregateIpAddrPair {
    fn forget(&mut self, now: u64) {
        if let Some(timeout) = self.timeout {
            self.pairs.retain(|_, pair| now.saturating_sub(pair.last) <= timeout);
        }
    }

    /// The packet's aggregate number and direction.
    fn tag(&mut self, packet: &Packet) -> Option<(u32, u8)> {
        let (ip, ..) = Ipv4::parse(packet.network_data()?).filter(|(ip, ..)| ip.version() == 4)?;
        let (source, destination) = (ip.source.get(), ip.destination.get());
        let now = packet.timestamp();
        if now >= self.reap_at {
            self.forget(now);
            self.reap_at = now.saturating_add(self.reap.max(1));
        }
        let name = (source.min(destination), source.max(destination));
        let timeout = self.timeout;
        let over = |pair: &Pair| timeout.is_some_and(|timeout| now.saturating_sub(pair.last) > timeout);
        if let Some(pair) = self.pairs.get_mut(name).filter(|pair| !over(pair)) {
            pair.last = pair.last.max(now);
            return Some((pair.number, u8::from(pair.first != source)));
        }
        if self.pairs.len() >= MOST && !self.pairs.contains_key(name) {
            return None;
        }
        let number = self.next;
        self.pairs.insert(name, Pair { number, first: source, last: now });
        self.next = number.wrapping_add(1);
        Some((number, 0))
    }
}

impl Element for AggregateIpAddrPair {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let (mut timeout, mut reap) = (Seconds::default(), Seconds::default());
        if args.read("TIMEOUT", &mut timeout) && timeout.0 > 0 {
            self.timeout = Some(u64::from(timeout.0) * SECOND);
        }
        if args.read("REAP", &mut reap) {
            self.reap = u64::from(reap.0) * SECOND;
        }
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| {
            let Some((number, direction)) = self.tag(packet) else { return false };
            let notes = packet.notes_mut();
            notes.set_u32(Annotations::AGGREGATE, number);
            notes.set_u8(Annotations::PAINT, direction);
            true
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::button("clear", |e: &mut Self, _| e.pairs.clear())].into()
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        if let Some(from) = from.downcast_mut::<Self>() {
            (self.pairs, self.next) = (core::mem::take(&mut from.pairs), from.next);
        }
    }
}
