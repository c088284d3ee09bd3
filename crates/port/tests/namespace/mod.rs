//! A network namespace of a test's own.
use std::process::Command;

/// Runs a test program again within one, where it does `test`. That needs root, or a kernel that lets others make user
/// namespaces.
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
