//! Slices and their results.

use std::time::Duration;

/// Number and length of slices.
pub struct Plan {
    /// Slices of a measurement.
    pub slices: usize,
    /// Duration of a slice.
    pub slice: Duration,
}

/// Figures of all slices.
pub struct Figures {
    /// Unit of the figures.
    pub unit: &'static str,
    /// One figure per slice, for Ringway.
    pub ours: Vec<f64>,
    /// One figure per slice, for the peer, if there is one.
    pub peer: Vec<f64>,
    /// Whether larger is better.
    pub more: bool,
}

impl Figures {
    /// Prints them as one line of JSON.
    pub fn print(mut self, key: &str) {
        let (best, median) = summary(&mut self.ours, self.more);
        let (peer_best, peer) = summary(&mut self.peer, self.more);
        println!(
            "{{\"key\": \"{key}\", \"best\": {best:.3}, \"median\": {median:.3}, \"unit\": \"{}\", \
             \"peer_best\": {peer_best:.3}, \"peer\": {peer:.3}, \"runs\": {}}}",
            self.unit,
            self.ours.len()
        );
    }
}

fn summary(figures: &mut [f64], more: bool) -> (f64, f64) {
    figures.sort_by(f64::total_cmp);
    let best = if more { figures.last() } else { figures.first() };
    (best.copied().unwrap_or_default(), figures.get(figures.len() / 2).copied().unwrap_or_default())
}

/// Pins this thread to some cores.
pub fn pin(cores: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    cores.iter().for_each(|&core| set.set(core));
    if let Err(error) = rustix::thread::sched_setaffinity(None, &set) {
        eprintln!("cores {cores:?}: {error}; the thread is not pinned");
    }
}
