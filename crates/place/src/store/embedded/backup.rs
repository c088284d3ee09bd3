//! Copies of a store, and what becomes of one that is damaged.

use super::database::Batch;
use super::files::{self, Files, beside, io_error, log_of};
use super::{Damage, Embedded, log, note, refused};
use crate::store::memory::State;
use crate::store::{Revision, StoreError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use utoipa::ToSchema;

/// How a backup begins. Behind it are a checksum of the rest, and changes as the log has them.
const MAGIC: &[u8] = b"ringway placement backup 1\n";

/// What a store holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Its revision.
    pub revision: Revision,
    /// How many objects of each kind it has, such as `host` and `decision`.
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
    /// What it holds.
    pub fn summary(&self) -> Summary {
        self.memory.with(Summary::of)
    }

    /// Writes all it holds to a file, in place of whatever is there, while it is in use.
    pub fn backup(&self, to: &Path) -> Result<Summary, StoreError> {
        let (batch, summary) = self.memory.with(|state| (state.notes(), Summary::of(state)));
        write(to, &batch)?;
        Ok(summary)
    }
}

fn write(to: &Path, batch: &Batch) -> Result<(), StoreError> {
    let mut bytes = [MAGIC, &[0; 4]].concat();
    batch.iter().for_each(|(revision, notes)| note::write(&mut bytes, *revision, notes));
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
    let what = || StoreError::Damaged(format!("{}: it is no backup, or a damaged one", from.display()));
    body.and_then(note::read).filter(|batch| batch.len() == 1).ok_or_else(what)
}

/// Reads a store that is not in use.
fn examine(path: &Path, now: u64) -> Result<State, StoreError> {
    let _lock = files::lock(path)?;
    let found = Files::read(path)?.examine(now).map_err(|damage| refused(path, &damage))?;
    let nothing = || StoreError::File(format!("{}: there is no store", path.display()));
    Ok(found.ok_or_else(nothing)?.state)
}

/// Reads a store that is not in use, every byte of it, and changes nothing.
pub fn check(path: &Path, now: u64) -> Result<Summary, StoreError> {
    Ok(Summary::of(&examine(path, now)?))
}

/// Writes all that a store that is not in use holds to a file, in place of whatever is there.
pub fn backup(path: &Path, to: &Path, now: u64) -> Result<Summary, StoreError> {
    let state = examine(path, now)?;
    write(to, &state.notes())?;
    Ok(Summary::of(&state))
}

/// Has the store at `path` hold what a backup has. What was there is kept beside it: where.
pub fn restore(path: &Path, from: &Path, now: u64) -> Result<(Summary, Vec<PathBuf>), StoreError> {
    let batch = read(from)?;
    let kept = replace(path, batch)?;
    Ok((check(path, now)?, kept))
}

/// Has the store at `path` hold what can be read of its damaged files. What was there is kept beside it: where; and
/// what could not be read, in words.
pub fn salvage(path: &Path, now: u64) -> Result<(Summary, Vec<PathBuf>, Vec<String>), StoreError> {
    let hopeless = |damage: Damage| {
        let what = format!("{}: {damage}: nothing can be read without it", path.display());
        StoreError::Damaged(format!("{what}; `ringway place store restore BACKUP` brings a backup back"))
    };
    let (state, lost) = Files::read(path)?.salvage(now).map_err(hopeless)?;
    let kept = replace(path, state.notes())?;
    Ok((check(path, now)?, kept, lost))
}

/// Puts a new store in place of what is there, which gets other names. A crash in between leaves a log that is not the
/// database's, which is refused, and the files under their other names.
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
