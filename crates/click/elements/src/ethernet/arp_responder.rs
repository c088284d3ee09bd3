//! `ARPResponder(PREFIX.. ETH, ...)`: replies to ARP requests.
//!
//! Ports: one input for Ethernet frames; one output for replies, and optionally a push output for everything except
//! requests that it can answer. Requests whose sender has no unicast Ethernet address, or an IPv4 address that no
//! single host can have, are not answered; one of 0.0.0.0 asks whether an address is in use (RFC 5227, 2.1.1), and is.
//!
//! Arguments: in each, some addresses or prefixes and the Ethernet address to reply with, or a name for both. The
//! longest prefix is used, and of equal ones the last.
//!
//! Handlers: `table`, `bad_sources` (read): requests not answered because of their sender; `lookup` (read, with an
//! address); `add`, `remove` (write).
use super::arp;
use crate::ip::{bare_prefix, prefix_text};
use crate::packet::{divert, mac_text};
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, ArgError, Prefix, Scope};
use ringway_click::prelude::*;
use ringway_click::sort;
use ringway_click_lang::config;
use ringway_wire::{MacAddress, arp::REQUEST, ipv4};

pub static CLASS: Class =
    Class::new("ARPResponder", || Box::<ArpResponder>::default()).ports("1/1-2").processing("a/ah").live();

#[derive(Debug, Default)]
pub struct ArpResponder {
    /// Longest prefix first, then by address.
    entries: Vec<(Prefix, MacAddress)>,
    bad_sources: u64,
}

impl Element for ArpResponder {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        for (index, argument) in args.take_rest().iter().enumerate() {
            match entry(argument, args.scope()) {
                Ok(entries) => self.entries.extend(entries),
                Err(error) => args.error(format!("argument {index}: {error}")),
            }
        }
        for prefix in self.normalize() {
            cx.warning(format!("multiple entries for {}", prefix_text(&prefix)));
        }
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, cx| match self.answer(packet, cx) {
            Some(reply) => {
                *packet = reply;
                true
            }
            None => false,
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("table", Self::table),
            Handler::counter("bad_sources", |e: &mut Self| &mut e.bad_sources),
            Handler::read_with("lookup", |e: &mut Self, parameter, cx| {
                let address = cx.parse(parameter).map_err(|_| HandlerError::failed("expected IP address"))?;
                Ok(e.lookup(address).map(mac_text).unwrap_or_default())
            })
            .parameters(),
            Handler::write("add", |e: &mut Self, value, cx| {
                e.entries.extend(cx.parse_with(value, entry)?);
                e.normalize();
                Ok(())
            }),
            Handler::write("remove", |e: &mut Self, value, cx| {
                let prefix = cx.parse_with(value, bare_prefix);
                let prefix = masked(prefix.map_err(|_| HandlerError::failed("expected IP/MASK"))?);
                let found = e.entries.iter().position(|(own, _)| *own == prefix);
                let not_found = || HandlerError::failed(format!("{} not found", prefix_text(&prefix)));
                e.entries.remove(found.ok_or_else(not_found)?);
                Ok(())
            }),
        ]
        .into()
    }
}

fn masked(prefix: Prefix) -> Prefix {
    let address = prefix.address.to_bits() & prefix.mask.to_bits();
    Prefix { address: Ipv4Addr::from_bits(address), ..prefix }
}

fn entry(text: &str, scope: &Scope) -> Result<Vec<(Prefix, MacAddress)>, ArgError> {
    let words = config::split_words(text);
    let mut prefixes = Vec::new();
    let mut ether = None;
    for word in &words {
        if let Ok(prefix) = bare_prefix(word, scope) {
            prefixes.push(masked(prefix));
        } else if let Ok(address) = MacAddress::parse(word, scope) {
            if ether.replace(address).is_some() {
                return Err(ArgError::other("more than one ETH"));
            }
        } else {
            return Err(ArgError::other("expected IP/MASK ETH"));
        }
    }
    let ether = ether.or_else(|| words.iter().find_map(|word| MacAddress::parse(word, scope).ok()));
    if prefixes.is_empty() {
        return Err(ArgError::other("missing IP/MASK"));
    }
    let ether = ether.ok_or_else(|| ArgError::other("missing ETH"))?;
    Ok(prefixes.into_iter().map(|prefix| (prefix, ether)).collect())
}

impl ArpResponder {
    /// Sorts the entries, and removes and returns duplicates.
    fn normalize(&mut self) -> Vec<Prefix> {
        self.entries.reverse();
        sort::by_number(&mut self.entries, |(prefix, _)| {
            u64::from(!prefix.mask.to_bits()) << 32 | u64::from(prefix.address.to_bits())
        });
        let mut repeated = Vec::new();
        self.entries.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            repeated.extend(same.then_some(later.0));
            same
        });
        repeated
    }

    fn lookup(&self, address: Ipv4Addr) -> Option<MacAddress> {
        self.entries.iter().find(|(prefix, _)| prefix.contains(address)).map(|(_, ether)| *ether)
    }

    fn answer(&mut self, packet: &Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let request = arp::parse(packet.data()).filter(|arp| arp.operation == REQUEST)?;
        let [target, sender_ip] =
            [request.target_protocol, request.sender_protocol].map(|ip| Ipv4Addr::from_bits(ip.get()));
        let (ether, sender) = (self.lookup(target)?, request.sender_hardware);
        if !sender.is_unicast() || !(sender_ip.is_unspecified() || ipv4::is_host(sender_ip)) {
            self.bad_sources += 1;
            return None;
        }
        arp::make(sender, &arp::reply(ether, target, sender, sender_ip), Some(packet), cx)
    }

    fn table(&self) -> String {
        let lines = self.entries.iter();
        lines.map(|(prefix, ether)| format!("{} {}\n", prefix_text(prefix), mac_text(*ether))).collect()
    }
}
