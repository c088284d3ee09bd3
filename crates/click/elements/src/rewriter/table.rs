//! Flows of one or more rewriters: looked up by the keys of both directions, limited in number, with eviction of the
//! least useful.
//!
//! The table grows without a pause: flows are in blocks that never move, and [`Buckets`] move gradually. Expiry times
//! are in two heaps, for guaranteed flows and for others; an expiry time that was only postponed is corrected when it
//! reaches the top.
use super::key::FlowKey;
use super::sequence::Shifts;
use crate::flow::blocks::Blocks;
use crate::flow::buckets::{Buckets, MOVES};
use ringway_click::prelude::*;
use ringway_frame::prefetch;

/// Maximum number of flows. Attack: a configuration or a stream of new flows that exhausts memory.
pub const LARGEST: u32 = 1 << 24;
/// Flows examined to find one to evict. Attack: packets of all flows, then a new one, which would cause every flow to
/// be moved within the heap first.
const MAX_EXAMINED: u32 = 64;
/// Flows examined to find one to evict while many flows are removed.
const HASTE: u32 = 8;
/// Default number of flows.
pub const USUAL: u32 = 1 << 22;

/// The state tracked for a flow, which also selects its timeouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tracking {
    /// The time it was last seen.
    #[default]
    Plain,
    /// Data, and the end of the connection, in both directions.
    Tcp,
    /// Whether the flow is a stream.
    Udp,
}

/// Timeouts in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeouts {
    /// Time that a flow is guaranteed to be kept after a packet; 0 for no guarantee.
    pub guarantee: u64,
    /// Timeout of all other flows.
    pub idle: u64,
    /// For TCP connections with data in both directions, and UDP streams.
    pub busy: u64,
    /// Timeout of TCP connections that have ended.
    pub done: u64,
}

/// An input of a rewriter.
#[derive(Clone, Debug)]
pub struct Owner {
    /// Number of its flows.
    pub count: u32,
    /// Its input number.
    pub input: usize,
    /// Changes with its pattern; flows of an earlier epoch are removed.
    pub epoch: u8,
    /// Indexed by tracking.
    pub timeouts: [Timeouts; 3],
}

impl Owner {
    /// Marks its flows for removal.
    fn renew(&mut self) {
        (self.count, self.epoch) = (0, self.epoch.wrapping_add(1));
    }
}

/// One flow and its reply, on one cache line: a packet reads nothing else of it.
#[derive(Clone, Debug, Default)]
#[repr(align(64))]
pub struct Flow {
    /// Keys of incoming packets of the flow and of its reply.
    pub keys: [FlowKey; 2],
    /// The map that holds both keys.
    pub map: u16,
    pub(super) next: [u32; 2],
    /// The input that added it, and the epoch of the input's pattern.
    pub owner: u16,
    pub(super) epoch: u8,
    /// Outputs for packets of the flow and of its reply.
    pub outputs: [u16; 2],
    /// Tracking, whether it is guaranteed, whether it is live.
    pub(super) state: State,
    /// TCP: ended in either direction, data in either direction. UDP: a reply was seen, packets times two.
    pub flags: u8,
    /// The annotation set on replies.
    pub reply_note: u8,
    /// The time from which it may be removed, on the steady clock. Its entry in the heap has no later time.
    pub expiry: u64,
    pub(super) place: u32,
    /// Shifts of sequence numbers.
    pub shifts: Option<Box<Shifts>>,
}

const _: () = assert!(size_of::<Flow>() == 64);

/// Properties of a flow, in one byte.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct State(u8);

const TRACKING: u8 = 3;
const TCP: u8 = Tracking::Tcp as u8;
const UDP: u8 = Tracking::Udp as u8;
const GUARANTEED: u8 = 4;
const LIVE: u8 = 8;

impl Flow {
    /// Sets the tracked state, and whether its expiry is guaranteed.
    #[must_use]
    pub fn tracked(self, tracking: Tracking, guaranteed: bool) -> Self {
        let state = tracking as u8 | if guaranteed { GUARANTEED } else { 0 };
        Self { state: State(state), ..self }
    }

