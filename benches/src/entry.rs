//! The result of a benchmark in the report.

use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A row of the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Median of our slices; none when the benchmark was left out.
    pub ours: Option<f64>,
    /// 95% confidence interval of our median; none for fewer than six slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ours_interval: Option<[f64; 2]>,
    /// Our best slice; only marks that say `best` are compared with it.
    pub best: Option<f64>,
    /// Median of the peer's slices.
    pub peer: Option<f64>,
    /// Median of the ratios (ours to the peer's) of paired slices.
    pub ratio: Option<f64>,
    /// Unit of `ours`, `best` and `peer`.
    pub unit: String,
    /// 95% confidence interval of `ratio`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ratio_interval: Option<[f64; 2]>,
    /// Number of our slices.
    pub runs: usize,
    /// Difference between our highest and lowest slice, relative to the median.
    pub spread: f64,
    /// Targets, and whether they are met.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// Further figures by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub more: BTreeMap<String, f64>,
    /// Figures by step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    /// Curves by name, for plots.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub series: BTreeMap<String, Vec<[f64; 2]>>,
    /// The machine's state meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
    /// Note on the figures, or why there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A target, and whether it is met.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The target, such as `ratio >= 1.5`.
    pub mark: String,
    /// Whether this run meets it.
    pub holds: bool,
}

/// One step of a benchmark that varies a parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The varied parameter.
    pub name: String,
    /// Its figures by name.
    pub figures: BTreeMap<String, f64>,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Rates.
    More,
    /// Times.
    Less,
}

/// Paired slices: ours and the peer's take turns.
#[derive(Clone, Debug, Default)]
pub struct Slices {
    /// One figure a slice.
    pub ours: Vec<f64>,
    /// One figure of the peer's a slice; empty if there is no peer.
    pub peer: Vec<f64>,
    /// Why the peer's slices ended early; ours continued alone.
    pub lost: Option<String>,
}

/// The median; none if there are no figures.
pub fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().wrapping_sub(1) / 2)?;
    Some((upper + lower) / 2.0)
}

/// The 95% confidence interval of the median, from order statistics: the number of values below the median is
/// binomial. None for fewer than six values: even their whole range has less confidence.
pub fn interval(figures: &[f64]) -> Option<[f64; 2]> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // `log`: logarithm of the probability that exactly `rank` values are below the median; the other is cumulative.
    let mut log = -(count as f64) * std::f64::consts::LN_2;
    let (mut rank, mut sum) = (0, log.exp());
    while sum <= 0.025 {
        log += ((count - rank) as f64 / (rank + 1) as f64).ln();
        rank += 1;
        sum += log.exp();
    }
    let low = rank.checked_sub(1)?;
    Some([*sorted.get(low)?, *sorted.get(count - 1 - low)?])
}

impl From<[Slices; 1]> for Slices {
    fn from([slices]: [Slices; 1]) -> Slices {
        slices
    }
}

impl Slices {
    /// No slices.
    pub const NONE: Slices = Slices { ours: Vec::new(), peer: Vec::new(), lost: None };

    /// Slices with these figures.
    pub fn of(ours: &[f64], peer: &[f64]) -> Slices {
        Slices { ours: ours.to_vec(), peer: peer.to_vec(), lost: None }
    }

    /// The report's row of these slices.
    pub fn entry(&self, unit: &str, better: Better) -> Entry {
        let highest = self.ours.iter().copied().max_by(f64::total_cmp);
        let lowest = self.ours.iter().copied().min_by(f64::total_cmp);
        let ours = median(&self.ours);
        let peer = if self.lost.is_none() { &self.peer[..] } else { &[] };
        let ratios: Vec<f64> = self.ours.iter().zip(peer).map(|(ours, peer)| ours / peer).collect();
        let spread = match (highest, lowest, ours) {
            (Some(highest), Some(lowest), Some(ours)) if ours != 0.0 => (highest - lowest) / ours,
            _ => 0.0,
        };
        let entry = Entry {
            ours,
            ours_interval: interval(&self.ours),
            best: if better == Better::More { highest } else { lowest },
            peer: median(peer),
            ratio: median(&ratios),
            ratio_interval: interval(&ratios),
            unit: unit.into(),
            runs: self.ours.len(),
            spread,
            ..Entry::default()
        };
        match &self.lost {
            Some(why) => entry.note(format!("no peer: {why}")),
            None => entry,
        }
    }
}

