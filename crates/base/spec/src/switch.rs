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
    /// Whether groups go to their members only, which are learned by IGMP and MLD; otherwise they go to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snooping: Option<Snooping>,
}

/// Snooping of IGMP and MLD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snooping {
    /// Whether a port has no member any more once one leaves.
    pub fast_leave: bool,
}
