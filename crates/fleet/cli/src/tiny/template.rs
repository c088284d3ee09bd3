//! `ringway tiny new`: a folder with a program to begin with.

use super::{LIBRARY, TARGET, in_file, write};
use crate::command_error::CommandError;
use std::path::{Path, PathBuf};

/// The main function of the new program.
const MAIN: &str = r#"//! Answers datagrams on UDP port 7 with what they contain.
#![no_std]
#![no_main]

extern crate alloc;

use ringway_tiny_program::{Error, Program, log};

ringway_tiny_program::main!(main);

async fn main(program: Program) -> Result<(), Error> {
    let mut socket = program.network()?.bind(7)?;
    log!(program, "echo on UDP port 7");
    loop {
        let (bytes, from) = socket.recv_from().await?;
        socket.send_to(&bytes, from)?;
    }
}
"#;

/// The main function of the new program in C.
const MAIN_C: &str = r#"/* Answers datagrams on UDP port 7 with what they contain. */
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>

int main(void)
{
	struct sockaddr_in any = { .sin_family = AF_INET, .sin_port = htons(7) }, from;
	char bytes[2048];
	int file = socket(AF_INET, SOCK_DGRAM, 0);

	if (file < 0 || bind(file, (struct sockaddr *)&any, sizeof any)) {
		perror("socket");
		return 1;
	}
	printf("echo on UDP port 7\n");
	for (;;) {
		socklen_t len = sizeof from;
		ssize_t count = recvfrom(file, bytes, sizeof bytes, 0, (struct sockaddr *)&from, &len);

		if (count >= 0)
			sendto(file, bytes, count, 0, (struct sockaddr *)&from, len);
	}
}
"#;

/// Names that cargo or the compiler refuses for a package with a program, or that its dependencies have.
const RESERVED: &str = "\
    alloc build core deps examples incremental proc-macro ringway-tiny-program std test \
    abstract as async await become box break const continue crate do dyn else enum extern false final fn for \
    gen if impl in let loop macro match mod move mut override priv pub ref return self static struct super \
    trait true try type typeof unsafe unsized use virtual where while yield";

/// The files of a new program.
const FILES: [&str; 3] = ["Cargo.toml", "src/main.rs", ".cargo/config.toml"];

/// Makes the folder, which must have none of the files yet.
pub fn new(folder: &Path, library: Option<PathBuf>) -> Result<(), CommandError> {
    let [manifest, main, config] = FILES.map(|file| folder.join(file));
    // A link that leads nowhere is there, too.
    if let Some(file) = [&manifest, &main, &config].into_iter().find(|file| file.symlink_metadata().is_ok()) {
        return Err(CommandError::Failed(in_file(file, "it exists already; choose another folder")));
    }
    let library = self::library(library)?;
    let folder_name = folder.file_name().and_then(|name| name.to_str()).unwrap_or("program");
    let text = manifest_of(&package_name(folder_name), &library).ok_or_else(|| {
        CommandError::Failed(in_file(&library, "the path is no plain text, as a manifest needs it"))
    })?;
    write(&manifest, text.as_bytes())?;
    write(&main, MAIN.as_bytes())?;
    // So that `cargo check` and editors build for the target too.
    write(&config, format!("[build]\ntarget = \"{TARGET}\"\n").as_bytes())?;
    println!("{}: `ringway tiny build {}` makes its image", folder.display(), folder.display());
    Ok(())
}

/// Makes a folder with a program in C, which must have none yet.
pub fn new_c(folder: &Path) -> Result<(), CommandError> {
    let main = folder.join("main.c");
    if main.symlink_metadata().is_ok() {
        return Err(CommandError::Failed(in_file(&main, "it exists already; choose another folder")));
    }
    write(&main, MAIN_C.as_bytes())?;
    println!("{}: `ringway tiny build {}` makes its image", folder.display(), folder.display());
    Ok(())
}

