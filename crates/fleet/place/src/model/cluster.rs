//! The hosts of a cluster, by row.

use super::{Bits, Columns, CpuMap, Need, Row, Sums, VmId, VmSlot};
use crate::object::{Blacklist, Cluster, Fact, Host, Load, Vm};
use crate::ratio::Ratio;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// A host with its VMs.
#[derive(Clone, Debug)]
pub struct HostSlot {
    /// The host.
    pub host: Arc<Host>,
    /// Its last measurements.
    pub load: Option<Arc<Load>>,
    /// VMs that run on it.
    pub running: Vec<VmId>,
    /// VMs pending on it.
    pub pending: Vec<VmId>,
    /// Resources of these VMs.
    pub sums: Sums,
    /// Its CPU pinnings; none if nothing is pinned.
    pub cpus: Option<CpuMap>,
}

/// External facts about hosts, by row.
#[derive(Clone, Debug, Default)]
pub struct FactColumn {
    /// The value; NaN if there is none.
    pub values: Vec<f64>,
    /// When each value expires.
    pub until: Vec<u64>,
}

impl FactColumn {
    /// The value for `row`, unless there is none or it has expired.
    pub fn get(&self, row: Row, now: u64) -> Option<f64> {
        let value = *self.values.get(row as usize)?;
        (!value.is_nan() && now < self.until[row as usize]).then_some(value)
    }

    /// When the value for `row` expires: 0 if there is none, the largest number if never.
    pub fn until(&self, row: Row) -> u64 {
        self.until.get(row as usize).copied().unwrap_or(0)
    }

    fn put(&mut self, row: Row, value: f64, until: u64) {
        if self.values.len() <= row as usize {
            self.values.resize(row as usize + 1, f64::NAN);
            self.until.resize(row as usize + 1, 0);
        }
        self.values[row as usize] = value;
        self.until[row as usize] = until;
    }
}

/// A cluster's hosts.
#[derive(Clone, Debug, Default)]
pub struct ClusterState {
    /// The cluster's settings.
    pub cluster: Arc<Cluster>,
    /// Its hosts' figures.
    pub columns: Columns,
    /// Its hosts; free rows have none.
    pub hosts: Vec<Option<HostSlot>>,
    /// Hosts by word, such as `network/blue`.
    words: HashMap<String, Bits>,
    /// External facts, by name.
    pub facts: BTreeMap<String, FactColumn>,
    /// Reasons of blacklisted hosts.
    pub barred: HashMap<Row, String>,
    free: Vec<Row>,
    /// Rows ordered by host name, computed on first use.
    by_name: OnceLock<Vec<Row>>,
}

/// The searchable words of a host.
fn words(host: &Host) -> impl Iterator<Item = String> + '_ {
    let lists: [(&str, &[String]); 8] = [
        ("network", &host.networks),
        ("label", &host.labels),
        ("aggregate", &host.aggregates),
        ("flag", &host.cpu_flags),
        ("machine", &host.machines),
        ("version", &host.versions),
        ("hook", &host.hooks),
        ("lease", &host.leases),
    ];
    let listed =
        lists.into_iter().flat_map(|(kind, list)| list.iter().map(move |word| format!("{kind}/{word}")));
    let domain = Some(&host.fault_domain).filter(|domain| !domain.is_empty());
    listed.chain(domain.map(|domain| format!("domain/{domain}")))
}

impl ClusterState {
    /// A cluster without hosts.
    pub fn new(cluster: Cluster) -> ClusterState {
        ClusterState { cluster: Arc::new(cluster), ..ClusterState::default() }
    }

    /// Hosts that have `word` of `kind`; none if no host has it.
    pub fn with(&self, kind: &str, word: &str) -> Option<&Bits> {
        self.words.get(&format!("{kind}/{word}"))
    }

    /// The host of a row.
    pub fn slot(&self, row: Row) -> Option<&HostSlot> {
        self.hosts.get(row as usize)?.as_ref()
    }

