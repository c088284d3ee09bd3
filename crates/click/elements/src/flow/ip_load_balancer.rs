//! `IPLoadBalancer(VIP, SERVER, ..., CAPACITY, TIMEOUT)`: distributes connections to one address over servers.
//!
//! The server of a new connection is chosen by Maglev's consistent hashing (Eisenbud et al., NSDI 2016), so that
//! adding or removing a server affects few other choices, and several balancers agree. Afterwards a table keeps the
//! connection with its server.
//!
//! Ports: input 0: packets from clients; those to VIP go to output 0 with the server as destination. Input 1
//! (optional): packets from servers; those of known connections go to output 1 with VIP as source. Output 2
//! (optional): all others: neither TCP nor UDP, later fragments, all IPv6 fragments, other addresses, unknown
//! connections, no server; without output 2 they are dropped. All ports are push. Packets need a marked IP header; the
//! destination annotation is set.
//!
//! Arguments:
//! - `VIP`: the address that clients use, IPv4 or IPv6; the servers' addresses are of the same version.
//! - `SERVER`: an address, and a weight from 1 to 100 (1 by default); once per server, at most 4096. By position or as
//!   keyword.
//! - `CAPACITY`: maximum number of connections; 1048576. If there are more, the least recently used of sixteen is
//!   removed, which counts as an eviction; its next packet is assigned like a new connection's.
//! - `TIMEOUT`: time without packets after which a connection is removed; 5 minutes. 10 seconds after FIN or RST.
//!
//! The state of a server is `up`, `draining` or, as long as an IPHealthCheck finds it so, `down`. A server that is down
//! keeps its connections but gets no new ones, and those whose SYN is repeated move to another server.
//!
//! Handlers: `servers` (read): address, weight, state, connections, packets; `count` (current connections),
//! `connections` (total), `evictions`, `other`, `capacity` (read); `lookup SADDR SPORT DPORT PROTO` (read): a
//! connection's server; `add` (write): a server with weight, or a new weight; `drain` (write): a server gets no more
//! connections; `remove` (write): the same, and its connections are moved to other servers.
use super::connection::Headers;
use super::family::Family;
use super::maglev::{self, Claim, PLACES};
use super::table::{FlowTable, Key, USUAL};
use core::fmt::Write;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use ringway_click::PACKETS;
use ringway_click::arg::{Arg, ArgError, MANDATORY_POSITIONAL, Nanoseconds, Scope};
use ringway_click::prelude::*;
use ringway_click_lang::config;
use ringway_wire::tcp::Flags;

pub static CLASS: Class = Class::new("IPLoadBalancer", || Box::<IpLoadBalancer>::default())
    .ports("1-2/1-3")
    .processing("h")
    .flow("xy/xyx")
    .metadata(Metadata::Resolve);

/// Maximum number of servers. Attack: handlers that keep adding servers.
const MOST_SERVERS: usize = 4096;
/// Interval at which a part of the table is scanned.
const PERIOD: u64 = SECOND / 10;
/// How long a connection that has ended is kept.
const ENDED: u64 = 10 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    /// Keeps its connections but gets no new ones.
    Draining,
    /// The server is removed; its number stays reserved while connections refer to it.
    Gone,
}

#[derive(Clone, Copy, Debug)]
struct Server<A> {
    address: A,
    weight: u8,
    state: State,
    /// Whether health checks find it working; true without checks.
    healthy: bool,
    connections: u32,
    packets: u64,
}

impl<A> Server<A> {
    /// Whether the server gets new connections.
    fn gets_more(&self) -> bool {
        self.state == State::Up && self.healthy
    }
}

/// A server as given in an argument.
#[derive(Clone, Copy, Debug)]
struct Share<A>(A, u8);

