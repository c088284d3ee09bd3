//! Builds an image without libraries: a part of the build scripts of the crates that contain one.
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The host's target without its libraries: unlike `x86_64-unknown-none`, it uses vector registers.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The parts of a crate that its code depends on; not its tests.
const PARTS: [&str; 4] = ["src", "build.rs", "Cargo.toml", "link.ld"];

/// A folder that cargo names for a build script.
pub fn folder(variable: &str) -> PathBuf {
    PathBuf::from(env::var_os(variable).unwrap_or_default())
}

/// Runs the build script again if one of these crates changes, of which the images consist.
pub fn watch(crates: &[&str]) {
    for (name, part) in crates.iter().flat_map(|name| PARTS.map(|part| (name, part))) {
        let path = folder("CARGO_MANIFEST_DIR").join("../..").join(name).join(part);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
}

/// Builds the program `name` of `package`, in the profile of the same name, with these features and flags of the
/// compiler; returns its path. `None`: it can't be built, which was printed.
pub fn build(package: &Path, name: &str, features: &str, flags: &[&str]) -> Option<PathBuf> {
    // One folder for all profiles of the outer build, beside theirs: they contain the same images.
    let out = folder("OUT_DIR");
    let images = out.ancestors().nth(4).unwrap_or(&out).join("images");
    let script = format!("-Clink-arg=-T{}", package.join("link.ld").display());
    let linker = ["-Clinker=rust-lld", "-Clinker-flavor=ld.lld", "-Clink-arg=-no-pie", &script];
    let flags = [flags, &["-Ctarget-feature=-crt-static"], &linker].concat().join("\x1f");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--bin", name, "--profile", name, "--no-default-features"]);
    cargo.args(["--features", features, "--target", TARGET, "--target-dir"]).arg(&images);
    cargo.arg("--manifest-path").arg(package.join("Cargo.toml")).env("CARGO_ENCODED_RUSTFLAGS", flags);
    // Variables of the outer build are for the host, or are a linter.
    for name in
        ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"]
    {
        cargo.env_remove(name);
    }
    if cargo.status().is_ok_and(|status| status.success()) {
        return Some(images.join(TARGET).join(name).join(name));
    }
    eprintln!("the image can't be built for {TARGET}; `rustup target add {TARGET}` installs it");
    None
}
