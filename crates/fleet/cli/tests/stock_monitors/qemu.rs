//! QEMU, without KVM and with it: on microvm by virtio-mmio, on q35 by PCI.

use super::frames::{PINGS, answers_pings, stack_answers_pings};
use super::{Machine, WIRE, fabric, has_kvm};
use crate::lab::Lab;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A QEMU with the version that it says it has.
#[derive(Clone)]
struct Qemu {
    program: PathBuf,
    version: u32,
    accelerator: &'static str,
}

impl Qemu {
    /// The installed QEMU, and the newer one that other tests fetch, if it exists; each without KVM, and with it if it
    /// can be used.
    fn all() -> Vec<Qemu> {
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).unwrap_or_default();
        let newer = cache.join("ringway/qemu-forky/qemu-system-x86_64");
        let found: Vec<Qemu> =
            ["qemu-system-x86_64".into(), newer].into_iter().filter_map(Qemu::of).collect();
        if found.is_empty() {
            eprintln!("not run: there is no qemu-system-x86_64");
        }
        let accelerators = if has_kvm() { vec!["tcg", "kvm"] } else { vec!["tcg"] };
        let with = |accelerator| found.iter().map(move |qemu| Qemu { accelerator, ..qemu.clone() });
        accelerators.into_iter().flat_map(with).collect()
    }

    fn of(program: PathBuf) -> Option<Qemu> {
        let output = Command::new(&program).arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let version = text.split("version ").nth(1)?.split('.').next()?.parse().ok()?;
        Some(Qemu { program, version, accelerator: "tcg" })
    }

    /// A name for a fabric of this version and accelerator.
    fn name(&self) -> String {
        format!("{}-{}", self.version, self.accelerator)
    }

    /// Before version 8 QEMU crashes without KVM when the driver of a PCI device with vectors starts.
    fn lacks_vectors(&self) -> bool {
        self.version < 8 && self.accelerator == "tcg"
    }

    fn command(&self, words: &[&str], console: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-accel", self.accelerator, "-m", "64M", "-nodefaults", "-no-user-config"]);
        command.args(["-display", "none", "-no-reboot"]);
        command.args(["-object", "memory-backend-memfd,id=mem,size=64M,share=on"]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        if !words.contains(&"-kernel") {
            command.args(["-kernel", "function.elf"]);
        }
        command.args(words);
        command
    }
}

fn start(qemu: &Qemu, lab: &Lab, words: &[&str]) -> Machine {
    Machine::start(lab, |console| qemu.command(words, console))
}

/// A machine with a device for each port.
fn with_ports(qemu: &Qemu, lab: &Lab, kind: &Kind, ports: &[&str], words: &[&str]) -> Machine {
    let mut all: Vec<String> = kind.machine.iter().map(ToString::to_string).collect();
    for port in ports {
        let socket = lab.socket(&format!("{port}.sock"));
        all.extend(["-chardev".into(), format!("socket,id={port},path={}", socket.display())]);
        all.extend(["-netdev".into(), format!("vhost-user,id={port},chardev={port}")]);
        all.extend(["-device".into(), format!("{},netdev={port}", kind.device(qemu))]);
    }
    let all: Vec<&str> = all.iter().map(String::as_str).chain(words.iter().copied()).collect();
    start(qemu, lab, &all)
}

/// A kind of machine and of its devices.
struct Kind {
    machine: &'static [&'static str],
    device: &'static str,
    /// What the console says of its devices.
    rings: &'static str,
    is_pci: bool,
}

const MICROVM: Kind = Kind {
    machine: &["-M", "microvm,acpi=off,memory-backend=mem", "-global", "virtio-mmio.force-legacy=false"],
    device: "virtio-net-device",
    rings: "split rings of 256 descriptors, interrupts",
    is_pci: false,
};
const Q35: &[&str] = &["-M", "q35,memory-backend=mem"];
const PCI: Kind =
    Kind { machine: Q35, device: "virtio-net-pci", rings: "split rings of 256 descriptors, ", is_pci: true };
const PACKED: Kind = Kind {
    device: "virtio-net-pci,packed=on,disable-legacy=on,iommu_platform=on",
    rings: "packed rings of 256 descriptors, ",
    ..PCI
};
/// Behind an IOMMU that the image leaves off.
const IOMMU: Kind = Kind {
    machine: &[
        "-M",
        "q35,memory-backend=mem,kernel-irqchip=split",
        "-device",
        "intel-iommu,intremap=on,device-iotlb=on,caching-mode=on",
    ],
    device: "virtio-net-pci,disable-legacy=on,iommu_platform=on,ats=on",
    ..PCI
};

impl Kind {
    fn device(&self, qemu: &Qemu) -> String {
        let vectors = if self.is_pci && qemu.lacks_vectors() { ",vectors=0" } else { "" };
        format!("{}{vectors}", self.device)
    }
}

/// A wire with two devices passes frames of every length both ways, unchanged and in order.
fn wire(qemu: &Qemu, kind: &Kind, name: &str) {
    let lab = fabric(&format!("{name}-{}", qemu.name()), &["in", "out"]);
    std::fs::write(lab.folder.join("wire.click"), WIRE).unwrap();
    let words = ["-initrd", "wire.click", "-append", "port=in port=out"];
    super::wire(&lab, with_ports(qemu, &lab, kind, &["in", "out"], &words), kind.rings);
}

#[test]
fn a_wire_passes_frames_on_microvm() {
    for qemu in Qemu::all() {
        wire(&qemu, &MICROVM, "microvm");
    }
}

#[test]
fn a_wire_passes_frames_on_q35() {
    for qemu in Qemu::all() {
        wire(&qemu, &PCI, "q35");
    }
}

