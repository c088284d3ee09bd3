//! Output of `ringway place`.

use crate::command_error::CommandError;
use crate::text::{self, BAD, GOOD, Table, cell};
use ringway_place::decide::{Choice, HostTrace, Trace};
use ringway_place::engine::{Action, ActionKind, BalanceStep, Changed, HostRow, MigrationState, WhyNot};
use ringway_place::object::HostStatus;
use ringway_place::policy::{FilterUse, Policy};
use ringway_scheduler::{DecisionView, ExplainView, PluginsView, UnitView, VmView};
use ringway_spec::{printable, printable_lines};
use std::collections::BTreeMap;

fn choice(choice: &Choice) {
    let vms = choice.vms.join(", ");
    match &choice.host {
        Some(host) => println!(
            "{vms}: {GOOD}{host}{GOOD:#} by policy {}, of {} hosts of which {} passed",
            choice.policy, choice.hosts, choice.passed
        ),
        None => println!("{vms}: {BAD}no host{BAD:#}; {}", printable(&choice.why())),
    }
    for error in &choice.errors {
        println!("  left out: {}", printable(&error.to_string()));
    }
}

/// Fails if a VM has no host.
fn verdict(decision: &DecisionView) -> Result<(), CommandError> {
    match decision.choices.iter().find(|choice| choice.host.is_none()) {
        None => Ok(()),
        Some(choice) => Err(CommandError::Failed(choice.why())),
    }
}

pub fn decision(decision: &DecisionView, json: bool) -> Result<(), CommandError> {
    if json {
        text::json(decision);
    } else {
        println!("decision {}", decision.id);
        decision.choices.iter().filter(|it| it.host.is_some()).for_each(choice);
    }
    verdict(decision)
}

pub fn attempt(explained: &ExplainView, json: bool) -> Result<(), CommandError> {
    if json {
        text::json(explained);
        return verdict(&explained.decision);
    }
    for chosen in &explained.decision.choices {
        choice(chosen);
        let mut table = Table::new(&["HOST", ">SCORE"]);
        for scored in chosen.top.iter().take(5) {
            table.row(vec![cell(&scored.host), cell(format!("{:.1}", scored.score))]);
        }
        if chosen.host.is_some() {
            table.print();
        }
    }
    verdict(&explained.decision)
}

pub fn why_not(why: &WhyNot, json: bool) {
    if json {
        return text::json(why);
    }
    if why.chosen {
        println!("{} would be chosen for {}", why.host, why.vm);
    } else if why.rejected.is_empty() && !why.refused.is_empty() {
        println!("{} passes the filters for {}", why.host, why.vm);
    } else if why.rejected.is_empty() {
        let others = match why.better {
            0 => "one as good was drawn".to_string(),
            1 => "1 host is better".to_string(),
            many => format!("{many} hosts are better"),
        };
        println!("{} can run {}, but {others}", why.host, why.vm);
    } else {
        println!("{} can't run {}:", why.host, why.vm);
    }
    for verdict in &why.rejected {
        println!("  {}: {}", printable(&verdict.filter), printable(&verdict.reason));
    }
    for error in &why.errors {
        println!("  left out: {}", printable(&error.to_string()));
    }
    if !why.refused.is_empty() {
        println!(
            "  no host would be chosen: the policy requires a unit that failed: {}",
            printable(&why.refused)
        );
    }
    if let Some(score) = why.score {
        println!("  score {score:.1}");
    }
    if let (false, Some(best)) = (why.chosen, &why.best) {
        println!("  {best} would be chosen, score {:.1}", why.best_score.unwrap_or(0.0));
    }
}

pub fn explain(explained: &ExplainView, host: Option<&str>, json: bool) -> Result<(), CommandError> {
    if json {
        text::json(explained);
        return Ok(());
    }
    let decision = &explained.decision;
    println!("decision {}, revision {}, seed {}", decision.id, decision.revision, decision.seed);
    decision.choices.iter().for_each(choice);
    if !explained.note.is_empty() {
        println!("{}", printable_lines(&explained.note));
    }
    let is_there = |name: &str| {
        let hosts = explained.traces.iter().flat_map(|trace| &trace.hosts);
        explained.traces.is_empty() || hosts.map(|row| row.host.as_str()).any(|host| host == name)
    };
    if let Some(host) = host.filter(|host| !is_there(host)) {
        let what = format!("decision {} looked at no host {}", explained.decision.id, host.escape_debug());
        return Err(CommandError::Unknown(format!("{what}; leave --host out for all")));
    }
    for trace in &explained.traces {
        println!();
        trace_table(trace, host);
    }
    Ok(())
}

