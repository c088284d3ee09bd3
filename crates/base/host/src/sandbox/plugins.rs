//! Confinement of a plugin host: it is set up before the program starts, which never has the rights of its
//! parent. The workers, which run the plugins' code, confine themselves further with the filters that they
//! receive.

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

/// Attack: endless threads. The limit applies to all plugins of a user that runs nothing else.
const THREADS: u64 = 256;

/// The confinement of a plugin host and its workers.
#[derive(Debug)]
pub struct PluginFences {
    /// A worker's seccomp filters, in loading order; empty if the kernel has no seccomp.
    pub filters: Vec<Vec<u8>>,
    /// A worker's landlock ruleset, if the kernel has landlock.
    pub ruleset: Option<OwnedFd>,
    host: RulesetCreated,
    kept: CapabilitySet,
}

impl PluginFences {
    /// Plugins may read `needed`, which everything requires, and `more`; `is_private` means that some of
    /// these files are readable by their owners only. With `network` plugins may connect.
    pub fn new(
        needed: &[PathBuf],
        more: &[PathBuf],
        is_private: bool,
        network: bool,
    ) -> Result<PluginFences, HostError> {
        let filters = if has_seccomp() { plugin_calls::programs(network)? } else { Vec::new() };
        let paths: Vec<&Path> = needed.iter().chain(more).map(PathBuf::as_path).collect();
        // A worker's memory usage is in /proc, which only the plugin host may read.
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

    /// Confines a program when it starts: as `user` if this process is root, in its own session, with the
    /// ruleset and `passed` open.
    pub fn confine(self, command: &mut Command, user: u32, passed: OwnedFd) {
        let PluginFences { ruleset, host, kept, .. } = self;
        let mut host = Some(host);
        [passed].into_iter().chain(ruleset).for_each(|it| pass_on(command, it));
        let closure = move || {
            // A process group leader, such as a program started by a shell, keeps its session.
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

/// Makes a program inherit a descriptor under the same number.
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
