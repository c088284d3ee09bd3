//! A function in a virtual machine: this process is its monitor.

use crate::command_error::CommandError;
use ringway_control::function::{FunctionMessage, Start};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};

#[cfg(target_arch = "x86_64")]
pub use machine::{Prepared, check_image, prepare, run, shared_pages, snapshot_handle};

#[cfg(target_arch = "x86_64")]
mod machine {
    use super::super::{Passed, SnapshotHandle};
    use super::{CommandError, FunctionMessage, OwnedFd, Start, UnixListener, UnixStream};
    use ringway_click_driver::inherited;
    use ringway_host::MonitorFence;
    use ringway_vmm::{
        FunctionEnd, FunctionError, FunctionEvent, FunctionStart, FunctionVm, Image, LARGEST_IMAGE,
        PreparedVm, Snapshot, SnapshotError, click,
    };
    use std::fs::File;
    use std::io::{self, Read, Seek};

    /// Guests have whole pages of memory.
    const PAGE: u64 = 4096;

    /// What is prepared before the function is known.
    #[derive(Default)]
    pub struct Prepared(Option<PreparedVm>, Option<MonitorFence>);

    impl Prepared {
        /// An empty machine, and the first part of its monitor's confinement. What fails, fails again when it is
        /// needed, with a reason.
        pub fn new() -> Prepared {
            let prepared = PreparedVm::new().ok();
            let fence = prepared.as_ref().and_then(|_| MonitorFence::begin().ok());
            Prepared(prepared, fence)
        }

        /// The machine and the confinement.
        pub fn take(self) -> (Option<PreparedVm>, Option<MonitorFence>) {
            (self.0, self.1)
        }
    }

    /// Whether a file is the image of a program that runs with so many bytes of memory; if not, why.
    pub fn check_image(image: &[u8], memory: u64) -> Result<(), String> {
        if *image == *click().elf() {
            let what = "this is the image of functions for other monitors, not of a program";
            return Err(format!("{what}; a function with a Click configuration has `config = \"FILE\"`"));
        }
        ringway_vmm::check_image(image, memory / PAGE * PAGE).map_err(|error| error.to_string())
    }

