//! Syncs by a loop (`NETMAP_REQ_SYNC_KLOOP_START`): the program, or its guest, writes positions to a control block, the
//! CSB, and a thread of it that called `ioctl` syncs until another one stops it.

use crate::Result;
use crate::handles::Handle;
use crate::real::syscall;
use crate::transfer::{RX, TX};
use crate::waiting::sleep;
use libc::pollfd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

/// Bytes of an entry, one for each ring and direction.
const ENTRY: usize = 64;
/// States of a handle's loop.
const RUNNING: u32 = 1;
const STOPPING: u32 = 2;
/// Longest sleep, after which the loop looks whether it is stopped.
const LONGEST: Duration = Duration::from_millis(20);

/// Words of an entry that the program writes: its positions, and whether it wants to be woken.
const HEAD: usize = 0;
const CUR: usize = 1;
const WANTS_WAKE: usize = 2;
/// Words of an entry that the loop writes.
const DONE: usize = 0;
const TAIL: usize = 1;
const IS_SLEEPING: usize = 2;

/// A control block of the program.
#[derive(Debug)]
pub struct Csb {
    to_loop: NonNull<u8>,
    to_program: NonNull<u8>,
    /// The rings, in the order of the entries.
    rings: Vec<usize>,
}

// SAFETY: addresses of the program, whose words are accessed as atomics.
unsafe impl Send for Csb {}

impl Csb {
    /// The block at two addresses of the program, for the rings that a handle has.
    ///
    /// # Errors
    /// EINVAL: they are not aligned; EFAULT: nothing is mapped there.
    pub fn new(at: [u64; 2], bound: [bool; 2]) -> Result<Csb> {
        let rings: Vec<usize> = [TX, RX].into_iter().filter(|dir| bound[*dir]).collect();
        let [to_loop, to_program] = at.map(|at| NonNull::new(at as *mut u8).ok_or(libc::EFAULT));
        let (to_loop, to_program) = (to_loop?, to_program?);
        for at in [to_loop, to_program] {
            let address = at.addr().get();
            if !address.is_multiple_of(ENTRY) {
                return Err(libc::EINVAL);
            }
            let page = address & !4095;
            let len = (address + ENTRY * rings.len() - page) as u64;
            let mut resident = [0_u8; 4];
            let arguments = [page as u64, len, resident.as_mut_ptr().addr() as u64, 0, 0, 0];
            // SAFETY: at most two entries are in two pages, for which there is room.
            if unsafe { syscall(libc::SYS_mincore, arguments) } < 0 {
                return Err(libc::EFAULT);
            }
        }
        Ok(Csb { to_loop, to_program, rings })
    }

    fn word(at: NonNull<u8>, entry: usize, word: usize) -> &'static AtomicU32 {
        // SAFETY: `new` checked that the entries are mapped and aligned; the program keeps them while it has the
        // handle, by netmap's interface.
        unsafe { AtomicU32::from_ptr(at.as_ptr().add(entry * ENTRY + word * 4).cast()) }
    }

    fn given(&self, entry: usize, word: usize) -> &'static AtomicU32 {
        Csb::word(self.to_loop, entry, word)
    }

    fn told(&self, entry: usize, word: usize) -> &'static AtomicU32 {
        Csb::word(self.to_program, entry, word)
    }

    /// How many rings it has.
    pub fn entries(&self) -> usize {
        self.rings.len()
    }
}

/// Signals an eventfd of the program; negative numbers are none.
fn signal(fd: i32) {
    let one = 1_u64.to_ne_bytes();
    if fd >= 0 {
        // SAFETY: the call reads eight bytes.
        unsafe { syscall(libc::SYS_write, [fd as u64, one.as_ptr().addr() as u64, 8, 0, 0, 0]) };
    }
}

/// Syncs each ring once; whether one has moved.
fn turn(handle: &Handle, fd: i32, eventfds: &[[i32; 2]]) -> Result<bool> {
    let bound = handle.bound(fd);
    let bound = bound.as_ref().ok_or(libc::ENXIO)?;
    let csb = bound.csb.as_ref().ok_or(libc::EINVAL)?;
    let mut port = bound.port();
    let mut has_moved = false;
    for (entry, dir) in csb.rings.iter().copied().enumerate() {
        // The program writes `cur` first, so that it is never behind `head`.
        let head = csb.given(entry, HEAD).load(Acquire);
        let cur = csb.given(entry, CUR).load(Acquire);
        port.rings.set_position(dir, (head, cur));
        port.sync(dir)?;
        let side = port.positions(dir);
        let done = if dir == TX { side.next } else { side.head };
        let tail = csb.told(entry, TAIL);
        let has_news = tail.load(Relaxed) != side.tail;
        csb.told(entry, DONE).store(done, Release);
        tail.store(side.tail, Release);
        fence(SeqCst);
        if has_news && csb.given(entry, WANTS_WAKE).load(Relaxed) != 0 {
            signal(eventfds.get(entry).map_or(-1, |pair| pair[1]));
        }
        has_moved |= has_news;
    }
    Ok(has_moved)
}

