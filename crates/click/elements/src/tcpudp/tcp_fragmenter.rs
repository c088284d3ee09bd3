//! `TCPFragmenter(MTU, MTU_ANNO)`: cuts TCP segments over IPv4 into several that are not longer than an MTU.
//!
//! Ports: one push input, one push output.
//!
//! Arguments:
//! - `MTU`: bytes that a packet may have from the IPv4 header on.
//! - `MTU_ANNO`: an annotation of two bytes that, unless it is 0, says so for a packet. The smaller value counts.
//!
//! At least one of them is needed. Each piece has the headers of the whole, what stands before them included, with
//! lengths, sequence number and checksums its own; FIN is on the last only. What is no whole TCP segment passes. The
//! IPv4 header must be noted. Handlers: `fragments`, `fragmented_count`, `count` (read).
use crate::ip::transport::Transport;
use ringway_click::arg::{Annotation, KEYWORD};
use ringway_click::prelude::*;
use ringway_wire::tcp::Flags;
use ringway_wire::{Header, Ipv4, Protocol, Tcp};

pub static CLASS: Class = Class::new("TCPFragmenter", || Box::<TcpFragmenter>::default())
    .ports("1/1")
    .processing("h")
    .metadata(Metadata::Resolve)
    .live();

/// Maximum number of pieces of a packet. Attack: an MTU of one byte, which splits a packet into tens of thousands.
const MOST: usize = 1024;

#[derive(Debug, Default)]
pub struct TcpFragmenter {
    mtu: u16,
    annotation: Option<usize>,
    pieces: u64,
    fragmented: u64,
    count: u64,
}

/// Offsets of a packet's parts.
struct Parts {
    ip: usize,
    tcp: usize,
    payload: usize,
    end: usize,
}

impl Parts {
    fn of(packet: &Packet) -> Option<Self> {
        let transport =
            Transport::of_packet(packet).filter(|t| t.protocol == Protocol::TCP && !t.later && !t.more)?;
        let segment = transport.slice(packet.network_data()?)?;
        let (header, ..) = Tcp::parse(segment)?;
        let ip = usize::try_from(packet.network_header()?).ok()?;
        let tcp = ip + transport.header;
        Some(Self { ip, tcp, payload: tcp + header.header_len(), end: tcp + segment.len() })
    }
}

impl TcpFragmenter {
    fn mtu(&self, packet: &Packet) -> usize {
        let noted = self.annotation.map_or(0, |at| packet.notes().u16(at));
        let given = [noted, self.mtu].into_iter().filter(|mtu| *mtu > 0);
        given.min().unwrap_or(0).into()
    }

    /// The piece with the payload bytes `from..to`.
    fn piece(
        &self,
        whole: &Packet,
        parts: &Parts,
        from: usize,
        to: usize,
        cx: &mut Context<'_>,
    ) -> Option<Packet> {
        let data = whole.data();
        let length = parts.payload + to - from;
        let mut piece = cx.make_packet(whole.headroom(), length, 0)?;
        let (head, rest) = piece.data_mut().split_at_mut_checked(parts.payload)?;
        head.copy_from_slice(data.get(..parts.payload)?);
        rest.copy_from_slice(data.get(parts.payload + from..parts.payload + to)?);
        piece.set_network_header(parts.ip as isize, parts.tcp - parts.ip);
        piece.copy_notes(whole);
        if whole.mac_header().is_some_and(|at| at >= 0) {
            piece.set_mac_header(whole.mac_header().unwrap_or(0));
        }
        let last = parts.payload + to == parts.end;
        let (ip, options, segment) = Ipv4::parse_mut(piece.data_mut().get_mut(parts.ip..)?)?;
        ip.total_length.set(u16::try_from(length - parts.ip).ok()?);
        ip.fill_checksum(options);
        let tcp = Tcp::of_mut(segment)?;
        tcp.sequence_number.set(tcp.sequence_number.get().wrapping_add(from as u32));
        if !last {
            tcp.flags = tcp.flags.without(Flags::FIN);
        }
        let pseudo = ip.pseudo_header(u16::try_from(segment.len()).unwrap_or(u16::MAX));
        Tcp::fill_checksum(segment, pseudo)?;
        Some(piece)
    }

    /// Passes the packet or its pieces to `give`.
    fn cut(&mut self, packet: Packet, cx: &mut Context<'_>, mut give: impl FnMut(&mut Context<'_>, Packet)) {
        self.count += 1;
        let mtu = self.mtu(&packet);
        let parts = Parts::of(&packet).and_then(|parts| {
            let payload = parts.end - parts.payload;
            let limit = mtu.checked_sub(parts.payload - parts.ip).filter(|limit| *limit > 0)?;
            (payload >= limit && payload.div_ceil(limit) <= MOST).then_some((parts, payload, limit))
        });
        let Some((parts, payload, limit)) = parts else { return give(cx, packet) };
        self.fragmented += 1;
        for from in (0..payload).step_by(limit) {
            if let Some(piece) = self.piece(&packet, &parts, from, payload.min(from + limit), cx) {
                self.pieces += 1;
                give(cx, piece);
            }
        }
    }
}

impl Element for TcpFragmenter {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut annotation = Annotation::default();
        args.read("MTU", &mut self.mtu);
        let of = |text: &str, scope: &_| Annotation::of_size(text, 2, scope);
        let given = args.read_with("MTU_ANNO", KEYWORD, &mut annotation, of);
        self.annotation = given.then_some(annotation.offset);
        args.complete()?;
        if self.mtu == 0 && !given {
            return Err(cx.error("at least one of MTU and MTU_ANNO must be set"));
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            self.cut(packet, cx, |cx, packet| cx.push(0, packet));
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("fragments", |e: &mut Self| &mut e.pieces),
            Handler::counter("fragmented_count", |e: &mut Self| &mut e.fragmented),
            Handler::counter("count", |e: &mut Self| &mut e.count),
        ]
        .into()
    }
}
