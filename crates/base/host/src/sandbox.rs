//! Sandboxes of the `data` process and of functions: they drop identity, capabilities, file system access,
//! and all system calls except those of the data path.
//!
//! A function's process also has a memory limit. An attacker who takes over a worker through a guest's frames
//! can't open files, connect, execute or trace, and can only use the process's descriptors.

mod calls;
mod files;
mod identity;
mod plugin_calls;
mod plugins;

pub use plugins::{PluginFences, pass_on};

use crate::error::{HostError, Named};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::CapabilitySet;

/// The dropped privileges. Without seccomp there is no confinement, and so no such value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Whether the process is still root, in a user namespace without other users.
    pub is_namespaced: bool,
    /// Whether landlock forbids the file system too.
    pub landlock: bool,
}

/// Confines this process permanently. Must be called before the first thread is started, so that it applies
/// to every thread; it first reads what the process needs from the file system.
pub fn confine_data() -> Result<Confinement, HostError> {
    crate::clock::Clock::new();
    crate::grace::grace();
    crate::numa::nodes();
    confine(identity::NOBODY, calls::Filters::new(&[], &[])?)
}

/// From now on, programs that this process starts inherit only their standard input and outputs. Linux before
/// 5.11 does not support this; they then inherit what the process that started us left open.
///
/// Attack: a process that is taken over uses inherited files.
pub fn withhold_descriptors() {
    // SAFETY: the call takes numbers only, and closes nothing in this process.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Largest number of descriptors of a function.
const DESCRIPTORS: u64 = 256;

/// Confines a function's process in the same way: as `user` if started by root, with `memory` bytes at most.
/// The process may accept connections on its sockets.
pub fn confine_function(user: u32, memory: u64) -> Result<Confinement, HostError> {
    // Elements use the standard library's clock. To measure the ticks would take longer than the rest of the start.
    crate::clock::Clock::ask_kernel();
    limit(memory)?;
    confine(user, calls::Filters::new(calls::ACCEPTING, &[])?)
}

/// Memory of a monitor besides its guest's, in bytes.
const MONITOR: u64 = 64 << 20;

/// The filters of a monitor's system calls, which take a part of a millisecond to make.
#[derive(Debug)]
pub struct MonitorFence(calls::Filters);

impl MonitorFence {
    /// Makes the filters for this process.
    pub fn new() -> Result<MonitorFence, HostError> {
        Ok(MonitorFence(calls::Filters::new(calls::ACCEPTING, calls::KVM)?))
    }

    /// Applies a part of them, which takes a part of a millisecond too: from now on this process can only do what a
    /// monitor or a function does, and what making its guest's memory and [`MonitorFence::confine`] or
    /// [`confine_function`] need. Must be called before the first thread is started.
    pub fn begin() -> Result<MonitorFence, HostError> {
        let [first, second] = calls::Filters::halves(calls::ACCEPTING, calls::KVM)?;
        rustix::thread::set_no_new_privs(true)
            .map_err(|error| HostError::Call { call: "no_new_privs", error })?;
        first.apply()?;
        Ok(MonitorFence(second))
    }

    /// Confines the monitor of a function's guest as [`confine_function`] does a function, before the guest's first
    /// instruction. The guest's memory is shared memory, which was made before, or, in a clone, `private` bytes of its
    /// own; the monitor may run the guest, and map rings for it.
    pub fn confine(self, user: u32, private: u64) -> Result<Confinement, HostError> {
        // What passes frames in the guest has a clock of its own.
        crate::clock::Clock::ask_kernel();
        limit(MONITOR.saturating_add(private))?;
        confine(user, self.0)
    }
}

fn limit(memory: u64) -> Result<(), HostError> {
    let limits = [
        (Resource::Data, memory),
        (Resource::Nofile, DESCRIPTORS),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ];
    for (resource, most) in limits {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).named("setting a limit")?;
    }
    Ok(())
}

fn confine(user: u32, filters: calls::Filters) -> Result<Confinement, HostError> {
    let is_namespaced = identity::drop_privileges(user, CapabilitySet::empty())?;
    rustix::thread::set_no_new_privs(true)
        .map_err(|error| HostError::Call { call: "no_new_privs", error })?;
    let landlock = files::forbid();
    filters.apply()?;
    Ok(Confinement { is_namespaced, landlock })
}
