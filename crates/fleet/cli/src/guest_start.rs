//! What becomes of guests that start: what their starts wait for, and whether they live.

use crate::client::Client;
use crate::command_error::CommandError;
use ringway_control::api::GuestView;
use ringway_spec::printable;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time after which a guest's process was not refused by the program that runs it. The end of a process is
/// known half a second after it if another one has its output.
const MIN_LIFETIME: Duration = Duration::from_millis(1500);
/// Longest time without a report about a start, and without one after the report of a wait.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
const WAIT_TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Lines of a console that are shown of a guest that has ended.
const CONSOLE_LINES: usize = 5;
/// Shortest time between two lines of progress, if they are not on a terminal.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// The time after so many seconds.
pub fn end_of(seconds: u64) -> Instant {
    // An `Instant` has an end too; nobody waits for a century.
    const LONGEST: u64 = 100 * 365 * 24 * 3600;
    Instant::now() + Duration::from_secs(seconds.min(LONGEST))
}

/// Waits until each guest runs, has failed, or has lived for a moment, and returns them all. What takes long is shown.
pub fn wait_until_started(client: &mut Client) -> Result<Vec<GuestView>, CommandError> {
    let (mut progress, mut seen) = (Progress::default(), BTreeMap::new());
    let (mut heard, mut last) = (Instant::now(), None);
    loop {
        let guests: Vec<GuestView> = client.get("/v1/guests")?;
        let now = Instant::now();
        let news = progress.show(&guests);
        if news != last {
            (heard, last) = (now, news);
        }
        let timeout = if last.is_some() { WAIT_TIMEOUT } else { SILENCE_TIMEOUT };
        if have_started(&guests, &mut seen, now) || now >= heard + timeout {
            return Ok(guests);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// Whether no guest is about to start. `seen` has the time at which each process was seen first.
fn have_started(guests: &[GuestView], seen: &mut BTreeMap<(String, u32), Instant>, now: Instant) -> bool {
    let starting = guests.iter().filter(|guest| guest.state == "starting");
    // Each is looked at, so that their times run together.
    starting.fold(true, |started, guest| {
        let since = *seen.entry((guest.name.clone(), guest.pid)).or_insert(now);
        started && guest.pid != 0 && now >= since + MIN_LIFETIME
    })
}

/// Whether a guest should run and does not.
pub fn is_lost(guest: &GuestView) -> bool {
    guest.state == "ended" || guest.state == "stopped" && !guest.reason.is_empty()
}

/// Why a guest does not run, with the last lines of its console if it has run.
pub fn reason_and_console(guest: &GuestView) -> String {
    let GuestView { name, state, reason, console, .. } = guest;
    if state != "ended" {
        // The reasons of guests that did not start name them.
        let name = format!("guest {name}");
        return if reason.contains(&name) { reason.clone() } else { format!("{name} is {state}: {reason}") };
    }
    let lines = ringway_linux_guests::last_lines(Path::new(console), CONSOLE_LINES);
    let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
    match lines.is_empty() {
        true => format!("guest {name} has ended ({reason})"),
        false => format!(
            "guest {name} has ended ({}), with these lines on its console, {console}:{lines}",
            ended(reason)
        ),
    }
}

/// How a guest ended, of a reason that is followed by the last line of its console.
fn ended(reason: &str) -> &str {
    if reason.starts_with("Kernel panic") {
        return reason;
    }
    // "exit status: 1: its last line", "signal: 9 (SIGKILL): the end of its console: its last line".
    let end = reason.match_indices(": ").nth(1).map_or(reason.len(), |(at, _)| at);
    reason.get(..end).unwrap_or(reason)
}

/// What guests that start wait for, on standard error: on a terminal one line that changes, else a line now and then.
#[derive(Default)]
pub struct Progress {
    shown: String,
    at: Option<Instant>,
}

impl Progress {
    /// Shows what the first of these guests waits for that says so, and returns it.
    pub fn show(&mut self, guests: &[GuestView]) -> Option<String> {
        let waits = |guest: &&GuestView| guest.state == "starting" && !guest.reason.is_empty();
        let Some(guest) = guests.iter().find(waits) else {
            self.clear();
            return None;
        };
        let text = printable(&format!("guest {}: {}", guest.name, guest.reason)).into_owned();
        let is_terminal = std::io::stderr().is_terminal();
        if text != self.shown && (is_terminal || self.at.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL)) {
            match is_terminal {
                true => eprint!("\r\x1b[K{text}"),
                false => eprintln!("{text}"),
            }
            (self.shown, self.at) = (text.clone(), Some(Instant::now()));
        }
        Some(text)
    }

    /// Removes the line on the terminal.
    fn clear(&mut self) {
        if !self.shown.is_empty() && std::io::stderr().is_terminal() {
            eprint!("\r\x1b[K");
        }
        self.shown.clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(state: &str, pid: u32, reason: &str) -> GuestView {
        GuestView {
            name: "g".into(),
            kind: "qemu".into(),
            state: state.into(),
            note: String::new(),
            pid,
            ports: Vec::new(),
            console: "/no/console.log".into(),
            reason: reason.into(),
        }
    }

    #[test]
    fn guests_have_started_when_their_processes_have_lived_for_a_moment() {
        let (mut seen, now) = (BTreeMap::new(), Instant::now());
        let mut started = |guest: GuestView, after: Duration| have_started(&[guest], &mut seen, now + after);
        assert!(started(guest("running", 7, ""), Duration::ZERO));
        assert!(started(guest("ended", 0, "exit status: 1: x"), Duration::ZERO));
        assert!(started(guest("stopped", 0, ""), Duration::ZERO));
        assert!(!started(guest("starting", 0, ""), Duration::ZERO));
        assert!(!started(guest("starting", 0, ""), 2 * MIN_LIFETIME), "it has no process");
        assert!(!started(guest("starting", 7, ""), 2 * MIN_LIFETIME), "seen only just now");
        assert!(started(guest("starting", 7, ""), 3 * MIN_LIFETIME));
    }

    #[test]
    fn a_lost_guest_s_story_has_its_reason() {
        let ended = guest("ended", 0, "exit status: 1: no such device: x");
        assert!(is_lost(&ended) && !is_lost(&guest("stopped", 0, "")) && !is_lost(&guest("starting", 1, "")));
        assert_eq!(reason_and_console(&ended), "guest g has ended (exit status: 1: no such device: x)");
        assert_eq!(super::ended(&ended.reason), "exit status: 1");
        assert_eq!(super::ended("signal: 9 (SIGKILL): a: b"), "signal: 9 (SIGKILL)");
        let panic = "Kernel panic - not syncing: VFS: Unable to mount root fs";
        assert_eq!(super::ended(panic), panic);
        let failed = guest("stopped", 0, "guest g: /x did not start: no");
        assert!(is_lost(&failed));
        assert_eq!(reason_and_console(&failed), failed.reason);
        let failed = guest("stopped", 0, "no guest kernel: x");
        assert_eq!(reason_and_console(&failed), "guest g is stopped: no guest kernel: x");
    }
}
