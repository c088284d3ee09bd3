//! Backups of a store, and the salvaging of a damaged one.

use super::database::Batch;
use super::files::{self, Files, beside, io_error, log_of};
use super::{Damage, Embedded, encoding, log, refused};
use crate::store::memory::State;
use crate::store::{Revision, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

/// Magic number of a backup. A checksum of the rest follows, then changes in the log's format.
const MAGIC: &[u8] = b"ringway placement backup 1\n";

/// Contents of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Its revision.
    pub revision: Revision,
    /// Number of objects by kind, such as `host` and `decision`.
    pub objects: BTreeMap<String, usize>,
}

impl Summary {
    fn of(state: &State) -> Summary {
        let mut objects = BTreeMap::new();
        for (key, versions) in &state.keys {
            if versions.last().is_some_and(|version| version.value.is_some()) {
                let kind = key.split('/').next().unwrap_or_default();
                *objects.entry(kind.to_string()).or_default() += 1;
            }
        }
        Summary { revision: state.revision, objects }
    }
}

impl Embedded {
    /// A summary of its contents.
    pub fn summary(&self) -> Summary {
        self.memory.with(Summary::of)
    }

    /// Writes a backup of the open store, replacing the file `to`.
    pub fn backup(&self, to: &Path) -> Result<Summary, StoreError> {
        let (batch, summary) = self.memory.with(|state| (state.changes(), Summary::of(state)));
        write(to, &batch)?;
        Ok(summary)
    }
}

fn write(to: &Path, batch: &Batch) -> Result<(), StoreError> {
    let mut bytes = [MAGIC, &[0; 4]].concat();
    batch.iter().for_each(|(revision, changes)| encoding::write(&mut bytes, *revision, changes));
    let (head, body) = bytes.split_at_mut(MAGIC.len() + 4);
    head[MAGIC.len()..].copy_from_slice(&crc32fast::hash(body).to_le_bytes());
    files::replace(to, |file| file.write_all_at(&bytes, 0)).map_err(io_error(to))
}

fn read(from: &Path) -> Result<Batch, StoreError> {
    let bytes = std::fs::read(from).map_err(io_error(from))?;
    let body = bytes.strip_prefix(MAGIC).and_then(|rest| {
        let (sum, body) = rest.split_first_chunk()?;
        (crc32fast::hash(body) == u32::from_le_bytes(*sum)).then_some(body)
    });
    let what = || StoreError::Damaged(format!("{}: it is not a backup, or it is damaged", from.display()));
    body.and_then(encoding::read).filter(|batch| batch.len() == 1).ok_or_else(what)
}

/// Reads a store that is not in use.
fn examine(path: &Path, now: u64) -> Result<State, StoreError> {
    let _lock = files::lock(path)?;
    let found = Files::read(path)?.examine(now).map_err(|damage| refused(path, &damage))?;
    let nothing = || StoreError::File(format!("{}: there is no store", path.display()));
    Ok(found.ok_or_else(nothing)?.state)
}

/// Verifies every byte of a store that is not in use, without changing it.
pub fn check(path: &Path, now: u64) -> Result<Summary, StoreError> {
    Ok(Summary::of(&examine(path, now)?))
}

/// Writes a backup of a store that is not in use, replacing the file `to`.
pub fn backup(path: &Path, to: &Path, now: u64) -> Result<Summary, StoreError> {
    let state = examine(path, now)?;
    write(to, &state.changes())?;
    Ok(Summary::of(&state))
}

/// Restores the store at `path` from a backup. Returns where the previous files are kept.
pub fn restore(path: &Path, from: &Path, now: u64) -> Result<(Summary, Vec<PathBuf>), StoreError> {
    let batch = read(from)?;
    let kept = replace(path, batch)?;
    Ok((check(path, now)?, kept))
}

/// Replaces the store at `path` by the readable contents of its damaged files. Returns where the previous
/// files are kept, and what could not be read, in words.
pub fn salvage(path: &Path, now: u64) -> Result<(Summary, Vec<PathBuf>, Vec<String>), StoreError> {
    let hopeless = |damage: Damage| {
        let what = format!("{}: {damage}: nothing can be read without it", path.display());
        StoreError::Damaged(format!("{what}; `ringway place store restore BACKUP` restores a backup"))
    };
    let (state, lost) = Files::read(path)?.salvage(now).map_err(hopeless)?;
    let kept = replace(path, state.changes())?;
    Ok((check(path, now)?, kept, lost))
}

/// Replaces the store's files with a new store and renames the previous files. A crash in between leaves a
/// log that does not match the database, which is refused, and the renamed files.
fn replace(path: &Path, batch: Batch) -> Result<Vec<PathBuf>, StoreError> {
    let _lock = files::lock(path)?;
    let mut kept = Vec::new();
    for file in [path, &log_of(path)] {
        if file.exists() {
            let free = (1..).map(|count| beside(file, &format!(".before-{count}")));
            let name = free.into_iter().find(|name| !name.exists()).unwrap_or_default();
            std::fs::hard_link(file, &name).map_err(io_error(&name))?;
            kept.push(name);
        }
    }
    files::make(path, log::HALF, Some(batch))?;
    Ok(kept)
}
