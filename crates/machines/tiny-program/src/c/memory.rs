//! The program's memory, as its calls name it: by address. What is there is copied, and never borrowed.

use super::abi::Errno;
use alloc::vec::Vec;
use core::cell::Cell;
use ringway_mem::{Hint, Memory, Region, SpanMut};

/// Most parts of a read or write (`IOV_MAX`), and the most bytes of one (Linux's `MAX_RW_COUNT`).
const PARTS: u64 = 1024;
const MOST: u64 = 0x7fff_f000;

/// Memory that the program may name.
pub(crate) struct ProgramMemory {
    memory: Memory,
    hint: Cell<Hint>,
    stack: [u64; 2],
    /// Where the program's part of the stack begins: what is below is refused.
    used: Cell<u64>,
}

impl ProgramMemory {
    /// These ranges, of which one is the stack; `None` if they overlap.
    pub fn new(regions: Vec<Region>, stack: [u64; 2]) -> Option<ProgramMemory> {
        let memory = Memory::new(regions).ok()?;
        Some(ProgramMemory { memory, hint: Cell::default(), stack, used: Cell::new(stack[1]) })
    }

    /// Begins a call, with the program's stack pointer. The frames of what answers the call are below it, and must not
    /// be written through a pointer to a local variable of a function that has returned. A program that has moved to a
    /// stack of its own, by instructions of its own, may name all of this one, and has to keep clear of those frames.
    pub fn begin(&self, pointer: u64) {
        let [low, high] = self.stack;
        self.used.set(if (low..=high).contains(&pointer) { pointer } else { low });
    }

    fn span(&self, at: u64, len: u64) -> Result<SpanMut<'_>, Errno> {
        if at.max(self.stack[0]) < at.saturating_add(len).min(self.used.get()) {
            return Err(Errno::Fault);
        }
        let len = u32::try_from(len).map_err(|_| Errno::Fault)?;
        let mut hint = self.hint.get();
        let span = self.memory.span_mut(at, len, &mut hint).ok_or(Errno::Fault)?;
        self.hint.set(hint);
        Ok(span)
    }

    /// Copies from an address.
    pub fn read(&self, at: u64, out: &mut [u8]) -> Result<(), Errno> {
        self.span(at, out.len() as u64)?.as_span().read(out);
        Ok(())
    }

    /// Copies a value from an address.
    pub fn array<const N: usize>(&self, at: u64) -> Result<[u8; N], Errno> {
        self.span(at, N as u64)?.as_span().read_array().ok_or(Errno::Fault)
    }

    /// A number of 32 bits.
    pub fn word(&self, at: u64) -> Result<u32, Errno> {
        Ok(u32::from_le_bytes(self.array(at)?))
    }

    /// Two numbers of 64 bits: a time, or a part of a read.
    pub fn pair(&self, at: u64) -> Result<[u64; 2], Errno> {
        let [a, b] = [self.array(at)?, self.array(at.wrapping_add(8))?];
        Ok([u64::from_le_bytes(a), u64::from_le_bytes(b)])
    }

    /// Copies to an address.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Errno> {
        self.span(at, bytes.len() as u64)?.write(bytes);
        Ok(())
    }

    /// Writes two numbers of 64 bits.
    pub fn write_pair(&self, at: u64, [a, b]: [u64; 2]) -> Result<(), Errno> {
        let bytes = [a.to_le_bytes(), b.to_le_bytes()];
        self.write(at, bytes.as_flattened())
    }

    /// Writes zeros.
    pub fn clear(&self, at: u64, len: u64) -> Result<(), Errno> {
        let mut rest = self.span(at, len)?;
        while !rest.is_empty() {
            let (page, after) = rest.split(4096);
            page.write(&[0; 4096]);
            rest = after;
        }
        Ok(())
    }

    /// A text that ends with a zero, if it has at most so many bytes.
    pub fn text(&self, at: u64, most: u64) -> Result<Vec<u8>, Errno> {
        let mut text = Vec::new();
        for at in (0..most).map(|offset| at.wrapping_add(offset)) {
            match self.array(at)? {
                [0] => return Ok(text),
                [byte] => text.push(byte),
            }
        }
        Err(Errno::NoEntry)
    }

    /// The parts that a list names (`struct iovec`).
    pub fn parts(&self, list: u64, count: u64) -> Result<Parts, Errno> {
        if count > PARTS {
            return Err(Errno::Invalid);
        }
        let part = |index| self.pair(list.wrapping_add(16 * index));
        Parts::new((0..count).map(part).collect::<Result<Vec<_>, _>>()?)
    }
}

/// What a call reads or writes: parts of the memory, addresses and lengths.
pub(crate) struct Parts {
    list: Vec<[u64; 2]>,
    len: usize,
}

impl Parts {
    pub fn new(list: Vec<[u64; 2]>) -> Result<Parts, Errno> {
        let len = list.iter().fold(0_u64, |sum, [_, len]| sum.saturating_add(*len));
        // A larger one is a wrong length, such as a negative number.
        if len > MOST && list.len() > 1 {
            return Err(Errno::Invalid);
        }
        Ok(Parts { list, len: len.min(MOST) as usize })
    }

    /// A list of one part.
    pub fn one(at: u64, len: u64) -> Parts {
        Parts { list: [[at, len]].into(), len: len.min(MOST) as usize }
    }

    /// Bytes of all.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The parts behind `skip` bytes, `most` bytes at most.
    fn behind(&self, mut skip: u64, mut most: u64) -> impl Iterator<Item = [u64; 2]> {
        most = most.min((self.len as u64).saturating_sub(skip));
        self.list.iter().filter_map(move |&[at, len]| {
            let skipped = skip.min(len);
            skip -= skipped;
            let len = (len - skipped).min(most);
            most -= len;
            (len > 0).then(|| [at.wrapping_add(skipped), len])
        })
    }

