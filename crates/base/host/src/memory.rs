//! Shared memory: creating it, and mapping our own or a peer's.

use crate::error::{HostError, Named};
use crate::memory_limit::{Account, Share};
use crate::sigbus::Watched;
use crate::unmap::{Leaving, later};
use ringway_mem::Region;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{MapFlags, ProtFlags};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// `f_type` of hugetlbfs (statfs(2)).
const HUGETLBFS: u64 = 0x958_458f6;
const PAGE: u64 = 4096;

/// A new memfd of `size` bytes that can't shrink or grow any more.
pub fn memfd(name: &str, size: usize) -> Result<OwnedFd, HostError> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = rustix::fs::memfd_create(name, flags).named("memfd_create")?;
    rustix::fs::ftruncate(&file, size as u64).named("ftruncate of a memfd")?;
    crate::numa::place(&file, size);
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&file, seals).named("sealing a memfd")?;
    Ok(file)
}

/// Whether a file is a memfd that is sealed against shrinking and growing.
pub fn is_sealed(file: &OwnedFd) -> bool {
    rustix::fs::fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK | SealFlags::GROW))
}

/// Whether a file is one of huge pages, of which a hole that its owner makes may be impossible to fill again. One that
/// can't be asked counts as such.
pub fn is_of_huge_pages(file: &OwnedFd) -> bool {
    rustix::fs::fstatfs(file).map_or(true, |data| data.f_type as u64 == HUGETLBFS)
}

/// The size of a memfd that is sealed against shrinking and growing.
pub fn memfd_size(file: &OwnedFd) -> Result<usize, HostError> {
    if !is_sealed(file) {
        return Err(HostError::NotSealed);
    }
    Ok(rustix::fs::fstat(file).named("fstat of shared memory")?.st_size as usize)
}

/// The parts of a memfd that have pages: their offsets and lengths.
pub fn extents(file: impl AsFd) -> Result<Vec<(u64, u64)>, HostError> {
    let (file, mut all, mut at) = (file.as_fd(), Vec::new(), 0);
    loop {
        let begin = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
            Ok(begin) => begin,
            // There is none behind.
            Err(rustix::io::Errno::NXIO) => return Ok(all),
            Err(error) => return Err(HostError::Call { call: "lseek to data", error }),
        };
        let end = rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(begin)).named("lseek to a hole")?;
        all.push((begin, end - begin));
        at = end;
    }
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
    /// Size of a page in bytes.
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

/// A new memfd, like [`memfd`], with pages of size `wanted` if enough are free, and of smaller ones
/// otherwise; returns the size used. Its size is rounded up to pages, and huge pages are allocated at once,
/// since later there may be none.
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

/// Smallest memory in bytes for which huge pages are used.
const SMALL: usize = 1 << 20;

/// The page size of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageChoice {
    /// 2 MB pages if enough are free and the memory is large enough, ordinary ones otherwise.
    Large,
    /// Pages of this size.
    Only(Pages),
}

/// A new memfd like [`memfd`]'s, with these pages.
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

/// A reserved address range: guard page, mapping, guard page. An access beyond a peer's memory, by an error
/// of ours, faults instead of reaching another peer's memory.
#[derive(Debug)]
pub(crate) struct Reservation {
    whole: NonNull<u8>,
    len: usize,
    /// Where a mapping begins.
    base: NonNull<u8>,
    is_guarded: bool,
}

// SAFETY: an address range; nothing is touched through it here.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

/// Places with guards. Each takes two entries more of the kernel's list of mappings (`vm.max_map_count`,
/// 65,530), which must have room for every peer's regions.
static GUARDED: AtomicUsize = AtomicUsize::new(0);
const MOST_GUARDED: usize = 4096;

