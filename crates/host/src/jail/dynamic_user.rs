//! Users of confined processes, which no account is made for.

/// The user of a process that is called `name` within `scope`: one of those that no system gives to anybody (systemd's
/// UIDS-GIDS, "DynamicUser").
pub fn dynamic_user(scope: &str, name: &str) -> u32 {
    const FIRST: u32 = 61_184;
    const COUNT: u32 = 4336;
    // FNV-1a: the same each time, so that files of a user stay its own.
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
