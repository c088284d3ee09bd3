//! `PortBlockMapper(SUBSCRIBERS, SHARED, FOUTPUT, ROUTPUT, PORTS, BLOCK, DETERMINISTIC, RANDOM, CHECK)`: gives each
//! subscriber of a carrier-grade NAT (RFC 6888) a block of ports of a shared address, for new flows of rewriters.
//!
//! A subscriber is a source address. It gets a block with its first flow, and returns it when no rewriter that uses
//! this mapper has a flow of it any more; both are reported with the address and the ports, so a log of blocks names
//! the subscriber of each packet. With DETERMINISTIC its block follows from the arguments (RFC 7422), and nothing need
//! be reported.
//!
//! All flows from one address and port of a subscriber have the same shared address and port (endpoint-independent
//! mapping, RFC 4787, 4.1), separately for TCP, UDP and ICMP. For a rewriter's input with packets from outside, the
//! mapper finds the subscriber of a port in use. If all ports of a block are in use, or if no block is left, the
//! rewriter drops the packet; this is counted, and reported once a minute for each subscriber.
//!
//! Ports: none.
//!
//! Arguments:
//! - `SUBSCRIBERS`: a prefix, at most 65536 addresses.
//! - `SHARED`: an address or a prefix, at most 65536 addresses.
//! - `FOUTPUT`, `ROUTPUT`: the rewriters' outputs for packets of subscribers, and for those to subscribers.
//! - `PORTS`: `FIRST-LAST`, of each shared address, and identifiers of ICMP; `1024-65535` by default.
//! - `BLOCK`: number of ports of a block, at most 4096. By default, the largest that gives each subscriber a block.
//! - `DETERMINISTIC`: whether blocks follow from the arguments; false by default.
//! - `OPEN`: whether new flows may come from outside to a port in use (endpoint-independent filtering, RFC 4787, 5), or
//!   only from other subscribers; true by default.
//! - `RANDOM`: whether the ports of a block are tried from a random one on, or else in order; true by default.
//! - `CHECK`: how often ports and blocks without flows are looked for; 10 seconds by default.
//!
//! Handlers: `blocks` (read): subscriber, shared address, ports and number of packets without a port, for each block
//! in use, or each subscriber if DETERMINISTIC; `subscriber ADDRESS PORT` (read): whose port it is; `used`, `free`
//! (blocks), `exhausted` (packets for which the block had no port), `refused` (packets without a block), `unknown`
//! (packets of other addresses, or to ports that are not in use) (read).
use super::base::{Rewriter, Used};
use super::key::FlowKey;
use alloc::collections::VecDeque;
use core::fmt;
use core::fmt::Write;
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, ArgError, MANDATORY_POSITIONAL, Nanoseconds, Prefix, Scope};
use ringway_click::prelude::*;
use ringway_click::{LINES, Pieces, Progress};
use ringway_click_lang::config;
use ringway_wire::Protocol;

pub static CLASS: Class = Class::new("PortBlockMapper", || Box::<PortBlockMapper>::default());

/// Maximum number of subscribers, and of shared addresses. Attack: a configuration that exhausts memory.
const MOST: u64 = 1 << 16;
/// Interval between two reports of one subscriber's exhausted block. Attack: a subscriber that fills the log.
const REPORT_INTERVAL: u64 = 60 * SECOND;
/// Interval between two steps of a search for blocks without flows.
const STEP: u64 = SECOND / 1000;
/// Places examined in such a step.
const PLACES: usize = 1 << 14;
/// Maximum number of ports of a block. Attack: a subscriber whose new flows are searched in a large block.
const LARGEST: u32 = 4096;
const NOBODY: u32 = u32::MAX;
/// Protocols with ports of their own: TCP, UDP and ICMP.
const KINDS: usize = 3;

/// Consecutive addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Addresses {
    first: u32,
    count: u32,
}

impl Arg for Addresses {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let prefix = Prefix::or_address(text, scope)?;
        let count = u64::from(!prefix.mask.to_bits()) + 1;
        if prefix.length().is_none() || count > MOST {
            return Err(ArgError::other("needs a prefix of 16 to 32 bits"));
        }
        let first = prefix.address.to_bits() & prefix.mask.to_bits();
        Ok(Self { first, count: count as u32 })
    }
}

