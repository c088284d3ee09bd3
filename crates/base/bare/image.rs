//! Builds an image without libraries, or a library to preload: a part of the build scripts of the crates that contain
//! one.
use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The host's target without its libraries: unlike `x86_64-unknown-none`, it uses vector registers.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A folder that cargo names for a build script.
pub fn folder(variable: &str) -> PathBuf {
    PathBuf::from(env::var_os(variable).unwrap_or_default())
}

/// An image to build.
pub struct Image<'a> {
    /// The folder of its package.
    pub package: &'a Path,
    /// The linker's script. `None`: it is a dynamic library, built as others are.
    pub script: Option<&'a Path>,
    /// The name of its program or library.
    pub name: &'a str,
    /// The profile that it is built with.
    pub profile: &'a str,
    /// The package's features.
    pub features: &'a str,
    /// The compiler's flags besides those of all images.
    pub flags: &'a [&'a str],
}

impl Image<'_> {
    /// Builds it, and has the build script run again if what it consists of changes; returns its path. `None`: it can't
    /// be built, which was printed.
    pub fn build(&self) -> Option<PathBuf> {
        // One folder for all profiles of the outer build, beside theirs: they contain the same images.
        let out = folder("OUT_DIR");
        let images = out.ancestors().nth(4).unwrap_or(&out).join("images");
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--profile", self.profile, "--target", TARGET]);
        cargo.args(["--no-default-features", "--features", self.features]);
        cargo.arg("--target-dir").arg(&images).arg("--manifest-path").arg(self.package.join("Cargo.toml"));
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
        if let Some(script) = self.script {
            println!("cargo::rerun-if-changed={}", script.display());
            let script = format!("-Clink-arg=-T{}", script.display());
            let linker = ["-Clinker=rust-lld", "-Clinker-flavor=ld.lld", "-Clink-arg=-no-pie", &script];
            let flags = [self.flags, &["-Ctarget-feature=-crt-static"], &linker].concat().join("\x1f");
            cargo.env("CARGO_ENCODED_RUSTFLAGS", flags).args(["--bin", self.name]);
        } else {
            cargo.arg("--lib");
        }
        if !cargo.status().is_ok_and(|status| status.success()) {
            let name = self.name;
            eprintln!(
                "{name} can't be built for {TARGET}; `rustup target add {TARGET}` installs what it needs"
            );
            return None;
        }
        let file = if self.script.is_some() { self.name.into() } else { format!("lib{}.so", self.name) };
        let built = images.join(TARGET).join(self.profile).join(file);
        for source in sources(&built.with_extension("d"), &images) {
            println!("cargo::rerun-if-changed={}", source.display());
        }
        Some(built)
    }
}

/// The files that a program was built from, by cargo's list, which has a line in make's syntax, and the manifests of
/// their packages; not what was generated while it was built.
fn sources(list: &Path, images: &Path) -> BTreeSet<PathBuf> {
    let text = std::fs::read_to_string(list).unwrap_or_default();
    let names = text.split_once(": ").map_or("", |(_, names)| names.trim_end());
    // A space within a name follows a backslash.
    let names = names.replace("\\ ", "\0");
    let mut sources: BTreeSet<PathBuf> =
        names.split(' ').map(|name| name.replace('\0', " ").into()).collect();
    sources.retain(|source| source.is_file() && !source.starts_with(images));
    // Of the package and the workspace, which has the profiles and the versions.
    let folders = sources.iter().flat_map(|source| source.ancestors().skip(1));
    let manifests = folders.flat_map(|folder| ["Cargo.toml", "Cargo.lock"].map(|name| folder.join(name)));
    let manifests: BTreeSet<PathBuf> = manifests.filter(|manifest| manifest.exists()).collect();
    sources.extend(manifests);
    sources
}
