//! The thread that writes: what waits goes to the log in one record and is safe; behind it, half a log at a time, a
//! second thread brings it to the database.

use super::database::{Batch, commit};
use super::log::Log;
use super::{Progress, note};
use crate::store::Revision;
use crate::store::memory::Note;
use redb::Database;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What changed in a revision.
pub(super) type Noted = (Revision, Vec<Note>);

/// A record isn't made longer than this by what else waits.
const RECORD: usize = 256 << 10;

/// Writes until nobody sends any more, and leaves everything in the database.
pub(super) fn run(
    database: &Database,
    log: Log,
    path: &Path,
    receiver: &Receiver<Noted>,
    progress: &Progress,
) {
    let result = std::thread::scope(|scope| {
        let (sender, behind) = channel::<(u64, Batch)>();
        let (tell, told) = channel();
        let keep_up = move || {
            for (number, batch) in behind {
                if tell.send(commit(database, number, batch).map_err(|error| error.to_string())).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("place-database".into());
        thread.spawn_scoped(scope, keep_up).map_err(|error| error.to_string())?;
        let mut writer = Writer { log, since: Vec::new(), sender, told, busy: false };
        while let Ok(first) = receiver.recv() {
            let revision = writer.write(first, receiver)?;
            let mut written = progress.written.lock().unwrap_or_else(PoisonError::into_inner);
            written.0 = written.0.max(revision);
            progress.more.notify_all();
        }
        writer.finish()
    });
    match result {
        // Whatever it says, the database has it.
        Ok(()) => drop(std::fs::remove_file(path)),
        Err(error) => {
            let mut written = progress.written.lock().unwrap_or_else(PoisonError::into_inner);
            written.1 = Some(error);
            progress.more.notify_all();
        }
    }
}

/// Who writes the log.
pub(super) struct Writer {
    pub log: Log,
    /// What this half of the log has.
    pub since: Batch,
    /// To whom brings it to the database, with the number of the newest record.
    pub sender: Sender<(u64, Batch)>,
    /// Says when that is done.
    pub told: Receiver<Result<(), String>>,
    pub busy: bool,
}

impl Writer {
    /// Writes what is first and what else waits; the newest revision of it.
    fn write(&mut self, first: Noted, receiver: &Receiver<Noted>) -> Result<Revision, String> {
        let mut bytes = Vec::new();
        let mut batch = Vec::new();
        let mut next = Some(first);
        while let Some((revision, notes)) = next {
            note::write(&mut bytes, revision, &notes);
            batch.push((revision, notes));
            next = if bytes.len() < RECORD { receiver.try_recv().ok() } else { None };
        }
        let revision = batch.iter().map(|(revision, _)| *revision).max().unwrap_or(0);
        self.keep(&bytes, batch)?;
        Ok(revision)
    }

    /// Makes a batch safe.
    pub(super) fn keep(&mut self, bytes: &[u8], batch: Batch) -> Result<(), String> {
        if !self.log.fits(bytes.len()) {
            let large = !self.log.can_have(bytes.len());
            if large {
                // Straight to the database.
                self.log.skip();
                self.since.extend(batch);
                self.hand_over()?;
                self.wait()?;
                self.log.turn();
                return Ok(());
            }
            self.hand_over()?;
            self.log.turn();
        }
        self.log.append(bytes).map_err(|error| error.to_string())?;
        self.since.extend(batch);
        Ok(())
    }

    /// Has this half of the log brought to the database, once the other one is there.
    fn hand_over(&mut self) -> Result<(), String> {
        self.wait()?;
        let batch = std::mem::take(&mut self.since);
        let gone = |_| "the thread of the database ended".to_string();
        self.sender.send((self.log.number(), batch)).map_err(gone)?;
        self.busy = true;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.busy) {
            return self.told.recv().unwrap_or_else(|_| Err("the thread of the database ended".into()));
        }
        Ok(())
    }

    /// Leaves everything in the database.
    fn finish(mut self) -> Result<(), String> {
        self.hand_over()?;
        self.wait()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{database, recover};
    use super::*;
    use crate::store::memory::Version;
    use proptest::prelude::*;
    use redb::backends::InMemoryBackend;
    use std::collections::BTreeMap;

    const HALF: usize = 400;

    /// A key and its new value; none to remove it.
    type Step = (u8, Option<Vec<u8>>);

    #[derive(Debug)]
    struct Crash {
        steps: Vec<Step>,
        /// Whether what was handed over got to the database.
        brought: bool,
        /// How many bytes of the last record got to the disk.
        bytes: usize,
    }

    fn crashes() -> impl Strategy<Value = Crash> {
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..500));
        let steps = prop::collection::vec((0u8..5, value), 1..20);
        (steps, any::<bool>(), 0..800usize).prop_map(|(steps, brought, bytes)| Crash {
            steps,
            brought,
            bytes,
        })
    }

    #[derive(Clone, Default)]
    struct Known {
        revision: Revision,
        newest: BTreeMap<u8, Revision>,
        values: BTreeMap<String, Vec<u8>>,
    }

    impl Known {
        /// What a store notes of a step when it forgets at once what was before.
        fn notes(&mut self, (key, value): &Step) -> Vec<Note> {
            self.revision += 1;
            let name = format!("k{key}");
            match value {
                Some(value) => self.values.insert(name.clone(), value.clone()),
                None => self.values.remove(&name),
            };
            let version =
                Version { revision: self.revision, value: value.as_deref().map(Into::into), lease: None };
            let mut notes = vec![Note::Version(name.clone(), version)];
            if let Some(before) = self.newest.insert(*key, self.revision) {
                notes.push(Note::Gone(name, before));
            }
            notes
        }
    }

    /// Runs until a crash; what must be there afterwards.
    fn run(database: &Database, path: &Path, mut known: Known, crash: &Crash) -> Known {
        let log = recover(database, path, HALF).unwrap();
        let (sender, behind) = channel();
        let (tell, told) = channel();
        let mut writer = Writer { log, since: Vec::new(), sender, told, busy: false };
        let bring = |all: &[(u64, Batch)]| {
            all.iter().for_each(|(number, batch)| commit(database, *number, batch.clone()).unwrap());
        };
        let mut waiting: Vec<(u64, Batch)> = Vec::new();
        for (index, step) in crash.steps.iter().enumerate() {
            let (safe, before) = (known.clone(), std::fs::read(path).unwrap());
            let batch = vec![(known.revision + 1, known.notes(step))];
            let mut bytes = Vec::new();
            note::write(&mut bytes, known.revision, &batch[0].1);
            // The database is as late as can be: there when somebody waits for it.
            let large = !writer.log.can_have(bytes.len());
            if !writer.log.fits(bytes.len()) {
                bring(&waiting);
                waiting.drain(..).for_each(|_| tell.send(Ok(())).unwrap());
                // This one it hands over and waits for.
                large.then(|| tell.send(Ok(())).unwrap());
            }
            writer.keep(&bytes, batch).unwrap();
            waiting.extend(behind.try_iter());
            let last = index + 1 == crash.steps.len();
            if large && !(last && !crash.brought) {
                bring(&waiting);
                waiting.clear();
            }
            if last {
                if crash.brought {
                    bring(&waiting);
                }
                let whole = cut(path, &before, crash.bytes);
                return if whole && (crash.brought || !large) { known } else { safe };
            }
        }
        known
    }

    /// Leaves so many bytes of what was written since `before`; whether that is all.
    fn cut(path: &Path, before: &[u8], bytes: usize) -> bool {
        let after = std::fs::read(path).unwrap();
        let differ = |index: &usize| before[*index] != after[*index];
        let first = (0..after.len()).find(differ).unwrap_or(0);
        let mut now = before.to_vec();
        let end = (first + bytes).min(after.len());
        now[first..end].copy_from_slice(&after[first..end]);
        std::fs::write(path, &now).unwrap();
        now == after
    }

    proptest! {
        // Each waits for the disk.
        #![proptest_config(ProptestConfig::with_cases(40))]

        /// A crash in the middle of a record, between log and database, or while one half follows the other.
        #[test]
        fn what_was_kept_is_there_after_any_crash(crashes in prop::collection::vec(crashes(), 1..4)) {
            let name = format!("rw-place-log-{}-{:?}", std::process::id(), std::thread::current().id());
            let path = std::env::temp_dir().join(name);
            let database = Database::builder().create_with_backend(InMemoryBackend::new()).unwrap();
            let mut known = Known::default();
            for crash in &crashes {
                known = run(&database, &path, known, crash);
                drop(recover(&database, &path, HALF).unwrap());
                let state = database::load(&database, 0).unwrap();
                prop_assert_eq!(state.revision, known.revision);
                prop_assert!(state.keys.values().all(|versions| versions.len() == 1));
                let latest = state.keys.iter().filter_map(|(key, versions)| {
                    Some((key.clone(), versions.last()?.value.as_ref()?.to_vec()))
                });
                prop_assert_eq!(latest.collect::<BTreeMap<_, _>>(), known.values.clone());
            }
            std::fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn the_log_of_another_database_is_nobodys() {
        let path = std::env::temp_dir().join(format!("rw-place-other-{}", std::process::id()));
        let crash = Crash { steps: vec![(1, Some(vec![1]))], brought: false, bytes: 800 };
        let [one, other] =
            std::array::from_fn(|_| Database::builder().create_with_backend(InMemoryBackend::new()).unwrap());
        let known = run(&one, &path, Known::default(), &crash);
        assert_eq!(known.revision, 1);
        drop(recover(&other, &path, HALF).unwrap());
        assert!(database::load(&other, 0).unwrap().keys.is_empty());
        std::fs::remove_file(&path).unwrap();
    }
}
