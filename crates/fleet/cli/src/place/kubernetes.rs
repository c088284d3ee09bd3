//! `ringway place kubernetes`.

use super::arguments::Kubernetes;
use super::source::Source;
use crate::arguments::Target;
use crate::command_error::CommandError;
use ringway_control::run_dir::{self, RunDir, RunDirError};
use ringway_scheduler::kubernetes::{Options, run, socket};
use ringway_scheduler::plugins::Options as PluginOptions;
use std::path::{Path, PathBuf};

/// The run directory that `target` selects.
fn run_directory(target: &Target) -> PathBuf {
    run_dir::base().join(target.fabric.as_deref().unwrap_or("kubernetes"))
}

/// The socket of placement for Kubernetes, if it exists and `target` does not exclude it.
pub fn found(target: &Target) -> Option<PathBuf> {
    // If fabrics are up and none is named, the target is one of them, or ambiguous.
    let meant = target.fabric.is_some() || run_dir::running(&run_dir::base()).is_empty();
    let socket = socket(&run_directory(target));
    (meant && target.socket.is_none() && socket.exists()).then_some(socket)
}

/// Serves until a signal ends it.
pub fn serve(
    target: &Target,
    inventory: Option<&Path>,
    plugins: PluginOptions,
    arguments: Kubernetes,
) -> Result<(), CommandError> {
    crate::log::start(arguments.log);
    if inventory.is_none() && !plugins.is_empty() {
        let how = "attach them when it is served: `ringway place plugins DIR`";
        return Err(CommandError::Failed(format!("--plugins has no inventory to work on; {how}")));
    }
    let service = inventory.map(|file| Source::of_file(file, plugins)).transpose()?;
    let run_dir = RunDir::take(&run_directory(target)).map_err(|error| match error {
        RunDirError::Taken { path, pid } => CommandError::Failed(format!(
            "{} is in use by process {pid}; end it, or use another run directory with --fabric NAME",
            path.display()
        )),
        other => CommandError::because(other),
    })?;
    let options = Options {
        kubeconfig: arguments.kubeconfig,
        context: arguments.context,
        cluster: arguments.cluster,
        policy: arguments.policy,
        listen: arguments.listen,
        run: run_dir.path().into(),
        api: target.socket.clone(),
        service,
    };
    ringway_host::withhold_descriptors();
    run(options).map_err(CommandError::because)
}
