//! The lookups of switches, as the file describes them. The data path's side of a lookup is `switch/LOOKUP.rs`.

mod fixed;
mod flow;
mod hash;
mod learning;

use ringway_spec::Kind;
use ringway_spec::file::{Diagnostics, Section, keys_of};
use std::sync::OnceLock;

/// The project's lookups, the default first.
const LOOKUPS: &[&dyn LookupKeys] = &[&learning::Learning, &fixed::Static, &hash::Hash, &flow::Flow];

/// Lookups of this program besides the project's.
static MORE: OnceLock<&'static [&'static dyn LookupKeys]> = OnceLock::new();

/// Adds lookups to the project's, for the whole process and once, before a file is read.
pub fn add(more: &'static [&'static dyn LookupKeys]) {
    // A later call has no effect.
    let _ = MORE.set(more);
}

/// Every lookup, the default first.
pub fn all() -> impl Iterator<Item = &'static dyn LookupKeys> {
    LOOKUPS.iter().chain(MORE.get().copied().unwrap_or_default()).copied()
}

/// A lookup's keys in the file.
pub trait LookupKeys: Sync {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Its keys, which no other lookup has.
    fn keys(&self) -> Vec<&'static str> {
        keys_of("switch.a", |section, diagnostics| self.read(section, diagnostics))
    }

    /// Reads its keys, each whether or not the file has it, and notes their errors.
    fn read(&self, section: &mut Section<'_>, diagnostics: &Diagnostics) -> Kind;

    /// The ports that it names, each preceded by its path below the switch.
    fn ports(&self, lookup: &Kind) -> Vec<(String, String)>;
}

/// The ports that a lookup names, each preceded by its path below the switch.
pub fn ports(lookup: &Kind) -> Vec<(String, String)> {
    let keys = all().find(|keys| keys.name() == lookup.name());
    keys.map(|keys| keys.ports(lookup)).unwrap_or_default()
}
