//! Distributes flows over the instances of a function, so that each flow keeps its instance.
//!
//! A flow's first frame chooses the instance: that of the flow's bucket, or one with less to do. A table remembers it,
//! for both directions, until the flow is idle. So instances come and go without moving flows. Frames that an instance
//! sends are remembered, too: answers to addresses that it translated reach it.
//!
//! Workers share the state without locks; every entry is one atomic word.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Most instances of a function.
pub const INSTANCES: usize = ringway_spec::MOST_INSTANCES as usize;
/// Entries of a set, one cache line.
const WAYS: usize = 8;
/// Buckets, by which flows without an entry find their instance.
const BUCKETS: usize = 256;
/// Nanoseconds of a tick of the table's clock, as a power of two: 1.07 s.
const TICK: u32 = 30;
/// Largest number of remembered flows. Attack: a function with a table that takes all memory.
const FLOWS: u32 = 1 << 24;

/// A time in ticks, never 0, which repeats after 19 hours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick(u16);

impl Tick {
    /// The tick at `now`, in nanoseconds.
    #[inline]
    pub fn at(now: u64) -> Tick {
        Tick(((now >> TICK) % u64::from(u16::MAX)) as u16 + 1)
    }

    /// Ticks since `earlier`, rounded up.
    #[inline]
    fn since(self, earlier: u16) -> u32 {
        let (now, then) = (u32::from(self.0), u32::from(earlier));
        if now >= then { now - then } else { now + u32::from(u16::MAX) - then }
    }
}

/// Entries of flows: 40 bits of the key, 8 of the instance, 16 of the tick of the last frame; 0 if it has none.
#[repr(align(64))]
#[derive(Default)]
struct Set([AtomicU64; WAYS]);

/// An entry's key.
const TAG: u64 = !0xff_ffff;

#[inline]
fn entry(key: u64, instance: usize, now: Tick) -> u64 {
    key & TAG | (instance as u64 & 0xff) << 16 | u64::from(now.0)
}

#[inline]
fn instance_of(entry: u64) -> usize {
    (entry >> 16 & 0xff) as usize
}

/// A bucket: the instance of its flows, the one that they shall have, and when a flow of it last found no room in the
/// table.
#[derive(Clone, Copy)]
struct Bucket {
    owner: u8,
    next: u8,
    crowded: u16,
}

impl Bucket {
    #[inline]
    fn of(word: u32) -> Bucket {
        let [owner, next, low, high] = word.to_le_bytes();
        Bucket { owner, next, crowded: u16::from_le_bytes([low, high]) }
    }

    #[inline]
    fn word(self) -> u32 {
        let [low, high] = self.crowded.to_le_bytes();
        u32::from_le_bytes([self.owner, self.next, low, high])
    }
}

/// The instances of a function, and the flows of each.
pub struct Spread {
    sets: Box<[Set]>,
    buckets: Box<[AtomicU32]>,
    /// Instances that get new flows, and above 16 bits all existing instances.
    masks: AtomicU32,
    /// Ticks after which a flow is forgotten.
    idle: u32,
    /// Ticks after which a bucket moves although not all its flows are known.
    drain: u32,
    /// The tick of the last change of the instances.
    changed: AtomicU32,
}

impl std::fmt::Debug for Spread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spread").field("flows", &self.room()).finish_non_exhaustive()
    }
}

fn ticks(nanoseconds: u64) -> u32 {
    // Half the time after which ticks repeat.
    ((nanoseconds >> TICK) as u32 + 1).min(u32::from(u16::MAX / 2))
}

impl Spread {
    /// Room for about `flows` flows, each forgotten after `idle` nanoseconds without frames. `drain`: nanoseconds after
    /// which a bucket moves to another instance at the latest.
    pub fn new(flows: u32, idle: u64, drain: u64) -> Spread {
        let sets = (flows.clamp(64, FLOWS) as usize / WAYS).next_power_of_two();
        Spread {
            sets: (0..sets).map(|_| Set::default()).collect(),
            buckets: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            masks: AtomicU32::new(1 << 16 | 1),
            idle: ticks(idle),
            drain: ticks(drain),
            changed: AtomicU32::new(0),
        }
    }

    /// Number of flows that can be remembered.
    pub fn room(&self) -> usize {
        self.sets.len() * WAYS
    }

    /// Instances that get new flows, as a mask.
    #[inline]
    pub fn open(&self) -> u32 {
        self.masks.load(Relaxed) & 0xffff
    }

    #[inline]
    fn set(&self, key: u64) -> &[AtomicU64; WAYS] {
        &self.sets[key as usize & (self.sets.len() - 1)].0
    }

    #[inline]
    fn bucket(&self, key: u64) -> &AtomicU32 {
        // Not the bits that choose the set.
        &self.buckets[(key >> 56) as usize % BUCKETS]
    }

