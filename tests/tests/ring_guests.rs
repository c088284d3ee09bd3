//! Programs in stock Linux guests of a stock QEMU, on rings in the memory of a PCI device.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_linux_guests::{Attachment, Guest, Iommu, Runner, Spec, image};
use ringway_ring_client::Ring;
use ringway_tests::fabric::{BOOT, Fabric};
use ringway_tests::folder::Folder;
use ringway_tests::returned::{give_back, send};
use ringway_tests::talk::{BOUND, ran};
use ringway_tests::{c_library, eventually, qemu, say};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Modules by which a program gets the device's interrupt, in loading order.
const VFIO: [&str; 6] = ["irqbypass", "vfio", "vfio_virqfd", "vfio_iommu_type1", "vfio_pci_core", "vfio_pci"];
/// A driver of the guest's kernel that lets programs map the device.
const UIO: &str = "uio_pci_generic";
const FRAMES: u32 = 2000;

/// A fabric with the device, and with a program of the host.
struct Bench {
    qemu: PathBuf,
    fabric: Fabric,
    folder: Folder,
    /// The C library's example.
    frames: PathBuf,
}

fn described(more: &str) -> String {
    format!(
        "[switch.main]\n[port.ring]\nkind = \"ring-pci\"\nsocket = \"ring.sock\"\nmode = \"0666\"\n{more}\
         switch = \"main\"\n[port.host]\nkind = \"ring\"\nsocket = \"host.sock\"\nswitch = \"main\"\n"
    )
}

impl Bench {
    /// `None`, with a message, if no suitable QEMU, kernel or compiler is available.
    fn new(name: &str, more: &str) -> Option<Bench> {
        let Some(qemu) = qemu::with_cards() else {
            say("rings in guests skipped: no QEMU with vfio-user is available");
            return None;
        };
        if let Err(error) = image::qemu(&[UIO]) {
            say(&format!("rings in guests skipped: {error}"));
            return None;
        }
        let folder = Folder::new(name).unwrap();
        let frames = c_library::example(folder.path())?;
        let fabric = Fabric::up(folder.path(), name, &described(more)).unwrap();
        Some(Bench { qemu, fabric, folder, frames })
    }

    fn guest(&self, change: impl FnOnce(&mut Spec)) -> Guest {
        let guest = self.fabric.guest_with(Runner::Qemu, "ring", 1, |spec| {
            let socket = self.fabric.socket("ring.sock");
            spec.program = Some(self.qemu.clone());
            spec.interfaces[0].attachment = Attachment::VfioUser { socket, driver: UIO.into() };
            // The device is no network interface.
            (spec.interfaces[0].address, spec.interfaces[0].mac) = (None, None);
            spec.drivers = vec!["uio".into()];
            spec.carried = vec![env!("CARGO_BIN_EXE_guest_ring").into(), self.frames.clone()];
            change(spec);
        });
        say(&format!("a guest with a ring in a PCI device runs in {}", guest.note()));
        guest
    }

    /// Both programs of the guest send frames to the host and return the host's.
    fn exchanges(&self, guest: &Guest, device: &str) {
        let host = || {
            assert!(eventually(BOUND, || !self.is_up("host")), "the former program has not left");
            let ring = Ring::connect(&self.fabric.socket("host.sock")).unwrap();
            // Frames for a program that has its ring, but is not attached yet, are dropped.
            assert!(eventually(BOUND, || self.is_up("host")), "the port of the host's program is not up");
            ring
        };
        for program in [self.frames.display().to_string(), env!("CARGO_BIN_EXE_guest_ring").into()] {
            let mut ring = host();
            std::thread::scope(|scope| {
                let returning = scope.spawn(move || give_back(&mut ring, FRAMES));
                ran(guest, &format!("{program} send {device} {FRAMES}"));
                returning.join().unwrap().unwrap();
            });
            let mut ring = host();
            std::thread::scope(|scope| {
                let command = format!("{program} return {device} {FRAMES}");
                let before = self.opened();
                let returning = scope.spawn(move || ran(guest, &command));
                assert!(eventually(BOUND, || self.opened() > before), "the program does not open the device");
                send(&mut ring, FRAMES).unwrap();
                returning.join().unwrap();
            });
        }
    }

