//! Listeners: SYNs and the queue of connections to accept.

use super::{Socket, SocketError, SocketId, Stack};
use crate::congestion::Algorithm;
use crate::connection::{Connection, Segment, context};
use crate::demux::Tuple;
use crate::net::neighbor::{Lookup, Rank};
use crate::net::{Frames, Link};
use crate::settings::SocketOptions;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::net::SocketAddr;
use ringway_wire::tcp::Flags;

/// A listening socket.
#[derive(Debug)]
pub(crate) struct Listener {
    pub local: SocketAddr,
    backlog: usize,
    algorithm: Algorithm,
    /// Established connections, to be accepted.
    pub queue: VecDeque<u32>,
    /// Connections in SYN-RECEIVED.
    embryos: usize,
    /// Until when a cookie may come back.
    pub cookies_until: u64,
    /// Whether [`Stack::is_for_listener`] gives it new connections.
    pub admits: bool,
    /// `TCP_FASTOPEN`.
    pub fast_open: bool,
    /// `TCP_FASTOPEN_KEY`, instead of the stack's.
    pub fast_open_key: Option<[u64; 2]>,
    /// What its connections inherit.
    pub options: SocketOptions,
}

impl Listener {
    pub(crate) fn new(local: SocketAddr, backlog: usize, algorithm: Algorithm) -> Listener {
        let backlog = backlog.max(1);
        let queue = VecDeque::new();
        let options = SocketOptions::default();
        Listener {
            local,
            backlog,
            algorithm,
            queue,
            embryos: 0,
            cookies_until: 0,
            admits: true,
            fast_open: false,
            fast_open_key: None,
            options,
        }
    }

    pub(super) fn backlog(&self) -> usize {
        self.backlog
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= self.backlog
    }
}

impl Stack {
    /// The listener for a local address: one of this address before an unspecified one.
    pub(super) fn find_listener(&self, local: SocketAddr) -> Option<u32> {
        let list = self.listeners.get(&local.port())?;
        let of = |index: u32| match &self.slots[index as usize].socket {
            Some(Socket::Listener(listener)) => Some(listener.local.ip()),
            _ => None,
        };
        let exact = list.iter().copied().find(|&index| of(index) == Some(local.ip()));
        let any = |ip: core::net::IpAddr| ip.is_unspecified() && ip.is_ipv4() == local.is_ipv4();
        exact.or_else(|| list.iter().copied().find(|&index| of(index).is_some_and(any)))
    }

    pub(super) fn listener(&self, index: u32) -> Option<&Listener> {
        match &self.slots.get(index as usize)?.socket {
            Some(Socket::Listener(listener)) => Some(listener),
            _ => None,
        }
    }

    pub(super) fn listener_of(&self, id: SocketId) -> Result<&Listener, SocketError> {
        match self.socket(id)? {
            Socket::Listener(listener) => Ok(listener),
            _ => Err(SocketError::BadSocket),
        }
    }

    pub(super) fn listener_mut(&mut self, index: u32) -> Option<&mut Listener> {
        match &mut self.slots.get_mut(index as usize)?.socket {
            Some(Socket::Listener(listener)) => Some(listener),
            _ => None,
        }
    }

    /// A segment for a listener (RFC 9293, 3.10.7.2).
    pub(super) fn segment_for_listener(&mut self, index: u32, tuple: Tuple, segment: &Segment<'_>) {
        let flags = segment.flags;
        if flags.has(Flags::RST) {
            return;
        }
        if flags.has(Flags::ACK) {
            if !self.accept_cookie(index, tuple, segment)
                && let Some(reset) = segment.reset()
            {
                self.send_reset(&tuple, reset);
            }
            return;
        }
        if !flags.has(Flags::SYN) || flags.has(Flags::FIN) {
            return;
        }
        let (most, cookies) = (self.settings.tcp_max_syn_backlog, self.settings.tcp_syncookies);
        let Some(listener) = self.listener_mut(index) else { return };
        // Attack: a flood of SYNs. Beyond the backlog nothing is stored: the answer carries all state.
        let (full, crowded) = (listener.is_full(), listener.embryos >= most);
        let (algorithm, options) = (listener.algorithm, listener.options);
        if full {
            self.statistics.listen_overflows += 1;
            return;
        }
        if cookies == 2 || (crowded && cookies == 1) {
            return self.send_cookie(index, tuple, segment);
        }
        if crowded {
            self.statistics.listen_overflows += 1;
            return;
        }
        let ecn = flags.has(Flags::ECE) && flags.has(Flags::CWR);
        let Some(mut opening) = self.opening(tuple, algorithm) else {
            self.statistics.no_route += 1;
            return;
        };
        opening.options = options;
        let mut connection =
            Connection::accept(&opening, self.now, &self.settings, segment.seq, &segment.options, ecn);
        self.open_fast(index, &mut connection, segment);
        self.add_embryo(index, tuple, connection);
    }

