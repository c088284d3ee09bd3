//! Noticing that a process ends before the kernel has taken down its memory, which takes tens of milliseconds: only
//! afterwards do its descriptors close, and its pidfd tells.
//!
//! The process registers a word in shared memory as a robust futex of its first thread (get_robust_list(2)). Whatever
//! ends that thread, the kernel marks the word and wakes a waiter before it takes down the memory. The word is only a
//! hint: what counts is what the kernel says about each thread ([`exiting`]).

use crate::error::HostError;
use crate::futex::{wait_word, wake_word};
use crate::memory::{Mapping, memfd};
use crate::tap::last_error;
use rustix::process::Pid;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

const SIZE: usize = 4096;
// linux/futex.h
const FUTEX_WAITERS: u32 = 0x8000_0000;
const FUTEX_OWNER_DIED: u32 = 0x4000_0000;
const FUTEX_TID_MASK: u32 = 0x3fff_ffff;
/// The value of a word for which nobody waits any more.
const CANCELLED: u32 = 0x3fff_ffff;
/// Attack: a process that was taken over and changes the word, or wakes its waiter, without end.
const WAKEUPS: u32 = 64;
/// `PF_EXITING` of linux/sched.h: the thread executes no instruction of its program any more.
const PF_EXITING: u64 = 4;

/// `struct robust_list_head` of linux/futex.h, whose list has one entry.
#[repr(C)]
struct RobustList {
    next: *const RobustEntry,
    /// From an entry to its futex.
    offset: libc::c_long,
    pending: *const RobustEntry,
}

/// `struct robust_list`.
#[repr(C)]
struct RobustEntry {
    next: *const RobustList,
}

/// A word that the kernel marks when the thread that registered it ends.
#[derive(Debug)]
pub struct EndNotice(Mapping);

impl EndNotice {
    /// Memory for a word that nobody has registered.
    ///
    /// # Errors
    /// The system has no memory or descriptors left.
    pub fn memory() -> Result<OwnedFd, HostError> {
        memfd("ringway-end", SIZE)
    }

    /// Maps the word in this memory.
    ///
    /// # Errors
    /// It is no memory of this kind.
    pub fn map(file: impl AsFd) -> Result<EndNotice, HostError> {
        Mapping::shared(file, 0, SIZE).map(EndNotice)
    }

    fn word(&self) -> &AtomicU32 {
        let first = std::ptr::from_ref(&self.0.words()[0]).cast::<AtomicU32>();
        // SAFETY: mapped while `self` lives, aligned, and accessed as an atomic by everybody.
        unsafe { &*first }
    }

    /// Registers the word for the calling thread, which must not use robust mutexes of the C library: this list takes
    /// the place of that library's.
    ///
    /// # Errors
    /// The system refused.
    pub fn register(self) -> Result<(), HostError> {
        // The kernel reads all of it when the thread ends: it is never freed.
        let word = std::ptr::from_ref(Box::leak(Box::new(self)).word());
        let list = Box::into_raw(Box::new(RobustList {
            next: std::ptr::null(),
            offset: 0,
            pending: std::ptr::null(),
        }));
        let entry = Box::into_raw(Box::new(RobustEntry { next: list }));
        // SAFETY: both were just allocated, and the kernel doesn't know them yet. The call only stores the address,
        // and the thread has no robust mutexes.
        let result = unsafe {
            (*list).next = entry;
            (*list).offset = word.addr().wrapping_sub(entry.addr()).cast_signed() as libc::c_long;
            libc::syscall(libc::SYS_set_robust_list, list, size_of::<RobustList>())
        };
        if result != 0 {
            return Err(HostError::Call { call: "set_robust_list", error: last_error() });
        }
        let thread = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        // SAFETY: leaked above.
        let word = unsafe { &*word };
        // The kernel wakes a waiter only if the word says that there is one. Nobody may wait any more.
        let _ = word.compare_exchange(0, thread & FUTEX_TID_MASK | FUTEX_WAITERS, SeqCst, SeqCst);
        wake_word(word, u32::MAX);
        Ok(())
    }

    /// Waits until the word says that its thread has ended; false if nobody is to wait any more, or if the word changes
    /// in a way that no thread's end explains.
    pub fn wait(&self) -> bool {
        for _ in 0..WAKEUPS {
            match self.word().load(SeqCst) {
                CANCELLED => return false,
                ended if ended & FUTEX_OWNER_DIED != 0 => return true,
                running => wait_word(self.word(), running, None),
            }
        }
        false
    }

