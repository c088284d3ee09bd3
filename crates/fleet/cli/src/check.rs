//! `ringway check`.

use crate::arguments::Target;
use crate::command_error::CommandError;
use crate::input;
use crate::text;
use ringway_control::api::ProblemView;
use ringway_control::file::{Fabric, Host, LARGEST, Outside, read_with};
use ringway_control::run_dir;
use std::path::Path;

/// Properties of this host that files are checked against.
pub fn host() -> Host {
    Host {
        cores: ringway_host::allowed_cores().unwrap_or_default(),
        nodes: ringway_host::nodes().to_vec(),
        base: Some(run_dir::base()),
        run: None,
        find: Some(ringway_scheduler::plugins::find),
        kinds: crate::kinds().control,
    }
}

/// Reads and checks a fabric file; returns its text as well.
pub fn load(target: &Target, file: &Path) -> Result<(Fabric, String), CommandError> {
    let text = input::text(file, LARGEST, "a fabric file")?;
    let folder = file.parent().unwrap_or(Path::new(""));
    let outside = Outside::of_this_host(folder, &crate::function::check);
    let run = target.fabric.as_ref().map(|name| run_dir::base().join(name));
    let host = Host { run, ..host() };
    let mut fabric = read_with(&file.display().to_string(), &text, &host, Some(&outside))?;
    fabric.warnings.iter().for_each(|warning| text::warn(warning));
    if let Some(name) = &target.fabric {
        fabric.name.clone_from(name);
    }
    Ok((fabric, text))
}

/// Prints all errors of a file.
pub fn check(target: &Target, json: bool, file: &Path) -> Result<(), CommandError> {
    let result = load(target, file);
    if json {
        let problems: Vec<ProblemView> = match &result {
            Ok(_) => Vec::new(),
            Err(CommandError::File(problems)) => ProblemView::list(problems),
            Err(_) => return result.map(drop),
        };
        text::json(&problems);
        if !problems.is_empty() {
            std::process::exit(3);
        }
        return Ok(());
    }
    let (fabric, _) = result?;
    let count = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    println!(
        "{}good:{:#} fabric {}, {}, {}, {}{}, {}{}{}",
        text::GOOD,
        text::GOOD,
        fabric.name,
        if fabric.switches.len() == 1 {
            "1 switch".into()
        } else {
            format!("{} switches", fabric.switches.len())
        },
        count(fabric.ports.len(), "port"),
        if fabric.hosts.is_empty() {
            String::new()
        } else {
            format!("{}, ", count(fabric.hosts.len(), "host"))
        },
        count(fabric.guests.len(), "guest"),
        if fabric.functions.is_empty() {
            String::new()
        } else {
            format!("{}, ", count(fabric.functions.len(), "function"))
        },
        if fabric.chains.is_empty() {
            String::new()
        } else {
            format!("{}, ", count(fabric.chains.len(), "chain"))
        },
        count(fabric.workers.len(), "worker"),
    );
    Ok(())
}
