//! QEMU guests behind an IOMMU: the kernel's driver, which maps each buffer for one use, and a user-space
//! driver with static mappings.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_linux_guests::{Attachment, Guest, Interface, Iommu, Runner, Spec};
use ringway_tests::fabric::{self, BOOT, Fabric, port};
use ringway_tests::folder::Folder;
use ringway_tests::numbered::{Talker, exchange};
use ringway_tests::qemu::{self, Fit};
use ringway_tests::say;
use ringway_tests::talk::{ran, reaches, talk};
use ringway_tests::vfio::{self, Driver, GuestTestpmd};
use std::path::PathBuf;
use std::time::Duration;

const BOUND: Duration = Duration::from_secs(60);
/// Frames in each direction.
const FRAMES: u64 = 20_000;
/// Memory pages of a user-space driver.
const PAGES: u64 = vfio::MEMORY as u64 * 256;
/// Each side of the guest is patched to a program, whose frames wait for QEMU without a time limit, since scheduling
/// delays are not under test. Guests run as users unknown to the fabric.
const PATCHES: &str = r#"
[port.a]
kind = "ring"
socket = "a.sock"
hold = "10s"
[port.left]
kind = "vhost-user"
socket = "left.sock"
mode = "0666"
[port.b]
kind = "ring"
socket = "b.sock"
hold = "10s"
[port.right]
kind = "vhost-user"
socket = "right.sock"
mode = "0666"
[patch.one]
ports = ["a", "left"]
[patch.other]
ports = ["b", "right"]
"#;

/// A suitable QEMU, if available.
fn fit() -> Option<Fit> {
    let fit = qemu::fit();
    if fit.is_none() {
        say("guests behind an IOMMU skipped: no QEMU 9 or newer is available");
    }
    fit
}

fn two_ports() -> String {
    format!("[switch.main]\n{}{}", port("left", ""), port("right", ""))
}

/// Counters of a port's IOTLB.
#[derive(Debug, Clone, Copy)]
struct Iotlb {
    hits: u64,
    misses: u64,
    invalidations: u64,
    refused: u64,
}

fn iotlb(fabric: &Fabric, port: &str) -> Iotlb {
    let counted = |counter| fabric.counted(port, counter).unwrap();
    Iotlb {
        hits: counted("iotlb_hits"),
        misses: counted("iotlb_misses"),
        invalidations: counted("iotlb_invalidations"),
        refused: counted("iotlb_faults") + counted("faults"),
    }
}

/// Two guests whose kernels map each buffer for one use; no frame is lost or changed.
fn kernel_driver(name: &str, fit: &Fit, iommu: Iommu, kernel: Option<[PathBuf; 2]>, driver: &str) {
    let folder = Folder::new(name).unwrap();
    let fabric = Fabric::up(folder.path(), name, &two_ports()).unwrap();
    let guest = |name: &str, host: u8, options: &[&str]| {
        fabric.guest_with(Runner::Qemu, name, host, |spec| {
            (spec.program, spec.iommu, spec.memory) = (fit.program.clone(), Some(iommu), 256);
            if let Some([image, modules]) = kernel.clone() {
                (spec.kernel, spec.modules) = (Some(image), Some(modules));
            }
            spec.interfaces[0].options = options.iter().map(ToString::to_string).collect();
        })
    };
    let (left, right) = (guest("left", 1, &[]), guest("right", 2, &["packed=on"]));
    say(&format!("guests behind an IOMMU ({iommu:?}) run in {}", left.note()));
    for guest in [&left, &right] {
        // Devices that are not behind an IOMMU have no group.
        let group = ran(guest, "readlink -f /sys/class/net/eth0/device/../iommu");
        assert!(group.contains(driver), "behind {group}");
    }
    talk(&left, &right, ["10.99.0.1", "10.99.0.2"]);
    for name in ["left", "right"] {
        let Iotlb { hits, misses, invalidations, refused } = iotlb(&fabric, name);
        assert!(hits > 100 && misses > 100 && invalidations > 100, "{name}: {hits} {misses} {invalidations}");
        assert_eq!(refused, 0, "{name}");
    }
    left.reboot(BOOT).unwrap();
    assert!(reaches(&left, "10.99.0.2"), "no ping after a reboot");
}

