//! The command line.

mod capture;
mod chain;
mod events;
mod exec;
mod flow;
mod function;
mod guest;
mod host;
mod keys;
mod link;
mod log_options;
mod pktgen;
mod port;
mod profile;
mod program;
mod snapshot;
mod stack;
mod switch;
mod token;
mod trace;
mod up;
mod worker;

pub use capture::{CaptureArguments, CaptureDirection};
pub use chain::ChainCommand;
pub use events::EventOptions;
pub use exec::{Exec, StackKind};
pub use flow::{FlowChange, FlowCommand, FlowObject};
pub use function::{CreateFunction, FunctionCommand};
pub use guest::{End, GuestCommand, Move};
pub use host::{HostCommand, Shape, Topo};
pub use keys::FunctionKeys;
pub use link::LinkCommand;
pub use log_options::LogOptions;
pub use pktgen::{At, Ping, PktgenCommand, Pong, Rfc2544, Rx, Tx, Until};
pub use port::PortCommand;
pub use profile::ProfileArguments;
pub use program::ProgramCommand;
pub use snapshot::SnapshotCommand;
pub use stack::{StackCommand, Trace};
pub use switch::SwitchCommand;
pub use token::{RoleWord, TokenCommand};
pub use trace::TraceArguments;
pub use up::{Log, Up};
pub use worker::WorkerCommand;

use crate::place::arguments::PlaceArguments;
use crate::remote::ApiUrl;
use crate::tiny::arguments::TinyCommand;
use crate::values::{interval, name, sample, whole};
use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;