impl Reservation {
    /// Reserves a range for `mapped` bytes in pages of `page` bytes.
    pub fn new(mapped: usize, page: usize) -> Result<Reservation, HostError> {
        let impossible = || HostError::Impossible { offset: 0, len: mapped as u64 };
        let is_guarded = GUARDED.fetch_add(1, Ordering::Relaxed) < MOST_GUARDED;
        if !is_guarded {
            GUARDED.fetch_sub(1, Ordering::Relaxed);
        }
        let guard = if is_guarded { page } else { 0 };
        // The kernel aligns to its own pages only.
        let slack = page - PAGE as usize;
        let len = guard.checked_mul(2).and_then(|guards| mapped.checked_add(guards)?.checked_add(slack));
        let len = len.ok_or_else(impossible);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let whole = len.and_then(|len| {
            let none = std::ptr::null_mut();
            // SAFETY: a new mapping at a place that the kernel chooses replaces nothing.
            let whole = unsafe { rustix::mm::mmap_anonymous(none, len, ProtFlags::empty(), flags) };
            let whole = NonNull::new(whole.named("mmap of addresses")?.cast::<u8>());
            Ok((whole.ok_or_else(impossible)?, len))
        });
        let (whole, len) = whole.inspect_err(|_| release(is_guarded))?;
        let skip = (whole.addr().get() + guard).next_multiple_of(page) - whole.addr().get();
        // SAFETY: at most `guard + slack`, and so within the place.
        let base = unsafe { whole.add(skip) };
        Ok(Reservation { whole, len, base, is_guarded })
    }

    /// Where a mapping begins.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Maps `len` bytes of `file` at `offset`, `at` bytes from the start of the range.
    pub fn map(&self, at: usize, len: usize, file: BorrowedFd<'_>, offset: u64) -> Result<(), HostError> {
        self.map_as(MapFlags::SHARED, at, len, file, offset)
    }

    /// Maps `len` bytes of `file` at `offset`, shared or private, `at` bytes from the start of the range.
    fn map_as(
        &self,
        sharing: MapFlags,
        at: usize,
        len: usize,
        file: BorrowedFd<'_>,
        offset: u64,
    ) -> Result<(), HostError> {
        let end = self.whole.addr().get() + self.len;
        let begin = self.base.addr().get() + at;
        if begin > end || end - begin < len {
            return Err(HostError::Impossible { offset, len: len as u64 });
        }
        let flags = sharing | MapFlags::NORESERVE | MapFlags::FIXED;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: it replaces only addresses of this reserved range (checked), which are not used yet.
        let base = unsafe {
            rustix::mm::mmap(self.base.as_ptr().add(at).cast(), len, protection, flags, file, offset)
        };
        base.named("mmap of shared memory").map(drop)
    }
}

fn release(is_guarded: bool) {
    if is_guarded {
        GUARDED.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: mapped by us, and no pointer into it remains: spans borrow the keeper.
        let _ = unsafe { rustix::mm::munmap(self.whole.as_ptr().cast(), self.len) };
        release(self.is_guarded);
    }
}

/// Whether a mapping keeps its file open, so that parts of it can be mapped again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// No, which saves a descriptor.
    No,
    /// Yes.
    File,
}

/// The origin of a file mapping, used to map parts of it again.
#[derive(Debug)]
struct Origin {
    file: OwnedFd,
    /// Offset in the file at which the mapping begins.
    begin: u64,
    page: u64,
}

/// A shared mapping. A mapping of our own memory is unmapped when dropped, a peer's some time later.
#[derive(Debug)]
pub struct Mapping {
    /// Bytes from the start of the range to the first requested byte.
    skip: usize,
    len: usize,
    base: NonNull<u8>,
    /// Unregistered before the range is unmapped.
    watched: Watched,
    is_a_peers: bool,
    /// Set until it is dropped.
    held: Option<Held>,
}

// SAFETY: as for a place.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Resources of a mapping, dropped in this order.
#[derive(Debug)]
struct Held {
    place: Reservation,
    /// Bytes of the range, from its start, whose pages were already freed.
    emptied: usize,
    origin: Option<Origin>,
    _share: Share,
}

/// Bytes unmapped in one step: other threads' mmap and munmap calls wait for it.
const PIECE: usize = 4 << 20;

impl Leaving for Held {
    fn piece(&mut self) -> bool {
        let count = PIECE.min(self.place.len - self.emptied);
        // SAFETY: within the range, which is ours, and no pointer into it remains.
        let emptied = unsafe {
            let at = self.place.whole.add(self.emptied);
            rustix::mm::madvise(at.as_ptr().cast(), count, rustix::mm::Advice::LinuxDontNeed)
        };
        self.emptied += count;
        // Huge pages may not support partial freeing; they are few, and unmapped together.
        emptied.is_ok() && self.emptied < self.place.len
    }
}

impl Mapping {
    fn new(skip: usize, len: usize, watched: Watched, held: Held) -> Mapping {
        Mapping { skip, len, base: held.place.base, watched, is_a_peers: false, held: Some(held) }
    }

