//! The shift of TCP sequence numbers when rewriting changes the payload's length.
use alloc::vec::Vec;

/// Shifts remembered in a direction. Attack: a sender whose payload is rewritten again and again.
const MOST: usize = 32;
/// Shifts this far behind the current sequence number are removed.
const FAR: u32 = 1 << 30;

/// Shifts in both directions of a connection.
#[derive(Clone, Debug, Default)]
pub struct Shifts {
    ways: [Way; 2],
}

/// The shifts of one direction.
#[derive(Clone, Debug, Default)]
struct Way {
    /// The shift before the first entry of `list`.
    base: u32,
    /// Sequence numbers and the shift from each on, the latest last.
    list: Vec<(u32, u32)>,
}

fn at_least(number: u32, bound: u32) -> bool {
    number.wrapping_sub(bound) as i32 >= 0
}

impl Way {
    fn latest(&self) -> u32 {
        self.list.last().map_or(self.base, |(_, shift)| *shift)
    }

    fn is_used(&self) -> bool {
        self.base != 0 || !self.list.is_empty()
    }

    fn add(&mut self, from: u32, by: i32) -> bool {
        if self.list.last().is_some_and(|(last, _)| !at_least(from, *last)) {
            return false;
        }
        if self.list.last().is_some_and(|(last, _)| *last == from) {
            self.list.pop();
        }
        self.list.push((from, self.latest().wrapping_add(by as u32)));
        while self.list.len() > MOST
            || self.list.first().is_some_and(|(old, _)| at_least(from, old.wrapping_add(FAR)))
        {
            self.base = self.list.remove(0).1;
        }
        true
    }

    /// Removes shifts far behind a sequence number.
    fn pass(&mut self, number: u32) {
        if self.list.last().is_some_and(|(last, _)| at_least(number, last.wrapping_add(FAR))) {
            self.base = self.latest();
            self.list.clear();
        }
    }

    fn shift(&self, applies: impl Fn(u32, u32) -> bool) -> u32 {
        let found = self.list.iter().rev().find(|(from, shift)| applies(*from, *shift));
        found.map_or(self.base, |(_, shift)| *shift)
    }

    fn sequence(&self, number: u32) -> u32 {
        number.wrapping_add(self.shift(|from, _| at_least(number, from)))
    }

    fn acknowledgement(&self, number: u32) -> u32 {
        number.wrapping_sub(self.shift(|from, shift| at_least(number.wrapping_sub(shift), from)))
    }
}

impl Shifts {
    /// Adds `by` to the shift of bytes from sequence number `from` on. False if `from` is in the past.
    pub fn add(&mut self, reply: bool, from: u32, by: i32) -> bool {
        self.ways[usize::from(reply)].add(from, by)
    }

    /// The current shift of a direction.
    pub fn latest(&self, reply: bool) -> i32 {
        self.ways[usize::from(reply)].latest() as i32
    }

    /// Processes a sequence number of a direction; returns the one to write instead, if it is shifted.
    pub(super) fn sequence(&mut self, reply: bool, number: u32) -> Option<u32> {
        let way = &mut self.ways[usize::from(reply)];
        way.pass(number);
        way.is_used().then(|| way.sequence(number))
    }

    /// The acknowledgement number to write instead, if acknowledgements of a direction are shifted.
    pub(super) fn acknowledgement(&self, reply: bool, number: u32) -> Option<u32> {
        let way = &self.ways[usize::from(!reply)];
        way.is_used().then(|| way.acknowledgement(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_shift_from_a_point_on() {
        let mut shifts = Shifts::default();
        assert!(shifts.add(false, 30, -12));
        assert_eq!(shifts.sequence(false, 1), Some(1));
        assert_eq!(shifts.sequence(false, 30), Some(18));
        assert_eq!(shifts.acknowledgement(true, 18), Some(30));
        assert_eq!(shifts.acknowledgement(true, 10), Some(10));
        assert_eq!(shifts.acknowledgement(false, 10), None);
        assert!(!shifts.add(false, 20, 1));
        assert!(shifts.add(false, 65, -12));
        assert_eq!(shifts.sequence(false, 65), Some(41));
        assert_eq!(shifts.sequence(false, 1_100_000_000), Some(1_099_999_976));
        assert_eq!(shifts.sequence(false, 0), Some(0u32.wrapping_sub(24)));
    }

    #[test]
    fn the_number_of_remembered_changes_is_bounded() {
        let mut shifts = Shifts::default();
        for from in 0..1000 {
            assert!(shifts.add(true, from, 1));
        }
        assert_eq!(shifts.ways[1].list.len(), MOST);
        assert_eq!(shifts.latest(true), 1000);
    }
}
