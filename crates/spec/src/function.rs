//! Functions: Click configurations that run in processes of their own, on ring ports.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Its configuration.
    pub configuration: Configuration,
    /// The configuration's parameters, names and values.
    pub parameters: Vec<(String, String)>,
    /// Names of its ring ports.
    pub ports: Vec<String>,
    /// Bytes of memory at most.
    pub memory: u64,
    /// The core that it is pinned to.
    pub core: Option<usize>,
    /// Frames that it handles at once.
    pub burst: u32,
    /// Whether it starts with the fabric.
    pub start: bool,
}

/// A Click configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Configuration {
    /// The file that it was read from.
    pub file: Option<PathBuf>,
    /// Its text.
    pub text: String,
}

impl Function {
    /// The configuration's name in messages of Click: its file, else the function's name.
    pub fn title(&self) -> &str {
        let file = self.configuration.file.as_ref().and_then(|file| file.to_str());
        file.unwrap_or(&self.name)
    }
}
