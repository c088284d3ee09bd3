//! `IP6NDSolicitor(IP, ETH)`: prepends an Ethernet header to IPv6 packets, and resolves unknown addresses by neighbor
//! discovery (RFC 4861, 7.2).
//!
//! Ports: input 0 for IPv6 packets with a destination annotation, input 1 for advertisements in Ethernet frames;
//! output 0 for frames, and optionally output 1 for solicitations. All ports are push.
//!
//! Arguments:
//! - `IP`, `ETH`: this host's addresses.
//!
//! Handlers: `table`, `stats`, `length` (waiting packets), `drops` (read). One packet waits for each address; learned
//! addresses are valid for 5 minutes.
use super::neighbor;
use crate::packet::{mac_text, mark_ethernet};
use crate::search::Search;
use core::net::Ipv6Addr;
use ringway_click::prelude::*;
use ringway_click::{OrderedMap, Timestamp};
use ringway_wire::{EtherType, Ethernet, Header, MacAddress, icmp::v6, ipv6};

pub static CLASS: Class = Class::new("IP6NDSolicitor", || Box::<Ip6NdSolicitor>::default())
    .ports("2/1-2")
    .processing("h")
    .flow("xy/x");

/// Time for which a learned address is used.
const TIMEOUT: u64 = 300 * SECOND;
/// Minimum time between solicitations for an address.
const INTERVAL: u64 = SECOND;
/// Maximum number of addresses. Attack: a scan of a prefix.
const MOST: usize = 1 << 16;

#[derive(Debug, Default)]
struct Neighbor {
    ether: Option<MacAddress>,
    learned: u64,
    solicited: Option<u64>,
    waiting: Option<Packet>,
}

#[derive(Debug)]
pub struct Ip6NdSolicitor {
    ip: Ipv6Addr,
    ether: MacAddress,
    neighbors: OrderedMap<u128, Neighbor>,
    search: Search,
    queries: u64,
    drops: u64,
}

impl Default for Ip6NdSolicitor {
    fn default() -> Self {
        Self {
            ip: Ipv6Addr::UNSPECIFIED,
            ether: MacAddress::default(),
            neighbors: OrderedMap::new(),
            search: Search::default(),
            queries: 0,
            drops: 0,
        }
    }
}

impl Element for Ip6NdSolicitor {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("IP", &mut self.ip);
        args.read_mp("ETH", &mut self.ether);
        args.complete()
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.steady();
        if port == 0 {
            burst.filter_map(|packet| self.encap(packet, now, cx));
        } else {
            for packet in burst.drain() {
                self.learn(&packet, now, cx);
            }
        }
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        self.neighbors = core::mem::take(&mut from.neighbors);
        self.queries = from.queries;
        let source = self.ether;
        for packet in self.neighbors.values_mut().filter_map(|known| known.waiting.as_mut()) {
            if let Some(header) = Ethernet::of_mut(packet.data_mut()) {
                header.source = source;
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read_with("table", |e: &mut Self, _, cx| Ok(e.table(cx.steady()))),
            Handler::read("stats", |e: &Self| {
                format!("{} packets killed\n{} ND Solicitation Message sent\n", e.drops, e.queries)
            }),
            Handler::read("length", |e: &Self| {
                e.neighbors.values().filter(|known| known.waiting.is_some()).count()
            }),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
        ]
        .into()
    }
}

fn set_destination(packet: &mut Packet, ether: MacAddress) {
    if let Some(header) = Ethernet::of_mut(packet.data_mut()) {
        header.destination = ether;
    }
}

impl Ip6NdSolicitor {
    fn encap(&mut self, mut packet: Packet, now: u64, cx: &mut Context<'_>) -> Option<Packet> {
        let ip = Ipv6Addr::from(packet.notes().get::<16>(Annotations::DST_IP6));
        let destination = MacAddress::default();
        let header = Ethernet { destination, source: self.ether, ethertype: EtherType::IPV6 };
        if !packet.push_header(&header) {
            self.drops += 1;
            return None;
        }
        mark_ethernet(&mut packet, Ethernet::LEN);
        let known = self.neighbors.get(ip.to_bits());
        let fresh = known.filter(|known| known.learned.saturating_add(TIMEOUT) > now);
        let ether =
            if ip.is_multicast() { Some(ipv6::multicast_mac(ip)) } else { fresh.and_then(|k| k.ether) };
        if let Some(ether) = ether {
            set_destination(&mut packet, ether);
            return Some(packet);
        }
        self.wait(ip, packet, now, cx);
        None
    }

    fn wait(&mut self, ip: Ipv6Addr, packet: Packet, now: u64, cx: &mut Context<'_>) {
        if self.neighbors.len() >= MOST && !self.neighbors.contains_key(ip.to_bits()) {
            let before = self.neighbors.len();
            if self.search.is_due(now) {
                self.neighbors.retain(|_, known| known.learned.saturating_add(TIMEOUT) > now);
            }
            if self.neighbors.len() == before {
                self.drops += 1;
                return;
            }
        }
        let known = self.neighbors.or_insert_with(ip.to_bits(), Neighbor::default);
        known.ether = None;
        self.drops += u64::from(known.waiting.replace(packet).is_some());
        if known.solicited.is_none_or(|solicited| solicited.saturating_add(INTERVAL) <= now) {
            known.solicited = Some(now);
            self.ask(ip, cx);
        }
    }

    fn ask(&mut self, target: Ipv6Addr, cx: &mut Context<'_>) {
        // The solicited-node group (RFC 4291, 2.7.1).
        let low = target.to_bits() & 0xff_ffff;
        let group = Ipv6Addr::from_bits(0xff02_0000_0000_0000_0000_0001_ff00_0000 | low);
        let message = (v6::NEIGHBOR_SOLICITATION, 0, target);
        let to = (ipv6::multicast_mac(group), group);
        if let Some(frame) = neighbor::make((self.ether, self.ip), to, message, cx) {
            self.queries += 1;
            let port = cx.noutputs().saturating_sub(1);
            cx.push(port, frame);
        }
    }

    fn learn(&mut self, packet: &Packet, now: u64, cx: &mut Context<'_>) {
        let Some(message) = neighbor::parse(packet.data(), v6::NEIGHBOR_ADVERTISEMENT) else { return };
        let ether = message.link.unwrap_or(message.ether);
        // Attack: unsolicited advertisements that fill the table; only solicited ones are stored.
        let Some(known) = self.neighbors.get_mut(message.target.to_bits()) else { return };
        if ether.is_group() {
            return;
        }
        (known.ether, known.learned, known.solicited) = (Some(ether), now, None);
        if let Some(mut waited) = known.waiting.take() {
            set_destination(&mut waited, ether);
            cx.push(0, waited);
        }
    }

    fn table(&self, now: u64) -> String {
        let lines = self.neighbors.iter().map(|(ip, known)| {
            let (ip, age) = (Ipv6Addr::from_bits(ip), Timestamp(now.saturating_sub(known.learned)));
            let ether = mac_text(known.ether.unwrap_or(MacAddress::BROADCAST));
            format!("{ip} {} {ether} {age}\n", u8::from(known.ether.is_some()))
        });
        lines.collect()
    }
}
