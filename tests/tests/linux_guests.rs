//! Linux guests on the ports of a switch: User-Mode Linux and QEMU.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_host::jail::can_change_user;
use ringway_linux_guests::{Guest, Runner, Spec, USERS};
use ringway_tests::bridge::Bridge;
use ringway_tests::fabric::{self, BOOT, Fabric, connecting_port, port};
use ringway_tests::folder::Folder;
use ringway_tests::pages::Pages;
use ringway_tests::plugging;
use ringway_tests::qmp::{Manager, managed};
use ringway_tests::talk::{BOUND, ran, reaches, talk};
use ringway_tests::traffic::iperf;
use ringway_tests::{eventually, rounds};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

fn two_ports() -> String {
    format!("[switch.main]\n{}{}", port("left", ""), port("right", ""))
}

/// The available kinds of guests.
fn kinds() -> Vec<Runner> {
    if fabric::has_uml() { vec![Runner::Uml, Runner::Qemu] } else { vec![Runner::Qemu] }
}

/// `false`, with a message, if this distribution has no User-Mode Linux.
fn uml_is_here() -> bool {
    if !fabric::has_uml() {
        eprintln!("linux.uml is not installed: skipped");
    }
    fabric::has_uml()
}

/// Guests on a Linux bridge, without Ringway: a failure here is not caused by a port.
#[test]
fn on_a_linux_bridge() {
    let Ok(bridge) = Bridge::new("rwtest", 2) else {
        eprintln!("no permission to create a bridge: skipped");
        return;
    };
    let folder = Folder::new("bridge").unwrap();
    for kind in kinds() {
        let start = |name: &str, index: usize, host: u8| {
            let spec = Spec::new(name, kind, vec![bridge.interface(index, host)]);
            fabric::start(spec, &folder.path().join(name))
        };
        let (left, right) = (start("left", 0, 1), start("right", 1, 2));
        // The bridge's ports may still be coming up.
        assert!(reaches(&left, "10.99.0.2"), "no ping");
        talk(&left, &right, ["10.99.0.1", "10.99.0.2"]);
    }
}

#[test]
fn user_mode_linux() {
    if !uml_is_here() {
        return;
    }
    let folder = Folder::new("uml").unwrap();
    let fabric = Fabric::up(folder.path(), "uml", &two_ports()).unwrap();
    let left = fabric.guest(Runner::Uml, "left", 1, &[]);
    let right = fabric.guest(Runner::Uml, "right", 2, &[]);
    talk(&left, &right, ["10.99.0.1", "10.99.0.2"]);
}

/// Root of a guest that is a process of this host tries to access the host's files.
#[test]
fn user_mode_linux_reaches_no_files_of_its_host() {
    if !uml_is_here() {
        return;
    }
    let folder = Folder::new("reach").unwrap();
    let precious = folder.path().join("precious");
    std::fs::write(&precious, "what is the host's").unwrap();
    let mut spec = Spec::new("reach", Runner::Uml, Vec::new());
    spec.drivers.push("hostfs".into());
    let guest = fabric::start(spec, &folder.path().join("guest"));
    ran(&guest, "mkdir /h && mount -t hostfs none /h && test -e /h/dev/null");
    let fails = |command: String| {
        let output = guest.run(&command, BOUND).unwrap();
        assert_ne!(output.status, 0, "{command}: {}", output.text);
    };
    let at = folder.path().display();
    fails(format!("cat /h{at}/precious"));
    fails(format!("echo x >/h{at}/precious"));
    fails(format!("echo x >/h{at}/new"));
    for file in ["etc/passwd", "etc/shadow", "root", "proc/1/environ", "usr/bin/ls", "sys/kernel"] {
        fails(format!("ls -d /h/{file}"));
    }
    for place in ["new", "dev/new", "lib/new", "tmp/new"] {
        fails(format!("echo x >/h/{place}"));
    }
    fails("mkdir /g && mount -t hostfs none /g -o /etc && cat /g/passwd".into());
    let user = std::fs::metadata(format!("/proc/{}", guest.process())).unwrap().uid();
    assert!(!can_change_user() || USERS.contains(&user), "it runs as {user}");
    drop(guest);
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "what is the host's");
    assert!(!folder.path().join("new").exists());
}

/// Files given to a guest keep their paths, although the guest has its own `/tmp`.
#[test]
fn a_program_below_the_temporary_folder_is_found() {
    let folder = Folder::new("carried").unwrap();
    let program = folder.path().join("busybox");
    std::fs::copy(ringway_linux_guests::image::program("busybox").unwrap(), &program).unwrap();
    let mut spec = Spec::new("carried", fabric::second(), Vec::new());
    spec.carried.push(program.clone());
    let guest = fabric::start(spec, &folder.path().join("guest"));
    assert_eq!(ran(&guest, &format!("{} echo found", program.display())), "found");
}

