//! `IPHealthCheck(BALANCER, SRC, PORT, INTERVAL, RISE, FALL, ACTIVE)`: asks the servers of an IPLoadBalancer whether
//! they work.
//!
//! With PORT, a server works if it accepts a connection: a SYN is sent, and a SYN-ACK is answered with RST, so that the
//! server's program never sees the connection. Without PORT, it works if it answers an ICMP echo request. A server that
//! does not work is `down` in the balancer: it gets no new connections, and keeps those that it has. A new server is
//! `up` until its first check, which decides by itself. Each change is reported.
//!
//! Ports: output 0, push: probes, IPv4 packets with their destination annotation. One push input: packets for SRC, with
//! a marked header; answers to probes are taken, others go to output 1 (optional).
//!
//! Arguments:
//! - `BALANCER`: an IPLoadBalancer of IPv4.
//! - `SRC`: the source address of probes.
//! - `PORT`: TCP port of the servers; 0, the default, asks by ICMP.
//! - `INTERVAL`: time between two probes of a server, and the time that it has to answer; a second by default.
//! - `RISE`, `FALL`: number of successive answers, and of probes without answer, after which a server is up or down; 2
//!   and 3 by default.
//! - `ACTIVE`: whether it sends probes; true by default.
//!
//! Handlers: `checks` (read): address, state, probes and failures of each server; `probes`, `answers`, `failures`,
//! `changes` (read); `active` (read, write). If it is not active, states stay as they are.
use super::ip_load_balancer::IpLoadBalancer;
use crate::icmp::message::Message;
use crate::ip::encap::Destination;
use crate::tcpudp::template::segment_packet;
use core::fmt::Write;
use core::net::Ipv4Addr;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;
use ringway_click::{HEADROOM, OrderedMap};
use ringway_wire::icmp::v4::ECHO_REPLY;
use ringway_wire::tcp::Flags;
use ringway_wire::{Header, Icmp, Ipv4, Protocol, Tcp};

pub static CLASS: Class = Class::new("IPHealthCheck", || Box::<IpHealthCheck>::default())
    .ports("1/1-2")
    .processing("h")
    .flow("x/xy")
    .metadata(Metadata::Resolve);

/// Parts of an interval, so that the probes of many servers are not one burst.
const PARTS: u64 = 8;
/// Shortest interval. Attack: a configuration that does nothing but send probes.
const SHORTEST: u64 = SECOND / 100;
/// First port from which probes are sent.
const FIRST_PORT: u16 = 49_152;
const TTL: u8 = 64;

/// A probe without an answer yet.
#[derive(Clone, Copy, Debug)]
struct Probe {
    /// Source port, or identifier of the echo request.
    port: u16,
    /// Sequence number; of an echo request, its lower half.
    sequence: u32,
}

/// What is known of a server.
#[derive(Clone, Copy, Debug)]
struct Check {
    healthy: bool,
    /// Successive results that contradict `healthy`.
    against: u32,
    /// The part of the interval in which it is probed.
    part: u64,
    open: Option<Probe>,
    probes: u64,
    failures: u64,
}

#[derive(Debug)]
pub struct IpHealthCheck {
    balancer: Option<ElementId>,
    source: Ipv4Addr,
    port: u16,
    interval: u64,
    rise: u32,
    fall: u32,
    active: bool,
    checks: OrderedMap<Ipv4Addr, Check>,
    ticks: u64,
    probes: u64,
    answers: u64,
    failures: u64,
    changes: u64,
}

impl Default for IpHealthCheck {
    fn default() -> Self {
        Self {
            balancer: None,
            source: Ipv4Addr::UNSPECIFIED,
            port: 0,
            interval: SECOND,
            rise: 2,
            fall: 3,
            active: true,
            checks: OrderedMap::new(),
            ticks: 0,
            probes: 0,
            answers: 0,
            failures: 0,
            changes: 0,
        }
    }
}

