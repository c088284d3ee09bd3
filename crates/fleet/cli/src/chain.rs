//! `ringway chain`: chains of functions between two ports.

use crate::arguments::{ChainCommand, Target};
use crate::command_error::CommandError;
use crate::object_kind::CHAIN;
use crate::show;
use crate::text::{self, Table, cell};
use ringway_control::api::ChainView;

/// Runs `ringway chain`.
pub fn chain(target: &Target, json: bool, command: ChainCommand) -> Result<(), CommandError> {
    match command {
        ChainCommand::List => show::list(&CHAIN, target, json, table),
        ChainCommand::Show { name } => show::show(&CHAIN, target, json, &name),
    }
}

/// The chains as `ringway ps` shows them.
pub fn table(chains: Vec<ChainView>) -> Table {
    let mut table = Table::new(&["CHAIN", "STATE", "PATH", "REASON"]);
    for ChainView { name, state, mut ports, functions, reason } in chains {
        let last = ports.pop();
        let path: Vec<String> = ports.into_iter().chain(functions).chain(last).collect();
        table.row(vec![cell(name), text::state(&state), cell(path.join(" - ")), cell(reason)]);
    }
    table
}
