//! `LookupIP6Route(ADDR/LENGTH [GATEWAY] OUTPUT, ...)`: looks up IPv6 routes.
//!
//! Ports: one push input; push outputs. Packets without a route are dropped.
//!
//! Arguments: one route each: a prefix, the next hop if it is not the destination itself, and the output.
//!
//! Handlers: `table`, `drops` (read); `lookup` (read, with an address); `add`, `remove`, `ctrl` (write). The longest
//! prefix that contains a packet's destination annotation decides; the annotation is set to the next hop.
use core::fmt::Write;
use core::net::Ipv6Addr;
use core::ops::Bound::{Excluded, Unbounded};
use ringway_click::arg::{Arg, Prefix6, Scope};
use ringway_click::prelude::*;
use ringway_click::{LINES, OrderedMap, Pieces, Progress};
use ringway_click_lang::config;

pub static CLASS: Class =
    Class::new("LookupIP6Route", || Box::<LookupIp6Route>::default()).ports("1/-").processing("h");

/// Maximum number of routes. Attack: a handler's caller that exhausts memory.
const MOST_ROUTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hop {
    gateway: Option<Ipv6Addr>,
    port: usize,
}

#[derive(Debug, Default)]
pub struct LookupIp6Route {
    /// By prefix length, longest first; only lengths that are in use.
    lengths: Vec<(u8, OrderedMap<u128, Hop>)>,
    count: usize,
    drops: u64,
}

fn mask(length: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0)
}

fn prefix(text: &str, scope: &Scope) -> Option<(u128, u8)> {
    let prefix = Prefix6::parse(text, scope).or_else(|error| match Ipv6Addr::parse(text, scope) {
        Ok(address) => Ok(Prefix6 { address, length: 128 }),
        Err(_) => Err(error),
    });
    prefix.ok().map(|found| (found.address.to_bits() & mask(found.length), found.length))
}

/// Parses a route.
fn route(text: &str, scope: &Scope) -> Option<(u128, u8, Hop)> {
    let words = config::split_words(text);
    let (gateway, port) = match &words[..] {
        [_, port] => (None, port),
        [_, gateway, port] => (Some(Ipv6Addr::parse(gateway, scope).ok()?), port),
        _ => return None,
    };
    let (address, length) = prefix(&words[0], scope)?;
    let gateway = gateway.filter(|gateway| !gateway.is_unspecified());
    Some((address, length, Hop { gateway, port: usize::parse(port, scope).ok()? }))
}

impl Element for LookupIp6Route {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        for (index, argument) in args.take_rest().iter().enumerate() {
            if index % LINES == 0 {
                cx.breathe();
            }
            match route(argument, args.scope()) {
                Some((.., hop)) if hop.port >= cx.noutputs() => {
                    args.error(format!("need {} or more output ports", hop.port + 1));
                }
                Some((address, length, hop)) => {
                    self.add(address, length, hop);
                }
                None => args.error(format!("argument {} should be DADDR/MASK [GW] OUTPUT", index + 1)),
            }
        }
        if self.count == 0 {
            cx.warning("no routes");
        }
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for mut packet in burst.drain() {
            match self.route(&mut packet) {
                Some(port) => cx.push(port, packet),
                None => self.drops += 1,
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read_in_pieces("table", |e: &mut Self, _, pieces, _| Ok(e.table(pieces))),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::read_with("lookup", |e: &mut Self, parameter, cx| {
                let address: Ipv6Addr =
                    cx.parse(parameter).map_err(|_| HandlerError::failed("expected IP6 address"))?;
                Ok(match e.lookup(address.to_bits()) {
                    None => "-1".to_string(),
                    Some(Hop { gateway: Some(gateway), port }) => format!("{port} {gateway}"),
                    Some(Hop { port, .. }) => port.to_string(),
                })
            })
            .parameters(),
            Handler::write("add", |e: &mut Self, value, cx| e.command("add", value, cx)),
            Handler::write("remove", |e: &mut Self, value, cx| e.command("remove", value, cx)),
            Handler::write_in_pieces("ctrl", Self::control),
        ]
        .into()
    }
}

