//! Common code of all rewriters: inputs, the flow table, handlers.
use super::change;
use super::key::FlowKey;
use super::mapper::{ask, mapped_outputs};
use super::pattern::Action;
use super::table::{Flow, FlowSet, LARGEST, Owner, Timeouts, Tracking, USUAL};
use alloc::rc::Rc;
use core::cell::RefCell;
use core::fmt::Write;
use core::net::Ipv4Addr;
use ringway_click::arg::{Annotation, Raw, Seconds};
use ringway_click::prelude::*;
use ringway_click::{LINES, PACKETS, Pieces, Progress};
use ringway_wire::icmp::v4::{ECHO, ECHO_REPLY};
use ringway_wire::{Header, Icmp, Ipv4, Protocol};

/// Maximum number of flows that are removed or examined in one step. Removing one from a table of millions takes
/// microseconds, since its neighbours in the heap and in the chains are not cached.
const STEPS: u32 = 32;
/// Nanoseconds of such steps, and until the next ones.
const STEP: u64 = 50_000;
const PAUSE: u64 = 100_000;

/// Returns whether a reply key is in use.
pub type Used<'a> = &'a dyn Fn(FlowKey) -> bool;

/// The kind of rewriter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RewriterKind {
    /// TCP and UDP, in separate maps.
    Ip,
    /// TCP, adjusting sequence numbers.
    Tcp,
    /// Any protocol with ports.
    Udp,
    /// Rewrites source addresses.
    Address,
    /// Rewrites address pairs.
    Pair,
    /// ICMP echo requests.
    Ping,
}

/// Rewrites packets.
pub struct Rewriter {
    kind: RewriterKind,
    actions: Vec<Action>,
    /// The texts of the input specifications.
    specs: Vec<String>,
    /// The index in the flow set of each input's owner.
    owners: Vec<u16>,
    /// The first slot that may hold flows of replaced patterns.
    stale: Option<u32>,
    flows: Rc<RefCell<FlowSet>>,
    /// Maps in the flow set: for TCP or the only protocol, and for UDP.
    maps: [u16; 2],
    capacity: u32,
    shares: Option<ElementId>,
    failures: u64,
    drops: u64,
    timeouts: [Timeouts; 3],
    note_destination: bool,
    reply_note: Option<usize>,
    set_aggregate: bool,
    reap: u64,
    timer: Option<Timer>,
}

/// What to do with a packet.
enum Verdict {
    Drop,
    Out(usize),
}

/// The key by which a packet's flow is looked up.
#[derive(Clone, Copy)]
struct Sought {
    protocol: Protocol,
    key: FlowKey,
    hash: u64,
}

impl Rewriter {
    /// A rewriter of a kind, before configuration.
    pub fn make(kind: RewriterKind) -> Box<dyn Element> {
        Box::new(Self {
            kind,
            actions: Vec::new(),
            specs: Vec::new(),
            owners: Vec::new(),
            stale: None,
            flows: Rc::new(RefCell::new(FlowSet::new(USUAL, 0))),
            maps: [0; 2],
            capacity: USUAL,
            shares: None,
            failures: 0,
            drops: 0,
            timeouts: [Timeouts::default(); 3],
            note_destination: true,
            reply_note: None,
            set_aggregate: false,
            reap: 900 * SECOND,
            timer: None,
        })
    }

    /// Its kind.
    pub fn kind(&self) -> RewriterKind {
        self.kind
    }

    /// Number of inputs.
    pub fn inputs(&self) -> usize {
        self.actions.len()
    }

    fn tracking(&self, protocol: Protocol) -> Tracking {
        match self.kind {
            RewriterKind::Tcp => Tracking::Tcp,
            RewriterKind::Ip if protocol == Protocol::TCP => Tracking::Tcp,
            RewriterKind::Ip | RewriterKind::Udp => Tracking::Udp,
            _ => Tracking::Plain,
        }
    }

    #[inline]
    fn map(&self, protocol: Protocol) -> u16 {
        self.maps[usize::from(self.kind == RewriterKind::Ip && protocol != Protocol::TCP)]
    }

    /// Normalizes a key for this kind of rewriter.
    fn normal(&self, key: FlowKey) -> FlowKey {
        match self.kind {
            RewriterKind::Address => FlowKey { source: key.source, ..FlowKey::default() },
            RewriterKind::Pair => FlowKey { source_port: 0, destination_port: 0, ..key },
            _ => key,
        }
    }

