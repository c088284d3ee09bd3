//! Tests of the IOTLB against a table with one row per address, and against vm-memory's.

use super::{Access, Change, Editor, Lookaside, Lookup, UpdateError};
use crate::memory::{Memory, Region};
use crate::span::{Span, SpanMut};
use crate::translate::{Fault, Translate};
use alloc::sync::Arc;
use core::cell::UnsafeCell;
use core::ptr::NonNull;
use proptest::prelude::*;
use std::sync::OnceLock;

struct Bytes(Box<[UnsafeCell<u8>]>);
// SAFETY: accessed through spans only.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

/// Regions of these lengths with adjacent user addresses; their memory is adjacent only if `joined`.
fn memory(lens: &[usize], joined: bool) -> Arc<Memory> {
    let whole =
        Arc::new(Bytes((0..2 * lens.iter().sum::<usize>()).map(|at| UnsafeCell::new(at as u8)).collect()));
    let (mut at, mut user, mut regions) = (0, USER, Vec::new());
    for &len in lens {
        let host = NonNull::new(whole.0[at].get()).unwrap();
        // SAFETY: `len` bytes from there on are the box's, which the region keeps.
        regions.push(unsafe { Region::new(user, user, len as u64, host, whole.clone()) });
        at += if joined { len } else { 2 * len };
        user += len as u64;
    }
    Arc::new(Memory::new(regions).unwrap())
}

const USER: u64 = 0x7000;
/// Steps of a property test; few under Miri, which is about a hundred times slower.
const STEPS: usize = if cfg!(miri) { 8 } else { 60 };
const SPACE: u64 = 96;
/// Both ends of the address space, where sums wrap.
const BASES: [u64; 2] = [0, u64::MAX - SPACE + 1];

#[derive(Clone, Copy, Debug)]
enum Step {
    Update { iova: u64, size: u64, user: u64, access: u8 },
    Invalidate { iova: u64, size: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let iova = (0..SPACE, 0..2usize).prop_map(|(at, base)| BASES[base] + at);
    let user = 0u64..80;
    prop_oneof![
        3 => (iova.clone(), 0u64..24, user, 1u8..4)
            .prop_map(|(iova, size, user, access)| {
                // The model has no rows after the first space; after the second there are no addresses.
                let size = if iova < SPACE { size.min(SPACE - iova) } else { size };
                Step::Update { iova, size, user: USER + user, access }
            }),
        1 => (iova, prop_oneof![4 => 1u64..40, 1 => Just(0), 1 => Just(u64::MAX)])
            .prop_map(|(iova, size)| Step::Invalidate { iova, size }),
    ]
}

/// Target and permission of an address.
type Row = Option<(u64, u8)>;

struct Model(Vec<Row>);

impl Model {
    fn new() -> Model {
        Model(vec![None; 2 * SPACE as usize])
    }

    fn address(index: usize) -> u64 {
        BASES[index / SPACE as usize] + index as u64 % SPACE
    }

