//! Numbered entries that never move: allocated in blocks on demand, and reused when free.
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

/// Slots of the first block.
const FIRST: usize = 1024;
/// Slots of each further one. The addresses of the blocks of a million slots fit into a few kilobytes of the cache.
const BLOCK: usize = 4096;

/// The block of a slot, and its place there.
#[inline]
fn place(number: u32) -> (usize, usize) {
    let number = number as usize;
    match number.checked_sub(FIRST) {
        None => (0, number),
        Some(further) => (1 + further / BLOCK, further % BLOCK),
    }
}

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
        match self.blocks.as_slice() {
            [] => 0,
            [first] => first.len(),
            [.., last] => FIRST + (self.blocks.len() - 2) * BLOCK + last.len(),
        }
    }

    /// The slot with this number, if it exists.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let (block, slot) = place(number);
        self.blocks.get(block)?.get(slot)
    }

    /// The slot with this number, mutably, if it exists.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let (block, slot) = place(number);
        self.blocks.get_mut(block)?.get_mut(slot)
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
        let number = self.len() as u32;
        let (block, slot) = place(number);
        if slot == 0 {
            self.blocks.push(Vec::with_capacity(if block == 0 { FIRST } else { BLOCK }));
        }
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
        let (block, slot) = place(number);
        &self.blocks[block][slot]
    }
}

impl<T> IndexMut<u32> for Blocks<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        let (block, slot) = place(number);
        &mut self.blocks[block][slot]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_keep_their_numbers_and_are_reused() {
        let mut blocks = Blocks::default();
        for expected in 0..20_000 {
            let number = blocks.take();
            assert_eq!(number, expected);
            blocks[number] = number + 1;
        }
        assert_eq!((blocks.len(), blocks.get(19_999), blocks.get(20_000)), (20_000, Some(&20_000), None));
        assert_eq!((blocks.free(5), blocks[5], blocks.take(), blocks.len()), (6, 0, 5, 20_000));
        assert_eq!(blocks.iter().filter(|value| **value > 0).count(), 19_999);
        assert!((6..20_000).all(|number| blocks[number] == number + 1));
    }
}
