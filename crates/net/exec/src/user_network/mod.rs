//! A network with the host that needs no interface of it, and no rights: sockets of this process stand for the program.
//!
//! ```text
//! program's stack <- link -> this network's stack <- bytes and datagrams -> sockets of the host
//! ```
//!
//! The stack at the far end of the link is the program's gateway, and answers in place of all hosts behind it
//! ([`Stack::serve_all_addresses`]). A connection of the program is accepted when the host's socket is connected, and
//! refused if that is; its bytes are then moved between the two, and the end of each direction with them
//! (`streams.rs`). Datagrams go by a socket for each pair of addresses (`datagrams.rs`). Port 53 of the gateway's own
//! address leads to the host's name server, and the others to the host's loopback interface if that is permitted.
//!
//! Attack: a program that opens connections without an end, or scans ports. Its sockets here are limited, and have the
//! user's rights, which the program has too.

mod datagrams;
mod frame;
mod streams;

use crate::run::{AtEnd, ENDING, ExecError, wait_for_end};
use datagrams::Datagrams;
use frame::{Ends, Kind};
use ringway_frame::{BURST, LARGEST, Needs, Offload};
use ringway_host::{Clock, EventFd, SignalFd, random, spawn};
use ringway_mem::Span;
use ringway_netstack::{Cidr, InterfaceConfig, SECOND, Settings, SocketOptions, Stack, Transmit};
use ringway_sockets::{Device, DeviceError, Pair, pair};
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use streams::Streams;

/// `epoll`'s data of what is no socket of the host; those have larger numbers.
const DEVICE: u64 = 0;
const STOP: u64 = 1;
const FIRST_SOCKET: u64 = 16;
/// Most events of one wait.
const EVENTS: usize = 64;
/// Bytes that are moved at once; a datagram is never longer.
const BUFFER: usize = 64 << 10;
/// How often sockets that nobody uses any more are looked for.
const SWEEP_INTERVAL: u64 = 5 * SECOND;
/// How long the host's sockets may take nothing of what the program has sent before it ended, and all of it.
const SILENCE_TIMEOUT: u64 = 5 * SECOND;
const DRAIN_TIMEOUT: u64 = 60 * SECOND;
/// Most connections, and most pairs of addresses that exchange datagrams, if the process may have the descriptors.
const MAX_STREAMS: usize = 4096;
const MAX_PAIRS: usize = 1024;
/// Descriptors that it has for other things than sockets of the host.
const OWN_DESCRIPTORS: usize = 8;
/// The port of name servers.
const DOMAIN: u16 = 53;

/// What a [`UserNetwork`] is made for.
#[derive(Clone, Debug)]
pub struct UserNetworkConfig {
    /// Its own addresses: the program's gateways.
    pub gateways: Vec<Cidr>,
    /// Largest IP packet in bytes.
    pub mtu: u16,
    /// Whether frames may be without checksums, and longer than packets: not if a link is in between.
    pub offloads: bool,
    /// Settings of its stack, such as the congestion controller of what the host sends.
    pub settings: Settings,
    /// The host's name server, which port 53 of the gateways leads to.
    pub name_server: Option<IpAddr>,
    /// Whether the other ports of the gateways lead to the host's loopback interface. Attack: a program that the user
    /// does not trust with services that have no password, since only the machine itself reaches them.
    pub host_loopback: bool,
}

/// How much of the descriptors of its process a network may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections.
    pub streams: usize,
    /// Most pairs of addresses that exchange datagrams.
    pub pairs: usize,
}

impl Limits {
    /// Those of a process that may have so many descriptors: at most a quarter of them.
    pub fn of(descriptors: Option<u64>) -> Limits {
        let most = descriptors.map_or(usize::MAX, |most| usize::try_from(most).unwrap_or(usize::MAX)) / 4;
        Limits { streams: (most - most / 5).min(MAX_STREAMS), pairs: (most / 5).min(MAX_PAIRS) }
    }

    /// The descriptors that a network needs at most.
    pub fn descriptors(self) -> usize {
        self.streams + self.pairs + OWN_DESCRIPTORS
    }
}

/// A network with the host by sockets of this process.
#[derive(Debug)]
pub struct UserNetwork {
    thread: JoinHandle<()>,
    stop: Arc<EventFd>,
    ended: Arc<EventFd>,
}

