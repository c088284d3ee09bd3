//! Finding the port or function that makes `data` crash: `data` serves it at each crash. It is taken out of service, so
//! that the others go on.

use super::running_port::RunningPort;
use super::{Engine, Failure};
use ringway_fabric::proto::Request;
use ringway_fabric::{RUN, SERVED};
use ringway_spec::{Function, Port};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// A run that lasts longer clears what was served when the one before it crashed.
const CLEAN_RUN: Duration = Duration::from_secs(60);
/// Crashes in a row after which several that were served each time are suspected: workers that serve others run until
/// the process ends.
const AMBIGUOUS_CRASHES: u32 = 4;
/// Signals by which a process ends itself, or by which the kernel ends it for what it did.
const CRASH_SIGNALS: [Signal; 7] =
    [Signal::SEGV, Signal::ABORT, Signal::BUS, Signal::ILL, Signal::FPE, Signal::TRAP, Signal::SYS];

/// A port or function that a worker serves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Suspect {
    Port(String),
    Function(String),
}

/// The ports and functions that were served when `data` crashed.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    /// Those that were served at each of the last crashes.
    served: BTreeSet<Suspect>,
    /// Number of these crashes.
    crashes: u32,
    /// Ports that are out of service.
    ports: BTreeSet<String>,
}

impl Suspects {
    /// Records what was served at a crash. Returns those that are suspected now.
    fn record_crash(&mut self, served: BTreeSet<Suspect>) -> Vec<Suspect> {
        let again: BTreeSet<Suspect> = self.served.intersection(&served).cloned().collect();
        if again.is_empty() {
            (self.served, self.crashes) = (served, 1);
            return Vec::new();
        }
        self.crashes += 1;
        if again.len() > 1 && self.crashes < AMBIGUOUS_CRASHES {
            self.served = again;
            return Vec::new();
        }
        self.clear();
        again.into_iter().collect()
    }

    /// Forgets earlier crashes.
    fn clear(&mut self) {
        (self.served, self.crashes) = (BTreeSet::new(), 0);
    }

    /// Whether a port is out of service.
    pub fn has(&self, port: &str) -> bool {
        self.ports.contains(port)
    }

    /// Forgets a port; returns whether it was out of service.
    pub fn forget(&mut self, port: &str) -> bool {
        self.ports.remove(port)
    }
}

/// Why a port is out of service.
pub(super) fn reason(port: &str) -> String {
    format!(
        "suspected: the data process crashed repeatedly while it served this port; \
         `ringway port up {port}` lets it go on"
    )
}

impl Engine {
    /// Takes what was served at repeated crashes out of service. Workers tell it by the page of counters.
    pub(super) fn find_suspects(&mut self, status: ExitStatus) {
        let served = self.take_served();
        let is_crash = CRASH_SIGNALS.iter().any(|signal| status.signal() == Some(signal.as_raw()));
        if self.data_started.elapsed() > CLEAN_RUN || !is_crash {
            self.suspects.clear();
        }
        if !is_crash {
            return;
        }
        tracing::info!(?served, "what was served");
        for suspect in self.suspects.record_crash(served) {
            match suspect {
                Suspect::Port(name) => {
                    tracing::error!(port = name, "{}", reason(&name));
                    self.suspects.ports.insert(name);
                }
                Suspect::Function(name) => self.functions.suspect(&name),
            }
        }
    }

    /// What workers served when `data` ended.
    pub(super) fn take_served(&self) -> BTreeSet<Suspect> {
        let mut served = BTreeSet::new();
        for (name, live) in &self.running_ports {
            for index in live.counters..live.counters + u32::from(live.queues) {
                match self.page.take_serving(index) {
                    Ok(SERVED) => _ = served.insert(Suspect::Port(name.clone())),
                    Ok(RUN) => {
                        let is_its = |function: &&Function| function.fabric_ports().contains(name);
                        let function = self.fabric.functions.iter().find(is_its);
                        served.extend(function.map(|function| Suspect::Function(function.name.clone())));
                    }
                    _ => {}
                }
            }
        }
        served
    }

    /// Restores a port that was out of service, with the peer that it has; returns whether it was.
    pub(super) async fn restore_port(&mut self, port: &Port) -> Result<bool, Failure> {
        if !self.suspects.has(&port.name) {
            return Ok(false);
        }
        let name = &port.name;
        let Some(RunningPort { counters, .. }) = self.running_ports.get(name) else { return Ok(false) };
        let request = Request::AddPort { port: port.clone(), counters: *counters };
        self.call(name, request).await.map_err(Failure::conflict)?;
        self.suspects.forget(name);
        tracing::info!(port = name, "it goes on");
        self.attach_kept(name).await;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(names: &[&str]) -> BTreeSet<Suspect> {
        names.iter().map(|name| Suspect::Port((*name).into())).collect()
    }

    #[test]
    fn what_was_served_at_two_crashes_in_a_row_is_suspected() {
        let mut suspects = Suspects::default();
        assert_eq!(suspects.record_crash(ports(&["a"])), []);
        assert_eq!(suspects.record_crash(ports(&["b"])), []);
        assert_eq!(suspects.record_crash(ports(&[])), []);
        assert_eq!(suspects.record_crash(ports(&["b"])), [], "they were not in a row");
        assert_eq!(suspects.record_crash(ports(&["b"])), [Suspect::Port("b".into())]);
        assert_eq!(suspects.record_crash(ports(&["b"])), [], "it is let go on");
    }

    #[test]
    fn one_that_was_served_beside_it_is_suspected_only_if_it_always_was() {
        let mut suspects = Suspects::default();
        assert_eq!(suspects.record_crash(ports(&["a", "b", "c"])), []);
        assert_eq!(suspects.record_crash(ports(&["a", "b"])), []);
        assert_eq!(suspects.record_crash(ports(&["b", "c"])), [Suspect::Port("b".into())]);
        for _ in 1..AMBIGUOUS_CRASHES {
            assert_eq!(suspects.record_crash(ports(&["a", "b"])), []);
        }
        assert_eq!(suspects.record_crash(ports(&["a", "b"])).len(), 2);
    }
}
