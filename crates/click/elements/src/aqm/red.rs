//! `RED(MIN_THRESH, MAX_THRESH, MAX_P, QUEUES, STABILITY, GENTLE)`: drops packets at random, the more the
//! longer queues have been of late (Floyd and Jacobson, "Random early detection gateways for congestion
//! avoidance", 1993).
//!
//! Ports: one input, one output, push or pull; a second output, push, gets the packets chosen, which are
//! dropped without it. Pushed to, it looks at the queues that come next; pulled from, at those that come
//! before it.
//!
//! Arguments:
//! - `MIN_THRESH`: up to this average length nothing is dropped.
//! - `MAX_THRESH`: at this one packets are dropped with probability MAX_P, between the two with less; at
//!   most 65535.
//! - `MAX_P`: a probability.
//! - `QUEUES`: names of queues to look at instead of the nearest.
//! - `STABILITY`: a new length counts one part in `2^STABILITY`; 4 by default, at most 16. With 0 only the
//!   present length counts.
//! - `GENTLE`: above MAX_THRESH the probability grows to 1 at twice of it; true by default. Otherwise it
//!   is 1 at once.
//!
//! Handlers: `min_thresh`, `max_thresh`, `max_p` (read, write); `drops`, `avg_queue_size`, `stats`,
//! `queues`, `config` (read).
use super::queues::Queues;
use ringway_click::arg::{Arg, ArgError, Fixed, Raw, Scope};
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("RED", || Box::<Red>::default()).ports("1/1-2").processing("a/ah").live();

/// Fraction bits of the average length.
const SCALE: u32 = 10;
/// A probability of 1.
const ONE: u32 = 1 << 16;
/// Interval at which a packet is assumed to arrive while the queues are empty.
const EMPTY: u64 = SECOND / 50;
/// Interval of adaptation.
const ADAPT: u64 = SECOND / 2;

/// A probability in units of 1/[`ONE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Probability(u32);

impl Arg for Probability {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        Fixed::<16>::parse(text, scope).map(|Fixed(value)| Self(value))
    }
}

impl core::fmt::Display for Probability {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let text = format!("{:.5}", f64::from(self.0) / f64::from(ONE));
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}

/// The parameters.
#[derive(Clone, Copy, Debug, Default)]
struct Rule {
    least: u32,
    most: u32,
    probability: Probability,
    stability: u32,
    gentle: bool,
}

impl Rule {
    fn check(&self) -> Result<(), &'static str> {
        match () {
            () if self.most > 0xffff => Err("MAX_THRESH must be <= 65535"),
            () if self.least > self.most => Err("MIN_THRESH must be <= MAX_THRESH"),
            () if self.probability.0 > ONE => Err("MAX_P must be between 0 and 1"),
            () if self.stability > 16 => Err("STABILITY must be between 0 and 16"),
            () => Ok(()),
        }
    }

    /// The probability of a drop at an average length, scaled.
    fn at(&self, average: u64) -> u64 {
        let (least, most) = (u64::from(self.least) << SCALE, u64::from(self.most) << SCALE);
        let (highest, one) = (u64::from(self.probability.0), u64::from(ONE));
        match average {
            _ if average <= least => 0,
            _ if average <= most => highest * (average - least) / (most - least),
            _ if !self.gentle || average >= 2 * most => one,
            _ => highest + (one - highest) * (average - most) / most,
        }
    }
}

#[derive(Debug, Default)]
pub struct Red {
    rule: Rule,
    queues: Queues,
    /// The average length for which MAX_P is adapted.
    target: Option<u32>,
    average: u64,
    /// When a packet last found the queues empty.
    empty: Option<u64>,
    /// Packets since the last drop; `None` while the drop probability is 0 or 1.
    since: Option<u64>,
    random: u64,
    drops: u64,
}

impl Red {
    /// A RED that adapts itself to a target average length.
    pub(super) fn adaptive() -> Self {
        Self { target: Some(0), ..Self::default() }
    }

    /// Drops more if queues are above the middle fifth of the thresholds, less if they are below (Floyd,
    /// Gummadi and Shenker, "Adaptive RED", 2001).
    fn adapt(&mut self) {
        let Rule { least, most, probability: Probability(old), .. } = self.rule;
        let at = |fifths: u32| {
            (u64::from(least) << SCALE) + (u64::from(most - least) << SCALE) * u64::from(fifths) / 5
        };
        let new = match self.average {
            average if average > at(3) && old <= ONE / 2 => old + (old / 4).min(ONE / 100),
            average if average < at(2) && old >= ONE / 100 => (u64::from(old) * 9 / 10) as u32,
            _ => old,
        };
        self.rule.probability = Probability(new);
    }

    fn read_rule(&mut self, args: &mut Args) {
        let Some(target) = &mut self.target else {
            args.read_mp("MIN_THRESH", &mut self.rule.least);
            args.read_mp("MAX_THRESH", &mut self.rule.most);
            args.read_mp("MAX_P", &mut self.rule.probability);
            return;
        };
        args.read_mp("TARGET", target);
        self.rule.probability = Probability(ONE.div_ceil(50));
        args.read_p("MAX_P", &mut self.rule.probability);
        (self.rule.least, self.rule.most) = (*target / 2, target.saturating_add(*target / 2));
    }

    /// Updates the average with a length.
    fn average(&mut self, length: u64, now: u64) -> u64 {
        let stability = self.rule.stability;
        let update = |average: u64, length: u64| match (length << SCALE).checked_sub(average) {
            Some(more) => average + (more >> stability),
            None => average - ((average - (length << SCALE)) >> stability),
        };
        if length > 0 {
            self.empty = None;
            self.average = update(self.average, length);
        } else {
            let times = self.empty.map_or(1, |last| now.saturating_sub(last) / EMPTY);
            // After some ten thousand updates with 0 the average is 0 anyway.
            for _ in 0..times.min(10_000) {
                self.average = update(self.average, 0);
            }
            if times > 0 {
                self.empty = Some(now);
            }
        }
        self.average
    }

