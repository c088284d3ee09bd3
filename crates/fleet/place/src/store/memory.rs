//! A store in memory.

use super::{Compare, Entry, Event, LeaseId, Op, Revision, Store, StoreError, Value};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A key's value from a revision on.
#[derive(Clone, Debug)]
pub(super) struct Version {
    pub revision: Revision,
    pub value: Option<Value>,
    pub lease: Option<LeaseId>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    pub deadline: u64,
    pub ttl: u64,
}

/// Changes of a transaction or a lease, for a persistent store.
#[derive(Clone, Debug)]
pub(super) enum Change {
    Version(String, Version),
    Lease(LeaseId, Option<Lease>),
    /// A version that is no longer accessible.
    Gone(String, Revision),
    Compact(Revision),
}

#[derive(Default)]
pub(super) struct State {
    pub revision: Revision,
    pub oldest: Revision,
    pub keys: BTreeMap<String, Vec<Version>>,
    pub events: VecDeque<Event>,
    pub leases: BTreeMap<LeaseId, Lease>,
    pub leased: BTreeMap<LeaseId, BTreeSet<String>>,
    deadlines: BTreeSet<(u64, LeaseId)>,
    next_lease: LeaseId,
    /// Keys with old versions.
    stale: BTreeSet<String>,
}

/// A store in memory, without persistence.
#[derive(Default)]
pub struct Memory {
    state: Mutex<State>,
}

impl State {
    fn modified(&self, key: &str) -> Revision {
        let latest = self.keys.get(key).and_then(|versions| versions.last());
        latest.filter(|version| version.value.is_some()).map_or(0, |version| version.revision)
    }

    pub(super) fn add_lease(&mut self, id: LeaseId, lease: Lease) {
        self.next_lease = self.next_lease.max(id);
        self.leases.insert(id, lease);
        self.deadlines.insert((lease.deadline, id));
    }

    fn drop_lease(&mut self, id: LeaseId) {
        self.leased.remove(&id);
        if let Some(lease) = self.leases.remove(&id) {
            self.deadlines.remove(&(lease.deadline, id));
        }
    }

    /// Records a version.
    pub(super) fn push(&mut self, key: &str, version: Version) {
        self.revision = self.revision.max(version.revision);
        let event = Event { revision: version.revision, key: key.into(), value: version.value.clone() };
        self.events.push_back(event);
        let lease = version.lease;
        let versions = self.keys.entry(key.into()).or_default();
        let before = versions.last().and_then(|version| version.lease);
        versions.push(version);
        if versions.len() > 1 || versions[0].value.is_none() {
            self.stale.insert(key.into());
        }
        if before != lease {
            if let Some(before) = before {
                let keys = self.leased.entry(before).or_default();
                keys.remove(key);
            }
            if let Some(lease) = lease {
                self.leased.entry(lease).or_default().insert(key.into());
            }
        }
    }

    fn transact(
        &mut self,
        compares: &[Compare],
        ops: Vec<Op>,
    ) -> Result<(Revision, Vec<Change>), StoreError> {
        if let Some(wrong) = compares.iter().find(|compare| self.modified(&compare.key) != compare.modified) {
            return Err(StoreError::Conflict(wrong.key.clone()));
        }
        for op in &ops {
            if let Op::Put { lease: Some(lease), .. } = op
                && !self.leases.contains_key(lease)
            {
                return Err(StoreError::NoLease(*lease));
            }
        }
        let revision = self.revision + 1;
        let mut changes = Vec::new();
        for op in ops {
            let (key, value, lease) = match op {
                Op::Put { key, value, lease } => (key, Some(value), lease),
                Op::Delete(key) if self.modified(&key) == 0 => continue,
                Op::Delete(key) => (key, None, None),
            };
            let before = self.keys.get(&key).and_then(|versions| versions.last()?.lease);
            let version = Version { revision, value, lease };
            self.push(&key, version.clone());
            changes.push(Change::Version(key, version));
            // A lease without keys need not expire.
            if let Some(before) =
                before.filter(|before| self.leased.get(before).is_some_and(BTreeSet::is_empty))
            {
                self.drop_lease(before);
                changes.push(Change::Lease(before, None));
            }
        }
        self.revision = revision;
        Ok((revision, changes))
    }

    /// The whole state as changes to an empty one.
    pub(super) fn changes(&self) -> Vec<(Revision, Vec<Change>)> {
        let versions = self.keys.iter().flat_map(|(key, versions)| {
            versions.iter().map(|version| Change::Version(key.clone(), version.clone()))
        });
        let leases = self.leases.iter().map(|(id, lease)| Change::Lease(*id, Some(*lease)));
        let changes = versions.chain(leases).chain([Change::Compact(self.oldest)]).collect();
        vec![(self.revision, changes)]
    }

    /// Removes versions before a revision; returns the removed ones.
    pub(super) fn compact(&mut self, before: Revision) -> Vec<Change> {
        let before = before.min(self.revision);
        let mut gone = Vec::new();
        if before <= self.oldest {
            return gone;
        }
        self.oldest = before;
        while self.events.front().is_some_and(|event| event.revision <= before) {
            self.events.pop_front();
        }
        for key in std::mem::take(&mut self.stale) {
            let Some(versions) = self.keys.get_mut(&key) else { continue };
            let keep = versions.iter().rposition(|version| version.revision <= before).unwrap_or(0);
            gone.extend(versions.drain(..keep).map(|version| Change::Gone(key.clone(), version.revision)));
            match versions.as_slice() {
                [only] if only.value.is_none() && only.revision <= before => {
                    gone.push(Change::Gone(key.clone(), only.revision));
                    self.keys.remove(&key);
                }
                [only] if only.value.is_some() => {}
                _ => drop(self.stale.insert(key)),
            }
        }
        gone
    }
}