    /// The instance of a frame to the function. `lighter` is called for a new flow: it may replace the instance by one
    /// that has less to do.
    #[inline]
    pub fn to(&self, key: u64, now: Tick, lighter: impl FnOnce(usize) -> usize) -> usize {
        let alive = self.masks.load(Relaxed) >> 16;
        let mut free = None;
        for way in self.set(key) {
            let found = way.load(Relaxed);
            let instance = instance_of(found);
            let is_live = found != 0 && alive >> instance & 1 != 0 && now.since(found as u16) <= self.idle;
            let is_own = found != 0 && (found ^ key) & TAG == 0;
            if is_own && is_live {
                if found as u16 != now.0 {
                    way.store(entry(key, instance, now), Relaxed);
                }
                return instance;
            }
            // An entry of an instance that is gone is replaced: it would count again once that instance came back.
            if !is_live && (is_own || free.is_none()) {
                free = Some(way);
            }
        }
        self.begin(key, now, free, lighter)
    }

    /// As [`Spread::to`], without a change of what is known.
    pub fn preview(&self, key: u64, now: Tick, lighter: impl FnOnce(usize) -> usize) -> usize {
        let alive = self.masks.load(Relaxed) >> 16;
        let mut has_room = false;
        for found in self.set(key).iter().map(|way| way.load(Relaxed)) {
            let instance = instance_of(found);
            let is_live = found != 0 && alive >> instance & 1 != 0 && now.since(found as u16) <= self.idle;
            let is_own = found != 0 && (found ^ key) & TAG == 0;
            if is_own && is_live {
                return instance;
            }
            has_room |= !is_live;
        }
        let (owner, is_known) = self.owner_of(Bucket::of(self.bucket(key).load(Relaxed)), now);
        if has_room && is_known { lighter(owner) } else { owner }
    }

    /// The instance of a flow that the table does not know.
    #[cold]
    fn begin(
        &self,
        key: u64,
        now: Tick,
        free: Option<&AtomicU64>,
        lighter: impl FnOnce(usize) -> usize,
    ) -> usize {
        let (owner, is_known) = self.instance_of(self.bucket(key), now);
        match free {
            Some(way) => {
                let instance = if is_known { lighter(owner) } else { owner };
                way.store(entry(key, instance, now), Relaxed);
                instance
            }
            // Attack: so many flows that others find no room. Those that have an entry keep it; flows without one stay
            // together, with the bucket.
            None => {
                self.mark_crowded(self.bucket(key), now);
                owner
            }
        }
    }

    /// The instance of a bucket, and whether all flows of the bucket have entries. A bucket moves only then, unless its
    /// instance is gone.
    fn instance_of(&self, bucket: &AtomicU32, now: Tick) -> (usize, bool) {
        let word = bucket.load(Relaxed);
        let own = Bucket::of(word);
        let found = self.owner_of(own, now);
        if found.0 != usize::from(own.owner) {
            let moved = Bucket { owner: own.next, ..own };
            // If it fails, another worker or a change of the instances was faster.
            let _ = bucket.compare_exchange(word, moved.word(), Relaxed, Relaxed);
        }
        found
    }

    /// What [`Spread::instance_of`] finds for a bucket.
    fn owner_of(&self, own: Bucket, now: Tick) -> (usize, bool) {
        let is_known = own.crowded == 0 || now.since(own.crowded) > self.idle;
        if own.owner == own.next {
            return (usize::from(own.owner), is_known);
        }
        let changed = self.changed.load(Relaxed) as u16;
        let is_there = self.masks.load(Relaxed) >> 16 >> own.owner & 1 != 0;
        if is_there && !is_known && now.since(changed) <= self.drain {
            return (usize::from(own.owner), false);
        }
        (usize::from(own.next), true)
    }

    fn mark_crowded(&self, bucket: &AtomicU32, now: Tick) {
        let word = bucket.load(Relaxed);
        let own = Bucket::of(word);
        if own.crowded != now.0 {
            let crowded = Bucket { crowded: now.0, ..own };
            let _ = bucket.compare_exchange(word, crowded.word(), Relaxed, Relaxed);
        }
    }

    /// Remembers that an instance sent a frame, to which answers may come.
    #[inline]
    pub fn sent(&self, key: u64, instance: usize, now: Tick) {
        let alive = self.masks.load(Relaxed) >> 16;
        let new = entry(key, instance, now);
        let mut free = None;
        for way in self.set(key) {
            let found = way.load(Relaxed);
            if found == new {
                return;
            }
            if found != 0 && (found ^ key) & TAG == 0 {
                return way.store(new, Relaxed);
            }
            let is_live =
                found != 0 && alive >> instance_of(found) & 1 != 0 && now.since(found as u16) <= self.idle;
            if !is_live && free.is_none() {
                free = Some(way);
            }
        }
        match free {
            Some(way) => way.store(new, Relaxed),
            None => self.mark_crowded(self.bucket(key), now),
        }
    }