#[test]
fn a_wire_passes_frames_through_packed_rings_of_a_platform_with_an_iommu() {
    for qemu in Qemu::all() {
        wire(&qemu, &PACKED, "packed");
        if !qemu.lacks_vectors() {
            wire(&qemu, &IOMMU, "iommu");
        }
    }
}

#[test]
fn a_function_on_the_command_line_answers_pings() {
    for qemu in Qemu::all() {
        for (kind, name) in [(&MICROVM, "ping-microvm"), (&PCI, "ping-q35")] {
            let lab = fabric(&format!("{name}-{}", qemu.name()), &["net"]);
            std::fs::write(lab.folder.join("ping.click"), PINGS).unwrap();
            let append = "parameter=MAC=52:54:00:12:34:56 burst=16";
            let words = ["-initrd", "ping.click", "-append", append];
            answers_pings(&lab, &mut with_ports(&qemu, &lab, kind, &["net"], &words));
        }
    }
}

#[test]
fn a_programs_stack_answers_pings_on_microvm_and_q35() {
    for example in ["http", "c-http"] {
        for qemu in Qemu::all() {
            for (kind, name) in [(&MICROVM, "microvm"), (&PCI, "q35")] {
                let lab = fabric(&format!("{example}-{name}-{}", qemu.name()), &["net"]);
                let Some(image) = super::programs::built(&lab, example) else { continue };
                let words = ["-kernel", &image, "-append", super::programs::LINE];
                let mut machine = with_ports(&qemu, &lab, kind, &["net"], &words);
                machine.says(super::programs::UNKNOWN);
                stack_answers_pings(&lab, &mut machine);
            }
        }
    }
}

#[test]
fn what_is_wrong_with_a_program_is_said_on_the_console() {
    for qemu in Qemu::all().iter().filter(|qemu| qemu.accelerator == "tcg") {
        let lab = fabric(&format!("program-{}", qemu.name()), &["net"]);
        let Some(image) = super::programs::built(&lab, "http") else { continue };
        let ended = |append: &str, what: &str| {
            let words = [EXIT, &["-kernel", &image, "-append", append]].concat();
            let mut machine = with_ports(qemu, &lab, &PCI, &["net"], &words);
            machine.says(what);
            machine.code()
        };
        // isa-debug-exit makes twice the code, and one more.
        assert_eq!(ended("port=a port=b", "2 ports on the command line, but 1 network devices"), Some(3));
        assert_eq!(ended("tsc=1", "`tsc=1`: write ticks a second"), Some(3));
        assert_eq!(ended("address=10.0.0.300/24", "address"), Some(3));
    }
}

/// A device that ends QEMU with the code that is written to it.
const EXIT: &[&str] = &["-device", "isa-debug-exit,iobase=0xf4,iosize=4"];

#[test]
fn a_function_that_stops_turns_q35_off() {
    for qemu in Qemu::all() {
        let lab = fabric(&format!("off-{}", qemu.name()), &["net"]);
        let stop = ["-append", "click=\"FromPort(eth0) -> Discard; DriverManager(stop);\""];
        let mut machine = with_ports(&qemu, &lab, &PCI, &["net"], &stop);
        machine.says("click: stopped");
        assert_eq!(machine.code(), Some(0), "{}", machine.all());
    }
}

#[test]
fn what_is_wrong_is_said_on_the_console() {
    for qemu in Qemu::all().iter().filter(|qemu| qemu.accelerator == "tcg") {
        let lab = fabric(&format!("wrong-{}", qemu.name()), &["net"]);
        std::fs::write(lab.folder.join("wrong.click"), "FromPort(eth0) -> Nonsense -> ToPort(eth0);\n")
            .unwrap();
        std::fs::write(lab.folder.join("stop.click"), "FromPort(eth0) -> Discard; DriverManager(stop);\n")
            .unwrap();
        let ended = |kind: &Kind, words: &[&str], what: &str| {
            let mut machine = with_ports(qemu, &lab, kind, &["net"], &[EXIT, words].concat());
            machine.says(what);
            machine.code()
        };
        // isa-debug-exit makes twice the code, and one more.
        let wrong = Some(3);
        assert_eq!(ended(&MICROVM, &[], "no configuration: give a Click file as the initrd"), wrong);
        assert_eq!(ended(&PCI, &["-append", "burst=0"], "`burst=0`: write a number from 1 to 64"), wrong);
        let two = ["-initrd", "stop.click", "-append", "click=Idle;"];
        assert_eq!(ended(&PCI, &two, "two configurations"), wrong);
        let ports = ["-initrd", "stop.click", "-append", "port=a port=b quiet"];
        assert_eq!(ended(&PCI, &ports, "2 ports on the command line, but 1 network devices"), wrong);
        assert_eq!(ended(&MICROVM, &ports, "`quiet` on the command line has no meaning here"), wrong);
        assert_eq!(ended(&PCI, &["-initrd", "wrong.click"], "initrd:1:19: "), wrong);
        assert_eq!(ended(&PCI, &["-initrd", "stop.click"], "click: stopped"), Some(1));
        let legacy = Kind { machine: &["-M", "microvm,acpi=off,memory-backend=mem"], ..MICROVM };
        assert_eq!(ended(&legacy, &["-initrd", "stop.click"], "it is a legacy device"), wrong);
        let none = ["-append", "click=Idle; tsc=1000000000"];
        let mut none = start(qemu, &lab, &[Q35, EXIT, &none].concat());
        none.says("no virtio network device");
        assert_eq!(none.code(), wrong);
    }
}