    /// The name of a row's host; empty for a free row.
    pub fn name(&self, row: Row) -> &str {
        self.slot(row).map_or("", |slot| &slot.host.name)
    }

    /// Rows ordered by host name, independent of the cluster's history.
    pub fn by_name(&self) -> &[Row] {
        self.by_name.get_or_init(|| {
            let mut rows: Vec<Row> =
                (0..self.hosts.len() as Row).filter(|row| self.slot(*row).is_some()).collect();
            rows.sort_unstable_by_key(|row| self.name(*row));
            rows
        })
    }

    /// Load of a host's shared CPUs in percent.
    pub(crate) fn load(&self, row: Row) -> Ratio {
        let (columns, at) = (&self.columns, row as usize);
        Ratio::of(columns.load[at].into(), (columns.cpus[at] - columns.exclusive[at]).into())
    }

    /// A fact about a host that is not stale.
    pub fn fact(&self, name: &str, row: Row, now: u64) -> Option<f64> {
        self.facts.get(name)?.get(row, now)
    }

    pub(super) fn describe(&mut self, cluster: Cluster) {
        self.cluster = Arc::new(cluster);
        for row in 0..self.hosts.len() as Row {
            self.refresh(row);
        }
    }

    /// Adds a host.
    pub(super) fn add(&mut self, host: Host) -> Row {
        self.by_name = OnceLock::new();
        let row = self.free.pop().unwrap_or_else(|| {
            self.hosts.push(None);
            self.columns.grow()
        });
        self.index(row, &host, true);
        let slot = HostSlot {
            host: Arc::new(host),
            load: None,
            running: Vec::new(),
            pending: Vec::new(),
            sums: Sums::default(),
            cpus: None,
        };
        self.hosts[row as usize] = Some(slot);
        self.refresh(row);
        row
    }

    /// Replaces a host's description.
    pub(super) fn change(&mut self, row: Row, host: Host, vms: &[Option<VmSlot>]) {
        let Some(old) = self.slot(row).map(|slot| slot.host.clone()) else { return };
        self.index(row, &old, false);
        self.index(row, &host, true);
        if let Some(slot) = &mut self.hosts[row as usize] {
            slot.host = Arc::new(host);
            slot.recount(vms);
        }
        self.refresh(row);
    }

    /// Removes a host.
    pub(super) fn remove(&mut self, row: Row) {
        self.by_name = OnceLock::new();
        let Some(slot) = self.hosts.get_mut(row as usize).and_then(Option::take) else { return };
        self.index(row, &slot.host, false);
        for column in self.facts.values_mut() {
            if (row as usize) < column.values.len() {
                column.put(row, f64::NAN, 0);
            }
        }
        self.barred.remove(&row);
        self.columns.clear(row);
        self.free.push(row);
    }

    fn index(&mut self, row: Row, host: &Host, member: bool) {
        for word in words(host) {
            self.words.entry(word).or_default().set(row, member);
        }
        if !member {
            self.words.retain(|_, bits| !bits.is_empty());
        }
    }

    pub(super) fn measure(&mut self, row: Row, load: Option<Load>) {
        if let Some(Some(slot)) = self.hosts.get_mut(row as usize) {
            slot.load = load.map(Arc::new);
        }
        self.refresh(row);
    }

    pub(super) fn set_fact(&mut self, row: Row, name: &str, fact: Option<&Fact>) {
        let column = self.facts.entry(name.into()).or_default();
        match fact {
            Some(fact) => column.put(row, fact.value, fact.until.unwrap_or(u64::MAX)),
            None => column.put(row, f64::NAN, 0),
        }
    }

    pub(super) fn set_blacklist(&mut self, row: Row, entry: Option<&Blacklist>) {
        self.columns.barred[row as usize] = entry.map_or(0, |entry| entry.until.unwrap_or(u64::MAX));
        match entry {
            Some(entry) => self.barred.insert(row, entry.reason.clone()),
            None => self.barred.remove(&row),
        };
    }

