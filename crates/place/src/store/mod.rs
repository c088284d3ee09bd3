//! Where objects are kept: keys and values with revisions, as etcd has them, so that a store of several
//! machines fits the
//! same trait.

mod codec;
mod embedded;
mod memory;

pub use codec::{decode, encode};
pub use embedded::{Embedded, Summary, backup, check, restore, salvage};
pub use memory::Memory;

use std::sync::Arc;

/// Counts changes; each transaction makes the next.
pub type Revision = u64;

/// A lease: keys under it go when it ends.
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
    /// When it was last changed.
    pub modified: Revision,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The transaction.
    pub revision: Revision,
    /// The key.
    pub key: String,
    /// Its new value; none if it is gone.
    pub value: Option<Value>,
}

/// What must hold for a transaction: when a key was last changed; 0 says that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// The key.
    pub key: String,
    /// When it was last changed.
    pub modified: Revision,
}

/// What a transaction does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a key.
    Put {
        /// The key.
        key: String,
        /// Its value.
        value: Value,
        /// The lease it is under.
        lease: Option<LeaseId>,
    },
    /// Removes a key; nothing if there is none.
    Delete(String),
}

/// Why a store did not do it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A key was changed meanwhile.
    #[error("{0} was changed meanwhile")]
    Conflict(String),
    /// What was so long ago is no longer known.
    #[error("revision {asked} is no longer known; the oldest is {oldest}")]
    Compacted {
        /// The revision asked for.
        asked: Revision,
        /// The oldest that is known.
        oldest: Revision,
    },
    /// There is no such lease, or it has ended.
    #[error("there is no lease {0}")]
    NoLease(LeaseId),
    /// The file can't be used.
    #[error("the store: {0}")]
    File(String),
    /// Files that may not hold everything that was acknowledged.
    #[error("the store: {0}")]
    Damaged(String),
    /// There is no room on the disk.
    #[error(
        "the store's disk is full ({0}): nothing is changed until there is room; \
        what was asked last may count then"
    )]
    Full(String),
}

/// Keys and values with revisions.
pub trait Store: Send + Sync {
    /// Keys that begin with `prefix`, in their order, as they are, or as they were after transaction `at`; with the
    /// revision they are of.
    fn range(&self, prefix: &str, at: Option<Revision>) -> Result<(Revision, Vec<Entry>), StoreError>;

    /// Does all of `ops` if all of `compares` hold, or nothing.
    fn transact(&self, compares: &[Compare], ops: Vec<Op>) -> Result<Revision, StoreError>;

    /// What changed after a revision, in order.
    fn watch(&self, after: Revision) -> Result<Vec<Event>, StoreError>;

    /// What is before this revision is no longer known.
    fn oldest(&self) -> Revision;

    /// A lease that ends `ttl` milliseconds after `now`, unless it is kept alive.
    fn lease(&self, ttl: u64, now: u64) -> Result<LeaseId, StoreError>;

    /// Lets a lease begin anew.
    fn keep_alive(&self, lease: LeaseId, now: u64) -> Result<(), StoreError>;

    /// Removes the keys of leases that have ended.
    fn expire(&self, now: u64) -> Result<(), StoreError>;

    /// Forgets what was before a revision.
    fn compact(&self, before: Revision) -> Result<(), StoreError>;

    /// Returns when everything up to a revision would survive a crash.
    fn durable(&self, revision: Revision) -> Result<(), StoreError>;
}
