//! Expressions over a host's figures: `temperature < 70 && (fan > 1000 || idle)`.
//!
//! Numbers, names, `+ - * /`, `< <= > >= == !=`, `! && ||`, parentheses. True is 1, false is 0; every value
//! other than 0 is true. Names are external facts and the figures in [`FIGURES`]; a comparison with an
//! unknown or expired fact is false, and so is an expression computed from one.

use crate::model::Row;
use crate::unit::Context;

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
#[derive(Clone, Debug, PartialEq)]
pub struct Expression {
    root: Node,
}

#[derive(Clone, Debug, PartialEq)]
enum Node {
    Number(f64),
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
    pub fn value(&self, context: &Context<'_>, row: Row) -> Option<f64> {
        value(&self.root, &|name| figure(context, name, row))
    }

    /// Whether it is true for a host.
    pub fn holds(&self, context: &Context<'_>, row: Row) -> bool {
        self.value(context, row).is_some_and(|value| value != 0.0)
    }

    /// Its names, with their values for a host.
    pub fn explain(&self, context: &Context<'_>, row: Row) -> String {
        let mut names = Vec::new();
        collect(&self.root, &mut names);
        names.sort_unstable();
        names.dedup();
        let values = names.iter().map(|name| match figure(context, name, row) {
            Some(value) => format!("{name} is {value}"),
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

/// A host's figure, or a fact about it.
fn figure(context: &Context<'_>, name: &str, row: Row) -> Option<f64> {
    let (columns, at) = (&context.cluster.columns, row as usize);
    let cpus = f64::from((columns.cpus[at] - columns.exclusive[at]).max(1));
    let known = match name {
        "cpus" => f64::from(columns.cpus[at]),
        "cpu_load" => f64::from(columns.load[at]) / cpus,
        "pending_load" => f64::from(columns.pending_load[at]) / cpus,
        "vcpus" => columns.taken(row),
        "memory_mb" => f64::from(columns.physical[at]),
        "free_mb" => f64::from(columns.free[at]),
        "schedulable_mb" => f64::from(columns.schedulable[at]),
        "vms" => f64::from(columns.vms[at]),
        "pending_vms" => f64::from(columns.pending[at]),
        "ha_vms" => f64::from(columns.ha[at]),
        _ => return context.cluster.fact(name, row, context.now),
    };
    Some(known)
}

fn value(node: &Node, figure: &impl Fn(&str) -> Option<f64>) -> Option<f64> {
    let truth = |truth: bool| Some(f64::from(u8::from(truth)));
    match node {
        Node::Number(number) => Some(*number),
        Node::Name(name) => figure(name),
        Node::Not(inner) => truth(value(inner, figure)? == 0.0),
        Node::Minus(inner) => Some(-value(inner, figure)?),
        Node::Both(op, left, right) => {
            let left = value(left, figure);
            match op {
                Op::Or if left.is_some_and(|left| left != 0.0) => return Some(1.0),
                Op::Or => return truth(value(right, figure)? != 0.0),
                Op::And if left? == 0.0 => return Some(0.0),
                _ => {}
            }
            let (left, right) = (left?, value(right, figure)?);
            match op {
                Op::Or | Op::And => truth(right != 0.0),
                Op::Less => truth(left < right),
                Op::LessOrEqual => truth(left <= right),
                Op::More => truth(left > right),
                Op::MoreOrEqual => truth(left >= right),
                Op::Equal => truth(left == right),
                Op::Unequal => truth(left != right),
                Op::Add => Some(left + right),
                Op::Subtract => Some(left - right),
                Op::Multiply => Some(left * right),
                Op::Divide => Some(left / right),
            }
            .filter(|value| value.is_finite())
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
        let number = word.parse::<f64>().ok().filter(|number| number.is_finite());
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
            "two" => Some(2.0),
            "ten" => Some(10.0),
            _ => None,
        };
        value(&Expression::read(text).unwrap().root, &figure)
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
