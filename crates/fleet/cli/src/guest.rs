//! `ringway guest`.

use crate::arguments::Target;
use crate::client::Client;
use crate::command_error::CommandError;
use crate::guest_start::{self, Progress};
use crate::object_kind::GUEST;
use crate::show;
use crate::text::{self, Table, cell};
use ringway_control::api::{Exec, ExecView, GuestView};
use std::time::{Duration, Instant};

/// Time limit for stopping: `control` kills a guest that does not power off earlier.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

/// Lists the guests.
pub fn list(target: &Target, json: bool) -> Result<(), CommandError> {
    show::list(&GUEST, target, json, console_table)
}

fn console_table(guests: Vec<GuestView>) -> Table {
    let mut table = Table::new(&["GUEST", "KIND", "STATE", ">PID", "PORTS", "RUN BY", "CONSOLE", "REASON"]);
    for guest in guests {
        let mut cells = first_cells(&guest);
        cells.extend([cell(guest.console), cell(guest.reason)]);
        table.row(cells);
    }
    table
}

/// The guests as `ringway ps` shows them: without the paths of their consoles.
pub fn table(guests: Vec<GuestView>) -> Table {
    let mut table = Table::new(&["GUEST", "KIND", "STATE", ">PID", "PORTS", "RUN BY", "REASON"]);
    for guest in guests {
        let mut cells = first_cells(&guest);
        cells.push(cell(guest.reason));
        table.row(cells);
    }
    table
}

fn first_cells(guest: &GuestView) -> Vec<(String, anstyle::Style)> {
    vec![
        cell(&guest.name),
        cell(&guest.kind),
        text::state(&guest.state),
        cell(if guest.pid == 0 { String::new() } else { guest.pid.to_string() }),
        cell(guest.ports.join(" ")),
        cell(&guest.note),
    ]
}

/// Starts guests.
pub fn start(target: &Target, json: bool, names: &[String]) -> Result<(), CommandError> {
    GUEST.order::<GuestView>(target, json, names, ("start", "starting"))
}

/// Stops guests, and waits until they have stopped.
pub fn stop(target: &Target, json: bool, names: &[String]) -> Result<(), CommandError> {
    let guests = stopped(target, json, names)?;
    if json {
        text::json(&guests);
    }
    Ok(())
}

/// Stops guests, and starts them when they have stopped.
pub fn restart(target: &Target, json: bool, names: &[String]) -> Result<(), CommandError> {
    stopped(target, json, names)?;
    start(target, json, names)
}

/// Stops guests; returns all guests when these have stopped.
fn stopped(target: &Target, json: bool, names: &[String]) -> Result<Vec<GuestView>, CommandError> {
    let mut client = Client::connect(target)?;
    GUEST.send_orders(&mut client, json, names, ("stop", "stopping"))?;
    let end = Instant::now() + STOP_TIMEOUT;
    loop {
        let guests: Vec<GuestView> = client.get("/v1/guests")?;
        let mut left = guests.iter().filter(|guest| names.contains(&guest.name) && guest.state == "stopping");
        match left.next() {
            None => return Ok(guests),
            Some(guest) if Instant::now() >= end => {
                return Err(CommandError::Late(format!("guest {} is stopping still", guest.name)));
            }
            Some(_) => std::thread::sleep(Duration::from_millis(50)),
        }
    }
}

/// Runs a command in a guest.
pub fn exec(
    target: &Target,
    json: bool,
    name: &str,
    timeout: u64,
    command: &str,
) -> Result<(), CommandError> {
    let exec = Exec { command: command.into(), timeout };
    let began = Instant::now();
    let view: ExecView = Client::connect(target)?.ask(&GUEST.path(name, "exec")?, &exec)?;
    if json {
        text::json(&view);
    } else {
        text::foreign(&view.text);
    }
    // Exit statuses of timeout(1), and of the shell, for a command that was killed at its time limit.
    if [124, 143].contains(&view.status) && began.elapsed() >= Duration::from_secs(timeout) {
        text::warn(&format!("the command was ended after its {timeout} s; give it more with --timeout"));
    }
    // A shell's exit status is at most 255.
    if view.status == 0 { Ok(()) } else { Err(CommandError::Status(u8::try_from(view.status).unwrap_or(1))) }
}

/// Waits until guests are up.
pub fn wait(target: &Target, json: bool, names: &[String], timeout: u64) -> Result<(), CommandError> {
    let mut client = Client::connect(target)?;
    let end = guest_start::end_of(timeout);
    let mut progress = Progress::default();
    loop {
        let guests: Vec<GuestView> = client.get("/v1/guests")?;
        if let Some(name) = names.iter().find(|name| !guests.iter().any(|guest| guest.name == **name)) {
            return Err(GUEST.unknown(name));
        }
        let meant = |guest: &&GuestView| {
            names.contains(&guest.name)
                || (names.is_empty() && (guest.state != "stopped" || !guest.reason.is_empty()))
        };
        let waiting: Vec<&GuestView> =
            guests.iter().filter(meant).filter(|guest| guest.state != "running").collect();
        progress.show(&guests);
        let Some(first) = waiting.first() else {
            if json {
                text::json(&guests);
            }
            return Ok(());
        };
        if let Some(lost) = waiting.iter().find(|guest| guest.state != "starting") {
            let GuestView { name, state, console, .. } = lost;
            return Err(CommandError::Failed(match state.as_str() {
                _ if guest_start::is_lost(lost) => guest_start::reason_and_console(lost),
                "stopped" => {
                    format!("guest {name} is stopped: start it with `ringway guest start {name}`")
                }
                _ => format!("guest {name} is {state}: its console is in {console}"),
            }));
        }
        if Instant::now() >= end {
            let GuestView { name, reason, console, .. } = first;
            let why = if reason.is_empty() { format!("its console is in {console}") } else { reason.clone() };
            return Err(CommandError::Late(format!("guest {name} is not up after {timeout} s: {why}")));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