impl Entry {
    /// A benchmark that was left out.
    pub fn skipped(why: impl std::fmt::Display) -> Entry {
        Entry { note: format!("left out: {why}"), ..Entry::default() }
    }

    /// Adds the target that the lower end of the median ratio's interval is at least `bound`.
    pub fn ratio_at_least(self, bound: f64) -> Entry {
        let holds = self.ratio_interval.is_some_and(|[low, _]| low >= bound);
        self.mark(format!("ratio >= {bound}"), holds)
    }

    /// Adds the target that the upper end of the median ratio's interval is at most `bound`.
    pub fn ratio_at_most(self, bound: f64) -> Entry {
        let holds = self.ratio_interval.is_some_and(|[_, high]| high <= bound);
        self.mark(format!("ratio <= {bound}"), holds)
    }

    /// Adds the target that the lower end of our median's interval is at least `bound`.
    pub fn at_least(self, bound: f64) -> Entry {
        let holds = self.ours_interval.is_some_and(|[low, _]| low >= bound);
        let mark = format!(">= {bound} {}", self.unit);
        self.mark(mark, holds)
    }

    /// Adds the target that the upper end of our median's interval is at most `bound`.
    pub fn at_most(self, bound: f64) -> Entry {
        let holds = self.ours_interval.is_some_and(|[_, high]| high <= bound);
        let mark = format!("<= {bound} {}", self.unit);
        self.mark(mark, holds)
    }

    /// Adds the target that our best slice is at least `bound`.
    pub fn best_at_least(self, bound: f64) -> Entry {
        let holds = self.best.is_some_and(|best| best >= bound);
        let mark = format!("best >= {bound} {}", self.unit);
        self.mark(mark, holds)
    }

    /// Adds the target that our best slice is at most `bound`.
    pub fn best_at_most(self, bound: f64) -> Entry {
        let holds = self.best.is_some_and(|best| best <= bound);
        let mark = format!("best <= {bound} {}", self.unit);
        self.mark(mark, holds)
    }

    /// Adds a target.
    pub fn mark(mut self, mark: impl Into<String>, holds: bool) -> Entry {
        self.marks.push(Mark { mark: mark.into(), holds });
        self
    }

    /// Adds a figure.
    pub fn with(mut self, name: &str, figure: f64) -> Entry {
        self.more.insert(name.into(), figure);
        self
    }

    /// Adds a step.
    pub fn step(mut self, name: impl Into<String>, figures: &[(&str, f64)]) -> Entry {
        let figures = figures.iter().map(|(name, figure)| (name.to_string(), *figure)).collect();
        self.steps.push(Step { name: name.into(), figures });
        self
    }

    /// Adds a step with the medians of these slices and their ratio's interval.
    pub fn step_of(self, name: impl Into<String>, slices: &Slices) -> Entry {
        let row = slices.entry("", Better::More);
        let [low, high] = row.ratio_interval.map_or([None; 2], |bounds| bounds.map(Some));
        let figures = [
            ("ours", row.ours),
            ("peer", row.peer),
            ("ratio", row.ratio),
            ("ratio from", low),
            ("ratio to", high),
        ];
        let figures = figures.into_iter().filter_map(|(name, figure)| Some((name, figure?)));
        self.step(name, &figures.collect::<Vec<_>>())
    }

