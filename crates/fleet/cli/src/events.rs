//! `ringway events`.

use crate::arguments::{EventOptions, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::text::{self, Table, cell};
use ringway_control::api::{ErrorBody, EventView};
use std::time::{Duration, Instant};

/// How long a fabric may be away, such as while its control process is started again.
const AWAY: Duration = Duration::from_secs(5);
/// Time between two attempts to reach it.
const PAUSE: Duration = Duration::from_millis(50);

/// Shows what has happened, and what happens.
pub fn events(target: &Target, json: bool, options: &EventOptions) -> Result<(), CommandError> {
    let EventOptions { after, count, follow } = options;
    let socket = if target.api.is_some() { None } else { Some(target.find()?) };
    let mut client = Client::again(target, socket.as_deref())?;
    let after = after.map_or_else(String::new, |after| format!("&after={after}"));
    let events: Vec<EventView> = client.get(&format!("/v1/events?count={count}{after}"))?;
    let last = events.last().map(|event| event.id);
    match (json, follow) {
        (true, true) => events.iter().for_each(text::json),
        (true, false) => text::json(&events),
        (false, _) => print(events, true),
    }
    if !follow {
        return Ok(());
    }
    let mut last = last.or(options.after).unwrap_or(0);
    let mut gone: Option<Instant> = None;
    loop {
        let before = last;
        let followed = client.events(&format!("/v1/events?follow=true&after={last}"), |name, data| {
            take(name, data, json).map(|event| {
                last = event.id;
                event.kind != "down"
            })
        });
        match followed {
            Ok(()) => return Ok(()),
            Err(CommandError::NotUp(_)) => {}
            Err(other) => return Err(other),
        }
        if last > before {
            gone = None;
        }
        let since = *gone.get_or_insert_with(Instant::now);
        // Another control process goes on at the same socket.
        client = loop {
            match Client::again(target, socket.as_deref()) {
                Ok(client) => break client,
                Err(error) if since.elapsed() > AWAY => return Err(error),
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
    }
}

/// Shows an event of the stream.
fn take(name: &str, data: &str, json: bool) -> Result<EventView, CommandError> {
    if name == "lost" {
        let why: Result<ErrorBody, _> = serde_json::from_str(data);
        return Err(CommandError::Failed(why.map_or_else(|error| error.to_string(), |why| why.error)));
    }
    let event: EventView = serde_json::from_str(data).map_err(CommandError::because)?;
    match json {
        true => text::json(&event),
        false => print(vec![event.clone()], false),
    }
    Ok(event)
}

fn print(events: Vec<EventView>, heads: bool) {
    let mut table = Table::new(&["TIME", "EVENT", "NAME", "TEXT"]);
    for event in events {
        let seconds = event.time / 1_000_000_000;
        let time = format!("{:02}:{:02}:{:02}Z", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        table.row(vec![cell(time), cell(format!("{:<16}", event.kind)), cell(event.name), cell(event.text)]);
    }
    match heads {
        true => table.print(),
        false => table.print_rows(),
    }
}
