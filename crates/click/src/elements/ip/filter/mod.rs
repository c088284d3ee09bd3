//! Filters of IPv4 packets: the language that IPFilter and IPClassifier share, compiled to a decision program.
mod optimize;
mod parse;
mod primitive;
mod program;

use crate::arg::{Scope, parse_int};
use crate::elements::packet::u32_at;
use crate::{Context, Packet, PacketBurst};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use program::{Jump, NETWORK, Step, TRANSPORT};
use ringway_click_lang::config;

/// From so many values on they are searched by halves.
const SEARCHED: usize = 7;
/// Steps at most. Attack: a configuration whose optimization would take all time and memory.
const MOST_STEPS: usize = 1 << 16;

/// A test of one word against several values.
#[derive(Clone, Debug)]
struct Match {
    offset: u16,
    short: bool,
    mask: u32,
    values: Vec<u32>,
    no: Jump,
    yes: Jump,
}

/// A compiled filter.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    matches: Vec<Match>,
    everything: Jump,
    safe_length: usize,
}

impl Default for Filter {
    fn default() -> Self {
        Self { matches: Vec::new(), everything: Jump::Drop, safe_length: 0 }
    }
}

impl Filter {
    /// Compiles rules, each an action and a pattern.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(super) fn compile(rules: &[String], outputs: usize, scope: &Scope) -> Result<Self, Vec<String>> {
        let mut errors = Vec::new();
        let mut programs: Vec<Program> = Vec::new();
        for (index, rule) in rules.iter().enumerate() {
            match self::rule(&config::unquote_text(rule), outputs, scope) {
                Ok(program) => programs.push(program),
                Err(wrong) if wrong.is_empty() => errors.push(format!("empty pattern {index}")),
                Err(wrong) => errors.extend(wrong.iter().map(|wrong| format!("pattern {index}: {wrong}"))),
            }
        }
        if programs.iter().map(|program| program.steps.len()).sum::<usize>() > MOST_STEPS {
            errors.push("too many patterns".to_string());
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(merge(programs).finish())
    }

    /// The outputs to which no packet can go.
    pub(super) fn unused(&self, outputs: usize) -> impl Iterator<Item = usize> + '_ {
        (0..outputs).filter(|port| {
            let port = Jump::Output(*port);
            let used = self.matches.iter().any(|test| test.yes == port || test.no == port);
            !used && (!self.matches.is_empty() || self.everything != port)
        })
    }

    /// The output for a packet; nothing if it is to be dropped.
    #[inline]
    pub(super) fn output(&self, packet: &Packet) -> Option<usize> {
        let mac = packet.mac_data().unwrap_or_default();
        let network = packet.network_data().unwrap_or_default();
        let transport = packet.transport_data().unwrap_or_default();
        let mut at = 0;
        while let Some(test) = self.matches.get(at) {
            let word = match test.offset {
                TRANSPORT.. => word(transport, usize::from(test.offset - TRANSPORT), test.mask),
                NETWORK.. => word(network, usize::from(test.offset - NETWORK), test.mask),
                0..2 => word(mac, 0, test.mask << 16).map(|word| word >> 16),
                _ => word(mac, usize::from(test.offset) - 2, test.mask),
            };
            let yes = word.map_or(test.short, |word| test.holds(word & test.mask));
            match if yes { test.yes } else { test.no } {
                Jump::Step(next) => at = next,
                Jump::Output(port) => return Some(port),
                _ => return None,
            }
        }
        if let Jump::Output(port) = self.everything { Some(port) } else { None }
    }

    /// Sends packets where they belong.
    #[inline]
    pub(super) fn push(&self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            if let Some(port) = self.output(&packet) {
                cx.push(port, packet);
            }
        }
    }

    /// The program for people.
    pub(super) fn text(&self) -> String {
        let mut first = Vec::new();
        let mut count = 0;
        for test in &self.matches {
            first.push(count);
            count += test.values.len();
        }
        let place = |jump| match jump {
            Jump::Step(next) => Jump::Step(first.get(next).copied().unwrap_or(count)),
            other => other,
        };
        let mut text = String::new();
        for (test, first) in self.matches.iter().zip(&first) {
            for (index, value) in test.values.iter().enumerate() {
                let own = first + index;
                let last = index + 1 == test.values.len();
                let no = if last { place(test.no) } else { Jump::Step(own + 1) };
                let short = test.short;
                let test_ = program::Test { offset: test.offset, value: *value, mask: test.mask, short };
                let step = Step { test: test_, no, yes: place(test.yes) };
                let _ = writeln!(text, "{own:2} {step}");
            }
        }
        if self.matches.is_empty() {
            let _ = writeln!(text, "all->{}", self.everything);
        }
        let _ = writeln!(text, "safe length {}\nalignment offset 0", self.safe_length);
        text
    }
}

impl Match {
    #[inline]
    fn holds(&self, word: u32) -> bool {
        match self.values.len() {
            1 => self.values[0] == word,
            ..SEARCHED => self.values.contains(&word),
            _ => self.values.binary_search_by_key(&word.swap_bytes(), |value| value.swap_bytes()).is_ok(),
        }
    }
}

