//! `ringway place store`: the file that holds placement's state.

use super::arguments::StoreCommand;
use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::text;
use ringway_control::run_dir;
use ringway_place::store::{Embedded, Summary, backup, check, restore, salvage};
use ringway_scheduler::{BackupRequest, Clock, StoreView};
use serde::Serialize;
use std::path::{Path, PathBuf};

/// The store's name in a run directory.
const FILE_NAME: &str = "placement.redb";

/// Result of an operation on a store.
#[derive(Serialize)]
struct Restored {
    path: PathBuf,
    holds: Summary,
    /// Files of the previous store, which were kept.
    kept: Vec<PathBuf>,
    /// Parts that could not be read.
    lost: Vec<String>,
}

/// Runs `ringway place store`: through the fabric that has the store open, or on the files.
pub fn store(
    target: &Target,
    file: Option<PathBuf>,
    command: StoreCommand,
    json: bool,
) -> Result<(), CommandError> {
    let mut fabric = match &file {
        Some(_) => None,
        None => Client::connect(target).ok(),
    };
    let now = Clock::default().now();
    let path = || file.map_or_else(|| find(target), Ok);
    match (command, &mut fabric) {
        (StoreCommand::Check, Some(client)) => show_store(&client.get("/v1/place/store")?, json),
        (StoreCommand::Check, None) => {
            let path = path()?;
            show_store(&view(&path, check(&path, now).map_err(CommandError::because)?), json)
        }
        (StoreCommand::Backup { file }, Some(client)) => {
            let to = std::path::absolute(&file).map_err(CommandError::because)?;
            let request = BackupRequest { path: to.display().to_string() };
            show_store(&client.ask("/v1/place/store/backup", &request)?, json)
        }
        (StoreCommand::Backup { file }, None) => {
            let path = path()?;
            show_store(&view(&path, backup(&path, &file, now).map_err(CommandError::because)?), json)
        }
        (StoreCommand::Restore { file, .. }, _) => {
            let path = path()?;
            let restored = match file {
                Some(file) => {
                    let (holds, kept) = restore(&path, &file, now).map_err(CommandError::because)?;
                    Restored { path, holds, kept, lost: Vec::new() }
                }
                None => {
                    let (holds, kept, lost) = salvage(&path, now).map_err(CommandError::because)?;
                    Restored { path, holds, kept, lost }
                }
            };
            show_restored(&restored, json);
        }
    }
    Ok(())
}

/// The store of the named fabric, whether it is up or down; if none is named, the only store.
fn find(target: &Target) -> Result<PathBuf, CommandError> {
    let base = run_dir::base();
    if let Some(socket) = &target.socket {
        return Ok(socket.with_file_name(FILE_NAME));
    }
    if let Some(name) = &target.fabric {
        return Ok(base.join(name).join(FILE_NAME));
    }
    let entries = std::fs::read_dir(&base).into_iter().flatten().flatten();
    let mut stores: Vec<PathBuf> = entries.map(|entry| entry.path().join(FILE_NAME)).collect();
    stores.retain(|path| Embedded::is_there(path));
    match stores.as_slice() {
        [store] => Ok(store.clone()),
        [] => {
            Err(CommandError::Unknown(format!("there is no store in {}; name it by --store", base.display())))
        }
        many => {
            let names: Vec<String> = many.iter().map(|path| path.display().to_string()).collect();
            Err(CommandError::Failed(format!("say which by --fabric or --store: {}", names.join(", "))))
        }
    }
}

fn view(path: &Path, holds: Summary) -> StoreView {
    StoreView { path: path.display().to_string(), full: None, holds }
}

fn show_store(view: &StoreView, json: bool) {
    if json {
        return text::json(view);
    }
    println!("{}: {}", view.path, in_words(&view.holds));
    if let Some(full) = &view.full {
        text::warn(&format!("nothing can be written: {full}"));
    }
}

fn show_restored(restored: &Restored, json: bool) {
    if json {
        return text::json(restored);
    }
    println!("{}: {}", restored.path.display(), in_words(&restored.holds));
    restored.kept.iter().for_each(|kept| println!("the previous file is {}", kept.display()));
    restored.lost.iter().for_each(|lost| text::warn(lost));
}

/// The contents of a store, in words.
fn in_words(holds: &Summary) -> String {
    let kinds = [("host", "hosts"), ("vm", "VMs"), ("pending", "reservations"), ("decision", "decisions")];
    let count = |(kind, plural): (&str, &str)| {
        format!("{} {plural}", holds.objects.get(kind).copied().unwrap_or_default())
    };
    format!("revision {}, {}", holds.revision, kinds.map(count).join(", "))
}