    /// The tracked state.
    #[inline]
    pub fn tracking(&self) -> Tracking {
        match self.state.0 & TRACKING {
            TCP => Tracking::Tcp,
            UDP => Tracking::Udp,
            _ => Tracking::Plain,
        }
    }

    /// Whether the flow's expiry is guaranteed.
    #[inline]
    pub fn is_guaranteed(&self) -> bool {
        self.state.0 & GUARANTEED != 0
    }

    #[inline]
    fn guarantee(&mut self, guaranteed: bool) {
        self.state.0 = self.state.0 & !GUARANTEED | if guaranteed { GUARANTEED } else { 0 };
    }

    #[inline]
    fn is_live(&self) -> bool {
        self.state.0 & LIVE != 0
    }

    /// The key to which packets of a direction are rewritten.
    #[inline]
    pub fn rewritten(&self, reply: bool) -> FlowKey {
        self.keys[usize::from(!reply)].reverse()
    }
}

impl Timeouts {
    /// The timeout of a flow in its present state.
    #[inline]
    pub fn of(&self, flow: &Flow) -> u64 {
        match flow.tracking() {
            Tracking::Tcp if flow.flags & 3 == 3 => self.done,
            Tracking::Tcp if flow.flags & 12 == 12 => self.busy,
            Tracking::Udp if flow.flags > 6 => self.busy,
            _ => self.idle,
        }
    }
}

/// Flows.
#[derive(Debug)]
pub struct FlowSet {
    flows: Blocks<Flow>,
    live: u32,
    seed: u64,
    /// Chains of entries; an entry is 2 * flow number + direction + 1, or 0 at the end of a chain.
    buckets: Buckets,
    /// Expiry and flow number; one heap for best-effort flows, one for guaranteed ones.
    heaps: [Vec<(u64, u32)>; 2],
    /// Maximum number of flows.
    pub capacity: u32,
    /// Flows evicted to make room for others.
    pub evictions: u64,
    /// Inputs.
    pub owners: Vec<Owner>,
    maps: u16,
    /// The first slot that may hold a flow marked for removal.
    old: u32,
}

/// The timeouts of a flow, which its owner has.
#[inline]
fn timeouts_of<'a>(owners: &'a [Owner], flow: &Flow) -> Option<&'a Timeouts> {
    owners.get(usize::from(flow.owner)).map(|owner| &owner.timeouts[flow.tracking() as usize])
}

impl FlowSet {
    /// An empty set.
    pub fn new(capacity: u32, seed: u64) -> Self {
        Self {
            flows: Blocks::default(),
            live: 0,
            seed,
            buckets: Buckets::default(),
            heaps: [Vec::new(), Vec::new()],
            capacity: capacity.min(LARGEST),
            evictions: 0,
            owners: Vec::new(),
            maps: 0,
            old: 0,
        }
    }

    /// Allocates maps; `None` if there are too many.
    pub fn new_maps(&mut self) -> Option<[u16; 2]> {
        self.maps = self.maps.checked_add(2)?;
        Some([self.maps - 1, self.maps])
    }

    /// Adds an input; returns its number. `None` if there are too many.
    pub fn new_owner(&mut self, owner: Owner) -> Option<u16> {
        let number = u16::try_from(self.owners.len()).ok()?;
        self.owners.push(owner);
        Some(number)
    }

    /// Number of flows.
    pub fn len(&self) -> u32 {
        self.live
    }

    /// A flow.
    pub fn get(&self, flow: u32) -> Option<&Flow> {
        self.flows.get(flow).filter(|flow| flow.is_live())
    }

    /// A flow, mutably.
    #[inline]
    pub fn get_mut(&mut self, flow: u32) -> Option<&mut Flow> {
        self.flows.get_mut(flow).filter(|flow| flow.is_live())
    }

    #[inline]
    fn at(&mut self, flow: u32) -> &mut Flow {
        &mut self.flows[flow]
    }

