//! Periodic measurements of this host.

use super::fabric::differences;
use crate::fabric::Link;
use crate::{Failed, Service, this_host};
use ringway_place::engine::Object;
use ringway_place::object::{Load, PortLoad, Vm};
use std::collections::BTreeMap;

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
}

impl Measure {
    /// Measures this host and the fabric's traffic on it, unless that was done a moment ago.
    pub fn take(&mut self, service: &Service, link: Option<&Link>) -> Result<(), Failed> {
        let now = service.clock.now();
        if self.at.is_some_and(|at| now < at.saturating_add(EACH)) {
            return Ok(());
        }
        let passed = self.at.map(|at| now.saturating_sub(at));
        self.at = Some(now);
        let here = this_host::name();
        let mut objects = Vec::new();
        let mut ports = self.nic_loads(passed);
        if let Some(link) = link {
            if let Some(rates) = link.rates(&here, now)? {
                objects.extend(rates.facts);
                self.ports = rates.ports;
            }
            ports.extend(self.ports.iter().cloned());
            let running = |slot: &ringway_place::model::VmSlot| (slot.vm.name.clone(), (*slot.vm).clone());
            let known: BTreeMap<String, Vm> =
                service.engine.view(|model| model.vm_slots().map(running).collect())?;
            objects.extend(differences(&link.machines()?, &known, &here));
        }
        objects.extend(self.load(service, &here, now, ports)?.map(Object::Load));
        if !objects.is_empty() {
            // The ports were measured a moment ago and may have been removed since.
            service.engine.put_at(objects, now)?;
        }
        Ok(())
    }

    /// This host's load, if it must be written.
    fn load(
        &mut self,
        service: &Service,
        here: &str,
        now: u64,
        ports: Vec<PortLoad>,
    ) -> Result<Option<Load>, Failed> {
        let (free_mb, swap_free_mb) = this_host::free();
        let cpu = this_host::cpu_time();
        let cpu_percent = self.cpu.zip(cpu).and_then(|(before, now)| now.percent_since(before));
        self.cpu = cpu.or(self.cpu);
        if service.engine.view(|model| model.host(here).is_none())? {
            return Ok(None);
        }
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
            return Ok(None);
        }
        self.written = Some((now, load.clone()));
        Ok(Some(load))
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
        measure.take(&service, None).unwrap();
        let load = |service: &Service| {
            let of = |model: &ringway_place::model::Model| model.slot(model.host(&name)?)?.load.clone();
            service.engine.view(of).unwrap().unwrap()
        };
        assert!(load(&service).free_mb.is_some_and(|free| free > 0));
        // Within a second nothing is measured again.
        let revision = service.put(Vec::new()).unwrap().revision;
        measure.take(&service, None).unwrap();
        assert_eq!(service.put(Vec::new()).unwrap().revision, revision + 1);
    }

    #[test]
    fn an_unknown_host_has_no_load() {
        let service = Service::in_memory().unwrap();
        service.put(vec![Object::Host(Box::new(Host { name: "other".into(), ..Host::default() }))]).unwrap();
        Measure::default().take(&service, None).unwrap();
        assert!(
            service.engine.view(|model| model.slot(model.host("other")?)?.load.clone()).unwrap().is_none()
        );
    }
}
