//! Linux guests on the ports of a switch: User-Mode Linux and QEMU, and what they do to their ports.
// A test that can't go on ends.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_control::guest::{Guest, Kind, Spec};
use ringway_tests::bridge::Bridge;
use ringway_tests::fabric::{self, BOOT, Fabric, connecting_port, port};
use ringway_tests::folder::Folder;
use ringway_tests::pages::Pages;
use ringway_tests::traffic::{iperf, ping};
use ringway_tests::{eventually, rounds};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(40);

fn two_ports() -> String {
    format!("[switch.main]\n{}{}", port("left", ""), port("right", ""))
}

fn ran(guest: &Guest, command: &str) -> String {
    let output = guest.run(command, BOUND).unwrap();
    assert_eq!(output.status, 0, "{}: {command}:\n{}", guest.spec().name, output.text);
    output.text.trim().to_string()
}

/// Pings lose nothing, TCP and UDP arrive, and a large file arrives as it was sent.
fn talk(one: &Guest, other: &Guest, to: [&str; 2]) {
    for (from, to) in [(one, to[1]), (other, to[0])] {
        for size in [18, 56, 1472] {
            let pings = ping(from, to, 10, size, 0.05).unwrap();
            assert_eq!(pings.lost(), 0, "{size} bytes from {} to {to}: {pings:?}", from.spec().name);
        }
        let tcp = iperf(from, to, 2, "").unwrap_or_else(|error| panic!("TCP to {to}: {error}"));
        assert!(tcp.rate > 0.0, "{tcp:?}");
        let udp =
            iperf(from, to, 1, "-u -b 20M -l 1400").unwrap_or_else(|error| panic!("UDP to {to}: {error}"));
        assert!(udp.datagrams > 0.0, "{udp:?}");
    }
    let (receiver, address) = (other, to[1]);
    // Without an input that stays open, it would end the connection before the file is there.
    ran(
        receiver,
        "mkfifo /tmp/open; (nc -l -p 7000 <>/tmp/open >/tmp/file; touch /tmp/whole) >/dev/null 2>&1 &",
    );
    ran(one, "dd if=/dev/urandom of=/tmp/file bs=64k count=256 2>/dev/null");
    ran(
        one,
        &format!("for i in 1 2 3 4 5 6 7 8; do nc {address} 7000 </tmp/file && break; usleep 200000; done"),
    );
    let whole = eventually(BOUND, || {
        receiver.run("test -e /tmp/whole", BOUND).is_ok_and(|output| output.status == 0)
    });
    assert!(whole, "the file does not arrive");
    assert_eq!(
        ran(one, "sha256sum </tmp/file"),
        ran(receiver, "sha256sum </tmp/file"),
        "the file arrives changed"
    );
    ran(one, "rm /tmp/file");
    ran(receiver, "rm /tmp/file /tmp/whole /tmp/open");
}

fn reaches(from: &Guest, to: &str) -> bool {
    eventually(BOUND, || ping(from, to, 1, 56, 0.1).is_ok_and(|pings| pings.lost() == 0))
}

/// The same guests without Ringway: what they can't do here, no port can be blamed for.
#[test]
fn on_a_linux_bridge() {
    let Ok(bridge) = Bridge::new("rwtest", 2) else {
        eprintln!("no permission to make a bridge: not tried");
        return;
    };
    let folder = Folder::new("bridge").unwrap();
    for kind in [Kind::Uml, Kind::Qemu] {
        let start = |name: &str, index: usize, host: u8| {
            let spec = Spec::new(name, kind, vec![bridge.interface(index, host)]);
            fabric::start(spec, &folder.path().join(name))
        };
        let (left, right) = (start("left", 0, 1), start("right", 1, 2));
        talk(&left, &right, ["10.99.0.1", "10.99.0.2"]);
    }
}

#[test]
fn user_mode_linux() {
    let folder = Folder::new("uml").unwrap();
    let fabric = Fabric::up(folder.path(), "uml", &two_ports()).unwrap();
    let left = fabric.guest(Kind::Uml, "left", 1, &[]);
    let right = fabric.guest(Kind::Uml, "right", 2, &[]);
    talk(&left, &right, ["10.99.0.1", "10.99.0.2"]);
}

