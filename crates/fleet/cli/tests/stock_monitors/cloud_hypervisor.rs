//! Cloud Hypervisor, which needs KVM: its devices are on PCI, with registers beyond 4 GB, and interrupt by MSI-X.

use super::frames::{PINGS, answers_pings, stack_answers_pings};
use super::programs::{LINE, UNKNOWN, built};
use super::{Machine, WIRE, fabric, has_kvm, installed};
use crate::lab::Lab;
use std::process::Command;

const PROGRAM: &str = "cloud-hypervisor";
const RINGS: &str = "split rings of 256 descriptors, interrupts";

fn can_run() -> bool {
    installed(PROGRAM) && has_kvm()
}

const MEMORY: &[&str] = &["--memory", "size=64M,shared=on"];

fn start(lab: &Lab, words: &[&str]) -> Machine {
    Machine::start(lab, |console| {
        let mut command = Command::new(PROGRAM);
        command.args(["--console", "off"]);
        if !words.contains(&"--kernel") {
            command.args(["--kernel", "function.elf"]);
        }
        command.arg("--serial").arg(format!("file={}", console.display())).args(words);
        command
    })
}

/// A machine with a device for each port, which has these further settings.
fn with_ports(lab: &Lab, ports: &[&str], settings: &str, words: &[&str]) -> Machine {
    let device = |port: &&str| {
        let socket = lab.socket(&format!("{port}.sock"));
        format!("vhost_user=true,socket={}{settings}", socket.display())
    };
    let devices: Vec<String> = ports.iter().map(device).collect();
    let devices = devices.iter().map(String::as_str);
    let all: Vec<&str> = words.iter().copied().chain(["--net"]).chain(devices).collect();
    start(lab, &all)
}

/// A machine with a wire and two devices.
fn wire(name: &str, settings: &str, words: &[&str], rings: &str) {
    let lab = fabric(name, &["in", "out"]);
    std::fs::write(lab.folder.join("wire.click"), WIRE).unwrap();
    let words = [words, &["--initramfs", "wire.click", "--cmdline", "port=in port=out"]].concat();
    super::wire(&lab, with_ports(&lab, &["in", "out"], settings, &words), rings);
}

#[test]
fn a_wire_passes_frames_on_cloud_hypervisor() {
    if can_run() {
        wire("ch-wire", "", MEMORY, RINGS);
    }
}

#[test]
fn a_wire_passes_frames_through_longer_and_shorter_queues_on_cloud_hypervisor() {
    if can_run() {
        wire("ch-long", ",queue_size=1024", MEMORY, RINGS);
        wire("ch-short", ",queue_size=64", MEMORY, "split rings of 64 descriptors, interrupts");
    }
}

#[test]
fn a_wire_passes_frames_with_more_processors_and_memory_beyond_4_gb_on_cloud_hypervisor() {
    if can_run() {
        wire("ch-large", "", &["--cpus", "boot=2", "--memory", "size=6G,shared=on"], RINGS);
    }
}

#[test]
fn a_function_answers_pings_on_cloud_hypervisor() {
    if !can_run() {
        return;
    }
    let lab = fabric("ch-ping", &["net"]);
    std::fs::write(lab.folder.join("ping.click"), PINGS).unwrap();
    let append = "parameter=MAC=52:54:00:12:34:56 burst=16";
    let words = [MEMORY, &["--initramfs", "ping.click", "--cmdline", append]].concat();
    answers_pings(&lab, &mut with_ports(&lab, &["net"], ",mac=52:54:00:12:34:56", &words));
}

#[test]
fn a_programs_stack_answers_pings_on_cloud_hypervisor() {
    for example in ["http", "c-http"] {
        if !can_run() {
            return;
        }
        let lab = fabric(&format!("ch-{example}"), &["net"]);
        let Some(image) = built(&lab, example) else { continue };
        let words = [MEMORY, &["--kernel", &image, "--cmdline", LINE]].concat();
        let mut machine = with_ports(&lab, &["net"], ",mac=52:54:00:12:34:56", &words);
        machine.says(UNKNOWN);
        stack_answers_pings(&lab, &mut machine);
    }
}

#[test]
fn what_is_wrong_with_a_program_ends_cloud_hypervisor() {
    if !can_run() {
        return;
    }
    let lab = fabric("ch-program", &["net"]);
    let Some(image) = built(&lab, "http") else { return };
    let words = [MEMORY, &["--kernel", &image, "--cmdline", "address=10.0.0.300/24"]].concat();
    let mut machine = with_ports(&lab, &["net"], "", &words);
    machine.says("address");
    assert_eq!(machine.code(), Some(0), "{}", machine.all());
}

#[test]
fn what_is_wrong_is_said_on_the_console_of_cloud_hypervisor_and_ends_it() {
    if !can_run() {
        return;
    }
    let lab = fabric("ch-wrong", &["net"]);
    std::fs::write(lab.folder.join("wrong.click"), "FromPort(eth0) -> Nonsense -> ToPort(eth0);\n").unwrap();
    std::fs::write(lab.folder.join("stop.click"), "FromPort(eth0) -> Discard; DriverManager(stop);\n")
        .unwrap();
    let ended = |words: &[&str], what: &str| {
        let mut machine = with_ports(&lab, &["net"], "", &[MEMORY, words].concat());
        machine.says(what);
        assert_eq!(machine.code(), Some(0), "{}", machine.all());
    };
    ended(&[], "no configuration: give a Click file as the initrd");
    ended(&["--initramfs", "wrong.click"], "initrd:1:19: ");
    ended(&["--initramfs", "stop.click"], "click: stopped");
    let mut none = start(&lab, &[MEMORY, &["--cmdline", "click=Idle;"]].concat());
    none.says("no virtio network device");
    assert_eq!(none.code(), Some(0), "{}", none.all());
}
