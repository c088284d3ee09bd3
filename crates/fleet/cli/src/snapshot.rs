//! `ringway snapshot`: snapshots of functions in VMs.

use crate::arguments::{SnapshotCommand, Target};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::SNAPSHOT;
use crate::show;
use crate::text::{Table, cell};
use ringway_control::api::SnapshotView;

/// Runs `ringway snapshot`.
pub fn snapshot(target: &Target, json: bool, command: SnapshotCommand) -> Result<(), CommandError> {
    match command {
        SnapshotCommand::List => show::list(&SNAPSHOT, target, json, table),
        SnapshotCommand::Show { name } => show::show(&SNAPSHOT, target, json, &name),
        SnapshotCommand::Remove { names } => {
            let mut client = Client::connect(target)?;
            names.iter().try_for_each(|name| {
                client.delete(&SNAPSHOT.object(name)?)?;
                if !json {
                    println!("removed {name}");
                }
                Ok(())
            })
        }
    }
}

fn table(snapshots: Vec<SnapshotView>) -> Table {
    let mut table = Table::new(&["SNAPSHOT", "FUNCTION", "PORTS", ">MB"]);
    for SnapshotView { name, function, ports, bytes } in snapshots {
        let megabytes = format!("{:.1}", bytes as f64 / f64::from(1 << 20));
        table.row(vec![cell(name), cell(function), cell(ports.join(" ")), cell(megabytes)]);
    }
    table
}
