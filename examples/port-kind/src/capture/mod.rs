//! The data side: a port that writes the frames sent to it to a file.

mod peer;
mod rx;

pub use peer::KIND;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Settings of a port of this kind.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    /// Where frames are written.
    pub file: PathBuf,
    /// Bytes of a frame that are kept at most.
    pub snap_len: u32,
}
