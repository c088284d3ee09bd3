//! Descriptor chains and indirect tables.

use crate::descriptor::{Descriptor, INDIRECT, NEXT, SIZE, WRITE};
use crate::error::QueueError;
use ringway_mem::{Span, Translate};

/// Descriptors that are examined per chain; further ones count as missing room, or as a frame with too many
/// pieces. 64 KB in 4 KB pages, unaligned at both ends, and a header take 19.
pub const CHAIN: usize = 128;

/// Bytes of a chain whose addresses are looked up: more than the largest frame with its header. Attack:
/// buffers of gigabytes, mapped in single pages; each would be looked up for every burst.
pub(crate) const REACH: u32 = 1 << 17;

/// The leading part of these pieces, up to [`REACH`] bytes.
pub(crate) fn reached(pieces: &[Piece]) -> impl Iterator<Item = Piece> {
    let mut left = REACH;
    pieces.iter().map_while(move |&Piece { address, len }| {
        let len = len.min(left);
        left -= len;
        (len > 0).then_some(Piece { address, len })
    })
}

/// A buffer: its id, and the number of slots that it takes in a packed ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chain {
    pub(crate) id: u16,
    pub(crate) slots: u16,
}

/// A range of the peer's addresses, from a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub address: u64,
    pub len: u32,
}

/// Collects a chain's descriptors, as far as they fit.
pub(crate) struct Sink<'a> {
    pieces: &'a mut [Piece],
    pub count: usize,
    /// Total length of the collected pieces.
    pub bytes: u64,
    /// Whether some pieces did not fit.
    pub cut: bool,
    /// In a chain with both kinds, the number of device-readable pieces.
    pub readable: usize,
    write: bool,
    both: bool,
}

impl<'a> Sink<'a> {
    pub fn new(pieces: &'a mut [Piece]) -> Sink<'a> {
        Sink { pieces, count: 0, bytes: 0, cut: false, readable: 0, write: false, both: false }
    }

    /// As `of`, for chains of device-readable buffers followed by device-writable ones (virtio 1.3, 2.6.4.2).
    pub fn of_both(pieces: &'a mut [Piece]) -> Sink<'a> {
        Sink { both: true, ..Sink::new(pieces) }
    }

    /// Begins a new chain, of device-writable buffers if `write`.
    pub fn begin(&mut self, write: bool) {
        (self.count, self.bytes, self.cut) = (0, 0, false);
        self.write = write;
    }

    /// Checks and stores one descriptor. `true`: the chain continues.
    fn add(&mut self, descriptor: &Descriptor) -> Result<bool, QueueError> {
        if (descriptor.flags & WRITE != 0) != self.write {
            self.turn()?;
        }
        // Attack: an invalid address with length 0, which any range contains (CVE-2020-10725).
        if descriptor.len == 0 {
            return Err(QueueError::Zero);
        }
        match self.pieces.get_mut(self.count) {
            Some(piece) => {
                *piece = Piece { address: descriptor.address, len: descriptor.len };
                self.count += 1;
                self.bytes += u64::from(descriptor.len);
            }
            None => self.cut = true,
        }
        Ok(descriptor.flags & NEXT != 0)
    }

    /// Whether no further piece would be kept. Attack: a chain of 32,768 descriptors, referenced by every
    /// ring entry, would take a worker many milliseconds a turn.
    pub fn is_over(&self) -> bool {
        self.cut
    }

    /// Handles the first device-writable buffer, where one may follow.
    #[cold]
    fn turn(&mut self) -> Result<(), QueueError> {
        if !self.both || self.write {
            return Err(QueueError::Direction);
        }
        (self.readable, self.write) = (self.count, true);
        Ok(())
    }

    /// The device-readable pieces and the device-writable ones.
    pub fn halves(&self) -> (&[Piece], &[Piece]) {
        let readable = if self.write { self.readable } else { self.count };
        self.pieces[..self.count].split_at(readable.min(self.count))
    }
}

/// What follows a descriptor of the ring.
pub(crate) enum Follow {
    /// The next descriptor of the chain.
    Next,
    /// The end of the chain.
    End,
}

/// Adds a descriptor of the ring to the sink, with the indirect table that it may refer to. `first`: it
/// begins its chain.
pub(crate) fn follow<'t, T: Translate<'t>>(
    descriptor: &Descriptor,
    first: bool,
    rules: Rules,
    translate: &mut T,
    sink: &mut Sink<'_>,
) -> Result<Follow, QueueError> {
    if descriptor.flags & INDIRECT == 0 {
        return Ok(if sink.add(descriptor)? { Follow::Next } else { Follow::End });
    }
    // An indirect descriptor must be alone: Linux and this device never mix it with others, and packed rings
    // forbid it (virtio 1.3, 2.8.8).
    if !rules.indirect || !first || descriptor.flags & NEXT != 0 {
        return Err(QueueError::Indirect);
    }
    // Attack: a table longer than the ring would keep a worker busy with one frame.
    if descriptor.len == 0
        || !descriptor.len.is_multiple_of(SIZE)
        || descriptor.len / SIZE > u32::from(rules.size)
    {
        return Err(QueueError::Indirect);
    }
    let table = Table { address: descriptor.address, count: descriptor.len / SIZE, part: Span::empty() };
    if rules.packed {
        table.in_order(translate, sink)?
    } else {
        table.linked(translate, sink)?
    }
    Ok(Follow::End)
}

/// Which tables are permitted.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub indirect: bool,
    pub size: u16,
    pub packed: bool,
}

/// An indirect table in the peer's memory.
struct Table<'t> {
    address: u64,
    count: u32,
    /// The part translated last.
    part: Span<'t>,
}

