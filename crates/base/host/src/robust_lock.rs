//! A lock of several processes that outlives its holder.

use crate::error::{HostError, Named};
use crate::fixed_mapping::FixedMapping;
use libc::{c_int, pthread_mutex_t, pthread_mutexattr_t};
use rustix::io::Errno;
use std::marker::PhantomData;
use std::mem::{MaybeUninit, size_of};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Why a lock can't be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// A holder ended within it: what it protects may be in any state, and nobody can ever take it again.
    #[error("a process ended while it held the lock")]
    Lost,
    /// This thread has it already.
    #[error("this thread has the lock already")]
    Held,
    /// The memory has no such lock.
    #[error("the memory has no lock")]
    Invalid,
}

/// A lock in memory that several processes map at the same address. They trust each other: a process that writes to the
/// lock's memory harms the others. It is the C library's, whose robust list the kernel reads when a thread ends.
#[derive(Debug)]
pub struct RobustLock {
    at: NonNull<pthread_mutex_t>,
    /// Keeps the memory.
    _mapping: Arc<FixedMapping>,
}

// SAFETY: the lock is made for several threads, and for several processes.
unsafe impl Send for RobustLock {}
// SAFETY: as above.
unsafe impl Sync for RobustLock {}

/// The lock is held until this is dropped.
#[derive(Debug)]
pub struct RobustGuard<'l> {
    lock: &'l RobustLock,
    /// The thread that took it releases it.
    _thread: PhantomData<*mut ()>,
}

fn check(call: &'static str, result: c_int) -> Result<(), HostError> {
    if result == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(result)).named(call) }
}

impl RobustLock {
    /// Makes a lock in memory that nobody uses yet, `offset` bytes from its begin.
    ///
    /// # Errors
    /// If the memory has one already, or the C library refuses.
    pub fn create(mapping: &Arc<FixedMapping>, offset: usize) -> Result<RobustLock, HostError> {
        let lock = RobustLock::attach(mapping, offset)?;
        // A lock is not made anew while others have it.
        let words = size_of::<pthread_mutex_t>() / size_of::<AtomicU32>();
        let is_used = (0..words).any(|word| {
            // SAFETY: within the mutex's memory, which is mapped; others access it as atomics.
            let word = unsafe { lock.at.cast::<AtomicU32>().add(word).as_ref() };
            word.load(Ordering::Relaxed) != 0
        });
        if is_used {
            return Err(Errno::EXIST).named("making a lock where one is");
        }
        let mut kind = MaybeUninit::<pthread_mutexattr_t>::uninit();
        // SAFETY: the attributes are initialized by the first call, and used by the others before the last one ends
        // their life; the mutex's memory is mapped, aligned and long enough, and nobody else uses it yet.
        unsafe {
            check("pthread_mutexattr_init", libc::pthread_mutexattr_init(kind.as_mut_ptr()))?;
            let kind = kind.as_mut_ptr();
            let shared = libc::pthread_mutexattr_setpshared(kind, libc::PTHREAD_PROCESS_SHARED);
            let robust = libc::pthread_mutexattr_setrobust(kind, libc::PTHREAD_MUTEX_ROBUST);
            let checked = libc::pthread_mutexattr_settype(kind, libc::PTHREAD_MUTEX_ERRORCHECK);
            let made = libc::pthread_mutex_init(lock.at.as_ptr(), kind);
            libc::pthread_mutexattr_destroy(kind);
            for result in [shared, robust, checked, made] {
                check("pthread_mutex_init", result)?;
            }
        }
        Ok(lock)
    }

    /// The lock that another process made there.
    ///
    /// # Errors
    /// If the memory is too short or can't be written.
    pub fn attach(mapping: &Arc<FixedMapping>, offset: usize) -> Result<RobustLock, HostError> {
        let len = size_of::<pthread_mutex_t>();
        let impossible = HostError::Impossible { offset: offset as u64, len: len as u64 };
        let at = mapping.place(offset, len).ok_or(impossible)?;
        Ok(RobustLock { at: at.cast(), _mapping: mapping.clone() })
    }

