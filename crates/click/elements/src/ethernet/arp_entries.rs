//! Addresses learned by ARP, and the packets that wait for them.
use crate::packet::mac_text;
use alloc::collections::VecDeque;
use core::fmt::Write;
use core::net::Ipv4Addr;
use core::ops::Bound;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;
use ringway_click::{OrderedMap, Timestamp};
use ringway_wire::MacAddress;

/// Nanoseconds per jiffy, Click's unit of time.
const JIFFY: u64 = SECOND / 1000;
/// Maximum number of entries, regardless of the configuration. Attack: a scan of all addresses.
const MOST_ENTRIES: usize = 1 << 20;
/// Maximum number of waiting packets, regardless of the configuration. Attack: a scan of all addresses.
const MOST_PACKETS: usize = 1 << 20;
/// Jiffies between queries for an address: at first, and after [`MAX_QUICK_QUERIES`] unanswered queries.
const INTERVAL: u64 = 100;
const LONG_INTERVAL: u64 = 2000;
const MAX_QUICK_QUERIES: u8 = 10;

/// Initial order among entries learned at the same time; leaves room for smaller ones.
const FIRST_ORDER: u64 = 1 << 63;

#[derive(Debug)]
struct Entry {
    ether: Option<MacAddress>,
    /// Time at which it was learned, in jiffies; with `order`, its key in `ages`.
    live: u64,
    order: u64,
    polled: u64,
    polls: u8,
    waiting: VecDeque<Packet>,
}

impl Entry {
    fn may_poll(&mut self, now: u64) -> bool {
        let interval = if self.polls >= MAX_QUICK_QUERIES { LONG_INTERVAL } else { INTERVAL };
        let may = self.polls == 0 || now >= self.polled.saturating_add(interval);
        if may {
            self.polled = now;
            self.polls = self.polls.saturating_add(1);
        }
        may
    }
}

/// The result of [`ArpEntries::wait`].
#[derive(Debug)]
pub(super) enum Waiting {
    /// The packet is stored; whether to send a query for the address.
    Stored(bool),
    /// The packet was dropped, since too many wait already.
    Dropped,
}

/// The entries of an ARP table.
#[derive(Debug)]
pub(super) struct ArpEntries {
    entries: OrderedMap<u32, Entry>,
    ages: OrderedMap<(u64, u64), u32>,
    orders: u64,
    packets: usize,
    entry_capacity: u32,
    capacity: u32,
    entry_packet_capacity: u32,
    slim_factor: u32,
    /// Timeout of an entry in jiffies; 0 for no timeout.
    timeout: u64,
    /// Number of changes.
    pub(super) version: u64,
    pub(super) drops: u64,
}

impl Default for ArpEntries {
    fn default() -> Self {
        Self {
            entries: OrderedMap::new(),
            ages: OrderedMap::new(),
            orders: FIRST_ORDER,
            packets: 0,
            entry_capacity: 0,
            capacity: 2048,
            entry_packet_capacity: 0,
            slim_factor: 2,
            timeout: 300_000,
            version: 0,
            drops: 0,
        }
    }
}

pub(super) fn jiffies(nanoseconds: u64) -> u64 {
    nanoseconds / JIFFY
}

impl ArpEntries {
    /// Reads the arguments of a table.
    pub(super) fn read_arguments(&mut self, args: &mut Args) {
        let mut timeout = Nanoseconds(self.timeout * JIFFY);
        args.read("CAPACITY", &mut self.capacity);
        args.read("ENTRY_CAPACITY", &mut self.entry_capacity);
        args.read("ENTRY_PACKET_CAPACITY", &mut self.entry_packet_capacity);
        args.read("CAPACITY_SLIM_FACTOR", &mut self.slim_factor);
        args.read("TIMEOUT", &mut timeout);
        self.timeout = jiffies(timeout.0);
        if self.slim_factor == 0 {
            args.error("CAPACITY_SLIM_FACTOR cannot be zero");
        }
    }

    /// Interval in nanoseconds at which to call [`ArpEntries::slim`]; `None` if entries never expire.
    pub(super) fn period(&self) -> Option<u64> {
        (self.timeout > 0).then(|| (self.timeout / 1000 + 1) * SECOND)
    }

