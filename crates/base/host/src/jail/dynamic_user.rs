//! Users of confined processes without an account.

/// The user of a process called `name` within `scope`, from the range that no system assigns to accounts (systemd's
/// UIDS-GIDS, "DynamicUser").
pub fn dynamic_user(scope: &str, name: &str) -> u32 {
    const FIRST: u32 = 61_184;
    const COUNT: u32 = 4336;
    // FNV-1a: the result is stable, so that a user's files stay its own.
    let bytes = scope.bytes().chain([0]).chain(name.bytes());
    let hash = bytes.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    FIRST + hash % COUNT
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_name_has_a_stable_distinct_user() {
        let users = ["a", "b", "c"].map(|name| super::dynamic_user("lab", name));
        assert!(users.iter().all(|user| (61_184..=65_519).contains(user)));
        assert!(users[0] != users[1] && users[1] != users[2], "{users:?}");
    }
}
