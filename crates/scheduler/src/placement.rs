//! What a fabric file says of placement.

use crate::plugins::Options;
use ringway_place::object::Cluster;
use ringway_place::policy::Policy;

/// What a file says of placement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Where units from outside come from.
    pub plugins: Options,
    /// Policies.
    pub policies: Vec<Policy>,
    /// Clusters.
    pub clusters: Vec<Cluster>,
}
