//! The remaining hosts, and the filters that removed the others.

use super::Context;
use crate::model::{Need, Row};

/// One byte per host: 0 if it remains, or else the number of the filter that removed it.
#[derive(Clone, Debug, Default)]
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
            // Branch-free, since most of a decision's time is spent in this loop.
            let now = *verdict == 0 && wrong(row as Row);
            removed += u32::from(now);
            *verdict = if now { self.current } else { *verdict };
        }
        self.left -= removed;
    }

    /// Removes hosts for which `wrong` is true, given the group's needs there: VMs of the group that already
    /// run on a host need nothing more there.
    pub fn reject_need(&mut self, context: &Context<'_>, wrong: impl Fn(usize, &Need) -> bool) {
        let spared: Vec<Row> = context.sources().filter(|row| self.has(*row)).collect();
        let need = context.need;
        if spared.is_empty() {
            return self.reject(|row| wrong(row as usize, &need));
        }
        self.reject(|row| wrong(row as usize, &need) && !spared.contains(&row));
        for row in spared {
            let need = context.need_on(row);
            if need.count > 0 && wrong(row as usize, &need) {
                self.remove(row);
            }
        }
    }

    /// The remaining hosts.
    pub fn rows(&self, rows: &mut Vec<Row>) {
        rows.clear();
        rows.extend((0..self.verdicts.len() as Row).filter(|row| self.verdicts[*row as usize] == 0));
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
}
