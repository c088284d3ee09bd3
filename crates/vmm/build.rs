//! Builds the tiny guest's image, which the library contains.
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const TARGET: &str = "x86_64-unknown-none";

fn main() -> ExitCode {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let tiny = here.join("../tiny");
    for source in ["../tiny", "../mem", "../ring"] {
        println!("cargo::rerun-if-changed={}", here.join(source).display());
    }
    let status = build(&tiny, &out.join("image"));
    if !status {
        eprintln!("the tiny guest can't be built for {TARGET}; `make setup` installs that target");
        return ExitCode::FAILURE;
    }
    println!("cargo::rustc-env=TINY={}", out.join("image").join(TARGET).join("tiny/tiny").display());
    ExitCode::SUCCESS
}

fn build(tiny: &Path, folder: &Path) -> bool {
    let link = tiny.join("link.ld");
    let flags = format!("-Crelocation-model=static\x1f-Clink-arg=-T{}\x1f-Clink-arg=-no-pie", link.display());
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--bin", "tiny", "--features", "image", "--profile", "tiny"]);
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
