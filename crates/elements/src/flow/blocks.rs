//! Places that never move, by number: blocks of them, made as they are needed, and given out again when they are
//! free.
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Places of a block.
const BLOCK: usize = 1024;

#[derive(Debug)]
pub(crate) struct Blocks<T> {
    blocks: Vec<Vec<T>>,
    free: Vec<u32>,
}

impl<T> Default for Blocks<T> {
    fn default() -> Self {
        Self { blocks: Vec::new(), free: Vec::new() }
    }
}

impl<T: Default> Blocks<T> {
    /// How many places there are, free ones included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK + last.len())
    }

    /// A place, if there is one of this number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.blocks.get(number as usize / BLOCK)?.get(number as usize % BLOCK)
    }

    /// The same, to change.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.blocks.get_mut(number as usize / BLOCK)?.get_mut(number as usize % BLOCK)
    }

    /// All, free ones included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten()
    }

    /// The number of a place to use; it holds what was put there last.
    pub(crate) fn take(&mut self) -> u32 {
        if let Some(number) = self.free.pop() {
            return number;
        }
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push(Vec::with_capacity(BLOCK));
        }
        let number = self.len() as u32;
        if let Some(block) = self.blocks.last_mut() {
            block.push(T::default());
        }
        number
    }

    /// Lets go of a block; no place must be asked for any more. Whether that was the last.
    pub(crate) fn give_up(&mut self) -> bool {
        self.blocks.pop();
        self.blocks.is_empty()
    }

    /// Makes a place free, which must not be it already; what it held.
    pub(crate) fn free(&mut self, number: u32) -> T {
        self.free.push(number);
        core::mem::take(&mut self[number])
    }
}

/// A place that is known to be there.
impl<T> Index<u32> for Blocks<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        &self.blocks[number as usize / BLOCK][number as usize % BLOCK]
    }
}

impl<T> IndexMut<u32> for Blocks<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.blocks[number as usize / BLOCK][number as usize % BLOCK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_stay_and_come_again() {
        let mut blocks = Blocks::default();
        for expected in 0..3000 {
            let number = blocks.take();
            assert_eq!(number, expected);
            blocks[number] = number + 1;
        }
        assert_eq!((blocks.len(), blocks.get(2999), blocks.get(3000)), (3000, Some(&3000), None));
        assert_eq!((blocks.free(5), blocks[5], blocks.take(), blocks.len()), (6, 0, 5, 3000));
        assert_eq!(blocks.iter().filter(|value| **value > 0).count(), 2999);
    }
}