    /// The flow to which packets with this key belong, and whether they are replies.
    pub fn find(&self, protocol: Protocol, key: FlowKey) -> Option<(u32, bool)> {
        let (flows, map) = (self.flows.borrow(), self.map(protocol));
        flows.find(map, self.normal(key)).or_else(|| {
            let reply = FlowKey { destination: key.destination, ..FlowKey::default() };
            if self.kind == RewriterKind::Address { flows.find(map, reply) } else { None }
        })
    }

    /// Calls `see` with both senders of some of its flows, from a slot on: protocol, address and port. Returns the slot
    /// to continue from.
    pub fn endpoints(&self, from: u32, mut see: impl FnMut(Protocol, u32, u16)) -> Option<u32> {
        let flows = self.flows.borrow();
        let (piece, next) = flows.some(from, LINES);
        for flow in piece.filter(|flow| self.maps.contains(&flow.map)) {
            let protocol = match self.kind {
                RewriterKind::Ping => Protocol::ICMP,
                _ if flow.tracking() == Tracking::Tcp => Protocol::TCP,
                _ => Protocol::UDP,
            };
            flow.keys.iter().for_each(|key| see(protocol, key.source, key.source_port));
        }
        next
    }

    /// The key that packets with this key are rewritten to.
    pub fn rewritten(&self, protocol: Protocol, key: FlowKey) -> Option<FlowKey> {
        let (flow, reply) = self.find(protocol, key)?;
        self.flows.borrow().get(flow).map(|flow| flow.rewritten(reply))
    }

    /// Calls `change` on a flow.
    pub fn with_flow<R>(&self, flow: u32, change: impl FnOnce(&mut Flow) -> R) -> Option<R> {
        self.flows.borrow_mut().get_mut(flow).map(change)
    }

    /// Finds a flow, or adds one as if a packet of it had arrived at an input.
    pub fn find_or_add(
        &mut self,
        protocol: Protocol,
        key: FlowKey,
        input: usize,
        cx: &mut Context<'_>,
    ) -> Option<(u32, bool)> {
        self.find(protocol, key).or_else(|| self.add(protocol, key, input, cx).ok().map(|flow| (flow, false)))
    }

    /// Adds a flow for a packet that arrived at an input.
    fn add(
        &mut self,
        protocol: Protocol,
        key: FlowKey,
        input: usize,
        cx: &mut Context<'_>,
    ) -> Result<u32, Verdict> {
        let (map, key, ping) = (self.map(protocol), self.normal(key), self.kind == RewriterKind::Ping);
        let flows = self.flows.clone();
        let used = |key| flows.borrow().find(map, key).is_some();
        let (rewritten, outputs) = match self.actions.get_mut(input) {
            None | Some(Action::Drop) => return Err(Verdict::Drop),
            Some(Action::Pass(output)) => return Err(Verdict::Out((*output).into())),
            Some(Action::Keep(outputs)) => (Some(key), *outputs),
            Some(Action::Rewrite(pattern, outputs)) => (pattern.rewrite(key, ping, &used, cx), *outputs),
            Some(Action::Mapper(mapper)) => match ask(*mapper, (protocol, key), ping, &used, cx) {
                Some((rewritten, outputs)) => (Some(rewritten), outputs),
                None => (None, [0; 2]),
            },
        };
        let rewritten = rewritten.filter(|new| {
            self.kind != RewriterKind::Address || (new.destination | u32::from(new.source_port)) == 0
        });
        let Some(rewritten) = rewritten else {
            self.failures += 1;
            return Err(Verdict::Drop);
        };
        let now = cx.coarse_now();
        let tracking = self.tracking(protocol);
        let timeouts = &self.timeouts[tracking as usize];
        let guaranteed = timeouts.guarantee > 0;
        let lifetime = if guaranteed { timeouts.guarantee } else { timeouts.idle };
        let flow = Flow {
            keys: [key, rewritten.reverse()],
            map,
            owner: self.owners.get(input).copied().unwrap_or(0),
            outputs,
            expiry: now.saturating_add(lifetime),
            ..Flow::default()
        };
        let added = self.flows.borrow_mut().add(flow.tracked(tracking, guaranteed), now);
        added.ok_or_else(|| {
            self.failures += 1;
            Verdict::Drop
        })
    }

