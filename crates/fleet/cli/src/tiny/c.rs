//! `ringway tiny build` for programs in C: the C compiler, klibc, and Ringway's library.

use super::{LIBRARY, TARGET, artifact, check_target, in_file, template, tool};
use crate::command_error::CommandError;
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where distributions have klibc, and their package of it.
const KLIBC: &str = "/usr/lib/klibc";
const PACKAGE: &str = "libklibc-dev";
/// What klibc's own compiler driver, `klcc`, passes, as far as it is not the machine's choice.
const FLAGS: [&str; 4] = ["-nostdinc", "-D__KLIBC__=2", "-D__KLIBC_MINOR__=0", "-D_BITSIZE=64"];
const HEADERS: [&str; 3] = ["include/arch/x86_64", "include/bits64", "include"];
/// A machine without threads and without a loader, whose code is at fixed addresses.
const MACHINE: [&str; 8] = [
    "-O2",
    "-fwrapv",
    "-fno-stack-protector",
    "-fno-pie",
    "-fcf-protection=none",
    "-fno-asynchronous-unwind-tables",
    "-ffunction-sections",
    "-fdata-sections",
];
const LINK: [&str; 7] = [
    "-s",
    "-nostdlib",
    "-static",
    "-no-pie",
    "-Wl,--gc-sections",
    "-Wl,--build-id=none",
    "-Wl,-z,max-page-size=4096",
];

/// Whether a folder has a program in C, and none in Rust.
pub fn is_program(folder: &Path) -> bool {
    !folder.join("Cargo.toml").exists() && !sources(folder).is_empty()
}

/// The files `*.c` of a folder, and of its folder `src`, in order.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let folders = [folder.to_path_buf(), folder.join("src")];
    let entries = folders.iter().flat_map(|folder| std::fs::read_dir(folder).into_iter().flatten().flatten());
    let is_source = |path: &PathBuf| path.extension() == Some(OsStr::new("c")) && path.is_file();
    let mut sources: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_source).collect();
    sources.sort();
    sources
}

/// Builds a folder's program with the linker script; returns the file, and the program's name.
pub fn build(folder: &Path, library: Option<PathBuf>, link: &str) -> Result<(PathBuf, String), CommandError> {
    let libc = Path::new(KLIBC).join("lib/libc.a");
    if !libc.is_file() {
        return Err(CommandError::Failed(in_file(
            &libc,
            format_args!(
                "there is no C library for tiny VMs; install klibc, such as by `apt install {PACKAGE}`"
            ),
        )));
    }
    let folder =
        std::fs::canonicalize(folder).map_err(|error| CommandError::because(in_file(folder, error)))?;
    let name = folder.file_name().unwrap_or(OsStr::new("program")).to_string_lossy().into_owned();
    let archive = archive(&template::library(library)?)?;
    // Several builds may go on at once.
    let script = archive.with_file_name(format!("link-{}.ld", std::process::id()));
    super::write(&script, link.as_bytes())?;
    let built = archive.with_file_name(format!("{name}-{}", std::process::id()));
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut command = Command::new(&compiler);
    command.stdin(Stdio::null()).args(MACHINE).args(FLAGS);
    // The compiler's own headers are before those of the system.
    command.arg("-isystem").arg(own_headers(&compiler)?);
    for headers in HEADERS {
        command.arg("-isystem").arg(Path::new(KLIBC).join(headers));
    }
    command.args(words("CPPFLAGS")).args(words("CFLAGS")).args(sources(&folder)).args(LINK);
    let mut argument = OsString::from("-Wl,-T,");
    argument.push(&script);
    command.arg(argument).arg("-Wl,--undefined=start32,--start-group");
    command.arg(&archive).arg(&libc).args(["-lgcc", "-Wl,--end-group", "-o"]).arg(&built);
    let status = command.status();
    // What is left is a few hundred bytes.
    let _ = std::fs::remove_file(&script);
    let status = status.map_err(|error| missing(&compiler, &error))?;
    if status.success() {
        return Ok((built, name));
    }
    let name = compiler.to_string_lossy();
    Err(CommandError::Failed(format!("{}: `{name}` failed; its messages are above", folder.display())))
}

/// The words of a variable of the environment.
fn words(variable: &str) -> Vec<String> {
    let text = std::env::var(variable).unwrap_or_default();
    text.split_whitespace().map(str::to_string).collect()
}

fn missing(compiler: &OsStr, error: &std::io::Error) -> CommandError {
    let name = compiler.to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => CommandError::Failed(format!(
            "there is no `{name}` here; install a C compiler, such as by `apt install gcc`"
        )),
        _ => CommandError::Failed(format!("{name}: {error}")),
    }
}

/// The folder of the compiler's own headers, such as `stddef.h`.
fn own_headers(compiler: &OsStr) -> Result<PathBuf, CommandError> {
    let mut command = Command::new(compiler);
    command.arg("-print-file-name=include").stdin(Stdio::null());
    let output = command.output().map_err(|error| missing(compiler, &error))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().into())
}

/// Ringway's library, with the system calls of C programs, as an archive for the linker.
fn archive(library: &Path) -> Result<PathBuf, CommandError> {
    check_target(library)?;
    let mut cargo = tool("cargo", library);
    // The profile of images: the whole library is one object, of which the linker keeps what is used.
    cargo.args(["rustc", "--profile", "tiny", "--lib", "--crate-type", "staticlib", "--features", "c"]);
    cargo.args(["--target", TARGET, "--message-format", "json-render-diagnostics"]);
    cargo.args(["--", "-Crelocation-model=static"]);
    let built = artifact(&mut cargo, &LIBRARY.replace('-', "_"))?;
    built.ok_or_else(|| CommandError::Failed(in_file(library, "cargo built no archive of it")))
}
