//! Compiles `preload/ptrace.rs` to a shared library, whose bytes are part of this crate.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

const SOURCE: &str = "preload/ptrace.rs";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed={SOURCE}");
    let name = |key: &str| env::var(key).unwrap_or_default();
    let library = Path::new(&name("OUT_DIR")).join("ptrace.so");
    if name("CARGO_CFG_TARGET_ARCH") != "x86_64" {
        return done(&std::fs::write(&library, []).map_err(|error| error.to_string()));
    }
    let mut rustc = Command::new(name("RUSTC"));
    rustc.args([
        "--edition",
        "2024",
        "--crate-name",
        "ptrace",
        "--crate-type",
        "cdylib",
        "--target",
        &name("TARGET"),
    ]);
    rustc
        .args(["-C", "opt-level=2", "-C", "panic=abort", "-C", "strip=symbols", "-o"])
        .arg(&library)
        .arg(SOURCE);
    done(&match rustc.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("rustc {SOURCE}: {status}")),
        Err(error) => Err(format!("rustc: {error}")),
    })
}

fn done(result: &Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("cargo::error={reason}");
            ExitCode::FAILURE
        }
    }
}
