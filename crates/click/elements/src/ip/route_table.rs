//! The routing table of all elements that look up IPv4 routes.
use super::route_lines::{DEEPER, ROOTS, RouteLines};
use super::route_trie::{RouteTrie, networks};
use super::{bare_prefix, prefix_text};
use alloc::collections::BTreeMap;
use arrayvec::ArrayVec;
use core::net::Ipv4Addr;
use core::ops::Range;
use ringway_click::arg::{Arg, Prefix, Scope};
use ringway_click::prelude::*;
use ringway_click::{LINES, OrderedMap, PACKETS, Pieces, Progress};
use ringway_click_lang::config;
use ringway_frame::prefetch;

/// Trie slots that are changed before packets are processed again. Attack: a handler's caller that changes, line by
/// line, prefixes that cover many longer ones.
const SLOTS: usize = 1 << 12;
/// Cost of updating lookups, in slots: of a 16-bit network, and of one that contains longer prefixes.
const NETWORK: usize = 64;
const LINE: usize = 256;
/// 16-bit networks whose lookup lines are updated at once at the end of a configuration.
const NETWORKS: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    prefix: Prefix,
    length: u32,
    gateway: Option<Ipv4Addr>,
    port: usize,
    /// Sequence number of its addition.
    order: u64,
}

impl Route {
    /// Parses `ADDR/MASK [GATEWAY] OUTPUT`; only routes to be removed may lack the output.
    fn parse(text: &str, scope: &Scope) -> Option<(Self, Option<i64>)> {
        let words = config::split_words(text);
        let (first, rest) = words.split_first()?;
        let prefix = bare_prefix(first, scope).ok()?;
        let length = prefix.length()?;
        let address = Ipv4Addr::from_bits(prefix.address.to_bits() & prefix.mask.to_bits());
        let gateway = |word: &str| match word {
            "-" => Some(None),
            _ => {
                Ipv4Addr::parse(word, scope).ok().map(|gateway| Some(gateway).filter(|g| !g.is_unspecified()))
            }
        };
        let (gateway, port) = match rest {
            [] => (None, None),
            [port] => match i64::parse(port, scope) {
                Ok(port) => (None, Some(port)),
                Err(_) => (gateway(port)?, None),
            },
            [way, port] => (gateway(way)?, Some(i64::parse(port, scope).ok()?)),
            _ => return None,
        };
        let prefix = Prefix { address, ..prefix };
        Some((Self { prefix, length, gateway, port: 0, order: 0 }, port))
    }

    /// The route in Click's format; separated by tabs in tables.
    fn text(&self, tabs: bool) -> String {
        let gap = |text: &str, width: usize| match (tabs, text.len() < width) {
            (false, _) => " ",
            (true, false) => "\t",
            (true, true) => "\t\t",
        };
        let prefix = prefix_text(&self.prefix);
        let gateway = self.gateway.map_or_else(|| "-".to_string(), |gateway| gateway.to_string());
        format!("{prefix}{}{gateway}{}{}", gap(&prefix, 16), gap(&gateway, 8), self.port)
    }
}

/// A prefix that was added, changed or removed, and the 16-bit networks whose lookups are not updated yet. Attack: a
/// handler's caller that changes the default route of a large table over and over, while packets wait.
#[derive(Clone, Copy, Debug)]
struct Spread {
    number: u32,
    route: Route,
    gone: bool,
    /// Its previous hop.
    left: Option<u32>,
    next: usize,
    end: usize,
}

/// How to undo a command if a later command of the same write fails.
enum Undo {
    Remove(Route),
    Restore(Route),
}

/// Progress of a write of several commands.
#[derive(Default)]
struct Commands {
    /// Bytes of its text that are processed.
    at: usize,
    done: Vec<Undo>,
    /// The error of the next command, for which the commands before it are undone.
    wrong: Option<HandlerError>,
}

/// The part of a route that packets need. Many routes share one hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hop {
    /// 0.0.0.0 without a gateway.
    gateway: [u8; 4],
    port: u32,
}

