//! What `Meter` and `BandwidthMeter` share.
use crate::rate::Rate;
use crate::shape::Measure;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::arg::{Args, Bandwidth};
use ringway_click::{Context, Element, Failed, Handler, PacketBurst};

/// Maximum number of outputs. Attack: a configuration with endless rates.
const MOST: usize = 1024;

/// Chooses an output by the rate of what arrives.
#[derive(Debug, Default)]
pub(super) struct Metering {
    measure: Measure,
    rates: Vec<u32>,
    rate: Rate,
}

impl Metering {
    pub(super) fn new(measure: Measure) -> Self {
        Self { measure, ..Self::default() }
    }

    fn read_rates(&mut self, args: &mut Args, cx: &Context<'_>) -> Result<(), String> {
        for (number, text) in args.take_rest().iter().enumerate() {
            let rate = match self.measure {
                Measure::Packets => cx.parse::<u32>(text),
                Measure::Bytes => cx.parse::<Bandwidth>(text).map(|bandwidth| bandwidth.0),
            };
            let rate = rate.map_err(|error| format!("rate {}: {error}", number + 1))?;
            if self.rates.last().is_some_and(|last| *last >= rate) {
                return Err(format!("rate {} must be > rate {number}", number + 1));
            }
            self.rates.push(rate);
        }
        match self.rates.len() {
            0 => Err("too few arguments; one or more rates are needed".to_string()),
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
        if cx.noutputs() != self.rates.len() + 1 {
            let wanted = self.rates.len() + 1;
            return Err(cx.error(format!("need {wanted} outputs, one for each rate and one above")));
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.steady();
        for packet in burst.drain() {
            let count = if self.measure == Measure::Bytes { packet.len() as u64 } else { 1 };
            self.rate.update(now, count);
            let rate = self.rate.whole();
            let output = self.rates.partition_point(|own| u64::from(*own) <= rate);
            cx.push(output, packet);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read_with("rate", |e: &mut Self, _, cx| Ok(e.rate.text(cx.steady(), 1))),
            Handler::read("rates", |e: &Self| {
                e.rates.iter().map(|rate| e.measure.text(*rate) + "\n").collect::<String>()
            }),
        ]
        .into()
    }
}
