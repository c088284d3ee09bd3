//! The stack: interfaces, sockets, and what happens when frames or deadlines arrive.

mod announce;
mod auto;
mod configuration;
mod cookie;
mod fast_open;
mod icmp;
mod in_place;
mod input;
mod listen;
mod neighbors;
mod orphans;
mod output;
mod repair;
mod sharing;
mod sockets;
mod tables;

pub use in_place::Reader;
pub use repair::{Diverted, RepairError};
pub use sockets::{Accepted, SocketError};
pub use tables::{NeighborEntry, RouteEntry, SocketEntry, SocketKind, Totals};

use crate::connection::standstill::Standstill;
use crate::connection::{
    Challenges, Connection, ConnectionError, Context, Progress, Readiness, State, context,
};
use crate::demux::{Demux, Tuple};
use crate::hash::{Random, Secret};
use crate::memory::Memory;
use crate::net::dhcp::Dhcp;
use crate::net::fragment::Reassembly;
use crate::net::neighbor::Neighbors;
use crate::net::route::{Cidr, Hop, Routes};
use crate::net::slaac::Slaac;
use crate::net::{Frames, Link, Transmit};
use crate::settings::Settings;
use crate::timer::Timers;
use crate::trace::Trace;
use crate::udp::UdpSocket;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr};
use fast_open::Cookies;
use listen::Listener;
use ringway_frame::{Burst, Needs, Offload};
use ringway_wire::MacAddress;

/// Frames that wait for room on one interface: answers of ARP, ICMP and resets, and datagrams. Attack: requests
/// that are answered faster than the answers leave; further ones are dropped and counted.
const QUEUE: usize = 1024;
/// Sockets that are served in one call of [`Stack::transmit`] or [`Stack::expire`].
const TURNS: usize = 4096;
/// How long an empty buffer of an idle connection keeps its memory, and a receive buffer what it does not use.
const SPARE: u64 = crate::settings::SECOND;
/// Largest frame that is read.
const LARGEST: usize = ringway_frame::LARGEST as usize;

/// A socket's handle. A handle of a closed socket is never valid again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId {
    index: u32,
    generation: u32,
}

impl SocketId {
    /// Its place among the open sockets, a small number. A later socket may have the same.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Settings of an interface.
#[derive(Clone, Debug)]
pub struct InterfaceConfig {
    /// Its link-layer address.
    pub mac: MacAddress,
    /// Largest IP packet in bytes.
    pub mtu: usize,
    /// Its addresses; each adds a route to its network.
    pub addresses: Vec<Cidr>,
    /// What the device does: checksums, segmentation.
    pub offloads: Needs,
}

/// Frames and packets that the stack counted. Drops are by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Statistics {
    pub frames_in: u64,
    pub frames_out: u64,
    /// Received packets of IP, segments of TCP, and datagrams of UDP that a socket took.
    pub packets_in: u64,
    pub segments_in: u64,
    pub datagrams_in: u64,
    pub datagrams_out: u64,
    /// Sent frames of ARP.
    pub arp_out: u64,
    pub not_for_us: u64,
    /// Frames whose source is not an address of another host: a group's, a broadcast address, an own one.
    pub bad_source: u64,
    pub bad_header: u64,
    pub bad_checksum: u64,
    /// Those of TCP segments.
    pub bad_segments: u64,
    pub unknown_protocol: u64,
    pub no_socket: u64,
    /// Those of them that were datagrams.
    pub no_udp_socket: u64,
    pub queue_full: u64,
    pub no_route: u64,
    pub neighbor_full: u64,
    pub resets_sent: u64,
    pub challenge_acks: u64,
    pub syn_cookies_sent: u64,
    pub syn_cookies_accepted: u64,
    pub syn_cookies_failed: u64,
    pub listen_overflows: u64,
    pub udp_dropped: u64,
    pub icmp_in_errors: u64,
    pub out_of_window_icmps: u64,
    pub limited: u64,
    /// Closed connections that ended since there were more than `tcp_max_orphans`.
    pub orphans_ended: u64,
    /// How often `tcp_mem` was reached, and segments that were dropped since its last value was.
    pub memory_pressures: u64,
    pub memory_dropped: u64,
    /// Frames of [`Stack::receive_in_place`].
    pub in_place: u64,
    /// Bytes of streams that were copied: to send buffers, to receive buffers, to programs.
    pub bytes_copied: u64,
}

