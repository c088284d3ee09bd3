//! A program that runs plugins is confined before it starts: it never has the rights of who starts it. Its workers,
//! which have the plugins' code in them, confine themselves further by what it is handed.

use super::{files, identity, plugin_calls};
use crate::error::HostError;
use landlock::RulesetCreated;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Resource, Rlimit, setrlimit, setsid};
use rustix::thread::CapabilitySet;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Attack: threads without end. Those of one user's plugins together, where the user is theirs alone.
const THREADS: u64 = 256;

/// What confines a plugin host and its workers.
#[derive(Debug)]
pub struct PluginFences {
    /// A worker's seccomp filters, in the order they are loaded; none if the kernel has no seccomp.
    pub filters: Vec<Vec<u8>>,
    /// A worker's landlock ruleset, if the kernel has landlock.
    pub ruleset: Option<OwnedFd>,
    host: RulesetCreated,
    kept: CapabilitySet,
}

impl PluginFences {
    /// Plugins read `needed`, without which nothing runs, and `more`; `is_private` says that there are files below that
    /// others than their owners can't read. With `network` plugins may connect to others.
    pub fn new(
        needed: &[PathBuf],
        more: &[PathBuf],
        is_private: bool,
        network: bool,
    ) -> Result<PluginFences, HostError> {
        let filters = if has_seccomp() { plugin_calls::programs(network)? } else { Vec::new() };
        let paths: Vec<&Path> = needed.iter().chain(more).map(PathBuf::as_path).collect();
        // /proc, where a worker's memory is said, is its host's to read.
        let rules = |host| {
            files::readable(&paths, host, network).map_err(|error| HostError::Sandbox(error.to_string()))
        };
        let (host, ruleset) = (rules(true)?, Option::<OwnedFd>::from(rules(false)?));
        let is_private = is_private || !needed.iter().all(|path| others_read(path));
        // Within landlock's bounds only.
        let kept = match is_private && ruleset.is_some() {
            true => CapabilitySet::DAC_READ_SEARCH,
            false => CapabilitySet::empty(),
        };
        Ok(PluginFences { filters, ruleset, host, kept })
    }

    /// Has a program confined when it is started: as `user` if this is root, in a session of its own, with the
    /// ruleset and `passed` open.
    pub fn confine(self, command: &mut Command, user: u32, passed: OwnedFd) {
        let PluginFences { ruleset, host, kept, .. } = self;
        let mut host = Some(host);
        [passed].into_iter().chain(ruleset).for_each(|it| pass_on(command, it));
        let closure = move || {
            // Whoever leads a group already, as a program that a shell started, stays where it is.
            let _ = setsid();
            let is_root = rustix::process::geteuid().is_root();
            let still = identity::drop_privileges(user, kept).map_err(system)?;
            if is_root && !still {
                let most = Rlimit { current: Some(THREADS), maximum: Some(THREADS) };
                setrlimit(Resource::Nproc, most)?;
            }
            rustix::thread::set_no_new_privs(true)?;
            if let Some(host) = host.take() {
                host.restrict_self().map_err(|_| io::Error::last_os_error())?;
            }
            Ok(())
        };
        // SAFETY: between `fork` and `exec` the closure makes system calls; it takes no lock, and allocates at most
        // what an error has, which glibc allows in a child.
        unsafe { command.pre_exec(closure) };
    }
}

/// Has a program find a descriptor open, by its number here.
pub fn pass_on(command: &mut Command, descriptor: OwnedFd) {
    let closure = move || Ok(fcntl_setfd(&descriptor, FdFlags::empty())?);
    // SAFETY: between `fork` and `exec` the closure makes one system call.
    unsafe { command.pre_exec(closure) };
}

fn system(error: HostError) -> io::Error {
    match error {
        HostError::Call { error, .. } => error.into(),
        other => io::Error::other(other.to_string()),
    }
}

/// Whether the kernel takes filters.
fn has_seccomp() -> bool {
    let action = libc::SECCOMP_RET_ERRNO;
    // SAFETY: the call reads the number that it is pointed to.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}

/// Whether any user can read a file or a folder.
fn others_read(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return true };
    let allows =
        |path: &Path, wanted| path.metadata().is_ok_and(|it| it.permissions().mode() & wanted == wanted);
    let own = if path.is_dir() { 0o005 } else { 0o004 };
    allows(&path, own) && path.ancestors().skip(1).all(|folder| allows(folder, 0o001))
}
