//! Periodic work of placement: expiring leases, measuring this host, balancing clusters, and carrying out
//! moves.

use super::{Failed, Placer, Service};
use ringway_place::engine::{BalanceStep, Engine, EngineError, MigrationState};
use ringway_place::object::Executor;
use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Interval between checks for due work.
const LOOK: Duration = Duration::from_secs(1);
/// Number of recorded rounds in which something happened.
const ROUNDS: usize = 100;

/// Rounds of balancing.
#[derive(Default)]
pub struct Rounds {
    /// When the next one is due, by cluster.
    next: BTreeMap<String, u64>,
    last: VecDeque<BalanceStep>,
}

/// Does the periodic work until the task is aborted.
pub fn keep(place: Placer) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut last = String::new();
        loop {
            tokio::time::sleep(LOOK).await;
            let place = place.clone();
            // `tick` waits for the disk, and for plugins.
            match tokio::task::spawn_blocking(move || place.tick()).await {
                Ok(Ok(())) => last.clear(),
                // A persistent error is reported once, and the work is retried.
                Ok(Err(error)) => {
                    if std::mem::replace(&mut last, error.to_string()) != last {
                        tracing::warn!("placement: {error}");
                    }
                }
                Err(error) => tracing::error!("placement: {error}"),
            }
        }
    })
}

impl Service {
    /// Balances the clusters that are due.
    pub(crate) fn balance_due(&self) -> Result<(), Failed> {
        let now = self.clock.now();
        let clusters: Vec<(String, u64)> = self.engine.view(|model| {
            let clusters = model.clusters().iter().map(|state| &state.cluster);
            clusters.map(|cluster| (cluster.name.clone(), cluster.interval.saturating_mul(1000))).collect()
        })?;
        for (cluster, interval) in clusters {
            if self.is_due(&cluster, interval, now) {
                self.round(&cluster)?;
            }
        }
        Ok(())
    }

    /// Puts hosts that have been emptied into maintenance.
    pub(crate) fn end_emptying(&self) -> Result<(), Failed> {
        for host in self.engine.end_emptying()? {
            tracing::info!(host, "it is empty and in maintenance");
        }
        Ok(())
    }

    fn is_due(&self, cluster: &str, interval: u64, now: u64) -> bool {
        let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        if interval == 0 {
            rounds.next.remove(cluster);
            return false;
        }
        let next = rounds.next.entry(cluster.into()).or_insert(now.saturating_add(interval));
        // A shortened interval applies at once.
        *next = (*next).min(now.saturating_add(interval));
        let due = now >= *next;
        if due {
            *next = now.saturating_add(interval);
        }
        due
    }

    /// A round of balancing in a cluster, carried out.
    pub(crate) fn round(&self, cluster: &str) -> Result<BalanceStep, Failed> {
        let now = self.clock.now();
        let mut step = self.engine.balance(cluster, now)?;
        carry_out(&self.engine, &mut step, now)?;
        for migration in &step.migrations {
            tracing::info!(
                vm = migration.vm, from = migration.from, to = migration.to, state = ?migration.state,
                "balancing: {}", migration.reason
            );
        }
        if !step.migrations.is_empty() || step.power.is_some() || !step.errors.is_empty() {
            let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
            rounds.last.push_back(step.clone());
            if rounds.last.len() > ROUNDS {
                rounds.last.pop_front();
            }
        }
        Ok(step)
    }

    /// The last rounds in which something happened, newest first.
    pub fn last_rounds(&self) -> Vec<BalanceStep> {
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.last.iter().rev().cloned().collect()
    }
}

/// Carries out the moves of a round. A VM moves in the inventory at once, since other hosts are only
/// simulated. VMs on this host are pinned while they run, so they are never moved. A cluster with an external
/// executor is left to it: it finds reservations, and confirms or releases them.
fn carry_out(engine: &Engine, step: &mut BalanceStep, now: u64) -> Result<(), EngineError> {
    let executor =
        engine.view(|model| model.cluster(&step.cluster).map(|(_, state)| state.cluster.executor))?;
    if executor != Some(Executor::Inventory) {
        return Ok(());
    }
    for migration in &mut step.migrations {
        migration.state = MigrationState::Done;
        if let Err(error) = engine.confirm(&migration.vm, now) {
            migration.state = MigrationState::Refused;
            migration.refused = error.to_string();
            // If the VM was deleted meanwhile, so was its reservation.
            let _ = engine.release(&migration.vm);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_place::engine::Object;
    use ringway_place::object::{Cluster, Host, HostStatus, Vm, VmStatus};

    fn emptied(executor: Executor) -> Service {
        let service = Service::in_memory().unwrap();
        let host = |name: &str, status| {
            let host =
                Host { name: name.into(), status, cores: 4, threads: 4, memory_mb: 8192, ..Host::default() };
            Object::Host(Box::new(host))
        };
        let vm = Vm { name: "v".into(), host: Some("a".into()), status: VmStatus::Up, ..Vm::default() };
        let objects = vec![
            Object::Cluster(Cluster { executor, interval: 1, ..Cluster::default() }),
            host("a", HostStatus::PreparingForMaintenance),
            host("b", HostStatus::Up),
            Object::Vm(Box::new(vm)),
        ];
        service.put(objects).unwrap();
        service
    }

    fn at(service: &Service) -> Option<String> {
        service.vms().unwrap().remove(0).host
    }

    #[test]
    fn decided_migrations_change_the_inventory() {
        let service = emptied(Executor::Inventory);
        let step = service.round("default").unwrap();
        assert_eq!((step.migrations[0].state, at(&service).as_deref()), (MigrationState::Done, Some("b")));
        assert_eq!(service.last_rounds(), [step]);
    }

    #[test]
    fn an_external_executor_finds_a_reservation() {
        let service = emptied(Executor::Outside);
        let step = service.round("default").unwrap();
        assert_eq!(step.migrations[0].state, MigrationState::Reserved);
        assert_eq!((at(&service).as_deref(), service.hosts().unwrap()[1].pending), (Some("a"), 1));
        service.confirm("v").unwrap();
        assert_eq!(at(&service).as_deref(), Some("b"));
    }

    #[test]
    fn balancing_rounds_follow_the_interval() {
        let service = emptied(Executor::Inventory);
        let due = |interval, now| service.is_due("default", interval, now);
        assert!(!due(1000, 0) && !due(1000, 999) && due(1000, 1000) && !due(1000, 1001));
        assert!(due(1000, 2000) && !due(0, 9000) && !due(1000, 9000));
        assert!(!due(500, 9100) && due(500, 9600), "a shorter interval holds at once");
    }

    #[test]
    fn guests_of_this_host_are_not_migrated() {
        let service = emptied(Executor::Inventory);
        let here = crate::this_host::name();
        let mut host = crate::this_host();
        host.status = HostStatus::PreparingForMaintenance;
        let migration = ringway_place::object::Migration::PinnedToHost;
        let guest = Vm {
            name: "guest".into(),
            host: Some(here.clone()),
            status: VmStatus::Up,
            migration,
            ..Vm::default()
        };
        service.put(vec![Object::Host(Box::new(host)), Object::Vm(Box::new(guest))]).unwrap();
        for _ in 0..3 {
            service.round("default").unwrap();
        }
        let vms = service.vms().unwrap();
        assert_eq!(vms.iter().find(|vm| vm.name == "guest").unwrap().host.as_ref(), Some(&here));
    }
}