impl UserNetwork {
    /// Starts the network; returns it and the program's device.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn start(config: UserNetworkConfig) -> Result<(UserNetwork, Pair), DeviceError> {
        let (device, own) = pair()?;
        let stop = Arc::new(EventFd::new()?);
        let gateway = Gateway::new(own, config, stop.clone())?;
        let ended = Arc::new(EventFd::new()?);
        let at_end = AtEnd(ended.clone());
        let thread = spawn("user-network", None, move || {
            let _at_end = at_end;
            gateway.run();
        })?;
        Ok((UserNetwork { thread, stop, ended }, device))
    }

    /// Ends the network after its program: waits until the host's sockets have taken what the program had sent, five
    /// seconds at most while they take nothing. SIGHUP, SIGINT and SIGTERM, which this thread takes, end that.
    ///
    /// # Errors
    /// The process has no descriptors left.
    pub fn finish(self) -> Result<(), ExecError> {
        self.stop.signal();
        if wait_for_end(&self.ended, &SignalFd::new(&ENDING)?)? {
            // Of a panic the reason is printed.
            let _ = self.thread.join();
        }
        Ok(())
    }
}

/// The name server that the host's programs ask first, by /etc/resolv.conf.
pub fn name_server() -> Option<IpAddr> {
    name_server_in(&std::fs::read_to_string("/etc/resolv.conf").ok()?)
}

fn name_server_in(text: &str) -> Option<IpAddr> {
    let server = |line: &str| line.strip_prefix("nameserver")?.split_whitespace().next()?.parse().ok();
    text.lines().find_map(server)
}

/// What both kinds of sockets need.
#[derive(Debug)]
struct Shared {
    stack: Stack,
    clock: Clock,
    epoll: OwnedFd,
    next_key: u64,
    own: Vec<IpAddr>,
    name_server: Option<IpAddr>,
    host_loopback: bool,
    limits: Limits,
    buffer: Vec<u8>,
}

impl Shared {
    /// The address of the host's sockets that an address of the program's network stands for. `None`: it is closed.
    fn host_address(&self, address: SocketAddr) -> Option<SocketAddr> {
        if !self.own.contains(&address.ip()) {
            return Some(address);
        }
        let loopback: IpAddr = match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        };
        let server = self.name_server.filter(|_| address.port() == DOMAIN);
        let ip = server.or(self.host_loopback.then_some(loopback))?;
        Some(SocketAddr::new(ip, address.port()))
    }

    /// Watches a socket of the host; its number.
    fn watch(&mut self, socket: BorrowedFd<'_>) -> Result<u64, Errno> {
        let what = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP;
        let key = self.next_key;
        epoll::add(&self.epoll, socket, epoll::EventData::new_u64(key), what | epoll::EventFlags::ET)?;
        self.next_key += 1;
        Ok(key)
    }
}

/// The program's gateway.
#[derive(Debug)]
struct Gateway {
    shared: Shared,
    device: Pair,
    stop: Arc<EventFd>,
    streams: Streams,
    datagrams: Datagrams,
    /// Memory for a received frame.
    frame: Vec<u8>,
    /// The device had no room for a frame.
    is_full: bool,
    next_sweep: u64,
}

/// The device as the stack sends to it.
struct Output<'a> {
    device: &'a mut Pair,
    is_full: bool,
}

impl Transmit for Output<'_> {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        self.is_full = !self.device.frame(offload, headers, payload);
        !self.is_full
    }
}

