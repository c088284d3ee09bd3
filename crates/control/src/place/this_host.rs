//! This host as a host to place on: read from proc(5) and sysfs.

use ringway_place::object::{Host, NumaNode};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// What `key: value` lines say, such as those of /proc/meminfo in kB.
fn figure(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// CPUs in a list such as `0-3,8`.
fn listed(list: &str) -> u32 {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.trim().parse::<u32>().ok()?, last.trim().parse::<u32>().ok()?);
        Some(last.saturating_sub(first).saturating_add(1))
    };
    list.trim().split(',').filter_map(part).sum()
}

fn name(proc: &Path) -> String {
    let name =
        read(&proc.join("sys/kernel/hostname")).trim().replace(|c: char| c.is_whitespace() || c == '/', "-");
    if name.is_empty() { "localhost".into() } else { name }
}

/// This host's name, and its memory and swap in MB that are free now.
pub(super) fn free() -> (String, u64, u64) {
    let proc = Path::new("/proc");
    let meminfo = read(&proc.join("meminfo"));
    let mb = |key: &str| figure(&meminfo, key).unwrap_or(0) / 1024;
    (name(proc), mb("MemAvailable"), mb("SwapFree"))
}

/// This host, in cluster `default`. What can't be read is left at its least.
pub fn this_host() -> Host {
    from(Path::new("/proc"), Path::new("/sys"))
}

fn from(proc: &Path, sys: &Path) -> Host {
    let cpuinfo = read(&proc.join("cpuinfo"));
    let meminfo = read(&proc.join("meminfo"));
    let values = |key: &'static str| {
        let named = move |line: &str| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_string())
        };
        cpuinfo.lines().filter_map(named).collect::<Vec<_>>()
    };
    let threads = values("processor").len().max(1) as u32;
    let packages: BTreeSet<String> = values("physical id").into_iter().collect();
    let cores: BTreeSet<(String, String)> =
        values("physical id").into_iter().zip(values("core id")).collect();
    let sockets = packages.len().max(1) as u32;
    let cores = if cores.is_empty() { threads } else { cores.len() as u32 };
    let mb = |key: &str| figure(&meminfo, key).unwrap_or(0) / 1024;
    let memory_mb = mb("MemTotal").max(1);
    Host {
        name: name(proc),
        sockets: sockets.min(cores),
        cores: cores.min(threads),
        threads,
        memory_mb,
        reserved_mb: 256.min(memory_mb / 4),
        swap_mb: mb("SwapTotal"),
        cpu_flags: values("flags")
            .first()
            .map(|flags| flags.split_whitespace().map(str::to_string).collect())
            .unwrap_or_default(),
        numa: nodes(&sys.join("devices/system/node")),
        huge_pages: huge_pages(&sys.join("kernel/mm/hugepages")),
        ..Host::default()
    }
}

fn nodes(folder: &Path) -> Vec<NumaNode> {
    let mut nodes = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some(index) = name.strip_prefix("node").and_then(|index| index.parse().ok()) else { continue };
        let meminfo = read(&entry.path().join("meminfo"));
        let total = meminfo
            .lines()
            .find_map(|line| line.split_once("MemTotal:")?.1.split_whitespace().next()?.parse::<u64>().ok());
        let cpus = listed(&read(&entry.path().join("cpulist")));
        nodes.push(NumaNode { index, cpus, memory_mb: total.unwrap_or(0) / 1024 });
    }
    nodes.sort_by_key(|node| node.index);
    nodes
}

fn huge_pages(folder: &Path) -> BTreeMap<u64, u64> {
    let mut pages = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let size =
            name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB")?.parse::<u64>().ok());
        let count = read(&entry.path().join("nr_hugepages")).trim().parse::<u64>().unwrap_or(0);
        if let Some(size) = size.filter(|_| count > 0) {
            pages.insert(size, count);
        }
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_host_can_be_true() {
        let host = this_host();
        host.check().unwrap();
        assert!(host.memory_mb > 1 && !host.name.is_empty());
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!([listed("0-3,8\n"), listed(""), listed("5")], [5, 0, 1]);
        assert_eq!(figure("MemTotal:  2048 kB\n", "MemTotal"), Some(2048));
        let nowhere = Path::new("/nowhere");
        assert!(from(nowhere, nowhere).check().is_ok());
    }
}
