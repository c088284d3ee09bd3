//! Which plugins there are, and what they may.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where units from outside come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The Python that runs plugin hosts, 3.11 or newer.
    pub python: PathBuf,
    /// Folders of Python plugins.
    pub folders: Vec<Folder>,
    /// Services in any language.
    pub services: Vec<Service>,
}

impl Default for Options {
    fn default() -> Options {
        Options { python: "python3".into(), folders: Vec::new(), services: Vec::new() }
    }
}

impl Options {
    /// Whether there is no source of units.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.services.is_empty()
    }

    /// These sources, and others beside them; where both have one it is as here.
    pub fn and(&self, others: &Options) -> Options {
        let mut all = others.clone();
        all.folders.retain(|folder| !self.folders.iter().any(|ours| ours.path == folder.path));
        all.services.retain(|service| !self.services.iter().any(|ours| ours.url == service.url));
        all.folders.splice(0..0, self.folders.iter().cloned());
        all.services.splice(0..0, self.services.iter().cloned());
        all
    }

    /// Whether a folder of this name is among them. Services may come later.
    pub fn has(&self, folder: &str) -> bool {
        self.folders.iter().any(|known| known.path.display().to_string() == folder)
    }

    /// The first of the folders that isn't there.
    pub fn lacks(&self) -> Option<&Path> {
        self.folders.iter().map(|folder| folder.path.as_path()).find(|path| !path.is_dir())
    }
}

/// A folder of Python plugins. It has a process of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Folder {
    /// The folder.
    pub path: PathBuf,
    /// How long a unit may take, in milliseconds.
    #[serde(default = "limit")]
    pub limit_ms: u32,
    /// How much memory the units may take together, in MiB.
    #[serde(default = "memory")]
    pub memory_mb: u32,
    /// Whether they may connect to others.
    #[serde(default)]
    pub network: bool,
    /// Whether they run, too, where the kernel has no landlock or no seccomp to confine them by.
    #[serde(default)]
    pub unconfined: bool,
}

impl Folder {
    /// A folder with the limits that hold when none is given.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder {
            path: path.into(),
            limit_ms: limit(),
            memory_mb: memory(),
            network: false,
            unconfined: false,
        }
    }
}

/// A service that answers the calls of `python/PROTOCOL.md` over HTTP.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// Where it answers: `http://HOST:PORT/PATH`.
    pub url: String,
    /// How long a unit may take, in milliseconds.
    #[serde(default = "limit")]
    pub limit_ms: u32,
}

impl Service {
    /// A service with the limits that hold when none is given.
    pub fn new(url: impl Into<String>) -> Service {
        Service { url: url.into(), limit_ms: limit() }
    }
}

/// The longest a unit may be given.
const LONGEST: u32 = 30_000;

fn limit() -> u32 {
    1000
}

fn memory() -> u32 {
    1024
}

/// A limit as the protocol takes it.
pub(super) fn bounded(limit_ms: u32) -> Duration {
    Duration::from_millis(limit_ms.clamp(1, LONGEST).into())
}
