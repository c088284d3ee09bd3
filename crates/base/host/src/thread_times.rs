//! Accounting of a thread's time: running, waiting for a processor, or blocked.

use crate::error::{HostError, Named};
use crate::thread::thread_cpu;
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;

/// Number of bytes of interest in such a file.
const LENGTH: usize = 256;

/// The kernel's files about one thread, which a confined process reads by descriptors that others opened.
#[derive(Debug)]
pub struct ThreadFiles {
    stat: OwnedFd,
    schedstat: OwnedFd,
}

/// Opens the files about a thread of another process: `stat`, `schedstat`.
pub fn open_thread_files(process: u32, thread: i32) -> Result<[OwnedFd; 2], HostError> {
    let open = |name: &str| {
        let path = format!("/proc/{process}/task/{thread}/{name}");
        rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .named("opening a thread's files")
    };
    Ok([open("stat")?, open("schedstat")?])
}

/// The thread ID of the calling thread.
pub fn thread_number() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

impl ThreadFiles {
    /// Reads the files of [`open_thread_files`].
    pub fn new([stat, schedstat]: [OwnedFd; 2]) -> ThreadFiles {
        ThreadFiles { stat, schedstat }
    }

    fn read<T>(file: &OwnedFd, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let mut bytes = [0; LENGTH];
        let count = rustix::io::pread(file, &mut bytes, 0).ok()?;
        parse(std::str::from_utf8(bytes.get(..count)?).ok()?)
    }

    /// Whether the thread is blocked: neither running nor waiting for a processor. `None` if unknown.
    pub fn is_blocked(&self) -> Option<bool> {
        Self::read(&self.stat, |text| Some(!text.rsplit_once(") ")?.1.starts_with('R')))
    }

    /// Nanoseconds that the running thread has waited for a processor. `None` if unknown.
    fn waited(&self) -> Option<u64> {
        Self::read(&self.schedstat, |text| text.split_whitespace().nth(1)?.parse().ok())
    }

    /// The times of the calling thread, whose files these are, up to `at`.
    pub fn times(&self, at: u64) -> Option<ThreadTimes> {
        Some(ThreadTimes {
            at,
            ran: thread_cpu(),
            waited: self.waited()?,
            waits: waits(),
            slept: 0,
            sleeps: 0,
        })
    }
}

/// Number of times that the calling thread was blocked.
fn waits() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes one `rusage`, of which all zeros is one already.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_nvcsw.unsigned_abs()
}

/// A thread's times in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// The time up to which they count.
    pub at: u64,
    /// Time for which it ran.
    pub ran: u64,
    /// Time for which it waited for a processor.
    pub waited: u64,
    /// Number of times that it was blocked.
    pub waits: u64,
    /// Time slept when idle, as recorded by its owner.
    pub slept: u64,
    /// Number of sleeps.
    pub sleeps: u64,
}

impl ThreadTimes {
    /// Nanoseconds since `before` during which it was blocked involuntarily.
    ///
    /// In a virtual machine, stolen time may look the same; so the thread must also have been blocked more
    /// often than it slept.
    pub fn blocked_since(&self, before: &ThreadTimes) -> u64 {
        let passed = |of: fn(&ThreadTimes) -> u64| of(self).saturating_sub(of(before));
        if passed(|times| times.waits) <= passed(|times| times.sleeps) {
            return 0;
        }
        let known = passed(|times| times.ran) + passed(|times| times.waited) + passed(|times| times.slept);
        passed(|times| times.at).saturating_sub(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Clock;
    use std::time::{Duration, Instant};

    #[test]
    fn blocked_running_and_preempted_threads_are_distinguished() {
        let files = open_thread_files(std::process::id(), thread_number()).unwrap();
        let (files, clock) = (ThreadFiles::new(files), Clock::new());
        assert_eq!(files.is_blocked(), Some(false));
        let times = || files.times(clock.now()).unwrap();
        let before = times();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        let ran = times();
        assert_eq!(ran.blocked_since(&before), 0, "{before:?} {ran:?}");
        std::thread::sleep(Duration::from_millis(100));
        let slept = times();
        assert!(slept.blocked_since(&ran) > 0, "{ran:?} {slept:?}");
        let known = ThreadTimes { slept: 100_000_000, sleeps: 1, ..slept };
        assert_eq!(known.blocked_since(&ran), 0, "{ran:?} {slept:?}");
    }
}
