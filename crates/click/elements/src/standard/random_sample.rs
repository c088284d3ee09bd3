//! `RandomSample(P, DROP, ACTIVE)`: passes packets at random.
//!
//! Ports: one input, one or two outputs; packets that don't pass are pushed to output 1 if it exists, otherwise
//! dropped.
//!
//! Arguments:
//! - `P`, also `SAMPLE`: the probability that a packet passes, from 0 to 1.
//! - `DROP`: the probability that a packet is dropped, instead.
//! - `ACTIVE`: if false, all packets pass.
//!
//! Handlers: `sampling_prob`, `drop_prob`, `active` (read, write); `drops` (read): packets that did not pass.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("RandomSample", || Box::<RandomSample>::default()).ports("1/1-2").processing("a/ah").live();

#[derive(Debug, Default)]
pub struct RandomSample {
    /// The probability that a packet does not pass.
    drop: f64,
    active: bool,
    drops: u64,
}

fn is_probability(value: f64) -> bool {
    (0.0..=1.0).contains(&value)
}

/// Parses a probability that is written to a handler.
fn probability(value: &str, cx: &Context<'_>) -> Result<f64, HandlerError> {
    let given = cx.parse(value).ok().filter(|given| is_probability(*given));
    given.ok_or_else(|| HandlerError::failed("expected a probability between 0 and 1"))
}

impl Element for RandomSample {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut sample, mut drop) = (0.0, 0.0);
        self.active = true;
        let given =
            [args.read_p("P", &mut sample), args.read("SAMPLE", &mut sample), args.read("DROP", &mut drop)];
        args.read("ACTIVE", &mut self.active);
        args.complete()?;
        if given.iter().filter(|given| **given).count() != 1 {
            return Err(cx.error("need exactly one of P, SAMPLE and DROP"));
        }
        self.drop = if given[2] { drop } else { 1.0 - sample };
        if !is_probability(self.drop) {
            return Err(cx.error("sampling probability must be between 0 and 1"));
        }
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if !self.active {
            return;
        }
        let bound = (self.drop * 4_294_967_296.0) as u64;
        burst.filter_map(|packet| {
            if u64::from(cx.random()) >= bound {
                return Some(packet);
            }
            self.drops += 1;
            cx.push(1, packet);
            None
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("sampling_prob", |e: &Self| 1.0 - e.drop).writes(|e: &mut Self, value, cx| {
                e.drop = 1.0 - probability(value, cx)?;
                Ok(())
            }),
            Handler::read("drop_prob", |e: &Self| e.drop).writes(|e: &mut Self, value, cx| {
                e.drop = probability(value, cx)?;
                Ok(())
            }),
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox().error("syntax error"),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
        ]
        .into()
    }
}
