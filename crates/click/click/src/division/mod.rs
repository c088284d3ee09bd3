//! Dividing a configuration among threads.
//!
//! A router belongs to one thread. So the configuration is divided into parts that share nothing, each of
//! which runs on one thread. Elements belong to the same part if they are connected, if they share an
//! external resource ([`Element::shares`]), or if one's configuration mentions the other's name.
mod mentions;
mod parts;
#[cfg(test)]
mod tests;

#[cfg(doc)]
use crate::Element;
use crate::sort;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use mentions::Mentions;
use parts::Parts;

/// The reach of an element, besides packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reach {
    /// As far as the elements that its configuration mentions.
    #[default]
    Part,
    /// The whole configuration. The element runs on the first thread, together with the elements that it
    /// mentions unless they are assigned elsewhere.
    Whole,
    /// Everything configured or scheduled on a thread: every thread has its own instance.
    Each,
}

/// The division's view of an element.
#[derive(Clone, Debug, Default)]
pub(crate) struct Member<'a> {
    pub(crate) name: &'a str,
    pub(crate) configuration: &'a str,
    pub(crate) reach: Reach,
    /// The external resource that it shares with other elements of the same value.
    pub(crate) shares: Option<String>,
    /// The requested thread.
    pub(crate) thread: Option<usize>,
    /// Whether it moves packets by itself, and so uses time.
    pub(crate) drives: bool,
}

/// Stands for every thread.
const EACH: u32 = u32::MAX;

/// The thread of each element, by its index in the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Division {
    homes: Arc<[u32]>,
    /// Elements that are not on their requested thread.
    strays: Vec<usize>,
}

impl Division {
    /// Divides these elements among threads. With `balanced`, parts without a requested thread are
    /// distributed; else they are on the first thread.
    pub(crate) fn new(
        members: &[Member<'_>],
        connections: impl Iterator<Item = (usize, usize)>,
        threads: usize,
        balanced: bool,
    ) -> Self {
        let mut parts = Parts::new(members.len());
        connections.for_each(|(from, to)| parts.join(from, to));
        let first = join_shared(members, &mut parts);
        let mut joins_first = Vec::new();
        Mentions::new(members).each(|by, mentioned| match members[by].reach {
            _ if members[mentioned].reach == Reach::Each => {}
            Reach::Part => parts.join(by, mentioned),
            Reach::Whole => joins_first.push(mentioned),
            Reach::Each => {}
        });
        let mut requested: BTreeMap<usize, usize> = BTreeMap::new();
        for (at, member) in members.iter().enumerate() {
            if let Some(thread) = member.thread {
                requested.entry(parts.of(at)).or_insert(thread);
            }
        }
        if let Some(first) = first {
            // These have no requested thread.
            joins_first.retain(|part| !requested.contains_key(&parts.of(*part)));
            joins_first.into_iter().for_each(|part| parts.join(first, part));
            requested.insert(parts.of(first), 0);
        }
        let homes = if balanced { deal(members, &mut parts, requested, threads) } else { requested };
        Self::of(members, &mut parts, &homes)
    }

    fn of(members: &[Member<'_>], parts: &mut Parts, homes: &BTreeMap<usize, usize>) -> Self {
        let mut strays = Vec::new();
        let home = |(at, member): (usize, &Member<'_>)| {
            if member.reach == Reach::Each {
                return EACH;
            }
            let home = homes.get(&parts.of(at)).copied().unwrap_or(0);
            if member.thread.is_some_and(|thread| thread != home) {
                strays.push(at);
            }
            home as u32
        };
        let homes = members.iter().enumerate().map(home).collect();
        Self { homes, strays }
    }

    /// The thread of an element; `None` if every thread has it.
    pub(crate) fn home(&self, element: usize) -> Option<usize> {
        self.homes.get(element).filter(|home| **home != EACH).map(|home| *home as usize)
    }

    /// Elements that are not on their requested thread.
    pub(crate) fn strays(&self) -> &[usize] {
        &self.strays
    }

    /// Whether the first thread runs everything.
    pub fn is_whole(&self) -> bool {
        self.homes.iter().all(|home| matches!(*home, 0 | EACH))
    }

    /// The threads in use besides the first.
    pub fn others(&self) -> Vec<usize> {
        let mut others: Vec<usize> = self.homes.iter().map(|home| *home as usize).collect();
        sort::by_number(&mut others, |home| *home as u64);
        others.dedup();
        others.retain(|home| !matches!(*home, 0) && *home != EACH as usize);
        others
    }
}

/// Joins elements with reach `Whole`, and elements with shared resources. Returns one of the former, if there
/// are any.
fn join_shared(members: &[Member<'_>], parts: &mut Parts) -> Option<usize> {
    let mut first = None;
    let mut shared: BTreeMap<&str, usize> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        if member.reach == Reach::Whole {
            parts.join(*first.get_or_insert(at), at);
        }
        if let Some(key) = &member.shares {
            parts.join(*shared.entry(key).or_insert(at), at);
        }
    }
    first
}

/// Assigns parts to the threads with the least load, the busiest parts first.
fn deal(
    members: &[Member<'_>],
    parts: &mut Parts,
    requested: BTreeMap<usize, usize>,
    threads: usize,
) -> BTreeMap<usize, usize> {
    // By part, its first element and how many drive.
    let mut weights: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for (at, member) in members.iter().enumerate() {
        let (_, weight) = weights.entry(parts.of(at)).or_insert((at, 0));
        *weight += usize::from(member.drives);
    }
    let mut loads = vec![0; threads.max(1)];
    for (part, home) in &requested {
        if let (Some(load), Some((_, weight))) = (loads.get_mut(*home), weights.get(part)) {
            *load += weight;
        }
    }
    let mut homes = requested;
    let mut left: Vec<(usize, usize, usize)> = weights
        .into_iter()
        .filter(|(part, (_, weight))| *weight > 0 && !homes.contains_key(part))
        .map(|(part, (at, weight))| (weight, at, part))
        .collect();
    sort::by_number(&mut left, |(weight, at, _)| (!*weight as u64) << 32 | *at as u64);
    for (weight, _, part) in left {
        let Some((home, load)) = loads.iter_mut().enumerate().min_by_key(|(home, load)| (**load, *home))
        else {
            break;
        };
        *load += weight;
        homes.insert(part, home);
    }
    homes
}
