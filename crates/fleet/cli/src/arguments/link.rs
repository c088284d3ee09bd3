//! `ringway link`.

use clap::Subcommand;

/// What to do with links.
#[derive(Subcommand)]
pub enum LinkCommand {
    /// Show links, with counters and settings of both directions; `list` does the same.
    #[command(
        visible_alias = "list",
        after_help = "\
Examples:
  ringway link show
  ringway link show wan --json"
    )]
    Show {
        /// The link; by default all.
        name: Option<String>,
    },
    /// Change settings of a link until the next `apply`; frames under way arrive as before.
    #[command(after_help = "\
docs/link.md has the keys. An empty value is the default; @FILE is the content of a file.

Examples:
  ringway link set wan delay=50ms loss=1%
  ringway link set wan --from a rate=10Mbit queue='codel 5ms 100ms'
  ringway link set wan delay= delay-trace=@measured.txt")]
    Set {
        /// The link.
        name: String,
        /// The port of the direction to change; by default both change.
        #[arg(long, value_name = "PORT")]
        from: Option<String>,
        /// New values.
        #[arg(required = true, value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
}
