//! What is reserved and not yet running.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A reservation: everything that a VM needs, on a host, until it runs there or its lease ends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pending {
    /// The VM.
    pub vm: String,
    /// The host.
    pub host: String,
    /// The decision that made it.
    pub decision: u64,
}
