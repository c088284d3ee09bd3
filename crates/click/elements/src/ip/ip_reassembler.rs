//! `IPReassembler(HIMEM, MAX_MTU_ANNO)`: reassembles fragmented IPv4 packets (RFC 791, 3.2).
//!
//! Ports: one input; one output, and optionally a push output for the available parts of packets that were incomplete
//! after 30 seconds.
//!
//! Arguments:
//! - `HIMEM`: maximum memory of incomplete packets in bytes; 262144 by default. If exceeded, the oldest are dropped
//!   until it is three quarters full.
//! - `MAX_MTU_ANNO`: a two-byte annotation for the length of the largest fragment.
//!
//! Handlers: `dump`; `length`: waiting fragments; `merged`: fragments merged into other packets, without the first of
//! each; `drops`: dropped fragments (read). Bytes before the first fragment's header stay there. Fragments that
//! contradict each other are dropped.
use super::transport::Transport;
use core::fmt::Write;
use core::net::Ipv4Addr;
use ringway_click::arg::{Annotation, KEYWORD};
use ringway_click::prelude::*;
use ringway_click::{OrderedMap, sort};
use ringway_wire::ipv4::{DONT_FRAGMENT, RESERVED};
use ringway_wire::{Header, Ipv4, Protocol};

pub static CLASS: Class = Class::new("IPReassembler", || Box::<IpReassembler>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

/// Timeout of an incomplete packet.
const TIMEOUT: i64 = 30 * SECOND as i64;
/// Interval of the search for expired packets.
const INTERVAL: i64 = 10 * SECOND as i64;
/// Memory of an incomplete packet besides its payload.
const OVERHEAD: usize = 256;
/// Maximum number of separate ranges received of a packet. Attack: fragments with every other piece of eight bytes.
const MOST_RANGES: usize = 64;

/// Source, destination, protocol, identification.
type Key = (u32, u32, Protocol, u16);

#[derive(Debug)]
struct Assembly {
    /// The payload received so far.
    payload: Vec<u8>,
    /// The received ranges, in order, none adjacent to another.
    ranges: Vec<(usize, usize)>,
    /// The payload's length, once the last fragment is received.
    total: Option<usize>,
    /// The first fragment.
    head: Option<Packet>,
    /// The time of the newest fragment, of [`steady_time`].
    touched: i64,
    largest: u16,
    /// Number of fragments received.
    fragments: u64,
}

impl Assembly {
    fn memory(&self) -> usize {
        OVERHEAD + self.payload.capacity()
    }

    /// Adds a range; false if there are too many.
    fn cover(&mut self, mut from: usize, mut to: usize) -> bool {
        self.ranges.retain(|(start, end)| {
            let apart = *end < from || *start > to;
            if !apart {
                (from, to) = (from.min(*start), to.max(*end));
            }
            apart
        });
        let at = self.ranges.partition_point(|(start, _)| *start < from);
        self.ranges.insert(at, (from, to));
        self.ranges.len() <= MOST_RANGES
    }

    fn is_complete(&self) -> bool {
        self.head.is_some() && self.total.is_some_and(|total| self.ranges == [(0, total)])
    }

    /// The packet as far as it is received; `None` without the first fragment.
    fn emit(self) -> Option<Packet> {
        let mut packet = self.head?;
        let length = self.ranges.last().map_or(0, |(_, end)| *end);
        let header = Transport::of_packet(&packet)?.header;
        let at = usize::try_from(packet.network_header()?).ok()?;
        packet.take(packet.len().saturating_sub(at + header));
        if !packet.put(length) {
            return None;
        }
        let data = packet.network_data_mut()?;
        data.get_mut(header..)?.get_mut(..length)?.copy_from_slice(self.payload.get(..length)?);
        let (ip, options, _) = Ipv4::parse_mut(data)?;
        ip.total_length.set(u16::try_from(header + length).unwrap_or(u16::MAX));
        ip.fragment &= DONT_FRAGMENT | RESERVED;
        ip.fill_checksum(options);
        Some(packet)
    }
}

#[derive(Debug, Default)]
pub struct IpReassembler {
    assemblies: OrderedMap<Key, Assembly>,
    memory: usize,
    most: u32,
    mtu_annotation: Option<usize>,
    next_reap: Option<i64>,
    seen: u64,
    good: u64,
    failed: u64,
    bad: u64,
    waiting: u64,
    merged: u64,
    drops: u64,
}

impl Element for IpReassembler {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.most = 256 * 1024;
        let mut annotation = Annotation::default();
        args.read("HIMEM", &mut self.most);
        let given = args.read_with("MAX_MTU_ANNO", KEYWORD, &mut annotation, |text, scope| {
            Annotation::of_size(text, 2, scope)
        });
        self.mtu_annotation = given.then_some(annotation.offset);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|packet| {
            let fragment = packet.network_data().is_some_and(|data| Ipv4::padded(data).is_fragment());
            if fragment { self.add(packet, cx) } else { Some(packet) }
        });
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        (self.assemblies, self.memory) =
            (core::mem::take(&mut from.assemblies), core::mem::take(&mut from.memory));
        self.waiting = core::mem::take(&mut from.waiting);
        self.next_reap = from.next_reap;
        (self.seen, self.good, self.failed, self.bad) = (from.seen, from.good, from.failed, from.bad);
        if self.memory > self.most as usize {
            self.shrink();
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("dump", Self::dump),
            Handler::read("length", |e: &Self| e.waiting),
            Handler::counter("merged", |e: &mut Self| &mut e.merged),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
        ]
        .into()
    }
}

