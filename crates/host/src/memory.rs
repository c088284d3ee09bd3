//! Shared memory: making it, and mapping it, ours or a peer's.

use crate::account::{Account, Share};
use crate::error::{HostError, Named};
use crate::fault::Watched;
use ringway_mem::Region;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// `f_type` of hugetlbfs (statfs(2)).
const HUGETLBFS: u64 = 0x958_458f6;
const PAGE: u64 = 4096;
/// A new memfd of `size` bytes that can't shrink or grow any more.
pub fn memfd(name: &str, size: usize) -> Result<OwnedFd, HostError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags).named("memfd_create")?;
    rustix::fs::ftruncate(&file, size as u64).named("ftruncate of a memfd")?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).named("sealing a memfd")?;
    Ok(file)
}

/// Size of the pages that memory consists of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pages {
    /// The system's own, 4 KB.
    Base,
    /// 2 MB.
    Large,
    /// 1 GB.
    Huge,
}

impl Pages {
    /// Bytes of one.
    pub const fn bytes(self) -> u64 {
        match self {
            Pages::Base => PAGE,
            Pages::Large => 2 << 20,
            Pages::Huge => 1 << 30,
        }
    }

    const fn smaller(self) -> Pages {
        match self {
            Pages::Huge => Pages::Large,
            _ => Pages::Base,
        }
    }
}

/// A new memfd like that of [`memfd`], of pages of size `wanted` if so many are free, and of smaller ones
/// otherwise; which. Its size is a multiple of them, and huge pages are allocated at once: later there may be
/// none.
pub fn memfd_of(name: &str, size: usize, wanted: Pages) -> Result<(OwnedFd, Pages), HostError> {
    let base = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    let kind = match wanted {
        Pages::Base => return Ok((memfd(name, size)?, Pages::Base)),
        Pages::Large => MemfdFlags::HUGE_2MB,
        Pages::Huge => MemfdFlags::HUGE_1GB,
    };
    let whole = (size as u64).next_multiple_of(wanted.bytes());
    let huge = || -> Result<OwnedFd, rustix::io::Errno> {
        let file = rustix::fs::memfd_create(name, base | kind)?;
        rustix::fs::ftruncate(&file, whole)?;
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, whole)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Ok(file)
    };
    match huge() {
        Ok(file) => Ok((file, wanted)),
        Err(_) => memfd_of(name, size, wanted.smaller()),
    }
}

/// Memory of fewer bytes is not worth huge pages.
const SMALL: usize = 1 << 20;

/// Which pages memory is to consist of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageChoice {
    /// 2 MB pages where so many are free and it is large enough for them, ordinary ones otherwise.
    Large,
    /// These.
    Only(Pages),
}

/// A new memfd like that of [`memfd`], of such pages.
pub fn memfd_in(name: &str, size: usize, choice: PageChoice) -> Result<OwnedFd, HostError> {
    match choice {
        PageChoice::Large if size < SMALL => memfd(name, size),
        PageChoice::Large => memfd_of(name, size, Pages::Large).map(|(file, _)| file),
        PageChoice::Only(pages) => match memfd_of(name, size, pages)? {
            (file, found) if found == pages => Ok(file),
            _ => Err(HostError::NoPages { page: pages.bytes() >> 20, size }),
        },
    }
}

/// A shared mapping, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    mapped: usize,
    /// From the mapping's begin to the first byte asked for.
    skip: usize,
    len: usize,
    watched: Watched,
    /// Dropped after the range was unmapped.
    _share: Share,
}

