//! Which descriptors of this process are handles of `/dev/netmap`. Several descriptors may be one handle (`dup`).

use crate::Result;
use crate::port::{Port, Use};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU16, AtomicU32};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Descriptors that can be handles; those with larger numbers are not given.
const DESCRIPTORS: usize = 1 << 16;
/// Handles at a time.
const HANDLES: usize = 1024;

/// A port, and what a handle has of it.
#[derive(Debug)]
pub struct Bound {
    pub port: Arc<Mutex<Port>>,
    pub own: Use,
}

impl Bound {
    /// The port, for this thread alone.
    pub fn port(&self) -> MutexGuard<'_, Port> {
        // A panic is a fault of this library; what it leaves is checked as everything else.
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A handle.
#[derive(Debug)]
pub struct Handle {
    bound: Mutex<Option<Bound>>,
    /// How many descriptors it has; 0: it is free.
    descriptors: AtomicU32,
    /// The process that opened it.
    process: AtomicU32,
}

static POOL: [Handle; HANDLES] = [const {
    Handle { bound: Mutex::new(None), descriptors: AtomicU32::new(0), process: AtomicU32::new(0) }
}; HANDLES];
/// The handle of each descriptor, from 1 on; 0: none.
static TABLE: [AtomicU16; DESCRIPTORS] = [const { AtomicU16::new(0) }; DESCRIPTORS];

impl Handle {
    /// What it has, if it is registered, for this thread alone.
    pub fn bound(&self) -> MutexGuard<'_, Option<Bound>> {
        self.bound.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// NIOCTXSYNC and NIOCRXSYNC.
    pub fn sync(&self, dir: usize) -> Result<()> {
        let bound = self.bound();
        let bound = bound.as_ref().ok_or(libc::ENXIO)?;
        if bound.own.bound[dir] { bound.port().sync(dir).map(drop) } else { Ok(()) }
    }

    /// Syncs for a poll, and says what is ready.
    pub fn poll(&self, events: i16) -> i16 {
        self.bound().as_ref().map_or(libc::POLLERR, |bound| bound.port().poll(bound.own, events))
    }

    /// Before sleeping; `false`: something may be ready.
    pub fn arm(&self, events: i16) -> bool {
        self.bound().as_ref().is_none_or(|bound| bound.port().arm(bound.own, events))
    }

    /// After its descriptor `fd` was readable.
    pub fn woken(&self, fd: i32) {
        if let Some(bound) = self.bound().as_ref() {
            bound.port().woken(fd);
        }
    }
}

fn place(fd: i32) -> Option<&'static AtomicU16> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The handle of a descriptor.
#[inline]
pub fn get(fd: i32) -> Option<&'static Handle> {
    let number = place(fd)?.load(SeqCst);
    POOL.get(usize::from(number).checked_sub(1)?)
}

/// A new handle for a new descriptor.
pub fn begin(fd: i32) -> Result<()> {
    let place = place(fd).ok_or(libc::EMFILE)?;
    let take = |handle: &Handle| handle.descriptors.compare_exchange(0, 1, SeqCst, SeqCst).is_ok();
    let index = POOL.iter().position(take).ok_or(libc::EMFILE)?;
    if let Some(handle) = POOL.get(index) {
        handle.process.store(std::process::id(), SeqCst);
    }
    place.store(index as u16 + 1, SeqCst);
    Ok(())
}

/// `new` is `old`, too, as far as it is a handle. What `new` was before is closed.
pub fn duplicated(old: i32, new: i32) {
    if old == new || new < 0 {
        return;
    }
    closed(new);
    if let (Some(handle), Some(from), Some(to)) = (get(old), place(old), place(new)) {
        handle.descriptors.fetch_add(1, SeqCst);
        to.store(from.load(SeqCst), SeqCst);
    }
}

/// Before a descriptor is closed.
pub fn closed(fd: i32) {
    crate::sets::closed(fd);
    let Some(handle) = get(fd) else { return };
    if let Some(place) = place(fd) {
        place.store(0, SeqCst);
    }
    // In a child, a thread that it does not have may have the lock, and what is pending is the parent's to send.
    if handle.process.load(SeqCst) != std::process::id() {
        return;
    }
    let mut bound = handle.bound();
    if handle.descriptors.load(SeqCst) == 1
        && let Some(bound) = bound.take()
    {
        let mut port = bound.port();
        port.numbers &= !(1 << bound.own.number);
        if port.numbers == 0 {
            port.finish();
        }
    }
    handle.descriptors.fetch_sub(1, SeqCst);
}
