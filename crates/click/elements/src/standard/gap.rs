//! Common code of `Shaper` and `BandwidthShaper`.
use crate::shape::Measure;
use ringway_click::prelude::*;

/// Spreads packets or bytes evenly over each second.
#[derive(Debug, Default)]
pub(super) struct Gap {
    measure: Measure,
    rate: u32,
    second: Option<u64>,
    count: i64,
}

impl Gap {
    pub(super) fn new(measure: Measure) -> Self {
        Self { measure, ..Self::default() }
    }

    /// Whether another packet may pass.
    fn is_open(&mut self, now: u64) -> bool {
        let (second, within) = (now / SECOND, now % SECOND);
        let due = i64::try_from(u128::from(within) * u128::from(self.rate) / u128::from(SECOND)).unwrap_or(0);
        match self.second {
            None => self.count = due,
            Some(old) if second > old && self.count > 0 => self.count -= i64::from(self.rate),
            Some(_) => {}
        }
        self.second = Some(second);
        due >= self.count
    }
}

impl Element for Gap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.rate = self.measure.rate(args);
        args.complete()
    }

    fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.steady();
        while burst.len() < max && self.is_open(now) == (port == 0) {
            let Some(packet) = cx.pull_one(0) else { return };
            if port == 0 {
                self.count += if self.measure == Measure::Bytes { packet.len() as i64 } else { 1 };
            }
            burst.push(packet);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("rate", |e: &Self| e.measure.text(e.rate)).writes(|e: &mut Self, value, cx| {
                (e.rate, e.second) = (e.measure.parse_rate(cx, value)?, None);
                cx.set_configuration(&e.measure.text(e.rate));
                Ok(())
            }),
            Handler::button("reset", |e: &mut Self, _| e.second = None),
        ]
        .into()
    }
}
