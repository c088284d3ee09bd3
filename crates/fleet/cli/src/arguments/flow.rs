//! `ringway flow`.

use clap::{Args, Subcommand};
use std::path::PathBuf;

/// What to do with flow tables.
#[derive(Subcommand)]
pub enum FlowCommand {
    /// Add flows; one with the same table, priority and match is replaced, and keeps its counters.
    #[command(after_help = "\
All flows are added at once, or none. Ports have names or numbers, which `ringway flow ports` shows.

Examples:
  ringway flow add main 'priority=5,tcp,tp_dst=80,actions=output:web'
  ringway flow add main 'table=1,actions=normal' 'in_port=web,actions=mod_vlan_vid:7,output:up'
  ringway flow add main --file lab.flows")]
    Add(FlowChange),
    /// Give other actions to flows: to all that a match contains, or with --strict to one.
    #[command(after_help = "\
Examples:
  ringway flow mod main 'tcp,actions=drop'
  ringway flow mod main --strict 'priority=5,tcp,tp_dst=80,actions=output:other'")]
    Mod {
        /// Only the flow with exactly this priority and match.
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        change: FlowChange,
    },
    /// Remove flows: all that a match contains, or with --strict one; without a match, all.
    #[command(after_help = "\
Examples:
  ringway flow del main 'tcp,tp_dst=80'
  ringway flow del main 'cookie=0x1/-1'
  ringway flow del main")]
    Del {
        /// Only the flow with exactly this priority and match.
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        change: FlowChange,
    },
    /// Show flows with what is counted, as `ovs-ofctl dump-flows` does.
    #[command(visible_aliases = ["list", "show"], after_help = "\
Examples:
  ringway flow dump main
  ringway flow dump main 'table=1,tcp'
  ringway flow dump main --rules > lab.flows   all, as `ringway flow replace` takes them")]
    Dump {
        /// The switch.
        switch: String,
        /// The flows that are meant: a match, `table=`, `cookie=VALUE/MASK`, `out_port=`.
        #[arg(default_value = "")]
        filter: String,
        /// Show flows, groups and meters as a file has them.
        #[arg(long, conflicts_with = "filter")]
        rules: bool,
    },
    /// Make the flows, groups and meters of a file those of a switch; those that stay keep what was counted.
    #[command(after_help = "\
Examples:
  ringway flow replace main lab.flows
  ringway flow replace main -   from standard input")]
    Replace {
        /// The switch.
        switch: String,
        /// The file; - for standard input.
        file: PathBuf,
    },
    /// Show what `replace` would change: lines with - go, lines with + come.
    #[command(after_help = "\
Examples:
  ringway flow diff main lab.flows")]
    Diff {
        /// The switch.
        switch: String,
        /// The file; - for standard input.
        file: PathBuf,
    },
    /// Make the changes of a file, all at once or none: lines as in a bundle of ovs-ofctl, such as `flow delete tcp`.
    #[command(after_help = "\
Examples:
  ringway flow bundle main changes.txt
  printf 'flow delete tcp\\nflow add arp,actions=flood\\n' | ringway flow bundle main -")]
    Bundle {
        /// The switch.
        switch: String,
        /// The file; - for standard input.
        file: PathBuf,
    },
    /// Add, change, remove and show groups.
    #[command(after_help = "\
Examples:
  ringway flow group add main 'group_id=1,type=all,bucket=output:a,bucket=output:b'
  ringway flow group dump main")]
    Group {
        /// What to do.
        #[command(subcommand)]
        command: FlowObject,
    },
    /// Add, change, remove and show meters.
    #[command(after_help = "\
Examples:
  ringway flow meter add main 'meter=1,kbps,bands=type=drop,rate=1000'
  ringway flow meter dump main")]
    Meter {
        /// What to do.
        #[command(subcommand)]
        command: FlowObject,
    },
    /// Show the numbers that flows may have for ports instead of their names.
    #[command(after_help = "\
Examples:
  ringway flow ports main")]
    Ports {
        /// The switch.
        switch: String,
    },
}

/// A switch, and what to change.
#[derive(Args)]
pub struct FlowChange {
    /// The switch.
    pub switch: String,
    /// The flows, each as a line of a file has it.
    #[arg(value_name = "FLOW")]
    pub lines: Vec<String>,
    /// A file with one a line; - for standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "lines")]
    pub file: Option<PathBuf>,
}

/// What to do with groups or meters.
#[derive(Subcommand)]
pub enum FlowObject {
    /// Add some.
    #[command(after_help = "\
Examples:
  ringway flow group add main 'group_id=1,type=all,bucket=output:a,bucket=output:b'
  ringway flow meter add main 'meter=1,kbps,bands=type=drop,rate=1000'")]
    Add(FlowChange),
    /// Change some; what was counted stays.
    #[command(after_help = "\
Examples:
  ringway flow group mod main 'group_id=1,type=all,bucket=output:b'
  ringway flow meter mod main 'meter=1,kbps,bands=type=drop,rate=2000'")]
    Mod(FlowChange),
    /// Remove some, with the flows that use them; without a number, all.
    #[command(after_help = "\
Examples:
  ringway flow group del main 'group_id=1'
  ringway flow meter del main 'meter=1'")]
    Del(FlowChange),
    /// Show all.
    #[command(visible_aliases = ["list", "show"], after_help = "\
Examples:
  ringway flow group dump main
  ringway flow meter dump main")]
    Dump {
        /// The switch.
        switch: String,
    },
}
