//! Emulated links while they run: their counters and settings.

use super::{Engine, Failure};
use crate::api::{Counts, DirectionView, LinkChange, LinkView};
use crate::change::{self, Change};
use crate::data::PageError;
use crate::events::EventKind;
use crate::kinds::link;
use ringway_fabric::proto::PortState;
use ringway_spec::file::{either, nearest};
use ringway_spec::{Port, To};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;

/// The setting that only a new link takes.
const SEED: &str = "seed";

impl Engine {
    /// Every link, in the order of the file.
    pub(super) async fn link_views(&mut self) -> Result<Vec<LinkView>, PageError> {
        let states = self.state().await.ports;
        let mut links: Vec<LinkView> = Vec::new();
        for port in &self.fabric.ports {
            let Some((name, from, settings)) = link::of(port) else { continue };
            let mut counts = Counts::default();
            if let Some(live) = self.running_ports.get(&port.name) {
                counts = super::show::counts(&self.page.read(live.counters)?);
            }
            let state = states.iter().find(|state| state.name == port.name);
            let direction = direction(port, from, (settings, counts), state);
            match links.iter_mut().find(|link| link.name == name) {
                Some(link) => link.directions.push(direction),
                None => links.push(LinkView { name: name.into(), directions: vec![direction] }),
            }
        }
        Ok(links)
    }

    /// Changes the settings of a link. A wrong value changes nothing.
    pub(super) async fn set_link(&mut self, name: &str, change: LinkChange) -> Result<LinkView, Failure> {
        for port in self.changed(name, &change)? {
            self.change_port(&port).await.map_err(Failure::conflict)?;
            change::apply(&mut self.fabric, &Change::SetPort(port));
        }
        let shown = |(key, value): (&String, &Option<String>)| {
            format!("{key} = {}", value.as_deref().unwrap_or("its default"))
        };
        let settings: Vec<String> = change.settings.iter().map(shown).collect();
        let from = change.from.as_ref().map_or_else(String::new, |from| format!(" from {from}"));
        self.note(EventKind::LinkSet, name, &format!("{}{from}", settings.join(", ")));
        let links = self.link_views().await.map_err(Failure::conflict)?;
        let view = links.into_iter().find(|link| link.name == name);
        view.ok_or_else(|| Failure::unknown(format!("there is no link \"{name}\"")))
    }

    /// The ports of the directions that a change concerns, as they are after it.
    fn changed(&self, name: &str, change: &LinkChange) -> Result<Vec<Port>, Failure> {
        let all = || self.fabric.ports.iter().filter_map(|port| Some((port, link::of(port)?)));
        let ends: Vec<&str> = all().filter(|(_, of)| of.0 == name).map(|(_, of)| of.1).collect();
        if ends.is_empty() {
            let mut names: Vec<&str> = all().map(|(_, of)| of.0).collect();
            names.dedup();
            let known = if names.is_empty() { "none".into() } else { either(names) };
            let what = format!("there is no link \"{name}\"; there is {known}");
            return Err(Failure::unknown(what));
        }
        if let Some(from) = change.from.as_deref().filter(|from| !ends.contains(from)) {
            let what = format!("port \"{from}\" is not on link \"{name}\"; it joins {}", ends.join(" and "));
            return Err(Failure::unknown(what));
        }
        let concerned = all().filter(|(_, (link, from, _))| {
            *link == name && change.from.as_deref().is_none_or(|only| only == *from)
        });
        let with = |(port, (_, _, old))| merged(old, change).map(|settings| link::with(port, settings));
        concerned.map(with).collect()
    }
}

/// The settings with a change's values.
fn merged(
    mut settings: BTreeMap<String, String>,
    change: &LinkChange,
) -> Result<BTreeMap<String, String>, Failure> {
    for (key, value) in &change.settings {
        if !link::KEYS.contains(&&**key) {
            let fix = match nearest(key, link::KEYS.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("use {}", either(link::KEYS.iter().copied())),
            };
            return Err(Failure::wrong(format!("a link has no setting `{}`; {fix}", key.escape_debug())));
        }
        if key == SEED && settings.get(key) != value.as_ref() {
            return Err(Failure::wrong(
                "`seed` can't change while the link runs; change the file and apply it",
            ));
        }
        match value {
            Some(value) => drop(settings.insert(key.clone(), value.clone())),
            None => drop(settings.remove(key)),
        }
    }
    match &*link::check(&settings) {
        [] => Ok(settings),
        list => Err(Failure::wrong(
            list.iter().map(|(_, what, fix)| format!("{what}; {fix}")).collect::<Vec<_>>().join("\n"),
        )),
    }
}

/// Nanoseconds by the clock of the links, CLOCK_MONOTONIC.
fn monotonic() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned()
}

fn direction(
    port: &Port,
    from: &str,
    (settings, counts): (BTreeMap<String, String>, Counts),
    state: Option<&PortState>,
) -> DirectionView {
    let gauge = |name| state.and_then(|state| state.gauges.get(name)).copied().unwrap_or_default();
    let to = match &port.to {
        Some(To::Patch(to) | To::Switch(to)) => to.clone(),
        _ => String::new(),
    };
    let mut drops = counts.tx_drops;
    counts.rx_drops.into_iter().for_each(|(reason, count)| *drops.entry(reason).or_default() += count);
    DirectionView {
        from: from.into(),
        to,
        settings,
        sent: counts.rx_frames,
        sent_bytes: counts.rx_bytes,
        received: counts.tx_frames,
        received_bytes: counts.tx_bytes,
        drops,
        queued: gauge("queued"),
        queued_bytes: gauge("queued-bytes"),
        in_flight: gauge("in-flight"),
        marked: gauge("marked"),
        corrupted: gauge("corrupted"),
        duplicated: gauge("duplicated"),
        reordered: gauge("reordered"),
        latest: gauge("latest"),
        late: gauge("late"),
        late_ago: Some(gauge("last-late"))
            .filter(|last| *last > 0)
            .map(|last| monotonic().saturating_sub(last)),
        delay_mean: gauge("delay-mean"),
        delay_sd: gauge("delay-sd"),
        carried: gauge("carried"),
        lost: gauge("lost"),
    }
}
