//! `ringway place drain`, `cordon` and `uncordon`.

use super::arguments::Removable;
use super::output;
use super::source::Source;
use crate::command_error::CommandError;
use crate::{guest_start, text};
use ringway_place::engine::{HostRow, MigrationState, Object};
use ringway_place::object::{Blacklist, HostStatus};
use ringway_scheduler::{DrainRequest, DrainView};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Interval between requests for progress.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Drains hosts, one after the other; with `wait`, until they are empty.
pub fn drain(
    source: &mut Source,
    hosts: &[String],
    parallel: u32,
    wait: Option<Option<u64>>,
    json: bool,
) -> Result<(), CommandError> {
    let end = wait.flatten().map(guest_start::end_of);
    // All hosts are closed to new VMs first, so that none is moved from one to the other.
    for host in hosts {
        source.maintain(host)?;
    }
    let mut last = Vec::new();
    for host in hosts {
        last.push(one(source, host, parallel, wait.is_some().then_some(end), json)?);
    }
    if json {
        text::json(&last);
    }
    let full = last.iter().find(|view| view.status != HostStatus::Maintenance);
    match full.filter(|_| wait.is_some() || source.is_file()) {
        None => Ok(()),
        Some(view) if end.is_some_and(|end| Instant::now() >= end) => {
            Err(CommandError::Late(format!("host {} {}", view.host, still(view))))
        }
        Some(view) => Err(CommandError::Failed(stays(view))),
    }
}