#[test]
fn user_mode_linux_comes_and_goes() {
    let folder = Folder::new("umlgo").unwrap();
    let fabric = Fabric::up(folder.path(), "umlgo", &two_ports()).unwrap();
    let left = fabric.guest(Kind::Uml, "left", 1, &[]);
    let right = fabric.guest(Kind::Uml, "right", 2, &[]);
    assert!(reaches(&left, "10.99.0.2"), "no ping at first");
    left.reboot(BOOT).unwrap();
    assert!(reaches(&left, "10.99.0.2"), "no ping after a reboot");
    for round in 0..rounds(3) {
        ran(&left, "rmmod virtio_net && insmod /modules/*-virtio_net.ko && usleep 300000");
        ran(&left, "ip address add 10.99.0.1/24 dev eth0 && ip link set eth0 up");
        assert!(reaches(&left, "10.99.0.2"), "no ping after reload {round} of the driver");
    }
    // A power failure in the middle of a transfer, then another guest on the same port.
    let busy = iperf_in_background(&left);
    left.kill();
    drop(left);
    assert!(busy);
    let left = fabric.guest(Kind::Uml, "left", 1, &[]);
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
    let left = fabric.guest(Kind::Qemu, "left", 1, &[]);
    let right = fabric.guest(Kind::Qemu, "right", 2, &["packed=on"]);
    talk(&left, &right, ["10.99.0.1", "10.99.0.2"]);
    left.reboot(BOOT).unwrap();
    assert!(reaches(&left, "10.99.0.2"), "no ping after a reboot");
}

/// A QEMU newer than Debian 12's, which loses translations and, under TCG, the guest; `None` where there is none to be
/// had, and the one that is installed has to do.
fn newer_qemu() -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/newer-qemu.sh");
    let output = Command::new(script).stdin(Stdio::null()).output().ok()?;
    eprint!("{}", String::from_utf8_lossy(&output.stderr));
    let path = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    (output.status.success() && path.is_file()).then_some(path)
}

/// The major version of the QEMU that is installed.
fn installed_qemu() -> Option<u32> {
    let output = Command::new("qemu-system-x86_64").arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split("version ").nth(1)?.split('.').next()?.parse().ok()
}

/// A sum over all queues of port `name`.
fn counted(fabric: &Fabric, name: &str, counter: &str) -> u64 {
    let stats = fabric.ask(&["stats", "--json"]).unwrap();
    let ports = stats["ports"].as_array().unwrap();
    ports.iter().find(|port| port["name"] == name).unwrap()["total"][counter].as_u64().unwrap()
}

/// Buffers are mapped for one use each; nothing is lost, and nothing arrives changed.
#[test]
fn qemu_behind_an_iommu() {
    let folder = Folder::new("iommu").unwrap();
    let fabric = Fabric::up(folder.path(), "iommu", &two_ports()).unwrap();
    let program = newer_qemu();
    if program.is_none() && installed_qemu().is_none_or(|major| major < 8) {
        // Its own guests crash it then, whatever the back-end; the port's own tests have the rest.
        eprintln!("guests behind an IOMMU left out: there is no QEMU 8 or newer");
        return;
    }
    let guest = |name: &str, host: u8, options: &[&str]| {
        fabric.guest_with(Kind::Qemu, name, host, |spec| {
            (spec.program, spec.iommu, spec.memory) = (program.clone(), true, 256);
            spec.interfaces[0].options = options.iter().map(ToString::to_string).collect();
        })
    };
    let (left, right) = (guest("left", 1, &[]), guest("right", 2, &["packed=on"]));
    eprintln!("guests behind an IOMMU run in {}", left.note());
    talk(&left, &right, ["10.99.0.1", "10.99.0.2"]);
    for name in ["left", "right"] {
        for counter in ["iotlb_hits", "iotlb_misses", "iotlb_invalidations"] {
            assert!(counted(&fabric, name, counter) > 100, "{name}: {counter}");
        }
        assert_eq!(counted(&fabric, name, "iotlb_faults") + counted(&fabric, name, "faults"), 0, "{name}");
    }
    left.reboot(BOOT).unwrap();
    assert!(reaches(&left, "10.99.0.2"), "no ping after a reboot");
}

