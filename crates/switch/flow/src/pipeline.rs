//! A snapshot of a switch's tables, groups and meters, as workers see it: it never changes, but for what is counted.

use crate::classifier::{Table, TooManyMasks};
use crate::flow::{Flow, FlowMod};
use crate::group::Group;
use crate::meter::Meter;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Versions of snapshots, unique within the process; 0 is that of none.
static VERSIONS: AtomicU64 = AtomicU64::new(1);

/// A snapshot.
#[derive(Clone, Debug)]
pub struct Pipeline {
    version: u64,
    pub(crate) seed: u64,
    tables: Vec<Arc<Table>>,
    groups: Arc<BTreeMap<u32, Arc<Group>>>,
    meters: Arc<BTreeMap<u32, Arc<Meter>>>,
}

impl Pipeline {
    /// A snapshot without flows. `seed`: a random number that no peer knows. Attack: frames whose flows would be in one
    /// place of the hash tables, or in one bucket.
    pub fn new(seed: u64) -> Pipeline {
        let (groups, meters) = (Arc::default(), Arc::default());
        Pipeline { version: VERSIONS.fetch_add(1, Relaxed), seed, tables: Vec::new(), groups, meters }
    }

    /// Its version, which no other snapshot of the process has that workers see.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// A table.
    #[inline]
    pub fn table(&self, number: u8) -> Option<&Table> {
        self.tables.get(usize::from(number)).map(|table| &**table)
    }

    /// A group.
    #[inline]
    pub fn group(&self, id: u32) -> Option<&Group> {
        self.groups.get(&id).map(|group| &**group)
    }

    /// A meter.
    #[inline]
    pub fn meter(&self, id: u32) -> Option<&Meter> {
        self.meters.get(&id).map(|meter| &**meter)
    }

    /// All flows, table by table.
    pub fn flows(&self) -> impl Iterator<Item = &Arc<Flow>> {
        self.tables.iter().flat_map(|table| table.iter())
    }

    /// Number of flows.
    pub fn len(&self) -> usize {
        self.tables.iter().map(|table| table.len()).sum()
    }

    /// Whether there are no flows.
    pub fn is_empty(&self) -> bool {
        self.tables.iter().all(|table| table.is_empty())
    }

    /// All groups.
    pub fn groups(&self) -> &BTreeMap<u32, Arc<Group>> {
        &self.groups
    }

    /// All meters.
    pub fn meters(&self) -> &BTreeMap<u32, Arc<Meter>> {
        &self.meters
    }

    pub(crate) fn groups_mut(&mut self) -> &mut BTreeMap<u32, Arc<Group>> {
        Arc::make_mut(&mut self.groups)
    }

    pub(crate) fn meters_mut(&mut self) -> &mut BTreeMap<u32, Arc<Meter>> {
        Arc::make_mut(&mut self.meters)
    }

    /// The flow with exactly the table, priority and match of another one.
    pub fn same(&self, of: &FlowMod) -> Option<&Arc<Flow>> {
        self.table(of.table)?.get(&of.of, of.priority)
    }

    pub(crate) fn insert(&mut self, flow: Arc<Flow>) -> Result<(), TooManyMasks> {
        let table = usize::from(flow.flow.table);
        if self.tables.len() <= table {
            self.tables.resize_with(table + 1, Arc::default);
        }
        let seed = self.seed;
        match self.tables.get_mut(table) {
            Some(table) => Arc::make_mut(table).insert(flow, seed).map(|_| ()),
            None => Ok(()),
        }
    }

    pub(crate) fn remove(&mut self, of: &FlowMod) {
        if let Some(table) = self.tables.get_mut(usize::from(of.table)) {
            Arc::make_mut(table).remove(&of.of, of.priority);
        }
    }

    /// Makes it another snapshot than the one that it was copied from.
    pub(crate) fn renew(&mut self) {
        self.version = VERSIONS.fetch_add(1, Relaxed);
    }
}

/// Where workers find the current snapshot.
#[derive(Debug)]
pub struct Published {
    version: AtomicU64,
    current: Mutex<Arc<Pipeline>>,
}

impl Published {
    pub(crate) fn new(pipeline: Arc<Pipeline>) -> Published {
        Published { version: AtomicU64::new(pipeline.version), current: Mutex::new(pipeline) }
    }

    /// The current snapshot.
    pub fn current(&self) -> Arc<Pipeline> {
        // The lock is held only to copy or to replace the pointer.
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the snapshot that a worker has by the current one, if that is another one. It takes no lock unless it
    /// is, and waits for none: then the worker has the new one a burst later.
    #[inline]
    pub fn refresh(&self, own: &mut Arc<Pipeline>) {
        if own.version == self.version.load(Relaxed) {
            return;
        }
        match self.current.try_lock() {
            Ok(current) => *own = current.clone(),
            Err(TryLockError::Poisoned(poisoned)) => *own = poisoned.into_inner().clone(),
            Err(TryLockError::WouldBlock) => {}
        }
    }

    /// Makes another snapshot the current one; returns the former one.
    pub(crate) fn publish(&self, next: Arc<Pipeline>) -> Arc<Pipeline> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let version = next.version;
        let former = std::mem::replace(&mut *current, next);
        self.version.store(version, Relaxed);
        former
    }
}