/// Drains one host, and tells the progress. `wait` is set to wait, with the time at which that ends.
fn one(
    source: &mut Source,
    host: &str,
    parallel: u32,
    wait: Option<Option<Instant>>,
    json: bool,
) -> Result<DrainView, CommandError> {
    let (mut all, mut known) = (BTreeSet::new(), BTreeSet::new());
    loop {
        let view = source.drain(host, DrainRequest { parallel })?;
        // VMs that are moved at once are no longer on the host.
        all.extend(on(&view).into_iter().map(str::to_string));
        all.extend(view.moves.iter().map(|it| it.vm.clone()));
        let before = known.len();
        let begun: Vec<_> = view.moves.iter().filter(|it| known.insert(it.vm.clone())).collect();
        if !json {
            for (number, it) in (before + 1..).zip(begun) {
                match it.state {
                    MigrationState::Refused => println!("{host}: {} does not move: {}", it.vm, it.refused),
                    _ => println!("{host}: {} moves to {} ({number} of {})", it.vm, it.to, all.len()),
                }
            }
        }
        let is_empty = view.status == HostStatus::Maintenance;
        let is_over = match wait {
            // Moves in a file take effect at once.
            None => !source.is_file(),
            Some(Some(end)) => Instant::now() >= end || is_hopeless(&view),
            Some(None) => is_stuck(&view),
        };
        if is_empty || is_over || (source.is_file() && view.moves.is_empty()) {
            if !json {
                tell_end(&view, wait.is_some());
            }
            return Ok(view);
        }
        if !source.is_file() {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

/// Whether no VM can leave now. Without VMs here, only those that are expected are waited for.
fn is_stuck(view: &DrainView) -> bool {
    let rests = view.moves.is_empty() && view.moving.is_empty() && !view.left.is_empty();
    rests && view.stuck.len() == view.left.len()
}

/// Whether all VMs that are still here stay forever.
fn is_hopeless(view: &DrainView) -> bool {
    let stays = |vm: &String| view.stuck.iter().any(|it| it.forever && it.vm == *vm);
    view.moving.is_empty() && !view.left.is_empty() && view.left.iter().all(stays)
}

fn tell_end(view: &DrainView, waited: bool) {
    let host = &view.host;
    for it in &view.stuck {
        println!("{host}: {} stays: {}", it.vm, it.why);
    }
    match view.status {
        HostStatus::Maintenance => println!("{host} is drained: it is empty and in maintenance"),
        _ if waited => {}
        status => println!(
            "{host} is {}: it {}; `ringway place drain {host} --wait` waits",
            output::status(status),
            still(view)
        ),
    }
}

/// VMs that are still on the host.
fn on(view: &DrainView) -> Vec<&str> {
    view.moving.iter().chain(&view.left).map(String::as_str).collect()
}

fn vms(names: &[&str]) -> String {
    let count = names.len();
    let some = names.iter().take(5).copied().collect::<Vec<_>>().join(", ");
    let more = if count > 5 { ", ..." } else { "" };
    format!("{count} VM{} ({some}{more})", if count == 1 { "" } else { "s" })
}

/// What is still on the host: VMs, and those for which it is reserved.
fn still(view: &DrainView) -> String {
    let (on, reserved) = (on(view), view.reserved.iter().map(String::as_str).collect::<Vec<_>>());
    let release =
        || format!("is reserved for {}, which `ringway place release {}` ends", vms(&reserved), reserved[0]);
    match (on.is_empty(), reserved.is_empty()) {
        (_, true) => format!("still has {}", vms(&on)),
        (true, false) => release(),
        (false, false) => format!("still has {}, and {}", vms(&on), release()),
    }
}

fn stays(view: &DrainView) -> String {
    let first = view.stuck.first();
    let why = first.map_or(String::new(), |it| format!("; {}: {}", it.vm, it.why));
    let fix = match first {
        Some(it) if it.forever => "stop it, or `ringway place uncordon` the host".to_string(),
        _ => format!("make room and repeat, or `ringway place uncordon {}`", view.host),
    };
    format!("host {} {}{why}; {fix}", view.host, still(view))
}

/// Closes hosts to new VMs; VMs that run there stay.
pub fn cordon(source: &mut Source, hosts: &[String], reason: &str, json: bool) -> Result<(), CommandError> {
    let entry = |host: &String| Blacklist { host: host.clone(), reason: reason.into(), until: None };
    // All or none.
    source.put(hosts.iter().map(|host| Object::Blacklist(entry(host))).collect())?;
    report(source, hosts, "is cordoned: it gets no new VMs", json)
}

/// Opens hosts to new VMs, after `cordon`, `drain`, `maintenance` or `blacklist`.
pub fn uncordon(source: &mut Source, hosts: &[String], json: bool) -> Result<(), CommandError> {
    let known = source.hosts()?;
    for host in hosts {
        let row = known.iter().find(|row| row.name == *host);
        if row.is_some_and(|row| !row.blacklisted.is_empty()) {
            source.remove(Removable::Blacklist, host)?;
        }
        let resting = [HostStatus::PreparingForMaintenance, HostStatus::Maintenance];
        if row.is_none_or(|row| resting.contains(&row.status)) {
            source.activate(host)?;
        }
    }
    report(source, hosts, "is open to new VMs", json)
}

fn report(source: &mut Source, hosts: &[String], what: &str, json: bool) -> Result<(), CommandError> {
    if json {
        let rows: Vec<HostRow> =
            source.hosts()?.into_iter().filter(|row| hosts.contains(&row.name)).collect();
        text::json(&rows);
    } else {
        hosts.iter().for_each(|host| println!("{host} {what}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_scheduler::StuckView;

    #[test]
    fn what_is_still_on_a_host_is_named() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect::<Vec<_>>();
        let view = |left, reserved| {
            still(&DrainView { left: names(left), reserved: names(reserved), ..DrainView::default() })
        };
        assert_eq!(view(&["a", "b"], &[]), "still has 2 VMs (a, b)");
        let release = "is reserved for 1 VM (new), which `ringway place release new` ends";
        assert_eq!(view(&[], &["new"]), release);
        assert_eq!(view(&["a"], &["new"]), format!("still has 1 VM (a), and {release}"));
    }

    #[test]
    fn a_drain_whose_last_vms_move_is_not_over() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect::<Vec<_>>();
        let view = |moving: &[&str], left: &[&str], forever: bool| {
            let stuck = |vm: &&str| StuckView { vm: (*vm).into(), why: String::new(), forever };
            let stuck = left.iter().map(stuck).collect();
            DrainView { moving: names(moving), left: names(left), stuck, ..DrainView::default() }
        };
        assert!(guest_start::end_of(u64::MAX) > Instant::now());
        for (view, stuck, hopeless) in [
            (view(&["v"], &[], false), false, false),
            (view(&[], &[], false), false, false),
            (view(&["v"], &["w"], true), false, false),
            (view(&[], &["w"], false), true, false),
            (view(&[], &["w"], true), true, true),
        ] {
            assert_eq!((is_stuck(&view), is_hopeless(&view)), (stuck, hopeless), "{view:?}");
        }
    }
}
