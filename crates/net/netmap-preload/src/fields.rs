//! The program's requests, which are read and answered where its pointers say.

use crate::Result;
use libc::c_void;

/// A pointer of the program to a request.
#[derive(Clone, Copy)]
pub struct Fields(*mut u8);

impl Fields {
    /// # Safety
    /// It points to as much as its program promises by the code of the request, or is null.
    pub unsafe fn new(at: *mut c_void) -> Result<Fields> {
        if at.is_null() { Err(libc::EFAULT) } else { Ok(Fields(at.cast())) }
    }

    pub fn get<const N: usize>(self, at: usize) -> [u8; N] {
        // SAFETY: within the request, by the promise of `new`.
        unsafe { self.0.add(at).cast::<[u8; N]>().read_unaligned() }
    }

    pub fn put<const N: usize>(self, at: usize, bytes: [u8; N]) {
        // SAFETY: as above.
        unsafe { self.0.add(at).cast::<[u8; N]>().write_unaligned(bytes) };
    }

    pub fn u16(self, at: usize) -> u16 {
        u16::from_ne_bytes(self.get(at))
    }

    pub fn u32(self, at: usize) -> u32 {
        u32::from_ne_bytes(self.get(at))
    }

    pub fn u64(self, at: usize) -> u64 {
        u64::from_ne_bytes(self.get(at))
    }

    pub fn name<const N: usize>(self, at: usize) -> Result<String> {
        let bytes: [u8; N] = self.get(at);
        let end = bytes.iter().position(|byte| *byte == 0).ok_or(libc::EINVAL)?;
        String::from_utf8(bytes[..end].to_vec()).map_err(|_| libc::ENXIO)
    }
}
