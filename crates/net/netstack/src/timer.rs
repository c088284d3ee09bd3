//! Deadlines of sockets: a binary heap with the position of each socket, so that a deadline is exact to the
//! nanosecond, changes in O(log n), and leaves nothing behind when it changes.

use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

/// At most one deadline for each number.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    heap: Vec<(u64, u32)>,
    place: Vec<u32>,
}

impl Timers {
    /// Sets or clears the deadline of `number`.
    pub(crate) fn set(&mut self, number: u32, deadline: Option<u64>) {
        let index = number as usize;
        if self.place.len() <= index {
            self.place.resize(index + 1, NONE);
        }
        let at = self.place[index];
        match (at, deadline) {
            (NONE, None) => {}
            (NONE, Some(deadline)) => {
                self.heap.push((deadline, number));
                self.place[index] = self.heap.len() as u32 - 1;
                self.up(self.heap.len() - 1);
            }
            (at, Some(deadline)) => {
                let at = at as usize;
                if self.heap[at].0 != deadline {
                    self.heap[at].0 = deadline;
                    let at = self.up(at);
                    self.down(at);
                }
            }
            (at, None) => self.remove(at as usize),
        }
    }

    /// The earliest deadline.
    pub(crate) fn next(&self) -> Option<u64> {
        self.heap.first().map(|&(deadline, _)| deadline)
    }

    /// Removes the earliest deadline if it is not after `now`.
    pub(crate) fn pop(&mut self, now: u64) -> Option<u32> {
        let &(deadline, number) = self.heap.first()?;
        (deadline <= now).then(|| {
            self.remove(0);
            number
        })
    }

    /// Moves the deadline of `number` to `least` if it is before that.
    pub(crate) fn postpone(&mut self, number: u32, least: u64) {
        let at = self.place.get(number as usize).copied().unwrap_or(NONE);
        if self.heap.get(at as usize).is_some_and(|&(deadline, _)| deadline < least) {
            self.set(number, Some(least));
        }
    }

    fn remove(&mut self, at: usize) {
        let (_, number) = self.heap.swap_remove(at);
        self.place[number as usize] = NONE;
        if at < self.heap.len() {
            self.place[self.heap[at].1 as usize] = at as u32;
            let at = self.up(at);
            self.down(at);
        }
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.place[self.heap[a].1 as usize] = a as u32;
        self.place[self.heap[b].1 as usize] = b as u32;
    }

    fn up(&mut self, mut at: usize) -> usize {
        while at > 0 && self.heap[at] < self.heap[(at - 1) / 2] {
            self.swap(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
        at
    }

    fn down(&mut self, mut at: usize) {
        loop {
            let child = 2 * at + 1;
            if child >= self.heap.len() {
                return;
            }
            let right = child + 1 < self.heap.len() && self.heap[child + 1] < self.heap[child];
            let least = child + usize::from(right);
            if self.heap[at] <= self.heap[least] {
                return;
            }
            self.swap(at, least);
            at = least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn only_a_deadline_that_is_earlier_is_postponed() {
        let mut timers = Timers::default();
        timers.postpone(0, 5);
        assert_eq!(timers.next(), None);
        timers.set(0, Some(3));
        timers.set(1, Some(7));
        for number in 0..3 {
            timers.postpone(number, 5);
        }
        assert_eq!((timers.pop(4), timers.next()), (None, Some(5)));
        assert_eq!([timers.pop(6), timers.pop(6), timers.pop(7)], [Some(0), None, Some(1)]);
    }

    proptest! {
        #[test]
        fn deadlines_equal_a_map(
            steps in prop::collection::vec((0u32..20, prop::option::of(0u64..50)), 0..200),
        ) {
            let (mut timers, mut model) = (Timers::default(), BTreeMap::new());
            for (number, deadline) in steps {
                timers.set(number, deadline);
                match deadline {
                    Some(deadline) => model.insert(number, deadline),
                    None => model.remove(&number),
                };
                prop_assert_eq!(timers.next(), model.values().min().copied());
            }
            for now in 0..50 {
                while let Some(number) = timers.pop(now) {
                    prop_assert_eq!(model.remove(&number), Some(now));
                }
            }
            prop_assert!(model.is_empty());
        }
    }
}