    /// Flows in up to `places` slots from `from` on, and the slot to continue from, if any remain.
    pub fn some(&self, from: u32, places: usize) -> (impl Iterator<Item = &Flow>, Option<u32>) {
        let end = from.saturating_add(places as u32);
        let flows = (from..end).map_while(|number| self.flows.get(number));
        (
            flows.filter(|flow| flow.is_live() && self.is_fresh(flow)),
            Some(end).filter(|end| (*end as usize) < self.flows.len()),
        )
    }

    /// All flows.
    #[cfg(test)]
    pub fn iter(&self) -> impl Iterator<Item = &Flow> {
        self.flows.iter().filter(|flow| flow.is_live())
    }

    /// The flow to which a packet of a map belongs, and whether the packet is a reply.
    #[inline]
    pub fn find(&self, map: u16, key: FlowKey) -> Option<(u32, bool)> {
        self.find_hashed(map, key, key.hash(map.into(), self.seed))
    }

    /// [`FlowSet::find`] with the key's hash already computed.
    #[inline]
    pub fn find_hashed(&self, map: u16, key: FlowKey, hash: u64) -> Option<(u32, bool)> {
        let mut entry = *self.buckets.get(hash);
        while entry != 0 {
            let (flow, number, way) = self.entry(entry);
            if flow.keys[way] == key && flow.map == map && self.is_fresh(flow) {
                return Some((number, way == 1));
            }
            entry = flow.next[way];
        }
        None
    }

    /// The flow of a chain entry, its number and direction.
    #[inline]
    fn entry(&self, entry: u32) -> (&Flow, u32, usize) {
        let (number, way) = ((entry - 1) / 2, (entry - 1) as usize % 2);
        (&self.flows[number], number, way)
    }

    /// Computes a key's hash and prefetches its bucket. A burst calls this for all its packets, then
    /// [`FlowSet::near`], and then looks up the keys.
    #[inline]
    pub fn approach(&self, map: u16, key: FlowKey) -> u64 {
        let hash = key.hash(map.into(), self.seed);
        prefetch(self.buckets.get(hash));
        hash
    }

    /// Prefetches the first flow of a bucket.
    #[inline]
    pub fn near(&self, hash: u64) {
        let entry = *self.buckets.get(hash);
        if entry != 0 {
            prefetch(self.entry(entry).0);
        }
    }

    /// Prefetches the second flow of a bucket, unless the first has the key.
    #[inline]
    pub fn nearer(&self, map: u16, key: FlowKey, hash: u64) {
        let entry = *self.buckets.get(hash);
        if entry != 0 {
            let (flow, _, way) = self.entry(entry);
            let next = flow.next[way];
            if next != 0 && (flow.keys[way] != key || flow.map != map) {
                prefetch(self.entry(next).0);
            }
        }
    }

    fn link(&mut self, number: u32, way: usize) {
        let seed = self.seed;
        let flow = self.at(number);
        let hash = flow.keys[way].hash(flow.map.into(), seed);
        let head = self.buckets.get_mut(hash);
        let next = core::mem::replace(head, number * 2 + way as u32 + 1);
        self.at(number).next[way] = next;
    }

    fn unlink(&mut self, number: u32, way: usize) {
        let seed = self.seed;
        let flow = self.at(number);
        let next = flow.next[way];
        let hash = flow.keys[way].hash(flow.map.into(), seed);
        let own = number * 2 + way as u32 + 1;
        let head = self.buckets.get_mut(hash);
        if *head == own {
            *head = next;
            return;
        }
        let mut entry = *head;
        while entry != 0 {
            let (before, its_way) = ((entry - 1) / 2, (entry - 1) as usize % 2);
            let flow = self.at(before);
            entry = flow.next[its_way];
            if entry == own {
                flow.next[its_way] = next;
                return;
            }
        }
    }

    /// Hashes all keys by another seed, which takes as long as there are flows.
    pub fn reseed(&mut self, seed: u64) {
        self.seed = seed;
        self.buckets.clear();
        for number in 0..self.flows.len() as u32 {
            let flow = &self.flows[number];
            if !flow.is_live() {
                continue;
            }
            if flow.keys[0] != flow.keys[1] {
                self.link(number, 0);
            }
            self.link(number, 1);
        }
    }

