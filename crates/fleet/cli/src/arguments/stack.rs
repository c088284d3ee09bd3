//! `ringway stack`.

use crate::values::sample;
use clap::{Args, Subcommand, ValueEnum};
use ringway_exec::query::Format;
use std::path::PathBuf;

/// What to show of a program's TCP/IP stack.
#[derive(Subcommand)]
pub enum StackCommand {
    /// List the programs whose stacks can be shown.
    #[command(after_help = "\
Examples:
  ringway stack list
  ringway stack list --json")]
    List,
    /// Show whose stack it is, and how many sockets it has.
    #[command(after_help = "\
Examples:
  ringway stack show web")]
    Show {
        /// The program.
        name: String,
    },
    /// Show sockets, as `ss -tin` does.
    #[command(after_help = "\
A program's bytes that wait between it and the stack are not in the queues.

Examples:
  ringway stack ss web         TCP connections
  ringway stack ss web --all   listening sockets too
  ringway stack ss web --udp")]
    Ss {
        /// The program.
        name: String,
        /// Show listening sockets too.
        #[arg(long, short)]
        all: bool,
        /// Show listening sockets alone.
        #[arg(long, short, conflicts_with = "all")]
        listening: bool,
        /// Show UDP sockets.
        #[arg(long, short)]
        udp: bool,
    },
    /// Show counters of protocols, as `netstat -s` does.
    #[command(after_help = "\
Examples:
  ringway stack netstat web
  ringway stack netstat web --json   the names of /proc/net/snmp and /proc/net/netstat")]
    Netstat {
        /// The program.
        name: String,
    },
    /// Show settings, as `sysctl net.ipv4` does.
    #[command(after_help = "\
Examples:
  ringway stack sysctl web
  ringway stack sysctl web net.ipv4.tcp_congestion_control net.ipv4.tcp_rmem")]
    Sysctl {
        /// The program.
        name: String,
        /// Only these settings, and those below.
        settings: Vec<String>,
    },
    /// Show routes, as `ip route` does.
    #[command(after_help = "\
Examples:
  ringway stack route web
  ringway stack route web -6")]
    Route {
        /// The program.
        name: String,
        /// Show those of IPv6.
        #[arg(short = '6')]
        v6: bool,
    },
    /// Show neighbours and their link-layer addresses, as `ip neigh` does.
    #[command(after_help = "\
Examples:
  ringway stack neigh web")]
    Neigh {
        /// The program.
        name: String,
    },
    /// Record a connection's window, rates and round-trip times, until it ends or the time is over.
    #[command(after_help = "\
docs/stack.md explains the figures.

Examples:
  ringway stack trace web --seconds 5 > trace.svg
  ringway stack trace web --connection 10.0.0.2:40000 --format csv
  ringway stack trace web --format qlog --output trace.qlog")]
    Trace(Trace),
}

/// A connection to record.
#[derive(Args)]
pub struct Trace {
    /// The program.
    pub name: String,
    /// The connection with this own or peer's address; by default, the one that has moved the most bytes.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub connection: Option<String>,
    /// Seconds to record.
    #[arg(long, default_value_t = 5.0, value_name = "SECONDS", value_parser = sample)]
    pub seconds: f64,
    /// The form.
    #[arg(long, value_enum, default_value_t)]
    pub format: Form,
    /// The file to write; by default, standard output.
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// The form of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// An image.
    #[default]
    Svg,
    /// A table, a line a point.
    Csv,
    /// qlog's JSON.
    Qlog,
}

impl From<Form> for Format {
    fn from(form: Form) -> Format {
        match form {
            Form::Svg => Format::Svg,
            Form::Csv => Format::Csv,
            Form::Qlog => Format::Qlog,
        }
    }
}
