//! The image of functions under QEMU, without KVM: on microvm by virtio-mmio, on q35 by PCI, with the fabric's
//! vhost-user ports.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod lab;

use lab::{Lab, Running};
use ringway_client::{Ring, Wait};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A translated machine boots within seconds, on a busy host within more.
const BOUND: Duration = Duration::from_secs(120);
/// Frames in each direction.
const FRAMES: usize = 400;

/// A vhost-user port for the machine, patched to a ring port for this program.
fn pair(name: &str) -> String {
    format!(
        "[port.{name}]\nkind = \"vhost-user\"\nsocket = \"{name}.sock\"\n\
         [port.{name}-far]\nkind = \"ring\"\nsocket = \"{name}-far.sock\"\n\
         [patch.{name}]\nports = [\"{name}\", \"{name}-far\"]\n"
    )
}

/// A fabric, with the image in its folder.
fn fabric(name: &str, ports: &[&str]) -> Lab {
    let lab = Lab::new(name, &ports.iter().map(|port| pair(port)).collect::<String>());
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab.ok(&["function", "image", "--output", "function.elf"]);
    lab
}

/// A QEMU with the version that it says it has.
struct Qemu {
    program: PathBuf,
    version: u32,
}

impl Qemu {
    /// The installed one, and the newer one that other tests fetch, if it is there.
    fn all() -> Vec<Qemu> {
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
        let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or(home).unwrap_or_default();
        let newer = cache.join("ringway/qemu-forky/qemu-system-x86_64");
        let found: Vec<Qemu> =
            ["qemu-system-x86_64".into(), newer].into_iter().filter_map(Qemu::of).collect();
        if found.is_empty() {
            eprintln!("not run: there is no qemu-system-x86_64");
        }
        found
    }

    fn of(program: PathBuf) -> Option<Qemu> {
        let output = Command::new(&program).arg("--version").stdin(Stdio::null()).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        let version = text.split("version ").nth(1)?.split('.').next()?.parse().ok()?;
        Some(Qemu { program, version })
    }
}

/// A machine that runs the image, and its console.
struct Machine {
    running: Running,
    console: PathBuf,
}

impl Machine {
    fn start(qemu: &Qemu, lab: &Lab, words: &[&str]) -> Machine {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let console = lab.folder.join(format!("console{number}"));
        let mut command = Command::new(&qemu.program);
        command.args(["-accel", "tcg", "-m", "64M", "-nodefaults", "-no-user-config", "-display", "none"]);
        command.args(["-object", "memory-backend-memfd,id=mem,size=64M,share=on", "-no-reboot"]);
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.args(["-kernel", "function.elf"]).args(words).current_dir(&lab.folder);
        let said = std::fs::File::create(console.with_extension("qemu")).unwrap();
        let command = command.stdin(Stdio::null()).stderr(said);
        Machine { running: Running(command.spawn().unwrap()), console }
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
        Machine::start(qemu, lab, &all)
    }

    /// The console.
    fn text(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// The console, and what QEMU says.
    fn all(&self) -> String {
        let said = std::fs::read_to_string(self.console.with_extension("qemu"));
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
                self.text()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until QEMU ends; its code.
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
        // QEMU before version 8 crashes without KVM when the driver of such a device with vectors starts.
        let vectors = if self.is_pci && qemu.version < 8 { ",vectors=0" } else { "" };
        format!("{}{vectors}", self.device)
    }
}

fn program(lab: &Lab, port: &str) -> Ring {
    Ring::connect(&lab.socket(&format!("{port}-far.sock"))).unwrap()
}

/// The next frame; none within a time.
fn next(ring: &mut Ring, bound: Duration) -> Option<Vec<u8>> {
    let (end, mut frame) = (Instant::now() + bound, [0; 2048]);
    loop {
        if let Some(received) = ring.rx.pop(&mut frame).unwrap() {
            ring.rx.sync().unwrap();
            return Some(frame[..received.len].to_vec());
        }
        let left = end.checked_duration_since(Instant::now())?;
        ring.wait(Wait::RX, Some(left.min(Duration::from_millis(100)))).unwrap();
    }
}

fn send(ring: &mut Ring, frame: &[u8]) {
    ring.tx.push(frame).unwrap();
    ring.sync().unwrap();
}

/// A frame of some length with its number.
fn numbered(number: usize, direction: u8) -> Vec<u8> {
    let len = 60 + number * 37 % 1455;
    let mut frame: Vec<u8> = (0..len).map(|at| (at * 11 + number * 3) as u8).collect();
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, direction]);
    frame[12..16].copy_from_slice(&[0x88, 0xb5, (number >> 8) as u8, number as u8]);
    frame
}