    /// Takes the lock if nobody has it, or if the one who had it has ended: for a lock that protects no data.
    pub fn take_over(&self) -> Option<RobustGuard<'_>> {
        // SAFETY: as in `lock`.
        let taken = match unsafe { libc::pthread_mutex_trylock(self.at.as_ptr()) } {
            0 => true,
            // SAFETY: this thread holds it.
            libc::EOWNERDEAD => unsafe { libc::pthread_mutex_consistent(self.at.as_ptr()) == 0 },
            _ => false,
        };
        taken.then_some(RobustGuard { lock: self, _thread: PhantomData })
    }

    /// Waits for the lock, and takes it.
    ///
    /// # Errors
    /// If nobody can take it any more, or this thread has it.
    pub fn lock(&self) -> Result<RobustGuard<'_>, LockError> {
        // SAFETY: the memory is mapped, and `create` made the mutex, here or in another process. If a process wrote
        // something else there, which it is trusted not to do, the call fails or waits.
        match unsafe { libc::pthread_mutex_lock(self.at.as_ptr()) } {
            0 => Ok(RobustGuard { lock: self, _thread: PhantomData }),
            libc::EOWNERDEAD => {
                // Without `pthread_mutex_consistent` before, all others fail from now on.
                // SAFETY: this thread holds it.
                unsafe { libc::pthread_mutex_unlock(self.at.as_ptr()) };
                Err(LockError::Lost)
            }
            libc::ENOTRECOVERABLE => Err(LockError::Lost),
            libc::EDEADLK => Err(LockError::Held),
            _ => Err(LockError::Invalid),
        }
    }
}

impl Drop for RobustGuard<'_> {
    fn drop(&mut self) {
        // SAFETY: this thread holds it: the guard can't leave the thread.
        unsafe { libc::pthread_mutex_unlock(self.lock.at.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixed_mapping::FixedAccess;
    use std::cell::UnsafeCell;

    /// Nothing else is mapped there in a process of tests.
    const PLACE: usize = 0x7310_0000_0000;

    fn mapping(place: usize) -> Arc<FixedMapping> {
        let file = crate::memfd("lock", 4096).unwrap();
        Arc::new(FixedMapping::new(&file, place, 4096, FixedAccess::Data).unwrap())
    }

    #[test]
    fn one_thread_has_the_lock_at_a_time() {
        struct Number(UnsafeCell<u64>);
        // SAFETY: it is used within the lock.
        unsafe impl Sync for Number {}
        let lock = RobustLock::create(&mapping(PLACE), 0).unwrap();
        let number = Number(UnsafeCell::new(0));
        let count = |number: &Number| {
            for _ in 0..10_000 {
                let _guard = lock.lock().unwrap();
                // SAFETY: this thread has the lock.
                unsafe { *number.0.get() += 1 };
            }
        };
        std::thread::scope(|scope| (0..3).for_each(|_| _ = scope.spawn(|| count(&number))));
        assert_eq!(number.0.into_inner(), 30_000);
        let guard = lock.lock().unwrap();
        assert_eq!(lock.lock().err(), Some(LockError::Held));
        drop(guard);
        assert!(lock.lock().is_ok());
        assert!(RobustLock::create(&lock._mapping, 0).is_err(), "there is one");
    }

    #[test]
    fn a_lock_whose_holder_ended_is_lost_for_all() {
        let mapping = mapping(PLACE + 0x1_0000);
        let lock = RobustLock::create(&mapping, 0).unwrap();
        let other = RobustLock::attach(&mapping, 0).unwrap();
        // A thread that ends with the lock is to the kernel what a process is that ends with it.
        std::thread::scope(|scope| scope.spawn(|| std::mem::forget(lock.lock())).join()).unwrap();
        assert_eq!(other.lock().err(), Some(LockError::Lost));
        assert_eq!(lock.lock().err(), Some(LockError::Lost));
        assert_eq!(
            std::thread::scope(|scope| scope.spawn(|| lock.lock().err()).join()).unwrap(),
            Some(LockError::Lost)
        );
    }

    #[test]
    fn a_lock_that_protects_nothing_is_taken_over() {
        let mapping = mapping(PLACE + 0x2_0000);
        assert!(RobustLock::create(&mapping, 4090).is_err() && RobustLock::create(&mapping, 4).is_err());
        let lock = RobustLock::create(&mapping, 64).unwrap();
        let guard = lock.take_over().unwrap();
        let elsewhere = |lock: &RobustLock| {
            std::thread::scope(|scope| scope.spawn(|| lock.take_over().is_some()).join()).unwrap()
        };
        assert!(!elsewhere(&lock) && lock.take_over().is_none());
        drop(guard);
        assert!(elsewhere(&lock));
        for _ in 0..3 {
            let end = || std::mem::forget(lock.take_over());
            std::thread::scope(|scope| scope.spawn(end).join()).unwrap();
            assert!(elsewhere(&lock));
        }
    }
}
