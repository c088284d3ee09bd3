//! A port that replays a capture file, and records what it receives.
//!
//! `data` opens no files: `control` reads the file into an image (`image.rs`) and passes its memory; recorded frames go
//! through a ring in shared memory, from which `control` writes the file.

mod image;
mod peer;
mod rx;
mod tx;

pub use image::{Image, LARGEST_FILE, ReplayError, Skipped};
pub use peer::KIND;

use crate::Doorbell;
use image::Frames;
use ringway_frame::CountersRef;
use ringway_mem::Published;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Settings of a port of this kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The file that it sends.
    pub file: Option<String>,
    /// The file that it writes.
    pub record: Option<String>,
    /// Thousandths of the recorded speed; 0 for as fast as possible.
    pub speed: u32,
    /// Whether the file is sent over and over.
    pub repeat: bool,
}

/// What the port's queues and its peer share.
struct Shared {
    frames: Published<Frames>,
    recording: Published<Option<rx::Recording>>,
    counters: CountersRef,
    doorbell: Arc<dyn Doorbell>,
}