// SAFETY: a mapping is an address range; what it allows is the same on every thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; it hands out atomics and spans only.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of `file` from `offset` on, readable and writable; neither need lie on a page. The
    /// file must be long enough, and be memory: a file on a disk could block whoever reads it.
    pub fn shared(file: impl AsFd, offset: u64, len: usize) -> Result<Mapping, HostError> {
        Mapping::counted(file.as_fd(), offset, len, &Account::default())
    }

    /// The same, of a peer whose port has `account`.
    fn counted(
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        account: &Account,
    ) -> Result<Mapping, HostError> {
        // Attack: a file on a file system of the peer's own, which answers questions when it likes. Only the two that
        // are memory know seals, and the kernel asks no other's.
        rustix::fs::fcntl_get_seals(file).map_err(|_| HostError::NotMemory)?;
        let kind = rustix::fs::fstatfs(file).named("fstatfs of shared memory")?.f_type as u64;
        let stat = rustix::fs::fstat(file).named("fstat of shared memory")?;
        // Attack: an offset near the end of the number space, so that the sum is small.
        let impossible = HostError::Impossible { offset, len: len as u64 };
        let end = offset.checked_add(len as u64).filter(|_| len > 0).ok_or(impossible)?;
        if end > stat.st_size as u64 {
            return Err(HostError::TooShort { size: stat.st_size as u64, needed: end });
        }
        // Huge pages are mapped whole.
        let page = if kind == HUGETLBFS { (stat.st_blksize as u64).max(PAGE) } else { PAGE };
        let begin = offset - offset % page;
        let impossible = HostError::Impossible { offset, len: len as u64 };
        let mapped = (end - begin).checked_next_multiple_of(page).ok_or(impossible)?;
        let share = account.take(mapped)?;
        let mapped = mapped as usize;
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses replaces nothing.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), mapped, protection, flags, file, begin) };
        let base = base.named("mmap of shared memory")?;
        let base = NonNull::new(base.cast()).ok_or(HostError::Impossible { offset, len: len as u64 })?;
        let skip = (offset - begin) as usize;
        match Watched::new(base.addr().get(), mapped) {
            Some(watched) => Ok(Mapping { base, mapped, skip, len, watched, _share: share }),
            None => {
                // SAFETY: mapped just now, and nobody has seen the address.
                let _ = unsafe { rustix::mm::munmap(base.as_ptr().cast(), mapped) };
                Err(HostError::TooManyMappings)
            }
        }
    }

    /// New memory of our own, all zeros.
    pub fn private(len: usize) -> Result<Arc<Mapping>, HostError> {
        let impossible = || HostError::Impossible { offset: 0, len: len as u64 };
        let mapped =
            len.checked_next_multiple_of(PAGE as usize).filter(|_| len > 0).ok_or_else(impossible)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at a place that the kernel chooses replaces nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) };
        let base = NonNull::new(base.named("mmap of memory")?.cast()).ok_or_else(impossible)?;
        Ok(Arc::new(Mapping {
            base,
            mapped,
            skip: 0,
            len,
            watched: Watched::nothing(),
            _share: Share::nothing(),
        }))
    }

    /// Maps a whole memfd that is sealed against shrinking and growing.
    pub fn sealed(file: &OwnedFd) -> Result<Arc<Mapping>, HostError> {
        let seals = rustix::fs::fcntl_get_seals(file).named("reading the seals of shared memory")?;
        if !seals.contains(SealFlags::SHRINK | SealFlags::GROW) {
            return Err(HostError::NotSealed);
        }
        let size = rustix::fs::fstat(file).named("fstat of shared memory")?.st_size;
        Ok(Arc::new(Mapping::shared(file, 0, size as usize)?))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never: a mapping has bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the file behind it shrank. What is there now is zeros of our own, and nobody else sees them:
    /// whoever uses the mapping lets go of it.
    pub fn is_lost(&self) -> bool {
        self.watched.is_lost()
    }

    /// The mapping as words that several processes of ours count in; empty where it isn't aligned for that.
    pub fn words(&self) -> &[AtomicU64] {
        if !self.skip.is_multiple_of(8) {
            return &[];
        }
        // SAFETY: the range is mapped while `self` lives, aligned (checked), and touched as atomics only.
        unsafe { std::slice::from_raw_parts(self.base.add(self.skip).cast().as_ptr(), self.len / 8) }
    }

    /// The mapping as a region of a peer's memory, which keeps it mapped.
    pub fn region_at(self: Arc<Mapping>, guest: u64, user: u64) -> Region {
        // SAFETY: `skip..skip + len` lies within the mapping, which the region keeps.
        unsafe { Region::new(guest, user, self.len as u64, self.base.add(self.skip), self) }
    }

    /// The mapping as a region whose addresses are offsets into it.
    pub fn region(self: Arc<Mapping>) -> Region {
        self.region_at(0, 0)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A fault between the two would be nobody's, and there can be none: nobody uses the range any more.
        self.watched.forget();
        // SAFETY: mapped by us, and nobody has a pointer into it any more: spans borrow the keeper.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

/// Maps `len` bytes of a peer's `file` from `offset` on, as the part of its memory at `guest` and `user`.
pub fn map_region(
    file: impl AsFd,
    offset: u64,
    len: u64,
    guest: u64,
    user: u64,
) -> Result<Region, HostError> {
    map_region_for(&Account::default(), file, offset, len, (guest, user))
}

/// The same, of a peer whose port has `account`.
pub fn map_region_for(
    account: &Account,
    file: impl AsFd,
    offset: u64,
    len: u64,
    (guest, user): (u64, u64),
) -> Result<Region, HostError> {
    let size = usize::try_from(len).ok().filter(|&size| size <= isize::MAX as usize);
    let size = size.ok_or(HostError::Impossible { offset, len })?;
    let mapping = Mapping::counted(file.as_fd(), offset, size, account)?;
    Ok(Arc::new(mapping).region_at(guest, user))
}

/// Whether the file behind a region that was mapped here shrank under it.
pub fn is_lost(region: &Region) -> bool {
    region.keeper().downcast_ref::<Mapping>().is_some_and(Mapping::is_lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_lies_within_its_file() {
        let file = memfd("test", 8192).unwrap();
        assert_eq!(map_region(&file, 100, 8092, 0, 0).unwrap().len, 8092);
        assert!(matches!(map_region(&file, 100, 8093, 0, 0), Err(HostError::TooShort { .. })));
        assert!(matches!(map_region(&file, u64::MAX, 2, 0, 0), Err(HostError::Impossible { .. })));
        assert!(matches!(map_region(&file, 0, 0, 0, 0), Err(HostError::Impossible { .. })));
        assert!(matches!(map_region(&file, 0, u64::MAX, 0, 0), Err(HostError::Impossible { .. })));
    }

    #[test]
    fn memory_is_of_the_pages_it_says() {
        for wanted in [Pages::Base, Pages::Large, Pages::Huge] {
            let (file, pages) = memfd_of("test", 5000, wanted).unwrap();
            assert!(pages <= wanted);
            let stat = rustix::fs::fstat(&file).unwrap();
            assert_eq!(stat.st_blksize as u64, pages.bytes());
            assert!(stat.st_size as u64 >= 5000);
            match memfd_in("test", 5000, PageChoice::Only(wanted)) {
                Ok(_) => assert_eq!(pages, wanted),
                Err(error) => assert!(matches!(error, HostError::NoPages { size: 5000, .. }), "{error}"),
            }
            memfd_in("test", 5 << 20, PageChoice::Large).unwrap();
            let mapping = Mapping::shared(&file, 4096, 904).unwrap();
            assert_eq!((mapping.len(), mapping.words().len()), (904, 113));
            mapping.words()[112].store(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn a_file_on_a_disk_is_no_memory() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(matches!(Mapping::shared(&file, 0, 10), Err(HostError::NotMemory)));
    }

    #[test]
    fn what_one_mapping_writes_another_reads() {
        use ringway_mem::{Hint, Memory};
        let file = memfd("test", 4096).unwrap();
        let at = Memory::new(vec![map_region(&file, 10, 100, 0x5000, 0).unwrap()]).unwrap();
        at.span_mut(0x5000, 3, &mut Hint::default()).unwrap().write(b"abc");
        let whole = Memory::new(vec![Mapping::sealed(&file).unwrap().region()]).unwrap();
        let mut read = [0; 3];
        whole.span(10, 3, &mut Hint::default()).unwrap().read(&mut read);
        assert_eq!(&read, b"abc");
    }
}
