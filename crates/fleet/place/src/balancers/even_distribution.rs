//! Keeps hosts' CPUs below `HighUtilization`, then their memory above its limits.

use super::cpu_and_memory::{hottest, is_over, is_under, moves, rich_in_memory, short_of_memory, target};
use super::{Balancer, Proposal, Scene};

/// The balancer's name, description and parameters.
pub const BALANCER: Balancer = Balancer {
    name: "OptimalForEvenDistribution",
    describes: "Moves VMs off hosts that are overloaded or short of memory",
    parameters: &[
        "HighUtilization",
        "CpuOverCommitDurationMinutes",
        "MaxFreeMemoryForOverUtilized",
        "MinFreeMemoryForUnderUtilized",
        "VCpuToPhysicalCpuRatio",
    ],
    propose: |scene| (propose(scene), None),
};

/// Proposed moves.
fn propose(scene: &Scene<'_>) -> Vec<Proposal> {
    if scene.hosts.len() < 2 {
        return Vec::new();
    }
    let high = scene.whole("HighUtilization", 75);
    let scarce = scene.whole("MaxFreeMemoryForOverUtilized", 0);
    let hosts = || scene.hosts.iter().copied();
    let hot = hottest(scene, hosts().filter(|row| is_over(scene, *row, high)).collect());
    let cool: Vec<_> = hosts().filter(|row| is_under(scene, *row, target(high), 0)).collect();
    let mut proposals = moves(scene, &hot, &cool, high, scarce, true, "CPU load");
    let short = short_of_memory(scene, scarce);
    let rich = rich_in_memory(scene, scene.whole("MinFreeMemoryForUnderUtilized", 0), 0);
    proposals.extend(moves(scene, &short, &rich, high, scarce, false, "memory"));
    proposals
}