    /// The key of a packet, if this rewriter can rewrite it.
    fn key(&self, packet: &Packet) -> Option<(Protocol, FlowKey)> {
        let data = packet.network_data()?;
        let ip = Ipv4::of(data)?;
        let protocol = ip.protocol;
        if matches!(self.kind, RewriterKind::Address | RewriterKind::Pair) {
            let (source, destination) = (ip.source.get(), ip.destination.get());
            return Some((protocol, FlowKey { source, destination, ..FlowKey::default() }));
        }
        let protocols: &[Protocol] = match self.kind {
            RewriterKind::Ip => &[Protocol::TCP, Protocol::UDP],
            RewriterKind::Tcp => &[Protocol::TCP],
            RewriterKind::Udp => &[Protocol::TCP, Protocol::UDP, Protocol::DCCP],
            _ => &[Protocol::ICMP],
        };
        let (.., transport) = Ipv4::parse(data)?;
        let icmp = Icmp::of(transport)?;
        if !protocols.contains(&protocol) || ip.is_later_fragment() {
            return None;
        }
        let key = FlowKey::of(ip, transport)?;
        if self.kind != RewriterKind::Ping {
            return Some((protocol, key));
        }
        let identifier = icmp.identifier.get();
        let next = identifier.wrapping_add(1);
        let (source_port, destination_port) = match icmp.kind {
            ECHO => (identifier, next),
            ECHO_REPLY => (next, identifier),
            _ => return None,
        };
        Some((protocol, FlowKey { source_port, destination_port, ..key }))
    }

    /// Prefetches the flows of a burst's packets; returns the lookup keys of the packets.
    #[inline]
    fn approach(&self, burst: &PacketBurst) -> [Option<Sought>; PACKETS] {
        let flows = self.flows.borrow();
        let mut sought = [None; PACKETS];
        for (packet, place) in burst.iter().zip(&mut sought) {
            *place = self.key(packet).map(|(protocol, key)| {
                let hash = flows.approach(self.map(protocol), self.normal(key));
                Sought { protocol, key, hash }
            });
        }
        sought.iter().flatten().for_each(|one| flows.near(one.hash));
        for Sought { protocol, key, hash } in sought.iter().flatten() {
            flows.nearer(self.map(*protocol), self.normal(*key), *hash);
        }
        sought
    }

    #[inline]
    fn find_sought(&self, Sought { protocol, key, hash }: Sought) -> Option<(u32, bool)> {
        let found = self.flows.borrow().find_hashed(self.map(protocol), self.normal(key), hash);
        if found.is_none() && self.kind == RewriterKind::Address { self.find(protocol, key) } else { found }
    }

    #[inline]
    fn verdict(
        &mut self,
        port: usize,
        packet: &mut Packet,
        sought: Option<Sought>,
        cx: &mut Context<'_>,
    ) -> Verdict {
        let Some(sought) = sought else { return self.other(port) };
        let Sought { protocol, key, .. } = sought;
        let (number, reply) = match self.find_sought(sought) {
            Some(found) => found,
            // A reply without a request.
            None if self.kind == RewriterKind::Ping
                && key.source_port == key.destination_port.wrapping_add(1) =>
            {
                return self.other(port);
            }
            None => match self.add(protocol, key, port, cx) {
                Ok(number) => {
                    if let Some(at) = self.reply_note {
                        let note = packet.notes().u8(at);
                        self.with_flow(number, |flow| flow.reply_note = note);
                    }
                    (number, false)
                }
                Err(verdict) => return verdict,
            },
        };
        let (kind, aggregate) = (self.kind, self.set_aggregate);
        let notes_destination = self.note_destination && (kind != RewriterKind::Address || reply);
        let changed = self.flows.borrow_mut().pass(number, cx.coarse_now(), |flow| {
            let to = change::rewrite(packet, flow, reply, kind);
            if notes_destination {
                packet.notes_mut().set_dst_ip(to.destination.to_be_bytes());
            }
            if aggregate {
                packet.notes_mut().set_u32(Annotations::AGGREGATE, number);
            }
            if let Some(at) = self.reply_note.filter(|_| reply) {
                packet.notes_mut().set_u8(at, flow.reply_note);
            }
            flow.outputs[usize::from(reply)].into()
        });
        changed.map_or(Verdict::Drop, Verdict::Out)
    }

