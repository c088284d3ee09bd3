//! Placement in the file: clusters, policies, and sources of plugin units.

use super::{Host, named};
use ringway_place::inventory::read_clusters;
use ringway_place::object::Cluster;
use ringway_place::policy::{Policy, built_in, read_table};
use ringway_scheduler::plugins::{Folder, Found, Options, Service, is_url};
use ringway_scheduler::{Placement, PowerHook};
use ringway_spec::file::{Diagnostics, Problem, Section, nearest};
use ringway_spec::names;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Reads `[plugins.NAME]`, `[policy.NAME]` and `[cluster.NAME]` of the file called `file` in messages.
pub fn placement(top: &DeTable<'_>, file: &str, host: &Host, diagnostics: &Diagnostics) -> Placement {
    let home = Path::new(file).parent().unwrap_or(Path::new(""));
    let mut plugins = Options::default();
    let mut places = Vec::new();
    for section in named(top, "plugins", diagnostics) {
        let path = section.path.clone();
        if let Some(source) = source(section, &mut plugins, home) {
            match places.iter().find(|(other, _)| *other == source) {
                Some((_, other)) => {
                    diagnostics.error(
                        &diagnostics.of(&path),
                        format!("{path} is {other} once more"),
                        "keep one",
                    );
                }
                None => places.push((source, path)),
            }
        }
    }
    let found = match host.find.filter(|_| !places.is_empty()) {
        Some(find) => find(&plugins),
        None => Found::default(),
    };
    for problem in found.problems.iter().filter(|problem| problem.is_out) {
        out_of_reach(&problem.source, &problem.what, &places, diagnostics);
    }
    let mut problems = Vec::new();
    let policies = policies(top, &found, diagnostics, &mut problems);
    let clusters = read_clusters(top, &found.units, &mut problems);
    check_policies_of(&clusters, &policies, top, &mut problems);
    for problem in found.problems.iter().filter(|problem| !problem.is_out) {
        // A problem of a plugin file is only a warning, unless policies or clusters have errors, which it may explain.
        if problems.is_empty() {
            let place = place_of(&problem.source, &places);
            diagnostics.warn(&diagnostics.of(place), format!("{place}: {}", problem.what));
        } else {
            out_of_reach(&problem.source, &problem.what, &places, diagnostics);
        }
    }
    diagnostics.extend(problems);
    let (this_host, power) = settings(top, home, diagnostics);
    Placement { plugins, policies, clusters, this_host, power }
}

/// Longest time that switching a host may take, in nanoseconds.
const LONGEST_SWITCH: u64 = 300_000_000_000;

/// Reads the table `[placement]`: the cluster of the fabric's own host, and the program that switches hosts.
fn settings(
    top: &DeTable<'_>,
    home: &Path,
    diagnostics: &Diagnostics,
) -> (Option<String>, Option<PowerHook>) {
    let Some((key, value)) = top.get_key_value("placement") else { return (None, None) };
    let DeValue::Table(table) = value.get_ref() else {
        diagnostics.error(&key.span(), "`placement` is not a table", "write [placement]");
        return (None, None);
    };
    let mut section = Section::new("placement".into(), key.span(), table, diagnostics);
    let this_host = section.string("this-host", "default");
    if this_host.as_ref().is_some_and(|cluster| names::name(cluster).is_err()) {
        section.error("this-host", "`this-host` is not a cluster's name", format!("use {}", names::NAME));
    }
    let power = section.string("power", "/usr/local/bin/host-power");
    let limit = section.duration("power-limit", 1_000_000..=LONGEST_SWITCH, "30s");
    if power.is_none() && section.has("power-limit") {
        section.error("power-limit", "there is no program to limit", "add power = \"PROGRAM\"");
    }
    section.finish(|_| None);
    let hook = power.map(|program| {
        let path = home.join(program);
        PowerHook {
            program: std::path::absolute(&path).unwrap_or(path),
            limit_ms: limit.and_then(|limit| u32::try_from(limit / 1_000_000).ok()).unwrap_or(30_000),
        }
    });
    (this_host, hook)
}

/// Reports an error of a source of units, at the source's table.
fn out_of_reach(source: &str, what: &str, places: &[(String, String)], diagnostics: &Diagnostics) {
    let place = place_of(source, places);
    diagnostics.error(&diagnostics.of(place), format!("{place}: {what}"), "");
}

/// The path in the file of the table of a source of units.
fn place_of<'p>(source: &str, places: &'p [(String, String)]) -> &'p str {
    places.iter().find(|(name, _)| name == source).map_or("plugins", |(_, path)| path)
}

/// Largest time limit, in nanoseconds, and memory limit of a unit.
const LONGEST: u64 = 30_000_000_000;
const LARGEST: u64 = 1 << 40;

