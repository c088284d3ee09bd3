//! The C library for programs on rings.
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the library and its example in `folder`; returns the example. `None`, with a message, without a compiler.
// A test that can't continue panics.
#[allow(clippy::unwrap_used)]
pub fn example(folder: &Path) -> Option<PathBuf> {
    if ["make", "cc"].iter().any(|name| ringway_linux_guests::image::program(name).is_none()) {
        crate::say("the C library skipped: no compiler is available");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients/c");
    let mut make = Command::new("make");
    let made = make.arg("-C").arg(source).arg(format!("OUT={}", folder.display())).output().unwrap();
    let errors = String::from_utf8_lossy(&made.stderr).into_owned();
    assert!(made.status.success() && !errors.contains("warning:"), "{errors}");
    Some(folder.join("frames"))
}
