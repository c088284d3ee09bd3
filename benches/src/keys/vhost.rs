//! Guest to guest on one core: our fabric, DPDK's vhost, and a back-end that only returns descriptors, each
//! with the same two minimal guests.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::fabric::{Harness, vhost_user};
use crate::harness::front::{self, Connection};
use crate::harness::guest::{Addresses, Busy, Guest, Iommu, Pair, Shape, Wires};
use crate::harness::memory::GuestMemory;
use crate::harness::sequence::Payload;
use crate::harness::{LOAD, Pinned, WORKER, returner};
use crate::keys::Folder;
use crate::peer::ovs::Ovs;
use crate::peer::{Peer, testpmd};
use crate::plan::Plan;
use ringway_spec::{Kind, Poll};
use ringway_switch::{PortNumbers, flows as switch_flows};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Descriptors of a ring.
const RING: u16 = 1024;
const SLICE: Duration = Duration::from_millis(100);
const BASE: Shape = Shape { packed: false, ring: RING, frame: 64, iommu: Iommu::Off };

/// Shapes of guests and rings, with the target ratio to DPDK; that to Open vSwitch is [`OVS`].
const SHAPES: [(Shape, f64); 4] = [
    (BASE, 1.5),
    (Shape { packed: true, ..BASE }, 1.4),
    (Shape { frame: 1500, ..BASE }, 1.5),
    (Shape { packed: true, frame: 1500, ..BASE }, 1.5),
];
const OVS: f64 = 2.0;
/// Names of the ports.
const PORTS: [&str; 2] = ["left", "right"];
/// Rule sets of Open vSwitch.
const RULES: [(&str, &[&str]); 2] = [
    ("NORMAL", &["actions=NORMAL"]),
    ("one rule", &["in_port=1,actions=output:2", "in_port=2,actions=output:1"]),
];

/// One of [`SHAPES`], beside DPDK.
pub fn dpdk(plan: &Plan, shape: usize) -> Result<Entry, Failure> {
    let (shape, bound) = SHAPES[shape];
    beside_dpdk(plan, &shape).map(|entry| entry.ratio_at_least(bound))
}

/// One of [`SHAPES`], beside Open vSwitch.
pub fn ovs(plan: &Plan, shape: usize) -> Result<Entry, Failure> {
    beside_ovs(plan, &SHAPES[shape].0).map(|entry| entry.ratio_at_least(OVS))
}

/// The memory of two guests.
pub type Memories = [(GuestMemory, Addresses); 2];

/// Memory for two guests.
pub fn memories(shape: &Shape) -> Result<Memories, Failure> {
    Ok([Addresses::new(shape)?, Addresses::new(shape)?])
}

/// Two guests in that memory.
pub fn pair<'m>(memories: &'m Memories, shape: &Shape) -> Result<Pair<'m>, Failure> {
    let guest = |index: usize, own, other| {
        let (memory, addresses) = &memories[index];
        Guest::new(memory.memory(), addresses, shape, own, other)
    };
    Ok(Pair { guests: [guest(0, 1, 2)?, guest(1, 2, 1)?], lost: 0, busy: Busy::default() })
}

fn connect(
    sockets: [UnixStream; 2],
    memories: &Memories,
    wires: &[Arc<Wires>; 2],
    shape: &Shape,
) -> Result<[Connection; 2], Failure> {
    let [left, right] = sockets;
    let one = |socket, index: usize| {
        let (memory, addresses) = &memories[index];
        front::connect(socket, memory, addresses, &wires[index], shape)
    };
    Ok([one(left, 0)?, one(right, 1)?])
}

/// A fabric with two vhost-user ports on one switch, their front-ends connected.
pub fn ours(
    memories: &Memories,
    pair: &Pair<'_>,
    shape: &Shape,
) -> Result<(Harness, [Connection; 2]), Failure> {
    served(Harness::start(&[WORKER], 2, Poll::Adaptive)?, memories, pair, shape)
}