/// QEMU connects again by itself, and its guest sends on, when `ringway` has crashed and is started again.
#[test]
fn qemu_outlives_the_back_end() {
    let folder = Folder::new("again").unwrap();
    let text = two_ports();
    let fabric = Fabric::up(folder.path(), "again", &text).unwrap();
    let qemu = fabric.guest(Kind::Qemu, "left", 1, &[]);
    let uml = fabric.guest(Kind::Uml, "right", 2, &[]);
    assert!(reaches(&qemu, "10.99.0.2"), "no ping between QEMU and User-Mode Linux");
    // User-Mode Linux does not connect again; it is started again after the crash.
    drop(uml);
    fabric.crash();
    let fabric = Fabric::up(folder.path(), "again", &text).unwrap();
    let _uml = fabric.guest(Kind::Uml, "right", 2, &[]);
    assert!(reaches(&qemu, "10.99.0.2"), "no ping after the restart");
}

/// Several queue pairs, and a front-end that listens while we connect.
#[test]
fn qemu_with_two_queues_listens() {
    let folder = Folder::new("listen").unwrap();
    let socket = folder.path().join("qemu.fe");
    let (left, right) = (connecting_port("left", &socket, "queues = 2"), port("right", ""));
    let fabric = Fabric::up(folder.path(), "listen", &format!("[switch.main]\n{left}{right}")).unwrap();
    let left = fabric.guest_with(Kind::Qemu, "left", 1, |spec| {
        spec.processors = 2;
        spec.interfaces[0].queues = 2;
        spec.interfaces[0].attachment =
            ringway_control::guest::Attachment::VhostUser { socket, listen: true };
    });
    let _right = fabric.guest(Kind::Uml, "right", 2, &[]);
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
    let folder = Folder::new("umlmq").unwrap();
    let ports = [port("left", "queues = 2"), port("right", "queues = 2")].concat();
    let fabric = Fabric::up(folder.path(), "umlmq", &format!("[switch.main]\n{ports}")).unwrap();
    let left = fabric.guest_with(Kind::Uml, "left", 1, |spec| spec.interfaces[0].queues = 2);
    let right = fabric.guest_with(Kind::Uml, "right", 2, |spec| spec.interfaces[0].queues = 2);
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
    let left = fabric.guest_with(Kind::Qemu, "left", 1, two);
    let _right = fabric.guest_with(Kind::Qemu, "right", 2, two);
    assert!(reaches(&left, "10.99.0.2"), "no ping");
    let channels = ran(&left, "ethtool -l eth0");
    assert!(channels.matches('2').count() >= 2, "{channels}");
    let tcp = iperf(&left, "10.99.0.2", 2, "-P 4").unwrap_or_else(|error| panic!("TCP: {error}"));
    assert!(tcp.rate > 0.0);
}

/// Guests whose memory is huge pages, of either size.
#[test]
fn qemu_in_huge_pages() {
    let (small, large) = (Pages::take(2048, 96), Pages::take(1 << 20, 1));
    if small.is_none() && large.is_none() {
        eprintln!("no huge pages to be had: not tried");
        return;
    }
    let folder = Folder::new("pages").unwrap();
    let fabric = Fabric::up(folder.path(), "pages", &two_ports()).unwrap();
    let uml = fabric.guest(Kind::Uml, "right", 2, &[]);
    for (pages, kilobytes, memory) in [(small, 2048, 192), (large, 1 << 20, 1024)] {
        if pages.is_none() {
            continue;
        }
        let qemu = fabric.guest_with(Kind::Qemu, "left", 1, |spec| {
            (spec.huge, spec.memory) = (Some(kilobytes), memory);
        });
        assert!(reaches(&uml, "10.99.0.1"), "no ping into pages of {kilobytes} KiB");
        let tcp = iperf(&qemu, "10.99.0.2", 1, "").unwrap_or_else(|error| panic!("TCP: {error}"));
        assert!(tcp.rate > 0.0);
    }
}
