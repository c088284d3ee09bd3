//! Two ordinary Linux guests with ordinary sockets, through Ringway, and the same guests over TAP and a Linux bridge.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::keys::Folder;
use crate::plan::Plan;
use crate::rig::WORKER;
use crate::rig::fabric::{Rig, listen, vhost_user};
use crate::run::Output;
use ringway_linux_guests::{Attachment, Guest, Interface, Runner, Spec, image};
use ringway_spec::Poll;
use ringway_tests::bridge::Bridge;
use ringway_tests::traffic::{iperf, ping};
use std::path::Path;
use std::time::Duration;

const SLICE: Duration = Duration::from_secs(1);
const BOOT: Duration = Duration::from_secs(60);
/// The receiver's address, through Ringway and through the bridge.
const RECEIVER: &str = "10.99.0.2";
const PINGS: usize = 100;
/// Cost of a guest's own system calls and processes, without any port.
const ITSELF: &str = "127.0.0.1";

/// The monitor of the guests.
struct Monitor {
    kind: Runner,
    program: &'static str,
    /// Prefix of its keys.
    prefix: &'static str,
    note: &'static str,
}

const QEMU: &str = "qemu-system-x86_64";

/// User-Mode Linux.
pub fn uml(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    let note = "User-Mode Linux guests; peer: the same guests over TAP and a Linux bridge";
    run(plan, output, &Monitor { kind: Runner::Uml, program: "linux.uml", prefix: "guest", note })
}

/// QEMU, with KVM if it works.
pub fn qemu(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    let note = "QEMU's guests; peer: the same guests over TAP (vhost=off) and a Linux bridge";
    run(plan, output, &Monitor { kind: Runner::Qemu, program: QEMU, prefix: "guest.qemu", note })
}

/// Downloads the kernel of QEMU's guests if needed.
pub fn fetch_kernel() -> Result<(), Failure> {
    crate::peer::program(QEMU)?;
    image::qemu(&[])?;
    Ok(())
}

fn run(plan: &Plan, output: &mut Output<'_>, monitor: &Monitor) -> Result<(), Failure> {
    crate::peer::program(monitor.program)?;
    let folder = Folder::new()?;
    let mut rig = Rig::start(&[WORKER], 2, Poll::Adaptive)?;
    let sockets = ["left", "right"].map(|port| folder.path().join(port));
    let listeners = [("left", listen(&sockets[0])?), ("right", listen(&sockets[1])?)];
    for (port, _) in &listeners {
        rig.add(port, vhost_user())?;
    }
    let near =
        sockets.each_ref().map(|socket| Attachment::VhostUser { socket: socket.clone(), listen: false });
    let near = both(folder.path(), "near", monitor.kind, near.map(Interface::new))?;
    rig.serve_accepting(&listeners, BOOT, Rig::is_up)?;
    let bridge = Bridge::new("rwbench", 2)?;
    let far = both(folder.path(), "far", monitor.kind, [bridge.interface(0, 1), bridge.interface(1, 2)]);
    rig.serve_while(|| -> Result<(), Failure> {
        begin(&near)?;
        let far = far.and_then(|guests| begin(&guests).map(|()| guests));
        measure(plan, output, monitor, (&near, &far.map_err(|error| error.to_string())));
        Ok(())
    })
}

/// Waits until two guests exchange frames.
fn begin(guests: &[Guest; 2]) -> Result<(), Failure> {
    for guest in guests {
        guest.ready(BOOT)?;
    }
    guests[1].run("iperf3 -s -D", Duration::from_secs(10))?;
    ping(&guests[0], RECEIVER, 5, 56, 0.2)?;
    Ok(())
}

/// Our guests and the peer's, or why there are none.
type Worlds<'g> = (&'g [Guest; 2], &'g Result<[Guest; 2], String>);

