//! `ARPQuerier(IP, ETH, TABLE, CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, CAPACITY_SLIM_FACTOR, TIMEOUT,
//! POLL_TIMEOUT, BROADCAST, BROADCAST_POLL)`: puts an Ethernet header before IP packets, and asks by ARP for addresses
//! it does not know.
//!
//! Ports: input 0 for IP packets with their destination noted, input 1 for ARP replies in Ethernet frames; output 0
//! for frames, and optionally output 1 for requests. All push.
//!
//! Arguments:
//! - `IP`, `ETH`: this host's addresses, the first with or without its prefix; or one name of both.
//! - `TABLE`: the ARPTable to use; by default it has its own.
//! - `CAPACITY`, `ENTRY_CAPACITY`, `ENTRY_PACKET_CAPACITY`, `CAPACITY_SLIM_FACTOR`, `TIMEOUT`: of its own table, as
//!   ARPTable's.
//! - `POLL_TIMEOUT`: for how long an answer counts before it is asked for again; a minute by default, for ever if 0.
//! - `BROADCAST`: an address that means everybody; by default that of IP's prefix.
//! - `BROADCAST_POLL`: whether everybody is asked again, not only who answered; false by default.
//!
//! Handlers: `table`, `stats`, `count`, `length`, `queries`, `responses`, `drops` (read); `ipaddr`, `broadcast` (read,
//! write); `insert`, `delete`, `clear` (write). No address is asked for more than ten times a second.
use super::arp;
use super::arp_entries::{ArpEntries, Waiting, jiffies};
use super::arp_table::ArpTable;
use crate::ip::bare_prefix;
use crate::packet::mark_ethernet;
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, Nanoseconds, Prefix};
use ringway_click::prelude::*;
use ringway_wire::arp::{REPLY, REQUEST};
use ringway_wire::{Arp, EtherType, Ethernet, Header, MacAddress, ipv4};

pub static CLASS: Class = Class::new("ARPQuerier", || Box::<ArpQuerier>::default())
    .ports("2/1-2")
    .processing("h")
    .flow("xy/x")
    .flags("L2")
    .live();

/// The next hop of an earlier packet.
#[derive(Clone, Copy, Debug)]
struct Hop {
    ip: Ipv4Addr,
    header: Ethernet,
    /// The header counts for later bursts before this time in jiffies, unless the entries have another version.
    until: u64,
    version: u64,
}

#[derive(Debug)]
pub struct ArpQuerier {
    ip: Ipv4Addr,
    ether: MacAddress,
    broadcast: Ipv4Addr,
    broadcast_poll: bool,
    poll: u64,
    table: Option<ElementId>,
    own: ArpEntries,
    last: Option<Hop>,
    queries: u64,
    responses: u64,
    drops: u64,
    warned: bool,
}

impl Default for ArpQuerier {
    fn default() -> Self {
        Self {
            ip: Ipv4Addr::UNSPECIFIED,
            ether: MacAddress::default(),
            broadcast: Ipv4Addr::BROADCAST,
            broadcast_poll: false,
            poll: 0,
            table: None,
            own: ArpEntries::default(),
            last: None,
            queries: 0,
            responses: 0,
            drops: 0,
            warned: false,
        }
    }
}

