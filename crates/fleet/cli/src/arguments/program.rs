//! `ringway program`.

use super::LogOptions;
use clap::Subcommand;

/// What to do with programs.
#[derive(Subcommand)]
pub enum ProgramCommand {
    /// List the programs.
    #[command(after_help = "\
Examples:
  ringway program list
  ringway program list --json")]
    List,
    /// Show all values of a program.
    #[command(after_help = "\
Examples:
  ringway program show web
  ringway program show web --json")]
    Show {
        /// The program.
        name: String,
    },
    /// Print what a program has written.
    #[command(after_help = "\
Examples:
  ringway program logs web --lines 20
  ringway program logs web --follow")]
    Logs {
        /// The program.
        name: String,
        /// How much of it.
        #[command(flatten)]
        logs: LogOptions,
    },
    /// Start programs.
    #[command(after_help = "\
Examples:
  ringway program start web")]
    Start {
        /// The programs.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Ask programs to end by SIGTERM; those that go on for five seconds are killed.
    #[command(after_help = "\
Examples:
  ringway program stop web")]
    Stop {
        /// The programs.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Stop programs, and start them again.
    #[command(after_help = "\
Examples:
  ringway program restart web")]
    Restart {
        /// The programs.
        #[arg(required = true)]
        names: Vec<String>,
    },
}
