//! The files of a store: the database and its log. They are verified before anything is written: either they
//! contain everything acknowledged, or they are refused and left unchanged.

use super::database::{self, Batch};
use super::{Damage, is_full, log};
use crate::store::StoreError;
use crate::store::memory::State;
use redb::{Database, StorageBackend};
use std::fs::{File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long to wait for a store that another process has open.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// A path with a suffix appended to its name.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Where a store's log is.
pub(super) fn log_of(path: &Path) -> PathBuf {
    beside(path, ".log")
}

/// An I/O error with its file.
pub(super) fn io_error(path: &Path) -> impl Fn(io::Error) -> StoreError {
    move |error| {
        let what = format!("{}: {error}", path.display());
        if is_full(&error) { StoreError::Full(what) } else { StoreError::File(what) }
    }
}

/// Opens a file with permissions for its owner only: names and locations are confidential.
pub(super) fn private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    // An older file may have other permissions.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// Makes a file with the same permissions, in place of one that was left there.
///
/// Attack: a link of that name to another file, in a folder where others can write. It is removed, or the new file is
/// refused; it is never followed.
fn fresh(path: &Path) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Replaces a file atomically.
pub(super) fn replace(path: &Path, write: impl FnOnce(&File) -> io::Result<()>) -> io::Result<()> {
    let new = beside(path, ".new");
    let written = (|| {
        let file = fresh(&new)?;
        write(&file)?;
        file.sync_all()?;
        std::fs::rename(&new, path)
    })();
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written.and_then(|()| sync_folder(path))
}

/// Makes the names in a file's folder durable.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(path)(error)),
    }
}

/// The combined contents of both files.
pub(super) struct Found {
    pub state: State,
    /// Changes in the log that the database lacks.
    pub ahead: Batch,
    pub log: log::Contents,
}

/// The store's two files.
pub(super) struct Files {
    pub database: Option<Vec<u8>>,
    pub log: Option<Vec<u8>>,
}

impl Files {
    /// Reads both files.
    pub fn read(path: &Path) -> Result<Files, StoreError> {
        Ok(Files { database: read(path)?, log: read(&log_of(path))? })
    }

    /// Their contents; none if nothing was ever acknowledged.
    pub fn examine(&self, now: u64) -> Result<Option<Found>, Damage> {
        let database = self.database.as_deref().filter(|bytes| !bytes.is_empty());
        let Some(log) = &self.log else {
            return if database.is_some() { Err(Damage::NoLog) } else { Ok(None) };
        };
        let mut log = log::read(log)?;
        if let Some(damage) = log.damage.take() {
            return Err(damage);
        }
        // A crash during the creation of a store leaves a log without records, and no database or a partial
        // one.
        let is_new = log.newest == 0;
        let found = database.ok_or(Damage::NoDatabase).and_then(|bytes| joined(bytes, log, now));
        match found {
            Err(Damage::NoDatabase | Damage::Database(_)) if is_new => Ok(None),
            found => found.map(Some),
        }
    }

    /// The readable contents of damaged files, and a description of what is lost.
    pub fn salvage(&self, now: u64) -> Result<(State, Vec<String>), Damage> {
        let database = self.database.as_deref().filter(|bytes| !bytes.is_empty());
        let database = in_memory(database.ok_or(Damage::NoDatabase)?)?;
        let (identity, logged) = figures(&database)?;
        let mut lost = Vec::new();
        match self.log.as_deref().ok_or(Damage::NoLog).and_then(log::read) {
            Ok(log) if log.identity == identity => {
                let (last, ahead) = log.after(logged);
                commit(&database, last, ahead)?;
                lost.extend(log.damage.as_ref().map(ToString::to_string));
                if last < log.newest {
                    lost.push(format!("the log's records from {} to {} are lost", last + 1, log.newest));
                }
            }
            Ok(_) => lost.push(Damage::OtherLog.to_string()),
            Err(damage) => lost.push(damage.to_string()),
        }
        Ok((load(&database, now)?, lost))
    }
}

/// The combined contents of a database and its log.
fn joined(bytes: &[u8], log: log::Contents, now: u64) -> Result<Found, Damage> {
    let database = in_memory(bytes)?;
    let (identity, logged) = figures(&database)?;
    if identity != log.identity {
        return Err(Damage::OtherLog);
    }
    if logged > log.newest {
        return Err(Damage::OldLog(logged, log.newest));
    }
    let (last, ahead) = log.after(logged);
    if last < log.newest {
        return Err(Damage::OldDatabase(last, log.newest));
    }
    commit(&database, last, ahead.clone())?;
    Ok(Found { state: load(&database, now)?, ahead, log })
}

