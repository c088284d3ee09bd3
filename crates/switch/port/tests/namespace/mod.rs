//! A private network namespace for a test.
use std::process::Command;

/// Runs the test program again in a network namespace, where it runs `test`. This needs root, or a kernel that
/// permits unprivileged user namespaces.
pub fn within(test: fn()) {
    if std::env::args().nth(1).as_deref() == Some("within") {
        return test();
    }
    let program = std::env::current_exe().expect("a running program has a path");
    let is_root = rustix::process::geteuid().is_root();
    let unshare = if is_root { "-n" } else { "-rn" };
    let status = Command::new("unshare").arg(unshare).arg(program).arg("within").status();
    assert!(status.expect("unshare, of util-linux, runs").success());
}