impl Addresses {
    fn index(self, address: u32) -> Option<u32> {
        address.checked_sub(self.first).filter(|index| *index < self.count)
    }
}

/// The first and the last port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PortRange(u16, u16);

impl Arg for PortRange {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let (first, last) = text.split_once('-').ok_or(ArgError::Parse)?;
        let (first, last) = (u16::parse(first, scope)?, u16::parse(last, scope)?);
        if first == 0 || last < first { Err(ArgError::Parse) } else { Ok(Self(first, last)) }
    }
}

/// What blocks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    subscribers: Addresses,
    shared: Addresses,
    ports: PortRange,
    /// Ports of a block.
    block: u32,
    deterministic: bool,
}

impl Layout {
    /// Blocks of a shared address.
    fn blocks_each(&self) -> u32 {
        (u32::from(self.ports.1 - self.ports.0) + 1) / self.block
    }

    fn blocks(&self) -> u64 {
        u64::from(self.blocks_each()) * u64::from(self.shared.count)
    }

    fn area(&self, block: u32) -> Area {
        let address = Ipv4Addr::from_bits(self.shared.first.wrapping_add(block / self.blocks_each()));
        let first = u32::from(self.ports.0) + block % self.blocks_each() * self.block;
        Area { address, first: first as u16, last: (first + self.block - 1) as u16 }
    }

    /// The block of a port of a shared address.
    fn block_of(&self, address: Ipv4Addr, port: u16) -> Option<u32> {
        let index = self.shared.index(address.to_bits())?;
        let block = u32::from(port.checked_sub(self.ports.0)?) / self.block;
        (block < self.blocks_each()).then(|| index * self.blocks_each() + block)
    }
}

/// The ports of a block.
struct Area {
    address: Ipv4Addr,
    first: u16,
    last: u16,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}-{}", self.address, self.first, self.last)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Use {
    #[default]
    Free,
    /// Used when the search began.
    Used,
    /// A flow of it was added or found since.
    Alive,
}

/// What a port of a block is used for.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// The subscriber's port.
    inside: u16,
    state: Use,
}

/// One subscriber.
#[derive(Clone, Debug)]
struct Subscriber {
    block: u32,
    /// The offset in the block that is tried next.
    next: u32,
    /// The ports of its block for each kind of protocol; empty until one is used.
    places: [Vec<Place>; KINDS],
    exhausted: u64,
    /// When the exhaustion of the subscriber's ports was last reported.
    told: Option<u64>,
}

impl Subscriber {
    const NEW: Self =
        Self { block: NOBODY, next: 0, places: [const { Vec::new() }; KINDS], exhausted: 0, told: None };

    /// The offset of a port that is in use.
    fn find(&self, kind: usize, inside: u16) -> Option<u32> {
        let is_own = |place: &Place| place.inside == inside && place.state != Use::Free;
        self.places[kind].iter().position(is_own).map(|offset| offset as u32)
    }

    fn keep(&mut self, kind: usize, inside: u16, offset: u32) {
        if let Some(place) = self.places[kind].get_mut(offset as usize) {
            *place = Place { inside, state: Use::Alive };
        }
    }

    /// Frees places that were not found alive; returns whether it has others.
    fn age(&mut self) -> bool {
        let mut alive = false;
        for place in self.places.iter_mut().flatten() {
            place.state = if place.state == Use::Alive { Use::Used } else { Use::Free };
            alive |= place.state != Use::Free;
        }
        alive
    }
}

/// The kind of a protocol.
fn kind(protocol: Protocol) -> usize {
    match protocol {
        Protocol::TCP => 0,
        Protocol::ICMP => 2,
        _ => 1,
    }
}

/// Progress of a search for subscribers without flows.
#[derive(Clone, Copy, Debug)]
enum Search {
    /// Searches the flows of a rewriter, from a slot on.
    Flows(usize, u32),
    /// All flows were seen; in the ports of a subscriber.
    Places(usize),
}

#[derive(Debug)]
pub struct PortBlockMapper {
    layout: Layout,
    outputs: [u16; 2],
    open: bool,
    random: bool,
    check: u64,
    subscribers: Vec<Subscriber>,
    /// The subscriber of each block.
    owners: Vec<u32>,
    /// The block that was returned first is used first.
    free: VecDeque<u32>,
    rewriters: Vec<ElementId>,
    search: Search,
    exhausted: u64,
    refused: u64,
    unknown: u64,
}

