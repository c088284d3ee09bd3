//! `AggregateIPFlows([keywords])`: sets packets' aggregate annotation to the number of their TCP or UDP flow, and the
//! paint to their direction: 0 in the direction of the flow's first packet, 1 for replies.
//!
//! Ports: one input, one output, push or pull; a second output, push, gets packets without a flow: other protocols,
//! packets that are too short, fragments with unknown ports.
//!
//! Arguments:
//! - `TCP_TIMEOUT`, `TCP_DONE_TIMEOUT`, `UDP_TIMEOUT`: time without packets after which a flow has ended, and the next
//!   packet begins a new one: 24 hours; 30 seconds after FIN in both directions or a reset; 1 minute.
//! - `FRAGMENTS`: whether fragments without ports wait for the fragment that has them; later packets between the same
//!   addresses then wait too. True if the input is push; otherwise not supported.
//! - `FRAGMENT_TIMEOUT`: how long fragments wait; 30 seconds.
//! - `REAP`: interval at which expired flows are removed; 20 minutes.
//! - `ICMP`: whether ICMP errors get the aggregate of the flow that they refer to, and the paint of its packet plus 2;
//!   false.
//! - `TRACEINFO`: an XML file that describes each flow when it is removed: its ends, time, and packets.
//! - `SOURCE`: an element whose handlers `filename` and `packet_filepos`, such as FromDump's, are noted there. It must
//!   hand out packets one by one (`--burst 1`), else the position may be that of a later packet.
//!
//! Times are the packets' timestamps.
//!
//! Handlers: `length` (read): waiting fragments and packets; `clear` (write): removes all flows, and emits waiting
//! packets.
use super::flow_trace::{FlowTrace, Statistics};
use super::fragments::{Fragments, Tag};
use crate::rewriter::key::FlowKey;
use crate::search::Search;
use ringway_click::OrderedMap;
use ringway_click::arg::Seconds;
use ringway_click::prelude::*;
use ringway_wire::icmp::v4::is_error;
use ringway_wire::tcp::Flags;
use ringway_wire::{Header, Icmp, Ipv4, Protocol, Tcp};

pub static CLASS: Class =
    Class::new("AggregateIPFlows", || Box::<AggregateIpFlows>::default()).ports("1/1-2").processing("a/ah");

/// Maximum number of flows. Attack: packets with ever new ports.
const MOST: usize = 1 << 20;

/// The key of a flow: protocol, and addresses and ports in an order independent of direction.
type Name = (Protocol, u32, u16, u32, u16);

#[derive(Debug)]
struct Flow {
    number: u32,
    /// Whether the first packet's ends are swapped in the key.
    turned: bool,
    /// The time of its last packet.
    last: u64,
    /// FIN seen from the originator, and from the other end.
    done: u8,
    statistics: Statistics,
}

#[derive(Debug)]
pub struct AggregateIpFlows {
    flows: OrderedMap<Name, Flow>,
    fragments: Fragments,
    trace: FlowTrace,
    next: u32,
    tcp: u64,
    tcp_done: u64,
    udp: u64,
    reap: u64,
    reap_at: u64,
    search: Search,
    icmp: bool,
    hold: Option<bool>,
}

impl Default for AggregateIpFlows {
    fn default() -> Self {
        Self {
            flows: OrderedMap::new(),
            fragments: Fragments::new(30 * SECOND),
            trace: FlowTrace::default(),
            next: 1,
            tcp: 86400 * SECOND,
            tcp_done: 30 * SECOND,
            udp: 60 * SECOND,
            reap: 1200 * SECOND,
            reap_at: 0,
            search: Search::default(),
            icmp: false,
            hold: None,
        }
    }
}

/// A flow's key, and whether the packet's ends are swapped in it.
fn name(protocol: Protocol, key: FlowKey) -> (Name, bool) {
    let turned = (key.destination, key.destination_port) < (key.source, key.source_port);
    let key = if turned { key.reverse() } else { key };
    ((protocol, key.source, key.source_port, key.destination, key.destination_port), turned)
}

/// How to handle a packet.
enum Lookup {
    Tag(Tag),
    /// A fragment without ports, which another fragment carries.
    Fragment,
    None,
}

