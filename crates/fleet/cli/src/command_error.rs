//! Errors of commands: a message for people, and an exit code for scripts.

use crate::text;
use anstream::eprintln;
use ringway_control::api::ProblemView;
use ringway_spec::printable_lines;
use std::io::IsTerminal;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The operation failed.
    #[error("{0}")]
    Failed(String),
    /// A fabric file is wrong.
    #[error("{0}")]
    File(#[from] ringway_spec::file::Problems),
    /// An inventory or policy file is wrong.
    #[error("{0}")]
    Inventory(String),
    /// No fabric is up, or the named one is not.
    #[error("{0}")]
    NotUp(String),
    /// There is no such port, switch or guest.
    #[error("{0}")]
    Unknown(String),
    /// A time limit expired.
    #[error("{0}")]
    Late(String),
    /// A command in a guest ended with this exit status; it printed its own errors.
    #[error("the command ended with {0}")]
    Status(u8),
}

/// The JSON form of an error.
#[derive(serde::Serialize)]
struct ErrorView {
    error: String,
    /// The exit code.
    code: u8,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    problems: Vec<ProblemView>,
}

impl CommandError {
    /// Something failed, with the reason.
    pub fn because(error: impl std::fmt::Display) -> CommandError {
        CommandError::Failed(error.to_string())
    }

    /// Changes the message of a failure that the fabric reported.
    pub fn map(self, change: impl FnOnce(String) -> String) -> CommandError {
        match self {
            CommandError::Failed(text) => CommandError::Failed(change(text)),
            CommandError::Unknown(text) => CommandError::Unknown(change(text)),
            CommandError::Late(text) => CommandError::Late(change(text)),
            other => other,
        }
    }

    /// The program's exit code. `docs/cli.md` lists them; 2 is for wrong arguments.
    pub fn code(&self) -> u8 {
        match self {
            CommandError::Failed(_) => 1,
            CommandError::File(_) | CommandError::Inventory(_) => 3,
            CommandError::NotUp(_) => 4,
            CommandError::Unknown(_) => 5,
            CommandError::Late(_) => 6,
            CommandError::Status(status) => *status,
        }
    }

    /// Prints the error to standard error, as a line of JSON if `json` is set.
    pub fn print(&self, json: bool) {
        match self {
            CommandError::Status(_) => {}
            _ if json => eprintln!("{}", text::to_json(&self.view())),
            _ => self.print_text(),
        }
    }

    fn view(&self) -> ErrorView {
        let problems = match self {
            CommandError::File(problems) => ProblemView::list(problems),
            _ => Vec::new(),
        };
        ErrorView { error: self.to_string(), code: self.code(), problems }
    }

    fn print_text(&self) {
        match self {
            CommandError::File(problems) => {
                let terminal = std::io::stderr().is_terminal();
                eprintln!("{}", problems.render(terminal));
                if terminal {
                    let count = problems.list.len();
                    eprintln!(
                        "{}{count} error{}{:#}",
                        text::BAD,
                        if count == 1 { "" } else { "s" },
                        text::BAD
                    );
                }
            }
            CommandError::Inventory(lines) => eprintln!("{}", printable_lines(lines)),
            _ => eprintln!("{}error:{:#} {}", text::BAD, text::BAD, printable_lines(&self.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::CommandError;

    #[test]
    fn json_errors_match_text_errors() {
        let json = crate::text::to_json(&CommandError::NotUp("no fabric is up".into()).view());
        assert_eq!(json, r#"{"error":"no fabric is up","code":4}"#);
    }
}
