//! What `Meter` and `BandwidthMeter` share.
use crate::rate::Rate;
use crate::shape::Measure;
use ringway_click::arg::Bandwidth;
use ringway_click::prelude::*;

/// Maximum number of outputs. Attack: a configuration with endless rates.
const MOST: usize = 1024;

/// Chooses an output by the rate of what arrives.
#[derive(Debug, Default)]
pub(super) struct Metering {
    measure: Measure,
    /// Rates as [`Rate::scaled`] compares them.
    limits: Vec<u64>,
    rate: Rate,
}

impl Metering {
    pub(super) fn new(measure: Measure) -> Self {
        Self { measure, ..Self::default() }
    }

    fn read_rates(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), String> {
        let mut last = None;
        for (number, text) in args.take_rest().iter().enumerate() {
            // As in Click, rates of packets may be written with the units of bandwidths.
            let rate = cx.parse::<Bandwidth>(text).map(|bandwidth| bandwidth.0);
            let rate = rate.map_err(|_| format!("argument {} syntax error", number + 1))?;
            if self.measure == Measure::Bytes && text.ends_with(|last: char| last.is_ascii_digit()) {
                cx.warning(format!("no units for bandwidth argument {}, assuming Bps", number + 1));
            }
            if last.is_some_and(|last| last >= rate) {
                return Err(format!("rate {} must be > rate {number}", number + 1));
            }
            last = Some(rate);
            self.limits.push(Rate::scale(rate));
        }
        match self.limits.len() {
            0 => Err("too few arguments to BandwidthMeter(bandwidth, ...)".to_string()),
            MOST.. => Err(format!("at most {} rates", MOST - 1)),
            _ => Ok(()),
        }
    }
}

impl Element for Metering {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let read = self.read_rates(args, cx);
        args.complete()?;
        read.map_err(|error| cx.error(error))?;
        if cx.noutputs() != self.limits.len() + 1 {
            let wanted = cx.noutputs().saturating_sub(1);
            let error = format!("need {wanted} arguments, one less than the number of output ports");
            return Err(cx.error(error));
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.steady();
        for packet in burst.drain() {
            let count = if self.measure == Measure::Bytes { packet.len() as u64 } else { 1 };
            self.rate.update(now, count);
            let output = self.limits.partition_point(|limit| *limit <= self.rate.scaled());
            cx.push(output, packet);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read_with("rate", |e: &mut Self, _, cx| Ok(e.rate.text(cx.steady(), 0))),
            Handler::read("meters", |e: &Self| {
                e.limits.iter().map(|limit| Rate::unscale(*limit)).collect::<String>()
            }),
        ]
        .into()
    }
}