#[test]
fn kernel_driver_behind_intel_iommu() {
    let Some(fit) = fit() else { return };
    kernel_driver("intel", &fit, Iommu::Intel, None, "dmar");
}

#[test]
fn kernel_driver_behind_virtio_iommu() {
    let Some(fit) = fit() else { return };
    let Some(kernel) = qemu::kernel_with_virtio_iommu() else {
        return say("guests behind virtio's IOMMU skipped: no kernel with its driver is available");
    };
    kernel_driver("viommu", &fit, Iommu::Virtio, Some(kernel), "virtio");
}

/// A guest with two devices, each patched to a program's ring, and DPDK's files.
fn between_two_rings(fabric: &Fabric, fit: &Fit, iommu: Iommu) -> Option<Spec> {
    let interfaces = [("left", 1, &[][..]), ("right", 2, &["packed=on"][..])].map(|(name, host, options)| {
        let socket = fabric.socket(&format!("{name}.sock"));
        let mac = Some(format!("02:00:00:00:00:{host:02x}"));
        let options = options.iter().map(ToString::to_string).collect();
        Interface { mac, options, ..Interface::new(Attachment::VhostUser { socket, listen: false }) }
    });
    let mut spec = Spec::new("driver", Runner::Qemu, interfaces.into());
    (spec.program, spec.iommu) = (fit.program.clone(), Some(iommu));
    if !vfio::carry(&mut spec) {
        say("a driver in a guest's user space skipped: dpdk-testpmd is not installed");
        return None;
    }
    Some(spec)
}

/// DPDK in the guest forwards two programs' frames between its devices: each arrives once, in order, and
/// unchanged.
fn user_space_driver(fabric: &Fabric, guest: &Guest, drivers: &[Driver]) {
    let devices = vfio::bind(guest, 2).unwrap();
    let talker = |port: &str, station| Talker::new(&fabric.socket(port), station).unwrap();
    let (mut a, mut b) = (talker("a.sock", 1), talker("b.sock", 2));
    for driver in drivers {
        let before = ["left", "right"].map(|name| iotlb(fabric, name));
        let testpmd = GuestTestpmd::start(guest, &devices, *driver).unwrap();
        let started = ["left", "right"].map(|name| iotlb(fabric, name));
        if let Err(why) = exchange([&mut a, &mut b], FRAMES, driver.mode == "macswap", BOUND) {
            let stats = fabric.ask(&["stats", "--json"]).unwrap_or_default();
            panic!("{driver:?}: {why}\n{stats}\n{}", testpmd.output());
        }
        for ((name, before), started) in ["left", "right"].into_iter().zip(before).zip(started) {
            let after = iotlb(fabric, name);
            assert!(after.hits - before.hits >= 2 * FRAMES, "{driver:?}, {name}: {before:?} {after:?}");
            // Each mapped page is requested at most once.
            let asked = after.misses - before.misses;
            assert!((1..=PAGES).contains(&asked), "{driver:?}, {name}: {before:?} {after:?}");
            assert_eq!(after.invalidations, started.invalidations, "{driver:?}, {name}: mappings remain");
            assert_eq!(after.refused, 0, "{driver:?}, {name}");
        }
        testpmd.quit().unwrap();
    }
}

#[test]
fn user_space_driver_behind_intel_iommu() {
    let Some(fit) = fit() else { return };
    let folder = Folder::new("vfio").unwrap();
    let fabric = Fabric::up(folder.path(), "vfio", PATCHES).unwrap();
    let Some(spec) = between_two_rings(&fabric, &fit, Iommu::Intel) else { return };
    let guest = fabric::start(spec, &folder.path().join("driver"));
    say(&format!("a driver in a guest's user space (VT-d) runs in {}", guest.note()));
    let drivers = [
        Driver { huge: true, addresses: "pa", mode: "macswap" },
        Driver { huge: true, addresses: "va", mode: "io" },
        Driver { huge: false, addresses: "va", mode: "macswap" },
    ];
    user_space_driver(&fabric, &guest, &drivers);
}

