//! Memory of another process of this user, by the number of its descriptor.

use crate::event::wait_readable;
use crate::memory::memfd;
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, stat};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, geteuid, pidfd_getfd, pidfd_open};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Why there is no duplicate of another process's descriptor.
#[derive(Debug, thiserror::Error)]
pub enum ForeignError {
    /// The process runs as somebody else.
    #[error("process {process} belongs to user {owner}, not to user {ours} as this one does")]
    User {
        /// The process.
        process: u32,
        /// Its user.
        owner: u32,
        /// This process's user.
        ours: u32,
    },
    /// The descriptor is not memory.
    #[error("descriptor {number} of process {process} is not memory")]
    Other {
        /// The process.
        process: u32,
        /// The descriptor's number there.
        number: u32,
    },
    /// The system refused.
    #[error("descriptor {number} of process {process}: {error}")]
    System {
        /// The process.
        process: u32,
        /// The descriptor's number there.
        number: u32,
        /// The operating system's error.
        error: Errno,
    },
}

/// A descriptor of the memory that a process of this user has by this number. The caller checks which memory it is.
///
/// Attack: the number of a file whose opening blocks or does something, such as a leased file, a FIFO or a device. The
/// descriptor is duplicated; nothing is opened. Where the kernel does not permit that (`kernel.yama.ptrace_scope`),
/// only what is certainly a memfd is opened, without waiting for a lease.
///
/// # Errors
/// The process is another user's, it has no such descriptor, or that is not memory.
pub fn memory_of(process: u32, number: u32) -> Result<OwnedFd, ForeignError> {
    let system = |error| ForeignError::System { process, number, error };
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw).ok_or(system(Errno::SRCH))?;
    let handle = pidfd_open(pid, PidfdFlags::empty()).map_err(system)?;
    let (owner, ours) = (stat(format!("/proc/{process}")).map_err(system)?.st_uid, geteuid().as_raw());
    if owner != ours {
        return Err(ForeignError::User { process, owner, ours });
    }
    // The process is still there, so that its number is not another's by now.
    if wait_readable(&[handle.as_fd()], Some(0)).is_ok_and(|ended| ended.contains(&true)) {
        return Err(system(Errno::SRCH));
    }
    let foreign = number.cast_signed();
    match pidfd_getfd(&handle, foreign, PidfdGetfdFlags::empty()) {
        Ok(memory) if is_memfd(&memory) => Ok(memory),
        Ok(_) => Err(ForeignError::Other { process, number }),
        Err(Errno::PERM | Errno::NOSYS) => open_memory(process, number),
        Err(error) => Err(system(error)),
    }
}

fn open_memory(process: u32, number: u32) -> Result<OwnedFd, ForeignError> {
    let system = |error| ForeignError::System { process, number, error };
    // This only finds the file.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = openat(CWD, format!("/proc/{process}/fd/{number}"), flags, Mode::empty()).map_err(system)?;
    if !is_memfd(&found) {
        return Err(ForeignError::Other { process, number });
    }
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(CWD, format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty()).map_err(system)
}

/// Whether a file is in the kernel's own file system for shared memory, as memfds are.
fn is_memfd(file: &OwnedFd) -> bool {
    let Ok(seen) = fstat(file) else { return false };
    FileType::from_raw_mode(seen.st_mode) == FileType::RegularFile
        && memfd("probe", 0).is_ok_and(|ours| fstat(ours).is_ok_and(|ours| ours.st_dev == seen.st_dev))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `fcntl.h`; the signal that announces the end of a lease.
    const F_SETSIG: i32 = 10;

    fn number(file: &impl AsRawFd) -> u32 {
        file.as_raw_fd().cast_unsigned()
    }

    #[test]
    fn only_memory_of_this_user_is_duplicated() {
        let memory = memfd("moves", 8192).unwrap();
        let inode = |file: &OwnedFd| fstat(file).unwrap().st_ino;
        let ours = std::process::id();
        for copy in [memory_of(ours, number(&memory)), open_memory(ours, number(&memory))] {
            assert_eq!(inode(&copy.unwrap()), inode(&memory));
        }
        let (pipe, _writer) = std::io::pipe().unwrap();
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        for number in [number(&pipe), number(&file), number(&null)] {
            for refused in [memory_of(ours, number), open_memory(ours, number)] {
                assert!(matches!(refused, Err(ForeignError::Other { .. })), "{refused:?}");
            }
        }
        assert!(
            memory_of(ours, 1 << 30).is_err() && memory_of(0, 0).is_err() && memory_of(u32::MAX, 0).is_err()
        );
    }

    /// Attack: a lease on a file, which keeps everybody who opens it waiting for up to 45 seconds.
    #[test]
    fn a_file_with_a_lease_is_refused_at_once() {
        let path = std::env::temp_dir().join(format!("ringway-lease-{}", std::process::id()));
        std::fs::write(&path, [0; 4096]).unwrap();
        let leased = std::fs::File::open(&path).unwrap();
        // SAFETY: a call on a descriptor that is open here, without pointers.
        let lease = unsafe { libc::fcntl(leased.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
        assert_eq!(lease, 0, "{}", std::io::Error::last_os_error());
        // The kernel announces a break of the lease by this signal, which would end the test.
        // SAFETY: as above.
        unsafe { libc::fcntl(leased.as_raw_fd(), F_SETSIG, libc::SIGURG) };
        let begin = std::time::Instant::now();
        let ours = std::process::id();
        for refused in [memory_of(ours, number(&leased)), open_memory(ours, number(&leased))] {
            assert!(refused.is_err(), "{refused:?}");
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(5), "nobody waited for the lease");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn another_users_process_is_refused() {
        if !geteuid().is_root() {
            return;
        }
        let mut command = std::process::Command::new("sleep");
        let mut other = std::os::unix::process::CommandExt::uid(command.arg("60"), 65_534).spawn().unwrap();
        let refused = memory_of(other.id(), 0).unwrap_err().to_string();
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(refused.contains("belongs to user 65534, not to user 0"), "{refused}");
    }
}
