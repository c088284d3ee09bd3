//! Frames of 64 bytes that a port on an interface sends, receives and forwards, beside packet sockets without ring
//! and DPDK's driver of the same kind: each with one core, on veth pairs of its own, in turn.

use super::card::{Card, Held};
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::harness::fabric::Harness;
use crate::harness::{LOAD, WORKER};
use crate::keys::Folder;
use crate::machine;
use crate::peer::Peer;
use crate::peer::net::{Space, Veth};
use crate::peer::packet::{PacketLine, PacketReceiver};
use crate::peer::testpmd::{self, Testpmd};
use crate::plan::Plan;
use ringway_host::{ticks, ticks_per_second};
use ringway_pktgen::Line;
use ringway_port::{null, packet, source};
use ringway_spec::{Kind, MacAddress, Poll, Port, To};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SIZE: usize = 64;
const SLICE: Duration = Duration::from_millis(100);
/// Targets: over packet sockets without a ring, and over DPDK's driver.
const OVER_RAW: f64 = 3.0;
const OVER_DPDK: f64 = 1.2;
/// Addresses of frames: no interface has the destination's, so that the other end's stack drops them at once.
const TO: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FROM: [u8; 6] = [2, 0, 0, 0, 0, 1];
/// Interfaces of each side.
const OURS: [&str; 2] = ["rw-ours0", "rw-ours1"];
const RAW: [&str; 2] = ["rw-raw0", "rw-raw1"];
const DPDK: [&str; 2] = ["rw-dpdk0", "rw-dpdk1"];
/// The other end of each, in a namespace.
const FAR: &str = "far";
/// Ports of fabrics besides those on interfaces.
const SOURCE: &str = "source";
const SINK: &str = "sink";

/// What is done with frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// They are sent as fast as possible, and counted where they arrive.
    Send,
    /// They come from the other end, and are counted by the receiver.
    Receive,
    /// They come at one interface, leave by another, and are counted where they arrive.
    Forward,
}

/// Sums so far: frames that count, frames that were offered, and ns that the side's core was busy; 0 without meaning.
type Totals = [f64; 3];
/// Those of a slice: Mpps, Mpps, ns a frame.
type Figures = [f64; 3];
const NAMES: [&str; 3] = ["Mpps", "offered, Mpps", "ns of its core a frame"];

fn figures(before: Totals, after: Totals, time: Duration) -> Result<Figures, Failure> {
    let [frames, offered, busy]: Totals = std::array::from_fn(|at| after[at] - before[at]);
    if frames <= 0.0 {
        return Err("no frame came".into());
    }
    let micros = time.as_secs_f64() * 1e6;
    Ok([frames / micros, offered / micros, busy / frames])
}

/// What happens in the course of a slice, some time after its begin.
fn counted(mut totals: impl FnMut() -> Result<Totals, Failure>) -> Result<Figures, Failure> {
    std::thread::sleep(SLICE / 5);
    let (before, begin) = (totals()?, Instant::now());
    std::thread::sleep(SLICE);
    let after = totals()?;
    figures(before, after, begin.elapsed())
}

/// Adds a port that sends frames to another one as fast as it can, or removes it. It is the fabric's second.
fn run_source(harness: &mut Harness, to: &str, on: bool) -> Result<(), Failure> {
    if !on {
        return Ok(harness.fabric.remove_port(SOURCE)?);
    }
    let (size, rate) = (SIZE as u32, None);
    let settings = source::Settings { size, to: MacAddress(TO), from: MacAddress(FROM), rate };
    let kind = Kind::new(source::KIND.name, &settings);
    Ok(harness.fabric.add_port(Port::new(SOURCE, kind, Some(To::Patch(to.into()))), 1)?)
}

/// The machine at an interface's other end: a fabric on the other core, which is the same for all sides.
struct Sender(Harness);

impl Sender {
    fn new(veth: &Veth) -> Result<Sender, Failure> {
        let mut harness = Harness::start(&[LOAD], 2, Poll::Adaptive)?;
        let settings = packet::Settings { interface: FAR.into(), namespace: None, promiscuous: false };
        let kind = Kind::new(packet::KIND.name, &settings);
        harness.add_port(Port::new(FAR, kind, Some(To::Patch(SOURCE.into()))))?;
        harness.attach(FAR, veth.space.within(|| Ok(packet::open::open(&settings, 1)?.descriptors))?)?;
        Ok(Sender(harness))
    }
}