impl Element for ArpQuerier {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut poll = Nanoseconds(60 * SECOND);
        self.own.read_arguments(args);
        let broadcast = args.read("BROADCAST", &mut self.broadcast);
        args.read("TABLE", &mut self.table);
        args.read("POLL_TIMEOUT", &mut poll);
        args.read("BROADCAST_POLL", &mut self.broadcast_poll);
        args.consume();
        self.poll = jiffies(poll.0);
        let mut prefix = Prefix { address: Ipv4Addr::UNSPECIFIED, mask: Ipv4Addr::BROADCAST };
        if args.rest().len() == 1 {
            let name = args.take_rest().pop().unwrap_or_default();
            match (bare_prefix(&name, args.scope()), MacAddress::parse(&name, args.scope())) {
                (Ok(ip), Ok(ether)) => (prefix, self.ether) = (ip, ether),
                (Err(error), _) => args.error(format!("IP: {error}")),
                (_, Err(error)) => args.error(format!("ETH: {error}")),
            }
        } else {
            args.read_with("IP", ringway_click::arg::MANDATORY_POSITIONAL, &mut prefix, bare_prefix);
            args.read_mp("ETH", &mut self.ether);
        }
        self.ip = prefix.address;
        let last = Ipv4Addr::from_bits(prefix.address.to_bits() | !prefix.mask.to_bits());
        if !broadcast && last != prefix.address {
            self.broadcast = last;
        }
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        match (self.table, self.own.period()) {
            (Some(table), _) if cx.element::<ArpTable>(table).is_none() => {
                Err(cx.error("TABLE: does not name an ARPTable"))
            }
            (None, Some(period)) => {
                let timer = cx.new_timer();
                cx.set_timer_after(timer, period);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if port == 0 {
            let (now, version) = (jiffies(cx.coarse_now()), self.own.version);
            let mut last = self.last.take().filter(|last| now < last.until && last.version == version);
            burst.sift(
                &mut (&mut *self, cx),
                |(querier, cx), packet| querier.encap(packet, &mut last, now, cx).err(),
                |(querier, cx), packet, next| match next {
                    Some(ip) => querier.wait(ip, packet, now, cx),
                    None => querier.drops += 1,
                },
            );
            self.last = last;
        } else {
            let now = jiffies(cx.steady());
            for packet in burst.drain() {
                self.learn(&packet, now, cx);
            }
        }
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let now = jiffies(cx.steady());
        self.own.slim(now, usize::MAX);
        cx.set_timer_after(timer, self.own.period().unwrap_or(SECOND));
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read_with("table", |e: &mut Self, _, cx| {
                let now = jiffies(cx.steady());
                Ok(e.entries(cx, |entries| entries.table(now)))
            }),
            Handler::read_with("stats", |e: &mut Self, _, cx| {
                let drops = e.drops + e.entries(cx, |entries| entries.drops);
                Ok(format!("{drops} packets killed\n{} ARP queries sent\n", e.queries))
            }),
            Handler::read_with("count", |e: &mut Self, _, cx| {
                Ok(e.entries(cx, |entries| entries.count().to_string()))
            }),
            Handler::read_with("length", |e: &mut Self, _, cx| {
                Ok(e.entries(cx, |entries| entries.length().to_string()))
            }),
            Handler::read("queries", |e: &Self| e.queries),
            Handler::read("responses", |e: &Self| e.responses),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::field("ipaddr", |e: &mut Self| &mut e.ip).error("expected IP address"),
            Handler::field("broadcast", |e: &mut Self| &mut e.broadcast),
            Handler::write("insert", |e: &mut Self, value, cx| e.change(true, value, cx)),
            Handler::write("delete", |e: &mut Self, value, cx| e.change(false, value, cx)),
            Handler::write("clear", |e: &mut Self, _, cx| {
                (e.queries, e.drops, e.responses) = (0, 0, 0);
                e.entries(cx, ArpEntries::clear);
                Ok(())
            }),
        ]
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        if self.table.is_none() && from.table.is_none() {
            self.own.take(&mut from.own);
        } else {
            self.drops += from.own.length() as u64;
        }
        (self.queries, self.responses) = (from.queries, from.responses);
    }
}

impl ArpQuerier {
    /// Calls `act` on the ARP table, this element's own or another element's.
    #[inline]
    fn entries<R: Default>(&mut self, cx: &mut Context<'_>, act: impl FnOnce(&mut ArpEntries) -> R) -> R {
        match self.table {
            Some(table) => {
                cx.with(table, |table: &mut ArpTable, _| act(&mut table.entries)).unwrap_or_default()
            }
            None => act(&mut self.own),
        }
    }