impl<'t> Table<'t> {
    /// A packed ring's table: all its descriptors in order; `NEXT` is ignored (virtio 1.3, 2.8.7).
    fn in_order<T: Translate<'t>>(
        mut self,
        translate: &mut T,
        sink: &mut Sink<'_>,
    ) -> Result<(), QueueError> {
        let mut address = self.address;
        for index in 0..self.count {
            if self.part.len() < SIZE as usize {
                self.part = translate.read(address, (self.count - index) * SIZE)?;
            }
            let found = Descriptor::in_table(self.part, Descriptor::packed).ok_or(QueueError::Address)?;
            self.part = self.part.split(SIZE as usize).1;
            address = address.wrapping_add(u64::from(SIZE));
            nested(&found)?;
            sink.add(&found)?;
            if sink.is_over() {
                break;
            }
        }
        Ok(())
    }

    /// A split ring's table: a chain that begins at its first descriptor (virtio 1.3, 2.7.5.3).
    fn linked<T: Translate<'t>>(mut self, translate: &mut T, sink: &mut Sink<'_>) -> Result<(), QueueError> {
        self.part = translate.read(self.address, self.count * SIZE)?;
        let mut index = 0;
        for _ in 0..self.count {
            let found = self.descriptor(index, translate)?;
            nested(&found)?;
            if !sink.add(&found)? || sink.is_over() {
                return Ok(());
            }
            index = u32::from(found.other);
            if index >= self.count {
                return Err(QueueError::Descriptor);
            }
        }
        // Attack: a chain with a loop; a chain can't have more descriptors than its table.
        Err(QueueError::Chain)
    }

    #[inline]
    fn descriptor<T: Translate<'t>>(&self, index: u32, translate: &mut T) -> Result<Descriptor, QueueError> {
        let offset = index * SIZE;
        let mut at = self.part.split(offset as usize).1;
        if at.len() < SIZE as usize {
            at = translate.read(self.address.wrapping_add(u64::from(offset)), SIZE)?;
        }
        Descriptor::in_table(at, Descriptor::split).ok_or(QueueError::Address)
    }
}

/// Attack: nested tables multiply the work.
fn nested(descriptor: &Descriptor) -> Result<(), QueueError> {
    if descriptor.flags & INDIRECT != 0 { Err(QueueError::Indirect) } else { Ok(()) }
}