    /// The verdict on packets that cannot be rewritten.
    fn other(&self, port: usize) -> Verdict {
        match self.actions.get(port) {
            Some(Action::Pass(output)) => Verdict::Out((*output).into()),
            _ => Verdict::Drop,
        }
    }

    fn default_timeouts(&mut self) {
        let seconds = |seconds: u64| seconds * SECOND;
        let plain = Timeouts {
            guarantee: seconds(5),
            idle: seconds(if self.kind == RewriterKind::Address { 7200 } else { 300 }),
            busy: seconds(300),
            done: 0,
        };
        let tcp = Timeouts { busy: seconds(86400), done: seconds(240), ..plain };
        self.timeouts = [plain, tcp, plain];
    }

    fn read_timeouts(&mut self, args: &mut Args) {
        let time = |args: &mut Args, name: &str, value: &mut u64| {
            let mut seconds = Seconds::default();
            let given = args.read(name, &mut seconds);
            if given {
                *value = u64::from(seconds.0) * SECOND;
            }
            given
        };
        let [plain, tcp, udp] = &mut self.timeouts;
        match self.kind {
            RewriterKind::Ip | RewriterKind::Tcp => {
                time(args, "TIMEOUT", &mut tcp.busy);
                time(args, "TCP_TIMEOUT", &mut tcp.busy);
                time(args, "TCP_DONE_TIMEOUT", &mut tcp.done);
                time(args, "TCP_NODATA_TIMEOUT", &mut tcp.idle);
                time(args, "TCP_GUARANTEE", &mut tcp.guarantee);
                time(args, "GUARANTEE", &mut tcp.guarantee);
            }
            RewriterKind::Udp => {
                time(args, "TIMEOUT", &mut udp.idle);
                time(args, "GUARANTEE", &mut udp.guarantee);
            }
            _ => {
                time(args, "TIMEOUT", &mut plain.idle);
                time(args, "GUARANTEE", &mut plain.guarantee);
            }
        }
        if matches!(self.kind, RewriterKind::Ip | RewriterKind::Udp) {
            time(args, "UDP_TIMEOUT", &mut udp.idle);
            time(args, "UDP_GUARANTEE", &mut udp.guarantee);
            udp.busy = udp.idle;
            time(args, "UDP_STREAMING_TIMEOUT", &mut udp.busy);
            if self.kind == RewriterKind::Udp {
                time(args, "STREAMING_TIMEOUT", &mut udp.busy);
            }
        }
        time(args, "REAP_TIME", &mut self.reap);
        time(args, "REAP_INTERVAL", &mut self.reap);
    }

    fn read_capacity(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut word = Raw::default();
        args.read("CAPACITY", &mut word);
        args.read("MAPPING_CAPACITY", &mut word);
        if word.0.is_empty() {
            return Ok(());
        }
        match (cx.parse::<u32>(&word.0), cx.find(&word.0)) {
            (Ok(capacity), _) => self.capacity = capacity.min(LARGEST),
            (_, Some(other)) => self.shares = Some(other),
            _ => return Err(cx.error("bad MAPPING_CAPACITY")),
        }
        Ok(())
    }

    /// The flow set of the rewriter with which this one shares capacity.
    fn shared(&self, cx: &Context<'_>) -> Option<Rc<RefCell<FlowSet>>> {
        let mut other = cx.element::<Self>(self.shares?)?;
        // Attack: rewriters that share capacity in a cycle.
        for _ in 0..64 {
            match other.shares {
                Some(next) => other = cx.element::<Self>(next)?,
                None => return Some(other.flows.clone()),
            }
        }
        None
    }

    fn table(&self, wanted: Option<Protocol>, pieces: &mut Pieces, now: u64) -> Progress {
        let from: u32 = pieces.kept();
        let flows = self.flows.borrow();
        let (piece, next) = flows.some(from, LINES);
        for flow in piece.filter(|flow| self.maps.contains(&flow.map)) {
            let is_tcp = flow.tracking() == Tracking::Tcp;
            if wanted.is_some_and(|wanted| (wanted == Protocol::TCP) != is_tcp) {
                continue;
            }
            for reply in [false, true] {
                self.line(&flows, flow, reply, now, &mut pieces.text);
            }
        }
        next.map_or(Progress::Done, |next| pieces.keep(next))
    }

