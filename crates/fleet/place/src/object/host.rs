//! Hosts and their measurements.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Whether a host may run anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HostStatus {
    /// The host runs guests.
    #[default]
    Up,
    /// The host is being emptied: it gets no new VMs, and its VMs are moved away.
    PreparingForMaintenance,
    /// The host is empty on purpose.
    Maintenance,
    /// The host is switched off.
    Down,
    /// The host does not answer.
    NonResponsive,
}

/// A NUMA node of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NumaNode {
    /// Its number.
    pub index: u32,
    /// Number of its CPUs.
    pub cpus: u32,
    /// Its memory.
    pub memory_mb: u64,
    /// Which CPUs; none for cores in the order of nodes.
    pub cpu_list: Vec<u32>,
}

/// A device that can be assigned to one guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Device {
    /// Its name, used in VMs' requests.
    pub name: String,
    /// NUMA node it is attached to, if known.
    pub numa: Option<u32>,
}

/// A network port of a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its network; empty for any.
    pub network: String,
    /// NUMA node it is attached to, if known.
    pub numa: Option<u32>,
    /// Its capacity in megabits a second.
    pub mbps: u64,
    /// Its capacity in packets a second.
    pub pps: u64,
    /// SR-IOV virtual functions that are free.
    pub vfs: u32,
}

/// The high-availability agent of oVirt's self-hosted engine on a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HaAgent {
    /// Its score; 0 if the host can't run the engine; 3400 is the best.
    pub score: u32,
    /// Whether the agent runs.
    pub active: bool,
    /// Whether this host is in maintenance for the engine.
    pub local_maintenance: bool,
    /// Whether the whole cluster is in maintenance for the engine.
    pub global_maintenance: bool,
}

/// A map by sizes, which TOML writes as text, as JSON does.
fn by_size<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<u64, u64>, D::Error> {
    let entry = |(size, count): (String, u64)| match size.parse() {
        Ok(size) => Ok((size, count)),
        Err(_) => Err(D::Error::custom(format!("`{}` is not a size in kB", size.escape_debug()))),
    };
    BTreeMap::<String, u64>::deserialize(from)?.into_iter().map(entry).collect()
}

/// A host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Its cluster.
    pub cluster: String,
    /// Its status.
    pub status: HostStatus,
    /// CPU sockets.
    pub sockets: u32,
    /// CPU cores of all sockets.
    pub cores: u32,
    /// CPU threads of all cores.
    pub threads: u32,
    /// CPUs kept for the host itself, in thousandths of one.
    pub reserved_milli_cpus: u32,
    /// Memory.
    pub memory_mb: u64,
    /// Memory kept for the host itself.
    pub reserved_mb: u64,
    /// Swap.
    pub swap_mb: u64,
    /// CPU flags, as Linux names them.
    pub cpu_flags: Vec<String>,
    /// Machine types of its QEMU.
    pub machines: Vec<String>,
    /// Compatibility versions it supports.
    pub versions: Vec<String>,
    /// Networks it is attached to.
    pub networks: Vec<String>,
    /// Labels, for affinity.
    pub labels: Vec<String>,
    /// Host aggregates it belongs to.
    pub aggregates: Vec<String>,
    /// Its failure domain, such as a rack; empty if unknown.
    pub fault_domain: String,
    /// NUMA nodes; none means that NUMA is not supported.
    pub numa: Vec<NumaNode>,
    /// Number of huge pages by size in kB.
    #[serde(deserialize_with = "by_size")]
    pub huge_pages: BTreeMap<u64, u64>,
    /// Devices that can be assigned to guests.
    pub devices: Vec<Device>,
    /// Whether PCI devices can be passed through.
    pub passthrough: bool,
    /// Instances of mediated devices that are free, by type.
    pub mdevs: BTreeMap<String, u32>,
    /// Storage domains whose leases it can hold.
    pub leases: Vec<String>,
    /// Hooks that are installed.
    pub hooks: Vec<String>,
    /// Frequency of the time stamp counter in Hz, if known.
    pub tsc_hz: Option<u64>,
    /// Whether the time stamp counter can be scaled.
    pub tsc_scaling: bool,
    /// Operating system as `NAME - VERSION - RELEASE`; empty if unknown.
    pub os: String,
    /// Whether it is the storage pool manager.
    pub spm: bool,
    /// The agent of the self-hosted engine, if it is deployed here.
    pub ha_agent: Option<HaAgent>,
    /// Whether it can be switched on and off by the policy.
    pub power_managed: bool,
    /// Whether a policy set its status. Policies do not switch hosts that an operator took out of use.
    pub policy_controlled: bool,
    /// Network ports.
    pub ports: Vec<Port>,
}

impl Default for Host {
    fn default() -> Host {
        Host {
            name: String::new(),
            cluster: "default".into(),
            status: HostStatus::Up,
            sockets: 1,
            cores: 1,
            threads: 1,
            reserved_milli_cpus: 0,
            memory_mb: 1024,
            reserved_mb: 256,
            swap_mb: 0,
            cpu_flags: Vec::new(),
            machines: Vec::new(),
            versions: Vec::new(),
            networks: Vec::new(),
            labels: Vec::new(),
            aggregates: Vec::new(),
            fault_domain: String::new(),
            numa: Vec::new(),
            huge_pages: BTreeMap::new(),
            devices: Vec::new(),
            passthrough: false,
            mdevs: BTreeMap::new(),
            leases: Vec::new(),
            hooks: Vec::new(),
            tsc_hz: None,
            tsc_scaling: false,
            os: String::new(),
            spm: false,
            ha_agent: None,
            power_managed: false,
            policy_controlled: false,
            ports: Vec::new(),
        }
    }
}

impl Host {
    /// The NUMA node of a CPU: as described by the nodes; otherwise nodes have consecutive cores, and CPU n
    /// is a thread of core n mod the number of cores.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        if self.numa.iter().any(|node| !node.cpu_list.is_empty()) {
            return self.numa.iter().find(|node| node.cpu_list.contains(&cpu)).map(|node| node.index);
        }
        let core = u64::from(cpu % self.cores) * u64::from(self.threads) / u64::from(self.cores);
        let mut first = 0;
        self.numa.iter().find_map(|node| {
            first += u64::from(node.cpus);
            (core < first).then_some(node.index)
        })
    }
}

/// Measured load of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PortLoad {
    /// The port.
    pub name: String,
    /// Megabits a second.
    pub mbps: u64,
    /// Packets a second.
    pub pps: u64,
}

/// Measurements of a host. Missing values are computed from its VMs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// The host.
    pub host: String,
    /// CPU usage in percent of all its CPUs.
    pub cpu_percent: Option<u32>,
    /// Since when the CPU is above the cluster's high utilization.
    pub over_since: Option<u64>,
    /// Free memory.
    pub free_mb: Option<u64>,
    /// Free swap.
    pub swap_free_mb: Option<u64>,
    /// Loads of its ports.
    pub ports: Vec<PortLoad>,
}

/// An external fact about a host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fact {
    /// The host.
    pub host: String,
    /// Its name, used in expressions.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// When it expires; never if unset.
    pub until: Option<u64>,
    /// When it was pushed, if it has an expiry relative to that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pushed: Option<u64>,
}

/// Keeps a host out of every placement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Blacklist {
    /// The host.
    pub host: String,
    /// Why.
    pub reason: String,
    /// When it ends; never if unset.
    pub until: Option<u64>,
}
