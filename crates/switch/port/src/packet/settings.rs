//! The settings of a port.

use serde::{Deserialize, Serialize};

/// Settings of a port of this kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Name of the interface.
    pub interface: String,
    /// Name or path of the network namespace that the interface is in; ours if none.
    pub namespace: Option<String>,
    /// Whether frames to other addresses than the interface's arrive.
    pub promiscuous: bool,
}
