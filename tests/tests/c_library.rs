//! The C library on rings of this host: ports and a pipe, beside programs in Rust.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_ring_client::{Ring, RingOptions};
use ringway_tests::fabric::Fabric;
use ringway_tests::folder::Folder;
use ringway_tests::returned::{give_back, send};
use ringway_tests::{c_library, eventually};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const FRAMES: u32 = 3000;
const BOUND: Duration = Duration::from_secs(20);

/// Slots of 256 bytes, so that most frames take several.
const FABRIC: &str = "[switch.main]\n\
    [port.a]\nkind = \"ring\"\nsocket = \"a.sock\"\nslot-size = \"256B\"\nswitch = \"main\"\n\
    [port.b]\nkind = \"ring\"\nsocket = \"b.sock\"\nswitch = \"main\"\n\
    [port.c]\nkind = \"ring\"\nsocket = \"c.sock\"\nswitch = \"main\"\n\
    [port.p]\nkind = \"pipe\"\nsocket = \"p.sock\"\n";

fn start(program: &Path, what: &str, path: &Path, count: u32) -> Child {
    let mut command = Command::new(program);
    command.arg(what).arg(path).arg(count.to_string()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Waits until a program ends; it is killed if that takes too long.
fn ended(mut child: Child) -> Output {
    if !eventually(BOUND, || child.try_wait().unwrap().is_some()) {
        child.kill().unwrap();
    }
    child.wait_with_output().unwrap()
}

/// Waits until a program is on a port: frames that come before are lost.
fn is_on(fabric: &Fabric, port: &str) {
    let is_up = || {
        let ports = fabric.ask(&["ps", "--json"]).unwrap()["ports"].clone();
        ports.as_array().unwrap().iter().any(|one| one["name"] == port && one["state"] == "up")
    };
    assert!(eventually(BOUND, is_up), "nobody comes to port {port}");
}

fn works(child: Child) {
    let output = ended(child);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn c_programs_exchange_frames_with_others_on_ports_and_pipes() {
    let folder = Folder::new("c").unwrap();
    let Some(program) = c_library::example(folder.path()) else { return };
    let fabric = Fabric::up(folder.path(), "c", FABRIC).unwrap();
    let [a, b, c, pipe] = ["a.sock", "b.sock", "c.sock", "p.sock"].map(|name| fabric.socket(name));
    // `poll`: with a poll() of its own.
    for (one, other, what, port) in
        [(&a, &b, "return", Some("a")), (&c, &b, "poll", Some("c")), (&pipe, &pipe, "poll", None)]
    {
        let returns = start(&program, what, one, FRAMES);
        port.iter().for_each(|port| is_on(&fabric, port));
        works(start(&program, "send", other, FRAMES));
        works(returns);
    }
    let mut ring = Ring::open(&b).unwrap();
    let returns = start(&program, "return", &a, FRAMES);
    is_on(&fabric, "a");
    send(&mut ring, FRAMES).unwrap();
    works(returns);
    is_on(&fabric, "b");
    let sends = start(&program, "send", &a, FRAMES);
    give_back(&mut ring, FRAMES).unwrap();
    works(sends);
    // The other end of a pipe has small slots, and is the first one.
    let small = RingOptions { slots: [64, 64], slot_size: 64, ..RingOptions::default() };
    let sends = std::thread::scope(|scope| {
        let first = scope.spawn(|| Ring::connect_with(&pipe, small, Some(BOUND)).unwrap());
        let sends = start(&program, "send", &pipe, FRAMES);
        give_back(&mut first.join().unwrap(), FRAMES).unwrap();
        sends
    });
    works(sends);
}

#[test]
fn c_programs_are_told_why_there_is_no_ring_and_when_it_ends() {
    let folder = Folder::new("c-ends").unwrap();
    let Some(program) = c_library::example(folder.path()) else { return };
    let fabric = Fabric::up(folder.path(), "c-ends", FABRIC).unwrap();
    let fails = |child: Child, why: &str| {
        let output = ended(child);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && text.contains(why), "{text}, not {why}");
    };
    for (path, why) in [
        ("/nowhere/a.sock", "/nowhere/a.sock: No such file or directory"),
        ("/dev/null", "/dev/null: "),
        ("/sys/kernel", "/sys/kernel/vendor: No such file or directory"),
    ] {
        fails(start(&program, "send", path.as_ref(), 1), why);
    }
    // QEMU's ivshmem has the numbers of the device, but 256 bytes of registers.
    let device = folder.path().join("ivshmem");
    std::fs::create_dir(&device).unwrap();
    let registers = [0x5a; 256];
    for (file, bytes) in [("vendor", &b"0x1af4\n"[..]), ("device", b"0x1110\n"), ("resource0", &registers)] {
        std::fs::write(device.join(file), bytes).unwrap();
    }
    fails(start(&program, "send", &device, 1), "the PCI device is not one of a port of kind ring-pci");
    assert!(std::fs::read(device.join("resource0")).unwrap() == registers, "its registers are not written");
    let programs = [("return", "a"), ("poll", "b")].map(|(what, port)| {
        let waits = start(&program, what, &fabric.socket(&format!("{port}.sock")), 1);
        is_on(&fabric, port);
        waits
    });
    fabric.crash();
    for waits in programs {
        fails(waits, "the ring is closed");
    }
}
