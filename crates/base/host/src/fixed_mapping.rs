//! Memory that several processes map at the same address, so that pointers into it are valid in all of them.

use crate::error::{HostError, Named};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// How a mapping may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedAccess {
    /// Read and executed.
    Code,
    /// Read and written.
    Data,
}

/// A shared mapping at an address that its user chose. It stays until it is dropped; what points into it must be gone
/// by then.
#[derive(Debug)]
pub struct FixedMapping {
    base: NonNull<u8>,
    len: usize,
    access: FixedAccess,
}

// SAFETY: an address range; nothing is touched through it here.
unsafe impl Send for FixedMapping {}
// SAFETY: as above.
unsafe impl Sync for FixedMapping {}

impl FixedMapping {
    /// Maps the first `len` bytes of `file`, which must be long enough, at `address`, where nothing else may be.
    ///
    /// # Errors
    /// If something else is there, or the kernel refuses.
    pub fn new(
        file: impl AsFd,
        address: usize,
        len: usize,
        access: FixedAccess,
    ) -> Result<FixedMapping, HostError> {
        let stat = rustix::fs::fstat(&file).named("fstat of memory")?;
        let (size, needed) = (stat.st_size as u64, len as u64);
        if needed > size {
            return Err(HostError::TooShort { size, needed });
        }
        // What is never written is shared in any case. Before Linux 6.7, a file that nobody can write is mapped so.
        let (protection, sharing) = match access {
            FixedAccess::Code => (ProtFlags::READ | ProtFlags::EXEC, MapFlags::PRIVATE),
            FixedAccess::Data => (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED),
        };
        let flags = sharing | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let place = std::ptr::without_provenance_mut(address);
        // SAFETY: the flag makes the kernel refuse a place where something else is.
        let base = unsafe { rustix::mm::mmap(place, len, protection, flags, &file, 0) };
        let base = base.named("mmap at a fixed address")?.cast::<u8>();
        let mapping = NonNull::new(base).map(|base| FixedMapping { base, len, access });
        // A kernel before 4.17 does not know the flag, and chooses another place.
        let there = mapping.filter(|mapping| mapping.base.addr().get() == address);
        there.ok_or(HostError::Impossible { offset: 0, len: needed })
    }

    /// Where it begins.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Four bytes of data, which all processes access as this.
    pub fn word(&self, offset: usize) -> Option<&AtomicU32> {
        let at = self.place(offset, size_of::<AtomicU32>())?;
        // SAFETY: within the mapping, which is writable and lives longer, and aligned; accesses are atomic.
        Some(unsafe { at.cast::<AtomicU32>().as_ref() })
    }

    /// Eight bytes of data, which all processes access as this.
    pub fn long_word(&self, offset: usize) -> Option<&AtomicU64> {
        let at = self.place(offset, size_of::<AtomicU64>())?;
        // SAFETY: as in `word`.
        Some(unsafe { at.cast::<AtomicU64>().as_ref() })
    }

    /// The address of `len` bytes of data, a multiple of their length.
    pub(crate) fn place(&self, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let fits =
            offset.checked_add(len).is_some_and(|end| end <= self.len) && offset.is_multiple_of(8.min(len));
        // SAFETY: within the mapping.
        (fits && self.access == FixedAccess::Data).then(|| unsafe { self.base.add(offset) })
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for FixedMapping {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and nothing points into it, as its user promised.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// A memfd with these bytes that nobody can change.
///
/// # Errors
/// If the kernel refuses.
pub fn constant_memfd(name: &str, bytes: &[u8]) -> Result<OwnedFd, HostError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let mut file = std::fs::File::from(rustix::fs::memfd_create(name, flags).named("memfd_create")?);
    let written = file
        .write_all(bytes)
        .map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO));
    written.named("writing a memfd")?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).named("sealing a memfd")?;
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing else is mapped there in a process of tests.
    const PLACE: usize = 0x7300_0000_0000;

    #[test]
    fn a_place_is_mapped_once_and_shared() {
        let file = crate::memfd("fixed", 8192).unwrap();
        assert!(FixedMapping::new(&file, PLACE, 8193, FixedAccess::Data).is_err(), "beyond the file");
        assert!(FixedMapping::new(&file, PLACE + 1, 4096, FixedAccess::Data).is_err(), "within a page");
        let mapping = FixedMapping::new(&file, PLACE, 8192, FixedAccess::Data).unwrap();
        assert_eq!((mapping.base().addr().get(), mapping.len(), mapping.is_empty()), (PLACE, 8192, false));
        assert!(FixedMapping::new(&file, PLACE + 4096, 4096, FixedAccess::Data).is_err(), "in use");
        let other = crate::Mapping::shared(&file, 0, 8192).unwrap();
        // SAFETY: within the mapping, which nobody else uses.
        unsafe { mapping.base().add(4096).write(7) };
        assert_eq!(other.words()[512].load(std::sync::atomic::Ordering::Relaxed), 7);
        assert_eq!(mapping.word(4096).unwrap().load(std::sync::atomic::Ordering::Relaxed), 7);
        assert_eq!(mapping.long_word(4096).unwrap().load(std::sync::atomic::Ordering::Relaxed), 7);
        assert!(mapping.word(8190).is_none() && mapping.word(2).is_none() && mapping.long_word(4).is_none());
        assert!(mapping.word(8192).is_none() && mapping.word(usize::MAX).is_none());
        drop(mapping);
        let code = FixedMapping::new(&file, PLACE, 4096, FixedAccess::Code).unwrap();
        assert!(code.word(0).is_none(), "it can't be written");
    }

    #[test]
    fn constant_bytes_stay() {
        let file = std::fs::File::from(constant_memfd("constant", b"hello").unwrap());
        assert_eq!(file.metadata().unwrap().len(), 5);
        assert!((&file).write_all(b"x").is_err());
        assert!(file.set_len(6).is_err());
        assert!(FixedMapping::new(&file, PLACE + 0x1_0000, 5, FixedAccess::Data).is_err());
        assert!(FixedMapping::new(&file, PLACE + 0x1_0000, 5, FixedAccess::Code).is_ok());
    }
}
