//! The TCP/IP stack and the host's Linux kernel, over a TAP in a network namespace: both roles, both IP versions,
//! streams in both directions at once. The test runs itself again in the namespace, which needs root or a kernel
//! that permits user namespaces.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../crates/net/netstack/tests/common/mod.rs"]
mod common;
#[path = "../../crates/switch/port/tests/namespace/mod.rs"]
mod namespace;

use common::{byte, drain, fill};
use ringway_frame::packet::{Packet, Pool};
use ringway_frame::{LARGEST, Needs, Offload};
use ringway_host::{TAP_HEADER, TapSettings, open_tap, wait_readable};
use ringway_link::{Capacity, Delay, Link, Loss, Profile, Queue, Reason};
use ringway_netstack::{Frames, MS, Settings, SocketId, Stack, TcpInfo};
use ringway_sockets::{Config, Network, TapDevice};
use ringway_tests::tshark::{BUSY, Capture, LOSSES};
use ringway_tests::{eventually, say};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longer than any exchange takes.
const BOUND: Duration = Duration::from_secs(100);
/// The stack's port.
const PORT: u16 = 7001;

fn main() {
    namespace::within(within);
}

fn within() {
    // The kernel requests ECN too; its IPv6 addresses can be used at once. Without the right to change that, it takes
    // longer, and the kernel only accepts ECN.
    let settings =
        [("ipv4/tcp_ecn", "1"), ("ipv6/conf/all/accept_dad", "0"), ("ipv6/conf/default/accept_dad", "0")];
    let done =
        settings.map(|(name, value)| std::fs::write(Path::new("/proc/sys/net").join(name), value).is_ok());
    let families: &[bool] = if Path::new("/proc/net/if_inet6").exists() { &[false, true] } else { &[false] };
    if families.len() < 2 {
        say("left out: the kernel has no IPv6");
    }
    sockets_on_a_tap();
    for &six in families {
        for stack_connects in [true, false] {
            let pairing = Pairing { six, stack_connects };
            unsegmented(pairing);
            on_a_wire(pairing);
            on_a_bad_wire(pairing, stack_connects || done[0]);
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Pairing {
    six: bool,
    stack_connects: bool,
}

impl Pairing {
    fn address(self, last: u8, port: u16) -> SocketAddr {
        let ip: IpAddr = match self.six {
            false => [10, 0, 0, last].into(),
            true => [0xfd00, 0, 0, 0, 0, 0, 0, last.into()].into(),
        };
        SocketAddr::new(ip, port)
    }
}

/// Frames of 64 KB with checksums to fill, both ways.
fn unsegmented(pairing: Pairing) {
    let mut machine = Machine::new(pairing, Needs::ALL, None);
    let info = machine.exchange(8 << 20);
    assert!(info.tcpi_options_sack && info.tcpi_options_timestamps && info.tcpi_snd_wscale > 0, "{info:?}");
    assert!(info.tcpi_segs_in < (8 << 20) / 1448, "the kernel segments: {info:?}");
    machine.analyse_unsegmented();
}

/// Every frame has at most 1514 bytes and valid checksums.
fn on_a_wire(pairing: Pairing) {
    let mut machine = Machine::new(pairing, Needs::NONE, None);
    machine.exchange(2 << 20);
    machine.analyse(true);
}

/// Losses, duplicates, marks, overtaking frames, and a queue that overflows. All but the queue are drawn from the
/// seed, whatever the timing, so a stream of 700 frames has some of each.
fn on_a_bad_wire(pairing: Pairing, ecn: bool) {
    let profile = Profile {
        rate: Some(50_000_000),
        queue: Queue::DropTail { limit: Capacity::Frames(100), mark: None },
        delay: Delay::Uniform { delay: 2 * MS, jitter: MS },
        reorder: true,
        loss: Loss::Random(0.01),
        mark: 0.02,
        duplicate: 0.01,
        ..Profile::default()
    };
    let mut machine = Machine::new(pairing, Needs::NONE, Some(profile));
    let info = machine.exchange(1 << 20);
    for link in machine.links.iter().flatten() {
        let counters = link.counters();
        let lost = counters.drops[Reason::Lost as usize];
        assert!(lost > 0 && counters.duplicated > 0 && counters.reordered > 0, "{counters:?}");
        assert!(counters.marked > 0 || !ecn, "{counters:?}");
    }
    assert!(info.tcpi_options_ecn == ecn && info.tcpi_total_retrans > 0, "{info:?}");
    machine.analyse(false);
}

/// A program's sockets on a TAP of its own, in both roles.
fn sockets_on_a_tap() {
    const LEN: u64 = 4 << 20;
    let settings = TapSettings {
        name: "program0".into(),
        queues: 1,
        mtu: common::MTU as u16,
        offloads: true,
        mac: None,
        address: Some(([10, 1, 0, 1].into(), 24)),
        namespace: None,
    };
    let device = TapDevice::open(&settings).unwrap();
    let network = Network::new(device, Config::new("10.1.0.2/24".parse().unwrap())).unwrap();
    let kernel = bind(([10, 1, 0, 1], 0).into());
    let address = kernel.local_addr().unwrap();
    let program = std::thread::spawn(move || talk(kernel.accept().unwrap().0, LEN));
    exchange(ringway_sockets::TcpStream::connect(&network, address).unwrap(), LEN);
    program.join().unwrap();
    let listener = ringway_sockets::TcpListener::bind(&network, format!("10.1.0.2:{PORT}")).unwrap();
    let program = std::thread::spawn(|| talk(dial(([10, 1, 0, 2], PORT).into()), LEN));
    exchange(listener.accept().unwrap().0, LEN);
    program.join().unwrap();
}

/// The program's side of a connection, as [`talk`].
fn exchange(stream: ringway_sockets::TcpStream, len: u64) {
    stream.set_read_timeout(Some(BOUND)).unwrap();
    both_ways(stream.try_clone().unwrap(), stream, |stream| stream.shutdown(Shutdown::Write).unwrap(), len);
}

/// A stack with a TAP as its interface.
struct Machine {
    pairing: Pairing,
    stack: Stack,
    tap: File,
    pool: Pool,
    /// The links to the kernel and from it.
    links: Option<[Link<Packet>; 2]>,
    capture: Capture,
    started: Instant,
}

impl Machine {
    fn new(pairing: Pairing, offloads: Needs, profile: Option<Profile>) -> Machine {
        let settings = TapSettings {
            name: "kernel0".into(),
            queues: 1,
            mtu: common::MTU as u16,
            offloads: offloads != Needs::NONE,
            mac: Some([2, 0, 0, 0, 0, 1]),
            address: Some((pairing.address(1, 0).ip(), if pairing.six { 64 } else { 24 })),
            namespace: None,
        };
        let tap = open_tap(&settings).unwrap().pop().unwrap();
        let link = |profile: &Profile, seed| Link::new(profile.clone(), seed).unwrap();
        Machine {
            pairing,
            stack: common::host(2, Settings { tcp_ecn: 1, ..Settings::default() }, offloads),
            tap: tap.into(),
            pool: Pool::new(),
            links: profile.map(|profile| [link(&profile, 1), link(&profile, 2)]),
            capture: Capture::default(),
            started: Instant::now(),
        }
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Sends `len` bytes each way, until both programs have read everything; the stack's figures at the end.
    fn exchange(&mut self, len: u64) -> TcpInfo {
        let stack = self.pairing.address(2, PORT);
        let (program, socket) = if self.pairing.stack_connects {
            let listener = bind(self.pairing.address(1, 0));
            let kernel = listener.local_addr().unwrap();
            let program = std::thread::spawn(move || talk(listener.accept().unwrap().0, len));
            (program, self.stack.connect(self.now(), kernel).unwrap())
        } else {
            let listener = self.stack.listen(stack, 1).unwrap();
            let program = std::thread::spawn(move || talk(dial(stack), len));
            let mut accepted = None;
            while accepted.is_none() {
                self.turn(&program);
                accepted = self.stack.accept(listener).ok();
            }
            (program, accepted.unwrap().socket)
        };
        let info = self.stream(&program, socket, len);
        // What the kernel sends again to the next machine, at the same address, would be reset.
        while !program.is_finished() || kernel_has_unfinished() {
            self.turn(&program);
        }
        program.join().unwrap();
        info
    }

    fn stream(&mut self, program: &JoinHandle<()>, socket: SocketId, len: u64) -> TcpInfo {
        let (mut sent, mut read) = (0, 0);
        loop {
            let now = self.now();
            sent = fill(&mut self.stack, now, socket, sent, len);
            if sent == len {
                self.stack.shutdown(now, socket).unwrap();
            }
            read = drain(&mut self.stack, now, socket, read);
            if sent == len && self.stack.is_finished(socket).unwrap() {
                assert_eq!((self.stack.error(socket), read), (Ok(None), len));
                let info = self.stack.info(socket).unwrap();
                self.stack.close(now, socket).unwrap();
                return info;
            }
            self.turn(program);
        }
    }

    /// Receives and sends; waits for a frame or a deadline.
    fn turn(&mut self, program: &JoinHandle<()>) {
        assert!(
            self.started.elapsed() < BOUND,
            "it takes too long: {:?} {:?}",
            self.pairing,
            self.stack.statistics()
        );
        let mut frames = Frames::default();
        let now = self.now();
        self.stack.expire(now);
        self.stack.transmit(now, 0, &mut frames);
        for (frame, offload) in frames.iter() {
            match &mut self.links {
                Some([down, _]) => down.send(self.pool.copy(frame).unwrap(), now),
                None => self.write(now, frame, offload),
            }
        }
        let arrivals = |link: &mut Link<Packet>| std::iter::from_fn(|| link.receive(now)).collect::<Vec<_>>();
        if let Some([down, up]) = &mut self.links {
            let (to_kernel, to_stack) = (arrivals(down), arrivals(up));
            for (packet, _) in to_kernel {
                self.write(now, packet.data(), Offload::default());
            }
            for (packet, _) in to_stack {
                self.stack.receive(now, 0, packet.data(), Offload::default());
            }
        }
        let due = self.links.iter().flatten().filter_map(Link::due).chain(self.stack.next_deadline()).min();
        // The kernel's program may end without a frame.
        let most = if program.is_finished() { 0 } else { 10 * MS };
        let wait = due.map_or(most, |due| due.saturating_sub(now).min(most));
        if wait_readable(&[self.tap.as_fd()], Some(wait)).unwrap()[0] {
            self.read();
        }
    }

    fn read(&mut self) {
        let mut bytes = vec![0; TAP_HEADER + LARGEST as usize];
        loop {
            let len = match self.tap.read(&mut bytes) {
                Ok(len) => len,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => panic!("{error}"),
            };
            let now = self.now();
            let (header, frame) = bytes[..len].split_first_chunk().unwrap();
            self.capture.record(now, frame);
            match &mut self.links {
                Some([_, up]) => up.send(self.pool.copy(frame).unwrap(), now),
                None => self.stack.receive(now, 0, frame, Offload::from_bytes(header)),
            }
        }
    }

    fn write(&mut self, now: u64, frame: &[u8], offload: Offload) {
        self.capture.record(now, frame);
        let bytes = [&offload.to_bytes()[..], frame].concat();
        assert_eq!(self.tap.write(&bytes).unwrap(), bytes.len());
    }

    /// As [`Machine::analyse`], of frames whose checksums are not filled.
    fn analyse_unsegmented(&self) {
        let findings = self.capture.findings("kernel", false, &BUSY).unwrap().unwrap_or_default();
        assert!(findings.is_empty(), "{:?}: {}", self.pairing, findings.join("\n"));
    }

    /// Has tshark look for malformed frames, wrong checksums and unexpected segments. Nothing is lost on its way to the
    /// capture on a perfect wire; on a bad one, what the link loses, repeats and reorders before it is captured.
    fn analyse(&self, perfect: bool) {
        let losses: &[&str] = if perfect { &[] } else { &LOSSES };
        let explained = [&BUSY, losses].concat();
        let findings = self.capture.findings("kernel", true, &explained).unwrap().unwrap_or_default();
        assert!(findings.is_empty(), "{:?}: {}", self.pairing, findings.join("\n"));
    }
}

/// Whether a connection of the namespace is neither ended nor in TIME-WAIT (proc_net_tcp.txt of the kernel's
/// documentation).
fn kernel_has_unfinished() -> bool {
    const TIME_WAIT: &str = "06";
    let tables = ["tcp", "tcp6"].map(|name| std::fs::read_to_string(Path::new("/proc/net").join(name)));
    tables
        .into_iter()
        .flatten()
        .any(|table| table.lines().skip(1).any(|line| line.split_whitespace().nth(3) != Some(TIME_WAIT)))
}

/// Listens on the kernel's address, which may not be usable yet.
fn bind(address: SocketAddr) -> TcpListener {
    let mut listener = None;
    eventually(BOUND, || {
        listener = TcpListener::bind(address).ok();
        listener.is_some()
    });
    listener.unwrap()
}

/// Connects from the kernel's address, which may not be usable yet.
fn dial(address: SocketAddr) -> TcpStream {
    let mut stream = None;
    eventually(BOUND, || {
        let dialled = TcpStream::connect(address);
        let is_early = dialled.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrNotAvailable);
        stream = (!is_early).then_some(dialled);
        !is_early
    });
    stream.unwrap().unwrap()
}

/// The kernel's side of a connection: writes and reads a stream.
fn talk(stream: TcpStream, len: u64) {
    both_ways(stream.try_clone().unwrap(), stream, |stream| stream.shutdown(Shutdown::Write).unwrap(), len);
}

/// Writes and reads a stream at the same time. `end`: ends what is written.
fn both_ways<S: Read + Write + Send + 'static>(mut sending: S, mut receiving: S, end: fn(&S), len: u64) {
    let writer = std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        sending.write_all(&bytes).unwrap();
        end(&sending);
    });
    let mut bytes = Vec::new();
    receiving.read_to_end(&mut bytes).unwrap();
    let is_right = bytes.iter().zip(0..).all(|(got, at)| *got == byte(at));
    assert!(bytes.len() as u64 == len && is_right, "wrong bytes");
    writer.join().unwrap();
}