#[derive(Debug)]
pub(crate) struct Interface {
    pub mac: MacAddress,
    pub mtu: usize,
    pub addresses: Vec<Cidr>,
    pub offloads: Needs,
    pub neighbors: Neighbors,
    pub identification: u16,
    /// Frames to send first.
    pub queue: VecDeque<Vec<u8>>,
    /// Sockets with something to send.
    ready: VecDeque<u32>,
    /// Sockets that wait for neighbours.
    parked: BTreeMap<IpAddr, neighbors::Parked>,
    announcements: Vec<announce::Announcement>,
    slaac: Option<Box<Slaac>>,
    dhcp: Option<Box<Dhcp>>,
    /// See [`Stack::serve_all_addresses`].
    pub serves_all: bool,
}

impl Interface {
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// Whether an address is the broadcast address of one of its networks.
    pub(crate) fn is_broadcast(&self, address: IpAddr) -> bool {
        self.addresses.iter().any(|own| own.broadcast() == Some(address))
    }
}

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(Box<Connection>),
    Listener(Box<Listener>),
    Udp(Box<UdpSocket>),
    /// A connection that has left the stack; see [`Stack::detach`].
    Moved(Box<Tuple>),
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
    /// Whether it is in a list of ready or parked sockets.
    queued: bool,
    /// Whether it is in the list of events.
    has_event: bool,
    /// Whether it is in the list of sockets with spare memory.
    spare: bool,
}

/// A TCP/IP stack.
#[derive(Debug)]
pub struct Stack {
    settings: Settings,
    secret: Secret,
    /// Of sequence numbers and timestamps.
    sequence: Secret,
    random: Random,
    interfaces: Vec<Interface>,
    routes: Routes,
    slots: Vec<Slot>,
    free: Vec<u32>,
    demux: Demux,
    listeners: BTreeMap<u16, Vec<u32>>,
    datagrams: BTreeMap<u16, Vec<u32>>,
    timers: Timers,
    events: VecDeque<u32>,
    /// Sockets with empty buffers that have memory, or with more than they use; since when, and their progress then.
    spare: VecDeque<(u32, u64, u64)>,
    /// Frames to own addresses, and their interfaces; [`Stack::transmit`] receives them.
    looped: VecDeque<(usize, Vec<u8>, Offload)>,
    /// Connections that their programs have closed, and their generations, in this order. Some have ended since.
    orphans: VecDeque<(u32, u32)>,
    /// What arrived for connections that have left.
    diverted: VecDeque<Diverted>,
    /// See [`Stack::divert_strays`].
    diverts_strays: bool,
    reassembly: Reassembly,
    challenges: Challenges,
    memory: Memory,
    cookies: Cookies,
    port_counters: [u64; sockets::PORT_COUNTERS],
    standstill: Standstill,
    /// ICMP errors and resets in this second.
    errors: (u64, u32),
    statistics: Statistics,
    totals: Totals,
    /// The trace of the last connection that was forgotten with one.
    ended_trace: Option<Box<Trace>>,
    scratch: Vec<u8>,
    now: u64,
}

/// The generation of a place after another one, of 31 bits: so that handles, as numbers, are not negative.
const fn next_generation(generation: u32) -> u32 {
    generation.wrapping_add(1) & (u32::MAX >> 1)
}

impl Stack {
    /// A stack without interfaces. `seed` must be random and secret: sequence numbers, cookies, ports and hash
    /// tables depend on it.
    pub fn new(settings: Settings, seed: [u64; 2]) -> Stack {
        let secret = Secret(seed);
        Stack {
            random: Random::new(secret.hash(&[0])),
            demux: Demux::new(Secret([secret.hash(&[1]), secret.hash(&[2])])),
            reassembly: Reassembly::new(settings.ipfrag_high_thresh, settings.ipfrag_time),
            settings,
            secret,
            sequence: secret,
            interfaces: Vec::new(),
            routes: Routes::default(),
            slots: Vec::new(),
            free: Vec::new(),
            listeners: BTreeMap::new(),
            datagrams: BTreeMap::new(),
            timers: Timers::default(),
            events: VecDeque::new(),
            spare: VecDeque::new(),
            looped: VecDeque::new(),
            orphans: VecDeque::new(),
            diverted: VecDeque::new(),
            diverts_strays: false,
            challenges: Challenges::default(),
            memory: Memory::default(),
            cookies: Cookies::default(),
            port_counters: [0; sockets::PORT_COUNTERS],
            standstill: Standstill::default(),
            errors: (0, 0),
            statistics: Statistics::default(),
            totals: Totals::default(),
            ended_trace: None,
            scratch: Vec::new(),
            now: 0,
        }
    }

