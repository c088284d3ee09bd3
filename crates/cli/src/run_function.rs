//! The process of a function.

mod vm;

use crate::fail::Fail;
use ringway_control::function::{FunctionMessage, Start};
use ringway_fabric::{Link, LinkError};
use ringway_function::click::Configuration;
use ringway_function::click::function;
use ringway_function::handed::{self, Handed};
use ringway_spec::Isolation;
use rustix::fs::{FileType, fstat};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Confines the process and runs a function. Standard input is the link to `control`, which sends the configuration.
pub fn run() -> Result<(), Fail> {
    let mode = fstat(rustix::stdio::stdin()).map_err(Fail::because)?.st_mode;
    if FileType::from_raw_mode(mode) != FileType::Socket {
        return Err(Fail::Failed("`ringway run-function` is started by `ringway up`, not by hand".into()));
    }
    let stdin = rustix::stdio::stdin().try_clone_to_owned().map_err(Fail::because)?;
    let null: OwnedFd = std::fs::File::open("/dev/null").map_err(Fail::because)?.into();
    rustix::stdio::dup2_stdin(&null).map_err(Fail::because)?;
    drop(null);
    let link = Arc::new(Link::new(stdin));
    let (start, descriptors) = link.receive::<Start>().map_err(Fail::because)?;
    let [listener, doors]: [OwnedFd; 2] = descriptors
        .try_into()
        .map_err(|_| Fail::Failed("the function's sockets did not come with its order".into()))?;
    if let Some(core) = start.core {
        ringway_host::pin(core).map_err(Fail::because)?;
    }
    // If `control` is gone, sending fails, and `hold` ends this process.
    let say = |message: FunctionMessage| drop(link.send(&message, &[]));
    if start.isolation == Isolation::Vm {
        match vm::prepare(&start) {
            Ok(vm) => {
                ringway_host::confine_monitor(start.user).map_err(Fail::because)?;
                tether(&link)?;
                return vm::run(vm, &listener.into(), &doors.into(), say);
            }
            Err(error) if start.fallback => say(FunctionMessage::Fallback(error)),
            Err(error) => {
                say(FunctionMessage::Wrong(error.clone()));
                return Err(Fail::Failed(error));
            }
        }
    }
    ringway_host::confine_function(start.user, start.memory).map_err(Fail::because)?;
    tether(&link)?;
    handed::hand(Some(Handed {
        ports: start.ports.clone(),
        devices: start.devices.clone(),
        doors: Some(doors.into()),
        listeners: vec![(start.handlers.clone(), listener.into())],
        callers: None,
    }));
    let configuration = Configuration {
        text: &start.text,
        file: &start.title,
        parameters: &start.parameters,
        ports: &start.ports,
        devices: &start.devices,
        resident: false,
    };
    function::run(configuration, &start.handlers, start.burst as usize, || say(FunctionMessage::Up)).map_err(
        |wrong| {
            say(FunctionMessage::Wrong(wrong.clone()));
            Fail::Failed(wrong)
        },
    )
}

/// Makes this process end with its link to `control`.
fn tether(link: &Arc<Link>) -> Result<(), Fail> {
    let leash = link.clone();
    ringway_host::spawn("leash", None, move || hold(&leash)).map(drop).map_err(Fail::because)
}

/// Ends this process when its link to `control` is closed.
fn hold(link: &Link) {
    loop {
        match link.receive::<()>() {
            Err(LinkError::Json(_)) | Ok(_) => {}
            Err(_) => std::process::exit(0),
        }
    }
}