/// The interfaces of a side: frames come at the first one, unless it only sends, and leave by the last one.
struct Lines {
    way: Way,
    sender: Option<Sender>,
    veths: Vec<Veth>,
}

impl Lines {
    /// With these names. The first interface is moved to the namespace `apart`, if there is one.
    fn new(names: [&'static str; 2], way: Way, apart: Option<&Space>) -> Result<Lines, Failure> {
        let count = if way == Way::Forward { 2 } else { 1 };
        let veths = names.into_iter().take(count).map(|name| Veth::new(name, FAR));
        let veths = veths.collect::<Result<Vec<_>, _>>()?;
        if let Some(space) = apart {
            space.take_silently(names[0])?;
        }
        let sender = veths.first().filter(|_| way != Way::Send).map(Sender::new).transpose()?;
        Ok(Lines { way, sender, veths })
    }

    /// A slice in which frames come.
    fn slice(
        &mut self,
        mut totals: impl FnMut(&Lines) -> Result<Totals, Failure>,
    ) -> Result<Figures, Failure> {
        self.load(true)?;
        let figures = counted(|| totals(self));
        self.load(false)?;
        figures
    }

    fn load(&mut self, on: bool) -> Result<(), Failure> {
        self.sender.as_mut().map_or(Ok(()), |sender| run_source(&mut sender.0, FAR, on))
    }

    /// The sums of a side that has taken so many frames itself, and whose core was busy for so many ns.
    fn totals(&self, taken: u64, busy: f64) -> Result<Totals, Failure> {
        let last = self.veths.last().ok_or("no interface")?;
        let frames = if self.way == Way::Receive { taken } else { last.space.received(FAR)? };
        let sent = |sender: &Sender| sender.0.sum(|counters| counters.rx_frames.load(Relaxed));
        let offered = self.sender.as_ref().map_or(0, sent);
        Ok([frames as f64, offered as f64, busy])
    }
}

/// A fabric with ports on the interfaces.
struct Ours {
    harness: Harness,
    _held: Vec<Held>,
    lines: Lines,
}

impl Ours {
    fn new(card: Card, way: Way) -> Result<Ours, Failure> {
        let lines = Lines::new(OURS, way, None)?;
        let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
        let [first, second] = OURS;
        let patch = |to: &str| To::Patch(to.into());
        let other = match way {
            Way::Send => SOURCE,
            Way::Receive => SINK,
            Way::Forward => second,
        };
        let mut held = vec![card.add(&mut harness, first, patch(other))?];
        match way {
            Way::Send => {}
            Way::Receive => {
                harness.add_port(Port::new(SINK, Kind::new(null::KIND.name, &()), Some(patch(first))))?;
            }
            Way::Forward => held.push(card.add(&mut harness, second, patch(first))?),
        }
        Ok(Ours { harness, _held: held, lines })
    }

    fn slice(&mut self) -> Result<Figures, Failure> {
        if self.lines.way == Way::Send {
            run_source(&mut self.harness, OURS[0], true)?;
            let figures = self.lines.slice(|lines| lines.totals(0, 0.0));
            run_source(&mut self.harness, OURS[0], false)?;
            return figures;
        }
        let harness = &self.harness;
        self.lines.slice(|lines| {
            let taken = harness.sum(|counters| counters.rx_frames.load(Relaxed));
            lines.totals(taken, harness.busy() as f64)
        })
    }

    /// What the ports say about their interfaces.
    fn detail(&self) -> String {
        let ports = self.harness.fabric.state().ports;
        ports.into_iter().find(|port| port.name == OURS[0]).map(|port| port.detail).unwrap_or_default()
    }
}

/// A program with packet sockets, a system call a frame.
struct Raw {
    receiver: Option<PacketReceiver>,
    line: Option<PacketLine>,
    tick: f64,
    lines: Lines,
    /// Where the first interface is alone, since the receiver's socket is that of all.
    _space: Option<Space>,
}

impl Raw {
    /// `tick`: ns of a tick.
    fn new(way: Way, tick: f64) -> Result<Raw, Failure> {
        let space = (way != Way::Send).then(Space::new).transpose()?;
        let lines = Lines::new(RAW, way, space.as_ref())?;
        let receiver = space.as_ref().map(|space| space.within(PacketReceiver::open)).transpose()?;
        let line = match way {
            Way::Send => Some(PacketLine::open(RAW[0])?),
            Way::Receive => None,
            Way::Forward => Some(PacketLine::open(RAW[1])?),
        };
        Ok(Raw { receiver, line, tick, lines, _space: space })
    }

