//! Connections beside a flood of SYNs of hosts that do not exist.

use super::ends::{HOLD, SERVER, VETH, Veth};
use super::transactions::{Polled, connection_of_kernel};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::fabric::{Harness, SWITCH};
use crate::harness::program::connected;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::peer::net::Space;
use crate::plan::Plan;
use ringway_frame::Offload;
use ringway_host::{TapSettings, open_tap};
use ringway_port::ring::open::Program;
use ringway_ring_client::{Ring, RingOptions};
use ringway_spec::{Kind, Poll, Port, To};
use ringway_wire::tcp::Flags;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Protocol, Tcp, U16, U32};
use std::fs::File;
use std::io::Write;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(200);
/// SYNs a second of the row, and of the steps. 1 Gb/s of shortest frames has 1.5 million.
const ROW: u32 = 200_000;
const STEPS: [u32; 3] = [0, 50_000, 800_000];
/// Floods whose rates differ by more than this are not the same: figures beside them have no ratio.
const SAME: f64 = 0.05;
/// SYNs between two connections at most, and those that are sent at once.
const MOST: u64 = 256;
const BURST: u64 = 64;
/// Our server's Ethernet address, and the flood's.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const FLOOD: [u8; 6] = [2, 0, 0, 0, 1, 2];
/// The Ethernet address of the interface at which the kernel is flooded.
const TAP: [u8; 6] = [2, 0, 0, 0, 1, 1];
/// The options of Linux's SYNs: segment size, SACK, timestamps, window scale.
const OPTIONS: [u8; 20] = [2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];

/// SYNs, each from another address of 10.99.0.0/16 and another port.
struct Syns {
    to: [u8; 6],
    server: ([u8; 4], u16),
    count: u32,
}

impl Syns {
    fn next(&mut self) -> Vec<u8> {
        self.count = self.count.wrapping_add(1);
        let mixed = self.count.wrapping_mul(0x9e37_79b9);
        let [a, b, ..] = mixed.to_be_bytes();
        let tcp = Tcp {
            source_port: U16::new(1024 + (self.count % 60_000) as u16),
            destination_port: U16::new(self.server.1),
            sequence_number: U32::new(mixed),
            data_offset: ((Tcp::LEN + OPTIONS.len()) / 4) as u8 * 16,
            flags: Flags::SYN,
            window: U16::new(64_240),
            ..Tcp::EMPTY
        };
        let mut segment = [tcp.bytes(), &OPTIONS].concat();
        let mut ip = Ipv4 {
            total_length: U16::new((Ipv4::LEN + segment.len()) as u16),
            ttl: 64,
            protocol: Protocol::TCP,
            source: U32::from_bytes([10, 99, a, b]),
            destination: U32::from_bytes(self.server.0),
            ..Ipv4::EMPTY
        };
        ip.fill_checksum(&[]);
        let sum = ip.pseudo_header(segment.len() as u16);
        // The segment has a whole header.
        let _ = Tcp::fill_checksum(&mut segment, sum);
        let ethernet =
            Ethernet { destination: self.to.into(), source: FLOOD.into(), ethertype: EtherType::IPV4 };
        [ethernet.bytes(), ip.bytes(), &segment].concat()
    }
}

/// Sends what is due of a flood.
struct Paced {
    begin: Instant,
    rate: u32,
    sent: u64,
}

impl Paced {
    fn new(rate: u32) -> Paced {
        Paced { begin: Instant::now(), rate, sent: 0 }
    }

    /// How many SYNs are due now.
    fn due(&mut self) -> u64 {
        let due = (self.begin.elapsed().as_secs_f64() * f64::from(self.rate)) as u64;
        let count = due.saturating_sub(self.sent).min(MOST);
        self.sent += count;
        count
    }

    /// Thousands of connections a second, and of SYNs.
    fn run(
        mut self,
        time: Duration,
        mut flood: impl FnMut(u64) -> Result<(), Failure>,
        mut connection: impl FnMut() -> Result<(), Failure>,
    ) -> Result<[f64; 2], Failure> {
        let mut connections = 0;
        while self.begin.elapsed() < time {
            flood(self.due())?;
            connection()?;
            connections += 1;
        }
        let seconds = self.begin.elapsed().as_secs_f64();
        Ok([connections, self.sent].map(|count| count as f64 / 1e3 / seconds))
    }
}

/// A client and a server, and a third program on their switch, which floods.
struct Ours {
    polled: Polled,
    ring: Ring,
    syns: Syns,
    connections: u64,
    _program: Program,
}

impl Ours {
    fn new() -> Result<Ours, Failure> {
        let mut harness = Harness::start(&[WORKER], 3, Poll::Adaptive)?;
        let port = Port::new("flood", Kind::new("ring", &()), Some(To::Switch(SWITCH.into())));
        let options = RingOptions { slots: [512; 2], ..RingOptions::default() };
        let port = connected(&mut harness, Port { hold: Some(HOLD), ..port }, options)?;
        // The client receives the answers, which are not for it, as a router without a route does.
        let polled = Polled::with(harness, |config| {
            config.mac = Some(MAC);
            config.gateways = vec![[10, 96, 0, 1].into()];
        })?;
        let syns = Syns { to: MAC, server: SERVER, count: 0 };
        Ok(Ours { polled, ring: port.ring, syns, connections: 0, _program: port.program })
    }

