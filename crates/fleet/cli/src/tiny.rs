//! `ringway tiny`: images of programs.

pub mod arguments;
mod c;
mod template;

use crate::command_error::CommandError;
use crate::run_function::check_image;
use arguments::TinyCommand;
use ringway_host::read_file;
use ringway_vmm::LARGEST_IMAGE;
use serde_json::Value;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A target without an operating system: a crate that needs one does not build for it.
const TARGET: &str = "x86_64-unknown-none";
/// Where an image's parts are in its machine's memory.
const LINK: &str = include_str!("../../../machines/tiny/link.ld");
/// The library's package.
const LIBRARY: &str = "ringway-tiny-program";
/// Memory of a machine with which an image is checked: more than any may have is not wrong here.
const MEMORY: u64 = 2000 << 20;

/// Runs `ringway tiny`.
pub fn tiny(json: bool, command: TinyCommand) -> Result<(), CommandError> {
    match command {
        TinyCommand::New { folder, c: true, .. } => template::new_c(&folder),
        TinyCommand::New { folder, library, c: false } => template::new(&folder, library),
        TinyCommand::Build { folder, bin: Some(_), .. } if c::is_program(&folder) => {
            Err(CommandError::Failed(in_file(&folder, "it has one program, in C; leave --bin out")))
        }
        TinyCommand::Build { folder, output, library, .. } if c::is_program(&folder) => {
            let (built, name) = c::build(&folder, library, LINK)?;
            let finished = finish(&built, &folder, output, &name, json);
            // The image is in a folder of the library's.
            let _ = std::fs::remove_file(built);
            finished
        }
        TinyCommand::Build { folder, output, bin, .. } => {
            let (built, name) = build(&folder, bin.as_deref())?;
            finish(&built, &folder, output, &name, json)
        }
    }
}

/// Builds a folder's program in Rust; returns the file, and the program's name.
fn build(folder: &Path, bin: Option<&str>) -> Result<(PathBuf, String), CommandError> {
    let package = Package::of(folder)?;
    let bin = package.bin(bin)?;
    check_target(folder)?;
    let script = package.target.join("ringway").join("link.ld");
    write(&script, LINK.as_bytes())?;
    Ok((compile(folder, &bin, &script)?, bin))
}

/// Checks what was built; the image goes to `output`, or to the folder.
fn finish(
    built: &Path,
    folder: &Path,
    output: Option<PathBuf>,
    name: &str,
    json: bool,
) -> Result<(), CommandError> {
    let image =
        read_file(built, LARGEST_IMAGE).map_err(|error| CommandError::because(in_file(built, error)))?;
    check_image(&image, MEMORY).map_err(|why| CommandError::because(in_file(built, why)))?;
    let output = output.unwrap_or_else(|| folder.join(format!("{name}.tiny")));
    write(&output, &image)?;
    if json {
        crate::text::json(&serde_json::json!({ "image": output, "bytes": image.len() }));
    } else {
        println!("{}: {} KB", output.display(), image.len().div_ceil(1024));
    }
    Ok(())
}

fn in_file(file: &Path, what: impl std::fmt::Display) -> String {
    format!("{}: {what}", file.display())
}

/// Writes a file whole or not at all: a fabric may read it at any time.
fn write(file: &Path, bytes: &[u8]) -> Result<(), CommandError> {
    let because = |error| CommandError::because(in_file(file, error));
    if let Some(folder) = file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(because)?;
    }
    let mut new: OsString = file.into();
    new.push(format!(".{}", std::process::id()));
    // A file of that name is another's, and stays; a link there is not followed.
    let mut out =
        File::create_new(&new).map_err(|error| CommandError::because(in_file(Path::new(&new), error)))?;
    let written = out.write_all(bytes).and_then(|()| std::fs::rename(&new, file));
    written.inspect_err(|_| drop(std::fs::remove_file(&new))).map_err(because)
}

/// The user's cargo, or rustc: that of the toolchain that the folder chooses.
fn tool(name: &str, folder: &Path) -> Command {
    let mut command = Command::new(name);
    command.current_dir(folder).stdin(Stdio::null());
    // Variables of a build that this program is a part of are not the folder's.
    for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
        command.env_remove(variable);
    }
    command
}

