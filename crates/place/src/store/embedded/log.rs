//! What changed, written ahead of the database: records one after the other in a file of fixed size, so that to sync
//! one writes its own pages and nothing else. The file has two halves; while one is filled, the database takes over
//! what the other one has.

use super::database::Batch;
use super::note;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a half.
pub(super) const HALF: usize = 4 << 20;
/// Before each record: the checksum of what follows, its length, its log's identity, its number.
const HEADER: usize = 4 + 4 + 8 + 8;

/// A log that is written.
pub(super) struct Log {
    file: File,
    /// Whose it is: a database's, so that nobody reads another one's.
    identity: u64,
    /// Number of the newest record.
    number: u64,
    /// Bytes of a half.
    size: usize,
    half: usize,
    used: usize,
    record: Vec<u8>,
}

impl Log {
    /// The file at `path`, made or emptied, for records after `number`.
    pub(super) fn create(path: &Path, identity: u64, number: u64, size: usize) -> io::Result<Log> {
        let file = super::private(path)?;
        file.set_len(0)?;
        // Written, not only reserved: then a record changes no metadata, and to sync it needs no journal.
        file.write_all_at(&vec![0; 2 * size], 0)?;
        file.sync_all()?;
        // Its name is to survive too.
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(Log { file, identity, number, size, half: 0, used: 0, record: Vec::new() })
    }

    /// Number of the newest record.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether a record of so many bytes fits into this half.
    pub(super) fn fits(&self, length: usize) -> bool {
        self.used + HEADER + length <= self.size
    }

    /// Whether it fits into an empty one.
    pub(super) fn can_have(&self, length: usize) -> bool {
        HEADER + length <= self.size
    }

    /// Writes a record; it survives a crash when this returns.
    pub(super) fn append(&mut self, body: &[u8]) -> io::Result<()> {
        self.number += 1;
        self.record.clear();
        self.record.extend([0; 4]);
        self.record.extend((body.len() as u32).to_le_bytes());
        self.record.extend(self.identity.to_le_bytes());
        self.record.extend(self.number.to_le_bytes());
        self.record.extend(body);
        let checksum = crc32fast::hash(&self.record[4..]);
        self.record[..4].copy_from_slice(&checksum.to_le_bytes());
        self.file.write_all_at(&self.record, (self.half * self.size + self.used) as u64)?;
        self.used += self.record.len();
        self.file.sync_data()
    }

    /// Counts a record that went to the database instead.
    pub(super) fn skip(&mut self) {
        self.number += 1;
    }

    /// Goes on at the begin of the other half, whose records the database has.
    pub(super) fn turn(&mut self) {
        self.half = 1 - self.half;
        self.used = 0;
    }
}

/// What the log at `path` has after record `number`, in order, and the number of the last. A record that a crash cut,
/// and whatever is behind it, was never acknowledged.
pub(super) fn read(path: &Path, identity: u64, number: u64) -> io::Result<(u64, Batch)> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let mut halves: Vec<Vec<Record<'_>>> =
        bytes.chunks((bytes.len() / 2).max(1)).map(|half| records(half, identity)).collect();
    halves.sort_by_key(|half| half.first().map(|record| record.number));
    let mut last = number;
    let mut batches = Vec::new();
    for record in halves.into_iter().flatten() {
        if Some(record.number) == last.checked_add(1) {
            let Some(batch) = note::read(record.body) else { break };
            batches.extend(batch);
            last = record.number;
        }
    }
    Ok((last, batches))
}

struct Record<'b> {
    number: u64,
    body: &'b [u8],
}

/// Records of a half from its begin, as long as their numbers follow each other: those behind are of an earlier use.
fn records(mut half: &[u8], identity: u64) -> Vec<Record<'_>> {
    let mut records: Vec<Record<'_>> = Vec::new();
    while let Some(record) = first(&mut half, identity) {
        if records.last().is_some_and(|before| before.number.checked_add(1) != Some(record.number)) {
            break;
        }
        records.push(record);
    }
    records
}

fn first<'b>(bytes: &mut &'b [u8], identity: u64) -> Option<Record<'b>> {
    let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| header[at + index]));
    let length = (number(0) >> 32) as usize;
    let body = rest.get(..length)?;
    let checksum = crc32fast::hash(&bytes[4..HEADER + length]);
    if checksum != number(0) as u32 || number(8) != identity {
        return None;
    }
    *bytes = &rest[length..];
    Some(Record { number: number(16), body })
}
