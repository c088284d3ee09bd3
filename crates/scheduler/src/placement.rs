//! The placement part of a fabric file.

use crate::plugins::Options;
use ringway_place::object::Cluster;
use ringway_place::policy::Policy;

/// The placement part of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Sources of external units.
    pub plugins: Options,
    /// Policies.
    pub policies: Vec<Policy>,
    /// Clusters.
    pub clusters: Vec<Cluster>,
}