fn trace_table(trace: &Trace, only: Option<&str>) {
    println!("filters: {}", trace.filters.join(", "));
    let mut hosts: Vec<&HostTrace> =
        trace.hosts.iter().filter(|host| only.is_none_or(|only| host.host == only)).collect();
    hosts.sort_by(|a, b| b.score.unwrap_or(f64::MIN).total_cmp(&a.score.unwrap_or(f64::MIN)));
    let mut table = Table::new(&["HOST", ">SCORE", "WHY"]);
    for host in hosts {
        let weights: Vec<String> = host
            .weights
            .iter()
            .filter(|weight| weight.factor > 0)
            .map(|weight| {
                format!("{} {} -> {:.1} x {}", weight.weight, weight.raw, weight.points, weight.factor)
            })
            .collect();
        let reasons: Vec<String> =
            host.rejected.iter().map(|verdict| format!("{}: {}", verdict.filter, verdict.reason)).collect();
        let why = if reasons.is_empty() { weights.join("; ") } else { reasons.join("; ") };
        table.row(vec![
            cell(&host.host),
            cell(host.score.map_or("-".into(), |s| format!("{s:.1}"))),
            cell(why),
        ]);
    }
    table.print();
}

pub fn decisions(decisions: &[DecisionView], json: bool) {
    if json {
        return text::json(&decisions);
    }
    let mut table = Table::new(&[">ID", ">REVISION", "VMS", "HOST", "POLICY"]);
    for decision in decisions {
        for choice in &decision.choices {
            let host = choice.host.clone().unwrap_or_else(|| "-".into());
            table.row(vec![
                cell(decision.id),
                cell(decision.revision),
                cell(choice.vms.join(", ")),
                cell(host),
                cell(&choice.policy),
            ]);
        }
    }
    table.print();
}

pub fn balance(steps: &[BalanceStep], json: bool) {
    if json {
        return text::json(&steps);
    }
    let mut quiet = true;
    for (round, step) in steps.iter().enumerate() {
        for migration in &step.migrations {
            quiet = false;
            let verb = match migration.state {
                MigrationState::Proposed => "would move",
                MigrationState::Reserved => "is to move",
                MigrationState::Done => "moved",
                MigrationState::Refused => "could not move",
            };
            let why = if migration.refused.is_empty() { &migration.reason } else { &migration.refused };
            let (vm, from, to) = (&migration.vm, &migration.from, &migration.to);
            println!("round {}: {vm} {verb} from {from} to {to} ({})", round + 1, printable(why));
        }
        for action in &step.actions {
            quiet = false;
            println!("round {}: {}", round + 1, printable(&acted(action)));
        }
        if let Some((host, to)) = &step.power {
            quiet = false;
            println!(
                "round {}: {host} becomes {} ({})",
                round + 1,
                status(*to),
                printable(&step.power_reason)
            );
        }
        for host in &step.unsafe_hosts {
            println!("round {}: highly available VMs of {host} have no other host", round + 1);
        }
        let errors = step.errors.iter().map(ToString::to_string);
        errors.for_each(|error| println!("round {}: {}", round + 1, printable(&error)));
    }
    if quiet {
        println!("nothing to move");
    }
}

/// An action of a balancer, in words.
fn acted(action: &Action) -> String {
    let verb = match (action.kind, action.state) {
        (ActionKind::Stop, MigrationState::Done) => "was stopped",
        (ActionKind::Stop, MigrationState::Refused) => "could not be stopped",
        (ActionKind::Stop, _) => "is to stop",
        (ActionKind::Deactivate, MigrationState::Proposed) => "would go into maintenance",
        (ActionKind::Deactivate, _) => "goes into maintenance",
        (ActionKind::Activate, MigrationState::Proposed) => "would be activated",
        (ActionKind::Activate, _) => "is activated",
    };
    let why = if action.refused.is_empty() { &action.reason } else { &action.refused };
    format!("{} {verb} ({why})", action.name)
}

