//! TCP streams from a machine on a card's line.

use super::card::Card;
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::functions::fabric_function::{on_worker, start_on_worker};
use crate::harness::WORKER;
use crate::harness::fabric::{Harness, SWITCH, listen, vhost_user};
use crate::keys::Folder;
use crate::peer::net::{IperfServer, Space, ip, iperf};
use crate::plan::Plan;
use ringway_frame::Counters;
use ringway_linux_guests::{Attachment, Guest, Interface, Runner, Spec};
use ringway_spec::{Kind, Policy, Poll, Port, To};
use std::cell::RefCell;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_secs(1);
/// How long a server may refuse a transfer.
const SERVER: Duration = Duration::from_secs(5);
/// Time limit for a guest's start.
const BOOT: Duration = Duration::from_secs(60);

/// A `packet` port with the name and the interface `card`, whose other end the machine `far` has with the address.
fn add_card(
    harness: &mut Harness,
    card: &str,
    to: To,
    (far, address): (&Space, [u8; 4]),
) -> Result<(), Failure> {
    let other = format!("{card}far");
    ip(&format!("link add {card} type veth peer name {other}"))?;
    far.take(&other, address)?;
    ip(&format!("link set {card} addrgenmode none up"))?;
    Card::Packet.add(harness, card, to).map(drop)
}

/// TCP from a machine on a card's line to the host, by a patch, and through a function that passes all.
pub fn transparent(plan: &Plan) -> Result<Entry, Failure> {
    let [direct_far, direct_host, far, host] = [Space::new()?, Space::new()?, Space::new()?, Space::new()?];
    let mut harness = Harness::start(&[WORKER], 6, Poll::Adaptive)?;
    let patch = |to: &str| To::Patch(to.into());
    add_card(&mut harness, "card0", patch("tap0"), (&direct_far, [10, 96, 0, 1]))?;
    harness.add_tap("tap0", patch("card0"))?;
    add_card(&mut harness, "card1", patch("in"), (&far, [10, 95, 0, 1]))?;
    for (port, to) in [("in", "card1"), ("out", "tap1")] {
        harness.add_port(Port::new(port, Kind::new("ring", &()), Some(patch(to))))?;
    }
    harness.add_tap("tap1", patch("out"))?;
    direct_host.take("tap0", [10, 96, 0, 2])?;
    host.take("tap1", [10, 95, 0, 2])?;
    let text = "FromPort(in) -> ToPort(out); FromPort(out) -> ToPort(in);";
    let _function = start_on_worker(&mut harness, 1, on_worker(text.into()))?;
    let _servers = [IperfServer::start(&direct_host)?, IperfServer::start(&host)?];
    let through = |time| iperf(&far, "10.95.0.2", time);
    let direct = |time| iperf(&direct_far, "10.96.0.2", time);
    // The first connection waits for ports and neighbour resolution.
    direct(SLICE)?;
    through(SLICE)?;
    let slices: Slices = plan.pairs(SLICE, through, direct)?;
    Ok(slices.entry("Gb/s", Better::More).ratio_at_least(0.9).note("peer: card and host in a patch"))
}

/// The port of the guest of [`joined`], whose segments are joined or not.
fn guest_port(is_joined: bool) -> Port {
    let policy = Policy { reassembly: Some(is_joined), ..Policy::default() };
    Port { policy, ..Port::new("guest", vhost_user(), Some(To::Switch(SWITCH.into()))) }
}

/// A stream from a machine on a card's line to a guest, whose driver takes frames of 64 KB.
pub fn joined(plan: &Plan) -> Result<Entry, Failure> {
    crate::peer::program("linux.uml")?;
    let (folder, far) = (Folder::new()?, Space::new()?);
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    add_card(&mut harness, "card0", To::Switch(SWITCH.into()), (&far, [10, 96, 0, 1]))?;
    // The machine's stack sends single segments.
    far.ip("link set card0far gso_max_segs 1")?;
    let socket = folder.path().join("guest");
    harness.add_port(guest_port(true))?;
    let listeners = [("guest", listen(&socket)?)];
    let mut interface = Interface::new(Attachment::VhostUser { socket, listen: false });
    interface.address = Some("10.96.0.2/24".into());
    let guest = Guest::start(Spec::new("guest", Runner::Uml, vec![interface]), &folder.path().join("linux"))?;
    harness.serve_accepting(&listeners, BOOT, Harness::is_up)?;
    harness.serve_while(|| -> Result<(), Failure> {
        guest.ready(BOOT)?;
        guest.run("iperf3 -s -D", Duration::from_secs(10))?;
        Ok(())
    })?;
    let harness = RefCell::new(harness);
    let one = |is_joined: bool, time: Duration| -> Result<f64, Failure> {
        let mut harness = harness.borrow_mut();
        harness.change_policy(guest_port(is_joined))?;
        // The guest's server may still be busy with the end of the transfer before.
        let begin = Instant::now();
        loop {
            match harness.serve_while(|| iperf(&far, "10.96.0.2", time)) {
                Err(_) if begin.elapsed() < SERVER => {}
                rate => return rate,
            }
        }
    };
    // The first connection waits for neighbour resolution.
    one(true, SLICE)?;
    let frames = || {
        let sum = |which: fn(&Counters) -> &AtomicU64| {
            harness.borrow().sum(|counters| which(counters).load(Relaxed)) as f64
        };
        [sum(|counters| &counters.joined), sum(|counters| &counters.rx_frames)]
    };
    let before = frames();
    one(true, SLICE)?;
    let after = frames();
    let slices: Slices = plan.pairs(SLICE, |time| one(true, time), |time| one(false, time))?;
    let [more, results] = [0, 1].map(|at| after[at] - before[at]);
    let entry = slices.entry("Gb/s", Better::More).ratio_at_least(2.0);
    let entry = entry.with("segments a frame", (more + results) / results);
    Ok(entry.note("to a User-Mode Linux guest; peer: reassembly = false"))
}
