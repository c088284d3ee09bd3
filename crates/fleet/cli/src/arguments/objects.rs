//! `ringway port`, `ringway switch`, `ringway guest`, and the options of logs.

use super::whole;
use clap::{Args, Subcommand};

/// How much of a log.
#[derive(Args)]
pub struct LogOptions {
    /// Go on with what is logged, until the fabric is down.
    #[arg(long, short)]
    pub follow: bool,
    /// Only the last lines.
    #[arg(long, short = 'n', value_name = "N", value_parser = whole::<usize>)]
    pub lines: Option<usize>,
}

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
        /// How it finds a frame's destination: learning (the default), static or hash.
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
  ringway guest migrate left --cancel")]
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
