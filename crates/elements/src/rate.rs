//! Rates as Click's elements measure them: an exponentially weighted moving average over periods of a
//! tenth of a second.
use alloc::format;
use alloc::string::String;
use ringway_click::SECOND;

/// A period.
const PERIOD: u64 = SECOND / 10;
/// Each period counts `2^-WEIGHT`.
const WEIGHT: u32 = 4;
/// Bits of fraction of the average.
const SCALE: u32 = 10;

/// How many of something there are a second.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rate {
    period: Option<u64>,
    total: u64,
    average: u64,
}

impl Rate {
    /// Counts `count` at the time `now`, in nanoseconds.
    pub fn update(&mut self, now: u64, count: u64) {
        let period = now / PERIOD;
        match self.period {
            Some(own) if own == period => {}
            Some(own) => {
                self.end_period();
                // Whole empty periods; the average is 0 after a few hundred.
                for _ in 1..period.saturating_sub(own).min(1000) {
                    self.end_period();
                }
                self.period = Some(period);
            }
            None => self.period = Some(period),
        }
        self.total = self.total.saturating_add(count);
    }

    fn end_period(&mut self) {
        let scaled = core::mem::take(&mut self.total).saturating_mul(1 << SCALE);
        let half = 1 << (WEIGHT - 1);
        self.average = if scaled >= self.average {
            self.average + ((scaled - self.average + half) >> WEIGHT)
        } else {
            self.average - ((self.average - scaled + half) >> WEIGHT)
        };
    }

    /// The rate, rounded down.
    pub fn whole(&self) -> u64 {
        self.average.saturating_mul(SECOND / PERIOD) >> SCALE
    }

    /// The rate times `factor`, as text with up to three decimals.
    pub fn text(&mut self, now: u64, factor: u64) -> String {
        self.update(now, 0);
        let thousandths =
            (u128::from(self.average) * u128::from(factor) * u128::from(SECOND / PERIOD) * 1000) >> SCALE;
        let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
        text.trim_end_matches('0').trim_end_matches('.').into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_measured_and_decays() {
        let mut rate = Rate::default();
        for period in 0..200 {
            rate.update(period * PERIOD, 10);
        }
        let found: f64 = rate.text(200 * PERIOD, 1).parse().unwrap();
        assert!((95.0..=105.0).contains(&found), "{found}");
        assert_eq!(rate.text(u64::MAX / 2, 1), "0.068");
    }
}