pub fn hosts(hosts: &[HostRow], json: bool) {
    if json {
        return text::json(&hosts);
    }
    let heads = [
        "HOST", "CLUSTER", "STATUS", ">CPUS", ">LOAD", ">VCPUS", ">MEMORY", ">LEFT", ">VMS", ">PENDING",
        "FACTS",
    ];
    let mut table = Table::new(&heads);
    for host in hosts {
        let state = if host.blacklisted.is_empty() {
            status(host.status).into()
        } else {
            format!("blacklisted: {}", host.blacklisted)
        };
        let facts: Vec<String> = host.facts.iter().map(|(name, value)| format!("{name}={value}")).collect();
        table.row(vec![
            cell(&host.name),
            cell(&host.cluster),
            text::state(&state),
            cell(host.cpus),
            cell(format!("{:.0}%", host.load)),
            cell(host.vcpus),
            cell(format!("{} MB", host.memory_mb)),
            cell(format!("{} MB", host.schedulable_mb.max(0))),
            cell(host.vms),
            cell(host.pending),
            cell(facts.join(" ")),
        ]);
    }
    table.print();
}

pub fn policies(policies: &[Policy], json: bool) {
    if json {
        return text::json(&policies);
    }
    let mut table = Table::new(&["POLICY", "SELECTOR", "BALANCER", "WEIGHTS"]);
    for policy in policies {
        let weights: Vec<String> =
            policy.weights.iter().map(|weight| format!("{} x{}", weight.name, weight.factor)).collect();
        table.row(vec![
            cell(&policy.name),
            cell(format!("{:?}", policy.selector).to_lowercase()),
            cell(&policy.balancer),
            cell(weights.join(", ")),
        ]);
    }
    table.print();
}

pub fn attached(plugins: &PluginsView, json: bool) {
    if json {
        return text::json(plugins);
    }
    if plugins.file.is_empty() && plugins.attached.is_empty() {
        println!("no plugins are attached");
        return;
    }
    let mut table = Table::new(&["PLUGINS", "FROM"]);
    for (sources, from) in [(&plugins.file, "the fabric's file"), (&plugins.attached, "`place plugins`")] {
        sources.iter().for_each(|source| table.row(vec![cell(source), cell(from)]));
    }
    table.print();
    plugins.problems.iter().for_each(|problem| text::warn(problem));
}

pub fn units(units: &[UnitView], json: bool) {
    if json {
        return text::json(&units);
    }
    let mut table = Table::new(&["KIND", "UNIT", "WHAT IT DOES", "PROPERTIES"]);
    for unit in units {
        let properties: Vec<&str> = unit.properties.iter().map(|property| property.name.as_str()).collect();
        table.row(vec![
            cell(&unit.kind),
            cell(&unit.name),
            // Descriptions of plugin units may have several lines.
            cell(unit.description.split_whitespace().collect::<Vec<_>>().join(" ")),
            cell(properties.join(", ")),
        ]);
    }
    table.print();
}

/// The status of a host, in words.
pub fn status(status: HostStatus) -> &'static str {
    match status {
        HostStatus::Up => "up",
        HostStatus::PreparingForMaintenance => "preparing for maintenance",
        HostStatus::Maintenance => "in maintenance",
        HostStatus::Down => "down",
        HostStatus::NonResponsive => "not responding",
    }
}

pub fn vms(vms: &[VmView], json: bool) {
    if json {
        return text::json(&vms);
    }
    let heads = ["VM", "CLUSTER", "STATUS", "HOST", "RESERVED", ">CPUS", ">MEMORY", "POLICY"];
    let mut table = Table::new(&heads);
    for VmView { vm, reserved } in vms {
        let or_none = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".into());
        let host = vm.host.clone().filter(|_| vm.runs());
        let cpus = f64::from(vm.sockets) * f64::from(vm.cores) * f64::from(vm.threads);
        table.row(vec![
            cell(&vm.name),
            cell(&vm.cluster),
            text::state(&format!("{:?}", vm.status).to_lowercase()),
            cell(or_none(&host)),
            cell(or_none(reserved)),
            cell(vm.milli_cpus.map_or(cpus, |milli| f64::from(milli) / 1000.0)),
            cell(format!("{} MB", vm.memory_mb)),
            cell(or_none(&vm.policy)),
        ]);
    }
    table.print();
}

