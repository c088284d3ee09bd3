//! `RandomBitErrors(P, KIND, ACTIVE)`: changes each bit of each packet with a given probability.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `P`: the probability, from 0 to 1.
//! - `KIND`: `flip`, `set` or `clear`; `flip` by default.
//! - `ACTIVE`: whether it does so; true by default.
//!
//! Handlers: `p_bit_error`, `error_kind`, `active` (read, write).
use ringway_click::arg::{ArgError, POSITIONAL, Scope};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("RandomBitErrors", || Box::<RandomBitErrors>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve)
    .live();

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum BitErrorKind {
    #[default]
    Flip,
    Set,
    Clear,
}

impl BitErrorKind {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        match text {
            "flip" => Ok(Self::Flip),
            "set" => Ok(Self::Set),
            "clear" => Ok(Self::Clear),
            _ => Err(ArgError::other("expected flip, set or clear")),
        }
    }
}

#[derive(Debug, Default)]
pub struct RandomBitErrors {
    probability: f64,
    kind: BitErrorKind,
    active: bool,
    /// Number of unchanged bits before the next change.
    gap: u64,
}

fn probability(value: f64) -> Result<f64, ArgError> {
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err(ArgError::other("out of range, bound 1")) }
}

/// The number of failures before a success: doubles the tries until the probability that all fail is below the random
/// number, and then bisects (no logarithm is available without an operating system's library).
fn draw(probability: f64, random: u32) -> u64 {
    if probability <= 0.0 {
        return u64::MAX;
    }
    let target = (f64::from(random) + 0.5) / (f64::from(u32::MAX) + 1.0);
    let all_fail = |tries: u64| {
        let (mut power, mut base, mut left) = (1.0, 1.0 - probability, tries);
        while left > 0 {
            if left & 1 == 1 {
                power *= base;
            }
            (base, left) = (base * base, left >> 1);
        }
        power
    };
    let mut most = 1u64;
    while most < 1 << 40 && all_fail(most) > target {
        most *= 2;
    }
    let mut least = most / 2;
    while most - least > 1 {
        let middle = least + (most - least) / 2;
        if all_fail(middle) > target { least = middle } else { most = middle }
    }
    if all_fail(least) > target { least } else { 0 }
}

impl RandomBitErrors {
    fn change(&mut self, data: &mut [u8], cx: &mut Context<'_>) {
        let bits = data.len() as u64 * 8;
        let mut at = self.gap;
        while at < bits {
            let (byte, bit) = (&mut data[(at / 8) as usize], 1 << (at % 8));
            match self.kind {
                BitErrorKind::Flip => *byte ^= bit,
                BitErrorKind::Set => *byte |= bit,
                BitErrorKind::Clear => *byte &= !bit,
            }
            at = at.saturating_add(1).saturating_add(draw(self.probability, cx.random()));
        }
        self.gap = at - bits;
    }
}

impl Element for RandomBitErrors {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.active = true;
        args.read_mp("P", &mut self.probability);
        args.read_with("KIND", POSITIONAL, &mut self.kind, BitErrorKind::parse);
        args.read_p("ACTIVE", &mut self.active);
        args.complete()?;
        probability(self.probability).map_err(|error| cx.error(alloc::format!("P: {error}")))?;
        self.gap = draw(self.probability, cx.random());
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if !self.active {
            return;
        }
        for packet in burst.iter_mut() {
            let bits = packet.len() as u64 * 8;
            if self.gap >= bits {
                self.gap -= bits;
                continue;
            }
            self.change(packet.data_mut(), cx);
        }
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.gap = draw(self.probability, cx.random());
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("p_bit_error", |e: &Self| e.probability)
                .writes(|e: &mut Self, value, cx| {
                    e.probability = cx.parse(value).and_then(probability)?;
                    e.gap = draw(e.probability, cx.random());
                    Ok(())
                })
                .argument(Some(0), "P"),
            Handler::read("error_kind", |e: &Self| match e.kind {
                BitErrorKind::Flip => "flip",
                BitErrorKind::Set => "set",
                BitErrorKind::Clear => "clear",
            })
            .writes(|e: &mut Self, value, cx| {
                e.kind = cx.parse_with(value, BitErrorKind::parse)?;
                Ok(())
            })
            .argument(Some(1), "KIND"),
            Handler::field("active", |e: &mut Self| &mut e.active),
        ]
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gap_lengths_follow_the_probability() {
        assert_eq!([draw(0.0, 5), draw(1.0, 5), draw(1.0, u32::MAX)], [u64::MAX, 0, 0]);
        let numbers = (0..10_000u32).map(|number| number.wrapping_mul(429_496));
        let mean = numbers.map(|random| draw(0.1, random)).sum::<u64>() as f64 / 10_000.0;
        assert!((8.5..9.5).contains(&mean), "{mean}");
    }
}
