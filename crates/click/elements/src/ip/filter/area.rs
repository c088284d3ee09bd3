//! The packets that a rule can match, as areas: a range of values for each of several fields.
use super::many::RULES;
use super::primitive::{DESTINATION, FRAGMENT, PROTOCOL, SOURCE};
use super::program::{Expression, TRANSPORT, Test};
use alloc::collections::BTreeMap;
use ringway_click::prelude::*;
use ringway_click::sort;
use ringway_wire::ipv4;

/// Fields of every lookup: source and destination address, source and destination port, protocol.
pub(super) const FIELDS: usize = 5;
/// Maximum number of other words that restrict areas.
const EXTRA: usize = 3;
/// Maximum number of fields.
pub(super) const AXES: usize = FIELDS + EXTRA;
/// The greatest value of each field. The protocol's counts twice: the lowest bit indicates whether the packet is a
/// fragment other than the first.
pub(super) const LAST: [u32; FIELDS] = [u32::MAX, u32::MAX, 0xffff, 0xffff, 0x1ff];
const PROTOCOLS: usize = 4;
/// Maximum number of areas of a rule, and of all combinations of conditions. Attack: rules whose alternatives multiply;
/// conditions beyond it are left to the rule's program.
const AREAS: usize = 1 << 14;
const COMBINATIONS: usize = 1 << 10;

/// The bytes of a field that must be present for an area to match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Presence {
    None,
    /// All but the last byte, or all.
    Some,
    All,
}

/// Values from first to last, inclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u32,
    pub(super) last: u32,
}

/// A range for each field. A packet that a rule matches is in at least one of the rule's areas.
#[derive(Clone, Debug)]
pub(super) struct Area {
    pub(super) ranges: [Range; AXES],
    pub(super) presence: [Presence; AXES],
    /// Whether the rule matches all packets of the area, if all of [`FIELDS`] are present.
    pub(super) exact: bool,
    /// Whether to include only later fragments, or only other packets; `None` for both.
    later: Option<bool>,
}

impl Area {
    fn any(exact: bool) -> Self {
        let mut ranges = [Range { first: 0, last: u32::MAX }; AXES];
        for (range, last) in ranges.iter_mut().zip(LAST) {
            range.last = last;
        }
        ranges[PROTOCOLS].last = 0xff;
        Self { ranges, presence: [Presence::None; AXES], exact, later: None }
    }

    /// The intersection; `None` if empty.
    fn and(&self, other: &Self) -> Option<Self> {
        let mut both = self.clone();
        both.exact &= other.exact;
        both.later = self.later.or(other.later);
        if other.later.is_some() && both.later != other.later {
            return None;
        }
        for axis in 0..AXES {
            let (own, others) = (self.ranges[axis], other.ranges[axis]);
            let range = Range { first: own.first.max(others.first), last: own.last.min(others.last) };
            both.presence[axis] = self.presence[axis].max(other.presence[axis]);
            if range.first <= range.last {
                both.ranges[axis] = range;
            } else if both.presence[axis] == Presence::All {
                return None;
            } else {
                // If the field is missing, both conditions may hold.
                both.exact = false;
            }
        }
        Some(both)
    }

    /// The smallest area that contains both.
    fn hull(mut self, other: &Self) -> Self {
        for axis in 0..AXES {
            let (own, others) = (&mut self.ranges[axis], other.ranges[axis]);
            *own = Range { first: own.first.min(others.first), last: own.last.max(others.last) };
            self.presence[axis] = self.presence[axis].min(other.presence[axis]);
        }
        self.later = self.later.filter(|_| self.later == other.later);
        Self { exact: false, ..self }
    }

    /// Merges `later` into the protocol's range.
    fn merge_later(mut self) -> Self {
        let range = &mut self.ranges[PROTOCOLS];
        let [first, last] = [range.first, range.last].map(|protocol| protocol * 2);
        *range = match self.later {
            None => Range { first, last: last + 1 },
            Some(later) => {
                self.exact &= first == last;
                Range { first: first + u32::from(later), last: last + u32::from(later) }
            }
        };
        self
    }
}

/// Offset and mask of a 32-bit word that is not in [`FIELDS`].
pub(super) type Word = (u16, u32);