/// The IPv4 header, its options and the payload.
fn header(data: &[u8]) -> Option<(&Ipv4, &[u8], &[u8])> {
    Ipv4::parse(data).filter(|(ip, ..)| ip.version() == 4)
}

impl AggregateIpFlows {
    fn timeout(&self, protocol: Protocol, done: u8) -> u64 {
        match (protocol, done) {
            (Protocol::TCP, 3) => self.tcp_done,
            (Protocol::TCP, _) => self.tcp,
            _ => self.udp,
        }
    }

    fn is_over(&self, protocol: Protocol, flow: &Flow, now: u64) -> bool {
        (now / SECOND).saturating_sub(flow.last / SECOND) > self.timeout(protocol, flow.done) / SECOND
    }

    fn forget(&mut self, now: u64, cx: &mut Context<'_>) {
        let mut flows = core::mem::take(&mut self.flows);
        flows.retain(|name, flow| {
            let over = self.is_over(name.0, flow, now);
            if over {
                self.describe(&name, flow, cx);
            }
            !over
        });
        self.flows = flows;
    }

    fn forget_all(&mut self, cx: &mut Context<'_>) {
        for (name, flow) in core::mem::take(&mut self.flows).iter() {
            self.describe(&name, flow, cx);
        }
    }

    /// Describes a flow in the file of flows.
    fn describe(&mut self, name: &Name, flow: &Flow, cx: &mut Context<'_>) {
        let (_, a, a_port, b, b_port) = *name;
        let mut ends = [(a, a_port), (b, b_port)];
        if flow.turned {
            ends.reverse();
        }
        self.trace.describe((flow.number, ends), flow.last, &flow.statistics, cx);
    }

    /// The flow of a packet with ports; added if necessary.
    fn tag(
        &mut self,
        (protocol, key, flags): (Protocol, FlowKey, Flags),
        now: u64,
        cx: &mut Context<'_>,
    ) -> Option<Tag> {
        let (name, turned) = name(protocol, key);
        let [fin, syn, reset] = [Flags::FIN, Flags::SYN, Flags::RST].map(|flag| flags.has(flag));
        let over = self
            .flows
            .get(name)
            .is_none_or(|flow| self.is_over(protocol, flow, now) || (flow.done == 3 && syn && !reset));
        if over {
            if self.flows.len() >= MOST && self.search.is_due(now) {
                self.forget(now, cx);
            }
            if self.flows.len() >= MOST {
                return None;
            }
            let statistics = self.trace.first_packet(now, cx);
            let flow = Flow { number: self.next, turned, last: now, done: 0, statistics };
            if let Some(old) = self.flows.insert(name, flow) {
                self.describe(&name, &old, cx);
            }
            self.next = self.next.wrapping_add(1);
        }
        let flow = self.flows.get_mut(name)?;
        flow.last = flow.last.max(now);
        let paint = u8::from(flow.turned != turned);
        flow.statistics.packets[usize::from(paint)] += 1;
        if reset {
            flow.done = 3;
        } else if fin {
            flow.done |= 1 << paint;
        }
        Some(Tag { aggregate: flow.number, paint })
    }

    /// The flow of the packet quoted in an ICMP error.
    fn error(&self, icmp: &[u8], now: u64) -> Option<Tag> {
        let (_, quoted) = Icmp::split(icmp).filter(|(icmp, _)| is_error(icmp.kind))?;
        let (ip, _, transport) = header(quoted).filter(|(ip, ..)| !ip.is_later_fragment())?;
        let protocol = ip.protocol;
        let (name, turned) = name(protocol, FlowKey::of(ip, transport)?);
        let flow = self.flows.get(name).filter(|flow| !self.is_over(protocol, flow, now))?;
        Some(Tag { aggregate: flow.number, paint: 2 + u8::from(flow.turned != turned) })
    }

