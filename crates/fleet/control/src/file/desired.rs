//! The desired state described by a fabric file.

use super::{ApiSettings, OpenAccess};
use crate::kinds;
use ringway_fabric::worker_node;
use ringway_scheduler::Placement;
use ringway_spec::{Chain, ExecProgram, Function, Guest, Host, HugePages, Port, Switch, Worker};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The desired state of a fabric. Lists are in the order of the file; every reference is valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fabric {
    /// Its name.
    pub name: String,
    /// Its run directory, if the file sets one.
    pub run: Option<PathBuf>,
    /// Pages for memory that Ringway allocates itself.
    pub huge_pages: HugePages,
    /// How long a function created at run time, or new in a running chain, may take to start.
    pub start_limit: Duration,
    /// Switches.
    pub switches: Vec<Switch>,
    /// Who may open ports on switches, by their names.
    #[serde(default)]
    pub openings: BTreeMap<String, OpenAccess>,
    /// Ports.
    pub ports: Vec<Port>,
    /// Guests.
    pub guests: Vec<Guest>,
    /// Hosts.
    pub hosts: Vec<Host>,
    /// Functions.
    pub functions: Vec<Function>,
    /// Unmodified programs.
    pub programs: Vec<ExecProgram>,
    /// Chains of functions.
    pub chains: Vec<Chain>,
    /// TCP address of its metrics, if they are served there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
    /// How its API is served at a TCP address, if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api: Option<ApiSettings>,
    /// File of its audit log, if that is not in the run directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit: Option<PathBuf>,
    /// Its placement tables, which only the file has.
    #[serde(skip)]
    pub placement: Placement,
    /// Workers, at least one.
    pub workers: Vec<Worker>,
    /// Warnings, one per line with its position: settings that are valid but may surprise the operator.
    #[serde(skip)]
    pub warnings: Vec<String>,
}

impl Fabric {
    /// Makes relative paths absolute: sockets are relative to the run directory `run`, files of guests to `folder`, the
    /// folder of the fabric file.
    pub fn resolve(mut self, run: &Path, folder: &Path) -> Fabric {
        for port in &mut self.ports {
            Fabric::resolve_port(port, run);
        }
        if let Some(audit) = &mut self.audit {
            *audit = folder.join(&audit);
        }
        if let Some(api) = &mut self.api {
            api.resolve(folder);
        }
        for guest in &mut self.guests {
            let Guest { program, kernel, modules, initrd, init, .. } = guest;
            for file in [program, kernel, modules, initrd, init].into_iter().flatten() {
                *file = folder.join(&file);
            }
        }
        for program in &mut self.programs {
            let own = program.folder.as_deref().unwrap_or(Path::new(""));
            program.folder = Some(folder.join(own));
        }
        self
    }

    /// Makes the relative paths of a port absolute.
    pub(super) fn resolve_port(port: &mut Port, run: &Path) {
        // A kind that is not the project's has no hosts.
        if let Some(kind) = kinds::find(port.kind.name(), &[]) {
            kind.resolve(port, run);
        }
        if let Some(socket) = &mut port.socket {
            socket.path = run.join(&socket.path);
        }
    }

    /// The program of this name.
    pub fn program(&self, name: &str) -> Option<&ExecProgram> {
        self.programs.iter().find(|program| program.name == name)
    }

    /// The port of this name.
    pub fn port(&self, name: &str) -> Option<&Port> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// The NUMA node of a port's memory: that of its worker, or that of all workers if any of them may take it.
    pub fn node_of(&self, port: &Port) -> Option<u16> {
        let takes = |worker: &&Worker| port.worker.as_ref().is_none_or(|name| *name == worker.name);
        let mut nodes = self.workers.iter().filter(takes).map(worker_node);
        let first = nodes.next()?;
        first.filter(|_| nodes.all(|node| node == first))
    }

    /// The function of this name.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|function| function.name == name)
    }

    /// The function of this name in the file, and its further instances.
    pub fn members<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f Function> {
        let is_its = move |function: &&Function| {
            function.name == name || function.instance.as_ref().is_some_and(|instance| instance.of == name)
        };
        self.functions.iter().filter(is_its)
    }

    /// The chain of which a function is.
    pub fn chain_of(&self, function: &str) -> Option<&Chain> {
        let of = |own: &String| self.members(own).any(|member| member.name == function);
        self.chains.iter().find(|chain| chain.functions.iter().any(of))
    }

    /// The host of this name.
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// The guest of this name.
    pub fn guest(&self, name: &str) -> Option<&Guest> {
        self.guests.iter().find(|guest| guest.name == name)
    }
}
