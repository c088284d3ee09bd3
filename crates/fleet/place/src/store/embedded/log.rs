//! The write-ahead log: a file of fixed size, so that syncing a record writes the record's own blocks and no
//! metadata. A header is followed by two halves; while one half is filled, the other's records are written to
//! the database.
//!
//! A record consists of whole sectors, each with a checksum. An interrupted write leaves each sector either
//! with its old or its new content. Any other content is damage, and is never mistaken for an interrupted
//! write.

use super::database::Batch;
use super::{Damage, encoding};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes of a half.
pub(super) const HALF: usize = 4 << 20;
/// Size in bytes that a disk writes atomically.
const SECTOR: usize = 512;
/// Checksum, record number, index within the record, sectors of the record, bytes used.
const HEAD: usize = 4 + 8 + 2 + 2 + 2;
const ROOM: usize = SECTOR - HEAD;
/// How the header's payload begins.
const MAGIC: &[u8] = b"ringway placement log 2\n";

/// A log that is written.
pub(super) struct Log {
    file: File,
    /// Identity of its database.
    identity: u64,
    /// Number of the newest record.
    number: u64,
    /// Bytes of a half.
    size: usize,
    half: usize,
    used: usize,
    record: Vec<u8>,
}

/// Contents of a log file.
pub(super) struct Contents {
    pub identity: u64,
    /// Bytes of a half.
    size: usize,
    /// Complete records, by number.
    records: Vec<(u64, Vec<u8>)>,
    /// Number of the newest complete record, or the one the log began after.
    pub newest: u64,
    /// The half of the newest record.
    half: usize,
    /// Offsets of the sectors of a record whose write was interrupted.
    pub torn: Vec<usize>,
    /// Damage that leaves the records above readable.
    pub damage: Option<Damage>,
}

struct Sector<'b> {
    number: u64,
    index: u16,
    count: u16,
    payload: &'b [u8],
}

fn checksum(identity: u64, bytes: &[u8]) -> [u8; 4] {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&identity.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize().to_le_bytes()
}

/// Adds a sector.
fn write_sector(into: &mut Vec<u8>, identity: u64, sector: &Sector<'_>) {
    let begin = into.len();
    into.extend([0; 4]);
    into.extend(sector.number.to_le_bytes());
    into.extend(sector.index.to_le_bytes());
    into.extend(sector.count.to_le_bytes());
    into.extend((sector.payload.len() as u16).to_le_bytes());
    into.extend(sector.payload);
    into.resize(begin + SECTOR, 0);
    let checksum = checksum(identity, &into[begin + 4..]);
    into[begin..begin + 4].copy_from_slice(&checksum);
}

/// Reads a sector; none if it is damaged.
fn read_sector(bytes: &[u8], identity: u64) -> Option<Sector<'_>> {
    let (sum, rest) = bytes.split_first_chunk::<4>()?;
    if *sum != checksum(identity, rest) {
        return None;
    }
    let (number, rest) = rest.split_first_chunk()?;
    let (index, rest) = rest.split_first_chunk()?;
    let (count, rest) = rest.split_first_chunk()?;
    let (used, rest) = rest.split_first_chunk()?;
    Some(Sector {
        number: u64::from_le_bytes(*number),
        index: u16::from_le_bytes(*index),
        count: u16::from_le_bytes(*count),
        payload: rest.get(..u16::from_le_bytes(*used).into())?,
    })
}

/// Bytes that a record takes on the disk.
fn taken(length: usize) -> usize {
    length.div_ceil(ROOM).max(1) * SECTOR
}

/// Creates a log at `path` for records after `base`, replacing any file there.
pub(super) fn create(path: &Path, identity: u64, base: u64, size: usize) -> io::Result<()> {
    let mut bytes = Vec::with_capacity(SECTOR + 2 * size);
    let payload = [MAGIC, &identity.to_le_bytes(), &(size as u64).to_le_bytes()].concat();
    write_sector(&mut bytes, identity, &Sector { number: base, index: 0, count: 0, payload: &payload });
    // The file is written, not only allocated, so that a record changes no metadata and syncing it needs no journal.
    bytes.resize(SECTOR + 2 * size, 0);
    super::files::replace(path, |file| file.write_all_at(&bytes, 0))
}

impl Log {
    /// Continues a log whose records are all in the database.
    pub(super) fn resume(file: File, contents: &Contents) -> io::Result<Log> {
        // Sectors of an interrupted record must not be mixed with those of the next record of the same
        // number.
        for at in &contents.torn {
            file.write_all_at(&[0; SECTOR], *at as u64)?;
        }
        if !contents.torn.is_empty() {
            file.sync_data()?;
        }
        let Contents { identity, size, newest: number, .. } = *contents;
        // The newest record stays until there is a newer one.
        Ok(Log { file, identity, number, size, half: 1 - contents.half, used: 0, record: Vec::new() })
    }

    /// Number of the newest record.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether a record of this length fits into the current half.
    pub(super) fn fits(&self, length: usize) -> bool {
        self.used + taken(length) <= self.size
    }