/// As [`ours`], of a fabric that is there.
fn served(
    mut harness: Harness,
    memories: &Memories,
    pair: &Pair<'_>,
    shape: &Shape,
) -> Result<(Harness, [Connection; 2]), Failure> {
    let mut sockets = Vec::new();
    for port in PORTS {
        let (near, far) = UnixStream::pair()?;
        harness.add(port, vhost_user())?;
        harness.attach(port, vec![far.into()])?;
        sockets.push(near);
    }
    let [left, right] = <[UnixStream; 2]>::try_from(sockets).map_err(|_| "two sockets")?;
    let wires = pair.wires();
    let connections = harness.serve_while(|| connect([left, right], memories, &wires, shape))?;
    harness.serve_until(Duration::from_secs(5), Harness::is_up)?;
    Ok((harness, connections))
}

/// Our fabric and its guests.
struct Near<'m> {
    harness: Harness,
    _front: [Connection; 2],
    pair: Pair<'m>,
}

impl<'m> Near<'m> {
    fn new(memories: &'m Memories, shape: &Shape) -> Result<Near<'m>, Failure> {
        Near::of(Harness::start(&[WORKER], 2, Poll::Adaptive)?, memories, shape)
    }

    fn of(harness: Harness, memories: &'m Memories, shape: &Shape) -> Result<Near<'m>, Failure> {
        let mut pair = pair(memories, shape)?;
        pair.set_payload(Payload::Numbered)?;
        let (harness, front) = served(harness, memories, &pair, shape)?;
        Ok(Near { harness, _front: front, pair })
    }

    /// A row's figures besides its slices.
    fn figures(&self, entry: Entry, shape: &Shape) -> Entry {
        let drops = self.harness.sum(|counters| {
            let drops = counters.tx_drops.iter().chain(&counters.rx_drops);
            drops.map(|count| count.load(Ordering::Relaxed)).sum()
        });
        let rate = entry.ours.unwrap_or(f64::NAN);
        entry
            .with("ticks a frame", ringway_host::ticks_per_second() / rate / 1e6)
            .with("Gb/s", rate * f64::from(shape.frame) * 8e-3)
            .with("frames lost", self.pair.lost as f64 + self.pair.missing() as f64)
            .with("drops", drops as f64)
            .with("notifications", self.harness.notifications() as f64)
    }
}

/// A peer and its guests, stopped except while it is measured.
struct Far<'m, P> {
    peer: P,
    _front: [Connection; 2],
    pair: Pair<'m>,
}

impl<'m, P: Peer> Far<'m, P> {
    /// Connects guests to a newly started peer, and exchanges frames.
    fn new(
        peer: P,
        sockets: [PathBuf; 2],
        memories: &'m Memories,
        shape: &Shape,
    ) -> Result<Far<'m, P>, Failure> {
        let mut pair = pair(memories, shape)?;
        pair.set_payload(Payload::Numbered)?;
        let [left, right] = sockets;
        let sockets = [UnixStream::connect(left)?, UnixStream::connect(right)?];
        let front = connect(sockets, memories, &pair.wires(), shape)?;
        let end = Instant::now() + Duration::from_secs(20);
        while pair.run(SLICE)?.0 == 0 {
            if Instant::now() > end {
                return Err("no frame comes through the peer".into());
            }
        }
        pair.drain()?;
        // Losses before both ports were ready.
        pair.reset_losses();
        peer.run(false)?;
        Ok(Far { peer, _front: front, pair })
    }

    fn slice(&mut self, time: Duration) -> Result<f64, Failure> {
        self.peer.run(true)?;
        let rate = self.pair.rate(time);
        self.peer.run(false)?;
        rate
    }

    fn figures(&self, entry: Entry) -> Entry {
        entry.with("frames lost by the peer", self.pair.lost as f64 + self.pair.missing() as f64)
    }
}

/// Millions of frames of `size` bytes a second between guests with split rings, without a peer.
pub fn alone(plan: &Plan, size: usize) -> Result<Slices, Failure> {
    let shape = Shape { frame: u32::try_from(size)?, ..BASE };
    let memories = memories(&shape)?;
    let mut near = Near::new(&memories, &shape)?;
    let _pinned = Pinned::to(LOAD)?;
    learn(&mut near.pair, &near.harness)?;
    plan.alone(SLICE, |time| near.pair.rate(time))
}

