//! Placement's interface to the fabric.

use crate::api::ErrorBody;
use crate::engine::{Answer, EngineRequest, Failure, Inbox};
use crate::file::Fabric;
use ringway_scheduler::{Failed, Machine, Traffic};
use tokio::runtime::Handle;

/// The fabric whose engine receives from an inbox.
pub struct ThisFabric {
    inbox: Inbox,
    runtime: Handle,
}

fn failed(failure: Failure) -> Failed {
    let of = |error_body: ErrorBody| error_body.error;
    match failure {
        Failure::Unknown(error_body) => Failed::Unknown(of(error_body)),
        Failure::Wrong(error_body) | Failure::Request(_, error_body) => Failed::Wrong(of(error_body)),
        Failure::Conflict(error_body) => Failed::Conflict(of(error_body)),
        Failure::Down => Failed::Conflict("the fabric is going down".into()),
    }
}

impl ThisFabric {
    /// Its methods block other threads than the engine's, whose runtime this is.
    pub fn new(inbox: Inbox, runtime: Handle) -> ThisFabric {
        ThisFabric { inbox, runtime }
    }

    fn ask<T>(&self, ask: impl FnOnce(Answer<T>) -> EngineRequest) -> Result<T, Failed> {
        self.runtime.block_on(self.inbox.ask(ask)).map_err(failed)
    }
}

impl ringway_scheduler::Fabric for ThisFabric {
    fn traffic(&self) -> Result<Traffic, Failed> {
        let stats = self.ask(EngineRequest::Stats)?;
        let ports = stats.ports.into_iter().map(|port| {
            let total = port.total;
            (port.name, (total.tx_frames + total.rx_frames, total.tx_bytes + total.rx_bytes))
        });
        Ok(Traffic { at: stats.at, ports: ports.collect() })
    }

    fn machines(&self) -> Result<Vec<Machine>, Failed> {
        let (guests, functions) = (self.ask(EngineRequest::Guests)?, self.ask(EngineRequest::Functions)?);
        let fabric: Box<Fabric> = self.ask(EngineRequest::Described)?;
        let guests = guests.iter().filter_map(|view| {
            let guest = fabric.guest(&view.name)?;
            let runs = matches!(view.state.as_str(), "starting" | "running" | "stopping");
            Some(Machine { name: guest.name.clone(), cores: guest.cpus, memory: guest.memory, runs })
        });
        let functions = functions.iter().filter_map(|view| {
            let function = fabric.function(&view.name)?;
            // A function that ended counts as running, since it is about to be restarted.
            let runs = view.state != "stopped";
            // A function has one thread.
            Some(Machine { name: function.name.clone(), cores: 1, memory: function.memory, runs })
        });
        Ok(guests.chain(functions).collect())
    }

    fn stop(&self, name: &str) -> Result<(), Failed> {
        let is_guest = self.ask(EngineRequest::Described)?.guest(name).is_some();
        self.ask(|answer| match is_guest {
            true => EngineRequest::StopGuest(name.into(), answer),
            false => EngineRequest::StopFunction(name.into(), answer),
        })
    }

    fn start(&self, name: &str) -> Result<(), Failed> {
        let is_guest = self.ask(EngineRequest::Described)?.guest(name).is_some();
        self.ask(|answer| match is_guest {
            true => EngineRequest::StartGuest(name.into(), answer),
            false => EngineRequest::StartFunction(name.into(), answer),
        })
    }
}
