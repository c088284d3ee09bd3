//! One stream at full speed.

use super::ends::{Ends, SERVER, Stream, Veth, connect, host};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::WORKER;
use crate::harness::fabric::{Harness, SWITCH};
use crate::keys::Rows;
use crate::peer::net::Space;
use crate::plan::Plan;
use ringway_port::ring::open::Program;
use ringway_sockets::Network;
use ringway_spec::{Poll, To};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(500);
/// Part of a slice in which the stream gets up to its speed.
const WARM: Duration = Duration::from_millis(50);
/// Bytes of a call.
const BLOCK: usize = 128 << 10;
/// Bytes after which the payload repeats: a prime, so that no number of segments or slots is a multiple of it.
const PERIOD: usize = 4093;

/// A period of payload, and a block more, so that a block begins anywhere in the first period.
fn payload() -> Vec<u8> {
    (0..PERIOD + BLOCK).map(|at| ((at % PERIOD) as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0]).collect()
}

/// Gb/s at the receiver, which compares each byte, and milliseconds of CPU time for a gigabit.
fn transfer((mut sender, receiver): Ends, time: Duration) -> Result<[f64; 2], Failure> {
    let (stop, payload) = (AtomicBool::new(false), payload());
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> std::io::Result<u64> {
            let mut sent = 0;
            while !stop.load(Relaxed) {
                sender.write_all(&payload[sent as usize % PERIOD..][..BLOCK])?;
                sent += BLOCK as u64;
            }
            sender.finish()?;
            Ok(sent)
        });
        let mut checked = Checked { stream: receiver, block: vec![0; BLOCK], payload: &payload, count: 0 };
        checked.receive(WARM)?;
        let (begin, cpu, before) = (Instant::now(), machine_time()?, checked.count);
        checked.receive(time)?;
        let (seconds, cpu) = (begin.elapsed().as_secs_f64(), machine_time()? - cpu);
        let gigabits = (checked.count - before) as f64 * 8e-9;
        stop.store(true, Relaxed);
        while checked.read()? > 0 {}
        if thread.join().map_err(|_| "the sender failed")?? != checked.count {
            return Err("bytes are missing at the end of the stream".into());
        }
        Ok([gigabits / seconds, 1e3 * cpu / gigabits])
    })
}

/// A receiver of [`payload`].
struct Checked<'a> {
    stream: Box<dyn Stream>,
    block: Vec<u8>,
    payload: &'a [u8],
    count: u64,
}

impl Checked<'_> {
    /// Reads once; the number of bytes.
    fn read(&mut self) -> Result<usize, Failure> {
        let len = self.stream.read(&mut self.block)?;
        if self.block[..len] != self.payload[self.count as usize % PERIOD..][..len] {
            return Err(format!("wrong bytes after {}", self.count).into());
        }
        self.count += len as u64;
        Ok(len)
    }

    /// Reads for `time`.
    fn receive(&mut self, time: Duration) -> Result<(), Failure> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            if self.read()? == 0 {
                return Err("the stream ended".into());
            }
        }
        Ok(())
    }
}

/// Seconds in which this machine's cores were not idle.
pub fn machine_time() -> Result<f64, Failure> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().unwrap_or_default();
    let times: Vec<f64> = line.split_whitespace().skip(1).map(|time| time.parse().unwrap_or(0.0)).collect();
    let busy = |(number, time): (usize, &f64)| if number == 3 || number == 4 { 0.0 } else { *time };
    // User, nice, system, idle, iowait, irq, softirq, steal, in hundredths of a second.
    Ok(times.iter().take(8).enumerate().map(busy).sum::<f64>() / 100.0)
}

/// Two networks on a switch.
struct Ours {
    networks: [Network; 2],
    _programs: [Program; 2],
    _rig: Harness,
}