impl IpHealthCheck {
    /// Follows the balancer's servers, and tells it the state of each.
    fn follow(&mut self, cx: &mut Context<'_>) {
        let Some(balancer) = self.balancer else { return };
        let addresses = cx.element::<IpLoadBalancer>(balancer).and_then(IpLoadBalancer::addresses);
        let mut old = core::mem::take(&mut self.checks);
        for (number, address) in addresses.unwrap_or_default().into_iter().enumerate() {
            // A new server is probed at once.
            let new = || Check {
                healthy: true,
                against: self.fall.saturating_sub(1),
                part: if self.ticks < PARTS { number as u64 % PARTS } else { self.ticks % PARTS },
                open: None,
                probes: 0,
                failures: 0,
            };
            let check = old.remove(address).unwrap_or_else(new);
            let healthy = check.healthy;
            self.checks.insert(address, check);
            cx.with(balancer, |balancer: &mut IpLoadBalancer, _| balancer.set_health(address, healthy));
        }
    }

    /// Records the result of a probe.
    fn result(&mut self, address: Ipv4Addr, works: bool, cx: &mut Context<'_>) {
        let (rise, fall) = (self.rise, self.fall);
        let Some(check) = self.checks.get_mut(address) else { return };
        check.open = None;
        check.failures += u64::from(!works);
        self.answers += u64::from(works);
        self.failures += u64::from(!works);
        if works == check.healthy {
            check.against = 0;
            return;
        }
        check.against += 1;
        if check.against < if works { rise } else { fall } {
            return;
        }
        (check.healthy, check.against) = (works, 0);
        self.changes += 1;
        if let Some(balancer) = self.balancer {
            cx.with(balancer, |balancer: &mut IpLoadBalancer, _| balancer.set_health(address, works));
        }
        let name = cx.declaration();
        cx.chatter(format_args!("{name}: {address} is {}", if works { "up" } else { "down" }));
    }

    /// Sends a probe to a server; one without an answer has failed.
    fn probe(&mut self, address: Ipv4Addr, cx: &mut Context<'_>) {
        if self.checks.get(address).is_some_and(|check| check.open.is_some()) {
            self.result(address, false, cx);
        }
        // Attack: a machine that answers in a server's place has to guess both numbers.
        let port = FIRST_PORT | cx.random() as u16;
        let mut probe = Probe { port, sequence: cx.random() };
        if self.port == 0 {
            probe.sequence &= 0xffff;
        }
        let packet = match self.port {
            0 => self.echo(address, probe, cx),
            _ => self.segment(address, probe, Flags::SYN, cx),
        };
        let (Some(packet), Some(check)) = (packet, self.checks.get_mut(address)) else { return };
        check.open = Some(probe);
        check.probes += 1;
        self.probes += 1;
        cx.push(0, packet);
    }

    fn segment(&self, to: Ipv4Addr, probe: Probe, flags: Flags, cx: &mut Context<'_>) -> Option<Packet> {
        let [source, destination] = [self.source, to].map(Ipv4Addr::to_bits);
        let ip = Ipv4 { ttl: TTL, source: source.into(), destination: destination.into(), ..Ipv4::EMPTY };
        let tcp = Tcp {
            source_port: probe.port.into(),
            destination_port: self.port.into(),
            sequence_number: probe.sequence.into(),
            flags,
            window: 1024.into(),
            ..Tcp::EMPTY
        };
        segment_packet(ip, tcp, &[], cx)
    }

    fn echo(&self, to: Ipv4Addr, probe: Probe, cx: &mut Context<'_>) -> Option<Packet> {
        let mut message = Message { id: probe.port, sequence: probe.sequence as u16, ..Message::default() };
        message.encap.ttl = TTL;
        message.encap.source = self.source;
        message.encap.destination = Destination::Address(to);
        let mut packet = cx.make_packet(HEADROOM + Ipv4::LEN + Icmp::LEN, 0, 0)?;
        message.wrap(&mut packet).then_some(packet)
    }

