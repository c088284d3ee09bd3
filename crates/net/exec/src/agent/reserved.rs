//! Addresses of the agent's connections, which listeners of the shared stack must leave alone: a SYN with such
//! addresses, sent again by the peer or by an attacker, would begin a connection there, whose reset ends the true one.

use super::Agent;
use super::table::Kind;
use crate::direct::attendant::Command;
use ringway_netstack::{SocketEntry, SocketId, SocketKind, State};
use std::net::SocketAddr;

/// Most connections of a port whose listener goes to the shared stack: each is one message.
const MAX_RESERVED: usize = 1024;
/// Places of the stack's table that are looked at in one call.
const PLACES: usize = 1024;

impl Agent {
    /// The connections to a port from other hosts that the shared stack does not know to be the agent's.
    fn unreserved(&mut self, port: u16) -> Vec<(SocketAddr, SocketAddr)> {
        let (mut found, mut next) = (Vec::new(), Some(0));
        let Some(direct) = &self.direct else { return found };
        while let Some(from) = next {
            let (entries, after) = self.host.stack().socket_entries(from, PLACES);
            let stack = self.host.stack();
            let addresses = |entry: &SocketEntry| match &entry.kind {
                SocketKind::Connection { remote, info, .. } => {
                    let is_open =
                        info.tcpi_state != State::TimeWait && stack.is_to_itself(entry.id) == Ok(false);
                    (is_open && entry.local.port() == port).then_some((entry.local, *remote))
                }
                _ => None,
            };
            let addresses = entries.iter().filter_map(addresses);
            found.extend(addresses.filter(|addresses| !direct.reserved.contains(addresses)));
            next = after;
        }
        found
    }

    /// Whether there is such a connection.
    pub(super) fn has_unreserved(&mut self, port: u16) -> bool {
        !self.unreserved(port).is_empty()
    }

    /// Tells the shared stack which connections to a port are the agent's; `false`: there are too many.
    pub(super) fn reserve_port(&mut self, port: u16) -> bool {
        let all = self.unreserved(port);
        if all.len() > MAX_RESERVED {
            return false;
        }
        all.into_iter().for_each(|addresses| self.reserve(addresses));
        true
    }

    fn reserve(&mut self, (local, remote): (SocketAddr, SocketAddr)) {
        if let Some(direct) = &mut self.direct
            && direct.reserved.insert((local, remote))
        {
            direct.send(Command::Reserve(local, remote), None);
        }
    }

    /// Tells the shared stack of a new connection of the agent's, if a listener there could take its segments.
    pub(super) fn reserve_connection(&mut self, tcp: SocketId) {
        let Ok((local, remote)) = self.host.stack().addresses(tcp) else { return };
        let is_shared = |kind: &Kind| matches!(kind, Kind::Listening(own) if own.sharing.is_there());
        if self.table.bound_to_port(local.port()).any(|(_, socket)| is_shared(&socket.kind))
            && self.host.stack().is_to_itself(tcp) == Ok(false)
        {
            self.reserve((local, remote));
        }
    }

    /// A connection comes back from the shared stack, which keeps its addresses reserved.
    pub(super) fn keep_reserved(&mut self, local: SocketAddr, remote: SocketAddr) {
        if let Some(direct) = &mut self.direct {
            direct.reserved.insert((local, remote));
        }
    }

    /// Frees the addresses of connections that have ended.
    pub(super) fn free_reserved(&mut self) {
        let Some(direct) = &mut self.direct else { return };
        let stack = self.host.stack();
        let over = |(local, remote): &(SocketAddr, SocketAddr)| !stack.is_in_use(*local, *remote);
        let ended: Vec<(SocketAddr, SocketAddr)> = direct.reserved.iter().copied().filter(over).collect();
        for (local, remote) in ended {
            direct.reserved.remove(&(local, remote));
            direct.send(Command::Unreserve(local, remote), None);
        }
    }
}
