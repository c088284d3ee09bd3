//! Measures Ringway's performance targets and prints each result with a peer's from the same run.
//!
//! Each group of benchmarks runs in a separate process, which ends with this one, as does everything that it started;
//! global settings (the number of huge pages) are restored here.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bbr;
mod cards;
mod click;
mod entry;
mod exec;
mod functions;
mod harness;
mod huge;
mod keys;
mod machine;
mod nic;
mod peer;
mod plan;
mod report;
mod run;
mod svg;
mod tcp;
mod vms;

use clap::Parser;
use keys::{Group, SUBJECTS, Subject};
use plan::Plan;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// An error of a benchmark; reported as text.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Measure Ringway's performance targets; a timing never fails.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  ringway-bench                       everything, about six minutes
  ringway-bench vhost ring.64         keys, or prefixes of keys
  ringway-bench --seconds 20 vhost    longer, for steadier figures
  ringway-bench --subject click       Click configurations instead of the fabric
  ringway-bench --list                all keys with descriptions")]
struct Arguments {
    /// Keys, or prefixes of keys up to a dot; all if none. With `--function`, the configuration's parameters.
    keys: Vec<String>,
    /// The subject: fabric, click, functions, vms, iommu, nic, cards, tcp, exec or bbr.
    #[arg(long, default_value = "fabric", value_parser = subject)]
    subject: &'static str,
    /// Seconds to measure each key for.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// List all keys with descriptions.
    #[arg(long)]
    list: bool,
    /// Print the existing report as a Markdown table, without measuring.
    #[arg(long)]
    markdown: bool,
    /// Write the existing report's tables and plots into docs/, without measuring (subjects fabric, click, functions,
    /// nic and bbr only).
    #[arg(long, conflicts_with = "markdown")]
    document: bool,
    /// The report's file; target/bench/SUBJECT.json if none is given.
    #[arg(long)]
    report: Option<PathBuf>,
    /// Run one group in this process and write its rows to the report's file.
    #[arg(long, hide = true)]
    inside: Option<String>,
    /// Run this Click configuration.
    #[arg(long, hide = true)]
    function: Option<PathBuf>,
    /// Relay datagrams between standard input and output.
    #[arg(long, hide = true)]
    relay: bool,
    /// Print the resident bytes of an end of so many idle connections.
    #[arg(long, hide = true)]
    idle_connections: Option<usize>,
    /// The same of smoltcp.
    #[arg(long, hide = true)]
    idle_smoltcp: Option<usize>,
    /// Be a process of `apart.*`.
    #[arg(long, hide = true, num_args = 1..)]
    apart: Option<Vec<String>>,
}