/// Sleeps until the port or the program wakes the loop, which looks again first.
fn rest(handle: &Handle, fd: i32, eventfds: &[[i32; 2]], pause: Duration) -> Result<()> {
    let wakes: Vec<i32> = eventfds.iter().map(|pair| pair[0]).collect();
    let can_wake = !wakes.is_empty() && wakes.iter().all(|fd| *fd >= 0);
    let mut fds: Vec<pollfd> = Vec::new();
    let mut most = pause.min(LONGEST);
    if can_wake {
        set_sleeping(handle, fd, 1);
        fence(SeqCst);
        let has_moved = turn(handle, fd, eventfds)?;
        let may_sleep = !has_moved && handle.arm(fd, libc::POLLIN | libc::POLLOUT);
        most = if may_sleep { LONGEST } else { Duration::ZERO };
        let one = |fd| pollfd { fd, events: libc::POLLIN, revents: 0 };
        fds = wakes.iter().copied().chain([handle.watch(fd)]).map(one).collect();
    }
    let _ = sleep(&mut fds, most, std::ptr::null());
    if can_wake {
        set_sleeping(handle, fd, 0);
        if fds.last().is_some_and(|one| one.revents != 0) {
            handle.woken(fd);
        }
        for one in fds.iter().take(wakes.len()).filter(|one| one.revents & libc::POLLIN != 0) {
            let mut count = [0_u8; 8];
            let arguments = [one.fd as u64, count.as_mut_ptr().addr() as u64, 8, 0, 0, 0];
            // SAFETY: the call writes eight bytes; the descriptor was readable.
            unsafe { syscall(libc::SYS_read, arguments) };
        }
    }
    Ok(())
}

fn set_sleeping(handle: &Handle, fd: i32, value: u32) {
    let bound = handle.bound(fd);
    if let Some(csb) = bound.as_ref().and_then(|bound| bound.csb.as_ref()) {
        (0..csb.entries()).for_each(|entry| csb.told(entry, IS_SLEEPING).store(value, Release));
    }
}

/// `NETMAP_REQ_SYNC_KLOOP_START`: returns after `stop`.
pub fn run(handle: &Handle, fd: i32, pause: Duration, eventfds: Option<Vec<[i32; 2]>>) -> Result<()> {
    let entries = handle.bound(fd).as_ref().and_then(|bound| Some(bound.csb.as_ref()?.entries()));
    let entries = entries.ok_or(libc::EINVAL)?;
    let eventfds = eventfds.unwrap_or_default();
    if !eventfds.is_empty() && eventfds.len() != entries {
        return Err(libc::EINVAL);
    }
    if handle.sync_loop.fetch_or(RUNNING, SeqCst) & RUNNING != 0 {
        return Err(libc::EBUSY);
    }
    let mut done = Ok(());
    while done.is_ok() && handle.sync_loop.load(SeqCst) & STOPPING == 0 {
        done = turn(handle, fd, &eventfds).and_then(|has_moved| match has_moved {
            true => Ok(()),
            false => rest(handle, fd, &eventfds, pause),
        });
    }
    handle.sync_loop.store(0, SeqCst);
    done
}

/// `NETMAP_REQ_SYNC_KLOOP_STOP`: waits until the loop has ended. One that starts later ends at once, as netmap's.
pub fn stop(handle: &Handle, fd: i32) -> Result<()> {
    if handle.bound(fd).as_ref().is_none_or(|bound| bound.csb.is_none()) {
        return Err(libc::EINVAL);
    }
    let mut state = handle.sync_loop.fetch_or(STOPPING, SeqCst);
    while state & RUNNING != 0 {
        let _ = sleep(&mut [], Duration::from_millis(1), std::ptr::null());
        state = handle.sync_loop.load(SeqCst);
    }
    Ok(())
}
