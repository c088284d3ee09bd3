//! Hosts: network namespaces of this machine that stand for machines of their own.

use serde::{Deserialize, Serialize};

/// A host of the fabric: a network namespace, in which interfaces of ports are and programs run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The name.
    pub name: String,
    /// Commands of the shell that run in it, each for as long as the fabric is up or until it ends by itself.
    pub programs: Vec<String>,
}
