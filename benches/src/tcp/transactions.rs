//! Requests and responses of one byte.

use super::ends::{Ends, SERVER, Veth, connect, host};
use crate::Failure;
use crate::entry::{Better, Entry};
use crate::harness::fabric::Harness;
use crate::harness::program::pipe;
use crate::harness::{LOAD, Pinned, WORKER, times};
use crate::keys::Rows;
use crate::plan::Plan;
use ringway_netstack::{SocketError, SocketId};
use ringway_port::ring::open::Program;
use ringway_ring_client::Ring;
use ringway_sockets::{Cidr, Config, Host, Network, RingDevice, SocketOptions};
use ringway_spec::Poll;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(200);
/// Another byte than the one that was sent arrived, or none.
const WRONG: &str = "a wrong byte arrived";
/// Looks at the receiver after which the sender is polled too: longer than a byte takes in most cases.
const LOOKS: u32 = 256;
/// Connections of `many`, and those with requests.
const CONNECTIONS: usize = 10_000;
const ACTIVE: usize = 1000;

/// Two hosts polled by one thread, a client and a server, and their switch.
pub struct Polled {
    hosts: [Host; 2],
    listener: SocketId,
    /// The last byte that was passed.
    byte: u8,
    _programs: [Program; 2],
    _rig: Harness,
}

impl Polled {
    fn new() -> Result<Polled, Failure> {
        Polled::with(Harness::start(&[WORKER], 2, Poll::Adaptive)?, |_| {})
    }

    /// On a fabric with room for two more ports; `change`: the server's settings.
    pub fn with(mut harness: Harness, change: impl Fn(&mut Config)) -> Result<Polled, Failure> {
        let ((one, first), (mut two, second)) =
            (host(&mut harness, 1, |_| {})?, host(&mut harness, 2, change)?);
        let listener = two.stack().listen(SERVER.into(), 1024)?;
        Ok(Polled { hosts: [one, two], listener, byte: 0, _programs: [first, second], _rig: harness })
    }

    pub fn server(&mut self) -> &mut Host {
        &mut self.hosts[1]
    }

    pub fn poll(&mut self) -> Result<(), Failure> {
        for host in &mut self.hosts {
            host.poll()?;
        }
        Ok(())
    }

    /// A connection's two sockets.
    fn connect(&mut self) -> Result<[SocketId; 2], Failure> {
        let now = self.hosts[0].now();
        let client = self.hosts[0].stack().connect(now, SERVER.into())?;
        loop {
            self.poll()?;
            if let Ok(accepted) = self.hosts[1].stack().accept(self.listener) {
                return Ok([client, accepted.socket]);
            }
        }
    }

    /// As [`Polled::connect`], for many small segments.
    fn connect_undelayed(&mut self) -> Result<[SocketId; 2], Failure> {
        let sockets = self.connect()?;
        for (host, socket) in self.hosts.iter_mut().zip(sockets) {
            let now = host.now();
            let options = SocketOptions { tcp_nodelay: true, ..SocketOptions::default() };
            host.stack().set_options(now, socket, options)?;
        }
        Ok(sockets)
    }

    /// Sends a byte from one host, and receives it at the other.
    fn pass(&mut self, from: usize, sockets: [SocketId; 2]) -> Result<(), Failure> {
        self.byte = self.byte.wrapping_add(1);
        let (host, mut byte) = (&mut self.hosts[from], [self.byte]);
        let now = host.now();
        host.stack().send(now, sockets[from], &byte)?;
        host.poll()?;
        let socket = sockets[1 - from];
        byte = [!self.byte];
        let mut looks = 0_u32;
        loop {
            let host = &mut self.hosts[1 - from];
            host.poll()?;
            let now = host.now();
            match host.stack().recv(now, socket, &mut byte) {
                Ok(_) if byte == [self.byte] => return Ok(()),
                Ok(_) => return Err(WRONG.into()),
                Err(SocketError::WouldBlock) => std::hint::spin_loop(),
                Err(error) => return Err(error.into()),
            }
            looks += 1;
            // What found no room, or was lost, is sent by its sender.
            if looks.is_multiple_of(LOOKS) {
                self.hosts[from].poll()?;
            }
        }
    }

    fn transaction(&mut self, sockets: [SocketId; 2]) -> Result<(), Failure> {
        self.pass(0, sockets)?;
        self.pass(1, sockets)
    }

