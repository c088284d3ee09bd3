//! `CoDel(TARGET, INTERVAL, QUEUES)`: drops packets when even the one that waited least has waited too
//! long (controlled delay, RFC 8289).
//!
//! Ports: one pull input, one pull output; optionally a push output that gets the packets chosen.
//!
//! Arguments:
//! - `TARGET`: how long packets may wait, in milliseconds; 5 by default.
//! - `INTERVAL`: for so many milliseconds, or longer, all must have waited longer before any is dropped;
//!   100 by default.
//! - `QUEUES`: names of queues whose lengths `stats` says, instead of the nearest.
//!
//! How long a packet waited is the time since its first timestamp, as `SetTimestamp(FIRST true)` before
//! the queue sets it; packets without one pass. Afterwards that annotation says how long it was. Handlers:
//! `target` or `codel_target`, `interval` or `codel_interval` (read, write); `drops`, `queues`, `stats` (read).
use super::queues::Queues;
use ringway_click::BEHIND;
use ringway_click::arg::Raw;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("CoDel", || Box::<CoDel>::default()).ports("1/1-2").processing("l/lh").live();

/// A millisecond.
const MILLI: u64 = 1_000_000;
/// Maximum number of drops in one pull. Attack: a queue full of old packets, all of which one pull would drop.
const MOST: u32 = 1000;

#[derive(Debug, Default)]
pub struct CoDel {
    queues: Queues,
    target: u32,
    interval: u32,
    /// The time at which the delay will have exceeded the target for an interval; 0 if it does not exceed the target.
    first_above: u64,
    dropping: bool,
    /// The time of the next drop.
    next: u64,
    /// Drops in the current dropping state, and in the one before.
    count: u32,
    last_count: u32,
    drops: u64,
}

impl CoDel {
    /// The next packet, and whether it may be dropped. An empty queue ends the dropping state.
    fn look(&mut self, now: u64, cx: &mut Context<'_>) -> Option<(Packet, bool)> {
        let Some(mut packet) = cx.lend(self, |cx| cx.pull_one(0)) else {
            (self.first_above, self.dropping) = (0, false);
            return None;
        };
        let since = packet.notes().u64(Annotations::FIRST_TIMESTAMP);
        let waited = if since == 0 { 0 } else { now.saturating_sub(since) };
        packet.notes_mut().set_u64(Annotations::FIRST_TIMESTAMP, waited);
        if waited < u64::from(self.target) * MILLI {
            self.first_above = 0;
            return Some((packet, false));
        }
        if self.first_above == 0 {
            self.first_above = now + u64::from(self.interval) * MILLI;
            return Some((packet, false));
        }
        Some((packet, now >= self.first_above))
    }

    /// The time of the drop after a drop at `from`: the interval shrinks with the number of drops.
    fn after(&self, from: u64) -> u64 {
        let interval = u128::from(self.interval) * u128::from(MILLI);
        // Integer arithmetic: the square root of the quotient's square.
        let gap = (interval * interval / u128::from(self.count.max(1))).isqrt();
        from.saturating_add(u64::try_from(gap).unwrap_or(u64::MAX))
    }

    fn drop_one(&mut self, packet: Packet, cx: &mut Context<'_>) {
        self.drops += 1;
        cx.push(1, packet);
    }

    fn one(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let now = cx.packet_time();
        let (mut packet, mut may_drop) = self.look(now, cx)?;
        if self.dropping {
            self.dropping = may_drop;
            let mut in_a_row = 0;
            if self.next < now.saturating_sub(BEHIND) {
                self.next = now;
            }
            while self.dropping && now >= self.next && in_a_row < MOST {
                self.drop_one(packet, cx);
                (self.count, in_a_row) = (self.count.saturating_add(1), in_a_row + 1);
                (packet, may_drop) = self.look(now, cx)?;
                self.dropping = may_drop;
                if may_drop {
                    self.next = self.after(self.next);
                }
            }
            return Some(packet);
        }
        if !may_drop {
            return Some(packet);
        }
        self.drop_one(packet, cx);
        let next = self.look(now, cx);
        self.dropping = true;
        // After a short pause the drop rate continues near its previous value.
        let delta = self.count.saturating_sub(self.last_count);
        let recent = now.saturating_sub(self.next) < 16 * u64::from(self.interval) * MILLI;
        self.count = if delta > 1 && recent { delta } else { 1 };
        self.last_count = self.count;
        self.next = self.after(now);
        next.map(|(packet, _)| packet)
    }
}

impl Element for CoDel {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut names = Raw::default();
        (self.target, self.interval) = (5, 100);
        args.read_p("TARGET", &mut self.target);
        args.read_p("INTERVAL", &mut self.interval);
        args.read("QUEUES", &mut names);
        args.complete()?;
        self.queues = Queues::named(names.0);
        if self.interval == 0 {
            return Err(cx.error("INTERVAL must be >= 1"));
        }
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.queues.find(false, cx)
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        while burst.len() < max
            && let Some(packet) = self.one(cx)
        {
            burst.push(packet);
        }
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        (self.first_above, self.next, self.dropping) = (from.first_above, from.next, from.dropping);
        (self.count, self.last_count) = (from.count, from.last_count);
    }

    fn handlers(&self) -> Vec<Handler> {
        let target = |name| Handler::field(name, |e: &mut Self| &mut e.target).argument(Some(0), "TARGET");
        let interval = |name| {
            Handler::read(name, |e: &Self| e.interval)
                .writes(|e: &mut Self, value, cx| match cx.parse(value)? {
                    0 => Err(HandlerError::failed("INTERVAL must be >= 1")),
                    interval => {
                        e.interval = interval;
                        Ok(())
                    }
                })
                .argument(Some(1), "INTERVAL")
        };
        [
            target("target"),
            target("codel_target"),
            interval("interval"),
            interval("codel_interval"),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::read_with("queues", |e: &mut Self, _, cx| Ok(e.queues.names(cx, "\n"))),
            Handler::read_with("stats", |e: &mut Self, _, cx| {
                Ok(format!("{} current queue\n{} drops\n", e.queues.length(cx), e.drops))
            }),
        ]
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drop_intervals_shrink_with_the_square_root() {
        let of = |count| CoDel { interval: 100, count, ..CoDel::default() }.after(1000) - 1000;
        assert_eq!([of(1), of(4), of(100)], [100 * MILLI, 50 * MILLI, 10 * MILLI]);
    }
}
