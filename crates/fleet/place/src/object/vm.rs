//! Virtual machines and functions.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// Kind of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VmKind {
    /// A virtual machine.
    #[default]
    Vm,
    /// A function: a running Click configuration, without memory overhead.
    Function,
}

/// Status of a VM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VmStatus {
    /// The VM does not run.
    #[default]
    Down,
    /// The VM runs.
    Up,
    /// The VM is paused, with its memory on its host.
    Paused,
    /// The VM is being migrated to another host.
    Migrating,
}

/// Whether a VM may be moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Migration {
    /// By balancers and operators.
    #[default]
    Migratable,
    /// By operators only.
    Manual,
    /// Never: it is pinned to its hosts.
    PinnedToHost,
}

/// How a VM's CPUs are bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pinning {
    /// Not at all.
    #[default]
    None,
    /// To CPUs that it names, shared with others.
    Manual,
    /// Grown to the whole host and bound to its NUMA nodes.
    ResizeAndPinNuma,
    /// To exclusive CPUs.
    Dedicated,
    /// To exclusive cores, of each of which one thread is used.
    IsolateThreads,
}

impl Pinning {
    /// Whether its CPUs are exclusive.
    pub fn is_exclusive(self) -> bool {
        matches!(self, Pinning::Dedicated | Pinning::IsolateThreads)
    }
}

/// How strictly memory is bound to NUMA nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NumaMode {
    /// The memory must come from the nodes.
    #[default]
    Strict,
    /// The memory is spread over the nodes.
    Interleave,
    /// The memory should come from the nodes.
    Preferred,
}

/// A NUMA node that a VM sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VmNumaNode {
    /// Its memory.
    pub memory_mb: u64,
    /// Its CPUs.
    pub cpus: u32,
    /// Host nodes that it is pinned to; none for any.
    pub host_nodes: Vec<u32>,
    /// How strictly the memory is bound.
    pub mode: NumaMode,
}

/// A network card of a VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VmNic {
    /// The network; empty for none.
    pub network: String,
    /// Whether it needs an SR-IOV virtual function.
    pub passthrough: bool,
}

/// Traffic of a VM or function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PortNeed {
    /// The network; empty for any port.
    pub network: String,
    /// Megabits a second.
    pub mbps: u64,
    /// Packets a second.
    pub pps: u64,
}

/// A virtual machine or a function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Its cluster.
    pub cluster: String,
    /// Its kind.
    pub kind: VmKind,
    /// Its status.
    pub status: VmStatus,
    /// The host it runs on.
    pub host: Option<String>,
    /// The host it last ran on.
    pub last_host: Option<String>,
    /// When it last moved.
    pub moved_at: Option<u64>,
    /// Virtual sockets.
    pub sockets: u32,
    /// Cores a socket.
    pub cores: u32,
    /// Threads a core.
    pub threads: u32,
    /// Its share of a host's CPUs, in thousandths of one, if different from its virtual CPUs.
    pub milli_cpus: Option<u32>,
    /// Memory.
    pub memory_mb: u64,
    /// Measured CPU usage in percent of its virtual CPUs.
    pub cpu_percent: Option<u32>,
    /// How its CPUs are bound.
    pub pinning: Pinning,
    /// Host CPUs that manual pinning names.
    pub pins: Vec<u32>,
    /// Its virtual NUMA nodes.
    pub numa: Vec<VmNumaNode>,
    /// Size in kB of the huge pages for its memory, if it uses them.
    pub huge_page_kb: Option<u64>,
    /// Network cards.
    pub nics: Vec<VmNic>,
    /// Host devices assigned to it.
    pub devices: Vec<String>,
    /// Types of mediated devices it needs.
    pub mdevs: Vec<String>,
    /// Storage domain that holds its lease.
    pub lease: Option<String>,
    /// Whether it is highly available.
    pub ha: bool,
    /// Whether it is oVirt's self-hosted engine.
    pub hosted_engine: bool,
    /// Whether it may be moved.
    pub migration: Migration,
    /// Hosts it is pinned to, or prefers.
    pub hosts: Vec<String>,
    /// Whether it is a high-performance VM.
    pub high_performance: bool,
    /// Whether it has CPU passthrough.
    pub cpu_passthrough: bool,
    /// CPU flags that it needs; none for the cluster's.
    pub cpu_flags: Vec<String>,
    /// Its own compatibility version.
    pub version: Option<String>,
    /// Its own machine type.
    pub machine: Option<String>,
    /// Hooks it needs.
    pub hooks: Vec<String>,
    /// Whether its time stamp counter's frequency must never change.
    pub use_tsc: bool,
    /// Labels, for affinity.
    pub labels: Vec<String>,
    /// VMs it must not share a host with (Nova's hint `different_host`).
    pub different_host: Vec<String>,
    /// VMs it must share a host with (Nova's hint `same_host`).
    pub same_host: Vec<String>,
    /// Aggregates its host must belong to.
    pub aggregates: Vec<String>,
    /// Its chain of functions.
    pub chain: Option<String>,
    /// Place in the chain, from 0.
    pub chain_index: u32,
    /// Its traffic.
    pub ports: Vec<PortNeed>,
    /// Whether its CPUs, memory and port must be on one NUMA node.
    pub numa_local: bool,
    /// Policy instead of its cluster's.
    pub policy: Option<String>,
    /// Custom properties over its policy's.
    pub properties: BTreeMap<String, String>,
}

impl Default for Vm {
    fn default() -> Vm {
        Vm {
            name: String::new(),
            cluster: "default".into(),
            kind: VmKind::Vm,
            status: VmStatus::Down,
            host: None,
            last_host: None,
            moved_at: None,
            sockets: 1,
            cores: 1,
            threads: 1,
            milli_cpus: None,
            memory_mb: 512,
            cpu_percent: None,
            pinning: Pinning::None,
            pins: Vec::new(),
            numa: Vec::new(),
            huge_page_kb: None,
            nics: Vec::new(),
            devices: Vec::new(),
            mdevs: Vec::new(),
            lease: None,
            ha: false,
            hosted_engine: false,
            migration: Migration::Migratable,
            hosts: Vec::new(),
            high_performance: false,
            cpu_passthrough: false,
            cpu_flags: Vec::new(),
            version: None,
            machine: None,
            hooks: Vec::new(),
            use_tsc: false,
            labels: Vec::new(),
            different_host: Vec::new(),
            same_host: Vec::new(),
            aggregates: Vec::new(),
            chain: None,
            chain_index: 0,
            ports: Vec::new(),
            numa_local: false,
            policy: None,
            properties: BTreeMap::new(),
        }
    }
}

impl Vm {
    /// Its virtual CPUs.
    pub fn vcpus(&self) -> u32 {
        self.sockets.saturating_mul(self.cores).saturating_mul(self.threads)
    }

    /// The huge pages for its memory: their size in kB, and their number.
    pub fn huge_pages(&self) -> Option<(u64, u64)> {
        let size = self.huge_page_kb?;
        Some((size, (self.memory_mb * 1024).div_ceil(size)))
    }

    /// Whether it is on its host, and so uses memory and CPUs there.
    pub fn runs(&self) -> bool {
        self.host.is_some() && self.status != VmStatus::Down
    }
}
