//! The `data` process.

use crate::arguments::Log;
use crate::fail::Fail;
use rustix::fs::{FileType, fstat};
use std::os::fd::OwnedFd;

/// What the kernel subtracts from its score of who to end where memory is short.
///
/// Attack: guests that take all memory. What is mapped of theirs counts as this process's, and ending it frees none of
/// it. It starts no other process, which would inherit that.
const OOM_SCORE: &str = "-900";

/// Runs the data path over the link that standard input is.
pub fn run(log: Log) -> Result<(), Fail> {
    crate::log::start(log);
    let mode = fstat(rustix::stdio::stdin()).map_err(Fail::because)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Socket {
        return Err(Fail::Failed("`ringway data` is started by `ringway up`, not by hand".into()));
    }
    let link = rustix::stdio::stdin().try_clone_to_owned().map_err(Fail::because)?;
    let null: OwnedFd = std::fs::File::open("/dev/null").map_err(Fail::because)?.into();
    rustix::stdio::dup2_stdin(&null).map_err(Fail::because)?;
    drop(null);
    // Only who has CAP_SYS_RESOURCE may.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    ringway_fabric::data::run(link, crate::kinds().data).map_err(Fail::because)
}
