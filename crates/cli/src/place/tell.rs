//! What `ringway place` says.

use crate::fail::Fail;
use crate::text::{self, BAD, GOOD, Table, cell};
use anstream::println;
use ringway_control::place::{DecisionView, ExplainView, PluginsView, UnitView};
use ringway_place::decide::{Choice, HostTrace, Trace};
use ringway_place::engine::{BalanceStep, HostRow, MigrationState, WhyNot};
use ringway_place::policy::Policy;

fn choice(choice: &Choice) {
    let vms = choice.vms.join(", ");
    match &choice.host {
        Some(host) => println!(
            "{vms}: {GOOD}{host}{GOOD:#} by policy {}, of {} hosts of which {} passed",
            choice.policy, choice.hosts, choice.passed
        ),
        None => println!("{vms}: {BAD}no host{BAD:#}; {}", choice.why()),
    }
    for error in &choice.errors {
        println!("  left out: {error}");
    }
}

/// Fails if there is no host for somebody.
fn verdict(decision: &DecisionView) -> Result<(), Fail> {
    match decision.choices.iter().find(|choice| choice.host.is_none()) {
        None => Ok(()),
        Some(choice) => Err(Fail::Failed(choice.why())),
    }
}

pub fn decision(decision: &DecisionView, json: bool) -> Result<(), Fail> {
    if json {
        text::json(decision);
    } else {
        println!("decision {}", decision.id);
        decision.choices.iter().filter(|it| it.host.is_some()).for_each(choice);
    }
    verdict(decision)
}

pub fn attempt(explained: &ExplainView, json: bool) -> Result<(), Fail> {
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
        println!("  {}: {}", verdict.filter, verdict.reason);
    }
    for error in &why.errors {
        println!("  left out: {error}");
    }
    if !why.refused.is_empty() {
        println!("  no host would be chosen: the policy requires a unit that failed: {}", why.refused);
    }
    if let Some(score) = why.score {
        println!("  score {score:.1}");
    }
    if let (false, Some(best)) = (why.chosen, &why.best) {
        println!("  {best} would be chosen, score {:.1}", why.best_score.unwrap_or(0.0));
    }
}

pub fn explain(explained: &ExplainView, host: Option<&str>, json: bool) -> Result<(), Fail> {
    if json {
        text::json(explained);
        return Ok(());
    }
    let decision = &explained.decision;
    println!("decision {}, revision {}, seed {}", decision.id, decision.revision, decision.seed);
    decision.choices.iter().for_each(choice);
    if !explained.note.is_empty() {
        println!("{}", explained.note);
    }
    let is_there = |name: &str| {
        let hosts = explained.traces.iter().flat_map(|trace| &trace.hosts);
        explained.traces.is_empty() || hosts.map(|row| row.host.as_str()).any(|host| host == name)
    };
    if let Some(host) = host.filter(|host| !is_there(host)) {
        let what = format!("decision {} looked at no host {}", explained.decision.id, host.escape_debug());
        return Err(Fail::Unknown(format!("{what}; leave --host out for all")));
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
            println!("round {}: {vm} {verb} from {from} to {to} ({why})", round + 1);
        }
        if let Some((host, status)) = &step.power {
            quiet = false;
            println!("round {}: {host} becomes {status:?} ({})", round + 1, step.power_reason);
        }
        for host in &step.unsafe_hosts {
            println!("round {}: highly available VMs of {host} have no other host", round + 1);
        }
        step.errors.iter().for_each(|error| println!("round {}: {error}", round + 1));
    }
    if quiet {
        println!("nothing to move");
    }
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
        let status = if host.blacklisted.is_empty() {
            format!("{:?}", host.status).to_lowercase()
        } else {
            format!("blacklisted: {}", host.blacklisted)
        };
        let facts: Vec<String> = host.facts.iter().map(|(name, value)| format!("{name}={value}")).collect();
        table.row(vec![
            cell(&host.name),
            cell(&host.cluster),
            text::state(&status),
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
            // Those of plugins may have lines.
            cell(unit.description.split_whitespace().collect::<Vec<_>>().join(" ")),
            cell(properties.join(", ")),
        ]);
    }
    table.print();
}
