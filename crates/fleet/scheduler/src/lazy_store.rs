//! Placement on a store that is created on first use: a fabric that never places anything has no store.

use super::apply::{Outcome, follow, words};
use super::measure::Measure;
use super::metrics::Metrics;
use super::{DecisionView, Fabric, Failed, JoinView, Placement, Service, this_host};
use crate::fabric::FabricHandle;
use ringway_place::engine::Object;
use ringway_place::model::{Model, VmSlot};
use ringway_place::object::{Host, Vm};
use ringway_place::store::{Embedded, StoreError};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// A handle to placement, whose store may not be open yet.
#[derive(Clone)]
pub struct Placer {
    path: Option<PathBuf>,
    /// The placement part of the fabric file.
    file: Arc<Mutex<Placement>>,
    /// Changes of the file that failed so far.
    refused: Arc<Mutex<Vec<String>>>,
    link: Option<Arc<FabricHandle>>,
    service: Arc<Mutex<Option<Service>>>,
    /// Why the store could not be opened, and the state of its files then.
    damaged: Arc<Mutex<Option<(Stamp, Failed)>>>,
    measure: Arc<Mutex<Measure>>,
    pub(crate) metrics: Arc<Metrics>,
}

/// Identifies the state of files, to detect changes.
type Stamp = [Option<(u64, u64, Option<SystemTime>)>; 2];

/// Adds this host to a cluster, unless it belongs to one: later manual settings stay.
fn enter(service: &Service, cluster: &str) -> Result<JoinView, Failed> {
    let host = Host { cluster: cluster.into(), ..this_host() };
    let of = |model: &Model| Some(model.slot(model.host(&host.name)?)?.host.cluster.clone());
    let (name, known) = (host.name.clone(), service.engine.view(of)?);
    if known.is_none() {
        service.put(vec![Object::Host(Box::new(host))])?;
    }
    Ok(JoinView { host: name, cluster: known.unwrap_or_else(|| cluster.into()) })
}

/// A full disk does not prevent reading.
fn unless_full(done: Result<(), Failed>) -> Result<(), Failed> {
    match done {
        Err(Failed::Full(_)) => Ok(()),
        done => done,
    }
}

impl Placer {
    /// Placement on the store at `path`, with the fabric file's settings and the fabric of this host.
    pub fn at(path: PathBuf, file: Placement, fabric: Box<dyn Fabric>) -> Placer {
        Placer {
            path: Some(path),
            file: Arc::new(Mutex::new(file)),
            refused: Arc::default(),
            link: Some(Arc::new(FabricHandle::new(fabric))),
            service: Arc::default(),
            damaged: Arc::default(),
            measure: Arc::default(),
            metrics: Arc::default(),
        }
    }

    /// A handle to an open service.
    pub fn on(service: Service) -> Placer {
        Placer {
            path: None,
            file: Arc::default(),
            refused: Arc::default(),
            link: None,
            service: Arc::new(Mutex::new(Some(service))),
            damaged: Arc::default(),
            measure: Arc::default(),
            metrics: Arc::default(),
        }
    }