pub fn blacklist(hosts: &[HostRow], json: bool) {
    let barred: Vec<&HostRow> = hosts.iter().filter(|host| !host.blacklisted.is_empty()).collect();
    if json {
        return text::json(&barred);
    }
    let mut table = Table::new(&["HOST", "CLUSTER", "REASON"]);
    for host in barred {
        table.row(vec![cell(&host.name), cell(&host.cluster), cell(&host.blacklisted)]);
    }
    table.print();
}

pub fn policy(policy: &Policy, units: &[UnitView], json: bool) {
    if json {
        return text::json(policy);
    }
    let lower = |it: &dyn std::fmt::Debug| format!("{it:?}").to_lowercase();
    println!("policy {}", policy.name);
    println!("selector {}, optimise {}", lower(&policy.selector), lower(&policy.optimise));
    println!("balancer {}", if policy.balancer.is_empty() { "None" } else { &policy.balancer });
    let what = |kinds: &[&str], name: &str| {
        let unit = units.iter().find(|unit| kinds.contains(&unit.kind.as_str()) && unit.name == name);
        let description = unit.map_or("an external unit that is unreachable", |unit| &unit.description);
        description.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let required = |required: bool| if required { "required" } else { "" };
    let is_external = |name: &str| ringway_place::filters::find(name).is_none();
    let on_error = |filter: &FilterUse| match filter.refuses() {
        _ if !is_external(&filter.name) => "",
        true => "refuse",
        false => "skip",
    };
    let mut filters = Table::new(&["FILTER", "TURN", "ON ERROR", "WHAT IT DOES"]);
    for unit in units.iter().filter(|unit| unit.kind == "mandatory") {
        filters.row(vec![cell(&unit.name), cell("always"), cell(""), cell(&unit.description)]);
    }
    for filter in policy.ordered() {
        filters.row(vec![
            cell(&filter.name),
            cell(lower(&filter.position)),
            cell(on_error(filter)),
            cell(what(&["filter"], &filter.name)),
        ]);
    }
    println!();
    filters.print();
    let mut weights = Table::new(&["WEIGHT", ">FACTOR", "REQUIRED", "WHAT IT DOES"]);
    for weight in &policy.weights {
        weights.row(vec![
            cell(&weight.name),
            cell(weight.factor),
            cell(required(weight.required)),
            cell(what(&["weight"], &weight.name)),
        ]);
    }
    println!();
    weights.print();
    println!();
    properties(policy, units);
}

/// Shows the properties that a policy's units read: the policy's values, or the defaults.
fn properties(policy: &Policy, units: &[UnitView]) {
    let is_used = |unit: &&UnitView| {
        let filter = || policy.filters.iter().any(|filter| filter.name == unit.name);
        let weight = || policy.weights.iter().any(|weight| weight.name == unit.name);
        match unit.kind.as_str() {
            "filter" => filter(),
            "weight" => weight(),
            "balancer" => policy.balancer == unit.name,
            _ => true,
        }
    };
    let read = units.iter().filter(is_used).flat_map(|unit| &unit.properties);
    let mut known: BTreeMap<&str, (&str, &str)> =
        read.map(|it| (it.name.as_str(), (it.default.as_str(), it.description.as_str()))).collect();
    for (name, value) in &policy.properties {
        let description = known.get(name.as_str()).map_or("", |(_, description)| description);
        known.insert(name, (value, description));
    }
    let mut table = Table::new(&["PROPERTY", "VALUE", "FROM", "WHAT IT IS"]);
    for (name, (value, description)) in known {
        let from = if policy.properties.contains_key(name) { "policy" } else { "default" };
        table.row(vec![cell(name), cell(value), cell(from), cell(description)]);
    }
    table.print();
}

pub fn events(events: &[Changed], heads: bool) {
    let mut table = Table::new(&[">REVISION", "TIME", "KIND", "NAME", "NOW"]);
    for event in events {
        table.row(vec![
            cell(event.revision),
            cell(event.at.map_or("-".into(), time)),
            cell(&event.kind),
            cell(&event.name),
            cell(if event.gone { "gone" } else { &event.what }),
        ]);
    }
    match heads {
        true => table.print(),
        false => table.print_rows(),
    }
}

/// A time of day in UTC.
fn time(at: u64) -> String {
    let seconds = at / 1000;
    format!("{:02}:{:02}:{:02}Z", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
}
