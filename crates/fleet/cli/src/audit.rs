//! `ringway audit`.

use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::text::{self, Table, cell};
use ringway_control::api::AuditView;

/// Shows who asked for changes, and what came of it.
pub fn audit(target: &Target, json: bool, count: usize) -> Result<(), CommandError> {
    let entries: Vec<AuditView> = Client::connect(target)?.get(&format!("/v1/audit?count={count}"))?;
    if json {
        text::json(&entries);
        return Ok(());
    }
    let mut table = Table::new(&["TIME", "USER", "PROGRAM", "REQUEST", "STATUS", "TEXT"]);
    for entry in entries {
        if entry.lost > 0 {
            let lost = format!("{} requests before have no entry", entry.lost);
            table.row(["", "", "", "", "", &*lost].map(cell).to_vec());
        }
        let remote = [entry.token, entry.address].into_iter().flatten().collect::<Vec<_>>().join("@");
        let who = entry.user.map_or(remote, |user| user.to_string());
        let process = entry.process.map_or_else(String::new, |process| format!("[{process}]"));
        let program = format!("{}{process}", entry.program.unwrap_or_default());
        let about = if entry.error.is_empty() { entry.body } else { entry.error };
        let about = about.split_whitespace().collect::<Vec<_>>().join(" ");
        table.row(vec![
            cell(text::date(entry.time)),
            cell(who),
            cell(program),
            cell(entry.request),
            cell(entry.status),
            cell(about),
        ]);
    }
    table.print();
    Ok(())
}
