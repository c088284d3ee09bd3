//! Descriptors of both formats.

use ringway_mem::{Pairs, Span};

/// The chain continues.
pub const NEXT: u16 = 1;
/// The buffer is device-writable.
pub const WRITE: u16 = 2;
/// The buffer is an indirect table.
pub const INDIRECT: u16 = 4;

/// Bytes of a descriptor.
pub(crate) const SIZE: u32 = 16;

/// A split ring's descriptor, or a packed ring's (virtio 1.3, 2.7.5 and 2.8.3), in host order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub address: u64,
    pub len: u32,
    pub flags: u16,
    /// Split: index of the next descriptor. Packed: the buffer id.
    pub other: u16,
}

impl Descriptor {
    /// A split ring's descriptor from its two words, in host order: address; length, flags, next.
    #[inline]
    pub fn split(address: u64, rest: u64) -> Descriptor {
        let (flags, other) = ((rest >> 32) as u16, (rest >> 48) as u16);
        Descriptor { address, len: rest as u32, flags, other }
    }

    /// A packed ring's descriptor from its two words: address; length, id, flags.
    #[inline]
    pub fn packed(address: u64, rest: u64) -> Descriptor {
        let (other, flags) = ((rest >> 32) as u16, (rest >> 48) as u16);
        Descriptor { address, len: rest as u32, flags, other }
    }

    /// The second word of a split ring's descriptor.
    #[inline]
    pub fn split_rest(&self) -> u64 {
        u64::from(self.len) | u64::from(self.flags) << 32 | u64::from(self.other) << 48
    }

    /// The second word of a packed ring's descriptor.
    #[inline]
    pub fn packed_rest(&self) -> u64 {
        u64::from(self.len) | u64::from(self.other) << 32 | u64::from(self.flags) << 48
    }

    /// The first descriptor of `table`, part of an indirect table of any alignment.
    pub fn in_table(table: Span<'_>, format: fn(u64, u64) -> Descriptor) -> Option<Descriptor> {
        let bytes = table.read_array::<16>()?;
        let (address, rest) = bytes.split_at(8);
        let word = |half: &[u8]| half.try_into().map(u64::from_le_bytes).ok();
        Some(format(word(address)?, word(rest)?))
    }

    #[inline]
    pub fn store_split(&self, table: Pairs<'_>, index: u16) {
        table.set_first(usize::from(index), self.address);
        table.set_second(usize::from(index), self.split_rest());
    }
}