/// Sends frames until the first comes through, then all of them.
fn passes(from: &mut Ring, to: &mut Ring, direction: u8) {
    let end = Instant::now() + BOUND;
    let hello = numbered(0xffff, direction);
    loop {
        assert!(Instant::now() < end, "no frame comes through");
        send(from, &hello);
        if next(to, Duration::from_millis(200)).is_some_and(|frame| frame == hello) {
            break;
        }
    }
    while next(to, Duration::from_millis(300)).is_some_and(|frame| frame == hello) {}
    for burst in (0..FRAMES).step_by(50) {
        for number in burst..burst + 50 {
            from.tx.push(&numbered(number, direction)).unwrap();
        }
        from.sync().unwrap();
        for number in burst..burst + 50 {
            let frame = next(to, BOUND).unwrap_or_default();
            assert_eq!(frame, numbered(number, direction), "frame {number}");
        }
    }
}

const WIRE: &str = "FromPort(in) -> there :: Counter -> ToPort(out);\nFromPort(out) -> ToPort(in);\n";

/// A wire with two devices passes frames of every length both ways, unchanged and in order.
fn wire(qemu: &Qemu, kind: &Kind, name: &str) {
    let lab = fabric(name, &["in", "out"]);
    std::fs::write(lab.folder.join("wire.click"), WIRE).unwrap();
    let words = ["-initrd", "wire.click", "-append", "port=in port=out"];
    let mut machine = Machine::with_ports(qemu, &lab, kind, &["in", "out"], &words);
    machine.says("click: device 1 at ");
    machine.says("running: ");
    assert_eq!(machine.text().matches(kind.rings).count(), 2, "{}", machine.text());
    let (mut one, mut other) = (program(&lab, "in"), program(&lab, "out"));
    passes(&mut one, &mut other, 1);
    passes(&mut other, &mut one, 2);
    assert_eq!(machine.text().matches("can't be used").count(), 0, "{}", machine.text());
}

#[test]
fn a_wire_passes_frames_on_microvm() {
    for qemu in Qemu::all() {
        wire(&qemu, &MICROVM, &format!("microvm-{}", qemu.version));
    }
}

#[test]
fn a_wire_passes_frames_on_q35() {
    for qemu in Qemu::all() {
        wire(&qemu, &PCI, &format!("q35-{}", qemu.version));
    }
}

#[test]
fn a_wire_passes_frames_through_packed_rings_of_a_platform_with_an_iommu() {
    for qemu in Qemu::all() {
        wire(&qemu, &PACKED, &format!("packed-{}", qemu.version));
        // Before version 8 QEMU crashes there without KVM.
        if qemu.version >= 8 {
            wire(&qemu, &IOMMU, &format!("iommu-{}", qemu.version));
        }
    }
}

/// The Internet checksum's sum of a header or message.
fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 =
        bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// An ARP packet of this operation.
fn arp(operation: u8, [from, to]: [[u8; 6]; 2], target: [u8; 6], [own, other]: [[u8; 4]; 2]) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, operation]);
    frame.extend([from.as_slice(), &own, &target, &other].concat());
    frame.resize(60, 0);
    frame
}