/// Connects virtual machines, programs and the host at memory speed, from user space.
#[derive(Parser)]
#[command(
    name = "ringway",
    version,
    max_term_width = 100,
    after_help = "\
Examples:
  ringway up examples/two-guests.toml --detach   bring a fabric up
  ringway ps                                     see its ports and guests
  ringway stats --watch                          see its rates
  ringway down                                   take it down"
)]
pub struct Arguments {
    /// The fabric.
    #[command(flatten)]
    pub target: Target,
    /// Print JSON.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The running fabric that a command is for; the only one that is up, if neither is given.
#[derive(Args, Clone, Default)]
pub struct Target {
    /// The fabric's control socket.
    #[arg(long, global = true, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The fabric's name; for `up`, instead of the file's.
    #[arg(long, global = true, value_name = "NAME", value_parser = name)]
    pub fabric: Option<String>,
    /// The API's TCP address, such as https://lab.example:9467, of a fabric on any host.
    #[arg(long, global = true, value_name = "URL", value_parser = ApiUrl::read)]
    pub api: Option<ApiUrl>,
    /// The file with the token for --api; a client's certificate and key (PEM) may be there instead.
    #[arg(long, global = true, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// What --api is known by: a file of certificates (PEM), or sha256: and the certificate's fingerprint.
    #[arg(long, global = true, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Bring up the fabric described by a file, and serve it until it is shut down.
    #[command(after_help = "\
Ends on SIGINT, SIGTERM or `ringway down`, and removes everything that it created.

Examples:
  ringway up examples/two-guests.toml
  ringway up lab.toml --detach
  ringway --fabric second up rings.toml --detach   a second fabric from the same file, if it has no TAP
  ringway up lab.toml --extender=10.0.0.5:10263  for kube-scheduler; see docs/placement.md
  ringway up lab.toml --metrics                  for Prometheus; see docs/metrics.md
  ringway up lab.toml --page                     for browsers; see docs/page.md
  ringway up lab.toml --listen=10.0.0.5:9467     the API over TLS; see docs/remote.md
  ringway up lab.toml --log json 2> lab.log")]
    Up(Up),
    /// Change the running fabric to the state described by a file, one change at a time.
    #[command(after_help = "\
Unchanged parts of the fabric keep running. An invalid file changes nothing.

Examples:
  ringway apply lab.toml
  ringway apply lab.toml --dry-run   the changes that would be made
  ringway apply lab.toml --json")]
    Apply {
        /// The fabric file.
        file: PathBuf,
        /// Change nothing; print the changes that would be made.
        #[arg(long)]
        dry_run: bool,
    },
    /// Write the fabric file that describes what runs: the last one, with what commands have changed since then.
    #[command(after_help = "\
Comments and order of the file stay. Relative paths in it are relative to its folder.

Examples:
  ringway save             print it
  ringway save lab.toml
  ringway apply lab.toml --dry-run   no difference")]
    Save {
        /// The file to write; without it, it is printed.
        file: Option<PathBuf>,
    },
    /// Take a fabric down.
    #[command(after_help = "\
Examples:
  ringway down
  ringway --fabric lab down")]
    Down,
    /// Move a running fabric to another version of this program.
    #[command(after_help = "\
Ports, their peers and counters stay; frames wait for some milliseconds. The program is checked first,
and a refused one changes nothing. If it fails later, the fabric goes back to the program that it ran.

Examples:
  ringway upgrade                           the fabric runs this program from now on
  ringway upgrade --binary ./ringway-new
  ringway upgrade --binary ./ringway-new --check")]
    Upgrade(Upgrade),
    /// Report all errors in a fabric file.
    #[command(after_help = "\
Each error is a line file:line:column: error; remedy. The exit code is 3 if there are any.

Examples:
  ringway check lab.toml
  ringway check lab.toml --json")]
    Check {
        /// The fabric file.
        file: PathBuf,
    },
    /// Show a fabric's ports, guests, functions and chains: kinds, peers, state.
    #[command(after_help = "\
Examples:
  ringway ps
  ringway ps --json")]
    Ps,
    /// Show each port's counters, or rates.
    #[command(after_help = "\
TX is what a port's peer sends, RX what it receives. Reading counters costs the data path nothing.

Examples:
  ringway stats
  ringway stats left           one port
  ringway stats --watch
  ringway stats --watch --interval 0.2 --count 5
  ringway stats --watch --json
  ringway stats left --exits   where a card's accesses and interrupts go")]
    Stats(Stats),
    /// Show what has happened in a fabric: peers, changes, ends and starts of processes, functions and guests.
    #[command(after_help = "\
The last 1024 events are kept, until the control process ends.

Examples:
  ringway events
  ringway events --follow
  ringway events --follow --json   a line each, for programs")]
    Events(EventOptions),
    /// Show who asked for changes of a fabric, and what came of it.
    #[command(after_help = "\
Each request to the API that is not a query is logged, those of other commands too. The log is a file,
`audit.log` in the run directory, or the one that `audit` in [fabric] names.

Examples:
  ringway audit
  ringway audit --count 1000 --json")]
    Audit {
        /// The newest so many at most.
        #[arg(long, default_value_t = 50, value_parser = whole::<usize>)]
        count: usize,
    },
    /// List, add and remove clients of the API at its TCP address.
    #[command(after_help = "\
Examples:
  ringway token add grafana --role read > grafana.token
  ringway token list
  ringway token remove grafana")]
    Token {
        /// What to do.
        #[command(subcommand)]
        command: TokenCommand,
    },
    /// Print the URL of the fabric's page for browsers, with a new token in place of the former one.
    #[command(after_help = "\
docs/page.md shows the page. It is served if the fabric was brought up with --page.

Examples:
  ringway page
  ringway page --role read --name wall   a token of its own, which may change nothing")]
    Page {
        /// What the page may do.
        #[arg(long, value_enum, default_value = "operate")]
        role: RoleWord,
        /// The token's name.
        #[arg(long, default_value = "page", value_parser = name)]
        name: String,
    },
    /// Print the log of a fabric that writes it to a file, as one brought up by `up --detach` does.
    #[command(after_help = "\
`ringway guest logs`, `ringway host logs` and `ringway function logs` print those of a part of it.

Examples:
  ringway logs
  ringway logs --follow --lines 20")]
    Logs(LogOptions),
    /// Show what VMs, functions and guests use: processor time, memory, rates of their ports; the busiest first.
    #[command(after_help = "\
TX is what it sends, RX what it receives. A function on a worker has no process of its own.

Examples:
  ringway top
  ringway top --interval 0.5
  ringway top --count 1 --json   one sample, for programs")]
    Top(Top),
    /// Draw the fabric as SVG: guests, ports, switches, links and functions, with the rates of frames.
    #[command(after_help = "\
Examples:
  ringway graph > lab.svg
  ringway graph --seconds 5 --json   the counts as JSON")]
    Graph {
        /// Seconds to count frames.
        #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = sample)]
        seconds: f64,
    },
    /// Capture frames of ports, as pcapng or a line each.
    Capture(Box<CaptureArguments>),
    /// Say what would become of a frame at a port: lookup, functions, links, offloads, destinations, drops.
    Trace(Box<TraceArguments>),
    /// Send and receive frames on programs' ports, check each, and measure what is between them by RFC 2544.
    #[command(after_help = "\
Examples:
  ringway pktgen rx b & ringway pktgen tx a --rate 1Mpps --duration 10s
  ringway pktgen rfc2544 a b --svg result.svg")]
    Pktgen {
        /// What to do.
        #[command(subcommand)]
        command: Box<PktgenCommand>,
    },
    /// Show where the time of workers and functions goes, or that of a guest.
    Profile(ProfileArguments),
    /// List, show, add and remove ports, connect or disconnect the cable of a guest's port.
    #[command(after_help = "\
Examples:
  ringway port list
  ringway port add left --kind ring --switch main socket=left.sock
  ringway port down left")]
    Port {
        /// What to do.
        #[command(subcommand)]
        command: PortCommand,
    },
    /// List, show, add and remove switches.
    #[command(after_help = "\
Examples:
  ringway switch add main
  ringway switch table main   its address table")]
    Switch {
        /// What to do.
        #[command(subcommand)]
        command: SwitchCommand,
    },
    /// Add, change, remove and show flows, groups and meters of a switch with flow tables, in ovs-ofctl's words.
    #[command(after_help = "\
docs/flows.md leads from Open vSwitch's commands to these.

Examples:
  ringway flow add main 'priority=5,tcp,tp_dst=80,actions=output:web'
  ringway flow dump main tcp")]
    Flow {
        /// What to do.
        #[command(subcommand)]
        command: FlowCommand,
    },
    /// List and show chains of functions.
    #[command(after_help = "\
Examples:
  ringway chain list
  ringway chain show web")]
    Chain {
        /// What to show.
        #[command(subcommand)]
        command: ChainCommand,
    },
    /// List and show the threads that move frames.
    #[command(after_help = "\
Examples:
  ringway worker list
  ringway worker show w0")]
    Worker {
        /// What to show.
        #[command(subcommand)]
        command: WorkerCommand,
    },
    /// List, show and remove snapshots of functions in VMs.
    #[command(after_help = "\
Examples:
  ringway function snapshot wall warm   take one
  ringway snapshot list
  ringway snapshot remove warm")]
    Snapshot {
        /// What to do.
        #[command(subcommand)]
        command: SnapshotCommand,
    },
    /// Show and change emulated links.
    #[command(after_help = "\
Examples:
  ringway link show
  ringway link set wan delay=50ms loss=1%")]
    Link {
        /// What to do.
        #[command(subcommand)]
        command: LinkCommand,
    },
    /// List and show the fabric's hosts, run commands in them, and test that they reach each other.
    #[command(after_help = "\
Examples:
  ringway host list
  ringway host exec h1 -- ping -c 3 @h2
  ringway host ping")]
    Host {
        /// What to do.
        #[command(subcommand)]
        command: HostCommand,
    },
    /// List, show, start and stop the fabric's unmodified programs.
    #[command(after_help = "\
Examples:
  ringway program list
  ringway program restart web
  ringway program logs web --follow")]
    Program {
        /// What to do.
        #[command(subcommand)]
        command: ProgramCommand,
    },
    /// Run a program with a network of its own, on a port or with the host.
    Exec(Box<Exec>),
    /// Show sockets, counters and settings of a program's TCP/IP stack, and record connections.
    #[command(after_help = "\
The program is one of `ringway exec` with the native stack, or one that offers its stack itself.

Examples:
  ringway stack list
  ringway stack ss web
  ringway stack netstat web
  ringway stack trace web > trace.svg")]
    Stack {
        /// What to show.
        #[command(subcommand)]
        command: StackCommand,
    },
    /// Bring up a topology of hosts, switches and links without a file, until Ctrl-C.
    Topo(Topo),
    /// Start, stop, list and show guests.
    #[command(after_help = "\
Examples:
  ringway guest list
  ringway guest start left && ringway guest wait left
  ringway guest exec left ping -c 3 10.77.0.2
  ringway guest stop left")]
    Guest {
        /// What to do.
        #[command(subcommand)]
        command: GuestCommand,
    },
    /// Create, start, stop, change, list and show functions, read and write their handlers.
    #[command(after_help = "\
Examples:
  ringway function list
  ringway function read wall allowed.count
  ringway function write wall allowed.reset
  ringway function stop wall && ringway function start wall")]
    Function {
        /// What to do.
        #[command(subcommand)]
        command: FunctionCommand,
    },
    /// Make images of programs that run as tiny VMs.
    #[command(after_help = "\
docs/tiny-programs.md teaches how to write a program, and how a fabric file runs its image.

Examples:
  ringway tiny new web
  ringway tiny build web   writes web/web.tiny")]
    Tiny {
        /// What to do.
        #[command(subcommand)]
        command: TinyCommand,
    },
    /// Run a Click configuration, with the options of Click's own program.
    #[command(
        disable_help_flag = true,
        after_help = "\
`ringway click --help` lists the options. The program does the same when it is called `click`.

Examples:
  ringway click router.click
  ringway click -e 'InfiniteSource(LIMIT 5, STOP true) -> c :: Counter -> Discard' -h c.count
  ringway click -qo- router.click"
    )]
    Click {
        /// Options and the configuration's file.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Decide which hosts run VMs and functions, and explain decisions.
    #[command(after_help = "\
Examples:
  ringway place hosts
  ringway place run web-1 web-2
  ringway place why-not web-1 node-07
  ringway place --inventory examples/placement/inventory.toml try db-1   hosts and VMs of a file")]
    Place(Box<PlaceArguments>),
    /// Run a folder's placement plugins, and speak the plugin host's protocol on standard input and output.
    #[command(after_help = "\
`python/PROTOCOL.md` has the protocol. Fabrics start plugin hosts by themselves.

Examples:
  echo '{\"id\": 1, \"op\": \"discover\"}' | ringway plugin-host examples/plugins")]
    PluginHost(PluginHost),
    /// Check this host: huge pages, limits, kernel features, cores; and give advice.
    #[command(after_help = "\
The exit code is 1 if Ringway can't work here at all.

Examples:
  ringway doctor
  ringway doctor --json")]
    Doctor,
    /// Print completions for a shell.
    #[command(after_help = "\
Examples:
  ringway completions bash > /etc/bash_completion.d/ringway
  ringway completions zsh > ~/.zfunc/_ringway")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write manual pages (section 1) into a folder, one for each command.
    #[command(after_help = "\
Examples:
  ringway man /usr/local/share/man/man1 && man ringway-up")]
    Man {
        /// The folder, which must exist.
        folder: PathBuf,
    },
    /// Print the description of the control API (OpenAPI).
    #[command(after_help = "\
Examples:
  ringway openapi > ringway.json")]
    Openapi,
    /// The data path's process, with the link to its control process as standard input.
    #[command(hide = true)]
    Data {
        /// How to log.
        #[arg(long, value_enum, default_value_t)]
        log: Log,
    },
    /// What another version of this program asks before a fabric is moved to this one.
    #[command(hide = true)]
    UpgradeCheck,
    /// A function's process, with the link to its control process as standard input.
    #[command(hide = true)]
    RunFunction,
}

