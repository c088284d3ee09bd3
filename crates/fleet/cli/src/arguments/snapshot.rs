//! `ringway snapshot`.

use clap::Subcommand;

/// What to do with snapshots.
#[derive(Subcommand)]
pub enum SnapshotCommand {
    /// List the snapshots.
    #[command(after_help = "\
Examples:
  ringway snapshot list
  ringway snapshot list --json")]
    List,
    /// Show a snapshot: its function and ports, the memory that it keeps.
    #[command(after_help = "\
Examples:
  ringway snapshot show warm")]
    Show {
        /// The snapshot.
        name: String,
    },
    /// Remove snapshots. Their clones run on.
    #[command(after_help = "\
Examples:
  ringway snapshot remove warm")]
    Remove {
        /// The snapshots.
        #[arg(required = true)]
        names: Vec<String>,
    },
}
