//! `ringway place simulate`.

use super::arguments::{Format, Simulate};
use super::source;
use crate::command_error::CommandError;
use crate::input;
use crate::text::{self, Table, cell};
use ringway_place::engine::Object;
use ringway_place::inventory::KnownObjects;
use ringway_place::object::Host;
use ringway_place::policy::{self, Policy, built_in};
use ringway_place::simulate::{
    Arrival, LONGEST, MIXES, Plan, Report, Sample, Synthetic, TraceKind, csv, hosts, read, read_nodes,
    run_with, svg,
};
use ringway_place::unit::{External, ExternalUnit};
use ringway_scheduler::Clock;
use ringway_scheduler::plugins::{Found, Options, Plugins, find, python};
use std::collections::{BTreeSet, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// Largest trace, or list of nodes, in bytes.
const MAX_TRACE_LEN: usize = 2 << 30;
/// First bytes of an SQLite file (its file format, section 1.3).
const SQLITE: &[u8] = b"SQLite format 3\0";

/// A trace as text. An SQLite database is converted by Python, which includes SQLite.
fn trace_text(options: &Simulate) -> Result<String, CommandError> {
    let file = &options.trace;
    let is_sqlite = || {
        let mut first = Vec::new();
        let read = File::open(file).and_then(|it| it.take(SQLITE.len() as u64).read_to_end(&mut first));
        read.is_ok() && first == SQLITE
    };
    if options.format != Format::Azure || !file.is_file() || !is_sqlite() {
        return input::text(file, MAX_TRACE_LEN, "a trace");
    }
    let mut command = python("ringway.traces").map_err(CommandError::Failed)?;
    let output = command.arg("--").arg(file).output();
    let output =
        output.map_err(|error| CommandError::Failed(format!("python3, which reads SQLite: {error}")))?;
    if !output.status.success() {
        return Err(CommandError::Failed(String::from_utf8_lossy(&output.stderr).trim().into()));
    }
    String::from_utf8(output.stdout).map_err(CommandError::because)
}

/// The hosts and further objects against which a trace is run.
struct SimulatedObjects {
    hosts: Vec<Host>,
    /// The objects of the inventory other than hosts.
    beside: Vec<Object>,
    plugins: Options,
    units: Vec<ExternalUnit>,
}

impl SimulatedObjects {
    fn new(
        options: &Simulate,
        inventory: Option<&Path>,
        plugins: Options,
    ) -> Result<SimulatedObjects, CommandError> {
        if let Some(path) = plugins.lacks() {
            return Err(CommandError::Failed(format!("{}: no such folder", path.display())));
        }
        let found = if plugins.is_empty() { Found::default() } else { find(&plugins) };
        for problem in &found.problems {
            let what = format!("{}: {}", problem.source, problem.what);
            if problem.is_out {
                return Err(CommandError::Failed(what));
            }
            text::warn(&what);
        }
        let mut scene =
            SimulatedObjects { hosts: Vec::new(), beside: Vec::new(), plugins, units: found.units };
        let Some(file) = inventory else {
            if options.cluster.is_some() {
                return Err(CommandError::Failed(
                    "--cluster is one of an inventory; add --inventory FILE".into(),
                ));
            }
            scene.hosts = match &options.nodes {
                Some(file) => {
                    let text = input::text(file, MAX_TRACE_LEN, "a file of nodes")?;
                    read_nodes(&file.display().to_string(), &text).map_err(CommandError::because)?
                }
                None => hosts(options.hosts.unwrap_or(DEFAULT_HOSTS) as usize, options.seed),
            };
            return Ok(scene);
        };
        if options.hosts.is_some() || options.nodes.is_some() {
            let what = "the hosts are those of --inventory; leave --hosts and --nodes out";
            return Err(CommandError::Failed(what.into()));
        }
        let now = Some(Clock::default().now());
        let beside = KnownObjects { units: scene.units.clone(), now, ..KnownObjects::default() };
        scene.beside = source::read(file, &beside)?;
        scene.hosts = of_cluster(&scene.beside, options.cluster.as_deref(), file)?;
        Ok(scene)
    }
}

/// Default number of generated hosts.
const DEFAULT_HOSTS: u32 = 100;

/// The hosts of the named cluster, of the cluster `default`, or of the only cluster.
fn of_cluster(objects: &[Object], cluster: Option<&str>, file: &Path) -> Result<Vec<Host>, CommandError> {
    let hosts =
        || objects.iter().filter_map(|it| if let Object::Host(host) = it { Some(&**host) } else { None });
    let clusters: BTreeSet<&str> = hosts().map(|host| host.cluster.as_str()).collect();
    let cluster = match (cluster, clusters.len()) {
        (Some(cluster), _) => cluster,
        (None, 1) => clusters.first().copied().unwrap_or_default(),
        (None, _) => "default",
    };
    let of_it: Vec<Host> = hosts().filter(|host| host.cluster == cluster).cloned().collect();
    if of_it.is_empty() {
        let known: Vec<&str> = clusters.into_iter().collect();
        let known = if known.is_empty() {
            "no hosts at all".into()
        } else {
            format!("hosts of {}", known.join(", "))
        };
        let what =
            format!("{}: cluster {} has no hosts; there are {known}", file.display(), cluster.escape_debug());
        return Err(CommandError::Unknown(what));
    }
    Ok(of_it)
}

/// Runs the same trace with each policy, and compares the results.
pub fn simulate(
    options: &Simulate,
    inventory: Option<&Path>,
    plugins: Options,
    json: bool,
) -> Result<(), CommandError> {
    let mut arrivals = arrivals(options)?;
    if options.ignore_departures {
        arrivals.iter_mut().for_each(|arrival| arrival.lifetime = None);
    }
    let scene = SimulatedObjects::new(options, inventory, plugins)?;
    let names: HashSet<&str> = arrivals.iter().map(|arrival| arrival.vm.name.as_str()).collect();
    let taken = scene.beside.iter().find_map(|object| match object {
        Object::Vm(vm) if names.contains(vm.name.as_str()) => Some(&vm.name),
        _ => None,
    });
    if let Some(name) = taken {
        return Err(CommandError::Failed(format!(
            "VM {name} is in the inventory and in the trace; give it another name"
        )));
    }
    let mut reports = Vec::new();
    for policy in policies(options, &scene)? {
        reports.push(one(options, &scene, policy, &arrivals)?);
    }
    let write = |file: &Path, text: String| {
        std::fs::write(file, text)
            .map_err(|error| CommandError::Failed(format!("{}: {error}", file.display())))
    };
    if let Some(file) = &options.csv {
        write(file, csv(&reports))?;
    }
    if let Some(file) = &options.svg {
        write(file, svg(&reports))?;
    }
    if json {
        text::json(&reports);
    } else {
        table(&reports);
    }
    Ok(())
}

fn one(
    options: &Simulate,
    scene: &SimulatedObjects,
    policy: Policy,
    arrivals: &[Arrival],
) -> Result<Report, CommandError> {
    let plan = Plan {
        hosts: scene.hosts.clone(),
        policy,
        interval: options.interval.saturating_mul(1000),
        samples: 200,
        until_full: options.until_full,
        seed: options.seed,
    };
    let start = || Box::new(Plugins::start(scene.plugins.clone())) as Box<dyn External>;
    let external = (!scene.plugins.is_empty()).then(start);
    run_with(&plan, &scene.beside, external, arrivals).map_err(CommandError::because)
}

fn arrivals(options: &Simulate) -> Result<Vec<Arrival>, CommandError> {
    if options.trace.as_os_str() != "synthetic" {
        let kind = match options.format {
            Format::Vmagent => TraceKind::Vmagent,
            Format::Openb => TraceKind::Openb,
            Format::Azure => TraceKind::Azure,
        };
        return read(kind, &options.trace.display().to_string(), &trace_text(options)?)
            .map_err(CommandError::because);
    }
    if !MIXES.iter().any(|mix| mix.name == options.mix) {
        let known: Vec<&str> = MIXES.iter().map(|mix| mix.name).collect();
        return Err(CommandError::Unknown(format!(
            "there is no mix \"{}\"; there are {}",
            options.mix,
            known.join(", ")
        )));
    }
    let trace = Synthetic {
        mix: options.mix.clone(),
        count: options.vms as usize,
        gap: options.gap.saturating_mul(1000),
        lifetime: (options.lifetime > 0).then(|| options.lifetime.saturating_mul(1000)),
        seed: options.seed,
    };
    let arrivals = trace.arrivals();
    let span = arrivals.last().map_or(0, |last| last.at);
    if span > LONGEST {
        let years = span / (LONGEST / 10);
        return Err(CommandError::Failed(format!(
            "the trace lasts {years} years; the limit is ten: lower --vms or --gap"
        )));
    }
    Ok(arrivals)
}

fn policies(options: &Simulate, scene: &SimulatedObjects) -> Result<Vec<Policy>, CommandError> {
    let mut known = built_in();
    let described = scene.beside.iter().filter_map(|object| match object {
        Object::Policy(policy) => Some(policy.clone()),
        _ => None,
    });
    known.extend(described);
    if let Some(file) = &options.file {
        let text = input::text(file, policy::LARGEST, "a file with policies")?;
        let read = policy::read(&file.display().to_string(), &text, &scene.units);
        known.extend(read.map_err(|problems| CommandError::Inventory(problems.to_string()))?);
    }
    let find = |name: &String| {
        let found = known.iter().rev().find(|policy| policy.name == *name).cloned();
        let names: Vec<&str> = known.iter().map(|policy| policy.name.as_str()).collect();
        found.ok_or_else(|| {
            CommandError::Unknown(format!("there is no policy \"{name}\"; there are {}", names.join(", ")))
        })
    };
    options.policies.iter().map(find).collect()
}

fn table(reports: &[Report]) {
    let heads = [
        "POLICY",
        ">HOSTS",
        ">PLACED",
        ">REJECTED",
        ">BEFORE",
        ">MIGRATIONS",
        ">CPU/END",
        ">MEMORY/END",
        ">FRAGMENTED/END",
        ">USED/END",
    ];
    let mut table = Table::new(&heads);
    for report in reports {
        let end = report.samples.last().cloned().unwrap_or_default();
        let percent = |part: fn(&Sample) -> f64| {
            cell(format!("{:.1}%/{:.1}%", report.mean(part) * 100.0, part(&end) * 100.0))
        };
        table.row(vec![
            cell(&report.policy),
            cell(report.hosts),
            cell(report.placed),
            cell(report.rejected),
            cell(report.before_rejection.map_or("-".into(), |count| count.to_string())),
            cell(report.migrations),
            percent(|sample| sample.cpu),
            percent(|sample| sample.memory),
            percent(|sample| sample.fragmentation),
            cell(format!("{:.1}/{}", report.mean(|sample| sample.used as f64), end.used)),
        ]);
    }
    table.print();
}
