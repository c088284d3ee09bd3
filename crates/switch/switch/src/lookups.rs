//! The lookups, one row each.

use crate::{FlowHash, FlowTables, Lookup, Mac, PortId, fixed, flows, hash, learning};
use ringway_spec::Kind;
use std::sync::{Arc, OnceLock};

/// The project's lookups.
const LOOKUPS: &[LookupKind] = &[learning::LOOKUP, fixed::LOOKUP, hash::LOOKUP, flows::LOOKUP];

/// Lookups of this program besides the project's.
static MORE: OnceLock<&'static [LookupKind]> = OnceLock::new();

/// Adds lookups to the project's, for the whole process and once, before a switch is added.
pub fn add_lookups(more: &'static [LookupKind]) {
    // A later call has no effect.
    let _ = MORE.set(more);
}

/// The lookup of this name.
pub fn lookup(name: &str) -> Option<&'static LookupKind> {
    LOOKUPS.iter().chain(MORE.get().copied().unwrap_or_default()).find(|kind| kind.name == name)
}

/// A kind of lookup.
pub struct LookupKind {
    /// The name in the file.
    pub name: &'static str,
    /// Reads the settings.
    ///
    /// # Errors
    /// The settings belong to another kind.
    pub open: fn(&Kind) -> Result<Box<dyn LookupFactory>, serde_json::Error>,
}

/// Creates a switch's lookup, again whenever the switch's set of ports has changed.
pub trait LookupFactory: Send {
    /// The lookup for the current ports.
    fn make(&mut self, context: &LookupContext<'_>) -> Arc<dyn Lookup>;

    /// The flow tables, if the lookup has some.
    fn flows(&mut self) -> Option<&mut FlowTables> {
        None
    }
}

/// Inputs for creating a lookup, in addition to its settings.
pub struct LookupContext<'m> {
    /// Maps the name of a port of the switch to the port's number.
    pub port: &'m dyn Fn(&str) -> Option<PortId>,
    /// Limit of port numbers.
    pub ports: usize,
    /// A hash with a secret key.
    pub hash: FlowHash,
    /// Whether frames of protocols between neighbours are forwarded ([`crate::RESERVED`]).
    pub forward_reserved: bool,
    /// A random number that no peer knows.
    pub seed: u64,
    /// Called with each configured address that did not fit into the table.
    pub rejected: &'m dyn Fn(Mac),
}