    fn lookup(&mut self, packet: &Packet, now: u64, cx: &mut Context<'_>) -> Lookup {
        let ip = packet.network_data().unwrap_or_default();
        let Some((ip, _, transport)) = header(ip) else { return Lookup::None };
        let (protocol, later) = (ip.protocol, ip.is_later_fragment());
        let tag = match protocol {
            Protocol::TCP | Protocol::UDP if later => return Lookup::Fragment,
            Protocol::TCP => FlowKey::of(ip, transport)
                .and_then(|key| self.tag((protocol, key, Tcp::padded(transport).flags), now, cx)),
            Protocol::UDP => FlowKey::of(ip, transport)
                .and_then(|key| self.tag((protocol, key, Flags::default()), now, cx)),
            Protocol::ICMP if self.icmp && !later => self.error(transport, now),
            _ => None,
        };
        tag.map_or(Lookup::None, Lookup::Tag)
    }

    fn housekeeping(&mut self, now: u64, cx: &mut Context<'_>) {
        if now >= self.reap_at {
            self.forget(now, cx);
            self.reap_at = now.saturating_add(self.reap.max(1));
        }
        self.fragments.expire(now, &mut |tag, packet| emit(tag, packet, cx));
    }
}

/// Annotates and emits a tagged packet on output 0; emits others on output 1.
fn emit(tag: Option<Tag>, mut packet: Packet, cx: &mut Context<'_>) {
    match tag {
        Some(tag) => {
            mark(&mut packet, tag);
            cx.push(0, packet);
        }
        None => cx.push(1, packet),
    }
}

fn mark(packet: &mut Packet, tag: Tag) {
    let notes = packet.notes_mut();
    notes.set_u32(Annotations::AGGREGATE, tag.aggregate);
    notes.set_u8(Annotations::PAINT, tag.paint);
}

impl Element for AggregateIpFlows {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut fragments = 30 * SECOND;
        let times = [
            ("TCP_TIMEOUT", &mut self.tcp),
            ("TCP_DONE_TIMEOUT", &mut self.tcp_done),
            ("UDP_TIMEOUT", &mut self.udp),
            ("REAP", &mut self.reap),
            ("FRAGMENT_TIMEOUT", &mut fragments),
        ];
        for (name, value) in times {
            let mut seconds = Seconds::default();
            if args.read(name, &mut seconds) {
                *value = u64::from(seconds.0) * SECOND;
            }
        }
        self.fragments = Fragments::new(fragments);
        args.read("ICMP", &mut self.icmp);
        args.read("FRAGMENTS", &mut self.hold);
        self.trace.read(args);
        args.complete()?;
        self.trace.check(cx)
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let pushed = !cx.input_is_pull(0);
        if !pushed && self.hold == Some(true) {
            return Err(cx.error("FRAGMENTS can be true only where packets are pushed"));
        }
        self.hold.get_or_insert(pushed);
        self.trace.begin(cx)
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.hold != Some(true) {
            return self.action(burst, cx);
        }
        for packet in burst.drain() {
            let now = packet.timestamp();
            self.housekeeping(now, cx);
            let lookup = self.lookup(&packet, now, cx);
            let mut out = |tag, packet| emit(tag, packet, cx);
            match lookup {
                Lookup::Tag(tag) => self.fragments.tagged(packet, tag, &mut out),
                Lookup::Fragment => self.fragments.untagged(packet, &mut out),
                Lookup::None => out(None, packet),
            }
        }
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|mut packet| {
            let now = packet.timestamp();
            self.housekeeping(now, cx);
            match self.lookup(&packet, now, cx) {
                Lookup::Tag(tag) => {
                    mark(&mut packet, tag);
                    Some(packet)
                }
                Lookup::Fragment | Lookup::None => {
                    cx.push(1, packet);
                    None
                }
            }
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("length", |e: &Self| e.fragments.len()),
            Handler::button("clear", |e: &mut Self, cx| {
                e.forget_all(cx);
                e.fragments.clear(&mut |tag, packet| emit(tag, packet, cx));
            }),
        ]
        .into()
    }

    fn cleanup(&mut self, cx: &mut Context<'_>) {
        self.forget_all(cx);
        self.trace.end(cx);
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        if let Some(from) = from.downcast_mut::<Self>() {
            (self.flows, self.next) = (core::mem::take(&mut from.flows), from.next);
            self.fragments.take(&mut from.fragments);
        }
    }
}
