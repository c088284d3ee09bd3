//! `IP6Fragmenter(MTU)`: splits IPv6 packets that are too long into fragments (RFC 8200, 4.5).
//!
//! Ports: one push input; one push output, and optionally another for packets that can't be fragmented: with an
//! invalid header, truncated, already fragments, or with headers too long for the MTU.
//!
//! In IPv6 only a packet's source fragments; a router sends an error by `ICMP6Error` with type 2 instead.
//!
//! Arguments:
//! - `MTU`: maximum length of an IPv6 packet in bytes, at least 56.
//!
//! Handlers: `drops`, `fragments` (read). The header is the marked one, otherwise the one at the beginning; bytes
//! before it stay with the first fragment.
use crate::packet::cut_to;
use core::mem::offset_of;
use ringway_click::HEADROOM;
use ringway_click::prelude::*;
use ringway_wire::ipv6::{self, Fragment};
use ringway_wire::{Header, Ipv6, Protocol};

pub static CLASS: Class = Class::new("IP6Fragmenter", || Box::<Ip6Fragmenter>::default())
    .ports("1/1-2")
    .processing("h")
    .metadata(Metadata::Resolve);

/// Minimum MTU: headers and the smallest payload of a fragment.
const LEAST: u32 = (Ipv6::LEN + Fragment::LEN + 8) as u32;

#[derive(Debug, Default)]
pub struct Ip6Fragmenter {
    mtu: usize,
    id: u32,
    drops: u64,
    fragments: u64,
}

/// Where a packet can be fragmented.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Length of the per-fragment headers.
    headers: usize,
    /// Offset of the Next Header field of the last of them.
    next: usize,
    /// The protocol after the per-fragment headers.
    kind: Protocol,
    /// Length of the whole packet.
    length: usize,
}

/// Headers that routers process are repeated in every fragment.
fn cut(data: &[u8]) -> Option<Cut> {
    let packet = ipv6::Packet::parse(data).filter(|packet| packet.whole)?;
    let length = Ipv6::LEN + packet.payload.len();
    let next = offset_of!(Ipv6, next_header);
    let mut found = Cut { headers: Ipv6::LEN, next, kind: packet.header.next_header, length };
    let mut at = Ipv6::LEN;
    for extension in packet.extensions() {
        let extension = extension?;
        match extension.kind {
            Protocol::FRAGMENT => return None,
            Protocol::HOP_BY_HOP | Protocol::ROUTING => {
                let headers = at + extension.bytes.len();
                found = Cut { headers, next: at, kind: extension.next, length };
            }
            _ => {}
        }
        at += extension.bytes.len();
    }
    Some(found)
}

impl Ip6Fragmenter {
    fn refuse(&mut self, packet: Packet, cx: &mut Context<'_>) {
        self.drops += 1;
        cx.push(1, packet);
    }

    fn fragment(&mut self, packet: Packet, cx: &mut Context<'_>) {
        let start = packet.network_header().unwrap_or(0);
        let data = packet.network_data().unwrap_or_else(|| packet.data());
        let room = |cut: &Cut| self.mtu.checked_sub(cut.headers + Fragment::LEN).map(|room| room & !7);
        let found = cut(data).and_then(|cut| Some((cut, room(&cut).filter(|room| *room >= 8)?)));
        let Some(((cut, room), before)) = found.zip(usize::try_from(start).ok()) else {
            return self.refuse(packet, cx);
        };
        self.id = self.id.wrapping_add(1);
        let payload = &data[cut.headers..cut.length];
        let mut offset = 0;
        for piece in payload.chunks(room) {
            // Bytes before the IPv6 header are kept in the first fragment.
            let own = if offset == 0 { before } else { 0 };
            let front = own + cut.headers + Fragment::LEN;
            let Some(mut made) = cx.make_packet(HEADROOM, front + piece.len(), 0) else {
                return self.refuse(packet, cx);
            };
            let out = made.data_mut();
            out[..own].copy_from_slice(&packet.data()[..own]);
            out[own..own + cut.headers].copy_from_slice(&data[..cut.headers]);
            out[own + cut.next] = Protocol::FRAGMENT.0;
            if let Some(ip) = Ipv6::of_mut(&mut out[own..]) {
                ip.payload_length.set((cut.headers - Ipv6::LEN + Fragment::LEN + piece.len()) as u16);
            }
            let more = u16::from(offset + piece.len() < payload.len());
            let header = Fragment {
                next_header: cut.kind,
                reserved: 0,
                offset: (offset as u16 | more).into(),
                identification: self.id.into(),
            };
            out[own + cut.headers..front].copy_from_slice(header.bytes());
            out[front..].copy_from_slice(piece);
            made.set_network_header(own as isize, cut.headers);
            made.copy_notes(&packet);
            self.fragments += 1;
            cx.push(0, made);
            offset += piece.len();
        }
    }
}

impl Element for Ip6Fragmenter {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut mtu = 0u32;
        args.read_mp("MTU", &mut mtu);
        args.complete()?;
        if mtu < LEAST {
            return Err(cx.error(alloc::format!("MTU must be at least {LEAST}")));
        }
        // An unpredictable identification (RFC 7739).
        (self.mtu, self.id) = (mtu as usize, cx.random());
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        cut_to(self.mtu, burst, cx, |packet, cx| self.fragment(packet, cx));
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.id = cx.random();
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::counter("fragments", |e: &mut Self| &mut e.fragments),
        ]
        .into()
    }
}