fn subject(name: &str) -> Result<&'static str, String> {
    let names: Vec<&str> = SUBJECTS.iter().map(|subject| subject.name).collect();
    let found = SUBJECTS.iter().find(|subject| subject.name == name);
    found.map(|subject| subject.name).ok_or_else(|| format!("there are {}", names.join(", ")))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let Some(subject) = SUBJECTS.iter().find(|subject| subject.name == arguments.subject) else {
        return ExitCode::from(2);
    };
    let report = arguments.report.unwrap_or_else(|| format!("target/bench/{}.json", subject.name).into());
    if arguments.list {
        list(subject);
        return ExitCode::SUCCESS;
    }
    if let Some(file) = &arguments.function {
        let words: Vec<String> = [file.display().to_string()].into_iter().chain(arguments.keys).collect();
        return ExitCode::from(ringway_click_driver::click::run(
            &words,
            ringway_click_driver::click::Terminal,
        ));
    }
    if arguments.relay {
        return ExitCode::from(u8::from(peer::relay::relay().is_err()));
    }
    if let Some(connections) = arguments.idle_connections {
        return ExitCode::from(u8::from(tcp::memory::print(connections).is_err()));
    }
    if let Some(connections) = arguments.idle_smoltcp {
        return ExitCode::from(u8::from(tcp::stacks::print(connections).is_err()));
    }
    if let Some(words) = arguments.apart {
        return match tcp::apart::process(&words) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("ringway-bench: {words:?}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    if arguments.markdown {
        let keys: Vec<_> = subject.keys().collect();
        print!("{}", report::markdown(&report::read(&report), &keys));
        return ExitCode::SUCCESS;
    }
    if arguments.document {
        return document(subject, &report);
    }
    let plan = Plan::new(arguments.seconds);
    if let Some(name) = &arguments.inside {
        return match subject.groups.iter().find(|group| group.name == name) {
            Some(group) => run::inside(group, &arguments.keys, &plan, &report),
            None => ExitCode::from(2),
        };
    }
    let chosen = match choose(subject, &arguments.keys) {
        Ok(chosen) => chosen,
        Err(unknown) => {
            eprintln!("ringway-bench: there is no key `{unknown}`; --list shows them all");
            return ExitCode::from(2);
        }
    };
    match measure(subject, &chosen, &plan, &report, arguments.keys.is_empty()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ringway-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn document(subject: &Subject, path: &Path) -> ExitCode {
    let report = report::read(path);
    let result = match subject.document {
        None => Err(format!("the subject {} has no page with figures", subject.name).into()),
        Some(_) if report.is_empty() => {
            Err(format!("{} has no figures; measure first", path.display()).into())
        }
        Some(document) => document(&report, Path::new("docs")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error: Failure = error;
            eprintln!("ringway-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn list(subject: &Subject) {
    for (key, what) in subject.keys() {
        println!("{key:<24} {what}");
    }
}

/// Each group with its selected keys.
type Chosen = Vec<(&'static Group, Vec<String>)>;

fn choose(subject: &Subject, wanted: &[String]) -> Result<Chosen, String> {
    let meant = |wanted: &str, key: &str| {
        let wanted = wanted.trim_end_matches(".*");
        key.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    if let Some(unknown) = wanted.iter().find(|wanted| !subject.keys().any(|(key, _)| meant(wanted, key))) {
        return Err(unknown.clone());
    }
    let chosen = subject.groups.iter().map(|group| {
        let keys = group.keys.iter().map(|key| key.name);
        let keys = keys.filter(|key| wanted.is_empty() || wanted.iter().any(|wanted| meant(wanted, key)));
        (group, keys.map(String::from).collect::<Vec<_>>())
    });
    Ok(chosen.filter(|(_, keys)| !keys.is_empty()).collect())
}

fn measure(
    subject: &Subject,
    chosen: &Chosen,
    plan: &Plan,
    path: &Path,
    everything: bool,
) -> Result<(), Failure> {
    let pages = chosen.iter().map(|(group, _)| group.huge_pages).max().unwrap_or(0);
    let pages = huge::Pages::reserve(pages);
    let scratch = run::scratch()?;
    run::restore_on_signals(pages.clone(), scratch.clone())?;
    let mut report = if everything { report::Report::new() } else { report::read(path) };
    for (group, keys) in chosen {
        report.extend(run::in_process(subject, group, keys, plan, &scratch));
        report::write(path, &report)?;
    }
    pages.restore();
    run::remove(&scratch);
    let keys: Vec<String> = chosen.iter().flat_map(|(_, keys)| keys.iter().cloned()).collect();
    println!("\n{}\nwritten to {}", report::table(&report, &keys), path.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_selected_by_name_or_prefix() {
        let keys = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
            choose(&SUBJECTS[0], &wanted)
                .map(|chosen| chosen.into_iter().flat_map(|(_, keys)| keys).collect::<Vec<_>>())
        };
        assert_eq!(keys(&["vhost.split"]).unwrap(), ["vhost.split.64", "vhost.split.1500"]);
        assert_eq!(keys(&["ring.64"]).unwrap(), ["ring.64"]);
        assert!(keys(&["notify.*"]).unwrap().len() > 4);
        assert_eq!(keys(&["vhos"]), Err("vhos".to_string()));
    }

    #[test]
    fn keys_are_unique() {
        for subject in SUBJECTS {
            let mut keys: Vec<&str> = subject.keys().map(|(key, _)| key).collect();
            let count = keys.len();
            keys.sort_unstable();
            keys.dedup();
            assert_eq!(keys.len(), count, "{}", subject.name);
        }
    }
}