/// Measures the peer's guests.
fn theirs(
    far: &Result<[Guest; 2], String>,
    figure: impl FnOnce(&[Guest; 2]) -> Result<f64, Failure>,
) -> Result<f64, Failure> {
    far.as_ref().map_err(|error| error.clone().into()).and_then(figure)
}

/// Starts two guests; they boot concurrently.
fn both(folder: &Path, name: &str, kind: Runner, interfaces: [Interface; 2]) -> Result<[Guest; 2], Failure> {
    let mut host = 0;
    let guests = interfaces.map(|mut interface| {
        host += 1;
        interface.address = Some(format!("10.99.0.{host}/24"));
        let name = format!("{name}{host}");
        Guest::start(Spec::new(&name, kind, vec![interface]), &folder.join(&name))
    });
    let [one, two] = guests;
    Ok([one?, two?])
}

fn measure(plan: &Plan, output: &mut Output<'_>, monitor: &Monitor, (near, far): Worlds<'_>) {
    let Monitor { prefix, note, .. } = *monitor;
    let plan = plan.part(2.0);
    for (key, size) in [("udp.64", 22), ("udp.1500", 1458)] {
        let key = format!("{prefix}.{key}");
        if output.wants(&key) {
            let options = format!("-i 0 -u -b 0 -l {size} 2>/dev/null");
            let rate = |guests: &[Guest; 2], time: Duration| -> Result<f64, Failure> {
                let transfer = iperf(&guests[0], RECEIVER, time.as_secs(), &options)?;
                Ok(transfer.datagrams / time.as_secs_f64() / 1e6)
            };
            let slices =
                plan.pairs(SLICE, |time| rate(near, time), |time| theirs(far, |guests| rate(guests, time)));
            let entry = slices.map(|slices| slices.entry("Mpps", Better::More).ratio_at_least(3.0));
            output.put(&key, entry.map(|entry| entry.note(note).note("iperf3, datagrams received")));
        }
    }
    let (rtt, tcp) = (format!("{prefix}.rtt"), format!("{prefix}.tcp"));
    if output.wants(&rtt) {
        output.put(&rtt, round_trips(&plan, (near, far)).map(|entry| entry.note(note)));
    }
    if output.wants(&tcp) {
        let entry = stream(&plan, (near, far));
        output.put(&tcp, entry.map(|entry| entry.note(note).note("iperf3, one stream")));
    }
}

fn stream(plan: &Plan, (near, far): Worlds<'_>) -> Result<Entry, Failure> {
    let rate = |address: &str, guests: &[Guest; 2], time: Duration| -> Result<f64, Failure> {
        Ok(iperf(&guests[0], address, time.as_secs(), "-i 0")?.rate)
    };
    let slices: Slices = plan.pairs(
        SLICE,
        |time| rate(RECEIVER, near, time),
        |time| theirs(far, |guests| rate(RECEIVER, guests, time)),
    )?;
    near[0].run("iperf3 -s -D", Duration::from_secs(10))?;
    let itself = rate(ITSELF, near, SLICE)?;
    Ok(slices.entry("Gb/s", Better::More).ratio_at_least(2.0).with("loopback of a guest", itself))
}

fn round_trips(plan: &Plan, (near, far): Worlds<'_>) -> Result<Entry, Failure> {
    let to = |address: &str, guests: &[Guest; 2]| -> Result<f64, Failure> {
        let pings = ping(&guests[0], address, PINGS, 56, 0.005)?;
        if pings.lost() > 0 {
            return Err(format!("{} of {PINGS} pings were lost", pings.lost()).into());
        }
        Ok(pings.quantile(0.5) * 1e3)
    };
    let slice = Duration::from_millis(700);
    let slices: Slices =
        plan.pairs(slice, |_| to(RECEIVER, near), |_| theirs(far, |guests| to(RECEIVER, guests)))?;
    let itself = to(ITSELF, near)?;
    Ok(slices.entry("us", Better::Less).ratio_at_most(0.5).with("loopback of a guest", itself))
}