/// The four bytes at `at`; nothing if one that `mask` wants is not there.
#[inline]
fn word(bytes: &[u8], at: usize, mask: u32) -> Option<u32> {
    if let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk) {
        return Some(u32::from_be_bytes(*word));
    }
    let there = bytes.len().saturating_sub(at).min(3);
    let lacking = u32::MAX >> (8 * there);
    if mask & lacking != 0 {
        return None;
    }
    let mut word = [0; 4];
    word[..there].copy_from_slice(bytes.get(at..).unwrap_or_default());
    Some(u32_at(&word, 0))
}

/// Steps, or where everything goes.
#[derive(Clone, Debug, Default)]
struct Program {
    steps: Vec<Step>,
    everything: Option<Jump>,
}

fn rule(text: &str, outputs: usize, scope: &Scope) -> Result<Program, Vec<String>> {
    let words = parse::words(text);
    let (slot, pattern) = words.split_first().ok_or_else(Vec::new)?;
    let output = match slot.as_str() {
        "allow" if outputs == 0 => {
            return Err(["'allow' is meaningless, element has zero outputs".to_string()].into());
        }
        "allow" => Jump::Output(0),
        "deny" | "drop" => Jump::Drop,
        _ => match parse_int::<i64>(slot, -(1 << 31), 1 << 31) {
            Ok(port) => match usize::try_from(port).ok().filter(|port| *port < outputs) {
                Some(port) => Jump::Output(port),
                None => return Err([format!("slot '{port}' out of range")].into()),
            },
            Err(_) => return Err([format!("unknown slot ID '{slot}'")].into()),
        },
    };
    let all = match pattern {
        [] => true,
        [word] => matches!(word.as_str(), "-" | "any" | "all"),
        _ => false,
    };
    let expression = if all { program::Expression::always() } else { parse::Parser::read(pattern, scope)? };
    let mut steps = Vec::new();
    expression.emit(&mut steps);
    program::redirect(&mut steps, output, Jump::No);
    Ok(Program { steps, everything: None })
}

/// Appends rules to one another, two by two, so that each is optimized with few others at first.
fn merge(mut programs: Vec<Program>) -> Program {
    if programs.len() == 1 {
        programs[0].optimize();
    }
    let mut distance = 1;
    while distance < programs.len() {
        for index in (0..programs.len() - distance).step_by(2 * distance) {
            let next = core::mem::take(&mut programs[index + distance]);
            programs[index].append(next);
            programs[index].optimize();
        }
        distance *= 2;
    }
    programs.into_iter().next().unwrap_or_default()
}

impl Program {
    fn optimize(&mut self) {
        if !self.steps.is_empty() {
            self.everything = optimize::optimize(&mut self.steps);
        }
    }

    /// What does not match goes on to `next`.
    fn append(&mut self, next: Program) {
        match self.everything {
            None => {
                let offset = self.steps.len();
                let first = next.everything.unwrap_or(Jump::Step(offset));
                program::redirect(&mut self.steps, Jump::Yes, first);
                self.steps.extend(next.steps.into_iter().map(|mut step| {
                    for jump in [&mut step.yes, &mut step.no] {
                        if let Jump::Step(at) = jump {
                            *at += offset;
                        }
                    }
                    step
                }));
            }
            Some(Jump::No) => *self = next,
            Some(_) => {}
        }
    }

    fn finish(mut self) -> Filter {
        program::redirect(&mut self.steps, Jump::Yes, Jump::Drop);
        let everything = match self.everything {
            Some(output @ Jump::Output(_)) => output,
            _ => Jump::Drop,
        };
        let safe_length = self.steps.iter().map(|step| step.test.required()).max().unwrap_or(0);
        optimize::sort(&mut self.steps);
        Filter { matches: compress(&self.steps), everything, safe_length }
    }
}

/// Joins steps that test the same word for different values with the same outcome.
fn compress(steps: &[Step]) -> Vec<Match> {
    let mut wanted = alloc::vec![0usize; steps.len()];
    if let Some(first) = wanted.first_mut() {
        *first = 1;
    }
    for (index, step) in steps.iter().enumerate() {
        if wanted[index] > 0 {
            for next in [step.no, step.yes].into_iter().filter_map(Jump::step) {
                wanted[next] += 1;
            }
        }
    }
    let mut place = alloc::vec![0; steps.len()];
    let mut matches: Vec<Match> = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        place[index] = matches.len();
        if wanted[index] == 0 {
            continue;
        }
        let program::Test { offset, value, mask, short } = step.test;
        let mut found = Match { offset, short, mask, values: [value].into(), no: step.no, yes: step.yes };
        while let Some(next) = found.no.step().filter(|next| wanted[*next] == 1) {
            let behind = &steps[next];
            if behind.yes != step.yes || behind.test.offset != offset || behind.test.mask != mask {
                break;
            }
            found.values.push(behind.test.value);
            found.no = behind.no;
            wanted[next] -= 1;
        }
        if found.values.len() >= SEARCHED {
            found.values.sort_unstable_by_key(|value| value.swap_bytes());
        }
        matches.push(found);
    }
    for jump in matches.iter_mut().flat_map(|test| [&mut test.no, &mut test.yes]) {
        if let Jump::Step(at) = jump {
            *at = place[*at];
        }
    }
    matches
}