impl Hop {
    fn key(&self) -> (Ipv4Addr, u32) {
        (self.gateway.into(), self.port)
    }
}

/// The hop of addresses without a route.
const NOWHERE: Hop = Hop { gateway: [0; 4], port: u32::MAX };

/// Distinct next hops. Lines refer to them by index, so indexes 0 and [`DEEPER`] are no hops.
#[derive(Debug, Default)]
struct Hops {
    all: Vec<Hop>,
    /// Their indexes, and the number of routes that use them.
    known: OrderedMap<(Ipv4Addr, u32), (u32, u32)>,
    /// Indexes of unused hops. Attack: endless changes of gateways.
    free: Vec<u32>,
}

impl Hops {
    /// The index of a hop, after counting one more route that uses it.
    fn place(&mut self, hop: Hop) -> u32 {
        if let Some((place, routes)) = self.known.get_mut(hop.key()) {
            *routes += 1;
            return *place;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            if matches!(self.all.len(), 0 | DEEPER_PLACE) {
                self.all.push(NOWHERE);
            }
            self.all.push(NOWHERE);
            self.all.len() as u32 - 1
        });
        self.all[place as usize] = hop;
        self.known.insert(hop.key(), (place, 1));
        place
    }

    /// Counts one route less for the hop at an index; no lookup of that route returns the index any more.
    fn leave(&mut self, place: u32) {
        let Some(key) = self.all.get(place as usize).map(Hop::key) else { return };
        let Some((_, routes)) = self.known.get_mut(key) else { return };
        *routes -= 1;
        if *routes == 0 {
            self.known.remove(key);
            self.free.push(place);
        }
    }
}

const DEEPER_PLACE: usize = DEEPER as usize;

/// Looks up routes.
#[derive(Debug, Default)]
pub struct RouteTable {
    routes: RouteTrie<Route>,
    /// The lookup structure for packets: a copy of `routes`, as far as it is updated.
    lines: RouteLines,
    hops: Hops,
    /// Indexed by route number: the index in `hops`.
    hop_of: Vec<u32>,
    orders: u64,
    /// Route numbers in the order of their addition.
    by_order: BTreeMap<u64, u32>,
    spreading: Option<Spread>,
    /// Whether the element is configured.
    built: bool,
    /// Whether handlers can change routes.
    changeable: bool,
    unrouted: u64,
}

impl RouteTable {
    /// An empty table; `changeable`: handlers can change its routes.
    pub(super) fn new(changeable: bool) -> Self {
        Self { changeable, ..Self::default() }
    }

    fn add(&mut self, mut route: Route) -> Result<(), HandlerError> {
        self.orders += 1;
        route.order = self.orders;
        if self.insert(route) {
            return Ok(());
        }
        Err(HandlerError::failed(format!("no memory to store route '{}'", route.text(false))))
    }

    fn insert(&mut self, route: Route) -> bool {
        let entered = self.routes.enter(route.prefix.address.to_bits(), route.length, route);
        let Some((number, old)) = entered else { return false };
        if let Some(old) = old {
            self.by_order.remove(&old.order);
        }
        self.by_order.insert(route.order, number);
        let left = old.and_then(|_| self.hop_of.get(number as usize).copied());
        self.spread(&route, number, false, left);
        let number = number as usize;
        let gateway = route.gateway.map_or([0; 4], |gateway| gateway.octets());
        let hop = Hop { gateway, port: route.port as u32 };
        let place = self.hops.place(hop);
        if self.hop_of.len() <= number {
            self.hop_of.resize(number + 1, 0);
        }
        self.hop_of[number] = place;
        true
    }

    fn spread(&mut self, route: &Route, number: u32, gone: bool, left: Option<u32>) {
        let Range { start, end } = networks(route.prefix.address.to_bits(), route.length);
        self.spreading = Some(Spread { number, route: *route, gone, left, next: start, end });
    }

