//! Firecracker, which needs KVM: its devices are TAPs, each of which a bridge joins to a TAP of the fabric.

use super::frames::{PINGS, answers_pings, stack_answers_pings};
use super::programs::{LINE, UNKNOWN, built};
use super::{Machine, WIRE, fabric_of, has_kvm, installed, pair};
use crate::lab::net::{can_create_taps, namespace, within};
use crate::lab::{Lab, Running};
use std::fs::File;
use std::process::Command;

const PROGRAM: &str = "firecracker";
const RINGS: &str = "split rings of 256 descriptors, interrupts";

/// A network namespace with a TAP for each port, a bridge to the fabric's TAP, and the fabric.
struct Net {
    lab: Lab,
    namespace: String,
    _keeper: Running,
}

/// The namespace and the fabric; none where Firecracker can't run.
fn net(name: &str, ports: &[&str]) -> Option<Net> {
    if !installed(PROGRAM) || !has_kvm() || !can_create_taps() {
        return None;
    }
    let (keeper, namespace) = namespace();
    let section = |port: &&str| {
        let tap = format!("kind = \"tap\"\nnamespace = \"{namespace}\"\ninterface = \"{port}\"\n");
        pair(port, &tap)
    };
    let lab = fabric_of(name, &ports.iter().map(section).collect::<String>());
    for port in ports {
        let script = format!(
            "ip tuntap add vm-{port} mode tap && ip link add br-{port} type bridge mcast_snooping 0 &&
             ip link set {port} master br-{port} && ip link set vm-{port} master br-{port} &&
             for at in {port} vm-{port} br-{port}; do ip link set $at up; done"
        );
        within(&namespace, &script);
    }
    Some(Net { lab, namespace, _keeper: keeper })
}

impl Net {
    /// A function in a machine with a device for each port.
    fn start(&self, ports: &[&str], initrd: &str, line: &str, words: &[&str]) -> Machine {
        let source = serde_json::json!({
            "kernel_image_path": "function.elf", "initrd_path": initrd, "boot_args": line
        });
        self.start_from(source, ports, words)
    }

    /// A machine with this boot source and a device for each port; the console is its standard output.
    fn start_from(&self, source: serde_json::Value, ports: &[&str], words: &[&str]) -> Machine {
        let device = |(at, port): (usize, &&str)| {
            let (tap, mac) = (format!("vm-{port}"), format!("52:54:00:12:34:{:02x}", 0x56 + at));
            serde_json::json!({ "iface_id": port, "host_dev_name": tap, "guest_mac": mac })
        };
        let devices: Vec<_> = ports.iter().enumerate().map(device).collect();
        let machine = serde_json::json!({
            "boot-source": source,
            "drives": [],
            "machine-config": { "vcpu_count": 1, "mem_size_mib": 64 },
            "network-interfaces": devices,
        });
        std::fs::write(self.lab.folder.join("machine.json"), machine.to_string()).unwrap();
        Machine::start(&self.lab, |console| {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net={}", self.namespace)).args(["--", PROGRAM, "--no-api"]);
            // Its log would be in the midst of the console's lines.
            let log = console.with_extension("log");
            File::create(&log).unwrap();
            command.arg("--log-path").arg(log).args(["--config-file", "machine.json"]).args(words);
            command.stdout(File::create(console).unwrap());
            command
        })
    }
}

fn wire(name: &str, words: &[&str]) {
    let Some(net) = net(name, &["in", "out"]) else { return };
    std::fs::write(net.lab.folder.join("wire.click"), WIRE).unwrap();
    let machine = net.start(&["in", "out"], "wire.click", "port=in port=out", words);
    super::wire(&net.lab, machine, RINGS);
}

#[test]
fn a_wire_passes_frames_on_firecracker() {
    wire("fc-wire", &[]);
}

#[test]
fn a_wire_passes_frames_on_firecracker_with_pci() {
    wire("fc-pci", &["--enable-pci"]);
}

#[test]
fn a_function_answers_pings_on_firecracker() {
    let Some(net) = net("fc-ping", &["net"]) else { return };
    std::fs::write(net.lab.folder.join("ping.click"), PINGS).unwrap();
    let line = "parameter=MAC=52:54:00:12:34:56 burst=16";
    answers_pings(&net.lab, &mut net.start(&["net"], "ping.click", line, &[]));
}

#[test]
fn a_function_that_stops_ends_firecracker() {
    let Some(net) = net("fc-stop", &["net"]) else { return };
    let stop = "FromPort(eth0) -> Discard; DriverManager(stop);\n";
    std::fs::write(net.lab.folder.join("stop.click"), stop).unwrap();
    let mut machine = net.start(&["net"], "stop.click", "reboot=k", &[]);
    machine.says("click: stopped");
    assert_eq!(machine.code(), Some(0), "{}", machine.all());
}

#[test]
fn a_programs_stack_answers_pings_on_firecracker() {
    for (example, words) in [("http", &[][..]), ("http", &["--enable-pci"]), ("c-http", &[])] {
        let name = format!("fc-{example}{}", words.len());
        let Some(net) = net(&name, &["net"]) else { return };
        let Some(image) = built(&net.lab, example) else { continue };
        let source = serde_json::json!({ "kernel_image_path": image, "boot_args": LINE });
        let mut machine = net.start_from(source, &["net"], words);
        machine.says(UNKNOWN);
        stack_answers_pings(&net.lab, &mut machine);
    }
}

#[test]
fn what_is_wrong_with_a_program_ends_firecracker() {
    let Some(net) = net("fc-program", &["net"]) else { return };
    let Some(image) = built(&net.lab, "http") else { return };
    let line = "address=10.0.0.300/24 reboot=k";
    let source = serde_json::json!({ "kernel_image_path": image, "boot_args": line });
    let mut machine = net.start_from(source, &["net"], &[]);
    machine.says("address");
    assert_eq!(machine.code(), Some(0), "{}", machine.all());
}
