//! `ringway function`.

use super::{FunctionKeys, LogOptions};
use crate::values::sample;
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to do with functions.
#[derive(Subcommand)]
pub enum FunctionCommand {
    /// List the functions.
    #[command(after_help = "\
Examples:
  ringway function list
  ringway function list --json")]
    List,
    /// Show all values of a function.
    #[command(after_help = "\
Examples:
  ringway function show wall
  ringway function show wall --json")]
    Show {
        /// The function.
        name: String,
    },
    /// Print what the fabric's log has of a function, with what its configuration prints.
    #[command(after_help = "\
Examples:
  ringway function logs wall --lines 20
  ringway function logs wall --follow")]
    Logs {
        /// The function.
        name: String,
        /// How much of it.
        #[command(flatten)]
        logs: LogOptions,
    },
    /// Start functions.
    #[command(after_help = "\
Examples:
  ringway function start wall")]
    Start {
        /// The functions.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Stop functions.
    #[command(after_help = "\
Examples:
  ringway function stop wall")]
    Stop {
        /// The functions.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Stop functions and start them again, with their configurations as they are now.
    #[command(after_help = "\
Examples:
  ringway function restart wall")]
    Restart {
        /// The functions.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Create a function on a running fabric and start it.
    #[command(
        visible_alias = "add",
        after_help = "\
It exists until it is destroyed or the fabric goes down; `ringway apply FILE` removes it unless FILE has it.
If its configuration is refused, nothing changes.

Examples:
  ringway function create wall --config wall.click --port inside --port outside
  ringway function create mirror --click 'FromPort(a) -> EtherMirror -> ToPort(a)' --port a
  ringway function create nat --config router.click --port a --port b --device eth0=a --device eth1=b
  ringway function create late --config wall.click --port a --start first-frame --idle 30s
  ringway function create web --image web.tiny --port a --address 10.0.0.2/24"
    )]
    Create(CreateFunction),
    /// Take a snapshot of a function in a VM, which runs on.
    #[command(after_help = "\
Snapshots are kept in memory until `ringway snapshot remove`, or until the fabric goes down.

Examples:
  ringway function snapshot wall warm")]
    Snapshot {
        /// The function.
        name: String,
        /// The snapshot's name.
        snapshot: String,
    },
    /// Create a function that goes on from a snapshot, with other ports.
    #[command(after_help = "\
It has the state of the snapshot's function, and shares its memory until it writes it. Restarts go on from the
snapshot too.

Examples:
  ringway function clone warm second --port inside2 --port outside2")]
    Clone {
        /// The snapshot.
        snapshot: String,
        /// The new function's name.
        name: String,
        /// Its ports, in place of the function's, in their order.
        #[arg(long = "port", value_name = "PORT", required = true)]
        ports: Vec<String>,
    },
    /// Move a function in a VM to another fabric of this host, with its state.
    #[command(after_help = "\
The other fabric needs ring ports of the same names that no function has. If the function can't run there, it
goes on here.

Examples:
  ringway function migrate wall --to /run/ringway/other/api.sock")]
    Migrate {
        /// The function.
        name: String,
        /// The control socket of the other fabric.
        #[arg(long, value_name = "SOCKET")]
        to: PathBuf,
    },
    /// Stop functions and forget them.
    #[command(
        visible_alias = "remove",
        after_help = "\
Examples:
  ringway function destroy wall"
    )]
    Destroy {
        /// The functions.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Suspend functions: they keep their state, and their ports drop frames once their rings are full.
    #[command(after_help = "\
Examples:
  ringway function suspend wall && ringway function resume wall")]
    Suspend {
        /// The functions.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Let suspended functions go on.
    #[command(after_help = "\
Examples:
  ringway function resume wall")]
    Resume {
        /// The functions.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Replace the configuration of a running function; elements keep their state.
    #[command(after_help = "\
A refused configuration changes nothing.

Examples:
  ringway function update wall new.click
  ringway function update wall - < new.click")]
    Update {
        /// The function.
        name: String,
        /// The configuration's file; `-` is standard input.
        file: PathBuf,
    },
    /// Write the image of functions in VMs, for another monitor such as QEMU.
    #[command(after_help = "\
It boots where a monitor loads PVH images, with the Click configuration as the initrd; docs/vms.md has the
commands.

Examples:
  ringway function image --output function.elf
  qemu-system-x86_64 -M q35 -kernel function.elf -initrd wall.click -append 'port=inside port=outside' ...")]
    Image {
        /// The image's file; `-` is standard output.
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
    },
    /// Draw the graph of a running function as SVG, with packets and rates on its edges.
    #[command(after_help = "\
Packets are counted for some seconds, or since the handler `profile` was set to true.

Examples:
  ringway function graph wall > wall.svg
  ringway function graph wall --seconds 5 --json   the counts as JSON")]
    Graph {
        /// The function.
        name: String,
        /// Seconds to count packets.
        #[arg(long, default_value_t = 1.0, value_name = "SECONDS", value_parser = sample)]
        seconds: f64,
    },
    /// Test a configuration: compare what it sends with a file of frames.
    #[command(after_help = "\
A test file has a configuration, the frames that its ports receive, and those it must send; docs/functions.md
describes it. Each difference is a line file:line:column: difference. The exit code is 1 if there are any.

Examples:
  ringway function test wall.test
  ringway function test tests/*.test --json
  ringway function test wall.test --write   what the configuration sends becomes the expected output")]
    Test {
        /// The test files.
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Replace the expected output by what the configuration sends.
        #[arg(long)]
        write: bool,
    },
    /// Read a handler of a function and print its value.
    #[command(after_help = "\
Examples:
  ringway function read wall allowed.count
  ringway function read wall list            the names of its elements")]
    Read {
        /// The function.
        name: String,
        /// The handler: ELEMENT.NAME, or NAME for one of the whole configuration.
        handler: String,
    },
    /// Write a handler of a function.
    #[command(after_help = "\
Examples:
  ringway function write wall allowed.reset
  ringway function write shaper rate.rate 1000
  ringway function write wall hotconfig - < new.click   another configuration, until a restart")]
    Write {
        /// The function.
        name: String,
        /// The handler.
        handler: String,
        /// The value; `-` is standard input.
        value: Option<String>,
    },
}

/// A function to create.
#[derive(Args)]
pub struct CreateFunction {
    /// Its name.
    pub name: String,
    /// What it is.
    #[command(flatten)]
    pub keys: FunctionKeys,
}
