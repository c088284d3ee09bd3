//! Broadcast from one source to many, programs or guests: cost per delivered frame.

use crate::Failure;
use crate::entry::{Better, Entry, Slices, interval};
use crate::harness::fabric::{Harness, vhost_user};
use crate::harness::fan::{self, Fan};
use crate::harness::program::{OnPort, on_port};
use crate::harness::sequence::Payload;
use crate::harness::stream::Stream;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::keys::Folder;
use crate::peer::Peer;
use crate::peer::net::{Space, bridge, ip};
use crate::peer::ovs::Ovs;
use crate::plan::Plan;
use ringway_spec::Poll;
use std::net::UdpSocket;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(100);
const SLOTS: u32 = 256;
const COUNTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// Numbers of receiving guests.
const GUESTS: [usize; 3] = [1, 8, 64];

/// To programs.
pub fn fanout(plan: &Plan) -> Result<Entry, Failure> {
    let plan = plan.part(2.0 / COUNTS.len() as f64);
    let mut steps: Vec<(usize, Slices)> = Vec::new();
    let mut lacking = None;
    for count in COUNTS {
        let mut harness = Harness::start(&[WORKER], count + 1, Poll::Adaptive)?;
        let mut source = on_port(&mut harness, "source", SLOTS)?;
        let to: Result<Vec<OnPort>, Failure> =
            (0..count).map(|index| on_port(&mut harness, &format!("to{index}"), SLOTS)).collect();
        let mut to = to?;
        let bridge = Flood::new(count);
        let _pinned = Pinned::to(LOAD)?;
        let mut stream = Stream::new(&mut source, to.iter_mut().collect(), 64, 0)?;
        let mut ours = |time| stream.rate(Payload::Untouched, time).map(|rate| 1e9 / rate);
        let slices = match &bridge {
            Ok(bridge) => plan.pairs(SLICE, ours, |time| bridge.cost(time))?,
            Err(error) => {
                lacking = Some(error.to_string());
                plan.alone(SLICE, &mut ours)?
            }
        };
        steps.push((count, slices));
    }
    let (_, widest) = steps.last().ok_or("no step")?;
    let mut entry = widest.entry("ns", Better::Less);
    // Intervals must not overlap.
    let bounds = |slices: &Slices| interval(&slices.ours).unwrap_or([f64::NAN; 2]);
    let falls = bounds(&steps[0].1)[0] > bounds(widest)[1];
    entry = entry.ratio_at_most(0.2).mark("falls with the count", falls);
    for (count, slices) in &steps {
        let row = slices.entry("", Better::Less);
        let figures = [("ns", row.ours), ("bridge, ns", row.peer), ("ratio", row.ratio)];
        let figures: Vec<(&str, f64)> =
            figures.into_iter().filter_map(|(name, figure)| Some((name, figure?))).collect();
        entry = entry.step(format!("{count} destinations"), &figures);
    }
    let note = "a 64 B frame at 64 destinations; peer: Linux bridge over veth, UDP broadcast";
    Ok(match lacking {
        Some(error) => entry.note(format!("no peer: {error}")),
        None => entry.note(note),
    })
}

