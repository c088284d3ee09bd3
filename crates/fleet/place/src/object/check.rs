//! Validation of objects when they are added, so that other code can rely on their values.

use crate::expression::FIGURES;
use ringway_spec::printable;
use std::collections::BTreeSet;

use super::{AffinityGroup, Blacklist, Cluster, Fact, Host, Load, Vm};

/// An error in an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object}: {what}")]
pub struct Wrong {
    /// The object, such as `host node-1`.
    pub object: String,
    /// The error and the remedy.
    pub what: String,
}

/// Attack: endless names, or names that break keys. Longest name in bytes: a Kubernetes pod's with its namespace.
const NAME: usize = 63 + 1 + 253;
/// Attack: sums that overflow. Largest number of CPUs of a host.
const CPUS: u32 = 65_536;
/// The most memory of a host: 1 PB.
const MEMORY: u64 = 1 << 30;
/// Attack: endless lists. Largest length of a list.
const LIST: usize = 4096;
/// Attack: an endless reason. Largest length in bytes.
const REASON: usize = 4096;

struct Check<'o> {
    kind: &'static str,
    name: &'o str,
}

impl Check<'_> {
    fn that(&self, holds: bool, what: impl FnOnce() -> String) -> Result<(), Wrong> {
        if holds {
            return Ok(());
        }
        let name: String = self.name.chars().take(64).collect();
        Err(Wrong { object: format!("{} {}", self.kind, name.escape_debug()), what: what() })
    }

    fn name(&self, what: &str, name: &str) -> Result<(), Wrong> {
        let good = !name.is_empty()
            && name.len() <= NAME
            && printable(name) == name
            && name.chars().all(|c| c != '/' && !c.is_whitespace());
        self.that(good, || format!("`{what}` can't be a name; 1 to {NAME} characters, no space and no `/`"))
    }

    fn range(&self, what: &str, value: u64, least: u64, most: u64) -> Result<(), Wrong> {
        self.that((least..=most).contains(&value), || {
            format!("`{what}` is {value}; permitted: {least} to {most}")
        })
    }

    /// Checks that names are unique.
    fn once<T: Ord + std::fmt::Display>(
        &self,
        what: &str,
        names: impl Iterator<Item = T>,
    ) -> Result<(), Wrong> {
        let mut seen = BTreeSet::new();
        for name in names {
            let shown = name.to_string();
            self.that(seen.insert(name), || {
                let shown: String = shown.chars().take(64).collect();
                format!("`{what}` has {} twice; keep one", shown.escape_debug())
            })?;
        }
        Ok(())
    }

    fn list(&self, what: &str, length: usize) -> Result<(), Wrong> {
        self.that(length <= LIST, || format!("`{what}` has {length} entries; {LIST} at most"))
    }
}

impl Host {
    /// Checks that the host's figures can be true.
    pub fn check(&self) -> Result<(), Wrong> {
        let check = Check { kind: "host", name: &self.name };
        check.name("name", &self.name)?;
        check.name("cluster", &self.cluster)?;
        check.range("sockets", self.sockets.into(), 1, 1024)?;
        check.range("cores", self.cores.into(), self.sockets.into(), CPUS.into())?;
        check.range("threads", self.threads.into(), self.cores.into(), CPUS.into())?;
        check.range("memory_mb", self.memory_mb, 1, MEMORY)?;
        check.range("reserved_mb", self.reserved_mb, 0, self.memory_mb)?;
        check.range(
            "reserved_milli_cpus",
            self.reserved_milli_cpus.into(),
            0,
            u64::from(self.threads) * 1000,
        )?;
        check.range("swap_mb", self.swap_mb, 0, MEMORY)?;
        for (size, count) in &self.huge_pages {
            check.range("huge_pages", *size, 4, MEMORY)?;
            let total = size.saturating_mul(*count) / 1024;
            check.that(total <= self.memory_mb, || {
                format!("{count} huge pages of {size} kB are more than its memory")
            })?;
        }
        for node in &self.numa {
            check.range("numa.cpus", node.cpus.into(), 0, CPUS.into())?;
            check.range("numa.memory_mb", node.memory_mb, 0, MEMORY)?;
            check.list("numa.cpu_list", node.cpu_list.len())?;
        }
        for port in &self.ports {
            check.range("ports.mbps", port.mbps, 0, 100_000_000)?;
            check.range("ports.pps", port.pps, 0, 100_000_000_000)?;
        }
        check.once("numa", self.numa.iter().map(|node| node.index))?;
        check.once("ports", self.ports.iter().map(|port| &port.name))?;
        check.once("devices", self.devices.iter().map(|device| &device.name))?;
        let lists = [
            ("numa", self.numa.len()),
            ("ports", self.ports.len()),
            ("networks", self.networks.len()),
            ("labels", self.labels.len()),
            ("devices", self.devices.len()),
            ("cpu_flags", self.cpu_flags.len()),
            ("aggregates", self.aggregates.len()),
            ("huge_pages", self.huge_pages.len()),
        ];
        lists.into_iter().try_for_each(|(what, length)| check.list(what, length))
    }
}

