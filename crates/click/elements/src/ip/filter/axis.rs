//! One field's values, divided into ranges, each with a bitmap of the blocks that have an area in that range.
use super::area::{Area, LAST, Presence};
use alloc::collections::BTreeMap;
use core::ops::SubAssign;
use ringway_click::prelude::*;
use ringway_click::{PACKETS, sort};
use ringway_frame::prefetch;

/// Maximum number of ranges whose starts are all compared with a value.
const COMPARED: usize = 32;
/// Maximum number of a value's upper bits that index the first table.
const TOP_BITS: u32 = 16;
/// Ranges or areas processed between two turns of the data path.
pub(super) const AT_ONCE: usize = 128;
/// Words of a cache line.
const LINE: usize = 8;

/// The starts of the ranges into which areas divide a field's values, ascending.
pub(super) fn starts(areas: &[Area], axis: usize) -> Vec<u32> {
    let ends = |area: &Area| [Some(area.ranges[axis].first), area.ranges[axis].last.checked_add(1)];
    let mut starts: Vec<u32> = areas.iter().flat_map(ends).flatten().chain([0]).collect();
    starts.retain(|start| *start <= greatest(axis));
    sort::by_number(&mut starts, |start| u64::from(*start));
    starts.dedup();
    starts
}

/// The greatest value of a field.
fn greatest(field: usize) -> u32 {
    LAST.get(field).copied().unwrap_or(u32::MAX)
}

/// The indices of an area's ranges: first, and last plus 1.
pub(super) fn span(starts: &[u32], area: &Area, axis: usize) -> (u32, u32) {
    let range = area.ranges[axis];
    let first = starts.partition_point(|start| *start < range.first);
    (first as u32, starts.partition_point(|start| *start <= range.last) as u32)
}

/// The layout of bitmaps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    /// Words with one bit per block.
    pub(super) words: usize,
    /// Summary words before them, with one bit per word; none if there is only one word.
    pub(super) summary: usize,
    /// Maximum number of words of all bitmaps of a field.
    limit: usize,
}

impl Layout {
    pub(super) fn new(blocks: usize, limit: usize) -> Self {
        let words = blocks.div_ceil(64).max(1);
        Self { words, summary: if words == 1 { 0 } else { words.div_ceil(64) }, limit }
    }

    fn size(self) -> usize {
        self.words + self.summary
    }
}

/// Values of a burst's packets, or what was found for them.
pub(super) type Column = [u32; PACKETS];

/// How a value's range is found.
#[derive(Clone, Debug)]
enum Search {
    /// By comparing it with all starts but the first, in vector registers, which compare signed numbers: the highest
    /// bit is inverted. `Narrow` has values of at most 16 bits.
    Wide(Vec<i32>),
    Narrow(Vec<i16>),
    Table(Table),
}

/// Finds a range by a value's upper bits, then by binary search.
#[derive(Clone, Debug)]
struct Table {
    shift: u32,
    /// Steps of the binary search among ranges with the same upper bits.
    steps: u32,
    /// For each value of the upper bits, the range of the smallest value with these bits.
    tops: Vec<u32>,
    /// First values of ranges, padded for the binary search.
    starts: Vec<u32>,
}

/// The lookup table of a field.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    search: Search,
    /// The offset of each range's bitmap.
    places: Vec<u32>,
    rows: Vec<u64>,
    /// The bitmap for packets in which this field is missing or truncated.
    pub(super) missing: u32,
    pub(super) partial: u32,
}

impl Axis {
    /// `owner` is each area's block, `spans` its ranges.
    pub(super) fn new(
        field: usize,
        starts: &[u32],
        areas: &[Area],
        spans: &[(u32, u32)],
        owner: &[u32],
        layout: Layout,
        breathe: &mut dyn FnMut(),
    ) -> Self {
        let mut rows = Rows::new(layout);
        let row_of = |presence: Presence| {
            let mut row = vec![0; layout.words];
            let fits = areas.iter().zip(owner).filter(|(area, _)| area.presence[field] <= presence);
            fits.for_each(|(_, block)| set(&mut row, *block));
            row
        };
        let incomplete = [Presence::None, Presence::Some].map(|presence| rows.put(&row_of(presence)));
        let mut begins: Vec<(u32, u32)> =
            spans.iter().zip(owner).map(|(span, block)| (span.0, *block)).collect();
        let mut ends: Vec<(u32, u32)> =
            spans.iter().zip(owner).map(|(span, block)| (span.1, *block)).collect();
        for sorted in [&mut begins, &mut ends] {
            breathe();
            sort::by_number(sorted, |(place, block)| u64::from(*place) << 32 | u64::from(*block));
        }
        breathe();
        let together = (starts.len() * layout.size()).div_ceil(layout.limit).max(1);
        let mut counts = vec![0u32; layout.words * 64];
        let mut row = vec![0u64; layout.words];
        let (mut begins, mut ends) = (begins.into_iter().peekable(), ends.into_iter().peekable());
        let (mut kept, mut places): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
        for first in (0..starts.len()).step_by(together) {
            if kept.len() % AT_ONCE == 0 {
                breathe();
            }
            // If ranges were merged, an area that ended in the previous range counts here too.
            while let Some((_, block)) = ends.next_if(|(end, _)| *end as usize <= first) {
                counts[block as usize] -= 1;
                if counts[block as usize] == 0 {
                    row[block as usize / 64] &= !(1 << (block % 64));
                }
            }
            while let Some((_, block)) = begins.next_if(|(begin, _)| (*begin as usize) < first + together) {
                counts[block as usize] += 1;
                set(&mut row, block);
            }
            let place = rows.put(&row);
            if places.last() != Some(&place) {
                kept.push(starts[first]);
                places.push(place);
            }
        }
        let [missing, partial] = incomplete;
        let search = Search::new(kept, greatest(field), &mut places);
        Self { search, places, rows: rows.rows, missing, partial }
    }