    /// How often programs of the guest opened the device.
    fn opened(&self) -> u64 {
        self.exits("RESET")
    }

    fn exits(&self, register: &str) -> u64 {
        let exits = self.fabric.ask(&["--json", "stats", "ring", "--exits"]).unwrap();
        let rows = exits["registers"].as_array().unwrap();
        rows.iter().find(|row| row["name"] == register).map_or(0, |row| row["writes"].as_u64().unwrap())
    }

    fn port(&self, name: &str) -> serde_json::Value {
        let ports = self.fabric.ask(&["ps", "--json"]).unwrap()["ports"].clone();
        ports.as_array().unwrap().iter().find(|port| port["name"] == name).unwrap().clone()
    }

    fn is_up(&self, name: &str) -> bool {
        self.port(name)["state"] == "up"
    }

    fn detail(&self) -> String {
        let ring = self.port("ring");
        format!("{} {}", ring["state"].as_str().unwrap(), ring["detail"].as_str().unwrap())
    }

    fn counted(&self, counter: &str) -> u64 {
        self.fabric.counted("ring", counter).unwrap()
    }
}

/// The folder of the device in the guest.
fn device(guest: &Guest) -> String {
    ran(guest, "dirname $(grep -l 0x1110 /sys/bus/pci/devices/*/device)")
}

#[test]
fn programs_of_a_guest_exchange_frames_by_the_memory_of_a_pci_device() {
    let Some(bench) = Bench::new("ring-pci", "") else { return };
    let guest = bench.guest(|_| {});
    let device = device(&guest);
    assert_eq!(bench.detail(), "attached 512 slots of 2048 no-interrupts");
    bench.exchanges(&guest, &device);
    let (frames, doorbells) = (bench.counted("tx_frames"), bench.exits("DOORBELL"));
    assert!(
        frames >= 4 * u64::from(FRAMES) && doorbells < frames,
        "{doorbells} doorbells for {frames} frames"
    );
    say(&format!("{doorbells} doorbells for {frames} frames"));
    assert_eq!(bench.exits("MEMORY"), 0, "QEMU maps the memory");
    // A program that is killed leaves its ring to the next one.
    let frames = bench.frames.display();
    ran(&guest, &format!("{frames} return {device} 100000 >/dev/null 2>&1 & usleep 300000; kill -9 $!"));
    assert!(bench.detail().starts_with("up "), "{}", bench.detail());
    bench.exchanges(&guest, &device);
    // One that violates the rules loses it, and the guest keeps the device.
    ran(&guest, &format!("{} break {device}", env!("CARGO_BIN_EXE_guest_ring")));
    assert_eq!(bench.counted("faults"), 2);
    bench.exchanges(&guest, &device);
    guest.reboot(BOOT).unwrap();
    assert!(bench.detail().starts_with("attached "), "{}", bench.detail());
    bench.exchanges(&guest, &device);
    guest.kill();
    assert!(eventually(BOUND, || bench.detail().starts_with("waiting ")), "{}", bench.detail());
    let guest = bench.guest(|_| {});
    bench.exchanges(&guest, &device);
    assert_eq!(bench.counted("faults"), 2);
    let log = std::fs::read_to_string(bench.folder.path().join("ring-pci.log")).unwrap();
    assert!(log.contains("the program broke its ring"), "{log}");
}