    fn slice(&mut self) -> Result<Figures, Failure> {
        let (is_over, sums) = (AtomicBool::new(false), [const { AtomicU64::new(0) }; 2]);
        let Raw { receiver, line, tick, lines, .. } = self;
        let (receiver, line) = (receiver.as_ref(), line.as_mut());
        std::thread::scope(|scope| {
            let program = scope.spawn(|| handle(receiver, line, &is_over, &sums));
            let figures = lines.slice(|lines| {
                let [frames, ticks] = sums.each_ref().map(|sum| sum.load(Relaxed));
                lines.totals(frames, if lines.way == Way::Send { 0.0 } else { ticks as f64 * *tick })
            });
            is_over.store(true, Relaxed);
            program.join().map_err(|_| "a thread of the benchmark failed")??;
            figures
        })
    }
}

/// Handles frames until it is over: they come from `receiver`, or are the same one without, and leave by `line`. The
/// sums are those frames, and ticks spent on them.
fn handle(
    receiver: Option<&PacketReceiver>,
    mut line: Option<&mut PacketLine>,
    is_over: &AtomicBool,
    sums: &[AtomicU64; 2],
) -> Result<(), Failure> {
    ringway_host::pin(WORKER)?;
    let mut frame = [0; 2048];
    // The type of what follows the addresses is IPv4's.
    frame[..14].copy_from_slice(&[&TO[..], &FROM, &[8, 0]].concat());
    let (mut frames, mut busy, mut last) = (0, 0, ticks());
    while !is_over.load(Relaxed) {
        let len = receiver.map_or(Ok(Some(SIZE)), |receiver| receiver.receive(&mut frame))?;
        if let (Some(len), Some(line)) = (len, line.as_deref_mut()) {
            line.send(&frame[..len])?;
        }
        let now = ticks();
        if len.is_some() {
            frames += 1;
            busy += now.wrapping_sub(last);
            sums[0].store(frames, Relaxed);
            sums[1].store(busy, Relaxed);
        }
        last = now;
    }
    Ok(())
}

/// testpmd with DPDK's driver, stopped except while it is measured.
struct Theirs {
    testpmd: Testpmd,
    tick: f64,
    lines: Lines,
}

impl Theirs {
    fn new(folder: &Path, card: Card, way: Way, tick: f64) -> Result<Theirs, Failure> {
        let lines = Lines::new(DPDK, way, None)?;
        let mode = match way {
            Way::Send => "txonly",
            Way::Receive => "rxonly",
            Way::Forward => "io",
        };
        let devices = DPDK.into_iter().take(lines.veths.len()).enumerate();
        let devices = devices.map(|(number, interface)| card.device(number, interface)).collect();
        let testpmd = testpmd::forwarding(mode, folder, "card", devices, WORKER, &[])?;
        testpmd.run(false)?;
        let mut theirs = Theirs { testpmd, tick, lines };
        theirs.slice()?;
        Ok(theirs)
    }

