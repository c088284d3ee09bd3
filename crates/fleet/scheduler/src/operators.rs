//! Requests of operators: maintenance of hosts, events, the store and its backups.

use super::view::{EventsView, StatusView, StoreView, VmView};
use super::{Failed, Service};
use ringway_place::engine::{EngineError, Object};
use ringway_place::policy::Policy;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::PoisonError;

/// Attack: a store that changes endlessly. Largest number of revisions with known times.
const STAMPS: usize = 20_000;
/// Largest number of events in one reply.
const EVENTS: usize = 10_000;

/// When revisions were first seen, oldest first. The first entry is from before the store was opened.
#[derive(Default)]
pub(crate) struct Stamps(VecDeque<(u64, u64)>);

impl Stamps {
    fn add(&mut self, revision: u64, now: u64) {
        if self.0.back().is_none_or(|(known, _)| *known < revision) {
            self.0.push_back((revision, now));
        }
        if self.0.len() > STAMPS {
            self.0.pop_front();
        }
    }

    /// The time of a revision, possibly slightly later.
    fn of(&self, revision: u64) -> Option<u64> {
        let at = self.0.partition_point(|(known, _)| *known < revision);
        self.0.get(at).filter(|_| at > 0).map(|(_, at)| *at)
    }
}

/// Kinds of objects.
const KINDS: [&str; 8] = ["cluster", "policy", "host", "load", "fact", "blacklist", "vm", "group"];

/// An object's kind and its name; of a fact its host's and its own.
pub fn kind_and_name(object: &Object) -> (&'static str, String) {
    match object {
        Object::Cluster(it) => ("cluster", it.name.clone()),
        Object::Policy(it) => ("policy", it.name.clone()),
        Object::Host(it) => ("host", it.name.clone()),
        Object::Load(it) => ("load", it.host.clone()),
        Object::Fact(it) => ("fact", format!("{}/{}", it.host, it.name)),
        Object::Blacklist(it) => ("blacklist", it.host.clone()),
        Object::Vm(it) => ("vm", it.name.clone()),
        Object::Group(it) => ("group", it.name.clone()),
    }
}

impl Service {
    /// Records the time of the latest changes.
    pub(crate) fn stamp(&self) {
        if let Ok(revision) = self.engine.revision() {
            let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
            stamps.add(revision, self.clock.now());
        }
    }

    /// The first changes after a revision, or the newest ones; oldest first.
    pub fn events(&self, after: Option<u64>, count: usize, measurements: bool) -> Result<EventsView, Failed> {
        self.stamp();
        let (revision, mut events) = self.engine.changes(after, count.min(EVENTS), measurements)?;
        let stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        events.iter_mut().for_each(|event| event.at = stamps.of(event.revision));
        Ok(EventsView { revision, events })
    }

    /// Objects of a kind, or all, by kind and name.
    pub fn objects(&self, kind: Option<&str>) -> Result<Vec<Object>, Failed> {
        if let Some(kind) = kind.filter(|kind| !KINDS.contains(kind)) {
            let known = KINDS.join(", ");
            return Err(Failed::Wrong(format!(
                "there is no kind `{}`; kinds are {known}",
                kind.escape_debug()
            )));
        }
        let mut objects = self.engine.objects()?;
        objects.retain(|object| kind.is_none_or(|kind| kind_and_name(object).0 == kind));
        objects.sort_by(|a, b| kind_and_name(a).cmp(&kind_and_name(b)));
        Ok(objects)
    }

    /// All VMs by name, with their reservations.
    pub fn vm_views(&self) -> Result<Vec<VmView>, Failed> {
        let mut vms: Vec<VmView> = self.engine.view(|model| {
            let view = |vm: &ringway_place::object::Vm| VmView {
                reserved: model.pendings().get(&vm.name).map(|pending| pending.host.clone()),
                vm: vm.clone(),
            };
            model.vm_slots().map(|slot| view(&slot.vm)).collect()
        })?;
        vms.sort_by(|a, b| a.vm.name.cmp(&b.vm.name));
        Ok(vms)
    }

    /// A policy.
    pub fn policy(&self, name: &str) -> Result<Policy, Failed> {
        let policy = self.engine.view(|model| model.policy(name).map(|policy| (**policy).clone()))?;
        match policy {
            Some(policy) => Ok(policy),
            None => Err(EngineError::from(self.engine.view(|model| model.no_policy(name))?).into()),
        }
    }

    /// Puts a host into maintenance. Returns its new status.
    pub fn maintain(&self, host: &str) -> Result<StatusView, Failed> {
        Ok(StatusView { status: self.engine.maintain(host)? })
    }

    /// Ends a host's maintenance. Returns its new status.
    pub fn activate(&self, host: &str) -> Result<StatusView, Failed> {
        Ok(StatusView { status: self.engine.activate(host)? })
    }

    /// The store's path and contents.
    pub fn store(&self) -> Result<StoreView, Failed> {
        let (store, path) = self.files()?;
        Ok(StoreView { path: path.display().to_string(), full: store.full(), holds: store.summary() })
    }

