//! Commands for operators: showing and removing objects, maintenance of hosts, and events.

use super::arguments::PlaceCommand;
use super::source::Source;
use super::{drain, output, show};
use crate::command_error::CommandError;
use crate::text;
use ringway_place::engine::Object;
use ringway_place::object::{Blacklist, Load};
use ringway_scheduler::{Clock, StatusView};
use std::time::Duration;

/// Interval between queries for new events.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the commands that place no VMs.
pub fn operate(source: &mut Source, command: PlaceCommand, json: bool) -> Result<(), CommandError> {
    match command {
        PlaceCommand::Vms { host } => {
            let mut vms = source.vms()?;
            if let Some(host) = host {
                vms.retain(|it| it.reserved.as_ref() == Some(&host) || it.vm.host.as_ref() == Some(&host));
            }
            output::vms(&vms, json);
            Ok(())
        }
        PlaceCommand::Clusters => show::clusters(source, json),
        PlaceCommand::Groups => show::groups(source, json),
        PlaceCommand::Facts { host } => show::facts(source, host.as_deref(), json),
        PlaceCommand::Show { kind, name } => show::object(source, kind, &name, json),
        PlaceCommand::Remove { kind, names } => names.iter().try_for_each(|name| source.remove(kind, name)),
        PlaceCommand::Load { host, cpu, free, swap_free } => {
            if cpu.is_none() && free.is_none() && swap_free.is_none() {
                let what = "nothing was measured; give --cpu, --free or --swap-free";
                return Err(CommandError::Failed(what.into()));
            }
            let load =
                Load { host, cpu_percent: cpu, free_mb: free, swap_free_mb: swap_free, ..Load::default() };
            source.put(vec![Object::Load(load)]).map(drop)
        }
        PlaceCommand::Maintenance { hosts } => {
            hosts.iter().try_for_each(|host| status(host, source.maintain(host)?, json))
        }
        PlaceCommand::Activate { hosts } => {
            hosts.iter().try_for_each(|host| status(host, source.activate(host)?, json))
        }
        PlaceCommand::Blacklist { host: None, .. } => {
            output::blacklist(&source.hosts()?, json);
            Ok(())
        }
        PlaceCommand::Blacklist { host: Some(host), remove: true, .. } => {
            source.remove(super::arguments::Removable::Blacklist, &host)
        }
        PlaceCommand::Blacklist { host: Some(host), reason, ttl, .. } => {
            let until = ttl.map(|ttl| Clock::default().now().saturating_add(ttl.saturating_mul(1000)));
            source.put(vec![Object::Blacklist(Blacklist { host, reason, until })]).map(drop)
        }
        PlaceCommand::Policy { name } => {
            let policy = source.policy(&name)?;
            output::policy(&policy, &source.units()?, json);
            Ok(())
        }
        PlaceCommand::Drain { hosts, parallel, wait } => drain::drain(source, &hosts, parallel, wait, json),
        PlaceCommand::Cordon { hosts, reason } => drain::cordon(source, &hosts, &reason, json),
        PlaceCommand::Uncordon { hosts } => drain::uncordon(source, &hosts, json),
        PlaceCommand::Join { cluster } => {
            let joined = source.join(&cluster)?;
            if json {
                text::json(&joined);
            } else {
                println!("{} is in cluster {}", joined.host, joined.cluster);
            }
            Ok(())
        }
        PlaceCommand::Events { after, count, follow, all } => {
            events(source, (after, count, all), follow, json)
        }
        // The caller handled the other commands.
        _ => Ok(()),
    }
}

fn status(host: &str, now: StatusView, json: bool) -> Result<(), CommandError> {
    if json {
        text::json(&now);
    } else {
        println!("{host} is {}", output::status(now.status));
    }
    Ok(())
}

fn events(
    source: &mut Source,
    (mut after, count, all): (Option<u64>, usize, bool),
    follow: bool,
    json: bool,
) -> Result<(), CommandError> {
    let mut heads = true;
    loop {
        let batch = source.events(after, count, all)?;
        if follow && json {
            batch.events.iter().for_each(text::json);
        } else if json {
            text::json(&batch);
        } else if heads || !batch.events.is_empty() {
            output::events(&batch.events, heads);
        }
        if !follow {
            return Ok(());
        }
        heads = false;
        // A full answer means that more events may be waiting: they are fetched at once.
        if batch.events.len() < count {
            std::thread::sleep(POLL_INTERVAL);
        }
        after = Some(batch.revision);
    }
}
