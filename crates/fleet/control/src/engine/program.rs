//! Programs while they run.

use super::command::error_body;
use super::{Engine, EngineError, Failure};
use crate::api::ProgramView;
use crate::file::Fabric;
use crate::programs::{Order, Phase, Shown};
use ringway_spec::ExecProgram;

impl Engine {
    /// Adds a program to its port, which exists.
    pub(super) fn add_program(&mut self, program: &ExecProgram, target: &Fabric) -> Result<(), EngineError> {
        let port = target.port(&program.port);
        let socket = port.and_then(|port| port.socket.as_ref()).map(|socket| socket.path.clone());
        Ok(self.programs.add(program, &socket.unwrap_or_default(), &self.run.programs())?)
    }

    /// Every program, in the order of the file.
    pub(super) fn program_views(&self) -> Vec<ProgramView> {
        let mut views: Vec<ProgramView> = self.programs.all().map(|shown| view(&shown)).collect();
        let position = |name: &str| self.fabric.programs.iter().position(|program| program.name == name);
        views.sort_by_key(|view| position(&view.name).unwrap_or(usize::MAX));
        views
    }

    /// Starts, stops or restarts a program.
    pub(super) fn order_program(&mut self, name: &str, order: Order) -> Result<(), Failure> {
        let unknown = || {
            let fix = "`ringway program list` shows those there are";
            Failure::Unknown(error_body(format!("there is no program \"{name}\"; {fix}")))
        };
        self.programs.order(name, order).then_some(()).ok_or_else(unknown)
    }
}

fn view(shown: &Shown<'_>) -> ProgramView {
    let (state, pid) = match shown.status.phase {
        Phase::Stopped => ("stopped", 0),
        Phase::Running(pid) => ("running", pid),
        Phase::Stopping(pid) => ("stopping", pid),
        Phase::Waiting => ("waiting", 0),
        Phase::Ended => ("ended", 0),
    };
    let program = shown.program;
    ProgramView {
        name: program.name.clone(),
        state: state.into(),
        port: program.port.clone(),
        addresses: program.addresses.iter().map(ToString::to_string).collect(),
        command: program.command.clone(),
        stack: program.stack.word().into(),
        user: program.user.clone().unwrap_or_default(),
        restart: program.restart.word().into(),
        restarts: shown.status.restarts,
        pid,
        reason: if pid > 0 { String::new() } else { shown.status.reason.clone() },
        output: shown.output.display().to_string(),
    }
}
