//! `IPFragmenter(MTU, HONOR_DF, VERBOSE, HEADROOM)`: splits IPv4 packets that are too long into fragments (RFC 791,
//! 2.3).
//!
//! Ports: one push input; one push output, and optionally another for packets that must not be fragmented.
//!
//! Arguments:
//! - `MTU`: maximum length of an IPv4 packet in bytes, at least 8.
//! - `HONOR_DF`: whether the DF flag is respected; true by default.
//! - `VERBOSE`: reports each packet that must not be fragmented, not only the first five.
//! - `HEADROOM`: headroom of each fragment except the first; the usual one by default.
//!
//! Handlers: `drops`, `fragments` (read). Bytes before the IPv4 header stay with the first fragment.
use super::transport::Transport;
use crate::packet::cut_to;
use ringway_click::HEADROOM;
use ringway_click::prelude::*;
use ringway_wire::ipv4::{self, DONT_FRAGMENT, MORE_FRAGMENTS, OPTIONS_LEN};
use ringway_wire::{Header, Ipv4, ip};

pub static CLASS: Class = Class::new("IPFragmenter", || Box::<IpFragmenter>::default())
    .ports("1/1-2")
    .processing("h")
    .metadata(Metadata::Resolve);

/// Maximum headroom of a packet. Attack: a configuration that requests more memory than available.
const MOST_HEADROOM: u32 = 1 << 16;

#[derive(Debug, Default)]
pub struct IpFragmenter {
    mtu: u32,
    honor_df: bool,
    verbose: bool,
    headroom: u32,
    drops: u64,
    fragments: u64,
}

impl Element for IpFragmenter {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        (self.honor_df, self.headroom) = (true, HEADROOM as u32);
        args.read_mp("MTU", &mut self.mtu);
        args.read_p("HONOR_DF", &mut self.honor_df);
        args.read_p("VERBOSE", &mut self.verbose);
        args.read("HEADROOM", &mut self.headroom);
        args.complete()?;
        if self.mtu < 8 {
            return Err(cx.error("MTU must be at least 8"));
        }
        self.headroom = self.headroom.min(MOST_HEADROOM);
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        cut_to(self.mtu as usize, burst, cx, |packet, cx| self.fragment(packet, cx));
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::counter("fragments", |e: &mut Self| &mut e.fragments),
        ]
        .into()
    }
}

impl IpFragmenter {
    fn refuse(&mut self, packet: Packet, cx: &mut Context<'_>) {
        if self.verbose || self.drops < 5 {
            let ip = Ipv4::padded(packet.network_data().unwrap_or_default());
            let (source, destination, length) = (ip.source_addr(), ip.destination_addr(), packet.len());
            cx.chatter(format_args!("IPFragmenter({}) DF {source} {destination} len={length}", self.mtu));
        }
        self.drops += 1;
        cx.push(1, packet);
    }

    fn fragment(&mut self, mut packet: Packet, cx: &mut Context<'_>) {
        let data = packet.network_data().unwrap_or_default();
        let mtu = self.mtu as usize;
        let (Some(transport), Some(ip)) = (Transport::of(data), Ipv4::of(data)) else {
            return self.refuse(packet, cx);
        };
        let (mut ip, flags) = (*ip, ip.fragment.get());
        let header = transport.header;
        let first = mtu.saturating_sub(header) & !7;
        // Attack: a length that exceeds the packet, or is less than the first fragment's.
        let length = transport.length.min(data.len() - header);
        if flags & DONT_FRAGMENT != 0 && self.honor_df || first < 8 {
            return self.refuse(packet, cx);
        }
        if length <= first {
            return cx.push(0, packet);
        }
        // The identification of packets with Don't Fragment set is meaningless (RFC 6864, 4.1).
        if flags & DONT_FRAGMENT != 0 {
            ip.identification.set(cx.random() as u16);
        }
        ip.fragment.set(flags & !DONT_FRAGMENT);
        let whole = packet.clone();
        let Some(at) = packet.network_header() else { return };
        let end = usize::try_from(at + (header + first) as isize).unwrap_or(0);
        packet.take(packet.len().saturating_sub(end));
        if let Some((own, options, _)) = packet.network_data_mut().and_then(Ipv4::parse_mut) {
            *own = Ipv4 { total_length: ((header + first) as u16).into(), ..ip };
            own.fragment |= MORE_FRAGMENTS;
            own.fill_checksum(options);
        }
        self.fragments += 1;
        cx.push(0, packet);
        self.rest(&whole, (first, length), ip, cx);
    }

    /// Creates the fragments after the first.
    fn rest(
        &mut self,
        whole: &Packet,
        (mut offset, length): (usize, usize),
        mut ip: Ipv4,
        cx: &mut Context<'_>,
    ) {
        let data = whole.network_data().unwrap_or_default();
        let (header, flags) = (ip.header_len(), ip.fragment.get());
        let mut options = [0; OPTIONS_LEN];
        let copied = copied_options(&data[Ipv4::LEN..header], &mut options);
        let (options, own) = (&options[..copied], Ipv4::LEN + copied);
        ip.version_ihl = 4 << 4 | (own / 4) as u8;
        let most = (self.mtu as usize).saturating_sub(own) & !7;
        while offset < length {
            let piece = most.min(length - offset);
            if piece == 0 {
                return;
            }
            let last = offset + piece >= length && flags & MORE_FRAGMENTS == 0;
            let more = if last { flags & !MORE_FRAGMENTS } else { flags | MORE_FRAGMENTS };
            ip.total_length.set((own + piece) as u16);
            ip.fragment.set(more.wrapping_add((offset >> 3) as u16));
            ip.fill_checksum(options);
            let Some(mut made) = cx.make_packet(self.headroom as usize, own + piece, 0) else { return };
            let (head, tail) = made.data_mut().split_at_mut(own);
            head[..Ipv4::LEN].copy_from_slice(ip.bytes());
            head[Ipv4::LEN..].copy_from_slice(options);
            tail.copy_from_slice(&data[header + offset..header + offset + piece]);
            made.set_network_header(0, own);
            made.copy_notes(whole);
            self.fragments += 1;
            cx.push(0, made);
            offset += piece;
        }
    }
}

/// Copies the options that every fragment carries; returns their length, a multiple of 4.
fn copied_options(options: &[u8], out: &mut [u8]) -> usize {
    let mut length = 0;
    for option in ip::options(options).map_while(|option| option) {
        if option[0] & ipv4::option::COPIED != 0 && length + option.len() <= out.len() {
            out[length..length + option.len()].copy_from_slice(option);
            length += option.len();
        }
    }
    let padded = length.next_multiple_of(4).min(out.len());
    out[length..padded].fill(0);
    padded
}
