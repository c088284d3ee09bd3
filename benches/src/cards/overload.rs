//! Receive livelock: goodput of a receiver against offered load.

use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::harness::bare::Work;
use crate::harness::fabric::{Harness, vhost_user};
use crate::harness::front::Stream;
use crate::harness::guest::{Addresses, Iommu, Shape};
use crate::harness::program::connected;
use crate::harness::single_guest::{Passing, work_for};
use crate::harness::{LOAD, Pinned, WORKER};
use crate::plan::Plan;
use ringway_port::source;
use ringway_ring_client::{RingOptions, Wait};
use ringway_sockets::{Cidr, Config, Host, RingDevice};
use ringway_spec::{Kind, MacAddress, Poll, Port, To};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long a receiver works for each frame, and how many frames a second it could handle if they cost nothing else.
const WORK: Duration = Duration::from_micros(2);
const CAPACITY: u64 = 500_000;
/// Offered load, in tenths of that.
const LOADS: [u64; 7] = [2, 5, 10, 20, 50, 100, 200];
/// The load of the row.
const TEN_TIMES: u64 = 100;
const SLICE: Duration = Duration::from_millis(250);
/// Bytes of a frame.
const FRAME: u32 = 60;
/// The receiver's Ethernet address.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
/// Where the frames of a `source` port go.
const ADDRESS: ([u8; 4], u16) = ([198, 51, 100, 1], 9);

/// What is offered more than it can handle.
#[derive(Clone, Copy, Debug)]
pub enum Receiver {
    /// A program on a ring, which sleeps while there are no frames.
    Program,
    /// A minimal guest on a vhost-user port.
    Guest,
    /// A program with a socket of our TCP/IP stack on a ring.
    Stack,
}

/// A fabric with a port that offers so many frames a second to the port `receiver`.
fn offering(rate: u64) -> Result<Harness, Failure> {
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    let from = MacAddress([2, 0, 0, 0, 0, 1]);
    let settings = source::Settings { size: FRAME, to: MacAddress(MAC), from, rate: Some(rate) };
    let kind = Kind::new(source::KIND.name, &settings);
    harness.add_port(Port::new("source", kind, Some(To::Patch("receiver".into()))))?;
    Ok(harness)
}

fn receiver(kind: Kind) -> Port {
    Port::new("receiver", kind, Some(To::Patch("source".into())))
}

/// Millions of frames a second that `turn` handles, which returns how many it handled.
pub fn goodput(time: Duration, mut turn: impl FnMut() -> Result<u64, Failure>) -> Result<f64, Failure> {
    let mut run = |time: Duration| -> Result<f64, Failure> {
        let (begin, mut count) = (Instant::now(), 0);
        while begin.elapsed() < time {
            count += turn()?;
        }
        Ok(count as f64 / begin.elapsed().as_secs_f64() * 1e-6)
    };
    run(time / 5)?;
    run(time)
}

fn program(rate: u64, time: Duration) -> Result<f64, Failure> {
    let mut harness = offering(rate)?;
    let mut program = connected(&mut harness, receiver(Kind::new("ring", &())), RingOptions::default())?;
    let _pinned = Pinned::to(LOAD)?;
    let (ring, mut frame) = (&mut program.ring, [0; 2048]);
    goodput(time, || {
        if ring.rx.pop(&mut frame)?.is_none() {
            ring.rx.sync()?;
            ring.wait(Wait::RX, Some(Duration::from_millis(10)))?;
            return Ok(0);
        }
        work_for(WORK);
        Ok(1)
    })
}

fn guest(rate: u64, time: Duration) -> Result<f64, Failure> {
    let mut harness = offering(rate)?;
    harness.add_port(receiver(vhost_user()))?;
    let (ours, theirs) = UnixStream::pair()?;
    harness.attach("receiver", vec![ours.into()])?;
    let shape = Shape { packed: false, ring: 512, frame: FRAME, iommu: Iommu::Off };
    let home = Addresses::new(&shape)?;
    harness.serve_while(|| {
        let _pinned = Pinned::to(LOAD)?;
        let mut guest = Passing::new(Stream::from(theirs), &home, &shape, Work::In)?;
        guest.toil = WORK;
        guest.rate(time)
    })
}

/// The program polls its stack once, then reads what its socket has.
fn stack(rate: u64, time: Duration) -> Result<f64, Failure> {
    let mut harness = offering(rate)?;
    let program = connected(&mut harness, receiver(Kind::new("ring", &())), RingOptions::default())?;
    let _pinned = Pinned::to(LOAD)?;
    let config = Config { mac: Some(MAC), ..Config::new(Cidr::new(ADDRESS.0, 24)) };
    let mut host = Host::new(RingDevice::from(program.ring), config)?;
    let socket = host.stack().bind(ADDRESS.into())?;
    goodput(time, || {
        let mut count = 0;
        while host.stack().recv_from(socket).is_ok() {
            work_for(WORK);
            count += 1;
        }
        if !host.poll()? && count == 0 {
            host.wait(Some(Duration::from_millis(10)))?;
        }
        Ok(count)
    })
}

/// Goodput against offered load, and at ten times the capacity beside the load at which it is best.
pub fn measure(plan: &Plan, receiver: Receiver) -> Result<Entry, Failure> {
    let one = |load: u64, time: Duration| -> Result<f64, Failure> {
        let rate = CAPACITY * load / 10;
        match receiver {
            Receiver::Program => program(rate, time),
            Receiver::Guest => guest(rate, time),
            Receiver::Stack => stack(rate, time),
        }
    };
    let (mut curve, mut best) = (Vec::new(), (0, 0.0));
    for load in LOADS {
        let figures: Vec<f64> = (0..3).map(|_| one(load, SLICE)).collect::<Result<_, _>>()?;
        let figure = median(&figures).unwrap_or_default();
        curve.push([(CAPACITY * load) as f64 / 1e7, figure]);
        if figure > best.1 && load != TEN_TIMES {
            best = (load, figure);
        }
    }
    let slices: Slices = plan.pairs(SLICE, |time| one(TEN_TIMES, time), |time| one(best.0, time))?;
    let mut entry = slices.entry("Mpps", Better::More).ratio_at_least(0.9);
    for [offered, goodput] in &curve {
        entry = entry.step(format!("{offered} Mpps offered"), &[("goodput, Mpps", *goodput)]);
    }
    entry.series.insert("goodput".into(), curve);
    let name = format!("{} of its capacity", best.0 as f64 / 10.0);
    Ok(entry.note(format!("{} us of work a frame; peer: offered {name}", WORK.as_micros())))
}
