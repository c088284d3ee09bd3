//! The placement part of a fabric file.

use crate::plugins::Options;
use crate::power::PowerHook;
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
    /// The cluster that the fabric's own host belongs to, if it does.
    pub this_host: Option<String>,
    /// The program that switches hosts on and off.
    pub power: Option<PowerHook>,
}