    fn rows(&mut self, first: u64, last: u64) -> impl Iterator<Item = (u64, &mut Row)> {
        let rows = self.0.iter_mut().enumerate().map(|(index, row)| (Model::address(index), row));
        rows.filter(move |(at, _)| first <= *at && *at <= last)
    }
}

/// Applies a step to both; returns whether it was refused.
fn apply(editor: &mut Editor, model: &mut Model, step: Step) -> bool {
    match step {
        Step::Update { iova, size, user, access } => {
            let result = editor.update(iova, size, user, Access::from_bits(access).unwrap());
            let Some(last) = size.checked_sub(1).and_then(|more| iova.checked_add(more)) else {
                assert!(matches!(result, Err(UpdateError::Empty | UpdateError::Wraps)));
                return true;
            };
            if result.is_err() {
                return true;
            }
            let mut changed = Change::None;
            for (at, row) in model.rows(iova, last) {
                let new = Some((user + (at - iova), access));
                match *row {
                    old if old == new => {}
                    Some(_) => changed = Change::Altered,
                    None if changed == Change::None => changed = Change::Granted,
                    None => {}
                }
                *row = new;
            }
            assert_eq!(result, Ok(changed), "{step:?}");
        }
        Step::Invalidate { iova, size } => {
            editor.invalidate(iova, size);
            let (first, last) = match size {
                0 => (0, u64::MAX),
                size => (iova, iova.saturating_add(size - 1)),
            };
            model.rows(first, last).for_each(|(_, row)| *row = None);
        }
    }
    false
}

/// What a reader finds at an address, as an offset into the memory at `user`.
fn found(
    editor: &Editor,
    aside: &mut Lookaside,
    iova: u64,
    len: u32,
    write: bool,
) -> Result<(u64, usize), Fault> {
    let mut lookup = Lookup::of(editor, aside);
    let span = if write { lookup.write(iova, len)?.as_span() } else { lookup.read(iova, len)? };
    let memory = editor.shared().memory();
    let region = memory.regions().iter().find(|region| {
        let offset = span.address().wrapping_sub(region.base().addr().get());
        (offset as u64) < region.len
    });
    let region = region.expect("a span lies in a region");
    Ok((region.user + (span.address() - region.base().addr().get()) as u64, span.len()))
}

fn agree(editor: &Editor, aside: &mut Lookaside, model: &Model) {
    for (index, row) in model.0.iter().enumerate() {
        let iova = Model::address(index);
        for (write, bit) in [(false, 1), (true, 2)] {
            let granted = row.filter(|(_, access)| access & bit != 0).map(|(user, _)| user);
            let result = found(editor, aside, iova, 7, write);
            assert_eq!(result.map(|(user, _)| user).ok(), granted, "{iova:#x} write {write}");
            let Ok((user, len)) = result else { continue };
            assert!((1..=7).contains(&len));
            for step in 0..len as u64 {
                let row = model.0[index + step as usize];
                let same = row.is_some_and(|(at, access)| at == user + step && access & bit != 0);
                assert!(same, "{iova:#x} + {step}");
            }
        }
    }
}

/// Checks that no two adjacent entries could be merged.
fn is_merged(editor: &Editor) {
    let entries: Vec<_> = editor.map().entries().collect();
    for pair in entries.windows(2) {
        assert!(pair[0].last < pair[1].first);
        let touch = pair[0].last + 1 == pair[1].first
            && pair[0].access == pair[1].access
            && pair[0].region == pair[1].region
            && pair[0].offset + (pair[0].last - pair[0].first) + 1 == pair[1].offset;
        assert!(!touch, "{pair:?}");
    }
    assert_eq!(entries.len(), editor.map().len());
}

fn shape(found: &Result<SpanMut<'_>, Fault>) -> Result<(usize, usize), Fault> {
    found.map(|span| (span.as_span().address(), span.len()))
}

proptest! {
    #[test]
    fn the_iotlb_equals_a_table_with_a_row_per_address(
        steps in proptest::collection::vec(step(), 1..STEPS),
        joined in any::<bool>(),
    ) {
        let mut editor = Editor::new(memory(&[32, 16, 64], joined), 1 << 16);
        let (mut model, mut aside) = (Model::new(), Lookaside::default());
        for step in steps {
            apply(&mut editor, &mut model, step);
            agree(&editor, &mut aside, &model);
            is_merged(&editor);
        }
    }

    #[test]
    fn an_entry_limit_only_evicts(steps in proptest::collection::vec(step(), 1..STEPS), most in 1usize..8) {
        let mut editor = Editor::new(memory(&[112], false), most);
        let (mut model, mut aside) = (Model::new(), Lookaside::default());
        for step in steps {
            let refused = apply_bounded(&mut editor, &mut model, step);
            prop_assert!(editor.map().len() <= most);
            is_merged(&editor);
            if let (Step::Update { iova, access, .. }, false) = (step, refused) {
                let known = editor.grants(iova, Access::from_bits(access).unwrap());
                prop_assert_eq!(known, Some(true), "a new mapping is known");
            }
            for (index, row) in model.0.iter().enumerate() {
                let iova = Model::address(index);
                if let Ok((user, _)) = found(&editor, &mut aside, iova, 1, false) {
                    prop_assert_eq!(row.map(|(at, _)| at), Some(user));
                }
            }
        }
    }

    #[test]
    fn cached_translations_equal_the_iotlb(
        steps in proptest::collection::vec((step(), 0..SPACE, 0u32..9, any::<bool>()), 1..STEPS),
        is_large in any::<bool>(),
    ) {
        // Units of half a page, or an eighth of a block, so that some units are fully mapped and some are
        // not.
        let is_large = is_large && !cfg!(miri);
        let unit: u64 = if is_large { 1 << 18 } else { 2048 };
        static MEMORIES: [OnceLock<Arc<Memory>>; 2] = [OnceLock::new(), OnceLock::new()];
        let memory = MEMORIES[usize::from(is_large)]
            .get_or_init(|| memory(&[40 * unit as usize, 70 * unit as usize], true));
        let mut editor = Editor::new(memory.clone(), 1 << 16);
        let mut aside = Lookaside::default();
        for (step, at, len, write) in steps {
            match step {
                Step::Update { iova, size, user, access } => {
                    let user = USER + (user - USER) * unit;
                    let access = Access::from_bits(access).unwrap();
                    let _ = editor.update((iova % SPACE) * unit, size * unit, user, access);
                }
                Step::Invalidate { iova, size } => {
                    editor.invalidate((iova % SPACE) * unit, size.saturating_mul(unit));
                }
            }
            for at in (at..at + 16).map(|at| at % SPACE) {
                let (iova, len) = (at * unit + u64::from(len), len * 1500);
                let known = found(&editor, &mut aside, iova, len, write);
                prop_assert_eq!(known, found(&editor, &mut Lookaside::default(), iova, len, write));
                // The result of `keep` by an earlier lookup, perhaps for another address, and by this one.
                let place = (at % 8) as usize;
                let mut lookup = Lookup::of(&editor, &mut aside);
                for again in [lookup.write_kept(place, iova, len), {
                    let kept = lookup.keep(place, iova, len);
                    let written = lookup.write_kept(place, iova, len);
                    prop_assert_eq!(kept.map(Span::address), written.map(|span| span.as_span().address()));
                    prop_assert_eq!(kept.map(Span::len), written.map(SpanMut::len));
                    written
                }] {
                    let fresh = &mut Lookaside::default();
                    prop_assert_eq!(shape(&again), shape(&Lookup::of(&editor, fresh).write(iova, len)));
                }
            }
        }
    }

    #[test]
    fn results_equal_those_of_vm_memory(steps in proptest::collection::vec(step(), 1..STEPS)) {
        use vm_memory::{GuestAddress, Permissions};
        use vm_memory::iommu::Iotlb;
        let mut editor = Editor::new(memory(&[112], false), 1 << 16);
        let (mut other, mut aside) = (Iotlb::new(), Lookaside::default());
        for step in steps {
            match step {
                Step::Update { iova, size, user, access } if iova < 1 << 40 => {
                    if editor.update(iova, size, user, Access::from_bits(access).unwrap()).is_ok() {
                        let access = [Permissions::Read, Permissions::Write, Permissions::ReadWrite]
                            [usize::from(access) - 1];
                        let (iova, user) = (GuestAddress(iova), GuestAddress(user));
                        other.set_mapping(iova, user, size as usize, access).unwrap();
                    }
                }
                Step::Invalidate { iova, size } if iova < 1 << 40 && size < 1 << 40 && size > 0 => {
                    editor.invalidate(iova, size);
                    other.invalidate_mapping(GuestAddress(iova), size as usize);
                }
                _ => {}
            }
            for iova in 0..SPACE + 24 {
                for (write, access) in [(false, Permissions::Read), (true, Permissions::Write)] {
                    let theirs = Iotlb::lookup(&other, GuestAddress(iova), 1, access).ok();
                    let theirs = theirs.and_then(|mut ranges| ranges.next()).map(|range| range.base.0);
                    let ours = found(&editor, &mut aside, iova, 1, write).ok().map(|(user, _)| user);
                    prop_assert_eq!(ours, theirs, "{:#x} write {}", iova, write);
                }
            }
        }
    }

    #[test]
    fn rings_are_translated_contiguously_or_not_at_all(
        steps in proptest::collection::vec(step(), 1..STEPS),
        at in 0..SPACE,
        len in 1u32..40,
    ) {
        let mut editor = Editor::new(memory(&[32, 16, 64], false), 1 << 16);
        let mut model = Model::new();
        for step in steps {
            apply(&mut editor, &mut model, step);
        }
        if at + u64::from(len) <= SPACE {
            let rows = &model.0[at as usize..][..len as usize];
            let regions = [USER, USER + 32, USER + 48];
            let region = |user| regions.iter().rposition(|&begin| begin <= user);
            let together = rows.iter().enumerate().all(|(step, row)| match (row, rows[0]) {
                (Some((user, 3)), Some((first, _))) => {
                    *user == first + step as u64 && region(*user) == region(first)
                }
                _ => false,
            });
            prop_assert_eq!(editor.keep(at, len, Access::BOTH).is_some(), together);
            let parts = editor.parts(at, len, Access::BOTH);
            prop_assert_eq!(parts.is_some(), rows.iter().all(|row| matches!(row, Some((_, 3)))));
            let bytes = parts.iter().flatten();
            let bytes = bytes.flat_map(|(region, offset, len)| {
                let first = region.user + offset;
                first..first + len
            });
            let users = rows.iter().filter_map(|row| row.map(|(user, _)| user)).filter(|_| parts.is_some());
            prop_assert!(bytes.eq(users));
            let mut missing = Vec::new();
            editor.missing(at, len, Access::BOTH, |at| missing.push(at));
            prop_assert_eq!(missing.is_empty(), rows.iter().all(|row| matches!(row, Some((_, 3)))));
        }
    }
}

/// With few entries a mapping may have been evicted, so the reported change is not checked.
fn apply_bounded(editor: &mut Editor, model: &mut Model, step: Step) -> bool {
    match step {
        Step::Update { iova, size, user, access } => {
            if editor.update(iova, size, user, Access::from_bits(access).unwrap()).is_err() {
                return true;
            }
            model
                .rows(iova, iova + (size - 1))
                .for_each(|(at, row)| *row = Some((user + (at - iova), access)));
            false
        }
        step => apply(editor, model, step),
    }
}

#[test]
fn many_entries_stay_in_order_and_in_chunks() {
    let pages = if cfg!(miri) { 300 } else { 3000u64 };
    let memory = memory(&[1 << 14], false);
    let mut editor = Editor::new(memory, 1 << 16);
    // Every other byte, so that no entries merge, in a shuffled order.
    for step in 0..pages {
        let at = step * 1237 % pages;
        assert_eq!(editor.update(2 * at, 1, USER + at, Access::BOTH), Ok(Change::Granted));
    }
    let (fullest, chunks) = editor.map().shape();
    assert_eq!(editor.map().len() as u64, pages);
    assert!(fullest <= 128 && chunks <= 100, "{fullest} in one of {chunks}");
    let mut aside = Lookaside::default();
    for at in 0..pages {
        assert_eq!(found(&editor, &mut aside, 2 * at, 2, true), Ok((USER + at, 1)));
        assert_eq!(found(&editor, &mut aside, 2 * at + 1, 2, true), Err(Fault::Miss));
    }
    for at in (0..pages).filter(|at| at % 100 != 0) {
        editor.invalidate(2 * at, 1);
    }
    let (_, chunks) = editor.map().shape();
    assert!(chunks <= 2, "{chunks}");
    editor.invalidate(0, 2 * pages);
    assert!(editor.map().is_empty());
}

#[test]
fn an_invalidated_range_misses_although_cached() {
    let memory = memory(&[64], false);
    let mut editor = Editor::new(memory.clone(), 4);
    let mut aside = Lookaside::default();
    editor.update(0, 64, USER, Access::READ).unwrap();
    assert!(found(&editor, &mut aside, 8, 8, false).is_ok());
    assert_eq!(found(&editor, &mut aside, 8, 8, true), Err(Fault::Miss));
    assert_eq!((aside.missed().len(), aside.missed()[0].iova), (1, 8));
    editor.invalidate(10, 1);
    assert_eq!(found(&editor, &mut aside, 8, 8, false), Ok((USER + 8, 2)));
    assert_eq!(found(&editor, &mut aside, 10, 1, false), Err(Fault::Miss));
    assert_eq!(found(&editor, &mut aside, 11, 1, false), Ok((USER + 11, 1)));
    // Another IOTLB, possibly of other memory.
    let other = Editor::new(memory, 4);
    assert_eq!(found(&other, &mut aside, 11, 1, false), Err(Fault::Miss));
}

#[test]
fn evicted_ranges_are_dropped_from_caches() {
    let mut editor = Editor::new(memory(&[128], false), 4);
    let mut aside = Lookaside::default();
    for (round, user) in (0..20u64).zip([USER, USER + 64].into_iter().cycle()) {
        // The range is unknown, so the update reports no alteration.
        assert_eq!(editor.update(0, 16, user, Access::BOTH), Ok(Change::Granted));
        assert_eq!(found(&editor, &mut aside, 0, 8, true), Ok((user, 8)), "round {round}");
        let mut others = (1..).map(|number| 100 * (1000 * round + number));
        while editor.grants(0, Access::BOTH).is_some() {
            editor.update(others.next().unwrap(), 1, USER, Access::READ).unwrap();
        }
    }
}

#[test]
fn batched_reads_equal_single_reads_up_to_the_first_miss() {
    let memory = memory(&[64, 64], false);
    let mut editor = Editor::new(memory, 16);
    editor.update(0, 16, USER, Access::READ).unwrap();
    editor.update(16, 16, USER + 40, Access::BOTH).unwrap();
    editor.update(40, 8, USER + 8, Access::WRITE).unwrap();
    let ranges = [(2, 4), (0, 16), (14, 4), (16, 16), (3, 1), (31, 9), (18, 0), (4, 4)];
    let mut aside = Lookaside::default();
    for _ in 0..2 {
        let mut spans = [Span::empty(); 8];
        let before = aside.hits;
        let all = Lookup::of(&editor, &mut aside).read_all(ranges.into_iter(), &mut spans);
        assert_eq!(all, (6, Err(Fault::Outside)), "a length of 0 is no range");
        assert_eq!(aside.hits - before, 6);
        for (span, (iova, len)) in spans.iter().zip(&ranges[..6]) {
            let mut alone = Lookaside::default();
            let alone = Lookup::of(&editor, &mut alone).read(*iova, *len).unwrap();
            assert_eq!((span.address(), span.len()), (alone.address(), alone.len()), "{iova}");
        }
        let lens = spans.map(|span| span.len());
        assert_eq!(lens, [4, 16, 2, 16, 1, 1, 0, 0]);
    }
    assert!(aside.missed().is_empty());
    // Write-only ranges, unmapped ranges, and ranges that were unmapped again.
    let mut all = |editor: &Editor, ranges: [(u64, u32); 3]| {
        aside.forget_missed();
        let found = Lookup::of(editor, &mut aside).read_all(ranges.into_iter(), &mut [Span::empty(); 3]);
        (found, aside.missed().first().map(|missed| missed.iova))
    };
    assert_eq!(all(&editor, [(0, 1), (40, 4), (1, 1)]), ((1, Err(Fault::Miss)), Some(40)));
    assert_eq!(all(&editor, [(0, 1), (17, 4), (32, 1)]), ((2, Err(Fault::Miss)), Some(32)));
    assert_eq!(all(&editor, [(17, 4), (0, 1), (18, 4)]), ((3, Ok(())), None));
    editor.invalidate(0, 1);
    assert_eq!(all(&editor, [(17, 4), (1, 1), (0, 1)]), ((2, Err(Fault::Miss)), Some(0)));
}

#[test]
fn cached_translations_last_for_their_turn_only() {
    let mut editor = Editor::new(memory(&[8192], false), 16);
    editor.update(0, 8192, USER, Access::BOTH).unwrap();
    let iotlb = editor.shared().clone();
    let mut reader = crate::turn::Reader::register().unwrap();
    let mut aside = Lookaside::default();
    let turn = reader.turn(1);
    assert!(Lookup::new(&iotlb, &turn, &mut aside).read(100, 8).is_ok());
    editor.invalidate(0, 8192);
    assert!(Lookup::new(&iotlb, &turn, &mut aside).write(100, 8).is_ok(), "it was reserved in this turn");
    let turn = reader.turn(1);
    assert_eq!(Lookup::new(&iotlb, &turn, &mut aside).read(100, 8).err(), Some(Fault::Miss));
    drop(reader);
    for map in editor.retired().drain(..) {
        // SAFETY: there are no readers any more.
        drop(unsafe { map.into_inner() });
    }
}

#[test]
fn requested_misses_are_recorded_once_and_bounded() {
    let mut editor = Editor::new(memory(&[8192], false), 16);
    editor.update(0x1000, 0x1000, USER, Access::BOTH).unwrap();
    let mut aside = Lookaside::default();
    Lookup::of(&editor, &mut aside).record_misses(0xf00, 0x2200, false);
    let missed: Vec<u64> = aside.missed().iter().map(|missed| missed.iova).collect();
    assert_eq!(missed, [0xf00, 0x2000, 0x3000]);
    Lookup::of(&editor, &mut aside).record_misses(1 << 40, u32::MAX, true);
    assert_eq!(aside.missed().len(), super::MISSED);
    aside.forget_missed();
    assert!(aside.missed().is_empty());
}
