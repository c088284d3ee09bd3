//! Network namespaces with a file that keeps them, as `ip netns` makes them: creation, entering, what runs in them,
//! removal.

use crate::error::{HostError, Named};
use crate::tap::bring_up;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::ffi::CString;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long processes in a namespace that is removed may take to end when they are asked to.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the kernel may take to end them when they are killed.
const END: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);

/// Creates a network namespace, whose loopback interface is up, and the file at `path` that keeps it.
///
/// # Errors
/// Permission is missing, or the path is taken.
pub fn create_namespace(path: &Path) -> Result<(), HostError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, Mode::RUSR).named("creating a network namespace's file")?;
    // On a thread of its own, which is in the new namespace until it ends.
    let made = std::thread::scope(|scope| scope.spawn(|| make(path)).join());
    let made = made.unwrap_or(Err(HostError::Call { call: CREATE, error: Errno::IO }));
    if made.is_err() {
        // The error to report is the first one.
        let _ = std::fs::remove_file(path);
    }
    made
}

const CREATE: &str = "creating a network namespace";

fn make(path: &Path) -> Result<(), HostError> {
    // SAFETY: no pointers; only this thread moves, and it has no descriptors of its own.
    let moved = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if moved != 0 {
        return Err(HostError::Call { call: CREATE, error: crate::tap::last_error() });
    }
    bring_up("lo")?;
    let target = in_c(path)?;
    let (source, none) = (c"/proc/thread-self/ns/net", std::ptr::null());
    // SAFETY: both paths end with zeros and outlive the call; a bind mount has no other arguments.
    let mounted = unsafe { libc::mount(source.as_ptr(), target.as_ptr(), none, libc::MS_BIND, none.cast()) };
    match mounted {
        0 => Ok(()),
        _ => Err(HostError::Call {
            call: "keeping a network namespace (a bind mount)",
            error: crate::tap::last_error(),
        }),
    }
}

fn in_c(path: &Path) -> Result<CString, HostError> {
    let wrong = |_| HostError::Call { call: "naming a network namespace", error: Errno::INVAL };
    CString::new(path.as_os_str().as_bytes()).map_err(wrong)
}

/// Moves this thread, and what it starts, into the namespace with this file.
///
/// # Errors
/// There is no such namespace, or permission is missing.
pub fn enter_namespace(path: &Path) -> Result<(), HostError> {
    let space = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let space = space.named("opening a network namespace")?;
    let kind = Some(LinkNameSpaceType::Network);
    move_into_link_name_space(space.as_fd(), kind).named("entering a network namespace")
}

/// Runs something in a network namespace, by its name as in `ip netns` or its path; in this thread's if there is none.
///
/// # Errors
/// There is no such namespace, permission is missing, or `run` failed.
pub fn within_namespace<T: Send, E: From<HostError> + Send>(
    namespace: Option<&str>,
    run: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, E> {
    let Some(namespace) = namespace else { return run() };
    let path = crate::tap::namespace_path(namespace);
    // On a separate thread, since a thread may be unable to return from another namespace.
    let thread = || {
        enter_namespace(&path)?;
        run()
    };
    let done = std::thread::scope(|scope| scope.spawn(thread).join());
    done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Device and inode of a namespace.
fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|seen| (seen.dev(), seen.ino()))
}

/// The processes in the namespace with this file; none if it is the namespace of this process.
fn processes(path: &Path) -> Vec<Pid> {
    let Some(wanted) = identity(path) else { return Vec::new() };
    // Attack: a file that was replaced by one of the host's namespace, so that everything would be killed.
    if identity(Path::new("/proc/self/ns/net")).is_none_or(|ours| ours == wanted) {
        return Vec::new();
    }
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let number = |entry: std::fs::DirEntry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?);
    let all = entries.flatten().filter_map(number);
    all.filter(|pid| identity(Path::new(&format!("/proc/{}/ns/net", pid.as_raw_nonzero()))) == Some(wanted))
        .collect()
}

/// Whether a process is in the network namespace with this file, which is not this process's.
pub fn is_in_namespace(pid: Pid, path: &Path) -> bool {
    let wanted = identity(path);
    wanted.is_some()
        && identity(Path::new("/proc/self/ns/net")) != wanted
        && identity(Path::new(&format!("/proc/{}/ns/net", pid.as_raw_nonzero()))) == wanted
}

/// Sends a signal to all processes in the namespace, and waits until they have ended; returns whether they have.
fn end(path: &Path, signal: Signal, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    let mut told: Vec<Pid> = Vec::new();
    loop {
        let all = processes(path);
        if all.is_empty() {
            return true;
        }
        for pid in all.iter().filter(|pid| !told.contains(pid)) {
            // The process may have ended already.
            let _ = kill_process(*pid, signal);
        }
        told = all;
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Ends the processes in the namespace with this file. Blocks while they end.
pub fn end_processes(path: &Path) {
    if !end(path, Signal::TERM, STOP_TIMEOUT) {
        end(path, Signal::KILL, END);
    }
}

/// Ends the processes in the namespace with this file, and removes the file, and with it the namespace.
pub fn remove_namespace(path: &Path) {
    end_processes(path);
    if let Ok(target) = in_c(path) {
        // SAFETY: the path ends with a zero and outlives the call. It fails if the file is not mounted on.
        unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH | libc::UMOUNT_NOFOLLOW) };
    }
    // The folder may be gone already.
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_namespace_has_a_loopback_and_its_removal_ends_what_runs_there() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: a network namespace needs root");
            return;
        }
        let path = std::env::temp_dir().join(format!("ringway-namespace-{}", std::process::id()));
        create_namespace(&path).unwrap();
        assert!(create_namespace(&path).is_err(), "it is taken");
        let ours = identity(Path::new("/proc/self/ns/net"));
        assert_ne!(identity(&path), ours);
        let (mut sleeper, lines) = std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                enter_namespace(&path).unwrap();
                let output = Command::new("cat").arg("/proc/thread-self/net/dev").output().unwrap();
                let sleeper =
                    Command::new("sh").args(["-c", "trap '' TERM; sleep 1000 & wait"]).spawn().unwrap();
                (sleeper, String::from_utf8(output.stdout).unwrap())
            });
            inside.join().unwrap()
        });
        assert!(lines.contains("lo:") && lines.lines().count() == 3, "{lines}");
        let reaper = std::thread::spawn(move || sleeper.wait().unwrap());
        remove_namespace(&path);
        assert!(!reaper.join().unwrap().success());
        assert!(!path.exists());
        // A path that keeps none, and our own namespace, are left alone.
        std::fs::write(&path, "").unwrap();
        assert!(processes(&path).is_empty());
        assert!(processes(Path::new("/proc/self/ns/net")).is_empty());
        remove_namespace(&path);
    }
}