    /// Connects, exchanges a byte, and closes: the server first, as one of HTTP/1.0.
    pub fn connection(&mut self) -> Result<(), Failure> {
        let sockets = self.connect()?;
        self.transaction(sockets)?;
        let now = self.hosts[1].now();
        self.hosts[1].stack().close(now, sockets[1])?;
        while !self.hosts[0].stack().is_finished(sockets[0])? {
            self.poll()?;
        }
        let now = self.hosts[0].now();
        self.hosts[0].stack().close(now, sockets[0])?;
        // Nobody asks for the events.
        for host in &mut self.hosts {
            while host.stack().next_event().is_some() {}
        }
        self.poll()
    }
}

/// Sends a byte and polls until it arrives.
fn pass(mut from: &TcpStream, mut to: &TcpStream, byte: u8) -> Result<(), Failure> {
    from.write_all(&[byte])?;
    let mut received = [!byte];
    loop {
        match to.read(&mut received) {
            Ok(_) if received == [byte] => return Ok(()),
            Ok(_) => return Err(WRONG.into()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
            Err(error) => return Err(error.into()),
        }
    }
}

/// `rr` and `rr.p99`.
pub fn round_trips(plan: &Plan) -> Rows {
    let [p50, p99, _] = {
        let (mut ours, veth) = (Polled::new()?, Veth::new(true)?);
        let sockets = ours.connect_undelayed()?;
        let (client, server) = veth.connect(&veth.listen()?)?;
        for stream in [&client, &server] {
            stream.set_nonblocking(true)?;
        }
        let _pinned = Pinned::to(LOAD)?;
        let mut byte = 0_u8;
        let mut exchange = || {
            byte = byte.wrapping_add(1);
            pass(&client, &server, byte)?;
            pass(&server, &client, !byte)
        };
        plan.alternate(
            SLICE,
            |time| times(time, || ours.transaction(sockets)),
            |time| times(time, &mut exchange),
        )?
    };
    let note = "both ends in one thread, which polls, as does our worker; steps: a blocking thread each";
    let mut entry = p50.entry("us", Better::Less).ratio_at_most(0.5).note(note);
    let through = |spin| (format!("blocking, ours spins {spin} us"), Some(Duration::from_micros(spin)));
    for (name, spin) in [through(0), through(50), ("blocking, a pipe in the switch's place".into(), None)] {
        let part = plan.part(0.3);
        let [ours, peer] = spin.map_or_else(|| on_pipe(&part), |spin| blocking(&part, spin))?;
        let figures =
            [("us", ours[0]), ("p99, us", ours[1]), ("peer, us", peer[0]), ("peer, p99, us", peer[1])];
        entry = entry.step(name, &figures);
    }
    Ok(vec![entry, p99.entry("us", Better::Less).ratio_at_most(0.5).note(note)])
}

/// Medians of p50 and p99 with a blocking thread at each end.
fn blocking(plan: &Plan, spin: Duration) -> Result<[[f64; 2]; 2], Failure> {
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    let mut one = |last| host(&mut harness, last, |config| config.spin = spin);
    let ((one, _first), (two, _second)) = (one(1)?, one(2)?);
    beside_veth(plan, connect(&Network::start(one)?, &Network::start(two)?)?)
}

/// As [`blocking`], on a pipe.
fn on_pipe(plan: &Plan) -> Result<[[f64; 2]; 2], Failure> {
    let (one, two, _pipe) = pipe(512)?;
    let network = |ring: Ring, last: u8| {
        Network::new(RingDevice::from(ring), Config::new(Cidr::new([10, 96, 0, last], 24)))
    };
    beside_veth(plan, connect(&network(one, 1)?, &network(two, 2)?)?)
}

/// Medians of p50 and p99 of ours, and of the kernel's over veth.
fn beside_veth(plan: &Plan, ours: Ends) -> Result<[[f64; 2]; 2], Failure> {
    let veth = Veth::new(true)?;
    let (client, server) = veth.connect(&veth.listen()?)?;
    let mut figures = [[const { Vec::new() }; 2], [const { Vec::new() }; 2]];
    let mut sides: [Ends; 2] = [ours, (Box::new(client), Box::new(server))];
    for _ in 0..plan.slices(2 * SLICE) {
        for (ends, figures) in sides.iter_mut().zip(&mut figures) {
            let measured = answered(ends, SLICE)?;
            figures.iter_mut().zip(measured).for_each(|(list, figure)| list.push(figure));
        }
    }
    let median = |list: &Vec<f64>| crate::entry::median(list).unwrap_or(f64::NAN);
    Ok(figures.map(|side| [median(&side[0]), median(&side[1])]))
}

/// p50 and p99 while a thread answers.
fn answered((client, server): &mut Ends, time: Duration) -> Result<[f64; 2], Failure> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> std::io::Result<()> {
            let mut byte = [0];
            // A 0 ends the slice.
            loop {
                server.read_exact(&mut byte)?;
                server.write_all(&byte)?;
                if byte == [0] {
                    return Ok(());
                }
            }
        });
        let mut exchange = |byte: u8| -> Result<(), Failure> {
            let mut received = [!byte];
            client.write_all(&[byte])?;
            client.read_exact(&mut received)?;
            if received == [byte] { Ok(()) } else { Err(WRONG.into()) }
        };
        let mut byte = 0_u8;
        let [p50, p99, _] = times(time, || {
            byte = byte % 255 + 1;
            exchange(byte)
        })?;
        exchange(0)?;
        thread.join().map_err(|_| "the server failed")??;
        Ok([p50, p99])
    })
}