    /// Ends the wait.
    pub fn cancel(&self) {
        self.word().store(CANCELLED, SeqCst);
        wake_word(self.word(), u32::MAX);
    }
}

/// What is read of a thread or a process in its `stat` file (proc_pid_stat(5)).
struct Stat {
    flags: u64,
    threads: u64,
    /// A wait status, which the kernel tells only those who may trace the process.
    status: i32,
}

fn stat(path: &str) -> Option<Stat> {
    let text = std::fs::read_to_string(path).ok()?;
    // The name before may have spaces and parentheses.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    // Fields 9, 20 and 52, where the first one here is field 3.
    let number = |field: usize| fields.get(field - 3).copied();
    Some(Stat {
        flags: number(9)?.parse().ok()?,
        threads: number(20)?.parse().ok()?,
        status: number(52)?.parse().ok()?,
    })
}

/// The wait status of a process that has been killed but not waited for, if none of its threads executes an instruction
/// of its program any more. `None` also if that is not known.
///
/// Nothing that such a process could write is believed: the kernel sets what is read here.
pub fn exiting(process: Pid) -> Option<i32> {
    let number = process.as_raw_nonzero();
    let own = format!("/proc/{number}/stat");
    // A killed process starts no threads, so that their number only becomes smaller. The list lacks some of them if one
    // leaves while it is read.
    let before = stat(&own)?;
    let mut exiting = 0;
    for thread in std::fs::read_dir(format!("/proc/{number}/task")).ok()? {
        let path = thread.ok()?.path().join("stat");
        if stat(path.to_str()?)?.flags & PF_EXITING == 0 {
            return None;
        }
        exiting += 1;
    }
    let after = stat(&own)?;
    let is_complete = [before.threads, after.threads] == [exiting; 2];
    // Whose status is not told seems to have ended well; that is told by waiting for it.
    (is_complete && after.status != 0).then_some(after.status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::start_child;
    use rustix::process::{Signal, WaitOptions, kill_process, waitpid};
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;
    use std::time::{Duration, Instant};

    fn pair() -> (EndNotice, EndNotice) {
        let file = EndNotice::memory().unwrap();
        (EndNotice::map(&file).unwrap(), EndNotice::map(&file).unwrap())
    }

    #[test]
    fn whatever_ends_a_process_is_told_before_it_is_waited_for() {
        for signal in [Signal::KILL, Signal::TERM] {
            let (ours, theirs) = pair();
            let (child, socket) = start_child(move |socket| {
                let registered = theirs.register().is_ok();
                let _ = rustix::io::write(&socket, &[u8::from(registered)]);
                let _ = rustix::io::read(&socket, &mut [0; 1]);
                1
            })
            .unwrap();
            assert_eq!(rustix::io::read(&socket, &mut [0; 1]), Ok(1));
            assert_eq!(exiting(child), None, "it runs");
            std::thread::scope(|scope| {
                let told = scope.spawn(|| ours.wait());
                kill_process(child, signal).unwrap();
                assert!(told.join().unwrap());
            });
            let until = Instant::now() + Duration::from_secs(30);
            let status = loop {
                match exiting(child) {
                    None if Instant::now() < until => std::thread::yield_now(),
                    status => break status,
                }
            };
            let status = ExitStatus::from_raw(status.unwrap());
            assert_eq!(status.signal(), Some(signal.as_raw()));
            waitpid(Some(child), WaitOptions::empty()).unwrap();
            assert_eq!(exiting(child), None, "nobody knows it any more");
        }
    }

    #[test]
    fn a_process_with_a_thread_that_runs_is_not_exiting() {
        let mut shell = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let process = Pid::from_child(&shell);
        assert_eq!([exiting(process), exiting(rustix::process::getpid())], [None; 2]);
        shell.kill().unwrap();
        shell.wait().unwrap();
    }

    #[test]
    fn a_wait_ends_when_it_is_cancelled_or_the_word_makes_no_sense() {
        let (ours, theirs) = pair();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| theirs.wait());
            ours.cancel();
            assert!(!waits.join().unwrap());
        });
        assert!(!ours.wait(), "it is cancelled before");
        let (ours, theirs) = pair();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| ours.wait());
            let mut value = 0;
            while !waits.is_finished() {
                value = (value + 1) % 1000;
                theirs.word().store(value, SeqCst);
                wake_word(theirs.word(), 1);
            }
            assert!(!waits.join().unwrap());
        });
    }
}