impl Default for PortBlockMapper {
    fn default() -> Self {
        let none = Addresses::default();
        let ports = PortRange(1024, u16::MAX);
        let layout = Layout { subscribers: none, shared: none, ports, block: 0, deterministic: false };
        Self {
            layout,
            outputs: [0; 2],
            open: true,
            random: true,
            check: 10 * SECOND,
            subscribers: Vec::new(),
            owners: Vec::new(),
            free: VecDeque::new(),
            rewriters: Vec::new(),
            search: Search::Flows(0, 0),
            exhausted: 0,
            refused: 0,
            unknown: 0,
        }
    }
}

impl PortBlockMapper {
    /// The output pairs that this mapper may return.
    pub(super) fn outputs(&self) -> Vec<[u16; 2]> {
        vec![self.outputs]
    }

    /// A rewriter announces itself, so that its flows are searched.
    pub(super) fn serve(&mut self, rewriter: ElementId) {
        if !self.rewriters.contains(&rewriter) {
            self.rewriters.push(rewriter);
        }
    }

    fn address(&self, subscriber: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.layout.subscribers.first.wrapping_add(subscriber))
    }

    /// The rewritten key of a flow, and its outputs.
    pub(super) fn rewrite(
        &mut self,
        protocol: Protocol,
        key: FlowKey,
        used: Used<'_>,
        cx: &mut Context<'_>,
    ) -> Option<(FlowKey, [u16; 2])> {
        let Some(index) = self.layout.subscribers.index(key.source) else {
            let found = self.inward(protocol, key);
            self.unknown += u64::from(found.is_none());
            return found.map(|new| (new, [self.outputs[1], self.outputs[0]]));
        };
        let kind = kind(protocol);
        let block = self.take_block(index, cx)?;
        let area = self.layout.area(block);
        let with = |offset: u32| {
            let source_port = area.first + offset as u16;
            let other =
                if protocol == Protocol::ICMP { source_port.wrapping_add(1) } else { key.destination_port };
            FlowKey { source: area.address.to_bits(), source_port, destination_port: other, ..key }
        };
        let subscriber = self.subscribers.get_mut(index as usize)?;
        let known = subscriber.find(kind, key.source_port);
        let first = match (known, self.random) {
            (Some(offset), _) => offset,
            (None, true) => cx.random_between(0, self.layout.block - 1),
            (None, false) => subscriber.next,
        };
        let subscriber = self.subscribers.get_mut(index as usize)?;
        subscriber.places[kind].resize(self.layout.block as usize, Place::default());
        let tried = if known.is_some() { 1 } else { self.layout.block };
        for offset in (0..tried).map(|step| (first + step) % self.layout.block) {
            let is_free = known.is_some() || subscriber.places[kind][offset as usize].state == Use::Free;
            if is_free && !used(with(offset).reverse()) {
                subscriber.keep(kind, key.source_port, offset);
                subscriber.next = (offset + 1) % self.layout.block;
                return Some((with(offset), self.outputs));
            }
        }
        self.exhausted += 1;
        self.complain(index, &area, cx);
        None
    }

    /// The key of a flow from outside to a port in use.
    fn inward(&mut self, protocol: Protocol, key: FlowKey) -> Option<FlowKey> {
        if !self.open && self.layout.shared.index(key.source).is_none() {
            return None;
        }
        let address = Ipv4Addr::from_bits(key.destination);
        let block = self.layout.block_of(address, key.destination_port)?;
        let index = *self.owners.get(block as usize)?;
        let offset = u32::from(key.destination_port.checked_sub(self.layout.area(block).first)?);
        let destination = self.address(index).to_bits();
        let places = &mut self.subscribers.get_mut(index as usize)?.places[kind(protocol)];
        let place = places.get_mut(offset as usize).filter(|place| place.state != Use::Free)?;
        place.state = Use::Alive;
        Some(FlowKey { destination, destination_port: place.inside, ..key })
    }

    /// The block of a subscriber; assigns one to a new subscriber.
    fn take_block(&mut self, index: u32, cx: &mut Context<'_>) -> Option<u32> {
        let block = self.subscribers.get(index as usize)?.block;
        if block != NOBODY {
            return Some(block);
        }
        let name = cx.declaration();
        let address = self.address(index);
        let Some(block) = self.free.pop_front() else {
            self.refused += 1;
            if self.may_tell(index, cx) {
                cx.chatter(format_args!("{name}: no block is left for {address}"));
            }
            return None;
        };
        self.subscribers.get_mut(index as usize)?.block = block;
        *self.owners.get_mut(block as usize)? = index;
        cx.chatter(format_args!("{name}: {address} gets {}", self.layout.area(block)));
        Some(block)
    }

    /// Whether a report about a subscriber is due.
    fn may_tell(&mut self, index: u32, cx: &Context<'_>) -> bool {
        let now = cx.coarse_now();
        let Some(subscriber) = self.subscribers.get_mut(index as usize) else { return false };
        let due = subscriber.told.is_none_or(|told| now.saturating_sub(told) >= REPORT_INTERVAL);
        if due {
            subscriber.told = Some(now);
        }
        due
    }

    fn complain(&mut self, index: u32, area: &Area, cx: &mut Context<'_>) {
        if let Some(subscriber) = self.subscribers.get_mut(index as usize) {
            subscriber.exhausted += 1;
        }
        if self.may_tell(index, cx) {
            let (name, address) = (cx.declaration(), self.address(index));
            cx.chatter(format_args!("{name}: {address} has no port left of {area}"));
        }
    }

    /// Looks at some flows.
    fn search(&mut self, number: usize, from: u32, cx: &Context<'_>) {
        let Some(rewriter) = self.rewriters.get(number).copied() else {
            self.search = Search::Places(0);
            return;
        };
        let (layout, subscribers) = (self.layout, &mut self.subscribers);
        let next = cx.element::<Rewriter>(rewriter).and_then(|rewriter| {
            rewriter.endpoints(from, |protocol, address, port| {
                let index = layout.subscribers.index(address);
                let Some(subscriber) = index.and_then(|index| subscribers.get_mut(index as usize)) else {
                    return;
                };
                if let Some(offset) = subscriber.find(kind(protocol), port) {
                    subscriber.keep(kind(protocol), port, offset);
                }
            })
        });
        self.search = next.map_or(Search::Flows(number + 1, 0), |next| Search::Flows(number, next));
    }

    /// Frees ports without flows of some subscribers, and takes blocks back; returns whether it saw the last one.
    fn collect(&mut self, from: usize, cx: &mut Context<'_>) -> bool {
        let (name, mut left) = (cx.declaration(), PLACES);
        for index in from..self.subscribers.len() {
            let subscriber = &mut self.subscribers[index];
            let cost = 1 + subscriber.places.iter().map(Vec::len).sum::<usize>();
            let Some(less) = left.checked_sub(cost) else {
                self.search = Search::Places(index);
                return false;
            };
            left = less;
            if subscriber.age() || subscriber.block == NOBODY || self.layout.deterministic {
                continue;
            }
            let block = subscriber.block;
            *subscriber = Subscriber { told: subscriber.told, ..Subscriber::NEW };
            self.free.push_back(block);
            if let Some(owner) = self.owners.get_mut(block as usize) {
                *owner = NOBODY;
            }
            let (address, area) = (self.address(index as u32), self.layout.area(block));
            cx.chatter(format_args!("{name}: {address} returns {area}"));
        }
        self.search = Search::Flows(0, 0);
        true
    }

    fn blocks(&self, pieces: &mut Pieces) -> Progress {
        let from: u32 = pieces.kept();
        let end = (from as usize + LINES).min(self.subscribers.len());
        for index in from as usize..end {
            let (block, exhausted) = (self.subscribers[index].block, self.subscribers[index].exhausted);
            if block != NOBODY {
                let (address, area) = (self.address(index as u32), self.layout.area(block));
                let _ = writeln!(pieces.text, "{address} {area} {exhausted}");
            }
        }
        if end == self.subscribers.len() { Progress::Done } else { pieces.keep(end as u32) }
    }

    fn subscriber(&self, text: &str, cx: &Context<'_>) -> Result<String, HandlerError> {
        let words = config::split_words(text);
        let [address, port] = words.as_slice() else {
            return Err(HandlerError::failed("expected ADDRESS PORT"));
        };
        let block = self.layout.block_of(cx.parse(address)?, cx.parse(port)?);
        let owner = block.and_then(|block| self.owners.get(block as usize)).filter(|owner| **owner != NOBODY);
        Ok(owner.map_or_else(|| "-".to_string(), |owner| self.address(*owner).to_string()))
    }

    fn used(&self) -> usize {
        self.owners.len() - self.free.len()
    }

    /// Makes the blocks, after the layout is known.
    fn fill(&mut self) {
        let (blocks, subscribers) = (self.layout.blocks() as u32, self.layout.subscribers.count);
        self.subscribers = vec![Subscriber::NEW; subscribers as usize];
        self.owners = vec![NOBODY; blocks as usize];
        if !self.layout.deterministic {
            self.free = (0..blocks).collect();
            return;
        }
        for (index, (subscriber, owner)) in self.subscribers.iter_mut().zip(&mut self.owners).enumerate() {
            (subscriber.block, *owner) = (index as u32, index as u32);
        }
        self.free = (subscribers..blocks).collect();
    }
}

