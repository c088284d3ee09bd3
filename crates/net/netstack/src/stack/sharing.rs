//! Stacks that have their addresses in common with another one: which frames are for this one, and which for the other.

use super::input::{Arrival, parse_segment};
use super::{Socket, Stack};
use crate::connection::Segment;
use crate::demux::Tuple;
use crate::net::ip::Packet;
use core::net::SocketAddr;
use ringway_mem::Span;
use ringway_wire::tcp::Flags;
use ringway_wire::{EtherType, Ethernet, Header, Protocol, Tcp};

impl Stack {
    /// Whether a frame is a segment of a connection of this stack, so that a caller gives other frames to another one
    /// with the same address. `head` has all headers of the frame, and may have all of it; `rest` is the length of the
    /// rest. Segments in fragments are none.
    pub fn is_for_connection(&self, interface: usize, head: &[u8], rest: usize) -> bool {
        let found = self.segment_of(interface, (head, rest), true);
        found.is_some_and(|(_, _, index)| matches!(self.slots[index as usize].socket, Some(Socket::Tcp(_))))
    }

    /// Whether a frame begins a connection to a listener of this stack that [takes](Stack::stop_admitting) them, as
    /// [`Stack::is_for_connection`]: a SYN; or acknowledges a cookie of one that takes them, or took them. Other
    /// segments may be of connections that another stack with the same address has.
    pub fn is_for_listener(&self, interface: usize, head: &[u8], rest: usize) -> bool {
        let found = self.segment_to_us(interface, (head, rest), true);
        found
            .is_some_and(|(_, tcp, tuple)| self.demux.find(&tuple).is_none() && self.begins_here(tcp, &tuple))
    }

    /// Whether a frame is for this stack: [`Stack::is_for_connection`], or [`Stack::is_for_listener`]. A connection in
    /// TIME-WAIT ends if its peer begins another one that no listener of this stack takes.
    pub fn takes(&mut self, now: u64, interface: usize, head: &[u8], rest: usize) -> bool {
        let Some((packet, tcp, tuple)) = self.segment_to_us(interface, (head, rest), true) else {
            return false;
        };
        let Some(index) = self.demux.find(&tuple) else { return self.begins_here(tcp, &tuple) };
        if !matches!(self.slots[index as usize].socket, Some(Socket::Tcp(_))) {
            return false;
        }
        if !tcp.flags.has(Flags::SYN) || self.admitting_listener(tuple.local).is_some() {
            return true;
        }
        self.advance(now);
        let Some((_, segment)) = parse_segment(&packet, &[]) else { return false };
        let is_reused = self.is_reused(index, &segment);
        if is_reused {
            self.with(index, |connection, _| connection.end_with(None));
        }
        !is_reused
    }

    /// The listener for a local address, if it takes connections.
    fn admitting_listener(&self, local: SocketAddr) -> Option<u32> {
        let index = self.find_listener(local)?;
        self.listener(index).is_some_and(|listener| listener.admits).then_some(index)
    }

    /// Whether a segment of no connection begins one of a listener of this stack.
    fn begins_here(&self, tcp: &Tcp, tuple: &Tuple) -> bool {
        if self.listeners.is_empty() || tcp.flags.has(Flags::RST) {
            return false;
        }
        if !tcp.flags.has(Flags::ACK) {
            return tcp.flags.has(Flags::SYN) && self.admitting_listener(tuple.local).is_some();
        }
        let numbers = (tcp.sequence_number.get(), tcp.acknowledgment_number.get());
        // Also of a listener that takes no more: it has sent the cookie.
        let listener = self.find_listener(tuple.local).filter(|_| !tcp.flags.has(Flags::SYN));
        listener.is_some_and(|listener| self.acknowledges_cookie(listener, tuple, numbers))
    }

    /// The packet of a frame to this host that is a segment of a connection: its header, and the connection's number.
    /// `head` and `rest` are as for [`Stack::is_for_connection`]. `padded`: there may be bytes after the packet.
    pub(super) fn segment_of<'a>(
        &self,
        interface: usize,
        frame: (&'a [u8], usize),
        padded: bool,
    ) -> Option<(Packet<'a>, &'a Tcp, u32)> {
        let (packet, tcp, tuple) = self.segment_to_us(interface, frame, padded)?;
        let index = self.demux.find(&tuple)?;
        Some((packet, tcp, index))
    }

    /// The packet of a frame to this host that is a segment of TCP, and its addresses.
    fn segment_to_us<'a>(
        &self,
        interface: usize,
        (head, rest): (&'a [u8], usize),
        padded: bool,
    ) -> Option<(Packet<'a>, &'a Tcp, Tuple)> {
        let port = self.interfaces.get(interface)?;
        let (ethernet, bytes) = Ethernet::split(head)?;
        if ethernet.destination != port.mac || ethernet.source.is_group() {
            return None;
        }
        let packet = match ethernet.ethertype {
            EtherType::IPV4 => Packet::head_v4(bytes, rest, padded)?,
            EtherType::IPV6 => Packet::head_v6(bytes, rest, padded)?,
            _ => return None,
        };
        let arrival = Arrival { interface, group: false, trusted: true, looped: false, fragmented: false };
        let is_ours = self.is_for_us(arrival, packet.destination) || self.is_for_another(arrival, &packet);
        if packet.protocol != Protocol::TCP || !is_ours || !self.is_host(interface, packet.source) {
            return None;
        }
        let (tcp, _, _) = Tcp::parse(packet.payload)?;
        let tuple = Tuple {
            local: SocketAddr::new(packet.destination, tcp.destination_port.get()),
            remote: SocketAddr::new(packet.source, tcp.source_port.get()),
        };
        Some((packet, tcp, tuple))
    }

    /// Whether segments of no connection go to the other stack, by [`Stack::next_diverted`], in place of an answer: all
    /// but SYNs for a listener of this stack, and acknowledgments of its cookies. So the other one may have connections
    /// and listeners that this stack does not know, although some of their segments come here.
    pub fn divert_strays(&mut self, diverts: bool) {
        self.diverts_strays = diverts;
    }

    /// Gives a segment of no connection to the other stack; `false`: it is for this one.
    pub(super) fn is_diverted_stray(
        &mut self,
        interface: usize,
        (packet, rest): (&Packet<'_>, &[Span<'_>]),
        tuple: &Tuple,
        segment: &Segment<'_>,
    ) -> bool {
        if !self.diverts_strays || !self.is_host(interface, tuple.remote.ip()) {
            return false;
        }
        let numbers = (segment.seq, segment.ack);
        let is_own = self.find_listener(tuple.local).is_some_and(|listener| {
            let begins = segment.flags.has(Flags::SYN) && !segment.flags.has(Flags::ACK);
            begins || self.acknowledges_cookie(listener, tuple, numbers)
        });
        if !is_own {
            self.divert_stray(packet, rest);
        }
        !is_own
    }
}
