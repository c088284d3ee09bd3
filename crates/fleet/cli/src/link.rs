//! `ringway link`.

use crate::arguments::{LinkCommand, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::input;
use crate::object_kind::LINK;
use crate::text::{self, Table, cell};
use ringway_control::api::{DirectionView, LinkChange, LinkView};
use std::collections::BTreeMap;

/// Largest file of a value in bytes. Attack: an endless file.
const MAX_FILE_LEN: usize = 4 << 20;
/// Characters of a value that are shown; traces are longer.
const MAX_SHOWN: usize = 40;

/// Runs `ringway link`.
pub fn link(target: &Target, json: bool, command: LinkCommand) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let links = match command {
        LinkCommand::Show { name } => {
            let mut links: Vec<LinkView> = client.get(LINK.all)?;
            if let Some(name) = name {
                links.retain(|link| link.name == name);
                if links.is_empty() {
                    return Err(LINK.unknown(&name));
                }
            }
            links
        }
        LinkCommand::Set { name, from, settings } => {
            if ringway_spec::names::name(&name).is_err() {
                return Err(LINK.unknown(&name));
            }
            let settings = settings.iter().map(|text| setting(text)).collect::<Result<_, _>>()?;
            vec![client.patch(&LINK.object(&name)?, &LinkChange { from, settings })?]
        }
    };
    if json {
        text::json(&links);
        return Ok(());
    }
    let warnings: Vec<String> = links.iter().flat_map(late).collect();
    table(links).print();
    warnings.iter().for_each(|warning| text::warn(warning));
    Ok(())
}

/// Parses `KEY=VALUE`, `KEY=@FILE` or `KEY=`.
fn setting(text: &str) -> Result<(String, Option<String>), CommandError> {
    let pair = text.split_once('=').filter(|(key, _)| !key.trim().is_empty());
    let Some((key, value)) = pair else {
        let what = format!("\"{}\" is not a setting; write KEY=VALUE", text.escape_debug());
        return Err(CommandError::Failed(what));
    };
    let value = match value.strip_prefix('@') {
        Some(file) => Some(input::text(file.as_ref(), MAX_FILE_LEN, "a trace")?),
        None if value.is_empty() => None,
        None => Some(value.to_string()),
    };
    Ok((key.into(), value))
}

/// Nanoseconds for which late frames are warned of.
const RECENT_NANOSECONDS: u64 = 60_000_000_000;

/// Warnings about the directions in which frames were late a short time ago.
fn late(link: &LinkView) -> impl Iterator<Item = String> {
    let late = link.directions.iter().filter_map(|direction| Some((direction, direction.late_ago?)));
    let late = late.filter(|(_, ago)| *ago < RECENT_NANOSECONDS);
    late.map(|(DirectionView { from, late, latest, received, .. }, ago)| {
        format!(
            "link {}, from {from}: {late} of {received} frames left over 1 ms late since its \
             settings changed, the last one {} ago, the latest {} after its due time: its worker had no \
             core then; see \"Accuracy\" in docs/link.md",
            link.name,
            crate::ps::span(ago),
            milliseconds(*latest)
        )
    })
}

/// A time in milliseconds with the digits that matter.
fn milliseconds(nanoseconds: u64) -> String {
    let digits = if nanoseconds >= 100_000_000 { 1 } else { 2 };
    format!("{:.digits$} ms", nanoseconds as f64 / 1e6)
}

/// Mean and standard deviation of the observed delay; nothing before the first frame.
fn delay(direction: &DirectionView) -> String {
    let DirectionView { delay_mean, delay_sd, .. } = direction;
    if *delay_mean == 0 {
        return String::new();
    }
    format!("{} (sd {})", milliseconds(*delay_mean), milliseconds(*delay_sd))
}

/// The observed share of lost frames.
fn loss(direction: &DirectionView) -> String {
    let DirectionView { carried, lost, .. } = direction;
    if *carried == 0 {
        return String::new();
    }
    format!("{:.2}%", *lost as f64 * 100.0 / *carried as f64)
}

