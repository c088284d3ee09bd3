//! A filter as a tree of comparisons of numbers in the frame.

use super::Subject;
use crate::pcapng::Direction;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Greatest depth of a tree. Attack: an expression whose evaluation exhausts a worker's stack.
pub(super) const DEEPEST: usize = 200;

/// A condition.
#[derive(Clone, Debug)]
pub(super) enum Node {
    All(Vec<Node>),
    Any(Vec<Node>),
    Not(Box<Node>),
    Compare(Value, Relation, Value),
    Direction(Direction),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
}

/// A number of 32 bits.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Constant(u32),
    /// The frame's length.
    Length,
    /// A big-endian number of `size` bytes.
    Load {
        base: Base,
        offset: Box<Value>,
        size: u8,
    },
    Arithmetic(Operator, Box<Value>, Box<Value>),
}

/// Where the offset of a load begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// At this byte of the frame.
    At(usize),
    /// After the IPv4 header that is at this byte.
    AfterIpv4(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    And,
    Or,
    Xor,
    ShiftLeft,
    ShiftRight,
}

impl Node {
    /// Both conditions.
    pub(super) fn and(self, other: Node) -> Node {
        match self {
            Node::All(mut list) => {
                list.push(other);
                Node::All(list)
            }
            one => Node::All(Vec::from([one, other])),
        }
    }

    /// One of the conditions.
    pub(super) fn or(self, other: Node) -> Node {
        match self {
            Node::Any(mut list) => {
                list.push(other);
                Node::Any(list)
            }
            one => Node::Any(Vec::from([one, other])),
        }
    }

    /// The number of levels.
    pub(super) fn depth(&self) -> usize {
        let below = match self {
            Node::All(list) | Node::Any(list) => list.iter().map(Node::depth).max().unwrap_or(0),
            Node::Not(node) => node.depth(),
            Node::Compare(left, _, right) => left.depth().max(right.depth()),
            Node::Direction(_) => 0,
        };
        below + 1
    }

    /// Whether the frame matches; `None` if it lacks a byte.
    pub(super) fn eval(&self, subject: &Subject<'_>) -> Option<bool> {
        match self {
            Node::All(list) => {
                for node in list {
                    if !node.eval(subject)? {
                        return Some(false);
                    }
                }
                Some(true)
            }
            Node::Any(list) => {
                for node in list {
                    if node.eval(subject)? {
                        return Some(true);
                    }
                }
                Some(false)
            }
            Node::Not(node) => node.eval(subject).map(|is_so| !is_so),
            Node::Compare(left, relation, right) => {
                Some(relation.holds(left.eval(subject)?, right.eval(subject)?))
            }
            Node::Direction(direction) => Some(subject.direction == *direction),
        }
    }
}

impl Relation {
    fn holds(self, left: u32, right: u32) -> bool {
        match self {
            Relation::Equal => left == right,
            Relation::Unequal => left != right,
            Relation::Less => left < right,
            Relation::LessEqual => left <= right,
            Relation::Greater => left > right,
            Relation::GreaterEqual => left >= right,
        }
    }
}

impl Value {
    /// A number of `size` bytes at a fixed offset.
    pub(super) fn load(base: Base, offset: usize, size: u8) -> Value {
        Value::Load { base, offset: Box::new(Value::Constant(offset as u32)), size }
    }

    /// The bits of a mask.
    pub(super) fn masked(self, mask: u32) -> Value {
        if mask == u32::MAX {
            return self;
        }
        Value::Arithmetic(Operator::And, Box::new(self), Box::new(Value::Constant(mask)))
    }

    /// The condition that it is this number.
    pub(super) fn is(self, number: u32) -> Node {
        Node::Compare(self, Relation::Equal, Value::Constant(number))
    }

    pub(super) fn depth(&self) -> usize {
        match self {
            Value::Constant(_) | Value::Length => 1,
            Value::Load { offset, .. } => 1 + offset.depth(),
            Value::Arithmetic(_, left, right) => 1 + left.depth().max(right.depth()),
        }
    }

    /// The number in this frame; `None` if the frame lacks a byte, or for a division by zero.
    fn eval(&self, subject: &Subject<'_>) -> Option<u32> {
        match self {
            Value::Constant(number) => Some(*number),
            Value::Length => Some(subject.len),
            Value::Load { base, offset, size } => {
                let begin = match *base {
                    Base::At(at) => at,
                    Base::AfterIpv4(at) => at + 4 * usize::from(subject.data.get(at)? & 15),
                };
                let begin = begin.checked_add(offset.eval(subject)? as usize)?;
                let bytes = subject.data.get(begin..begin.checked_add(usize::from(*size))?)?;
                Some(bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
            }
            Value::Arithmetic(operator, left, right) => {
                operator.apply(left.eval(subject)?, right.eval(subject)?)
            }
        }
    }
}

impl Operator {
    /// The result; `None` for a division by zero.
    pub(super) fn apply(self, left: u32, right: u32) -> Option<u32> {
        Some(match self {
            Operator::Add => left.wrapping_add(right),
            Operator::Subtract => left.wrapping_sub(right),
            Operator::Multiply => left.wrapping_mul(right),
            Operator::Divide => left.checked_div(right)?,
            Operator::Remainder => left.checked_rem(right)?,
            Operator::And => left & right,
            Operator::Or => left | right,
            Operator::Xor => left ^ right,
            Operator::ShiftLeft => left.checked_shl(right).unwrap_or(0),
            Operator::ShiftRight => left.checked_shr(right).unwrap_or(0),
        })
    }
}