/// Finds the areas of rules.
#[derive(Debug)]
pub(super) struct Areas {
    /// The other words that are fields.
    extra: Vec<Word>,
    limit: usize,
}

impl Areas {
    /// Chooses the other words that occur in most conditions of these rules. `breathe` is called from time to time.
    pub(super) fn new<'a>(rules: impl Iterator<Item = &'a Expression>, breathe: &mut dyn FnMut()) -> Self {
        let mut counts = BTreeMap::<u64, u32>::new();
        for (number, rule) in rules.enumerate() {
            count(rule, &mut counts);
            if number % RULES == RULES - 1 {
                breathe();
            }
        }
        let mut words: Vec<(u32, Word)> =
            counts.into_iter().map(|(word, count)| (count, ((word >> 32) as u16, word as u32))).collect();
        words.reverse();
        sort::by_number(&mut words, |(count, _)| !u64::from(*count));
        words.truncate(EXTRA);
        Self { extra: words.into_iter().map(|(_, word)| word).collect(), limit: 1 }
    }

    pub(super) fn extra(&self) -> &[Word] {
        &self.extra
    }

    /// The areas of an expression, `limit` at most.
    pub(super) fn of(&mut self, expression: &Expression, limit: usize) -> Vec<Area> {
        self.limit = limit.clamp(1, AREAS);
        self.part(expression, false, false).into_iter().map(Area::merge_later).collect()
    }

    /// The areas of an expression, or of its negation. `short`: whether results for packets that are too short are
    /// negated too.
    fn part(&self, expression: &Expression, negated: bool, short: bool) -> Vec<Area> {
        match expression {
            Expression::Test(test) => self.test(&Test { short: test.short ^ short, ..*test }, negated),
            Expression::Greater { .. } => self.greater(expression, negated, short),
            Expression::Not(inner, change) => self.part(inner, !negated, short ^ change),
            Expression::And(all) if negated => self.any(all, negated, short),
            Expression::Or(all) if !negated => self.any(all, negated, short),
            Expression::And(all) | Expression::Or(all) => {
                let every = vec![Area::any(true)];
                all.iter().fold(every, |found, inner| self.and(found, &self.part(inner, negated, short)))
            }
            Expression::Choice(all) => self.choice(all, negated, short),
        }
    }

    fn any(&self, all: &[Expression], negated: bool, short: bool) -> Vec<Area> {
        all.iter().fold(Vec::new(), |found, inner| self.or(found, self.part(inner, negated, short)))
    }

    /// `a ? b : c ? d : e` as five parts.
    fn choice(&self, all: &[Expression], negated: bool, short: bool) -> Vec<Area> {
        let [condition, then, rest @ ..] = all else {
            return all.first().map_or(Vec::new(), |last| self.part(last, negated, short));
        };
        let yes = self.and(self.part(condition, false, short), &self.part(then, negated, short));
        let no = self.and(self.part(condition, true, short), &self.choice(rest, negated, short));
        self.or(yes, no)
    }

    fn and(&self, mut own: Vec<Area>, others: &[Area]) -> Vec<Area> {
        if others.len() > 1 && own.len() > 1 && own.len() * others.len() > self.limit.min(COMBINATIONS) {
            own.iter_mut().for_each(|area| area.exact = false);
            return own;
        }
        own.iter().flat_map(|area| others.iter().filter_map(|other| area.and(other))).collect()
    }

    fn or(&self, mut own: Vec<Area>, others: Vec<Area>) -> Vec<Area> {
        own.extend(others);
        if own.len() <= self.limit {
            return own;
        }
        own.into_iter().reduce(|hull, area| hull.hull(&area)).into_iter().collect()
    }

    /// The field of a word under a mask, and the position of its lowest bit.
    fn field(&self, offset: u16, mask: u32) -> Option<(usize, u32)> {
        match offset {
            SOURCE => Some((0, 0)),
            DESTINATION => Some((1, 0)),
            TRANSPORT if mask & 0xffff == 0 => Some((2, 16)),
            TRANSPORT if mask >> 16 == 0 => Some((3, 0)),
            PROTOCOL if mask & !0xff_0000 == 0 => Some((PROTOCOLS, 16)),
            _ => {
                let extra = self.extra.iter().position(|word| *word == (offset, mask))?;
                Some((FIELDS + extra, mask.trailing_zeros()))
            }
        }
    }

    fn test(&self, test: &Test, negated: bool) -> Vec<Area> {
        let Test { offset, value, mask, short } = *test;
        // Whether packets that are too short match.
        let if_missing = short != negated;
        if mask == 0 {
            return if negated { Vec::new() } else { vec![Area::any(true)] };
        }
        if offset == TRANSPORT && mask & 0xffff != 0 && mask >> 16 != 0 && !negated && !if_missing {
            let half =
                |mask: u32| self.test(&Test { value: value & mask, mask: test.mask & mask, ..*test }, false);
            return self.and(half(0xffff_0000), &half(0xffff));
        }
        if offset == FRAGMENT && mask == ipv4::FRAGMENT_OFFSET.into() && value == 0 && !if_missing {
            return vec![Area { later: Some(negated), ..Area::any(true) }];
        }
        let Some((axis, shift)) = self.field(offset, mask) else { return vec![Area::any(false)] };
        let own = mask >> shift;
        let free = top(axis, own) & !own;
        let first = value >> shift;
        let range = Range { first, last: first | free };
        let exact = axis < FIELDS && free & free.wrapping_add(1) == 0;
        let presence = if own & 0xff != 0 { Presence::All } else { Presence::Some };
        restrict(axis, range, exact, negated, if if_missing { Presence::None } else { presence })
    }

    fn greater(&self, expression: &Expression, negated: bool, short: bool) -> Vec<Area> {
        let Expression::Greater { offset, shift, value, mask } = *expression else { return Vec::new() };
        let Some((axis, low)) = self.field(offset, mask << shift) else { return vec![Area::any(false)] };
        let last = top(axis, mask << shift >> low);
        // The mask must cover the field from its highest bit down.
        let free = last & !(mask << shift >> low);
        let contiguous = free & free.wrapping_add(1) == 0 && shift >= low && free == (1 << (shift - low)) - 1;
        if !contiguous {
            return vec![Area::any(false)];
        }
        let range = Range { first: (value + 1) << (shift - low), last };
        let presence = if short == negated { Presence::Some } else { Presence::None };
        restrict(axis, range, axis < FIELDS, negated, presence)
    }
}

