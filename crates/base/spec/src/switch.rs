//! Switches.

use crate::Kind;
use serde::{Deserialize, Serialize};

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The name.
    pub name: String,
    /// The lookup, which finds the destination port of a frame.
    pub lookup: Kind,
    /// Whether it forwards frames of protocols between neighbours, to 01:80:C2:00:00:00 to 01:80:C2:00:00:0F.
    #[serde(default)]
    pub forward_reserved: bool,
}
