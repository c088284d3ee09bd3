//! netmap's sync kloop (`NETMAP_REQ_SYNC_KLOOP_START`): the program, or its guest, writes positions to the control and
//! status block, the CSB, and a thread of it that called `ioctl` syncs until another one stops it. Names are those of
//! `struct nm_csb_atok` (application to kernel, here to the kloop) and `struct nm_csb_ktoa`.

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
/// Calls of futex(2), with FUTEX_PRIVATE_FLAG; FUTEX_WAKE_OP adds 0, and compares with 0.
const FUTEX_WAIT: u64 = 128;
const FUTEX_WAKE_OP: u64 = 128 | 5;
const FUTEX_ADD_0: u64 = 1 << 28;
/// States of a handle's sync kloop.
const RUNNING: u32 = 1;
const STOPPING: u32 = 2;
/// Longest sleep, after which the kloop looks whether it is stopped.
const LONGEST: Duration = Duration::from_millis(20);

/// Words of `nm_csb_atok`, which the program writes: its positions, and whether it wants to be woken.
const HEAD: usize = 0;
const CUR: usize = 1;
const APPL_NEED_KICK: usize = 2;
/// Words of `nm_csb_ktoa`, which the kloop writes: the ring's positions, and whether it wants to be woken.
const HWCUR: usize = 0;
const HWTAIL: usize = 1;
const KERN_NEED_KICK: usize = 2;

/// A CSB of the program.
#[derive(Debug)]
pub struct Csb {
    atok: NonNull<u8>,
    ktoa: NonNull<u8>,
    /// The rings, in the order of the entries.
    rings: Vec<usize>,
}

// SAFETY: addresses of the program, whose words are accessed as atomics.
unsafe impl Send for Csb {}

impl Csb {
    /// The block at two addresses of the program, for the rings that a handle has.
    ///
    /// # Errors
    /// EINVAL: they are not aligned; EFAULT: nothing is mapped there, or it can't be written.
    pub fn new(at: [u64; 2], bound: [bool; 2]) -> Result<Csb> {
        let rings: Vec<usize> = [TX, RX].into_iter().filter(|dir| bound[*dir]).collect();
        let [atok, ktoa] = at.map(|at| NonNull::new(at as *mut u8).ok_or(libc::EFAULT));
        let (atok, ktoa) = (atok?, ktoa?);
        for at in [atok, ktoa] {
            let address = at.addr().get();
            if !address.is_multiple_of(ENTRY) {
                return Err(libc::EINVAL);
            }
            address.checked_add(ENTRY * rings.len()).ok_or(libc::EFAULT)?;
        }
        // An entry lies within a page.
        for entry in 0..rings.len() {
            Csb::check(atok, entry, false)?;
            Csb::check(ktoa, entry, true)?;
        }
        Ok(Csb { atok, ktoa, rings })
    }

    /// Whether an entry can be read, or written. The kernel accesses its first word: it compares it, or adds 0.
    fn check(at: NonNull<u8>, entry: usize, is_written: bool) -> Result<()> {
        let (at, time) = (at.addr().get() + entry * ENTRY, libc::timespec { tv_sec: 0, tv_nsec: 0 });
        let arguments = match is_written {
            true => [at as u64, FUTEX_WAKE_OP, 0, 0, at as u64, FUTEX_ADD_0],
            false => [at as u64, FUTEX_WAIT, 0, (&raw const time).addr() as u64, 0, 0],
        };
        // SAFETY: the kernel checks the address, and waits for no time.
        match unsafe { syscall(libc::SYS_futex, arguments) } as i32 {
            error if -error == libc::EFAULT => Err(libc::EFAULT),
            _ => Ok(()),
        }
    }

    fn word(at: NonNull<u8>, entry: usize, word: usize) -> &'static AtomicU32 {
        // SAFETY: `new` checked that the entries are mapped and aligned; the program keeps them while it has the
        // handle, by netmap's interface.
        unsafe { AtomicU32::from_ptr(at.as_ptr().add(entry * ENTRY + word * 4).cast()) }
    }

    fn atok_word(&self, entry: usize, word: usize) -> &'static AtomicU32 {
        Csb::word(self.atok, entry, word)
    }

    fn ktoa_word(&self, entry: usize, word: usize) -> &'static AtomicU32 {
        Csb::word(self.ktoa, entry, word)
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
        let head = csb.atok_word(entry, HEAD).load(Acquire);
        let cur = csb.atok_word(entry, CUR).load(Acquire);
        port.rings.set_position(dir, (head, cur));
        port.sync(dir)?;
        let side = port.positions(dir);
        let done = if dir == TX { side.next } else { side.head };
        let tail = csb.ktoa_word(entry, HWTAIL);
        let has_news = tail.load(Relaxed) != side.tail;
        csb.ktoa_word(entry, HWCUR).store(done, Release);
        tail.store(side.tail, Release);
        fence(SeqCst);
        if has_news && csb.atok_word(entry, APPL_NEED_KICK).load(Relaxed) != 0 {
            signal(eventfds.get(entry).map_or(-1, |pair| pair[1]));
        }
        has_moved |= has_news;
    }
    Ok(has_moved)
}

/// Sleeps until the port or the program wakes the kloop, which looks again first.
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
        (0..csb.entries()).for_each(|entry| csb.ktoa_word(entry, KERN_NEED_KICK).store(value, Release));
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
    if handle.sync_kloop.fetch_or(RUNNING, SeqCst) & RUNNING != 0 {
        return Err(libc::EBUSY);
    }
    let mut done = Ok(());
    while done.is_ok() && handle.sync_kloop.load(SeqCst) & STOPPING == 0 {
        done = turn(handle, fd, &eventfds).and_then(|has_moved| match has_moved {
            true => Ok(()),
            false => rest(handle, fd, &eventfds, pause),
        });
    }
    handle.sync_kloop.store(0, SeqCst);
    done
}

/// `NETMAP_REQ_SYNC_KLOOP_STOP`: waits until the kloop has ended. One that starts later ends at once, as netmap's.
pub fn stop(handle: &Handle, fd: i32) -> Result<()> {
    if handle.bound(fd).as_ref().is_none_or(|bound| bound.csb.is_none()) {
        return Err(libc::EINVAL);
    }
    let mut state = handle.sync_kloop.fetch_or(STOPPING, SeqCst);
    while state & RUNNING != 0 {
        let _ = sleep(&mut [], Duration::from_millis(1), std::ptr::null());
        state = handle.sync_kloop.load(SeqCst);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(access: libc::c_int) -> u64 {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new memory, which the test keeps.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, access, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at.addr() as u64
    }

    #[test]
    fn a_block_that_can_not_be_accessed_is_refused() {
        let (all, read, none) =
            (page(libc::PROT_READ | libc::PROT_WRITE), page(libc::PROT_READ), page(libc::PROT_NONE));
        let made = |at| Csb::new(at, [true; 2]).map(|csb| csb.entries());
        assert_eq!(made([all, all + 128]), Ok(2));
        assert_eq!(made([read, all]), Ok(2));
        for wrong in
            [[all, read], [none, all], [all, none], [0, all], [all, 64], [all, 0_u64.wrapping_sub(64)]]
        {
            assert_eq!(made(wrong), Err(libc::EFAULT), "{wrong:x?}");
        }
        assert_eq!(made([all, all + 4]), Err(libc::EINVAL));
    }
}
