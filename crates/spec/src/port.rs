//! Ports: where frames enter and leave the fabric.

use crate::Notify;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// The UNIX socket by which its peer comes, for kinds that have one.
    pub socket: Option<Socket>,
    /// Queue pairs at most, at least one.
    pub queues: u16,
    /// Where its frames go; `None` for a kind whose frames do not pass the data path.
    pub to: Option<To>,
    /// Name of the worker that takes its frames; the one with the fewest queues if none.
    pub worker: Option<String>,
    /// Nanoseconds that its frames wait for a full destination before they are dropped; its worker's if none.
    pub hold: Option<u64>,
    /// When its peer is notified.
    pub notify: Notify,
}

impl Port {
    /// A port with one queue pair and no socket, its other settings as in a file that does not mention them.
    pub fn new(name: &str, kind: Kind, to: Option<To>) -> Port {
        let (name, notify) = (name.into(), Notify::default());
        Port { name, kind, socket: None, queues: 1, to, worker: None, hold: None, notify }
    }
}

/// Where a port's frames go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum To {
    /// To a switch.
    Switch(String),
    /// To the other port of a patch, which may be added later.
    Patch(String),
}

/// A UNIX socket that a port listens on, or connects to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Socket {
    /// Its path; relative paths are relative to the run directory.
    pub path: PathBuf,
    /// Name or number of the user that owns it.
    pub owner: Option<String>,
    /// Name or number of the group that owns it.
    pub group: Option<String>,
    /// Permission bits.
    pub mode: Option<u32>,
}

/// Kind of a port or of a lookup: its name in the file, and the settings of that kind.
///
/// The settings' type belongs to the kind (`port/KIND`, `switch/LOOKUP.rs`), so that a kind can be added without a
/// change here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kind {
    name: String,
    settings: serde_json::Value,
}

impl Kind {
    /// A kind with its settings, which must be a struct of strings, numbers, lists and the like.
    pub fn new<S: Serialize>(name: &str, settings: &S) -> Kind {
        // A struct whose maps have string keys has a JSON form; what has none reads back as wrong settings.
        Kind { name: name.into(), settings: serde_json::to_value(settings).unwrap_or_default() }
    }

    /// Its name in the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its settings.
    ///
    /// # Errors
    /// The settings are those of another type.
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