    /// Sequence numbers and timestamps of connections depend on this secret instead of the stack's seed, and on the
    /// time. With the secret and the clock of a stack that had the same addresses before, they go on from where its
    /// connections were, so that a peer's TIME-WAIT doesn't take them for old ones (RFC 6191).
    pub fn set_sequence_secret(&mut self, secret: [u64; 2]) {
        self.sequence = Secret(secret);
    }

    /// Adds an interface; returns its number.
    pub fn add_interface(&mut self, config: InterfaceConfig) -> usize {
        let number = self.interfaces.len();
        if number == 0 {
            self.routes.add(Cidr::new([127, 0, 0, 0], 8), None, number);
            self.routes.add(Cidr::new(Ipv6Addr::LOCALHOST, 128), None, number);
        }
        self.interfaces.push(Interface {
            mac: config.mac,
            mtu: config.mtu.clamp(576, 65_535),
            addresses: Vec::new(),
            offloads: config.offloads,
            neighbors: Neighbors::new(self.settings.gc_thresh3),
            identification: self.random.next() as u16,
            queue: VecDeque::new(),
            ready: VecDeque::new(),
            parked: BTreeMap::new(),
            announcements: Vec::new(),
            slaac: None,
            dhcp: None,
            serves_all: false,
        });
        config.addresses.into_iter().for_each(|address| self.assign(number, address));
        number
    }

    /// Changes what an interface's device does, for new connections.
    pub fn set_offloads(&mut self, interface: usize, offloads: Needs) {
        if let Some(port) = self.interfaces.get_mut(interface) {
            port.offloads = offloads;
        }
    }

    /// Lets sockets serve TCP and UDP packets to any host that arrive on an interface, as a gateway that answers in
    /// place of the hosts behind it (Linux: `ip route add local 0.0.0.0/0`). A listener or a UDP socket of an
    /// unspecified address serves all hosts; the local address of an accepted connection is that of the host which was
    /// meant. ARP, neighbour discovery and ICMP are answered for own addresses only.
    pub fn serve_all_addresses(&mut self, interface: usize) {
        if let Some(port) = self.interfaces.get_mut(interface) {
            port.serves_all = true;
        }
    }

    /// Adds a route through a gateway, which is in a network of `interface`. It is used while the gateway can be
    /// another host: not while it is an address of this host or a network's broadcast address.
    pub fn add_route(&mut self, network: Cidr, gateway: IpAddr, interface: usize) {
        self.routes.add(network, Some(gateway), interface);
    }

    /// The way to a destination. What is sent to a gateway that is no host would go to all hosts of a network, or to
    /// ourselves (RFC 1122, 3.2.1.3); a change of addresses may make it one.
    pub(crate) fn hop(&self, destination: IpAddr) -> Option<Hop> {
        self.routes.find(destination, |interface, gateway| self.is_host(interface, gateway))
    }

    /// Changes settings. Sizes of tables and buffers that exist stay.
    pub fn set_settings(&mut self, settings: Settings) {
        self.settings = settings;
        self.memory.update(&self.settings.tcp_mem);
    }

