//! Periodic measurements of this host.

use super::fabric::differences;
use crate::fabric::Link;
use crate::{Failed, Service, this_host};
use ringway_place::engine::Object;
use ringway_place::model::VmSlot;
use ringway_place::object::{Load, PortLoad, Vm};
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds between two measurements.
const EACH: u64 = 1000;
/// Milliseconds after which figures are written even without a significant change.
const STALE: u64 = 60_000;
/// Milliseconds after which loads of ports are written.
const PORTS: u64 = 5_000;
/// Thresholds below which changes are not significant: MB, and percent of the CPUs.
const LITTLE: (u64, u32) = (64, 5);

/// The last measurements.
#[derive(Default)]
pub struct Measure {
    at: Option<u64>,
    /// Time and content of the last written figures.
    written: Option<(u64, Load)>,
    cpu: Option<this_host::CpuTime>,
    nics: BTreeMap<String, this_host::NicCount>,
    /// The last load of the fabric's ports.
    ports: Vec<PortLoad>,
    /// Errors that were logged.
    said: BTreeSet<String>,
}

/// Attack: errors with ever new texts. Largest number of different ones that are logged.
const ERRORS: usize = 100;

impl Measure {
    /// Measures this host and the fabric's traffic on it, unless that was done a moment ago. What can't be measured or
    /// written is left out, and logged once; placement goes ahead without it.
    pub fn take(&mut self, service: &Service, link: Option<&Link>) {
        let now = service.clock.now();
        if self.at.is_some_and(|at| now < at.saturating_add(EACH)) {
            return;
        }
        let passed = self.at.map(|at| now.saturating_sub(at));
        self.at = Some(now);
        let here = this_host::name();
        // A host that belongs to no cluster is not measured, and what runs on it takes nothing from others.
        match service.engine.view(|model| model.host(&here).is_none()) {
            Ok(false) => {}
            Ok(true) => {
                self.cpu = this_host::cpu_time();
                return;
            }
            Err(error) => return self.say(&Failed::from(error)),
        }
        let mut objects = Vec::new();
        let mut ports = self.nic_loads(passed);
        if let Some(link) = link {
            match link.rates(&here, now) {
                Ok(Some(rates)) => {
                    objects.extend(rates.facts);
                    self.ports = rates.ports;
                }
                Ok(None) => {}
                Err(error) => self.say(&error),
            }
            ports.extend(self.ports.iter().cloned());
            match machines(service, link, &here) {
                Ok(changes) => objects.extend(changes),
                Err(error) => self.say(&error),
            }
        }
        objects.extend(self.load(&here, now, ports).map(Object::Load));
        self.write(service, objects, now);
    }

    /// Writes all, or if that fails each for itself.
    fn write(&mut self, service: &Service, objects: Vec<Object>, now: u64) {
        if objects.is_empty() {
            return;
        }
        // The ports were measured a moment ago and may have been removed since.
        match service.engine.put_at(objects.clone(), now).map_err(Failed::from) {
            Err(Failed::Wrong(_) | Failed::Unknown(_) | Failed::Conflict(_)) => {}
            // A full disk is reported to those who write.
            Ok(_) | Err(Failed::Full(_)) => return,
        }
        for object in objects {
            if let Err(error) = service.engine.put_at(vec![object], now) {
                self.say(&Failed::from(error));
            }
        }
    }

    fn say(&mut self, error: &Failed) {
        if self.said.len() < ERRORS && self.said.insert(error.to_string()) {
            tracing::warn!("measuring this host: {error}; it is left out");
        }
    }

    /// This host's load, if it must be written.
    fn load(&mut self, here: &str, now: u64, ports: Vec<PortLoad>) -> Option<Load> {
        let (free_mb, swap_free_mb) = this_host::free();
        let cpu = this_host::cpu_time();
        let cpu_percent = self.cpu.zip(cpu).and_then(|(before, now)| now.percent_since(before));
        self.cpu = cpu.or(self.cpu);
        let load = Load {
            host: here.into(),
            cpu_percent,
            over_since: None,
            free_mb: Some(free_mb),
            swap_free_mb: Some(swap_free_mb),
            ports,
        };
        let stands = self.written.as_ref().is_some_and(|(at, old)| {
            let holds = if old.ports == load.ports { STALE } else { PORTS };
            now < at.saturating_add(holds) && is_near(old, &load)
        });
        if stands {
            return None;
        }
        self.written = Some((now, load.clone()));
        Some(load)
    }

