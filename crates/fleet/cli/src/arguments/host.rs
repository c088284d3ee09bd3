//! `ringway host` and `ringway topo`.

use super::{LogOptions, whole};
use clap::{Args, Subcommand, ValueEnum};

/// What to do with hosts.
#[derive(Subcommand)]
pub enum HostCommand {
    /// List the hosts, with their addresses and programs.
    #[command(after_help = "\
Examples:
  ringway host list
  ringway host list --json")]
    List,
    /// Show all values of a host.
    #[command(after_help = "\
Examples:
  ringway host show h1
  ringway host show h1 --json")]
    Show {
        /// The host.
        name: String,
    },
    /// Print what a host's programs have written.
    #[command(after_help = "\
Examples:
  ringway host logs h1 --lines 20
  ringway host logs h1 --follow")]
    Logs {
        /// The host.
        name: String,
        /// How much of it.
        #[command(flatten)]
        logs: LogOptions,
    },
    /// Run a command in a host, or a shell; exit with its status. Needs root.
    #[command(after_help = "\
A word @HOST stands for that host's first address. A single word is passed to the shell. The command
ends when the host is removed.

Examples:
  ringway host exec h1 -- ping -c 3 @h2
  ringway host exec h1 'ip addr; ip route'
  ringway host exec h1   a shell")]
    Exec {
        /// The host.
        name: String,
        /// The command and its arguments; by default the shell that $SHELL names.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Let each host ping each other one. Needs root, and the program ping.
    #[command(after_help = "\
Examples:
  ringway host ping
  ringway host ping --count 10 --json")]
    Ping {
        /// Requests from each host to each other one.
        #[arg(long, default_value_t = 1, value_name = "N",
            value_parser = clap::value_parser!(u32).range(1..=10_000))]
        count: u32,
    },
}

/// What hosts of a topology are on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Shape {
    /// One switch.
    #[default]
    Single,
    /// A switch for each host; the switches are in a row.
    Linear,
}

/// A topology to bring up.
#[derive(Args)]
#[command(after_help = "\
Hosts h1, h2 ... have the addresses 10.0.0.1, 10.0.0.2 ...; each link has these settings in both directions,
so that a ping and its answer pass four links with `single`. docs/link.md has the values. With --ping, --exec
or --shell the topology is removed when they have ended, otherwise by Ctrl-C or `ringway down`. Needs root.

Examples:
  ringway topo --hosts 3 --rate 100mbit --delay 20ms --loss 1%
  ringway topo --hosts 3 --delay 20ms --ping
  ringway topo --hosts 2 --rate 10mbit --exec 'h1 ping -c 3 @h2'
  ringway topo --hosts 4 --shape linear --shell h1
  ringway topo --hosts 3 --loss 1% --print > lab.toml   a file to go on with")]
pub struct Topo {
    /// Number of hosts.
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=250))]
    pub hosts: u8,
    /// What they are on.
    #[arg(long, value_enum, default_value_t)]
    pub shape: Shape,
    /// Rate of each link.
    #[arg(long, value_name = "RATE")]
    pub rate: Option<String>,
    /// Delay of each link.
    #[arg(long, value_name = "TIME")]
    pub delay: Option<String>,
    /// Jitter of that delay.
    #[arg(long, value_name = "TIME", requires = "delay")]
    pub jitter: Option<String>,
    /// Share of frames that each link loses.
    #[arg(long, value_name = "SHARE")]
    pub loss: Option<String>,
    /// Queue of each link.
    #[arg(long, value_name = "QUEUE")]
    pub queue: Option<String>,
    /// Let each host ping each other one so many times.
    #[arg(long, value_name = "COUNT", num_args = 0..=1, require_equals = true, default_missing_value = "1",
        value_parser = whole::<u32>)]
    pub ping: Option<u32>,
    /// Run a command in a host; may be given several times.
    #[arg(long, value_name = "'HOST COMMAND'")]
    pub exec: Vec<String>,
    /// Run a shell in a host.
    #[arg(long, value_name = "HOST")]
    pub shell: Option<String>,
    /// Print the topology's file instead of bringing it up.
    #[arg(long, conflicts_with_all = ["ping", "exec", "shell"])]
    pub print: bool,
}
