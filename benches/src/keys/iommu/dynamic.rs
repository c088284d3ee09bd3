//! Guest to guest with each buffer mapped separately, for one frame: ours and DPDK's.

use crate::Failure;
use crate::entry::{Better, Entry};
use crate::harness::fabric::{Harness, vhost_user};
use crate::harness::guest::{Addresses, Iommu, Shape};
use crate::harness::mapper::{Mapper, Mappers};
use crate::harness::memory::GuestMemory;
use crate::harness::{LOAD, Pinned, WORKER, returner};
use crate::keys::Folder;
use crate::keys::iommu::{SLICE, enough};
use crate::peer::Peer;
use crate::peer::testpmd::{self, Testpmd};
use crate::plan::Plan;
use ringway_frame::Counters;
use ringway_spec::Poll;
use ringway_vhost_user::{HEADER, Header, PAYLOAD, Reply};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Rings with one page per buffer.
const SHAPE: Shape = Shape { packed: false, ring: 256, frame: 64, iommu: Iommu::Fragments };
const APART: u32 = 4096;
/// Time limit for a back-end to find its rings, with an IOTLB miss for each part.
const START: Duration = Duration::from_secs(10);

type GuestMemories = [(GuestMemory, Addresses); 2];

fn guest_memories() -> Result<GuestMemories, Failure> {
    Ok([Addresses::spaced(&SHAPE, APART)?, Addresses::spaced(&SHAPE, APART)?])
}

fn guests<'m>(
    sockets: [UnixStream; 2],
    homes: &'m GuestMemories,
    announce: bool,
) -> Result<Mappers<'m>, Failure> {
    let [left, right] = sockets;
    let one = |socket, index: usize, names| Mapper::new(socket, &homes[index], &SHAPE, names, announce);
    Ok(Mappers::new([one(left, 0, (1, 2))?, one(right, 1, (2, 1))?]))
}

/// Retry settings of testpmd: delay in microseconds, and number. Without retries it drops each frame whose
/// destination buffer causes an IOTLB miss.
const RETRIES: [(u32, u32); 4] = [(5, 2000), (20, 500), (50, 200), (200, 50)];

/// DPDK's back-end with its best setting, and its guests.
struct Theirs<'m> {
    testpmd: Testpmd,
    guests: Mappers<'m>,
    /// Busy share of its forwarding core.
    busy: f64,
    /// Thousands of frames a second for each setting.
    tried: Vec<(String, f64)>,
}

/// Starts DPDK's back-end and guests, and stops (SIGSTOP) the back-end.
fn dpdk<'m>(folder: &Path, homes: &'m GuestMemories) -> Result<Theirs<'m>, Failure> {
    let paths = [folder.join("left"), folder.join("right")];
    let device = |index: usize| format!("net_vhost{index},iface={},iommu-support=1", paths[index].display());
    let mut testpmd = testpmd::forwarding("io", folder, "back", vec![device(0), device(1)], WORKER, &[])?;
    let sockets = [UnixStream::connect(&paths[0])?, UnixStream::connect(&paths[1])?];
    let mut guests = guests(sockets, homes, false)?;
    guests.begin(START).map_err(|error| format!("{error}; testpmd printed {}", testpmd.last()))?;
    let mut tried = vec![("without retries".to_string(), guests.rate(5 * SLICE)?)];
    for (delay, times) in RETRIES {
        testpmd.retry(delay, times)?;
        tried.push((format!("delay {delay} retry {times}"), guests.rate(5 * SLICE)?));
    }
    let best = RETRIES.iter().zip(&tried[1..]).max_by(|one, other| one.1.1.total_cmp(&other.1.1));
    let (&(delay, times), _) = best.ok_or("no setting")?;
    testpmd.retry(delay, times)?;
    let busy = testpmd.busy(|| guests.run(10 * SLICE).map(drop))?;
    testpmd.run(false)?;
    Ok(Theirs { testpmd, guests, busy, tried })
}

/// One side's guests, and their measured time.
struct Side<'m> {
    guests: Mappers<'m>,
    wall: Duration,
}

