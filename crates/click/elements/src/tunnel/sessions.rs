//! Sessions of a concentrator, looked up by the subscriber's Ethernet address and session number, or by the
//! subscriber's address or IPv6 prefix.
use crate::flow::table::FlowTable;
use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use ringway_click::arg::Prefix6;
use ringway_click::prelude::*;
use ringway_wire::MacAddress;

/// Nanoseconds per tick of a token bucket.
const TICK: u64 = SECOND / 1000;
/// Minimum depth of a token bucket in bytes, so that a frame always fits: two of the largest Ethernet frames.
const LEAST: u32 = 3028;

/// One direction of a session.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Direction {
    /// Packets passed.
    pub(super) packets: u64,
    /// Bytes passed.
    pub(super) bytes: u64,
    /// Packets dropped by the rate limit.
    pub(super) limited: u64,
    tokens: u32,
    /// When tokens were last added, in ticks.
    filled: u32,
}

impl Direction {
    /// Whether `bytes` conform to a rate in bytes per second (0: unlimited) at this time; counts them.
    #[inline]
    pub(super) fn pass(&mut self, bytes: usize, rate: u32, now: u64) -> bool {
        let passed = rate == 0 || self.take(bytes as u32, rate, (now / TICK) as u32);
        let one = u64::from(passed);
        self.packets += one;
        self.bytes += one * bytes as u64;
        self.limited += 1 - one;
        passed
    }

    /// The bucket holds a tenth of a second's bytes.
    fn take(&mut self, bytes: u32, rate: u32, tick: u32) -> bool {
        let most = (rate / 10).max(LEAST);
        let passed = tick.wrapping_sub(self.filled);
        let more = u64::from(passed) * u64::from(rate) / 1000;
        if more > 0 {
            self.tokens = u64::from(self.tokens).saturating_add(more).min(most.into()) as u32;
            self.filled = tick;
        }
        let rest = self.tokens.checked_sub(bytes);
        self.tokens = rest.unwrap_or(self.tokens);
        rest.is_some()
    }
}

/// A session's IPv6 prefix: its first bits, and its length, at most 64; 0 if the session has no prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delegation {
    bits: u64,
    length: u8,
}

impl Delegation {
    /// The prefix; `None` if it is longer than 64 bits.
    pub(super) fn new(prefix: Prefix6) -> Option<Self> {
        let length = prefix.length;
        if !(1..=64).contains(&length) {
            return None;
        }
        Some(Self { bits: (prefix.address.to_bits() >> 64) as u64 & mask(length), length })
    }

    /// Whether the prefix contains an address, given by its first 64 bits.
    #[inline]
    pub(super) fn holds(self, address: u64) -> bool {
        self.length > 0 && address & mask(self.length) == self.bits
    }

    pub(super) fn prefix(self) -> Prefix6 {
        Prefix6 { address: Ipv6Addr::from_bits(u128::from(self.bits) << 64), length: self.length }
    }

    fn is_none(self) -> bool {
        self.length == 0
    }
}

impl fmt::Display for Delegation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv6Addr::from_bits(u128::from(self.bits) << 64), self.length)
    }
}

fn mask(length: u8) -> u64 {
    u64::MAX.checked_shl(64 - u32::from(length)).unwrap_or(0)
}

/// A session. What packets from the subscriber need comes first, on the cache line of the table's entry.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Session {
    /// The subscriber's address.
    pub(super) address: u32,
    /// Bytes per second in each direction; 0 for no limit.
    pub(super) rate: u32,
    /// Packets from the subscriber.
    pub(super) up: Direction,
    /// Packets to the subscriber.
    pub(super) down: Direction,
    /// The subscriber's IPv6 prefix.
    pub(super) delegation: Delegation,
}

const _: () = assert!(core::mem::offset_of!(Session, down) == 40);

/// The key of a session: the subscriber's Ethernet address and the session number.
#[inline]
pub(super) fn name(subscriber: MacAddress, session: u16) -> u64 {
    let [a, b, c, d, e, f] = subscriber.0;
    let [g, h] = session.to_be_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// The parts of a key.
pub(super) fn parts(name: u64) -> (MacAddress, u16) {
    let [a, b, c, d, e, f, g, h] = name.to_be_bytes();
    (MacAddress([a, b, c, d, e, f]), u16::from_be_bytes([g, h]))
}

/// Why a session can't be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The table is full.
    Full,
    /// Another session has the address.
    AddressTaken,
    /// Another session has the prefix.
    PrefixTaken,
    /// The session number 0 or 65535 is reserved (RFC 2516, 5.4).
    Number,
}

