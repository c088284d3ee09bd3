//! The counters page: shared memory that `data` writes and `control` reads.

use ringway_fabric::{SERVING, SharedPage};
use ringway_frame::Counters;
use rustix::fs::{MemfdFlags, SealFlags};
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Entries in the page: one for every queue that a fabric can have. Memory is allocated only for entries in use.
const ENTRIES: u32 = 16_384;
/// Bytes of an entry.
const ENTRY: usize = Counters::WORDS * 8;

/// Why the counters page can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// All entries are in use.
    #[error("the fabric has more than {ENTRIES} queues; take some ports away")]
    Full,
    /// The system refused.
    #[error("the page of counters: {0}")]
    System(#[from] io::Error),
}

/// The counters of all queues, in memory shared with `data`.
#[derive(Debug)]
pub struct Page {
    memfd: OwnedFd,
    /// Entries in use: index of the first, and count, in ascending order.
    used: Vec<(u32, u32)>,
}

impl Page {
    /// Creates a zeroed page.
    pub fn new() -> Result<Page, PageError> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memfd = rustix::fs::memfd_create("ringway-counters", flags).map_err(io::Error::from)?;
        rustix::fs::ftruncate(&memfd, SharedPage::size(ENTRIES as usize) as u64).map_err(io::Error::from)?;
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&memfd, seals).map_err(io::Error::from)?;
        Ok(Page { memfd, used: Vec::new() })
    }

    /// The page of a former `control`, without entries in use.
    pub fn adopt(memfd: OwnedFd) -> Page {
        Page { memfd, used: Vec::new() }
    }

    /// Allocates `count` entries from `first` as they are, unless one of them is in use.
    pub fn retake(&mut self, first: u32, count: u32) -> Result<(), PageError> {
        let index = self.used.partition_point(|(used, _)| *used < first);
        let end = first.checked_add(count).filter(|end| *end <= ENTRIES).ok_or(PageError::Full)?;
        let before = index.checked_sub(1).map_or(0, |before| self.used[before].0 + self.used[before].1);
        if before > first || self.used.get(index).is_some_and(|(next, _)| *next < end) {
            return Err(PageError::Full);
        }
        self.used.insert(index, (first, count));
        Ok(())
    }

    /// Number of entries.
    pub fn entries(&self) -> u32 {
        ENTRIES
    }

    /// A file descriptor of the page, for `data`.
    pub fn share(&self) -> Result<OwnedFd, PageError> {
        Ok(self.memfd.try_clone()?)
    }

    /// Allocates `count` contiguous entries, zeroes them, and returns the index of the first.
    pub fn take(&mut self, count: u32) -> Result<u32, PageError> {
        let mut first = 0;
        let mut index = 0;
        for (used, length) in &self.used {
            if used - first >= count {
                break;
            }
            first = used + length;
            index += 1;
        }
        if first.checked_add(count).is_none_or(|end| end > ENTRIES) {
            return Err(PageError::Full);
        }
        let zeros = vec![0; count as usize * ENTRY];
        let written = rustix::io::pwrite(&self.memfd, &zeros, u64::from(first) * ENTRY as u64);
        written.map_err(io::Error::from)?;
        self.used.insert(index, (first, count));
        Ok(first)
    }

    /// Frees the entries that start with `first`.
    pub fn give(&mut self, first: u32) {
        self.used.retain(|(used, _)| *used != first);
    }

    /// What a worker did with the queue of entry `index` when `data` ended; forgets it.
    pub fn take_serving(&self, index: u32) -> Result<u64, PageError> {
        let at = u64::from(index) * ENTRY as u64 + SERVING as u64 * 8;
        let mut bytes = [0; 8];
        rustix::io::pread(&self.memfd, &mut bytes, at).map_err(io::Error::from)?;
        rustix::io::pwrite(&self.memfd, &[0; 8], at).map_err(io::Error::from)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// The words of entry `index`, in the order of [`Counters`].
    pub fn read(&self, index: u32) -> Result<[u64; Counters::WORDS], PageError> {
        let mut bytes = [0; ENTRY];
        let read = rustix::io::pread(self.memfd.as_fd(), &mut bytes, u64::from(index) * ENTRY as u64);
        if read.map_err(io::Error::from)? != ENTRY {
            return Err(PageError::System(io::ErrorKind::UnexpectedEof.into()));
        }
        let mut words = [0; Counters::WORDS];
        for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_ne_bytes(*bytes);
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_reused_and_start_at_zero() {
        let mut page = Page::new().unwrap();
        assert_eq!((page.take(2).unwrap(), page.take(1).unwrap(), page.take(4).unwrap()), (0, 2, 3));
        rustix::io::pwrite(&page.memfd, &7u64.to_ne_bytes(), 2 * ENTRY as u64).unwrap();
        assert_eq!(page.read(2).unwrap()[0], 7);
        rustix::io::pwrite(&page.memfd, &1u64.to_ne_bytes(), (2 * ENTRY + SERVING * 8) as u64).unwrap();
        assert_eq!([page.take_serving(2).unwrap(), page.take_serving(2).unwrap()], [1, 0]);
        page.give(2);
        assert_eq!(page.take(2).unwrap(), 7);
        assert_eq!(page.take(1).unwrap(), 2);
        assert_eq!(page.read(2).unwrap()[0], 0);
        assert!(matches!(page.take(ENTRIES), Err(PageError::Full)));
        rustix::io::pwrite(&page.memfd, &7u64.to_ne_bytes(), 4 * ENTRY as u64).unwrap();
        let mut next = Page::adopt(page.share().unwrap());
        next.retake(4, 2).unwrap();
        next.retake(1, 3).unwrap();
        for (first, count) in [(0, 2), (3, 1), (5, 1), (5, 9), (ENTRIES, 1), (u32::MAX, 2)] {
            assert!(next.retake(first, count).is_err(), "{first} {count}");
        }
        assert_eq!((next.read(4).unwrap()[0], next.take(2).unwrap()), (7, 6));
    }
}