    /// Updates lookups of further networks after a change of a prefix, within `slots`. Returns whether all are
    /// updated.
    fn spread_on(&mut self, slots: &mut usize) -> bool {
        let Some(Spread { number, route, gone, left, next, end }) = self.spreading else { return true };
        let (address, length) = (route.prefix.address.to_bits(), route.length);
        let mut at = next;
        while at < end && *slots > 0 {
            let changed = match gone {
                true => self.routes.uncover(number, address, length, at..at + 1),
                false => self.routes.cover(number, address, length, at..at + 1),
            };
            if self.built {
                self.refresh_networks(at..at + 1);
            }
            let line = if length > 16 { LINE } else { 0 };
            *slots = slots.saturating_sub(changed + NETWORK + line);
            at += 1;
        }
        if at < end {
            self.spreading = Some(Spread { number, route, gone, left, next: at, end });
            return false;
        }
        self.spreading = None;
        if gone {
            self.routes.free(number);
        }
        left.into_iter().for_each(|left| self.hops.leave(left));
        true
    }

    fn refresh_networks(&mut self, networks: Range<usize>) {
        let hop_of = &self.hop_of;
        let leaf = |number: u32| {
            let hop = hop_of.get(number as usize).and_then(|hop| u16::try_from(*hop).ok());
            hop.unwrap_or(DEEPER)
        };
        self.lines.refresh(networks, &self.routes, leaf);
    }

    /// The hop indexes of addresses; 0 for none. Uses the trie for prefixes that are too long for lines, or if there
    /// are more hops than lines can refer to.
    #[inline]
    fn hops_of(&self, addresses: &[u32]) -> [u32; PACKETS] {
        let mut places = [0; PACKETS];
        self.lines.lookup_all(addresses, &mut places);
        if places.contains(&u32::from(DEEPER)) {
            self.look_deeper(addresses, &mut places);
        }
        places
    }

    /// Looks up in the trie the addresses whose lines refer to it.
    #[cold]
    fn look_deeper(&self, addresses: &[u32], places: &mut [u32; PACKETS]) {
        let (mut deeper, mut numbers) = (ArrayVec::<u32, PACKETS>::new(), [None; PACKETS]);
        let is_deeper = |place: &u32| *place == u32::from(DEEPER);
        deeper.extend(
            addresses.iter().zip(places.iter()).filter(|(_, place)| is_deeper(place)).map(|(a, _)| *a),
        );
        self.routes.lookup_all(&deeper, &mut numbers);
        let hop = |number: Option<u32>| self.hop_of.get(number? as usize);
        numbers[..deeper.len()].iter().filter_map(|number| hop(*number)).for_each(prefetch);
        for (place, number) in places.iter_mut().filter(|place| is_deeper(place)).zip(numbers) {
            *place = hop(number).copied().unwrap_or(0);
        }
    }

    /// Executes a command; returns how to undo it.
    fn command(&mut self, name: &str, text: &str, cx: &Context<'_>) -> Result<Undo, HandlerError> {
        let remove = name == "remove";
        let missing = if remove { " OUTPUT]" } else { "] OUTPUT" };
        let expected = || HandlerError::failed(format!("expected 'ADDR/MASK [GATEWAY{missing}'"));
        let (mut route, port) = Route::parse(text, &cx.scope()).ok_or_else(expected)?;
        if let Some(port) = port {
            let known = usize::try_from(port).ok().filter(|port| *port < cx.noutputs());
            route.port = known.ok_or_else(|| HandlerError::failed("bad OUTPUT"))?;
        } else if !remove {
            return Err(expected());
        }
        let address = route.prefix.address.to_bits();
        let old = self.routes.get(address, route.length).copied();
        if remove {
            let same = |old: &Route| {
                port.is_none_or(|_| old.port == route.port)
                    && (route.gateway.is_none() && port.is_none() || old.gateway == route.gateway)
            };
            let not_found = || HandlerError::failed(format!("route '{}' not found", route.text(false)));
            let old = old.filter(same).ok_or_else(not_found)?;
            self.forget(&old);
            return Ok(Undo::Restore(old));
        }
        match old {
            Some(old) if name == "add" => {
                Err(HandlerError::failed(format!("conflict with existing route '{}'", old.text(false))))
            }
            Some(old) => self.add(route).map(|()| Undo::Restore(old)),
            None => self.add(route).map(|()| Undo::Remove(route)),
        }
    }