    /// Adds a step with the median and the lowest of times in milliseconds.
    pub fn step_of_times(self, name: impl Into<String>, times: &[f64]) -> Entry {
        let best = times.iter().copied().fold(f64::INFINITY, f64::min);
        self.step(name, &[("median, ms", median(times).unwrap_or(f64::NAN)), ("best, ms", best)])
    }

    /// Sets the note.
    pub fn note(mut self, note: impl std::fmt::Display) -> Entry {
        if !self.note.is_empty() {
            self.note.push_str("; ");
        }
        self.note.push_str(&note.to_string());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_samples() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    /// A permutation of 1 to `count`.
    fn ranks(count: u32) -> Vec<f64> {
        (1..=count).rev().map(f64::from).collect()
    }

    #[test]
    fn the_interval_has_binomial_ranks() {
        assert_eq!((interval(&[]), interval(&ranks(5))), (None, None));
        // Ranks of a two-sided 95% interval of the median (tables of the sign test).
        for (count, low, high) in [
            (6, 1.0, 6.0),
            (8, 1.0, 8.0),
            (9, 2.0, 8.0),
            (10, 2.0, 9.0),
            (15, 4.0, 12.0),
            (20, 6.0, 15.0),
            (25, 8.0, 18.0),
            (50, 18.0, 33.0),
            (100, 40.0, 61.0),
        ] {
            assert_eq!(interval(&ranks(count)), Some([low, high]), "{count}");
        }
        let [low, high] = interval(&ranks(10_000)).unwrap();
        assert!((4_900.0..4_904.0).contains(&low) && low + high == 10_001.0, "{low} {high}");
    }

    #[test]
    fn ratios_use_pairs() {
        let slices = Slices::of(&[10.0, 40.0, 20.0], &[10.0, 10.0, 40.0]);
        let entry = slices.entry("Mpps", Better::More);
        assert_eq!((entry.ours, entry.best, entry.peer), (Some(20.0), Some(40.0), Some(10.0)));
        assert_eq!((entry.ratio, entry.runs, entry.spread), (Some(1.0), 3, 1.5));
        assert_eq!(slices.entry("us", Better::Less).best, Some(10.0));
    }

    #[test]
    fn a_mark_needs_the_worse_end_of_its_interval() {
        // Ranks 2 and 9 of ten: 2 to 9 for our median, 0.2 to 0.9 for the ratio's.
        let entry = Slices::of(&ranks(10), &[10.0; 10]).entry("Mpps", Better::More);
        assert_eq!((entry.ours_interval, entry.ratio_interval), (Some([2.0, 9.0]), Some([0.2, 0.9])));
        let holds = |entry: Entry| entry.marks[0].holds;
        assert!(holds(entry.clone().at_least(2.0)) && !holds(entry.clone().at_least(2.1)));
        assert!(holds(entry.clone().at_most(9.0)) && !holds(entry.clone().at_most(8.9)));
        assert!(holds(entry.clone().ratio_at_least(0.2)) && !holds(entry.clone().ratio_at_least(0.21)));
        assert!(holds(entry.clone().ratio_at_most(0.9)) && !holds(entry.clone().ratio_at_most(0.89)));
        assert!(holds(entry.clone().best_at_least(10.0)) && !holds(entry.clone().best_at_least(10.1)));
        assert_eq!(entry.at_least(2.0).marks[0].mark, ">= 2 Mpps");
        let few = Slices::of(&[9.0; 5], &[]).entry("Mpps", Better::More);
        assert!(!holds(few.at_least(1.0)));
    }

    #[test]
    fn a_lost_peer_keeps_our_figures() {
        let lost = Some("it hung".to_string());
        let entry = Slices { lost, ..Slices::of(&ranks(8), &[1.0; 3]) }.entry("Mpps", Better::More);
        assert_eq!((entry.ours, entry.peer, entry.ratio), (Some(4.5), None, None));
        assert_eq!(entry.note, "no peer: it hung");
        assert!(!entry.ratio_at_least(0.1).marks[0].holds);
    }
}