    fn slice(&mut self, rate: u32, time: Duration) -> Result<[f64; 2], Failure> {
        let Ours { polled, ring, syns, connections, .. } = self;
        let polled = std::cell::RefCell::new(polled);
        let flood = |mut count: u64| {
            while count > 0 {
                let burst = count.min(BURST);
                for _ in 0..burst {
                    let frame = syns.next();
                    while !ring.tx.push(&frame)? {
                        ring.sync()?;
                        polled.borrow_mut().poll()?;
                    }
                }
                ring.sync()?;
                polled.borrow_mut().poll()?;
                count -= burst;
            }
            Ok(())
        };
        Paced::new(rate).run(time, flood, || {
            *connections += 1;
            polled.borrow_mut().connection()
        })
    }

    /// How many of all SYNs were answered by SYN cookies, in percent.
    fn cookies(&mut self) -> f64 {
        let sent = self.polled.server().stack().statistics().syn_cookies_sent;
        100.0 * sent as f64 / (u64::from(self.syns.count) + self.connections).max(1) as f64
    }
}

/// The kernel's server, flooded at a TAP of its own, as by a guest. Its answers stay in the TAP's queue, which is full.
struct Kernel<'a> {
    client: &'a Space,
    listener: std::net::TcpListener,
    tap: File,
    syns: Syns,
}

impl Kernel<'_> {
    fn new(veth: &Veth) -> Result<Kernel<'_>, Failure> {
        let [client, server] = &veth.spaces;
        let settings = TapSettings {
            name: "flood".into(),
            queues: 1,
            mtu: 1500,
            offloads: false,
            mac: Some(TAP),
            address: Some(([10, 98, 0, 1].into(), 24)),
            namespace: None,
        };
        let tap = server.within(|| Ok(open_tap(&settings)?.pop().ok_or("a TAP without a queue")?))?;
        server.ip("route add 10.99.0.0/16 via 10.98.0.2 dev flood")?;
        server.ip("neigh add 10.98.0.2 lladdr 02:00:00:00:01:02 nud permanent dev flood")?;
        let syns = Syns { to: TAP, server: VETH, count: 0 };
        Ok(Kernel { client, listener: veth.listen()?, tap: tap.into(), syns })
    }

    fn slice(&mut self, rate: u32, time: Duration) -> Result<[f64; 2], Failure> {
        let Kernel { client, listener, tap, syns } = self;
        let flood = |count| {
            for _ in 0..count {
                let frame = [&Offload::default().to_bytes()[..], &syns.next()].concat();
                tap.write_all(&frame)?;
            }
            Ok(())
        };
        // The sockets of a thread are its namespace's.
        client.within(|| {
            let _pinned = Pinned::to(LOAD)?;
            Paced::new(rate).run(time, flood, || connection_of_kernel(listener))
        })
    }
}

/// Connections and SYNs a second of both sides.
fn beside(plan: &Plan, rate: u32, ours: &mut Ours, kernel: &mut Kernel<'_>) -> Result<[Slices; 2], Failure> {
    plan.alternate(
        SLICE,
        |time| {
            let _pinned = Pinned::to(LOAD)?;
            ours.slice(rate, time)
        },
        |time| kernel.slice(rate, time),
    )
}

/// `synflood`.
pub fn connections(plan: &Plan) -> Result<Entry, Failure> {
    let veth = Veth::new(true)?;
    let (mut ours, mut kernel) = (Ours::new()?, Kernel::new(&veth)?);
    let [mut connections, syns] = beside(plan, ROW, &mut ours, &mut kernel)?;
    let median = |list: &[f64]| crate::entry::median(list).unwrap_or(f64::NAN);
    let kernels = median(&connections.peer);
    if (median(&syns.ours) / median(&syns.peer) - 1.0).abs() > SAME {
        connections.peer.clear();
    }
    let mut entry = connections
        .entry("thousand/s", Better::More)
        .with("peer, thousand/s", kernels)
        .with("SYNs, thousand/s", median(&syns.ours))
        .with("peer, SYNs, thousand/s", median(&syns.peer))
        .with("SYN cookies, %", ours.cookies());
    for rate in STEPS {
        let [connections, syns] = beside(&plan.part(0.3), rate, &mut ours, &mut kernel)?;
        let figures = [
            ("ours", median(&connections.ours)),
            ("peer", median(&connections.peer)),
            ("SYNs, thousand/s", median(&syns.ours)),
            ("peer, SYNs, thousand/s", median(&syns.peer)),
        ];
        entry = entry.step(format!("{} thousand SYNs a second", rate / 1000), &figures);
    }
    Ok(entry.note(
        "`crr` beside SYNs that one thread sends between its connections, none while it makes one; the \
         kernel's arrive at a TAP; no ratio if the rates of SYNs differ by more than 5%",
    ))
}
