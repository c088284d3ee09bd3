//! `IP6NDAdvertiser(PREFIX.. ETH, ...)`: replies to neighbor solicitations (RFC 4861, 7.2.4).
//!
//! Ports: one input for Ethernet frames; one output for advertisements. Everything else is dropped, also solicitations
//! whose sender has no unicast Ethernet address, or an IPv6 address that no single host can have. One of `::` asks
//! whether the address is in use (RFC 4862, 5.4); its answer goes to all nodes.
//!
//! Arguments: in each, some addresses or prefixes and the Ethernet address to reply with. The longest prefix is used.
//!
//! Handlers: `drops` (read): packets that are not solicitations for one of the addresses.
use super::neighbor;
use core::net::Ipv6Addr;
use ringway_click::arg::{Arg, Prefix6};
use ringway_click::prelude::*;
use ringway_click::sort;
use ringway_click_lang::config;
use ringway_wire::icmp::{Neighbor, v6};
use ringway_wire::{MacAddress, ipv6};

/// All nodes of the link (RFC 4291, 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

pub static CLASS: Class = Class::new("IP6NDAdvertiser", || Box::<Ip6NdAdvertiser>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct Ip6NdAdvertiser {
    entries: Vec<(Prefix6, MacAddress)>,
    drops: u64,
}

impl Element for Ip6NdAdvertiser {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        for (index, argument) in args.take_rest().iter().enumerate() {
            let (mut prefixes, mut ether) = (Vec::new(), None);
            for word in config::split_words(argument) {
                let scope = args.scope();
                if let Ok(prefix) = Prefix6::parse(&word, scope) {
                    prefixes.push(prefix);
                } else if let Ok(address) = Ipv6Addr::parse(&word, scope) {
                    prefixes.push(Prefix6 { address, length: 128 });
                } else if let Ok(address) = MacAddress::parse(&word, scope) {
                    if ether.replace(address).is_some() {
                        args.error(format!("argument {index} has more than one Ethernet address"));
                    }
                } else {
                    args.error(format!("argument {index} should be 'IP6/MASK ETHADDR'"));
                }
            }
            if prefixes.is_empty() {
                args.error(format!("argument {index} had no IP6 address and masks"));
            }
            let ether = ether.unwrap_or_default();
            self.entries.extend(prefixes.into_iter().map(|prefix| (prefix, ether)));
        }
        sort::by_number(&mut self.entries, |(prefix, _)| !u64::from(prefix.length));
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|packet| {
            let answer = self.answer(&packet, cx);
            self.drops += u64::from(answer.is_none());
            answer
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("drops", |e: &mut Self| &mut e.drops)].into()
    }
}

impl Ip6NdAdvertiser {
    fn lookup(&self, address: Ipv6Addr) -> Option<MacAddress> {
        let inside = |prefix: &Prefix6| {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.length)).unwrap_or(0);
            (address.to_bits() ^ prefix.address.to_bits()) & mask == 0
        };
        self.entries.iter().find(|(prefix, _)| inside(prefix)).map(|(_, ether)| *ether)
    }

    fn answer(&self, packet: &Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let solicitation = neighbor::parse(packet.data(), v6::NEIGHBOR_SOLICITATION)?;
        let target = solicitation.target;
        let ether = self.lookup(target)?;
        let is_detection = solicitation.source.is_unspecified();
        if !solicitation.ether.is_unicast() || !(is_detection || ipv6::is_host(solicitation.source)) {
            return None;
        }
        let (to, solicited) = if is_detection {
            ((ipv6::multicast_mac(ALL_NODES), ALL_NODES), 0)
        } else {
            ((solicitation.ether, solicitation.source), Neighbor::SOLICITED)
        };
        let message = (v6::NEIGHBOR_ADVERTISEMENT, Neighbor::ROUTER | solicited, target);
        neighbor::make((ether, target), to, message, cx)
    }
}
