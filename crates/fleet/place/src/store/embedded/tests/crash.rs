//! Crashes at every point: within a record, between log and database, at the change of halves.

use super::super::writer::{Writer, WriterEvent};
use super::super::{database, encoding};
use super::*;
use crate::store::memory::Version;
use database::{Batch, commit};
use proptest::prelude::*;
use redb::backends::InMemoryBackend;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

const HALF: usize = 4 * 512;

/// A key and its new value; none for a deletion.
type Step = (u8, Option<Vec<u8>>);

#[derive(Debug)]
struct Crash {
    steps: Vec<Step>,
    /// Whether handed-over batches reached the database.
    brought: bool,
    /// Which sectors of the last record got to the disk.
    sectors: u64,
}

fn crashes() -> impl Strategy<Value = Crash> {
    let length = prop_oneof![6 => 0..500usize, 3 => 500..1900usize, 1 => 1900..3000usize];
    let value = (any::<u8>(), length).prop_map(|(byte, length)| vec![byte; length]);
    let steps = prop::collection::vec((0u8..5, prop::option::of(value)), 1..20);
    let sectors = prop_oneof![Just(u64::MAX), any::<u64>()];
    (steps, any::<bool>(), sectors).prop_map(|(steps, brought, sectors)| Crash { steps, brought, sectors })
}

#[derive(Clone, Default)]
struct Known {
    revision: Revision,
    newest: BTreeMap<u8, Revision>,
    values: BTreeMap<String, Vec<u8>>,
}

impl Known {
    /// The changes of a step, with immediate removal of old versions.
    fn changes(&mut self, (key, value): &Step) -> Vec<Change> {
        self.revision += 1;
        let name = format!("k{key}");
        match value {
            Some(value) => self.values.insert(name.clone(), value.clone()),
            None => self.values.remove(&name),
        };
        let version =
            Version { revision: self.revision, value: value.as_deref().map(Into::into), lease: None };
        let mut changes = vec![Change::Version(name.clone(), version)];
        if let Some(before) = self.newest.insert(*key, self.revision) {
            changes.push(Change::Gone(name, before));
        }
        changes
    }
}

/// Opens as the store does: the log's records are written to the database, and the log continues.
fn recover(database: &Database, path: &Path) -> Log {
    let contents = log::read(&std::fs::read(path).unwrap()).unwrap();
    // A crash must not look like damage.
    assert!(contents.damage.is_none(), "{:?}", contents.damage);
    let (_, logged) = database::figures(database).unwrap().unwrap();
    let (last, ahead) = contents.after(logged);
    assert_eq!(last, contents.newest);
    commit(database, last, ahead).unwrap();
    Log::resume(OpenOptions::new().write(true).open(path).unwrap(), &contents).unwrap()
}

/// Runs until a crash; returns the expected contents.
fn run(database: &Database, path: &Path, mut known: Known, crash: &Crash) -> Known {
    let log = recover(database, path);
    let (sender, behind) = channel();
    let (event_sender, events) = channel();
    let progress = Progress::default();
    let mut writer = Writer { log, since: Vec::new(), sender, events, busy: false, progress: &progress };
    // The database is written as late as possible: only when a thread waits for it.
    let bring = |batches: &[(u64, Batch)]| {
        batches.iter().for_each(|(number, batch)| commit(database, *number, batch.clone()).unwrap());
    };
    let mut late: Vec<(u64, Batch)> = Vec::new();
    for (index, step) in crash.steps.iter().enumerate() {
        let (safe, before) = (known.clone(), std::fs::read(path).unwrap());
        let batch = vec![(known.revision + 1, known.changes(step))];
        let mut bytes = Vec::new();
        encoding::write(&mut bytes, known.revision, &batch[0].1);
        let large = !writer.log.can_have(bytes.len());
        (0..4).for_each(|_| event_sender.send(WriterEvent::Done).unwrap());
        writer.keep(&bytes, batch).unwrap();
        late.extend(behind.try_iter());
        let last = index + 1 == crash.steps.len();
        if !last {
            let waited = late.len().saturating_sub(if large { 0 } else { 1 });
            bring(&late[..waited]);
            late.drain(..waited);
            continue;
        }
        let whole = cut(path, &before, crash.sectors);
        // A large batch is handed over once the log has counted it.
        let handed = late.len() - usize::from(large && !whole);
        let waited = late.len().saturating_sub(1 + usize::from(large && !whole));
        bring(&late[..if crash.brought { handed } else { waited }]);
        return if whole && (crash.brought || !large) { known } else { safe };
    }
    known
}

/// Keeps only these sectors of the data written since `before`, restoring the others; returns whether all are
/// kept.
fn cut(path: &Path, before: &[u8], sectors: u64) -> bool {
    let mut now = std::fs::read(path).unwrap();
    let mut whole = true;
    let changed = now.chunks_mut(512).zip(before.chunks(512)).filter(|(now, before)| now != before);
    for (index, (now, before)) in changed.enumerate() {
        if sectors >> (index % 64) & 1 == 0 {
            now.copy_from_slice(before);
            whole = false;
        }
    }
    OpenOptions::new().write(true).open(path).unwrap().write_all_at(&now, 0).unwrap();
    whole
}

proptest! {
    // Each case waits for the disk.
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn durable_writes_survive_any_crash(crashes in prop::collection::vec(crashes(), 1..6)) {
        let folder = Folder::new("crash");
        let path = folder.0.join("log");
        let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
        database::begin(&database, 7).unwrap();
        log::create(&path, 7, 0, HALF).unwrap();
        let mut known = Known::default();
        for crash in &crashes {
            known = run(&database, &path, known, crash);
            drop(recover(&database, &path));
            let state = database::load(&database, 0).unwrap();
            prop_assert_eq!(state.revision, known.revision);
            prop_assert!(state.keys.values().all(|versions| versions.len() == 1));
            let latest = state.keys.iter().filter_map(|(key, versions)| {
                Some((key.clone(), versions.last()?.value.as_ref()?.to_vec()))
            });
            prop_assert_eq!(latest.collect::<BTreeMap<_, _>>(), known.values.clone());
        }
    }
}
