//! `ringway click`, and the program under the name `click`.
use crate::fail::Fail;
use ringway_function::click::{self, Terminal};
use std::path::Path;
use std::process::ExitCode;

/// Runs as Click's program if it was called so.
pub fn called_so() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().map(|argument| argument.to_string_lossy().into_owned());
    let name = arguments.next()?;
    if Path::new(&name).file_name()? != "click" {
        return None;
    }
    let arguments: Vec<String> = arguments.collect();
    Some(ExitCode::from(click::run(&arguments, Terminal)))
}

/// Runs a configuration; it has said itself what is wrong.
pub fn run(arguments: &[String]) -> Result<(), Fail> {
    match click::run(arguments, Terminal) {
        0 => Ok(()),
        status => Err(Fail::Status(status)),
    }
}
