//! The lookups, one row each.

use crate::{FlowHash, Lookup, Mac, PortId, fixed, hash, learning};
use ringway_spec::Kind;
use std::sync::Arc;

/// Every lookup.
pub const LOOKUPS: &[LookupKind] = &[learning::LOOKUP, fixed::LOOKUP, hash::LOOKUP];

/// A kind of lookup.
pub struct LookupKind {
    /// Its name in the file.
    pub name: &'static str,
    /// Reads its settings.
    ///
    /// # Errors
    /// The settings belong to another kind.
    pub open: fn(&Kind) -> Result<Box<dyn Maker>, serde_json::Error>,
}

/// Creates a switch's lookup, and creates it again whenever the switch's set of ports has changed.
pub trait Maker: Send {
    /// The lookup for the current ports.
    fn make(&mut self, making: &Making<'_>) -> Arc<dyn Lookup>;
}

/// Inputs of a lookup in addition to its settings.
pub struct Making<'m> {
    /// The number of a port of the switch, by name.
    pub port: &'m dyn Fn(&str) -> Option<PortId>,
    /// Port numbers are below this.
    pub ports: usize,
    /// A hash with a secret key.
    pub hash: FlowHash,
    /// A random number that no peer knows.
    pub seed: u64,
    /// Called with each address of the file that did not fit into the table.
    pub lost: &'m dyn Fn(Mac),
}
