//! Addresses for subscribers.
use core::net::Ipv4Addr;
use ringway_click::OrderedSet;
use ringway_click::arg::Prefix;

/// A prefix's addresses, except the first and the last one if it has more than two, and the server's.
#[derive(Debug, Default)]
pub(super) struct Pool {
    first: u32,
    /// Number of addresses.
    size: u32,
    /// Where to look for a free one, so that addresses are not reused at once.
    next: u32,
    taken: OrderedSet<u32>,
}

impl Pool {
    /// `None` if the mask is not contiguous.
    pub(super) fn new(prefix: Prefix) -> Option<Self> {
        let length = prefix.length()?;
        let (mask, bits) = (prefix.mask.to_bits(), 32 - length);
        let size = 1u64 << bits;
        let (first, size) = (prefix.address.to_bits() & mask, size.min(u32::MAX.into()) as u32);
        let edge = u32::from(size > 2);
        Some(Self { first: first + edge, size: size - 2 * edge, ..Self::default() })
    }

    /// Marks an address as taken; whether it belongs to the pool and was free. Others are no concern of the pool.
    pub(super) fn take(&mut self, address: Ipv4Addr) -> bool {
        let at = address.to_bits().wrapping_sub(self.first);
        at < self.size && self.taken.insert(at)
    }

    /// Whether an address belongs to it.
    pub(super) fn contains(&self, address: Ipv4Addr) -> bool {
        address.to_bits().wrapping_sub(self.first) < self.size
    }

    /// A free address.
    pub(super) fn get(&mut self) -> Option<Ipv4Addr> {
        if self.taken.len() as u32 >= self.size {
            return None;
        }
        let mut at = self.next;
        // Attack: sessions in such numbers that a free address is long sought. Taken addresses are as many as
        // sessions at most, and are skipped in order.
        for taken in self.taken.range(at) {
            if taken != at {
                break;
            }
            at += 1;
        }
        if at >= self.size {
            at = 0;
            for taken in self.taken.iter() {
                if taken != at {
                    break;
                }
                at += 1;
            }
        }
        self.taken.insert(at);
        self.next = at + 1;
        Some(Ipv4Addr::from_bits(self.first + at))
    }

    /// Frees an address, if it belongs to the pool.
    pub(super) fn give_back(&mut self, address: Ipv4Addr) {
        self.taken.remove(address.to_bits().wrapping_sub(self.first));
    }
}