impl<'m> Side<'m> {
    fn new(mut guests: Mappers<'m>) -> Side<'m> {
        guests.forget();
        Side { guests, wall: Duration::ZERO }
    }

    fn slice(&mut self, time: Duration) -> Result<f64, Failure> {
        let begin = Instant::now();
        let rate = self.guests.rate(time);
        self.wall += begin.elapsed();
        rate
    }

    /// Its figures; `worker`: the busy share of the back-end's forwarding core.
    fn figures(&self, worker: f64) -> [(&'static str, f64); 5] {
        let (sent, came) = self.guests.frames;
        let seconds = self.wall.as_secs_f64();
        [
            ("kpps", came as f64 / seconds / 1e3),
            ("misses a frame", self.guests.answers() as f64 / came.max(1) as f64),
            ("lost", 1.0 - came.min(sent) as f64 / sent.max(1) as f64),
            ("busy, worker", worker),
            ("busy, front-end", self.guests.busy.share()),
        ]
    }
}

/// Ours and DPDK's, alternating, and the front-end's own limit.
pub fn measure(plan: &Plan) -> Result<Entry, Failure> {
    let folder = Folder::new()?;
    let (our_homes, their_homes) = (guest_memories()?, guest_memories()?);
    // Started before this thread is pinned, which the peer would inherit.
    let peer = dpdk(folder.path(), &their_homes);
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    let mut sockets = Vec::new();
    for port in ["left", "right"] {
        let (near, far) = UnixStream::pair()?;
        harness.add(port, vhost_user())?;
        harness.attach(port, vec![far.into()])?;
        sockets.push(near);
    }
    let sockets = <[UnixStream; 2]>::try_from(sockets).map_err(|_| "two sockets")?;
    // DPDK's session thread is on the other core; so is ours.
    let pinned = Pinned::to(LOAD)?;
    let before = harness.busy();
    let (entry, ours) = harness.serve_while(|| turns(plan, guests(sockets, &our_homes, false)?, peer))?;
    drop(pinned);
    let entry =
        entry.step("ours", &ours.figures((harness.busy() - before) as f64 / ours.wall.as_nanos() as f64));
    let drops = |counters: &Counters| {
        counters.tx_drops.iter().chain(&counters.rx_drops).map(|count| count.load(Relaxed)).sum()
    };
    let entry = entry.with("drops", harness.sum(drops) as f64);
    drop(harness);
    let floor = floor(&plan.part(0.2))?;
    Ok(entry
        .with("floor, kpps", floor)
        .note("64 frames in flight per guest, one page each, unmapped on completion"))
}

fn turns<'m>(
    plan: &Plan,
    mut ours: Mappers<'m>,
    peer: Result<Theirs<'_>, Failure>,
) -> Result<(Entry, Side<'m>), Failure> {
    ours.begin(START)?;
    let mut ours = Side::new(ours);
    let Theirs { testpmd, guests, busy, tried } = match peer {
        Ok(peer) => peer,
        Err(error) => {
            let slices = plan.alone(SLICE, |time| ours.slice(time))?;
            return Ok((slices.entry("kpps", Better::More).note(format!("no peer: {error}")), ours));
        }
    };
    let mut theirs = Side::new(guests);
    let slices = enough(plan).pairs(
        SLICE,
        |time| ours.slice(time),
        |time| {
            testpmd.run(true)?;
            let rate = theirs.slice(time);
            testpmd.run(false)?;
            rate
        },
    )?;
    let entry = slices.entry("kpps", Better::More).ratio_at_least(1.5);
    let entry = entry.step("DPDK's", &theirs.figures(busy));
    let tried: Vec<(&str, f64)> = tried.iter().map(|(name, rate)| (name.as_str(), *rate)).collect();
    let entry = entry.step("DPDK's settings tried, kpps", &tried);
    let note =
        "peer: DPDK testpmd, net_vhost with iommu-support=1, io forwarding with the best retry setting";
    Ok((entry.note(note), ours))
}

/// The front-end's rate with a back-end that acknowledges every message at once and only returns descriptors.
fn floor(plan: &Plan) -> Result<f64, Failure> {
    let homes = guest_memories()?;
    let stop = AtomicBool::new(false);
    let (mut near, mut far) = (Vec::new(), Vec::new());
    for _ in 0..2 {
        let (one, other) = UnixStream::pair()?;
        near.push(one);
        far.push(other);
    }
    let near = <[UnixStream; 2]>::try_from(near).map_err(|_| "two sockets")?;
    std::thread::scope(|scope| {
        let returner = scope.spawn(|| -> Result<(), Failure> {
            ringway_host::pin(WORKER)?;
            let [left, right] = &homes;
            returner::run([(left.0.memory(), &left.1), (right.0.memory(), &right.1)], &SHAPE, &stop)
        });
        let pinned = Pinned::to(LOAD)?;
        far.into_iter().for_each(|socket| drop(scope.spawn(|| acknowledge(socket))));
        let rate = guests(near, &homes, true).and_then(|mut guests| {
            let slices = plan.alone(SLICE, |time| guests.rate(time))?;
            Ok(slices.entry("kpps", Better::More).ours.unwrap_or(0.0))
        });
        drop(pinned);
        stop.store(true, Relaxed);
        returner.join().map_err(|_| "the returning back-end failed")??;
        rate
    })
}

/// Answers every message with success, or with all features, until the other end closes.
fn acknowledge(mut socket: UnixStream) -> Result<(), Failure> {
    loop {
        let (mut header, mut payload) = ([0; HEADER], [0; PAYLOAD]);
        // The kernel closes received descriptors, since they are not taken.
        if socket.read_exact(&mut header).is_err() {
            return Ok(());
        }
        let message = Header::decode(&header)?;
        socket.read_exact(&mut payload[..message.size as usize])?;
        let asks = [1, 15].contains(&message.request);
        if message.need_reply || asks {
            let value = if asks { u64::MAX } else { 0 };
            socket.write_all(&Reply::Number(value).encode(message.request).bytes)?;
        }
    }
}