    fn is_chosen(&mut self, cx: &mut Context<'_>) -> bool {
        let (length, now) = (self.queues.length(cx), cx.coarse_now());
        let average = self.average(length, now);
        let probability = self.rule.at(average);
        if probability == 0 || probability >= ONE.into() {
            self.since = None;
            return probability > 0;
        }
        let since = self.since.map_or(0, |since| since + 1);
        // Spaces drops evenly instead of in random clusters.
        let chosen = since > 0 && since > self.random / probability;
        self.since = Some(if chosen { 0 } else { since });
        if self.since == Some(0) {
            self.random = u64::from(cx.random() >> 5) & 0xffff;
        }
        chosen
    }

    /// Returns the packet unless it is chosen to be dropped.
    fn pass(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        if !self.is_chosen(cx) {
            return Some(packet);
        }
        self.drops += 1;
        cx.push(1, packet);
        None
    }

    /// Replaces the rule, if the new one is valid.
    fn set_rule(&mut self, rule: Rule) -> Result<(), HandlerError> {
        rule.check().map_err(HandlerError::failed)?;
        self.rule = rule;
        Ok(())
    }

    /// The average length of the queues.
    fn average_text(&self) -> String {
        let average = format!("{:.3}", self.average as f64 / f64::from(1 << SCALE));
        average.trim_end_matches('0').trim_end_matches('.').into()
    }

    /// The configuration string for the present rule.
    fn configuration(&self, cx: &mut Context<'_>) -> String {
        let Rule { least, most, probability, stability, gentle } = self.rule;
        let queues = self.queues.names(cx, " ");
        let gentle = if gentle { "" } else { ", GENTLE false" };
        let rule = match self.target {
            Some(target) => format!("{target}, {probability}"),
            None => format!("{least}, {most}, {probability}"),
        };
        format!("{rule}, QUEUES {queues}, STABILITY {stability}{gentle}").replace(" ,", ",")
    }
}

impl Element for Red {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut names = Raw::default();
        self.rule = Rule { stability: 4, gentle: true, ..Rule::default() };
        self.read_rule(args);
        args.read("QUEUES", &mut names);
        args.read("STABILITY", &mut self.rule.stability);
        args.read("GENTLE", &mut self.rule.gentle);
        args.complete()?;
        self.queues = Queues::named(names.0);
        self.rule.check().map_err(|error| cx.error(error))
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let down = cx.output_is_push(0);
        self.queues.find(down, cx)?;
        if self.target.is_some() {
            let timer = cx.new_timer();
            cx.set_timer_after(timer, ADAPT);
        }
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        self.adapt();
        cx.set_timer_again(timer, ADAPT);
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        // All packets of a burst see the queue lengths before the burst.
        burst.filter_map(|packet| self.pass(packet, cx));
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        while burst.len() < max {
            let Some(packet) = cx.lend(self, |cx| cx.pull_one(0)) else { return };
            if let Some(packet) = self.pass(packet, cx) {
                burst.push(packet);
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("min_thresh", |e: &Self| e.rule.least)
                .writes(|e: &mut Self, value, cx| e.set_rule(Rule { least: cx.parse(value)?, ..e.rule })),
            Handler::read("max_thresh", |e: &Self| e.rule.most)
                .writes(|e: &mut Self, value, cx| e.set_rule(Rule { most: cx.parse(value)?, ..e.rule })),
            Handler::read("max_p", |e: &Self| e.rule.probability).writes(|e: &mut Self, value, cx| {
                e.set_rule(Rule { probability: cx.parse(value)?, ..e.rule })
            }),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::read("avg_queue_size", Self::average_text),
            Handler::read_with("stats", |e: &mut Self, _, cx| {
                let (length, average, drops) = (e.queues.length(cx), e.average_text(), e.drops);
                Ok(format!("{length} current queue\n{average} avg queue\n{drops} drops\n"))
            }),
            Handler::read_with("queues", |e: &mut Self, _, cx| Ok(e.queues.names(cx, "\n"))),
            Handler::read_with("config", |e: &mut Self, _, cx| Ok(e.configuration(cx))).calm(),
        ]
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        if let Some(from) = from.downcast_mut::<Self>() {
            (self.average, self.empty) = (from.average, from.empty);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_grows_with_the_length() {
        let rule =
            Rule { least: 10, most: 20, probability: Probability(ONE / 2), stability: 4, gentle: true };
        let at = |length: u64| rule.at(length << SCALE) as f64 / f64::from(ONE);
        assert_eq!(
            [at(0), at(10), at(15), at(20), at(30), at(40), at(99)],
            [0.0, 0.0, 0.25, 0.5, 0.75, 1.0, 1.0]
        );
        let strict = Rule { gentle: false, ..rule };
        assert_eq!(
            (strict.at(20 << SCALE), strict.at((20 << SCALE) + 1)),
            (u64::from(ONE / 2), u64::from(ONE))
        );
        let never = Rule { least: 5, most: 5, ..rule };
        assert_eq!((never.at(5 << SCALE), never.at((10 << SCALE) + 1)), (0, u64::from(ONE)));
    }

    #[test]
    fn the_average_follows_the_queue_length() {
        let mut red = Red { rule: Rule { stability: 2, ..Rule::default() }, ..Red::default() };
        for _ in 0..100 {
            red.average(8, 0);
        }
        assert!((red.average >> SCALE) >= 7);
        red.average(0, SECOND);
        red.average(0, 3 * SECOND);
        assert_eq!(red.average >> SCALE, 0);
    }
}