    /// Whether a record of this length fits into an empty half.
    pub(super) fn can_have(&self, length: usize) -> bool {
        taken(length) <= self.size
    }

    /// Appends a record, which is durable when this returns. After an error the call may be repeated.
    pub(super) fn append(&mut self, body: &[u8]) -> io::Result<()> {
        let number = self.number + 1;
        self.record.clear();
        let count = (taken(body.len()) / SECTOR) as u16;
        for index in 0..count {
            let begin = usize::from(index) * ROOM;
            let payload = &body[begin..body.len().min(begin + ROOM)];
            write_sector(&mut self.record, self.identity, &Sector { number, index, count, payload });
        }
        self.file.write_all_at(&self.record, (SECTOR + self.half * self.size + self.used) as u64)?;
        self.file.sync_data()?;
        self.number = number;
        self.used += self.record.len();
        Ok(())
    }

    /// Continues at the start of the other half, whose records are in the database.
    pub(super) fn turn(&mut self) {
        self.half = 1 - self.half;
        self.used = 0;
    }
}

/// Reads a log's file.
pub(super) fn read(bytes: &[u8]) -> Result<Contents, Damage> {
    let (identity, base, size) = header(bytes).ok_or(Damage::LogHeader)?;
    if bytes.len() != SECTOR + 2 * size {
        return Err(Damage::LogLength(bytes.len(), SECTOR + 2 * size));
    }
    let mut damage = None;
    let sectors: Vec<Option<Sector<'_>>> = bytes[SECTOR..]
        .chunks(SECTOR)
        .enumerate()
        .map(|(at, bytes)| {
            if bytes.iter().all(|byte| *byte == 0) {
                return None;
            }
            let sector = read_sector(bytes, identity);
            if sector.is_none() {
                damage.get_or_insert(Damage::LogSector((at + 1) * SECTOR));
            }
            sector
        })
        .collect();
    let mut halves: Vec<_> = sectors.chunks(size / SECTOR).map(records).enumerate().collect();
    halves.sort_by_key(|(_, records)| records.last().map(|(number, _)| *number));
    let half = halves.last().map_or(0, |(half, _)| *half);
    let records: Vec<_> = halves.into_iter().flat_map(|(_, records)| records).collect();
    let newest = records.last().map_or(base, |(number, _)| *number);
    let after = |sector: &Option<Sector<'_>>| sector.as_ref().map_or(0, |sector| sector.number);
    if sectors.iter().map(after).any(|number| number > newest + 1) {
        damage.get_or_insert(Damage::LogGap(newest + 1));
    }
    let torn = sectors.iter().enumerate().filter(|(_, sector)| after(sector) == newest + 1);
    let torn = torn.map(|(at, _)| (at + 1) * SECTOR).collect();
    Ok(Contents { identity, size, records, newest, half, torn, damage })
}

/// The header: identity, first record, size of a half in bytes.
fn header(bytes: &[u8]) -> Option<(u64, u64, usize)> {
    let bytes = bytes.get(..SECTOR)?;
    let (identity, rest) = bytes[HEAD..].strip_prefix(MAGIC)?.split_first_chunk()?;
    let identity = u64::from_le_bytes(*identity);
    let size = u64::from_le_bytes(*rest.first_chunk()?) as usize;
    let base = read_sector(bytes, identity)?.number;
    // Attack: a forged header with numbers that overflow.
    let sound = (SECTOR..=1 << 30).contains(&size) && size.is_multiple_of(SECTOR) && base < u64::MAX - 1;
    sound.then_some((identity, base, size))
}

/// The records of a half from its start, as long as they are complete and consecutive: later ones are from an
/// earlier use.
fn records(half: &[Option<Sector<'_>>]) -> Vec<(u64, Vec<u8>)> {
    let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
    let mut rest = half;
    while let Some(Some(first)) = rest.first() {
        let number = first.number;
        let Some((sectors, behind)) = rest.split_at_checked(first.count.max(1).into()) else { break };
        let same = |(index, sector): (usize, &Option<Sector<'_>>)| {
            sector.as_ref().is_some_and(|it| {
                (it.number, it.count, usize::from(it.index)) == (number, first.count, index)
            })
        };
        let follows = records.last().is_none_or(|(before, _)| before.checked_add(1) == Some(number));
        if !follows || number == u64::MAX || !sectors.iter().enumerate().all(same) {
            break;
        }
        records.push((number, sectors.iter().flatten().flat_map(|sector| sector.payload).copied().collect()));
        rest = behind;
    }
    records
}

impl Contents {
    /// The log's changes after record `logged`, in order, up to the first gap, and the number of the last
    /// record.
    pub(super) fn after(&self, logged: u64) -> (u64, Batch) {
        let (mut last, mut batch) = (logged, Batch::new());
        for (number, body) in &self.records {
            if Some(*number) == last.checked_add(1) {
                let Some(changes) = encoding::read(body) else { break };
                batch.extend(changes);
                last = *number;
            }
        }
        (last, batch)
    }
}
