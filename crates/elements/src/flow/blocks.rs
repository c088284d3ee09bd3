//! Numbered entries that never move: allocated in blocks on demand, and reused when free.
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Slots of a block.
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
    /// Number of slots, free ones included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK + last.len())
    }

    /// The slot with this number, if it exists.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        self.blocks.get(number as usize / BLOCK)?.get(number as usize % BLOCK)
    }

    /// The slot with this number, mutably, if it exists.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.blocks.get_mut(number as usize / BLOCK)?.get_mut(number as usize % BLOCK)
    }

    /// All slots, free ones included.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten()
    }

    /// Allocates a slot and returns its number; the slot holds its previous contents.
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

    /// Frees one block's memory; no slot may be accessed afterwards. Returns whether it was the last block.
    pub(crate) fn give_up(&mut self) -> bool {
        self.blocks.pop();
        self.blocks.is_empty()
    }

    /// Frees a slot, which must not be free already; returns its contents.
    pub(crate) fn free(&mut self, number: u32) -> T {
        self.free.push(number);
        core::mem::take(&mut self[number])
    }
}

/// Access to a slot that is known to exist.
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
    fn entries_keep_their_numbers_and_are_reused() {
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
