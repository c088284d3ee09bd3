//! What `RatedSplitter` and `BandwidthRatedSplitter` share.
use crate::shape::{BYTES_AT_LEAST, Measure};
use crate::token_bucket::TokenBucket;
use alloc::string::String;
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Context, Element, Failed, Handler, HandlerError, PacketBurst};

/// Lets a rate through.
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
        [Handler::both("rate")].into()
    }

    fn read(&mut self, _: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.measure.text(self.rate))
    }

    fn write(&mut self, _: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.rate = self.measure.parse_rate(cx, value)?;
        let capacity = (self.rate / 50).max(1);
        let extra = if self.measure == Measure::Bytes { BYTES_AT_LEAST } else { 0 };
        self.bucket = TokenBucket::new(self.rate, capacity + extra);
        cx.set_configuration(&self.measure.text(self.rate));
        Ok(())
    }
}
