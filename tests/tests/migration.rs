//! A QEMU guest that is migrated from one port to another while it sends and receives.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_linux_guests::{Attachment, Guest, Interface, Iommu, Runner, Spec};
use ringway_tests::fabric::{self, Fabric, port};
use ringway_tests::folder::Folder;
use ringway_tests::moving::expecting;
use ringway_tests::qemu::{self, Fit};
use ringway_tests::qmp::{Manager, managed};
use ringway_tests::talk::{BOUND, ran, reaches};
use ringway_tests::traffic::ping;
use ringway_tests::{eventually, say};
use std::path::PathBuf;

const LEFT: &str = "10.99.0.1";
const RIGHT: &str = "10.99.0.2";
/// Addresses of a second interface of the guest that is migrated, which has a MAC address of its own, and of its peer.
const SECOND: &str = "10.98.0.1";
const SECOND_MAC: &str = "02:00:00:00:00:71";
const SECOND_PEER: &str = "10.98.0.2";
/// Bytes unread in the migrated guest until it has arrived.
const WAITING: u64 = 600_000;

/// Configuration of the guests.
struct Case<'a> {
    fit: &'a Fit,
    iommu: Option<Iommu>,
    kernel: Option<[PathBuf; 2]>,
    options: &'a [&'a str],
}

/// A guest on a port, or one that waits to be migrated there.
fn guest(fabric: &Fabric, folder: &Folder, port: &str, case: &Case<'_>, arrives: bool) -> Guest {
    let mut spec = Spec::new("moving", Runner::Qemu, Vec::new());
    let socket = fabric.socket(&format!("{port}.sock"));
    let attachment = Attachment::VhostUser { socket, listen: false };
    spec.interfaces = vec![Interface {
        address: Some(format!("{LEFT}/24")),
        mac: Some("02:00:00:00:00:01".into()),
        options: case.options.iter().map(ToString::to_string).collect(),
        ..Interface::new(attachment)
    }];
    (spec.program, spec.iommu, spec.memory) = (case.fit.program.clone(), case.iommu, 256);
    if let Some([image, modules]) = case.kernel.clone() {
        (spec.kernel, spec.modules) = (Some(image), Some(modules));
    }
    managed(&mut spec, &folder.path().join(format!("{port}.qmp")));
    if arrives {
        expecting(&mut spec, &folder.path().join("way"));
        return Guest::start(spec, &folder.path().join(port)).unwrap();
    }
    fabric::start(spec, &folder.path().join(port))
}

/// Starts a background command in a guest.
fn begins(guest: &Guest, command: &str) {
    ran(guest, &format!("({command}) >/dev/null 2>&1 &"));
}

/// Waits for the result of a background command in a guest.
fn comes(guest: &Guest, file: &str) -> String {
    let there = eventually(2 * BOUND, || {
        guest.run(&format!("test -s {file}"), BOUND).is_ok_and(|output| output.status == 0)
    });
    assert!(there, "{} has no {file}", guest.spec().name);
    ran(guest, &format!("cat {file}"))
}

/// Gives the guest that moves a second interface, on its card, and its peer an address in the same network.
fn takes_second_address(left: &Guest, right: &Guest) {
    let macvlan = "ip link add link eth0 name second type macvlan";
    ran(left, &format!("{macvlan} && ip link set second address {SECOND_MAC} up"));
    ran(left, &format!("ip address add {SECOND}/24 dev second"));
    ran(right, &format!("ip address add {SECOND_PEER}/24 dev eth0"));
}

