//! `ringway place simulate`.

use super::arguments::{Format, Simulate};
use crate::fail::Fail;
use crate::text::{self, Table, cell};
use ringway_place::object::Host;
use ringway_place::policy::{self, Policy, built_in};
use ringway_place::simulate::{
    Arrival, MIXES, Plan, Report, Synthetic, TraceKind, csv, hosts, read, read_nodes, run, svg,
};
use std::io::Read;
use std::path::Path;
use std::process::Command;

fn text_of(file: &Path) -> Result<String, Fail> {
    std::fs::read_to_string(file).map_err(|error| Fail::Failed(format!("{}: {error}", file.display())))
}

/// How an SQLite file begins (its file format, section 1.3).
const SQLITE: &[u8] = b"SQLite format 3\0";

/// A trace as text. A database is read by Python, which has SQLite.
fn trace_text(options: &Simulate) -> Result<String, Fail> {
    let file = &options.trace;
    let at = |error: std::io::Error| Fail::Failed(format!("{}: {error}", file.display()));
    let mut first = Vec::new();
    let opened = std::fs::File::open(file).map_err(at)?;
    opened.take(SQLITE.len() as u64).read_to_end(&mut first).map_err(at)?;
    if options.format != Format::Azure || first != SQLITE {
        return text_of(file);
    }
    let mut python = Command::new("python3");
    python.args(["-m", "ringway.traces", "--"]).arg(file);
    if let Some(package) = std::env::var_os("RINGWAY_PYTHON") {
        python.env("PYTHONPATH", package);
    }
    let output = python.output().map_err(|error| Fail::Failed(format!("python3: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let hint = "Python's package ringway reads SQLite: `pip install` the folder python/, or name it in \
            RINGWAY_PYTHON";
        return Err(Fail::Failed(format!("{}\n{hint}", said.trim())));
    }
    String::from_utf8(output.stdout).map_err(Fail::because)
}

/// Runs every policy over the same trace, and compares.
pub fn simulate(options: &Simulate, json: bool) -> Result<(), Fail> {
    let arrivals = arrivals(options)?;
    let hosts = match &options.nodes {
        Some(file) => read_nodes(&file.display().to_string(), &text_of(file)?).map_err(Fail::because)?,
        None => hosts(options.hosts.max(1), options.seed),
    };
    let mut reports = Vec::new();
    for policy in policies(options)? {
        reports.push(one(options, &hosts, policy, &arrivals)?);
    }
    let write = |file: &Path, text: String| {
        std::fs::write(file, text).map_err(|error| Fail::Failed(format!("{}: {error}", file.display())))
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

fn one(options: &Simulate, hosts: &[Host], policy: Policy, arrivals: &[Arrival]) -> Result<Report, Fail> {
    let plan = Plan {
        hosts: hosts.to_vec(),
        policy,
        interval: options.interval.saturating_mul(1000),
        samples: 200,
        until_full: options.until_full,
        seed: options.seed,
    };
    run(&plan, arrivals).map_err(Fail::because)
}

fn arrivals(options: &Simulate) -> Result<Vec<Arrival>, Fail> {
    if options.trace.as_os_str() != "synthetic" {
        let kind = match options.format {
            Format::Vmagent => TraceKind::Vmagent,
            Format::Openb => TraceKind::Openb,
            Format::Azure => TraceKind::Azure,
        };
        return read(kind, &options.trace.display().to_string(), &trace_text(options)?)
            .map_err(Fail::because);
    }
    if !MIXES.iter().any(|mix| mix.name == options.mix) {
        let known: Vec<&str> = MIXES.iter().map(|mix| mix.name).collect();
        return Err(Fail::Unknown(format!(
            "there is no mix \"{}\"; there are {}",
            options.mix,
            known.join(", ")
        )));
    }
    let trace = Synthetic {
        mix: options.mix.clone(),
        count: options.vms,
        gap: options.gap.saturating_mul(1000),
        lifetime: (options.lifetime > 0).then(|| options.lifetime.saturating_mul(1000)),
        seed: options.seed,
    };
    Ok(trace.arrivals())
}

fn policies(options: &Simulate) -> Result<Vec<Policy>, Fail> {
    let mut known = built_in();
    if let Some(file) = &options.file {
        let read = policy::read(&file.display().to_string(), &text_of(file)?, &[]);
        known.extend(read.map_err(|problems| Fail::Inventory(problems.to_string()))?);
    }
    let find = |name: &String| {
        let found = known.iter().rev().find(|policy| policy.name == *name).cloned();
        let names: Vec<&str> = known.iter().map(|policy| policy.name.as_str()).collect();
        found.ok_or_else(|| {
            Fail::Unknown(format!("there is no policy \"{name}\"; there are {}", names.join(", ")))
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
        ">CPU",
        ">MEMORY",
        ">FRAGMENTED",
        ">USED",
    ];
    let mut table = Table::new(&heads);
    for report in reports {
        let percent = |part: f64| cell(format!("{:.1}%", part * 100.0));
        table.row(vec![
            cell(&report.policy),
            cell(report.hosts),
            cell(report.placed),
            cell(report.rejected),
            cell(report.before_rejection.map_or("-".into(), |count| count.to_string())),
            cell(report.migrations),
            percent(report.mean(|sample| sample.cpu)),
            percent(report.mean(|sample| sample.memory)),
            percent(report.mean(|sample| sample.fragmentation)),
            cell(format!("{:.1}", report.mean(|sample| sample.used as f64))),
        ]);
    }
    table.print();
}
