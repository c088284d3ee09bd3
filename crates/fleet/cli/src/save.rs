//! `ringway save`.

use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::place::replace;
use crate::text;
use ringway_control::api::SavedFabric;
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Writes the fabric file that describes what runs, or prints it.
pub fn save(target: &Target, json: bool, file: Option<&Path>) -> Result<(), CommandError> {
    let saved: SavedFabric = Client::connect(target)?.get("/v1/fabric/file")?;
    for what in &saved.differences {
        text::warn(&format!("the file does not describe it: {what}"));
    }
    match file {
        None if json => text::json(&saved),
        None => print!("{}", saved.text),
        Some(file) => {
            write(file, &saved.text)
                .map_err(|error| CommandError::Failed(format!("{}: {error}", file.display())))?;
            other_folder(file, &saved);
            if json {
                text::json(&saved);
            } else {
                println!("{}saved:{:#} {}", text::GOOD, text::GOOD, file.display());
            }
        }
    }
    Ok(())
}

/// Replaces a file as a whole, or makes it.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    match std::fs::File::create_new(file) {
        Ok(mut new) => new.write_all(text.as_bytes()).and_then(|()| new.sync_all()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => replace(file, text),
        Err(error) => Err(error),
    }
}

/// Warns that relative paths in the file are those of another folder.
fn other_folder(file: &Path, saved: &SavedFabric) {
    let folder = |path: &Path| std::fs::canonicalize(path).ok()?.parent().map(Path::to_path_buf);
    let former = Path::new(&saved.file);
    if folder(file) != folder(former) {
        let what =
            format!("relative paths in it are relative to its folder; the former file is {}", saved.file);
        text::warn(&what);
    }
}
