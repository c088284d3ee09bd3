//! Many rules: the first that matches is found by the words that packets must have to match it, not by trying one
//! rule after the other (tuple space search: Srinivasan, Suri and Varghese, SIGCOMM 1999).
use super::cache::Cache;
use super::decision::{Decision, Headers};
use super::needs::{Need, Needs};
use super::program::{Jump, NETWORK};
use super::table::{self, Entries, Shape, Table};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use ringway_click::{LINES, Progress};

/// With more tables than this, address masks are shortened so that fewer tables remain.
const TABLES: usize = 32;
/// Lookup cost (in tables, and rules outside of tables) above which outcomes are cached.
const LOOKS: usize = 4;

/// Rules processed before packets are processed again.
pub(super) const RULES: usize = 16;

/// A rule: its program, and the outcome of packets that match.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) decision: Decision,
    pub(super) needs: Needs,
}

/// Rules, in order.
#[derive(Clone, Debug)]
pub(super) struct Many {
    decisions: Vec<Decision>,
    /// In the order of their first rules.
    tables: Vec<Table>,
    cache: Option<Cache>,
}

impl Many {
    pub(super) fn new(rules: Vec<Rule>, breathe: &mut dyn FnMut()) -> Self {
        let mut shapes = sort(&rules, |need| Some(*need), breathe);
        if shapes.len() > TABLES {
            shapes = sort(&rules, coarser, breathe);
        }
        let decisions: Vec<Decision> = rules.into_iter().map(|rule| rule.decision).collect();
        let mut tables: Vec<Table> =
            shapes.into_iter().map(|(shape, entries)| Table::new(shape, entries)).collect();
        tables.sort_by_key(|table| table.first);
        let looks: usize = tables.iter().map(Table::looks).sum();
        let cache = if looks > LOOKS { Cache::new(words(&decisions)) } else { None };
        Self { decisions, tables, cache }
    }

    /// The outcome of a packet: an output, [`Jump::Drop`], or [`Jump::No`] if no rule matches.
    #[inline]
    pub(super) fn decide(&mut self, headers: &Headers<'_>) -> Jump {
        let Self { decisions, tables, cache } = self;
        let Some(cache) = cache else { return search(decisions, tables, headers) };
        let outcome = cache.get(headers, || code(search(decisions, tables, headers)));
        jump(outcome)
    }

    /// Frees part of the memory; no lookup may follow.
    pub(super) fn give_up(&mut self) -> Progress {
        self.decisions.truncate(self.decisions.len().saturating_sub(LINES));
        if self.decisions.is_empty() { Progress::Done } else { Progress::More }
    }

    /// Whether outcomes are cached, because lookups are expensive.
    pub(super) fn remembers(&self) -> bool {
        self.cache.is_some()
    }

    /// Number of tables.
    #[cfg(test)]
    pub(super) fn tables(&self) -> usize {
        self.tables.len()
    }

    /// The possible outcomes.
    pub(super) fn ends(&self) -> impl Iterator<Item = Jump> + '_ {
        self.decisions.iter().flat_map(Decision::ends).filter(|end| *end != Jump::No)
    }

    /// Writes the programs of the rules in sequence, as if they were executed that way.
    pub(super) fn write(&self, text: &mut String) {
        let mut base = 0;
        for (index, decision) in self.decisions.iter().enumerate() {
            let next = base + decision.lines();
            let otherwise = match self.decisions.get(index + 1) {
                Some(behind) => behind.everything().unwrap_or(Jump::Step(next)),
                None => Jump::Drop,
            };
            decision.write(text, base, |end| if end == Jump::No { otherwise } else { end });
            base = next;
        }
    }
}

/// An outcome encoded as a number.
fn code(jump: Jump) -> u32 {
    if let Jump::Output(port) = jump { port as u32 + 1 } else { 0 }
}

fn jump(code: u32) -> Jump {
    code.checked_sub(1).map_or(Jump::Drop, |port| Jump::Output(port as usize))
}

#[inline]
fn search(decisions: &[Decision], tables: &[Table], headers: &Headers<'_>) -> Jump {
    let mut best = u32::MAX;
    let mut found = Jump::No;
    for table in tables.iter() {
        if table.first >= best {
            break;
        }
        for &rule in table.candidates(headers).iter().take_while(|rule| **rule < best) {
            let outcome = decisions[rule as usize].decide(headers);
            if outcome != Jump::No {
                (best, found) = (rule, outcome);
                break;
            }
        }
    }
    found
}

/// Sorts the rules' alternatives by the words they require; `view` weakens requirements.
fn sort(
    rules: &[Rule],
    view: impl Fn(&Need) -> Option<Need>,
    breathe: &mut dyn FnMut(),
) -> BTreeMap<Shape, Entries> {
    let mut shapes: BTreeMap<Shape, Entries> = BTreeMap::new();
    for (number, rule) in rules.iter().enumerate() {
        if number % RULES == RULES - 1 {
            breathe();
        }
        for needs in &rule.needs.0 {
            let seen: Vec<Need> = needs.iter().filter_map(&view).collect();
            let (shape, key) = table::split(&seen);
            let found = shapes.entry(shape).or_default().entry(key).or_default();
            if found.last() != Some(&(number as u32)) {
                found.push(number as u32);
            }
        }
    }
    shapes
}

/// Shortens prefixes of addresses to whole bytes.
fn coarser(need: &Need) -> Option<Need> {
    if need.offset != NETWORK + 12 && need.offset != NETWORK + 16 {
        return Some(*need);
    }
    let bits = need.mask.leading_ones() & !7;
    let mask = u32::MAX.checked_shl(32 - bits).filter(|mask| *mask != 0)?;
    Some(Need { mask, value: need.value & mask, ..*need })
}

/// All words on which decisions depend.
fn words(decisions: &[Decision]) -> Shape {
    let mut words: BTreeMap<u16, u32> = BTreeMap::new();
    for (offset, mask) in decisions.iter().flat_map(Decision::words) {
        *words.entry(offset).or_default() |= mask;
    }
    words.into_iter().filter(|(_, mask)| *mask != 0).collect()
}
