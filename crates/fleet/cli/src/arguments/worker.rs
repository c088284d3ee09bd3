//! `ringway worker`.

use clap::Subcommand;

/// What to show of workers.
#[derive(Subcommand)]
pub enum WorkerCommand {
    /// List the workers, which move frames: their queues, and how busy they are.
    #[command(after_help = "\
Examples:
  ringway worker list
  ringway worker list --json")]
    List,
    /// Show a worker: the queues that it serves and polls, its turns and sleeps, the time of turns that moved frames.
    #[command(after_help = "\
Examples:
  ringway worker show w0
  ringway worker show w0 --json")]
    Show {
        /// The worker.
        name: String,
    },
}
