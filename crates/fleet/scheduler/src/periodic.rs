//! Periodic work of placement: expiring leases, measuring this host, balancing clusters, and carrying out
//! moves.

use super::{Failed, Placer, Service, power};
use ringway_place::engine::{ActionKind, BalanceStep, Engine, EngineError, Migration, MigrationState};
use ringway_place::object::{Executor, Host, HostStatus};
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

/// A host's status, and whether the policy set it.
type Switched = (HostStatus, bool);

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
        let before: BTreeMap<String, Switched> = self.engine.view(|model| {
            let hosts = model.cluster(cluster).into_iter().flat_map(|(_, state)| &state.hosts).flatten();
            let switched = |host: &Host| (host.name.clone(), (host.status, host.policy_controlled));
            hosts.map(|slot| switched(&slot.host)).collect()
        })?;
        let mut step = self.engine.balance(cluster, now)?;
        self.stop_vms(&mut step)?;
        self.switch_host(&mut step, &before)?;
        carry_out(&self.engine, cluster, &mut step.migrations, now)?;
        for migration in &step.migrations {
            tracing::info!(
                vm = migration.vm, from = migration.from, to = migration.to, state = ?migration.state,
                "balancing: {}", migration.reason
            );
        }
        for action in &step.actions {
            let (name, state) = (&action.name, action.state);
            tracing::info!(name, kind = ?action.kind, ?state, "balancing: {}", action.reason);
        }
        let acts = !step.migrations.is_empty() || !step.actions.is_empty() || step.power.is_some();
        if acts || !step.errors.is_empty() {
            let mut rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
            rounds.last.push_back(step.clone());
            if rounds.last.len() > ROUNDS {
                rounds.last.pop_front();
            }
        }
        Ok(step)
    }

    /// Stops VMs as a balancer asked: guests and functions of this fabric, and VMs that are only simulated. Others are
    /// left to the program that moves VMs too.
    fn stop_vms(&self, step: &mut BalanceStep) -> Result<(), Failed> {
        let executor = self
            .engine
            .view(|model| model.cluster(&step.cluster).map(|(_, state)| state.cluster.executor))?;
        for action in step.actions.iter_mut().filter(|action| action.kind == ActionKind::Stop) {
            let ours = self.link.get().map(|link| Ok::<_, Failed>((link, link.machine(&action.name)?)));
            let done = match ours.transpose() {
                Ok(Some((link, Some(machine)))) if machine.runs => {
                    // The machine uses nothing here once it has ended, which the next measurement sees.
                    link.stop(&action.name)
                }
                Ok(_) if executor == Some(Executor::Inventory) => {
                    self.engine.stop(&action.name).map_err(Failed::from)
                }
                Ok(_) => continue,
                Err(error) => Err(error),
            };
            match done {
                Ok(()) => action.state = MigrationState::Done,
                Err(error) => {
                    action.state = MigrationState::Refused;
                    action.refused = error.to_string();
                }
            }
        }
        Ok(())
    }

    /// Switches the host of a round by the program of the file; if that fails, the host keeps its former status.
    fn switch_host(&self, step: &mut BalanceStep, before: &BTreeMap<String, Switched>) -> Result<(), Failed> {
        let hook = self.power.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some((host, status)) = &step.power else { return Ok(()) };
        let (Some(hook), Some(old)) = (hook, before.get(host)) else { return Ok(()) };
        let Some(on) = power::switches(old.0, *status) else { return Ok(()) };
        if let Err(error) = hook.switch(host, on) {
            self.engine.unswitch(host, *status, *old)?;
            step.errors.push(error);
            (step.power, step.power_reason) = (None, String::new());
        }
        Ok(())
    }

    /// The last rounds in which something happened, newest first.
    pub fn last_rounds(&self) -> Vec<BalanceStep> {
        let rounds = self.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.last.iter().rev().cloned().collect()
    }
}

/// Carries out moves. A VM moves in the inventory at once, since other hosts are only
/// simulated. VMs on this host are pinned while they run, so they are never moved. A cluster with an external
/// executor is left to it: it finds reservations, and confirms or releases them.
pub(crate) fn carry_out(
    engine: &Engine,
    cluster: &str,
    migrations: &mut [Migration],
    now: u64,
) -> Result<(), EngineError> {
    let executor = engine.view(|model| model.cluster(cluster).map(|(_, state)| state.cluster.executor))?;
    if executor != Some(Executor::Inventory) {
        return Ok(());
    }
    for migration in migrations {
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
    use ringway_place::model::Model;
    use ringway_place::object::{Cluster, Vm, VmStatus};

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
    fn a_program_switches_hosts_and_what_it_refuses_stays() {
        let service = Service::in_memory().unwrap();
        let properties = [("EnableAutomaticHostPowerManagement".to_string(), "true".to_string())];
        let policy = "power_saving".to_string();
        let cluster = Cluster { policy, properties: properties.into(), interval: 0, ..Cluster::default() };
        let (power_managed, policy_controlled, status) = (true, true, HostStatus::Maintenance);
        let size = Host { cores: 4, threads: 4, memory_mb: 8192, ..Host::default() };
        let host = Host { name: "a".into(), power_managed, policy_controlled, status, ..size };
        service.put(vec![Object::Cluster(cluster), Object::Host(Box::new(host.clone()))]).unwrap();
        let folder = std::env::temp_dir().join(format!("rw-switch-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (program, log) = (folder.join("power"), folder.join("log"));
        let hook = |text: &str| {
            crate::power::tests::script(&program, text);
            service.power_by(Some(crate::PowerHook { program: program.clone(), limit_ms: 60_000 }));
        };
        hook("echo 'no BMC' >&2; exit 1");
        let step = service.round("default").unwrap();
        assert!(
            step.power.is_none() && step.errors[0].ends_with("off a: exit status: 1: no BMC"),
            "{step:?}"
        );
        let state = || {
            let of = |host: &Host| (host.status, host.policy_controlled, host.labels.clone());
            let of = |model: &Model| model.slot(model.host("a").unwrap()).map(|slot| of(&slot.host)).unwrap();
            service.engine.view(of).unwrap()
        };
        assert_eq!(state(), (HostStatus::Maintenance, true, Vec::new()));
        // What an operator changes while the program runs stays.
        let put = |host: Host| service.put(vec![Object::Host(Box::new(host))]).unwrap();
        let labels = vec!["new".to_string()];
        let changed = Host { labels: labels.clone(), ..host.clone() };
        service.engine.unswitch("a", HostStatus::Maintenance, (HostStatus::Down, true)).unwrap();
        put(Host { status: HostStatus::Down, ..changed.clone() });
        service.engine.unswitch("a", HostStatus::Up, (HostStatus::Maintenance, true)).unwrap();
        assert_eq!(state(), (HostStatus::Down, true, labels.clone()), "an operator has set the status");
        service.engine.unswitch("a", HostStatus::Down, (HostStatus::Maintenance, true)).unwrap();
        assert_eq!(state(), (HostStatus::Maintenance, true, labels));
        hook(&format!("echo $1 $2 >> {}", log.display()));
        let step = service.round("default").unwrap();
        assert_eq!(step.power, Some(("a".to_string(), HostStatus::Down)));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "off a\n");
        std::fs::remove_dir_all(&folder).unwrap();
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
