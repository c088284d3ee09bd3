//! Common code of `RatedSplitter` and `BandwidthRatedSplitter`.
use crate::shape::{BYTES_AT_LEAST, Measure};
use crate::token_bucket::TokenBucket;
use ringway_click::prelude::*;

/// Passes packets up to a rate.
#[derive(Debug, Default)]
pub(super) struct Splitter {
    measure: Measure,
    rate: u32,
    bucket: TokenBucket,
}

impl Splitter {
    pub(super) fn new(measure: Measure) -> Self {
        Self { measure, ..Self::default() }
    }
}

impl Element for Splitter {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        (self.rate, self.bucket) = self.measure.bucket(args, cx)?;
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.steady();
        self.bucket.refill(now);
        for packet in burst.drain() {
            let passes = match self.measure {
                Measure::Packets => self.bucket.remove_if(1),
                Measure::Bytes => {
                    let enough = self.bucket.contains(BYTES_AT_LEAST);
                    if enough {
                        self.bucket.remove(packet.len() as u32);
                    }
                    enough
                }
            };
            cx.push(usize::from(!passes), packet);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("rate", |e: &Self| e.measure.text(e.rate)).writes(|e: &mut Self, value, cx| {
            e.rate = e.measure.parse_rate(cx, value)?;
            let capacity = (e.rate / 50).max(1);
            let extra = if e.measure == Measure::Bytes { BYTES_AT_LEAST } else { 0 };
            e.bucket = TokenBucket::new(e.rate, capacity + extra);
            cx.set_configuration(&e.measure.text(e.rate));
            Ok(())
        })]
        .into()
    }
}
