//! Expressions over a host's figures: `temperature < 70 && (fan > 1000 || idle)`.
//!
//! Numbers, names, `+ - * /`, `< <= > >= == !=`, `! && ||`, parentheses. True is 1, false is 0; every value
//! other than 0 is true. Names are external facts and the figures in [`FIGURES`]; a comparison with an
//! unknown or expired fact is false, and so is an expression computed from one.

use crate::model::Row;
use crate::ratio::Ratio;
use crate::unit::{Context, round};
use std::cmp::Ordering;

/// Figures that every host has.
pub const FIGURES: &[(&str, &str)] = &[
    ("cpus", "CPUs"),
    ("cpu_load", "load of its CPUs in percent"),
    ("pending_load", "load of pending VMs, in percent"),
    ("vcpus", "virtual CPUs that share its CPUs, including those of pending VMs"),
    ("memory_mb", "memory"),
    ("free_mb", "free memory less that of pending VMs"),
    ("schedulable_mb", "memory that can still be reserved"),
    ("vms", "VMs that run"),
    ("pending_vms", "pending VMs"),
    ("ha_vms", "highly available VMs"),
];

/// An error in an expression.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {what}")]
pub struct ExpressionError {
    /// Where, in characters from 1.
    pub column: usize,
    /// The error.
    pub what: String,
}

/// An expression.
#[derive(Clone, Debug)]
pub struct Expression {
    root: Node,
}

#[derive(Clone, Debug)]
enum Node {
    Number(Number),
    Name(String),
    Not(Box<Node>),
    Minus(Box<Node>),
    Both(Op, Box<Node>, Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Or,
    And,
    Less,
    LessOrEqual,
    More,
    MoreOrEqual,
    Equal,
    Unequal,
    Add,
    Subtract,
    Multiply,
    Divide,
}

/// Operators by precedence, lowest first. Longer operators come before their own prefixes.
const OPERATORS: &[&[(&str, Op)]] = &[
    &[("||", Op::Or)],
    &[("&&", Op::And)],
    &[
        ("<=", Op::LessOrEqual),
        (">=", Op::MoreOrEqual),
        ("==", Op::Equal),
        ("!=", Op::Unequal),
        ("<", Op::Less),
        (">", Op::More),
    ],
    &[("+", Op::Add), ("-", Op::Subtract)],
    &[("*", Op::Multiply), ("/", Op::Divide)],
];

/// Attack: endless parentheses. Largest nesting depth.
const DEPTH: usize = 64;
/// Attack: endless chains of operators, each of which adds a level. Largest number of tokens.
const LENGTH: usize = 1000;

impl Expression {
    /// Reads an expression.
    pub fn read(text: &str) -> Result<Expression, ExpressionError> {
        if text.len() > LENGTH {
            return Err(ExpressionError { column: 1, what: format!("it is longer than {LENGTH} bytes") });
        }
        let mut reader = Reader { text, at: 0 };
        let root = reader.level(0, 0)?;
        reader.space();
        match reader.rest().chars().next() {
            None => Ok(Expression { root }),
            Some(c) => Err(reader.wrong(format!("an operator is missing before `{c}`"))),
        }
    }

    /// Its value for a host; none if it depends on an unknown fact.
    pub(crate) fn value(&self, context: &Context<'_>, row: Row) -> Option<Number> {
        value(&self.root, &|name| figure(context, name, row))
    }

    /// Whether the expression is true for a host.
    pub fn holds(&self, context: &Context<'_>, row: Row) -> bool {
        self.value(context, row).is_some_and(|value| !value.is_zero())
    }

    /// Its names, with their values for a host.
    pub fn explain(&self, context: &Context<'_>, row: Row) -> String {
        let mut names = Vec::new();
        collect(&self.root, &mut names);
        names.sort_unstable();
        names.dedup();
        let values = names.iter().map(|name| match figure(context, name, row) {
            Some(value) => format!("{name} is {}", value.to_f64()),
            None => format!("{name} is unknown"),
        });
        values.collect::<Vec<_>>().join(", ")
    }
}

fn collect<'n>(node: &'n Node, names: &mut Vec<&'n str>) {
    match node {
        Node::Number(_) => {}
        Node::Name(name) => names.push(name),
        Node::Not(inner) | Node::Minus(inner) => collect(inner, names),
        Node::Both(_, left, right) => {
            collect(left, names);
            collect(right, names);
        }
    }
}

/// A value. Exact as long as the terms of its fraction have up to 38 digits.
#[derive(Clone, Copy, Debug)]
pub enum Number {
    Exact(Ratio),
    Float(f64),
}

impl Number {
    /// The decimal that a fact was given as.
    fn from_f64(number: f64) -> Number {
        Ratio::shortest(number).map_or(Number::Float(number), Number::Exact)
    }

    /// The nearest double, or nearly so.
    pub fn to_f64(self) -> f64 {
        match self {
            Number::Exact(ratio) => ratio.to_f64(),
            Number::Float(number) => number,
        }
    }

