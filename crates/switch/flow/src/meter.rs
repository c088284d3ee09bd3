//! Meters: rates beyond which frames of flows are dropped. A meter is one for all workers, so a frame that passes one
//! costs atomic operations; frames of other flows do not.

use crate::text::{FlowError, LONGEST, Piece};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The greatest number of a meter, as in OpenFlow.
pub const LARGEST: u32 = 0xffff_0000;
/// Most meters of a switch.
pub const METERS: usize = 4096;
/// How often a frame tries to pass a meter that other workers pass at the same time; then it passes without being
/// counted by the rate, which it has not exceeded.
const TRIES: usize = 16;
/// Parts of a nanosecond, so that the time of a frame is exact to a part: at 100 million frames a second, to 0.2
/// percent. The clock may be 9 years old.
const PARTS: u64 = 64;

/// What a rate counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Thousands of bits a second.
    Kilobits,
    /// Frames a second.
    Frames,
}

/// A meter as its text says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterMod {
    /// Its number.
    pub id: u32,
    /// What its rate counts.
    pub unit: Unit,
    /// Most units a second.
    pub rate: u32,
    /// Most units at once; `None`: those of a second.
    pub burst: Option<u32>,
}

/// A meter.
#[derive(Debug)]
pub struct Meter {
    /// What it is.
    pub meter: MeterMod,
    /// What is counted of it, also before it was changed.
    pub counters: Arc<MeterCounters>,
    /// When all units will have passed at the rate, in parts of a nanosecond.
    full_until: AtomicU64,
}

/// What is counted of a meter.
#[derive(Debug, Default)]
pub struct MeterCounters {
    /// Its frames.
    pub frames: AtomicU64,
    /// Those that were dropped.
    pub dropped: AtomicU64,
}

impl MeterMod {
    /// Reads a meter, as `ovs-ofctl add-meter` does: `meter=1,kbps,burst,bands=type=drop,rate=1000,burst_size=100`.
    ///
    /// # Errors
    /// A word is unknown, a value is wrong, or the number or the rate is missing.
    pub fn read(text: &str) -> Result<MeterMod, FlowError> {
        if text.len() > LONGEST {
            return Err(FlowError::new(1, format!("a meter has more than {LONGEST} bytes")));
        }
        let (mut id, mut unit, mut rate, mut burst) = (None, Unit::Kilobits, None, None);
        let whole = Piece::new(text);
        let (before, bands) = whole.split_once("bands=").unwrap_or_else(|| whole.split_at(text.len()));
        for word in before.items() {
            match (word.text, word.split_once("=")) {
                ("kbps", _) => unit = Unit::Kilobits,
                ("pktps", _) => unit = Unit::Frames,
                // Bursts and counters are there in any case.
                ("burst" | "stats", _) => {}
                (_, Some((name, value))) if name.text == "meter" => {
                    id = Some(value.number(u64::from(LARGEST))?).filter(|id| *id != 0).map(|id| id as u32);
                }
                _ => return Err(unknown(word)),
            }
        }
        for word in bands.items() {
            let Some((name, value)) = word.split_once("=") else { return Err(unknown(word)) };
            match name.text {
                "type" if value.text == "drop" && rate.is_some() => {
                    return Err(value.error("a meter has one band"));
                }
                "type" if value.text == "drop" => {}
                "type" => {
                    return Err(
                        value.error(format!("band `{}` is not supported; write type=drop", value.shown()))
                    );
                }
                "rate" => rate = Some(value.number(u64::from(u32::MAX))? as u32),
                "burst_size" => burst = Some(value.number(u64::from(u32::MAX))? as u32),
                _ => return Err(unknown(name)),
            }
        }
        let id = id.ok_or_else(|| FlowError::new(1, "a meter needs meter=NUMBER, from 1"))?;
        let rate = rate.filter(|rate| *rate > 0);
        let rate = rate.ok_or_else(|| FlowError::new(1, "a meter needs bands=type=drop,rate=NUMBER"))?;
        Ok(MeterMod { id, unit, rate, burst: burst.filter(|burst| *burst > 0) })
    }

    /// As it is read again, in `ovs-ofctl`'s order.
    pub fn show(&self) -> String {
        let unit = if self.unit == Unit::Kilobits { "kbps" } else { "pktps" };
        let (flag, burst) = match self.burst {
            Some(burst) => (",burst", format!(",burst_size={burst}")),
            None => ("", String::new()),
        };
        format!("meter={},{unit}{flag},bands=type=drop,rate={}{burst}", self.id, self.rate)
    }

    /// The time of its burst at the rate.
    fn most(&self) -> u64 {
        self.time(u64::from(self.burst.unwrap_or(self.rate)) * 1000)
    }

    /// The time that so many thousandths of units take at the rate, in parts of a nanosecond, rounded up.
    fn time(&self, thousandths: u64) -> u64 {
        let time = u128::from(thousandths) * 1_000_000 * u128::from(PARTS);
        time.div_ceil(u128::from(self.rate.max(1))).min(u128::from(u64::MAX)) as u64
    }
}

fn unknown(word: Piece<'_>) -> FlowError {
    let known =
        "a meter has meter, kbps or pktps, burst, stats and bands=type=drop,rate=NUMBER,burst_size=NUMBER";
    word.error(format!("unknown word `{}`; {known}", word.shown()))
}

impl Meter {
    /// A meter that no frame has passed.
    pub fn new(meter: MeterMod) -> Meter {
        Meter { meter, counters: Arc::default(), full_until: AtomicU64::new(0) }
    }

