//! Patterns, compiled to comparisons of words that lead to each other or to outputs.
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write;
use ringway_click_lang::config;

/// Maximum offset in a packet. Attack: an offset beyond all memory.
const FARTHEST: usize = 1 << 16;
/// Maximum number of comparisons. Attack: endless patterns.
const MOST: usize = 1 << 14;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum To {
    Step(usize),
    Output(Option<usize>),
}

/// Compares four bytes at `offset`, under `mask`, with `value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Test {
    offset: usize,
    mask: u32,
    value: u32,
}

impl Test {
    /// The outcome of this test, if implied by the outcome `held` of `known`.
    fn implied(&self, known: &Test, held: bool) -> Option<bool> {
        if self.offset != known.offset {
            return None;
        }
        let common = self.mask & known.mask;
        if held {
            if (self.value ^ known.value) & common != 0 {
                return Some(false);
            }
            return (self.mask & !known.mask == 0).then_some(true);
        }
        // If this test held, the known one would have held.
        (known.mask & !self.mask == 0 && (self.value ^ known.value) & known.mask == 0).then_some(false)
    }

    fn holds(&self, data: &[u8]) -> bool {
        let word = match data.get(self.offset..self.offset + 4) {
            Some(bytes) => bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)),
            None => {
                // Tested bytes beyond the end of a short packet match nothing.
                let there = data.len().saturating_sub(self.offset);
                if there < 4 && self.mask << (8 * there) != 0 {
                    return false;
                }
                (0..4).fold(0, |word, at| {
                    word << 8 | u32::from(data.get(self.offset + at).copied().unwrap_or(0))
                })
            }
        };
        word & self.mask == self.value
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    test: Test,
    yes: To,
    no: To,
}

/// A classifier's program.
#[derive(Debug)]
pub(super) struct Program {
    steps: Vec<Step>,
    start: To,
}

impl Default for Program {
    fn default() -> Self {
        Self { steps: Vec::new(), start: To::Output(None) }
    }
}

struct Clause {
    tests: Vec<Test>,
    negated: bool,
}

fn digits(text: &str) -> Option<Vec<Option<u8>>> {
    let nibbles: Option<Vec<Option<u8>>> = text
        .chars()
        .map(|c| if c == '?' { Some(None) } else { c.to_digit(16).map(|digit| Some(digit as u8)) })
        .collect();
    nibbles.filter(|nibbles| nibbles.len() % 2 == 0 && !nibbles.is_empty())
}

fn clause(word: &str) -> Option<Clause> {
    let (negated, word) = match word.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let (offset, value) = word.split_once('/')?;
    let (value, mask) = value.split_once('%').map_or((value, None), |(value, mask)| (value, Some(mask)));
    let offset: usize = offset.parse().ok().filter(|offset| *offset <= FARTHEST)?;
    let value = digits(value)?;
    let mask = match mask {
        Some(mask) => digits(mask).filter(|mask| mask.len() == value.len())?,
        None => alloc::vec![Some(0xf); value.len()],
    };
    let mut words: BTreeMap<usize, (u32, u32)> = BTreeMap::new();
    for (at, (value, mask)) in value.iter().zip(&mask).enumerate() {
        let (byte, high) = (offset + at / 2, at % 2 == 0);
        let shift = 8 * (3 - byte % 4) + if high { 4 } else { 0 };
        let mask = if value.is_some() { u32::from(mask.unwrap_or(0)) } else { 0 };
        let (all, bits) = words.entry(byte / 4 * 4).or_default();
        *all |= mask << shift;
        *bits |= (u32::from(value.unwrap_or(0)) & mask) << shift;
    }
    let tests = words.into_iter().filter(|(_, (mask, _))| *mask != 0);
    let tests = tests.map(|(offset, (mask, value))| Test { offset, mask, value }).collect();
    Some(Clause { tests, negated })
}

impl Program {
    pub(super) fn compile(patterns: &[String]) -> Result<Self, String> {
        let mut steps: Vec<Step> = Vec::new();
        let mut start = To::Output(None);
        // From the last pattern to the first, so that each pattern knows where to continue when it fails.
        for (output, pattern) in patterns.iter().enumerate().rev() {
            let words = config::split_words(pattern);
            let everything = words.len() == 1 && words[0] == "-";
            let mut to = To::Output(Some(output));
            for word in words.iter().rev().filter(|_| !everything) {
                let clause =
                    clause(word).ok_or_else(|| format!("bad clause '{word}' in pattern {output}"))?;
                let failed = start;
                let (yes, no) = if clause.negated { (failed, to) } else { (to, failed) };
                let mut next = yes;
                for test in clause.tests.into_iter().rev() {
                    steps.push(Step { test, yes: next, no });
                    next = To::Step(steps.len() - 1);
                }
                to = next;
            }
            if steps.len() > MOST {
                return Err("patterns too long".into());
            }
            start = to;
        }
        let mut program = Self { steps, start };
        program.turn_round();
        program.shorten();
        Ok(program)
    }

