//! The database: all changes except those that are only in the log.

use crate::store::memory::{Change, Lease, State, Version};
use crate::store::{LeaseId, Revision};
use redb::{
    Database, Durability, Error, ReadableDatabase, ReadableTable, TableDefinition, TableError,
    WriteTransaction,
};
use std::collections::BTreeMap;

/// A key's versions: 1, the lease and the value; or 0 alone for none.
const VERSIONS: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("versions");
/// Leases: deadline and length.
const LEASES: TableDefinition<'_, u64, (u64, u64)> = TableDefinition::new("leases");
/// Figures by name.
const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Number of keys after which the database's writer yields, since the log's writer may share its core.
const AT_ONCE: usize = 256;

/// Changes by revision.
pub(super) type Batch = Vec<(Revision, Vec<Change>)>;

/// The database's identity and the newest log record that it contains; none if it is not a store's database.
pub(super) fn figures(database: &Database) -> Result<Option<(u64, u64)>, Error> {
    let transaction = database.begin_read()?;
    let Some(meta) = existing(transaction.open_table(META))? else { return Ok(None) };
    let figure = |name: &str| -> Result<_, Error> { Ok(meta.get(name)?.map(|figure| figure.value())) };
    let (identity, logged) = (figure("identity")?, figure("logged")?);
    Ok(identity.map(|identity| (identity, logged.unwrap_or(0))))
}

/// Makes an empty database a store's.
pub(super) fn begin(database: &Database, identity: u64) -> Result<(), Error> {
    let transaction = database.begin_write()?;
    transaction.open_table(META)?.insert("identity", identity)?;
    Ok(transaction.commit()?)
}

/// A table; none if nothing was ever inserted.
fn existing<T>(opened: Result<T, TableError>) -> Result<Option<T>, Error> {
    match opened {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// Loads the whole state of the database.
pub(super) fn load(database: &Database, now: u64) -> Result<State, Error> {
    let mut state = State::default();
    let transaction = database.begin_read()?;
    let mut all: Vec<(String, Version)> = Vec::new();
    if let Some(versions) = existing(transaction.open_table(VERSIONS))? {
        for entry in versions.iter()? {
            let (key, bytes) = entry?;
            let ((key, revision), bytes) = (key.value(), bytes.value());
            let (value, lease) = match bytes {
                [1, rest @ ..] => rest.split_first_chunk().map(|(lease, value)| (value, lease)).unzip(),
                _ => (None, None),
            };
            let lease = lease.map(|lease| u64::from_le_bytes(*lease)).filter(|lease| *lease > 0);
            all.push((key.to_string(), Version { revision, value: value.map(Into::into), lease }));
        }
    }
    if let Some(leases) = existing(transaction.open_table(LEASES))? {
        for entry in leases.iter()? {
            let (id, lease) = entry?;
            let (deadline, ttl) = lease.value();
            state.add_lease(id.value(), Lease { deadline: deadline.min(now.saturating_add(ttl)), ttl });
        }
    }
    all.sort_by_key(|(_, version)| version.revision);
    for (key, version) in all {
        state.push(&key, version);
    }
    if let Some(meta) = existing(transaction.open_table(META))? {
        let figure = |name: &str| -> Result<_, Error> { Ok(meta.get(name)?.map_or(0, |it| it.value())) };
        state.revision = state.revision.max(figure("revision")?);
        state.compact(figure("oldest")?);
    }
    Ok(state)
}

/// A batch reduced to its net effect.
#[derive(Default)]
struct Changes {
    revision: Revision,
    versions: BTreeMap<(String, Revision), Option<Version>>,
    leases: BTreeMap<LeaseId, Option<Lease>>,
    oldest: Option<Revision>,
}

impl Changes {
    fn of(batch: Batch) -> Changes {
        let mut changes = Changes::default();
        for (revision, logged) in batch {
            changes.revision = changes.revision.max(revision);
            logged.into_iter().for_each(|change| changes.add(change));
        }
        changes
    }

    fn add(&mut self, change: Change) {
        match change {
            Change::Version(key, version) => {
                self.versions.insert((key, version.revision), Some(version));
            }
            Change::Gone(key, revision) => {
                let at = (key, revision);
                // Versions created and removed within the batch are not written.
                if self.versions.remove(&at).flatten().is_none() {
                    self.versions.insert(at, None);
                }
            }
            Change::Lease(id, lease) => {
                self.leases.insert(id, lease);
            }
            Change::Compact(revision) => self.oldest = Some(revision),
        }
    }
}

/// Writes a batch, and records that it includes the log up to record `number`.
pub(super) fn commit(database: &Database, number: u64, batch: Batch) -> Result<(), Error> {
    let changes = Changes::of(batch);
    let mut versions = changes.versions.into_iter().peekable();
    loop {
        let mut transaction = database.begin_write()?;
        put(&transaction, versions.by_ref().take(AT_ONCE))?;
        if versions.peek().is_none() {
            rest(&transaction, number, changes.revision, &changes.leases, changes.oldest)?;
            return Ok(transaction.commit()?);
        }
        // A crash before the last transaction leaves none of these.
        transaction.set_durability(Durability::None)?;
        transaction.commit()?;
        std::thread::yield_now();
    }
}

fn put(
    transaction: &WriteTransaction,
    versions: impl Iterator<Item = ((String, Revision), Option<Version>)>,
) -> Result<(), Error> {
    let mut table = transaction.open_table(VERSIONS)?;
    for ((key, revision), version) in versions {
        let key = (key.as_str(), revision);
        match version {
            Some(Version { value: Some(value), lease, .. }) => {
                let lease = lease.unwrap_or(0).to_le_bytes();
                let parts: [&[u8]; 3] = [&[1], &lease, &value];
                table.insert(key, parts.concat().as_slice())?;
            }
            Some(_) => drop(table.insert(key, [0].as_slice())?),
            None => drop(table.remove(key)?),
        }
    }
    Ok(())
}

fn rest(
    transaction: &WriteTransaction,
    number: u64,
    revision: Revision,
    leases: &BTreeMap<LeaseId, Option<Lease>>,
    oldest: Option<Revision>,
) -> Result<(), Error> {
    let mut table = transaction.open_table(LEASES)?;
    for (id, lease) in leases {
        match lease {
            Some(lease) => table.insert(id, (lease.deadline, lease.ttl))?,
            None => table.remove(id)?,
        };
    }
    let mut meta = transaction.open_table(META)?;
    if revision > 0 {
        meta.insert("revision", revision)?;
    }
    if let Some(oldest) = oldest {
        meta.insert("oldest", oldest)?;
    }
    meta.insert("logged", number)?;
    Ok(())
}
