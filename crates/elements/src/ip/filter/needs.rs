//! What a packet must have for an expression to hold: words that equal a value under a mask.
use super::program::{Expression, Test};
use alloc::vec;
use alloc::vec::Vec;

/// Maximum number of alternatives; beyond it, some of their requirements are left out.
const ALTERNATIVES: usize = 16;
/// Maximum number of words that an alternative requires; further words are left out.
pub(super) const WORDS: usize = 6;

/// A requirement: a word, its mask and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Need {
    pub(super) offset: u16,
    pub(super) mask: u32,
    pub(super) value: u32,
}

/// Alternatives, each sorted by offset: wherever the expression holds, all requirements of one alternative are met.
/// All bytes of a word under its mask must be present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needs(pub(super) Vec<Vec<Need>>);

impl Needs {
    pub(super) fn of(expression: &Expression) -> Self {
        needs(expression, false, false)
    }

    fn nothing() -> Self {
        Self(vec![Vec::new()])
    }

    fn never() -> Self {
        Self(Vec::new())
    }

    fn one(test: &Test) -> Self {
        let Test { offset, mask, value, .. } = *test;
        Self(vec![vec![Need { offset, mask, value }]])
    }

    fn and(self, other: &Self) -> Self {
        if self.0.len() * other.0.len() > ALTERNATIVES {
            return self;
        }
        let pairs = self.0.iter().flat_map(|own| other.0.iter().map(move |others| (own, others)));
        Self(pairs.filter_map(|(own, others)| join(own, others)).collect())
    }

    fn or(mut self, other: Self) -> Self {
        if self.0.len() + other.0.len() > ALTERNATIVES {
            return Self::nothing();
        }
        self.0.extend(other.0);
        self
    }
}

/// The requirements of both; `None` if no packet can meet them.
fn join(own: &[Need], others: &[Need]) -> Option<Vec<Need>> {
    let mut all = own.to_vec();
    for other in others {
        let full = all.len() == WORDS;
        match all.iter_mut().find(|need| need.offset == other.offset) {
            Some(need) if (need.value ^ other.value) & need.mask & other.mask != 0 => return None,
            Some(need) => {
                need.mask |= other.mask;
                need.value |= other.value;
            }
            None if full => {}
            None => all.push(*other),
        }
    }
    all.sort_unstable();
    Some(all)
}

/// The requirements of an expression, or of its negation; `short`: its tests' outcomes for too short packets are
/// negated too.
fn needs(expression: &Expression, negated: bool, short: bool) -> Needs {
    match expression {
        Expression::Test(test) => of_test(&Test { short: test.short ^ short, ..*test }, negated),
        Expression::Not(inner, change) => needs(inner, !negated, short ^ change),
        Expression::And(all) if negated => any(all, negated, short),
        Expression::Or(all) if !negated => any(all, negated, short),
        Expression::And(all) | Expression::Or(all) => {
            all.iter().fold(Needs::nothing(), |found, inner| found.and(&needs(inner, negated, short)))
        }
        Expression::Choice(all) => choice(all, negated, short),
    }
}

fn any(all: &[Expression], negated: bool, short: bool) -> Needs {
    all.iter().fold(Needs::never(), |found, inner| found.or(needs(inner, negated, short)))
}

/// `a ? b : c ? d : e` as five parts.
fn choice(all: &[Expression], negated: bool, short: bool) -> Needs {
    let [condition, then, rest @ ..] = all else {
        return all.first().map_or(Needs::never(), |last| needs(last, negated, short));
    };
    let yes = needs(condition, false, short).and(&needs(then, negated, short));
    let no = needs(condition, true, short).and(&choice(rest, negated, short));
    yes.or(no)
}

fn of_test(test: &Test, negated: bool) -> Needs {
    match (test.mask, test.short == negated) {
        (0, _) if negated => Needs::never(),
        (0, _) => Needs::nothing(),
        // Packets that are too short take that branch too.
        (_, false) => Needs::nothing(),
        (_, true) if !negated => Needs::one(test),
        (mask, true) if test.is_one_bit() => Needs::one(&Test { value: test.value ^ mask, ..*test }),
        _ => Needs::nothing(),
    }
}
