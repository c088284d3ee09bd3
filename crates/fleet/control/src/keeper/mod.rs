//! The keeper: holds what outlives `control`, so that another `control` goes on after a crash.
//!
//! It holds descriptors and texts under names, and what each port's peer told `data` (its records), and hands all of it
//! to the next `control`. It interprets nothing of this. It also becomes the parent of processes that outlive `control`
//! ([`Outliving`]), and keeps their exit statuses. `ringway up` is the keeper, and the parent of `control`
//! ([`process::run`]); where one process is enough, it is a thread ([`Keeper::thread`]).
//!
//! It also moves the fabric to another program: it starts the next `control` from it (`trial.rs`), and, once that one
//! serves the fabric, becomes that program itself in the same process, with what it holds (`image.rs`).

mod client;
mod image;
mod outlive;
pub mod process;
mod store;
mod trial;

pub use client::{Keeper, StoredEntry};
pub use image::FORMAT as IMAGE_FORMAT;
#[cfg(test)]
pub use image::tests::sample as image_example;
pub use outlive::{Outliving, end_strays};

use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// What `control` asks of the keeper.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// Hold a text, and the descriptors that come with it, in place of what had this name.
    Put { name: String, text: String },
    /// More descriptors of a name.
    More { name: String },
    /// Close what has this name.
    Remove { name: String },
    /// Hold the records of a port's new peer, with so many descriptors at most.
    Open { port: String, descriptors: usize },
    /// Close the records of a port's peer, which is gone.
    Close { port: String },
    /// Return the records of a port's peer.
    Records { port: String },
    /// Take records from this socket, which comes with it: its other end is the new `data` process's.
    Data,
    /// Return all entries, but no records.
    Entries,
    /// Start the next `control` from the program in the first descriptor, once this one has ended, and tell the second
    /// how that went.
    Upgrade,
    /// The `control` that sends this serves the fabric; a trial ([`TRIAL`]) has succeeded. The notes are for people.
    Serving { notes: Vec<String> },
    /// Leave this process, which outlives `control`, to [`Request::Status`] when it has ended.
    Watch { process: i32 },
    /// Return the wait status of this process, if it is the keeper's child by now and has ended, and forget it.
    Status { process: i32 },
    /// Forget this process.
    Unwatch { process: i32 },
}

/// What the keeper returns, until [`Response::End`].
#[derive(Debug, Serialize, Deserialize)]
enum Response {
    /// What has a name, with its descriptors.
    Named { name: String, text: String },
    /// More descriptors of the last one.
    More,
    /// A record, with its descriptors.
    Record { key: u32, bytes: Vec<u8> },
    /// The wait status of a process.
    Status { status: i32 },
    /// Nothing more.
    End,
}

/// The name of the socket to `data` among the entries.
pub const DATA: &str = "data-socket";
/// For entries that are a text only.
pub const NO_DESCRIPTORS: [&OwnedFd; 0] = [];

/// The name of an entry that tells `control` that it is another program than the one before it: [`NEW`], or why the
/// fabric went back to this program.
pub const TRIAL: &str = "upgrade";
/// The text of [`TRIAL`] for a new program.
pub const NEW: &str = "new";
