//! The routing table behind all elements that look up IPv4 routes.
use super::route_lines::{DEEPER, ROOTS, RouteLines};
use super::route_trie::RouteTrie;
use super::{bare_prefix, prefix_text};
use crate::arg::{Arg, Args, Prefix, Scope};
use crate::{Context, Element, Failed, Handler, HandlerError, PACKETS, Packet, PacketBurst};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use ringway_click_lang::config;
use ringway_frame::prefetch;

/// A route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Route {
    prefix: Prefix,
    length: u32,
    gateway: Option<Ipv4Addr>,
    port: usize,
    /// When it was added, counted.
    order: u64,
}

impl Route {
    /// Reads `ADDR/MASK [GATEWAY] OUTPUT`; the output is missing only in what is to be removed.
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

    /// As Click prints it; with tabs in tables.
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

/// What was done, to be undone if a later command of the same write fails.
enum Undo {
    Remove(Route),
    Restore(Route),
}

/// What a packet needs to know of a route. Many routes have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Hop {
    /// 0.0.0.0 if there is none.
    gateway: [u8; 4],
    port: u32,
}

/// Without a route.
const NOWHERE: Hop = Hop { gateway: [0; 4], port: u32::MAX };

/// Next hops, each once. Lines name them by their place, so 0 and [`DEEPER`] lead nowhere.
#[derive(Debug, Default)]
struct Hops {
    all: Vec<Hop>,
    known: BTreeMap<Hop, u32>,
}

impl Hops {
    fn place(&mut self, hop: Hop) -> u32 {
        if let Some(place) = self.known.get(&hop) {
            return *place;
        }
        if matches!(self.all.len(), 0 | DEEPER_PLACE) {
            self.all.push(NOWHERE);
        }
        self.all.push(hop);
        let place = self.all.len() as u32 - 1;
        self.known.insert(hop, place);
        place
    }
}

const DEEPER_PLACE: usize = DEEPER as usize;

/// Looks up routes.
#[derive(Debug, Default)]
pub struct RouteTable {
    routes: RouteTrie<Route>,
    /// What packets ask: as far as it goes, the same as `routes`.
    lines: RouteLines,
    hops: Hops,
    /// By the routes' numbers: which of `hops` each has.
    hop_of: Vec<u32>,
    orders: u64,
    /// Routes can be changed by handlers.
    changeable: bool,
    unrouted: u64,
}

