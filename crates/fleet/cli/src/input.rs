//! Files that the command line names.

use crate::command_error::CommandError;
use ringway_host::read_argument;
use std::path::Path;

/// The text of a file of at most `most` bytes; `what` names its content in messages.
pub fn text(file: &Path, most: usize, what: &str) -> Result<String, CommandError> {
    let wrong = |error| CommandError::Failed(format!("{}: {error}; give the path of {what}", file.display()));
    let bytes = read_argument(file, most).map_err(wrong)?;
    String::from_utf8(bytes).map_err(|error| wrong(std::io::Error::other(error)))
}