impl Ours {
    fn new(offloads: bool) -> Result<Ours, Failure> {
        let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
        let mut one = |last| host(&mut harness, last, |config| config.offloads = offloads);
        let ((one, first), (two, second)) = (one(1)?, one(2)?);
        let networks = [Network::start(one)?, Network::start(two)?];
        Ok(Ours { networks, _programs: [first, second], _rig: harness })
    }
}

/// Rates and CPU times of both.
fn slices(plan: &Plan, offloads: bool) -> Result<[Slices; 2], Failure> {
    let (ours, veth) = (Ours::new(offloads)?, Veth::new(offloads)?);
    let listener = veth.listen()?;
    let [client, server] = &ours.networks;
    plan.alternate(
        SLICE,
        |time| transfer(connect(client, server)?, time),
        |time| {
            let (client, server) = veth.connect(&listener)?;
            transfer((Box::new(client), Box::new(server)), time)
        },
    )
}

/// `bulk` and `cpu.per.gbit`.
pub fn whole(plan: &Plan) -> Rows {
    let [rates, costs] = slices(plan, true)?;
    let note = "one thread each sends and receives, blocking, 128 KB a call; a worker between ours";
    let rate = rates.entry("Gb/s", Better::More).ratio_at_least(1.5).note(note);
    Ok(vec![rate, costs.entry("ms", Better::Less).note("all that the machine did in the time of `bulk`")])
}

/// `bulk.mtu1500`.
pub fn segmented(plan: &Plan) -> Result<Entry, Failure> {
    let [rates, _] = slices(plan, false)?;
    Ok(rates
        .entry("Gb/s", Better::More)
        .ratio_at_least(1.0)
        .note("no segmentation or checksum left to a device"))
}

/// A program on the switch, and two kernels behind TAPs of it.
struct WithKernel {
    network: Network,
    spaces: [Space; 2],
    listener: std::net::TcpListener,
    _program: Program,
    _rig: Harness,
}

impl WithKernel {
    fn new() -> Result<WithKernel, Failure> {
        let spaces = [Space::new()?, Space::new()?];
        let mut harness = Harness::start(&[WORKER], 3, Poll::Adaptive)?;
        let (host, program) = host(&mut harness, 1, |_| {})?;
        for (last, space) in (2..).zip(&spaces) {
            let name = format!("tap{last}");
            harness.add_tap(&name, To::Switch(SWITCH.into()))?;
            space.take_with_cubic(&name, [10, 96, 0, last])?;
        }
        let listener = spaces[0].within(|| Ok(std::net::TcpListener::bind(SocketAddr::from(SERVER))?))?;
        Ok(WithKernel { network: Network::start(host)?, spaces, listener, _program: program, _rig: harness })
    }

    /// A connection from us, or from the other kernel.
    fn connect(&self, ours: bool) -> Result<Ends, Failure> {
        let server = SocketAddr::from(SERVER);
        let client: Box<dyn Stream> = if ours {
            Box::new(ringway_sockets::TcpStream::connect(&self.network, server)?)
        } else {
            Box::new(self.spaces[1].within(|| Ok(std::net::TcpStream::connect(server)?))?)
        };
        Ok((client, Box::new(self.listener.accept()?.0)))
    }
}

fn with_kernel(plan: &Plan, back: bool) -> Result<Entry, Failure> {
    let harness = WithKernel::new()?;
    let rate = |ours: bool, time: Duration| -> Result<f64, Failure> {
        let (client, server) = harness.connect(ours)?;
        Ok(transfer(if back { (server, client) } else { (client, server) }, time)?[0])
    };
    let slices = plan.pairs(SLICE, |time| rate(true, time), |time| rate(false, time))?;
    let entry = slices.entry("Gb/s", Better::More).ratio_at_least(0.9);
    Ok(entry.note("peer: two kernels, two TAPs of the same switch"))
}

/// `bulk.kernel`.
pub fn to_kernel(plan: &Plan) -> Result<Entry, Failure> {
    with_kernel(plan, false)
}

/// `bulk.kernel.back`.
pub fn from_kernel(plan: &Plan) -> Result<Entry, Failure> {
    with_kernel(plan, true)
}
