//! What exact time, large buffers and pacing are worth: a program that polls our stack, with one of them worse.

use super::flow::{SOCKET_TIMEOUT, Traffic, accept, receive};
use super::lab::{Bench, Cell, Schedule};
use super::scaled;
use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::harness::{LOAD, Pinned, WORKER};
use crate::plan::Plan;
use ringway_frame::{BURST, LARGEST};
use ringway_host::Clock;
use ringway_netstack::congestion::Algorithm::Bbr1;
use ringway_netstack::{InterfaceConfig, MS, Pacing, Settings, SocketError, SocketId, Stack};
use ringway_sockets::{Cidr, Device, RingDevice, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Bytes of a call.
const BLOCK: usize = 16 << 10;
/// Repetitions.
const ROUNDS: u64 = 2;

/// A property that is worse than it could be.
#[derive(Clone, Copy, Debug)]
struct Ablation {
    name: &'static str,
    /// Nanoseconds between two times at which deadlines are handled; 1: at once.
    timers: u64,
    /// Resolution of the time that the stack is given, in nanoseconds.
    stamps: u64,
    /// Largest size of the sender's buffer.
    buffer: usize,
    pacing: Pacing,
}

const EXACT: Ablation =
    Ablation { name: "nanoseconds", timers: 1, stamps: 1, buffer: 64 << 20, pacing: Pacing::Required };
const ABLATIONS: [Ablation; 7] = [
    EXACT,
    Ablation { name: "timers 1000 Hz", timers: MS, ..EXACT },
    Ablation { name: "timers 100 Hz", timers: 10 * MS, ..EXACT },
    Ablation { name: "stamps 1000 Hz", stamps: MS, ..EXACT },
    Ablation { name: "stamps 100 Hz", stamps: 10 * MS, ..EXACT },
    // Linux's default of `net.core.wmem_max`.
    Ablation { name: "buffer 208 KB", buffer: 212_992, ..EXACT },
    Ablation { name: "no pacing", pacing: Pacing::Never, ..EXACT },
];

/// A program that polls its stack.
struct Program {
    stack: Stack,
    device: RingDevice,
    socket: SocketId,
    clock: Clock,
    frame: Vec<u8>,
    ablation: Ablation,
    /// When deadlines are handled next.
    next: u64,
}

impl Program {
    fn new(device: RingDevice, ablation: Ablation) -> Result<Program, Failure> {
        let base = Settings::default();
        let settings = Settings {
            tcp_wmem: [base.tcp_wmem[0], base.tcp_wmem[1], ablation.buffer],
            tcp_congestion_control: Bbr1,
            pacing: ablation.pacing,
            ..base
        };
        let mut stack = Stack::new(settings, [ringway_host::random()?, ringway_host::random()?]);
        stack.add_interface(InterfaceConfig {
            mac: [2, 0, 0, 0, 0, 1].into(),
            mtu: 1500,
            addresses: vec![Cidr::new(Bench::FROM, 24)],
            offloads: device.offloads(),
        });
        let clock = Clock::new();
        let socket = stack.connect(clock.now(), Bench::TO.into())?;
        let frame = vec![0; LARGEST as usize];
        Ok(Program { stack, device, socket, clock, frame, ablation, next: 0 })
    }

    fn turn(&mut self) -> Result<(), Failure> {
        let now = self.clock.now() / self.ablation.stamps * self.ablation.stamps;
        for _ in 0..BURST {
            let Some(received) = self.device.receive()? else { break };
            ringway_sockets::pass(&mut self.stack, now, &received, &mut self.frame, None);
        }
        if now >= self.next {
            self.stack.expire(now);
            self.next = (now / self.ablation.timers + 1) * self.ablation.timers;
        }
        self.stack.transmit(now, 0, &mut self.device);
        self.device.flush()?;
        Ok(())
    }

    fn run(mut self, stop: &AtomicBool) -> Result<(), Failure> {
        let block = vec![0x5a; BLOCK];
        while !stop.load(Relaxed) {
            self.turn()?;
            match self.stack.send(self.clock.now(), self.socket, &block) {
                Ok(_) | Err(SocketError::WouldBlock) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Mb/s at the receiver.
fn rate(cell: &Cell, ablation: Ablation, seed: u64, schedule: Schedule) -> Result<f64, Failure> {
    let mut bench = Bench::new(cell, seed)?;
    let device = bench.device.take().ok_or("the device is in use")?;
    let listener = TcpListener::bind(&bench.network, std::net::SocketAddr::from(Bench::TO))?;
    listener.set_nonblocking(true)?;
    let (stop, traffic) = (AtomicBool::new(false), Traffic::default());
    std::thread::scope(|scope| {
        let (stop, traffic) = (&stop, &traffic);
        let receiver = scope.spawn(move || -> Result<(), Failure> {
            let _pinned = Pinned::to(WORKER)?;
            let Some((stream, _)) = accept(stop, || listener.accept())? else { return Ok(()) };
            stream.set_read_timeout(Some(SOCKET_TIMEOUT))?;
            receive(stream, traffic, stop)
        });
        let sender = scope.spawn(move || {
            let _pinned = Pinned::to(LOAD)?;
            Program::new(device, ablation)?.run(stop)
        });
        std::thread::sleep(schedule.warm);
        let (begin, before) = (Instant::now(), traffic.received());
        std::thread::sleep(schedule.time);
        let bits = (traffic.received() - before) as f64 * 8.0;
        let rate = bits / 1e6 / begin.elapsed().as_secs_f64();
        stop.store(true, Relaxed);
        for thread in [receiver, sender] {
            thread.join().map_err(|_| "a thread of a flow failed")??;
        }
        Ok(rate)
    })
}

/// `ablation`.
pub fn row(plan: &Plan) -> Result<Entry, Failure> {
    let near = Cell { limit: "1MB".into(), ..Cell::new(1000, Duration::ZERO, Bbr1) };
    let far = Cell { loss: 1.0, ..Cell::new(1000, Duration::from_millis(40), Bbr1) };
    let short = Schedule { warm: scaled(plan, 0.5), time: scaled(plan, 1.0) };
    let long = Schedule { warm: scaled(plan, 1.5), time: scaled(plan, 3.0) };
    let mut steps = Vec::new();
    for ablation in ABLATIONS {
        let mut rates = [Vec::new(), Vec::new()];
        for round in 0..ROUNDS {
            for ((cell, schedule), rates) in [(&near, short), (&far, long)].into_iter().zip(&mut rates) {
                crate::machine::sample();
                rates.push(rate(cell, ablation, round, schedule)?);
            }
        }
        steps.push((ablation.name, rates));
    }
    let exact = steps.first().map(|(_, rates)| rates[1].clone()).unwrap_or_default();
    let mut entry = Slices::of(&exact, &[]).entry("Mb/s", Better::More);
    for (name, [near, far]) in steps {
        let figure = |rates: &[f64]| median(rates).unwrap_or(f64::NAN);
        entry = entry.step(name, &[("back to back", figure(&near)), ("1% loss, 40 ms", figure(&far))]);
    }
    let note = "the row is the one with exact time and 1% loss; the sender polls on a core of its own";
    Ok(entry.note(note))
}
