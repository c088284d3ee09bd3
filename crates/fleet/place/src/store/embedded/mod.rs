//! A store in local files. Reads are served from memory. Changes are written to a log at once, many
//! transactions in one record, and from there to a redb database.

mod backup;
mod database;
mod encoding;
mod files;
mod log;
#[cfg(test)]
mod tests;
mod writer;

pub use backup::{Summary, backup, check, restore, salvage};

use super::memory::{Change, Memory};
use super::{Compare, Entry, Event, LeaseId, Op, Revision, Store, StoreError};
use files::{Files, io_error};
use log::Log;
use redb::Database;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use writer::Logged;

/// Damage of a store's files.
#[derive(Debug, thiserror::Error)]
enum Damage {
    #[error("its log is missing")]
    NoLog,
    #[error("it is missing or empty, but its log exists")]
    NoDatabase,
    #[error("it is damaged: {0}")]
    Database(String),
    #[error("its log is damaged at the beginning")]
    LogHeader,
    #[error("its log has {0} bytes instead of {1}")]
    LogLength(usize, usize),
    #[error("its log is damaged at byte {0}")]
    LogSector(usize),
    #[error("its log lacks record {0}, but has later ones")]
    LogGap(u64),
    #[error("its log belongs to another store")]
    OtherLog,
    #[error("it contains record {0}, but its log ends at {1}: the log is older")]
    OldLog(u64, u64),
    #[error("it contains records up to {0}, but its log does not continue from there to {1}: it is older")]
    OldDatabase(u64, u64),
}

/// The error, with a remedy, for a store that can't be used.
fn refused(path: &Path, damage: &Damage) -> StoreError {
    StoreError::Damaged(format!(
        "{0}: {damage}; its files are left as they are. `ringway place store restore BACKUP` brings a backup \
        back, `ringway place store restore --salvage` keeps what can still be read; with {0} and {0}.log \
        moved away, placement begins anew",
        path.display()
    ))
}

/// Whether an error means that the disk is full.
fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}

/// An error of the database with its file.
fn database_error(path: &Path, error: impl Into<redb::Error>) -> StoreError {
    match error.into() {
        redb::Error::Io(error) => io_error(path)(error),
        other => StoreError::File(format!("{}: {other}", path.display())),
    }
}

#[derive(Default)]
struct Reached {
    /// Everything up to this revision is durable.
    written: Revision,
    /// Why nothing can be written now.
    full: Option<String>,
    /// Why nothing will be written any more.
    failed: Option<String>,
    closing: bool,
}

/// Progress of the writer.
#[derive(Default)]
struct Progress {
    reached: Mutex<Reached>,
    more: Condvar,
}

impl Progress {
    fn lock(&self) -> MutexGuard<'_, Reached> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Reached)) {
        change(&mut self.lock());
        self.more.notify_all();
    }

    fn written(&self, revision: Revision) {
        self.change(|reached| {
            reached.written = reached.written.max(revision);
            reached.full = None;
        });
    }

    fn full(&self, what: String) {
        self.change(|reached| reached.full = Some(what));
    }

    fn failed(&self, what: String) {
        self.change(|reached| reached.failed = Some(what));
    }

    fn is_closing(&self) -> bool {
        self.lock().closing
    }
}

impl Reached {
    /// Refuses while nothing can be written.
    fn check(&self) -> Result<(), StoreError> {
        match (&self.failed, &self.full) {
            (Some(what), _) => Err(StoreError::File(what.clone())),
            (None, Some(what)) => Err(StoreError::Full(what.clone())),
            (None, None) => Ok(()),
        }
    }
}

/// A store in files.
pub struct Embedded {
    memory: Memory,
    sender: Option<Sender<Logged>>,
    progress: Arc<Progress>,
    writer: Option<JoinHandle<()>>,
    cut: Option<u64>,
}

impl Embedded {
    /// Opens or creates the store at `path`. `now` is the current time; a lease never lasts longer than its
    /// duration, even if the clock was changed. The log beside the database has changes that are not in the
    /// database yet. Files that may lack acknowledged changes are refused and left unchanged.
    pub fn open(path: &Path, now: u64) -> Result<Embedded, StoreError> {
        Embedded::with_log(path, now, log::HALF)
    }

