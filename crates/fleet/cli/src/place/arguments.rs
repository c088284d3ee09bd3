//! The command line of `ringway place`.

use crate::values::whole;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Arguments of `ringway place`.
#[derive(Args)]
pub struct PlaceArguments {
    /// Use the hosts and VMs of this file instead of a running fabric. Commands that change them save the file.
    #[arg(long, global = true, value_name = "FILE")]
    pub inventory: Option<PathBuf>,
    /// Folders of Python plugins, with `--inventory` or for `simulate`.
    #[arg(long, global = true, value_name = "DIR")]
    pub plugins: Vec<PathBuf>,
    /// Run plugins even if the kernel lacks landlock or seccomp to confine them.
    #[arg(long, global = true)]
    pub unconfined: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: PlaceCommand,
}

/// VMs to place.
#[derive(Args)]
pub struct Vms {
    /// The VMs, which are placed all or none.
    #[arg(required = true, value_name = "VM")]
    pub vms: Vec<String>,
    /// Policy to use instead of the VMs'.
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Choose only these hosts.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Exclude these hosts.
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub without: Vec<String>,
    /// Seed for breaking ties; the same seed makes the same choice.
    #[arg(long, value_parser = whole::<u64>)]
    pub seed: Option<u64>,
    /// Virtual CPUs of unknown VMs.
    #[arg(long, value_name = "N", value_parser = whole::<u32>)]
    pub cpus: Option<u32>,
    /// Memory of unknown VMs, in MB.
    #[arg(long, value_name = "MB", value_parser = whole::<u64>)]
    pub memory: Option<u64>,
}

