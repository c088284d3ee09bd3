//! Common code of elements with a RATE: their arguments, in packets or bytes.
use super::token_bucket::TokenBucket;
use ringway_click::arg::{Bandwidth, Nanoseconds};
use ringway_click::prelude::*;

/// A bucket of bytes may be overdrawn by one packet: a packet passes if this many tokens are available.
pub(super) const BYTES_AT_LEAST: u32 = 131_072;

/// Whether packets or their bytes are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Measure {
    #[default]
    Packets,
    Bytes,
}

impl Measure {
    /// Reads RATE.
    pub(super) fn rate(self, args: &mut Args) -> u32 {
        let mut rate = 0;
        match self {
            Self::Packets => {
                args.read_mp("RATE", &mut rate);
            }
            Self::Bytes => {
                let mut bandwidth = Bandwidth::default();
                args.read_mp("RATE", &mut bandwidth);
                rate = bandwidth.0;
            }
        }
        rate
    }

    /// A rate as text.
    pub(super) fn text(self, rate: u32) -> String {
        match self {
            Self::Packets => rate.to_string(),
            Self::Bytes => Bandwidth(rate).unparse(),
        }
    }

    /// Reads RATE, BURST_DURATION, and BURST_SIZE or BURST_BYTES.
    pub(super) fn bucket(self, args: &mut Args, cx: &mut Context<'_>) -> Result<(u32, TokenBucket), Failed> {
        let (mut duration, mut tokens) = (Nanoseconds(20_000_000), 0u32);
        let rate = self.rate(args);
        let has_duration = args.read("BURST_DURATION", &mut duration);
        let size = if self == Self::Bytes { "BURST_BYTES" } else { "BURST_SIZE" };
        let has_size = args.read(size, &mut tokens);
        args.complete()?;
        if has_duration && has_size {
            return Err(cx.error("cannot specify both BURST_DURATION and BURST_SIZE"));
        }
        if !has_size {
            let wanted = u128::from(rate) * u128::from(duration.0 / 1_000_000) / 1000;
            tokens = u32::try_from(wanted).unwrap_or(u32::MAX);
        }
        if self == Self::Bytes {
            tokens = tokens.saturating_add(BYTES_AT_LEAST);
        }
        Ok((rate, TokenBucket::new(rate, tokens.max(1))))
    }

    /// Parses a rate that is written to a handler.
    pub(super) fn parse_rate(self, cx: &Context<'_>, text: &str) -> Result<u32, HandlerError> {
        let parsed = match self {
            Self::Packets => cx.parse::<u32>(text),
            Self::Bytes => cx.parse::<Bandwidth>(text).map(|rate| rate.0),
        };
        parsed.map_err(|error| HandlerError::failed(format!("RATE: {error}")))
    }
}
