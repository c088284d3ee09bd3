//! Generated traces with size mixes like published ones.
//!
//! Arrivals are a Poisson process, lifetimes are exponential, loads are uniform between 5 and 60 percent. All
//! is determined by the seed. The proportions of sizes are approximations of a mix's shape, not measurements:
//! - `vmagent`: small VMs dominate (1U1G, 1U2G, 2U4G, 4U8G), as in VMAgent's description of a public cloud's trace;
//! - `azure`: more memory a CPU and a tail of large VMs, as in the Azure packing trace of 2020;
//! - `openb`: CPU-heavy pods and a few large ones, as in Alibaba's trace of a GPU cluster, without its GPUs.

use super::trace::Arrival;
use crate::decide::mix;
use crate::object::{Host, NumaNode, Port, Vm};

/// A size: CPUs, GB, and its share in thousandths.
pub struct Mix {
    /// Its name.
    pub name: &'static str,
    /// Its sizes.
    pub sizes: &'static [(u32, u64, u32)],
}

/// The mixes.
pub const MIXES: [Mix; 3] = [
    Mix {
        name: "vmagent",
        sizes: &[
            (1, 1, 220),
            (1, 2, 240),
            (2, 4, 220),
            (4, 8, 180),
            (2, 8, 40),
            (4, 16, 40),
            (8, 16, 40),
            (8, 32, 10),
            (16, 32, 8),
            (16, 64, 2),
        ],
    },
    Mix {
        name: "azure",
        sizes: &[
            (1, 2, 240),
            (2, 4, 160),
            (2, 8, 180),
            (4, 8, 80),
            (4, 16, 160),
            (8, 32, 120),
            (16, 64, 40),
            (16, 128, 20),
        ],
    },
    Mix {
        name: "openb",
        sizes: &[
            (2, 4, 150),
            (4, 8, 250),
            (8, 16, 250),
            (8, 32, 150),
            (12, 48, 100),
            (16, 32, 60),
            (32, 128, 40),
        ],
    },
];

/// A generated trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Synthetic {
    /// The mix's name.
    pub mix: String,
    /// VMs.
    pub count: usize,
    /// Milliseconds between two arrivals, on average.
    pub gap: u64,
    /// Mean lifetime of a VM in milliseconds; none if unlimited.
    pub lifetime: Option<u64>,
    /// Seed of the random numbers.
    pub seed: u64,
}

impl Default for Synthetic {
    fn default() -> Synthetic {
        Synthetic { mix: "vmagent".into(), count: 10_000, gap: 10_000, lifetime: Some(3_600_000), seed: 1 }
    }
}

struct Dice(u64);

impl Dice {
    /// A random number from 0 to below 1.
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(1);
        (mix(self.0) >> 11) as f64 / (1u64 << 53) as f64
    }

    fn exponential(&mut self, mean: u64) -> u64 {
        (-(1.0 - self.part()).ln() * mean as f64) as u64
    }
}

impl Synthetic {
    /// The trace.
    pub fn arrivals(&self) -> Vec<Arrival> {
        let sizes = MIXES.iter().find(|mix| mix.name == self.mix).unwrap_or(&MIXES[0]).sizes;
        let all: u32 = sizes.iter().map(|(_, _, part)| part).sum();
        let mut dice = Dice(mix(self.seed));
        let mut at = 0;
        let arrival = |index: usize| {
            at = u64::saturating_add(at, dice.exponential(self.gap));
            let mut throw = (dice.part() * f64::from(all)) as u32;
            let size = sizes.iter().find(|(_, _, part)| {
                let hit = throw < *part;
                throw = throw.saturating_sub(*part);
                hit
            });
            let (cores, gb, _) = *size.unwrap_or(&sizes[0]);
            let percent = 5 + (dice.part() * 56.0) as u32;
            let lifetime = self.lifetime.map(|mean| dice.exponential(mean).max(1));
            let vm = Vm {
                name: format!("vm-{index:06}"),
                cores,
                memory_mb: gb * 1024,
                cpu_percent: Some(percent),
                ..Vm::default()
            };
            Arrival { at, vm, lifetime }
        };
        (0..self.count).map(arrival).collect()
    }
}

/// `count` identical hosts: 40 CPUs, 90 GB, as in VMAgent; two NUMA nodes, a 25 Gbit/s port on the first,
/// eight hosts per fault domain.
pub fn hosts(count: usize, seed: u64) -> Vec<Host> {
    let host = |index: usize| Host {
        name: format!("host-{index:06}"),
        sockets: 2,
        cores: 40,
        threads: 40,
        memory_mb: 90 * 1024 + 8192,
        fault_domain: format!("rack-{}", (index as u64 + seed) / 8),
        numa: (0..2)
            .map(|index| NumaNode { index, cpus: 20, memory_mb: 49 * 1024, ..NumaNode::default() })
            .collect(),
        ports: vec![Port {
            name: "p0".into(),
            numa: Some(0),
            mbps: 25_000,
            pps: 30_000_000,
            ..Port::default()
        }],
        ..Host::default()
    };
    (0..count).map(host).collect()
}
