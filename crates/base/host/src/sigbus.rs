//! Handling of SIGBUS: if a peer's file shrinks under a mapping, the peer loses its memory, but the process
//! survives.
//!
//! The handler replaces the whole mapping by zero pages and marks it as lost. It replaces all of it at once,
//! since each further page would fault again. Attack: a file of many pages that is truncated while a worker
//! copies from it.

use crate::error::{HostError, Named};
use crate::memory_limit::MAPPINGS;
use rustix::mm::{MapFlags, ProtFlags};
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, Once};

/// An address range that a signal handler can read while other threads change it: the version is odd during a
/// change, and different afterwards.
struct WatchSlot {
    version: AtomicU32,
    lost: AtomicBool,
    begin: AtomicUsize,
    len: AtomicUsize,
}

static SLOTS: [WatchSlot; MAPPINGS] = [const {
    WatchSlot {
        version: AtomicU32::new(0),
        lost: AtomicBool::new(false),
        begin: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
    }
}; MAPPINGS];
/// Slots from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Free slots below the highest one in use. Threads that change slots hold the lock.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static LOSSES: AtomicU64 = AtomicU64::new(0);

impl WatchSlot {
    fn set(&self, begin: usize, len: usize) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        self.begin.store(begin, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.lost.store(false, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// The range, if it contains `address`.
    fn range(&self, address: usize) -> Option<(usize, usize)> {
        let version = self.version.load(Ordering::Acquire);
        let (begin, len) = (self.begin.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        // A slot that is being changed can't contain the address: the mapping of a thread that just faulted
        // in it remains.
        let is_whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
        (is_whole && address.wrapping_sub(begin) < len).then_some((begin, len))
    }
}

/// A range registered with the fault handler.
#[derive(Debug)]
pub(crate) struct Watched(Option<usize>);

impl Watched {
    /// Registers a range; `None` if there are too many.
    pub fn new(begin: usize, len: usize) -> Option<Watched> {
        let mut free = FREE.lock().ok()?;
        let index = match free.pop() {
            Some(index) => index,
            None => {
                let index = USED.load(Ordering::Relaxed);
                if index == MAPPINGS {
                    return None;
                }
                USED.store(index + 1, Ordering::Release);
                index
            }
        };
        SLOTS[index].set(begin, len);
        Some(Watched(Some(index)))
    }

    /// A registration of nothing, for memory without a file.
    pub const fn nothing() -> Watched {
        Watched(None)
    }

    /// Whether a fault replaced the range.
    pub fn is_lost(&self) -> bool {
        self.0.is_some_and(|index| SLOTS[index].lost.load(Ordering::Acquire))
    }

    /// Unregisters the range, once.
    pub fn forget(&mut self) {
        if let Some(index) = self.0.take()
            && let Ok(mut free) = FREE.lock()
        {
            SLOTS[index].set(0, 0);
            free.push(index);
        }
    }
}

/// Number of mappings lost since the process started. While it does not change, no mapping needs to be
/// checked.
#[inline]
pub fn losses() -> u64 {
    LOSSES.load(Ordering::Acquire)
}

/// The previous handler of SIGBUS.
struct Former(UnsafeCell<MaybeUninit<libc::sigaction>>);
// SAFETY: written once, before the handler that reads it is installed.
unsafe impl Sync for Former {}
static FORMER: Former = Former(UnsafeCell::new(MaybeUninit::uninit()));

/// Installs the handler. Faults outside registered mappings go to the previous handler.
pub fn catch_sigbus() -> Result<(), HostError> {
    static ONCE: Once = Once::new();
    let mut result = 0;
    ONCE.call_once(|| {
        // SAFETY: a zeroed `sigaction` is a valid one; the handler has the signature that SA_SIGINFO asks
        // for, and does only what a signal handler may. The former one is stored before the handler can run.
        unsafe {
            result = libc::sigaction(libc::SIGBUS, std::ptr::null(), FORMER.0.get().cast());
            if result == 0 {
                let mut action: libc::sigaction = std::mem::zeroed();
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = handle;
                action.sa_sigaction = handler as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                result = libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
            }
        }
    });
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()).named("handling SIGBUS") }
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid `info`; a code above 0 says that it is about a fault, which has an
    // address.
    let fault = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr() as usize) };
    if !fault.is_some_and(replace) {
        pass_on(signal, info, context);
    }
}

