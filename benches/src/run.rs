//! Each group in a process of its own, within its time.

use crate::Failure;
use crate::entry::Entry;
use crate::huge::Pages;
use crate::keys::{self, Group, Subject};
use crate::plan::Plan;
use crate::report::{self, Report};
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// On a signal, restores the system's settings and ends.
pub fn restore_on_signals(pages: Pages, scratch: PathBuf) -> Result<(), Failure> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            pages.restore();
            remove(&scratch);
            eprintln!("ringway-bench: ended by a signal; everything is as it was");
            // The group's process and what it started end with this one.
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// A folder for everything that this run keeps in files. Its path is short, since a socket's is at most 107 bytes.
pub fn scratch() -> Result<PathBuf, Failure> {
    let path = std::env::temp_dir().join(format!("rwb-{}", std::process::id()));
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

/// Removes it.
pub fn remove(scratch: &Path) {
    // Leftovers are harmless.
    let _ = std::fs::remove_dir_all(scratch);
}

/// Where a group's rows are kept: those measured so far, whatever happens next.
pub struct Output<'a> {
    path: &'a Path,
    report: Report,
    wanted: &'a [String],
}

impl Output<'_> {
    /// Whether a key was asked for.
    pub fn wants(&self, key: &str) -> bool {
        self.wanted.iter().any(|wanted| wanted == key)
    }

    /// Keeps a row. One that was not asked for is forgotten.
    pub fn put(&mut self, key: &str, entry: Result<Entry, Failure>) {
        if !self.wants(key) {
            return;
        }
        let entry = entry.unwrap_or_else(Entry::skipped);
        let figure = entry.ours.map_or(String::new(), |ours| format!(" {ours:.2} {}", entry.unit));
        let ratio = entry.ratio.map_or(String::new(), |ratio| format!(", ratio {ratio:.2}"));
        let note = if entry.ours.is_none() { format!(" {}", entry.note) } else { String::new() };
        eprintln!("{key}:{figure}{ratio}{note}");
        self.report.insert(key.into(), entry);
        if let Err(error) = report::write(self.path, &self.report) {
            eprintln!("{}: {error}", self.path.display());
        }
    }

    /// The same reason for every key that has no row.
    pub fn rest(&mut self, why: &str) {
        for key in
            self.wanted.iter().filter(|key| !self.report.contains_key(*key)).cloned().collect::<Vec<_>>()
        {
            self.put(&key, Err(why.into()));
        }
    }
}

/// Runs a group in this process.
pub fn inside(group: &Group, keys: &[String], plan: &Plan, path: &Path) -> ExitCode {
    let parent = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if parent.is_err() {
        return ExitCode::FAILURE;
    }
    if let Some(scratch) = path.parent() {
        keys::SCRATCH.get_or_init(|| scratch.into());
    }
    let mut output = Output { path, report: Report::new(), wanted: keys };
    if let Err(error) = (group.run)(plan, &mut output) {
        output.rest(&error.to_string());
    }
    output.rest("it gave no figure");
    ExitCode::SUCCESS
}

/// Runs a group in another process; its rows.
pub fn outside(subject: &Subject, group: &Group, keys: &[String], plan: &Plan, scratch: &Path) -> Report {
    let path = scratch.join(format!("{}.json", group.name));
    let limit = Duration::from_secs_f64(group.setup + 1.5 * plan.seconds * keys.len() as f64 * group.costs);
    let why =
        match start(subject, group, keys, plan, &path).and_then(|mut child| Ok(wait(&mut child, limit)?)) {
            Ok(Some(status)) if status.success() => String::new(),
            Ok(Some(status)) => format!("its process ended with {status}"),
            Ok(None) => format!("it took longer than {:.0} s", limit.as_secs_f64()),
            Err(error) => error.to_string(),
        };
    let mut report = report::read(&path);
    for key in keys {
        report.entry(key.clone()).or_insert_with(|| {
            eprintln!("{key}: {why}");
            Entry::skipped(&why)
        });
    }
    report
}

fn start(
    subject: &Subject,
    group: &Group,
    keys: &[String],
    plan: &Plan,
    path: &Path,
) -> Result<Child, Failure> {
    (group.prepare)()?;
    let me = std::env::current_exe()?;
    let mut command = if group.own_network {
        // Bridges and interfaces created here are invisible elsewhere, and are deleted with the process.
        let mut command = Command::new("unshare");
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["--net", "--"]).arg(me);
        command
    } else {
        Command::new(me)
    };
    command.args([
        "--subject",
        subject.name,
        "--inside",
        group.name,
        "--seconds",
        &plan.seconds.to_string(),
        "--report",
    ]);
    command.arg(path).args(keys).stdin(Stdio::null());
    let child = command.spawn();
    child.map_err(|error| format!("{}: {error}", command.get_program().to_string_lossy()).into())
}

fn wait(child: &mut Child, limit: Duration) -> std::io::Result<Option<ExitStatus>> {
    let end = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > end {
            if let Some(process) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = rustix::process::kill_process(process, Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