    /// This meter with another rate from `now` on. As much of its burst is gone as was, or each change would be a
    /// burst.
    pub(crate) fn changed(&self, meter: MeterMod, now: u64) -> Meter {
        let (now, own) = (now.saturating_mul(PARTS), self.meter.most().max(1));
        let gone = self.full_until.load(Relaxed).saturating_sub(now).min(own);
        let gone = u128::from(gone) * u128::from(meter.most()) / u128::from(own);
        let full_until = AtomicU64::new(now.saturating_add(gone as u64));
        Meter { meter, counters: self.counters.clone(), full_until }
    }

    /// Whether a frame of `len` bytes passes at `now`, in nanoseconds; without `counts` nothing is changed.
    pub(crate) fn passes(&self, len: u32, now: u64, counts: bool) -> bool {
        let thousandths = if self.meter.unit == Unit::Kilobits { 8 * u64::from(len) } else { 1000 };
        // A frame passes a meter whose burst is shorter than it is, if that is full.
        let cost = self.meter.time(thousandths);
        let most = self.meter.most().max(cost);
        let now = now.saturating_mul(PARTS);
        let own = &*self.counters;
        let mut is_passed = false;
        for _ in 0..TRIES {
            let until = self.full_until.load(Relaxed);
            let next = until.max(now).saturating_add(cost);
            is_passed = next <= now.saturating_add(most);
            if !is_passed || !counts {
                break;
            }
            if self.full_until.compare_exchange(until, next, Relaxed, Relaxed).is_ok() {
                break;
            }
        }
        if counts {
            own.frames.fetch_add(1, Relaxed);
            own.dropped.fetch_add(u64::from(!is_passed), Relaxed);
        }
        is_passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        for (text, shown) in [
            (
                "meter=1,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=100",
                "meter=1,kbps,burst,bands=type=drop,rate=1000,burst_size=100",
            ),
            ("meter=7 pktps bands=type=drop rate=5", "meter=7,pktps,bands=type=drop,rate=5"),
        ] {
            let found = MeterMod::read(text).unwrap();
            assert_eq!(found.show(), shown);
            assert_eq!(MeterMod::read(shown), Ok(found));
        }
        let refused = |text: &str| MeterMod::read(text).unwrap_err().to_string();
        assert!(refused("kbps,bands=type=drop,rate=1").contains("meter=NUMBER"));
        assert!(refused("meter=1").contains("rate=NUMBER"));
        assert!(refused("meter=1,bands=type=dscp_remark,rate=5").contains("column 20: band `dscp_remark`"));
        assert!(refused("meter=1,foo,bands=type=drop,rate=1").contains("column 9: unknown word `foo`"));
        assert!(refused("meter=1,bands=type=drop,rate=1,type=drop,rate=2").contains("one band"));
        assert!(refused("meter=0,bands=type=drop,rate=1").contains("from 1"));
    }

    #[test]
    fn frames_beyond_the_rate_are_dropped() {
        let meter = |text: &str| Meter::new(MeterMod::read(text).unwrap());
        let second = 1_000_000_000;
        let own = meter("meter=1,pktps,bands=type=drop,rate=10,burst_size=2");
        let passed = |now: u64, count: usize| (0..count).filter(|_| own.passes(60, now, true)).count();
        assert_eq!(passed(second, 10), 2);
        assert_eq!(passed(second + second / 10, 10), 1);
        assert_eq!(passed(10 * second, 10), 2);
        assert!(!own.passes(60, 10 * second, false));
        assert_eq!((own.counters.frames.load(Relaxed), own.counters.dropped.load(Relaxed)), (30, 25));
        // 1000 bytes are 8 kilobits.
        let own = meter("meter=1,kbps,bands=type=drop,rate=80,burst_size=16");
        let passed = |now: u64, count: usize| (0..count).filter(|_| own.passes(1000, now, true)).count();
        assert_eq!((passed(second, 10), passed(2 * second, 20)), (2, 2));
        assert!(meter("meter=1,kbps,bands=type=drop,rate=1,burst_size=1").passes(1500, second, true));
    }
    #[test]
    fn a_changed_meter_does_not_begin_anew() {
        let of = |text: &str| MeterMod::read(text).unwrap();
        let second = 1_000_000_000;
        let own = Meter::new(of("meter=1,pktps,bands=type=drop,rate=10,burst_size=4"));
        assert_eq!((0..10).filter(|_| own.passes(60, second, true)).count(), 4);
        let faster = own.changed(of("meter=1,pktps,bands=type=drop,rate=1000,burst_size=8"), second);
        assert!(!faster.passes(60, second, true));
        assert!(faster.passes(60, second + second / 1000, true));
        assert_eq!(faster.counters.frames.load(Relaxed), 12);
        // A burst of long ago has ended.
        assert!(own.changed(of("meter=1,pktps,bands=type=drop,rate=1"), 9 * second).passes(
            60,
            9 * second,
            true
        ));
    }

    #[test]
    fn a_rate_is_not_exceeded_by_rounding() {
        let own =
            Meter::new(MeterMod::read("meter=1,pktps,bands=type=drop,rate=300000000,burst_size=1").unwrap());
        let passed = (0..3_000_000u64).filter(|now| own.passes(60, 1_000_000 + now, true)).count();
        // 3 ms.
        assert!((895_000..=900_001).contains(&passed) || passed == 750_000, "{passed}");
    }
}
