//! Patterns, compiled to comparisons of words that lead to each other or to outputs.
use core::cmp::Ordering;
use core::fmt;
use core::fmt::Write;
use ringway_click::prelude::*;

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

    /// For packets that end within the tested bytes: those beyond the end match nothing.
    #[cold]
    fn holds_for_short(&self, data: &[u8]) -> bool {
        let there = data.len().saturating_sub(self.offset);
        let word = (0..4)
            .fold(0, |word, at| word << 8 | u32::from(data.get(self.offset + at).copied().unwrap_or(0)));
        self.mask << (8 * there) == 0 && word & self.mask == self.value
    }
}

#[derive(Clone, Copy, Debug)]
struct Step {
    test: Test,
    yes: To,
    no: To,
}

/// A compiled step: `to` is the next step if the test fails, and if it holds. Mask and value have the byte order of
/// the packet.
#[derive(Clone, Copy, Debug)]
struct Compiled {
    offset: u32,
    mask: u32,
    value: u32,
    to: [u32; 2],
}

/// The number of output 0; smaller numbers are steps.
const OUTPUTS: u32 = 1 << 31;
/// No output.
const NOWHERE: u32 = u32::MAX;

/// A classifier's program.
#[derive(Debug)]
pub(super) struct Program {
    steps: Vec<Step>,
    start: To,
    compiled: Vec<Compiled>,
    first: u32,
}

impl Default for Program {
    fn default() -> Self {
        Self { steps: Vec::new(), start: To::Output(None), compiled: Vec::new(), first: NOWHERE }
    }
}

struct Clause {
    tests: Vec<Test>,
    negated: bool,
}

/// What is wrong with a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PatternError {
    Digit,
    Slash,
    Offset,
    Short,
    Odd,
    ShortMask,
    LongMask,
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Digit => f.write_str("expected a digit"),
            Self::Slash => f.write_str("expected '/'"),
            Self::Offset => write!(f, "offset too large, maximum {FARTHEST}"),
            Self::Short => f.write_str("value has less than 2 hex digits"),
            Self::Odd => f.write_str("value has odd number of hex digits"),
            Self::ShortMask => f.write_str("mask has too few hex digits"),
            Self::LongMask => f.write_str("mask has too many hex digits"),
        }
    }
}

/// The longest prefix of `text` of such characters, and the rest.
fn prefix(text: &str, of: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !of(c)).unwrap_or(text.len()))
}

fn digits(text: &str) -> Vec<Option<u8>> {
    text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect()
}

/// The clauses of a pattern. All errors are added to `errors`.
fn clauses(pattern: &str, errors: &mut Vec<PatternError>) -> Vec<Clause> {
    let mut clauses = Vec::new();
    let mut rest = pattern.trim_ascii();
    while !rest.is_empty() {
        match clause(rest, errors) {
            Ok((clause, behind)) => {
                clauses.push(clause);
                rest = behind.trim_ascii_start();
            }
            Err(error) => {
                errors.push(error);
                break;
            }
        }
    }
    clauses
}