impl<A: Family> Arg for Share<A> {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let words = config::split_words(text);
        match words.as_slice() {
            [address] => Ok(Self(A::parse(address, scope)?, 1)),
            [address, weight] => match u8::parse(weight, scope)? {
                weight @ 1..=100 => Ok(Self(A::parse(address, scope)?, weight)),
                _ => Err(ArgError::other("weight must be between 1 and 100")),
            },
            _ => Err(ArgError::other("expected ADDRESS [WEIGHT]")),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Assignment {
    server: u16,
    ended: bool,
}

/// The connections of one IP version, and the servers they are assigned to.
#[derive(Debug)]
struct Balancer<A: Family> {
    vip: A,
    servers: Vec<Server<A>>,
    places: Vec<u16>,
    connections: FlowTable<A::Connection, Assignment>,
    timeout: u64,
    seen: u64,
    other: u64,
}

impl<A: Family> Balancer<A> {
    fn new(vip: A) -> Self {
        Self {
            vip,
            servers: Vec::new(),
            places: Vec::new(),
            connections: FlowTable::default(),
            timeout: 300 * SECOND,
            seen: 0,
            other: 0,
        }
    }

    fn rebuild(&mut self) {
        let up = self.servers.iter().enumerate().filter(|(_, server)| server.gets_more());
        let claims: Vec<Claim> = up
            .map(|(number, server)| Claim {
                name: server.address.number(),
                weight: server.weight,
                server: number as u16,
            })
            .collect();
        self.places = maglev::places(&claims);
    }

    /// The server for a new connection. Does not use the table's hash, which is secret and different in each balancer.
    fn choose(&self, connection: A::Connection) -> Option<u16> {
        let place = connection.hash(0) % PLACES as u64;
        self.places.get(place as usize).copied()
    }

    fn add(&mut self, Share(address, weight): Share<A>) -> Result<(), &'static str> {
        let new = Server { address, weight, state: State::Up, healthy: true, connections: 0, packets: 0 };
        // The slot of a removed server can be reused as soon as no connection refers to it.
        let free = |server: &Server<A>| server.state == State::Gone && server.connections == 0;
        let own = self.servers.iter().position(|server| server.address == address);
        match own.or_else(|| self.servers.iter().position(free)) {
            Some(number) => {
                let server = &mut self.servers[number];
                let (connections, packets) = (server.connections, server.packets);
                let healthy = server.healthy || server.state == State::Gone;
                let kept = Server { healthy, connections, packets, ..new };
                *server = if server.address == address { kept } else { new };
            }
            None if self.servers.len() >= MOST_SERVERS => return Err("too many servers"),
            None => self.servers.push(new),
        }
        Ok(())
    }

    /// Releases the server of a connection that was removed from the table.
    fn release(&mut self, place: Assignment) {
        if let Some(server) = self.servers.get_mut(usize::from(place.server)) {
            server.connections = server.connections.saturating_sub(1);
        }
    }

    /// The server of a connection; chooses one for a new connection.
    #[inline]
    fn server(&mut self, headers: &Headers<A::Connection>, hash: u64, now: u64) -> Option<usize> {
        let connection = headers.connection;
        let number = match self.connections.find(hash, connection) {
            Some(number) => number,
            None => {
                let server = self.choose(connection)?;
                self.seen += 1;
                self.servers[usize::from(server)].connections += 1;
                let place = Assignment { server, ended: false };
                let (number, evicted) = self.connections.add(hash, connection, place, now);
                if let Some((_, place)) = evicted {
                    self.release(place);
                }
                number
            }
        };
        let place = self.connections.touch(number, now)?;
        // A new connection between the same ports begins with SYN.
        place.ended =
            headers.flags.has(Flags::FIN.with(Flags::RST)) || (place.ended && !headers.flags.has(Flags::SYN));
        let number_of_server = usize::from(place.server);
        let server = self.servers.get(number_of_server)?;
        let opens = headers.flags.has(Flags::SYN) && !headers.flags.has(Flags::ACK);
        if server.state != State::Gone && (server.healthy || !opens) {
            return Some(number_of_server);
        }
        self.move_on(number, connection)
    }

    /// Assigns another server to a connection whose server was removed.
    #[cold]
    fn move_on(&mut self, number: u32, connection: A::Connection) -> Option<usize> {
        let Some(server) = self.choose(connection) else {
            let (_, place) = self.connections.remove(number)?;
            self.release(place);
            return None;
        };
        let place = self.connections.get_mut(number)?;
        let old = core::mem::replace(place, Assignment { server, ended: false });
        self.release(old);
        self.servers[usize::from(server)].connections += 1;
        Some(usize::from(server))
    }

    /// Handles a packet from a client.
    #[inline]
    fn forth(&mut self, packet: &mut Packet, headers: &Headers<A::Connection>, hash: u64, now: u64) -> bool {
        let Some(number) = self.server(headers, hash, now) else { return false };
        let server = &mut self.servers[number];
        server.packets += 1;
        let address = server.address;
        address.set(packet, headers, true);
        address.annotate_destination(packet);
        true
    }

    /// Handles a packet from a server.
    #[inline]
    fn back(&mut self, packet: &mut Packet, headers: &Headers<A::Connection>, hash: u64, now: u64) -> bool {
        let ([(from, _), (to, _)], _) = A::ends(&headers.connection);
        let Some(number) = self.connections.find(hash, self.client_side(headers)) else { return false };
        let Some(place) = self.connections.touch(number, now) else { return false };
        place.ended |= headers.flags.has(Flags::FIN.with(Flags::RST));
        let server = self.servers.get(usize::from(place.server));
        if server.is_none_or(|server| server.address != from) {
            return false;
        }
        self.vip.set(packet, headers, false);
        to.annotate_destination(packet);
        true
    }

    /// The connection as identified by the client's packets.
    #[inline]
    fn client_side(&self, headers: &Headers<A::Connection>) -> A::Connection {
        let ([(_, port), client], protocol) = A::ends(&headers.connection);
        A::connection([client, (self.vip, port)], protocol)
    }

    fn servers_text(&self) -> String {
        let mut out = String::new();
        for server in self.servers.iter().filter(|server| server.state != State::Gone) {
            let state = match server.state {
                State::Up if server.healthy => "up",
                State::Up => "down",
                _ => "draining",
            };
            let Server { address, weight, connections, packets, .. } = server;
            let _ = writeln!(out, "{address}\t{weight}\t{state}\t{connections}\t{packets}");
        }
        out
    }

    fn lookup(&self, text: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        let words = config::split_words(text);
        let [source, source_port, destination_port, protocol] = words.as_slice() else {
            return Err(HandlerError::failed("expected SADDR SPORT DPORT PROTO"));
        };
        let wrong = |error: ArgError| HandlerError::failed(error.to_string());
        let port = |text: &str| cx.parse::<u16>(text).map_err(wrong);
        let source = (cx.parse::<A>(source).map_err(wrong)?, port(source_port)?);
        let destination = (self.vip, port(destination_port)?);
        let protocol = cx.parse_with(protocol, crate::ip::names::parse_protocol).map_err(wrong)?;
        let connection = A::connection([source, destination], protocol);
        let kept = self.connections.find_one(connection).and_then(|number| self.connections.get(number));
        let server = kept.map(|(_, place)| place.server).or_else(|| self.choose(connection));
        let server = server.and_then(|server| self.servers.get(usize::from(server)));
        Ok(server.map_or_else(|| "-".to_string(), |server| server.address.to_string()))
    }

    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut capacity, mut timeout) = (USUAL, Nanoseconds(self.timeout));
        args.read("CAPACITY", &mut capacity);
        args.read("TIMEOUT", &mut timeout);
        let mut shares: Vec<Share<A>> = Vec::new();
        args.read_all("SERVER", &mut shares);
        args.result()?;
        let scope = cx.scope();
        for text in args.take_rest() {
            match Share::parse(&text, &scope) {
                Ok(share) => shares.push(share),
                Err(error) => args.error(format!("SERVER '{text}': {error}")),
            }
        }
        args.complete()?;
        if capacity == 0 {
            return Err(cx.error("CAPACITY must be > 0"));
        }
        for share in shares {
            self.add(share).map_err(|error| cx.error(error))?;
        }
        self.rebuild();
        let seed = cx.own_seed();
        self.connections = FlowTable::new(capacity, seed);
        self.timeout = timeout.0;
        Ok(())
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.connections.reseed(cx.own_seed());
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let (now, vip) = (cx.coarse_now(), self.vip);
        let mut found = [const { None }; PACKETS];
        for (packet, place) in burst.iter().zip(&mut found) {
            let to = |headers: &Headers<A::Connection>| A::ends(&headers.connection).0[1].0;
            let headers = A::headers(packet).filter(|headers| port == 1 || to(headers) == vip);
            *place = headers.map(|headers| {
                let key = if port == 1 { self.client_side(&headers) } else { headers.connection };
                (headers, self.connections.approach(key))
            });
        }
        for (_, hash) in found.iter().flatten() {
            self.connections.near(*hash);
        }
        cx.scatter(burst, |number, packet| {
            let done = found[number].as_ref().is_some_and(|(headers, hash)| match port {
                1 => self.back(packet, headers, *hash, now),
                _ => self.forth(packet, headers, *hash, now),
            });
            self.other += u64::from(!done);
            Some(if done { port } else { 2 })
        });
    }

    /// Removes connections that have ended.
    fn sweep(&mut self, now: u64) {
        let timeout = self.timeout;
        let round = (timeout / 4).clamp(PERIOD, 2 * SECOND);
        let mut steps = (self.connections.slots() as u64 * PERIOD).div_ceil(round) as usize;
        while let Some(number) = self.connections.next_old(&mut steps, |place, seen| {
            now.saturating_sub(seen) >= if place.ended { timeout.min(ENDED) } else { timeout }
        }) {
            if let Some((_, place)) = self.connections.remove(number) {
                self.release(place);
            }
        }
    }

    fn add_server(&mut self, value: &str, cx: &Context<'_>) -> Result<(), HandlerError> {
        let share = cx.parse::<Share<A>>(value)?;
        self.add(share).map_err(HandlerError::failed)?;
        self.rebuild();
        Ok(())
    }

    /// Sets the state of the server with this address.
    fn set_state(&mut self, state: State, value: &str, cx: &Context<'_>) -> Result<(), HandlerError> {
        let address = cx.parse::<A>(value)?;
        let there = |server: &&mut Server<A>| server.address == address && server.state != State::Gone;
        let server = self.servers.iter_mut().find(there);
        server.ok_or_else(|| HandlerError::failed(format!("no server {address}")))?.state = state;
        self.rebuild();
        Ok(())
    }

    /// Sets what health checks find.
    fn set_health(&mut self, address: A, healthy: bool) {
        let there = |server: &&mut Server<A>| server.address == address && server.state != State::Gone;
        let Some(server) = self.servers.iter_mut().find(there) else { return };
        if core::mem::replace(&mut server.healthy, healthy) != healthy {
            self.rebuild();
        }
    }

    fn take_state(&mut self, from: &mut Self) {
        if from.vip != self.vip || from.connections.capacity() != self.connections.capacity() {
            return;
        }
        // Connections refer to servers by number: old numbers are kept, and servers no longer configured become
        // `Gone`.
        let new = core::mem::replace(&mut self.servers, core::mem::take(&mut from.servers));
        // Health checks of the new configuration tell again which servers are down.
        self.servers.iter_mut().for_each(|server| (server.state, server.healthy) = (State::Gone, true));
        for server in new {
            let _ = self.add(Share(server.address, server.weight));
        }
        self.rebuild();
        core::mem::swap(&mut self.connections, &mut from.connections);
        (self.seen, self.other) = (from.seen, from.other);
    }
}

