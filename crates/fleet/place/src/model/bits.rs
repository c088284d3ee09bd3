//! A set of rows.

use super::Row;

/// A set of rows, a bit each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
}

impl Bits {
    /// Adds or removes `row`.
    pub fn set(&mut self, row: Row, member: bool) {
        let (word, bit) = (row as usize / 64, row % 64);
        if word >= self.words.len() {
            if !member {
                return;
            }
            self.words.resize(word + 1, 0);
        }
        if member {
            self.words[word] |= 1 << bit;
        } else {
            self.words[word] &= !(1 << bit);
        }
    }

    /// Whether `row` is in the set.
    pub fn has(&self, row: Row) -> bool {
        self.words.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_set_and_cleared() {
        let mut bits = Bits::default();
        bits.set(70, true);
        bits.set(3, false);
        assert!(bits.has(70) && !bits.has(3) && !bits.has(7000) && !bits.is_empty());
        bits.set(70, false);
        assert!(bits.is_empty());
    }
}
