//! The command line of `ringway place`.

use crate::arguments::whole;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// What to place where, and why.
#[derive(Args)]
pub struct PlaceArguments {
    /// Use the hosts and VMs of this file, and forget everything afterwards, instead of asking a running fabric.
    #[arg(long, global = true, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// Folders of Python plugins, with `--inventory` or for `simulate`.
    #[arg(long, global = true, value_name = "DIR")]
    pub plugins: Vec<PathBuf>,
    /// Run plugins, too, where the kernel has no landlock or no seccomp to confine them by.
    #[arg(long, global = true)]
    pub unconfined: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: PlaceCommand,
}

/// VMs to place.
#[derive(Args)]
pub struct Vms {
    /// The VMs: all of them are placed, or none.
    #[arg(required = true, value_name = "VM")]
    pub vms: Vec<String>,
    /// Policy instead of theirs.
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Only these hosts.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Not these hosts.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub without: Vec<String>,
    /// Settles ties; the same seed makes the same choice.
    #[arg(long, value_parser = whole::<u64>)]
    pub seed: Option<u64>,
    /// Virtual CPUs of VMs that are not known yet.
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    pub cpus: Option<u32>,
    /// Memory of VMs that are not known yet, in MB.
    #[arg(long, value_name = "MB", value_parser = whole::<u64>)]
    pub memory: Option<u64>,
}

