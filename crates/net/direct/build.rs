//! Builds the image, which the library contains in two parts: the segment that is never written, and the other one.
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The host's target without its libraries.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// The image, which has the name of its profile.
const NAME: &str = "direct";
/// Crates of which it consists.
const SOURCES: [&str; 7] =
    ["base/bare", "base/frame", "base/mem", "base/ring", "base/wire", "net/direct-stack", "net/netstack"];
/// The parts of a crate that its code depends on; not its tests.
const PARTS: [&str; 3] = ["src", "Cargo.toml", "link.ld"];

fn main() -> ExitCode {
    let here = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for (source, part) in SOURCES.iter().flat_map(|source| PARTS.map(|part| (source, part))) {
        let path = here.join("../..").join(source).join(part);
        if path.exists() {
            println!("cargo::rerun-if-changed={}", path.display());
        }
    }
    // One folder for all profiles of the outer build, beside theirs: they contain the same image.
    let folder = out.ancestors().nth(4).unwrap_or(&out).join("images");
    if !build(&here.join("../direct-stack"), &folder) {
        eprintln!("the image can't be built for {TARGET}; `rustup target add {TARGET}` installs it");
        return ExitCode::FAILURE;
    }
    match split(&folder.join(TARGET).join(NAME).join(NAME), &out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("the image can't be split: {error}");
            ExitCode::FAILURE
        }
    }
}

fn build(package: &Path, folder: &Path) -> bool {
    let script = format!("-Clink-arg=-T{}", package.join("link.ld").display());
    let linker = ["-Clinker=rust-lld", "-Clinker-flavor=ld.lld", "-Clink-arg=-no-pie", &script];
    // Its address is beyond what the code for fixed places can name.
    let flags = ["-Crelocation-model=pic", "-Ctarget-feature=-crt-static"].into_iter().chain(linker);
    let flags = flags.collect::<Vec<_>>().join("\x1f");
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["build", "--quiet", "--bin", NAME, "--profile", NAME, "--features", "image"]);
    cargo.args(["--target", TARGET, "--target-dir"]).arg(folder).arg("--manifest-path");
    cargo.arg(package.join("Cargo.toml")).env("CARGO_ENCODED_RUSTFLAGS", flags);
    // Variables of the outer build are for the host, or are a linter.
    for name in
        ["RUSTFLAGS", "RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER", "CARGO_TARGET_DIR", "CARGO_BUILD_TARGET"]
    {
        cargo.env_remove(name);
    }
    cargo.status().is_ok_and(|status| status.success())
}

/// Writes what the two segments have in the file, and their places in memory.
fn split(image: &Path, out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    /// Offsets and sizes of ELF's headers for 64 bits (elf(5)).
    const ENTRY: usize = 24;
    const HEADERS: usize = 32;
    const COUNT: usize = 56;
    const SIZE: usize = 56;
    let bytes = std::fs::read(image)?;
    let number = |at: usize| -> Result<u64, std::array::TryFromSliceError> {
        Ok(u64::from_le_bytes(bytes[at..at + 8].try_into()?))
    };
    println!("cargo::rustc-env=DIRECT_ENTRY={}", number(ENTRY)?);
    let first = number(HEADERS)? as usize;
    let mut flags = Vec::new();
    for at in (0..usize::from(bytes[COUNT])).map(|index| first + index * SIZE) {
        // A segment to load.
        if bytes[at] != 1 {
            continue;
        }
        let name = if flags.is_empty() { "text" } else { "data" };
        flags.push(bytes[at + 4]);
        let (offset, address, len) = (number(at + 8)? as usize, number(at + 16)?, number(at + 32)? as usize);
        let end = address + number(at + 40)?;
        if !address.is_multiple_of(4096) {
            return Err(format!("its {name} begins at {address:#x}, within a page").into());
        }
        let path = out.join(format!("direct.{name}"));
        std::fs::write(&path, &bytes[offset..offset + len])?;
        let name = name.to_uppercase();
        println!("cargo::rustc-env=DIRECT_{name}={}", path.display());
        println!("cargo::rustc-env=DIRECT_{name}_AT={address}");
        println!("cargo::rustc-env=DIRECT_{name}_END={}", end.next_multiple_of(4096));
    }
    // May be read and executed, and read and written.
    if flags == [5, 6] { Ok(()) } else { Err(format!("it has segments with the flags {flags:?}").into()) }
}
