//! The remaining hosts, and the filters that removed the others.

use super::Context;
use crate::model::{Need, Row};

/// One byte per host: 0 if it remains, or else the number of the filter that removed it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    verdicts: Vec<u8>,
    left: u32,
    current: u8,
}

/// Marks a free row.
const NOBODY: u8 = u8::MAX;

impl Kept {
    /// Keeps every host that exists.
    pub fn all(&mut self, present: &[bool]) {
        self.verdicts.clear();
        self.verdicts.extend(present.iter().map(|present| if *present { 0 } else { NOBODY }));
        self.left = present.iter().filter(|present| **present).count() as u32;
        self.current = 1;
    }

    /// Attributes the following removals to filter number `filter`, from 0.
    pub fn begin(&mut self, filter: usize) {
        self.current = (filter + 1).min(usize::from(NOBODY) - 1) as u8;
    }

    /// Number of rows, including free ones.
    pub fn len(&self) -> usize {
        self.verdicts.len()
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.verdicts.is_empty()
    }

    /// Number of remaining hosts.
    pub fn left(&self) -> u32 {
        self.left
    }

    /// The number of the filter that removed a host, from 0.
    pub fn removed_by(&self, row: Row) -> Option<usize> {
        match self.verdicts.get(row as usize) {
            None | Some(0 | &NOBODY) => None,
            Some(filter) => Some(usize::from(*filter) - 1),
        }
    }

    /// Whether a host remains.
    pub fn has(&self, row: Row) -> bool {
        self.verdicts.get(row as usize) == Some(&0)
    }

    /// Removes a host.
    pub fn remove(&mut self, row: Row) {
        if let Some(verdict @ 0) = self.verdicts.get_mut(row as usize) {
            *verdict = self.current;
            self.left -= 1;
        }
    }

    /// Removes hosts for which `wrong` is true.
    pub fn reject(&mut self, wrong: impl Fn(Row) -> bool) {
        let mut removed = 0;
        for (row, verdict) in self.verdicts.iter_mut().enumerate() {
            if *verdict == 0 && wrong(row as Row) {
                removed += 1;
                *verdict = self.current;
            }
        }
        self.left -= removed;
    }

    /// Removes hosts for which `wrong`, in order of rows, is true. Both loops compile to vector instructions if
    /// `wrong` compares columns: most of a decision's time is spent here.
    pub fn reject_each(&mut self, wrong: impl Iterator<Item = bool>) {
        let current = self.current;
        for (verdict, wrong) in self.verdicts.iter_mut().zip(wrong) {
            *verdict |= if wrong & (*verdict == 0) { current } else { 0 };
        }
        self.left = self.verdicts.iter().map(|verdict| u32::from(*verdict == 0)).sum();
    }

    /// Removes hosts whose `figures`, in order of rows, are `wrong` for the group's needs there: VMs of the
    /// group that already run on a host need nothing more there.
    pub fn reject_need<F: Copy>(
        &mut self,
        context: &Context<'_>,
        figures: impl Iterator<Item = F> + Clone,
        wrong: impl Fn(F, &Need) -> bool,
    ) {
        let spared: Vec<Row> = context.sources().filter(|row| self.has(*row)).collect();
        let need = context.need;
        self.reject_each(figures.clone().map(|figures| wrong(figures, &need)));
        for row in spared {
            // The host remains unless its own needs are wrong.
            if let Some(verdict) = self.verdicts.get_mut(row as usize).filter(|verdict| **verdict != 0) {
                *verdict = 0;
                self.left += 1;
            }
            let need = context.need_on(row);
            if need.count > 0 && figures.clone().nth(row as usize).is_some_and(|own| wrong(own, &need)) {
                self.remove(row);
            }
        }
    }

    /// The remaining hosts.
    pub fn rows(&self, rows: &mut Vec<Row>) {
        rows.clear();
        rows.resize(self.left as usize + 1, 0);
        let mut count = 0;
        for (row, verdict) in self.verdicts.iter().enumerate() {
            // Without a branch: the place after the last host is written and overwritten.
            rows[count] = row as Row;
            count += usize::from(*verdict == 0);
        }
        rows.truncate(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_filter_that_removes_a_host_is_remembered() {
        let mut kept = Kept::default();
        kept.all(&[true, true, false, true]);
        kept.begin(0);
        kept.reject(|row| row == 1 || row == 2);
        kept.begin(4);
        kept.reject(|row| row >= 1);
        let mut rows = Vec::new();
        kept.rows(&mut rows);
        assert_eq!((rows.as_slice(), kept.left()), (&[0][..], 1));
        assert_eq!(
            (0..4).map(|row| kept.removed_by(row)).collect::<Vec<_>>(),
            [None, Some(0), None, Some(4)]
        );
    }

    proptest::proptest! {
        #[test]
        fn columns_reject_as_single_rows_do(
            filters in proptest::collection::vec(proptest::collection::vec(proptest::bool::ANY, 70), 1..4),
            present in proptest::collection::vec(proptest::bool::ANY, 70),
        ) {
            let (mut single, mut columns) = (Kept::default(), Kept::default());
            single.all(&present);
            columns.all(&present);
            for (index, wrong) in filters.iter().enumerate() {
                single.begin(index);
                single.reject(|row| wrong[row as usize]);
                columns.begin(index);
                columns.reject_each(wrong.iter().copied());
                proptest::prop_assert_eq!(&single, &columns);
                let mut rows = Vec::new();
                columns.rows(&mut rows);
                let kept: Vec<Row> = (0..70).filter(|row| columns.has(*row)).collect();
                proptest::prop_assert_eq!((&rows, rows.len()), (&kept, columns.left() as usize));
            }
        }
    }
}