#[test]
fn user_mode_linux_reconnects() {
    if !uml_is_here() {
        return;
    }
    let folder = Folder::new("umlgo").unwrap();
    let fabric = Fabric::up(folder.path(), "umlgo", &two_ports()).unwrap();
    let left = fabric.guest(Runner::Uml, "left", 1, &[]);
    let right = fabric.guest(Runner::Uml, "right", 2, &[]);
    assert!(reaches(&left, "10.99.0.2"), "no ping at first");
    left.reboot(BOOT).unwrap();
    assert!(reaches(&left, "10.99.0.2"), "no ping after a reboot");
    for round in 0..rounds(3) {
        ran(&left, "rmmod virtio_net && insmod /modules/*-virtio_net.ko && usleep 300000");
        ran(&left, "ip address add 10.99.0.1/24 dev eth0 && ip link set eth0 up");
        assert!(reaches(&left, "10.99.0.2"), "no ping after reload {round} of the driver");
    }
    // A power failure during a transfer, then another guest on the same port.
    let busy = iperf_in_background(&left);
    left.kill();
    drop(left);
    assert!(busy);
    let left = fabric.guest(Runner::Uml, "left", 1, &[]);
    assert!(reaches(&left, "10.99.0.2"), "no ping after a kill");
    assert!(reaches(&right, "10.99.0.1"), "no ping back after a kill");
}

/// Starts a transfer and waits until it runs.
fn iperf_in_background(guest: &Guest) -> bool {
    ran(guest, "(iperf3 -c 10.99.0.2 -t 60 >/dev/null 2>&1) >/dev/null 2>&1 &");
    eventually(BOUND, || {
        guest.run("pidof iperf3 && netstat -tn | grep -q 5201", BOUND).is_ok_and(|out| out.status == 0)
    })
}

#[test]
fn qemu() {
    let folder = Folder::new("qemu").unwrap();
    let fabric = Fabric::up(folder.path(), "qemu", &two_ports()).unwrap();
    let left = fabric.guest(Runner::Qemu, "left", 1, &[]);
    let right = fabric.guest(Runner::Qemu, "right", 2, &["packed=on"]);
    talk(&left, &right, ["10.99.0.1", "10.99.0.2"]);
    left.reboot(BOOT).unwrap();
    assert!(reaches(&left, "10.99.0.2"), "no ping after a reboot");
}

/// A network device is plugged into a running guest, removed, and plugged in again.
#[test]
fn qemu_is_plugged_in_and_out() {
    let folder = Folder::new("plug").unwrap();
    let ports = format!("{}{}", two_ports(), port("plugged", ""));
    let fabric = Fabric::up(folder.path(), "plug", &ports).unwrap();
    let qmp = folder.path().join("left.qmp");
    let left = fabric.guest_with(Runner::Qemu, "left", 1, |spec| {
        managed(spec, &qmp);
        plugging::with_slot(spec);
    });
    let right = fabric.guest(fabric::second(), "right", 2, &[]);
    ran(&right, "ip address add 10.98.0.2/24 dev eth0");
    let mut manager = Manager::connect(&qmp).unwrap();
    let state = || -> String {
        let ps = fabric.ask(&["ps", "--json"]).unwrap();
        let ports = ps["ports"].as_array().cloned().unwrap_or_default();
        let port = ports.into_iter().find(|port| port["name"] == "plugged");
        port.and_then(|port| port["state"].as_str().map(String::from)).unwrap_or_default()
    };
    for round in 0..rounds(2) {
        plugging::plug(&mut manager, &fabric.socket("plugged.sock"), "02:00:00:00:00:09").unwrap();
        ran(&left, "until test -e /sys/class/net/eth1; do usleep 100000; done");
        ran(&left, "ip address add 10.98.0.1/24 dev eth1 && ip link set eth1 up");
        assert!(reaches(&left, "10.98.0.2"), "no ping when plugged in, round {round}");
        assert_eq!(state(), "up");
        plugging::unplug(&mut manager).unwrap();
        assert!(eventually(BOUND, || state() == "waiting"), "{}, round {round}", state());
        assert!(reaches(&left, "10.99.0.2"), "no ping by the device that stayed, round {round}");
    }
    assert_eq!(fabric.counted("plugged", "faults").unwrap(), 0);
}