    /// Changes the instances: those of the mask `open` get new flows, those of `there` keep the flows that they have.
    /// Buckets are shared evenly, and as few as possible change. Called by one thread at a time.
    pub fn assign(&self, open: u32, there: u32, now: Tick) {
        let (open, there) = (open & 0xffff, (there | open) & 0xffff);
        self.changed.store(u32::from(now.0), Relaxed);
        self.masks.store(there << 16 | open, Relaxed);
        if open == 0 {
            return;
        }
        let count = |next: &[usize], instance: usize| next.iter().filter(|&&own| own == instance).count();
        let all: Vec<usize> = (0..INSTANCES).filter(|instance| open >> instance & 1 != 0).collect();
        let mut next: Vec<usize> =
            self.buckets.iter().map(|bucket| usize::from(Bucket::of(bucket.load(Relaxed)).next)).collect();
        let least = |next: &[usize]| all.iter().copied().min_by_key(|one| count(next, *one)).unwrap_or(0);
        let most = |next: &[usize]| all.iter().copied().max_by_key(|one| count(next, *one)).unwrap_or(0);
        for at in 0..next.len() {
            if !all.contains(&next[at]) {
                next[at] = least(&next);
            }
        }
        loop {
            let (few, many) = (least(&next), most(&next));
            if count(&next, many) <= count(&next, few) + 1 {
                break;
            }
            let Some(at) = next.iter().position(|own| *own == many) else { break };
            next[at] = few;
        }
        for (bucket, next) in self.buckets.iter().zip(next) {
            let change = |word| {
                let own = Bucket::of(word);
                let is_there = there >> own.owner & 1 != 0;
                let owner = if is_there { own.owner } else { next as u8 };
                Some(Bucket { owner, next: next as u8, ..own }.word())
            };
            // The closure always returns a value.
            let _ = bucket.try_update(Relaxed, Relaxed, change);
        }
    }