    /// How many connections of a listener are in SYN-RECEIVED.
    ///
    /// # Errors
    /// If the socket is no listener.
    pub fn half_open(&self, listener: SocketId) -> Result<usize, SocketError> {
        Ok(self.listener_of(listener)?.embryos)
    }

    /// Whether a listener takes connections, or was [told](Stack::stop_admitting) to take no more.
    ///
    /// # Errors
    /// If the socket is no listener.
    pub fn is_admitting(&self, listener: SocketId) -> Result<bool, SocketError> {
        Ok(self.listener_of(listener)?.admits)
    }

    /// Whether cookies of a listener may still come back.
    ///
    /// # Errors
    /// If the socket is no listener.
    pub fn expects_cookies(&self, listener: SocketId) -> Result<bool, SocketError> {
        Ok(self.listener_of(listener)?.cookies_until > self.now)
    }

    /// Leaves connections that begin from now on to another stack with the same address: [`Stack::is_for_listener`] is
    /// false for them. Those that have begun go on.
    ///
    /// # Errors
    /// If the socket is no listener.
    pub fn stop_admitting(&mut self, listener: SocketId) -> Result<(), SocketError> {
        self.socket(listener)?;
        self.listener_mut(listener.index).ok_or(SocketError::BadSocket)?.admits = false;
        Ok(())
    }

    /// Stores a connection in SYN-RECEIVED.
    pub(super) fn add_embryo(
        &mut self,
        listener: u32,
        tuple: Tuple,
        mut connection: Connection,
    ) -> Option<u32> {
        connection.listener = Some(listener);
        let id = self.allocate(Socket::Tcp(Box::new(connection)))?;
        self.totals.open(false);
        if let Some(listener) = self.listener_mut(listener) {
            listener.embryos += 1;
        }
        self.demux.insert(tuple, id.index);
        self.touch(id.index);
        Some(id.index)
    }

    /// Moves a connection whose handshake is complete to the queue.
    pub(super) fn promote(&mut self, index: u32) {
        let Some(Socket::Tcp(connection)) = &mut self.slots[index as usize].socket else { return };
        let Some(parent) = connection.listener.filter(|_| connection.is_acceptable_by_program()) else {
            return;
        };
        if let Some(listener) = self.listener_mut(parent)
            && !listener.queue.contains(&index)
        {
            listener.embryos = listener.embryos.saturating_sub(1);
            listener.queue.push_back(index);
            self.queue_event(parent);
        }
    }

    /// Whether a connection of a listener is to be accepted.
    pub(super) fn is_queued(&mut self, listener: u32, index: u32) -> bool {
        self.listener_mut(listener).is_some_and(|listener| listener.queue.contains(&index))
    }

    /// A connection of a listener ended before it could be accepted.
    pub(super) fn forget_embryo(&mut self, listener: u32) {
        if let Some(listener) = self.listener_mut(listener) {
            listener.embryos = listener.embryos.saturating_sub(1);
        }
    }

    pub(super) fn close_listener(&mut self, index: u32) {
        let Some(listener) = self.listener_mut(index) else { return };
        let port = listener.local.port();
        listener.queue.clear();
        super::sockets::remove(&mut self.listeners, port, index);
        let children = |(child, slot): (usize, &super::Slot)| match &slot.socket {
            Some(Socket::Tcp(connection)) if connection.listener == Some(index) => Some(child as u32),
            _ => None,
        };
        let children: alloc::vec::Vec<u32> = self.slots.iter().enumerate().filter_map(children).collect();
        for child in children {
            self.abort_index(child);
        }
        self.release(index);
    }

    /// Sends a SYN-ACK of a connection that is not stored.
    pub(super) fn answer_unstored(&mut self, connection: &mut Connection) {
        let tuple = connection.tuple;
        let Some(hop) = self.hop(tuple.remote.ip()) else { return };
        // Without a known neighbour the peer sends its SYN again.
        let Lookup::Known(destination, _) = self.neighbor(hop.interface, hop.next, Rank::Answer) else {
            return;
        };
        let mut frames = Frames::new(1);
        let port = &mut self.interfaces[hop.interface];
        let mut link = Link {
            out: &mut frames,
            source: port.mac,
            destination,
            // The queue has finished frames only.
            offloads: ringway_frame::Needs::NONE,
            ttl: self.settings.ip_default_ttl,
            identification: &mut port.identification,
        };
        let mut cx = context!(self);
        connection.send_cookie(&mut cx, &mut link);
        for (frame, _) in frames.iter() {
            self.enqueue(hop.interface, frame.to_vec());
        }
    }
}
