//! The image of functions, and programs, under other monitors than Ringway's: by virtio-mmio or PCI, with the fabric's
//! vhost-user ports, or with a TAP.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod cloud_hypervisor;
mod firecracker;
mod frames;
mod programs;
mod qemu;

use crate::lab::{Lab, Running};
use ringway_ring_client::Ring;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A translated machine boots within seconds, on a busy host within more.
const BOUND: Duration = Duration::from_secs(120);

/// A port and a ring port for this program, patched to each other.
fn pair(name: &str, port: &str) -> String {
    format!(
        "[port.{name}]\n{port}[port.{name}-far]\nkind = \"ring\"\nsocket = \"{name}-far.sock\"\n\
         [patch.{name}]\nports = [\"{name}\", \"{name}-far\"]\n"
    )
}

/// A fabric with vhost-user ports, and with the image in its folder.
fn fabric(name: &str, ports: &[&str]) -> Lab {
    let port = |name: &&str| pair(name, &format!("kind = \"vhost-user\"\nsocket = \"{name}.sock\"\n"));
    fabric_of(name, &ports.iter().map(port).collect::<String>())
}

/// A fabric with these sections, and with the image in its folder.
fn fabric_of(name: &str, sections: &str) -> Lab {
    let lab = Lab::new(name, sections);
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab.ok(&["function", "image", "--output", "function.elf"]);
    lab
}

fn program(lab: &Lab, port: &str) -> Ring {
    Ring::connect(&lab.socket(&format!("{port}-far.sock"))).unwrap()
}

/// A monitor's program, if it is installed.
fn installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").stdin(Stdio::null()).output().is_ok();
    if !found {
        eprintln!("not run: there is no {program}");
    }
    found
}

/// Whether KVM can be used.
fn has_kvm() -> bool {
    crate::lab::isolations().contains(&"vm")
}

/// A machine that runs the image, and its console.
struct Machine {
    running: Running,
    console: PathBuf,
}

impl Machine {
    /// Starts a monitor in the fabric's folder, which writes the console to this path.
    fn start(lab: &Lab, command: impl FnOnce(&Path) -> Command) -> Machine {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let console = lab.folder.join(format!("console{number}"));
        let said = std::fs::File::create(console.with_extension("monitor")).unwrap();
        let mut command = command(&console);
        command.current_dir(&lab.folder).stdin(Stdio::null()).stderr(said);
        Machine { running: Running(command.spawn().unwrap()), console }
    }

    /// The console.
    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// The console, and what the monitor says.
    fn all(&self) -> String {
        let said = std::fs::read_to_string(self.console.with_extension("monitor"));
        format!("{}\n{}", self.text(), said.unwrap_or_default())
    }

    /// Waits until the console says something.
    fn says(&mut self, what: &str) {
        let end = Instant::now() + BOUND;
        while !self.text().contains(what) {
            assert!(Instant::now() < end, "it does not say `{what}`:\n{}", self.all());
            let ended = self.running.0.try_wait().unwrap();
            assert!(
                ended.is_none() || self.text().contains(what),
                "{ended:?} before `{what}`:\n{}",
                self.all()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until the monitor ends; its code.
    fn code(&mut self) -> Option<i32> {
        let end = Instant::now() + BOUND;
        loop {
            if let Some(status) = self.running.0.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < end, "it does not end:\n{}", self.all());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

const WIRE: &str = "FromPort(in) -> there :: Counter -> ToPort(out);\nFromPort(out) -> ToPort(in);\n";

/// A machine with a wire and two devices, which the console shows with these words, passes frames of every length both
/// ways, unchanged and in order.
fn wire(lab: &Lab, mut machine: Machine, rings: &str) {
    machine.says("click: device 1 at ");
    machine.says("running: ");
    assert_eq!(machine.text().matches(rings).count(), 2, "{}", machine.text());
    let (mut one, mut other) = (program(lab, "in"), program(lab, "out"));
    frames::passes(&mut one, &mut other, 1);
    frames::passes(&mut other, &mut one, 2);
    assert_eq!(machine.text().matches("can't be used").count(), 0, "{}", machine.text());
}
