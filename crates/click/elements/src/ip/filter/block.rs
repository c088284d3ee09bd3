//! Blocks of nearby areas, which are compared with a packet all at once.
use super::area::{AXES, Area, FIELDS};
use super::axis::{AT_ONCE, span};
use alloc::vec::Vec;
use ringway_click::sort;

/// Areas per block: the number of 16-bit lanes of a vector register.
pub(super) const LANES: usize = 8;
/// Candidate positions for each cut.
const CUTS: usize = 8;

/// The fields of a packet.
pub(super) type Key = [u32; FIELDS];

/// Areas, in the order of their rules. Values minus an area's first are compared as signed numbers with an offset,
/// since vector registers have no unsigned comparison.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(super) struct Block {
    addresses: [Lanes<i32>; 2],
    others: [Lanes<i16>; 3],
    pub(super) owners: [Owner; LANES],
}

/// The rule of an area, and whether the rule's program must be run too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Owner(u32);

impl Owner {
    /// After all rules.
    pub(super) const NONE: Self = Self(u32::MAX);

    fn new(rule: u32, exact: bool) -> Self {
        Self(rule << 1 | u32::from(!exact))
    }

    #[inline]
    pub(super) fn rule(self) -> usize {
        self.0 as usize >> 1
    }

    #[inline]
    pub(super) fn is_exact(self) -> bool {
        self.0 & 1 == 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Lanes<T> {
    first: [T; LANES],
    width: [T; LANES],
}

impl Block {
    /// `owner` is each area's rule. Unused lanes get [`Owner::NONE`].
    pub(super) fn new(areas: &[Area], owner: &[u32], members: &[u32]) -> Self {
        let mut block = Self {
            addresses: [Lanes { first: [0; LANES], width: [i32::MIN; LANES] }; 2],
            others: [Lanes { first: [0; LANES], width: [i16::MIN; LANES] }; 3],
            owners: [Owner::NONE; LANES],
        };
        for (lane, &member) in members.iter().enumerate() {
            let area = &areas[member as usize];
            block.owners[lane] = Owner::new(owner[member as usize], area.exact);
            let (addresses, others) = area.ranges[..FIELDS].split_at(2);
            for (lanes, range) in block.addresses.iter_mut().zip(addresses) {
                lanes.first[lane] = (range.first as i32).wrapping_sub(i32::MIN);
                lanes.width[lane] = ((range.last - range.first) as i32).wrapping_add(i32::MIN);
            }
            for (lanes, range) in block.others.iter_mut().zip(others) {
                lanes.first[lane] = (range.first as i16).wrapping_sub(i16::MIN);
                lanes.width[lane] = ((range.last - range.first) as i16).wrapping_add(i16::MIN);
            }
        }
        block
    }

    /// A bit for each area that contains the packet.
    #[inline]
    pub(super) fn matching(&self, key: &Key) -> u32 {
        let [source, destination] = &self.addresses;
        let mut bits = 0;
        for lane in 0..LANES {
            let source = (key[0] as i32).wrapping_sub(source.first[lane]) <= source.width[lane];
            let destination =
                (key[1] as i32).wrapping_sub(destination.first[lane]) <= destination.width[lane];
            let mut all = source & destination;
            for (lanes, value) in self.others.iter().zip(&key[2..]) {
                all &= (*value as i16).wrapping_sub(lanes.first[lane]) <= lanes.width[lane];
            }
            bits |= u32::from(all) << lane;
        }
        bits
    }
}

/// The extent of areas in each field, as indices of ranges.
type Hull = [(u32, u32); AXES];
const EMPTY: Hull = [(u32::MAX, 0); AXES];

fn extend(hull: &mut Hull, spans: &Hull) {
    for (own, other) in hull.iter_mut().zip(spans) {
        *own = (own.0.min(other.0), own.1.max(other.1));
    }
}

/// Divides areas into blocks.
pub(super) struct Division<'a> {
    /// The ranges of each area.
    spans: &'a [Hull],
    /// Number of ranges of each field.
    counts: [f32; AXES],
    /// Fields in which areas differ.
    axes: Vec<usize>,
    lanes: usize,
}

impl<'a> Division<'a> {
    pub(super) fn new(spans: &'a [Hull], starts: &[Vec<u32>], lanes: usize) -> Self {
        let mut counts = [1.0; AXES];
        for (count, starts) in counts.iter_mut().zip(starts) {
            *count = starts.len() as f32;
        }
        let axes = (0..starts.len()).filter(|axis| starts[*axis].len() > 1).collect();
        Self { spans, counts, axes, lanes }
    }