/// Compares ours with DPDK's vhost.
fn beside_dpdk(plan: &Plan, shape: &Shape) -> Result<Entry, Failure> {
    let folder = Folder::new()?;
    let (our_memories, their_memories) = (memories(shape)?, memories(shape)?);
    let mut near = Near::new(&our_memories, shape)?;
    let sockets = PORTS.map(|port| folder.path().join(port));
    // Started before this thread is pinned, which the peer would inherit.
    let far = testpmd::back_end(folder.path(), sockets.each_ref().map(PathBuf::as_path), WORKER)
        .and_then(|testpmd| Far::new(testpmd, sockets, &their_memories, shape));
    let pinned = Pinned::to(LOAD)?;
    learn(&mut near.pair, &near.harness)?;
    let mut entry = match far {
        Ok(mut far) => {
            let slices = plan.pairs(SLICE, |time| near.pair.rate(time), |time| far.slice(time))?;
            let entry = far.figures(near.figures(slices.entry("Mpps", Better::More), shape));
            near.pair.set_payload(Payload::Untouched)?;
            far.peer.run(true)?;
            far.pair.set_payload(Payload::Untouched)?;
            far.peer.run(false)?;
            let untouched =
                plan.part(0.3).pairs(SLICE, |time| near.pair.rate(time), |time| far.slice(time))?;
            let entry = entry.step_of("payload not touched", &untouched);
            entry.note("peer: DPDK testpmd, net_vhost, io forwarding")
        }
        Err(error) => {
            let slices = plan.alone(SLICE, |time| near.pair.rate(time))?;
            near.figures(slices.entry("Mpps", Better::More), shape).note(format!("no peer: {error}"))
        }
    };
    drop((near, pinned));
    entry = entry.with("floor, Mpps", floor(&plan.part(0.2), shape)?);
    if !our_memories[0].0.huge {
        entry = entry.note("the guests' memory is in 4 KB pages: no huge pages are free");
    }
    Ok(entry.note("each frame numbered and verified by the guests"))
}

/// Compares ours with Open vSwitch with the faster of its rule sets.
fn beside_ovs(plan: &Plan, shape: &Shape) -> Result<Entry, Failure> {
    let folder = Folder::new()?;
    let (our_memories, their_memories) = (memories(shape)?, memories(shape)?);
    let ovs = Ovs::start(folder.path(), &PORTS.map(String::from), WORKER)?;
    let sockets = PORTS.map(|port| ovs.socket(port));
    let mut far = Far::new(ovs, sockets, &their_memories, shape)?;
    let mut near = Near::new(&our_memories, shape)?;
    let _pinned = Pinned::to(LOAD)?;
    learn(&mut near.pair, &near.harness)?;
    let (mut rows, mut steps) = (Vec::new(), Entry::default());
    for (name, rules) in RULES {
        far.peer.run(true)?;
        far.peer.set_rules(rules)?;
        far.slice(SLICE)?;
        let half = plan.part(0.5);
        let slices = half.pairs(SLICE, |time| near.pair.rate(time), |time| far.slice(time))?;
        steps = steps.step_of(name, &slices);
        rows.push(slices.entry("Mpps", Better::More));
    }
    let ratio = |row: &Entry| row.ratio.unwrap_or(f64::INFINITY);
    let row = rows.into_iter().min_by(|one, other| ratio(one).total_cmp(&ratio(other)));
    let row = Entry { steps: steps.steps, ..row.ok_or("no rule set")? };
    let entry = far.figures(near.figures(row, shape));
    Ok(entry.note(
        "peer: Open vSwitch with DPDK, one PMD, the faster of its rule sets; frames numbered and verified",
    ))
}