    /// Writes a line of the table: both keys, outputs with the relevant one starred, input, seconds to live.
    fn line(&self, flows: &FlowSet, flow: &Flow, reply: bool, now: u64, out: &mut String) {
        let (from, to) = (flow.keys[usize::from(reply)], flow.rewritten(reply));
        let address = Ipv4Addr::from_bits;
        let _ = match self.kind {
            RewriterKind::Address if reply => {
                write!(out, "{} => {}", address(from.destination), address(to.destination))
            }
            RewriterKind::Address => write!(out, "{} => {}", address(from.source), address(to.source)),
            RewriterKind::Pair => {
                let (from, to) = ((from.source, from.destination), (to.source, to.destination));
                let (a, b, c, d) = (address(from.0), address(from.1), address(to.0), address(to.1));
                write!(out, "({a}, {b}) => ({c}, {d})")
            }
            RewriterKind::Ping => {
                let part = |key: FlowKey| {
                    format!("({}, {}, {})", address(key.source), address(key.destination), key.source_port)
                };
                write!(out, "{} => {}", part(from), part(to))
            }
            _ => write!(out, "{from} => {to}"),
        };
        let shift = flow.shifts.as_ref().map_or(0, |shifts| shifts.latest(reply));
        if shift != 0 {
            let _ = write!(out, " seq {shift:+}");
        }
        let star = |on: bool| if on { "*" } else { "" };
        let input = flows.owners.get(usize::from(flow.owner)).map_or(0, |owner| owner.input);
        let left = (flows.last_expiry(flow).saturating_sub(now) + SECOND / 2) / SECOND;
        let [forward, back] = flow.outputs;
        let _ = writeln!(out, " [{}{forward} {}{back}] i{input} exp{left}", star(!reply), star(reply));
    }

    fn patterns(&self, only: Option<usize>) -> String {
        let flows = self.flows.borrow();
        let mut out = String::new();
        for (input, action) in self.actions.iter().enumerate() {
            if only.is_some_and(|only| only != input) {
                continue;
            }
            let owner = self.owners.get(input).and_then(|owner| flows.owners.get(usize::from(*owner)));
            let _ = match owner.map_or(0, |owner| owner.count) {
                0 => writeln!(out, "{action}"),
                count => writeln!(out, "{action} [{count}]"),
            };
        }
        out
    }

    fn lookup(&self, text: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        let words = ringway_click_lang::config::split_words(text);
        let [source, source_port, destination, destination_port] = words.as_slice() else {
            return Err(HandlerError::failed("expected SADDR SPORT DADDR DPORT"));
        };
        let wrong = |error: ringway_click::arg::ArgError| HandlerError::failed(error.to_string());
        let address = |text: &str| cx.parse::<Ipv4Addr>(text).map(Ipv4Addr::to_bits).map_err(wrong);
        let port =
            |text: &str| cx.parse::<ringway_click::arg::IpPort>(text).map(|port| port.0).map_err(wrong);
        let key = FlowKey {
            source: address(source)?,
            source_port: port(source_port)?,
            destination: address(destination)?,
            destination_port: port(destination_port)?,
        };
        Ok(self.rewritten(Protocol::TCP, key).map_or_else(String::new, |to| {
            let (source, destination) = (Ipv4Addr::from_bits(to.source), Ipv4Addr::from_bits(to.destination));
            format!("{source} {} {destination} {}", to.source_port, to.destination_port)
        }))
    }

    /// Replaces the pattern of an input, and removes the flows made by the old one.
    fn set_action(
        &mut self,
        input: usize,
        text: &str,
        pieces: &mut Pieces,
        cx: &mut Context<'_>,
    ) -> Result<Progress, HandlerError> {
        let from: Option<u32> = pieces.kept();
        let mut flows = self.flows.borrow_mut();
        if from.is_none() {
            let action = Action::parse(text, &cx.scope(), cx.noutputs())
                .map_err(|error| HandlerError::failed(format!("input spec {input}: {error}")))?;
            if let (Some(place), Some(owner)) = (self.actions.get_mut(input), self.owners.get(input)) {
                flows.renew_owner(*owner);
                *place = action;
                self.specs[input] = text.to_string();
            }
        }
        Ok(forget(&mut flows, from, pieces))
    }

    /// A handler that reads the flows, or those of one protocol.
    fn table_handler(name: &'static str, wanted: Option<Protocol>) -> Handler {
        Handler::read_in_pieces(name, move |e: &mut Self, _, pieces, cx| {
            Ok(e.table(wanted, pieces, cx.coarse_now()))
        })
    }

