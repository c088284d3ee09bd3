//! Runs each group in a separate process, and each key within its time limit.

use crate::Failure;
use crate::entry::Entry;
use crate::harness::two_cores;
use crate::huge::Pages;
use crate::keys::{self, Group, Row, Several, Subject, With};
use crate::machine;
use crate::plan::Plan;
use crate::report::{self, Report};
use rustix::process::{Pid, Signal};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
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
            // The group's process and its children end with this one.
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// A folder for this run's files. Its path is short: a socket's path has at most 107 bytes.
pub fn scratch() -> Result<PathBuf, Failure> {
    let path = std::env::temp_dir().join(format!("rwb-{}", std::process::id()));
    std::fs::create_dir_all(&path)?;
    Ok(path)
}

/// Removes the folder.
pub fn remove(scratch: &Path) {
    // Leftovers are harmless.
    let _ = std::fs::remove_dir_all(scratch);
}

/// The file with a group's rows so far, written after each measurement.
pub struct Output<'a> {
    path: &'a Path,
    report: Report,
    wanted: &'a [String],
}

impl Output<'_> {
    /// Whether a key was requested.
    pub fn is_wanted(&self, key: &str) -> bool {
        self.wanted.iter().any(|wanted| wanted == key)
    }

    /// Whether a key was requested; if so, its measurement and its time limit begin.
    pub fn wants(&self, key: &str) -> bool {
        let wants = self.is_wanted(key);
        if wants {
            machine::sample_now();
            // Without the mark, a hanging measurement would also prevent the following ones.
            let _ = std::fs::write(mark(self.path), key);
        }
        wants
    }

    /// Stores the row of a requested key.
    pub fn put(&mut self, key: &str, entry: Result<Entry, Failure>) {
        if !self.is_wanted(key) {
            return;
        }
        machine::sample_now();
        let mut entry = entry.unwrap_or_else(Entry::skipped);
        entry.machine = machine::take();
        let figure = entry.ours.map_or(String::new(), |ours| format!(" {ours:.2} {}", entry.unit));
        let ratio = entry.ratio.map_or(String::new(), |ratio| format!(", ratio {ratio:.2}"));
        let note = if entry.ours.is_none() { format!(" {}", entry.note) } else { String::new() };
        eprintln!("{key}:{figure}{ratio}{note}");
        self.report.insert(key.into(), entry);
        if let Err(error) = report::write(self.path, &self.report) {
            eprintln!("{}: {error}", self.path.display());
        }
        let _ = std::fs::remove_file(mark(self.path));
    }

    /// Stores the same reason for every key without a row.
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
    if let Err(error) = measure(group, plan, &mut output) {
        output.rest(&error.to_string());
    }
    output.rest("it gave no figure");
    ExitCode::SUCCESS
}

/// Measures the keys that are wanted.
fn measure(group: &Group, plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    if !group.one_core {
        two_cores()?;
    }
    for key in group.keys {
        let others =
            group.keys.iter().filter(|other| matches!(other.measure, With(first) if first == key.name));
        let names: Vec<&str> = [key].into_iter().chain(others).map(|key| key.name).collect();
        let is_wanted = || names.iter().any(|name| output.wants(name));
        match key.measure {
            Row(measure) if is_wanted() => output.put(key.name, measure(plan)),
            Several(measure) if is_wanted() => match measure(plan) {
                Ok(rows) => names.iter().zip(rows).for_each(|(name, row)| output.put(name, Ok(row))),
                Err(error) => names.iter().for_each(|name| output.put(name, Err(error.to_string().into()))),
            },
            _ => {}
        }
    }
    (group.run)(plan, output)
}

/// The file with the key being measured.
fn mark(report: &Path) -> PathBuf {
    report.with_extension("key")
}

/// Runs a group in another process; returns its rows. A key that hangs, or ends the process, loses only its own row:
/// another process measures the others.
pub fn in_process(subject: &Subject, group: &Group, keys: &[String], plan: &Plan, scratch: &Path) -> Report {
    let path = scratch.join(format!("{}.json", group.name));
    let limit = Duration::from_secs_f64(group.setup + 2.0 * plan.seconds * group.costs);
    each(keys, &path, |keys| match start(subject, group, keys, plan, &path) {
        Ok(mut child) => wait(&mut child, &path, limit),
        Err(error) => Some(error.to_string()),
    })
}