    /// Moves a few old buckets, or allocates more if there are too few.
    fn grow(&mut self) {
        for _ in 0..MOVES {
            let Some(mut entry) = self.buckets.next_old() else { break };
            while entry != 0 {
                let (number, way) = ((entry - 1) / 2, (entry - 1) as usize % 2);
                entry = self.at(number).next[way];
                self.link(number, way);
            }
        }
        self.buckets.provide(self.live as usize * 4);
    }

    /// Adds a flow. If the set is full, evicts the best-effort flow that expires first; `None` if that is the new
    /// flow.
    pub fn add(&mut self, flow: Flow, now: u64) -> Option<u32> {
        let number = self.flows.take();
        let (owner, guaranteed, expiry) = (flow.owner, flow.is_guaranteed(), flow.expiry);
        let (map, reply, same) = (flow.map, flow.keys[1], flow.keys[0] == flow.keys[1]);
        if let Some((other, _)) = self.find(map, reply) {
            self.forget(other);
        }
        let epoch = self.owners.get(usize::from(owner)).map_or(0, |owner| owner.epoch);
        let state = State(flow.state.0 | LIVE);
        *self.at(number) = Flow { state, epoch, ..flow };
        self.live += 1;
        // A flow with equal keys: its packets count as replies, except the first.
        if !same {
            self.link(number, 0);
        }
        self.link(number, 1);
        self.push(usize::from(guaranteed), expiry, number);
        if let Some(owner) = self.owners.get_mut(usize::from(owner)) {
            owner.count += 1;
        }
        self.grow();
        if self.live > self.capacity && self.make_room(number, now) == number {
            return None;
        }
        Some(number)
    }

    /// Evicts a flow, the newest if all others are guaranteed; returns its number.
    fn make_room(&mut self, newest: u32, now: u64) -> u32 {
        if let Some(old) = self.next_old() {
            self.forget(old);
            return old;
        }
        let mut budget = MAX_EXAMINED;
        self.end_guarantees(now, &mut budget);
        let victim = self.top(0, &mut budget).map_or(newest, |(_, number)| number);
        self.evictions += u64::from(victim != newest);
        self.forget(victim);
        victim
    }

    /// A flow marked for removal, if there is one in the next slots. While a full table is cleared, each new flow
    /// takes the place of one, which takes a fraction of the time of finding the flow that expires first.
    fn next_old(&mut self) -> Option<u32> {
        let fresh: u32 = self.owners.iter().map(|owner| owner.count).sum();
        let slots = if fresh < self.live { self.old..self.old.saturating_add(MAX_EXAMINED) } else { 0..0 };
        for number in slots {
            let flow = self.flows.get(number)?;
            if flow.is_live() && !self.is_fresh(flow) {
                return Some(number);
            }
            self.old = number + 1;
        }
        None
    }

    /// Moves flows whose guarantee has expired to the best-effort heap.
    fn end_guarantees(&mut self, now: u64, budget: &mut u32) {
        while let Some(number) = self.expired(1, now, budget) {
            let timeouts = self.timeouts(number);
            let flow = self.at(number);
            let expiry = flow.expiry.saturating_add(timeouts.of(flow)).saturating_sub(timeouts.guarantee);
            self.set_expiry(number, false, expiry);
        }
    }

    /// An expired flow of a heap.
    fn expired(&mut self, heap: usize, now: u64, budget: &mut u32) -> Option<u32> {
        while *budget > 0 {
            let (listed, number) = *self.heaps[heap].first()?;
            if listed > now {
                return None;
            }
            *budget -= 1;
            let expiry = self.at(number).expiry;
            if expiry == listed {
                return Some(number);
            }
            self.relist(heap, expiry);
        }
        None
    }

    /// Moves the first entry of a heap to the place of its expiry.
    fn relist(&mut self, heap: usize, expiry: u64) {
        self.heaps[heap][0].0 = expiry;
        self.down(heap, 0);
    }

    fn timeouts(&self, number: u32) -> Timeouts {
        timeouts_of(&self.owners, &self.flows[number]).copied().unwrap_or_default()
    }