/// A connection of the kernel's to a server of the same thread, as [`Polled::connection`].
pub fn connection_of_kernel(listener: &TcpListener) -> Result<(), Failure> {
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _peer) = listener.accept()?;
    for byte in [1, 2] {
        let mut received = [0];
        client.write_all(&[byte])?;
        server.read_exact(&mut received)?;
        std::mem::swap(&mut client, &mut server);
        if received != [byte] {
            return Err(WRONG.into());
        }
    }
    drop(server);
    if client.read(&mut [0])? == 0 { Ok(()) } else { Err(WRONG.into()) }
}

/// `crr`.
pub fn connections(plan: &Plan) -> Result<Entry, Failure> {
    let veth = Veth::new(true)?;
    let listener = veth.listen()?;
    // The sockets of this thread are the client's namespace's.
    let slices = veth.spaces[0].within(|| {
        let mut ours = Polled::new()?;
        let _pinned = Pinned::to(LOAD)?;
        plan.pairs(
            SLICE,
            |time| Ok(times(time, || ours.connection())?[2]),
            |time| Ok(times(time, || connection_of_kernel(&listener))?[2]),
        )
    })?;
    let entry = slices.entry("thousand/s", Better::More).ratio_at_least(2.0);
    Ok(entry.note("both ends in one thread; the server closes first"))
}

/// `many`.
pub fn many(plan: &Plan) -> Result<Entry, Failure> {
    let (mut ours, mut single) = (Polled::new()?, Polled::new()?);
    let one = single.connect_undelayed()?;
    let mut active = Vec::new();
    for number in 0..CONNECTIONS {
        let sockets = ours.connect_undelayed()?;
        if number % (CONNECTIONS / ACTIVE) == 0 {
            active.push(sockets[0]);
        }
    }
    // The last byte that each client sent, by socket.
    let last = active.iter().map(|socket| socket.index()).max().unwrap_or(0);
    let mut requests = vec![1_u8; last + 1];
    while ours.hosts.iter_mut().any(|host| host.stack().next_event().is_some()) {}
    for socket in active {
        let now = ours.hosts[0].now();
        ours.hosts[0].stack().send(now, socket, &[1])?;
    }
    let _pinned = Pinned::to(LOAD)?;
    let rate = |time: Duration| -> Result<f64, Failure> {
        let (begin, mut count) = (Instant::now(), 0);
        while begin.elapsed() < time {
            ours.poll()?;
            count += answer_all(&mut ours.hosts[0], |socket, byte| {
                let request = requests.get_mut(socket.index()).filter(|request| **request == byte)?;
                *request = request.wrapping_add(1);
                Some(*request)
            })?;
            answer_all(&mut ours.hosts[1], |_, byte| Some(byte))?;
        }
        Ok(count as f64 / 1e3 / begin.elapsed().as_secs_f64())
    };
    let slices = plan.pairs(SLICE, rate, |time| Ok(times(time, || single.transaction(one))?[2]))?;
    let entry = slices.entry("thousand/s", Better::More).ratio_at_least(0.8);
    Ok(entry.note("both ends in one thread; peer: ours with one connection (`rr`)"))
}

/// Answers each received byte by another, or fails if there is none; their number.
fn answer_all(host: &mut Host, mut answer: impl FnMut(SocketId, u8) -> Option<u8>) -> Result<usize, Failure> {
    let (now, mut count, mut byte) = (host.now(), 0, [0]);
    while let Some((socket, ready)) = host.stack().next_event() {
        if ready.readable && host.stack().recv(now, socket, &mut byte).is_ok() {
            let answer = answer(socket, byte[0]).ok_or(WRONG)?;
            host.stack().send(now, socket, &[answer])?;
            count += 1;
        }
    }
    Ok(count)
}
