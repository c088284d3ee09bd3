//! Bugs that tests plant, to show that their checks find them. Only test builds have this module.

use std::cell::Cell;

/// A bug of the thread that planted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plant {
    /// Every other frame is written without a mark in the dirty log.
    UnmarkedFrame,
    /// Translations are not removed when they are invalidated.
    StaleTranslation,
    /// Every other burst is delivered and not released.
    UnreleasedFrames,
}

thread_local! {
    static PLANTED: Cell<Option<Plant>> = const { Cell::new(None) };
    static OCCASIONS: Cell<u64> = const { Cell::new(0) };
}

/// Plants a bug, or none.
pub(super) fn plant(what: Option<Plant>) {
    PLANTED.set(what);
    OCCASIONS.set(0);
}

/// Whether a bug of this kind is due now.
pub(super) fn strikes(what: Plant) -> bool {
    if PLANTED.get() != Some(what) {
        return false;
    }
    OCCASIONS.set(OCCASIONS.get() + 1);
    what == Plant::StaleTranslation || OCCASIONS.get().is_multiple_of(2)
}
