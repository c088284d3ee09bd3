//! Searches of full tables.

use ringway_click::SECOND;

/// When a full table was last searched for old entries: at most once a second.
///
/// Attack: made-up keys, for each of which the whole table would be searched.
#[derive(Debug, Default)]
pub(crate) struct Search(Option<u64>);

impl Search {
    /// Whether the table may be searched at `now`, in nanoseconds; it counts as searched then.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let is_due = self.0.is_none_or(|last| now.abs_diff(last) >= SECOND);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_searched_once_a_second() {
        let mut search = Search::default();
        let due = [0, SECOND - 1, SECOND, SECOND + 1, 3 * SECOND, SECOND].map(|now| search.is_due(now));
        assert_eq!(due, [true, false, true, false, true, true]);
    }
}
