//! Builds the crates that also run inside tiny guests for a target without an operating system.
use crate::Findings;
use std::path::Path;
use std::process::Command;

const TARGET: &str = "x86_64-unknown-none";
const CRATES: &[&str] = &[
    "wire",
    "mem",
    "bare",
    "frame",
    "netstack",
    "ring",
    "virtq",
    "nic",
    "link",
    "click-lang",
    "click",
    "elements",
    "tiny",
    "tiny-program",
    "tiny-program/c",
    "direct-stack",
];

/// Builds the crates, and features behind their names; compiler errors are the findings.
pub fn check(root: &Path) -> Findings {
    let mut findings = Findings::new();
    for row in CRATES {
        let (name, features) = row.split_once('/').unwrap_or((row, ""));
        let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["check", "--quiet", "--target", TARGET, "-p", &format!("ringway-{name}")])
            .args(["--features", features])
            .current_dir(root)
            .status();
        match status {
            Ok(status) if status.success() => {}
            Ok(_) => {
                findings.push(format!("ringway-{name}: does not build for {TARGET}; it must do without std"))
            }
            Err(error) => findings.push(format!("cargo: {error}")),
        }
    }
    findings
}
