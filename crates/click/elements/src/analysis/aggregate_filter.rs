//! `AggregateFilter(ACTION AGGREGATES, ...)`: classifies packets by their aggregate annotation.
//!
//! Ports: one push input, any number of push outputs.
//!
//! Arguments: rules, tried in order. ACTION is an output's number, `allow` (0), `drop` or `deny`; AGGREGATES are
//! numbers and ranges `A-B` separated by spaces, or `all` or `-`. Packets that match no rule are dropped.
use ringway_click::prelude::*;
use ringway_click::sort;
use ringway_click_lang::config;

pub static CLASS: Class =
    Class::new("AggregateFilter", || Box::<AggregateFilter>::default()).ports("1/-").processing("h");

/// A range of aggregates, and their output; `None`: dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    first: u32,
    last: u32,
    output: Option<usize>,
}

#[derive(Debug, Default)]
pub struct AggregateFilter {
    /// Ranges in order, without overlaps.
    ranges: Vec<Range>,
}

impl AggregateFilter {
    /// Adds the parts of a range that no earlier range covers; false if there are none.
    fn add(&mut self, new: Range) -> bool {
        let mut left = Vec::from([(new.first, new.last)]);
        for old in &self.ranges {
            let apart = |(first, last): (u32, u32)| {
                let before = (first < old.first).then(|| (first, last.min(old.first.saturating_sub(1))));
                let behind = (last > old.last).then(|| (first.max(old.last.saturating_add(1)), last));
                before.into_iter().chain(behind)
            };
            left = left.into_iter().flat_map(apart).collect();
        }
        self.ranges.extend(left.iter().map(|(first, last)| Range { first: *first, last: *last, ..new }));
        sort::by_number(&mut self.ranges, |range| range.first.into());
        !left.is_empty()
    }

    #[inline]
    fn output(&self, aggregate: u32) -> Option<usize> {
        let behind = self.ranges.partition_point(|range| range.first <= aggregate);
        let range = self.ranges.get(behind.checked_sub(1)?)?;
        range.output.filter(|_| aggregate <= range.last)
    }
}

fn parse_range(text: &str) -> Option<(u32, u32)> {
    if matches!(text, "all" | "-") {
        return Some((0, u32::MAX));
    }
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last).then_some((first, last))
}

impl Element for AggregateFilter {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let outputs = cx.noutputs();
        for (number, rule) in args.take_rest().iter().enumerate() {
            let words = config::split_words(rule);
            let (action, aggregates) =
                words.split_first().map_or(("", &[][..]), |(a, rest)| (a.as_str(), rest));
            let output = match action {
                "allow" => Some(0),
                "drop" | "deny" => None,
                _ => match action.parse::<usize>() {
                    Ok(output) if output < outputs => Some(output),
                    _ => {
                        args.error(format!("filter {number}: unknown action '{action}'"));
                        continue;
                    }
                },
            };
            let mut used = false;
            for text in aggregates {
                match parse_range(text) {
                    Some((first, last)) => used |= self.add(Range { first, last, output }),
                    None => args.error(format!("filter {number}: bad aggregate specification '{text}'")),
                }
            }
            if !used {
                cx.warning(format!("filter {number} matches no packets"));
            }
        }
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            if let Some(output) = self.output(packet.notes().u32(Annotations::AGGREGATE)) {
                cx.push(output, packet);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_rules_take_precedence() {
        let mut filter = AggregateFilter::default();
        let range = |first, last, output| Range { first, last, output };
        assert!(filter.add(range(10, 20, Some(1))));
        assert!(filter.add(range(5, 15, Some(2))));
        assert!(!filter.add(range(6, 12, Some(3))));
        assert!(filter.add(range(0, u32::MAX, None)));
        assert!(!filter.add(range(0, u32::MAX, Some(0))));
        let outputs = [4, 5, 9, 10, 20, 21].map(|aggregate| filter.output(aggregate));
        assert_eq!(outputs, [None, Some(2), Some(2), Some(1), Some(1), None]);
        assert_eq!(
            [parse_range("3-5"), parse_range("5-3"), parse_range("-")],
            [Some((3, 5)), None, Some((0, u32::MAX))]
        );
    }
}