    fn file(&self) -> Placement {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The service, if it is open or its store exists.
    fn open_if_stored(&self) -> Result<Option<Service>, Failed> {
        let open = self.service.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let there = open || self.path.as_ref().is_some_and(|path| Embedded::is_there(path));
        there.then(|| self.service()).transpose()
    }

    /// Whether decisions take microseconds: placement is open, in a separate process, and asks no external unit.
    pub(crate) fn is_quick(&self) -> bool {
        let service = self.open_service().filter(|_| self.path.is_none());
        service.is_some_and(|service| service.engine.external_units().is_empty())
    }

    /// The service, if it is open.
    pub(crate) fn open_service(&self) -> Option<Service> {
        self.service.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Opens the service, with the current state of this host, and without expired reservations.
    pub fn service(&self) -> Result<Service, Failed> {
        let mut opened = self.service.lock().unwrap_or_else(PoisonError::into_inner);
        let service = match (&*opened, &self.path) {
            (Some(service), _) => service.clone(),
            (None, Some(path)) => {
                let service = self.open(path)?;
                let file = self.file();
                service.plugins_of_file(file.plugins.clone());
                if let Some(link) = &self.link {
                    service.stands_on(link.clone());
                }
                self.follow_file(&service, &file)?;
                opened.insert(service).clone()
            }
            (None, None) => return Err(Failed::Conflict("placement has no file".into())),
        };
        drop(opened);
        if self.path.is_some() {
            let mut measure = self.measure.lock().unwrap_or_else(PoisonError::into_inner);
            measure.take(&service, self.link.as_deref());
        }
        unless_full(service.engine.expire(service.clock.now()).map_err(Failed::from))?;
        Ok(service)
    }

    /// Opens the store. A damaged store is read again only after its files have changed.
    fn open(&self, path: &Path) -> Result<Service, Failed> {
        let stamp = || {
            [path.to_path_buf(), path.with_extension("redb.log")].map(|file| {
                let known = std::fs::metadata(file).ok()?;
                Some((known.ino(), known.len(), known.modified().ok()))
            })
        };
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, refused)) = damaged.as_ref().filter(|(files, _)| *files == stamp()) {
            return Err(refused.clone());
        }
        *damaged = None;
        Service::open(path).map_err(|error| {
            let refused = Failed::from(error.clone());
            if matches!(error, StoreError::Damaged(_)) {
                *damaged = Some((stamp(), refused.clone()));
            }
            refused
        })
    }

    /// Places a guest of the fabric here and starts it.
    pub fn start_guest(&self, name: &str) -> Result<DecisionView, Failed> {
        let service = self.service()?;
        let link = self.link.as_ref().ok_or_else(|| Failed::Conflict("there is no fabric".into()))?;
        let vm = |model: &Model| model.vm(name).map(|slot| slot.vm.cluster.clone());
        let cluster = service.engine.view(vm)?;
        // A guest runs only on this host: its start shows that this host is to be used.
        if link.machine(name)?.is_some() {
            enter(&service, &cluster.unwrap_or_else(|| Vm::default().cluster))?;
        }
        link.start(&service, &super::this_host::name(), name)
    }

    /// Adds this host to a cluster, unless it belongs to one.
    pub fn join(&self, cluster: &str) -> Result<JoinView, Failed> {
        let service = self.service()?;
        if self.link.is_none() {
            return Err(Failed::Conflict("there is no fabric".into()));
        }
        enter(&service, cluster)
    }

    /// Deletes an object, unless it would be recreated.
    pub fn remove(&self, kind: &str, name: &str) -> Result<(), Failed> {
        let service = self.service()?;
        if let Some(why) = self.keeps(&service, kind, name)? {
            return Err(Failed::Conflict(why));
        }
        service.remove(kind, name)
    }

    /// Why an object would be recreated: it is measured here, runs here, or is in the fabric file.
    fn keeps(&self, service: &Service, kind: &str, name: &str) -> Result<Option<String>, Failed> {
        let Some(link) = &self.link else { return Ok(None) };
        let here = super::this_host::name();
        let file = self.file();
        Ok(match kind {
            "host" if name == here && file.this_host.is_some() => Some(format!(
                "host {name} is this host, which the fabric's file adds to a cluster; take `this-host` out \
                 of [placement] there and run `ringway apply`"
            )),
            "load" if name == here => {
                Some(format!("host {name} is this host, and measured as long as the fabric is up"))
            }
            "policy" if file.policies.iter().any(|policy| policy.name == name) => Some(format!(
                "policy {name} is of the fabric's file; take it out there and run `ringway apply`"
            )),
            "cluster" if file.clusters.iter().any(|cluster| cluster.name == name) => Some(format!(
                "cluster {name} is of the fabric's file; take it out there and run `ringway apply`"
            )),
            "vm" => {
                let runs = |slot: &VmSlot| slot.vm.runs() && slot.vm.host.as_ref() == Some(&here);
                let runs = service.engine.view(|model| model.vm(name).is_some_and(runs))?;
                let ours = runs && link.machine(name)?.is_some();
                ours.then(|| format!("VM {name} runs in this fabric; stop it first"))
            }
            _ => None,
        })
    }