    /// Maps `len` bytes of `file` at `offset`, readable and writable; neither has to be page-aligned. The
    /// file must be long enough, and memory-backed: accesses to a file on disk could block.
    pub fn shared(file: impl AsFd, offset: u64, len: usize) -> Result<Mapping, HostError> {
        Mapping::counted(file.as_fd(), (offset, len), &Account::default(), Keep::No)
    }

    /// Maps `len` bytes of `file` at `offset`, both in whole pages, so that what is written is seen by nobody else. The
    /// file must be our own, long enough, and not change any more.
    pub fn private_of(file: impl AsFd, offset: u64, len: usize) -> Result<Mapping, HostError> {
        let stat = rustix::fs::fstat(&file).named("fstat of memory")?;
        let (size, needed) = (stat.st_size as u64, offset.saturating_add(len as u64));
        if needed > size {
            return Err(HostError::TooShort { size, needed });
        }
        let share = Account::default().take(len as u64)?;
        let place = Reservation::new(len, PAGE as usize)?;
        place.map_as(MapFlags::PRIVATE, 0, len, file.as_fd(), offset)?;
        let watched = Watched::new(place.base.addr().get(), len).ok_or(HostError::TooManyMappings)?;
        Ok(Mapping::new(0, len, watched, Held { place, emptied: 0, origin: None, _share: share }))
    }

    /// Maps `len` bytes at `offset` of a device's file, both in whole pages: a part of a PCI device, which exists as
    /// long as the mapping. The driver of its bus must be trusted, since an access waits for the device.
    pub fn of_device(file: impl AsFd, offset: u64, len: usize) -> Result<Arc<Mapping>, HostError> {
        let place = Reservation::new(len, PAGE as usize)?;
        place.map_as(MapFlags::SHARED, 0, len, file.as_fd(), offset)?;
        let held = Held { place, emptied: 0, origin: None, _share: Share::nothing() };
        Ok(Arc::new(Mapping::new(0, len, Watched::nothing(), held)))
    }

    /// As [`Mapping::shared`], charged to a port's `account`.
    fn counted(
        file: BorrowedFd<'_>,
        (offset, len): (u64, usize),
        account: &Account,
        keep: Keep,
    ) -> Result<Mapping, HostError> {
        // Attack: a file on a file system that the peer serves, which delays its answers. Only memory file
        // systems support seals, and for others the kernel answers itself.
        rustix::fs::fcntl_get_seals(file).map_err(|_| HostError::NotMemory)?;
        let kind = rustix::fs::fstatfs(file).named("fstatfs of shared memory")?.f_type as u64;
        let stat = rustix::fs::fstat(file).named("fstat of shared memory")?;
        // Attack: an offset so large that the sum overflows.
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
        let place = Reservation::new(mapped, page as usize)?;
        place.map(0, mapped, file, begin)?;
        let watched = Watched::new(place.base.addr().get(), mapped).ok_or(HostError::TooManyMappings)?;
        let origin = match keep {
            Keep::No => None,
            Keep::File => {
                let file = rustix::io::fcntl_dupfd_cloexec(file, 3).named("keeping shared memory")?;
                Some(Origin { file, begin, page })
            }
        };
        Ok(Mapping::new(
            (offset - begin) as usize,
            len,
            watched,
            Held { place, emptied: 0, origin, _share: share },
        ))
    }

    /// Maps parts of mapped files again, contiguously: of each mapping, `len` bytes at `offset`. All parts
    /// but the first begin on a page boundary, and all but the last end on one.
    fn stitched(account: &Account, parts: &[(&Mapping, u64, u64)]) -> Result<Mapping, HostError> {
        let (mut at, mut skip, mut len) = (0u64, 0, 0u64);
        let mut pages = Vec::with_capacity(parts.len());
        for (index, (mapping, offset, count)) in parts.iter().enumerate() {
            let origin =
                mapping.held.as_ref().and_then(|held| held.origin.as_ref()).ok_or(HostError::Scattered)?;
            // Each part is within its mapping, whose sums were checked.
            let from = origin.begin + mapping.skip as u64 + offset;
            let (before, end) = (from % origin.page, from + count);
            let is_last = index + 1 == parts.len();
            if index > 0 && before != 0 || !is_last && end % origin.page != 0 {
                return Err(HostError::Scattered);
            }
            skip += before;
            let whole = end.next_multiple_of(origin.page) - (from - before);
            pages.push((origin, from - before, at, whole));
            at += whole;
            len += count;
        }
        let (Ok(mapped), Ok(len)) = (usize::try_from(at), usize::try_from(len)) else {
            return Err(HostError::Scattered);
        };
        let share = account.take(at)?;
        let page = pages.iter().map(|(origin, ..)| origin.page).max().unwrap_or(PAGE);
        let place = Reservation::new(mapped, page as usize)?;
        for (origin, offset, at, len) in pages {
            place.map(at as usize, len as usize, origin.file.as_fd(), offset)?;
        }
        let watched = Watched::new(place.base.addr().get(), mapped).ok_or(HostError::TooManyMappings)?;
        let held = Held { place, emptied: 0, origin: None, _share: share };
        let mut mapping = Mapping::new(skip as usize, len, watched, held);
        mapping.is_a_peers = true;
        Ok(mapping)
    }

