//! The objects of placement, as in its JSON. Memory is in MB (2^20 bytes), times in milliseconds since 1970,
//! loads in percent of one CPU.

mod check;
mod cluster;
mod group;
mod host;
mod pending;
mod vm;

pub use check::Wrong;
pub use cluster::{Cluster, Executor};
pub use group::{AffinityGroup, Rule};
pub use host::{Blacklist, Device, Fact, HaAgent, Host, HostStatus, Load, NumaNode, Port, PortLoad};
pub use pending::Pending;
pub use vm::{Migration, NumaMode, Pinning, PortNeed, Vm, VmKind, VmNic, VmNumaNode, VmStatus};