fn damaged(what: impl std::fmt::Display) -> Damage {
    Damage::Database(what.to_string())
}

/// Attack: a damaged file. redb panics on some of them.
fn guarded<T>(read: impl FnOnce() -> Result<T, Damage>) -> Result<T, Damage> {
    catch_unwind(std::panic::AssertUnwindSafe(read)).unwrap_or_else(|_| Err(damaged("it can't be read")))
}

/// Opens a copy of the database in memory and verifies every page, so that redb can't modify the file.
fn in_memory(bytes: &[u8]) -> Result<Database, Damage> {
    guarded(|| {
        let copy = redb::backends::InMemoryBackend::new();
        copy.set_len(bytes.len() as u64).map_err(damaged)?;
        copy.write(0, bytes).map_err(damaged)?;
        let mut builder = Database::builder();
        builder.set_check_integrity_on_open(true).create_with_backend(copy).map_err(damaged)
    })
}

fn figures(database: &Database) -> Result<(u64, u64), Damage> {
    let figures = guarded(|| database::figures(database).map_err(damaged))?;
    figures.ok_or_else(|| damaged("it is not a store's"))
}

fn commit(database: &Database, number: u64, ahead: Batch) -> Result<(), Damage> {
    guarded(|| database::commit(database, number, ahead).map_err(damaged))
}

fn load(database: &Database, now: u64) -> Result<State, Damage> {
    guarded(|| database::load(database, now).map_err(damaged))
}

/// Opens and locks a store's log; none if there is none. A process that holds the lock never replaces the
/// log.
pub(super) fn lock(path: &Path) -> Result<Option<File>, StoreError> {
    let log = log_of(path);
    let failed = io_error(&log);
    let end = Instant::now() + LOCK_TIMEOUT;
    loop {
        let file = match private(&log) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(&failed)?,
        };
        match file.try_lock() {
            Ok(()) => {
                // The file may have been replaced between opening and locking.
                let ours = file.metadata().map_err(&failed)?.ino();
                if std::fs::metadata(&log).is_ok_and(|seen| seen.ino() == ours) {
                    return Ok(Some(file));
                }
            }
            // The previous holder may be about to release it.
            Err(TryLockError::WouldBlock) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(TryLockError::WouldBlock) => {
                let what =
                    format!("{} is in use by another process, such as a running fabric", path.display());
                return Err(StoreError::File(what));
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
}

/// Creates a store at `path`, empty or with `batch`: the log first, so that a database always has one.
pub(super) fn make(path: &Path, half: usize, holds: Option<Batch>) -> Result<(), StoreError> {
    use std::hash::BuildHasher;
    // The standard library's own random numbers suffice to tell two stores apart.
    let identity = std::hash::RandomState::new().hash_one(path);
    // A log that begins after record 0 belongs to a store in which nothing was ever stored.
    let base = holds.is_some().into();
    let new = beside(path, ".new");
    let failed = io_error(path);
    drop(fresh(&new).map_err(&failed)?);
    let database = Database::create(&new).map_err(|error| StoreError::File(error.to_string()))?;
    let begun = database::begin(&database, identity);
    let made = begun.and_then(|()| match holds {
        Some(batch) => database::commit(&database, base, batch),
        None => Ok(()),
    });
    drop(database);
    made.map_err(|error| super::database_error(path, error))?;
    log::create(&log_of(path), identity, base, half).map_err(io_error(&log_of(path)))?;
    std::fs::rename(&new, path).and_then(|()| sync_folder(path)).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_link_in_place_of_the_new_file_is_not_followed() {
        let folder = std::env::temp_dir().join(format!("ringway-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [precious, file] = ["precious", "backup"].map(|name| folder.join(name));
        std::fs::write(&precious, "precious").unwrap();
        std::os::unix::fs::symlink(&precious, beside(&file, ".new")).unwrap();
        replace(&file, |mut to| to.write_all(b"new")).unwrap();
        let read = [&precious, &file].map(|path| std::fs::read_to_string(path).unwrap());
        let seen = std::fs::symlink_metadata(&file).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(read, ["precious", "new"]);
        assert!(seen.is_file() && seen.mode() & 0o777 == 0o600);
    }
}