/// What to do about placement.
#[derive(Subcommand)]
pub enum PlaceCommand {
    /// Decide where VMs go, and reserve what they take there.
    #[command(after_help = "\
The reservation ends after a minute, unless the VM is confirmed to run.

Examples:
  ringway place run web-1
  ringway place run fw nat dpi --policy chain_local
  ringway place run big --cpus 8 --memory 16384")]
    Run(Vms),
    /// Decide where VMs would go, and reserve nothing.
    #[command(after_help = "\
Examples:
  ringway place try web-1
  ringway place --inventory examples/placement/inventory.toml try new --cpus 4 --memory 8192
  ringway place try web-1 --policy packing --json")]
    Try(Vms),
    /// Say why a host would or would not run a VM.
    #[command(after_help = "\
Examples:
  ringway place why-not web-1 node-07
  ringway place --inventory examples/placement/inventory.toml why-not db-1 node-0")]
    WhyNot {
        /// The VM.
        vm: String,
        /// The host.
        host: String,
        /// Policy instead of the VM's.
        #[arg(long, value_name = "NAME")]
        policy: Option<String>,
    },
    /// Say everything about a decision: every host, every filter, every weight.
    #[command(after_help = "\
Examples:
  ringway place explain 17
  ringway place explain 17 --host node-07
  ringway place explain 17 --json")]
    Explain {
        /// The decision's number.
        #[arg(value_parser = whole::<u64>)]
        id: u64,
        /// Only this host.
        #[arg(long)]
        host: Option<String>,
    },
    /// List the newest decisions.
    #[command(after_help = "\
Examples:
  ringway place decisions
  ringway place decisions --count 100")]
    Decisions {
        /// How many.
        #[arg(long, default_value_t = 20, value_parser = whole::<usize>)]
        count: usize,
    },
    /// Place a guest or a function of the fabric's file, and start it.
    #[command(after_help = "\
Examples:
  ringway place start left")]
    Start {
        /// The guest or function.
        guest: String,
    },
    /// Say that VMs run where they were placed.
    #[command(after_help = "\
Examples:
  ringway place confirm web-1")]
    Confirm {
        /// The VMs.
        #[arg(required = true)]
        vms: Vec<String>,
    },
    /// Give back what was reserved for VMs.
    #[command(after_help = "\
Examples:
  ringway place release web-1")]
    Release {
        /// The VMs.
        #[arg(required = true)]
        vms: Vec<String>,
    },
    /// Move VMs as the cluster's balancer wants, or say what it would do.
    #[command(after_help = "\
A round makes at most as many migrations as the cluster allows, one if nobody says otherwise. A running fabric
makes a round by itself each `interval` of a cluster.

Examples:
  ringway place balance --dry-run --rounds 10
  ringway place balance --last
  ringway place --inventory examples/placement/inventory.toml balance --dry-run --rounds 5
  ringway place balance --cluster night")]
    Balance {
        /// The cluster.
        #[arg(long, default_value = "default")]
        cluster: String,
        /// Only say what would be done.
        #[arg(long)]
        dry_run: bool,
        /// Rounds to look ahead, a minute apart.
        #[arg(long, default_value_t = 1, value_parser = whole::<usize>)]
        rounds: usize,
        /// Show the last rounds in which something happened, whoever asked for them.
        #[arg(long, conflicts_with_all = ["dry_run", "rounds", "cluster"])]
        last: bool,
    },
    /// List hosts with what is left of them.
    #[command(after_help = "\
Examples:
  ringway place hosts
  ringway place --inventory examples/placement/inventory.toml hosts")]
    Hosts,
    /// List VMs: where they run, what they take, what is reserved for them.
    #[command(after_help = "\
Examples:
  ringway place vms
  ringway place vms --host node-07 --json")]
    Vms {
        /// Only those that run on this host or have it reserved.
        #[arg(long)]
        host: Option<String>,
    },
    /// Take objects out that nothing uses any more.
    #[command(after_help = "\
With a host goes what is known about it. A fact is named by its host and its own name.

Examples:
  ringway place remove vm web-1 web-2
  ringway place remove host node-07
  ringway place remove fact node-07/temperature")]
    Remove {
        /// What they are.
        kind: Removable,
        /// Their names.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Say what was measured of a host; what is left out is worked out from what runs there.
    #[command(after_help = "\
Examples:
  ringway place load node-07 --cpu 85
  ringway place load node-07 --cpu 20 --free 61440 --swap-free 4096
  ringway place remove load node-07")]
    Load {
        /// The host.
        host: String,
        /// CPU usage in percent of all its CPUs.
        #[arg(long, value_name = "PERCENT", value_parser = whole::<u32>)]
        cpu: Option<u32>,
        /// Free memory in MB.
        #[arg(long, value_name = "MB", value_parser = whole::<u64>)]
        free: Option<u64>,
        /// Free swap in MB.
        #[arg(long, value_name = "MB", value_parser = whole::<u64>)]
        swap_free: Option<u64>,
    },
    /// Take hosts out of use: nothing new comes, and rounds of balancing move away what runs there.
    #[command(after_help = "\
A host is in maintenance when it is empty; `ringway place hosts` says whether it is.

Examples:
  ringway place maintenance node-07
  ringway place activate node-07")]
    Maintenance {
        /// The hosts.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Take hosts into use, after maintenance or when they answer again.
    #[command(after_help = "\
Examples:
  ringway place activate node-07")]
    Activate {
        /// The hosts.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Keep a host out of every placement, let it in again, or say which are kept out.
    #[command(after_help = "\
What runs there stays.

Examples:
  ringway place blacklist node-07 --reason \"smells of smoke\"
  ringway place blacklist node-07 --for 3600
  ringway place blacklist node-07 --remove
  ringway place blacklist")]
    Blacklist {
        /// The host.
        host: Option<String>,
        /// Why.
        #[arg(long, default_value = "by hand", requires = "host")]
        reason: String,
        /// Seconds after which it is let in again.
        #[arg(long = "for", value_name = "SECONDS", requires = "host", value_parser = whole::<u64>)]
        ttl: Option<u64>,
        /// Let it in again.
        #[arg(long, requires = "host", conflicts_with_all = ["reason", "ttl"])]
        remove: bool,
    },
    /// Show a policy: its filters, weights, balancer and properties.
    #[command(after_help = "\
Examples:
  ringway place policy packing
  ringway place policy night --json")]
    Policy {
        /// The policy.
        name: String,
    },
    /// Say what changed: objects, reservations, decisions.
    #[command(after_help = "\
Examples:
  ringway place events
  ringway place events --follow
  ringway place events --after 1204 --count 500 --json")]
    Events {
        /// Those after this revision, oldest first, instead of the newest.
        #[arg(long, value_name = "REVISION", value_parser = whole::<u64>)]
        after: Option<u64>,
        /// How many.
        #[arg(long, default_value_t = 50, value_parser = whole::<usize>)]
        count: usize,
        /// Go on with what changes from now on.
        #[arg(long)]
        follow: bool,
    },
    /// Check, back up or restore the file that placement is kept in.
    #[command(after_help = "\
Examples:
  ringway place store check
  ringway place store backup placement.backup")]
    Store {
        /// The store's file, if it is not that of the fabric: `placement.redb` in a run directory.
        #[arg(long, global = true, value_name = "FILE")]
        store: Option<PathBuf>,
        /// What to do.
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// List policies, or the units they choose from.
    #[command(after_help = "\
Examples:
  ringway place policies
  ringway place policies --units")]
    Policies {
        /// List the units: filters, weights, balancers, their properties.
        #[arg(long)]
        units: bool,
    },
    /// Put in what an inventory file has: clusters, policies, hosts, VMs, groups.
    #[command(after_help = "\
All of it or nothing. What has the same name is replaced.

Examples:
  ringway place put examples/placement/inventory.toml")]
    Put {
        /// The file.
        file: PathBuf,
    },
    /// Attach folders of Python plugins to the running fabric, or say which are and what is wrong there.
    #[command(after_help = "\
They are there beside those of the fabric's file, instead of those attached before, and stay when the fabric
goes down and comes up.

Examples:
  ringway place plugins /etc/ringway/plugins
  ringway place plugins ./plugins ./more --json
  ringway place plugins
  ringway place plugins --none")]
    Plugins {
        /// The folders.
        folders: Vec<PathBuf>,
        /// Detach those attached before.
        #[arg(long, conflicts_with = "folders")]
        none: bool,
    },
    /// Push a figure about a host; the next decision sees it.
    #[command(after_help = "\
Examples:
  ringway place fact node-07 temperature 71.5 --for 60
  ringway place fact node-07 fan 1200")]
    Fact {
        /// The host.
        host: String,
        /// The figure's name.
        name: String,
        /// The figure.
        value: f64,
        /// Seconds after which it is stale.
        #[arg(long = "for", value_name = "SECONDS", value_parser = whole::<u64>)]
        ttl: Option<u64>,
    },
    /// Run a trace of VMs against made-up or given hosts, in virtual time, and compare policies.
    #[command(after_help = "\
Examples:
  ringway place simulate --hosts 200 --policy packing --policy none
  ringway place simulate --hosts 50 --trace synthetic --mix azure --vms 5000 --until-full --policy packing
  ringway place --inventory examples/placement/inventory.toml simulate --policy cool --vms 200
  ringway place --inventory rules.toml --plugins examples/plugins simulate --policy few
  ringway place simulate --trace openb_pod_list_default.csv --format openb --hosts 1000 --policy none
  ringway place simulate --hosts 100 --policy power_saving --csv run.csv --svg run.svg")]
    Simulate(Simulate),
    /// Place the pods of a Kubernetes cluster: serve kube-scheduler's extender, follow nodes and pods, bind.
    #[command(after_help = "\
It needs no fabric. Its store is in the run directory `kubernetes`, or in that of --fabric NAME; other
commands of `ringway place` find it there where no fabric is up. With --inventory it has what is in that file,
and forgets everything afterwards. docs/placement.md has what kube-scheduler has to be told.

Examples:
  ringway place kubernetes --kubeconfig /etc/kubernetes/scheduler.conf --policy packing
  ringway place kubernetes --kubeconfig lab.conf --listen 127.0.0.1:10264
  ringway place --inventory policies.toml kubernetes --kubeconfig lab.conf")]
    Kubernetes(Kubernetes),
}

/// Which Kubernetes cluster, and how.
#[derive(Args)]
pub struct Kubernetes {
    /// The way to the API server, and who we are there.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// A context of the kubeconfig instead of its current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The cluster that nodes are of.
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub cluster: String,
    /// The cluster's policy; the one it has if left out.
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Serve the extender, `/metrics` and `/healthz` over HTTP on this address. Clients are not
    /// authenticated, and it writes bindings: leave it on a loopback address.
    #[arg(long, default_value = "127.0.0.1:10263", value_name = "ADDRESS:PORT")]
    pub listen: std::net::SocketAddr,
    /// How logs are written.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub log: crate::arguments::Log,
}

/// What to do with the store.
#[derive(Subcommand)]
pub enum StoreCommand {
    /// Read the store, every byte of it if no fabric has it open, and say what it holds or what is wrong with it.
    #[command(after_help = "\
Examples:
  ringway place store check
  ringway place store check --store /run/ringway/lab/placement.redb")]
    Check,
    /// Write all that the store holds to a file; the fabric may be up or down.
    #[command(after_help = "\
Examples:
  ringway place store backup placement.backup
  ringway --fabric lab place store backup /var/backups/lab.placement")]
    Backup {
        /// The file.
        file: PathBuf,
    },
    /// Have the store hold what a backup has, or what can be read of its damaged files.
    #[command(after_help = "\
The fabric that has the store open is to be down. What was there stays beside it under another name.

Examples:
  ringway place store restore placement.backup
  ringway place store restore --salvage")]
    Restore {
        /// The backup.
        #[arg(required_unless_present = "salvage")]
        file: Option<PathBuf>,
        /// Keep what can still be read of the damaged files.
        #[arg(long, conflicts_with = "file")]
        salvage: bool,
    },
}

/// What can be taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Removable {
    /// A host.
    Host,
    /// A VM or function.
    Vm,
    /// An affinity group.
    Group,
    /// A policy.
    Policy,
    /// A cluster.
    Cluster,
    /// What was measured of a host.
    Load,
    /// A host's blacklist entry.
    Blacklist,
    /// A figure about a host, HOST/FIGURE.
    Fact,
}

impl Removable {
    /// What the API calls it.
    pub fn name(self) -> &'static str {
        match self {
            Removable::Host => "host",
            Removable::Vm => "vm",
            Removable::Group => "group",
            Removable::Policy => "policy",
            Removable::Cluster => "cluster",
            Removable::Load => "load",
            Removable::Blacklist => "blacklist",
            Removable::Fact => "fact",
        }
    }
}

/// What to simulate.
#[derive(Args)]
pub struct Simulate {
    /// Hosts: 40 CPUs and 98 GB each; 100 if nobody says. With `--inventory` they are its own, with what runs
    /// on them: those of `--cluster`, of the only cluster it has, or of `default`.
    #[arg(long, conflicts_with = "nodes", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub hosts: Option<u32>,
    /// Hosts of a file instead: openb's list of nodes.
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// The cluster of `--inventory` whose hosts are filled.
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// A trace's file, or `synthetic`.
    #[arg(long, default_value = "synthetic", value_name = "FILE")]
    pub trace: PathBuf,
    /// The trace's form.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Policies to compare.
    #[arg(long = "policy", value_name = "NAME", default_value = "none")]
    pub policies: Vec<String>,
    /// A file of policies, beside those that are built in.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// VMs of a synthetic trace.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
    pub vms: u32,
    /// Sizes of a synthetic trace's VMs.
    #[arg(long, default_value = "vmagent")]
    pub mix: String,
    /// Seconds between two arrivals of a synthetic trace, on average.
    #[arg(long, default_value_t = 10, value_parser = whole::<u64>)]
    pub gap: u64,
    /// Seconds that a VM of a synthetic trace runs on average; 0 for ever.
    #[arg(long, default_value_t = 36_000, value_parser = whole::<u64>)]
    pub lifetime: u64,
    /// Seconds between two rounds of balancing; 0 for none.
    #[arg(long, default_value_t = 60, value_parser = whole::<u64>)]
    pub interval: u64,
    /// Stop at the first VM that finds no host.
    #[arg(long)]
    pub until_full: bool,
    /// Keep every VM to the end, whatever departures the trace has.
    #[arg(long)]
    pub ignore_departures: bool,
    /// Where everything made up follows from.
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>)]
    pub seed: u64,
    /// Write figures over time to this file.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw them to this file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// A trace's form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// VMAgent's CSV.
    #[default]
    Vmagent,
    /// Alibaba's openb CSV.
    Openb,
    /// Azure's packing trace of 2020: its SQLite file, or its tables joined as CSV.
    Azure,
}
