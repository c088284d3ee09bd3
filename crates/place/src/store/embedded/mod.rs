//! A store in a file of this machine: everything is answered from memory. What changes goes to a log at once, many
//! transactions in one record, and from there to redb's database.

mod database;
mod log;
mod note;
mod writer;

use super::memory::{Memory, Note};
use super::{Compare, Entry, Event, LeaseId, Op, Revision, Store, StoreError};
use log::Log;
use redb::{Database, DatabaseError};
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use writer::Noted;

/// How long a file that somebody else has open is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// How far the file is.
#[derive(Default)]
struct Progress {
    written: Mutex<(Revision, Option<String>)>,
    more: Condvar,
}

/// A store in a file.
pub struct Embedded {
    memory: Memory,
    sender: Option<Sender<Noted>>,
    progress: Arc<Progress>,
    writer: Option<JoinHandle<()>>,
}

fn file(error: impl std::fmt::Display) -> StoreError {
    StoreError::File(error.to_string())
}

impl Embedded {
    /// Opens the file at `path`, or makes one. `now` is the time; a lease is never taken to last longer than it was
    /// given for, whatever the clock did meanwhile. While it is open a log is beside it, which has what the file
    /// itself does not have yet.
    pub fn open(path: &Path, now: u64) -> Result<Embedded, StoreError> {
        let beside = beside(path);
        // Attack: a file that somebody damaged. The database panics on some of them.
        let opened = catch_unwind(|| {
            let database = create(path)?;
            let log = recover(&database, &beside, log::HALF)?;
            let state = database::load(&database, now).map_err(file)?;
            Ok((database, log, state))
        });
        let opened = opened.unwrap_or_else(|_| Err(StoreError::File("it is damaged".into())));
        let (database, log, state) = opened.map_err(|error| unusable(path, error))?;
        let progress = Arc::new(Progress::default());
        if let Ok(mut written) = progress.written.lock() {
            written.0 = state.revision;
        }
        let (sender, receiver) = channel();
        let shared = progress.clone();
        let writer = std::thread::Builder::new()
            .name("place-store".into())
            .spawn(move || writer::run(&database, log, &beside, &receiver, &shared))
            .map_err(file)?;
        Ok(Embedded { memory: Memory::of(state), sender: Some(sender), progress, writer: Some(writer) })
    }

    /// Hands what changed to the writer. Called while memory is locked, so in order.
    fn note(&self) -> impl FnOnce(Revision, Vec<Note>) + '_ {
        |revision, notes| {
            if let Some(sender) = &self.sender {
                // Whoever waits is told when the writer is gone.
                let _ = sender.send((revision, notes));
            }
        }
    }
}

/// What to do about a file that can't be used.
fn unusable(path: &Path, error: StoreError) -> StoreError {
    let what = match error {
        StoreError::File(what) => what,
        other => other.to_string(),
    };
    let fix = "if it is damaged, bring it back from a copy, or move it away with its log, and placement \
        begins anew";
    StoreError::File(format!("{}: {what}; {fix}", path.display()))
}

/// A file that only its owner reads: names and what runs where are nobody else's business.
fn private(path: &Path) -> std::io::Result<File> {
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
    // It may be of a time when others could.
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// The database in a file; who had it before may still be about to let it go.
fn create(path: &Path) -> Result<Database, StoreError> {
    private(path).map_err(file)?;
    let end = Instant::now() + PATIENCE;
    loop {
        match Database::create(path) {
            Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(50));
            }
            created => return created.map_err(file),
        }
    }
}

/// Where the log is.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".log");
    name.into()
}

