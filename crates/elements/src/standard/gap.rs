//! What `Shaper` and `BandwidthShaper` share.
use crate::shape::Measure;
use alloc::string::String;
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Context, Element, Failed, Handler, HandlerError, PacketBurst, SECOND};

/// Spreads what is counted over each second.
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

    /// Whether one more may pass.
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
        let now = cx.now();
        while burst.len() < max && self.is_open(now) == (port == 0) {
            let Some(packet) = cx.pull_one(0) else { return };
            if port == 0 {
                self.count += if self.measure == Measure::Bytes { packet.len() as i64 } else { 1 };
            }
            burst.push(packet);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::both("rate"), Handler::write("reset").button()].into()
    }

    fn read(&mut self, _: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.measure.text(self.rate))
    }

    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        if name == "rate" {
            self.rate = self.measure.parse_rate(cx, value)?;
            cx.set_configuration(&self.measure.text(self.rate));
        }
        self.second = None;
        Ok(())
    }
}
