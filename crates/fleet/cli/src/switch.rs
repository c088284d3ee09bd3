//! `ringway switch`.

use crate::arguments::{SwitchCommand, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::{SWITCH, with_keys};
use crate::show;
use crate::text::{self, Table, cell};
use ringway_control::api::{GroupEntryView, GroupsView, NewSwitch, SwitchView, TableView};
use ringway_control::file::switch_keys;
use serde_json::{Map, json};

/// Runs `ringway switch`.
pub fn switch(target: &Target, json: bool, command: SwitchCommand) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let mut all = || client.get::<Vec<SwitchView>>(SWITCH.all);
    match command {
        SwitchCommand::Add { name, lookup, settings } => {
            let mut keys = Map::from_iter([("name".into(), name.into())]);
            keys.extend(lookup.map(|lookup| ("lookup".into(), lookup.into())));
            let new = NewSwitch(with_keys(keys, &settings, &switch_keys().1)?);
            client.post_only(SWITCH.all, &new)?;
        }
        SwitchCommand::Remove { names } => SWITCH.remove(target, json, &names)?,
        SwitchCommand::List if json => text::json(&all()?),
        SwitchCommand::List => {
            let mut table = Table::new(&["SWITCH", "LOOKUP", "PORTS"]);
            for SwitchView { name, lookup, ports, .. } in all()? {
                table.row(vec![cell(name), cell(lookup), cell(ports.join(" "))]);
            }
            table.print();
        }
        SwitchCommand::Show { name } => {
            let SwitchView { name, lookup, ports, flows } = find(all()?, &name)?;
            let known: TableView = client.get(&SWITCH.path(&name, "table")?)?;
            let addresses = known.entries.len();
            let mut shown = json!({ "name": name, "lookup": lookup, "ports": ports, "addresses": addresses });
            if let Some(flows) = flows {
                shown["flows"] = flows.into();
            }
            show::print(&shown, json);
        }
        SwitchCommand::Groups { name } => {
            let SwitchView { name, .. } = find(all()?, &name)?;
            groups(client.get(&SWITCH.path(&name, "groups")?)?, json);
        }
        SwitchCommand::Table { name } => {
            let SwitchView { name, .. } = find(all()?, &name)?;
            table(client.get(&SWITCH.path(&name, "table")?)?, json);
        }
    }
    Ok(())
}

fn find(switches: Vec<SwitchView>, name: &str) -> Result<SwitchView, CommandError> {
    switches.into_iter().find(|switch| switch.name == name).ok_or_else(|| SWITCH.unknown(name))
}

/// Shows members of groups.
fn groups(view: GroupsView, json: bool) {
    if json {
        return text::json(&view);
    }
    if !view.snooping {
        println!("switch {} does not snoop: every port gets every group", view.switch);
        return;
    }
    let mut table = Table::new(&["GROUP", ">VLAN", "PORT", ">LEFT"]);
    for GroupEntryView { vlan, group, port, left } in view.entries {
        let group = group.unwrap_or_else(|| "router".into());
        let vlan = if vlan == 0 { "-".into() } else { vlan.to_string() };
        table.row(vec![cell(group), cell(vlan), cell(port), cell(format!("{left} s"))]);
    }
    table.print();
}

/// Shows an address table.
fn table(view: TableView, json: bool) {
    if json {
        return text::json(&view);
    }
    let mut table = Table::new(&["ADDRESS", ">VLAN", "PORT", ">AGE"]);
    for entry in view.entries {
        let age = entry.age.map_or("static".into(), |age| format!("{age} s"));
        let vlan = if entry.vlan == 0 { "-".into() } else { entry.vlan.to_string() };
        table.row(vec![cell(entry.mac), cell(vlan), cell(entry.port), cell(age)]);
    }
    table.print();
}
