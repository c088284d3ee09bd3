//! Guest to guest on one core: our fabric, DPDK's vhost, and a back-end that only returns descriptors, each
//! with the same two minimal guests.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::keys::Folder;
use crate::peer::testpmd::{self, Testpmd};
use crate::plan::Plan;
use crate::rig::fabric::{Rig, vhost_user};
use crate::rig::front::{self, Connection};
use crate::rig::guest::{Addresses, Busy, Guest, Iommu, Pair, Shape, Wires};
use crate::rig::memory::GuestMemory;
use crate::rig::{LOAD, Pinned, WORKER, returner, two_cores};
use crate::run::Output;
use ringway_spec::Poll;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Descriptors of a ring.
const RING: u16 = 1024;
const SLICE: Duration = Duration::from_millis(100);

/// The keys with their parameters.
const SHAPES: [(&str, Shape); 4] = [
    ("vhost.split.64", Shape { packed: false, ring: RING, frame: 64, iommu: Iommu::Off }),
    ("vhost.packed.64", Shape { packed: true, ring: RING, frame: 64, iommu: Iommu::Off }),
    ("vhost.split.1500", Shape { packed: false, ring: RING, frame: 1500, iommu: Iommu::Off }),
    ("vhost.packed.1500", Shape { packed: true, ring: RING, frame: 1500, iommu: Iommu::Off }),
];

/// Runs the keys that are wanted.
pub fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    for (key, shape) in SHAPES {
        if output.wants(key) {
            output.put(key, measure(plan, &shape));
        }
    }
    Ok(())
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
pub fn ours(memories: &Memories, pair: &Pair<'_>, shape: &Shape) -> Result<(Rig, [Connection; 2]), Failure> {
    let mut rig = Rig::start(&[WORKER], 2, Poll::Adaptive)?;
    let mut sockets = Vec::new();
    for port in ["left", "right"] {
        let (near, far) = UnixStream::pair()?;
        rig.add(port, vhost_user())?;
        rig.attach(port, vec![far.into()])?;
        sockets.push(near);
    }
    let [left, right] = <[UnixStream; 2]>::try_from(sockets).map_err(|_| "two sockets")?;
    let wires = pair.wires();
    let connections = rig.serve_while(|| connect([left, right], memories, &wires, shape))?;
    rig.serve_until(Duration::from_secs(5), Rig::is_up)?;
    Ok((rig, connections))
}

/// DPDK's back-end, its front-ends connected, stopped.
fn dpdk(
    folder: &Path,
    memories: &Memories,
    pair: &Pair<'_>,
    shape: &Shape,
) -> Result<(Testpmd, [Connection; 2]), Failure> {
    let paths = [folder.join("left"), folder.join("right")];
    let mut testpmd = testpmd::back_end(folder, [&paths[0], &paths[1]], WORKER)?;
    let sockets = [UnixStream::connect(&paths[0])?, UnixStream::connect(&paths[1])?];
    let connections = connect(sockets, memories, &pair.wires(), shape)?;
    testpmd.wait_for("now ready for processing", 2, Duration::from_secs(5))?;
    Ok((testpmd, connections))
}

fn measure(plan: &Plan, shape: &Shape) -> Result<Entry, Failure> {
    let folder = Folder::new()?;
    let (our_memories, their_memories) = (memories(shape)?, memories(shape)?);
    let mut near = pair(&our_memories, shape)?;
    let (rig, _ours) = ours(&our_memories, &near, shape)?;
    let mut far = pair(&their_memories, shape)?;
    let peer = dpdk(folder.path(), &their_memories, &far, shape);
    let pinned = Pinned::to(LOAD)?;
    learn(&mut near, &rig)?;
    let slices = match &peer {
        Ok((testpmd, _connections)) => {
            far.run(SLICE)?;
            far.drain()?;
            testpmd.run(false)?;
            plan.pairs(
                SLICE,
                |time| near.rate(time),
                |time| {
                    testpmd.run(true)?;
                    let rate = far.rate(time);
                    testpmd.run(false)?;
                    rate
                },
            )?
        }
        Err(_) => plan.alone(SLICE, |time| near.rate(time))?,
    };
    let drops = rig.sum(|counters| {
        counters.tx_drops.iter().chain(&counters.rx_drops).map(|count| count.load(Ordering::Relaxed)).sum()
    });
    let notifications = rig.notifications();
    drop((rig, pinned));
    let floor = floor(&plan.part(0.2), shape)?;
    let entry = slices.entry("Mpps", Better::More).ratio_at_least(1.5);
    let best = entry.best.unwrap_or(f64::NAN);
    let second = ringway_host::ticks_per_second();
    let ticks = |rate: f64| second / rate / 1e6;
    let mut entry = entry.with("best, ticks a frame", ticks(best)).with("floor, Mpps", floor);
    entry =
        entry.with("best, Gb/s", best * f64::from(shape.frame) * 8e-3).with("frames lost", near.lost as f64);
    entry = entry.with("drops", drops as f64).with("notifications", notifications as f64);
    if !our_memories[0].0.huge {
        entry = entry.note("the guests' memory is in 4 KB pages: no huge pages are free");
    }
    if far.lost > 0 {
        entry = entry.with("frames lost by the peer", far.lost as f64);
    }
    match peer {
        Ok(_) => Ok(entry.note("peer: DPDK testpmd, net_vhost, io forwarding")),
        Err(error) => Ok(entry.note(format!("no peer: {error}"))),
    }
}

/// Exchanges frames until the switch knows both addresses.
pub fn learn(pair: &mut Pair<'_>, rig: &Rig) -> Result<(), Failure> {
    let begin = Instant::now();
    while rig.fabric.table(crate::rig::fabric::SWITCH)?.len() < 2 {
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
    Ok(slices.entry("Mpps", Better::More).best.unwrap_or(0.0))
}
