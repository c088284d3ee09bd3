//! The writer thread: pending changes are written to the log in one record, which makes them durable; a
//! second thread writes them to the database, half a log at a time. On a full disk both retry until there is
//! room.

use super::database::{Batch, commit};
use super::log::Log;
use super::{Progress, encoding, is_full};
use crate::store::Revision;
use crate::store::memory::Change;
use redb::{Database, Error};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// The changes of a revision.
pub(super) type Logged = (Revision, Vec<Change>);

/// Limit in bytes for adding pending changes to a record.
const RECORD: usize = 256 << 10;
/// Delay before a retry on a full disk.
const RETRY: Duration = Duration::from_millis(100);

/// Result of the database thread for a batch.
pub(super) enum WriterEvent {
    /// The batch is in the database.
    Done,
    /// The disk is full; the batch is tried again.
    Full(String),
    /// The batch can't be written.
    Failed(String),
}

/// Opens the database, again after a write that failed.
pub(super) type Open = Box<dyn Fn() -> Result<Database, Error> + Send + Sync>;

/// Writes until all senders are gone, and leaves everything in the database.
pub(super) fn run(
    open: &Open,
    database: Database,
    log: Log,
    receiver: &Receiver<Logged>,
    progress: &Progress,
) {
    let result = std::thread::scope(|scope| {
        let (sender, behind) = channel::<(u64, Batch)>();
        let (event_sender, events) = sync_channel(1);
        let keep_up = move || keep_up(open, database, &behind, &event_sender, progress);
        let thread = std::thread::Builder::new().name("place-database".into());
        thread.spawn_scoped(scope, keep_up).map_err(|error| error.to_string())?;
        let mut writer = Writer { log, since: Vec::new(), sender, events, busy: false, progress };
        while let Ok(first) = receiver.recv() {
            let revision = writer.write(first, receiver)?;
            progress.written(revision);
        }
        writer.finish()
    });
    if let Err(error) = result {
        progress.failed(error);
    }
}

/// Writes batches to the database.
fn keep_up(
    open: &Open,
    database: Database,
    behind: &Receiver<(u64, Batch)>,
    event_sender: &SyncSender<WriterEvent>,
    progress: &Progress,
) {
    let mut database = Some(database);
    for (number, batch) in behind {
        loop {
            let opened = database.take().map_or_else(open, Ok);
            let done = opened.and_then(|opened| {
                commit(&opened, number, batch.clone())?;
                database = Some(opened);
                Ok(())
            });
            let event = match done {
                Ok(()) => WriterEvent::Done,
                Err(Error::Io(error)) if is_full(&error) => {
                    // The receiver may be gone, and one message suffices.
                    let _ = event_sender.try_send(WriterEvent::Full(error.to_string()));
                    // Changes missing in the database are in the log.
                    if progress.is_closing() {
                        return;
                    }
                    std::thread::sleep(RETRY);
                    continue;
                }
                Err(error) => WriterEvent::Failed(error.to_string()),
            };
            if event_sender.send(event).is_err() {
                return;
            }
            break;
        }
    }
}

/// The log's writer.
pub(super) struct Writer<'p> {
    pub log: Log,
    /// Changes in the current half of the log.
    pub since: Batch,
    /// Channel to the database thread, with the number of the newest record.
    pub sender: Sender<(u64, Batch)>,
    /// Reports of the database thread.
    pub events: Receiver<WriterEvent>,
    pub busy: bool,
    pub progress: &'p Progress,
}

impl Writer<'_> {
    /// Writes the first change and all pending ones; returns their newest revision.
    fn write(&mut self, first: Logged, receiver: &Receiver<Logged>) -> Result<Revision, String> {
        let mut bytes = Vec::new();
        let mut batch = Vec::new();
        let mut next = Some(first);
        while let Some((revision, changes)) = next {
            encoding::write(&mut bytes, revision, &changes);
            batch.push((revision, changes));
            next = if bytes.len() < RECORD { receiver.try_recv().ok() } else { None };
        }
        let revision = batch.iter().map(|(revision, _)| *revision).max().unwrap_or(0);
        self.keep(&bytes, batch)?;
        Ok(revision)
    }

    /// Makes a batch durable.
    pub(super) fn keep(&mut self, bytes: &[u8], batch: Batch) -> Result<(), String> {
        let large = !self.log.can_have(bytes.len());
        // Only the database gets a large batch; the log still counts it, so that it is never behind the
        // database.
        let bytes = if large { &[] } else { bytes };
        if !self.log.fits(bytes.len()) {
            self.hand_over()?;
            self.log.turn();
        }
        self.append(bytes)?;
        self.since.extend(batch);
        if large {
            self.hand_over()?;
            self.wait()?;
            self.log.turn();
        }
        Ok(())
    }

    /// Writes a record to the log, as soon as there is room.
    fn append(&mut self, bytes: &[u8]) -> Result<(), String> {
        loop {
            match self.log.append(bytes) {
                Ok(()) => return Ok(()),
                Err(error) if is_full(&error) && !self.progress.is_closing() => {
                    self.progress.full(error.to_string());
                    std::thread::sleep(RETRY);
                }
                Err(error) => return Err(error.to_string()),
            }
        }
    }

    /// Passes the current half to the database thread, once the other half is in the database.
    fn hand_over(&mut self) -> Result<(), String> {
        self.wait()?;
        let batch = std::mem::take(&mut self.since);
        let gone = |_| "the thread of the database ended".to_string();
        self.sender.send((self.log.number(), batch)).map_err(gone)?;
        self.busy = true;
        Ok(())
    }

    fn wait(&mut self) -> Result<(), String> {
        while self.busy {
            match self.events.recv() {
                Ok(WriterEvent::Done) => self.busy = false,
                Ok(WriterEvent::Full(what)) => self.progress.full(what),
                Ok(WriterEvent::Failed(what)) => return Err(what),
                Err(_) => return Err("the thread of the database ended".into()),
            }
        }
        Ok(())
    }

    /// Writes everything to the database.
    fn finish(mut self) -> Result<(), String> {
        self.hand_over()?;
        self.wait()
    }
}
