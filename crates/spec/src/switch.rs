//! Switches.

use crate::Kind;
use serde::{Deserialize, Serialize};

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// How it finds the destination port of a frame.
    pub lookup: Kind,
}
