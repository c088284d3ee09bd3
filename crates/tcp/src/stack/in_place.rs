//! Segments whose bytes go from the device's memory to the receive buffer, in one copy.

use super::input::Arrival;
use super::{Socket, Stack};
use crate::demux::Tuple;
use crate::net::ip::Packet;
use core::net::SocketAddr;
use ringway_frame::Offload;
use ringway_mem::Span;
use ringway_wire::tcp::Flags;
use ringway_wire::{EtherType, Ethernet, Header, Protocol, Tcp};

impl Stack {
    /// Receives a frame of which only `head`, with all headers, is in the caller's memory. The other bytes, `rest`, are
    /// copied at most once: to the receive buffer of their connection. `false`: nothing was done, and the caller must
    /// pass the whole frame to [`Stack::receive`]: it does not belong to an open connection, or its checksum is to be
    /// verified, which needs a copy that nobody else can change.
    pub fn receive_in_place(
        &mut self,
        now: u64,
        interface: usize,
        head: &[u8],
        rest: &[Span<'_>],
        offload: Offload,
    ) -> bool {
        let Some((packet, arrival)) = self.in_place(interface, head, rest, offload) else { return false };
        self.now = self.now.max(now);
        self.statistics.frames_in += 1;
        self.statistics.in_place += 1;
        self.tcp(arrival.interface, &packet, rest);
        true
    }

    /// The packet, if it is a segment of an open connection.
    fn in_place<'a>(
        &self,
        interface: usize,
        head: &'a [u8],
        rest: &[Span<'_>],
        offload: Offload,
    ) -> Option<(Packet<'a>, Arrival)> {
        let port = self.interfaces.get(interface)?;
        let (ethernet, bytes) = Ethernet::split(head)?;
        let trusted = offload.needs_checksum() || offload.is_checked();
        if ethernet.destination != port.mac || !trusted {
            return None;
        }
        let rest: usize = rest.iter().map(|span| span.len()).sum();
        let packet = match ethernet.ethertype {
            EtherType::IPV4 => Packet::head_v4(bytes, rest)?,
            EtherType::IPV6 => Packet::head_v6(bytes, rest)?,
            _ => return None,
        };
        let arrival = Arrival { interface, mac: ethernet.source, group: false, trusted, looped: false };
        if !self.is_for_us(arrival, packet.destination) || port.has(packet.source) {
            return None;
        }
        let (tcp, _, _) = Tcp::parse(packet.payload)?;
        let tuple = Tuple {
            local: SocketAddr::new(packet.destination, tcp.destination_port.get()),
            remote: SocketAddr::new(packet.source, tcp.source_port.get()),
        };
        let index = self.demux.find(&tuple)?;
        let Some(Socket::Tcp(connection)) = &self.slots.get(index as usize)?.socket else { return None };
        let plain = ![Flags::SYN, Flags::RST].into_iter().any(|flag| tcp.flags.has(flag));
        (plain && connection.is_synchronized() && packet.protocol == Protocol::TCP)
            .then_some((packet, arrival))
    }
}
