//! Program to program through the switch: the worker on one core, both programs in one thread on the other.

use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::harness::fabric::{Harness, SWITCH};
use crate::harness::program::{connected, on_port};
use crate::harness::sequence::Payload;
use crate::harness::stream::Stream;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::machine;
use crate::plan::Plan;
use ringway_ring_client::RingOptions;
use ringway_spec::{IpNet, Kind, MacAddress, Mirror, Policy, Poll, Port, Rate, To, Vlans};
use std::net::IpAddr;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(100);
/// Default number of slots in a ring.
pub(super) const SLOTS: u32 = 512;

fn rates(plan: &Plan, size: usize, slots: u32, payload: Payload) -> Result<(Slices, u64), Failure> {
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    let (mut one, mut two) = (on_port(&mut harness, "one", slots)?, on_port(&mut harness, "two", slots)?);
    let _pinned = Pinned::to(LOAD)?;
    let mut stream = Stream::new(&mut one, vec![&mut two], size, 0)?;
    let mut slices = Slices::default();
    for _ in 0..plan.slices(SLICE + SLICE / 4) {
        machine::sample();
        slices.ours.push(stream.rate(payload, SLICE)?);
        slices.peer.push(stream.copies(SLICE / 4)?);
    }
    Ok((scaled(slices, size), stream.missing()))
}

/// Millions of frames of `size` bytes a second, numbered and verified, without a peer.
pub fn alone(plan: &Plan, size: usize) -> Result<Slices, Failure> {
    on_switch(size, |stream| plan.alone(SLICE, |time| Ok(stream.rate(Payload::Numbered, time)? * 1e-6)))
}

/// As [`alone`], beside a peer.
pub fn beside(
    plan: &Plan,
    size: usize,
    mut peer: impl FnMut(Duration) -> Result<f64, Failure>,
) -> Result<Slices, Failure> {
    on_switch(size, |stream| {
        plan.pairs(SLICE, |time| Ok(stream.rate(Payload::Numbered, time)? * 1e-6), &mut peer)
    })
}

/// With a stream of frames of `size` bytes through the switch.
fn on_switch(
    size: usize,
    measure: impl FnOnce(&mut Stream<'_>) -> Result<Slices, Failure>,
) -> Result<Slices, Failure> {
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    let (mut one, mut two) = (on_port(&mut harness, "one", SLOTS)?, on_port(&mut harness, "two", SLOTS)?);
    let _pinned = Pinned::to(LOAD)?;
    measure(&mut Stream::new(&mut one, vec![&mut two], size, 0)?)
}

/// Frames of `size` bytes.
pub fn measure(plan: &Plan, size: usize) -> Result<Entry, Failure> {
    let (numbered, lost) = rates(plan, size, SLOTS, Payload::Numbered)?;
    let (untouched, _) = rates(&plan.part(0.3), size, SLOTS, Payload::Untouched)?;
    let note = "peer: a copy of as many bytes between the same slots by one core";
    let entry = if size == 64 {
        numbered.entry("Mpps", Better::More).at_least(20.0)
    } else {
        numbered.entry("Gb/s", Better::More).at_least(100.0).ratio_at_least(0.5)
    };
    let entry = entry.with("frames lost", lost as f64).step_of("payload not touched", &untouched);
    Ok(entry.note(note).note("each frame numbered and verified by the programs"))
}

/// Frames a second while something is on, which `set` turns on and off, beside those while it is off.
pub(super) fn on_and_off(
    plan: &Plan,
    (stream, payload): (&mut Stream<'_>, Payload),
    mut set: impl FnMut(bool) -> Result<(), Failure>,
) -> Result<Slices, Failure> {
    let mut slices = Slices::default();
    // Adjacent slices, each first in turn, so that a change of the machine's speed favours neither.
    for pair in 0..plan.slices(2 * SLICE) {
        machine::sample();
        for is_on in [pair % 2 == 0, pair % 2 != 0] {
            set(is_on)?;
            let rate = stream.rate(payload, SLICE)? * 1e-6;
            if is_on { slices.ours.push(rate) } else { slices.peer.push(rate) }
        }
    }
    Ok(slices)
}

/// Frames of 64 bytes while workers measure where their time goes, and while they don't.
pub fn profiled(plan: &Plan) -> Result<Entry, Failure> {
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    let (mut one, mut two) = (on_port(&mut harness, "one", SLOTS)?, on_port(&mut harness, "two", SLOTS)?);
    let _pinned = Pinned::to(LOAD)?;
    let mut stream = Stream::new(&mut one, vec![&mut two], 64, 0)?;
    let slices = on_and_off(plan, (&mut stream, Payload::Numbered), |is_on| {
        harness.fabric.end_profile();
        harness.fabric.profile(if is_on { MEASURED } else { 0 });
        Ok(())
    })?;
    let entry = slices.entry("Mpps", Better::More).ratio_at_least(0.99);
    Ok(entry.note("peer: the same without the profile").with("frames lost", stream.missing() as f64))
}

/// Frames of 64 bytes while both ports are access ports of a VLAN, and while they have no policy.
pub fn vlan(plan: &Plan) -> Result<Entry, Failure> {
    let access = Policy { vlans: Some(Vlans::Access(10)), ..Policy::default() };
    with_policies(plan, [access.clone(), access], Payload::Numbered)
}

/// Frames of 64 bytes while one port is isolated, and while none is.
pub fn isolated(plan: &Plan) -> Result<Entry, Failure> {
    with_policies(
        plan,
        [Policy { isolated: true, ..Policy::default() }, Policy::default()],
        Payload::Numbered,
    )
}

/// Frames of 64 bytes of IPv4 while their port may send from its addresses only, and while it may from any.
pub fn antispoof(plan: &Plan) -> Result<Entry, Failure> {
    let allow_mac = Some(MacAddress([2, 0, 0, 0, 0, 1]));
    let allow =
        vec![IpNet::from(IpAddr::from(SENDER)), IpNet::from(IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, 1u16]))];
    let policy = Policy { allow_mac, allow, ..Policy::default() };
    with_policies(plan, [policy, Policy::default()], Payload::Untouched)
}

