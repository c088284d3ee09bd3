//! A machine that refuses new processes or namespaces.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_host::jail::{Fence, Jail, Program, fence};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use std::path::Path;

/// Makes `clone` fail on this thread, as where user namespaces are forbidden, or process numbers are used up.
fn refuse() {
    let rules = [(libc::SYS_clone, Vec::new())].into();
    let refused = SeccompAction::Errno(libc::EAGAIN as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refused, arch).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[test]
fn a_refused_process_is_an_error() {
    // A child for which nobody may wait by mistake.
    let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    refuse();
    assert_eq!(fence(), Fence::None);
    let program = Program { path: Path::new("/bin/true"), arguments: &[], environment: &[] };
    let refused = Jail::default().start(&program).unwrap_err().to_string();
    assert!(refused.contains("Resource temporarily unavailable"), "{refused}");
    assert_eq!(child.try_wait().unwrap(), None);
    child.kill().unwrap();
    child.wait().unwrap();
}
