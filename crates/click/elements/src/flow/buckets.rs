//! Buckets of a hash table, each the head of a chain. They grow without a pause: the number doubles when there are too
//! few, and each insertion moves a few chains of the old buckets.
use ringway_click::prelude::*;

/// Initial number of buckets.
const FIRST: usize = 64;
/// Old chains to move whenever an entry is added.
pub(crate) const MOVES: usize = 8;

/// The owner defines the meaning of a chain's head; 0 means an empty chain.
#[derive(Debug)]
pub(crate) struct Buckets {
    heads: Vec<u32>,
    old: Vec<u32>,
    moved: usize,
}

impl Default for Buckets {
    fn default() -> Self {
        Self { heads: vec![0; FIRST], old: Vec::new(), moved: 0 }
    }
}

impl Buckets {
    /// The head of the chain for a hash.
    #[inline]
    pub(crate) fn get(&self, hash: u64) -> &u32 {
        if !self.old.is_empty() {
            let bucket = hash as usize & (self.old.len() - 1);
            if bucket >= self.moved {
                return &self.old[bucket];
            }
        }
        &self.heads[hash as usize & (self.heads.len() - 1)]
    }

    /// The head of the chain for a hash, mutably.
    #[inline]
    pub(crate) fn get_mut(&mut self, hash: u64) -> &mut u32 {
        if !self.old.is_empty() {
            let bucket = hash as usize & (self.old.len() - 1);
            if bucket >= self.moved {
                return &mut self.old[bucket];
            }
        }
        let bucket = hash as usize & (self.heads.len() - 1);
        &mut self.heads[bucket]
    }

    /// Empties all chains, whose entries the caller must insert again.
    pub(crate) fn clear(&mut self) {
        self.heads.fill(0);
        (self.old, self.moved) = (Vec::new(), 0);
    }

    /// Removes an old chain, whose entries the caller must insert again; `None` if no old chain is left.
    pub(crate) fn next_old(&mut self) -> Option<u32> {
        let head = core::mem::take(self.old.get_mut(self.moved)?);
        self.moved += 1;
        if self.moved == self.old.len() {
            (self.old, self.moved) = (Vec::new(), 0);
        }
        Some(head)
    }

    /// Doubles the buckets if there are fewer than `wanted` and no old chain is left to move.
    pub(crate) fn provide(&mut self, wanted: usize) {
        if self.old.is_empty() && wanted > self.heads.len() {
            let more = vec![0; self.heads.len() * 2];
            self.old = core::mem::replace(&mut self.heads, more);
        }
    }
}
