//! A store in a file of this machine, by redb: everything is answered from memory, and written by one thread, many
//! transactions in one.

use super::memory::{Lease, Memory, Note, State, Version};
use super::{Compare, Entry, Event, LeaseId, Op, Revision, Store, StoreError};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// A key's versions: 1, the lease and the value; or 0 alone for none.
const VERSIONS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("versions");
/// Leases: deadline and length.
const LEASES: TableDefinition<'_, u64, (u64, u64)> = TableDefinition::new("leases");
/// Figures by name.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");

/// How far the file is.
#[derive(Default)]
struct Progress {
    written: Mutex<(Revision, Option<String>)>,
    more: Condvar,
}

/// A store in a file.
pub struct Embedded {
    memory: Memory,
    sender: Option<Sender<(Revision, Vec<Note>)>>,
    progress: Arc<Progress>,
    writer: Option<JoinHandle<()>>,
}

fn file(error: impl std::fmt::Display) -> StoreError {
    StoreError::File(error.to_string())
}

impl Embedded {
    /// Opens the file at `path`, or makes one. `now` is the time; a lease is never taken to last longer than it was
    /// given for, whatever the clock did meanwhile.
    pub fn open(path: &Path, now: u64) -> Result<Embedded, StoreError> {
        let database = Database::create(path).map_err(file)?;
        let state = load(&database, now)?;
        let progress = Arc::new(Progress::default());
        if let Ok(mut written) = progress.written.lock() {
            written.0 = state.revision;
        }
        let (sender, receiver) = channel();
        let shared = progress.clone();
        let writer = std::thread::Builder::new()
            .name("place-store".into())
            .spawn(move || write(&database, &receiver, &shared))
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

impl Drop for Embedded {
    fn drop(&mut self) {
        self.sender = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn load(database: &Database, now: u64) -> Result<State, StoreError> {
    let mut state = State::default();
    let transaction = database.begin_read().map_err(file)?;
    // A new file has no tables.
    let Ok(versions) = transaction.open_table(VERSIONS) else { return Ok(state) };
    let mut all: Vec<(String, Version)> = Vec::new();
    for entry in versions.iter().map_err(file)? {
        let (key, bytes) = entry.map_err(file)?;
        let ((key, revision), bytes) = (key.value(), bytes.value());
        let version = match bytes {
            [1, lease @ ..] if lease.len() >= 8 => {
                let (lease, value) = lease.split_at(8);
                let lease = u64::from_le_bytes(lease.try_into().unwrap_or_default());
                Version { revision, value: Some(value.into()), lease: (lease > 0).then_some(lease) }
            }
            _ => Version { revision, value: None, lease: None },
        };
        all.push((key.to_string(), version));
    }
    if let Ok(leases) = transaction.open_table(LEASES) {
        for entry in leases.iter().map_err(file)? {
            let (id, lease) = entry.map_err(file)?;
            let (deadline, ttl) = lease.value();
            state.add_lease(id.value(), Lease { deadline: deadline.min(now.saturating_add(ttl)), ttl });
        }
    }
    all.sort_by_key(|(_, version)| version.revision);
    for (key, version) in all {
        state.push(&key, version);
    }
    if let Ok(meta) = transaction.open_table(META) {
        let figure = |name: &str| meta.get(name).ok().flatten().map_or(0, |figure| figure.value());
        state.revision = state.revision.max(figure("revision"));
        let oldest = figure("oldest");
        state.compact(oldest);
    }
    Ok(state)
}

/// Writes until nobody sends any more: all that waits, in one transaction.
fn write(database: &Database, receiver: &Receiver<(Revision, Vec<Note>)>, progress: &Progress) {
    while let Ok(first) = receiver.recv() {
        let mut batch = vec![first];
        batch.extend(receiver.try_iter());
        let revision = batch.iter().map(|(revision, _)| *revision).max().unwrap_or(0);
        let result = commit(database, revision, batch);
        let mut written = progress.written.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(()) => written.0 = written.0.max(revision),
            Err(error) => written.1 = Some(error),
        }
        progress.more.notify_all();
        if written.1.is_some() {
            return;
        }
    }
}

fn commit(database: &Database, revision: Revision, batch: Vec<(Revision, Vec<Note>)>) -> Result<(), String> {
    let say = |error: &dyn std::fmt::Display| error.to_string();
    let transaction = database.begin_write().map_err(|error| say(&error))?;
    {
        let mut versions = transaction.open_table(VERSIONS).map_err(|error| say(&error))?;
        let mut leases = transaction.open_table(LEASES).map_err(|error| say(&error))?;
        let mut meta = transaction.open_table(META).map_err(|error| say(&error))?;
        let mut oldest = None;
        for note in batch.into_iter().flat_map(|(_, notes)| notes) {
            match note {
                Note::Version(key, version) => {
                    let mut bytes = vec![u8::from(version.value.is_some())];
                    if let Some(value) = &version.value {
                        bytes.extend(version.lease.unwrap_or(0).to_le_bytes());
                        bytes.extend(value.iter());
                    }
                    let key = (key.as_str(), version.revision);
                    versions.insert(key, bytes.as_slice()).map_err(|error| say(&error))?;
                }
                Note::Lease(id, Some(lease)) => {
                    leases.insert(id, (lease.deadline, lease.ttl)).map_err(|error| say(&error))?;
                }
                Note::Lease(id, None) => {
                    leases.remove(id).map_err(|error| say(&error))?;
                }
                Note::Gone(key, revision) => {
                    versions.remove((key.as_str(), revision)).map_err(|error| say(&error))?;
                }
                Note::Compact(revision) => oldest = Some(revision),
            }
        }
        meta.insert("revision", revision).map_err(|error| say(&error))?;
        if let Some(oldest) = oldest {
            meta.insert("oldest", oldest).map_err(|error| say(&error))?;
        }
    }
    transaction.commit().map_err(|error| say(&error))
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
