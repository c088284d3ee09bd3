//! A snapshot of a switch's tables, groups and meters, as workers see it: it never changes, but for what is counted.

use crate::action::count_all;
use crate::classifier::{Table, TooManyMasks};
use crate::flow::{Flow, FlowFilter, FlowMod};
use crate::group::Group;
use crate::meter::Meter;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

/// Versions of snapshots, unique within the process; 0 is that of none.
static VERSIONS: AtomicU64 = AtomicU64::new(1);

/// Most bytes of a meter's line.
const METER: usize = 100;

/// A snapshot.
#[derive(Clone, Debug)]
pub struct Pipeline {
    version: u64,
    pub(crate) seed: u64,
    tables: Vec<Arc<Table>>,
    groups: Arc<BTreeMap<u32, Arc<Group>>>,
    meters: Arc<BTreeMap<u32, Arc<Meter>>>,
    /// Number of all actions.
    actions: usize,
    /// Most bytes of the text of all flows and groups.
    text: usize,
    /// Number of the flows whose time may end.
    timed: usize,
    /// Those of them that came since workers saw a snapshot.
    pub(crate) new_timed: Vec<Arc<Flow>>,
}

impl Pipeline {
    /// A snapshot without flows. `seed`: a random number that no peer knows. Attack: frames whose flows would be in one
    /// place of the hash tables, or in one bucket.
    pub fn new(seed: u64) -> Pipeline {
        let (groups, meters) = (Arc::default(), Arc::default());
        let version = VERSIONS.fetch_add(1, Relaxed);
        let (actions, text, timed) = (0, 0, 0);
        let (tables, new_timed) = (Vec::new(), Vec::new());
        Pipeline { version, seed, tables, groups, meters, actions, text, timed, new_timed }
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

    /// The flows that are meant, table by table.
    pub(crate) fn meant(&self, filter: &FlowFilter) -> Vec<Arc<Flow>> {
        let tables = match filter.table.map(usize::from) {
            // The others need not be looked at.
            Some(table) => self.tables.get(table..=table).unwrap_or_default(),
            None => &self.tables[..],
        };
        let flows = tables.iter().flat_map(|table| table.iter());
        flows.filter(|flow| filter.has(&flow.flow)).cloned().collect()
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

    /// Number of the actions of all flows and groups.
    pub(crate) fn actions(&self) -> usize {
        self.actions
    }

    /// Most bytes of the text of all rules, whatever the names of ports are.
    pub(crate) fn text(&self) -> usize {
        self.text + self.meters.len() * METER
    }

    /// Number of the flows whose time may end.
    pub(crate) fn timed(&self) -> usize {
        self.timed
    }

    /// Adds a group, in place of that with the same number.
    pub(crate) fn put_group(&mut self, group: Arc<Group>) {
        (self.actions, self.text) = (self.actions + group.actions(), self.text + group.longest());
        if let Some(former) = Arc::make_mut(&mut self.groups).insert(group.id, group) {
            (self.actions, self.text) = (self.actions - former.actions(), self.text - former.longest());
        }
    }

    /// Removes the other groups.
    pub(crate) fn retain_groups(&mut self, stays: impl Fn(u32) -> bool) {
        let (actions, text) = (&mut self.actions, &mut self.text);
        Arc::make_mut(&mut self.groups).retain(|id, group| {
            let stays = stays(*id);
            if !stays {
                (*actions, *text) = (*actions - group.actions(), *text - group.longest());
            }
            stays
        });
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
        let (seed, new) = (self.seed, flow.clone());
        let Some(table) = self.tables.get_mut(table) else { return Ok(()) };
        let former = Arc::make_mut(table).insert(flow, seed)?;
        self.count(&new, true);
        self.new_timed.extend(Some(new).filter(|new| new.flow.is_timed()));
        former.iter().for_each(|former| self.count(former, false));
        Ok(())
    }

    pub(crate) fn remove(&mut self, of: &FlowMod) {
        if let Some(table) = self.tables.get_mut(usize::from(of.table)) {
            let removed = Arc::make_mut(table).remove(&of.of, of.priority);
            removed.iter().for_each(|removed| self.count(removed, false));
        }
    }

    fn count(&mut self, flow: &Flow, is_added: bool) {
        let (actions, timed) = (count_all(&flow.flow.actions), usize::from(flow.flow.is_timed()));
        let all = [(&mut self.actions, actions), (&mut self.timed, timed)];
        for (sum, own) in all.into_iter().chain([(&mut self.text, flow.longest as usize)]) {
            *sum = if is_added { *sum + own } else { *sum - own };
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