impl LookupIp6Route {
    fn add(&mut self, address: u128, length: u8, hop: Hop) -> bool {
        let room = self.count < MOST_ROUTES;
        if !room {
            return false;
        }
        let place = self.place(length).unwrap_or_else(|place| {
            self.lengths.insert(place, (length, OrderedMap::new()));
            place
        });
        self.count += usize::from(self.lengths[place].1.insert(address, hop).is_none());
        true
    }

    /// The place of a length in `lengths`, or where it belongs.
    fn place(&self, length: u8) -> Result<usize, usize> {
        self.lengths.binary_search_by(|(other, _)| length.cmp(other))
    }

    fn remove(&mut self, address: u128, length: u8) -> bool {
        let Ok(place) = self.place(length) else { return false };
        let routes = &mut self.lengths[place].1;
        let removed = routes.remove(address).is_some();
        if routes.is_empty() {
            self.lengths.remove(place);
        }
        removed
    }

    fn command(&mut self, name: &str, text: &str, cx: &Context<'_>) -> Result<(), HandlerError> {
        match name {
            "add" => {
                let found = route(text, &cx.scope()).filter(|(.., hop)| hop.port < cx.noutputs());
                let (address, length, hop) =
                    found.ok_or_else(|| HandlerError::failed("expected 'ADDR/MASK [GATEWAY] OUTPUT'"))?;
                let added = self.add(address, length, hop);
                added.then_some(()).ok_or_else(|| HandlerError::failed("no memory to store route"))
            }
            "remove" => {
                let first = text.split_whitespace().next().unwrap_or_default();
                let (address, length) =
                    prefix(first, &cx.scope()).ok_or_else(|| HandlerError::failed("expected 'ADDR/MASK'"))?;
                let removed = self.remove(address, length);
                self.count -= usize::from(removed);
                removed.then_some(()).ok_or_else(|| HandlerError::failed(format!("route '{text}' not found")))
            }
            _ => Err(HandlerError::failed(format!("bad command '{name}'"))),
        }
    }

    #[inline]
    fn lookup(&self, address: u128) -> Option<&Hop> {
        self.lengths.iter().find_map(|(length, routes)| routes.get(address & mask(*length)))
    }

    #[inline]
    fn route(&self, packet: &mut Packet) -> Option<usize> {
        let hop = self.lookup(u128::from_be_bytes(packet.notes().get(Annotations::DST_IP6)))?;
        if let Some(gateway) = hop.gateway {
            packet.notes_mut().set(Annotations::DST_IP6, gateway.octets());
        }
        Some(hop.port)
    }

    /// Reads the routes, in steps.
    fn table(&self, pieces: &mut Pieces) -> Progress {
        // Length and address of the last route read.
        let last: Option<(u8, u128)> = pieces.kept();
        if last.is_none() {
            pieces.text.push_str("# Active routes\n");
        }
        let read = last.map_or(u8::MAX, |(length, _)| length);
        let lengths = self.lengths.iter().filter(|(length, _)| *length <= read);
        let routes = lengths.flat_map(|(length, routes)| {
            let behind =
                last.filter(|(at, _)| at == length).map_or(Unbounded, |(_, address)| Excluded(address));
            routes.range(behind).map(|(address, hop)| (*length, address, hop))
        });
        let mut count = 0;
        let mut next = None;
        for (length, address, hop) in routes.take(LINES) {
            let gateway = hop.gateway.unwrap_or(Ipv6Addr::UNSPECIFIED);
            let _ =
                writeln!(pieces.text, "{}/{length}\t{gateway}\t{}", Ipv6Addr::from_bits(address), hop.port);
            (count, next) = (count + 1, Some((length, address)));
        }
        if count == LINES { pieces.keep(next) } else { Progress::Done }
    }

    /// Executes commands, one per line, in steps.
    fn control(
        &mut self,
        value: &str,
        pieces: &mut Pieces,
        cx: &mut Context<'_>,
    ) -> Result<Progress, HandlerError> {
        let mut at: usize = pieces.kept();
        for line in value.get(at..).unwrap_or_default().split_inclusive('\n').take(LINES) {
            at += line.len();
            let line = line.trim();
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            if !name.is_empty() {
                self.command(name, rest, cx)?;
            }
        }
        Ok(if at < value.len() { pieces.keep(at) } else { Progress::Done })
    }
}
