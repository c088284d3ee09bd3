//! Decision programs: tests of four bytes of a packet, each with a branch for yes and one for no.
use core::fmt::{self, Display};
use ringway_click::prelude::*;

/// Offsets below [`NETWORK`] count from two bytes before the MAC header.
pub(crate) const NETWORK: u16 = 256;
/// Offsets from here on count from the transport header, those before from the network header.
pub(crate) const TRANSPORT: u16 = 512;

/// The target of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    Step(usize),
    Output(usize),
    Drop,
    /// While a program is built: the expression is true, or false.
    Yes,
    No,
}

impl Jump {
    pub(super) fn step(self) -> Option<usize> {
        if let Self::Step(step) = self { Some(step) } else { None }
    }
}

impl Display for Jump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(step) => write!(f, "step {step}"),
            Self::Output(port) => write!(f, "[{port}]"),
            Self::Drop => f.write_str("[X]"),
            Self::Yes => f.write_str("[+]"),
            Self::No => f.write_str("[-]"),
        }
    }
}

/// A test: whether the masked bytes equal a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Test {
    pub(crate) offset: u16,
    pub(crate) value: u32,
    pub(crate) mask: u32,
    /// Whether the test is true for packets that are too short.
    pub(crate) short: bool,
}

/// A test and its branches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) test: Test,
    pub(crate) no: Jump,
    pub(crate) yes: Jump,
}

impl Step {
    pub(super) fn branch(&self, yes: bool) -> Jump {
        if yes { self.yes } else { self.no }
    }

    pub(super) fn branch_mut(&mut self, yes: bool) -> &mut Jump {
        if yes { &mut self.yes } else { &mut self.no }
    }
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Test { offset, value, mask, short } = self.test;
        write!(f, "{offset:3}/{value:08x}%{mask:08x}  yes->{}  no->{}", self.yes, self.no)?;
        if short { f.write_str("  short->yes") } else { Ok(()) }
    }
}

impl Test {
    pub(crate) fn new(offset: u16, value: u32, mask: u32) -> Self {
        Self { offset, value: value & mask, mask, short: false }
    }

    pub(super) fn is_one_bit(&self) -> bool {
        self.mask.is_power_of_two()
    }

    /// The packet length required for the test, in the program's offsets.
    pub(crate) fn required(&self) -> usize {
        if self.mask == 0 {
            0
        } else {
            usize::from(self.offset) + 4 - self.mask.trailing_zeros() as usize / 8
        }
    }

    /// Whether, with this test's outcome `yes`, what the packet's length did to it cannot mislead about `next`, of
    /// which `next_yes` would be concluded.
    fn tells_length(&self, yes: bool, next: &Self, next_yes: bool, known: usize) -> bool {
        let required = self.required();
        self.short != yes || required <= known || required <= next.required() && next_yes == next.short
    }

    /// What a packet for which this test had the outcome `yes` must answer to `next`, if that is certain; `known`
    /// bytes are there in any case.
    pub(super) fn implies(&self, yes: bool, next: &Self, known: usize) -> Option<bool> {
        if next.mask == 0 {
            return Some(true);
        }
        if self.offset != next.offset {
            return None;
        }
        let both = self.mask & next.mask;
        let (own, others) = (self.value & both, next.value & both);
        let answer = if yes {
            (both == next.mask).then_some(own == others)
        } else if self.is_one_bit() && self.mask == next.mask && self.value != next.value {
            Some(true)
        } else {
            (both == self.mask && self.value == others).then_some(false)
        };
        answer.filter(|answer| self.tells_length(yes, next, *answer, known))
    }

    /// Whether a packet can satisfy both tests, as far as the tests show.
    pub(super) fn is_compatible(&self, other: &Self, with_length: bool) -> bool {
        if self.mask == 0 || other.mask == 0 {
            return true;
        }
        let misled = with_length && other.short != self.short && self.required() < other.required();
        let both = self.mask & other.mask;
        self.offset == other.offset && !misled && self.value & both == other.value & both
    }
}