    /// Removes expired flows, and further ones while there are more than `capacity`, in about `most` steps at most.
    /// Returns whether it finished.
    pub fn shrink(&mut self, now: u64, capacity: u32, most: u32) -> bool {
        let mut budget = most;
        self.end_guarantees(now, &mut budget);
        while let Some(number) = self.expired(0, now, &mut budget) {
            self.forget(number);
        }
        while budget > 0 && self.live > capacity {
            let mut some = budget.min(HASTE);
            budget -= some;
            let Some((_, number)) = self.top(0, &mut some).or_else(|| self.top(1, &mut some)) else { break };
            budget += some.saturating_sub(1);
            self.evictions += 1;
            self.forget(number);
        }
        budget > 0
    }

    /// Marks all flows for removal; lookups no longer find them.
    pub fn renew_all(&mut self) {
        self.owners.iter_mut().for_each(Owner::renew);
        self.old = 0;
    }

    /// Marks the flows of an owner for removal; lookups no longer find them.
    pub fn renew_owner(&mut self, owner: u16) {
        if let Some(owner) = self.owners.get_mut(usize::from(owner)) {
            owner.renew();
            self.old = 0;
        }
    }

    fn is_fresh(&self, flow: &Flow) -> bool {
        self.owners.get(usize::from(flow.owner)).is_none_or(|owner| owner.epoch == flow.epoch)
    }

    /// Removes flows marked for removal in up to `places` slots from `from` on. Returns the slot to continue from, if
    /// any remain.
    pub fn forget_old(&mut self, from: u32, places: u32) -> Option<u32> {
        let end = from.saturating_add(places);
        for number in from..end {
            let flow = self.flows.get(number)?;
            if flow.is_live() && !self.is_fresh(flow) {
                self.forget(number);
            }
        }
        if from <= self.old {
            self.old = self.old.max(end);
        }
        Some(end)
    }

    /// Frees part of the memory; the set must not be used afterwards. Returns whether all of it is free.
    pub fn give_up(&mut self) -> bool {
        self.flows.give_up()
    }

    /// Calls `change` on the flow of a packet that arrives now, and postpones the flow's expiry.
    #[inline]
    pub fn pass<R>(&mut self, number: u32, now: u64, change: impl FnOnce(&mut Flow) -> R) -> Option<R> {
        let flow = self.flows.get_mut(number).filter(|flow| flow.is_live())?;
        let result = change(flow);
        let timeouts = timeouts_of(&self.owners, flow);
        let (guarantee, timeout) =
            timeouts.map_or((0, 0), |timeouts| (timeouts.guarantee, timeouts.of(flow)));
        let guaranteed = guarantee > 0;
        let expiry = now.saturating_add(if guaranteed { guarantee } else { timeout });
        if guaranteed == flow.is_guaranteed() && expiry >= flow.expiry {
            flow.expiry = expiry;
        } else {
            self.set_expiry(number, guaranteed, expiry);
        }
        Some(result)
    }

    /// Updates a flow's expiry after a packet.
    #[cfg(test)]
    fn touch(&mut self, number: u32, now: u64) {
        self.pass(number, now, |_| ());
    }

    /// The time at which a flow may be removed if no further packet arrives.
    pub fn last_expiry(&self, flow: &Flow) -> u64 {
        if !flow.is_guaranteed() {
            return flow.expiry;
        }
        let timeouts = timeouts_of(&self.owners, flow).copied().unwrap_or_default();
        flow.expiry.saturating_add(timeouts.of(flow)).saturating_sub(timeouts.guarantee)
    }

    fn set_expiry(&mut self, number: u32, guaranteed: bool, expiry: u64) {
        let flow = self.at(number);
        let (place, was) = (flow.place as usize, flow.is_guaranteed());
        flow.expiry = expiry;
        flow.guarantee(guaranteed);
        if was != guaranteed {
            self.remove_from_heap(usize::from(was), place);
            self.push(usize::from(guaranteed), expiry, number);
            return;
        }
        let heap = usize::from(guaranteed);
        if let Some(item) = self.heaps[heap].get_mut(place).filter(|item| expiry < item.0) {
            item.0 = expiry;
            self.up(heap, place);
        }
    }