impl RouteTable {
    /// An empty table, whose routes may be changed by handlers if `changeable`.
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
        let number = self.routes.insert(route.prefix.address.to_bits(), route.length, route);
        let Some(number) = number.map(|number| number as usize) else { return false };
        let gateway = route.gateway.map_or([0; 4], |gateway| gateway.octets());
        let hop = Hop { gateway, port: route.port as u32 };
        let place = self.hops.place(hop);
        if self.hop_of.len() <= number {
            self.hop_of.resize(number + 1, 0);
        }
        self.hop_of[number] = place;
        true
    }

    /// Lets packets know what has become of a prefix.
    fn refresh(&mut self, address: Ipv4Addr, length: u32) {
        let count = ROOTS >> length.min(16);
        let first = (address.to_bits() >> 16) as usize & !(count - 1);
        let hop_of = &self.hop_of;
        let leaf = |number: u32| {
            let hop = hop_of.get(number as usize).and_then(|hop| u16::try_from(*hop).ok());
            hop.unwrap_or(DEEPER)
        };
        self.lines.refresh(first..first + count, &self.routes, leaf);
    }

    /// The places of the hops that addresses have; 0 for none. With longer prefixes, or more hops than lines
    /// can name, the trie is asked.
    #[inline]
    fn hops_of(&self, addresses: &[u32]) -> [u32; PACKETS] {
        let mut places = [0; PACKETS];
        self.lines.lookup_all(addresses, &mut places);
        if places.contains(&u32::from(DEEPER)) {
            let mut numbers = [None; PACKETS];
            self.routes.lookup_all(addresses, &mut numbers);
            let hop = |number: Option<u32>| self.hop_of.get(number? as usize);
            numbers.iter().filter_map(|number| hop(*number)).for_each(prefetch);
            return numbers.map(|number| hop(number).copied().unwrap_or(0));
        }
        places
    }

    /// Does what a command says; answers how to undo it.
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
            self.routes.remove(address, route.length);
            self.refresh(route.prefix.address, route.length);
            return Ok(Undo::Restore(old));
        }
        let done = match old {
            Some(old) if name == "add" => {
                Err(HandlerError::failed(format!("conflict with existing route '{}'", old.text(false))))
            }
            Some(old) => self.add(route).map(|()| Undo::Restore(old)),
            None => self.add(route).map(|()| Undo::Remove(route)),
        };
        self.refresh(route.prefix.address, route.length);
        done
    }

    /// Commands, a line each: all are done or none.
    fn control(&mut self, text: &str, cx: &Context<'_>) -> Result<(), HandlerError> {
        let mut done = Vec::new();
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let result = match name {
                "add" | "set" | "remove" => self.command(name, rest, cx),
                _ => Err(HandlerError::failed(format!("bad command '{name}'"))),
            };
            match result {
                Ok(undo) => done.push(undo),
                Err(error) => {
                    self.undo(done);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn undo(&mut self, done: Vec<Undo>) {
        for undo in done.into_iter().rev() {
            let (Undo::Remove(route) | Undo::Restore(route)) = &undo;
            let Route { prefix, length, .. } = *route;
            match undo {
                Undo::Remove(_) => {
                    self.routes.remove(prefix.address.to_bits(), length);
                }
                Undo::Restore(route) => {
                    self.insert(route);
                }
            }
            self.refresh(prefix.address, length);
        }
    }

    #[cold]
    fn no_route(&mut self, packet: &Packet, cx: &mut Context<'_>) {
        self.unrouted += 1;
        if self.unrouted <= 5 {
            let address = Ipv4Addr::from(packet.notes().dst_ip());
            cx.chatter(format_args!("IPRouteTable: no route for {address}"));
        }
    }
}

impl Element for RouteTable {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut replaced = 0;
        for (index, argument) in args.take_rest().iter().enumerate() {
            let Some((mut route, Some(port))) = Route::parse(argument, args.scope()) else {
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
        }
        self.refresh(Ipv4Addr::UNSPECIFIED, 0);
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
        let mut handlers =
            Vec::from([Handler::read("table").expensive(), Handler::read("lookup").parameters()]);
        handlers.push(Handler::read("drops"));
        if self.changeable {
            handlers.extend(["add", "set", "remove", "ctrl"].map(Handler::write));
            handlers.push(Handler::write("flush").button());
        }
        handlers
    }

    fn read(&mut self, name: &str, parameter: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        if name == "lookup" {
            let address: Ipv4Addr =
                cx.parse(parameter).map_err(|_| HandlerError::failed("expected IP address"))?;
            return Ok(match self.routes.lookup(address.to_bits()) {
                None => "-1".to_string(),
                Some(Route { port, gateway: None, .. }) => port.to_string(),
                Some(Route { port, gateway: Some(gateway), .. }) => format!("{port} {gateway}"),
            });
        }
        if name == "drops" {
            return Ok(self.unrouted.to_string());
        }
        let mut routes: Vec<&Route> = self.routes.iter().collect();
        routes.sort_by_key(|route| route.order);
        Ok(routes.iter().map(|route| route.text(true) + "\n").collect())
    }

    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        match name {
            "ctrl" => self.control(value, cx),
            "flush" => {
                self.routes.clear();
                (self.lines, self.hops) = Default::default();
                Ok(())
            }
            _ => self.command(name, value, cx).map(|_| ()),
        }
    }
}
