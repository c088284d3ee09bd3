//! Switches.

use ringway_wire::MacAddress;
use serde::{Deserialize, Serialize};

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// Its name.
    pub name: String,
    /// How it finds a frame's port.
    pub lookup: Lookup,
}

/// How a switch finds a frame's port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "lookup", rename_all = "kebab-case")]
pub enum Lookup {
    /// Learns source addresses, floods frames for unknown ones.
    Learning {
        /// Seconds after which an address that sends nothing is forgotten.
        ageing: u32,
        /// Addresses that it can hold.
        entries: u32,
    },
    /// Knows the addresses of the file; frames for others are dropped, those for groups are flooded.
    Static {
        /// Address and port name.
        entries: Vec<(MacAddress, String)>,
    },
    /// Frames from any port but the members go to one member, by flow hash; frames from a member to `uplink`.
    Hash {
        /// Port names.
        members: Vec<String>,
        /// Port name.
        uplink: String,
    },
}

impl Lookup {
    /// Its name in the file.
    pub fn name(&self) -> &'static str {
        match self {
            Lookup::Learning { .. } => "learning",
            Lookup::Static { .. } => "static",
            Lookup::Hash { .. } => "hash",
        }
    }
}