    /// Removes a flow.
    pub fn forget(&mut self, number: u32) {
        let Some(flow) = self.get_mut(number) else { return };
        let (heap, place) = (usize::from(flow.is_guaranteed()), flow.place as usize);
        let (owner, epoch) = (flow.owner, flow.epoch);
        let same = flow.keys[0] == flow.keys[1];
        if !same {
            self.unlink(number, 0);
        }
        self.unlink(number, 1);
        self.remove_from_heap(heap, place);
        self.flows.free(number);
        self.live -= 1;
        if let Some(owner) = self.owners.get_mut(usize::from(owner)).filter(|owner| owner.epoch == epoch) {
            owner.count = owner.count.saturating_sub(1);
        }
    }

    fn push(&mut self, heap: usize, expiry: u64, number: u32) {
        self.heaps[heap].push((expiry, number));
        let place = self.heaps[heap].len() - 1;
        self.at(number).place = place as u32;
        self.up(heap, place);
    }

    fn remove_from_heap(&mut self, heap: usize, place: usize) {
        if place >= self.heaps[heap].len() {
            return;
        }
        self.heaps[heap].swap_remove(place);
        if let Some((_, number)) = self.heaps[heap].get(place).copied() {
            self.at(number).place = place as u32;
            self.down(heap, place);
            let place = self.at(number).place as usize;
            self.up(heap, place);
        }
    }

    /// The flow of a heap that expires first; once `budget` is used up, the first among those examined.
    fn top(&mut self, heap: usize, budget: &mut u32) -> Option<(u64, u32)> {
        let mut best: Option<(u64, u32)> = None;
        loop {
            let (listed, number) = *self.heaps[heap].first()?;
            let expiry = self.at(number).expiry;
            if expiry == listed {
                return Some((expiry, number));
            }
            best = Some(best.map_or((expiry, number), |best| best.min((expiry, number))));
            if *budget == 0 {
                return best;
            }
            *budget -= 1;
            self.relist(heap, expiry);
        }
    }

    fn swap(&mut self, heap: usize, first: usize, second: usize) {
        self.heaps[heap].swap(first, second);
        for place in [first, second] {
            let number = self.heaps[heap][place].1;
            self.at(number).place = place as u32;
        }
    }

