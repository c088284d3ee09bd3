//! Builds the library that programs preload, which this crate contains.

use std::env;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The target that the build has, and the profile.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const PROFILE: &str = "preload";
/// What the library consists of.
const SOURCES: [&str; 3] = ["../preload/src", "../preload/Cargo.toml", "../direct-stack/src/abi.rs"];

fn folder(variable: &str) -> PathBuf {
    PathBuf::from(env::var_os(variable).unwrap_or_default())
}

fn main() -> ExitCode {
    for source in SOURCES {
        println!("cargo::rerun-if-changed={source}");
    }
    let out = folder("OUT_DIR");
    // One folder for all profiles of the outer build, beside theirs: they contain the same library.
    let images = out.ancestors().nth(4).unwrap_or(&out).join("images");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--lib", "--profile", PROFILE, "--target", TARGET, "--target-dir"]);
    cargo.arg(&images).arg("--manifest-path").arg(folder("CARGO_MANIFEST_DIR").join("../preload/Cargo.toml"));
    // Variables of the outer build are for the host, or are a linter.
    for name in [
        "RUSTFLAGS",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET",
    ] {
        cargo.env_remove(name);
    }
    if !cargo.status().is_ok_and(|status| status.success()) {
        eprintln!(
            "the preloaded library can't be built for {TARGET}; `rustup target add {TARGET}` installs it"
        );
        return ExitCode::FAILURE;
    }
    let library = images.join(TARGET).join(PROFILE).join("libringway_preload.so");
    println!("cargo::rustc-env=PRELOAD_LIBRARY={}", library.display());
    ExitCode::SUCCESS
}
