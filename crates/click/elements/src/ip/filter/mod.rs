//! Filters of IPv4 packets: the language that IPFilter and IPClassifier share, compiled to a decision program.
mod area;
mod axis;
mod block;
mod cache;
mod decision;
mod many;
mod optimize;
mod parse;
mod primitive;
mod program;

use cache::Cache;
use core::fmt::Write;
use decision::{Decision, Headers};
use many::{Many, RULES, Rule};
use program::{Expression, Jump, Step};
use ringway_click::arg::{Scope, parse_int};
use ringway_click::prelude::*;
use ringway_click::{PACKETS, Progress};
use ringway_click_lang::config;

/// Maximum number of steps. Attack: a configuration that exhausts memory.
const MOST_STEPS: usize = 1 << 20;
/// Maximum number of steps of rules that are compiled to one program, optimized as Click's is in time quadratic in its
/// length; rules with more steps in all are kept apart.
const ONE_PROGRAM: usize = 512;
/// Maximum number of tests of a program that is executed; of a longer one only the text is kept, since looking up
/// separate rules is faster.
const RUN_AS_ONE: usize = 6;

/// A compiled filter.
#[derive(Debug)]
pub(super) struct Filter {
    rules: Rules,
    /// Outcomes of recent flows, for many rules.
    cache: Option<Cache>,
    safe_length: usize,
    drops: u64,
    /// Warnings about the rules.
    pub(super) warnings: Vec<String>,
}

/// The rules: one program, or a program each.
#[derive(Clone, Debug)]
enum Rules {
    One(Decision),
    /// A program for each rule, and one program for all of them if there is one.
    Many(Box<Many>, Option<Decision>),
}

impl Default for Filter {
    fn default() -> Self {
        let rules = Rules::One(Decision::new(&[], Jump::Drop));
        Self { rules, cache: None, safe_length: 0, drops: 0, warnings: Vec::new() }
    }
}

impl Filter {
    /// Compiles rules, each an action and a pattern; `breathe` is called from time to time.
    ///
    /// # Errors
    /// Warnings and error messages.
    pub(super) fn compile(
        rules: &[String],
        outputs: usize,
        scope: &Scope,
        breathe: &mut dyn FnMut(),
    ) -> Result<Self, Vec<String>> {
        Self::compile_within(rules, outputs, scope, [ONE_PROGRAM, RUN_AS_ONE], breathe)
    }

    /// [`Filter::compile`] with other limits: `one` is the number of steps of one program, `run` the number of tests
    /// executed.
    fn compile_within(
        rules: &[String],
        outputs: usize,
        scope: &Scope,
        [one, run]: [usize; 2],
        breathe: &mut dyn FnMut(),
    ) -> Result<Self, Vec<String>> {
        let (mut messages, mut errors) = (Vec::new(), false);
        let mut programs: Vec<Program> = Vec::new();
        let mut steps = 0;
        for (index, rule) in rules.iter().enumerate() {
            match self::rule(&config::unquote_text(rule), outputs, scope) {
                Ok((program, found)) => {
                    messages
                        .extend(found.iter().map(|warning| format!("pattern {index}: warning: {warning}")));
                    steps += program.steps.len();
                    programs.push(program);
                }
                Err(wrong) => {
                    errors = true;
                    messages.extend(wrong.is_empty().then(|| format!("empty pattern {index}")));
                    messages.extend(wrong.iter().map(|wrong| format!("pattern {index}: {wrong}")));
                }
            }
            if index % RULES == RULES - 1 {
                breathe();
            }
            if steps > MOST_STEPS {
                messages.push("too many patterns".to_string());
                errors = true;
                break;
            }
        }
        match () {
            () if errors => Err(messages),
            () if steps > one => Ok(Self { warnings: messages, ..apart(programs, breathe) }),
            () => {
                let joined = merge(programs.clone());
                let safe_length = joined.safe_length();
                let joined = joined.decision(Jump::Drop);
                let tests = joined.words().count();
                let Self { rules, cache, .. } = apart(programs, breathe);
                let (rules, cache) = match rules {
                    Rules::Many(many, _) if tests > run => (Rules::Many(many, Some(joined)), cache),
                    _ => (Rules::One(joined), None),
                };
                Ok(Self { rules, cache, safe_length, drops: 0, warnings: messages })
            }
        }
    }

    /// Outputs that no packet can reach.
    pub(super) fn unused(&self, outputs: usize) -> impl Iterator<Item = usize> + use<> {
        let mut used = alloc::vec![false; outputs];
        let mut mark = |end| {
            if let Jump::Output(port) = end
                && let Some(used) = used.get_mut(port)
            {
                *used = true;
            }
        };
        match &self.rules {
            Rules::One(joined) | Rules::Many(_, Some(joined)) => joined.ends().for_each(&mut mark),
            Rules::Many(many, None) => many.ends().for_each(&mut mark),
        }
        (0..outputs).filter(move |port| !used[*port])
    }

    /// The outcomes of a burst's packets.
    #[inline]
    fn outcomes(&mut self, packets: &[Packet]) -> [Jump; PACKETS] {
        let mut outcomes = [Jump::Drop; PACKETS];
        match &self.rules {
            Rules::One(joined) => {
                for (packet, outcome) in packets.iter().zip(&mut outcomes) {
                    *outcome = joined.decide(&Headers::of(packet));
                }
            }
            Rules::Many(many, _) => many.decide(packets, self.cache.as_mut(), &mut outcomes),
        }
        outcomes
    }

