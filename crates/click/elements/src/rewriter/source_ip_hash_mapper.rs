//! `SourceIPHashMapper(NNODES SEED, PATTERN1 ID1, PATTERN2 ID2, ...)`: assigns rewriters' new flows to patterns, the
//! same for all flows of a source address.
//!
//! Addresses are distributed by consistent hashing: if a pattern is added or removed, few addresses change theirs.
//!
//! Ports: none.
//!
//! Arguments:
//! - `NNODES SEED`: number of points on the circle for each pattern, and a seed for the hash.
//! - `PATTERN ID`: `SADDR SPORT DADDR DPORT FOUTPUT ROUTPUT` and a number that identifies the pattern.
//!
//! No handlers.
use super::base::Used;
use super::key::FlowKey;
use super::pattern::{Pattern, parse_pattern};
use ringway_click::prelude::*;
use ringway_click::sort;
use ringway_click_lang::config;

pub static CLASS: Class = Class::new("SourceIPHashMapper", || Box::<SourceIpHashMapper>::default());

/// Maximum number of points of a pattern. Attack: a configuration with a circle that exhausts memory.
const MOST_POINTS: u32 = 1 << 16;

#[derive(Debug, Default)]
pub struct SourceIpHashMapper {
    patterns: Vec<(Pattern, [u16; 2])>,
    /// Points on the circle, in order, each with its pattern.
    circle: Vec<(u32, usize)>,
    seed: u32,
}

fn mix(first: u32, second: u32, seed: u32) -> u32 {
    let key = u64::from(first) << 32 | u64::from(second);
    let product =
        u128::from(key ^ 0x9e37_79b9_7f4a_7c15) * u128::from(u64::from(seed) ^ 0xd6e8_feb8_6659_fd93);
    let folded = product as u64 ^ (product >> 64) as u64;
    (folded >> 32) as u32 ^ folded as u32
}

impl SourceIpHashMapper {
    /// The output pairs that this mapper may return.
    pub(super) fn outputs(&self) -> Vec<[u16; 2]> {
        self.patterns.iter().map(|(_, outputs)| *outputs).collect()
    }

    /// The rewritten key of a flow, and its outputs.
    pub(super) fn rewrite(
        &mut self,
        key: FlowKey,
        ping: bool,
        used: Used<'_>,
        cx: &mut Context<'_>,
    ) -> Option<(FlowKey, [u16; 2])> {
        let place = mix(key.source, 0, self.seed);
        let at = self.circle.partition_point(|(point, _)| *point < place);
        let (_, pattern) = self.circle.get(at).or_else(|| self.circle.first())?;
        let (pattern, outputs) = self.patterns.get_mut(*pattern)?;
        pattern.rewrite(key, ping, used, cx).map(|rewritten| (rewritten, *outputs))
    }
}

impl Element for SourceIpHashMapper {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let texts = args.take_rest();
        let [head, patterns @ ..] = texts.as_slice() else { return Err(cx.error("no patterns given")) };
        let numbers: Vec<u32> =
            config::split_words(head).iter().filter_map(|word| cx.parse(word).ok()).collect();
        let [points, seed] = numbers[..] else { return Err(cx.error("expected NNODES SEED")) };
        if points == 0 || points > MOST_POINTS {
            return Err(cx.error(alloc::format!("NNODES: out of range, bound {MOST_POINTS}")));
        }
        self.seed = seed;
        for (index, text) in patterns.iter().enumerate() {
            let (text, id) = text.trim_ascii().rsplit_once(char::is_whitespace).unwrap_or((text, ""));
            let Ok(id) = cx.parse::<u32>(id) else {
                return Err(cx.error(alloc::format!("pattern {index}: expected PATTERN ID")));
            };
            let pattern = parse_pattern(text, &cx.scope(), usize::MAX);
            self.patterns.push(pattern.map_err(|error| cx.error(error))?);
            self.circle.extend((1..=points).map(|point| (mix(id, point, seed), index)));
        }
        if self.patterns.is_empty() {
            return Err(cx.error("no patterns given"));
        }
        sort::by_number(&mut self.circle, |(place, index)| u64::from(*place) << 32 | *index as u64);
        args.complete()
    }

    fn cast(&self, kind: &str) -> bool {
        kind == "IPMapper"
    }
}