/// Flows with the masks of tables of tenants: stations by address, services by network and port, VLANs; the last ones,
/// of the lowest priority, join the two guests.
fn flow_rules(count: usize) -> String {
    let mut rules = String::new();
    for at in 0..count.saturating_sub(2) {
        let (high, low) = (at / 250 % 250, at % 250);
        let of = match at % 8 {
            0 => format!("priority=100,dl_dst=02:01:00:00:{high:02x}:{low:02x}"),
            1 => format!("priority=90,dl_src=02:01:00:00:{high:02x}:{low:02x},dl_vlan={}", 1 + at % 4000),
            2 => format!("priority=80,tcp,nw_dst=10.{high}.{low}.0/24,tp_dst={}", 1 + at % 60_000),
            3 => format!("priority=80,udp,nw_dst=10.{high}.{low}.1,tp_dst={}", 1 + at % 60_000),
            4 => format!("priority=70,ip,nw_src=10.{high}.0.0/16,nw_dst=172.16.{low}.{}", at % 256),
            5 => format!("priority=60,tcp,nw_src=192.168.{high}.{low},tp_src={}", 1 + at % 60_000),
            6 => format!("priority=50,arp,arp_tpa=10.{high}.{low}.{}", at % 256),
            _ => format!("priority=40,ipv6,ipv6_dst=fd00:{high:x}:{low:x}:{:x}::/64", at % 65_536),
        };
        rules += &format!("{of},actions=output:{}\n", 1 + at % 2);
    }
    rules + "priority=1,in_port=1,actions=output:2\npriority=1,in_port=2,actions=output:1\n"
}

/// Frames of 64 bytes between guests whose switch has so many flows, beside Open vSwitch with the same ones.
pub fn flows(plan: &Plan, count: usize) -> Result<Entry, Failure> {
    let (folder, rules) = (Folder::new()?, flow_rules(count));
    let (our_memories, their_memories) = (memories(&BASE)?, memories(&BASE)?);
    let far = Ovs::start(folder.path(), &PORTS.map(String::from), WORKER).and_then(|ovs| {
        ovs.set_flows(&rules)?;
        let sockets = PORTS.map(|port| ovs.socket(port));
        Far::new(ovs, sockets, &their_memories, &BASE)
    });
    let ports = PortNumbers(PORTS.iter().zip(1..).map(|(port, number)| (port.to_string(), number)).collect());
    let lookup = Kind::new("flow", &switch_flows::Settings { rules, ports, file: None });
    let mut near = Near::of(Harness::with(&[WORKER], 2, Poll::Adaptive, lookup)?, &our_memories, &BASE)?;
    let _pinned = Pinned::to(LOAD)?;
    let note = "frames numbered and verified";
    Ok(match far {
        Ok(mut far) => {
            let slices = plan.pairs(SLICE, |time| near.pair.rate(time), |time| far.slice(time))?;
            let entry = far.figures(near.figures(slices.entry("Mpps", Better::More), &BASE));
            entry.ratio_at_least(OVS).note(note).note("peer: Open vSwitch with DPDK, one PMD, the same flows")
        }
        Err(error) => {
            let slices = plan.alone(SLICE, |time| near.pair.rate(time))?;
            let entry = near.figures(slices.entry("Mpps", Better::More), &BASE);
            entry.note(note).note(format!("no peer: {error}"))
        }
    })
}

/// Exchanges frames until the switch knows both addresses.
pub fn learn(pair: &mut Pair<'_>, harness: &Harness) -> Result<(), Failure> {
    let begin = Instant::now();
    while harness.fabric.table(crate::harness::fabric::SWITCH)?.len() < 2 {
        pair.run(Duration::from_millis(10))?;
        if begin.elapsed() > Duration::from_secs(3) {
            return Err("the switch does not learn the guests' addresses".into());
        }
    }
    pair.drain()
}

/// The load generator's own limit.
fn floor(plan: &Plan, shape: &Shape) -> Result<f64, Failure> {
    let memories = memories(shape)?;
    let mut load = pair(&memories, shape)?;
    let stop = AtomicBool::new(false);
    let slices = std::thread::scope(|scope| {
        let returner = scope.spawn(|| -> Result<(), Failure> {
            ringway_host::pin(WORKER)?;
            let [left, right] = &memories;
            returner::run([(left.0.memory(), &left.1), (right.0.memory(), &right.1)], shape, &stop)
        });
        let pinned = Pinned::to(LOAD)?;
        let slices = plan.alone(SLICE, |time| load.rate(time));
        drop(pinned);
        stop.store(true, Ordering::Relaxed);
        returner.join().map_err(|_| "the returning back-end failed")??;
        slices
    });
    let slices: Slices = slices?;
    Ok(slices.entry("Mpps", Better::More).ours.unwrap_or(0.0))
}
