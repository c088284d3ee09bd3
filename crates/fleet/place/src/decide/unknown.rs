//! Names that no object has.

use super::DecideError;
use crate::model::Model;
use ringway_spec::file::nearest;
use ringway_spec::printable;
use serde::{Deserialize, Serialize};

/// A name that no object has, and the most similar one that exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// The name.
    pub name: String,
    /// The similar name.
    pub near: Option<String>,
}

impl Unknown {
    fn new<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Unknown {
        let mut known: Vec<&str> = known.collect();
        // The names are sorted, so that the first of several equally similar ones is suggested.
        known.sort_unstable();
        let near = nearest(name, known.iter().copied()).map(str::to_string);
        Unknown { name: printable(name).into_owned(), near }
    }

    /// The remedy: the similar name, or `otherwise`.
    pub(super) fn fix(&self, otherwise: &str) -> String {
        self.near.as_ref().map_or_else(|| otherwise.into(), |near| format!("did you mean {near}?"))
    }
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

impl Model {
    /// The error for an unknown host.
    pub fn no_host(&self, name: &str) -> DecideError {
        DecideError::NoHost(Unknown::new(name, self.host_names()))
    }

    /// The error for an unknown VM.
    pub fn no_vm(&self, name: &str) -> DecideError {
        DecideError::NoVm(Unknown::new(name, self.vm_slots().map(|slot| slot.vm.name.as_str())))
    }

    /// The error for an unknown policy.
    pub fn no_policy(&self, name: &str) -> DecideError {
        DecideError::NoPolicy(Unknown::new(name, self.policies().keys().map(String::as_str)))
    }

    /// The error for an unknown cluster.
    pub fn no_cluster(&self, name: &str) -> DecideError {
        let known = self.clusters().iter().map(|state| state.cluster.name.as_str());
        DecideError::NoCluster(Unknown::new(name, known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_similar_name_is_suggested() {
        let unknown = |name: &str| Unknown::new(name, ["node-05", "node-04", "late"].into_iter());
        let message = |name: &str| DecideError::NoHost(unknown(name)).to_string();
        assert_eq!(message("node-4"), "there is no host node-4; did you mean node-04?");
        assert_eq!(message("db"), "there is no host db; `ringway place hosts` lists them");
    }
}