    /// Prepends an Ethernet header to a packet, if that is possible; else returns its next hop, if only that one's
    /// address is missing. `last` is the next hop of an earlier packet.
    #[inline]
    fn encap(
        &mut self,
        packet: &mut Packet,
        last: &mut Option<Hop>,
        now: u64,
        cx: &mut Context<'_>,
    ) -> Result<(), Option<Ipv4Addr>> {
        let ip = Ipv4Addr::from(packet.notes().dst_ip());
        if let Some(hop) = last.as_ref().filter(|hop| hop.ip == ip) {
            return self.prepend(packet, &hop.header);
        }
        let poll = self.poll;
        let found = self.entries(cx, |entries| entries.lookup(ip, now, poll));
        let known = match found {
            Some((ether, _)) => Some(ether),
            None if ip == Ipv4Addr::BROADCAST || ip == self.broadcast => Some(MacAddress::BROADCAST),
            None if ip.is_multicast() => Some(ipv4::multicast_mac(ip)),
            None => None,
        };
        let destination = known.unwrap_or_default();
        let header = Ethernet { destination, source: self.ether, ethertype: EtherType::IPV4 };
        self.prepend(packet, &header)?;
        match found {
            Some((ether, None)) => {
                let to = if self.broadcast_poll { MacAddress::BROADCAST } else { ether };
                self.ask(to, packet, cx);
            }
            _ => {
                let until = found.and_then(|(_, until)| until).filter(|_| self.table.is_none());
                let (until, version) = (until.unwrap_or(0), self.own.version);
                *last = known.map(|_| Hop { ip, header, until, version });
            }
        }
        known.map(|_| ()).ok_or(Some(ip))
    }

    /// Prepends the header to a packet.
    #[inline]
    fn prepend(&self, packet: &mut Packet, header: &Ethernet) -> Result<(), Option<Ipv4Addr>> {
        if self.ip.is_unspecified() || !packet.push_header(header) {
            return Err(None);
        }
        mark_ethernet(packet, Ethernet::LEN);
        Ok(())
    }

    #[inline]
    fn address(&self, packet: &mut Packet, ether: MacAddress) {
        if let Some(header) = Ethernet::of_mut(packet.data_mut()) {
            (header.destination, header.source) = (ether, self.ether);
        }
    }

    fn wait(&mut self, ip: Ipv4Addr, packet: Packet, now: u64, cx: &mut Context<'_>) {
        if ip.is_unspecified() {
            if !core::mem::replace(&mut self.warned, true) {
                let name = cx.declaration();
                cx.chatter(format_args!("{name}: would query for 0.0.0.0; missing dest IP addr annotation?"));
            }
            self.drops += 1;
            return;
        }
        let like = packet.clone();
        let waits = self.entries(cx, |entries| Some(entries.wait(ip, packet, now)));
        if let Some(Waiting::Stored(true)) = waits {
            self.ask(MacAddress::BROADCAST, &like, cx);
        }
    }

    /// Sends a query for a packet's destination.
    fn ask(&mut self, to: MacAddress, packet: &Packet, cx: &mut Context<'_>) {
        let request = Arp {
            sender_hardware: self.ether,
            sender_protocol: self.ip.to_bits().into(),
            target_protocol: packet.notes().dst_ip().into(),
            ..Arp::new(REQUEST)
        };
        if let Some(mut frame) = arp::make(to, &request, Some(packet), cx) {
            frame.set_timestamp(packet.timestamp());
            self.queries += 1;
            let port = cx.noutputs().saturating_sub(1);
            cx.push(port, frame);
        }
    }

    /// Learns from a reply, and emits the packets that waited for it.
    fn learn(&mut self, packet: &Packet, now: u64, cx: &mut Context<'_>) {
        if packet.len() >= Ethernet::LEN + Arp::LEN {
            self.responses += 1;
        }
        let Some(reply) = arp::parse(packet.data()) else { return };
        if reply.operation != REPLY || reply.sender_hardware.is_group() {
            return;
        }
        let (ip, ether) = (reply.sender_protocol.get().into(), reply.sender_hardware);
        for mut waited in self.entries(cx, |entries| entries.insert(ip, ether, now)) {
            self.address(&mut waited, ether);
            cx.push(0, waited);
        }
    }

    /// Inserts or deletes an entry, for a handler.
    fn change(&mut self, insert: bool, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let now = jiffies(cx.steady());
        let Some(table) = self.table else { return self.own.change(insert, value, now, cx) };
        let changed = cx.with(table, |table: &mut ArpTable, cx| table.entries.change(insert, value, now, cx));
        changed.unwrap_or_else(|| Err(HandlerError::Busy(cx.name().to_string())))
    }
}