/// Brings to the database what a log from before a crash has ahead of it, and begins a new one with halves of so many
/// bytes.
fn recover(database: &Database, path: &Path, half: usize) -> Result<Log, StoreError> {
    let (identity, logged) = database::logged(database).map_err(file)?;
    let (number, ahead) = log::read(path, identity, logged).map_err(file)?;
    if number > logged {
        database::commit(database, number, ahead).map_err(file)?;
    }
    Log::create(path, identity, number, half).map_err(file)
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.sender = None;
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
        self.memory.transact_noted(compares, ops, self.note())
    }

    fn watch(&self, after: Revision) -> Result<Vec<Event>, StoreError> {
        self.memory.watch(after)
    }

    fn lease(&self, ttl: u64, now: u64) -> Result<LeaseId, StoreError> {
        Ok(self.memory.lease_noted(ttl, now, self.note()))
    }

    fn keep_alive(&self, lease: LeaseId, now: u64) -> Result<(), StoreError> {
        self.memory.keep_noted(lease, now, self.note())
    }

    fn expire(&self, now: u64) -> Result<(), StoreError> {
        self.memory.expire_noted(now, self.note())
    }

    fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.memory.compact_noted(before, self.note());
        Ok(())
    }

    fn durable(&self, revision: Revision) -> Result<(), StoreError> {
        let mut written = self.progress.written.lock().unwrap_or_else(PoisonError::into_inner);
        while written.0 < revision {
            if let Some(error) = &written.1 {
                return Err(StoreError::File(error.clone()));
            }
            written = self.progress.more.wait(written).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str, lease: Option<LeaseId>) -> Op {
        Op::Put { key: key.into(), value: value.as_bytes().into(), lease }
    }

    fn keys(store: &dyn Store, at: Option<Revision>) -> Vec<String> {
        let (_, entries) = store.range("", at).unwrap();
        entries.into_iter().map(|e| format!("{}={}", e.key, String::from_utf8_lossy(&e.value))).collect()
    }

    #[test]
    fn both_stores_keep_compare_lease_and_forget() {
        let path = std::env::temp_dir().join(format!("rw-place-{}.redb", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let embedded = Embedded::open(&path, 0).unwrap();
        for store in [&Memory::default() as &dyn Store, &embedded] {
            let first = store.transact(&[], vec![put("a", "1", None), put("b", "1", None)]).unwrap();
            let lease = store.lease(100, 1000).unwrap();
            store
                .transact(&[Compare { key: "a".into(), modified: first }], vec![put("a", "2", Some(lease))])
                .unwrap();
            let late = Compare { key: "a".into(), modified: first };
            assert_eq!(
                store.transact(&[late], vec![put("a", "3", None)]),
                Err(StoreError::Conflict("a".into()))
            );
            assert_eq!(keys(store, Some(first)), ["a=1", "b=1"]);
            assert_eq!(keys(store, None), ["a=2", "b=1"]);
            store.expire(1099).unwrap();
            store.keep_alive(lease, 1050).unwrap();
            store.expire(1149).unwrap();
            assert_eq!(keys(store, None), ["a=2", "b=1"]);
            assert_eq!(store.watch(first).unwrap().len(), 1);
            store.expire(1150).unwrap();
            assert_eq!(keys(store, None), ["b=1"]);
            assert!(store.watch(first).unwrap().last().unwrap().value.is_none());
            assert_eq!(store.keep_alive(lease, 0), Err(StoreError::NoLease(lease)));
            let now = store.range("", None).unwrap().0;
            store.compact(now).unwrap();
            assert!(matches!(store.range("", Some(first)), Err(StoreError::Compacted { .. })));
            assert!(matches!(store.watch(first), Err(StoreError::Compacted { .. })));
            store.durable(now).unwrap();
        }
        drop(embedded);
        let again = Embedded::open(&path, 0).unwrap();
        assert_eq!(keys(&again, None), ["b=1"]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_durable_survives_and_leases_go_on() {
        let path = std::env::temp_dir().join(format!("rw-place-lease-{}.redb", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let store = Embedded::open(&path, 5_000).unwrap();
        let lease = store.lease(100, 5_000).unwrap();
        let first = store.transact(&[], vec![put("p", "1", Some(lease)), put("q", "1", None)]).unwrap();
        let last = store.transact(&[], vec![put("q", "2", None)]).unwrap();
        store.durable(last).unwrap();
        drop(store);
        // The clock went back meanwhile: the lease lasts no longer for that.
        let store = Embedded::open(&path, 1_000).unwrap();
        assert_eq!(keys(&store, Some(first)), ["p=1", "q=1"]);
        assert_eq!(keys(&store, None), ["p=1", "q=2"]);
        store.expire(1_100).unwrap();
        assert_eq!(keys(&store, None), ["q=2"]);
        assert_eq!(store.transact(&[], vec![put("r", "1", None)]).unwrap(), last + 2);
        drop(store);
        std::fs::remove_file(&path).unwrap();
    }
}
