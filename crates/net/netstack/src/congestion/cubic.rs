//! CUBIC (RFC 9438) with HyStart++, in integers: windows in bytes, times in milliseconds.

use super::hystart::HyStart;
use super::{Congestion, RateSample, Window};
use crate::codec::{BYTES, Bound, Field, RATE, SPAN, fields};
use crate::settings::MS;
use alloc::vec::Vec;

/// The multiplicative decrease, 0.7, in tenths (RFC 9438, 4.6).
const BETA: u64 = 7;
/// `3 * (1 - beta) / (1 + beta)` in thousandths: the growth of the Reno-friendly window (RFC 9438, 4.3).
const ALPHA: u64 = 529;
/// `C` is 2/5 segments per second cubed (RFC 9438, 5).
const C: (i128, i128) = (2, 5);

/// The controller.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cubic {
    hystart: HyStart,
    w_max: u64,
    /// When the current stage of congestion avoidance began; 0: it begins with the next acknowledgment.
    epoch: u64,
    /// Time from then to `w_max`, in milliseconds.
    k: u64,
    /// The window at the plateau.
    origin: u64,
    w_est: u64,
    cwnd_prior: u64,
    /// Growth smaller than a byte, for each of the two windows.
    rest: [u64; 2],
}

impl Cubic {
    fn begin(&mut self, now: u64, window: &Window) {
        self.epoch = now.max(1);
        self.w_est = window.cwnd;
        self.rest = [0; 2];
        self.origin = self.w_max.max(window.cwnd);
        let missing = u128::from(self.origin - window.cwnd);
        // K is the cube root of the missing segments over C, here in thousandths of a second.
        self.k = cube_root(missing * C.1 as u128 * 1_000_000_000 / (C.0 as u128 * u128::from(window.mss)));
    }

    /// `W_cubic` at `t` milliseconds after the epoch.
    fn w_cubic(&self, t: u64, mss: u64) -> u64 {
        let from_plateau = i128::from(t) - i128::from(self.k);
        let from_plateau = from_plateau.clamp(-1_000_000_000, 1_000_000_000);
        let change = C.0 * i128::from(mss) * from_plateau.pow(3) / (C.1 * 1_000_000_000);
        (i128::from(self.origin) + change).clamp(i128::from(mss), 1 << 60) as u64
    }

    /// Adds `numerator / denominator` bytes to a window, keeping the remainder.
    fn grow(&mut self, which: usize, numerator: u128, denominator: u64) -> u64 {
        let denominator = u128::from(denominator.max(1));
        let total = numerator + u128::from(self.rest[which]);
        self.rest[which] = (total % denominator) as u64;
        (total / denominator) as u64
    }
}

impl Congestion for Cubic {
    fn name(&self) -> &'static str {
        "cubic"
    }

    fn save(&self, to: &mut Vec<u8>) {
        self.put(to);
    }

    fn ssthresh(&mut self, _now: u64, window: &Window) -> u64 {
        // Fast convergence (RFC 9438, 4.7).
        let converges = window.cwnd < self.w_max;
        self.w_max = if converges { window.cwnd * (10 + BETA) / 20 } else { window.cwnd };
        (self.epoch, self.cwnd_prior) = (0, window.cwnd);
        (window.cwnd * BETA / 10).max(2 * window.mss)
    }

    fn on_ack(&mut self, now: u64, window: &mut Window, sample: &RateSample) {
        if !window.cwnd_limited {
            return;
        }
        let mut acked = sample.acked_sacked;
        if window.in_slow_start() {
            acked = self.hystart.slow_start(window, sample);
            if acked == 0 {
                return;
            }
        }
        if self.epoch == 0 {
            self.begin(now, window);
        }
        let t = now.saturating_sub(self.epoch) / MS;
        let (cwnd, mss) = (window.cwnd, window.mss);
        let alpha = if self.w_est < self.cwnd_prior { ALPHA } else { 1000 };
        let growth = u128::from(acked) * u128::from(mss) * u128::from(alpha);
        self.w_est += self.grow(0, growth, cwnd * 1000);
        if self.w_est > self.w_cubic(t, mss) {
            // The Reno-friendly region (RFC 9438, 4.3).
            window.cwnd = cwnd.max(self.w_est);
            return;
        }
        // The concave and convex regions (RFC 9438, 4.4 and 4.5).
        let target = self.w_cubic(t + window.srtt / MS, mss).clamp(cwnd, cwnd + cwnd / 2);
        let growth = u128::from(target - cwnd) * u128::from(acked);
        window.cwnd += self.grow(1, growth, cwnd);
    }

    fn on_restart(&mut self, _now: u64, _window: &mut Window, idle: u64) {
        // Time without data does not count (RFC 9438, 5.8).
        if self.epoch != 0 {
            self.epoch += idle;
        }
    }

    fn on_standstill(&mut self, now: u64, time: u64) {
        if self.epoch != 0 {
            self.epoch = (self.epoch + time).min(now);
        }
    }
}

/// The integer cube root.
fn cube_root(number: u128) -> u64 {
    let (mut low, mut high) = (0u128, 1u128 << 42);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if middle * middle * middle <= number { low = middle } else { high = middle - 1 }
    }
    low as u64
}

fields!(Cubic {
    hystart: Bound::Any,
    w_max: BYTES,
    epoch: Bound::Deadline,
    k: SPAN,
    origin: BYTES,
    w_est: BYTES,
    cwnd_prior: BYTES,
    rest: RATE,
});

#[cfg(test)]
mod tests {
    use super::super::tests::window;
    use super::*;
    use crate::settings::SECOND;

    #[test]
    fn cube_roots() {
        for (number, root) in [(0, 0), (7, 1), (8, 2), (26, 2), (1_000_000_000, 1000)] {
            assert_eq!(cube_root(number), root);
        }
    }

    /// After a loss at 100 segments, K is the cube root of 30 / 0.4: 4.217 s.
    #[test]
    fn the_window_reaches_its_maximum_after_k() {
        let mut window = window(100_000);
        let mut cubic = Cubic::default();
        window.ssthresh = cubic.ssthresh(0, &window);
        assert_eq!(window.ssthresh, 70_000);
        window.cwnd = window.ssthresh;
        window.srtt = 100 * MS;
        let mut now = SECOND;
        let mut reached = None;
        while now < 8 * SECOND {
            cubic.on_ack(now, &mut window, &RateSample::acked(1000));
            if window.cwnd >= 99_900 && reached.is_none() {
                reached = Some((now - SECOND) / MS);
            }
            now += 100 * MS * 1000 / window.cwnd;
        }
        assert_eq!(cubic.k, 4217);
        let reached = reached.unwrap();
        assert!((3000..4400).contains(&reached), "reached after {reached} ms");
        assert!(window.cwnd > 105_000, "the convex region: {}", window.cwnd);
    }

    #[test]
    fn a_second_loss_below_the_maximum_releases_bandwidth() {
        let mut cubic = Cubic::default();
        cubic.ssthresh(0, &window(100_000));
        cubic.ssthresh(0, &window(80_000));
        assert_eq!(cubic.w_max, 68_000);
    }
}