    /// Does periodic work: measures, expires leases, balances. Does nothing without a store.
    pub(crate) fn tick(&self) -> Result<(), Failed> {
        match self.open_if_stored()? {
            Some(service) => {
                if !self.refused.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
                    self.follow_file(&service, &self.file())?;
                }
                service.engine.tidy()?;
                service.stamp();
                service.advance_drains()?;
                service.balance_due()?;
                service.end_emptying()
            }
            None => Ok(()),
        }
    }

    /// Applies the fabric file; changes that fail are retried.
    fn follow_file(&self, service: &Service, file: &Placement) -> Result<Outcome, Failed> {
        service.power_by(file.power.clone());
        let outcome = follow(service, file)?;
        if let Some(cluster) = &file.this_host {
            enter(service, cluster)?;
        }
        outcome.changes.iter().for_each(|line| tracing::info!("the file: {line}"));
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if *refused != outcome.refused {
            outcome.refused.iter().for_each(|line| tracing::warn!("the file: {line}"));
            refused.clone_from(&outcome.refused);
        }
        Ok(outcome)
    }

    /// Applies a changed file. Returns the changes, in words.
    pub async fn apply_file(&self, file: Placement) -> Vec<String> {
        let place = self.clone();
        // The task waits for the disk, and for plugins.
        let task = tokio::task::spawn_blocking(move || place.take_over(file));
        task.await.unwrap_or_else(|error| vec![format!("placement: {error}")])
    }

    fn take_over(&self, file: Placement) -> Vec<String> {
        let before = {
            let mut ours = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *ours, file.clone())
        };
        let opened = self.service.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let changed = before.plugins != file.plugins;
        let mut changes: Vec<String> = changed.then(|| "change plugins".to_string()).into_iter().collect();
        let Some(service) = opened else {
            changes.extend(words(&before, &file));
            return changes;
        };
        service.plugins_of_file(file.plugins.clone());
        match self.follow_file(&service, &file) {
            Ok(outcome) => changes.extend(outcome.changes.into_iter().chain(outcome.refused)),
            Err(error) => changes.push(format!("placement is left as it was: {error}")),
        }
        changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Machine, Traffic};

    /// A fabric without guests.
    struct Empty;

    impl Fabric for Empty {
        fn traffic(&self) -> Result<Traffic, Failed> {
            Ok(Traffic::default())
        }

        fn machines(&self) -> Result<Vec<Machine>, Failed> {
            Ok(Vec::new())
        }

        fn start(&self, _: &str) -> Result<(), Failed> {
            Ok(())
        }

        fn stop(&self, _: &str) -> Result<(), Failed> {
            Ok(())
        }
    }

    #[test]
    fn the_fabrics_own_host_enters_a_cluster_only_if_asked() {
        let folder = std::env::temp_dir().join(format!("rw-own-host-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let asks = |this_host: Option<&str>| Placement {
            this_host: this_host.map(Into::into),
            ..Placement::default()
        };
        let clusters = |place: &Placer| {
            let hosts = place.service().unwrap().engine.view(|model| {
                let slots = model.host_names().filter_map(|name| model.slot(model.host(name)?));
                slots.map(|slot| slot.host.cluster.clone()).collect::<Vec<_>>()
            });
            hosts.unwrap()
        };
        let place = Placer::at(folder.join("place.redb"), asks(None), Box::new(Empty));
        place.service().unwrap();
        place.tick().unwrap();
        place.take_over(asks(None));
        place.tick().unwrap();
        assert!(clusters(&place).is_empty());
        place.take_over(asks(Some("edge")));
        assert_eq!(clusters(&place), ["edge"]);
        // What was asked first stays.
        place.join("default").unwrap();
        assert_eq!(clusters(&place), ["edge"]);
        std::fs::remove_dir_all(&folder).unwrap();
        let other = Placer::at(folder.join("other.redb"), asks(None), Box::new(Empty));
        std::fs::create_dir_all(&folder).unwrap();
        other.join("default").unwrap();
        assert_eq!(clusters(&other), ["default"]);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_guest_that_does_not_exist_joins_no_cluster() {
        let folder = std::env::temp_dir().join(format!("rw-opened-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let place = Placer::at(folder.join("place.redb"), Placement::default(), Box::new(Empty));
        let refused = place.start_guest("hall").unwrap_err();
        assert!(matches!(&refused, Failed::Unknown(why) if why.contains("no guest")), "{refused}");
        assert!(place.service().unwrap().hosts().unwrap().is_empty());
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