/// An expression, which is compiled to a program.
#[derive(Clone, Debug)]
pub(crate) enum Expression {
    Test(Test),
    /// Whether the word's bits from `shift` on, under `mask`, are greater than `value`.
    Greater {
        offset: u16,
        shift: u32,
        value: u32,
        mask: u32,
    },
    And(Vec<Expression>),
    Or(Vec<Expression>),
    /// Condition, value if true, value if false.
    Choice(Vec<Expression>),
    /// The negation; with the flag, the outcome for packets that are too short is negated too.
    Not(alloc::boxed::Box<Expression>, bool),
}

impl Expression {
    pub(crate) fn always() -> Self {
        Self::Test(Test::new(0, 0, 0))
    }

    pub(crate) fn not(self, short: bool) -> Self {
        Self::Not(self.into(), short)
    }

    pub(crate) fn not_if(self, negate: bool) -> Self {
        if negate { self.not(true) } else { self }
    }

    /// Appends the expression's steps; branches that leave them are [`Jump::Yes`] and [`Jump::No`].
    pub(crate) fn emit(&self, out: &mut Vec<Step>) {
        match self {
            Self::Test(test) => out.push(Step { test: *test, no: Jump::No, yes: Jump::Yes }),
            Self::Greater { offset, shift, value, mask } => greater(*offset, *shift, *value, *mask).emit(out),
            Self::Not(inner, short) => {
                let first = out.len();
                inner.emit(out);
                for step in &mut out[first..] {
                    (step.yes, step.no) = (opposite(step.yes), opposite(step.no));
                    step.test.short ^= short;
                }
            }
            Self::And(all) => emit_chain(all, out, |_, next| (next, Jump::No)),
            Self::Or(all) => emit_chain(all, out, |_, next| (Jump::Yes, next)),
            Self::Choice(all) => emit_choice(all, out),
        }
    }
}

/// `input & mask > value`, bit by bit from the top: while `value`'s bits are 0, any bit set in the input decides for
/// true; while they are 1, any bit not set decides for false.
fn greater(offset: u16, shift: u32, value: u32, mask: u32) -> Expression {
    let high = value > mask >> 1;
    let rest = if high { !value.wrapping_add(1) & mask } else { value };
    let below = u32::MAX.checked_shl(32 - rest.leading_zeros()).unwrap_or(0);
    let upper = if rest == 0 { mask } else { mask & below };
    let wanted = if high { upper } else { 0 };
    let test = Expression::Test(Test::new(offset, wanted << shift, upper << shift));
    let mut all = vec![if high { test } else { test.not(true) }];
    let (mask, value) = (mask & !upper, value & mask & !upper);
    if value < mask && upper != 0 {
        all.push(greater(offset, shift, value, mask));
    }
    if high { Expression::And(all) } else { Expression::Or(all) }
}

fn opposite(jump: Jump) -> Jump {
    match jump {
        Jump::Yes => Jump::No,
        Jump::No => Jump::Yes,
        other => other,
    }
}

pub(super) fn redirect(steps: &mut [Step], yes: Jump, no: Jump) {
    for jump in steps.iter_mut().flat_map(|step| [&mut step.yes, &mut step.no]) {
        *jump = match *jump {
            Jump::Yes => yes,
            Jump::No => no,
            other => other,
        };
    }
}

fn emit_chain(all: &[Expression], out: &mut Vec<Step>, link: impl Fn(usize, Jump) -> (Jump, Jump)) {
    for (index, inner) in all.iter().enumerate() {
        let first = out.len();
        inner.emit(out);
        if index + 1 < all.len() {
            let next = Jump::Step(out.len());
            let (yes, no) = link(index, next);
            redirect(&mut out[first..], yes, no);
        }
    }
}

/// `a ? b : c ? d : e` as five parts.
fn emit_choice(all: &[Expression], out: &mut Vec<Step>) {
    let mut starts: Vec<usize> = Vec::new();
    for inner in all {
        starts.push(out.len());
        inner.emit(out);
    }
    let mut at = 0;
    while at + 2 < all.len() {
        let (then, otherwise) = (starts[at + 1], starts[at + 2]);
        redirect(&mut out[starts[at]..then], Jump::Step(then), Jump::Step(otherwise));
        at += 2;
    }
}
