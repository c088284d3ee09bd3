//! The data side: a port that writes the frames sent to it to a file.

mod peer;
mod rx;

pub use peer::KIND;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Settings of a port of this kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// The output file.
    pub file: PathBuf,
    /// Maximum bytes stored of a frame.
    pub snap_len: u32,
}