impl Gateway {
    fn new(device: Pair, config: UserNetworkConfig, stop: Arc<EventFd>) -> Result<Gateway, DeviceError> {
        let mut stack = Stack::new(config.settings, [random()?, random()?]);
        let own = config.gateways.iter().map(|cidr| cidr.address).collect();
        let [a, b, c, d, e, ..] = random()?.to_ne_bytes();
        let interface = stack.add_interface(InterfaceConfig {
            // Locally administered, of one station.
            mac: [2, a, b, c, d, e].into(),
            mtu: config.mtu.into(),
            addresses: config.gateways,
            offloads: if config.offloads { device.offloads() } else { Needs::NONE },
        });
        stack.serve_all_addresses(interface);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|_| DeviceError::Closed)?;
        let add = |descriptor: BorrowedFd<'_>, key, flags| {
            let added = epoll::add(&epoll, descriptor, epoll::EventData::new_u64(key), flags);
            added.map_err(|_| DeviceError::Closed)
        };
        for descriptor in device.descriptors() {
            add(descriptor, DEVICE, epoll::EventFlags::IN | epoll::EventFlags::ET)?;
        }
        add(stop.as_fd(), STOP, epoll::EventFlags::IN)?;
        let shared = Shared {
            stack,
            clock: Clock::new(),
            epoll,
            next_key: FIRST_SOCKET,
            own,
            name_server: config.name_server,
            host_loopback: config.host_loopback,
            limits: Limits::of(getrlimit(Resource::Nofile).current),
            buffer: vec![0; BUFFER],
        };
        Ok(Gateway {
            shared,
            device,
            stop,
            streams: Streams::default(),
            datagrams: Datagrams::default(),
            frame: vec![0; LARGEST as usize],
            is_full: false,
            next_sweep: 0,
        })
    }

    /// Serves until the network is ended, and the host's sockets have what the program sent.
    fn run(mut self) {
        let (mut until, mut silent_until, mut left) = (u64::MAX, u64::MAX, u64::MAX);
        loop {
            let is_busy = self.turn();
            let now = self.shared.clock.now();
            if until != u64::MAX {
                let unsent = self.streams.unsent_bytes(&self.shared.stack);
                if unsent < std::mem::replace(&mut left, unsent) {
                    silent_until = now + SILENCE_TIMEOUT;
                }
                if !is_busy && unsent == 0 || now >= silent_until.min(until) {
                    return;
                }
            }
            if self.wait(is_busy, silent_until.min(until)) && until == u64::MAX {
                (until, silent_until) = (now + DRAIN_TIMEOUT, now + SILENCE_TIMEOUT);
            }
        }
    }

    /// Receives and sends frames, and handles the stack's events. Returns whether there were any.
    fn turn(&mut self) -> bool {
        let mut is_busy = false;
        for _ in 0..BURST {
            // A device that is closed has no more frames; the network is ended by its owner.
            let Ok(Some(received)) = self.device.receive() else { break };
            is_busy = true;
            let (offload, len) = (received.offload, received.read(&mut self.frame));
            drop(received);
            let frame = std::mem::take(&mut self.frame);
            self.receive(&frame[..len], offload);
            self.frame = frame;
        }
        is_busy |= self.datagrams.go_on(&mut self.shared);
        while let Some((id, ready)) = self.shared.stack.next_event() {
            is_busy = true;
            if ready.acceptable {
                self.streams.accept(&mut self.shared, id);
            } else if !self.streams.pump_socket(&mut self.shared, id) {
                self.datagrams.send_all(&mut self.shared, id);
            }
        }
        let now = self.shared.clock.now();
        self.shared.stack.expire(now);
        if now >= self.next_sweep {
            self.next_sweep = now + SWEEP_INTERVAL;
            self.streams.sweep(&mut self.shared);
            self.datagrams.sweep(&mut self.shared);
        }
        let mut output = Output { device: &mut self.device, is_full: false };
        self.shared.stack.transmit(now, 0, &mut output);
        self.is_full = output.is_full;
        // A closed device needs no frames.
        let _ = self.device.flush();
        is_busy
    }

    fn receive(&mut self, frame: &[u8], offload: Offload) {
        let now = self.shared.clock.now();
        // Attack: a frame that the stack would drop makes no socket of the host.
        match Ends::of(frame).filter(|_| self.shared.stack.admits(0, frame, offload)) {
            Some(ends) if ends.kind == Kind::Syn && !self.streams.has(&ends) => {
                self.streams.connect(&mut self.shared, ends, frame, offload);
            }
            // The host's socket is being connected still, and this frame came again.
            Some(ends) if ends.kind == Kind::Syn && self.streams.is_connecting(&ends, now) => {}
            Some(ends) if ends.kind == Kind::Datagram => {
                if self.shared.host_address(ends.to).is_some() {
                    self.datagrams.bind(&mut self.shared, ends.to);
                }
                self.shared.stack.receive(now, 0, frame, offload);
            }
            _ => self.shared.stack.receive(now, 0, frame, offload),
        }
    }

    /// Waits for events, and handles those of the host's sockets. Returns whether the network is to end.
    fn wait(&mut self, is_busy: bool, until: u64) -> bool {
        let is_armed = !is_busy && self.device.arm(self.is_full).unwrap_or(until == u64::MAX);
        let stack = &self.shared.stack;
        let due = if self.is_full { stack.next_timer() } else { stack.next_deadline() };
        let due = due.unwrap_or(u64::MAX).min(until).min(self.next_sweep);
        let time = if is_armed { due.saturating_sub(self.shared.clock.now()) } else { 0 };
        let limit = Timespec { tv_sec: (time / SECOND) as i64, tv_nsec: (time % SECOND) as i64 };
        let mut events = [const { MaybeUninit::uninit() }; EVENTS];
        // A signal reports no events.
        let keys: Vec<u64> = epoll::wait(&self.shared.epoll, &mut events, Some(&limit))
            .map(|(events, _)| events.iter().map(|event| event.data.u64()).collect())
            .unwrap_or_default();
        self.device.disarm();
        let mut stops = false;
        for key in keys {
            match key {
                DEVICE => {}
                STOP => stops = self.stop.clear(),
                key if self.streams.handle(&mut self.shared, key) => {}
                key => self.datagrams.receive(&mut self.shared, key),
            }
        }
        stops
    }
}

/// Options of the stack's connections: bytes go on as they come.
fn options() -> SocketOptions {
    SocketOptions { tcp_nodelay: true, ..SocketOptions::default() }
}

#[cfg(test)]
mod tests;
