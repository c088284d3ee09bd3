//! Balances the number of VMs per host.

use super::cpu_and_memory::moves;
use super::{Balancer, Proposal, Scene};
use crate::model::Row;

/// The balancer's name, description and parameters.
pub const BALANCER: Balancer = Balancer {
    name: "OptimalForEvenGuestDistribution",
    describes: "Balances the number of VMs per host",
    parameters: &["SpmVmGrace", "HighVmCount", "MigrationThreshold", "HighUtilization"],
    propose: |scene| (propose(scene), None),
};

/// Proposed moves.
fn propose(scene: &Scene<'_>) -> Vec<Proposal> {
    let grace = scene.whole("SpmVmGrace", 5);
    let slots = |row: Row| {
        let manager = scene.cluster.slot(row).is_some_and(|slot| slot.host.spm);
        i64::from(scene.cluster.columns.vms[row as usize]).saturating_add(if manager { grace } else { 0 })
    };
    let Some(most) = scene.hosts.iter().map(|row| slots(*row)).max() else { return Vec::new() };
    if scene.hosts.len() < 2 || most < scene.whole("HighVmCount", 10) {
        return Vec::new();
    }
    let threshold = scene.whole("MigrationThreshold", 5);
    let rows = || scene.hosts.iter().copied();
    let full: Vec<Row> = rows().filter(|row| slots(*row) >= most).collect();
    let less: Vec<Row> = rows().filter(|row| most - slots(*row) >= threshold).collect();
    let high = scene.whole("HighUtilization", 75);
    moves(scene, &full, &less, high, 0, false, "count of VMs")
}
