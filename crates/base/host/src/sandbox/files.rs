//! Landlock: the files that a process may read, if any; no TCP ports, no signals to other processes.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use std::path::Path;

/// Forbids file access as far as the kernel supports it; returns whether it does. This is a second line of
/// defence behind seccomp, so missing support is not an error.
pub(super) fn forbid() -> bool {
    let status = ruleset(AccessNet::from_all(ABI::V5)).and_then(RulesetCreated::restrict_self);
    status.is_ok_and(|status| status.ruleset != RulesetStatus::NotEnforced)
}

fn ruleset(network: BitFlags<AccessNet>) -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V5))?
        .handle_access(network)?
        .scope(Scope::from_all(ABI::V6))?
        .create()
}

/// The landlock rules of a process that reads `paths` and everything below them; the `host` of such processes
/// also executes programs there, and reads /proc. With `network` it may connect, but not listen. Without
/// landlock, nothing is forbidden.
pub(super) fn readable(paths: &[&Path], host: bool, network: bool) -> Result<RulesetCreated, RulesetError> {
    let ports = if network { AccessNet::BindTcp.into() } else { AccessNet::from_all(ABI::V5) };
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let start = if host { read | AccessFs::Execute } else { read };
    let figures: &[&str] = if host { &["/proc"] } else { &[] };
    let null = AccessFs::ReadFile | AccessFs::WriteFile;
    ruleset(ports)?
        .add_rules(path_beneath_rules(paths, start))?
        .add_rules(path_beneath_rules(figures, read))?
        .add_rules(path_beneath_rules(["/dev/null"], null))
}
