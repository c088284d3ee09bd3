//! Textbook placement algorithms, for comparison on the same hosts and VMs.

use super::trace::Arrival;
use crate::model::{GUEST_OVERHEAD, Need};
use crate::object::Host;

/// A way to choose among hosts that have room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Baseline {
    /// The first host.
    FirstFit,
    /// The host with the least left: the sum of the free fractions of CPUs and memory.
    BestFit,
    /// The host with the most left.
    WorstFit,
}

/// VMs placed before the first that finds no room.
pub fn packed_by(how: Baseline, hosts: &[Host], arrivals: &[Arrival]) -> u64 {
    let room = |host: &Host| {
        let memory = host.memory_mb as i64 - host.reserved_mb as i64 - i64::from(GUEST_OVERHEAD);
        [i64::from(host.cores), memory]
    };
    let mut left: Vec<[i64; 2]> = hosts.iter().map(room).collect();
    let whole: Vec<[i64; 2]> =
        hosts.iter().map(|host| [i64::from(host.cores), host.memory_mb as i64]).collect();
    let mut placed = 0;
    for arrival in arrivals {
        let need = Need::of(&arrival.vm);
        let need = [i64::from(need.milli / 1000), i64::from(need.committed)];
        let fits = (0..left.len()).filter(|at| left[*at].iter().zip(&need).all(|(left, need)| left >= need));
        let rest = |at: &usize| -> f64 {
            (0..2).map(|part| (left[*at][part] - need[part]) as f64 / whole[*at][part] as f64).sum()
        };
        let mut fits = fits;
        let chosen = match how {
            Baseline::FirstFit => fits.next(),
            Baseline::BestFit => fits.min_by(|a, b| rest(a).total_cmp(&rest(b))),
            Baseline::WorstFit => fits.max_by(|a, b| rest(a).total_cmp(&rest(b))),
        };
        let Some(chosen) = chosen else { break };
        for part in 0..2 {
            left[chosen][part] -= need[part];
        }
        placed += 1;
    }
    placed
}
