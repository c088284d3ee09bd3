//! `ringway tiny new`: a folder with a program to begin with.

use super::{LIBRARY, TARGET, in_file, write};
use crate::fail::Fail;
use anstream::println;
use std::path::{Path, PathBuf};

/// The main function of the new program.
const MAIN: &str = r#"//! Answers datagrams on UDP port 7 with what they contain.
#![no_std]
#![no_main]

extern crate alloc;

use ringway_program::{Error, Program, log};

ringway_program::main!(main);

async fn main(program: Program) -> Result<(), Error> {
    let mut socket = program.network()?.bind(7)?;
    log!(program, "echo on UDP port 7");
    loop {
        let (bytes, from) = socket.recv_from().await?;
        socket.send_to(&bytes, from)?;
    }
}
"#;

/// Makes the folder, which must not have a package yet.
pub fn new(folder: &Path, library: Option<PathBuf>) -> Result<(), Fail> {
    let manifest = folder.join("Cargo.toml");
    if manifest.exists() {
        return Err(Fail::Failed(in_file(&manifest, "it exists already; choose another folder")));
    }
    let library = match library {
        Some(library) => library,
        None => beside_this_program().ok_or_else(|| {
            Fail::Failed(format!(
                "the library {LIBRARY} is not found from here; name its folder, crates/program of \
                 Ringway's source tree, with --library"
            ))
        })?,
    };
    let library = std::fs::canonicalize(&library).map_err(|error| Fail::because(in_file(&library, error)))?;
    if !is_library(&library) {
        let why =
            format!("it is not the folder of {LIBRARY}, which is crates/program of Ringway's source tree");
        return Err(Fail::Failed(in_file(&library, why)));
    }
    let folder_name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("program");
    write(&manifest, manifest_of(&package_name(folder_name), &library).as_bytes())?;
    write(&folder.join("src/main.rs"), MAIN.as_bytes())?;
    // So that `cargo check` and editors build for the target too.
    let config = format!("[build]\ntarget = \"{TARGET}\"\n");
    write(&folder.join(".cargo/config.toml"), config.as_bytes())?;
    println!("{}: `ringway tiny build {}` makes its image", folder.display(), folder.display());
    Ok(())
}

/// A package's name from a folder's: what cargo does not accept becomes a hyphen.
fn package_name(folder: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = folder.chars().map(|c| if good(c) { c } else { '-' }).collect();
    match name.chars().next() {
        Some(first) if first.is_ascii_alphabetic() => name,
        _ => format!("program-{name}"),
    }
}

fn manifest_of(name: &str, library: &Path) -> String {
    // A TOML string.
    let path = library.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n\
         [dependencies]\n{LIBRARY} = {{ path = \"{path}\" }}\n\n\
         [profile.release]\npanic = \"abort\"\nlto = true\nopt-level = 3\ncodegen-units = 1\nstrip = true\n\n\
         # The folder may be in that of another workspace.\n[workspace]\n"
    )
}

fn is_library(folder: &Path) -> bool {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    manifest.lines().any(|line| line == format!("name = \"{LIBRARY}\""))
}

/// The library in the source tree in which this program was built.
fn beside_this_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program.ancestors().map(|folder| folder.join("crates/program")).find(|folder| is_library(folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_s_name_becomes_a_package_s() {
        for (folder, package) in
            [("web", "web"), ("my web", "my-web"), ("7", "program-7"), ("\u{e4}", "program--")]
        {
            assert_eq!(package_name(folder), package);
        }
    }

    #[test]
    fn a_manifest_names_the_library() {
        let manifest = manifest_of("web", Path::new("/a \"b\"/crates/program"));
        assert!(manifest.contains(r#"ringway-program = { path = "/a \"b\"/crates/program" }"#), "{manifest}");
    }
}