    /// Number of this rewriter's flows.
    fn table_size(&self) -> u32 {
        let flows = self.flows.borrow();
        let own = self.owners.iter().filter_map(|owner| flows.owners.get(usize::from(*owner)));
        own.map(|owner| owner.count).sum()
    }

    /// Sets the capacity, and removes flows beyond it, in steps.
    fn set_capacity(
        &mut self,
        value: &str,
        pieces: &mut Pieces,
        cx: &mut Context<'_>,
    ) -> Result<Progress, HandlerError> {
        let mut flows = self.flows.borrow_mut();
        let begun: bool = pieces.kept();
        if !begun {
            let capacity: Result<u32, _> = cx.parse(value);
            let wrong = |error| HandlerError::failed(format!("CAPACITY: {error}"));
            flows.capacity = capacity.map_err(wrong)?.min(LARGEST);
        }
        // Another call may have set another capacity meanwhile.
        let capacity = flows.capacity;
        let done = flows.shrink(cx.coarse_now(), capacity, STEPS);
        Ok(if done { Progress::Done } else { pieces.keep(true) })
    }

    /// Removes all flows, in steps.
    fn clear(&mut self, pieces: &mut Pieces) -> Progress {
        let mut flows = self.flows.borrow_mut();
        let from: Option<u32> = pieces.kept();
        if from.is_none() {
            flows.renew_all();
        }
        forget(&mut flows, from, pieces)
    }
}

/// Removes more of the flows that are marked for removal.
fn forget(flows: &mut FlowSet, from: Option<u32>, pieces: &mut Pieces) -> Progress {
    let next = flows.forget_old(from.unwrap_or(0), STEPS);
    next.map_or(Progress::Done, |next| pieces.keep(Some(next)))
}