    fn slice(&mut self) -> Result<Figures, Failure> {
        let Theirs { testpmd, tick, lines } = self;
        testpmd.run(true)?;
        let figures = lines.slice(|lines| {
            let [ticks, frames] = if lines.way == Way::Send { [0; 2] } else { testpmd.handled()? };
            lines.totals(frames, ticks as f64 * *tick)
        });
        testpmd.run(false)?;
        figures.map_err(|error| format!("{error}; testpmd printed {}", testpmd.last()).into())
    }
}

/// The row of the figures of our slices, the packet sockets' and DPDK's, which may be missing.
fn row(sides: &[Vec<Figures>; 3]) -> Entry {
    let of = |side: &[Figures], at: usize| side.iter().map(|figures| figures[at]).collect::<Vec<_>>();
    let [ours, raw, theirs] = sides.each_ref().map(|side| of(side, 0));
    let mut entry = Slices::of(&ours, &raw).entry("Mpps", Better::More).ratio_at_least(OVER_RAW);
    for (name, side) in ["ours", "packet sockets", "DPDK's"].into_iter().zip(sides) {
        let medians = NAMES.into_iter().enumerate().map(|(at, name)| (name, median(&of(side, at))));
        let known = medians.filter_map(|(name, figure)| Some((name, figure.filter(|figure| *figure > 0.0)?)));
        entry = entry.step(name, &known.collect::<Vec<_>>());
    }
    if theirs.is_empty() {
        return entry;
    }
    let beside = Slices::of(&ours, &theirs).entry("Mpps", Better::More);
    let holds = beside.ratio_interval.is_some_and(|[low, _]| low >= OVER_DPDK);
    let entry = entry.with("ours over DPDK's", beside.ratio.unwrap_or(f64::NAN));
    entry.mark(format!("over DPDK's >= {OVER_DPDK}"), holds)
}

/// The sides in turn.
pub fn measure(plan: &Plan, card: Card, way: Way) -> Result<Entry, Failure> {
    let (folder, tick) = (Folder::new()?, 1e9 / ticks_per_second());
    let (mut ours, mut raw) = (Ours::new(card, way)?, Raw::new(way, tick)?);
    let (mut theirs, missing) = match Theirs::new(folder.path(), card, way, tick) {
        Ok(theirs) => (Some(theirs), None),
        Err(error) => (None, Some(format!("no peer of DPDK's: {error}"))),
    };
    ours.slice()?;
    raw.slice()?;
    let mut sides = [const { Vec::new() }; 3];
    for _ in 0..plan.slices(3 * SLICE) {
        machine::sample();
        sides[0].push(ours.slice()?);
        sides[1].push(raw.slice()?);
        if let Some(theirs) = &mut theirs {
            sides[2].push(theirs.slice()?);
        }
    }
    let bound = match way {
        Way::Send => "the core that sends also runs the kernel's receive path of the other end",
        Way::Receive => {
            "the other core sends, by a packet port, and runs the kernel's receive path: where all that is \
             offered is received, it bounds the figure, and `ns of its core a frame` tells the sides apart"
        }
        Way::Forward => {
            "the other core sends, by a packet port, and runs the kernel's receive path of the first \
             interface, the core that forwards that of the last one's other end"
        }
    };
    let entry = row(&sides).note(format!("{SIZE} B, {}", ours.detail())).note(bound);
    let entry = entry.note("peer: packet sockets without a ring, a system call a frame");
    Ok(missing.into_iter().fold(entry, Entry::note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_those_between_two_looks() {
        let time = Duration::from_millis(100);
        let [rate, offered, busy] = figures([50.0, 0.0, 7.0], [100_050.0, 2e5, 5e7 + 7.0], time).unwrap();
        assert!((rate - 1.0).abs() < 1e-9 && (offered - 2.0).abs() < 1e-9, "{rate} {offered}");
        assert!((busy - 500.0).abs() < 1e-9, "{busy}");
        assert!(figures([3.0; 3], [3.0; 3], time).is_err());
    }

    #[test]
    fn a_row_has_a_mark_for_each_peer() {
        let side = |rate: f64, busy: f64| vec![[rate, 0.0, busy]; 8];
        let both = row(&[side(4.0, 0.0), side(1.0, 250.0), side(4.0, 0.0)]);
        let marks = both.marks.iter().map(|mark| (mark.mark.as_str(), mark.holds));
        assert_eq!(marks.collect::<Vec<_>>(), [("ratio >= 3", true), ("over DPDK's >= 1.2", false)]);
        assert_eq!(both.more["ours over DPDK's"], 1.0);
        assert_eq!(both.steps[1].figures.keys().collect::<Vec<_>>(), ["Mpps", "ns of its core a frame"]);
        let without = row(&[side(4.0, 0.0), side(1.0, 0.0), Vec::new()]);
        assert_eq!((without.marks.len(), without.steps[2].figures.len()), (1, 0));
    }
}
