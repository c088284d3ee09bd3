//! Parsing of numbers in capture files.

/// Reads numbers sequentially, in the byte order of the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor<'a> {
    pub(crate) rest: &'a [u8],
    pub(crate) big: bool,
}

impl<'a> Cursor<'a> {
    pub(crate) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        let bytes = self.array()?;
        Some(if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) })
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        let bytes = self.array()?;
        Some(if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    pub(crate) fn i64(&mut self) -> Option<i64> {
        let bytes = self.array()?;
        Some(if self.big { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) })
    }
}