/// A folder of plugins, and their permissions.
#[derive(Args)]
pub struct PluginHost {
    /// The folder.
    pub folder: PathBuf,
    /// Memory limit of all plugins together, in MiB.
    #[arg(long, default_value_t = 1024, value_name = "MIB",
        value_parser = clap::value_parser!(u32).range(16..=1 << 20))]
    pub memory: u32,
    /// Allow plugins to make network connections.
    #[arg(long)]
    pub network: bool,
    /// Run plugins even if the kernel lacks landlock or seccomp to confine them.
    #[arg(long)]
    pub unconfined: bool,
}

/// How to upgrade.
#[derive(Args)]
pub struct Upgrade {
    /// The program to which the fabric shall move; by default this one. Only root and the user that runs the fabric
    /// may be able to write it.
    #[arg(long, value_name = "FILE")]
    pub binary: Option<PathBuf>,
    /// Only check whether the program can go on with the fabric.
    #[arg(long)]
    pub check: bool,
    /// Go on although guests lose devices that can't be kept: ports of kinds e1000 and ring-pci.
    #[arg(long)]
    pub disconnect: bool,
}

/// Which counters to show.
#[derive(Args)]
pub struct Stats {
    /// Only this port.
    #[arg(value_name = "NAME")]
    pub port: Option<String>,
    /// Show accesses to the registers of a port's card, and its interrupts, since its client connected.
    #[arg(long, requires = "port", conflicts_with = "watch")]
    pub exits: bool,
    /// Show rates repeatedly.
    #[arg(long, short)]
    pub watch: bool,
    /// Seconds between two samples.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = interval, requires = "watch")]
    pub interval: f64,
    /// End after this many samples.
    #[arg(long, value_name = "N", value_parser = whole::<u64>, requires = "watch")]
    pub count: Option<u64>,
}