    fn up(&mut self, heap: usize, mut place: usize) {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heaps[heap][above].0 <= self.heaps[heap][place].0 {
                break;
            }
            self.swap(heap, above, place);
            place = above;
        }
    }

    fn down(&mut self, heap: usize, mut place: usize) {
        loop {
            let below = [2 * place + 1, 2 * place + 2].into_iter();
            let items = &self.heaps[heap];
            let below = below.filter(|below| *below < items.len()).min_by_key(|below| items[*below].0);
            let Some(below) = below.filter(|below| items[*below].0 < items[place].0) else { break };
            self.swap(heap, below, place);
            place = below;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u32) -> FlowKey {
        FlowKey { source: number, source_port: 1, destination: 9, destination_port: 2 }
    }

    fn set(capacity: u32, guarantee: u64) -> FlowSet {
        let mut set = FlowSet::new(capacity, 7);
        let timeouts = Timeouts { guarantee, idle: 100, busy: 1000, done: 10 };
        set.owners.push(Owner { count: 0, input: 0, epoch: 0, timeouts: [timeouts; 3] });
        set
    }

    fn add(set: &mut FlowSet, number: u32, guaranteed: bool, now: u64) -> Option<u32> {
        let keys = [key(number), key(number + (1 << 31)).reverse()];
        let expiry = now + if guaranteed { 5 } else { 100 };
        set.add(Flow { keys, expiry, ..Flow::default() }.tracked(Tracking::Plain, guaranteed), now)
    }

    #[test]
    fn flows_are_found_while_the_table_grows() {
        let mut set = set(u32::MAX, 0);
        for number in 0..5000 {
            let flow = add(&mut set, number, false, number.into()).unwrap();
            assert_eq!(set.find(0, key(number)), Some((flow, false)));
            assert_eq!(set.find(0, key(number / 2)), set.find(0, key(number / 2)));
            assert!(set.find(0, key(number / 3)).is_some(), "{number}");
        }
        set.reseed(9);
        for number in (0..5000).step_by(2) {
            let (flow, _) = set.find(0, key(number)).unwrap();
            set.forget(flow);
        }
        for number in 0..5000 {
            assert_eq!(set.find(0, key(number)).is_some(), number % 2 == 1);
            let reply = key(number + (1 << 31)).reverse();
            assert_eq!(set.find(0, reply).is_some_and(|(_, reply)| reply), number % 2 == 1);
        }
        assert_eq!((set.len(), set.owners[0].count), (2500, 2500));
    }

    #[test]
    fn the_flow_that_expires_first_is_evicted() {
        let mut set = set(3, 0);
        for number in 0..3 {
            add(&mut set, number, false, number.into()).unwrap();
        }
        let (oldest, _) = set.find(0, key(0)).unwrap();
        set.touch(oldest, 50);
        assert!(add(&mut set, 3, false, 51).is_some());
        assert_eq!(set.find(0, key(1)), None);
        assert!(set.find(0, key(0)).is_some());
        assert_eq!((set.len(), set.evictions), (3, 1));
    }

    #[test]
    fn flows_marked_for_removal_make_room_first() {
        let mut set = set(100, 0);
        for number in 0..100 {
            let flow = add(&mut set, number, false, 0).unwrap();
            set.touch(flow, 50);
        }
        set.renew_all();
        assert_eq!(set.forget_old(0, 10), Some(10));
        for number in 100..200 {
            assert!(add(&mut set, number, false, 60).is_some());
        }
        assert_eq!((set.len(), set.evictions, set.owners[0].count), (100, 0, 100));
        assert!((100..200).all(|number| set.find(0, key(number)).is_some()));
        // All are in use again.
        assert!(add(&mut set, 200, false, 60).is_some());
        assert_eq!((set.len(), set.evictions), (100, 1));
    }

    #[test]
    fn all_owners_are_renewed() {
        let mut set = set(1, 0);
        let owner = set.owners[0].clone();
        while set.new_owner(owner.clone()).is_some() {}
        set.renew_all();
        assert!(set.owners.len() == 1 << 16 && set.owners.iter().all(|owner| owner.epoch == 1));
    }

    #[test]
    fn reserved_capacity_is_available() {
        let mut set = set(2, 5);
        add(&mut set, 0, true, 0).unwrap();
        add(&mut set, 1, true, 1).unwrap();
        assert_eq!(add(&mut set, 2, true, 4), None);
        assert!(add(&mut set, 3, true, 6).is_some());
        assert_eq!(set.find(0, key(0)), None);
        assert!(!set.shrink(2000, u32::MAX, 1));
        assert!(set.shrink(2000, u32::MAX, u32::MAX));
        assert_eq!(set.len(), 0);
    }

    proptest::proptest! {
        #[test]
        fn the_flow_set_stays_consistent(steps in proptest::collection::vec((0u8..4, 0u32..40), 0..300)) {
            let mut set = set(20, 5);
            for (now, (step, number)) in steps.into_iter().enumerate() {
                let now = now as u64;
                let found = set.find(0, key(number));
                match (step, found) {
                    (0 | 1, None) => drop(add(&mut set, number, step == 0, now)),
                    (2, Some((flow, _))) => set.forget(flow),
                    (_, Some((flow, _))) => set.touch(flow, now),
                    _ => drop(set.shrink(now, 20, u32::MAX)),
                }
                assert!(set.len() <= 20);
                assert_eq!(set.heaps[0].len() + set.heaps[1].len(), set.len() as usize);
                assert_eq!(set.iter().count(), set.len() as usize);
                for flow in set.iter() {
                    assert!(set.find(0, flow.keys[0]).is_some() && set.find(0, flow.keys[1]).is_some());
                    let number = set.find(0, flow.keys[0]).unwrap().0;
                    let listed = set.heaps[usize::from(flow.is_guaranteed())][flow.place as usize];
                    assert!(listed.1 == number && listed.0 <= flow.expiry);
                }
            }
        }
    }
}
