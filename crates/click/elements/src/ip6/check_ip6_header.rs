//! `CheckIP6Header(BADADDRS, OFFSET)`: passes only packets with a valid IPv6 header, truncates them to the header's
//! length, and marks the header.
//!
//! Ports: one input; one output, and optionally a push output for bad packets.
//!
//! Arguments:
//! - `BADADDRS`: invalid source addresses, separated by spaces. Multicast addresses are always invalid (RFC 4291,
//!   2.7).
//! - `OFFSET`: offset of the header in the packet; 0 by default.
//!
//! Handlers: `drops` (read).
use crate::packet::divert_counting;
use core::net::Ipv6Addr;
use ringway_click::arg::{Arg, ArgError, POSITIONAL, Scope};
use ringway_click::prelude::*;
use ringway_click_lang::config;
use ringway_wire::{Header, Ipv6, ipv6};

pub static CLASS: Class =
    Class::new("CheckIP6Header", || Box::<CheckIp6Header>::default()).ports("1/1-2").processing("a/ah");

#[derive(Debug, Default)]
pub struct CheckIp6Header {
    bad: Vec<Ipv6Addr>,
    offset: u32,
    drops: u64,
}

fn addresses(text: &str, scope: &Scope) -> Result<Vec<Ipv6Addr>, ArgError> {
    config::split_words(text).iter().map(|word| Ipv6Addr::parse(word, scope)).collect()
}

impl Element for CheckIp6Header {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("BADADDRS", POSITIONAL, &mut self.bad, addresses);
        args.read_p("OFFSET", &mut self.offset);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let (first, mut drops) = (self.drops == 0, 0);
        divert_counting(burst, cx, &mut drops, |packet, _| self.check(packet).is_some());
        self.drops += drops;
        if first && drops > 0 {
            cx.chatter(format_args!("IP6 header check failed"));
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}

impl CheckIp6Header {
    fn check(&self, packet: &mut Packet) -> Option<()> {
        let data = packet.data().get(self.offset as usize..)?;
        let ip = ipv6::Packet::parse(data).filter(|ip| ip.whole)?;
        let (source, destination) = (ip.header.source_addr(), ip.header.destination);
        if source.is_multicast() || self.bad.contains(&source) {
            return None;
        }
        let behind = data.len() - Ipv6::LEN - ip.payload.len();
        packet.take(behind);
        packet.set_network_header(self.offset as isize, Ipv6::LEN);
        packet.notes_mut().set(Annotations::DST_IP6, destination.to_bytes());
        Some(())
    }
}
