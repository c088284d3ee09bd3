//! Computes the choice from the weights.

use super::totals::Totals;
use crate::model::Row;
use crate::policy::Selector;
use crate::unit::ends;
use std::cmp::Ordering;

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
    totals: &mut Totals,
    points: Option<&mut Vec<f64>>,
    counts: &mut Counts,
) {
    let (least, most) = ends(raw);
    let range = i64::from(most) - i64::from(least);
    if points.is_none() {
        match selector {
            // Sums of ranks are small integers.
            Selector::Rank => {}
            Selector::ScaledSum => totals.add_weight(raw, factor, range.unsigned_abs().max(1), 1.0),
            Selector::LowestSum => {
                totals.add_weight(raw, factor, 1, f64::from(least).abs().max(f64::from(most).abs()));
            }
        }
    }
    let out = Out { raw, factor: f64::from(factor), totals: &mut totals.sums, points };
    match selector {
        Selector::Rank => {
            counts.rank(raw, least, most);
            let last = raw.len().saturating_sub(1) as u32;
            if range < COUNTED {
                let less = &counts.less;
                out.give(|_, raw| f64::from(last - less[raw.wrapping_sub(least) as usize]));
            } else {
                let ranks = &counts.order;
                out.give(|at, _| f64::from(last - ranks[at]));
            }
        }
        Selector::ScaledSum => {
            let width = (range as f64).max(1.0);
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

/// The best hosts, best first: by exact score, then by a random number determined by `seed`.
pub fn top(rows: &[Row], totals: &Totals, dice: &[u64], seed: u64) -> Vec<(usize, f64)> {
    let mut best: Vec<(f64, u64, usize)> = Vec::with_capacity(TOP + 1);
    let (mut bar, doubt) = (f64::MIN, totals.doubt());
    for (at, total) in totals.sums.iter().enumerate() {
        if *total < bar - doubt {
            continue;
        }
        let throw = mix(dice[rows[at] as usize] ^ seed);
        let before = |other: &(f64, u64, usize)| match totals.compare(other.2, at) {
            Ordering::Equal => other.1 <= throw,
            order => order == Ordering::Greater,
        };
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
    use crate::ratio::tests::Big;
    use proptest::prelude::*;

    fn points(selector: Selector, raw: &[i32]) -> Vec<f64> {
        let (mut points, mut totals) = (Vec::new(), Totals::default());
        totals.clear(raw.len());
        add(selector, raw, 3, &mut totals, Some(&mut points), &mut Counts::default());
        assert!(totals.sums.iter().all(|total| *total == 0.0));
        points
    }

    const HOSTS: usize = 8;

    fn factor() -> impl Strategy<Value = u32> {
        prop_oneof![Just(1), 0u32..4, 1u32..=1_000_000]
    }

    /// Scores of hosts: those of small ranges often have equal sums, which doubles tell apart.
    fn raw(hosts: usize) -> impl Strategy<Value = Vec<i32>> {
        let any = prop_oneof![
            (0i32..12).boxed(),
            (-1_000_000_000i32..=1_000_000_000).boxed(),
            any::<i32>().boxed()
        ];
        prop_oneof![
            prop::collection::vec(0i32..12, hosts),
            prop::collection::vec((0i32..4).prop_map(|step| i32::MAX - step), hosts),
            prop::collection::vec(any, hosts),
        ]
    }

    /// The sums times the product of all widths, plus a number that makes all of them natural.
    fn sums(selector: Selector, weights: &[(u32, Vec<i32>)]) -> Vec<Big> {
        let width = |raw: &[i32]| {
            let (least, most) = ends(raw);
            let width = i64::from(most) - i64::from(least);
            if selector == Selector::ScaledSum { width.max(1) as u128 } else { 1 }
        };
        let sum = |host: usize| {
            weights.iter().enumerate().fold(Big::of(0), |sum, (this, (factor, raw))| {
                let score = (i64::from(i32::MAX) - i64::from(raw[host])) as u128;
                let others = weights.iter().enumerate().filter(|(other, _)| *other != this);
                let scaled = Big::of(score * u128::from(*factor));
                let term = others.fold(scaled, |term, (_, (_, raw))| term.times(&Big::of(width(raw))));
                sum.plus(&term)
            })
        };
        (0..HOSTS).map(sum).collect()
    }

    #[test]
    fn sums_that_doubles_tell_apart_are_equal() {
        // 1/10 + 2/10 = 3/10, which is not so in doubles.
        let weights = [[9, 7, 0, 10], [8, 10, 0, 10]];
        let mut totals = Totals::default();
        totals.clear(4);
        for raw in &weights {
            add(Selector::ScaledSum, raw, 1, &mut totals, None, &mut Counts::default());
        }
        assert!(totals.sums[0] != totals.sums[1], "{:?}", totals.sums);
        let winners = |seed| top(&[0, 1], &cut(&totals), &[5, 6], seed)[0].0;
        let first = (0..64).filter(|seed| winners(*seed) == 0).count();
        assert!((16..48).contains(&first), "it is drawn: {first} of 64");
    }

    /// The totals of the first two of four hosts.
    fn cut(totals: &Totals) -> Totals {
        let mut cut = Totals::default();
        cut.clear(2);
        cut.sums.copy_from_slice(&totals.sums[..2]);
        for raw in [[9, 7], [8, 10]] {
            cut.add_weight(&raw, 1, 10, 1.0);
        }
        cut
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
            let sums: Vec<f64> = totals.into_iter().map(f64::from).collect();
            let mut totals = Totals::default();
            totals.sums.clone_from(&sums);
            let rows: Vec<Row> = (0..sums.len() as Row).collect();
            let dice: Vec<u64> = rows.iter().map(|row| u64::from(*row) * 77).collect();
            let mut sorted: Vec<usize> = (0..sums.len()).collect();
            let throw = |at: usize| mix(dice[at] ^ seed);
            sorted.sort_by(|a, b| sums[*b].total_cmp(&sums[*a]).then(throw(*a).cmp(&throw(*b))));
            let top: Vec<usize> = top(&rows, &totals, &dice, seed).into_iter().map(|(at, _)| at).collect();
            prop_assert_eq!(&top[..], &sorted[..sums.len().min(TOP)]);
        }

        /// Hosts are ordered by the exact sums of their scaled scores, and by nothing else: neither the order of the
        /// weights nor that of the hosts matters.
        #[test]
        fn sums_are_ordered_exactly(
            weights in prop::collection::vec((factor(), raw(HOSTS)), 1..9),
            selector in prop::sample::select(&[Selector::ScaledSum, Selector::LowestSum][..]),
            seed in any::<u64>(),
        ) {
            let exact = sums(selector, &weights);
            let dice: Vec<u64> = (0..HOSTS as u64).collect();
            let choose = |weights: &[(u32, Vec<i32>)], order: &[usize]| -> Vec<usize> {
                let mut totals = Totals::default();
                totals.clear(order.len());
                for (factor, raw) in weights {
                    let raw: Vec<i32> = order.iter().map(|host| raw[*host]).collect();
                    add(selector, &raw, *factor, &mut totals, None, &mut Counts::default());
                }
                let rows: Vec<Row> = order.iter().map(|host| *host as Row).collect();
                top(&rows, &totals, &dice, seed).into_iter().map(|(at, _)| order[at]).collect()
            };
            let order: Vec<usize> = (0..HOSTS).collect();
            let mut sorted = order.clone();
            let throw = |host: usize| mix(dice[host] ^ seed);
            sorted.sort_by(|a, b| exact[*b].cmp(&exact[*a]).then(throw(*a).cmp(&throw(*b))));
            prop_assert_eq!(&choose(&weights, &order), &sorted);
            let turned: Vec<_> = weights.iter().rev().cloned().collect();
            let back: Vec<usize> = order.iter().rev().copied().collect();
            prop_assert_eq!(choose(&turned, &back), sorted);
        }
    }
}