    /// The members of each block; consecutive blocks are near each other.
    pub(super) fn blocks(&self, breathe: &mut dyn FnMut()) -> Vec<Vec<u32>> {
        let mut order: Vec<u32> = (0..self.spans.len() as u32).collect();
        let mut blocks = Vec::new();
        let mut left = Vec::from([(0, order.len())]);
        while let Some((from, to)) = left.pop() {
            if to - from <= self.lanes {
                let mut block = order[from..to].to_vec();
                sort::by_number(&mut block, |area| u64::from(*area));
                blocks.push(block);
                continue;
            }
            let middle = from + self.cut(&mut order[from..to], breathe);
            left.extend([(middle, to), (from, middle)]);
        }
        blocks
    }

    /// Sorts areas so that the first ones, whose count is returned, overlap the others as little as possible.
    fn cut(&self, areas: &mut [u32], breathe: &mut dyn FnMut()) -> usize {
        let mut best = (f32::MAX, (0, 0), self.lanes);
        for &axis in &self.axes {
            for order in 0..3 {
                self.sort(areas, axis, order);
                let (cost, at) = self.best_place(areas);
                if cost < best.0 {
                    best = (cost, (axis, order), at);
                }
                breathe();
            }
        }
        let (_, (axis, order), at) = best;
        self.sort(areas, axis, order);
        at
    }

    /// Sorts by start, end or width of areas.
    fn sort(&self, areas: &mut [u32], axis: usize, order: usize) {
        let key = |area: &u32| {
            let (begin, end) = self.spans[*area as usize][axis];
            let (first, second) = match order {
                0 => (begin, end),
                1 => (end, begin),
                _ => (end - begin, begin),
            };
            u128::from(first) << 64 | u128::from(second) << 32 | u128::from(*area)
        };
        let mut keys: Vec<u128> = areas.iter().map(key).collect();
        sort::numbers(&mut keys);
        for (area, key) in areas.iter_mut().zip(keys) {
            *area = key as u32;
        }
    }

    /// The cost and position of the best cut of a sequence. A part's cost is its number of blocks times the share of
    /// packets in its hull.
    fn best_place(&self, areas: &[u32]) -> (f32, usize) {
        let blocks = areas.len().div_ceil(self.lanes);
        let parts = blocks.min(CUTS);
        let places: [usize; CUTS] = core::array::from_fn(|part| blocks * part / parts * self.lanes);
        let places = &places[1..parts];
        let mut before = [EMPTY; CUTS];
        let mut hull = EMPTY;
        let mut from = 0;
        for (&place, before) in places.iter().zip(&mut before) {
            areas[from..place].iter().for_each(|area| extend(&mut hull, &self.spans[*area as usize]));
            *before = hull;
            from = place;
        }
        let mut best = (f32::MAX, self.lanes);
        let (mut hull, mut to) = (EMPTY, areas.len());
        for (&place, before) in places.iter().zip(&before).rev() {
            areas[place..to].iter().for_each(|area| extend(&mut hull, &self.spans[*area as usize]));
            to = place;
            let first = place / self.lanes;
            let cost = self.share(before) * first as f32 + self.share(&hull) * (blocks - first) as f32;
            if cost < best.0 {
                best = (cost, place);
            }
        }
        best
    }

    fn share(&self, hull: &Hull) -> f32 {
        hull.iter().zip(&self.counts).map(|((begin, end), count)| (end - begin) as f32 / count).product()
    }
}

/// The ranges of each area in all fields.
pub(super) fn spans(areas: &[Area], starts: &[Vec<u32>], breathe: &mut dyn FnMut()) -> Vec<Hull> {
    let mut all = Vec::with_capacity(areas.len());
    for (number, area) in areas.iter().enumerate() {
        if number % AT_ONCE == 0 {
            breathe();
        }
        let mut spans = [(0, 1); AXES];
        for (axis, (own, starts)) in spans.iter_mut().zip(starts).enumerate() {
            *own = span(starts, area, axis);
        }
        all.push(spans);
    }
    all
}