/// The greatest value of a field; `mask` is used for other words.
fn top(axis: usize, mask: u32) -> u32 {
    match axis {
        PROTOCOLS => 0xff,
        FIELDS.. => u32::MAX >> mask.leading_zeros(),
        _ => LAST[axis],
    }
}

/// Areas with a field in a range, or outside of it.
fn restrict(axis: usize, range: Range, exact: bool, negated: bool, presence: Presence) -> Vec<Area> {
    let with = |range: Range| {
        let mut area = Area::any(exact);
        (area.ranges[axis], area.presence[axis]) = (range, presence);
        area
    };
    if !negated {
        return vec![with(range)];
    }
    let whole = Area::any(true).ranges[axis];
    let below = range.first.checked_sub(1).map(|last| Range { first: 0, last });
    let above = (range.last < whole.last).then(|| Range { first: range.last + 1, last: whole.last });
    let all: Vec<Area> = below.into_iter().chain(above).map(with).collect();
    if exact && (!all.is_empty() || presence == Presence::All) { all } else { vec![Area::any(false)] }
}

/// Counts conditions on words that are not in [`FIELDS`]. Keys are [`Word`]s.
fn count(expression: &Expression, counts: &mut BTreeMap<u64, u32>) {
    let (offset, mask) = match expression {
        Expression::Test(test) => (test.offset, test.mask),
        Expression::Greater { offset, shift, mask, .. } => (*offset, mask << shift),
        Expression::Not(inner, _) => return count(inner, counts),
        Expression::And(all) | Expression::Or(all) | Expression::Choice(all) => {
            return all.iter().for_each(|inner| count(inner, counts));
        }
    };
    let run = mask >> mask.trailing_zeros().min(31);
    let is_field = match offset {
        SOURCE | DESTINATION | TRANSPORT => true,
        PROTOCOL => mask & !0xff_0000 == 0,
        FRAGMENT => mask == ipv4::FRAGMENT_OFFSET.into(),
        _ => false,
    };
    if !is_field && mask != 0 && run & run.wrapping_add(1) == 0 {
        *counts.entry(u64::from(offset) << 32 | u64::from(mask)).or_default() += 1;
    }
}
