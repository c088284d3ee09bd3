//! Headers as structs over their bytes.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A header of fixed length at the start of a byte slice. Its fields are read and written in place; the
/// length is checked once.
pub trait Header: Copy + FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned {
    /// Length of the header in bytes.
    const LEN: usize = size_of::<Self>();

    /// The header and the bytes after it; `None` if `bytes` are too short.
    #[inline(always)]
    fn split(bytes: &[u8]) -> Option<(&Self, &[u8])> {
        Self::ref_from_prefix(bytes).ok()
    }

    /// As [`Header::split`], mutable.
    #[inline(always)]
    fn split_mut(bytes: &mut [u8]) -> Option<(&mut Self, &mut [u8])> {
        Self::mut_from_prefix(bytes).ok()
    }

    /// The header; `None` if `bytes` are too short.
    #[inline(always)]
    fn of(bytes: &[u8]) -> Option<&Self> {
        Some(Self::split(bytes)?.0)
    }

    /// As [`Header::of`], mutable.
    #[inline(always)]
    fn of_mut(bytes: &mut [u8]) -> Option<&mut Self> {
        Some(Self::split_mut(bytes)?.0)
    }

    /// The header, zero-padded if `bytes` are too short.
    #[inline]
    fn padded(bytes: &[u8]) -> Self {
        let mut header = Self::new_zeroed();
        let present = bytes.len().min(Self::LEN);
        header.as_mut_bytes()[..present].copy_from_slice(&bytes[..present]);
        header
    }

    /// The header's bytes.
    #[inline(always)]
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }

    /// The header's bytes, mutable.
    #[inline(always)]
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.as_mut_bytes()
    }
}

impl<T: Copy + FromBytes + IntoBytes + Immutable + KnownLayout + Unaligned> Header for T {}
