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
}