/// All sessions.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// Sessions by key.
    pub(super) sessions: FlowTable<u64, Session>,
    /// Slot numbers in `sessions`, by address.
    pub(super) addresses: FlowTable<u32, u32>,
    /// Slot numbers in `sessions` by the first bits of the prefix, for each prefix length in use, longest first.
    prefixes: Vec<(u8, FlowTable<u64, u32>)>,
    seed: u64,
}

impl Sessions {
    /// An empty table with room for this many sessions.
    pub(super) fn new(capacity: u32, seed: u64) -> Self {
        Self {
            sessions: FlowTable::new(capacity, seed),
            addresses: FlowTable::new(capacity, seed),
            prefixes: Vec::new(),
            seed,
        }
    }

    /// Hashes all keys by another seed.
    pub(super) fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.sessions.reseed(seed);
        self.addresses.reseed(seed);
        self.prefixes.iter_mut().for_each(|(_, table)| table.reseed(seed));
    }

    /// The place of a length in `prefixes`, or where it belongs.
    fn place(&self, length: u8) -> Result<usize, usize> {
        self.prefixes.binary_search_by(|(other, _)| length.cmp(other))
    }

    fn holder(&self, Delegation { bits, length }: Delegation) -> Option<u32> {
        let (_, table) = self.prefixes.get(self.place(length).ok()?)?;
        table.get(table.find_one(bits)?).map(|(_, number)| *number)
    }

    /// The session with the longest prefix that contains an address, given by its first 64 bits.
    pub(super) fn by_prefix(&self, address: u64) -> Option<u32> {
        self.prefixes.iter().find_map(|(length, table)| {
            table.get(table.find_one(address & mask(*length))?).map(|(_, number)| *number)
        })
    }

    fn set_prefix(&mut self, new: Delegation, old: Delegation, number: u32, now: u64) {
        if new == old {
            return;
        }
        if let Ok(place) = self.place(old.length)
            && let Some((_, table)) = self.prefixes.get_mut(place)
            && let Some(at) = table.find_one(old.bits)
        {
            table.remove(at);
        }
        if !new.is_none() {
            let (capacity, seed) = (self.sessions.capacity(), self.seed);
            let place = self.place(new.length).unwrap_or_else(|place| {
                self.prefixes.insert(place, (new.length, FlowTable::new(capacity, seed)));
                place
            });
            self.prefixes[place].1.add_one(new.bits, number, now);
        }
        self.prefixes.retain(|(_, table)| table.len() > 0);
    }

    /// Adds a session, or changes the address or rate of an existing one, whose counts are kept.
    pub(super) fn add(
        &mut self,
        name: u64,
        (address, delegation): (Ipv4Addr, Delegation),
        rate: u32,
        now: u64,
    ) -> Result<(), Refused> {
        let (address, (_, number)) = (address.to_bits(), parts(name));
        if matches!(number, 0 | u16::MAX) {
            return Err(Refused::Number);
        }
        let own = self.sessions.find_one(name);
        let holder = self.addresses.find_one(address).and_then(|at| self.addresses.get(at));
        if holder.is_some_and(|(_, holder)| Some(*holder) != own) {
            return Err(Refused::AddressTaken);
        }
        if self.holder(delegation).is_some_and(|holder| Some(holder) != own) {
            return Err(Refused::PrefixTaken);
        }
        let known = own.and_then(|number| self.sessions.get(number)).map(|(_, session)| *session);
        let number = match own {
            Some(number) => number,
            None if self.sessions.len() >= self.sessions.capacity() => return Err(Refused::Full),
            None => self.sessions.add_one(name, Session::default(), now).0,
        };
        if let Some(known) = known.filter(|known| known.address != address) {
            self.forget_address(known.address);
        }
        if self.addresses.find_one(address).is_none() {
            self.addresses.add_one(address, number, now);
        }
        self.set_prefix(
            delegation,
            known.map_or(Delegation::default(), |known| known.delegation),
            number,
            now,
        );
        if let Some(session) = self.sessions.get_mut(number) {
            (session.address, session.rate, session.delegation) = (address, rate, delegation);
        }
        Ok(())
    }

    /// Removes a session; returns whether it existed.
    pub(super) fn remove(&mut self, name: u64) -> bool {
        let Some(number) = self.sessions.find_one(name) else { return false };
        if let Some((_, session)) = self.sessions.remove(number) {
            self.forget_address(session.address);
            self.set_prefix(Delegation::default(), session.delegation, number, 0);
        }
        true
    }

    fn forget_address(&mut self, address: u32) {
        if let Some(at) = self.addresses.find_one(address) {
            self.addresses.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(last: u8) -> MacAddress {
        MacAddress([2, 0, 0, 0, 0, last])
    }

    #[test]
    fn an_address_belongs_to_one_session() {
        let (mut sessions, none) = (Sessions::new(2, 1), Delegation::default());
        let (one, two) = (name(mac(1), 7), name(mac(2), 7));
        let (first, second) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
        assert_eq!(sessions.add(one, (first, none), 0, 0), Ok(()));
        assert_eq!(sessions.add(two, (first, none), 0, 0), Err(Refused::AddressTaken));
        assert_eq!(sessions.add(two, (second, none), 0, 0), Ok(()));
        assert_eq!(sessions.add(name(mac(3), 7), ([10, 0, 0, 3].into(), none), 0, 0), Err(Refused::Full));
        assert_eq!(sessions.add(name(mac(3), 0), ([10, 0, 0, 3].into(), none), 0, 0), Err(Refused::Number));
        assert_eq!(sessions.add(one, ([10, 0, 0, 9].into(), none), 5, 0), Ok(()));
        assert_eq!(sessions.add(two, (first, none), 0, 0), Ok(()));
        assert_eq!(parts(one), (mac(1), 7));
        assert!(sessions.remove(one) && !sessions.remove(one));
        assert_eq!((sessions.sessions.len(), sessions.addresses.len()), (1, 1));
    }

    #[test]
    fn a_prefix_belongs_to_one_session() {
        let mut sessions = Sessions::new(3, 1);
        let prefix =
            |text: &str, length| Delegation::new(Prefix6 { address: text.parse().unwrap(), length }).unwrap();
        let bits = |text: &str| (text.parse::<Ipv6Addr>().unwrap().to_bits() >> 64) as u64;
        let (wide, narrow) = (prefix("2001:db8::", 48), prefix("2001:db8:0:5::9", 64));
        let mut add =
            |last, prefix| sessions.add(name(mac(last), 7), ([10, 0, 0, last].into(), prefix), 0, 0);
        assert_eq!(
            (add(1, wide), add(2, narrow), add(3, narrow)),
            (Ok(()), Ok(()), Err(Refused::PrefixTaken))
        );
        let number = |sessions: &Sessions, last| sessions.sessions.find_one(name(mac(last), 7));
        assert_eq!(sessions.by_prefix(bits("2001:db8:0:5::1")), number(&sessions, 2));
        assert_eq!(sessions.by_prefix(bits("2001:db8:0:6::1")), number(&sessions, 1));
        assert_eq!(sessions.by_prefix(bits("2001:db9::")), None);
        assert!(sessions.remove(name(mac(2), 7)));
        assert_eq!(sessions.by_prefix(bits("2001:db8:0:5::1")), number(&sessions, 1));
        assert_eq!(narrow.to_string(), "2001:db8:0:5::/64");
        assert!(Delegation::new(Prefix6 { address: Ipv6Addr::LOCALHOST, length: 65 }).is_none());
    }

    #[test]
    fn a_rate_limit_holds_over_a_second() {
        let mut direction = Direction::default();
        let passed = (0..10_000u64).filter(|step| direction.pass(1000, 1_000_000, SECOND + step * TICK / 10));
        // A second at a million bytes per second, plus the bucket's initial tenth of a second.
        assert!((1000..=1101).contains(&passed.count()));
        assert_eq!(direction.packets + direction.limited, 10_000);
    }
}
