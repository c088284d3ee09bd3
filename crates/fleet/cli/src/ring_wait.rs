//! Waiting for a port's ring, which another program may have.

use crate::command_error::CommandError;
use crate::text;
use ringway_host::wait_readable;
use std::os::fd::BorrowedFd;
use std::path::Path;

/// How long a command waits before it says so, in nanoseconds.
const UNANNOUNCED: u64 = 1_000_000_000;

/// Waits until a ring that was asked for has come, or a signal; returns whether it is the ring. After a second it says
/// for what it waits.
pub fn comes(port: &Path, ring: BorrowedFd<'_>, signals: BorrowedFd<'_>) -> Result<bool, CommandError> {
    let both = [ring, signals];
    let mut ready = wait_readable(&both, Some(UNANNOUNCED)).map_err(CommandError::because)?;
    if !ready.contains(&true) {
        text::note(&format!(
            "waits for the ring of {}: connected, but it gives none; another program may have it, \
             or a pipe's other end is missing: `ringway ps` shows it",
            port.display()
        ));
        ready = wait_readable(&both, None).map_err(CommandError::because)?;
    }
    Ok(ready[0])
}

/// What a command says that was asked to end before it had a ring.
pub fn ended(port: &Path) -> String {
    format!("ended by a signal while it waited for the ring of {}", port.display())
}