/// What to do about placement.
#[derive(Subcommand)]
pub enum PlaceCommand {
    /// Decide where VMs run, and reserve their resources.
    #[command(after_help = "\
The reservation expires after a minute unless the VM is confirmed to run.

Examples:
  ringway place run web-1
  ringway place run fw nat dpi --policy chain_local
  ringway place run big --cpus 8 --memory 16384")]
    Run(Vms),
    /// Decide where VMs would run, without a reservation.
    #[command(after_help = "\
Examples:
  ringway place try web-1
  ringway place --inventory examples/placement/inventory.toml try new --cpus 4 --memory 8192
  ringway place try web-1 --policy packing --json")]
    Try(Vms),
    /// Explain why a host would or would not run a VM.
    #[command(after_help = "\
Examples:
  ringway place why-not web-1 node-07
  ringway place --inventory examples/placement/inventory.toml why-not db-1 node-0")]
    WhyNot {
        /// The VM.
        vm: String,
        /// The host.
        host: String,
        /// Policy to use instead of the VM's.
        #[arg(long, value_name = "NAME")]
        policy: Option<String>,
    },
    /// Explain where a VM is, or a decision: every host, every filter, every weight.
    #[command(after_help = "\
Of a VM, the newest decision about it is explained; if there is none, what would be decided now.

Examples:
  ringway place explain web-1
  ringway place explain 17 --host node-07
  ringway place --inventory examples/placement/inventory.toml explain web-3")]
    Explain {
        /// The VM, or a decision's number.
        #[arg(value_name = "VM|DECISION")]
        what: String,
        /// Show only this host.
        #[arg(long)]
        host: Option<String>,
    },
    /// List the newest decisions.
    #[command(after_help = "\
Examples:
  ringway place decisions
  ringway place decisions --count 100")]
    Decisions {
        /// Maximum number.
        #[arg(long, default_value_t = 20, value_parser = whole::<usize>)]
        count: usize,
    },
    /// Place a guest or a function of the fabric file, and start it.
    #[command(after_help = "\
Examples:
  ringway place start left")]
    Start {
        /// The guest or function.
        guest: String,
    },
    /// Confirm that VMs run where they were placed.
    #[command(after_help = "\
Examples:
  ringway place confirm web-1")]
    Confirm {
        /// The VMs.
        #[arg(required = true)]
        vms: Vec<String>,
    },
    /// Release the reservations of VMs.
    #[command(after_help = "\
Examples:
  ringway place release web-1")]
    Release {
        /// The VMs.
        #[arg(required = true)]
        vms: Vec<String>,
    },
    /// Run a round of the cluster's balancer, or preview rounds.
    #[command(after_help = "\
A round makes at most as many migrations as the cluster allows, by default one. A running fabric runs a round
in each `interval` of a cluster.

Examples:
  ringway place balance --dry-run --rounds 10
  ringway place balance --last
  ringway place --inventory examples/placement/inventory.toml balance --dry-run --rounds 5
  ringway place balance --cluster night")]
    Balance {
        /// The cluster.
        #[arg(long, default_value = "default")]
        cluster: String,
        /// Preview only.
        #[arg(long)]
        dry_run: bool,
        /// Number of rounds to preview, a minute apart.
        #[arg(long, default_value_t = 1, value_parser = whole::<usize>)]
        rounds: usize,
        /// Show the last rounds in which something happened.
        #[arg(long, conflicts_with_all = ["dry_run", "rounds", "cluster"])]
        last: bool,
    },
    /// List hosts and their remaining resources.
    #[command(after_help = "\
Examples:
  ringway place hosts
  ringway place --inventory examples/placement/inventory.toml hosts")]
    Hosts,
    /// List VMs: their hosts, resources and reservations.
    #[command(after_help = "\
Examples:
  ringway place vms
  ringway place vms --host node-07 --json")]
    Vms {
        /// Show only VMs that run on this host or have a reservation there.
        #[arg(long)]
        host: Option<String>,
    },
    /// List clusters: their policies, hosts and VMs.
    #[command(after_help = "\
Examples:
  ringway place clusters
  ringway place clusters --json")]
    Clusters,
    /// List affinity groups: their rules, VMs and hosts.
    #[command(after_help = "\
Examples:
  ringway place groups
  ringway place --inventory examples/placement/inventory.toml groups")]
    Groups,
    /// List facts about hosts.
    #[command(after_help = "\
Examples:
  ringway place facts
  ringway place facts --host node-07")]
    Facts {
        /// Show only facts about this host.
        #[arg(long)]
        host: Option<String>,
    },
    /// Show all settings of an object.
    #[command(after_help = "\
Settings that are empty, 0 or false are left out. A fact is named HOST/NAME.

Examples:
  ringway place show host node-07
  ringway place show vm web-1 --json
  ringway place show cluster default")]
    Show {
        /// The kind of the object.
        kind: Removable,
        /// Its name.
        name: String,
    },
    /// Delete unused objects.
    #[command(after_help = "\
Deleting a host deletes its facts and measurements. A fact is named HOST/NAME.

Examples:
  ringway place remove vm web-1 web-2
  ringway place remove host node-07
  ringway place remove fact node-07/temperature")]
    Remove {
        /// The kind of the objects.
        kind: Removable,
        /// Their names.
        #[arg(required = true, value_name = "NAME")]
        names: Vec<String>,
    },
    /// Set measurements of a host; missing ones are computed from its VMs.
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
    /// Empty hosts: they get no new VMs, and their VMs move away, several at a time.
    #[command(after_help = "\
Without --wait the moves go on in the running fabric. An empty host is in maintenance; `uncordon` opens it
again.

Examples:
  ringway place drain node-07 --wait
  ringway place drain node-07 node-08 --parallel 10 --wait 600
  ringway place --inventory examples/placement/inventory.toml drain node-0")]
    Drain {
        /// The hosts.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
        /// VMs that move at a time.
        #[arg(long, default_value_t = 4, value_name = "N")]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=100))]
        parallel: u32,
        /// Wait until the hosts are empty, at most for so many seconds. Without a limit it ends too when every VM
        /// that is left can't move.
        #[arg(long, value_name = "SECONDS", num_args = 0..=1, value_parser = whole::<u64>)]
        wait: Option<Option<u64>>,
    },
    /// Close hosts to new VMs; VMs that run there stay.
    #[command(after_help = "\
Examples:
  ringway place cordon node-07
  ringway place cordon node-07 node-08 --reason \"new disks\"")]
    Cordon {
        /// The hosts.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
        /// The reason.
        #[arg(long, default_value = "cordoned")]
        reason: String,
    },
    /// Open hosts to new VMs again, after `cordon`, `drain`, `maintenance` or `blacklist`.
    #[command(after_help = "\
