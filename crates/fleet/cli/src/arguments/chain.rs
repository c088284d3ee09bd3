//! `ringway chain`.

use clap::Subcommand;

/// What to show of chains.
#[derive(Subcommand)]
pub enum ChainCommand {
    /// List the chains: their state, their ports and functions in order.
    #[command(after_help = "\
Examples:
  ringway chain list
  ringway chain list --json")]
    List,
    /// Show a chain, and which of its functions does not run.
    #[command(after_help = "\
Examples:
  ringway chain show web")]
    Show {
        /// The chain.
        name: String,
    },
}
