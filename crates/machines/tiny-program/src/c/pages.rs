//! Memory for `malloc`: one range, of which `brk` takes from the beginning and `mmap` from the end.

use super::abi::Errno;
use super::memory::ProgramMemory;
use alloc::collections::BTreeMap;

/// Bytes of a page.
pub(super) const PAGE: u64 = 4096;

/// The range.
pub(super) struct Pages {
    begin: u64,
    end: u64,
    /// Where `brk` is.
    brk: u64,
    /// What is free: begins and lengths, whole pages, none beside another.
    free: BTreeMap<u64, u64>,
    /// What was never used, and so has zeros: from where, and up to where.
    fresh: [u64; 2],
}

fn whole(len: u64) -> Option<u64> {
    len.checked_next_multiple_of(PAGE)
}

impl Pages {
    /// Memory from an address, whole pages, of zeros.
    pub fn new(begin: u64, end: u64) -> Pages {
        let free = [(begin, end.saturating_sub(begin))].into();
        Pages { begin, end, brk: begin, free, fresh: [begin, end] }
    }

    /// Moves the end of the memory that begins with the range, and returns it: unchanged if there is no room.
    pub fn brk(&mut self, ram: &ProgramMemory, to: u64) -> u64 {
        let top = whole(self.brk).unwrap_or(self.brk);
        let Some(wanted) = whole(to).filter(|_| (self.begin..=self.end).contains(&to)) else {
            return self.brk;
        };
        if wanted > top {
            let Some(&len) = self.free.get(&top).filter(|len| **len >= wanted - top) else { return self.brk };
            self.free.remove(&top);
            self.insert(wanted, len - (wanted - top));
            if self.clear(ram, top, wanted).is_err() {
                return self.brk;
            }
            self.fresh[0] = self.fresh[0].max(wanted.min(self.fresh[1]));
        } else {
            self.give(wanted, top);
        }
        self.brk = to;
        to
    }

    /// Pages of zeros, the last ones that are free.
    pub fn map(&mut self, ram: &ProgramMemory, len: u64) -> Result<u64, Errno> {
        let len = whole(len).filter(|len| *len > 0).ok_or(Errno::Invalid)?;
        let has_room = |(_, free): &(&u64, &u64)| **free >= len;
        let (&begin, &free) = self.free.iter().rev().find(has_room).ok_or(Errno::NoMemory)?;
        let at = begin + (free - len);
        self.free.remove(&begin);
        self.insert(begin, free - len);
        self.clear(ram, at, at + len)?;
        let [low, high] = self.fresh;
        if at + len > low {
            self.fresh[1] = high.min(at).max(low);
        }
        Ok(at)
    }

    /// Gives pages back; those that are free already stay so.
    pub fn unmap(&mut self, at: u64, len: u64) -> Result<(), Errno> {
        let to = whole(len).and_then(|len| at.checked_add(len)).ok_or(Errno::Invalid)?;
        let from = whole(self.brk).unwrap_or(self.end);
        if !at.is_multiple_of(PAGE) || len == 0 || at < from || to > self.end {
            return Err(Errno::Invalid);
        }
        self.give(at, to);
        Ok(())
    }

    /// Makes a range free.
    fn give(&mut self, mut from: u64, mut to: u64) {
        if from >= to {
            return;
        }
        while let Some((&begin, &len)) =
            self.free.range(..=to).next_back().filter(|(begin, len)| *begin + *len >= from)
        {
            self.free.remove(&begin);
            (from, to) = (from.min(begin), to.max(begin + len));
        }
        self.insert(from, to - from);
    }

    fn insert(&mut self, begin: u64, len: u64) {
        if len > 0 {
            self.free.insert(begin, len);
        }
    }

    /// Writes zeros where the range was used before.
    fn clear(&self, ram: &ProgramMemory, from: u64, to: u64) -> Result<(), Errno> {
        let [low, high] = self.fresh;
        for (from, to) in [(from, to.min(low)), (from.max(high), to)] {
            if from < to {
                ram.clear(from, to - from)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_mem::Region;
    use std::vec::Vec;

    const BEGIN: u64 = 0x10_0000;
    const COUNT: u64 = 32;

    fn new() -> (ProgramMemory, Pages) {
        let len = COUNT * PAGE;
        let ram = ProgramMemory::new([Region::private(BEGIN, BEGIN, len as usize)].into(), [0; 2]).unwrap();
        (ram, Pages::new(BEGIN, BEGIN + len))
    }

    #[test]
    fn memory_is_of_zeros_and_is_used_again() {
        let (ram, mut pages) = new();
        let is_clear =
            |at: u64, count: u64| (0..count * PAGE).all(|offset| ram.array(at + offset) == Ok([0]));
        let taken: Vec<u64> = (0..COUNT).map(|_| pages.map(&ram, 1).unwrap()).collect();
        assert_eq!(pages.map(&ram, 1), Err(Errno::NoMemory));
        taken.iter().for_each(|at| ram.write(*at, &[7; PAGE as usize]).unwrap());
        // A part in the middle, and then its neighbours.
        for page in [3, 5, 4] {
            pages.unmap(BEGIN + page * PAGE, PAGE).unwrap();
        }
        assert_eq!(pages.map(&ram, 4 * PAGE), Err(Errno::NoMemory));
        let at = pages.map(&ram, 3 * PAGE - 1).unwrap();
        assert_eq!(at, BEGIN + 3 * PAGE);
        assert!(is_clear(at, 3));
        for (at, len) in [(BEGIN + 1, PAGE), (BEGIN - PAGE, PAGE), (BEGIN, 0), (BEGIN, (COUNT + 1) * PAGE)] {
            assert_eq!(pages.unmap(at, len), Err(Errno::Invalid), "{at:#x}");
        }
        assert_eq!(pages.unmap(u64::MAX - 4095, PAGE), Err(Errno::Invalid));
        pages.unmap(BEGIN, COUNT * PAGE).unwrap();
        pages.unmap(BEGIN + PAGE, PAGE).unwrap();
        assert_eq!(pages.free, [(BEGIN, COUNT * PAGE)].into(), "twice is no harm");
        assert_eq!(
            (pages.map(&ram, 0), pages.map(&ram, u64::MAX)),
            (Err(Errno::Invalid), Err(Errno::Invalid))
        );
        assert!(is_clear(pages.map(&ram, COUNT * PAGE).unwrap(), COUNT));
    }

    #[test]
    fn brk_takes_from_the_beginning() {
        let (ram, mut pages) = new();
        assert_eq!(pages.brk(&ram, 0), BEGIN);
        assert_eq!(pages.brk(&ram, BEGIN + 100), BEGIN + 100);
        let last = pages.map(&ram, PAGE).unwrap();
        assert_eq!(last, BEGIN + (COUNT - 1) * PAGE);
        assert_eq!(pages.brk(&ram, last + 1), BEGIN + 100, "it would overlap");
        assert_eq!(pages.brk(&ram, last), last);
        assert_eq!(pages.map(&ram, 1), Err(Errno::NoMemory));
        assert_eq!(pages.unmap(BEGIN, PAGE), Err(Errno::Invalid), "brk has it");
        ram.write(last - 1, &[9]).unwrap();
        assert_eq!(pages.brk(&ram, BEGIN), BEGIN);
        let at = pages.map(&ram, PAGE).unwrap();
        assert_eq!((at, ram.array(last - 1)), (last - PAGE, Ok([0])));
        assert_eq!(pages.brk(&ram, u64::MAX), BEGIN);
    }
}
