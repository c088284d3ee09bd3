//! Compiles `preload/ptrace.rs` to a shared library, which is embedded in this crate.

use std::env;
use std::path::Path;
use std::process::{Command, ExitCode};

const SOURCE: &str = "preload/ptrace.rs";

fn main() -> ExitCode {
    println!("cargo::rerun-if-changed={SOURCE}");
    let library = Path::new(&env::var_os("OUT_DIR").unwrap_or_default()).join("ptrace.so");
    match make(&library) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            println!("cargo::error={reason}");
            ExitCode::FAILURE
        }
    }
}

fn make(library: &Path) -> Result<(), String> {
    let name = |key: &str| env::var(key).unwrap_or_default();
    // Other targets don't need it.
    if (name("CARGO_CFG_TARGET_ARCH"), name("CARGO_CFG_TARGET_ENV")) != ("x86_64".into(), "gnu".into()) {
        return std::fs::write(library, []).map_err(|error| format!("{}: {error}", library.display()));
    }
    let mut rustc = Command::new(name("RUSTC"));
    rustc.args(["--edition", "2024", "--crate-name", "ptrace", "--crate-type", "cdylib"]);
    rustc.args([
        "--target",
        &name("TARGET"),
        "-C",
        "opt-level=2",
        "-C",
        "panic=abort",
        "-C",
        "strip=symbols",
    ]);
    rustc.args(env::var("RUSTC_LINKER").map(|linker| format!("-Clinker={linker}")));
    rustc.arg("-o").arg(library).arg(SOURCE);
    match rustc.status() {
        Ok(status) if status.success() && library.is_file() => Ok(()),
        Ok(status) => Err(format!("rustc {SOURCE}: {status}")),
        Err(error) => Err(format!("rustc: {error}")),
    }
}
