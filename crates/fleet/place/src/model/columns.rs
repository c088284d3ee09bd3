//! A cluster's hosts in columns: one vector per figure, one index per host.

use super::{HostSlot, Need, Row};
use crate::object::{Cluster, HostStatus};

/// Memory overhead per guest in MB (oVirt's `GuestOverhead`).
pub const GUEST_OVERHEAD: i32 = 65;

/// Figures of every host of a cluster. A free row has `present` false.
#[derive(Clone, Debug, Default)]
pub struct Columns {
    /// Whether the row is in use.
    pub present: Vec<bool>,
    /// A number derived from its name, for breaking ties.
    pub dice: Vec<u64>,
    /// Whether the host is in use.
    pub up: Vec<bool>,
    /// When its blacklisting ends; 0 for none, the largest number for never.
    pub barred: Vec<u64>,
    /// CPUs: cores, or threads if the cluster counts threads.
    pub cpus: Vec<i32>,
    /// CPUs reserved for the host itself, in thousandths.
    pub kept: Vec<i32>,
    /// CPUs that are exclusive to running or pending VMs.
    pub exclusive: Vec<i32>,
    /// Virtual cores of the largest VM that shares CPUs.
    pub largest: Vec<i32>,
    /// Shared CPUs reserved by VMs, in thousandths, in the unit of `cpus`: cores, or threads.
    pub promised: Vec<i32>,
    /// Load of running VMs in percent of one CPU, as measured or last known.
    pub load: Vec<i32>,
    /// Load of pending VMs.
    pub pending_load: Vec<i32>,
    /// Start of the host's overload; the largest number if there is none.
    pub over_since: Vec<u64>,
    /// Shared CPUs taken by running VMs, in thousandths.
    pub milli: Vec<i32>,
    /// Shared CPUs taken by pending VMs, in thousandths.
    pub pending_milli: Vec<i32>,
    /// Free memory, as measured or computed, less that of pending VMs.
    pub free: Vec<i32>,
    /// Free swap.
    pub swap_free: Vec<i32>,
    /// Swap in use that is not matched by free memory, in percent of all memory.
    pub swapping: Vec<i32>,
    /// Total memory.
    pub physical: Vec<i32>,
    /// Memory that can still be reserved (oVirt's `maxSchedulingMemory`).
    pub schedulable: Vec<i32>,
    /// Running VMs.
    pub vms: Vec<i32>,
    /// Pending VMs.
    pub pending: Vec<i32>,
    /// Highly available VMs, with pending ones.
    pub ha: Vec<i32>,
}

impl Columns {
    /// Rows, free ones included.
    pub fn len(&self) -> usize {
        self.present.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }

    /// A host's shared CPUs taken by running and pending VMs, in CPUs.
    pub fn taken(&self, row: Row) -> f64 {
        self.taken_milli(row) as f64 / 1000.0
    }

    /// A host's shared CPUs taken by running and pending VMs, in thousandths of a CPU.
    pub fn taken_milli(&self, row: Row) -> i64 {
        let at = row as usize;
        i64::from(self.milli[at]) + i64::from(self.pending_milli[at])
    }

    /// Adds a free row.
    pub fn grow(&mut self) -> Row {
        let row = self.len() as Row;
        self.present.push(false);
        self.dice.push(0);
        self.up.push(false);
        self.barred.push(0);
        self.over_since.push(u64::MAX);
        for column in [
            &mut self.cpus,
            &mut self.kept,
            &mut self.exclusive,
            &mut self.largest,
            &mut self.promised,
            &mut self.load,
            &mut self.pending_load,
            &mut self.milli,
            &mut self.pending_milli,
            &mut self.free,
            &mut self.swap_free,
            &mut self.swapping,
            &mut self.physical,
            &mut self.schedulable,
            &mut self.vms,
            &mut self.pending,
            &mut self.ha,
        ] {
            column.push(0);
        }
        row
    }

    /// Recomputes a host's figures.
    pub(super) fn refresh(&mut self, row: Row, slot: &HostSlot, exclusive: i32, cluster: &Cluster) {
        let at = row as usize;
        let (host, load) = (&slot.host, slot.load.as_deref());
        let cpus = if cluster.threads_as_cores { host.threads } else { host.cores } as i32;
        let Sums { running, pending, dynamic, pending_dynamic } = &slot.sums;
        self.present[at] = true;
        self.dice[at] = dice(&host.name);
        self.up[at] = host.status == HostStatus::Up;
        self.cpus[at] = cpus;
        self.kept[at] = host.reserved_milli_cpus as i32;
        self.exclusive[at] = exclusive;
        self.largest[at] = running.largest.max(pending.largest);
        self.promised[at] = running.cpus(cluster).saturating_add(pending.cpus(cluster));
        let measured = load.and_then(|load| load.cpu_percent).map(|percent| percent as i32 * cpus);
        // The storage pool manager costs one virtual CPU (oVirt's `SpmVCpuConsumption`).
        let manager = if host.spm { super::VCPU_LOAD } else { 0 };
        self.load[at] = measured.unwrap_or(running.load) + manager;
        self.pending_load[at] = pending.load;
        self.over_since[at] = load.and_then(|load| load.over_since).unwrap_or(u64::MAX);
        self.milli[at] = running.milli;
        self.pending_milli[at] = pending.milli;
        let physical = host.memory_mb as i32;
        let huge: u64 = host.huge_pages.iter().map(|(size, count)| size * count / 1024).sum();
        let plain = physical - huge as i32;
        let free = match load.and_then(|load| load.free_mb) {
            Some(free) => free as i32,
            None => plain.saturating_sub(running.memory).saturating_sub(*dynamic),
        };
        let swap_free = load.and_then(|load| load.swap_free_mb).unwrap_or(host.swap_mb) as i32;
        self.swapping[at] = match free {
            1.. => (host.swap_mb as i64 - i64::from(swap_free) - i64::from(free)) * 100 / i64::from(physical),
            _ => 0,
        } as i32;
        self.free[at] = free.saturating_sub(pending.memory).saturating_sub(*pending_dynamic);
        self.swap_free[at] = swap_free;
        self.physical[at] = physical;
        let promised = i64::from(plain) * i64::from(cluster.memory_overcommit) / 100
            - i64::from(host.reserved_mb as i32)
            - i64::from(GUEST_OVERHEAD)
            - i64::from(running.committed)
            - i64::from(pending.committed)
            - i64::from(*dynamic)
            - i64::from(*pending_dynamic);
        self.schedulable[at] = promised.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
        self.vms[at] = running.count;
        self.pending[at] = pending.count;
        self.ha[at] = running.ha + pending.ha;
    }

    /// Frees a row.
    pub fn clear(&mut self, row: Row) {
        self.present[row as usize] = false;
        self.up[row as usize] = false;
        self.barred[row as usize] = 0;
    }
}

/// A hash of a name (FNV-1a), the same on every machine, so that ties are broken alike everywhere.
fn dice(name: &str) -> u64 {
    name.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Resources taken on a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Resources taken by running VMs.
    pub running: Need,
    /// Resources taken by pending VMs.
    pub pending: Need,
    /// Memory in huge pages beyond the host's reserved ones, of running VMs.
    pub dynamic: i32,
    /// Memory in huge pages beyond the host's reserved ones, of pending VMs.
    pub pending_dynamic: i32,
}
