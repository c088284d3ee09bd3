//! How long after its due time a timer is handled: those that pace a connection, for a program that polls our stack and
//! for one that sleeps. Their peers are threads that do nothing else: one reads the clock, the other sleeps.

use super::flow::{SOCKET_TIMEOUT, Traffic, accept, receive};
use super::lab::{Bench, Cell};
use super::scaled;
use crate::Failure;
use crate::entry::{Better, Entry, Mark, Slices};
use crate::harness::{LOAD, Pinned, WORKER, clock};
use crate::keys::Rows;
use crate::machine;
use crate::plan::Plan;
use hdrhistogram::Histogram;
use ringway_netstack::congestion::Algorithm::Bbr1;
use ringway_netstack::{SocketError, SocketId};
use ringway_sockets::{Cidr, Config, Host, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Slices of each kind.
const SLICES: usize = 8;
/// Bytes of a call: a copy of more would delay timers by itself.
const BLOCK: usize = 8 << 10;
/// Time between the peer's timers: about that between two bursts at the line's rate.
const GAP: Duration = Duration::from_millis(1);
/// Quantiles of the curves.
const CURVE: [f64; 12] = [0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 1.0];

type Times = Histogram<u64>;

fn times() -> Result<Times, Failure> {
    Ok(Histogram::new_with_max(10_000_000_000, 3)?)
}

/// A program that always has bytes to send.
struct Sender {
    host: Host,
    socket: SocketId,
    block: Vec<u8>,
}

impl Sender {
    /// One round: the lateness of a timer that is due.
    fn turn(&mut self, times: &mut Times) -> Result<(), Failure> {
        let (due, now) = (self.host.stack().next_timer(), self.host.now());
        if let Some(due) = due.filter(|due| *due <= now) {
            times.saturating_record(now - due);
        }
        self.host.poll()?;
        match self.host.stack().send(now, self.socket, &self.block) {
            Ok(_) | Err(SocketError::WouldBlock) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn run(&mut self, time: Duration, asleep: bool) -> Result<Times, Failure> {
        let (begin, mut times) = (Instant::now(), times()?);
        while begin.elapsed() < time {
            self.turn(&mut times)?;
            if asleep {
                self.host.wait(Some(SOCKET_TIMEOUT))?;
            }
        }
        Ok(times)
    }
}

/// The lateness of a thread that only sleeps.
fn sleeper(time: Duration) -> Result<Times, Failure> {
    let (begin, mut times) = (Instant::now(), times()?);
    while begin.elapsed() < time {
        let due = Instant::now() + GAP;
        std::thread::sleep(GAP);
        times.saturating_record(due.elapsed().as_nanos() as u64);
    }
    Ok(times)
}

/// The lateness of a thread that only reads the clock: what the machine takes from any that polls.
fn reader(time: Duration) -> Result<Times, Failure> {
    let mut times = times()?;
    let count = (time.as_nanos() / GAP.as_nanos()) as u32;
    clock::late(Instant::now(), GAP, count).for_each(|late| times.saturating_record(late));
    Ok(times)
}

/// p50 and p99 of each slice, in us, and all times.
#[derive(Default)]
struct Kind {
    slices: [Vec<f64>; 2],
    all: Option<Times>,
}

impl Kind {
    fn add(&mut self, times: Times) -> Result<(), Failure> {
        for (slices, part) in self.slices.iter_mut().zip([0.5, 0.99]) {
            slices.push(times.value_at_quantile(part) as f64 / 1e3);
        }
        match &mut self.all {
            Some(all) => all.add(&times)?,
            None => self.all = Some(times),
        }
        Ok(())
    }

    /// Points of the distribution: us, percent of the timers that are not later.
    fn curve(&self) -> Vec<[f64; 2]> {
        let at = |all: &Times, part: f64| [all.value_at_quantile(part) as f64 / 1e3, 100.0 * part];
        self.all.iter().flat_map(|all| CURVE.map(|part| at(all, part))).collect()
    }
}

/// `lateness` and `lateness.asleep`.
pub fn rows(plan: &Plan) -> Rows {
    let cell = Cell::new(400, Duration::from_millis(20), Bbr1);
    let mut bench = Bench::new(&cell, 1)?;
    let device = bench.device.take().ok_or("the device is in use")?;
    let mut config = Config::new(Cidr::new(Bench::FROM, 24));
    config.settings = cell.settings();
    config.settings.tcp_congestion_control = Bbr1;
    let mut host = Host::new(device, config)?;
    let listener = TcpListener::bind(&bench.network, std::net::SocketAddr::from(Bench::TO))?;
    listener.set_nonblocking(true)?;
    let (stop, traffic) = (AtomicBool::new(false), Traffic::default());
    let [mut polling, mut asleep, mut peer] = [Kind::default(), Kind::default(), Kind::default()];
    let (mut bare, stolen) = (Kind::default(), clock::Stolen::begin()?);
    let (warm, slice) = (scaled(plan, 1.0), scaled(plan, 1.0));
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| -> Result<(), Failure> {
            let _pinned = Pinned::to(WORKER)?;
            let Some((stream, _)) = accept(&stop, || listener.accept())? else { return Ok(()) };
            stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
            receive(stream, &traffic, &stop)
        });
        let measure = || -> Result<(), Failure> {
            let _pinned = Pinned::to(LOAD)?;
            let now = host.now();
            let socket = host.stack().connect(now, Bench::TO.into())?;
            let mut sender = Sender { host, socket, block: vec![0x5a; BLOCK] };
            sender.run(warm, false)?;
            for _ in 0..SLICES {
                machine::sample();
                // What waited for the note would count as late.
                sender.run(slice / 10, false)?;
                polling.add(sender.run(slice, false)?)?;
                bare.add(reader(slice)?)?;
                sender.run(slice / 10, true)?;
                asleep.add(sender.run(slice, true)?)?;
                peer.add(sleeper(slice)?)?;
            }
            Ok(())
        };
        let result = measure();
        stop.store(true, Relaxed);
        receiver.join().map_err(|_| "a thread failed")??;
        result
    })?;
    Ok(entries([&polling, &bare, &asleep, &peer], stolen.end()?))
}