/// The folder of the library: the one that is named, or else that of this program's source tree.
pub fn library(named: Option<PathBuf>) -> Result<PathBuf, CommandError> {
    let library = match named {
        Some(library) => library,
        None => beside_this_program().ok_or_else(|| {
            CommandError::Failed(format!(
                "the library {LIBRARY} is not found from here; name its folder, \
                 crates/machines/tiny-program of Ringway's source tree, with --library"
            ))
        })?,
    };
    let library =
        std::fs::canonicalize(&library).map_err(|error| CommandError::because(in_file(&library, error)))?;
    match is_library(&library) {
        true => Ok(library),
        false => {
            let why = format!(
                "it is not the folder of {LIBRARY}, which is crates/machines/tiny-program of Ringway's \
                 source tree"
            );
            Err(CommandError::Failed(in_file(&library, why)))
        }
    }
}

/// A package's name from a folder's: what cargo does not accept becomes a hyphen, or gets a prefix.
fn package_name(folder: &str) -> String {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = folder.chars().map(|c| if good(c) { c } else { '-' }).collect();
    // The compiler takes an underscore for a hyphen.
    let plain = name.to_ascii_lowercase().replace('_', "-");
    let is_reserved = RESERVED.split_whitespace().any(|reserved| reserved == plain);
    match name.chars().next() {
        Some(first) if first.is_ascii_alphabetic() && !is_reserved => name,
        _ => format!("program-{name}"),
    }
}

/// The manifest; none if a TOML string can't have the library's path as it is.
fn manifest_of(name: &str, library: &Path) -> Option<String> {
    let path = library.to_str().filter(|path| !path.contains(char::is_control))?;
    let path = path.replace('\\', "\\\\").replace('"', "\\\"");
    Some(format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n\n\
         [dependencies]\n{LIBRARY} = {{ path = \"{path}\" }}\n\n\
         [profile.release]\npanic = \"abort\"\nlto = true\nopt-level = 3\ncodegen-units = 1\nstrip = true\n\n\
         # The folder may be in that of another workspace.\n[workspace]\n"
    ))
}

fn is_library(folder: &Path) -> bool {
    let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
    manifest.lines().any(|line| line == format!("name = \"{LIBRARY}\""))
}

/// The library in the source tree in which this program was built.
fn beside_this_program() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    program
        .ancestors()
        .map(|folder| folder.join("crates/machines/tiny-program"))
        .find(|folder| is_library(folder))
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
        for reserved in ["deps", "build", "test", "Std", "ringway_tiny_program", "ringway-tiny-program", "fn"]
        {
            assert_eq!(package_name(reserved), format!("program-{reserved}"));
        }
        assert_eq!(package_name("test-web"), "test-web");
    }

    #[test]
    fn no_file_of_a_folder_is_overwritten() {
        let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../machines/tiny-program");
        for (number, file) in FILES.into_iter().enumerate() {
            let name = format!("ringway-tiny-new-{}-{number}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            let file = folder.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, "mine").unwrap();
            let why = new(&folder, Some(library.clone())).unwrap_err().to_string();
            assert_eq!(why, in_file(&file, "it exists already; choose another folder"));
            let there = FILES.iter().filter(|file| folder.join(file).exists()).count();
            assert_eq!((there, std::fs::read_to_string(&file).unwrap().as_str()), (1, "mine"));
            std::fs::remove_dir_all(&folder).unwrap();
        }
    }

    #[test]
    fn a_manifest_names_the_library() {
        let manifest = manifest_of("web", Path::new("/a \"b\"/crates/program")).unwrap();
        assert!(
            manifest.contains(r#"ringway-tiny-program = { path = "/a \"b\"/crates/program" }"#),
            "{manifest}"
        );
        use std::os::unix::ffi::OsStrExt;
        let odd = std::ffi::OsStr::from_bytes(b"/a\xff/program");
        for path in [Path::new("/a\n/program"), Path::new("/a\x7f/program"), Path::new(odd)] {
            assert_eq!(manifest_of("web", path), None);
        }
    }
}