    /// Opens or creates the store at `path`; a new log has halves of `half` bytes.
    fn with_log(path: &Path, now: u64, half: usize) -> Result<Embedded, StoreError> {
        let mut lock = files::lock(path)?;
        let mut found = Files::read(path)?.examine(now).map_err(|damage| refused(path, &damage))?;
        if found.is_none() {
            files::make(path, half, None)?;
            lock = files::lock(path)?;
            found = Files::read(path)?.examine(now).map_err(|damage| refused(path, &damage))?;
        }
        let gone = || StoreError::File(format!("{}: another process removed it", path.display()));
        let (found, lock) = found.zip(lock).ok_or_else(gone)?;
        let copy = path.to_path_buf();
        let open: writer::Open = Box::new(move || Ok(Database::open(&copy)?));
        let failed = |error| database_error(path, error);
        files::private(path).map_err(io_error(path))?;
        let database = open().map_err(failed)?;
        if !found.ahead.is_empty() {
            database::commit(&database, found.log.newest, found.ahead).map_err(failed)?;
        }
        let beside = files::log_of(path);
        let in_log = io_error(&beside);
        let log = Log::resume(lock.try_clone().map_err(&in_log)?, &found.log).map_err(in_log)?;
        let progress = Arc::new(Progress::default());
        progress.written(found.state.revision);
        let (sender, receiver) = channel();
        let shared = progress.clone();
        let write = move || {
            writer::run(&open, database, log, &receiver, &shared);
            // The log stays locked until the database is closed.
            drop(lock);
        };
        let writer = std::thread::Builder::new().name("place-store".into()).spawn(write);
        let writer = Some(writer.map_err(io_error(path))?);
        let cut = (!found.log.torn.is_empty()).then_some(found.log.newest + 1);
        Ok(Embedded { memory: Memory::of(found.state), sender: Some(sender), progress, writer, cut })
    }

    /// Whether there is a store at `path`, or part of one.
    pub fn is_there(path: &Path) -> bool {
        path.exists() || files::log_of(path).exists()
    }

    /// The log record that a crash had interrupted before the store was opened; it was never acknowledged,
    /// and is ignored.
    pub fn cut(&self) -> Option<u64> {
        self.cut
    }

    /// Why the store can't be written, if the disk is full.
    pub fn full(&self) -> Option<String> {
        self.progress.lock().full.clone()
    }

    /// Passes changes to the writer. Called while the state is locked, so in order.
    fn log_changes(&self) -> impl FnOnce(Revision, Vec<Change>) + '_ {
        |revision, changes| {
            if let Some(sender) = &self.sender {
                // Waiting threads are notified when the writer ends.
                let _ = sender.send((revision, changes));
            }
        }
    }

    /// Refuses changes while the disk is full, so that no unreliable change becomes visible.
    fn ready(&self) -> Result<(), StoreError> {
        self.progress.lock().check()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.sender = None;
        self.progress.change(|reached| reached.closing = true);
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

impl Store for Embedded {
    fn range(&self, prefix: &str, at: Option<Revision>) -> Result<(Revision, Vec<Entry>), StoreError> {
        self.memory.range(prefix, at)
    }

    fn transact(&self, compares: &[Compare], ops: Vec<Op>) -> Result<Revision, StoreError> {
        self.ready()?;
        self.memory.transact_logged(compares, ops, self.log_changes())
    }

    fn watch(&self, after: Revision) -> Result<Vec<Event>, StoreError> {
        self.memory.watch(after)
    }

    fn oldest(&self) -> Revision {
        self.memory.oldest()
    }

    fn lease(&self, ttl: u64, now: u64) -> Result<LeaseId, StoreError> {
        self.ready()?;
        Ok(self.memory.lease_logged(ttl, now, self.log_changes()))
    }

    fn keep_alive(&self, lease: LeaseId, now: u64) -> Result<(), StoreError> {
        self.ready()?;
        self.memory.keep_logged(lease, now, self.log_changes())
    }

    fn expire(&self, now: u64) -> Result<(), StoreError> {
        self.ready()?;
        self.memory.expire_logged(now, self.log_changes())
    }

    fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.ready()?;
        self.memory.compact_logged(before, self.log_changes());
        Ok(())
    }

    fn durable(&self, revision: Revision) -> Result<(), StoreError> {
        let mut reached = self.progress.lock();
        while reached.written < revision {
            reached.check()?;
            reached = self.progress.more.wait(reached).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}