#[derive(Debug)]
pub struct IpLoadBalancer {
    balancer: Either,
}

/// A balancer for either IP version.
#[derive(Debug)]
enum Either {
    V4(Balancer<Ipv4Addr>),
    V6(Balancer<Ipv6Addr>),
}

impl Default for IpLoadBalancer {
    fn default() -> Self {
        Self { balancer: Either::V4(Balancer::new(Ipv4Addr::NONE)) }
    }
}

/// Runs the same code for either IP version.
macro_rules! either {
    ($own:expr, $balancer:ident => $does:expr) => {
        match $own {
            Either::V4($balancer) => $does,
            Either::V6($balancer) => $does,
        }
    };
}

fn address(text: &str, scope: &Scope) -> Result<IpAddr, ArgError> {
    match Ipv4Addr::parse(text, scope) {
        Ok(address) => Ok(address.into()),
        Err(error) => Ipv6Addr::parse(text, scope).map(IpAddr::from).map_err(|_| error),
    }
}

impl IpLoadBalancer {
    /// The addresses of its servers; `None` if they are IPv6.
    pub(super) fn addresses(&self) -> Option<Vec<Ipv4Addr>> {
        let Either::V4(balancer) = &self.balancer else { return None };
        let there = balancer.servers.iter().filter(|server| server.state != State::Gone);
        Some(there.map(|server| server.address).collect())
    }