impl Load {
    /// Checks that the load's figures can be true.
    pub fn check(&self) -> Result<(), Wrong> {
        let check = Check { kind: "load of host", name: &self.host };
        check.name("host", &self.host)?;
        check.range("cpu_percent", self.cpu_percent.unwrap_or(0).into(), 0, 100)?;
        check.range("free_mb", self.free_mb.unwrap_or(0), 0, MEMORY)?;
        check.range("swap_free_mb", self.swap_free_mb.unwrap_or(0), 0, MEMORY)?;
        check.list("ports", self.ports.len())
    }
}

impl Fact {
    /// Validates it.
    pub fn check(&self) -> Result<(), Wrong> {
        let check = Check { kind: "fact about host", name: &self.host };
        check.name("host", &self.host)?;
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let named = self.name.len() <= 64
            && self.name.chars().all(good)
            && self.name.starts_with(|c: char| c.is_ascii_alphabetic());
        check.that(named, || "`name` is a letter, then letters, digits and `_`, 64 at most".into())?;
        check.that(!FIGURES.iter().any(|(figure, _)| *figure == self.name), || {
            format!("`name` is {}, a built-in figure; choose another name", self.name)
        })?;
        check.that(self.value.is_finite(), || "`value` is not a finite number".into())
    }
}

impl Vm {
    /// Checks that the VM's figures can be true.
    pub fn check(&self) -> Result<(), Wrong> {
        let check = Check { kind: "VM", name: &self.name };
        check.name("name", &self.name)?;
        check.name("cluster", &self.cluster)?;
        check.range("sockets", self.sockets.into(), 1, 1024)?;
        check.range("cores", self.cores.into(), 1, CPUS.into())?;
        check.range("threads", self.threads.into(), 1, 64)?;
        check.range("virtual CPUs", self.vcpus().into(), 1, CPUS.into())?;
        check.range("milli_cpus", self.milli_cpus.unwrap_or(0).into(), 0, u64::from(CPUS) * 1000)?;
        check.range("memory_mb", self.memory_mb, 1, MEMORY)?;
        check.range("cpu_percent", self.cpu_percent.unwrap_or(0).into(), 0, 100)?;
        if let Some(size) = self.huge_page_kb {
            check.range("huge_page_kb", size, 4, 1 << 30)?;
        }
        for node in &self.numa {
            check.range("numa.memory_mb", node.memory_mb, 0, MEMORY)?;
            check.range("numa.cpus", node.cpus.into(), 0, CPUS.into())?;
        }
        for port in &self.ports {
            check.range("ports.mbps", port.mbps, 0, 100_000_000)?;
            check.range("ports.pps", port.pps, 0, 100_000_000_000)?;
        }
        for (what, text) in [("chain", &self.chain), ("policy", &self.policy)] {
            let length = text.as_ref().map_or(0, String::len);
            check.that(length <= NAME, || format!("`{what}` has {length} bytes; {NAME} at most"))?;
        }
        check.that(self.status == super::VmStatus::Down || self.host.is_some(), || {
            "it runs, but `host` does not say where".into()
        })?;
        let lists = [
            ("numa", self.numa.len()),
            ("ports", self.ports.len()),
            ("nics", self.nics.len()),
            ("hosts", self.hosts.len()),
            ("pins", self.pins.len()),
            ("labels", self.labels.len()),
            ("properties", self.properties.len()),
        ];
        lists.into_iter().try_for_each(|(what, length)| check.list(what, length))
    }
}

impl AffinityGroup {
    /// Validates it.
    pub fn check(&self) -> Result<(), Wrong> {
        let check = Check { kind: "affinity group", name: &self.name };
        check.name("name", &self.name)?;
        check.name("cluster", &self.cluster)
    }
}

impl Blacklist {
    /// Validates it.
    pub fn check(&self) -> Result<(), Wrong> {
        let check = Check { kind: "blacklist entry of host", name: &self.host };
        check.name("host", &self.host)?;
        check.that(self.reason.len() <= REASON, || format!("`reason` has more than {REASON} bytes"))
    }
}

impl Cluster {
    /// Checks that the cluster's figures can be true.
    pub fn check(&self) -> Result<(), Wrong> {
        let check = Check { kind: "cluster", name: &self.name };
        check.name("name", &self.name)?;
        check.name("policy", &self.policy)?;
        check.range("memory_overcommit", self.memory_overcommit.into(), 50, 1000)?;
        check.range("cool_down", self.cool_down, 0, 86_400)?;
        check.range("interval", self.interval, 0, 86_400)?;
        check.range("minimum_gain", self.minimum_gain.into(), 0, 100)?;
        check.range("migrations", self.migrations.into(), 0, 100)?;
        check.list("cpu_flags", self.cpu_flags.len())?;
        check.list("properties", self.properties.len())
    }
}