    /// Writes a backup of the store, replacing the file `to`.
    pub fn backup(&self, to: &Path) -> Result<StoreView, Failed> {
        // Attack: a path relative to this process's working directory.
        if !to.is_absolute() {
            return Err(Failed::Wrong(format!("{}: an absolute path is needed", to.display())));
        }
        let (store, path) = self.files()?;
        let holds = store.backup(to)?;
        Ok(StoreView { path: path.display().to_string(), full: store.full(), holds })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_place::object::{Host, HostStatus, Vm, VmStatus};

    #[test]
    fn revisions_keep_the_time_at_which_they_were_first_seen() {
        let mut stamps = Stamps::default();
        let seen = [(5, 1000), (5, 1100), (8, 2000), (9, 3000)];
        seen.into_iter().for_each(|(revision, at)| stamps.add(revision, at));
        let times = [4, 5, 6, 8, 9, 10].map(|revision| stamps.of(revision));
        assert_eq!(times, [None, None, Some(2000), Some(2000), Some(3000), None]);
    }

    #[test]
    fn a_host_is_emptied_and_then_in_maintenance() {
        let service = Service::in_memory().unwrap();
        let host = |name: &str| {
            let host = Host { name: name.into(), cores: 4, threads: 4, memory_mb: 8192, ..Host::default() };
            Object::Host(Box::new(host))
        };
        let vm = Vm { name: "v".into(), host: Some("a".into()), status: VmStatus::Up, ..Vm::default() };
        service.put(vec![host("a"), host("b"), Object::Vm(Box::new(vm))]).unwrap();
        let status = |service: &Service| service.hosts().unwrap()[0].status;
        assert_eq!(service.maintain("b").unwrap().status, HostStatus::Maintenance);
        assert_eq!(service.activate("b").unwrap().status, HostStatus::Up);
        assert_eq!(service.maintain("a").unwrap().status, HostStatus::PreparingForMaintenance);
        service.end_emptying().unwrap();
        assert_eq!(status(&service), HostStatus::PreparingForMaintenance);
        service.round("default").unwrap();
        service.end_emptying().unwrap();
        assert_eq!(status(&service), HostStatus::Maintenance);
        assert!(matches!(service.maintain("nowhere"), Err(Failed::Unknown(_))));
        let events = service.events(None, 4, true).unwrap();
        let lines: Vec<String> =
            events.events.iter().map(|it| format!("{} {} {}", it.kind, it.name, it.what)).collect();
        assert_eq!(lines.last().unwrap(), "host a Maintenance", "{lines:?}");
        assert!(events.events.iter().all(|event| event.at.is_some()));
        assert_eq!(service.events(Some(events.revision), 10, true).unwrap().events, []);
    }

    #[test]
    fn events_are_reported_once_and_in_order() {
        let service = Service::in_memory().unwrap();
        for name in ["a", "b", "c"] {
            let vm = |half: &str| Object::Vm(Box::new(Vm { name: format!("{name}{half}"), ..Vm::default() }));
            service.put(vec![vm("1"), vm("2")]).unwrap();
        }
        let (mut after, mut names) = (0, Vec::new());
        loop {
            // All changes of a revision are returned together, so that the next revision can be requested.
            let next = service.events(Some(after), 3, true).unwrap();
            if next.events.is_empty() {
                break;
            }
            names.extend(next.events.into_iter().map(|event| event.name));
            after = next.revision;
        }
        assert_eq!(names, ["a1", "a2", "b1", "b2", "c1", "c2"]);
    }

    #[test]
    fn a_new_running_vm_is_refused_and_reported() {
        let service = Service::in_memory().unwrap();
        let host = Host { name: "a".into(), cores: 8, threads: 8, memory_mb: 8192, ..Host::default() };
        let vm = Vm { name: "v".into(), host: Some("a".into()), status: VmStatus::Up, ..Vm::default() };
        service.put(vec![Object::Host(Box::new(host)), Object::Vm(Box::new(vm.clone()))]).unwrap();
        let new = |vm: Vm, policy: Option<&str>| {
            let policy = policy.map(str::to_string);
            crate::PlaceRequest { new: vec![vm], policy, ..Default::default() }
        };
        let before = service.hosts().unwrap();
        let again = Vm { host: None, status: VmStatus::Down, ..vm };
        for done in [
            service.place(new(again.clone(), None)).map(drop),
            service.attempt(new(again.clone(), None)).map(drop),
        ] {
            let Err(Failed::Conflict(message)) = done else { panic!("{done:?}") };
            assert!(message.contains("VM v runs on host a"), "{message}");
        }
        assert_eq!(service.hosts().unwrap(), before);
        // If a request can't be judged, the previous state stays too.
        let known = Vm { name: "w".into(), memory_mb: 77, ..Vm::default() };
        service.put(vec![Object::Vm(Box::new(known.clone()))]).unwrap();
        let other = Vm { memory_mb: 99, ..known.clone() };
        assert!(service.place(new(other, Some("nonsense"))).is_err());
        let fresh = Vm { name: "x".into(), ..Vm::default() };
        assert!(service.place(new(fresh, Some("nonsense"))).is_err());
        let vms = service.vms().unwrap();
        assert_eq!((vms.len(), &vms[1]), (2, &known));
    }
}