impl IpReassembler {
    /// Adds a fragment; returns the packet if that completes it.
    fn add(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        self.seen += 1;
        if packet.timestamp() == 0 {
            packet.set_timestamp(cx.now());
        }
        let (timestamp, now) = (packet.timestamp(), steady_time(&packet, cx));
        if self.next_reap.is_none_or(|at| now >= at) {
            self.reap(now, cx);
        }
        let Some((key, from, more)) = self.place(&packet) else {
            self.bad += 1;
            self.drops += 1;
            return None;
        };
        if self.memory > self.most as usize {
            self.shrink();
        }
        let mut assembly = self.assemblies.remove(key).unwrap_or_else(|| Assembly {
            payload: Vec::new(),
            ranges: Vec::new(),
            total: None,
            head: None,
            touched: now,
            largest: 0,
            fragments: 0,
        });
        self.memory = self.memory.saturating_sub(assembly.memory());
        self.waiting -= assembly.fragments;
        assembly.fragments += 1;
        if !fill(&mut assembly, packet, from, more) {
            self.bad += 1;
            self.drops += assembly.fragments;
            return None;
        }
        assembly.touched = now;
        if !assembly.is_complete() {
            self.waiting += assembly.fragments;
            self.memory += assembly.memory();
            self.assemblies.insert(key, assembly);
            return None;
        }
        self.good += 1;
        let largest = assembly.largest;
        let mut whole = self.emit(assembly)?;
        whole.set_timestamp(timestamp);
        if let Some(at) = self.mtu_annotation {
            whole.notes_mut().set_u16(at, largest);
        }
        Some(whole)
    }

    /// Builds the packet, which counts as one of its fragments.
    fn emit(&mut self, assembly: Assembly) -> Option<Packet> {
        let fragments = assembly.fragments;
        let packet = assembly.emit();
        match packet {
            Some(_) => self.merged += fragments - 1,
            None => self.drops += fragments,
        }
        packet
    }

    /// The packet of a fragment, the fragment's offset in it, and whether more fragments follow; `None` if the
    /// fragment is inconsistent.
    fn place(&self, packet: &Packet) -> Option<(Key, usize, bool)> {
        let data = packet.network_data()?;
        let transport = Transport::of(data)?;
        let ip = Ipv4::of(data)?;
        let from = usize::from(ip.fragment_offset());
        let to = from + transport.length;
        let bad = to > 0xffff - transport.header
            || transport.length == 0
            || transport.more && transport.length % 8 != 0
            || transport.slice(data).is_none();
        let key = (transport.source, transport.destination, transport.protocol, ip.identification.get());
        (!bad).then_some((key, from, transport.more))
    }

