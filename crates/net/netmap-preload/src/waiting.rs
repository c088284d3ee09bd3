//! Waiting for handles together with other descriptors: poll and select.

use crate::handles;
use crate::{Result, real};
use libc::{c_int, fd_set, pollfd, sigset_t, timespec};
use std::time::{Duration, Instant};

/// Several threads may wait for one handle, of which one takes the wake; the others look after this time.
const LONGEST: Duration = Duration::from_millis(100);
/// Descriptors for which nothing is allocated.
const FEW: usize = 16;

/// How long a wait may still take.
#[derive(Clone, Copy)]
pub struct Time(Option<Instant>);

impl Time {
    /// `None`: for ever.
    pub fn of(time: Option<Duration>) -> Time {
        Time(time.and_then(|time| Instant::now().checked_add(time)))
    }

    pub fn left(self) -> Duration {
        self.0.map_or(LONGEST, |end| end.saturating_duration_since(Instant::now()).min(LONGEST))
    }

    pub fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}

/// The kernel's `ppoll`: at most `most`, or until `time`.
pub fn sleep(fds: &mut [pollfd], time: Duration, mask: *const sigset_t) -> Result<usize> {
    let mut left = timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) };
    let arguments = [fds.as_mut_ptr().addr() as u64, fds.len() as u64, (&raw mut left).addr() as u64];
    let [at, count, left] = arguments;
    // SAFETY: the descriptors and the time live; the mask is the program's, or null.
    let result = unsafe { real::syscall(libc::SYS_ppoll, [at, count, left, mask.addr() as u64, 8, 0]) };
    usize::try_from(result).map_err(|_| -result as c_int)
}

/// Whether one of them is a handle.
pub fn has_handle(fds: &[pollfd]) -> bool {
    fds.iter().any(|one| handles::get(one.fd).is_some())
}

/// `poll` of descriptors of which some are handles.
pub fn poll(fds: &mut [pollfd], time: Option<Duration>, mask: *const sigset_t) -> Result<usize> {
    let none = pollfd { fd: -1, events: 0, revents: 0 };
    let (mut few, mut many);
    let kernel: &mut [pollfd] = if fds.len() <= FEW {
        few = [none; FEW];
        &mut few[..fds.len()]
    } else {
        many = vec![none; fds.len()];
        &mut many
    };
    let end = Time::of(time);
    loop {
        let has_others = look(fds, kernel);
        let is_ready = fds.iter().any(|one| one.revents != 0);
        if !is_ready || has_others {
            // A time of zero is over at once, but arming costs nothing that matters.
            let may_sleep = !is_ready && fds.iter().all(may_sleep);
            let time = if may_sleep { end.left() } else { Duration::ZERO };
            sleep(kernel, time, mask)?;
        }
        for (one, kernel) in fds.iter_mut().zip(kernel.iter()).filter(|(_, kernel)| kernel.revents != 0) {
            match handles::get(one.fd) {
                Some(handle) => handle.woken(one.fd),
                None => one.revents = kernel.revents,
            }
        }
        let count = fds.iter().filter(|one| one.revents != 0).count();
        if count > 0 || end.is_over() {
            return Ok(count);
        }
    }
}

/// Syncs the handles, and prepares what the kernel waits for. Whether there are other descriptors.
fn look(fds: &mut [pollfd], kernel: &mut [pollfd]) -> bool {
    let mut has_others = false;
    for (one, kernel) in fds.iter_mut().zip(kernel) {
        one.revents = 0;
        *kernel = *one;
        match handles::get(one.fd) {
            Some(handle) => {
                one.revents = handle.poll(one.fd, one.events);
                kernel.events = libc::POLLIN;
                kernel.fd = if one.revents != 0 { -1 } else { handle.watch(one.fd) };
            }
            None => has_others |= one.fd >= 0,
        }
    }
    has_others
}

fn may_sleep(one: &pollfd) -> bool {
    handles::get(one.fd).is_none_or(|handle| handle.arm(one.fd, one.events))
}

/// The sets of `select`, of which each may be missing.
pub struct Sets(pub [*mut fd_set; 3]);

impl Sets {
    /// # Safety
    /// The sets are valid or null.
    unsafe fn has(&self, set: usize, fd: c_int) -> bool {
        // SAFETY: the caller's; the descriptor is below the size of a set.
        !self.0[set].is_null() && unsafe { libc::FD_ISSET(fd, self.0[set]) }
    }

    /// The descriptors that are in a set.
    ///
    /// # Safety
    /// The sets are valid or null.
    pub unsafe fn list(&self, count: c_int) -> Vec<pollfd> {
        let events = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
        let one = |fd| {
            // SAFETY: the caller's.
            let bits = (0..3).filter(|set| unsafe { self.has(*set, fd) }).map(|set| events[set]);
            pollfd { fd, events: bits.fold(0, |all, bit| all | bit), revents: 0 }
        };
        (0..count.clamp(0, libc::FD_SETSIZE as c_int)).map(one).filter(|one| one.events != 0).collect()
    }

    /// Leaves those that are ready in the sets; how many bits these are.
    ///
    /// # Safety
    /// As for `list`.
    unsafe fn keep(&self, fds: &[pollfd]) -> c_int {
        let meaning =
            [libc::POLLIN | libc::POLLHUP | libc::POLLERR, libc::POLLOUT | libc::POLLERR, libc::POLLPRI];
        let mut count = 0;
        for (set, bits) in meaning.into_iter().enumerate() {
            for one in fds {
                // SAFETY: the caller's.
                if !unsafe { self.has(set, one.fd) } {
                    continue;
                }
                if one.revents & bits != 0 {
                    count += 1;
                } else {
                    // SAFETY: the set is not null, since it has the descriptor.
                    unsafe { libc::FD_CLR(one.fd, self.0[set]) };
                }
            }
        }
        count
    }
}

/// `select` of descriptors of which some are handles.
///
/// # Safety
/// The sets are valid or null, and `fds` is their list.
pub unsafe fn select(
    sets: &Sets,
    fds: &mut [pollfd],
    time: Option<Duration>,
    mask: *const sigset_t,
) -> Result<c_int> {
    poll(fds, time, mask)?;
    if fds.iter().any(|one| one.revents & libc::POLLNVAL != 0) {
        return Err(libc::EBADF);
    }
    // SAFETY: the caller's.
    Ok(unsafe { sets.keep(fds) })
}