/// The first clause of a pattern, and the rest; an error if the rest can't be read.
fn clause<'a>(text: &'a str, errors: &mut Vec<PatternError>) -> Result<(Clause, &'a str), PatternError> {
    let (negated, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
    let (number, text) = prefix(text, |c| c.is_ascii_digit());
    if number.is_empty() {
        return Err(PatternError::Digit);
    }
    let text = text.strip_prefix('/').ok_or(PatternError::Slash)?;
    let offset = number.parse().ok().filter(|offset| *offset <= FARTHEST).unwrap_or_else(|| {
        errors.push(PatternError::Offset);
        0
    });
    let hexadecimal = |c: char| c == '?' || c.is_ascii_hexdigit();
    let (value, mut text) = prefix(text, hexadecimal);
    let wrong = match value.len() {
        ..2 => Some(PatternError::Short),
        length if length % 2 == 1 => Some(PatternError::Odd),
        _ => None,
    };
    errors.extend(wrong);
    let value = digits(value);
    let mut mask = alloc::vec![Some(0xf); value.len()];
    if let Some(rest) = text.strip_prefix('%') {
        let (given, rest) = prefix(rest, hexadecimal);
        match given.len().cmp(&value.len()) {
            _ if wrong.is_some() => {}
            Ordering::Less => errors.push(PatternError::ShortMask),
            Ordering::Equal => mask = digits(given),
            Ordering::Greater => errors.push(PatternError::LongMask),
        }
        text = rest;
    }
    Ok((Clause { tests: tests(offset, &value, &mask), negated }, text))
}

/// The comparisons of a value, four bits each, from an offset on.
fn tests(offset: usize, value: &[Option<u8>], mask: &[Option<u8>]) -> Vec<Test> {
    // Ascending, as bytes are.
    let mut words: Vec<(usize, u32, u32)> = Vec::new();
    for (at, (value, mask)) in value.iter().zip(mask).enumerate() {
        let (byte, high) = (offset + at / 2, at % 2 == 0);
        let shift = 8 * (3 - byte % 4) + if high { 4 } else { 0 };
        let mask = if value.is_some() { u32::from(mask.unwrap_or(0)) } else { 0 };
        let bits = (u32::from(value.unwrap_or(0)) & mask) << shift;
        match words.last_mut() {
            Some((word, all, value)) if *word == byte / 4 * 4 => {
                *all |= mask << shift;
                *value |= bits;
            }
            _ => words.push((byte / 4 * 4, mask << shift, bits)),
        }
    }
    let tests = words.into_iter().filter(|(_, mask, _)| *mask != 0);
    tests.map(|(offset, mask, value)| Test { offset, mask, value }).collect()
}

impl Program {
    /// Compiles patterns.
    ///
    /// # Errors
    /// All errors.
    pub(super) fn compile(patterns: &[String]) -> Result<Self, Vec<String>> {
        let mut wrong = Vec::new();
        let mut parsed = Vec::new();
        for (number, pattern) in patterns.iter().enumerate() {
            let mut errors = Vec::new();
            let everything = pattern.trim_ascii() == "-";
            parsed.push(if everything { Vec::new() } else { clauses(pattern, &mut errors) });
            wrong.extend(errors.iter().map(|error| format!("pattern {number}: {error}")));
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        let mut steps: Vec<Step> = Vec::new();
        let mut start = To::Output(None);
        // From the last pattern to the first, so that each pattern knows where to continue when it fails.
        for (output, clauses) in parsed.into_iter().enumerate().rev() {
            let mut to = To::Output(Some(output));
            for clause in clauses.into_iter().rev() {
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
                return Err(["patterns too long".into()].into());
            }
            start = to;
        }
        let mut program = Self { steps, start, ..Self::default() };
        program.turn_round();
        program.shorten();
        program.prepare();
        Ok(program)
    }

    /// Outputs that no packet can reach.
    pub(super) fn unused(&self, outputs: usize) -> impl Iterator<Item = usize> + use<> {
        let ends = self.steps.iter().flat_map(|step| [step.yes, step.no]).chain([self.start]);
        let mut used = vec![false; outputs];
        for port in ends.filter_map(|to| if let To::Output(port) = to { port } else { None }) {
            if let Some(used) = used.get_mut(port) {
                *used = true;
            }
        }
        (0..outputs).filter(move |port| !used[*port])
    }

    /// Compiles the steps.
    fn prepare(&mut self) {
        let number = |to: To| match to {
            To::Step(step) => step as u32,
            To::Output(output) => output.map_or(NOWHERE, |output| OUTPUTS + output as u32),
        };
        let native = |word: u32| u32::from_ne_bytes(word.to_be_bytes());
        let compile = |Step { test, yes, no }: &Step| Compiled {
            offset: test.offset as u32,
            mask: native(test.mask),
            value: native(test.value),
            to: [number(*no), number(*yes)],
        };
        (self.compiled, self.first) = (self.steps.iter().map(compile).collect(), number(self.start));
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

    #[inline]
    pub(super) fn run(&self, data: &[u8]) -> Option<usize> {
        let mut to = self.first;
        // Steps only lead to later ones.
        while let Some(step) = self.compiled.get(to as usize) {
            let holds = match data.get(step.offset as usize..).and_then(<[u8]>::first_chunk) {
                Some(word) => u32::from_ne_bytes(*word) & step.mask == step.value,
                None => self.steps[to as usize].test.holds_for_short(data),
            };
            to = step.to[usize::from(holds)];
        }
        (to != NOWHERE).then(|| (to - OUTPUTS) as usize)
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
    use ringway_click_lang::config::split_arguments;

    fn compile(text: &str) -> Program {
        Program::compile(&split_arguments(text)).unwrap()
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
    fn every_wrong_pattern_has_its_reasons() {
        let patterns = "foo, 12/, 12, 12/0800, 12/080 x, 12/0800%ff, 5/z 6/x, 1/1?%ff00, 99999999/11, ";
        let expected = "pattern 0: expected a digit
pattern 1: value has less than 2 hex digits
pattern 2: expected '/'
pattern 4: value has odd number of hex digits
pattern 4: expected a digit
pattern 5: mask has too few hex digits
pattern 6: value has less than 2 hex digits
pattern 6: expected a digit
pattern 7: mask has too many hex digits
pattern 8: offset too large, maximum 65536";
        assert_eq!(Program::compile(&split_arguments(patterns)).unwrap_err().join("\n"), expected);
    }

    #[test]
    fn outputs_without_packets_are_found() {
        let unused = |text: &str, outputs| compile(text).unused(outputs).collect::<Vec<_>>();
        assert_eq!(unused("12/0800, 12/0800, -, 12/0806", 4), [1, 3]);
        assert_eq!(unused("12/0800 12/0801", 1), [0]);
        assert_eq!(unused("12/08, -", 2), [] as [usize; 0]);
    }
}