#[test]
fn with_vfio_the_device_interrupts_a_program_and_with_mapped_doorbells_needs_none() {
    let Some(bench) = Bench::new("ring-vfio", "doorbells = \"mapped\"\n") else { return };
    let guest = bench.guest(|spec| {
        spec.iommu = Some(Iommu::Intel);
        spec.drivers = ["uio"].into_iter().chain(VFIO).map(String::from).collect();
    });
    let device = device(&guest);
    let address = ran(&guest, &format!("basename {device}"));
    ran(&guest, &format!("[ ! -e {device}/driver ] || echo {address} >{device}/driver/unbind"));
    ran(&guest, &format!("echo vfio-pci >{device}/driver_override"));
    ran(&guest, &format!("echo {address} >/sys/bus/pci/drivers_probe"));
    assert_eq!(ran(&guest, &format!("basename $(readlink {device}/driver)")), "vfio-pci");
    let frames = bench.frames.display();
    ran(&guest, &format!("{frames} return {device} 100000 >/dev/null 2>&1 & echo $! >/tmp/number"));
    assert!(
        eventually(BOUND, || bench.detail() == "up 512 slots of 2048 msi-x mapped"),
        "{}",
        bench.detail()
    );
    ran(&guest, "kill -9 $(cat /tmp/number); usleep 200000");
    bench.exchanges(&guest, &device);
    // While QEMU changes its memory map, an access is passed to the device although the page is mapped.
    assert!(bench.exits("DOORBELL") <= 2, "{} doorbells", bench.exits("DOORBELL"));
    assert!(bench.counted("interrupts") > 0);
    assert_eq!(bench.counted("faults"), 0);
}

/// A netmap program of the tests, built in `folder`, and the library that it preloads, which cargo has built beside
/// this test.
fn netmap(folder: &Path) -> [PathBuf; 2] {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/net/netmap-preload/tests/program.c");
    let program = folder.join("netmap");
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-pthread", "-o"]).args([&program, &source]);
    assert!(cc.status().unwrap().success());
    [program, std::env::current_exe().unwrap().with_file_name("libringway_netmap.so")]
}

/// An unmodified netmap program in a guest opens the device by `ring0`, and exchanges frames with another one on the
/// host.
#[test]
fn a_netmap_program_of_a_guest_has_its_rings_on_the_device() {
    let Some(bench) = Bench::new("ring-netmap", "") else { return };
    let [program, library] = netmap(bench.folder.path());
    let guest = bench.guest(|spec| spec.carried.extend([program.clone(), library.clone()]));
    let (program, library) = (program.display().to_string(), library.display().to_string());
    let sockets = bench.fabric.socket("");
    let on_host = |words: &str| -> Child {
        let mut command = Command::new(&program);
        command.args(words.split(' ')).stdout(Stdio::piped());
        command.env("LD_PRELOAD", &library).env("RINGWAY_NETMAP", &sockets).spawn().unwrap()
    };
    let in_guest = |words: &str| format!("LD_PRELOAD={library} {program} {words}");
    for wait in ["poll", "select", "epoll"] {
        let mut host = on_host("answer host new poll 3200");
        assert!(eventually(BOUND, || bench.is_up("host")), "the host's program has no ring");
        ran(&guest, &in_guest(&format!("ask ring0 new {wait} 3200")));
        assert!(host.wait().unwrap().success());
        assert!(eventually(BOUND, || !bench.is_up("host")), "the former program has not left");
    }
    let answering = in_guest("answer ring0 14 poll 3200");
    let before = bench.opened();
    ran(&guest, &format!("({answering}; echo $? >/tmp/answered) >/dev/null 2>&1 &"));
    assert!(eventually(BOUND, || bench.opened() > before), "the program does not open the device");
    // A device is one program's; there is one.
    ran(&guest, &in_guest("busy ring0 new poll 0"));
    ran(&guest, &in_guest("absent ring1 new poll 0"));
    assert!(on_host("ask host new poll 3200").wait().unwrap().success());
    assert!(eventually(BOUND, || guest.run("cat /tmp/answered", BOUND).unwrap().text.trim() == "0"));
    assert_eq!((bench.counted("faults"), bench.exits("MEMORY")), (0, 0));
}
