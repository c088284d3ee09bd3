//! The sockets of programs whose stacks can be shown: a folder beside those of fabrics.

use crate::command_error::CommandError;
use ringway_control::run_dir;
use ringway_exec::query::{About, Client, Reply, Request};
use ringway_host::{OwnFile, open_own, random};
use ringway_spec::file::either;
use rustix::fs::{Access, CWD, RenameFlags, renameat_with};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

/// The folder of stacks' sockets in the run directory. No fabric has this name.
const FOLDER: &str = ".stacks";
const EXTENSION: &str = "stack";
/// The file of [`sequence_secret`], readable by its owner only.
const SECRET: &str = ".sequence-secret";
/// Most bytes of a name that was not chosen for this.
const LONGEST: usize = 32;

fn folder() -> PathBuf {
    run_dir::base().join(FOLDER)
}

fn path(name: &str) -> PathBuf {
    folder().join(format!("{name}.{EXTENSION}"))
}

/// Whether a program listens there.
fn is_taken(path: &Path) -> bool {
    UnixStream::connect(path).is_ok()
}

/// Where a program of this name, or of one like that of its port or of its file, is to listen: the first path at which
/// no other one does. Nowhere, if this user has no folder for it.
///
/// # Errors
/// Another program has the name that was chosen.
pub fn place(chosen: Option<&str>, like: &str) -> Result<Vec<PathBuf>, CommandError> {
    let made = run_dir::make_base(&run_dir::base());
    let Some(name) = chosen else {
        let short = |byte: char| byte.is_ascii_alphanumeric() || matches!(byte, '-' | '_');
        let name: String = like.chars().filter(|byte| short(*byte)).take(LONGEST).collect();
        let name = if name.is_empty() { "program".into() } else { name };
        // Both ends of a pipe may have a program.
        let own = [path(&name), path(&format!("{name}-{}", std::process::id()))];
        // The first program makes the folder.
        let parent = if folder().exists() { folder() } else { run_dir::base() };
        let may = made.is_ok() && rustix::fs::access(parent, Access::WRITE_OK).is_ok();
        return Ok(if may { own.into() } else { Vec::new() });
    };
    made.map_err(CommandError::because)?;
    let own = path(name);
    match is_taken(&own) {
        true => Err(CommandError::Failed(format!(
            "--name: a program {name} runs; `ringway stack list` shows all"
        ))),
        false => Ok(vec![own]),
    }
}

/// The secret of the sequence numbers of this user's programs: a program that follows another one at its address goes
/// on where that was, and peers that remember the former's connections accept the new ones at once. `None`: this user
/// has no folder for it, and each program has a secret of its own.
pub fn sequence_secret() -> Option<[u64; 2]> {
    run_dir::make_base(&run_dir::base()).ok()?;
    let path = run_dir::base().join(SECRET);
    match read_secret(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let words = [random().ok()?, random().ok()?];
            let new = path.with_extension(std::process::id().to_string());
            let mut file = open_own(&new, OwnFile::Rewrite, 0o600).ok()?;
            let written = file.write_all(&words.map(u64::to_ne_bytes).concat());
            // Only a whole file gets the name; if another program was first, its file stays.
            let named = renameat_with(CWD, &new, CWD, &path, RenameFlags::NOREPLACE);
            match written.is_ok() && named.is_ok() {
                true => Some(words),
                false => {
                    // A file that is left only takes room.
                    let _ = std::fs::remove_file(&new);
                    read_secret(&path).ok()
                }
            }
        }
        read => read.ok(),
    }
}

fn read_secret(path: &Path) -> std::io::Result<[u64; 2]> {
    let (mut file, mut words) = (open_own(path, OwnFile::Read, 0)?, [0; 2]);
    for word in &mut words {
        let mut bytes = [0; 8];
        file.read_exact(&mut bytes)?;
        *word = u64::from_ne_bytes(bytes);
    }
    Ok(words)
}

/// Connects to the program of this name, or to the socket of this path.
pub fn find(name: &str) -> Result<Client, CommandError> {
    let own = if name.contains('/') { name.into() } else { path(name) };
    Client::connect(&own).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::InvalidInput => {
            let there = match running() {
                all if all.is_empty() => "none runs; `ringway exec --name NAME` starts one".to_string(),
                all => format!("there is {}", either(all.iter().map(|(name, _)| &**name))),
            };
            CommandError::Unknown(format!(
                "there is no program \"{}\" with a native stack; {there}",
                name.escape_debug()
            ))
        }
        _ => CommandError::Failed(format!("{}: {error}", own.display())),
    })
}

/// The programs that answer, and who they are.
pub fn running() -> Vec<(String, About)> {
    let Ok(entries) = std::fs::read_dir(folder()) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    let about = |path: PathBuf| {
        let name =
            path.file_stem()?.to_str().filter(|_| path.extension().is_some_and(|end| end == EXTENSION))?;
        let mut client = match Client::connect(&path) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
                // Of a program that was killed.
                let _ = std::fs::remove_file(&path);
                return None;
            }
            client => client.ok()?,
        };
        match client.ask(&Request::About) {
            Ok(Reply::About(about)) => Some((name.to_string(), about)),
            _ => None,
        }
    };
    let mut all: Vec<(String, About)> = paths.filter_map(about).collect();
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}