    /// Executes commands, one per line; either all of them take effect or none.
    fn control(
        &mut self,
        text: &str,
        pieces: &mut Pieces,
        cx: &Context<'_>,
    ) -> Result<Progress, HandlerError> {
        let mut commands: Commands = pieces.kept();
        let mut slots = SLOTS;
        for _ in 0..LINES {
            if commands.wrong.is_some() {
                let Some(undo) = commands.done.pop() else { break };
                self.undo(undo);
            } else {
                let rest = text.get(commands.at..).unwrap_or_default();
                let Some(line) = rest.split_inclusive('\n').next() else { return Ok(Progress::Done) };
                commands.at += line.len();
                match self.control_line(line.trim(), cx) {
                    Ok(undo) => commands.done.extend(undo),
                    Err(wrong) => commands.wrong = Some(wrong),
                }
            }
            if !self.spread_on(&mut slots) || slots == 0 {
                break;
            }
        }
        match commands.wrong.take_if(|_| commands.done.is_empty()) {
            Some(wrong) if self.spreading.is_none() => Err(wrong),
            wrong => {
                commands.wrong = commands.wrong.or(wrong);
                Ok(pieces.keep(commands))
            }
        }
    }

    fn control_line(&mut self, line: &str, cx: &Context<'_>) -> Result<Option<Undo>, HandlerError> {
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match name {
            "" => Ok(None),
            "add" | "set" | "remove" => self.command(name, rest, cx).map(Some),
            _ => Err(HandlerError::failed(format!("bad command '{name}'"))),
        }
    }

    fn undo(&mut self, undo: Undo) {
        match undo {
            Undo::Remove(route) => self.forget(&route),
            Undo::Restore(route) => {
                self.insert(route);
            }
        }
    }

    /// Removes all routes: lookups find none at once, and memory is freed in steps.
    fn flush(&mut self, pieces: &mut Pieces) -> Progress {
        let old: Option<Box<Self>> = pieces.kept();
        let mut old = old.unwrap_or_else(|| {
            let kept = Self { orders: self.orders, unrouted: self.unrouted, ..Self::new(self.changeable) };
            Box::new(core::mem::replace(self, Self { built: true, ..kept }))
        });
        match old.give_up() {
            Progress::Done => Progress::Done,
            Progress::More => pieces.keep(Some(old)),
        }
    }

    /// Frees part of the memory.
    fn give_up(&mut self) -> Progress {
        for _ in 0..LINES {
            if self.by_order.pop_last().is_none() {
                return self.routes.give_up();
            }
        }
        Progress::More
    }

    fn forget(&mut self, route: &Route) {
        let number = self.routes.leave(route.prefix.address.to_bits(), route.length);
        let Some(number) = number else { return };
        if let Some(old) = self.routes.value(number) {
            self.by_order.remove(&old.order);
        }
        let left = self.hop_of.get(number as usize).copied();
        self.spread(route, number, true, left);
    }

    /// The routes in the order of their addition.
    fn table(&self, pieces: &mut Pieces) -> Progress {
        let from: u64 = pieces.kept();
        let mut numbers = self.by_order.range(from..);
        for (_, number) in numbers.by_ref().take(LINES) {
            if let Some(route) = self.routes.value(*number) {
                pieces.text += &route.text(true);
                pieces.text.push('\n');
            }
        }
        numbers.next().map_or(Progress::Done, |(next, _)| pieces.keep(*next))
    }

    #[cold]
    fn no_route(&mut self, packet: &Packet, cx: &mut Context<'_>) {
        self.unrouted += 1;
        if self.unrouted <= 5 {
            let address = Ipv4Addr::from(packet.notes().dst_ip());
            cx.chatter(format_args!("IPRouteTable: no route for {address}"));
        }
    }

