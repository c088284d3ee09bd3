//! Builds the tiny guests' images, which the library contains.
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const TARGET: &str = "x86_64-unknown-none";
/// The images, with their features.
const TINY: [&str; 2] = ["tiny", "image"];
const CLICK: [&str; 2] = ["click", "image,click"];
/// Crates of which the images consist.
const SOURCES: [&str; 10] =
    ["tiny", "wire", "click-lang", "mem", "frame", "click", "link", "ring", "elements", "nic"];

fn main() -> ExitCode {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let tiny = here.join("../tiny");
    for source in SOURCES {
        println!("cargo::rerun-if-changed={}", here.join("..").join(source).display());
    }
    // One folder for all profiles of the outer build, beside theirs: they contain the same images.
    let folder = out.ancestors().nth(4).unwrap_or(&out).join("images");
    for image in [TINY, CLICK] {
        let name = image[0];
        if !build(&tiny, &folder, image) {
            eprintln!("the tiny guests can't be built for {TARGET}; `make setup` installs that target");
            return ExitCode::FAILURE;
        }
        // A copy, since a later build of another profile may replace the original meanwhile. The profile has the
        // image's name.
        let (from, to) = (folder.join(TARGET).join(name).join(name), out.join(name));
        if let Err(error) = std::fs::copy(&from, &to) {
            eprintln!("{}: {error}", from.display());
            return ExitCode::FAILURE;
        }
        println!("cargo::rustc-env={}={}", name.to_uppercase(), to.display());
    }
    ExitCode::SUCCESS
}

fn build(tiny: &Path, folder: &Path, [name, features]: [&str; 2]) -> bool {
    let link = tiny.join("link.ld");
    let flags = format!("-Crelocation-model=static\x1f-Clink-arg=-T{}\x1f-Clink-arg=-no-pie", link.display());
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--bin", name, "--profile", name, "--no-default-features"]);
    cargo.args(["--features", features]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(folder).arg("--manifest-path");
    cargo.arg(tiny.join("Cargo.toml")).env("CARGO_ENCODED_RUSTFLAGS", flags);
    // Those of the outer build are for the host, or are a linter.
    for name in
        ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"]
    {
        cargo.env_remove(name);
    }
    cargo.status().is_ok_and(|status| status.success())
}
