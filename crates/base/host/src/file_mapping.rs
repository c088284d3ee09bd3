//! Files mapped for reading.

use crate::error::{HostError, Named};
use crate::sigbus::{Watched, catch_sigbus};
use ringway_mem::Span;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ops::Range;
use std::os::fd::AsFd;
use std::ptr::NonNull;

/// A file's bytes, mapped for reading. Reading them may wait for the disk, and finds what the file has then.
#[derive(Debug)]
pub struct FileMapping {
    base: NonNull<u8>,
    len: usize,
    /// Unregistered before the range is unmapped.
    watched: Watched,
}

// SAFETY: an address range, accessed through spans only.
unsafe impl Send for FileMapping {}
// SAFETY: as above.
unsafe impl Sync for FileMapping {}

impl FileMapping {
    /// Maps a whole file, and asks the kernel to read it.
    pub fn new(file: impl AsFd) -> Result<FileMapping, HostError> {
        catch_sigbus()?;
        let size = rustix::fs::fstat(&file).named("fstat of a file")?.st_size as u64;
        let len = usize::try_from(size).map_err(|_| HostError::Impossible { offset: 0, len: size })?;
        if len == 0 {
            return Ok(FileMapping { base: NonNull::dangling(), len, watched: Watched::nothing() });
        }
        let (protection, flags) = (ProtFlags::READ, MapFlags::SHARED | MapFlags::NORESERVE);
        // SAFETY: a new mapping at a place that the kernel chooses replaces nothing.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), len, protection, flags, file, 0) };
        let base = NonNull::new(base.named("mmap of a file")?.cast::<u8>());
        let mut mapping = FileMapping {
            base: base.ok_or(HostError::Impossible { offset: 0, len: size })?,
            len,
            watched: Watched::nothing(),
        };
        // The handler of SIGBUS replaces whole pages.
        let watched = Watched::new(mapping.base.addr().get(), len);
        mapping.watched = watched.ok_or(HostError::TooManyMappings)?;
        // SAFETY: the mapping is ours; the advice changes no bytes. Without it pages are read when they are needed.
        let _ = unsafe { rustix::mm::madvise(mapping.base.as_ptr().cast(), len, Advice::WillNeed) };
        Ok(mapping)
    }

    /// The file's length when it was mapped.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the file was empty when it was mapped.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A part of the file, at most 4 GB.
    pub fn span(&self, range: Range<usize>) -> Span<'_> {
        let end = range.end.min(self.len);
        let len = u32::try_from(end.saturating_sub(range.start)).unwrap_or(u32::MAX);
        if len == 0 {
            return Span::empty();
        }
        // SAFETY: `start .. start + len` lies within the mapping, which lives as long as `self`; nobody here writes it.
        unsafe { Span::new(self.base.add(range.start), len) }
    }

    /// Whether the file shrank, and its bytes were read after that: they are zeros now.
    pub fn is_lost(&self) -> bool {
        self.watched.is_lost()
    }
}

impl Drop for FileMapping {
    fn drop(&mut self) {
        self.watched.forget();
        if self.len > 0 {
            // SAFETY: mapped by us, and no span remains, since spans borrow the mapping.
            let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(name: &str, bytes: &[u8]) -> (std::fs::File, std::path::PathBuf) {
        let path = std::env::temp_dir().join(format!("ringway-mapping-{name}-{}", std::process::id()));
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all(bytes).unwrap();
        (file, path)
    }

    fn read(span: Span<'_>) -> Vec<u8> {
        let mut bytes = vec![1; span.len()];
        span.read(&mut bytes);
        bytes
    }

    #[test]
    fn parts_of_a_file() {
        let (whole, path) = file("parts", b"0123456789");
        let (empty, other) = file("empty", b"");
        let mapping = FileMapping::new(&whole).unwrap();
        assert_eq!((mapping.len(), read(mapping.span(3..5))), (10, b"34".to_vec()));
        assert_eq!((read(mapping.span(8..99)), read(mapping.span(11..12))), (b"89".to_vec(), vec![]));
        assert!(FileMapping::new(&empty).unwrap().span(0..5).is_empty());
        std::fs::remove_file(path).unwrap();
        std::fs::remove_file(other).unwrap();
    }

    #[test]
    fn a_file_that_shrinks_is_lost() {
        let (whole, path) = file("shrinks", &[7; 10_000]);
        let mapping = FileMapping::new(&whole).unwrap();
        assert_eq!(read(mapping.span(9000..9001)), [7]);
        whole.set_len(0).unwrap();
        assert_eq!((read(mapping.span(9000..9001)), mapping.is_lost()), (vec![0], true));
        std::fs::remove_file(path).unwrap();
    }
}
