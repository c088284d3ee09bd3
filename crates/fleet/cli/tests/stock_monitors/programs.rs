//! Images of programs, in Rust and in C, as users build them.

use crate::lab::Lab;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The command line of a program, with a word that it does not know; what its console says of that.
pub const LINE: &str = "address=10.0.0.9/24 gateway=10.0.0.1 quiet";
pub const UNKNOWN: &str = "program: `quiet` on the command line has no meaning here";

/// Builds an example; its image is in the fabric's folder. `None`, with a message, without what a program in C needs.
pub fn built(lab: &Lab, name: &str) -> Option<String> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = here.join("../../../examples/tiny").join(name);
    if folder.join("main.c").exists() && !Path::new("/usr/lib/klibc/lib/libc.a").is_file() {
        eprintln!("not run: there is no klibc; the package libklibc-dev has it");
        return None;
    }
    // Shared with the tests of such programs.
    let target: PathBuf =
        Path::new(env!("CARGO_BIN_EXE_ringway")).ancestors().nth(2).unwrap_or(here).join("tiny");
    let image = format!("{name}.tiny");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.current_dir(&lab.folder).env("CARGO_TARGET_DIR", target).env_remove("CARGO");
    let output = command.args(["tiny", "build", "--output", &image]).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(image)
}
