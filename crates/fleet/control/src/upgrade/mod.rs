//! Moving a running fabric to another program: `ringway upgrade`.
//!
//! A client sends an [`UpgradeRequest`] with the program's descriptor to the fabric's socket for upgrades (`serve.rs`).
//! `control` checks who may have written the program (`binary.rs`), and makes the program check whether it can go on
//! with the fabric (`check.rs`): it compares formats (`formats.rs`), and reads everything that it would go on with.
//! Nothing has changed until then. Then `control` ends, and the keeper starts the next one from the program
//! (`keeper/trial.rs`), which goes on with the fabric as after a crash and starts another `data` process
//! (`engine/replace.rs`). When that serves the fabric, the keeper becomes the program too. If any step fails, the
//! fabric goes back to the former program.

mod binary;
mod check;
mod formats;
mod serve;

pub use check::{Running, Verdict, check};
pub use formats::{FORMATS, Format};
pub(crate) use serve::serve;

use serde::{Deserialize, Serialize};

/// The word with which `control` runs a program to check whether that can go on with the fabric.
pub const CHECK: &str = "upgrade-check";

/// What a client wants; the program's descriptor comes with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct UpgradeRequest {
    /// Only check the program.
    pub only_check: bool,
    /// Go on although peers lose their devices.
    pub disconnect: bool,
}

/// The answers, in this order: one of the first two, and one of the others after [`UpgradeAnswer::Checked`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpgradeAnswer {
    /// Nothing is changed, for these reasons.
    Refused(Vec<String>),
    /// The program can go on with the fabric.
    Checked {
        /// Version of the program that runs.
        from: String,
        /// Version of the other program.
        to: String,
        /// What happens besides, for people.
        notes: Vec<String>,
    },
    /// The fabric went back to the former program, for this reason.
    Failed(String),
    /// The fabric runs with the other program.
    Done {
        /// What happened besides, for people.
        notes: Vec<String>,
    },
}
