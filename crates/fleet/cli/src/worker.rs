//! `ringway worker`: the threads that move frames.

use crate::arguments::{Target, WorkerCommand};
use crate::client::Client;
use crate::command_error::CommandError;
use crate::object_kind::WORKER;
use crate::show;
use crate::text::{self, Table, cell};
use ringway_control::api::{FabricView, WorkerView};

/// Runs `ringway worker`.
pub fn worker(target: &Target, json: bool, command: WorkerCommand) -> Result<(), CommandError> {
    let FabricView { workers, uptime, .. } = Client::connect(target)?.get(WORKER.all)?;
    match command {
        WorkerCommand::List if json => text::json(&workers),
        WorkerCommand::List => table(workers, uptime).print(),
        WorkerCommand::Show { name } => {
            let found = workers.into_iter().find(|worker| worker.name == name);
            let found = found.ok_or_else(|| WORKER.unknown(&name))?;
            show::print(&serde_json::to_value(found).map_err(CommandError::because)?, json);
        }
    }
    Ok(())
}

/// `uptime`: nanoseconds since the fabric came up, of which each worker's busy ones are a share.
fn table(workers: Vec<WorkerView>, uptime: u64) -> Table {
    let heads = ["WORKER", ">NODE", ">QUEUES", ">ACTIVE", ">TURNS", ">SLEEPS", ">BUSY", "NOTE"];
    let mut table = Table::new(&heads);
    for WorkerView { name, node, queues, active, turns, sleeps, busy, note } in workers {
        let share = format!("{:.1}%", busy as f64 / uptime.max(1) as f64 * 100.0);
        table.row(vec![
            cell(name),
            cell(node.map(|node| node.to_string()).unwrap_or_default()),
            cell(queues),
            cell(active),
            cell(turns),
            cell(sleeps),
            cell(share),
            cell(note),
        ]);
    }
    table
}
