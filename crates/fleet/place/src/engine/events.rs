//! The log of changes, for people and programs.

use super::{Decision, Engine, EngineError};
use crate::model::Change;
use crate::store::{Event, Revision, decode};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A change of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Changed {
    /// The store's revision of the change.
    pub revision: Revision,
    /// The time in milliseconds since 1970, to about a second; none if it was before the fabric came up.
    pub at: Option<u64>,
    /// The kind of object: `host`, `vm`, `group`, `policy`, `cluster`, `load`, `fact`, `blacklist`, `pending`
    /// (a reservation) or `decision`.
    pub kind: String,
    /// Its name; of a fact its host's and its own, of a decision its number.
    pub name: String,
    /// Whether it was deleted.
    pub gone: bool,
    /// Its new value, in words.
    pub what: String,
}

impl Changed {
    /// Whether it is a host's load, or a rate of the fabric's ports, which change all the time.
    fn is_measurement(&self) -> bool {
        let fact = self.name.rsplit_once('/').map_or("", |(_, fact)| fact);
        let is_rate = |fact: &str| {
            let is_port = fact.starts_with("port_") || fact.starts_with("fabric_");
            is_port && (fact.ends_with("_mbps") || fact.ends_with("_pps"))
        };
        self.kind == "load" || self.kind == "fact" && is_rate(fact)
    }
}

impl Engine {
    /// The first `count` changes after a revision, or the newest ones, oldest first, and the revision for the
    /// next call. Without `measurements`, those of hosts' loads and of the fabric's rates are left out.
    pub fn changes(
        &self,
        after: Option<Revision>,
        count: usize,
        measurements: bool,
    ) -> Result<(Revision, Vec<Changed>), EngineError> {
        let seen = self.current()?.seen;
        let changed = |event: &Event| changed(event).filter(|it| measurements || !it.is_measurement());
        let Some(after) = after else {
            let events = self.store.watch(self.store.oldest())?;
            let mut newest: Vec<Changed> = events.iter().rev().filter_map(changed).take(count).collect();
            newest.reverse();
            return Ok((events.last().map_or(seen, |event| event.revision), newest));
        };
        let events = self.store.watch(after)?;
        let mut changes: Vec<Changed> = Vec::new();
        for event in &events {
            // All changes of a revision are returned together.
            let last = changes.last().map(|change| change.revision);
            if let Some(last) = last.filter(|last| changes.len() >= count && *last < event.revision) {
                return Ok((last, changes));
            }
            changes.extend(changed(event));
        }
        Ok((events.last().map_or(after.min(seen), |event| event.revision), changes))
    }
}

/// The description of an event; none if it concerns the engine's internal entries.
fn changed(event: &Event) -> Option<Changed> {
    let (kind, name) = event.key.split_once('/')?;
    let what = match (kind, &event.value) {
        ("claim" | "described" | "answers" | "detail", _) => return None,
        ("decision", Some(value)) => serde_json::from_slice(value).map_or(String::new(), |it| decided(&it)),
        (_, value) => decode(&event.key, value.as_deref()).map_or(String::new(), |change| in_words(&change)),
    };
    let name = if kind == "decision" { name.trim_start_matches('0') } else { name };
    let (kind, name, revision) = (kind.into(), name.into(), event.revision);
    Some(Changed { revision, at: None, kind, name, gone: event.value.is_none(), what })
}

fn decided(decision: &Decision) -> String {
    let choice = |choice: &crate::decide::Choice| {
        format!("{} on {}", choice.vms.join(", "), choice.host.as_deref().unwrap_or("no host"))
    };
    decision.choices.iter().map(choice).collect::<Vec<_>>().join("; ")
}

fn in_words(change: &Change) -> String {
    match change {
        Change::Host(it) => format!("{:?}", it.status),
        Change::Vm(it) => match &it.host {
            Some(host) if it.runs() => format!("{:?} on {host}", it.status),
            _ => format!("{:?}", it.status),
        },
        Change::Pending(it) => format!("{} by decision {}", it.host, it.decision),
        Change::Fact(it) => it.value.to_string(),
        Change::Load(it) => match it.cpu_percent {
            Some(percent) => format!("CPU {percent}%"),
            None => String::new(),
        },
        Change::Blacklist(it) => it.reason.clone(),
        Change::Cluster(it) => format!("policy {}", it.policy),
        _ => String::new(),
    }
}