    /// Sets whether a server works, as found by a health check.
    pub(super) fn set_health(&mut self, address: Ipv4Addr, healthy: bool) {
        if let Either::V4(balancer) = &mut self.balancer {
            balancer.set_health(address, healthy);
        }
    }
}

impl Element for IpLoadBalancer {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut vip = IpAddr::V4(Ipv4Addr::NONE);
        args.read_with("VIP", MANDATORY_POSITIONAL, &mut vip, address);
        self.balancer = match vip {
            IpAddr::V4(vip) => Either::V4(Balancer::new(vip)),
            IpAddr::V6(vip) => Either::V6(Balancer::new(vip)),
        };
        either!(&mut self.balancer, balancer => balancer.configure(args, cx))
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let timer = cx.new_timer();
        cx.set_timer_after(timer, PERIOD);
        Ok(())
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        either!(&mut self.balancer, balancer => balancer.push(port, burst, cx));
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let now = cx.steady();
        either!(&mut self.balancer, balancer => balancer.sweep(now));
        cx.set_timer_again(timer, PERIOD);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("servers", |e: &Self| either!(&e.balancer, balancer => balancer.servers_text())),
            Handler::read("count", |e: &Self| either!(&e.balancer, balancer => balancer.connections.len())),
            Handler::read("connections", |e: &Self| either!(&e.balancer, balancer => balancer.seen)),
            Handler::read("evictions", |e: &Self| {
                either!(&e.balancer, balancer => balancer.connections.evictions())
            }),
            Handler::read("other", |e: &Self| either!(&e.balancer, balancer => balancer.other)),
            Handler::read("capacity", |e: &Self| {
                either!(&e.balancer, balancer => balancer.connections.capacity())
            }),
            Handler::write("add", |e: &mut Self, value, cx| {
                either!(&mut e.balancer, balancer => balancer.add_server(value, cx))
            }),
            Handler::write("drain", |e: &mut Self, value, cx| {
                either!(&mut e.balancer, balancer => balancer.set_state(State::Draining, value, cx))
            }),
            Handler::write("remove", |e: &mut Self, value, cx| {
                either!(&mut e.balancer, balancer => balancer.set_state(State::Gone, value, cx))
            }),
            Handler::read_with("lookup", |e: &mut Self, parameter, cx| {
                either!(&e.balancer, balancer => balancer.lookup(parameter, cx))
            })
            .parameters(),
        ].into()
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        either!(&mut self.balancer, balancer => balancer.reseed(cx));
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        match (&mut self.balancer, &mut from.balancer) {
            (Either::V4(own), Either::V4(from)) => own.take_state(from),
            (Either::V6(own), Either::V6(from)) => own.take_state(from),
            _ => {}
        }
    }
}