    /// Reverses the steps into the order of execution.
    fn turn_round(&mut self) {
        let last = self.steps.len();
        let turn = |to: To| match to {
            To::Step(step) => To::Step(last - 1 - step),
            output => output,
        };
        self.steps.reverse();
        for step in &mut self.steps {
            (step.yes, step.no) = (turn(step.yes), turn(step.no));
        }
        self.start = turn(self.start);
    }

    /// Removes comparisons whose outcome is implied by preceding ones.
    fn shorten(&mut self) {
        type Facts = Vec<(Test, bool)>;
        let mut known: Vec<Option<Facts>> = alloc::vec![None; self.steps.len()];
        if let To::Step(first) = self.start {
            known[first] = Some(Vec::new());
        }
        for index in 0..self.steps.len() {
            let Some(facts) = known[index].clone() else { continue };
            for held in [true, false] {
                let step = self.steps[index];
                let mut facts = facts.clone();
                // Attack: the implied facts grow with the square of the steps.
                if facts.len() < 64 {
                    facts.push((step.test, held));
                }
                let mut to = if held { step.yes } else { step.no };
                while let To::Step(next) = to {
                    let test = self.steps[next].test;
                    let implied = facts.iter().find_map(|(known, held)| test.implied(known, *held));
                    let Some(outcome) = implied else { break };
                    to = if outcome { self.steps[next].yes } else { self.steps[next].no };
                }
                if let To::Step(next) = to {
                    match &mut known[next] {
                        Some(old) => old.retain(|fact| facts.contains(fact)),
                        none => *none = Some(facts),
                    }
                }
                if held {
                    self.steps[index].yes = to;
                } else {
                    self.steps[index].no = to;
                }
            }
        }
        let mut numbers = Vec::new();
        let mut count = 0;
        for facts in &known {
            numbers.push(count);
            count += usize::from(facts.is_some());
        }
        let rename = |to: To| if let To::Step(step) = to { To::Step(numbers[step]) } else { to };
        let kept = self.steps.iter().zip(&known).filter(|(_, facts)| facts.is_some());
        let kept = kept.map(|(step, _)| Step { yes: rename(step.yes), no: rename(step.no), ..*step });
        self.steps = kept.collect();
        self.start = rename(self.start);
    }

    pub(super) fn run(&self, data: &[u8]) -> Option<usize> {
        let mut to = self.start;
        loop {
            match to {
                To::Output(output) => return output,
                // Steps only lead to later ones.
                To::Step(step) => {
                    let step = self.steps.get(step)?;
                    to = if step.test.holds(data) { step.yes } else { step.no };
                }
            }
        }
    }

    pub(super) fn text(&self) -> String {
        let place = |to: To| match to {
            To::Step(step) => format!("step {step}"),
            To::Output(Some(output)) => format!("[{output}]"),
            To::Output(None) => "[X]".into(),
        };
        let mut out = String::new();
        for (number, Step { test, yes, no }) in self.steps.iter().enumerate() {
            let Test { offset, mask, value } = test;
            let (yes, no) = (place(*yes), place(*no));
            let _ = writeln!(out, "{number:2} {offset:3}/{value:08x}%{mask:08x}  yes->{yes}  no->{no}");
        }
        if self.steps.is_empty() {
            let _ = writeln!(out, "all->{}", place(self.start));
        }
        let length = |test: &Test| test.offset + 4 - test.mask.trailing_zeros() as usize / 8;
        let safe = self.steps.iter().map(|step| length(&step.test)).max().unwrap_or(0);
        let _ = writeln!(out, "safe length {safe}\nalignment offset 0");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(text: &str) -> Program {
        Program::compile(&config::split_arguments(text)).unwrap()
    }

    #[test]
    fn known_results_are_not_tested_again() {
        let expected = " 0  12/08060000%ffff0000  yes->step 1  no->step 3
 1  20/00010000%ffff0000  yes->[0]  no->step 2
 2  20/00020000%ffff0000  yes->[1]  no->[3]
 3  12/08000000%ffff0000  yes->[2]  no->[3]
safe length 22
alignment offset 0
";
        assert_eq!(compile("12/0806 20/0001, 12/0806 20/0002, 12/0800, -").text(), expected);
    }

    #[test]
    fn missing_bytes_of_short_packets_never_match() {
        let program = compile("0/01 3/??, 1/0?, -");
        assert_eq!(program.run(&[1, 2]), Some(0));
        assert_eq!(program.run(&[2, 5]), Some(1));
        assert_eq!(program.run(&[2]), Some(2));
        assert_eq!(program.run(&[]), Some(2));
        assert_eq!(compile("!0/01").run(&[]), Some(0));
        assert_eq!(compile("!0/01").run(&[1]), None);
    }

    #[test]
    fn invalid_patterns_are_refused() {
        for pattern in ["", "x", "1", "1/1", "1/11%1", "99999999/11", "1/zz"] {
            let compiled = Program::compile(&[pattern.into()]);
            assert_eq!(compiled.is_err(), !pattern.is_empty(), "{pattern}");
        }
    }
}