/// An echo request or its reply, in an IP packet; the responder sends replies with another time to live.
fn icmp(kind: u8, [from, to]: [[u8; 6]; 2], [own, other]: [[u8; 4]; 2], number: u8) -> Vec<u8> {
    let ttl = if kind == 0 { 255 } else { 64 };
    let payload: Vec<u8> = (0..56).map(|at| at ^ number).collect();
    let mut message = [&[kind, 0, 0, 0, 0x12, 0x34, 0, number], payload.as_slice()].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut header = [&[0x45, 0, 0, 84, 0, 0, 0, 0, ttl, 1, 0, 0], own.as_slice(), &other].concat();
    let sum = checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [to.as_slice(), &from, &[8, 0], &header, &message].concat()
}

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 1];
const GUEST: [u8; 6] = [0x52, 0x54, 0, 0x12, 0x34, 0x56];
const ADDRESSES: [[u8; 4]; 2] = [[10, 0, 0, 1], [10, 0, 0, 9]];
/// Answers ARP requests and pings: the documentation's example.
const PINGS: &str = "\
FromDevice(eth0) -> kind :: Classifier(12/0806 20/0001, 12/0800, -);
kind[0] -> ARPResponder(10.0.0.9 $MAC) -> out :: ToDevice(eth0);
kind[1] -> CheckIPHeader(14) -> IPClassifier(dst host 10.0.0.9 and icmp type echo) -> Strip(14)
  -> ICMPPingResponder -> Unstrip(14) -> EtherMirror -> out;
kind[2] -> Discard;
";

#[test]
fn a_function_on_the_command_line_answers_pings() {
    for qemu in Qemu::all() {
        for (kind, name) in [(&MICROVM, "ping-microvm"), (&PCI, "ping-q35")] {
            let lab = fabric(&format!("{name}-{}", qemu.version), &["net"]);
            std::fs::write(lab.folder.join("ping.click"), PINGS).unwrap();
            let append = "parameter=MAC=52:54:00:12:34:56 burst=16";
            let words = ["-initrd", "ping.click", "-append", append];
            let mut machine = Machine::with_ports(&qemu, &lab, kind, &["net"], &words);
            machine.says("running: ");
            let mut ring = program(&lab, "net");
            let asked = arp(1, [OWN, [0xff; 6]], [0; 6], ADDRESSES);
            let [own, guest] = ADDRESSES;
            let answered = arp(2, [GUEST, OWN], OWN, [guest, own]);
            let end = Instant::now() + BOUND;
            loop {
                assert!(Instant::now() < end, "no answer:\n{}", machine.text());
                send(&mut ring, &asked);
                if let Some(mut answer) = next(&mut ring, Duration::from_millis(500)) {
                    answer.resize(60, 0);
                    assert_eq!(answer, answered);
                    break;
                }
            }
            while next(&mut ring, Duration::from_millis(300)).is_some() {}
            for number in 0..20 {
                // The machine sleeps between some of them.
                std::thread::sleep(Duration::from_millis(if number % 5 == 0 { 30 } else { 0 }));
                send(&mut ring, &icmp(8, [OWN, GUEST], [own, guest], number));
                let reply = next(&mut ring, BOUND).unwrap_or_default();
                assert_eq!(reply, icmp(0, [GUEST, OWN], [guest, own], number), "ping {number}");
            }
        }
    }
}

#[test]
fn what_is_wrong_is_said_on_the_console() {
    for qemu in Qemu::all() {
        let lab = fabric(&format!("wrong-{}", qemu.version), &["net"]);
        std::fs::write(lab.folder.join("wrong.click"), "FromPort(eth0) -> Nonsense -> ToPort(eth0);\n")
            .unwrap();
        std::fs::write(lab.folder.join("stop.click"), "FromPort(eth0) -> Discard; DriverManager(stop);\n")
            .unwrap();
        let ended = |kind: &Kind, words: &[&str], what: &str| {
            let mut machine = Machine::with_ports(&qemu, &lab, kind, &["net"], words);
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
        let mut none = Machine::start(&qemu, &lab, &[Q35, &none].concat());
        none.says("no virtio network device");
        assert_eq!(none.code(), wrong);
    }
}
