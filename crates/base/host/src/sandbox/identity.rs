//! Users, groups and capabilities.

use crate::error::{HostError, Named};
use crate::process_setup::bound_capabilities;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, configure_capability_in_ambient_set};

/// User and group `nobody`.
pub(super) const NOBODY: libc::uid_t = 65_534;

/// Drops every capability except `kept`, and changes from root to `user`; returns whether the process is
/// still root of a user namespace. A program that it executes also has `kept`.
pub(super) fn drop_privileges(user: libc::uid_t, kept: CapabilitySet) -> Result<bool, HostError> {
    let is_root = rustix::process::geteuid().is_root();
    let kept = capabilities(None).named("looking at capabilities")?.permitted & kept;
    rustix::thread::set_keep_capabilities(!kept.is_empty()).named("keeping capabilities")?;
    bound_capabilities(kept);
    if is_root {
        // SAFETY: the calls change the process's identity and touch no memory of ours; the list of groups is
        // empty.
        let refused = unsafe {
            libc::setgroups(0, std::ptr::null()) != 0
                || libc::setresgid(user, user, user) != 0
                || libc::setresuid(user, user, user) != 0
        };
        // A user namespace may lack that user. Its root has only the rights of the namespace's creator; the
        // other restrictions still apply.
        if refused && rustix::process::geteuid().is_root() && !is_namespaced() {
            return Err(std::io::Error::last_os_error()).named("giving up root");
        }
    }
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    rustix::thread::set_capabilities(None, sets).named("dropping capabilities")?;
    for capability in kept.iter() {
        configure_capability_in_ambient_set(capability, true).named("keeping a capability")?;
    }
    Ok(rustix::process::geteuid().is_root())
}

/// Whether root is root of a user namespace only.
fn is_namespaced() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().ne(["0", "0", "4294967295"])
}
