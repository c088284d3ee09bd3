//! Computes the choice from the weights.

use crate::model::Row;
use crate::policy::Selector;
use crate::unit::ends;

/// Buffers reused by later decisions.
#[derive(Debug, Default)]
pub struct Counts {
    less: Vec<u32>,
    order: Vec<u32>,
}

/// Largest range of scores that is ranked by counting instead of sorting.
const COUNTED: i64 = 4096;

/// Adds the value of `raw` for each host, multiplied by `factor`, to `totals`; also stores the value itself
/// in `points` if given. Lower scores in `raw` are better.
pub fn add(
    selector: Selector,
    raw: &[i32],
    factor: u32,
    totals: &mut [f64],
    points: Option<&mut Vec<f64>>,
    counts: &mut Counts,
) {
    let (least, most) = ends(raw);
    let out = Out { raw, factor: f64::from(factor), totals, points };
    match selector {
        Selector::Rank => {
            counts.rank(raw, least, most);
            let last = raw.len().saturating_sub(1) as u32;
            if i64::from(most) - i64::from(least) < COUNTED {
                let less = &counts.less;
                out.give(|_, raw| f64::from(last - less[raw.wrapping_sub(least) as usize]));
            } else {
                let ranks = &counts.order;
                out.give(|at, _| f64::from(last - ranks[at]));
            }
        }
        Selector::ScaledSum => {
            let width = (f64::from(most) - f64::from(least)).max(1.0);
            out.give(|_, raw| (f64::from(most) - f64::from(raw)) / width);
        }
        Selector::LowestSum => out.give(|_, raw| -f64::from(raw)),
    }
}

struct Out<'o> {
    raw: &'o [i32],
    factor: f64,
    totals: &'o mut [f64],
    points: Option<&'o mut Vec<f64>>,
}

impl Out<'_> {
    fn give(self, points_of: impl Fn(usize, i32) -> f64) {
        match self.points {
            Some(points) => points.extend(self.raw.iter().enumerate().map(|(at, raw)| points_of(at, *raw))),
            None => {
                for (at, (total, raw)) in self.totals.iter_mut().zip(self.raw).enumerate() {
                    *total += self.factor * points_of(at, *raw);
                }
            }
        }
    }
}

impl Counts {
    /// Counts, for each score, how many are lower: by value in `less` if the range is small, otherwise by
    /// sorting `order`.
    fn rank(&mut self, raw: &[i32], least: i32, most: i32) {
        let range = i64::from(most) - i64::from(least);
        if range < COUNTED {
            self.less.clear();
            self.less.resize(range as usize + 1, 0);
            for figure in raw {
                self.less[(figure - least) as usize] += 1;
            }
            let mut sum = 0;
            for count in &mut self.less {
                (*count, sum) = (sum, sum + *count);
            }
            return;
        }
        let mut sorted: Vec<u32> = (0..raw.len() as u32).collect();
        sorted.sort_unstable_by_key(|at| raw[*at as usize]);
        self.order.clear();
        self.order.resize(raw.len(), 0);
        let mut rank = 0;
        for (place, at) in sorted.iter().enumerate() {
            if place > 0 && raw[sorted[place - 1] as usize] != raw[*at as usize] {
                rank = place as u32;
            }
            self.order[*at as usize] = rank;
        }
    }
}

/// Number of best hosts that are recorded.
const TOP: usize = 20;

/// The best hosts, best first: by score, then by a random number determined by `seed`.
pub fn top(rows: &[Row], totals: &[f64], dice: &[u64], seed: u64) -> Vec<(usize, f64)> {
    let mut best: Vec<(f64, u64, usize)> = Vec::with_capacity(TOP + 1);
    let mut bar = f64::MIN;
    for (at, total) in totals.iter().enumerate() {
        if *total < bar {
            continue;
        }
        let throw = mix(dice[rows[at] as usize] ^ seed);
        let before = |other: &(f64, u64, usize)| other.0 > *total || (other.0 == *total && other.1 <= throw);
        let place = best.iter().rposition(before).map_or(0, |place| place + 1);
        if place < TOP {
            best.insert(place, (*total, throw, at));
            best.truncate(TOP);
            if best.len() == TOP {
                bar = best[TOP - 1].0;
            }
        }
    }
    best.into_iter().map(|(total, _, at)| (at, total)).collect()
}

/// The final step of SplitMix64, which maps similar seeds to very different numbers.
pub fn mix(mut bits: u64) -> u64 {
    bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn points(selector: Selector, raw: &[i32]) -> Vec<f64> {
        let (mut points, mut totals) = (Vec::new(), vec![0.0; raw.len()]);
        add(selector, raw, 3, &mut totals, Some(&mut points), &mut Counts::default());
        assert!(totals.iter().all(|total| *total == 0.0));
        points
    }

    #[test]
    fn ranks_equal_ovirts() {
        // Of four hosts: the two best share the highest rank, the third has one less than the number of
        // better hosts.
        assert_eq!(points(Selector::Rank, &[1, 5, 1, 9]), [3.0, 1.0, 3.0, 0.0]);
        assert_eq!(points(Selector::Rank, &[1, 100_000, 1, 900_000]), [3.0, 1.0, 3.0, 0.0]);
        assert_eq!(points(Selector::Rank, &[7, 7]), [1.0, 1.0]);
        assert_eq!(points(Selector::ScaledSum, &[10, 20, 30]), [1.0, 0.5, 0.0]);
        assert_eq!(points(Selector::LowestSum, &[10, -20]), [-10.0, 20.0]);
        assert!(points(Selector::Rank, &[]).is_empty());
    }

    proptest! {
        /// Counting and sorting give the same ranks; a host's rank does not depend on its position.
        #[test]
        fn a_rank_counts_the_hosts_that_are_not_better(
            raw in prop::collection::vec(-50i32..50, 1..60),
            wide in any::<bool>(),
        ) {
            let scaled: Vec<i32> = raw.iter().map(|raw| if wide { raw * 1000 } else { *raw }).collect();
            let expected: Vec<f64> = raw
                .iter()
                .map(|figure| (raw.len() - 1 - raw.iter().filter(|other| *other < figure).count()) as f64)
                .collect();
            prop_assert_eq!(points(Selector::Rank, &scaled), expected);
        }

        /// `top` returns the best hosts in order, for any order of the input.
        #[test]
        fn the_top_equals_a_sort(totals in prop::collection::vec(0u8..10, 0..100), seed in any::<u64>()) {
            let totals: Vec<f64> = totals.into_iter().map(f64::from).collect();
            let rows: Vec<Row> = (0..totals.len() as Row).collect();
            let dice: Vec<u64> = rows.iter().map(|row| u64::from(*row) * 77).collect();
            let mut sorted: Vec<usize> = (0..totals.len()).collect();
            let throw = |at: usize| mix(dice[at] ^ seed);
            sorted.sort_by(|a, b| totals[*b].total_cmp(&totals[*a]).then(throw(*a).cmp(&throw(*b))));
            let top: Vec<usize> = top(&rows, &totals, &dice, seed).into_iter().map(|(at, _)| at).collect();
            prop_assert_eq!(&top[..], &sorted[..totals.len().min(TOP)]);
        }
    }
}
