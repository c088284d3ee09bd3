//! `ringway click`, and the program under the name `click`.
use crate::command_error::CommandError;
use ringway_click_driver::click::{self, Terminal};
use std::path::Path;
use std::process::ExitCode;

/// Runs as Click's driver if the program was called as `click`.
pub fn called_so() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let name = arguments.next()?;
    if Path::new(&name).file_name()? != "click" {
        return None;
    }
    let arguments: Vec<String> = arguments.collect();
    Some(ExitCode::from(click::run(&arguments, Terminal)))
}

/// Runs Click's driver, which prints its own errors, with columns and proposals.
pub fn run(arguments: &[String]) -> Result<(), CommandError> {
    match click::run_explaining(arguments, Terminal) {
        0 => Ok(()),
        status => Err(CommandError::Status(status)),
    }
}