impl Element for PortBlockMapper {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut check = Nanoseconds(self.check);
        let layout = &mut self.layout;
        args.read_with("SUBSCRIBERS", MANDATORY_POSITIONAL, &mut layout.subscribers, Addresses::parse);
        args.read_with("SHARED", MANDATORY_POSITIONAL, &mut layout.shared, Addresses::parse);
        args.read_mp("FOUTPUT", &mut self.outputs[0]);
        args.read_mp("ROUTPUT", &mut self.outputs[1]);
        args.read("PORTS", &mut layout.ports);
        args.read("BLOCK", &mut layout.block);
        args.read("DETERMINISTIC", &mut layout.deterministic);
        args.read("OPEN", &mut self.open);
        args.read("RANDOM", &mut self.random);
        args.read("CHECK", &mut check);
        args.complete()?;
        let ports = u32::from(layout.ports.1 - layout.ports.0) + 1;
        if layout.block == 0 {
            let each = layout.subscribers.count.div_ceil(layout.shared.count.max(1));
            layout.block = (ports / each.max(1)).min(LARGEST);
        }
        if layout.block > LARGEST {
            return Err(cx.error("BLOCK too large, bound 4096"));
        }
        if layout.block == 0 || layout.block > ports {
            return Err(cx.error("PORTS has no room for a BLOCK"));
        }
        if layout.blocks() > u64::from(u32::MAX >> 4) {
            return Err(cx.error("too many blocks; choose a larger BLOCK"));
        }
        if layout.deterministic && layout.blocks() < u64::from(layout.subscribers.count) {
            return Err(cx.error("DETERMINISTIC needs a block for each subscriber; choose a smaller BLOCK"));
        }
        self.check = check.0.max(STEP);
        self.fill();
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let timer = cx.new_timer();
        cx.set_timer_after(timer, self.check);
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let done = match self.search {
            Search::Flows(number, from) => {
                self.search(number, from, cx);
                false
            }
            Search::Places(from) => self.collect(from, cx),
        };
        cx.set_timer_after(timer, if done { self.check } else { STEP });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read_in_pieces("blocks", |e: &mut Self, _, pieces, _| Ok(e.blocks(pieces))),
            Handler::read_with("subscriber", |e: &mut Self, value, cx| e.subscriber(value, cx)).parameters(),
            Handler::read("used", Self::used),
            Handler::read("free", |e: &Self| e.free.len()),
            Handler::read("exhausted", |e: &Self| e.exhausted),
            Handler::counter("refused", |e: &mut Self| &mut e.refused),
            Handler::counter("unknown", |e: &mut Self| &mut e.unknown),
        ]
        .into()
    }

    /// Takes over the blocks, if the new ones are the same.
    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>().filter(|from| from.layout == self.layout) else {
            return;
        };
        core::mem::swap(&mut self.subscribers, &mut from.subscribers);
        core::mem::swap(&mut self.owners, &mut from.owners);
        core::mem::swap(&mut self.free, &mut from.free);
        self.exhausted = from.exhausted;
    }

    fn cast(&self, kind: &str) -> bool {
        kind == "IPMapper"
    }
}