/// The rows of a program that polls, a loop that reads the clock, a program that sleeps, and a thread that does;
/// `stolen` is the part of the cores' time that the hypervisor took, in percent.
fn entries([polling, bare, asleep, peer]: [&Kind; 4], stolen: f64) -> Vec<Entry> {
    let of = |ours: &Kind, peer: &Kind, part: usize| {
        Slices::of(&ours.slices[part], &peer.slices[part]).entry("us", Better::Less)
    };
    let with_p50 = |entry: Entry, p50: &Entry| {
        let entry = entry.with("p50", p50.ours.unwrap_or(f64::NAN));
        entry.with("peer's p50", p50.peer.unwrap_or(f64::NAN)).with("stolen, %", stolen)
    };
    let p50 = of(polling, bare, 0).at_most(1.0);
    let mut first = with_p50(of(polling, bare, 1).at_most(5.0), &p50);
    first.marks.extend(p50.marks.into_iter().map(|mark| Mark { mark: format!("p50 {}", mark.mark), ..mark }));
    let kinds = [
        ("polling", polling),
        ("a thread that only reads the clock", bare),
        ("asleep", asleep),
        ("a thread that only sleeps", peer),
    ];
    first.series = kinds.map(|(name, kind)| (name.to_string(), kind.curve())).into();
    let second = with_p50(of(asleep, peer, 1).ratio_at_most(2.0), &of(asleep, peer, 0));
    let polls =
        "p99; pacing timers at 400 Mb/s, polled on a core of its own; peer: a loop that only reads the clock";
    let sleeps = "p99; peer: a thread that sleeps for 1 ms, in a loop; 50 us are timer slack";
    vec![first.note(polls), second.note(sleeps)]
}
