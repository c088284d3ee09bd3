//! What functions are doing.

use super::{FunctionError, Functions, Life, Record};
use crate::api::FunctionView;
use ringway_spec::{Function, Isolation, printable};

/// Whether frames for a function that starts with them must wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Late {
    /// The function starts, or will with the first frame.
    Yes,
    /// The function runs, and may lack its ports.
    Runs,
    /// The function was stopped, or ended and waits for its restart.
    No,
}

/// What a function is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The function was stopped, or never started.
    Stopped,
    /// The function starts when it is needed.
    Dormant,
    /// The function starts, or waits for its turn.
    Starting,
    /// The function's configuration runs.
    Up,
    /// The function does not run, and keeps its state.
    Suspended,
    /// The function ended, and is restarted after a delay.
    Ended,
}

impl Phase {
    /// Whether it has, or will soon have, a process or a place on a worker.
    pub fn runs(self) -> bool {
        !matches!(self, Phase::Stopped | Phase::Dormant)
    }
}

impl Functions {
    /// Whether its configuration runs.
    ///
    /// # Errors
    /// The function has ended, or does not exist.
    pub fn is_up(&self, name: &str) -> Result<bool, FunctionError> {
        let record = self.records.get(name).ok_or_else(|| FunctionError::Unknown(name.into()))?;
        match &record.life {
            Life::Running { up, .. } => Ok(*up),
            Life::Queued => Ok(false),
            Life::Stopped | Life::Dormant => {
                Err(FunctionError::Unready(name.into(), "it was stopped".into()))
            }
            Life::Waiting => Err(FunctionError::Unready(name.into(), record.reason.clone())),
        }
    }

    /// Whether it waits for its turn to start.
    pub fn is_queued(&self, name: &str) -> bool {
        self.records.get(name).is_some_and(|record| matches!(record.life, Life::Queued))
    }

    /// What a function is doing; an unknown one is stopped.
    pub fn phase(&self, name: &str) -> Phase {
        match self.records.get(name).map(|record| &record.life) {
            Some(Life::Stopped) | None => Phase::Stopped,
            Some(Life::Dormant) => Phase::Dormant,
            Some(Life::Waiting) => Phase::Ended,
            Some(Life::Running { suspended: true, .. }) => Phase::Suspended,
            Some(Life::Running { up: true, .. }) => Phase::Up,
            Some(Life::Running { up: false, .. } | Life::Queued) => Phase::Starting,
        }
    }

    /// Whether frames for a function that starts with them must wait.
    pub fn is_late(&self, name: &str) -> Late {
        match self.records.get(name).map(|record| &record.life) {
            Some(Life::Running { up: true, .. }) => Late::Runs,
            Some(Life::Running { .. } | Life::Queued | Life::Dormant) => Late::Yes,
            Some(Life::Stopped | Life::Waiting) | None => Late::No,
        }
    }

    /// Number of functions.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// All functions, for the API.
    pub fn view(&self) -> Vec<FunctionView> {
        self.records.iter().map(|(name, record)| view(name, record)).collect()
    }
}

/// Where a function's configuration comes from.
fn configuration(function: &Function) -> String {
    let source = function.configuration.source.as_deref().unwrap_or("inline");
    function.file().map_or_else(|| printable(source).into_owned(), |file| file.display().to_string())
}

fn view(name: &str, record: &Record) -> FunctionView {
    let (state, pid) = match &record.life {
        Life::Stopped => ("stopped", 0),
        Life::Dormant => ("dormant", 0),
        Life::Queued => ("queued", 0),
        Life::Running { runner, suspended: true, .. } => ("suspended", runner.pid()),
        Life::Running { runner, up: true, .. } if record.draining => ("draining", runner.pid()),
        Life::Running { runner, up: true, .. } => ("running", runner.pid()),
        Life::Running { runner, up: false, .. } => ("starting", runner.pid()),
        Life::Waiting => ("ended", 0),
    };
    FunctionView {
        name: name.into(),
        state: state.into(),
        isolation: match &*record.fallback {
            "" => record.function.isolation.name().into(),
            _ => Isolation::Process.name().into(),
        },
        pid,
        ports: record.function.fabric_ports(),
        configuration: configuration(&record.function),
        handlers: record.socket.display().to_string(),
        restarts: record.restarts,
        reason: match &*record.reason {
            "" if !record.fallback.is_empty() => format!("a process instead of a VM: {}", record.fallback),
            "" => record.past.clone(),
            reason => printable(reason).into_owned(),
        },
    }
}
