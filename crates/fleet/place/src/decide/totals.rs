//! Sums of hosts' scores: doubles to show and to compare first, exact terms where doubles are too near.

use std::cmp::Ordering;

/// The sums of some hosts' scores.
#[derive(Debug, Default)]
pub struct Totals {
    /// The sums, nearly.
    pub sums: Vec<f64>,
    /// Scores of all hosts by each weight in turn. Lower is better.
    raw: Vec<i32>,
    /// Factor of each weight, and the number that its scores are divided by.
    scales: Vec<(u32, u64)>,
    /// An upper bound of a host's sum of absolute terms.
    reach: f64,
}

impl Totals {
    /// Begins with 0 for each host.
    pub fn clear(&mut self, hosts: usize) {
        self.sums.clear();
        self.sums.resize(hosts, 0.0);
        self.raw.clear();
        self.scales.clear();
        self.reach = 0.0;
    }

    /// Keeps the terms that a weight adds: scores, divided by `width`, times `factor`. None is larger than `most`
    /// before it is multiplied.
    pub fn add_weight(&mut self, raw: &[i32], factor: u32, width: u64, most: f64) {
        self.raw.extend_from_slice(raw);
        self.scales.push((factor, width));
        self.reach += f64::from(factor) * most;
    }

    /// The largest difference of two sums that rounding may have caused: each term is rounded twice, and each addition
    /// once, by half an epsilon at most.
    pub fn doubt(&self) -> f64 {
        (self.scales.len() as f64 + 4.0) * f64::EPSILON * self.reach
    }

    /// Compares the sums of two hosts exactly.
    pub fn compare(&self, left: usize, right: usize) -> Ordering {
        let difference = self.sums[left] - self.sums[right];
        if self.scales.is_empty() || difference.abs() > self.doubt() {
            return difference.total_cmp(&0.0);
        }
        // Sums of the terms by which one is better than the other, over a common denominator.
        let [mut better, mut worse] = [Natural::of(0), Natural::of(0)];
        let mut bottom = Natural::of(1);
        for (raw, (factor, width)) in self.raw.chunks_exact(self.sums.len()).zip(&self.scales) {
            let less = i64::from(raw[right]) - i64::from(raw[left]);
            if less == 0 {
                continue;
            }
            let mut term = bottom.clone();
            // A difference has 32 bits.
            term.multiply(less.unsigned_abs() * u64::from((*factor).min(1 << 31)));
            for number in [&mut better, &mut worse, &mut bottom] {
                number.multiply(*width);
            }
            if less > 0 { &mut better } else { &mut worse }.add(&term);
        }
        better.cmp(&worse)
    }
}

/// A natural number: digits in base 2^64, least first, the last of which is not 0.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Natural(Vec<u64>);

impl Natural {
    fn of(number: u64) -> Natural {
        Natural(if number == 0 { Vec::new() } else { vec![number] })
    }

    fn multiply(&mut self, factor: u64) {
        if factor == 0 {
            self.0.clear();
        }
        let mut carry = 0u128;
        for digit in &mut self.0 {
            carry += u128::from(*digit) * u128::from(factor);
            *digit = carry as u64;
            carry >>= 64;
        }
        self.0.extend((carry > 0).then_some(carry as u64));
    }

    fn add(&mut self, other: &Natural) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        let mut carry = 0u128;
        for (at, digit) in self.0.iter_mut().enumerate() {
            carry += u128::from(*digit) + u128::from(other.0.get(at).copied().unwrap_or(0));
            *digit = carry as u64;
            carry >>= 64;
        }
        self.0.extend((carry > 0).then_some(carry as u64));
    }
}

impl Ord for Natural {
    fn cmp(&self, other: &Natural) -> Ordering {
        self.0.len().cmp(&other.0.len()).then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

impl PartialOrd for Natural {
    fn partial_cmp(&self, other: &Natural) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
