//! Sets of elements that are joined step by step (union-find; Tarjan 1975).
use alloc::vec::Vec;

pub(super) struct Parts {
    above: Vec<u32>,
}

impl Parts {
    /// Each element is its own part.
    pub(super) fn new(count: usize) -> Self {
        Self { above: (0..count as u32).collect() }
    }

    /// The representative of an element's part: its first element.
    pub(super) fn of(&mut self, element: usize) -> usize {
        let mut at = element;
        while self.above[at] as usize != at {
            let above = self.above[at] as usize;
            self.above[at] = self.above[above];
            at = above;
        }
        at
    }

    pub(super) fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.of(one), self.of(other));
        self.above[one.max(other)] = one.min(other) as u32;
    }
}