/// Replaces the mapping that contains `address`; returns whether there is one.
fn replace(address: usize) -> bool {
    let used = USED.load(Ordering::Acquire).min(MAPPINGS);
    let found = SLOTS[..used].iter().find_map(|slot| Some((slot, slot.range(address)?)));
    let Some((slot, (begin, len))) = found else { return false };
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    let at = std::ptr::without_provenance_mut(begin);
    // SAFETY: the range is a mapping of ours, of which there are only spans and atomics, and these may find
    // other bytes at any time. The call is a bare system call.
    let done = unsafe { rustix::mm::mmap_anonymous(at, len, ProtFlags::READ | ProtFlags::WRITE, flags) };
    if done.is_ok() && !slot.lost.swap(true, Ordering::AcqRel) {
        LOSSES.fetch_add(1, Ordering::AcqRel);
    }
    done.is_ok()
}

fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: stored before this handler was installed, and never changed. A former handler gets what it
    // would have got; the default action is taken when the fault or the signal comes again.
    unsafe {
        let former = &*FORMER.0.get().cast::<libc::sigaction>();
        match former.sa_sigaction {
            libc::SIG_IGN => {}
            libc::SIG_DFL => {
                libc::sigaction(signal, former, std::ptr::null_mut());
                if (*info).si_code <= 0 {
                    libc::raise(signal);
                }
            }
            handler if former.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                std::mem::transmute::<usize, Handler>(handler)(signal, info, context);
            }
            handler => std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{is_lost, map_region};
    use ringway_mem::{Hint, Memory};
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    #[test]
    fn shrunk_memory_is_marked_lost_and_reads_as_zeros() {
        catch_sigbus().unwrap();
        let shrinking = memfd_create("shrinking", MemfdFlags::CLOEXEC).unwrap();
        let staying = memfd_create("staying", MemfdFlags::CLOEXEC).unwrap();
        let pages = 16;
        let map = |file, guest| {
            ftruncate(file, pages * 4096).unwrap();
            map_region(file, 0, pages * 4096, guest, guest).unwrap()
        };
        let memory = Memory::new(vec![map(&shrinking, 0), map(&staying, 1 << 20)]).unwrap();
        let at = |guest| memory.span_mut(guest, 8, &mut Hint::default()).unwrap();
        at(4096).write(&[7; 8]);
        at((1 << 20) + 4096).write(&[7; 8]);
        let before = losses();
        ftruncate(&shrinking, 0).unwrap();
        let mut bytes = [1; 8];
        at(4096).as_span().read(&mut bytes);
        assert_eq!(bytes, [0; 8]);
        at(8192).write(&[1; 8]);
        assert_eq!(memory.regions().iter().map(is_lost).collect::<Vec<_>>(), [true, false]);
        assert!(losses() > before);
        at((1 << 20) + 4096).as_span().read(&mut bytes);
        assert_eq!(bytes, [7; 8]);
    }

    #[test]
    fn huge_pages_are_replaced_too() {
        catch_sigbus().unwrap();
        let file = memfd_create("huge", MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB).unwrap();
        ftruncate(&file, 4 << 20).unwrap();
        let region = map_region(&file, 4096, 3 << 20, 0, 0).unwrap();
        ftruncate(&file, 0).unwrap();
        let memory = Memory::new(vec![region]).unwrap();
        let at = memory.span_mut(2 << 20, 8, &mut Hint::default()).unwrap();
        let mut bytes = [1; 8];
        at.as_span().read(&mut bytes);
        at.write(&[1; 8]);
        assert_eq!((bytes, is_lost(&memory.regions()[0])), ([0; 8], true));
    }

    #[test]
    fn a_range_is_found_until_unregistered() {
        let mut watched = Watched::new(0x7000, 0x1000).unwrap();
        let slot = &SLOTS[watched.0.unwrap()];
        assert_eq!(slot.range(0x7fff), Some((0x7000, 0x1000)));
        assert_eq!((slot.range(0x6fff), slot.range(0x8000)), (None, None));
        watched.forget();
        assert_eq!(slot.range(0x7000), None);
    }
}
