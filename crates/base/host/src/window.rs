//! A reserved range of addresses in which shared memory comes and goes, such as the rings of a guest's ports: a machine
//! has the whole range as memory from its start, and the kernel notices what is mapped there later.

use crate::error::{HostError, Named};
use crate::memory::{Reservation, memfd_size};
use crate::sigbus::Watched;
use ringway_mem::Region;
use rustix::mm::{MapFlags, ProtFlags};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

/// Memory begins at multiples of this, at which the kernel can use large pages.
const ALIGNMENT: usize = 2 << 20;

/// A reserved range.
#[derive(Debug)]
pub struct Window {
    place: Reservation,
    len: usize,
    /// Offsets and lengths of what is mapped.
    taken: Mutex<BTreeMap<usize, usize>>,
}

impl Window {
    /// Reserves `len` bytes, rounded up to 2 MB.
    pub fn new(len: usize) -> Result<Arc<Window>, HostError> {
        let impossible = HostError::Impossible { offset: 0, len: len as u64 };
        let len = len.checked_next_multiple_of(ALIGNMENT).filter(|len| *len > 0).ok_or(impossible)?;
        let place = Reservation::new(len, ALIGNMENT)?;
        Ok(Arc::new(Window { place, len, taken: Mutex::default() }))
    }

    /// The window's length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a window is never empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The window's first address.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.place.base()
    }

    /// The offset at which memory is, if it is in this window.
    pub fn offset_of(&self, region: &Region) -> Option<u64> {
        let offset = region.base().addr().get().checked_sub(self.base().addr().get())?;
        (offset < self.len).then_some(offset as u64)
    }

    /// Maps a whole memfd that is sealed against shrinking and growing. It stays until the region and its clones are
    /// dropped. `None` if there is no room for it.
    pub fn sealed(self: &Arc<Window>, file: &OwnedFd) -> Result<Option<Region>, HostError> {
        let len = memfd_size(file)?;
        let Some(begin) = self.take(len) else { return Ok(None) };
        let watched = Watched::nothing();
        let mut part = Part { window: self.clone(), begin, len, watched };
        self.place.map(begin, len, file.as_fd(), 0)?;
        let address = self.base().addr().get() + begin;
        part.watched = Watched::new(address, len).ok_or(HostError::TooManyMappings)?;
        // SAFETY: `begin..begin + len` is within the range (checked by `take`).
        let base = unsafe { self.base().add(begin) };
        // SAFETY: `len` bytes were mapped there, readable and writable, until the part is dropped.
        Ok(Some(unsafe { Region::new(0, 0, len as u64, base, Arc::new(part)) }))
    }

    /// Takes the first free `len` bytes, whole pages.
    fn take(&self, len: usize) -> Option<usize> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut begin = 0_usize;
        for (at, used) in &*taken {
            if begin.checked_add(len)? <= *at {
                break;
            }
            begin = (at + used).next_multiple_of(ALIGNMENT);
        }
        // Attack: a peer whose memory is larger than the window.
        let fits = len > 0 && begin.checked_add(len)? <= self.len;
        fits.then(|| {
            taken.insert(begin, len);
            begin
        })
    }

    /// Unmaps a part: its addresses are reserved as before.
    fn free(&self, begin: usize, len: usize) {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: the part is within the range, and no pointer into it remains: its region is gone.
        let emptied = unsafe {
            let at = self.base().add(begin).as_ptr().cast();
            rustix::mm::mmap_anonymous(at, len, ProtFlags::empty(), flags)
        };
        // Where that fails, for lack of memory, the addresses are not used again.
        if emptied.named("mmap of addresses").is_ok() {
            self.taken.lock().unwrap_or_else(PoisonError::into_inner).remove(&begin);
        }
    }
}

/// What is mapped in a window, until it is dropped.
#[derive(Debug)]
struct Part {
    window: Arc<Window>,
    begin: usize,
    len: usize,
    watched: Watched,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.watched.forget();
        self.window.free(self.begin, self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::memfd;
    use ringway_mem::Memory;

    /// Writes a byte to the first byte of a region, or reads it.
    fn first(region: &Region, byte: Option<u8>) -> u8 {
        let memory = Memory::new(vec![region.clone()]).unwrap();
        let span = memory.user_span(0, 1).unwrap();
        if let Some(byte) = byte {
            span.write(&[byte]);
        }
        let mut read = [0];
        span.as_span().read(&mut read);
        read[0]
    }

    #[test]
    fn memory_comes_and_goes_at_free_places() {
        let window = Window::new(5 << 20).unwrap();
        assert_eq!((window.len(), window.is_empty()), (6 << 20, false));
        let file = |pages: usize| memfd("test", pages * 4096).unwrap();
        let (small, large) = (file(1), file(700));
        let one = window.sealed(&small).unwrap().unwrap();
        let two = window.sealed(&large).unwrap().unwrap();
        assert_eq!([&one, &two].map(|region| window.offset_of(region)), [Some(0), Some(2 << 20)]);
        assert_eq!((one.len, two.len), (4096, 700 * 4096));
        assert!(window.sealed(&small).unwrap().is_none(), "there is no room behind");
        first(&one, Some(7));
        let clone = one.clone();
        drop(one);
        assert_eq!(first(&clone, None), 7, "a clone keeps it");
        drop(clone);
        let again = window.sealed(&small).unwrap().unwrap();
        assert_eq!((window.offset_of(&again), first(&again, None)), (Some(0), 7), "the same file");
        drop(two);
        let other = window.sealed(&file(2)).unwrap().unwrap();
        assert_eq!((window.offset_of(&other), first(&other, None)), (Some(2 << 20), 0), "another file");
        assert_eq!(window.offset_of(&Region::private(0, 0, 4096)), None);
    }

    #[test]
    fn what_is_not_sealed_or_too_large_is_refused() {
        let window = Window::new(1).unwrap();
        assert!(window.sealed(&memfd("large", 4 << 20).unwrap()).unwrap().is_none());
        let flags = rustix::fs::MemfdFlags::ALLOW_SEALING;
        let open = rustix::fs::memfd_create("open", flags).unwrap();
        assert!(matches!(window.sealed(&open), Err(HostError::NotSealed)));
        assert!(Window::new(0).is_err() && Window::new(usize::MAX).is_err());
    }
}
