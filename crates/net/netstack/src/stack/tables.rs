//! What a stack has, for programs that show it: sockets, counters, routes, neighbours, ended traces.

use super::{Socket, SocketId, Stack};
use crate::connection::{Connection, State, TcpInfo};
use crate::net::neighbor::Reachability;
use crate::net::route::Cidr;
use crate::settings::Settings;
use crate::trace::Trace;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use ringway_wire::MacAddress;

/// A socket in the table of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketEntry {
    /// Its handle. A program that has closed its connection has none; that of the table serves for traces.
    pub id: SocketId,
    /// The address that it is bound to.
    pub local: SocketAddr,
    /// What it is.
    pub kind: SocketKind,
}

/// What a socket is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketKind {
    /// A TCP connection.
    Connection {
        /// The peer's address.
        remote: SocketAddr,
        /// Bytes that the program has not read.
        unread: usize,
        /// Bytes that the peer has not acknowledged, also those that were not sent yet.
        unacknowledged: u64,
        /// Whether a program has it.
        is_owned: bool,
        /// The name of the congestion controller, and its state.
        congestion_control: &'static str,
        /// See [`crate::TracePoint::mode`].
        mode: &'static str,
        /// Its figures.
        info: Box<TcpInfo>,
    },
    /// A TCP listener.
    Listener {
        /// Connections to accept.
        queued: usize,
        /// The most of them.
        backlog: usize,
    },
    /// A UDP socket.
    Udp {
        /// Bytes that the program has not read.
        unread: usize,
        /// Datagrams that had no room.
        dropped: u64,
    },
}

/// A route in the table of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteEntry {
    /// The destinations.
    pub network: Cidr,
    /// The next hop, if it is not the destination itself.
    pub gateway: Option<IpAddr>,
    /// The interface.
    pub interface: usize,
}

/// A neighbour in the table of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborEntry {
    /// Its address.
    pub address: IpAddr,
    /// Its link-layer address, if it is known.
    pub mac: Option<MacAddress>,
    /// The interface.
    pub interface: usize,
    /// What is known about it.
    pub state: Reachability,
}

/// What connections counted, in total, without those that are in the table of sockets; and how many began and ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of RFC 4022 and of Linux's `TcpExt`")]
pub struct Totals {
    pub active_opens: u64,
    pub passive_opens: u64,
    pub attempt_fails: u64,
    pub estab_resets: u64,
    pub segs_out: u64,
    pub retrans_segs: u64,
    pub timeouts: u64,
    pub dsack_recv: u64,
    pub ofo_queue: u64,
    pub reordered: u64,
    pub bytes_received: u64,
    pub bytes_sent: u64,
}

impl Totals {
    /// A connection is forgotten.
    pub(super) fn add(&mut self, connection: &Connection) {
        let counts = &connection.counts;
        // Attack: a connection that came from another stack brings its own counts.
        for (total, count) in [
            (&mut self.segs_out, counts.segs_out),
            (&mut self.retrans_segs, counts.retrans),
            (&mut self.timeouts, counts.timeouts),
            (&mut self.dsack_recv, counts.dsack_dups),
            (&mut self.ofo_queue, counts.rcv_ooopack.into()),
            (&mut self.reordered, counts.reord_seen),
            (&mut self.bytes_received, counts.bytes_received),
            (&mut self.bytes_sent, counts.bytes_sent),
        ] {
            *total = total.wrapping_add(count);
        }
    }

    /// A connection was opened.
    pub(super) fn open(&mut self, is_active: bool) {
        match is_active {
            true => self.active_opens += 1,
            false => self.passive_opens += 1,
        }
    }

    /// A connection ended in a state (RFC 4022, `tcpAttemptFails`, `tcpEstabResets`).
    pub(super) fn end(&mut self, state: State) {
        match state {
            State::SynSent | State::SynReceived => self.attempt_fails += 1,
            State::Established | State::CloseWait => self.estab_resets += 1,
            _ => {}
        }
    }
}

impl SocketId {
    /// The handle as a number.
    pub fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    /// The handle of a number. That of any other number than [`SocketId::to_bits`] gave is one of a closed socket.
    pub fn from_bits(bits: u64) -> SocketId {
        SocketId { index: bits as u32, generation: (bits >> 32) as u32 }
    }
}

impl Stack {
    /// Sockets, in the order of their places from `from` on, of `most` places; and the place that follows, if there are
    /// more.
    pub fn socket_entries(&self, from: usize, most: usize) -> (Vec<SocketEntry>, Option<usize>) {
        let end = from.saturating_add(most).min(self.slots.len());
        let slots = self.slots.get(from..end).unwrap_or_default();
        let entry = |(slot, index): (&super::Slot, usize)| {
            let id = SocketId { index: index as u32, generation: slot.generation };
            Some(match slot.socket.as_ref()? {
                Socket::Tcp(connection) => {
                    SocketEntry { id, local: connection.tuple.local, kind: connection.entry(self.now) }
                }
                Socket::Listener(listener) => {
                    let (queued, backlog) = (listener.queue.len(), listener.backlog());
                    SocketEntry { id, local: listener.local, kind: SocketKind::Listener { queued, backlog } }
                }
                Socket::Moved(_) => return None,
                Socket::Udp(udp) => {
                    let kind = SocketKind::Udp { unread: udp.held(), dropped: udp.dropped };
                    SocketEntry { id, local: udp.local, kind }
                }
            })
        };
        let entries = slots.iter().zip(from..).filter_map(entry).collect();
        (entries, Some(end).filter(|end| *end < self.slots.len()))
    }

    /// What connections counted that are forgotten.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The routes, the longest prefix first. Each address of an interface has one, without a gateway.
    pub fn route_entries(&self) -> Vec<RouteEntry> {
        self.routes.entries().collect()
    }

    /// The neighbours of all interfaces.
    pub fn neighbor_entries(&self) -> Vec<NeighborEntry> {
        let of =
            |(interface, port): (usize, &super::Interface)| {
                let entry = |(address, mac, state): (IpAddr, Option<MacAddress>, Reachability)| {
                    NeighborEntry { address, mac, interface, state }
                };
                port.neighbors.entries(self.now).map(entry).collect::<Vec<_>>()
            };
        self.interfaces.iter().enumerate().flat_map(of).collect()
    }

    /// The trace of the connection that had this handle when [`Stack::set_trace`] was called, and whether it has ended:
    /// also of one that its program has closed, and of the last one that was forgotten.
    pub fn recorded(&self, id: SocketId) -> Option<(&Trace, bool)> {
        let slot = self.slots.get(id.index as usize).and_then(|slot| slot.socket.as_ref());
        if let Some(Socket::Tcp(connection)) = slot
            && let Some(trace) = connection.trace.as_deref().filter(|trace| trace.id == Some(id))
        {
            return Some((trace, matches!(connection.state, State::Closed | State::TimeWait)));
        }
        let ended = self.ended_trace.as_deref().filter(|trace| trace.id == Some(id));
        ended.map(|trace| (trace, true))
    }
}

impl Connection {
    fn entry(&self, now: u64) -> SocketKind {
        SocketKind::Connection {
            remote: self.tuple.remote,
            unread: self.unread(),
            unacknowledged: self.unacknowledged(),
            is_owned: self.owned,
            congestion_control: self.controller(),
            mode: self.mode(),
            info: Box::new(self.info(now)),
        }
    }
}