/// The data process is killed under a transfer: the guests' connections go on, User-Mode Linux's too, which can't
/// connect to a port again.
#[test]
fn guests_go_on_when_the_data_process_is_killed() {
    for kind in kinds() {
        let folder = Folder::new("killed").unwrap();
        let fabric = Fabric::up(folder.path(), "killed", &two_ports()).unwrap();
        let left = fabric.guest(kind, "left", 1, &[]);
        let right = fabric.guest(kind, "right", 2, &[]);
        assert!(reaches(&left, "10.99.0.2"), "no ping at first");
        for round in 0..rounds(3) {
            fabric.kill_data();
            assert!(reaches(&left, "10.99.0.2"), "no ping after kill {round}");
            assert!(reaches(&right, "10.99.0.1"), "no ping back after kill {round}");
        }
        talk(&left, &right, ["10.99.0.1", "10.99.0.2"]);
    }
}

/// After a crash and restart of `ringway`, QEMU reconnects, and its guest continues to send.
#[test]
fn qemu_outlives_the_back_end() {
    let folder = Folder::new("again").unwrap();
    let text = two_ports();
    let fabric = Fabric::up(folder.path(), "again", &text).unwrap();
    // The second fabric's socket has the same name, but is a different one.
    let shares = |spec: &mut Spec| spec.shared.push(folder.path().into());
    let qemu = fabric.guest_with(Runner::Qemu, "left", 1, shares);
    let other = fabric.guest(fabric::second(), "right", 2, &[]);
    assert!(reaches(&qemu, "10.99.0.2"), "no ping to the other guest");
    // User-Mode Linux does not reconnect, so the other guest is restarted after the crash.
    drop(other);
    fabric.crash();
    let fabric = Fabric::up(folder.path(), "again", &text).unwrap();
    let _other = fabric.guest(fabric::second(), "right", 2, &[]);
    assert!(reaches(&qemu, "10.99.0.2"), "no ping after the restart");
}

/// Several queue pairs, and a front-end that listens while we connect.
#[test]
fn qemu_with_two_queues_listens() {
    let folder = Folder::new("listen").unwrap();
    let socket = folder.path().join("qemu.fe");
    let (left, right) = (connecting_port("left", &socket, "queues = 2"), port("right", ""));
    let fabric = Fabric::up(folder.path(), "listen", &format!("[switch.main]\n{left}{right}")).unwrap();
    let left = fabric.guest_with(Runner::Qemu, "left", 1, |spec| {
        spec.processors = 2;
        spec.interfaces[0].queues = 2;
        spec.interfaces[0].attachment = ringway_linux_guests::Attachment::VhostUser { socket, listen: true };
    });
    let _right = fabric.guest(fabric::second(), "right", 2, &[]);
    assert!(reaches(&left, "10.99.0.2"), "no ping");
    let channels = ran(&left, "ethtool -l eth0");
    assert!(
        channels.matches("Combined:\t2").count() == 2 || channels.matches("2").count() >= 2,
        "{channels}"
    );
    let tcp = iperf(&left, "10.99.0.2", 2, "-P 4").unwrap_or_else(|error| panic!("TCP: {error}"));
    assert!(tcp.rate > 0.0);
}

/// Several queue pairs of a front-end that leaves the control queue to us.
#[test]
fn user_mode_linux_with_two_queues() {
    if !uml_is_here() {
        return;
    }
    let folder = Folder::new("umlmq").unwrap();
    let ports = [port("left", "queues = 2"), port("right", "queues = 2")].concat();
    let fabric = Fabric::up(folder.path(), "umlmq", &format!("[switch.main]\n{ports}")).unwrap();
    let left = fabric.guest_with(Runner::Uml, "left", 1, |spec| spec.interfaces[0].queues = 2);
    let right = fabric.guest_with(Runner::Uml, "right", 2, |spec| spec.interfaces[0].queues = 2);
    for guest in [&left, &right] {
        let channels = ran(guest, "ethtool -L eth0 combined 2; ethtool -l eth0");
        assert!(channels.matches("Combined:\t2").count() == 2, "{channels}");
    }
    assert!(reaches(&left, "10.99.0.2"), "no ping");
    let tcp = iperf(&left, "10.99.0.2", 2, "-P 4").unwrap_or_else(|error| panic!("TCP: {error}"));
    assert!(tcp.rate > 0.0);
}

