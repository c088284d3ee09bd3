//! The `data` process gives up what it doesn't need: identity, capabilities, the file system, and all system
//! calls but those of the data path.
//!
//! A function's process does the same, and has a memory limit.
//!
//! Whoever takes over a worker through a guest's frames finds a process that can't open, connect, execute or
//! trace anything, and that may use the descriptors it has.

mod calls;
mod files;
mod identity;
mod plugin_calls;
mod plugins;

pub use plugins::{PluginFences, pass_on};

use crate::error::{HostError, Named};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::CapabilitySet;

/// What could be given up. Without seccomp there is no confinement, and so no such value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confinement {
    /// Whether this is still root, of a user namespace that knows no other user.
    pub is_namespaced: bool,
    /// Whether landlock forbids the file system too.
    pub landlock: bool,
}

/// Confines this process for good. To be called before the first thread is made, so that every thread has it;
/// what a confined process needs of the file system is read here first.
pub fn confine_data() -> Result<Confinement, HostError> {
    crate::clock::Clock::new();
    crate::grace::grace();
    confine(identity::NOBODY, &[])
}

/// Programs that this process starts from now on get none of the descriptors that it has, but for their standard
/// input and outputs. Linux before 5.11 can't do so, and they get what whoever started us left open.
///
/// Attack: a process that is taken over finds files open that nobody meant for it.
pub fn withhold_descriptors() {
    // SAFETY: the call takes numbers only, and closes nothing in this process.
    unsafe { libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Descriptors that a function has at most.
const DESCRIPTORS: u64 = 256;

/// Confines a process that runs a function, likewise: as `user` if this is root, with `memory` bytes of its own at
/// most. It may accept connections on sockets it has.
pub fn confine_function(user: u32, memory: u64) -> Result<Confinement, HostError> {
    crate::clock::Clock::new();
    let limits = [
        (Resource::Data, memory),
        (Resource::Nofile, DESCRIPTORS),
        (Resource::Core, 0),
        (Resource::Fsize, 0),
    ];
    for (resource, most) in limits {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) }).named("setting a limit")?;
    }
    confine(user, calls::ACCEPTING)
}

fn confine(user: u32, more: &[i64]) -> Result<Confinement, HostError> {
    let is_namespaced = identity::drop_privileges(user, CapabilitySet::empty())?;
    rustix::thread::set_no_new_privs(true)
        .map_err(|error| HostError::Call { call: "no_new_privs", error })?;
    let landlock = files::forbid();
    calls::forbid(more)?;
    Ok(Confinement { is_namespaced, landlock })
}
