//! Programs while they run.

use super::{Engine, EngineError, Failure};
use crate::api::ProgramView;
use crate::file::Fabric;
use crate::keeper::StoredEntry;
use crate::programs::{Order, Phase, Shown};
use ringway_spec::ExecProgram;
use std::collections::BTreeMap;
use std::path::PathBuf;

impl Engine {
    /// Adds a program to its port, which exists.
    pub(super) fn add_program(&mut self, program: &ExecProgram, target: &Fabric) -> Result<(), EngineError> {
        Ok(self.programs.add(program, &socket(program, target), &self.run.programs())?)
    }

    /// Goes on with programs of a former `control`; those that can't be are added again.
    pub(super) fn adopt_programs(&mut self, fabric: &Fabric, found: &mut BTreeMap<String, StoredEntry>) {
        for program in &fabric.programs {
            let folder = self.run.programs();
            match self.programs.adopt(program, &socket(program, fabric), &folder, found) {
                Ok(true) => self.fabric.programs.push(program.clone()),
                Ok(false) => {}
                Err(error) => tracing::error!(%error, "the program is started again"),
            }
        }
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
            Failure::unknown(format!("there is no program \"{name}\"; {fix}"))
        };
        self.programs.order(name, order).then_some(()).ok_or_else(unknown)
    }
}

/// The socket of a program's port.
fn socket(program: &ExecProgram, fabric: &Fabric) -> PathBuf {
    let port = fabric.port(&program.port).and_then(|port| port.socket.as_ref());
    port.map(|socket| socket.path.clone()).unwrap_or_default()
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