/// Reads a table `[plugins.NAME]`; returns the name of its source.
fn source(mut section: Section<'_>, plugins: &mut Options, home: &Path) -> Option<String> {
    let folder = section.string("folder", "plugins");
    let url = section.string("url", "http://127.0.0.1:8080/units");
    let limit = section.duration("limit", 1_000_000..=LONGEST, "1s");
    let limit_ms = limit.and_then(|limit| u32::try_from(limit / 1_000_000).ok());
    let memory = section.size("memory", 16 << 20..=LARGEST);
    let network = section.boolean("network");
    let unconfined = section.boolean("unconfined");
    let source = match (&folder, &url) {
        (Some(folder), None) => {
            // Absolute, since plugin hosts run in another working directory.
            let path = home.join(folder);
            let folder = Folder::new(std::path::absolute(&path).unwrap_or(path));
            let memory_mb = memory.and_then(|bytes| u32::try_from(bytes >> 20).ok());
            let folder = Folder {
                limit_ms: limit_ms.unwrap_or(folder.limit_ms),
                memory_mb: memory_mb.unwrap_or(folder.memory_mb),
                network: network.unwrap_or(false),
                unconfined: unconfined.unwrap_or(false),
                ..folder
            };
            let name = folder.path.display().to_string();
            plugins.folders.push(folder);
            Some(name)
        }
        (None, Some(url)) => {
            if !is_url(url) {
                section.error("url", format!("\"{}\" can't be asked", url.escape_debug()), URL);
            }
            for key in ["memory", "network", "unconfined"].into_iter().filter(|key| section.has(key)) {
                section.error(key, format!("a service has no `{key}`"), "only a folder has it");
            }
            let service = Service::new(url.clone());
            plugins.services.push(Service { limit_ms: limit_ms.unwrap_or(service.limit_ms), ..service });
            Some(url.clone())
        }
        (Some(_), Some(_)) => {
            section.error("url", "`folder` and `url` are both there", "give each a table of its own");
            None
        }
        (None, None) if section.has("folder") || section.has("url") => None,
        (None, None) => {
            section.missing("folder", "add folder = \"plugins\", or url = \"http://HOST:PORT/PATH\"");
            None
        }
    };
    section.finish(|_| None);
    source
}

/// The syntax of a service's address, for messages.
const URL: &str = "write http://HOST:PORT/PATH";

/// Reads the tables `[policy.NAME]`.
fn policies(
    top: &DeTable<'_>,
    found: &Found,
    diagnostics: &Diagnostics,
    problems: &mut Vec<Problem>,
) -> Vec<Policy> {
    let Some((key, value)) = top.get_key_value("policy") else { return Vec::new() };
    let DeValue::Table(tables) = value.get_ref() else {
        diagnostics.error(&key.span(), "`policy` is not a table", "write [policy.NAME]");
        return Vec::new();
    };
    read_table(tables, &found.units, problems)
}

/// Checks that the policies of clusters are in the file or built in.
fn check_policies_of(
    clusters: &[Cluster],
    policies: &[Policy],
    top: &DeTable<'_>,
    problems: &mut Vec<Problem>,
) {
    let built_in = built_in();
    let known: Vec<&str> = policies.iter().chain(&built_in).map(|policy| policy.name.as_str()).collect();
    let Some(DeValue::Table(tables)) = top.get("cluster").map(Spanned::get_ref) else { return };
    for (name, value) in tables.iter() {
        let of_it = clusters.iter().find(|cluster| cluster.name == **name.get_ref());
        let Some(cluster) = of_it.filter(|cluster| !known.contains(&cluster.policy.as_str())) else {
            continue;
        };
        let DeValue::Table(keys) = value.get_ref() else { continue };
        let at = keys.get("policy").map_or(name.span(), Spanned::span);
        let fix = match nearest(&cluster.policy, known.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("add [policy.{}], or name a built-in one", cluster.policy),
        };
        let what = format!("there is no policy \"{}\"", cluster.policy.escape_debug());
        problems.push(Problem::new(at, what, fix));
    }
    let policy_of = |name: &str| policies.iter().chain(&built_in).find(|policy| policy.name == name);
    for cluster in clusters {
        let Some(policy) = policy_of(&cluster.policy) else { continue };
        let unread = cluster.properties.keys().find_map(|property| policy.without_reader(property));
        if let (Some((what, fix)), Some(at)) = (unread, key_of(tables, &cluster.name, "properties")) {
            problems.push(Problem::new(at, what, fix));
        }
    }
}

/// The position of a key of a table.
fn key_of(tables: &DeTable<'_>, table: &str, key: &str) -> Option<std::ops::Range<usize>> {
    let DeValue::Table(keys) = tables.get(table)?.get_ref() else { return None };
    keys.get(key).map(Spanned::span)
}