    fn is_zero(self) -> bool {
        match self {
            Number::Exact(ratio) => ratio.is_zero(),
            Number::Float(number) => number == 0.0,
        }
    }

    /// Their order; equal if a double is not a number.
    pub fn order(self, other: Number) -> Ordering {
        match (self, other) {
            (Number::Exact(left), Number::Exact(right)) => left.cmp(&right),
            _ => self.to_f64().partial_cmp(&other.to_f64()).unwrap_or(Ordering::Equal),
        }
    }

    /// The exact result if there is one, or else the one of doubles, unless that is infinite.
    fn compute(
        self,
        other: Number,
        exact: impl Fn(Ratio, Ratio) -> Option<Ratio>,
        float: impl Fn(f64, f64) -> f64,
    ) -> Option<Number> {
        let exact = match (self, other) {
            (Number::Exact(left), Number::Exact(right)) => exact(left, right),
            _ => None,
        };
        let float = || Some(float(self.to_f64(), other.to_f64())).filter(|number| number.is_finite());
        exact.map(Number::Exact).or_else(|| float().map(Number::Float))
    }

    /// `begin` is 0 and `end` is 1 of this scale; where this is on it, in `steps`, rounded. None if it can't be
    /// computed.
    pub fn step(self, begin: Number, end: Number, steps: i32) -> Option<i32> {
        let steps = Number::Exact(Ratio::whole(steps.into()));
        let width = end.compute(begin, Ratio::minus, |left, right| left - right)?;
        let part = self.compute(begin, Ratio::minus, |left, right| left - right)?;
        let part = part.compute(steps, Ratio::times, |left, right| left * right)?;
        match part.compute(width, Ratio::over, |left, right| left / right)? {
            Number::Exact(ratio) => i32::try_from(ratio.round()).ok(),
            Number::Float(number) => Some(round(number)),
        }
    }
}

/// A host's figure, or a fact about it.
fn figure(context: &Context<'_>, name: &str, row: Row) -> Option<Number> {
    let (columns, at) = (&context.cluster.columns, row as usize);
    let whole = |column: &[i32]| Ratio::whole(column[at].into());
    let percent = |column: &[i32]| {
        let cpus = columns.cpus[at] - columns.exclusive[at];
        Ratio::of(column[at].into(), cpus.into())
    };
    let known = match name {
        "cpus" => whole(&columns.cpus),
        "cpu_load" => percent(&columns.load),
        "pending_load" => percent(&columns.pending_load),
        "vcpus" => Ratio::of(columns.taken_milli(row), 1000),
        "memory_mb" => whole(&columns.physical),
        "free_mb" => whole(&columns.free),
        "schedulable_mb" => whole(&columns.schedulable),
        "vms" => whole(&columns.vms),
        "pending_vms" => whole(&columns.pending),
        "ha_vms" => whole(&columns.ha),
        _ => return context.cluster.fact(name, row, context.now).map(Number::from_f64),
    };
    Some(Number::Exact(known))
}