/// What a command printed.
fn printed(command: &mut Command) -> Result<Vec<u8>, CommandError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| missing(&name, &error))?;
    if !output.status.success() {
        return Err(CommandError::Failed(format!("`{name}` failed; its messages are above")));
    }
    Ok(output.stdout)
}

fn missing(name: &str, error: &std::io::Error) -> CommandError {
    match error.kind() {
        ErrorKind::NotFound => {
            CommandError::Failed(format!("there is no `{name}` here; install Rust with rustup, which has it"))
        }
        _ => CommandError::Failed(format!("{name}: {error}")),
    }
}

/// A folder's package.
#[derive(Debug)]
struct Package {
    manifest: PathBuf,
    name: String,
    bins: Vec<String>,
    /// The folder of what is built.
    target: PathBuf,
}

impl Package {
    fn of(folder: &Path) -> Result<Package, CommandError> {
        let manifest = folder.join("Cargo.toml");
        if !folder.is_dir() {
            return Err(CommandError::Failed(in_file(
                folder,
                "there is no such folder; `ringway tiny new` makes one",
            )));
        }
        if !manifest.is_file() {
            let why = "there is no such file: the folder is no Rust package, and has no program in C; \
                       `ringway tiny new` makes one";
            return Err(CommandError::Failed(in_file(&manifest, why)));
        }
        let arguments = ["metadata", "--no-deps", "--format-version", "1"];
        let metadata = printed(tool("cargo", folder).args(arguments))?;
        let metadata: Value = serde_json::from_slice(&metadata).map_err(CommandError::because)?;
        let manifest = std::fs::canonicalize(&manifest).map_err(CommandError::because)?;
        Package::read(manifest, &metadata).map_err(CommandError::Failed)
    }

    /// The package of a manifest, in what cargo says about its workspace.
    fn read(manifest: PathBuf, metadata: &Value) -> Result<Package, String> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let packages = list(&metadata["packages"]);
        let Some(package) = packages.iter().find(|package| *text(&package["manifest_path"]) == manifest)
        else {
            let names: Vec<String> = packages.iter().map(|package| text(&package["manifest_path"])).collect();
            let fix = format!("it has no package; name the folder of one: {}", names.join(", "));
            return Err(in_file(&manifest, fix));
        };
        if !list(&package["dependencies"]).iter().any(|used| used["name"] == LIBRARY) {
            let fix = format!("it does not depend on {LIBRARY}; `ringway tiny new` shows how");
            return Err(in_file(&manifest, fix));
        }
        let is_bin = |target: &&Value| list(&target["kind"]).iter().any(|kind| kind == "bin");
        let targets = list(&package["targets"]);
        let bins = targets.iter().filter(is_bin).map(|target| text(&target["name"])).collect();
        let target = text(&metadata["target_directory"]).into();
        Ok(Package { manifest, name: text(&package["name"]), bins, target })
    }

    /// The program to build: the one that is wanted, or else the only one, or that with the package's name.
    fn bin(&self, wanted: Option<&str>) -> Result<String, CommandError> {
        let has = |name: &str| self.bins.iter().any(|bin| bin == name);
        let fail = |why: String| Err(CommandError::Failed(in_file(&self.manifest, why)));
        match (wanted, &self.bins[..]) {
            (Some(name), _) if has(name) => Ok(name.into()),
            (_, []) => fail("it has no program; add src/main.rs".into()),
            (Some(name), bins) => fail(format!("it has no program \"{name}\"; it has {}", bins.join(", "))),
            (None, [only]) => Ok(only.clone()),
            (None, _) if has(&self.name) => Ok(self.name.clone()),
            (None, bins) => {
                fail(format!("it has several programs; choose one with --bin: {}", bins.join(", ")))
            }
        }
    }
}

/// Whether the folder's toolchain has the target.
fn check_target(folder: &Path) -> Result<(), CommandError> {
    let folder_of = printed(tool("rustc", folder).args(["--print", "target-libdir", "--target", TARGET]))?;
    let path = PathBuf::from(String::from_utf8_lossy(&folder_of).trim());
    let has_core = std::fs::read_dir(&path).into_iter().flatten().flatten().any(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with("libcore-")
    });
    match has_core {
        true => Ok(()),
        false => Err(CommandError::Failed(format!(
            "{}: the Rust toolchain of this folder lacks the target {TARGET}; \
             `rustup target add {TARGET}` in the folder installs it",
            folder.display()
        ))),
    }
}