    /// The offset of a value's bitmap.
    #[inline]
    pub(super) fn place(&self, value: u32) -> u32 {
        self.places[self.search.range(value)]
    }

    /// The offsets of the bitmaps of a burst's values.
    #[inline]
    pub(super) fn places(&self, values: &Column, count: usize, places: &mut Column) {
        self.search.ranges(values, count, places);
        places[..count].iter_mut().for_each(|place| *place = self.places[*place as usize]);
    }

    /// Leaves in `rows` the bits that are also in the bitmaps, each of one word, of a burst's values.
    #[inline]
    pub(super) fn restrict(&self, values: &Column, count: usize, rows: &mut [u64; PACKETS]) {
        let mut places = [0; PACKETS];
        self.places(values, count, &mut places);
        for (row, place) in rows[..count].iter_mut().zip(&places) {
            *row &= self.rows[*place as usize];
        }
    }

    /// The bitmap of `size` words at an offset.
    #[inline]
    pub(super) fn row(&self, place: u32, size: usize) -> &[u64] {
        &self.rows[place as usize..][..size]
    }

    /// Prefetches the first lines of a bitmap.
    #[inline]
    pub(super) fn prefetch(&self, place: u32) {
        for line in 0..3 {
            if let Some(word) = self.rows.get(place as usize + line * LINE) {
                prefetch(word);
            }
        }
    }

    /// Memory in bytes.
    pub(super) fn memory(&self) -> usize {
        self.search.memory() + 4 * self.places.len() + 8 * self.rows.len()
    }
}

impl Search {
    /// `last` is the field's greatest value. Pads the offsets of bitmaps as the starts are padded.
    fn new(mut starts: Vec<u32>, last: u32, places: &mut Vec<u32>) -> Self {
        if starts.len() <= COMPARED {
            let others = starts.iter().skip(1);
            return if last <= 0xffff {
                Self::Narrow(others.map(|start| narrow(*start)).collect())
            } else {
                Self::Wide(others.map(|start| wide(*start)).collect())
            };
        }
        let width = 32 - starts.last().map_or(0, |last| last.leading_zeros()).min(31);
        let bits = (usize::BITS - (starts.len() * 4).leading_zeros()).clamp(1, TOP_BITS);
        let shift = width.saturating_sub(bits);
        let mut tops: Vec<u32> = Vec::new();
        let mut range = 0;
        let mut most = 0;
        for top in 0..=u64::from(u32::MAX >> (32 - width) >> shift) + 1 {
            let from = range;
            while starts.get(range + 1).is_some_and(|next| u64::from(*next) <= top << shift) {
                range += 1;
            }
            most = most.max(range - from);
            tops.push(range as u32);
        }
        // Values beyond the last start are in the last range.
        let steps = usize::BITS - most.leading_zeros();
        let last = places.last().copied().unwrap_or(0);
        starts.extend(core::iter::repeat_n(u32::MAX, 1 << steps));
        places.extend(core::iter::repeat_n(last, 1 << steps));
        Self::Table(Table { shift, steps, tops, starts })
    }

    /// The range of a value.
    #[inline]
    fn range(&self, value: u32) -> usize {
        match self {
            Self::Wide(starts) => starts.partition_point(|start| *start <= wide(value)),
            Self::Narrow(starts) => starts.partition_point(|start| *start <= narrow(value)),
            Self::Table(table) => table.range(value),
        }
    }

