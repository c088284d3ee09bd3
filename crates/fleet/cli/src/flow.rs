//! `ringway flow`.

use crate::arguments::{FlowChange, FlowCommand, FlowObject, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::{SWITCH, escaped};
use crate::text::{self, Table, cell};
use ringway_control::api::{FlowsChange, FlowsChanged, FlowsView, MeterView};
use std::io::Read;
use std::path::Path;

/// Runs `ringway flow`.
pub fn flow(target: &Target, json: bool, command: FlowCommand) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    match command {
        FlowCommand::Add(change) => self::change(&mut client, json, "flow add", change),
        FlowCommand::Mod { strict, change } => {
            let command = if strict { "flow modify_strict" } else { "flow modify" };
            self::change(&mut client, json, command, change)
        }
        FlowCommand::Del { strict, change } => {
            let command = if strict { "flow delete_strict" } else { "flow delete" };
            self::change(&mut client, json, command, change)
        }
        FlowCommand::Dump { switch, filter, rules } => dump(&mut client, json, &switch, (&filter, rules)),
        FlowCommand::Replace { switch, file } => replace(&mut client, json, &switch, (&file, false)),
        FlowCommand::Diff { switch, file } => replace(&mut client, json, &switch, (&file, true)),
        FlowCommand::Bundle { switch, file } => {
            let changes = Some(read(&file)?);
            let changed: FlowsChanged =
                client.ask(&path(&switch)?, &FlowsChange { changes, ..FlowsChange::default() })?;
            print(&changed, json);
            Ok(())
        }
        FlowCommand::Group { command } => object(&mut client, json, "group", command),
        FlowCommand::Meter { command } => object(&mut client, json, "meter", command),
        FlowCommand::Ports { switch } => ports(&mut client, json, &switch),
    }
}

/// A filter where the flows are not looked at: that of a table that seldom has some.
const FEW: &str = "table=254";

fn path(switch: &str) -> Result<String, CommandError> {
    SWITCH.path(switch, "flows")
}

/// The path of the flows that a filter means.
fn filtered(switch: &str, filter: &str) -> Result<String, CommandError> {
    Ok(format!("{}?filter={}", path(switch)?, escaped(filter)))
}

/// The text of a file, or of standard input.
fn read(file: &Path) -> Result<String, CommandError> {
    let mut text = String::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(file).map(|read| text = read),
    };
    read.map_err(|error| CommandError::Failed(format!("{}: {error}", file.display())))?;
    Ok(text)
}

/// Sends lines that all have one command.
fn change(client: &mut Client, json: bool, command: &str, change: FlowChange) -> Result<(), CommandError> {
    let FlowChange { switch, lines, file } = change;
    let adds = !command.ends_with("delete");
    if lines.is_empty() && file.is_none() && adds {
        return Err(CommandError::Failed("nothing is named; give a line, or --file FILE".into()));
    }
    let text = file.as_deref().map_or_else(|| Ok(lines.join("\n")), read)?;
    if let Some(file) = file.filter(|_| text.trim().is_empty()) {
        // Without a match, all would be removed.
        return Err(CommandError::Failed(format!("{} is empty", file.display())));
    }
    let change = FlowsChange { changes: Some(text), command: Some(command.into()), ..FlowsChange::default() };
    let changed: FlowsChanged = client.ask(&path(&switch)?, &change)?;
    print(&changed, json);
    Ok(())
}

fn print(changed: &FlowsChanged, json: bool) {
    if json {
        text::json(changed);
    }
}

fn replace(
    client: &mut Client,
    json: bool,
    switch: &str,
    (file, dry_run): (&Path, bool),
) -> Result<(), CommandError> {
    let change = FlowsChange { rules: Some(read(file)?), dry_run, ..FlowsChange::default() };
    let changed: FlowsChanged = client.put(&path(switch)?, &change)?;
    match json {
        true => text::json(&changed),
        false => changed.difference.iter().for_each(|line| println!("{line}")),
    }
    Ok(())
}

fn dump(
    client: &mut Client,
    json: bool,
    switch: &str,
    (filter, rules): (&str, bool),
) -> Result<(), CommandError> {
    let view: FlowsView = client.get(&filtered(switch, filter)?)?;
    if json {
        text::json(&view);
    } else if rules && !view.rules.is_empty() {
        print!("{}", view.rules);
    } else {
        if rules {
            view.meters.iter().for_each(|meter| println!("{}", meter.text));
            view.groups.iter().for_each(|group| println!("{group}"));
        }
        view.flows.iter().for_each(|flow| println!("{}", flow.text));
    }
    if view.omitted > 0 {
        text::warn(&format!("{} more flows are not shown; name a match", view.omitted));
    }
    Ok(())
}

fn object(client: &mut Client, json: bool, noun: &str, command: FlowObject) -> Result<(), CommandError> {
    let (verb, own) = match command {
        FlowObject::Add(own) => ("add", own),
        FlowObject::Mod(own) => ("modify", own),
        FlowObject::Del(own) => ("delete", own),
        FlowObject::Dump { switch } => {
            let view: FlowsView = client.get(&filtered(&switch, FEW)?)?;
            match (noun, json) {
                ("group", true) => text::json(&view.groups),
                ("group", false) => view.groups.iter().for_each(|group| println!("{group}")),
                (_, true) => text::json(&view.meters),
                (_, false) => view.meters.iter().for_each(|MeterView { text, packets, dropped }| {
                    println!("{text} packets={packets} dropped={dropped}");
                }),
            }
            return Ok(());
        }
    };
    change(client, json, &format!("{noun} {verb}"), own)
}

fn ports(client: &mut Client, json: bool, switch: &str) -> Result<(), CommandError> {
    let view: FlowsView = client.get(&filtered(switch, FEW)?)?;
    if json {
        text::json(&view.ports);
        return Ok(());
    }
    let mut table = Table::new(&[">NUMBER", "PORT"]);
    view.ports.into_iter().for_each(|port| table.row(vec![cell(port.number.to_string()), cell(port.name)]));
    table.print();
    Ok(())
}
