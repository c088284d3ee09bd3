//! The project's own checks: `cargo xtask tidy` and `cargo xtask bare`.
mod arrows;
mod bare;
mod integration;
mod kinds;
mod licences;
mod names;
mod pages;
mod promises;
mod sizes;
mod text;
mod unsafety;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask COMMAND
  tidy            check crate arrows, unsafe code, sizes, names, links of pages and licences
  tidy --shrink   the same, and write what has become smaller to xtask/ratchet.toml
  bare            build the crates that need no operating system for x86_64-unknown-none";

/// Findings of a check; each has a place, the error, and the remedy.
type Findings = Vec<String>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let root = root();
    let findings = match words.as_slice() {
        ["tidy"] => tidy(&root, false),
        ["tidy", "--shrink"] => tidy(&root, true),
        ["bare"] => bare::check(&root),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    for finding in &findings {
        eprintln!("{finding}");
    }
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn tidy(root: &Path, shrink: bool) -> Findings {
    let files = match text::tracked(root) {
        Ok(files) => files,
        Err(reason) => return vec![reason],
    };
    let mut findings = arrows::check(root);
    findings.extend(unsafety::check(&files));
    findings.extend(sizes::check(root, &files, shrink));
    findings.extend(names::check(root, &files));
    findings.extend(kinds::check(&files));
    findings.extend(integration::check(&files));
    findings.extend(pages::check(root, &files));
    findings.extend(promises::check(&files));
    findings.extend(licences::check(root));
    findings
}

/// The workspace's folder: the parent of this package's.
fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_path_buf()
}