    /// New zeroed memory of our own.
    pub fn private(len: usize) -> Result<Arc<Mapping>, HostError> {
        let impossible = || HostError::Impossible { offset: 0, len: len as u64 };
        let mapped =
            len.checked_next_multiple_of(PAGE as usize).filter(|_| len > 0).ok_or_else(impossible)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at a place that the kernel chooses replaces nothing.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags) };
        let base = NonNull::new(base.named("mmap of memory")?.cast()).ok_or_else(impossible)?;
        let place = Reservation { whole: base, len: mapped, base, is_guarded: false };
        let held = Held { place, emptied: 0, origin: None, _share: Share::nothing() };
        Ok(Arc::new(Mapping::new(0, len, Watched::nothing(), held)))
    }

    /// Maps a whole memfd that is sealed against shrinking and growing.
    pub fn sealed(file: &OwnedFd) -> Result<Arc<Mapping>, HostError> {
        Ok(Arc::new(Mapping::shared(file, 0, memfd_size(file)?)?))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a mapping is never empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the file shrank. The memory then consists of private zero pages, and users of the mapping must
    /// release it.
    pub fn is_lost(&self) -> bool {
        self.watched.is_lost()
    }

    /// The mapping as words that several of our processes use as counters; empty if it is misaligned.
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

    /// The mapping as a region whose addresses are offsets.
    pub fn region(self: Arc<Mapping>) -> Region {
        self.region_at(0, 0)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // A fault between this and the unmapping would be unhandled, but can't occur: the range is no longer
        // used.
        self.watched.forget();
        if let Some(held) = self.held.take().filter(|_| self.is_a_peers) {
            later(Box::new(held));
        }
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
    map_region_for(&Account::default(), file, (offset, len), (guest, user), Keep::No)
}

/// As [`map_region`], charged to a port's `account`.
pub fn map_region_for(
    account: &Account,
    file: impl AsFd,
    (offset, len): (u64, u64),
    (guest, user): (u64, u64),
    keep: Keep,
) -> Result<Region, HostError> {
    let size = usize::try_from(len).ok().filter(|&size| size <= isize::MAX as usize);
    let size = size.ok_or(HostError::Impossible { offset, len })?;
    let mut mapping = Mapping::counted(file.as_fd(), (offset, size), account, keep)?;
    mapping.is_a_peers = true;
    Ok(Arc::new(mapping).region_at(guest, user))
}

/// Maps parts of mapped regions again, as one region at address 0: of each region, `len` bytes at `offset`.
/// For rings that are contiguous in the guest's IOVAs but not in its memory.
pub fn stitch(account: &Account, parts: &[(&Region, u64, u64)]) -> Result<Region, HostError> {
    let mut mapped = Vec::with_capacity(parts.len());
    for &(region, offset, len) in parts {
        let mapping = region.keeper().downcast_ref::<Mapping>().ok_or(HostError::Scattered)?;
        let fits = offset.checked_add(len).is_some_and(|end| len > 0 && end <= mapping.len as u64);
        mapped.push(fits.then_some((mapping, offset, len)).ok_or(HostError::Scattered)?);
    }
    Ok(Arc::new(Mapping::stitched(account, &mapped)?).region_at(0, 0))
}

/// Identifies an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId(u64, u64);

/// The file's identity and its resident size in bytes.
pub fn resident(file: impl AsFd) -> Result<(FileId, u64), HostError> {
    let stat = rustix::fs::fstat(file).named("fstat of shared memory")?;
    // Blocks have 512 bytes on every file system (stat(2)).
    Ok((FileId(stat.st_dev, stat.st_ino), (stat.st_blocks as u64).saturating_mul(512)))
}

/// Whether the file behind a mapped region shrank.
pub fn is_lost(region: &Region) -> bool {
    region.keeper().downcast_ref::<Mapping>().is_some_and(Mapping::is_lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_must_be_within_its_file() {
        let file = memfd("test", 8192).unwrap();
        assert_eq!(map_region(&file, 100, 8092, 0, 0).unwrap().len, 8092);
        assert!(matches!(map_region(&file, 100, 8093, 0, 0), Err(HostError::TooShort { .. })));
        assert!(matches!(map_region(&file, u64::MAX, 2, 0, 0), Err(HostError::Impossible { .. })));
        assert!(matches!(map_region(&file, 0, 0, 0, 0), Err(HostError::Impossible { .. })));
        assert!(matches!(map_region(&file, 0, u64::MAX, 0, 0), Err(HostError::Impossible { .. })));
    }

    #[test]
    fn memory_has_the_reported_page_size() {
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
    fn a_file_on_a_disk_is_refused_as_memory() {
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(matches!(Mapping::shared(&file, 0, 10), Err(HostError::NotMemory)));
    }

    #[test]
    fn stitched_mappings_are_contiguous() {
        use ringway_mem::{Hint, Memory};
        let file = memfd("test", 16 * 4096).unwrap();
        let account = Account::default();
        let region = map_region_for(&account, &file, (512, 15 * 4096), (0, 0), Keep::File).unwrap();
        let whole = Memory::new(vec![region.clone()]).unwrap();
        // In the file: the end of page 5, page 2, and the beginning of page 9.
        let at = |page: u64| page * 4096 - 512;
        let parts = [(&region, at(6) - 100, 100), (&region, at(2), 4096), (&region, at(9), 50)];
        let stitched = Memory::new(vec![stitch(&account, &parts).unwrap()]).unwrap();
        let span = |at, len| stitched.span_mut(at, len, &mut Hint::default()).unwrap();
        assert_eq!(stitched.regions()[0].len, 4246);
        span(98, 4).write(b"abcd");
        span(4194, 4).write(b"efgh");
        let read = |at| whole.span(at, 2, &mut Hint::default()).unwrap().read_array::<2>().unwrap();
        assert_eq!(
            [read(at(6) - 2), read(at(2)), read(at(3) - 2), read(at(9))],
            [*b"ab", *b"cd", *b"ef", *b"gh"]
        );
        for wrong in [
            [(&region, at(2), 100), (&region, at(3), 100)],
            [(&region, at(2), 4096), (&region, at(3) + 16, 100)],
            [(&region, at(2), 4096), (&region, 15 * 4096 - 10, 11)],
            [(&region, at(2), 4096), (&region, at(3), 0)],
        ] {
            assert!(matches!(stitch(&account, &wrong), Err(HostError::Scattered)));
        }
    }

    /// The kernel's description of the mapping at an address.
    fn mapped_at(address: usize) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let holds = |line: &&str| {
            let (begin, rest) = line.split_once('-').unwrap();
            let end = rest.split(' ').next().unwrap();
            let number = |text| usize::from_str_radix(text, 16).unwrap();
            (number(begin)..number(end)).contains(&address)
        };
        maps.lines().find(holds).map(str::to_string)
    }

    #[test]
    fn guard_pages_surround_a_mapping() {
        let file = memfd("test", 3 * 4096).unwrap();
        let mapping = Mapping::shared(&file, 0, 3 * 4096).unwrap();
        let base = mapping.base.addr().get();
        for page in [base - 4096, base + 3 * 4096] {
            let line = mapped_at(page).unwrap();
            assert!(line.contains(" ---p "), "{line}");
        }
    }

    #[test]
    fn unmapping_peer_memory_is_asynchronous() {
        let file = memfd("unmap-later", 3 * PIECE).unwrap();
        let region = map_region(&file, 0, 3 * PIECE as u64, 0, 0).unwrap();
        let base = region.base().addr().get();
        let is_mapped = || mapped_at(base).is_some_and(|line| line.contains("unmap-later"));
        let hold = crate::unmap::tests::hold();
        drop(region);
        assert!(is_mapped());
        drop(hold);
        while is_mapped() {
            std::thread::yield_now();
        }
        // Our own memory is unmapped synchronously.
        let ours = Mapping::shared(&file, 0, 4096).unwrap();
        let base = ours.base.addr().get();
        assert!(mapped_at(base).is_some_and(|line| line.contains("unmap-later")));
        drop(ours);
        assert!(!mapped_at(base).is_some_and(|line| line.contains("unmap-later")));
    }

    #[test]
    fn mappings_of_a_file_share_memory() {
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
