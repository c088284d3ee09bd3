//! What the keeper has of functions, so that the next `control` goes on with them.

use super::{FunctionError, Functions, Life, RESTARTS, Record};
use crate::file::Fabric;
use crate::function::process::{Process, kept_process};
use crate::function::runner::Runner;
use crate::keeper::{NO_DESCRIPTORS, StoredEntry};
use crate::snapshots::{self, Taken};
use ringway_host::SocketFile;
use ringway_spec::{Function, Isolation};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The keeper's names for what it has of a function: its state, the socket for its handlers, the snapshot from which it
/// resumes.
fn kept_state(function: &str) -> String {
    format!("function/{function}")
}

fn kept_listener(function: &str) -> String {
    format!("function-socket/{function}")
}

fn kept_origin(function: &str) -> String {
    format!("function-origin/{function}")
}

/// As [`Life`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum KeptLife {
    Stopped,
    Queued,
    Dormant,
    Running { up: bool, suspended: bool },
    Waiting,
}

/// The state of a function.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct KeptFunction {
    life: KeptLife,
    turn: u64,
    launches: u64,
    restarts: u64,
    quick: usize,
    failing: bool,
    reason: String,
    past: String,
    fallback: String,
    draining: bool,
}

impl KeptFunction {
    fn of(record: &Record) -> KeptFunction {
        let life = match record.life {
            Life::Stopped => KeptLife::Stopped,
            Life::Queued => KeptLife::Queued,
            Life::Dormant => KeptLife::Dormant,
            Life::Running { up, suspended, .. } => KeptLife::Running { up, suspended },
            Life::Waiting => KeptLife::Waiting,
        };
        KeptFunction {
            life,
            turn: record.turn,
            launches: record.launches,
            restarts: record.restarts,
            quick: record.quick,
            failing: record.failing,
            reason: record.reason.clone(),
            past: record.past.clone(),
            fallback: record.fallback.clone(),
            draining: record.draining,
        }
    }

    fn restore(self, record: &mut Record) {
        (record.turn, record.launches, record.restarts) = (self.turn, self.launches, self.restarts);
        (record.quick, record.failing, record.draining) = (self.quick, self.failing, self.draining);
        (record.reason, record.past, record.fallback) = (self.reason, self.past, self.fallback);
    }
}

impl Functions {
    /// Gives the keeper the state of functions that has changed.
    pub fn keep(&mut self) {
        for name in std::mem::take(&mut self.changed) {
            if let Some(record) = self.records.get(&name) {
                self.keeper.put_value(&kept_state(&name), &KeptFunction::of(record), NO_DESCRIPTORS);
            }
        }
    }

    pub(super) fn keep_listener(&self, name: &str, listener: &SocketFile) {
        self.keeper.put(&kept_listener(name), "", [listener]);
    }

    pub(super) fn keep_origin(&self, name: &str, origin: Option<&Taken>) {
        match origin {
            Some(origin) => snapshots::hold(&self.keeper, &kept_origin(name), origin),
            None => self.keeper.remove(&kept_origin(name)),
        }
    }

    pub(super) fn forget_kept(&self, name: &str) {
        [kept_state(name), kept_listener(name), kept_origin(name)]
            .iter()
            .for_each(|kept| self.keeper.remove(kept));
    }

    /// Goes on with the snapshots of a former `control`.
    pub fn adopt_snapshots(&mut self, found: &mut BTreeMap<String, StoredEntry>) {
        self.snapshots.adopt(found);
    }

    /// Numbers starts from now on above all those of a former `control`: those that `found` has, and those that `data`
    /// runs, which it may have started after it kept its state last. Otherwise two functions, in two data processes,
    /// could have one number. Called before any function is adopted.
    pub fn adopt_turns(&mut self, found: &BTreeMap<String, StoredEntry>, data: &[u64]) {
        let states = found.iter().filter(|(name, _)| name.starts_with(&kept_state("")));
        let turns = states.filter_map(|(_, kept)| serde_json::from_str::<KeptFunction>(&kept.text).ok());
        let most = turns.map(|state| state.turn).chain(data.iter().copied()).max();
        self.turn = self.turn.max(most.unwrap_or_default());
    }

    /// Goes on with a function of a former `control`, whose ports are in `fabric`; returns whether there was one. One
    /// on a worker is started again, unless it was stopped.
    pub fn adopt(
        &mut self,
        function: &Function,
        fabric: &Fabric,
        folder: &Path,
        found: &mut BTreeMap<String, StoredEntry>,
    ) -> Result<bool, FunctionError> {
        let name = &function.name;
        let state = found.remove(&kept_state(name));
        let state = state.and_then(|kept| serde_json::from_str::<KeptFunction>(&kept.text).ok());
        let listener =
            found.remove(&kept_listener(name)).and_then(|kept| kept.descriptors.into_iter().next());
        let origin = found.remove(&kept_origin(name)).and_then(snapshots::restore);
        let Some((state, listener)) = state.zip(listener) else { return Ok(false) };
        let socket = folder.join(format!("{}.sock", function.file_name()));
        let listener = SocketFile::adopt(&socket, listener).map_err(|error| FunctionError::Socket {
            name: name.clone(),
            path: socket.clone(),
            error: io::Error::other(error),
        })?;
        self.insert(function, fabric, (socket, listener));
        let (life, turn, quick) = (state.life, state.turn, state.quick);
        let record = self.record(name)?;
        state.restore(record);
        record.origin = origin.map(Arc::new);
        match life {
            KeptLife::Stopped => {}
            KeptLife::Dormant => record.life = Life::Dormant,
            KeptLife::Waiting => {
                record.life = Life::Waiting;
                self.start_later(name, turn, Duration::from_millis(RESTARTS[quick.saturating_sub(1)]));
            }
            KeptLife::Running { up, suspended } if function.isolation != Isolation::Worker => {
                let process = found.remove(&kept_process(name, turn));
                let running = process.map(|process| self.go_on((name, turn), process));
                match running.unwrap_or_else(|| Err(io::ErrorKind::NotFound.into())) {
                    Ok(process) => {
                        if !suspended {
                            // A snapshot that nobody awaits any more has stopped it.
                            process.resume();
                        }
                        let runner = Box::new(process);
                        self.record(name)?.life = Life::Running { runner, up, suspended };
                    }
                    Err(error) => {
                        tracing::warn!(function = name, %error, "it is started again");
                        self.launch(name);
                    }
                }
            }
            KeptLife::Running { .. } | KeptLife::Queued => self.launch(name),
        }
        Ok(true)
    }

    /// The process that a former `control` had started.
    fn go_on(&mut self, (name, turn): (&str, u64), process: StoredEntry) -> io::Result<Process> {
        let tell = self.teller(name, turn);
        let record = self.records.get(name).ok_or(io::ErrorKind::NotFound)?;
        let ports = record.port_sockets.clone();
        let process = Process::adopt((name, turn), process, ports, tell, &self.keeper)?;
        tracing::info!(function = name, "continues");
        Ok(process)
    }

    /// Stops a function that made `data` crash repeatedly.
    pub fn suspect(&mut self, name: &str) {
        let reason = "suspected: the data process crashed repeatedly while it ran this function";
        tracing::error!(function = name, reason);
        if self.stop(name).is_ok()
            && let Some(record) = self.get(name)
        {
            record.reason = format!("{reason}; `ringway function start {name}` starts it again");
        }
    }

    /// The processes of functions that run.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        self.records.values().filter_map(|record| match &record.life {
            Life::Running { runner, .. } => Pid::from_raw(runner.pid().cast_signed()),
            _ => None,
        })
    }
}