    /// Number of flows that each instance has. Reads the whole table.
    pub fn flows(&self, now: Tick) -> [u32; INSTANCES] {
        let mut flows = [0; INSTANCES];
        for found in self.sets.iter().flat_map(|set| &set.0).map(|way| way.load(Relaxed)) {
            if found != 0
                && now.since(found as u16) <= self.idle
                && let Some(count) = flows.get_mut(instance_of(found))
            {
                *count += 1;
            }
        }
        flows
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const SECOND: u64 = 1 << TICK;
    /// Stands for an instance that was gone.
    const GONE: usize = INSTANCES;

    fn at(second: u64) -> Tick {
        Tick::at(second * SECOND)
    }

    fn key(flow: u64) -> u64 {
        // Odd multiplications spread the bits; the last shift mixes the low ones.
        let mixed = (flow ^ flow >> 31).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 29
    }

    #[test]
    fn flows_keep_their_instance_while_others_come_and_go() {
        let spread = Spread::new(1 << 16, 30 * SECOND, 300 * SECOND);
        let go = |flow: u64, now| spread.to(key(flow), at(now), |owner| owner);
        assert!((0..500).all(|flow| go(flow, 1) == 0));
        spread.assign(0b111, 0b111, at(2));
        assert!((0..500).all(|flow| go(flow, 3) == 0), "they began before the others existed");
        let new: Vec<usize> = (500..1000).map(|flow| go(flow, 3)).collect();
        for instance in 0..3 {
            let share = new.iter().filter(|own| **own == instance).count();
            assert!((100..240).contains(&share), "{instance}: {share}");
        }
        assert_eq!(spread.flows(at(3)).iter().sum::<u32>(), 1000);
        // The third one drains.
        spread.assign(0b011, 0b111, at(4));
        assert!((0..500).all(|flow| go(flow + 500, 5) == new[flow as usize]));
        assert!((1000..1500).all(|flow| go(flow, 5) != 2));
        // One port is gone: only its flows move.
        spread.assign(0b011, 0b011, at(6));
        for (flow, own) in (500..).zip(&new) {
            let now = go(flow, 7);
            assert!(if *own == 2 { now != 2 } else { now == *own }, "{flow}");
        }
        // After their idle time, flows may move.
        assert!((0..500).any(|flow| go(flow, 40) == 1));
    }

    #[test]
    fn a_flow_stays_where_it_went_when_its_first_instance_comes_back() {
        let spread = Spread::new(64, 30 * SECOND, 300 * SECOND);
        let go = |flow: u64, now| spread.to(flow << 24, at(now), |owner| owner);
        spread.assign(0b001, 0b001, at(1));
        // The flow's entry is behind that of another one, which is forgotten first.
        assert_eq!((go(1, 1), go(2, 30)), (0, 0));
        spread.assign(0b010, 0b010, at(40));
        assert_eq!(go(2, 40), 1);
        spread.assign(0b011, 0b011, at(41));
        assert_eq!(go(2, 41), 1);
        spread.assign(0b001, 0b001, at(42));
        assert_eq!(go(2, 42), 0);
        spread.assign(0b011, 0b011, at(43));
        assert_eq!(go(2, 43), 0);
    }

    #[test]
    fn answers_reach_the_instance_that_translated_the_address() {
        let spread = Spread::new(4096, 30 * SECOND, 300 * SECOND);
        spread.assign(0b1111, 0b1111, at(1));
        for flow in 0..400 {
            let instance = spread.to(key(flow), at(2), |owner| owner);
            let translated = key(flow + 10_000);
            spread.sent(translated, instance, at(2));
            assert_eq!(spread.to(translated, at(3), |_| unreachable!("it is known")), instance);
        }
    }

    #[test]
    fn a_new_flow_may_go_where_less_is_to_do() {
        let spread = Spread::new(64, 30 * SECOND, 300 * SECOND);
        spread.assign(0b11, 0b11, at(1));
        assert_eq!(spread.to(7, at(1), |_| 1), 1);
        assert_eq!(spread.to(7, at(1), |_| 0), 1, "the second frame goes where the first one went");
    }

    /// Attack: a flood of flows, of which most find no room.
    #[test]
    fn flows_without_room_stay_with_their_bucket() {
        let spread = Spread::new(64, 30 * SECOND, 300 * SECOND);
        let go = |flow: u64, now| spread.to(key(flow), at(now), |owner| owner);
        let known: Vec<u64> = (0..8).collect();
        assert!(known.iter().all(|flow| go(*flow, 1) == 0));
        assert!((0..10_000).all(|flow| go(flow, 2) == 0));
        spread.assign(0b11, 0b11, at(3));
        assert!((0..10_000).all(|flow| go(flow, 4) == 0), "no flow moves");
        assert_eq!(spread.flows(at(4))[0] as usize, spread.room());
        // The flood ends, and its flows are forgotten.
        assert!((20_000..20_064).any(|flow| go(flow, 40) == 1));
        // A flood does not keep buckets for ever.
        let spread = Spread::new(64, 30 * SECOND, 100 * SECOND);
        let go = |flow: u64, now| spread.to(key(flow), at(now), |owner| owner);
        (0..10_000).for_each(|flow| _ = go(flow, 1));
        spread.assign(0b11, 0b11, at(2));
        assert!((0..12).all(|round| (0..10_000).all(|flow| go(flow, 2 + round * 8) == 0)));
        assert!((0..10_000).any(|flow| go(flow, 110) == 1));
    }

    #[test]
    fn the_clock_may_repeat() {
        let spread = Spread::new(64, 30 * SECOND, 300 * SECOND);
        let last = u64::from(u16::MAX) - 1;
        spread.assign(0b11, 0b11, at(last));
        assert_eq!(spread.to(7, at(last), |_| 1), 1);
        assert_eq!(spread.to(7, at(last + 2), |_| unreachable!("it is known")), 1);
    }

    proptest! {
        /// However instances come and go, a flow with an entry changes its instance only if that is gone.
        #[test]
        fn a_known_flow_moves_only_if_its_instance_is_gone(
            steps in prop::collection::vec(
                (1u32..16, 0u32..16, prop::collection::vec(0u64..200, 1..40)),
                1..20,
            ),
        ) {
            let spread = Spread::new(8192, 1000 * SECOND, 2000 * SECOND);
            let mut known: HashMap<u64, usize> = HashMap::new();
            for (now, (open, more, flows)) in (1..).zip(steps) {
                let there = open | more;
                spread.assign(open, there, at(now));
                let next: Vec<u8> =
                    spread.buckets.iter().map(|bucket| Bucket::of(bucket.load(Relaxed)).next).collect();
                prop_assert!(next.iter().all(|own| open >> own & 1 != 0));
                let shares: Vec<usize> = (0..4u8)
                    .filter(|own| open >> own & 1 != 0)
                    .map(|own| next.iter().filter(|next| **next == own).count())
                    .collect();
                prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
                // What a gone instance had is forgotten, even if the instance comes back.
                known.values_mut().filter(|own| there >> **own & 1 == 0).for_each(|own| *own = GONE);
                for flow in flows {
                    let instance = spread.to(key(flow), at(now), |owner| owner);
                    match known.insert(flow, instance) {
                        None => prop_assert!(open >> instance & 1 != 0),
                        Some(GONE) => prop_assert!(there >> instance & 1 != 0),
                        Some(own) => prop_assert_eq!(instance, own),
                    }
                }
            }
        }
    }
}
