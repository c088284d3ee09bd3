//! `ringway switch`.

use clap::Subcommand;

/// What to do with switches.
#[derive(Subcommand)]
pub enum SwitchCommand {
    /// Add a switch to the running fabric; a wrong request changes nothing.
    #[command(after_help = "\
docs/fabric-file.md has the keys of [switch.NAME]; values need no quotes, TABLE.KEY=VALUE is a key of a table.
`ringway apply` removes switches that its file does not have.

Examples:
  ringway switch add lab
  ringway switch add lab ageing=60s entries=65536")]
    Add {
        /// Its name.
        name: String,
        /// How it finds a frame's destination: learning (the default), static, hash or flow.
        #[arg(long)]
        lookup: Option<String>,
        /// Its other keys.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Remove switches without ports from the running fabric.
    #[command(after_help = "\
Examples:
  ringway switch remove lab")]
    Remove {
        /// The switches.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// List the switches, with their ports.
    #[command(after_help = "\
Examples:
  ringway switch list
  ringway switch list --json")]
    List,
    /// Show a switch: how it forwards, its ports, the number of addresses that it knows.
    #[command(after_help = "\
Examples:
  ringway switch show main
  ringway switch show main --json")]
    Show {
        /// The switch.
        name: String,
    },
    /// Show the ports with members of multicast groups and with routers, as a switch that snoops knows them.
    #[command(after_help = "\
Examples:
  ringway switch groups main
  ringway switch groups main --json")]
    Groups {
        /// The switch.
        name: String,
    },
    /// Show the addresses that a switch knows, and their ports.
    #[command(after_help = "\
Examples:
  ringway switch table main
  ringway switch table main --json")]
    Table {
        /// The switch.
        name: String,
    },
}
