//! `ringway port`.

use clap::Subcommand;

/// What to do with ports.
#[derive(Subcommand)]
pub enum PortCommand {
    /// List the ports.
    #[command(after_help = "\
Examples:
  ringway port list
  ringway port list --json")]
    List,
    /// Show all values of a port; `ringway stats NAME` shows its counters.
    #[command(after_help = "\
Examples:
  ringway port show left
  ringway port show left --json")]
    Show {
        /// The port.
        name: String,
    },
    /// Connect the cable: the guest's driver sees a carrier, and frames pass.
    #[command(after_help = "\
Examples:
  ringway port up left")]
    Up {
        /// The ports.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Disconnect the cable: the guest's driver loses the carrier, and no frames pass, until `up` or `ringway apply`.
    #[command(after_help = "\
Examples:
  ringway port down left")]
    Down {
        /// The ports.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Add a port to the running fabric; a wrong request changes nothing.
    #[command(after_help = "\
docs/fabric-file.md has the keys of [port.NAME]; values need no quotes, TABLE.KEY=VALUE is a key of a table.
`ringway apply` removes ports that its file does not have.

Examples:
  ringway port add left --kind ring --switch main socket=left.sock
  ringway port add host --kind tap --switch main interface=rw0 address=10.0.0.1/24
  ringway port add far --kind ring --switch main socket=far.sock mode=0660 link.delay=20ms")]
    Add {
        /// Its name.
        name: String,
        /// Its kind, such as ring, tap or vhost-user.
        #[arg(long)]
        kind: String,
        /// Its switch.
        #[arg(long)]
        switch: Option<String>,
        /// Its other keys.
        #[arg(value_name = "KEY=VALUE")]
        settings: Vec<String>,
    },
    /// Change what a switch lets a port send and receive, while frames pass; a wrong request changes nothing.
    #[command(after_help = "\
docs/policy.md has the keys; KEY= is the default. `ringway apply` sets what its file says.

Examples:
  ringway port set left tag=10
  ringway port set uplink trunks=10,20-29 native=1
  ringway port set left tag= isolated=true
  ringway port set left allow-mac=02:00:00:00:00:01 allow=10.0.0.2,2001:db8::/64")]
    Set {
        /// The port.
        name: String,
        /// Its new values.
        #[arg(value_name = "KEY=VALUE", required = true)]
        settings: Vec<String>,
    },
    /// Remove ports from the running fabric; their peers are sent away.
    #[command(after_help = "\
Examples:
  ringway port remove left")]
    Remove {
        /// The ports.
        #[arg(required = true)]
        names: Vec<String>,
    },
}
