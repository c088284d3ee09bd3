//! Rates as Click's elements measure them: an exponentially weighted moving average over milliseconds.
use ringway_click::prelude::*;

/// Periods per second.
const FREQUENCY: u64 = 1000;
/// Each period has the weight `2^-WEIGHT`.
const WEIGHT: u32 = 4;
/// Fractional bits of an average, and of an average of large numbers.
const SCALE: u32 = 10;
const COARSE: u32 = 4;
/// Empty periods after which an average is 0.
const FORGOTTEN: u64 = 100;

/// A rate per second.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Fractional bits of the average.
    scale: u32,
    period: u64,
    total: u64,
    average: u64,
}

impl Default for Rate {
    fn default() -> Self {
        Self { scale: SCALE, period: 0, total: 0, average: 0 }
    }
}

impl Rate {
    /// A rate of large numbers, such as bytes.
    pub fn coarse() -> Self {
        Self { scale: COARSE, ..Self::default() }
    }

    /// Counts `count` at the time `now`, in nanoseconds.
    pub fn update(&mut self, now: u64, count: u64) {
        let period = now / (SECOND / FREQUENCY);
        if self.period != period {
            let empty = period.saturating_sub(self.period + 1);
            self.end_period();
            if empty >= FORGOTTEN {
                self.average = 0;
            } else {
                (0..empty).for_each(|_| self.end_period());
            }
            self.period = period;
        }
        self.total = self.total.saturating_add(count);
    }

    fn end_period(&mut self) {
        let scaled = core::mem::take(&mut self.total).min(u64::from(u32::MAX)) << self.scale;
        let difference = (scaled + (1 << (WEIGHT - 1))).cast_signed() - self.average.cast_signed();
        self.average = self.average.saturating_add_signed(difference >> WEIGHT);
    }

    /// The average of a period, in units of [`Rate::scale`].
    pub fn scaled(&self) -> u64 {
        self.average
    }

    /// The value of [`Rate::scaled`] at this rate per second.
    pub fn scale(rate: u32) -> u64 {
        (u64::from(rate) << SCALE) / FREQUENCY
    }

    /// The rate times `2^factor`, as text.
    pub fn text(&mut self, now: u64, factor: u32) -> String {
        self.update(now, 0);
        real(u128::from(self.average * FREQUENCY), self.scale - factor)
    }

    /// An average of a period as a rate per second, as text.
    pub fn unscale(average: u64) -> String {
        real(u128::from(average * FREQUENCY), SCALE)
    }
}

/// `value * 2^-bits` with the fewest decimals that identify it.
fn real(value: u128, bits: u32) -> String {
    let unit = 1u128 << bits;
    let (mut whole, fraction) = (value / unit, value % unit);
    for decimals in 0..=bits {
        let power = 10u128.pow(decimals);
        let (digits, rest) = (fraction * power / unit, fraction * power % unit);
        if 2 * rest.min(unit - rest) < power {
            let digits = digits + u128::from(2 * rest > unit);
            whole += digits / power;
            let text = match decimals {
                0 => whole.to_string(),
                _ => format!("{whole}.{:0w$}", digits % power, w = decimals as usize),
            };
            return text;
        }
    }
    whole.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_is_measured_and_decays() {
        const PERIOD: u64 = SECOND / FREQUENCY;
        let mut rate = Rate::default();
        (0..200).for_each(|period| rate.update(period * PERIOD, 1));
        assert_eq!(rate.text(200 * PERIOD, 0), "993.164");
        assert_eq!(rate.text(u64::MAX / 2, 0), "0");
    }

    #[test]
    fn numbers_have_as_many_decimals_as_they_need() {
        for (thousandths, expected) in [
            (0u128, "0"),
            (1, "0.001"),
            (8000, "7.8125"),
            (51_000, "49.805"),
            (81_000, "79.102"),
            (60_000_000, "58593.75"),
            (179_000, "174.805"),
            (1023, "0.999"),
        ] {
            assert_eq!(real(thousandths, SCALE), expected);
        }
    }
}
