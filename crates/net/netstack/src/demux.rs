//! From addresses and ports to a socket in constant time.

use crate::hash::Secret;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

const NONE: u32 = u32::MAX;

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuple {
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

impl Tuple {
    /// The words that are hashed.
    pub(crate) fn words(&self) -> [u64; 5] {
        let [a, b] = address_words(self.local.ip());
        let [c, d] = address_words(self.remote.ip());
        [a, b, c, d, u64::from(self.local.port()) << 16 | u64::from(self.remote.port())]
    }
}

/// An address as two words.
pub(crate) fn address_words(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    [(bits >> 64) as u64, bits as u64]
}

#[derive(Clone, Copy, Debug)]
struct Link {
    tuple: Tuple,
    next: u32,
}

/// A hash table of connections, chained through an array with one link for each socket.
#[derive(Debug)]
pub(crate) struct Demux {
    secret: Secret,
    buckets: Vec<u32>,
    links: Vec<Option<Link>>,
    count: usize,
}

impl Demux {
    pub(crate) fn new(secret: Secret) -> Demux {
        Demux { secret, buckets: alloc::vec![NONE; 64], links: Vec::new(), count: 0 }
    }

    fn bucket(&self, tuple: &Tuple) -> usize {
        self.secret.hash(&tuple.words()) as usize & (self.buckets.len() - 1)
    }

    /// The socket of a connection.
    pub(crate) fn find(&self, tuple: &Tuple) -> Option<u32> {
        let mut at = self.buckets[self.bucket(tuple)];
        while let Some(link) = self.links.get(at as usize).and_then(Option::as_ref) {
            if link.tuple == *tuple {
                return Some(at);
            }
            at = link.next;
        }
        None
    }

    /// Adds a connection, which is not in the table yet.
    pub(crate) fn insert(&mut self, tuple: Tuple, socket: u32) {
        if self.count >= self.buckets.len() {
            self.grow();
        }
        if self.links.len() <= socket as usize {
            self.links.resize(socket as usize + 1, None);
        }
        let bucket = self.bucket(&tuple);
        self.links[socket as usize] = Some(Link { tuple, next: self.buckets[bucket] });
        self.buckets[bucket] = socket;
        self.count += 1;
    }

    /// Removes the connection of a socket.
    pub(crate) fn remove(&mut self, socket: u32) {
        let Some(link) = self.links.get_mut(socket as usize).and_then(Option::take) else { return };
        self.count -= 1;
        let bucket = self.bucket(&link.tuple);
        let mut at = self.buckets[bucket];
        if at == socket {
            self.buckets[bucket] = link.next;
            return;
        }
        while let Some(before) = self.links.get_mut(at as usize).and_then(Option::as_mut) {
            if before.next == socket {
                before.next = link.next;
                return;
            }
            at = before.next;
        }
    }

    fn grow(&mut self) {
        self.buckets = alloc::vec![NONE; self.buckets.len() * 2];
        for socket in 0..self.links.len() {
            let Some(tuple) = self.links[socket].map(|link| link.tuple) else { continue };
            let bucket = self.bucket(&tuple);
            let next = core::mem::replace(&mut self.buckets[bucket], socket as u32);
            self.links[socket] = Some(Link { tuple, next });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> Tuple {
        Tuple { local: ([10, 0, 0, 1], 80).into(), remote: ([10, 0, 0, 2], port).into() }
    }

    #[test]
    fn connections_are_found_until_removed() {
        let mut demux = Demux::new(Secret([1, 2]));
        for port in 0..1000u16 {
            demux.insert(tuple(port), u32::from(port));
        }
        for port in (0..1000).step_by(3) {
            demux.remove(port);
        }
        for port in 0..1000u16 {
            let expected = (port % 3 != 0).then_some(u32::from(port));
            assert_eq!(demux.find(&tuple(port)), expected);
        }
        assert_eq!(demux.find(&tuple(1000)), None);
    }
}