/// Guests on vhost-user ports, which number and verify frames: ours and Open vSwitch.
pub fn beside_ovs(plan: &Plan) -> Result<Entry, Failure> {
    let plan = plan.part(1.0 / GUESTS.len() as f64);
    let (mut entry, mut steps) = (Entry::default(), Entry::default());
    for count in GUESTS {
        let folder = Folder::new()?;
        let (our_homes, their_homes) = (fan::guest_memories(count)?, fan::guest_memories(count)?);
        let (mut near, mut far) = (Fan::new(&our_homes)?, Fan::new(&their_homes)?);
        let ports: Vec<String> = (0..=count).map(|index| format!("guest{index}")).collect();
        let ovs = Ovs::start(folder.path(), &ports, WORKER)?;
        let sockets = ports.iter().map(|port| UnixStream::connect(ovs.socket(port)));
        let _theirs = fan::connect(&their_homes, &far.wires(), sockets.collect::<Result<_, _>>()?)?;
        let mut harness = Harness::start(&[WORKER], count + 1, Poll::Adaptive)?;
        let (mut sockets, wires) = (Vec::new(), near.wires());
        for port in &ports {
            let (near, far) = UnixStream::pair()?;
            harness.add(port, vhost_user())?;
            harness.attach(port, vec![far.into()])?;
            sockets.push(near);
        }
        let _ours = harness.serve_while(|| fan::connect(&our_homes, &wires, sockets))?;
        harness.serve_until(Duration::from_secs(5), Harness::is_up)?;
        let _pinned = Pinned::to(LOAD)?;
        far.begin()?;
        ovs.run(false)?;
        near.begin()?;
        let theirs = |time| {
            ovs.run(true)?;
            let cost = far.cost(time);
            ovs.run(false)?;
            cost
        };
        let slices = plan.pairs(SLICE, |time| near.cost(time), theirs)?;
        steps = steps.step_of(format!("{count} destinations"), &slices);
        entry = slices.entry("ns", Better::Less).ratio_at_most(0.5);
        entry = entry.with("frames lost", near.lost as f64).with("frames lost by the peer", far.lost as f64);
    }
    let note =
        "a 64 B frame at 64 guests, numbered and verified; peer: Open vSwitch with DPDK, NORMAL, one PMD";
    Ok(Entry { steps: steps.steps, ..entry }.note(note))
}

/// A bridge with a sender and `count` others, over veth.
struct Flood {
    socket: UdpSocket,
    space: Space,
    count: usize,
}

const BROADCAST: &str = "10.99.255.255:9";

impl Flood {
    fn new(count: usize) -> Result<Flood, Failure> {
        let space = Space::new()?;
        bridge("flood")?;
        ip("link add from type veth peer name from-br")?;
        ip("link set from-br addrgenmode none master flood up")?;
        ip("addr add 10.99.0.1/16 dev from")?;
        ip("link set from addrgenmode none up")?;
        for index in 0..count {
            ip(&format!("link add to{index} type veth peer name to{index}-br"))?;
            ip(&format!("link set to{index}-br addrgenmode none master flood up"))?;
            space.take_silently(&format!("to{index}"))?;
        }
        let socket = UdpSocket::bind("10.99.0.1:0")?;
        socket.set_broadcast(true)?;
        let flood = Flood { socket, space, count };
        // A bridge's ports begin to forward some time after they come up.
        let end = Instant::now() + Duration::from_secs(3);
        while flood.delivered()? == 0 && Instant::now() < end {
            flood.send()?;
        }
        Ok(flood)
    }

    fn send(&self) -> Result<(), Failure> {
        // 64 bytes with headers.
        self.socket.send_to(&[0; 22], BROADCAST)?;
        Ok(())
    }

    /// Frames received by all destinations so far.
    fn delivered(&self) -> Result<u64, Failure> {
        let output = self.space.command("cat").arg("/proc/net/dev").output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let rows = text.lines().filter_map(|line| line.trim_start().strip_prefix("to")?.split_once(':'));
        Ok(rows.filter_map(|(_, figures)| figures.split_whitespace().nth(1)?.parse::<u64>().ok()).sum())
    }

    /// Nanoseconds per delivered frame: the sender's own core does all the work.
    fn cost(&self, time: Duration) -> Result<f64, Failure> {
        let before = self.delivered()?;
        let begin = Instant::now();
        while begin.elapsed() < time {
            for _ in 0..8 {
                self.send()?;
            }
        }
        let elapsed = begin.elapsed();
        let delivered = self.delivered()? - before;
        if delivered < self.count as u64 {
            return Err("the bridge delivers nothing".into());
        }
        Ok(elapsed.as_nanos() as f64 / delivered as f64)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        // Deleting the namespace deletes its interfaces and their other ends.
        let _ = ip("link del from");
        let _ = ip("link del flood");
    }
}