fn table(links: Vec<LinkView>) -> Table {
    let heads = [
        "LINK",
        "FROM",
        "TO",
        ">SENT",
        ">RECEIVED",
        ">QUEUED",
        ">IN FLIGHT",
        "DELAY",
        ">LOSS",
        "EVENTS",
        "SETTINGS",
    ];
    let mut table = Table::new(&heads);
    for LinkView { name, directions } in links {
        for direction in directions {
            let (delay, loss) = (delay(&direction), loss(&direction));
            let (events, settings) = (events(&direction), settings(direction.settings));
            let DirectionView { from, to, sent, received, queued, in_flight, .. } = direction;
            table.row(vec![
                cell(&name),
                cell(from),
                cell(to),
                cell(sent),
                cell(received),
                cell(queued),
                cell(in_flight),
                cell(delay),
                cell(loss),
                cell(events),
                cell(settings),
            ]);
        }
    }
    table
}

/// Drops by reason, and what happened to other frames.
fn events(direction: &DirectionView) -> String {
    let DirectionView { drops, marked, corrupted, duplicated, reordered, late, late_ago, .. } = direction;
    let drops = drops.iter().map(|(reason, count)| format!("dropped ({reason}) {count}"));
    let others =
        [("marked", marked), ("corrupted", corrupted), ("duplicated", duplicated), ("reordered", reordered)];
    let others =
        others.iter().filter(|(_, count)| **count > 0).map(|(what, count)| format!("{what} {count}"));
    let late = late_ago.map(|ago| format!("late {late} (last {} ago)", crate::ps::span(ago)));
    drops.chain(others).chain(late).collect::<Vec<_>>().join(", ")
}

fn settings(settings: BTreeMap<String, String>) -> String {
    let shown = |(key, value): (String, String)| {
        let mut value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some((at, _)) = value.char_indices().nth(MAX_SHOWN) {
            value.replace_range(at.., "...");
        }
        if value.contains(' ') { format!("{key}='{value}'") } else { format!("{key}={value}") }
    };
    settings.into_iter().map(shown).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_keys_and_values() {
        let good = |text| setting(text).ok();
        assert_eq!(good("loss=1%"), Some(("loss".into(), Some("1%".into()))));
        assert_eq!(good("delay="), Some(("delay".into(), None)));
        assert!(setting("delay").is_err() && setting("delay-trace=@/nowhere").is_err());
    }

    #[test]
    fn observed_figures_are_shown_and_late_frames_are_warned_of() {
        let direction = DirectionView {
            from: "h1".into(),
            received: 990,
            delay_mean: 20_340_000,
            delay_sd: 1_250_000,
            carried: 1000,
            lost: 10,
            late: 12,
            latest: 4_100_000,
            late_ago: Some(3_000_000_000),
            ..Default::default()
        };
        assert_eq!(delay(&direction), "20.34 ms (sd 1.25 ms)");
        assert_eq!((loss(&direction), events(&direction)), ("1.00%".into(), "late 12 (last 3 s ago)".into()));
        let unused = DirectionView::default();
        assert_eq!((delay(&unused), loss(&unused)), (String::new(), String::new()));
        let long_ago =
            DirectionView { from: "h2".into(), late_ago: Some(RECENT_NANOSECONDS), ..direction.clone() };
        assert_eq!(events(&long_ago), "late 12 (last 1 min 0 s ago)");
        let link = LinkView { name: "wan".into(), directions: vec![direction, unused, long_ago] };
        let warnings: Vec<String> = late(&link).collect();
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        let begins = "link wan, from h1: 12 of 990 frames left over 1 ms late since its \
                      settings changed, the last one 3 s ago, the latest 4.10 ms after";
        assert!(warnings[0].starts_with(begins), "{}", warnings[0]);
    }

    #[test]
    fn events_and_settings_are_shortened() {
        let direction = DirectionView {
            drops: BTreeMap::from([("lost".to_string(), 3)]),
            marked: 2,
            ..Default::default()
        };
        assert_eq!(events(&direction), "dropped (lost) 3, marked 2");
        let values = [("queue", "codel 5ms 9ms".to_string()), ("loss-trace", "01".repeat(99))];
        let values = values.map(|(key, value)| (key.to_string(), value));
        let trace = "01".repeat(20);
        assert_eq!(settings(values.into()), format!("loss-trace={trace}... queue='codel 5ms 9ms'"));
    }
}