    pub(super) fn count(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn length(&self) -> usize {
        self.packets
    }

    /// Maximum number of waiting packets.
    fn most_packets(&self) -> usize {
        Some(self.capacity as usize).filter(|most| *most > 0).unwrap_or(MOST_PACKETS)
    }

    fn expired(&self, live: u64, now: u64) -> bool {
        self.timeout > 0 && live.saturating_add(self.timeout) < now
    }

    /// The Ethernet address of an IP address, and whether to query it again, `poll` jiffies after it was learned (0:
    /// never). If not, the answer is the same before the time returned, unless entries change.
    pub(super) fn lookup(&mut self, ip: Ipv4Addr, now: u64, poll: u64) -> Option<(MacAddress, Option<u64>)> {
        let after = |live: u64, time: u64| if time > 0 { live.saturating_add(time) } else { u64::MAX };
        let entry = self.entries.get_mut(ip.to_bits())?;
        let ether = entry.ether?;
        let (expiry, query) = (after(entry.live, self.timeout), after(entry.live, poll));
        if expiry < now {
            return None;
        }
        let ask = now >= query && entry.may_poll(now);
        Some((ether, (!ask).then_some(expiry.min(query))))
    }

    fn ensure(&mut self, ip: u32, now: u64) -> &mut Entry {
        self.version += 1;
        if !self.entries.contains_key(ip) {
            let most = Some(self.entry_capacity as usize).filter(|most| *most > 0).unwrap_or(MOST_ENTRIES);
            self.slim(now, most.saturating_sub(1));
            self.orders += 1;
            self.ages.insert((now, self.orders), ip);
        }
        let order = self.orders;
        self.entries.or_insert_with(ip, || Entry {
            ether: None,
            live: now,
            order,
            polled: 0,
            polls: 0,
            waiting: VecDeque::new(),
        })
    }

    /// Makes an entry the youngest of those learned at `live`.
    fn revive(&mut self, ip: u32, live: u64) {
        self.orders += 1;
        self.place(ip, live, self.orders);
    }

    /// Makes an entry the oldest of those learned at `live`.
    fn keep(&mut self, ip: u32, live: u64) {
        let first = self.ages.range(Bound::Included((live, 0))).next().map(|(key, _)| key);
        match first.filter(|key| key.0 == live) {
            Some((_, order)) => self.place(ip, live, order - 1),
            None => self.revive(ip, live),
        }
    }

    fn place(&mut self, ip: u32, live: u64, order: u64) {
        if let Some(entry) = self.entries.get_mut(ip) {
            self.ages.remove((entry.live, entry.order));
            (entry.live, entry.order) = (live, order);
            self.ages.insert((live, order), ip);
        }
    }

    /// Learns an address (the broadcast address: that it has no owner); returns the packets that waited for it.
    pub(super) fn insert(&mut self, ip: Ipv4Addr, ether: MacAddress, now: u64) -> VecDeque<Packet> {
        let ip = ip.to_bits();
        let entry = self.ensure(ip, now);
        entry.ether = (ether != MacAddress::BROADCAST).then_some(ether);
        (entry.polls, entry.polled) = (0, 0);
        let waiting = core::mem::take(&mut entry.waiting);
        self.packets -= waiting.len();
        self.revive(ip, now);
        waiting
    }

    /// Stores a packet until a reply arrives.
    pub(super) fn wait(&mut self, ip: Ipv4Addr, packet: Packet, now: u64) -> Waiting {
        let ip = ip.to_bits();
        let entry = self.ensure(ip, now);
        let (live, waiting) = (entry.live, entry.waiting.len());
        // An entry with a pending query is kept just short of expiry, so that it is not removed below.
        if self.expired(live, now) {
            self.keep(ip, now - self.timeout);
        }
        if self.entry_packet_capacity > 0 && waiting >= self.entry_packet_capacity as usize {
            self.drops += 1;
            return Waiting::Dropped;
        }
        let capacity = self.most_packets();
        if self.packets + 1 > capacity {
            self.slim(now, usize::MAX);
            self.drop_packets((capacity - capacity / self.slim_factor as usize).max(1) - 1);
        }
        let entry = self.ensure(ip, now);
        entry.waiting.push_back(packet);
        let ask = entry.may_poll(now);
        self.packets += 1;
        Waiting::Stored(ask)
    }

    /// Removes expired entries, and the oldest ones beyond `most`.
    pub(super) fn slim(&mut self, now: u64, most: usize) {
        while let Some(((live, order), &ip)) = self.ages.first()
            && (self.expired(live, now) || self.entries.len() > most)
        {
            self.version += 1;
            self.ages.remove((live, order));
            let waiting = self.entries.remove(ip).map_or(0, |entry| entry.waiting.len());
            self.packets -= waiting;
            self.drops += waiting as u64;
        }
    }

    /// Drops waiting packets, those of the oldest entries first, down to `most`.
    fn drop_packets(&mut self, most: usize) {
        for ip in self.ages.values() {
            let Some(entry) = self.entries.get_mut(*ip) else { continue };
            let excess = self.packets.saturating_sub(most).min(entry.waiting.len());
            entry.waiting.drain(..excess);
            self.packets -= excess;
            self.drops += excess as u64;
        }
    }

    /// Removes all entries.
    pub(super) fn clear(&mut self) {
        self.version += 1;
        self.drops += self.packets as u64;
        self.entries.clear();
        self.ages.clear();
        self.packets = 0;
    }

    /// Takes over another table's entries and waiting packets, as far as there is room for them.
    pub(super) fn take(&mut self, from: &mut Self) {
        self.version += 1;
        self.entries = core::mem::take(&mut from.entries);
        self.ages = core::mem::take(&mut from.ages);
        self.packets = core::mem::take(&mut from.packets);
        (self.orders, self.drops) = (from.orders, from.drops);
        self.slim(0, Some(self.entry_capacity as usize).filter(|most| *most > 0).unwrap_or(MOST_ENTRIES));
        self.drop_packets(self.most_packets());
    }

    /// The `table` handler: oldest first.
    pub(super) fn table(&self, now: u64) -> String {
        let mut text = String::new();
        for ((live, _), ip) in self.ages.iter() {
            let Some(entry) = self.entries.get(*ip) else { continue };
            let known = entry.ether.is_some() && !self.expired(live, now);
            let ether = mac_text(entry.ether.unwrap_or(MacAddress::BROADCAST));
            let age = Timestamp(now.saturating_sub(live) * JIFFY);
            let _ = writeln!(text, "{} {} {ether} {age}", Ipv4Addr::from_bits(*ip), u8::from(known));
        }
        text
    }

    /// Inserts or deletes an entry, for the handlers `insert` and `delete`.
    ///
    /// # Errors
    /// [`HandlerError::Failed`] if it is not an address, or two.
    pub(super) fn change(
        &mut self,
        insert: bool,
        value: &str,
        now: u64,
        cx: &ringway_click::Context<'_>,
    ) -> Result<(), HandlerError> {
        let (ip, ether) = value.trim().split_once(char::is_whitespace).unwrap_or((value, ""));
        let wrong = |field: &str| HandlerError::failed(alloc::format!("{field}: parse error"));
        let ip: Ipv4Addr = cx.parse(ip).map_err(|_| wrong("IP"))?;
        let ether = match insert {
            true => cx.parse(ether).map_err(|_| wrong("ETH"))?,
            false => MacAddress::BROADCAST,
        };
        let dropped = self.insert(ip, ether, now).len() as u64;
        self.drops += dropped;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_click::Pool;

    #[test]
    fn the_first_packet_sends_a_query_even_when_the_clock_has_just_started() {
        let mut entries = ArpEntries::default();
        let mut ask = |now| {
            let packet = Pool::new().copy(&[0; 20]).unwrap();
            matches!(entries.wait(Ipv4Addr::LOCALHOST, packet, now), Waiting::Stored(true))
        };
        assert_eq!([0, 1, INTERVAL - 1, INTERVAL].map(&mut ask), [true, false, false, true]);
    }
}