/// Builds a program with the linker script; returns the file.
fn compile(folder: &Path, bin: &str, script: &Path) -> Result<PathBuf, CommandError> {
    let mut argument = OsString::from("-Clink-arg=-T");
    argument.push(script);
    let mut cargo = tool("cargo", folder);
    cargo.args(["rustc", "--release", "--bin", bin, "--target", TARGET]);
    cargo
        .args(["--message-format", "json-render-diagnostics", "--", "-Crelocation-model=static"])
        .arg(argument);
    let built = artifact(&mut cargo, bin)?;
    built.ok_or_else(|| {
        CommandError::Failed(format!("{}: cargo built no program \"{bin}\"", folder.display()))
    })
}

/// Calls cargo; returns the program or the archive that it built of a target.
fn artifact(cargo: &mut Command, target: &str) -> Result<Option<PathBuf>, CommandError> {
    let messages = printed(cargo)?;
    let file = |line: &[u8]| -> Option<PathBuf> {
        let message: Value = serde_json::from_slice(line).ok()?;
        (message["target"]["name"] == target).then_some(())?;
        let archive = || {
            message["filenames"]
                .as_array()?
                .iter()
                .find_map(|file| file.as_str().filter(|file| file.ends_with(".a")))
        };
        Some(message["executable"].as_str().or_else(archive)?.into())
    };
    Ok(messages.split(|byte| *byte == b'\n').filter_map(file).next_back())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(dependency: &str, bins: &[&str]) -> Result<Package, String> {
        let targets: Vec<Value> =
            bins.iter().map(|name| serde_json::json!({ "name": name, "kind": ["bin"] })).collect();
        let metadata = serde_json::json!({
            "target_directory": "/t",
            "packages": [{
                "name": "web", "manifest_path": "/p/Cargo.toml",
                "dependencies": [{ "name": dependency }], "targets": targets,
            }],
        });
        Package::read("/p/Cargo.toml".into(), &metadata)
    }

    /// Attack: a link in a folder where others can write, to a file that root must not write.
    #[test]
    fn an_image_is_written_through_no_link() {
        let folder = std::env::temp_dir().join(format!("ringway-tiny-write-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (file, precious) = (folder.join("web.tiny"), folder.join("precious"));
        let others = [".new".into(), format!(".{}", std::process::id())].map(|end| format!("web.tiny{end}"));
        std::fs::write(&precious, "precious").unwrap();
        let [old, new] = others.map(|name| folder.join(name));
        std::os::unix::fs::symlink(&precious, &new).unwrap();
        assert!(write(&file, b"image").is_err() && new.is_symlink(), "it is another's");
        std::fs::remove_file(&new).unwrap();
        std::os::unix::fs::symlink(&precious, &old).unwrap();
        write(&file, b"image").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"image");
        assert_eq!(std::fs::read(&precious).unwrap(), b"precious");
        assert!(!new.exists());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_program_is_chosen_or_named() {
        let bin =
            |bins: &[&str], wanted| read(LIBRARY, bins).unwrap().bin(wanted).map_err(|fail| fail.to_string());
        assert_eq!(bin(&["one"], None).as_deref(), Ok("one"));
        assert_eq!(bin(&["one", "web"], None).as_deref(), Ok("web"));
        assert_eq!(bin(&["one", "web"], Some("one")).as_deref(), Ok("one"));
        let wrong = |bins: &[&str], wanted| bin(bins, wanted).unwrap_err();
        assert_eq!(wrong(&[], None), "/p/Cargo.toml: it has no program; add src/main.rs");
        assert!(wrong(&["a", "b"], None).ends_with("choose one with --bin: a, b"));
        assert!(wrong(&["a"], Some("c")).ends_with("it has no program \"c\"; it has a"));
    }

    #[test]
    fn a_package_without_the_library_or_a_workspace_without_a_package_is_refused() {
        assert!(read("serde", &["a"]).unwrap_err().contains("it does not depend on ringway-tiny-program"));
        let metadata = serde_json::json!({ "packages": [{ "manifest_path": "/w/a/Cargo.toml" }] });
        let why = Package::read("/w/Cargo.toml".into(), &metadata).unwrap_err();
        assert_eq!(why, "/w/Cargo.toml: it has no package; name the folder of one: /w/a/Cargo.toml");
    }
}