/// The rows of `keys`, from as many runs as needed. `run` writes rows to `path`, and returns why it ended early.
fn each(keys: &[String], path: &Path, mut run: impl FnMut(&[String]) -> Option<String>) -> Report {
    let mut report = Report::new();
    let mut left = keys.to_vec();
    while !left.is_empty() {
        let why = run(&left);
        report.extend(report::read(path));
        let in_hand = std::fs::read_to_string(mark(path)).ok().filter(|key| !report.contains_key(key));
        for file in [path, &mark(path)] {
            // The file does not exist if nothing was measured.
            let _ = std::fs::remove_file(file);
        }
        let why = why.unwrap_or_else(|| "it gave no figure".into());
        left.retain(|key| !report.contains_key(key));
        // A failure before the first key would recur.
        let lost = match in_hand {
            Some(key) => vec![key],
            None => left.clone(),
        };
        for key in lost {
            eprintln!("{key}: {why}");
            left.retain(|other| *other != key);
            report.insert(key, Entry::skipped(&why));
        }
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

/// Waits for a group's process; returns why it ended early. Each key, and the preparation, may take `limit`.
fn wait(child: &mut Child, path: &Path, limit: Duration) -> Option<String> {
    let (mut since, mut last) = (Instant::now(), None);
    loop {
        match child.try_wait() {
            Ok(None) => (),
            Ok(Some(status)) if status.success() => return None,
            Ok(Some(status)) => return Some(format!("its process ended with {status}")),
            Err(error) => return Some(error.to_string()),
        }
        let key = std::fs::read_to_string(mark(path)).ok();
        if key != last {
            (since, last) = (Instant::now(), key);
        }
        if since.elapsed() > limit {
            if let Some(process) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = rustix::process::kill_process(process, Signal::KILL);
            }
            let _ = child.wait();
            return Some(format!("it took longer than {:.0} s", limit.as_secs_f64()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn scratch_of(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ringway-bench-run-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn a_hung_key_loses_only_its_row() {
        let folder = scratch_of("hangs");
        let path = folder.join("rows.json");
        let mut runs = Vec::new();
        let report = each(&keys(&["a", "b", "c"]), &path, |left| {
            runs.push(left.to_vec());
            let mut output = Output { path: &path, report: Report::new(), wanted: left };
            for key in ["a", "b", "c"] {
                if output.wants(key) {
                    if key == "b" {
                        return Some("it took longer than 9 s".into());
                    }
                    output.put(key, Ok(Entry { ours: Some(1.0), ..Entry::default() }));
                }
            }
            None
        });
        assert_eq!(runs, [keys(&["a", "b", "c"]), keys(&["c"])]);
        assert_eq!(report["b"].note, "left out: it took longer than 9 s");
        assert_eq!((report["a"].ours, report["b"].ours, report["c"].ours), (Some(1.0), None, Some(1.0)));
        remove(&folder);
    }

    #[test]
    fn a_group_that_fails_early_runs_once() {
        let folder = scratch_of("fails");
        let mut runs = 0;
        let report = each(&keys(&["a", "b"]), &folder.join("rows.json"), |_| {
            runs += 1;
            Some("no namespace".into())
        });
        assert_eq!((runs, report["a"].note.as_str(), report.len()), (1, "left out: no namespace", 2));
        remove(&folder);
    }

    #[test]
    fn a_hung_process_is_killed() {
        let path = std::env::temp_dir().join("ringway-bench-run-no-such-folder/rows.json");
        let shell = |command: &str| Command::new("sh").args(["-c", command]).spawn().unwrap();
        assert_eq!(wait(&mut shell("exit 0"), &path, Duration::from_secs(60)), None);
        let why = wait(&mut shell("exec sleep infinity"), &path, Duration::ZERO);
        assert_eq!(why.as_deref(), Some("it took longer than 0 s"));
    }
}
