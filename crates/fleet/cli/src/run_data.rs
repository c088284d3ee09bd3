//! The `data` process.

use crate::arguments::Log;
use crate::command_error::CommandError;
use rustix::fs::{FileType, fstat};
use std::os::fd::OwnedFd;

/// Value of `oom_score_adj`, which makes the kernel's OOM killer prefer other processes.
///
/// Attack: guests that use up all memory. The memory that this process maps from guests counts as its own, but killing
/// this process would free none of that memory. It starts no child processes, which would inherit the value.
const OOM_SCORE: &str = "-900";

/// Runs the data path. Standard input is the link to `control`.
pub fn run(log: Log) -> Result<(), CommandError> {
    crate::name_process("ringway data");
    crate::log::start(log);
    let mode = fstat(rustix::stdio::stdin()).map_err(CommandError::because)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Socket {
        return Err(CommandError::Failed("`ringway data` is started by `ringway up`, not by hand".into()));
    }
    let link = rustix::stdio::stdin().try_clone_to_owned().map_err(CommandError::because)?;
    let null: OwnedFd = std::fs::File::open("/dev/null").map_err(CommandError::because)?.into();
    rustix::stdio::dup2_stdin(&null).map_err(CommandError::because)?;
    drop(null);
    // Without CAP_SYS_RESOURCE this fails, and the default stays.
    let _ = std::fs::write("/proc/self/oom_score_adj", OOM_SCORE);
    ringway_fabric::data::run(link, crate::kinds().data).map_err(CommandError::because)
}