    /// The ranges of a burst's first `count` values.
    #[inline]
    fn ranges(&self, values: &Column, count: usize, ranges: &mut Column) {
        match self {
            Self::Wide(starts) => {
                let less = less::<_, 16>(starts, values, count, wide);
                for (range, less) in ranges.iter_mut().zip(less) {
                    *range = (starts.len() as i32 + less) as u32;
                }
            }
            Self::Narrow(starts) => {
                let less = less::<_, 32>(starts, values, count, narrow);
                for (range, less) in ranges.iter_mut().zip(less) {
                    *range = (starts.len() as i16 + less) as u32;
                }
            }
            Self::Table(table) => {
                for (range, value) in ranges[..count].iter_mut().zip(values) {
                    *range = table.range(*value) as u32;
                }
            }
        }
    }

    fn memory(&self) -> usize {
        match self {
            Self::Wide(starts) => 4 * starts.len(),
            Self::Narrow(starts) => 2 * starts.len(),
            Self::Table(table) => 4 * (table.tops.len() + table.starts.len()),
        }
    }
}

impl Table {
    #[inline]
    fn range(&self, value: u32) -> usize {
        let top = (value >> self.shift) as usize;
        let mut range = self.tops[top.min(self.tops.len() - 1)] as usize;
        for step in (0..self.steps).rev() {
            range += usize::from(self.starts[range + (1 << step)] <= value) << step;
        }
        range
    }
}

/// A value with its highest bit inverted.
#[inline]
fn wide(value: u32) -> i32 {
    (value ^ 1 << 31) as i32
}

#[inline]
fn narrow(value: u32) -> i16 {
    (value ^ 1 << 15) as i16
}

/// For each value, minus the number of starts that it is less than. `LANES` values are compared at once, in registers.
#[inline(always)]
fn less<T, const LANES: usize>(
    starts: &[T],
    values: &Column,
    count: usize,
    signed: impl Fn(u32) -> T,
) -> [T; PACKETS]
where
    T: Copy + Default + From<bool> + PartialOrd + SubAssign,
{
    let mut less = [T::default(); PACKETS];
    let compared = less.as_chunks_mut::<LANES>().0.iter_mut().take(count.div_ceil(LANES));
    for (less, values) in compared.zip(values.as_chunks::<LANES>().0) {
        let (mut own, mut signed_values) = (*less, *less);
        for lane in 0..LANES {
            signed_values[lane] = signed(values[lane]);
        }
        for start in starts {
            for lane in 0..LANES {
                own[lane] -= T::from(*start > signed_values[lane]);
            }
        }
        *less = own;
    }
    less
}

fn set(row: &mut [u64], block: u32) {
    row[block as usize / 64] |= 1 << (block % 64);
}

/// Distinct bitmaps.
struct Rows {
    layout: Layout,
    rows: Vec<u64>,
    by_hash: BTreeMap<u64, u32>,
}

impl Rows {
    fn new(layout: Layout) -> Self {
        Self { layout, rows: Vec::new(), by_hash: BTreeMap::new() }
    }

    /// Stores a bitmap and returns its offset.
    fn put(&mut self, row: &[u64]) -> u32 {
        let Layout { words, summary, .. } = self.layout;
        let key = hash(row);
        if let Some(&place) = self.by_hash.get(&key)
            && self.rows[place as usize + summary..][..words] == *row
        {
            return place;
        }
        let place = self.rows.len();
        self.rows.resize(place + summary, 0);
        for (index, _) in row.iter().enumerate().filter(|(_, word)| summary > 0 && **word != 0) {
            self.rows[place + index / 64] |= 1 << (index % 64);
        }
        self.rows.extend_from_slice(row);
        self.by_hash.insert(key, place as u32);
        place as u32
    }
}

/// The multiplier is 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4).
fn hash(words: &[u64]) -> u64 {
    let mix = |sum: u64, word: &u64| {
        let product = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        product ^ product >> 32
    };
    words.iter().fold(0, mix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_searches_find_the_same_ranges() {
        let spread =
            |count: u32, last: u32| (0..count).map(move |n| (u64::from(last) * u64::from(n) / 200) as u32);
        for last in [0x1ff, 0xffff, u32::MAX] {
            for count in [1, 2, COMPARED as u32, 199] {
                let starts: Vec<u32> = spread(count, last).collect();
                let search = Search::new(starts.clone(), last, &mut Vec::from([0]));
                assert_eq!(matches!(search, Search::Table(_)), count == 199);
                let values = spread(201, last).flat_map(|value| [value.saturating_sub(1), value]);
                let values: Vec<u32> = values.collect();
                for burst in values.chunks(PACKETS - 1) {
                    let (mut column, mut found) = ([0; PACKETS], [0; PACKETS]);
                    column[..burst.len()].copy_from_slice(burst);
                    search.ranges(&column, burst.len(), &mut found);
                    for (value, found) in burst.iter().zip(found) {
                        let expected = starts.partition_point(|start| start <= value) - 1;
                        // The greatest value may be found in padding behind the last range.
                        let last = starts.len() - 1;
                        let both = [search.range(*value), found as usize].map(|range| range.min(last));
                        assert_eq!(both, [expected; 2], "{value}");
                    }
                }
            }
        }
    }
}
