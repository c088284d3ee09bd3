//! The configured plugins and their permissions.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Sources of external units.
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
    /// Whether there is no source.
    pub fn is_empty(&self) -> bool {
        self.folders.is_empty() && self.services.is_empty()
    }

    /// These sources and others; these have precedence over duplicates.
    pub fn and(&self, others: &Options) -> Options {
        let mut all = others.clone();
        all.folders.retain(|folder| !self.folders.iter().any(|ours| ours.path == folder.path));
        all.services.retain(|service| !self.services.iter().any(|ours| ours.url == service.url));
        all.folders.splice(0..0, self.folders.iter().cloned());
        all.services.splice(0..0, self.services.iter().cloned());
        all
    }

    /// Whether a folder of this name is configured. Services may be added later.
    pub fn has(&self, folder: &str) -> bool {
        self.folders.iter().any(|known| known.path.display().to_string() == folder)
    }

    /// The first folder that does not exist.
    pub fn lacks(&self) -> Option<&Path> {
        self.folders.iter().map(|folder| folder.path.as_path()).find(|path| !path.is_dir())
    }
}

/// A folder of Python plugins, run by its own process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Folder {
    /// The folder.
    pub path: PathBuf,
    /// Time limit of a unit in milliseconds.
    #[serde(default = "limit")]
    pub limit_ms: u32,
    /// Memory limit of all units together in MiB.
    #[serde(default = "memory")]
    pub memory_mb: u32,
    /// Whether they may make network connections.
    #[serde(default)]
    pub network: bool,
    /// Whether they may run on a kernel without landlock or seccomp.
    #[serde(default)]
    pub unconfined: bool,
}

impl Folder {
    /// A folder with default limits.
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
    /// Its address: `http://HOST:PORT/PATH`.
    pub url: String,
    /// Time limit of a unit in milliseconds.
    #[serde(default = "limit")]
    pub limit_ms: u32,
}

impl Service {
    /// A service with default limits.
    pub fn new(url: impl Into<String>) -> Service {
        Service { url: url.into(), limit_ms: limit() }
    }
}

/// Largest time limit of a unit in milliseconds.
const LONGEST: u32 = 30_000;

fn limit() -> u32 {
    1000
}

fn memory() -> u32 {
    1024
}

/// A time limit within the protocol's bounds.
pub(super) fn bounded(limit_ms: u32) -> Duration {
    Duration::from_millis(limit_ms.clamp(1, LONGEST).into())
}
