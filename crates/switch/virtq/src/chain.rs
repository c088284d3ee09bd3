//! Descriptor chains and indirect tables.

use crate::descriptor::{Descriptor, INDIRECT, NEXT, SIZE, WRITE};
use crate::error::QueueError;
use ringway_mem::{Span, Translate};

/// Largest number of descriptors examined per chain. Further ones of a receive buffer are not used; a frame
/// to transmit with more is dropped. An unaligned frame of 64 KB in 4 KB pages and its header take 19.
pub const CHAIN: usize = 128;

/// Largest number of bytes of a chain whose addresses are looked up: more than the largest frame with its
/// header. Attack: buffers of gigabytes, mapped in single pages, would take a lookup per page in every burst.
pub(crate) const MAX_LOOKUP: u32 = 1 << 17;

/// The first [`MAX_LOOKUP`] bytes of these pieces.
pub(crate) fn bounded(pieces: &[Piece]) -> impl Iterator<Item = Piece> {
    let mut left = MAX_LOOKUP;
    pieces.iter().map_while(move |&Piece { address, len }| {
        let len = len.min(left);
        left -= len;
        (len > 0).then_some(Piece { address, len })
    })
}

/// A buffer's id, and the number of its descriptors in a packed ring.
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

/// Collects a chain's descriptors, as many as fit.
pub(crate) struct Sink<'a> {
    pieces: &'a mut [Piece],
    pub count: usize,
    /// Total length of the collected pieces.
    pub bytes: u64,
    /// Whether some pieces did not fit, so further ones are not read. Attack: a chain of 32,768 descriptors,
    /// referenced by every ring entry, would take a worker many milliseconds a turn.
    pub truncated: bool,
    /// In a chain with device-readable and device-writable pieces, the number of readable ones.
    pub readable: usize,
    write: bool,
    bidirectional: bool,
}

impl<'a> Sink<'a> {
    pub fn new(pieces: &'a mut [Piece]) -> Sink<'a> {
        Sink { pieces, count: 0, bytes: 0, truncated: false, readable: 0, write: false, bidirectional: false }
    }

    /// As `new`, for chains of device-readable buffers followed by device-writable ones (virtio 1.3,
    /// 2.6.4.2).
    pub fn of_both(pieces: &'a mut [Piece]) -> Sink<'a> {
        Sink { bidirectional: true, ..Sink::new(pieces) }
    }

    /// Begins a new chain, of device-writable descriptors if `write`.
    pub fn begin(&mut self, write: bool) {
        (self.count, self.bytes, self.truncated) = (0, 0, false);
        self.write = write;
    }

    /// Checks and stores a descriptor. Returns whether the chain continues.
    fn add(&mut self, descriptor: &Descriptor) -> Result<bool, QueueError> {
        if (descriptor.flags & WRITE != 0) != self.write {
            self.begin_writable()?;
        }
        // Attack: an invalid address with length 0 would pass bounds checks (CVE-2020-10725).
        if descriptor.len == 0 {
            return Err(QueueError::Zero);
        }
        match self.pieces.get_mut(self.count) {
            Some(piece) => {
                *piece = Piece { address: descriptor.address, len: descriptor.len };
                self.count += 1;
                self.bytes += u64::from(descriptor.len);
            }
            None => self.truncated = true,
        }
        Ok(descriptor.flags & NEXT != 0)
    }

    /// Accepts the first device-writable descriptor after device-readable ones, if that is permitted.
    #[cold]
    fn begin_writable(&mut self) -> Result<(), QueueError> {
        if !self.bidirectional || self.write {
            return Err(QueueError::Direction);
        }
        (self.readable, self.write) = (self.count, true);
        Ok(())
    }

    /// The device-readable and the device-writable pieces.
    pub fn halves(&self) -> (&[Piece], &[Piece]) {
        let readable = if self.write { self.readable } else { self.count };
        self.pieces[..self.count].split_at(readable.min(self.count))
    }
}

/// Whether a chain continues after a descriptor of the ring.
pub(crate) enum Follow {
    /// The next descriptor of the chain.
    Next,
    /// The end of the chain.
    End,
}

/// Adds a descriptor of the ring, or the indirect table that it refers to, to the sink. `first`: the
/// descriptor begins its chain.
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
    // An indirect descriptor must be its chain's only one: packed rings require it (virtio 1.3, 2.8.8), and
    // drivers such as Linux's do the same on split rings.
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

/// Rules for indirect tables, and the ring's size and format.
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
            let descriptor =
                Descriptor::in_table(self.part, Descriptor::packed).ok_or(QueueError::Address)?;
            self.part = self.part.split(SIZE as usize).1;
            address = address.wrapping_add(u64::from(SIZE));
            refuse_nested(&descriptor)?;
            sink.add(&descriptor)?;
            if sink.truncated {
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
            let descriptor = self.descriptor(index, translate)?;
            refuse_nested(&descriptor)?;
            if !sink.add(&descriptor)? || sink.truncated {
                return Ok(());
            }
            index = u32::from(descriptor.other);
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

/// Attack: nested tables multiply the work per chain.
fn refuse_nested(descriptor: &Descriptor) -> Result<(), QueueError> {
    if descriptor.flags & INDIRECT != 0 { Err(QueueError::Indirect) } else { Ok(()) }
}