    /// Drops incomplete packets that have expired.
    fn reap(&mut self, now: i64, cx: &mut Context<'_>) {
        self.next_reap = Some(now.saturating_add(INTERVAL));
        let old: Vec<Key> = self
            .assemblies
            .iter()
            .filter(|(_, assembly)| assembly.touched.saturating_add(TIMEOUT) < now)
            .map(|(key, _)| key)
            .collect();
        for key in old {
            let Some(assembly) = self.assemblies.remove(key) else { continue };
            self.memory = self.memory.saturating_sub(assembly.memory());
            self.failed += 1;
            self.waiting -= assembly.fragments;
            if cx.noutputs() < 2 {
                self.drops += assembly.fragments;
            } else if let Some(packet) = self.emit(assembly) {
                cx.push(1, packet);
            }
        }
    }

    /// Drops the oldest incomplete packets until at most three quarters of the memory are in use.
    fn shrink(&mut self) {
        let mut ages: Vec<(i64, Key)> =
            self.assemblies.iter().map(|(key, assembly)| (assembly.touched, key)).collect();
        sort::by_number(&mut ages, |(touched, _)| *touched as u64 ^ 1 << 63);
        for (_, key) in ages {
            if self.memory <= self.most as usize / 4 * 3 {
                return;
            }
            if let Some(assembly) = self.assemblies.remove(key) {
                self.memory = self.memory.saturating_sub(assembly.memory());
                self.failed += 1;
                self.waiting -= assembly.fragments;
                self.drops += assembly.fragments;
            }
        }
    }

    fn dump(&self) -> String {
        let Self { seen, good, failed, bad, .. } = self;
        let mut text = format!(
            "frags seen total:    {seen}\ngood reassemblies:   {good}\nfailed reassemblies: {failed}\n\
             bad fragments seen:  {bad}\ncached chunk data:\n"
        );
        for ((source, destination, protocol, id), assembly) in self.assemblies.iter() {
            let (source, destination) = (Ipv4Addr::from(source), Ipv4Addr::from(destination));
            let _ = write!(text, " ({source}, {destination}, {protocol:?}) {id}");
            for (from, to) in &assembly.ranges {
                let _ = write!(text, " ({from},{to})");
            }
            text.push('\n');
        }
        text
    }
}

/// The timestamp of a packet on the steady clock: packets of a capture age by its time, and neither a standstill of the
/// program nor a change of the time of day lets one expire.
fn steady_time(packet: &Packet, cx: &mut Context<'_>) -> i64 {
    let offset = cx.now().wrapping_sub(cx.steady());
    packet.timestamp().wrapping_sub(offset) as i64
}

/// Copies a fragment's payload to its offset. Returns false, and the packet is dropped, if the fragment contradicts
/// others.
fn fill(assembly: &mut Assembly, packet: Packet, from: usize, more: bool) -> bool {
    let data = packet.network_data().unwrap_or_default();
    let Some(payload) = Transport::of(data).and_then(|transport| transport.slice(data)) else { return false };
    let to = from + payload.len();
    if assembly.total.is_some_and(|total| to > total || !more && to != total) {
        return false;
    }
    if !more {
        if assembly.ranges.last().is_some_and(|(_, end)| *end > to) {
            return false;
        }
        assembly.total = Some(to);
    }
    if assembly.payload.len() < to {
        assembly.payload.resize(to, 0);
    }
    assembly.payload[from..to].copy_from_slice(payload);
    assembly.largest = assembly.largest.max(Ipv4::padded(data).total_length.get());
    if from == 0 {
        assembly.head = Some(packet);
    }
    assembly.cover(from, to)
}