/// How often to look at processes.
#[derive(Args)]
pub struct Top {
    /// Seconds between two samples.
    #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = interval)]
    pub interval: f64,
    /// End after this many samples.
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    pub count: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn invalid_numbers_are_reported() {
        let message = |words: &[&str]| {
            let words = ["ringway"].iter().chain(words);
            Arguments::try_parse_from(words).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(message(&["stats", "--watch", "--count", "x"]).contains("not a whole number"));
        assert!(
            message(&["stats", "--watch", "--count", &"9".repeat(30)]).contains("the number is too large")
        );
        assert!(message(&["stats", "--count", "3"]).contains("--watch"));
        assert_eq!(message(&["stats", "--watch", "--count", "3"]) + &message(&["stats"]), "");
    }

    #[test]
    fn the_options_of_a_function_are_its_keys() {
        let created = |words: &str| {
            let all = ["ringway", "function", "create", "f"].into_iter().chain(words.split_whitespace());
            match Arguments::try_parse_from(all).map_err(|error| error.to_string())?.command {
                Command::Function { command: FunctionCommand::Create(new) } => Ok(new.keys.0),
                _ => Err("another command".to_string()),
            }
        };
        let keys = "--click Idle --port a --port b --device eth0=a --parameter A=1 --parameter B=x=y \
            --isolation vm --fallback process --snapshots false --memory 64MB --core 1 --burst 8 \
            --start first-frame --idle 30s";
        let expected = serde_json::json!({
            "click": "Idle", "ports": ["a", "b"], "devices": { "eth0": "a" },
            "parameters": { "A": "1", "B": "x=y" }, "isolation": "vm", "fallback": "process",
            "snapshots": false, "memory": "64MB", "core": 1, "burst": 8, "start": "first-frame",
            "idle": "30s",
        });
        assert_eq!(created(keys).map(serde_json::Value::from), Ok(expected));
        let program = created("--image w.tiny --port a --address dhcp --argument x --argument y").unwrap();
        assert_eq!(program["arguments"], serde_json::json!(["x", "y"]));
        for (wrong, part) in [
            ("--port a", "--config <FILE>|--click <TEXT>|--image <FILE>"),
            ("--click Idle", "--port <PORT>"),
            ("--click Idle --port a --isolation none", "[possible values: process, vm, worker]"),
            ("--click Idle --port a --memory 1MB", "use a value from 32MB to 1024GB"),
            ("--click Idle --port a --memory 64", "has no unit"),
            ("--click Idle --port a --burst 65", "use a value from 1 to 64"),
            ("--click Idle --port a --idle 1ms", "use a value from 100ms to 86400s"),
            ("--click Idle --port a --device eth0", "there is no `=`; write NAME=VALUE"),
        ] {
            let said = created(wrong).unwrap_err();
            assert!(said.contains(part), "{wrong}: {said}");
        }
    }

    #[test]
    fn the_command_line_is_consistent_and_every_command_has_examples() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        let mut todo: Vec<clap::Command> = vec![command];
        while let Some(command) = todo.pop() {
            let below: Vec<_> = command
                .get_subcommands()
                .filter(|c| !c.is_hide_set() && c.get_name() != "help")
                .cloned()
                .collect();
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("Examples:"), "{}", command.get_name());
            todo.extend(below);
        }
    }
}
