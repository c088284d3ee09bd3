//! A console with the files and processes of the machine.
use crate::file::reason;
use ringway_click::{Console, Device};
use ringway_host::{network_devices, read_whole};
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;

/// Attack: a script that reads a device. Largest file that a handler reads, in bytes.
const LARGEST: usize = 1 << 24;

/// A console that can also read and write files and send signals.
pub(super) struct Hosted<C>(pub(super) C);

impl<C: Console> Console for Hosted<C> {
    fn chatter(&mut self, line: &str) {
        self.0.chatter(line);
    }

    fn output(&mut self, bytes: &[u8]) {
        self.0.output(bytes);
    }

    fn read_file(&mut self, name: &str) -> Result<Vec<u8>, String> {
        let read = std::fs::File::open(name).and_then(|file| read_whole(file, LARGEST));
        read.map_err(|error| format!("{name}: {}", reason(&error)))
    }

    fn write_file(&mut self, name: &str, bytes: &[u8], append: bool) -> Result<(), String> {
        let mut options = std::fs::OpenOptions::new();
        options.create(true).write(true).append(append).truncate(!append);
        let written = options.open(name).and_then(|mut file| file.write_all(bytes));
        written.map_err(|error| format!("{name}: {}", reason(&error)))
    }

    fn kill(&mut self, signal: i32, process: i32) -> bool {
        let (Some(signal), Some(process)) = (Signal::from_named_raw(signal), Pid::from_raw(process)) else {
            return false;
        };
        kill_process(process, signal).is_ok()
    }

    fn process(&self) -> u32 {
        std::process::id()
    }

    fn devices(&self) -> fn() -> Vec<Device> {
        || {
            let device = |device: ringway_host::NetworkDevice| Device {
                name: device.name,
                ethernet: device.ethernet,
                address: device.address.map(|both| both.map(|address| address.octets())),
                gateway: device.gateway.map(|gateway| gateway.octets()),
            };
            network_devices().into_iter().map(device).collect()
        }
    }
}