    /// The load of each network card of this host.
    fn nic_loads(&mut self, passed: Option<u64>) -> Vec<PortLoad> {
        let counts = this_host::nic_counts();
        let before = std::mem::replace(&mut self.nics, counts);
        let seconds = passed.unwrap_or(0).max(1) as f64 / 1000.0;
        let load = |(name, count): (&String, &this_host::NicCount)| {
            let old = before.get(name)?;
            let bytes = count.bytes.saturating_sub(old.bytes) as f64;
            let packets = count.packets.saturating_sub(old.packets) as f64;
            Some(PortLoad {
                name: name.clone(),
                mbps: (bytes * 8.0 / 1e6 / seconds) as u64,
                pps: (packets / seconds) as u64,
            })
        };
        self.nics.iter().filter_map(load).collect()
    }
}

/// Changes of VMs that are the fabric's guests and functions.
fn machines(service: &Service, link: &Link, here: &str) -> Result<Vec<Object>, Failed> {
    let running = |slot: &VmSlot| (slot.vm.name.clone(), (*slot.vm).clone());
    let known: BTreeMap<String, Vm> = service.engine.view(|model| model.vm_slots().map(running).collect())?;
    Ok(differences(&link.machines()?, &known, here))
}

/// Whether two loads differ only insignificantly.
fn is_near(old: &Load, new: &Load) -> bool {
    let free = old.free_mb.unwrap_or(0).abs_diff(new.free_mb.unwrap_or(0)) <= LITTLE.0;
    let cpu = match (old.cpu_percent, new.cpu_percent) {
        (Some(old), Some(new)) => old.abs_diff(new) < LITTLE.1,
        (old, new) => old == new,
    };
    free && cpu
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_place::object::Host;

    #[test]
    fn the_load_of_this_host_is_recorded() {
        let service = Service::in_memory().unwrap();
        let here = this_host();
        let name = here.name.clone();
        service.put(vec![Object::Host(Box::new(here))]).unwrap();
        let mut measure = Measure::default();
        measure.take(&service, None);
        let load = |service: &Service| {
            let of = |model: &ringway_place::model::Model| model.slot(model.host(&name)?)?.load.clone();
            service.engine.view(of).unwrap().unwrap()
        };
        assert!(load(&service).free_mb.is_some_and(|free| free > 0));
        // Within a second nothing is measured again.
        let revision = service.put(Vec::new()).unwrap().revision;
        measure.take(&service, None);
        assert_eq!(service.put(Vec::new()).unwrap().revision, revision + 1);
    }

    /// A fabric one of whose functions can't be a VM.
    struct Odd;

    impl crate::Fabric for Odd {
        fn traffic(&self) -> Result<crate::Traffic, Failed> {
            Err(Failed::Conflict("no counters".into()))
        }

        fn machines(&self) -> Result<Vec<crate::Machine>, Failed> {
            let machine =
                |name: &str| crate::Machine { name: name.into(), cores: 1, memory: 1 << 20, runs: true };
            Ok(["good", "a/b", "other"].map(machine).into())
        }

        fn start(&self, _: &str) -> Result<(), Failed> {
            Ok(())
        }

        fn stop(&self, _: &str) -> Result<(), Failed> {
            Ok(())
        }
    }

    #[test]
    fn what_can_not_be_written_costs_itself_alone() {
        let service = Service::in_memory().unwrap();
        service.put(vec![Object::Host(Box::new(this_host()))]).unwrap();
        let mut measure = Measure::default();
        measure.take(&service, Some(&Link::new(Box::new(Odd))));
        let names: Vec<String> = service.vms().unwrap().into_iter().map(|vm| vm.name).collect();
        assert_eq!(names, ["good", "other"]);
        let loads = |model: &ringway_place::model::Model| {
            model
                .host(&this_host::name())
                .and_then(|host| model.slot(host))
                .is_some_and(|slot| slot.load.is_some())
        };
        assert!(service.engine.view(loads).unwrap(), "the host's load is there");
        assert_eq!(measure.said.len(), 2, "{:?}", measure.said);
    }

    #[test]
    fn an_unknown_host_has_no_load() {
        let service = Service::in_memory().unwrap();
        service.put(vec![Object::Host(Box::new(Host { name: "other".into(), ..Host::default() }))]).unwrap();
        Measure::default().take(&service, None);
        assert!(
            service.engine.view(|model| model.slot(model.host("other")?)?.load.clone()).unwrap().is_none()
        );
    }
}
