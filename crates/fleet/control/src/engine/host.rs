//! Hosts while they run.

use super::Engine;
use crate::api::{HostInterfaceView, HostProgramView, HostView};
use crate::hosts::{Program, ProgramState};
use crate::kinds::{self, HostSide};

impl Engine {
    /// Every host, with its interfaces and programs, in the order of the file.
    pub(super) async fn host_views(&mut self) -> Vec<HostView> {
        let ports = self.port_views().await;
        let interfaces = |of: &str| {
            let sides = self.fabric.ports.iter().filter_map(|port| {
                let side = kinds::find(port.kind.name(), self.host.kinds)?.host_side(port)?;
                Some((port, side)).filter(|(_, side)| side.host == of)
            });
            let view = |(port, HostSide { interface, addresses, .. }): (&ringway_spec::Port, HostSide)| {
                let state = ports.iter().find(|view| view.name == port.name);
                HostInterfaceView {
                    name: interface,
                    port: port.name.clone(),
                    state: state.map(|view| view.state.clone()).unwrap_or_default(),
                    addresses: addresses.iter().map(ToString::to_string).collect(),
                }
            };
            sides.map(view).collect()
        };
        let views = self.hosts.all().map(|host| HostView {
            name: host.name.into(),
            state: if host.stopping { "stopping" } else { "up" }.into(),
            namespace: host.namespace.display().to_string(),
            // The ports of a host that is removed are gone; those of its name are another one's.
            interfaces: if host.removed { Vec::new() } else { interfaces(host.name) },
            programs: host.programs.iter().map(program).collect(),
            output: host.output.display().to_string(),
        });
        let mut views: Vec<HostView> = views.collect();
        let position = |name: &str| self.fabric.hosts.iter().position(|host| host.name == name);
        // Hosts that are removed stay at the end.
        views.sort_by_key(|view| position(&view.name).unwrap_or(usize::MAX));
        views
    }
}

fn program(program: &Program) -> HostProgramView {
    let (state, pid, reason) = match program.state() {
        ProgramState::Waiting | ProgramState::Starting => ("starting", 0, String::new()),
        ProgramState::Running(pid) => ("running", pid.as_raw_nonzero().get().unsigned_abs(), String::new()),
        ProgramState::Ended(reason) => ("ended", 0, reason),
    };
    HostProgramView { command: program.command.clone(), state: state.into(), pid, reason }
}