/// Frames of 64 bytes while both ports have rates that they don't reach, and while they have none.
pub fn rate(plan: &Plan) -> Result<Entry, Failure> {
    let rate = Some(Rate { bits: 1_000_000_000_000, burst: None });
    let policy = Policy { rate_from: rate, rate_to: rate, ..Policy::default() };
    with_policies(plan, [policy.clone(), policy], Payload::Numbered)
}

/// Frames of 64 bytes while a port without a peer mirrors both ports, and while none does.
pub fn mirror(plan: &Plan) -> Result<Entry, Failure> {
    let mut harness = Harness::start(&[WORKER], 3, Poll::Adaptive)?;
    let (mut one, mut two) = (on_port(&mut harness, "one", SLOTS)?, on_port(&mut harness, "two", SLOTS)?);
    let nobody = Port::new("nobody", Kind::new("ring", &()), None);
    harness.add_port(nobody.clone())?;
    let _pinned = Pinned::to(LOAD)?;
    let mut stream = Stream::new(&mut one, vec![&mut two], 64, 0)?;
    let slices = on_and_off(plan, (&mut stream, Payload::Numbered), |is_on| {
        let ports = vec!["one".into(), "two".into()];
        let mirror = is_on.then(|| Mirror { ports, ..Mirror::default() });
        let policy = Policy { mirror, ..Policy::default() };
        harness.change_policy(Port { policy, ..nobody.clone() })
    })?;
    let entry = slices.entry("Mpps", Better::More).ratio_at_least(0.95);
    Ok(entry.note("peer: the same without a mirror").with("frames lost", stream.missing() as f64))
}

/// The sender's address in frames of IPv4.
const SENDER: [u8; 4] = [10, 0, 0, 2];

/// While both ports have these policies, and while they have none. Frames are numbered, or of IPv4.
fn with_policies(plan: &Plan, policies: [Policy; 2], payload: Payload) -> Result<Entry, Failure> {
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    let ports =
        ["one", "two"].map(|name| Port::new(name, Kind::new("ring", &()), Some(To::Switch(SWITCH.into()))));
    let options = || RingOptions { slots: [SLOTS; 2], ..RingOptions::default() };
    let mut one = connected(&mut harness, ports[0].clone(), options())?;
    let mut two = connected(&mut harness, ports[1].clone(), options())?;
    let _pinned = Pinned::to(LOAD)?;
    let mut stream = Stream::new(&mut one, vec![&mut two], 64, 0)?;
    if payload == Payload::Untouched {
        stream.send_ipv4(SENDER);
    }
    let slices = on_and_off(plan, (&mut stream, payload), |is_on| {
        for (port, policy) in ports.iter().zip(&policies) {
            let policy = if is_on { policy.clone() } else { Policy::default() };
            harness.change_policy(Port { policy, ..port.clone() })?;
        }
        Ok(())
    })?;
    let entry = slices.entry("Mpps", Better::More).ratio_at_least(0.95);
    Ok(entry.note("peer: the same without policy").with("frames lost", stream.missing() as f64))
}

/// Nanoseconds for which a slice is profiled, its tries included.
const MEASURED: u64 = 60_000_000_000;

/// Millions of frames a second, or Gb/s for long frames.
fn scaled(mut slices: Slices, size: usize) -> Slices {
    let scale = if size == 64 { 1e-6 } else { size as f64 * 8e-9 };
    slices.ours.iter_mut().chain(&mut slices.peer).for_each(|rate| *rate *= scale);
    slices
}

/// By slots in a ring.
pub fn slots(plan: &Plan) -> Result<Entry, Failure> {
    let counts = [64u32, 128, 256, 512, 1024, 2048, 4096];
    let plan = plan.part(0.5 / counts.len() as f64);
    let mut steps = Vec::new();
    let mut all = Slices::default();
    for count in counts {
        let of = |size: usize| -> Result<f64, Failure> {
            let (slices, _) = rates(&plan, size, count, Payload::Numbered)?;
            median(&slices.ours).ok_or_else(|| "no slice".into())
        };
        let (small, long) = (of(64)?, of(1500)?);
        all.ours.push(small);
        // Two rings, each slot with a buffer.
        let memory = f64::from(count) * 2.0 * 2048.0 / 1024.0;
        steps.push((count, small, long, memory));
    }
    let entry = all.entry("Mpps", Better::More).note("64 B, by slots in a ring; memory of one port");
    Ok(steps.into_iter().fold(entry, |entry, (count, small, long, memory)| {
        let figures = [("64 B, Mpps", small), ("1500 B, Gb/s", long), ("KB", memory)];
        entry.step(format!("{count} slots"), &figures)
    }))
}