    /// Recomputes the figures of a row.
    pub(super) fn refresh(&mut self, row: Row) {
        if let Some(Some(slot)) = self.hosts.get(row as usize) {
            let taken = slot.cpus.as_ref().map_or(0, |cpus| cpus.taken(self.cluster.threads_as_cores));
            self.columns.refresh(row, slot, taken, &self.cluster);
        }
    }

    /// Adds one of `vms`, running or `pending`.
    pub(super) fn add_guest(&mut self, row: Row, vm: VmId, pending: bool, vms: &[Option<VmSlot>]) {
        if let Some(Some(slot)) = self.hosts.get_mut(row as usize) {
            let need = need_of(vms, vm);
            let (list, sum) = slot.guests_and_need(pending);
            list.push(vm);
            *sum = sum.and(need);
            if need.special > 0 {
                slot.recount(vms);
            }
            self.refresh(row);
        }
    }

    /// Removes a VM. `vms` has the remaining ones.
    pub(super) fn remove_guest(&mut self, row: Row, vm: VmId, pending: bool, vms: &[Option<VmSlot>]) {
        if let Some(Some(slot)) = self.hosts.get_mut(row as usize) {
            let (list, sum) = slot.guests_and_need(pending);
            let special = sum.special > 0;
            list.retain(|other| *other != vm);
            *sum = list.iter().fold(Need::default(), |sum, vm| sum.and(need_of(vms, *vm)));
            if special {
                slot.recount(vms);
            }
            self.refresh(row);
        }
    }
}

fn need_of(vms: &[Option<VmSlot>], vm: VmId) -> Need {
    vms.get(vm as usize).and_then(Option::as_ref).map_or(Need::default(), |slot| slot.need)
}

impl HostSlot {
    /// Recomputes what sums can't express: pinned CPUs, and huge pages beyond the host's reserved ones.
    fn recount(&mut self, vms: &[Option<VmSlot>]) {
        let all = |ids: &[VmId]| -> Vec<&Vm> {
            ids.iter().filter_map(|id| Some(&*vms.get(*id as usize)?.as_ref()?.vm)).collect()
        };
        let (running, guests) = (all(&self.running), all(&self.guests().collect::<Vec<_>>()));
        let pinned = guests.iter().any(|vm| vm.pinning.is_exclusive() || !vm.pins.is_empty());
        self.cpus = pinned.then(|| CpuMap::new(&self.host, guests.iter().copied()));
        self.sums.dynamic = dynamic_mb(&self.host, running.into_iter());
        self.sums.pending_dynamic = dynamic_mb(&self.host, guests.into_iter()) - self.sums.dynamic;
    }

    fn guests_and_need(&mut self, pending: bool) -> (&mut Vec<VmId>, &mut Need) {
        match pending {
            true => (&mut self.pending, &mut self.sums.pending),
            false => (&mut self.running, &mut self.sums.running),
        }
    }

    /// All running and pending VMs, each once.
    pub fn guests(&self) -> impl Iterator<Item = VmId> + '_ {
        let also = self.pending.iter().filter(|vm| !self.running.contains(vm));
        self.running.iter().chain(also).copied()
    }
}

/// Memory in huge pages that VMs need beyond the host's reserved ones: it is allocated when they start.
pub(crate) fn dynamic_mb<'v>(host: &Host, vms: impl Iterator<Item = &'v Vm>) -> i32 {
    let mut needed: BTreeMap<u64, u64> = BTreeMap::new();
    for (size, count) in vms.filter_map(Vm::huge_pages) {
        *needed.entry(size).or_default() += count;
    }
    let beyond = |(size, count): (&u64, &u64)| {
        size * count.saturating_sub(host.huge_pages.get(size).copied().unwrap_or(0))
    };
    let kb: u64 = needed.iter().map(beyond).sum();
    i32::try_from(kb.div_ceil(1024)).unwrap_or(i32::MAX)
}