    /// The output and gateway of an address.
    fn lookup(&mut self, address: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        let address: Ipv4Addr = cx.parse(address).map_err(|_| HandlerError::failed("expected IP address"))?;
        Ok(match self.routes.lookup(address.to_bits()) {
            None => "-1".to_string(),
            Some(Route { port, gateway: None, .. }) => port.to_string(),
            Some(Route { port, gateway: Some(gateway), .. }) => format!("{port} {gateway}"),
        })
    }

    /// Executes the command given by a handler's name, after changes in progress.
    fn write_command(
        &mut self,
        name: &str,
        value: &str,
        pieces: &mut Pieces,
        cx: &mut Context<'_>,
    ) -> Result<Progress, HandlerError> {
        if !self.spread_on(&mut { SLOTS }) {
            return Ok(Progress::More);
        }
        let done: bool = pieces.kept();
        if !done {
            self.command(name, value, cx)?;
        }
        Ok(if done || self.spread_on(&mut { SLOTS }) { Progress::Done } else { pieces.keep(true) })
    }
}

impl Element for RouteTable {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut replaced = 0;
        for (index, argument) in args.take_rest().into_iter().enumerate() {
            let Some((mut route, Some(port))) = Route::parse(&argument, args.scope()) else {
                args.error(format!("argument {} should be 'ADDR/MASK [GATEWAY] OUTPUT'", index + 1));
                continue;
            };
            match usize::try_from(port) {
                Ok(port) if port < cx.noutputs() => route.port = port,
                _ => {
                    args.error(format!("argument {} bad OUTPUT", index + 1));
                    continue;
                }
            }
            replaced += u64::from(self.routes.get(route.prefix.address.to_bits(), route.length).is_some());
            if let Err(error) = self.add(route) {
                args.error(error.to_string());
            }
            while !self.spread_on(&mut { SLOTS }) {
                cx.breathe();
            }
            if index % LINES == LINES - 1 {
                cx.breathe();
            }
        }
        for network in (0..ROOTS).step_by(NETWORKS) {
            self.refresh_networks(network..network + NETWORKS);
            cx.breathe();
        }
        self.built = true;
        if replaced > 0 {
            let routes = if replaced > 1 { "routes" } else { "route" };
            cx.warning(format!("{replaced} {routes} replaced by later versions"));
        }
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let mut addresses = [0; PACKETS];
        for (packet, address) in burst.iter().zip(&mut addresses) {
            *address = u32::from_be_bytes(packet.notes().dst_ip());
        }
        let hops = self.hops_of(&addresses[..burst.len()]);
        if hops[..burst.len()].contains(&0) {
            for (packet, _) in burst.iter().zip(hops).filter(|(_, hop)| *hop == 0) {
                self.no_route(packet, cx);
            }
        }
        let all = &self.hops.all;
        cx.scatter(burst, |number, packet| {
            let hop = all.get(hops[number] as usize)?;
            if hop.gateway != [0; 4] {
                packet.notes_mut().set_dst_ip(hop.gateway);
            }
            Some(hop.port as usize)
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        let mut handlers = Vec::from([
            Handler::read_in_pieces("table", |e: &mut Self, _, pieces, _| Ok(e.table(pieces))).expensive(),
            Handler::read_with("lookup", Self::lookup).parameters(),
            Handler::counter("drops", |e: &mut Self| &mut e.unrouted),
        ]);
        if self.changeable {
            handlers.extend(["add", "set", "remove"].map(|name| {
                Handler::write_in_pieces(name, move |e: &mut Self, value, pieces, cx| {
                    e.write_command(name, value, pieces, cx)
                })
            }));
            handlers.push(Handler::write_in_pieces("ctrl", |e: &mut Self, value, pieces, cx| {
                if e.spread_on(&mut { SLOTS }) { e.control(value, pieces, cx) } else { Ok(Progress::More) }
            }));
            let flush = Handler::write_in_pieces("flush", |e: &mut Self, _, pieces, _| {
                Ok(if e.spread_on(&mut { SLOTS }) { e.flush(pieces) } else { Progress::More })
            });
            handlers.push(flush.ignores_value());
        }
        handlers
    }

    fn dispose(&mut self) -> Progress {
        self.give_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_click::{ElementId, HandlerCall, Options, Recorder, Router};
    use ringway_click_lang::{Anything, Source};

    /// A prefix's length and address.
    type Name = (u32, u32);

    /// Prefix lengths that each caller changes; no two callers share one.
    const LENGTHS: [[u32; 4]; 3] = [[0, 8, 20, 32], [3, 9, 16, 25], [6, 12, 24, 29]];

    fn lab() -> (Router, ElementId) {
        let text = "Idle -> r :: RadixIPLookup -> Discard; r[1] -> Discard;";
        let graph = Source::new(text, "config").read(&mut Anything).graph;
        let options = Options::simulated(1, Recorder::default(), text);
        let router = Router::build(graph, &crate::registry(), options).unwrap();
        let id = router.find("r").unwrap();
        (router, id)
    }

    fn address(high: u32, low: u32) -> u32 {
        10 << 24 | high << 14 & 0x00ff_ffff | low & 0x0303
    }

    fn name(caller: usize, length: usize, high: u32, low: u32) -> Name {
        let length = LENGTHS[caller][length];
        (length, address(high, low) & u32::MAX.checked_shl(32 - length).unwrap_or(0))
    }

    fn longest<T>(routes: &BTreeMap<Name, T>, address: u32) -> Option<(Name, &T)> {
        (0..=32).rev().find_map(|length: u32| {
            let name = (length, address & u32::MAX.checked_shl(32 - length).unwrap_or(0));
            routes.get(&name).map(|found| (name, found))
        })
    }

    /// The gateways that packets to these addresses would get.
    fn looked_up(router: &mut Router, id: ElementId, addresses: &[u32]) -> Vec<Option<Ipv4Addr>> {
        let looked_up = router.with(id, |table: &mut RouteTable, _| {
            let places = table.hops_of(addresses);
            let hop = |place: u32| (place != 0).then(|| table.hops.all[place as usize]);
            let hops = places[..addresses.len()].iter().map(|place| hop(*place));
            hops.map(|hop| hop.map(|hop| Ipv4Addr::from(hop.gateway))).collect()
        });
        looked_up.unwrap()
    }

    /// A write of a caller: the call, and the caller's routes after it succeeds.
    fn write(
        caller: usize,
        commands: &[(u8, usize, u32, u32, u32)],
        wrong: bool,
        known: &mut BTreeMap<Name, u32>,
        ever: &mut BTreeMap<Name, Vec<u32>>,
    ) -> HandlerCall {
        let (mut value, mut after) = (String::new(), known.clone());
        for (what, length, high, low, gateway) in commands {
            let prefix = name(caller, *length, *high, *low);
            let gateway = 0x0100_0000 | gateway;
            let text = format!("{}/{}", Ipv4Addr::from_bits(prefix.1), prefix.0);
            if *what == 0 && after.remove(&prefix).is_some() {
                value += &format!("remove {text}\n");
            } else {
                value += &format!("set {text} {} {}\n", Ipv4Addr::from_bits(gateway), gateway % 2);
                after.insert(prefix, gateway);
                ever.entry(prefix).or_default().push(gateway);
            }
        }
        if wrong {
            value += "add nonsense\n"
        } else {
            *known = after
        }
        HandlerCall { element: None, handler: "ctrl".into(), value }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        #[test]
        fn concurrent_handler_calls_do_not_interfere(
            calls in prop::collection::vec(
                (0usize..3, any::<bool>(), prop::collection::vec(
                    (0u8..3, 0usize..4, 0u32..40, any::<u32>(), 0u32..300), 1..12)), 1..16),
            order in prop::collection::vec((0usize..3, 0u32..40, any::<u32>()), 1..50),
        ) {
            let (mut router, id) = lab();
            let mut known: [BTreeMap<Name, u32>; 3] = Default::default();
            let mut ever = BTreeMap::new();
            let mut waiting: [Vec<(HandlerCall, bool)>; 3] = Default::default();
            for (caller, wrong, commands) in &calls {
                let call = write(*caller, commands, *wrong, &mut known[*caller], &mut ever);
                waiting[*caller].insert(0, (HandlerCall { element: Some(id), ..call }, *wrong));
            }
            let mut pieces: [Pieces; 3] = Default::default();
            for (caller, high, low) in order.into_iter().cycle() {
                let at = (0..3).map(|more| (caller + more) % 3).find(|at| !waiting[*at].is_empty());
                let Some(at) = at else { break };
                let (call, wrong) = waiting[at].last().unwrap();
                let done = router.call_write_on(call, &mut pieces[at]);
                if done != Ok(Progress::More) {
                    prop_assert_eq!(done.is_err(), *wrong);
                    pieces[at] = Pieces::default();
                    waiting[at].pop();
                }
                // During a change, packets are only sent to hops that some route to their destination has had.
                let to = address(high, low);
                if let Some(gateway) = looked_up(&mut router, id, &[to])[0] {
                    let way = gateway.to_bits();
                    let led = |name: Name| ever.get(&name).is_some_and(|all| all.contains(&way));
                    let mask = |length: u32| u32::MAX.checked_shl(32 - length).unwrap_or(0);
                    prop_assert!((0..=32).any(|length| led((length, to & mask(length)))), "{gateway}");
                }
            }
            let all: BTreeMap<Name, u32> = known.iter().flatten().map(|(name, way)| (*name, *way)).collect();
            prop_assert_eq!(router.read("r.table").unwrap().lines().count(), all.len());
            let near = |(_, at): &Name| [*at, at.wrapping_sub(1), at ^ 1];
            let mut probes: Vec<u32> = all.keys().flat_map(near).collect();
            probes.extend((0..40).map(|high| address(high, high)));
            for probes in probes.chunks(PACKETS) {
                let found = looked_up(&mut router, id, probes);
                for (probe, found) in probes.iter().zip(found) {
                    let expected = longest(&all, *probe).map(|(_, gateway)| Ipv4Addr::from_bits(*gateway));
                    prop_assert_eq!(found, expected, "{}", Ipv4Addr::from_bits(*probe));
                    let read = router.read(&format!("r.lookup {}", Ipv4Addr::from_bits(*probe))).unwrap();
                    let expected = expected.map(|gateway| format!("{} {gateway}", gateway.to_bits() % 2));
                    prop_assert_eq!(read, expected.unwrap_or("-1".into()));
                }
            }
            let hops: std::collections::BTreeSet<u32> = all.values().copied().collect();
            router.with(id, |table: &mut RouteTable, _| {
                assert_eq!(table.hops.known.len(), hops.len());
                assert_eq!(table.by_order.len(), all.len());
            })
            .unwrap();
        }
    }

    #[test]
    fn changing_gateways_use_constant_memory() {
        let (mut router, id) = lab();
        for gateway in 1..70_000 {
            router.write(&format!("r.set 10.0.0.0/24 {} 0", Ipv4Addr::from_bits(gateway))).unwrap();
        }
        assert_eq!(looked_up(&mut router, id, &[10 << 24]), [Some(Ipv4Addr::from_bits(69_999))]);
        router.with(id, |table: &mut RouteTable, _| assert!(table.hops.all.len() < 4)).unwrap();
    }

    #[test]
    fn a_step_is_short_for_any_size_of_routes() {
        let (mut router, id) = lab();
        let longer: String =
            (0..2000).map(|at| format!("add 10.{}.{}.0/30 1\n", at / 256, at % 256)).collect();
        router.write(&format!("r.ctrl {longer}")).unwrap();
        let value = "set 10.0.0.0/8 0\nset 10.0.0.0/8 1\n".repeat(20);
        let call = HandlerCall { element: Some(id), handler: "ctrl".into(), value };
        let (mut pieces, mut count) = (Pieces::default(), 1);
        while router.call_write_on(&call, &mut pieces) == Ok(Progress::More) {
            count += 1;
        }
        // Each line covers 8 networks of 16 bits, of which each has tens of thousands of slots.
        assert!(count > 40 * 7, "{count}");
    }
}
