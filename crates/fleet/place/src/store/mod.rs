//! The object store: keys and values with revisions, as in etcd, so that a distributed store can implement
//! the same trait.

mod codec;
mod embedded;
mod memory;

pub use codec::{decode, encode};
pub use embedded::{Embedded, Summary, backup, check, restore, salvage};
pub use memory::Memory;

use std::sync::Arc;

/// Counts changes; each transaction creates the next revision.
pub type Revision = u64;

/// A lease: its keys are deleted when it ends.
pub type LeaseId = u64;

/// A value.
pub type Value = Arc<[u8]>;

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Value,
    /// Revision of its last change.
    pub modified: Revision,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The transaction.
    pub revision: Revision,
    /// The key.
    pub key: String,
    /// Its new value; none if it was deleted.
    pub value: Option<Value>,
}

/// Condition of a transaction: the revision of a key's last change; 0 if the key must not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: String,
    /// Revision of its last change.
    pub modified: Revision,
}

/// An operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// Its value.
        value: Value,
        /// Its lease.
        lease: Option<LeaseId>,
    },
    /// Deletes a key, if it exists.
    Delete(String),
}

/// Errors of a store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A key was changed concurrently.
    #[error("{0} was changed meanwhile")]
    Conflict(String),
    /// The revision has been compacted.
    #[error("revision {requested} was compacted; the oldest is {oldest}")]
    Compacted {
        /// The requested revision.
        requested: Revision,
        /// The oldest available revision.
        oldest: Revision,
    },
    /// Unknown or ended lease.
    #[error("there is no lease {0}")]
    NoLease(LeaseId),
    /// The file can't be used.
    #[error("the store: {0}")]
    File(String),
    /// Files that may not hold everything that was acknowledged.
    #[error("the store: {0}")]
    Damaged(String),
    /// The disk is full.
    #[error(
        "the store's disk is full ({0}): nothing is changed until there is room; \
        the last request may still take effect"
    )]
    Full(String),
}

/// Keys and values with revisions.
pub trait Store: Send + Sync {
    /// Keys with `prefix`, in order, in their current state or that of revision `at`, and the revision of the
    /// result.
    fn range(&self, prefix: &str, at: Option<Revision>) -> Result<(Revision, Vec<Entry>), StoreError>;

    /// Performs all of `ops` if all of `compares` hold, or none.
    fn transact(&self, compares: &[Compare], ops: Vec<Op>) -> Result<Revision, StoreError>;

    /// The changes after a revision, in order.
    fn watch(&self, after: Revision) -> Result<Vec<Event>, StoreError>;

    /// The oldest available revision.
    fn oldest(&self) -> Revision;

    /// Creates a lease that ends `ttl` milliseconds after `now`, unless it is renewed.
    fn lease(&self, ttl: u64, now: u64) -> Result<LeaseId, StoreError>;

    /// Renews a lease.
    fn keep_alive(&self, lease: LeaseId, now: u64) -> Result<(), StoreError>;

    /// Removes the keys of leases that have ended.
    fn expire(&self, now: u64) -> Result<(), StoreError>;

    /// Drops the history before a revision.
    fn compact(&self, before: Revision) -> Result<(), StoreError>;

    /// Returns when everything up to a revision would survive a crash.
    fn durable(&self, revision: Revision) -> Result<(), StoreError>;
}
