//! Ports: where frames enter and leave the fabric.

use crate::{InstanceEnd, Notify, Policy};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: Kind,
    /// The UNIX socket to the peer, for kinds that have one.
    pub socket: Option<Socket>,
    /// Maximum number of queue pairs, at least 1.
    pub queues: u16,
    /// The destination of the port's frames; `None` for kinds whose frames don't pass the data path.
    pub to: Option<To>,
    /// Name of the worker that takes the port's frames; by default, the one with the fewest queues.
    pub worker: Option<String>,
    /// Nanoseconds that the port's frames wait for a full destination before they are dropped; by default,
    /// the worker's value.
    pub hold: Option<u64>,
    /// When the peer is notified.
    pub notify: Notify,
    /// Whose end it is, if that is a function that multiplies.
    #[serde(default)]
    pub instance: Option<InstanceEnd>,
    /// The port that gets the frames that are sent to this one; by default, this port itself. The directions of a link
    /// of a switch take each other's frames: the switch's port is the one that brings frames to it.
    #[serde(default)]
    pub receiver: Option<String>,
    /// What its switch lets it send and receive.
    #[serde(default, skip_serializing_if = "Policy::is_empty")]
    pub policy: Policy,
}

impl Port {
    /// A port with one queue pair, no socket, and default settings.
    pub fn new(name: &str, kind: Kind, to: Option<To>) -> Port {
        let (name, notify) = (name.into(), Notify::default());
        Port {
            name,
            kind,
            socket: None,
            queues: 1,
            to,
            worker: None,
            hold: None,
            notify,
            instance: None,
            receiver: None,
            policy: Policy::default(),
        }
    }
}

/// The destination of a port's frames.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum To {
    /// A switch.
    Switch(String),
    /// The other port of a patch, which may be added later.
    Patch(String),
}

/// A UNIX socket that a port listens on, or connects to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// The path, possibly relative to the run directory.
    pub path: PathBuf,
    /// Name or number of the owner.
    pub owner: Option<String>,
    /// Name or number of the group.
    pub group: Option<String>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// Kind of a port or lookup: its name in the file, and its settings.
///
/// The kind's own code (`port/KIND`, `switch/LOOKUP.rs`) defines the type of the settings, so that a kind can
/// be added without a change to this crate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    name: String,
    settings: serde_json::Value,
}

impl Kind {
    /// A kind with its settings, which must have a JSON form.
    pub fn new<S: Serialize>(name: &str, settings: &S) -> Kind {
        // Settings without a JSON form become null, which `settings` refuses.
        Kind { name: name.into(), settings: serde_json::to_value(settings).unwrap_or_default() }
    }

    /// The name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The settings.
    ///
    /// # Errors
    /// The settings have another type.
    pub fn settings<S: DeserializeOwned>(&self) -> Result<S, serde_json::Error> {
        S::deserialize(&self.settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_round_trip_only_as_their_own_type() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        struct Settings {
            rate: Option<u64>,
            mac: crate::MacAddress,
        }
        let settings = Settings { rate: Some(7), mac: crate::MacAddress([2, 0, 0, 0, 0, 1]) };
        let kind = Kind::new("example", &settings);
        let text = serde_json::to_string(&kind).unwrap();
        assert!(text.contains("\"02:00:00:00:00:01\""), "{text}");
        let read: Kind = serde_json::from_str(&text).unwrap();
        assert_eq!((read.name(), read.settings::<Settings>().unwrap()), ("example", settings));
        assert!(read.settings::<Vec<u8>>().is_err());
    }
}