    /// What the stack counted.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            challenge_acks: self.challenges.total,
            memory_pressures: self.memory.pressures,
            memory_dropped: self.memory.dropped,
            bytes_copied: self.memory.copied,
            ..self.statistics
        }
    }

    /// Receives frames, handles deadlines, and sends what can be sent on one interface. Returns when it must be
    /// called again although nothing arrives.
    pub fn poll(
        &mut self,
        now: u64,
        interface: usize,
        frames_in: &Burst<'_>,
        frames_out: &mut dyn Transmit,
    ) -> Option<u64> {
        let mut bytes = core::mem::take(&mut self.scratch);
        bytes.resize(LARGEST, 0);
        for number in 0..frames_in.len() {
            let meta = frames_in.meta(number);
            let len = frames_in.read(number, 0, &mut bytes);
            self.receive(now, interface, &bytes[..len], meta.offload);
        }
        self.scratch = bytes;
        self.expire(now);
        self.transmit(now, interface, frames_out);
        self.next_deadline()
    }

    /// Goes on to a time.
    fn advance(&mut self, now: u64) {
        self.standstill.observe(self.now, self.timers.next(), now);
        self.now = self.now.max(now);
    }

    /// Handles the deadlines that have passed.
    pub fn expire(&mut self, now: u64) {
        self.advance(now);
        // After a standstill all may be due: the next call handles the others.
        for _ in 0..TURNS {
            let Some(index) = self.timers.pop(self.now) else { break };
            self.with(index, |connection, cx| connection.expire(cx));
            // A connection that set a deadline in the past would be handled again and again.
            self.timers.postpone(index, self.now + 1);
        }
        for interface in 0..self.interfaces.len() {
            self.expire_neighbors(interface);
            self.expire_auto(interface);
            self.expire_announcements(interface);
        }
        if self.reassembly.due().is_some_and(|due| due <= self.now) {
            self.reassembly.expire(self.now);
        }
        for _ in 0..TURNS {
            let due = self.spare.pop_front_if(|(_, since, _)| *since + SPARE <= self.now);
            let Some((index, _, progress)) = due else { break };
            self.slots[index as usize].spare = false;
            if let Some(Socket::Tcp(connection)) = &mut self.slots[index as usize].socket {
                connection.age_spare();
                if connection.progress() == progress {
                    connection.release_spare();
                }
                self.note_memory(index);
            }
        }
    }

    /// Counts a socket's memory. Remembers one whose empty buffers have some: it is returned if the connection stays
    /// idle. What a buffer has and does not use is returned in any case.
    fn note_memory(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(Socket::Tcp(connection)) = &mut slot.socket else { return };
        self.memory.charge(connection, &self.settings.tcp_mem);
        if !slot.spare && connection.has_spare() {
            slot.spare = true;
            self.spare.push_back((index, self.now, connection.progress()));
        }
    }

    /// When [`Stack::poll`] must be called again. Now, if something waits to be sent.
    pub fn next_deadline(&self) -> Option<u64> {
        let busy = |interface: &Interface| !interface.queue.is_empty() || !interface.ready.is_empty();
        let waits = !self.looped.is_empty() || self.interfaces.iter().any(busy);
        if waits { Some(self.now) } else { self.next_timer() }
    }

    /// When [`Stack::expire`] must be called, even if the device has no room for what waits to be sent.
    pub fn next_timer(&self) -> Option<u64> {
        let neighbors = self.interfaces.iter().filter_map(|interface| interface.neighbors.due());
        let auto = self.interfaces.iter().filter_map(Interface::auto_due);
        let announcements = self.interfaces.iter().filter_map(Interface::announcement_due);
        let spare = self.spare.front().map(|(_, since, _)| since + SPARE);
        let others = self.timers.next().into_iter().chain(self.reassembly.due()).chain(spare);
        neighbors.chain(auto).chain(announcements).chain(others).min()
    }

    /// Sends what can be sent on one interface.
    pub fn transmit(&mut self, now: u64, interface: usize, out: &mut dyn Transmit) {
        self.advance(now);
        let Some(port) = self.interfaces.get_mut(interface) else { return };
        while let Some(frame) = port.queue.front() {
            if !out.frame(Offload::default(), frame, &[]) {
                return;
            }
            self.statistics.frames_out += 1;
            port.queue.pop_front();
        }
        for _ in 0..TURNS {
            self.receive_looped();
            let Some(index) = self.interfaces[interface].ready.pop_front() else { return };
            if !self.unqueue(index) {
                continue;
            }
            let progress = self.transmit_socket(index, interface, out);
            if progress == Progress::Full {
                self.slots[index as usize].queued = true;
                self.interfaces[interface].ready.push_front(index);
                return;
            }
            self.touch(index);
            // Requests for neighbours.
            while let Some(frame) = self.interfaces[interface].queue.pop_front() {
                if !out.frame(Offload::default(), &frame, &[]) {
                    self.interfaces[interface].queue.push_front(frame);
                    return;
                }
                self.statistics.frames_out += 1;
            }
        }
    }

    fn transmit_socket(&mut self, index: u32, interface: usize, out: &mut dyn Transmit) -> Progress {
        let Some(destination) = self.neighbor_of(index, interface) else { return Progress::Done };
        let (Some(Socket::Tcp(connection)), Some(port)) =
            (&mut self.slots[index as usize].socket, self.interfaces.get_mut(interface))
        else {
            return Progress::Done;
        };
        let own = destination == port.mac;
        let mut looped = Frames::default();
        let mut link = Link {
            out: if own { &mut looped as &mut dyn Transmit } else { out },
            source: port.mac,
            destination,
            offloads: port.offloads,
            ttl: self.settings.ip_default_ttl,
            identification: &mut port.identification,
        };
        let mut cx = context!(self);
        let before = connection.counts.segs_out;
        let progress = connection.transmit(&mut cx, &mut link);
        self.statistics.frames_out += connection.counts.segs_out - before;
        if connection.is_source_lost() {
            return self.reset_for_lost_source(index);
        }
        for (frame, offload) in looped.iter() {
            self.loop_back(interface, frame.to_vec(), offload);
        }
        progress
    }

    /// A connection has lost what it was to send. Its peer must not take what it got for the whole.
    fn reset_for_lost_source(&mut self, index: u32) -> Progress {
        let Some(Socket::Tcp(connection)) = &self.slots[index as usize].socket else { return Progress::Done };
        let tuple = connection.tuple;
        if let Some(reset) = connection.abort_reset(self.now) {
            self.send_reset(&tuple, reset);
        }
        self.with(index, |connection, _| connection.end_with(Some(ConnectionError::SourceLost)));
        Progress::Done
    }

    /// A socket was taken from a list. `false`: it is closed, and its number is free now.
    fn unqueue(&mut self, index: u32) -> bool {
        let slot = &mut self.slots[index as usize];
        slot.queued = false;
        if slot.socket.is_none() {
            self.free.push(index);
        }
        slot.socket.is_some()
    }

    /// Calls a connection, and does what follows from its new state.
    fn with<R>(
        &mut self,
        index: u32,
        call: impl FnOnce(&mut Connection, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let Some(Socket::Tcp(connection)) = &mut self.slots.get_mut(index as usize)?.socket else {
            return None;
        };
        let mut cx = context!(self);
        let result = call(connection, &mut cx);
        self.touch(index);
        Some(result)
    }

    /// After anything changed a connection: its timer, its place in the lists, its end.
    fn touch(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(Socket::Tcp(connection)) = &mut slot.socket else { return };
        let cx = context!(self);
        if !slot.queued && connection.wants_transmit(&cx) {
            slot.queued = true;
            self.interfaces[connection.interface].ready.push_back(index);
        }
        self.note_memory(index);
        self.touch_timers(index);
    }

    fn touch_timers(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let Some(Socket::Tcp(connection)) = &mut slot.socket else { return };
        if connection.state == State::Closed {
            if let Some(state) = connection.counts.ended_in.take() {
                self.totals.end(state);
            }
            self.demux.remove(index);
            self.timers.set(index, None);
            // A connection that is to be accepted stays, so that the program reads what arrived, or the error.
            if connection.listener.is_some_and(|listener| self.is_queued(listener, index)) {
                return;
            }
            let Some(Socket::Tcp(connection)) = &mut self.slots[index as usize].socket else { return };
            let listener = connection.listener.take();
            if let Some(listener) = listener {
                self.forget_embryo(listener);
            }
            let slot = &mut self.slots[index as usize];
            let Some(Socket::Tcp(connection)) = &slot.socket else { return };
            if !connection.owned {
                return self.release(index);
            }
            return self.queue_event(index);
        }
        self.timers.set(index, connection.deadline());
        if connection.ready != Readiness::default() {
            if connection.owned {
                self.queue_event(index);
            } else {
                self.promote(index);
            }
        }
    }

    /// Puts a socket into the list of events.
    fn queue_event(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        if !slot.has_event {
            slot.has_event = true;
            self.events.push_back(index);
        }
    }

    /// Frees a socket.
    fn release(&mut self, index: u32) {
        self.timers.set(index, None);
        self.demux.remove(index);
        let slot = &mut self.slots[index as usize];
        if let Some(Socket::Tcp(connection)) = &mut slot.socket {
            self.memory.discharge(connection, &self.settings.tcp_mem);
            self.totals.add(connection);
            self.ended_trace = connection.trace.take().or(self.ended_trace.take());
        }
        slot.socket = None;
        slot.generation = next_generation(slot.generation);
        // A socket in a list is freed when it is taken from there, so that no list has stale numbers.
        if !slot.queued {
            self.free.push(index);
        }
    }

    /// A free socket number; `None` if there are too many sockets.
    fn allocate(&mut self, socket: Socket) -> Option<SocketId> {
        let index = match self.free.pop() {
            Some(index) => index,
            None if self.slots.len() < self.settings.max_sockets => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
            None => return None,
        };
        let slot = &mut self.slots[index as usize];
        slot.socket = Some(socket);
        Some(SocketId { index, generation: slot.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_are_never_negative_as_numbers() {
        let most = SocketId { index: 9, generation: u32::MAX >> 1 };
        assert!(i64::try_from(most.to_bits()).is_ok());
        assert_eq!((next_generation(most.generation), next_generation(0)), (0, 1));
        // Also of a place that was used so often.
        let mut stack = Stack::new(Settings::default(), [1, 2]);
        let address = ([0, 0, 0, 0], 80).into();
        let first = stack.listen(address, 1).unwrap();
        stack.slots[first.index as usize].generation = most.generation;
        let last = SocketId { generation: most.generation, ..first };
        stack.close(0, last).unwrap();
        assert_eq!(stack.listen(address, 1), Ok(SocketId { generation: 0, ..first }));
    }
}