fn value(node: &Node, figure: &impl Fn(&str) -> Option<Number>) -> Option<Number> {
    let truth = |truth: bool| Some(Number::Exact(Ratio::whole(truth.into())));
    match node {
        Node::Number(number) => Some(*number),
        Node::Name(name) => figure(name),
        Node::Not(inner) => truth(value(inner, figure)?.is_zero()),
        Node::Minus(inner) => Some(match value(inner, figure)? {
            Number::Exact(ratio) => Number::Exact(ratio.negated()),
            Number::Float(number) => Number::Float(-number),
        }),
        Node::Both(op, left, right) => {
            let left = value(left, figure);
            match op {
                Op::Or if left.is_some_and(|left| !left.is_zero()) => return truth(true),
                Op::Or => return truth(!value(right, figure)?.is_zero()),
                Op::And if left?.is_zero() => return truth(false),
                _ => {}
            }
            let (left, right) = (left?, value(right, figure)?);
            match op {
                Op::Or | Op::And => truth(!right.is_zero()),
                Op::Less => truth(left.order(right).is_lt()),
                Op::LessOrEqual => truth(left.order(right).is_le()),
                Op::More => truth(left.order(right).is_gt()),
                Op::MoreOrEqual => truth(left.order(right).is_ge()),
                Op::Equal => truth(left.order(right).is_eq()),
                Op::Unequal => truth(left.order(right).is_ne()),
                Op::Add => left.compute(right, Ratio::plus, |left, right| left + right),
                Op::Subtract => left.compute(right, Ratio::minus, |left, right| left - right),
                Op::Multiply => left.compute(right, Ratio::times, |left, right| left * right),
                Op::Divide if right.is_zero() => None,
                Op::Divide => left.compute(right, Ratio::over, |left, right| left / right),
            }
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Reader<'t> {
    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn wrong(&self, what: String) -> ExpressionError {
        ExpressionError { column: self.text[..self.at].chars().count() + 1, what }
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn eat(&mut self, word: &str) -> bool {
        self.space();
        let there = self.rest().starts_with(word);
        if there {
            self.at += word.len();
        }
        there
    }

    fn level(&mut self, level: usize, depth: usize) -> Result<Node, ExpressionError> {
        let Some(operators) = OPERATORS.get(level) else { return self.single(depth) };
        let mut left = self.level(level + 1, depth)?;
        while let Some((_, op)) = operators.iter().find(|(word, _)| self.eat(word)) {
            let right = self.level(level + 1, depth)?;
            left = Node::Both(*op, Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn single(&mut self, depth: usize) -> Result<Node, ExpressionError> {
        if depth > DEPTH {
            return Err(self.wrong(format!("more than {DEPTH} levels deep")));
        }
        if self.eat("!") {
            return Ok(Node::Not(Box::new(self.single(depth + 1)?)));
        }
        if self.eat("-") {
            return Ok(Node::Minus(Box::new(self.single(depth + 1)?)));
        }
        if self.eat("(") {
            let inner = self.level(0, depth + 1)?;
            return if self.eat(")") { Ok(inner) } else { Err(self.wrong("`)` is missing".into())) };
        }
        self.space();
        let rest = self.rest();
        let length =
            rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.').unwrap_or(rest.len());
        let word = &rest[..length];
        if word.is_empty() {
            return Err(self.wrong("a number, a name or `(` is missing".into()));
        }
        if word.starts_with(|c: char| c.is_ascii_alphabetic()) && !word.contains('.') {
            self.at += length;
            return Ok(Node::Name(word.into()));
        }
        let float = || word.parse().ok().filter(|number: &f64| number.is_finite()).map(Number::Float);
        let number = Ratio::decimal(word).map(Number::Exact).or_else(float);
        let number = number.ok_or_else(|| self.wrong(format!("`{word}` is neither a number nor a name")))?;
        self.at += length;
        Ok(Node::Number(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Option<f64> {
        let figure = |name: &str| match name {
            "two" => Some(Number::from_f64(2.0)),
            "ten" => Some(Number::from_f64(10.0)),
            "warm" => Some(Number::from_f64(71.3)),
            "huge" => Some(Number::from_f64(1e300)),
            _ => None,
        };
        value(&Expression::read(text).unwrap().root, &figure).map(Number::to_f64)
    }

    #[test]
    fn decimals_are_compared_exactly() {
        for text in ["115 <= 100 * 1.15", "0.1 + 0.2 == 0.3", "warm * 3 == 213.9", "1 / 3 * 3 == 1"] {
            assert_eq!(of(text), Some(1.0), "{text}");
        }
        assert_eq!(of("116 <= 100 * 1.15"), Some(0.0));
        // Beyond the exact range doubles are used, and what these can't hold is unknown.
        assert_eq!(of("huge * 2 > huge && huge < huge + huge"), Some(1.0));
        assert_eq!(of("huge * huge > 1"), None);
        assert_eq!(of(&format!("{}.0 > 1", "9".repeat(60))), Some(1.0));
    }

    #[test]
    fn values_are_placed_on_a_scale() {
        let step = |value: f64, begin: f64, end: f64| {
            Number::from_f64(value).step(Number::from_f64(begin), Number::from_f64(end), 999)
        };
        assert_eq!(step(10.0, 10.0, 20.0), Some(0));
        assert_eq!(step(15.0, 10.0, 20.0), Some(500), "499.5");
        assert_eq!(step(5.0, 20.0, 5.0), Some(999));
        assert_eq!(step(1e300, 0.0, 2e300), Some(500));
        assert_eq!(step(1e308, -1e308, 1e308), None);
    }

    #[test]
    fn expressions_evaluate_correctly() {
        assert_eq!(of("1 + two * 3 - -4"), Some(11.0));
        assert_eq!(of("(1 + two) * 3 == 9 && ten >= 10"), Some(1.0));
        assert_eq!(of("!(two < ten) || ten/two != 5"), Some(0.0));
        assert_eq!(of("8 - 3 - 2"), Some(3.0));
    }

    #[test]
    fn unknown_facts_are_not_true() {
        assert_eq!(of("gone < 5"), None);
        assert_eq!(of("gone < 5 || two == 2"), Some(1.0));
        assert_eq!(of("two == 3 && gone"), Some(0.0));
        assert_eq!(of("ten / (two - 2)"), None);
    }

    #[test]
    fn errors_have_positions() {
        for (text, column) in [("a <", 4), ("(a", 3), ("a b", 3), ("1.2.3", 1), ("a && && b", 6), ("", 1)] {
            assert_eq!(Expression::read(text).unwrap_err().column, column, "{text}");
        }
        assert!(Expression::read(&"(".repeat(500)).is_err());
        assert!(Expression::read(&"!".repeat(900)).is_err());
    }
}