    /// Emits packets on their outputs.
    #[inline]
    pub(super) fn push(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let outcomes = self.outcomes(burst.iter().as_slice());
        let drops = &mut self.drops;
        cx.scatter(burst, |number, _| match outcomes[number] {
            Jump::Output(port) => Some(port),
            _ => {
                *drops += 1;
                None
            }
        });
    }

    /// Bytes of memory that lookups use.
    pub(super) fn memory(&self) -> usize {
        let cache = self.cache.as_ref().map_or(0, Cache::memory);
        match &self.rules {
            Rules::One(joined) => joined.memory(),
            Rules::Many(many, _) => many.memory() + cache,
        }
    }

    /// Frees part of the memory; no lookup may follow.
    pub(super) fn give_up(&mut self) -> Progress {
        match &mut self.rules {
            Rules::One(_) => Progress::Done,
            Rules::Many(many, _) => many.give_up(),
        }
    }

    /// This filter, with the count of dropped packets of the one that it replaces.
    pub(super) fn instead_of(self, old: &Self) -> Self {
        Self { drops: old.drops, ..self }
    }

    /// Number of dropped packets.
    pub(super) fn drops(&mut self) -> &mut u64 {
        &mut self.drops
    }

    /// The program as text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        match &self.rules {
            Rules::One(joined) | Rules::Many(_, Some(joined)) => match joined.everything() {
                Some(everything) => {
                    let _ = writeln!(text, "all->{everything}");
                }
                None => joined.write(&mut text, 0, |end| end),
            },
            Rules::Many(many, None) => many.write(&mut text),
        }
        let _ = writeln!(text, "safe length {}\nalignment offset 0", self.safe_length);
        text
    }
}

/// Steps, or the outcome of all packets; and, of a single rule, its outcome and the expression it was compiled from.
#[derive(Clone, Debug)]
struct Program {
    steps: Vec<Step>,
    everything: Option<Jump>,
    output: Jump,
    expression: Expression,
}

fn rule(text: &str, outputs: usize, scope: &Scope) -> Result<(Program, Vec<String>), Vec<String>> {
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
    let (expression, warnings) =
        if all { (Expression::always(), Vec::new()) } else { parse::Parser::read(pattern, scope)? };
    let mut steps = Vec::new();
    expression.emit(&mut steps);
    program::redirect(&mut steps, output, Jump::No);
    Ok((Program { steps, everything: None, output, expression }, warnings))
}

/// Appends rules to one another in pairs, so that each is first optimized with few others.
fn merge(mut programs: Vec<Program>) -> Program {
    if programs.len() == 1 {
        programs[0].optimize();
    }
    let mut distance = 1;
    while distance < programs.len() {
        for index in (0..programs.len() - distance).step_by(2 * distance) {
            let next = core::mem::replace(&mut programs[index + distance], Program::empty());
            programs[index].append(next);
            programs[index].optimize();
        }
        distance *= 2;
    }
    programs.into_iter().next().unwrap_or_else(Program::empty)
}

/// Keeps rules apart, with their original tests: joined tests would be inexact for truncated headers. Rules that can't
/// match, or follow a rule that matches everything, are left out.
fn apart(programs: Vec<Program>, breathe: &mut dyn FnMut()) -> Filter {
    apart_within(programs, many::MOST_WORDS, breathe)
}

/// [`apart`] with another limit of memory, in words a field.
fn apart_within(programs: Vec<Program>, limit: usize, breathe: &mut dyn FnMut()) -> Filter {
    let mut rules = Vec::new();
    let mut safe_length = 0;
    for mut program in programs {
        if rules.len() % RULES == RULES - 1 {
            breathe();
        }
        program.everything = optimize::sweep(&mut program.steps);
        if program.everything == Some(Jump::No) {
            continue;
        }
        safe_length = program.safe_length().max(safe_length);
        let (output, last) = (program.output, program.everything.is_some());
        let expression = core::mem::replace(&mut program.expression, Expression::always());
        rules.push(Rule { decision: program.decision(Jump::No), output, expression });
        if last {
            break;
        }
    }
    let many = Many::new(rules, limit, breathe);
    let cache = many.is_cacheable().then(Cache::new);
    Filter { rules: Rules::Many(many.into(), None), cache, safe_length, drops: 0, warnings: Vec::new() }
}

impl Program {
    fn empty() -> Self {
        let expression = Expression::Or(Vec::new());
        Self { steps: Vec::new(), everything: Some(Jump::Drop), output: Jump::Drop, expression }
    }

    fn optimize(&mut self) {
        if !self.steps.is_empty() {
            self.everything = optimize::optimize(&mut self.steps);
        }
    }

    /// Appends `next`, which packets that don't match continue with.
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

    fn safe_length(&self) -> usize {
        self.steps.iter().map(|step| step.test.required()).max().unwrap_or(0)
    }

    fn decision(mut self, otherwise: Jump) -> Decision {
        program::redirect(&mut self.steps, Jump::Yes, otherwise);
        let everything = match self.everything {
            Some(Jump::No) | None => otherwise,
            Some(end) => end,
        };
        optimize::sort(&mut self.steps);
        Decision::new(&self.steps, everything)
    }
}

#[cfg(test)]
mod tests;
