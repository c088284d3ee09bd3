//! Fragments that wait for the fragment with their ports.
use alloc::collections::VecDeque;
use ringway_click::{OrderedMap, Packet};
use ringway_wire::{Header, Ipv4, Protocol};

/// Maximum number of waiting packets. Attack: fragments without a first one.
const MOST_HELD: usize = 4096;
/// Maximum number of datagrams remembered. Attack: first fragments without others.
const MOST_KNOWN: usize = 1 << 16;

/// The annotations that a packet gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) aggregate: u32,
    pub(super) paint: u8,
}

/// The key of a datagram: source, destination, protocol, identification (RFC 791, 3.2).
type Datagram = (u32, u32, Protocol, u16);

/// Receives packets to emit, each with its tag if it has one.
pub(super) type Out<'a> = &'a mut dyn FnMut(Option<Tag>, Packet);

#[derive(Debug)]
struct Held {
    packet: Packet,
    datagram: Datagram,
    tag: Option<Tag>,
}

/// Waiting packets, by pairs of addresses.
#[derive(Debug)]
pub(super) struct Fragments {
    timeout: u64,
    held: OrderedMap<(u32, u32), VecDeque<Held>>,
    count: usize,
    known: OrderedMap<Datagram, (Tag, u64)>,
    check_at: u64,
}

fn datagram(packet: &Packet) -> Datagram {
    let ip = Ipv4::padded(packet.network_data().unwrap_or_default());
    (ip.source.get(), ip.destination.get(), ip.protocol, ip.identification.get())
}

/// Emits packets from the front of a queue that have a tag or arrived before `until`; returns their number.
fn release(queue: &mut VecDeque<Held>, until: u64, out: Out<'_>) -> usize {
    let mut released = 0;
    while let Some(first) = queue.pop_front() {
        if first.tag.is_none() && first.packet.timestamp() >= until {
            queue.push_front(first);
            break;
        }
        released += 1;
        out(first.tag, first.packet);
    }
    released
}

impl Fragments {
    /// An empty set, whose packets wait for up to `timeout` nanoseconds.
    pub(super) fn new(timeout: u64) -> Self {
        Self { timeout, held: OrderedMap::new(), count: 0, known: OrderedMap::new(), check_at: 0 }
    }

    /// Takes over the packets of another set.
    pub(super) fn take(&mut self, from: &mut Self) {
        *self = core::mem::replace(from, Self::new(from.timeout)).with_timeout(self.timeout);
    }

    fn with_timeout(self, timeout: u64) -> Self {
        Self { timeout, ..self }
    }

    /// Number of waiting packets.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Takes a packet with a tag; a first fragment passes its tag on to the other fragments.
    pub(super) fn tagged(&mut self, packet: Packet, tag: Tag, out: Out<'_>) {
        let datagram = datagram(&packet);
        let more = packet.network_data().is_some_and(|ip| Ipv4::padded(ip).more_fragments());
        if more && self.known.len() < MOST_KNOWN {
            self.known.insert(datagram, (tag, packet.timestamp()));
        }
        let pair = (datagram.0.min(datagram.1), datagram.0.max(datagram.1));
        let Some(queue) = self.held.get_mut(pair) else { return out(Some(tag), packet) };
        let same = |held: &&mut Held| held.tag.is_none() && held.datagram == datagram;
        queue.iter_mut().filter(same).for_each(|held| held.tag = Some(tag));
        queue.push_back(Held { packet, datagram, tag: Some(tag) });
        self.count += 1;
        self.settle(pair, out);
    }

    /// Takes a fragment without ports.
    pub(super) fn untagged(&mut self, packet: Packet, out: Out<'_>) {
        let datagram = datagram(&packet);
        let pair = (datagram.0.min(datagram.1), datagram.0.max(datagram.1));
        let tag = self.known.get(datagram).map(|(tag, _)| *tag);
        if tag.is_some() && !self.held.contains_key(pair) {
            return out(tag, packet);
        }
        self.held.or_insert_with(pair, VecDeque::new).push_back(Held { packet, datagram, tag });
        self.count += 1;
        self.settle(pair, out);
    }

    /// Emits packets between two addresses that need not wait any longer; all of them if too many wait.
    fn settle(&mut self, pair: (u32, u32), out: Out<'_>) {
        let until = if self.count > MOST_HELD { u64::MAX } else { 0 };
        let Some(queue) = self.held.get_mut(pair) else { return };
        self.count -= release(queue, until, out);
        if queue.is_empty() {
            self.held.remove(pair);
        }
    }

    /// Emits packets whose timeout has expired.
    pub(super) fn expire(&mut self, now: u64, out: Out<'_>) {
        if now < self.check_at || (self.count == 0 && self.known.is_empty()) {
            return;
        }
        self.check_at = now.saturating_add(self.timeout / 8);
        self.release_all(now.saturating_sub(self.timeout), out);
    }

    /// Emits everything.
    pub(super) fn clear(&mut self, out: Out<'_>) {
        self.release_all(u64::MAX, out);
    }

    fn release_all(&mut self, until: u64, out: Out<'_>) {
        self.known.retain(|_, (_, seen)| *seen >= until);
        let count = &mut self.count;
        self.held.retain(|_, queue| {
            *count -= release(queue, until, out);
            !queue.is_empty()
        });
    }
}
