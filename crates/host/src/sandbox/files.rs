//! Landlock: no file, no TCP port, no signal to others.

use landlock::{ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope};

/// Forbids what the kernel can forbid; whether it could anything. A second fence behind seccomp: not having
/// it is no error.
pub(super) fn forbid() -> bool {
    let ruleset = || -> Result<RulesetStatus, RulesetError> {
        let ruleset = Ruleset::default()
            .handle_access(AccessFs::from_all(ABI::V5))?
            .handle_access(AccessNet::from_all(ABI::V5))?
            .scope(Scope::from_all(ABI::V6))?;
        Ok(ruleset.create()?.restrict_self()?.ruleset)
    };
    ruleset().is_ok_and(|status| status != RulesetStatus::NotEnforced)
}