    /// The bytes of a program's image.
    fn image(file: OwnedFd) -> io::Result<Vec<u8>> {
        let mut file = File::from(file);
        file.rewind()?;
        let mut bytes = Vec::new();
        file.take(LARGEST_IMAGE as u64 + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// The virtual machine of a function; nothing of its guest runs yet.
    pub fn prepare(
        prepared: Option<PreparedVm>,
        start: &Start,
        memory: Option<OwnedFd>,
    ) -> Result<FunctionVm, String> {
        let prepared = match prepared {
            Some(prepared) => prepared,
            None => PreparedVm::new().map_err(|error| FunctionError::from(error).to_string())?,
        };
        if let Some(text) = &start.snapshot
            && let Some(file) = memory
        {
            let snapshot: Snapshot = serde_json::from_str(text).map_err(|error| error.to_string())?;
            let ports = start.ports.len();
            let vm = match start.moved {
                true => FunctionVm::moved(prepared, &snapshot, file, ports),
                false => FunctionVm::clone_on(prepared, &snapshot, file, ports),
            };
            return vm.map_err(|error| error.to_string());
        }
        let function = FunctionStart {
            text: start.text.clone(),
            title: start.title.clone(),
            parameters: start.parameters.clone(),
            ports: start.ports.clone(),
            devices: start.devices.clone(),
            settings: start.program.clone().unwrap_or_default(),
            handlers: start.handlers.clone(),
            burst: start.burst,
            ..FunctionStart::default()
        };
        let size = usize::try_from(start.memory / PAGE * PAGE).unwrap_or(usize::MAX);
        let vm = match (&start.program, memory) {
            (None, _) => FunctionVm::on(prepared, size, function),
            (Some(_), None) => return Err("its image did not come with its order".into()),
            (Some(_), Some(file)) => {
                let bytes = image(file).map_err(|error| format!("its image: {error}"))?;
                check_image(&bytes, start.memory)?;
                FunctionVm::load(prepared, Image::of(&bytes), size, function)
            }
        };
        vm.map_err(|error| error.to_string())
    }

    /// The pages of this program that guests share.
    pub fn shared_pages() -> &'static [u8] {
        click().shared.map_or(&[], |shared| shared.bytes)
    }

    /// Takes snapshots of the guest.
    pub fn snapshot_handle(vm: &FunctionVm) -> Option<SnapshotHandle> {
        let (snapshot_handle, thaw) = (vm.snapshot_handle(), vm.snapshot_handle());
        let take = move |file, freeze, passed: Passed| {
            let answer = |taken: Result<Snapshot, SnapshotError>| {
                passed(match taken {
                    Ok(snapshot) => serde_json::to_string(&snapshot).map_err(|error| error.to_string()),
                    Err(error) => Err(error.to_string()),
                })
            };
            match freeze {
                true => snapshot_handle.freeze(file, answer),
                false => snapshot_handle.snapshot(file, answer),
            }
        };
        Some(SnapshotHandle { take: Box::new(take), thaw: Box::new(move || thaw.thaw()) })
    }

    /// Runs the guest until it ends.
    pub fn run(
        vm: FunctionVm,
        listener: &UnixListener,
        connector: &UnixStream,
        say: impl Fn(FunctionMessage),
    ) -> Result<(), CommandError> {
        let connect = |port: usize| inherited::ask(connector, u8::try_from(port).map_err(io::Error::other)?);
        let mut wrong = None;
        let event = |event: FunctionEvent| match event {
            FunctionEvent::Up(_) => say(FunctionMessage::Up),
            FunctionEvent::Wrong(why) => {
                wrong = Some(why.clone());
                say(FunctionMessage::Wrong(why));
            }
            FunctionEvent::Line(line) => eprintln!("{line}"),
        };
        let end = vm.run(listener, connect, event);
        match (end, wrong) {
            (FunctionEnd::Stopped, _) => Ok(()),
            (FunctionEnd::Wrong, Some(why)) => Err(CommandError::Failed(why)),
            (end, _) => Err(CommandError::Failed(end.to_string())),
        }
    }
}

/// There is nothing to prepare.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Default)]
pub struct Prepared;

#[cfg(not(target_arch = "x86_64"))]
impl Prepared {
    /// Prepares nothing.
    pub fn new() -> Prepared {
        Prepared
    }

    /// Takes nothing.
    pub fn take(self) -> (Option<()>, Option<ringway_host::MonitorFence>) {
        (None, None)
    }
}

/// There are no images for other processors.
#[cfg(not(target_arch = "x86_64"))]
pub fn check_image(_: &[u8], _: u64) -> Result<(), String> {
    Err("a program in a VM needs an x86-64 processor with KVM".into())
}

/// There are no virtual machines on other processors.
#[cfg(not(target_arch = "x86_64"))]
pub fn prepare(_: Option<()>, _: &Start, _: Option<OwnedFd>) -> Result<std::convert::Infallible, String> {
    Err("a function in a VM needs an x86-64 processor with KVM; run it as a process".into())
}

/// Guests on other processors share no pages.
#[cfg(not(target_arch = "x86_64"))]
pub fn shared_pages() -> &'static [u8] {
    &[]
}

/// This processor has no VMs to take snapshots of.
#[cfg(not(target_arch = "x86_64"))]
pub fn snapshot_handle(vm: &std::convert::Infallible) -> Option<super::SnapshotHandle> {
    match *vm {}
}

/// This processor has no VMs to run.
#[cfg(not(target_arch = "x86_64"))]
pub fn run(
    vm: std::convert::Infallible,
    _: &UnixListener,
    _: &UnixStream,
    _: impl Fn(FunctionMessage),
) -> Result<(), CommandError> {
    match vm {}
}
