//! Records the objects that a file describes, so that objects removed from the file can be deleted and others
//! stay.

use super::{Engine, EngineError};
use crate::store::Op;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// The store's key.
const KEY: &str = "described/file";

/// Names of objects that a file describes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Described {
    /// Policies.
    pub policies: BTreeSet<String>,
    /// Clusters.
    pub clusters: BTreeSet<String>,
}

impl Engine {
    /// The objects described by the last applied file.
    pub fn described(&self) -> Result<Described, EngineError> {
        let (_, entries) = self.store.range(KEY, None)?;
        // Attack: a store written by another program. An unreadable entry counts as empty.
        Ok(entries.first().and_then(|entry| serde_json::from_slice(&entry.value).ok()).unwrap_or_default())
    }

    /// The value stored under a name, separately from objects, if it can be read.
    pub fn noted<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, EngineError> {
        let key = format!("described/{name}");
        let (_, entries) = self.store.range(&key, None)?;
        let entry = entries.iter().find(|entry| entry.key == key);
        Ok(entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
    }

    /// Stores a value under a name, separately from objects.
    pub fn store_value<T: Serialize>(&self, name: &str, what: &T) -> Result<(), EngineError> {
        let revision =
            self.store.transact(&[], vec![super::put(&format!("described/{name}"), what, None)])?;
        Ok(self.store.durable(revision)?)
    }

    /// Stores the objects that a file describes.
    pub fn describe(&self, described: &Described) -> Result<(), EngineError> {
        if self.described()? == *described {
            return Ok(());
        }
        let op: Op = super::put(KEY, described, None);
        let revision = self.store.transact(&[], vec![op])?;
        Ok(self.store.durable(revision)?)
    }
}
