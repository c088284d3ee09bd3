//! `IPFragmenter(MTU, HONOR_DF, VERBOSE, HEADROOM)`: cuts IPv4 packets that are too long into fragments (RFC 791, 2.3).
//!
//! Ports: one push input; one push output, and optionally another for packets that must not be fragmented.
//!
//! Arguments:
//! - `MTU`: bytes of an IPv4 packet at most, at least 8.
//! - `HONOR_DF`: whether a packet may forbid to be fragmented; true by default.
//! - `VERBOSE`: says each packet that must not be fragmented, not only the first five.
//! - `HEADROOM`: room before each fragment but the first; as usual by default.
//!
//! Handlers: `drops`, `fragments` (read). What stands before the IPv4 header stays with the first fragment.
use super::transport::Transport;
use crate::packet::{cut_to, fill_ip_checksum, put, u16_at};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, HEADROOM, Handler, Metadata, Packet, PacketBurst};

/// Facts.
pub static CLASS: Class = Class::new("IPFragmenter", || Box::<IpFragmenter>::default())
    .ports("1/1-2")
    .processing("h")
    .metadata(Metadata::Resolve);

const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
/// Room before a packet at most. Attack: a configuration that asks for more than there is memory.
const MOST_HEADROOM: u32 = 1 << 16;

/// Cuts packets.
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
        [Handler::read("drops", |e: &Self| e.drops), Handler::read("fragments", |e: &Self| e.fragments)]
            .into()
    }
}

impl IpFragmenter {
    fn refuse(&mut self, packet: Packet, cx: &mut Context<'_>) {
        if self.verbose || self.drops < 5 {
            let data = packet.network_data().unwrap_or_default();
            let address = |at| Ipv4Addr::from_bits(crate::packet::u32_at(data, at));
            let (source, destination, length) = (address(12), address(16), packet.len());
            cx.chatter(format_args!("IPFragmenter({}) DF {source} {destination} len={length}", self.mtu));
        }
        self.drops += 1;
        cx.push(1, packet);
    }

    fn fragment(&mut self, mut packet: Packet, cx: &mut Context<'_>) {
        let data = packet.network_data().unwrap_or_default();
        let mtu = self.mtu as usize;
        let Some(transport) = Transport::of(data) else { return self.refuse(packet, cx) };
        let flags = u16_at(data, 6);
        let header = transport.header;
        let first = mtu.saturating_sub(header) & !7;
        // Attack: a length that is larger than the packet, or smaller than the first fragment.
        let length = transport.length.min(data.len() - header);
        if flags & DONT_FRAGMENT != 0 && self.honor_df || first < 8 {
            return self.refuse(packet, cx);
        }
        if length <= first {
            return cx.push(0, packet);
        }
        // The identification of packets that were not to be fragmented means nothing (RFC 6864, 4.1).
        let id = if flags & DONT_FRAGMENT != 0 { cx.random() as u16 } else { u16_at(data, 4) };
        let flags = flags & !DONT_FRAGMENT;
        let whole = packet.clone();
        let Some(at) = packet.network_header() else { return };
        let end = usize::try_from(at + (header + first) as isize).unwrap_or(0);
        packet.take(packet.len().saturating_sub(end));
        if let Some(data) = packet.network_data_mut() {
            put(data, 2, ((header + first) as u16).to_be_bytes());
            put(data, 4, id.to_be_bytes());
            put(data, 6, (flags | MORE_FRAGMENTS).to_be_bytes());
            fill_ip_checksum(&mut data[..header]);
        }
        self.fragments += 1;
        cx.push(0, packet);
        self.rest(&whole, (first, length), header, (id, flags), cx);
    }

    /// Makes the fragments that follow the first.
    fn rest(
        &mut self,
        whole: &Packet,
        (mut offset, length): (usize, usize),
        header: usize,
        (id, flags): (u16, u16),
        cx: &mut Context<'_>,
    ) {
        let data = whole.network_data().unwrap_or_default();
        let mut front = [0; 60];
        front[..20].copy_from_slice(&data[..20]);
        let own = 20 + copied_options(&data[20..header], &mut front[20..]);
        front[0] = 0x40 | (own / 4) as u8;
        let most = (self.mtu as usize).saturating_sub(own) & !7;
        while offset < length {
            let piece = most.min(length - offset);
            if piece == 0 {
                return;
            }
            let last = offset + piece >= length && flags & MORE_FRAGMENTS == 0;
            let more = if last { flags & !MORE_FRAGMENTS } else { flags | MORE_FRAGMENTS };
            put(&mut front, 2, ((own + piece) as u16).to_be_bytes());
            put(&mut front, 4, id.to_be_bytes());
            put(&mut front, 6, (more.wrapping_add((offset >> 3) as u16)).to_be_bytes());
            fill_ip_checksum(&mut front[..own]);
            let Some(mut made) = cx.make_packet(self.headroom as usize, own + piece, 0) else { return };
            let (head, tail) = made.data_mut().split_at_mut(own);
            head.copy_from_slice(&front[..own]);
            tail.copy_from_slice(&data[header + offset..header + offset + piece]);
            made.set_network_header(0, own);
            *made.notes_mut() = whole.notes().clone();
            self.fragments += 1;
            cx.push(0, made);
            offset += piece;
        }
    }
}

/// Copies the options that every fragment bears; how many bytes they are, a multiple of 4.
fn copied_options(mut options: &[u8], out: &mut [u8]) -> usize {
    let mut length = 0;
    while let Some((&kind, rest)) = options.split_first() {
        if kind == 1 {
            options = rest;
            continue;
        }
        let Some(option) = rest.first().filter(|_| kind != 0).and_then(|n| options.get(..usize::from(*n)))
        else {
            break;
        };
        if option.len() < 2 {
            break;
        }
        if kind & 0x80 != 0 && length + option.len() <= out.len() {
            out[length..length + option.len()].copy_from_slice(option);
            length += option.len();
        }
        options = &options[option.len()..];
    }
    let padded = length.next_multiple_of(4).min(out.len());
    out[length..padded].fill(0);
    padded
}
