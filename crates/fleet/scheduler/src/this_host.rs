//! This host as a placement host: read from proc(5) and sysfs.

use ringway_place::object::{Host, NumaNode, Port};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// The value in a `key: value` line, such as those of /proc/meminfo in kB.
fn figure(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    line.split_whitespace().next()?.parse().ok()
}

/// CPUs in a list such as `0-3,8`.
fn listed(list: &str) -> Vec<u32> {
    let part = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse::<u32>().ok()?..=last.trim().parse::<u32>().ok()?)
    };
    list.trim().split(',').filter_map(part).flatten().collect()
}

fn name_in(proc: &Path) -> String {
    let name =
        read(&proc.join("sys/kernel/hostname")).trim().replace(|c: char| c.is_whitespace() || c == '/', "-");
    if name.is_empty() { "localhost".into() } else { name }
}

/// This host's name.
pub(crate) fn name() -> String {
    name_in(Path::new("/proc"))
}

/// This host's memory and swap in MB that are free now.
pub(crate) fn free() -> (u64, u64) {
    let meminfo = read(Path::new("/proc/meminfo"));
    let mb = |key: &str| figure(&meminfo, key).unwrap_or(0) / 1024;
    (mb("MemAvailable"), mb("SwapFree"))
}

/// Busy and idle time of the CPUs, in ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuTime {
    busy: u64,
    all: u64,
}

impl CpuTime {
    /// CPU usage since `before`, in percent; `None` if hardly any time passed.
    pub(crate) fn percent_since(self, before: CpuTime) -> Option<u32> {
        let all = self.all.checked_sub(before.all).filter(|all| *all >= 10)?;
        let busy = self.busy.saturating_sub(before.busy).min(all);
        Some((busy * 100 / all) as u32)
    }
}

/// The CPU times of proc_stat(5) over all CPUs.
pub(crate) fn cpu_time() -> Option<CpuTime> {
    cpu_time_in(&read(Path::new("/proc/stat")))
}

fn cpu_time_in(stat: &str) -> Option<CpuTime> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user, nice, system, idle, iowait, irq, softirq, steal; guests' time is in user's.
    let ticks: Vec<u64> = line.split_whitespace().take(8).filter_map(|tick| tick.parse().ok()).collect();
    let all = ticks.iter().sum();
    let idle: u64 = ticks.iter().skip(3).take(2).sum();
    (ticks.len() >= 5).then_some(CpuTime { busy: all - idle, all })
}

/// Traffic of a network card in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NicCount {
    pub bytes: u64,
    pub packets: u64,
}

/// Network cards of this host by name: interfaces with a device.
fn nics(net: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(net).into_iter().flatten().flatten();
    let mut nics: Vec<_> =
        entries.map(|entry| entry.path()).filter(|path| path.join("device").exists()).collect();
    nics.sort();
    nics
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Traffic of each network card.
pub(crate) fn nic_counts() -> BTreeMap<String, NicCount> {
    let count = |path: std::path::PathBuf| {
        let of = |what: &str| read(&path.join("statistics").join(what)).trim().parse::<u64>().unwrap_or(0);
        let bytes = of("rx_bytes").saturating_add(of("tx_bytes"));
        (file_name(&path), NicCount { bytes, packets: of("rx_packets").saturating_add(of("tx_packets")) })
    };
    nics(Path::new("/sys/class/net")).into_iter().map(count).collect()
}

/// Bytes that the smallest frame takes on the wire: 60 and a checksum of 4, a preamble of 8, a gap of 12
/// (IEEE 802.3).
const SMALLEST: u64 = 84;

/// Network cards as ports of a host: those with a known speed, whose load is the sum of both directions.
fn ports(net: &Path) -> Vec<Port> {
    let port = |path: std::path::PathBuf| {
        let mbps: u64 = read(&path.join("speed")).trim().parse().ok().filter(|speed| *speed > 0)?;
        let numa = read(&path.join("device/numa_node")).trim().parse().ok();
        let vfs = read(&path.join("device/sriov_numvfs")).trim().parse().unwrap_or(0);
        let both = mbps * 2;
        let pps = both * 1_000_000 / 8 / SMALLEST;
        Some(Port { name: file_name(&path), network: String::new(), numa, mbps: both, pps, vfs })
    };
    nics(net).into_iter().filter_map(port).collect()
}

/// This host, in cluster `default`. Unreadable values are set to their minimum.
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
        name: name_in(proc),
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
        ports: ports(&sys.join("class/net")),
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
        let cpu_list = listed(&read(&entry.path().join("cpulist")));
        let cpus = cpu_list.len() as u32;
        nodes.push(NumaNode { index, cpus, memory_mb: total.unwrap_or(0) / 1024, cpu_list });
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
    fn the_description_of_this_host_is_plausible() {
        let host = this_host();
        host.check().unwrap();
        assert!(host.memory_mb > 1 && !host.name.is_empty());
    }

    #[test]
    fn cpu_usage_is_read_from_the_kernel() {
        let before = cpu_time_in("cpu  100 0 50 800 50 0 0 0 9 9\ncpu0 1 1 1 1 1\n").unwrap();
        let after = cpu_time_in("cpu  150 0 60 830 60 0 0 0 9 9\n").unwrap();
        assert_eq!((after.percent_since(before), before.percent_since(after)), (Some(60), None));
        assert_eq!(cpu_time_in("cpu 1 2 x"), None);
    }

    #[test]
    fn network_cards_are_ports() {
        let net = std::env::temp_dir().join(format!("rw-net-{}", std::process::id()));
        let file = |path: &str, text: &str| {
            std::fs::create_dir_all(net.join(path).parent().unwrap()).unwrap();
            std::fs::write(net.join(path), text).unwrap();
        };
        file("eth0/device/numa_node", "1\n");
        file("eth0/device/sriov_numvfs", "4\n");
        file("eth0/speed", "10000\n");
        file("eth1/device/numa_node", "-1\n");
        file("eth1/speed", "-1\n");
        file("lo/speed", "10\n");
        let found = ports(&net);
        std::fs::remove_dir_all(&net).unwrap();
        let port = Port { name: "eth0".into(), numa: Some(1), mbps: 20_000, vfs: 4, ..Port::default() };
        assert_eq!(found, [Port { pps: 29_761_904, ..port }], "a speed that is not known is none");
    }

    #[test]
    fn cpu_lists_are_counted() {
        assert_eq!([listed("0-3,8\n"), listed(""), listed("5")], [vec![0, 1, 2, 3, 8], vec![], vec![5]]);
        assert_eq!(figure("MemTotal:  2048 kB\n", "MemTotal"), Some(2048));
        let nowhere = Path::new("/nowhere");
        assert!(from(nowhere, nowhere).check().is_ok());
    }
}