    /// The server that answers a probe by this packet, and whether it works.
    fn answer(&self, packet: &Packet) -> Option<(Ipv4Addr, bool)> {
        let (ip, _, payload) = Ipv4::parse(packet.network_data()?)?;
        if ip.destination_addr() != self.source || ip.is_fragment() {
            return None;
        }
        let server = ip.source_addr();
        let open = self.checks.get(server)?.open?;
        if self.port == 0 {
            let icmp = Icmp::of(payload).filter(|_| ip.protocol == Protocol::ICMP)?;
            let own = icmp.kind == ECHO_REPLY && icmp.identifier == open.port;
            return (own && u32::from(icmp.sequence_number.get()) == open.sequence).then_some((server, true));
        }
        let tcp = Tcp::of(payload).filter(|_| ip.protocol == Protocol::TCP)?;
        let own = tcp.source_port == self.port && tcp.destination_port == open.port;
        let acknowledged = tcp.acknowledgment_number.get() == open.sequence.wrapping_add(1);
        if !own || !acknowledged || !tcp.flags.has(Flags::ACK) {
            return None;
        }
        match tcp.flags {
            flags if flags.has(Flags::RST) => Some((server, false)),
            flags if flags.has(Flags::SYN) => Some((server, true)),
            _ => None,
        }
    }

    fn text(&self) -> String {
        let mut out = String::new();
        for (address, check) in self.checks.iter() {
            let state = if check.healthy { "up" } else { "down" };
            let _ = writeln!(out, "{address}\t{state}\t{}\t{}", check.probes, check.failures);
        }
        out
    }
}

impl Element for IpHealthCheck {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut interval = Nanoseconds(self.interval);
        args.read_mp("BALANCER", &mut self.balancer);
        args.read_mp("SRC", &mut self.source);
        args.read_p("PORT", &mut self.port);
        args.read("INTERVAL", &mut interval);
        args.read("RISE", &mut self.rise);
        args.read("FALL", &mut self.fall);
        args.read("ACTIVE", &mut self.active);
        args.complete()?;
        if interval.0 < SHORTEST {
            return Err(cx.error("INTERVAL must be at least 10ms"));
        }
        if self.rise == 0 || self.fall == 0 {
            return Err(cx.error("RISE and FALL must be > 0"));
        }
        self.interval = interval.0;
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let balancer = self.balancer.and_then(|balancer| cx.element::<IpLoadBalancer>(balancer));
        if balancer.and_then(IpLoadBalancer::addresses).is_none() {
            return Err(cx.error("BALANCER: element is not an IPLoadBalancer of IPv4"));
        }
        let timer = cx.new_timer();
        cx.set_timer_after(timer, 0);
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        self.follow(cx);
        let part = self.ticks % PARTS;
        if !self.active {
            self.checks.values_mut().for_each(|check| check.open = None);
        }
        let due = self.checks.iter().filter(|(_, check)| self.active && check.part == part);
        let due: Vec<Ipv4Addr> = due.map(|(address, _)| address).collect();
        for address in due {
            self.probe(address, cx);
        }
        self.ticks += 1;
        cx.set_timer_again(timer, self.interval / PARTS);
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            let Some((server, works)) = self.answer(&packet) else {
                cx.push(1, packet);
                continue;
            };
            let open = self.checks.get(server).and_then(|check| check.open);
            self.result(server, works, cx);
            // Ends the connection that the server has half opened.
            let Some(probe) = open.filter(|_| works && self.port != 0) else { continue };
            let probe = Probe { sequence: probe.sequence.wrapping_add(1), ..probe };
            if let Some(reset) = self.segment(server, probe, Flags::RST, cx) {
                cx.push(0, reset);
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("checks", Self::text),
            Handler::read("probes", |e: &Self| e.probes),
            Handler::counter("answers", |e: &mut Self| &mut e.answers),
            Handler::read("failures", |e: &Self| e.failures),
            Handler::read("changes", |e: &Self| e.changes),
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox(),
        ]
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        self.checks = core::mem::take(&mut from.checks);
        (self.ticks, self.probes, self.answers) = (from.ticks, from.probes, from.answers);
        (self.failures, self.changes) = (from.failures, from.changes);
    }
}
