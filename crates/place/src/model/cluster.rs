//! The hosts of a cluster, by row.

use super::{Bits, Columns, Need, Row, Sums, VmId};
use crate::object::{Blacklist, Cluster, Fact, Host, Load};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// A host with what is on it.
#[derive(Clone, Debug)]
pub struct HostSlot {
    /// The host.
    pub host: Arc<Host>,
    /// What was last measured of it.
    pub load: Option<Arc<Load>>,
    /// VMs that run on it.
    pub running: Vec<VmId>,
    /// VMs on their way to it.
    pub pending: Vec<VmId>,
    /// What those take.
    pub sums: Sums,
}

/// Figures about hosts from outside, by row.
#[derive(Clone, Debug, Default)]
pub struct FactColumn {
    /// The figure; not a number where there is none.
    pub values: Vec<f64>,
    /// When it goes stale.
    pub until: Vec<u64>,
}

impl FactColumn {
    /// The figure of `row`, unless there is none or it is stale.
    pub fn get(&self, row: Row, now: u64) -> Option<f64> {
        let value = *self.values.get(row as usize)?;
        (!value.is_nan() && now < self.until[row as usize]).then_some(value)
    }

    /// When the figure of `row` goes stale: 0 if there is none, the greatest number if it doesn't.
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
    /// The cluster as it is described.
    pub cluster: Arc<Cluster>,
    /// Its hosts' figures.
    pub columns: Columns,
    /// Its hosts; free rows have none.
    pub hosts: Vec<Option<HostSlot>>,
    /// Which hosts have a word, such as `network/blue`.
    words: HashMap<String, Bits>,
    /// Figures from outside, by name.
    pub facts: BTreeMap<String, FactColumn>,
    /// Why hosts are blacklisted.
    pub barred: HashMap<Row, String>,
    free: Vec<Row>,
    /// Rows in the order of their hosts' names, once somebody asked.
    by_name: OnceLock<Vec<Row>>,
}

/// The words of a host that filters look up.
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

    /// Which hosts have `word` of `kind`; none if nobody has it.
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

    /// Rows in the order of their hosts' names, which is the same however the cluster came to be.
    pub fn by_name(&self) -> &[Row] {
        self.by_name.get_or_init(|| {
            let mut rows: Vec<Row> =
                (0..self.hosts.len() as Row).filter(|row| self.slot(*row).is_some()).collect();
            rows.sort_unstable_by_key(|row| self.name(*row));
            rows
        })
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
        };
        self.hosts[row as usize] = Some(slot);
        self.refresh(row);
        row
    }

    /// Describes a host anew.
    pub(super) fn change(&mut self, row: Row, host: Host) {
        let Some(old) = self.slot(row).map(|slot| slot.host.clone()) else { return };
        self.index(row, &old, false);
        self.index(row, &host, true);
        if let Some(slot) = &mut self.hosts[row as usize] {
            slot.host = Arc::new(host);
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

    pub(super) fn fact_is(&mut self, row: Row, name: &str, fact: Option<&Fact>) {
        let column = self.facts.entry(name.into()).or_default();
        match fact {
            Some(fact) => column.put(row, fact.value, fact.until.unwrap_or(u64::MAX)),
            None => column.put(row, f64::NAN, 0),
        }
    }

    pub(super) fn bar(&mut self, row: Row, entry: Option<&Blacklist>) {
        self.columns.barred[row as usize] = entry.map_or(0, |entry| entry.until.unwrap_or(u64::MAX));
        match entry {
            Some(entry) => self.barred.insert(row, entry.reason.clone()),
            None => self.barred.remove(&row),
        };
    }

    /// Works out the figures of a row anew.
    pub(super) fn refresh(&mut self, row: Row) {
        if let Some(Some(slot)) = self.hosts.get(row as usize) {
            self.columns.refresh(row, &slot.host, slot.load.as_deref(), &slot.sums, &self.cluster);
        }
    }

    /// Seats a VM; `pending` says which way.
    pub(super) fn seat(&mut self, row: Row, vm: VmId, need: Need, pending: bool) {
        if let Some(Some(slot)) = self.hosts.get_mut(row as usize) {
            let (list, sum) = slot.seats(pending);
            list.push(vm);
            *sum = sum.and(need);
            self.refresh(row);
        }
    }

    /// Unseats a VM. `needs` are those of the VMs that stay.
    pub(super) fn unseat(&mut self, row: Row, vm: VmId, pending: bool, need_of: impl Fn(VmId) -> Need) {
        if let Some(Some(slot)) = self.hosts.get_mut(row as usize) {
            let (list, sum) = slot.seats(pending);
            list.retain(|other| *other != vm);
            *sum = list.iter().fold(Need::default(), |sum, vm| sum.and(need_of(*vm)));
            self.refresh(row);
        }
    }
}

impl HostSlot {
    fn seats(&mut self, pending: bool) -> (&mut Vec<VmId>, &mut Need) {
        match pending {
            true => (&mut self.pending, &mut self.sums.pending),
            false => (&mut self.running, &mut self.sums.running),
        }
    }

    /// Everybody who is here or on the way, each once.
    pub fn guests(&self) -> impl Iterator<Item = VmId> + '_ {
        let also = self.pending.iter().filter(|vm| !self.running.contains(vm));
        self.running.iter().chain(also).copied()
    }
}
