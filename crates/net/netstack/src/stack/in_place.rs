//! Segments whose bytes go from the device's memory to the receive buffer, or to the program's, in one copy.

use super::{Socket, SocketId, Stack};
use crate::connection::payload::Payload;
use crate::net::ip::Packet;
use ringway_frame::Offload;
use ringway_mem::Span;
use ringway_wire::Tcp;
use ringway_wire::tcp::Flags;

/// Where a program waits for bytes of a connection. What arrives in order is copied there, instead of to the receive
/// buffer.
#[derive(Debug)]
pub struct Reader<'a> {
    socket: SocketId,
    bytes: &'a mut [u8],
    filled: usize,
}

impl<'a> Reader<'a> {
    /// A reader of a socket, which has nothing else to read.
    pub fn new(socket: SocketId, bytes: &'a mut [u8]) -> Reader<'a> {
        Reader { socket, bytes, filled: 0 }
    }

    /// How many bytes it has.
    pub fn filled(&self) -> usize {
        self.filled
    }

    /// Whether it has no more room.
    pub fn is_full(&self) -> bool {
        self.filled == self.bytes.len()
    }

    /// Copies the first bytes of a segment, at most `len`, as far as there is room.
    fn put(&mut self, payload: Payload<'_>, len: usize) {
        for piece in payload.cut(len).pieces() {
            let room = &mut self.bytes[self.filled..];
            let count = piece.len().min(room.len());
            piece.split(count).0.read(&mut room[..count]);
            self.filled += count;
        }
    }
}

impl Stack {
    /// Receives a frame of which only `head`, with all headers, is in the caller's memory. The other bytes, `rest`, are
    /// copied at most once: to the receive buffer of their connection, or to the program's buffer if it waits with a
    /// `reader`. `false`: nothing was done, and the caller must pass the whole frame to [`Stack::receive`]: it does
    /// not belong to an open connection, or its checksum is to be verified, which needs a copy that nobody else can
    /// change.
    pub fn receive_in_place(
        &mut self,
        now: u64,
        interface: usize,
        head: &[u8],
        rest: &[Span<'_>],
        offload: Offload,
        reader: Option<&mut Reader<'_>>,
    ) -> bool {
        let Some((packet, index)) = self.in_place(interface, head, rest, offload) else { return false };
        self.advance(now);
        self.statistics.frames_in += 1;
        self.statistics.packets_in += 1;
        self.statistics.in_place += 1;
        match reader.filter(|reader| !reader.is_full() && reader.socket.index == index) {
            Some(reader) => self.receive_for(interface, &packet, rest, reader),
            None => self.tcp(interface, &packet, rest),
        }
        true
    }

    /// Receives a segment for a reader.
    fn receive_for(
        &mut self,
        interface: usize,
        packet: &Packet<'_>,
        rest: &[Span<'_>],
        reader: &mut Reader<'_>,
    ) {
        let room = reader.bytes.len() - reader.filled;
        let id = reader.socket;
        let begin = self.connection_mut(id).ok().and_then(|connection| connection.pass_next(room));
        self.tcp(interface, packet, rest);
        let (Some(begin), Some((tcp, _, payload))) = (begin, Tcp::parse(packet.payload)) else { return };
        let Some(Socket::Tcp(connection)) = &mut self.slots[id.index as usize].socket else { return };
        let payload = Payload::new(payload, rest);
        let count = connection.passed(begin, tcp.sequence_number.get(), payload.len().min(room));
        if count > 0 {
            reader.put(payload, count);
            self.memory.copied += count as u64;
            self.with(id.index, |connection, cx| connection.consume(cx, count));
        }
    }

    /// The packet, if it is a segment of an open connection, and the connection's number.
    fn in_place<'a>(
        &self,
        interface: usize,
        head: &'a [u8],
        rest: &[Span<'_>],
        offload: Offload,
    ) -> Option<(Packet<'a>, u32)> {
        let trusted = offload.needs_checksum() || offload.is_checked();
        if !trusted {
            return None;
        }
        let rest = rest.iter().map(|span| span.len()).sum();
        let (packet, tcp, index) = self.segment_of(interface, (head, rest), false)?;
        let Some(Socket::Tcp(connection)) = &self.slots.get(index as usize)?.socket else { return None };
        let plain = ![Flags::SYN, Flags::RST].into_iter().any(|flag| tcp.flags.has(flag));
        (plain && connection.is_synchronized()).then_some((packet, index))
    }
}
