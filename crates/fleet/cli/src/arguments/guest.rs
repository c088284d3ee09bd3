//! `ringway guest`.

use super::LogOptions;
use crate::values::whole;
use clap::{Args, Subcommand, ValueEnum};

/// A guest to migrate.
#[derive(Args)]
pub struct Move {
    /// The guest.
    pub name: String,
    /// The control socket of another fabric of this host, or another host: ssh://[USER@]HOST[:PORT][/FABRIC].
    #[arg(long, value_name = "SOCKET|HOST")]
    pub to: Option<String>,
    /// Most megabytes of memory that are copied in a second while the guest runs; by default, as many as possible.
    #[arg(long, value_name = "MB", requires = "to",
        value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub bandwidth: Option<u64>,
    /// End a migration that runs: the guest goes on here.
    #[arg(long, conflicts_with = "to")]
    pub cancel: bool,
    /// Decide where the guest runs, if the other fabric is lost for good and did not say it: here (source), even if it
    /// may run there too, or there (destination), even if it may run nowhere then.
    #[arg(long, value_name = "WHERE", conflicts_with_all = ["to", "cancel"])]
    pub resolve: Option<End>,
}

/// One of the two fabrics of a migration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum End {
    /// The fabric where the guest was.
    Source,
    /// The fabric to which it was to go.
    Destination,
}

/// What to do with guests.
#[derive(Subcommand)]
pub enum GuestCommand {
    /// List the guests.
    #[command(after_help = "\
Examples:
  ringway guest list
  ringway guest list --json")]
    List,
    /// Show all values of a guest.
    #[command(after_help = "\
Examples:
  ringway guest show left
  ringway guest show left --json")]
    Show {
        /// The guest.
        name: String,
    },
    /// Print what a guest's console has said since it was started.
    #[command(after_help = "\
Examples:
  ringway guest logs left --lines 20
  ringway guest logs left --follow")]
    Logs {
        /// The guest.
        name: String,
        /// How much of it.
        #[command(flatten)]
        logs: LogOptions,
    },
    /// Start guests; they boot after the command has returned.
    #[command(after_help = "\
Examples:
  ringway guest start left
  ringway guest start left right && ringway guest wait")]
    Start {
        /// The guests.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Stop guests: they are asked to power off, and killed if they don't.
    #[command(after_help = "\
Examples:
  ringway guest stop left")]
    Stop {
        /// The guests.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Stop guests as `stop` does, and start them again; they boot after the command has returned.
    #[command(after_help = "\
Examples:
  ringway guest restart left && ringway guest wait left")]
    Restart {
        /// The guests.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Run a shell command in a guest; exit with the command's status.
    #[command(after_help = "\
Only guests with Ringway's own initial file system can run commands.

Examples:
  ringway guest exec left ping -c 3 10.77.0.2
  ringway guest exec left 'ip addr; uname -a'
  ringway guest exec left --timeout 90 -- iperf3 -c 10.77.0.2 -t 60")]
    Exec {
        /// The guest.
        name: String,
        /// Time limit in seconds.
        #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = whole::<u64>)]
        timeout: u64,
        /// The command; its words are joined by spaces and passed to the guest's shell.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Move a running QEMU guest to another fabric, of this host or another one.
    #[command(after_help = "\
The other fabric's file must describe the same guest, with start = false. It is checked before anything
changes. The command shows how far it is; without --to and --cancel, it shows that of one that runs. It goes
on if the command is interrupted. If it fails, the guest goes on where it was. Another host is reached by
ssh, with the keys of the user that runs this fabric.

Examples:
  ringway guest migrate left --to /run/ringway/other/api.sock
  ringway guest migrate left --to ssh://host2/other --bandwidth 100
  ringway guest migrate left --cancel

The guest stands still while its fabric asks the other one whether it runs there. If that one is lost for
good, say where the guest runs:
  ringway guest migrate left --resolve source")]
    Migrate(Move),
    /// Receive a guest from another host, on standard input and output; ssh runs this.
    #[command(after_help = "\
`ringway guest migrate --to ssh://HOST` runs it on HOST. It takes requests for the arrival of guests and
their memory, and nothing else.

Examples:
  ringway --fabric other guest receive

A line of ~/.ssh/authorized_keys for a key that may only bring guests:
  restrict,command=\"ringway --fabric other guest receive\" ssh-ed25519 AAAA... root@host1")]
    Receive,
    /// Wait until guests have booted and their network is up.
    #[command(after_help = "\
Examples:
  ringway guest wait
  ringway guest wait left --timeout 30")]
    Wait {
        /// The guests; by default all that run.
        names: Vec<String>,
        /// Maximum time to wait, in seconds.
        #[arg(long, default_value_t = 120, value_name = "SECONDS", value_parser = whole::<u64>)]
        timeout: u64,
    },
}