/// Several queue pairs of QEMU, which connects, on both sides.
#[test]
fn qemu_with_two_queues() {
    let folder = Folder::new("qemumq").unwrap();
    let ports = [port("left", "queues = 2"), port("right", "queues = 2")].concat();
    let fabric = Fabric::up(folder.path(), "qemumq", &format!("[switch.main]\n{ports}")).unwrap();
    let two = |spec: &mut Spec| {
        spec.processors = 2;
        spec.interfaces[0].queues = 2;
    };
    let left = fabric.guest_with(Runner::Qemu, "left", 1, two);
    let _right = fabric.guest_with(Runner::Qemu, "right", 2, two);
    assert!(reaches(&left, "10.99.0.2"), "no ping");
    let channels = ran(&left, "ethtool -l eth0");
    assert!(channels.matches('2').count() >= 2, "{channels}");
    let tcp = iperf(&left, "10.99.0.2", 2, "-P 4").unwrap_or_else(|error| panic!("TCP: {error}"));
    assert!(tcp.rate > 0.0);
}

/// Guests with memory in huge pages of either size.
#[test]
fn qemu_in_huge_pages() {
    let (small, large) = (Pages::take(2048, 96), Pages::take(1 << 20, 1));
    if small.is_none() && large.is_none() {
        eprintln!("no huge pages are available: skipped");
        return;
    }
    let folder = Folder::new("pages").unwrap();
    let fabric = Fabric::up(folder.path(), "pages", &two_ports()).unwrap();
    let other = fabric.guest(fabric::second(), "right", 2, &[]);
    for (pages, kilobytes, memory) in [(small, 2048, 192), (large, 1 << 20, 1024)] {
        if pages.is_none() {
            continue;
        }
        let qemu = fabric.guest_with(Runner::Qemu, "left", 1, |spec| {
            (spec.huge, spec.memory) = (Some(kilobytes), memory);
        });
        assert!(reaches(&other, "10.99.0.1"), "no ping into pages of {kilobytes} KiB");
        let tcp = iperf(&qemu, "10.99.0.2", 1, "").unwrap_or_else(|error| panic!("TCP: {error}"));
        assert!(tcp.rate > 0.0);
    }
}

/// The text of a page's blocks in a language, in their order.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut lines = page.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(fence) = line.strip_prefix("```") {
            let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
            found.extend((fence == language).then(|| body.join("\n") + "\n"));
        }
    }
    found
}

/// Every command of docs/tutorial.md in its order, with the files of examples/tutorial.
#[test]
fn the_tutorial_works_as_it_is_written() {
    if !uml_is_here() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = std::fs::read_to_string(root.join("docs/tutorial.md")).unwrap();
    let folder = Folder::new("tutorial").unwrap();
    let examples = folder.path().join("examples/tutorial");
    std::fs::create_dir_all(&examples).unwrap();
    let mut files = String::new();
    for entry in std::fs::read_dir(root.join("examples/tutorial")).unwrap() {
        let path = entry.unwrap().path();
        files += &std::fs::read_to_string(&path).unwrap();
        std::fs::copy(&path, examples.join(path.file_name().unwrap())).unwrap();
    }
    for block in blocks(&page, "").iter().filter(|block| block.contains(" :: ") || block.starts_with('[')) {
        assert!(files.contains(block.as_str()), "no file of examples/tutorial has this:\n{block}");
    }

    // The program is built already.
    let built = |line: &&str| !line.starts_with("make ") && !line.starts_with("export PATH=");
    let commands = blocks(&page, "sh").concat();
    let commands: Vec<&str> = commands.lines().filter(built).collect();
    let script =
        format!("exec 2>&1; trap 'ringway down' EXIT; set -ex\n{}\ntrap - EXIT\n", commands.join("\n"));
    let programs = fabric::program();
    let path = format!("{}:{}", programs.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(folder.path()).env("PATH", path).env_remove("RINGWAY_LOG");
    let output = shell.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{printed}");

    // What follows a command, up to the next one.
    let after = |command: &str| {
        let rest = printed.rsplit_once(&format!("+ {command}\n")).unwrap_or_else(|| panic!("{printed}")).1;
        rest.split("\n+ ").next().unwrap().to_string()
    };
    assert_eq!(after("ringway function read wall allowed.count").trim(), "3", "{printed}");
    let denied: u64 = after("ringway function read wall denied.count").trim().parse().unwrap();
    assert!(denied > 0, "{printed}");
    assert!(after("ringway switch table main").contains("right"), "{printed}");
    assert!(after("ringway link show wan").contains("delay=100ms"), "{printed}");
    assert!(printed.contains("10.77.0.1 > 10.77.0.2: icmp echo ("), "{printed}");
    assert!(printed.contains("10.77.0.2 > 10.77.0.1: icmp echo-reply ("), "{printed}");
    let graph = std::fs::read_to_string(folder.path().join("wall.svg")).unwrap();
    assert!(graph.contains("<svg") && graph.contains("denied"), "{graph}");
}
