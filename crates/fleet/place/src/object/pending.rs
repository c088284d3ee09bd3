//! Reservations of VMs that do not run yet.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A reservation of a VM's resources on a host, until the VM runs there or the lease ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pending {
    /// The VM.
    pub vm: String,
    /// The host.
    pub host: String,
    /// The decision that created it.
    pub decision: u64,
}
