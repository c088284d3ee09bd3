//! The way to a neighbour: requests for its link-layer address, and the sockets that wait for it.

use super::{Interface, Socket, Stack, output};
use crate::connection::{Connection, ConnectionError, State};
use crate::net::neighbor::{Claim, Lookup, Rank, TRIES};
use alloc::vec::Vec;
use core::net::IpAddr;
use ringway_wire::{Ethernet, Header, MacAddress};

/// Sockets that wait for one neighbour.
#[derive(Debug)]
pub(super) struct Parked {
    sockets: Vec<u32>,
    rank: Rank,
    /// How often the cache was full, if the neighbour has no entry.
    refused: u32,
}

/// Why a connection needs its neighbour. Attack: SYNs with forged sources must not have the rank of a connection.
fn rank(connection: &Connection) -> Rank {
    if connection.state == State::SynReceived { Rank::Answer } else { Rank::Used }
}

impl Interface {
    /// Whether an address can be that of a neighbour. Attack: a neighbour that claims one of our addresses, or one of
    /// another network.
    pub(super) fn is_near(&self, address: IpAddr) -> bool {
        let is_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
        (is_local || self.addresses.iter().any(|cidr| cidr.contains(address))) && !self.has(address)
    }
}

impl Stack {
    /// Looks up a neighbour; sends a request if necessary.
    pub(super) fn neighbor(&mut self, interface: usize, address: IpAddr, rank: Rank) -> Lookup {
        if let Some(mac) = output::group_mac(&self.interfaces[interface], address) {
            return Lookup::Known(mac, false);
        }
        let port = &mut self.interfaces[interface];
        if port.has(address) || address.is_loopback() {
            return Lookup::Known(port.mac, false);
        }
        let found = port.neighbors.lookup(self.now, address, rank);
        match found {
            Lookup::Known(_, true) | Lookup::Pending(true) => self.ask(interface, address),
            Lookup::Known(_, false) | Lookup::Pending(false) => {}
            Lookup::Full => self.statistics.neighbor_full += 1,
        }
        found
    }

    /// Looks up the neighbour of a connection. If its address is not known, the socket waits: it is not in the ready
    /// list again until the neighbour answers or is given up, or until the cache has room.
    pub(super) fn neighbor_of(&mut self, index: u32, interface: usize) -> Option<MacAddress> {
        let Some(Socket::Tcp(connection)) = &self.slots[index as usize].socket else { return None };
        // The connection ended while it was in a list.
        if connection.state == State::Closed {
            return None;
        }
        let (remote, rank) = (connection.tuple.remote.ip(), rank(connection));
        let next = self.hop(remote)?.next;
        if let Lookup::Known(mac, _) = self.neighbor(interface, next, rank) {
            return Some(mac);
        }
        self.slots[index as usize].queued = true;
        let nobody = || Parked { sockets: Vec::new(), rank, refused: 0 };
        let parked = self.interfaces[interface].parked.entry(next).or_insert_with(nobody);
        parked.rank = parked.rank.max(rank);
        parked.sockets.push(index);
        None
    }

    /// A neighbour's link-layer address is known: what waited for it is sent.
    pub(super) fn learned(&mut self, interface: usize, address: IpAddr, claim: Claim) {
        // Attack: what is sent to the neighbour would return to us.
        if claim.mac == self.interfaces[interface].mac {
            return;
        }
        let waiting = self.interfaces[interface].neighbors.learn(self.now, address, claim);
        for mut packet in waiting.into_iter().flatten() {
            if let Some((ethernet, _)) = Ethernet::split_mut(&mut packet) {
                ethernet.destination = claim.mac;
            }
            self.enqueue(interface, packet);
        }
        // Attack: claims that are refused would let all sockets that wait try again.
        if self.interfaces[interface].neighbors.is_known(address) {
            self.unpark(interface, address, false);
        }
    }

    /// Repeats requests, and reports neighbours that don't answer.
    pub(super) fn expire_neighbors(&mut self, interface: usize) {
        let expired = self.interfaces[interface].neighbors.expire(self.now);
        for address in expired.ask {
            self.ask(interface, address);
        }
        for address in expired.failed {
            self.unpark(interface, address, true);
        }
        if expired.retry {
            self.retry_neighbors(interface);
        }
    }

    /// Looks again for room in the cache, for those sockets that found none. A connection that has nothing to lose is
    /// given up after as many trials as if the neighbour did not answer; others wait until their own timers end them.
    fn retry_neighbors(&mut self, interface: usize) {
        let port = &self.interfaces[interface];
        let lacking: Vec<IpAddr> =
            port.parked.keys().filter(|address| !port.neighbors.has(**address)).copied().collect();
        for address in lacking {
            let Some(parked) = self.interfaces[interface].parked.get_mut(&address) else { continue };
            let (rank, refused) = (parked.rank, parked.refused + 1);
            match self.neighbor(interface, address, rank) {
                Lookup::Full => {}
                // No entry is needed: the address is one of our own now.
                Lookup::Known(..) => {
                    self.unpark(interface, address, false);
                    continue;
                }
                Lookup::Pending(_) => continue,
            }
            if let Some(parked) = self.interfaces[interface].parked.get_mut(&address) {
                parked.refused = refused % TRIES;
            }
            if refused >= TRIES {
                self.unpark(interface, address, true);
            }
        }
    }

    /// Lets the sockets that wait for a neighbour try again. `failed`: those that only begin a connection end.
    fn unpark(&mut self, interface: usize, address: IpAddr, failed: bool) {
        let Some(parked) = self.interfaces[interface].parked.remove(&address) else { return };
        for index in parked.sockets {
            if !self.unqueue(index) {
                continue;
            }
            if let Some(Socket::Tcp(connection)) = &mut self.slots[index as usize].socket
                && failed
                && connection.state == State::SynSent
            {
                connection.end_with(Some(ConnectionError::Unreachable));
            }
            self.touch(index);
        }
    }
}