impl Element for Rewriter {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.default_timeouts();
        let mut note = Annotation::default();
        if self.kind != RewriterKind::Address {
            args.read("DST_ANNO", &mut self.note_destination);
        }
        let given = args.read_with("REPLY_ANNO", ringway_click::arg::KEYWORD, &mut note, |text, scope| {
            Annotation::of_size(text, 1, scope)
        });
        self.reply_note = given.then_some(note.offset);
        args.read("SET_AGGREGATE", &mut self.set_aggregate);
        self.read_timeouts(args);
        args.result()?;
        self.read_capacity(args, cx)?;
        let texts = args.take_rest();
        args.complete()?;
        let inputs = cx.ninputs();
        if texts.len() != inputs {
            return Err(cx.error(format!("need {inputs} arguments, one per input port")));
        }
        let (scope, outputs) = (cx.scope(), cx.noutputs());
        for (input, text) in texts.iter().enumerate() {
            match Action::parse(text, &scope, outputs) {
                Ok(action) => self.actions.push(action),
                Err(error) => drop(cx.error(format!("input spec {input}: {error}"))),
            }
        }
        if self.actions.len() < inputs {
            return Err(Failed);
        }
        self.specs = texts;
        let seed = cx.own_seed();
        self.flows = Rc::new(RefCell::new(FlowSet::new(self.capacity, seed)));
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if self.shares.is_some() {
            self.flows = self.shared(cx).ok_or_else(|| cx.error("bad MAPPING_CAPACITY"))?;
        }
        for (input, action) in self.actions.iter().enumerate() {
            let Action::Mapper(mapper) = action else { continue };
            let Some(outputs) = mapped_outputs(*mapper, cx) else {
                return Err(cx.error(format!("input spec {input}: element is not an IPMapper")));
            };
            let most = cx.noutputs();
            if outputs.iter().flatten().any(|output| usize::from(*output) >= most) {
                return Err(cx.error(format!("input spec {input}: output port out of range")));
            }
            super::mapper::announce(*mapper, cx);
        }
        let mut flows = self.flows.borrow_mut();
        let too_many = "too many rewriters share the capacity";
        self.maps = flows.new_maps().ok_or_else(|| cx.error(too_many))?;
        for input in 0..self.actions.len() {
            let owner = Owner { count: 0, input, epoch: 0, timeouts: self.timeouts };
            self.owners.push(flows.new_owner(owner).ok_or_else(|| cx.error(too_many))?);
        }
        let timer = cx.new_timer();
        if self.reap > 0 {
            cx.set_timer_after(timer, self.reap);
        }
        self.timer = Some(timer);
        Ok(())
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let sought = self.approach(burst);
        let mut outputs = [None; PACKETS];
        for ((packet, sought), output) in burst.iter_mut().zip(sought).zip(&mut outputs) {
            match self.verdict(port, packet, sought, cx) {
                Verdict::Out(number) => *output = Some(number),
                Verdict::Drop => self.drops += 1,
            }
        }
        cx.scatter(burst, |number, _| outputs.get(number).copied().flatten());
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        let mut flows = self.flows.borrow_mut();
        let capacity = flows.capacity;
        let began = cx.steady();
        let unfinished = loop {
            self.stale = self.stale.and_then(|from| flows.forget_old(from, STEPS));
            let unfinished = !flows.shrink(now, capacity, STEPS) || self.stale.is_some();
            if !unfinished || cx.steady().saturating_sub(began) >= STEP {
                break unfinished;
            }
        };
        if unfinished {
            cx.set_timer_after(timer, PAUSE);
        } else if self.reap > 0 {
            cx.set_timer_after(timer, self.reap);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let lookup =
            |name| Handler::read_with(name, |e: &mut Self, flow, cx| e.lookup(flow, cx)).parameters();
        let mut handlers = match self.kind {
            RewriterKind::Ip => Vec::from([
                Self::table_handler("tcp_table", Some(Protocol::TCP)),
                Self::table_handler("udp_table", Some(Protocol::UDP)),
                Self::table_handler("tcp_mappings", Some(Protocol::TCP)).deprecated(),
                Self::table_handler("udp_mappings", Some(Protocol::UDP)).deprecated(),
                lookup("tcp_lookup"),
            ]),
            _ => Vec::from([
                Self::table_handler("table", None),
                Self::table_handler("mappings", None).deprecated(),
            ]),
        };
        handlers.extend((self.kind == RewriterKind::Tcp).then(|| lookup("lookup")));
        handlers.extend([
            Handler::read("table_size", Self::table_size),
            Handler::read("nmappings", Self::table_size).deprecated(),
            Handler::read("mapping_failures", |e: &Self| e.failures),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::read("patterns", |e: &Self| e.patterns(None)),
            Handler::read("size", |e: &Self| e.flows.borrow().len()),
            Handler::read("capacity", |e: &Self| e.flows.borrow().capacity)
                .writes_in_pieces(Self::set_capacity),
            Handler::read("evictions", |e: &Self| e.flows.borrow().evictions),
            Handler::write_in_pieces("clear", |e: &mut Self, _, pieces, _| Ok(e.clear(pieces)))
                .ignores_value(),
        ]);
        handlers.extend((0..self.actions.len()).map(|input| {
            let read = Handler::read(format!("pattern{input}"), move |e: &Self| e.patterns(Some(input)));
            read.writes_in_pieces(move |e: &mut Self, value, pieces, cx| {
                e.set_action(input, value, pieces, cx)
            })
        }));
        handlers
    }

    /// Takes over the flows of inputs with the same specification; none if the flow set is shared with other
    /// rewriters.
    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        if self.kind != from.kind || self.specs.len() != from.specs.len() {
            return;
        }
        let (mut own, mut old) = (self.flows.borrow_mut(), from.flows.borrow_mut());
        if [own.owners.len(), old.owners.len()] != [self.owners.len(), from.owners.len()] {
            return;
        }
        core::mem::swap(&mut *own, &mut *old);
        own.capacity = old.capacity;
        for (owner, new) in own.owners.iter_mut().zip(&old.owners) {
            owner.timeouts = new.timeouts;
        }
        for (input, owner) in self.owners.iter().enumerate() {
            if self.specs[input] != from.specs[input] {
                own.renew_owner(*owner);
            }
        }
        // A handler of the old element may have been removing flows.
        self.stale = Some(0);
        self.failures = from.failures;
        drop((own, old));
        if let Some(timer) = self.timer {
            cx.set_timer_after(timer, 0);
        }
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.flows.borrow_mut().reseed(cx.own_seed());
    }

    fn dispose(&mut self) -> Progress {
        // Other rewriters that share the flow set may still use it.
        let gone = Rc::get_mut(&mut self.flows).is_none_or(|flows| flows.get_mut().give_up());
        if gone { Progress::Done } else { Progress::More }
    }

    fn cast(&self, kind: &str) -> bool {
        kind == "IPRewriterBase" || (kind == "TCPRewriter" && self.kind == RewriterKind::Ip)
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
