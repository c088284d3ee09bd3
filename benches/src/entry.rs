//! The result of a benchmark in the report.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A row of the report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Median of our slices; none when the benchmark was left out.
    pub ours: Option<f64>,
    /// Our best slice.
    pub best: Option<f64>,
    /// Median of the peer's slices.
    pub peer: Option<f64>,
    /// Median of the ratios of paired slices, ours to the peer's.
    pub ratio: Option<f64>,
    /// Unit of `ours`, `best` and `peer`.
    pub unit: String,
    /// Bounds of `ratio` that hold with 95% confidence, by the order of the ratios; none of few slices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
    /// Slices of ours.
    pub runs: usize,
    /// Difference of our highest and lowest slice, as a part of the median.
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
    /// A note for reading the figures, or why there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// A promise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// The target, such as `ratio >= 1.5`.
    pub mark: String,
    /// Whether this run meets it.
    pub holds: bool,
}

/// One step of a benchmark that varies something.
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
    /// The same for the peer; empty if there is none.
    pub peer: Vec<f64>,
}

/// The middle of some figures; none of none.
pub fn median(figures: &[f64]) -> Option<f64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().wrapping_sub(1) / 2)?;
    Some((upper + lower) / 2.0)
}

/// The 95% confidence interval of the median, from order statistics (the number of values below the median is
/// binomial). None if there are too few values.
pub fn interval(figures: &[f64]) -> Option<[f64; 2]> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len() as f64;
    // The binomial distribution by the normal one, half a toss to the safe side.
    let low = (count / 2.0 - 0.98 * count.sqrt() - 0.5).floor();
    if count < 10.0 || low < 0.0 {
        return None;
    }
    let low = low as usize;
    Some([*sorted.get(low)?, *sorted.get(sorted.len() - 1 - low)?])
}

impl Slices {
    /// The row that these slices make.
    pub fn entry(&self, unit: &str, better: Better) -> Entry {
        let highest = self.ours.iter().copied().max_by(f64::total_cmp);
        let lowest = self.ours.iter().copied().min_by(f64::total_cmp);
        let ours = median(&self.ours);
        let ratios: Vec<f64> = self.ours.iter().zip(&self.peer).map(|(ours, peer)| ours / peer).collect();
        let spread = match (highest, lowest, ours) {
            (Some(highest), Some(lowest), Some(ours)) if ours != 0.0 => (highest - lowest) / ours,
            _ => 0.0,
        };
        Entry {
            ours,
            best: if better == Better::More { highest } else { lowest },
            peer: median(&self.peer),
            ratio: median(&ratios),
            interval: interval(&ratios),
            unit: unit.into(),
            runs: self.ours.len(),
            spread,
            ..Entry::default()
        }
    }
}

impl Entry {
    /// A benchmark that was left out.
    pub fn skipped(why: impl std::fmt::Display) -> Entry {
        Entry { note: format!("left out: {why}"), ..Entry::default() }
    }

    /// Promises that the ratio reaches `bound`.
    pub fn ratio_at_least(self, bound: f64) -> Entry {
        let holds = self.ratio.is_some_and(|ratio| ratio >= bound);
        self.mark(format!("ratio >= {bound}"), holds)
    }

    /// Promises that the interval of the ratio reaches `bound`.
    pub fn interval_reaches(self, bound: f64) -> Entry {
        let holds = self.interval.map(|[_, high]| high).or(self.ratio).is_some_and(|high| high >= bound);
        self.mark(format!("ratio >= {bound}"), holds)
    }

    /// Promises that the ratio does not pass `bound`.
    pub fn ratio_at_most(self, bound: f64) -> Entry {
        let holds = self.ratio.is_some_and(|ratio| ratio <= bound);
        self.mark(format!("ratio <= {bound}"), holds)
    }

    /// Promises that the best slice reaches `bound`.
    pub fn best_at_least(self, bound: f64) -> Entry {
        let holds = self.best.is_some_and(|best| best >= bound);
        let mark = format!("best >= {bound} {}", self.unit);
        self.mark(mark, holds)
    }

    /// Promises that the best slice does not pass `bound`.
    pub fn best_at_most(self, bound: f64) -> Entry {
        let holds = self.best.is_some_and(|best| best <= bound);
        let mark = format!("best <= {bound} {}", self.unit);
        self.mark(mark, holds)
    }

    /// Adds a promise.
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

    #[test]
    fn the_interval_narrows_with_more_samples() {
        assert_eq!(interval(&[1.0; 9]), None);
        let figures =
            |count: u32| (0..count).map(|figure| f64::from(figure) / f64::from(count)).collect::<Vec<_>>();
        // Ranks 40 and 61 of 100 (Conover, Practical Nonparametric Statistics, table of the binomial).
        let [low, high] = interval(&figures(100)).unwrap();
        assert!((0.38..=0.4).contains(&low) && (0.59..=0.62).contains(&high), "{low} {high}");
        let [low, high] = interval(&figures(10_000)).unwrap();
        assert!(low > 0.489 && high < 0.511);
        let entry = Slices { ours: figures(100), peer: vec![1.0; 100] }.entry("Mpps", Better::More);
        assert!(entry.clone().interval_reaches(0.55).marks[0].holds);
        assert!(!entry.interval_reaches(0.65).marks[0].holds);
    }

    #[test]
    fn ratios_use_pairs_and_limits_use_the_best_run() {
        let slices = Slices { ours: vec![10.0, 40.0, 20.0], peer: vec![10.0, 10.0, 40.0] };
        let entry = slices.entry("Mpps", Better::More).ratio_at_least(1.0).best_at_least(50.0);
        assert_eq!((entry.ours, entry.best, entry.peer), (Some(20.0), Some(40.0), Some(10.0)));
        assert_eq!((entry.ratio, entry.runs, entry.spread), (Some(1.0), 3, 1.5));
        assert_eq!(entry.marks.iter().map(|mark| mark.holds).collect::<Vec<_>>(), [true, false]);
        let entry = slices.entry("us", Better::Less).best_at_most(10.0);
        assert!(entry.marks[0].holds && entry.marks[0].mark == "best <= 10 us");
    }
}