impl Memory {
    pub(super) fn of(state: State) -> Memory {
        Memory { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads part of the state.
    pub(super) fn with<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state())
    }

    /// Runs a transaction and passes its changes, in order, to `change`.
    pub(super) fn transact_logged(
        &self,
        compares: &[Compare],
        ops: Vec<Op>,
        change: impl FnOnce(Revision, Vec<Change>),
    ) -> Result<Revision, StoreError> {
        let mut state = self.state();
        let (revision, changes) = state.transact(compares, ops)?;
        change(revision, changes);
        Ok(revision)
    }

    pub(super) fn lease_logged(
        &self,
        ttl: u64,
        now: u64,
        change: impl FnOnce(Revision, Vec<Change>),
    ) -> LeaseId {
        let mut state = self.state();
        let id = state.next_lease + 1;
        let lease = Lease { deadline: now.saturating_add(ttl), ttl };
        state.add_lease(id, lease);
        change(state.revision, vec![Change::Lease(id, Some(lease))]);
        id
    }

    pub(super) fn keep_logged(
        &self,
        id: LeaseId,
        now: u64,
        change: impl FnOnce(Revision, Vec<Change>),
    ) -> Result<(), StoreError> {
        let mut state = self.state();
        let old = *state.leases.get(&id).ok_or(StoreError::NoLease(id))?;
        let lease = Lease { deadline: now.saturating_add(old.ttl), ..old };
        state.deadlines.remove(&(old.deadline, id));
        state.add_lease(id, lease);
        change(state.revision, vec![Change::Lease(id, Some(lease))]);
        Ok(())
    }

    pub(super) fn expire_logged(
        &self,
        now: u64,
        change: impl FnOnce(Revision, Vec<Change>),
    ) -> Result<(), StoreError> {
        let mut state = self.state();
        let ended: Vec<LeaseId> =
            state.deadlines.iter().take_while(|(deadline, _)| *deadline <= now).map(|(_, id)| *id).collect();
        if ended.is_empty() {
            return Ok(());
        }
        let keys = ended.iter().filter_map(|id| state.leased.get(id)).flatten();
        let ops: Vec<Op> = keys.map(|key| Op::Delete(key.clone())).collect();
        let mut changes = Vec::new();
        let mut revision = state.revision;
        if !ops.is_empty() {
            (revision, changes) = state.transact(&[], ops)?;
        }
        for id in ended {
            state.drop_lease(id);
            changes.push(Change::Lease(id, None));
        }
        change(revision, changes);
        Ok(())
    }

    pub(super) fn compact_logged(&self, before: Revision, change: impl FnOnce(Revision, Vec<Change>)) {
        let mut state = self.state();
        let mut changes = state.compact(before);
        changes.push(Change::Compact(state.oldest));
        change(state.revision, changes);
    }
}

impl Store for Memory {
    fn range(&self, prefix: &str, at: Option<Revision>) -> Result<(Revision, Vec<Entry>), StoreError> {
        let state = self.state();
        let at = at.unwrap_or(state.revision);
        if at < state.oldest {
            return Err(StoreError::Compacted { requested: at, oldest: state.oldest });
        }
        let keys = state.keys.range(prefix.to_string()..).take_while(|(key, _)| key.starts_with(prefix));
        let entries = keys.filter_map(|(key, versions)| {
            let version = versions.iter().rev().find(|version| version.revision <= at)?;
            let value = version.value.clone()?;
            Some(Entry { key: key.clone(), value, modified: version.revision })
        });
        Ok((at, entries.collect()))
    }

    fn transact(&self, compares: &[Compare], ops: Vec<Op>) -> Result<Revision, StoreError> {
        self.transact_logged(compares, ops, |_, _| {})
    }

    fn watch(&self, after: Revision) -> Result<Vec<Event>, StoreError> {
        let state = self.state();
        if after < state.oldest {
            return Err(StoreError::Compacted { requested: after, oldest: state.oldest });
        }
        if after >= state.revision {
            return Ok(Vec::new());
        }
        let first = state.events.partition_point(|event| event.revision <= after);
        Ok(state.events.range(first..).cloned().collect())
    }

    fn oldest(&self) -> Revision {
        self.state().oldest
    }

    fn lease(&self, ttl: u64, now: u64) -> Result<LeaseId, StoreError> {
        Ok(self.lease_logged(ttl, now, |_, _| {}))
    }

    fn keep_alive(&self, lease: LeaseId, now: u64) -> Result<(), StoreError> {
        self.keep_logged(lease, now, |_, _| {})
    }

    fn expire(&self, now: u64) -> Result<(), StoreError> {
        self.expire_logged(now, |_, _| {})
    }

    fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.compact_logged(before, |_, _| {});
        Ok(())
    }

    fn durable(&self, _: Revision) -> Result<(), StoreError> {
        Ok(())
    }
}