fn moves(name: &str, case: &Case<'_>) {
    let folder = Folder::new(name).unwrap();
    let ports = format!("[switch.main]\n{}{}{}", port("left", ""), port("moved", ""), port("right", ""));
    let fabric = Fabric::up(folder.path(), name, &ports).unwrap();
    let left = guest(&fabric, &folder, "left", case, false);
    let right = fabric.guest_with(Runner::Qemu, "right", 2, |spec| spec.program = case.fit.program.clone());
    say(&format!("a guest that is moved, {:?} {:?}, runs in {}", case.iommu, case.options, left.note()));
    for guest in [&left, &right] {
        ran(guest, "dd if=/dev/urandom of=/tmp/file bs=64k count=128 2>/dev/null");
    }
    let sums = [&left, &right].map(|guest| ran(guest, "sha256sum </tmp/file"));
    // A large receive buffer, so that unread bytes wait in the guest.
    ran(&left, "echo '4096 4194304 6291456' >/proc/sys/net/ipv4/tcp_rmem");
    // With a closed input, a listener would close its connection before all data has arrived.
    for guest in [&left, &right] {
        ran(guest, "mkfifo /tmp/open");
    }
    let waits = "until test -e /tmp/go; do usleep 50000; done";
    begins(&left, &format!("nc -l -p 7000 <>/tmp/open | ({waits}; sha256sum >/tmp/sum)"));
    begins(&right, "nc -l -p 7001 <>/tmp/open | sha256sum >/tmp/sum");
    // Memory writes prevent the migration from completing.
    begins(&left, "while test ! -e /tmp/go; do cat /tmp/file >/tmp/churn; done");
    takes_second_address(&left, &right);
    assert!(reaches(&right, LEFT) && reaches(&right, SECOND));
    let arrived = guest(&fabric, &folder, "moved", case, true);
    let mut manager = Manager::connect(&folder.path().join("left.qmp")).unwrap();
    Manager::connect(&folder.path().join("moved.qmp")).unwrap();
    manager.begin(&folder.path().join("way")).unwrap();
    manager.passed(1).unwrap();
    assert!(reaches(&right, LEFT), "no ping during the migration");
    let before = fabric.counted("left", "rx_bytes").unwrap();
    begins(&right, &format!("ping -i 0.1 {LEFT}"));
    begins(&right, &format!("ping -i 0.1 {SECOND}"));
    begins(&right, &format!("nc {LEFT} 7000 </tmp/file"));
    begins(&left, &format!("nc {RIGHT} 7001 </tmp/file"));
    let waiting = || fabric.counted("left", "rx_bytes").is_ok_and(|bytes| bytes >= before + WAITING);
    if !eventually(BOUND, waiting) {
        let seen = [&left, &right].map(|guest| ran(guest, "netstat -tn; ls -la /tmp"));
        panic!("frames stop during the migration: {}\n{}", seen[0], seen[1]);
    }
    manager.passed(3).unwrap();
    manager.let_go().unwrap();
    arrived.arrived();
    drop((manager, left));
    // QEMU announces only the address of the card, not that of the guest's second interface.
    assert!(reaches(&right, SECOND), "no ping to the second address after it was moved");
    let table = fabric.ask(&["switch", "table", "main", "--json"]).unwrap();
    let entry = table["entries"].as_array().unwrap().iter().find(|entry| entry["mac"] == SECOND_MAC);
    assert_eq!(entry.unwrap()["port"], "moved", "{table}");
    ran(&arrived, "touch /tmp/go");
    assert_eq!(comes(&arrived, "/tmp/sum"), sums[1], "data sent to it changed");
    assert_eq!(comes(&right, "/tmp/sum"), sums[0], "data sent by it changed");
    assert_eq!(ran(&arrived, "sha256sum </tmp/file"), sums[0], "its memory changed");
    ran(&right, "killall ping");
    for (from, to) in [(&arrived, RIGHT), (&right, LEFT), (&right, SECOND)] {
        assert!(reaches(from, to));
        let pings = ping(from, to, 20, 1472, 0.05).unwrap();
        assert_eq!(pings.lost(), 0, "to {to} after it was moved: {pings:?}");
    }
    for port in ["left", "moved", "right"] {
        assert_eq!(fabric.counted(port, "faults").unwrap(), 0, "{port}");
    }
    let kept = fabric.counted("moved", "rx_bytes").unwrap();
    assert!(kept > 1 << 20, "{kept} bytes went to it after its migration");
}

fn fit() -> Option<Fit> {
    let fit = qemu::fit();
    if fit.is_none() {
        say("migration skipped: no QEMU 9 or newer is available");
    }
    fit
}

#[test]
fn a_guest_migrates_under_traffic() {
    let Some(fit) = fit() else { return };
    moves("move", &Case { fit: &fit, iommu: None, kernel: None, options: &[] });
}

#[test]
fn a_guest_behind_vt_d_migrates_under_traffic() {
    let Some(fit) = fit() else { return };
    moves("movevtd", &Case { fit: &fit, iommu: Some(Iommu::Intel), kernel: None, options: &["packed=on"] });
}

#[test]
fn a_guest_behind_virtio_iommu_migrates_under_traffic() {
    let Some(fit) = fit() else { return };
    let Some(kernel) = qemu::kernel_with_virtio_iommu() else {
        return say("migration behind virtio's IOMMU skipped: no kernel with its driver is available");
    };
    moves("movev", &Case { fit: &fit, iommu: Some(Iommu::Virtio), kernel: Some(kernel), options: &[] });
}