    /// Copies what is behind `skip` bytes to `out`, and returns how many bytes.
    pub fn gather(&self, ram: &ProgramMemory, skip: usize, out: &mut [u8]) -> Result<usize, Errno> {
        let mut count = 0;
        for [at, len] in self.behind(skip as u64, out.len() as u64) {
            ram.read(at, &mut out[count..count + len as usize])?;
            count += len as usize;
        }
        Ok(count)
    }

    /// Copies bytes to what is behind `skip` bytes.
    pub fn scatter(&self, ram: &ProgramMemory, skip: usize, mut bytes: &[u8]) -> Result<(), Errno> {
        for [at, len] in self.behind(skip as u64, bytes.len() as u64) {
            let (part, rest) = bytes.split_at(len as usize);
            ram.write(at, part)?;
            bytes = rest;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ram() -> ProgramMemory {
        ProgramMemory::new([Region::private(0x1000, 0x1000, 8192)].into(), [0; 2]).unwrap()
    }

    #[test]
    fn the_stack_below_its_pointer_is_refused() {
        let regions = [Region::private(0x1000, 0x1000, 8192), Region::private(0x8000, 0x8000, 4096)];
        let ram = ProgramMemory::new(regions.into(), [0x8000, 0x9000]).unwrap();
        assert_eq!(ram.write(0x8ff0, &[7; 16]), Err(Errno::Fault), "before the first call, it has none");
        ram.begin(0x8800);
        for (at, len) in [(0x8000, 1), (0x87ff, 1), (0x87f0, 0x20), (0x8000, 0x1000)] {
            assert_eq!(ram.write(at, &std::vec![7; len]), Err(Errno::Fault), "{at:#x}");
            assert_eq!(ram.read(at, &mut std::vec![7; len]), Err(Errno::Fault), "{at:#x}");
            assert_eq!(ram.clear(at, len as u64), Err(Errno::Fault), "{at:#x}");
        }
        assert_eq!(ram.write(0x8800, &[7; 0x800]), Ok(()));
        assert_eq!(ram.write(0x2000, &[7; 0x1000]), Ok(()), "it is not the stack");
        // Each call has its own pointer; one may have another stack.
        ram.begin(0x8400);
        assert_eq!((ram.word(0x8400), ram.word(0x83fe)), (Ok(0), Err(Errno::Fault)));
        ram.begin(0x9000);
        assert_eq!(ram.word(0x8ffc), Err(Errno::Fault));
        ram.begin(0x2000);
        assert_eq!((ram.word(0x8000), ram.word(0x1000)), (Ok(0), Ok(0)));
    }

    #[test]
    fn addresses_outside_are_refused() {
        let ram = ram();
        assert_eq!(ram.write(0x2ff0, &[7; 16]), Ok(()));
        assert_eq!(ram.array(0x2fff), Ok([7]));
        for (at, len) in [(0, 1), (0xfff, 2), (0x2ff1, 16), (u64::MAX, 2), (0x3000, 1)] {
            assert_eq!(ram.read(at, &mut std::vec![0; len]), Err(Errno::Fault), "{at:#x}");
        }
        assert_eq!(ram.clear(0x1000, u64::MAX), Err(Errno::Fault));
        assert_eq!(ram.clear(0x1000, 8192), Ok(()));
        assert_eq!(ram.array(0x2fff), Ok([0]));
        ram.write(0x2ffc, b"text").unwrap();
        assert_eq!(ram.text(0x2ffc, 100), Err(Errno::Fault), "it does not end");
        ram.write(0x2fff, b"\0").unwrap();
        assert_eq!(ram.text(0x2ffc, 100), Ok(b"tex".to_vec()));
        assert_eq!(ram.text(0x2ffc, 3), Err(Errno::NoEntry));
    }

    #[test]
    fn parts_are_gathered_and_scattered() {
        let ram = ram();
        ram.write(0x1000, b"abcdefgh").unwrap();
        let parts = Parts::new([[0x1000, 2], [0, 0], [0x1004, 3]].into()).unwrap();
        let gather = |skip, most| {
            let mut out = std::vec![0; most];
            let count = parts.gather(&ram, skip, &mut out).unwrap();
            out[..count].to_vec()
        };
        assert_eq!((parts.len(), gather(0, 9)), (5, b"abefg".to_vec()));
        assert_eq!((gather(1, 2), gather(5, 2)), (b"be".to_vec(), b"".to_vec()));
        parts.scatter(&ram, 1, b"XYZ").unwrap();
        assert_eq!(ram.array(0x1000), Ok(*b"aXcdYZgh"));
        assert_eq!(parts.scatter(&ram, 1, b"XYZtoolong"), Ok(()), "what has no place is left out");
        let list = [[0x1000_u64, 2], [0x1004, 3]].as_flattened().iter().flat_map(|word| word.to_le_bytes());
        ram.write(0x1100, &list.collect::<Vec<_>>()).unwrap();
        assert_eq!(ram.parts(0x1100, 2).map(|parts| parts.len()), Ok(5));
        assert_eq!(ram.parts(0x1100, 1025).err(), Some(Errno::Invalid));
        assert_eq!(ram.parts(0x2ff8, 1).err(), Some(Errno::Fault));
        assert_eq!(Parts::new([[0, u64::MAX], [0, 2]].into()).err(), Some(Errno::Invalid));
        assert_eq!(Parts::one(0, u64::MAX).len(), MOST as usize);
    }
}