#[test]
fn user_space_driver_behind_virtio_iommu() {
    let Some(fit) = fit() else { return };
    let Some(kernel) = qemu::kernel_with_virtio_iommu() else { return };
    let folder = Folder::new("vvfio").unwrap();
    let fabric = Fabric::up(folder.path(), "vvfio", PATCHES).unwrap();
    let Some(mut spec) = between_two_rings(&fabric, &fit, Iommu::Virtio) else { return };
    [spec.kernel, spec.modules] = kernel.map(Some);
    let guest = fabric::start(spec, &folder.path().join("driver"));
    // This IOMMU doesn't remap interrupts, for which vfio requires an explicit setting.
    ran(&guest, "echo 1 >/sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts");
    say(&format!("a driver in a guest's user space (virtio's IOMMU) runs in {}", guest.note()));
    user_space_driver(&fabric, &guest, &[Driver { huge: true, addresses: "va", mode: "macswap" }]);
}

/// A user-space driver posts a receive buffer in kernel memory, over the kernel's version text, and a frame is sent.
/// Returns the driver's output, and the version text afterwards.
fn overreach(name: &str, fit: &Fit, iommu: Option<Iommu>) -> [String; 2] {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_overreach"));
    let folder = Folder::new(name).unwrap();
    let fabric = Fabric::up(folder.path(), name, PATCHES).unwrap();
    let guest = fabric.guest_with(Runner::Qemu, "left", 1, |spec| {
        (spec.program, spec.iommu, spec.memory) = (fit.program.clone(), iommu, 512);
        spec.carried.push(program.clone());
        spec.append.push("nokaslr".into());
    });
    say(&format!("a driver that reaches for its kernel, IOMMU {iommu:?}, runs in {}", guest.note()));
    let found = ran(&guest, "basename $(readlink -f /sys/class/net/eth0/device/..)");
    ran(&guest, &format!("echo {found} >/sys/bus/pci/devices/{found}/driver/unbind"));
    // The kernel is mapped at its link address.
    let symbol = ran(&guest, "grep ' linux_proc_banner$' /proc/kallsyms | cut -d' ' -f1");
    let address = u64::from_str_radix(&symbol, 16).unwrap() - 0xffff_ffff_8000_0000;
    let line = format!(
        "({} {found} {address:x} >/tmp/output 2>&1; touch /tmp/over) >/dev/null 2>&1 &",
        program.display()
    );
    ran(&guest, &line);
    ran(&guest, "until grep -q offered /tmp/output || test -e /tmp/over; do usleep 50000; done");
    let mut ring = ringway_ring_client::Ring::connect(&fabric.socket("a.sock")).unwrap();
    let mut frame = [0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
    frame[14..14 + OVERWRITTEN.len()].copy_from_slice(OVERWRITTEN.as_bytes());
    assert!(ring.tx.push(&frame).unwrap());
    ring.sync().unwrap();
    ran(&guest, "until test -e /tmp/over; do usleep 50000; done");
    [ran(&guest, "cat /tmp/output"), ran(&guest, "cat /proc/version")]
}

/// The frame's text.
const OVERWRITTEN: &str = "a frame was here";

#[test]
fn a_user_space_driver_in_linux_reaches_kernel_memory_only_without_an_iommu() {
    let Some(fit) = fit() else { return };
    let [output, version] = overreach("bare", &fit, None);
    assert!(output.ends_with("a frame came"), "{output}");
    assert_eq!(version, OVERWRITTEN);
    let [output, version] = overreach("guarded", &fit, Some(Iommu::Intel));
    assert!(output.ends_with("nothing came"), "{output}");
    assert!(version.starts_with("Linux version "), "{version}");
}