Examples:
  ringway place uncordon node-07")]
    Uncordon {
        /// The hosts.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Add the fabric's own host to a cluster, so that VMs are placed on it too.
    #[command(after_help = "\
`ringway place start` does so too. `[placement]` of the fabric file can ask for it: this-host = \"default\".
`ringway place remove host NAME` ends it.

Examples:
  ringway place join
  ringway place join --cluster lab")]
    Join {
        /// The cluster.
        #[arg(long, default_value = "default", value_name = "NAME")]
        cluster: String,
    },
    /// Put hosts into maintenance: they get no new VMs, and balancing rounds move their VMs away.
    #[command(after_help = "\
A host is in maintenance when it is empty; `ringway place hosts` shows its status.

Examples:
  ringway place maintenance node-07
  ringway place activate node-07")]
    Maintenance {
        /// The hosts.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Activate hosts, after maintenance or when they respond again.
    #[command(after_help = "\
Examples:
  ringway place activate node-07")]
    Activate {
        /// The hosts.
        #[arg(required = true, value_name = "HOST")]
        hosts: Vec<String>,
    },
    /// Add a host to the blacklist, remove it, or show the blacklist.
    #[command(after_help = "\
Blacklisted hosts get no new VMs; running VMs stay.

Examples:
  ringway place blacklist node-07 --reason \"smells of smoke\"
  ringway place blacklist node-07 --for 3600
  ringway place blacklist node-07 --remove
  ringway place blacklist")]
    Blacklist {
        /// The host.
        host: Option<String>,
        /// The reason.
        #[arg(long, default_value = "by hand", requires = "host")]
        reason: String,
        /// Seconds after which the entry expires.
        #[arg(long = "for", value_name = "SECONDS", requires = "host", value_parser = whole::<u64>)]
        ttl: Option<u64>,
        /// Remove the entry.
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
    /// Show events: changes of objects, reservations, decisions.
    #[command(after_help = "\
Measurements (loads of hosts, rates of the fabric's ports) are left out unless --all is given.

Examples:
  ringway place events
  ringway place events --follow
  ringway place events --after 1204 --count 500 --json")]
    Events {
        /// Show events after this revision, oldest first, instead of the newest.
        #[arg(long, value_name = "REVISION", value_parser = whole::<u64>)]
        after: Option<u64>,
        /// Maximum number.
        #[arg(long, default_value_t = 50, value_parser = whole::<usize>)]
        count: usize,
        /// Continue with new events.
        #[arg(long)]
        follow: bool,
        /// Show measurements too.
        #[arg(long)]
        all: bool,
    },
    /// Check, back up or restore placement's store.
    #[command(after_help = "\
Examples:
  ringway place store check
  ringway place store backup placement.backup")]
    Store {
        /// The store's file, if not the fabric's: `placement.redb` in a run directory.
        #[arg(long, global = true, value_name = "FILE")]
        store: Option<PathBuf>,
        /// What to do.
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// List policies, or units.
    #[command(after_help = "\
Examples:
  ringway place policies
  ringway place policies --units")]
    Policies {
        /// List the units: filters, weights, balancers, their properties.
        #[arg(long)]
        units: bool,
    },
    /// Add the objects of an inventory file: clusters, policies, hosts, VMs, groups.
    #[command(after_help = "\
All objects are added, or none. Objects with the same names are replaced.

Examples:
  ringway place put examples/placement/inventory.toml")]
    Put {
        /// The file.
        file: PathBuf,
    },
    /// Attach folders of Python plugins to the running fabric, or show the attached ones and their errors.
    #[command(after_help = "\
They are used in addition to those of the fabric file, replace those attached before, and stay attached when
the fabric restarts.

Examples:
  ringway place plugins /etc/ringway/plugins
  ringway place plugins ./plugins ./more --json
  ringway place plugins
  ringway place plugins --none")]
    Plugins {
        /// The folders.
        folders: Vec<PathBuf>,
        /// Detach all folders.
        #[arg(long, conflicts_with = "folders")]
        none: bool,
    },
    /// Set a fact about a host; the next decision uses it.
    #[command(after_help = "\
Examples:
  ringway place fact node-07 temperature 71.5 --for 60
  ringway place fact node-07 fan 1200")]
    Fact {
        /// The host.
        host: String,
        /// The fact's name.
        name: String,
        /// Its value.
        value: f64,
        /// Seconds after which it expires.
        #[arg(long = "for", value_name = "SECONDS", value_parser = whole::<u64>)]
        ttl: Option<u64>,
    },
    /// Run a trace of VMs on generated or given hosts in virtual time, and compare policies.
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
commands of `ringway place` find it there if no fabric is up. With --inventory it starts with the objects of
that file, which stays as it is. docs/placement.md shows the configuration of kube-scheduler.

Examples:
  ringway place kubernetes --kubeconfig /etc/kubernetes/scheduler.conf --policy packing
  ringway place kubernetes --kubeconfig lab.conf --listen 127.0.0.1:10264
  ringway place --inventory policies.toml kubernetes --kubeconfig lab.conf")]
    Kubernetes(Kubernetes),
}

/// The Kubernetes cluster to serve.
#[derive(Args)]
pub struct Kubernetes {
    /// Address of the API server, and our credentials.
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: PathBuf,
    /// A context of the kubeconfig instead of its current one.
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The cluster to which nodes belong.
    #[arg(long, default_value = "default", value_name = "NAME")]
    pub cluster: String,
    /// The cluster's new policy; by default unchanged.
    #[arg(long, value_name = "NAME")]
    pub policy: Option<String>,
    /// Serve the extender, `/metrics` and `/healthz` over HTTP on this address. Clients are not
    /// authenticated, and it writes bindings: leave it on a loopback address.
    #[arg(long, default_value = "127.0.0.1:10263", value_name = "ADDRESS:PORT",
        value_parser = crate::values::endpoint)]
    pub listen: std::net::SocketAddr,
    /// How to log.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    pub log: crate::arguments::Log,
}

/// What to do with the store.
#[derive(Subcommand)]
pub enum StoreCommand {
    /// Verify the store and show a summary of its contents; every byte is read if no fabric has it open.
    #[command(after_help = "\
Examples:
  ringway place store check
  ringway place store check --store /run/ringway/lab/placement.redb")]
    Check,
    /// Write a backup of the store to a file; the fabric may be up or down.
    #[command(after_help = "\
Examples:
  ringway place store backup placement.backup
  ringway --fabric lab place store backup /var/backups/lab.placement")]
    Backup {
        /// The file.
        file: PathBuf,
    },
    /// Restore the store from a backup, or from the readable parts of its damaged files.
    #[command(after_help = "\
The store's fabric must be down. The previous files are kept under other names.

Examples:
  ringway place store restore placement.backup
  ringway place store restore --salvage")]
    Restore {
        /// The backup.
        #[arg(required_unless_present = "salvage")]
        file: Option<PathBuf>,
        /// Restore the readable parts of the damaged files.
        #[arg(long, conflicts_with = "file")]
        salvage: bool,
    },
}

/// Kinds of objects that can be shown and deleted.
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
    /// A host's measurements.
    Load,
    /// A host's blacklist entry.
    Blacklist,
    /// A fact about a host, HOST/NAME.
    Fact,
}

impl Removable {
    /// Its name in the API.
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

/// Parameters of a simulation.
#[derive(Args)]
pub struct Simulate {
    /// Number of generated hosts, with 40 CPUs and 98 GB each; by default 100. With `--inventory` the hosts are those
    /// of `--cluster`, of its only cluster, or of `default`, with their VMs.
    #[arg(long, conflicts_with = "nodes", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub hosts: Option<u32>,
    /// Use the hosts of this file: openb's list of nodes.
    #[arg(long, value_name = "FILE")]
    pub nodes: Option<PathBuf>,
    /// The cluster of `--inventory` whose hosts are filled.
    #[arg(long, value_name = "NAME")]
    pub cluster: Option<String>,
    /// A trace's file, or `synthetic`.
    #[arg(long, default_value = "synthetic", value_name = "FILE")]
    pub trace: PathBuf,
    /// The trace's format.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Policies to compare.
    #[arg(long = "policy", value_name = "NAME", default_value = "none")]
    pub policies: Vec<String>,
    /// A file with policies, in addition to the built-in ones.
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Number of VMs of a synthetic trace.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u32).range(1..=20_000_000))]
    pub vms: u32,
    /// Sizes of a synthetic trace's VMs.
    #[arg(long, default_value = "vmagent")]
    pub mix: String,
    /// Mean time between two arrivals of a synthetic trace, in seconds.
    #[arg(long, default_value_t = 10, value_parser = whole::<u64>)]
    pub gap: u64,
    /// Mean lifetime of a VM of a synthetic trace, in seconds; 0 for unlimited.
    #[arg(long, default_value_t = 36_000, value_parser = whole::<u64>)]
    pub lifetime: u64,
    /// Seconds between two rounds of balancing; 0 for none.
    #[arg(long, default_value_t = 60, value_parser = whole::<u64>)]
    pub interval: u64,
    /// Stop at the first VM that finds no host.
    #[arg(long)]
    pub until_full: bool,
    /// Ignore the trace's departures: every VM stays to the end.
    #[arg(long)]
    pub ignore_departures: bool,
    /// Seed of generated hosts and traces.
    #[arg(long, default_value_t = 1, value_parser = whole::<u64>)]
    pub seed: u64,
    /// Write samples over time to this CSV file.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
    /// Draw samples over time to this SVG file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// A trace's format.
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
