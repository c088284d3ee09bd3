//! `ringway program`: unmodified programs of the fabric.

use crate::arguments::{ProgramCommand, Target};
use crate::command_error::CommandError;
use crate::logs;
use crate::object_kind::PROGRAM;
use crate::show;
use crate::text::{self, Table, cell};
use ringway_control::api::ProgramView;

/// Runs `ringway program`.
pub fn program(target: &Target, json: bool, command: ProgramCommand) -> Result<(), CommandError> {
    let order = |names: Vec<String>, words| PROGRAM.order::<ProgramView>(target, json, &names, words);
    match command {
        ProgramCommand::List => show::list(&PROGRAM, target, json, table),
        ProgramCommand::Show { name } => show::show(&PROGRAM, target, json, &name),
        ProgramCommand::Logs { name, logs } => logs::program(target, json, &name, &logs),
        ProgramCommand::Start { names } => order(names, ("start", "starting")),
        ProgramCommand::Stop { names } => order(names, ("stop", "stopping")),
        ProgramCommand::Restart { names } => order(names, ("restart", "restarting")),
    }
}

/// The programs as `ringway ps` shows them.
pub fn table(programs: Vec<ProgramView>) -> Table {
    let mut table = Table::new(&["PROGRAM", "STATE", "PORT", "ADDRESSES", ">RESTARTS", "COMMAND", "REASON"]);
    for ProgramView { name, state, port, addresses, restarts, command, reason, .. } in programs {
        table.row(vec![
            cell(name),
            text::state(&state),
            cell(port),
            cell(addresses.join(" ")),
            cell(restarts),
            cell(command.join(" ")),
            cell(reason),
        ]);
    }
    table
}
