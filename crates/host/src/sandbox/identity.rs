//! Users, groups and capabilities.

use crate::error::{HostError, Named};
use rustix::thread::{CapabilitySet, CapabilitySets};

/// User and group of nobody.
pub(super) const NOBODY: libc::uid_t = 65_534;

/// Gives up every capability, and root for `user`; whether this is still root, of a user namespace.
pub(super) fn drop_privileges(user: libc::uid_t) -> Result<bool, HostError> {
    let is_root = rustix::process::geteuid().is_root();
    for capability in 0..64 {
        // SAFETY: the call takes numbers only. What isn't there, or isn't ours, needs no dropping.
        unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    if is_root {
        // SAFETY: the calls change the process's identity and touch no memory of ours; the list of groups is
        // empty.
        let refused = unsafe {
            libc::setgroups(0, std::ptr::null()) != 0
                || libc::setresgid(user, user, user) != 0
                || libc::setresuid(user, user, user) != 0
        };
        // A user namespace may not have that user. Root of such a one has what its maker has; the rest holds all
        // the same.
        if refused && rustix::process::geteuid().is_root() && !is_namespaced() {
            return Err(std::io::Error::last_os_error()).named("giving up root");
        }
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).named("dropping capabilities")?;
    Ok(rustix::process::geteuid().is_root())
}

/// Whether root is root of a user namespace only.
fn is_namespaced() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.split_whitespace().ne(["0", "0", "4294967295"])
}
