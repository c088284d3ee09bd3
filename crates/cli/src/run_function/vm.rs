//! A function in a virtual machine: this process is its monitor.

use crate::fail::Fail;
use ringway_control::function::{FunctionMessage, Start};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

#[cfg(target_arch = "x86_64")]
pub use machine::{camera, prepare, run};

#[cfg(target_arch = "x86_64")]
mod machine {
    use super::super::Camera;
    use super::{Fail, FunctionMessage, OwnedFd, Start, UnixListener, UnixStream};
    use ringway_function::handed;
    use ringway_vmm::{FunctionEnd, FunctionEvent, FunctionStart, FunctionVm, Snapshot};
    use std::io;

    /// Guests have whole pages of memory.
    const PAGE: u64 = 4096;

    /// The virtual machine of a function; nothing of its guest runs yet.
    pub fn prepare(start: &Start, memory: Option<OwnedFd>) -> Result<FunctionVm, String> {
        if let (Some(text), Some(file)) = (&start.snapshot, memory) {
            let snapshot: Snapshot = serde_json::from_str(text).map_err(|error| error.to_string())?;
            let vm = FunctionVm::clone_of(&snapshot, file, start.ports.len());
            return vm.map_err(|error| error.to_string());
        }
        let function = FunctionStart {
            text: start.text.clone(),
            title: start.title.clone(),
            parameters: start.parameters.clone(),
            ports: start.ports.clone(),
            devices: start.devices.clone(),
            handlers: start.handlers.clone(),
            burst: start.burst,
            ..FunctionStart::default()
        };
        let memory = start.memory / PAGE * PAGE;
        FunctionVm::new(usize::try_from(memory).unwrap_or(usize::MAX), function)
            .map_err(|error| error.to_string())
    }

    /// Takes snapshots of the guest.
    pub fn camera(vm: &FunctionVm) -> Option<Camera> {
        let camera = vm.camera();
        Some(Box::new(move |file, passed| {
            camera.snapshot(file, |taken| {
                passed(match taken {
                    Ok(snapshot) => serde_json::to_string(&snapshot).map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                })
            });
        }))
    }

    /// Runs the guest until it ends.
    pub fn run(
        vm: FunctionVm,
        listener: &UnixListener,
        doors: &UnixStream,
        say: impl Fn(FunctionMessage),
    ) -> Result<(), Fail> {
        let connect = |port: usize| handed::ask(doors, u8::try_from(port).map_err(io::Error::other)?);
        let event = |event: FunctionEvent| match event {
            FunctionEvent::Up(_) => say(FunctionMessage::Up),
            FunctionEvent::Wrong(why) => say(FunctionMessage::Wrong(why)),
            FunctionEvent::Line(line) => eprintln!("{line}"),
        };
        match vm.run(listener, connect, event) {
            FunctionEnd::Stopped => Ok(()),
            end => Err(Fail::Failed(end.to_string())),
        }
    }
}

/// There are no virtual machines on other processors.
#[cfg(not(target_arch = "x86_64"))]
pub fn prepare(_: &Start, _: Option<OwnedFd>) -> Result<std::convert::Infallible, String> {
    Err("a function in a VM needs an x86-64 processor with KVM; run it as a process".into())
}

/// There are none.
#[cfg(not(target_arch = "x86_64"))]
pub fn camera(vm: &std::convert::Infallible) -> Option<super::Camera> {
    match *vm {}
}

/// There are none.
#[cfg(not(target_arch = "x86_64"))]
pub fn run(
    vm: std::convert::Infallible,
    _: &UnixListener,
    _: &UnixStream,
    _: impl Fn(FunctionMessage),
) -> Result<(), Fail> {
    match vm {}
}
