//! How commands fail: words for people, a number for scripts.

use crate::text;
use anstream::eprintln;
use std::io::IsTerminal;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Fail {
    /// It could not be done.
    #[error("{0}")]
    Failed(String),
    /// A fabric file is wrong.
    #[error("{0}")]
    File(#[from] ringway_control::file::Problems),
    /// An inventory or policy file is wrong.
    #[error("{0}")]
    Inventory(String),
    /// No fabric is up, or not the one that was asked for.
    #[error("{0}")]
    NotUp(String),
    /// There is no such port, switch or guest.
    #[error("{0}")]
    Unknown(String),
    /// It didn't happen in time.
    #[error("{0}")]
    Late(String),
    /// A command in a guest ended with this; it has said why itself.
    #[error("the command ended with {0}")]
    Status(u8),
}

impl Fail {
    /// Something failed, with the reason.
    pub fn because(error: impl std::fmt::Display) -> Fail {
        Fail::Failed(error.to_string())
    }

    /// The program's exit code. `docs/cli.md` lists them; 2 is for wrong arguments.
    pub fn code(&self) -> u8 {
        match self {
            Fail::Failed(_) => 1,
            Fail::File(_) | Fail::Inventory(_) => 3,
            Fail::NotUp(_) => 4,
            Fail::Unknown(_) => 5,
            Fail::Late(_) => 6,
            Fail::Status(status) => *status,
        }
    }

    /// Says it.
    pub fn print(&self) {
        match self {
            Fail::File(problems) => {
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
            Fail::Inventory(lines) => eprintln!("{lines}"),
            Fail::Status(_) => {}
            _ => eprintln!("{}error:{:#} {self}", text::BAD, text::BAD),
        }
    }
}
