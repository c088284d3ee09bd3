//! The TCP/IP stack of a program and User-Mode Linux, over a link of a fabric: both roles, both IP versions, with
//! losses, overtaking frames and marks. The guest sends back what it receives.
// A test that can't continue panics.
#![allow(clippy::unwrap_used, clippy::panic)]
use ringway_frame::{LARGEST, Needs, Offload};
use ringway_linux_guests::{Guest, Runner};
use ringway_mem::Span;
use ringway_netstack::Transmit;
use ringway_sockets::{
    Config, Device, DeviceError, Network, Received, RingDevice, StoredBytes, TcpListener, TcpStream,
};
use ringway_tests::fabric::{self, Fabric};
use ringway_tests::folder::Folder;
use ringway_tests::say;
use ringway_tests::talk::ran;
use ringway_tests::tshark::{BUSY, Capture, LOSSES};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const FABRIC: &str = r#"
[port.linux]
kind = "vhost-user"
socket = "linux.sock"
mode = "0666"

[port.program]
kind = "ring"
socket = "program.sock"
slots = 512
slot-size = "4KB"

[link.wan]
ports = ["program", "linux"]
"#;
/// About 200 frames in each direction, so that each stream has some of what happens to one in a hundred.
const LEN: usize = 300_000;
/// Longer than any exchange takes.
const BOUND: Duration = Duration::from_secs(100);

/// A ring whose frames are captured at the program.
struct Captured {
    ring: RingDevice,
    capture: Arc<Mutex<Capture>>,
    begin: Instant,
    frame: Vec<u8>,
}

impl Captured {
    fn record(&self, frame: &[u8]) {
        self.capture.lock().unwrap().record(self.begin.elapsed().as_nanos() as u64, frame);
    }
}

impl Transmit for Captured {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        let sent = self.ring.frame(offload, headers, payload);
        if sent {
            let mut frame = headers.to_vec();
            for piece in payload {
                let begin = frame.len();
                frame.resize(begin + piece.len(), 0);
                piece.read(&mut frame[begin..]);
            }
            self.record(&frame);
        }
        sent
    }
}

impl Device for Captured {
    fn offloads(&self) -> Needs {
        self.ring.offloads()
    }

    fn receive(&mut self) -> Result<Option<Received<'_>>, DeviceError> {
        let Some(received) = self.ring.receive()? else { return Ok(None) };
        let len = received.read(&mut self.frame);
        let now = self.begin.elapsed().as_nanos() as u64;
        self.capture.lock().unwrap().record(now, &self.frame[..len]);
        Ok(Some(received))
    }

    fn store(&mut self, bytes: &[u8]) -> Option<StoredBytes> {
        self.ring.store(bytes)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.ring.flush()
    }

    fn arm(&mut self, room: bool) -> Result<bool, DeviceError> {
        self.ring.arm(room)
    }

    fn disarm(&mut self) {
        self.ring.disarm();
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.ring.descriptors()
    }

    fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError> {
        self.ring.notified(descriptor)
    }
}

fn address(six: bool, last: u8) -> IpAddr {
    if six { [0xfd00, 0, 0, 0, 0, 0, 0, last.into()].into() } else { [10, 99, 0, last].into() }
}

/// Sends a stream, and compares what comes back; then both ends close.
fn exchange(stream: &TcpStream) {
    let sent: Vec<u8> = (0..LEN).map(|at| (at * 7 % 251) as u8).collect();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.set_write_timeout(Some(BOUND)).unwrap();
    let mut back = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (&*stream).write_all(&sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        (&*stream).read_to_end(&mut back).unwrap();
    });
    assert!(back == sent, "{} bytes came back", back.len());
}

/// Connects to the guest, which may not listen yet.
fn connect(network: &Network, to: SocketAddr) -> TcpStream {
    let end = Instant::now() + BOUND;
    loop {
        match TcpStream::connect_timeout(network, &to, BOUND) {
            Ok(stream) => return stream,
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && Instant::now() < end => {
                std::thread::sleep(Duration::from_millis(50));
            }
            Err(error) => panic!("{to}: {error}"),
        }
    }
}

/// Both roles. `bad`: the link loses, marks and reorders. Returns how often the stack sent a segment again.
fn both_roles(guest: &Guest, network: &Network, six: bool, bad: bool) -> u64 {
    let mut again = 0;
    for stack_connects in [true, false] {
        let port = 7000 + u16::from(six) + 2 * u16::from(bad) + 4 * u16::from(stack_connects);
        let stream = if stack_connects {
            ran(guest, &format!("(busybox nc -l -p {port} -e cat) >/dev/null 2>&1 &"));
            // Its kernel resets connections until it listens.
            let listens = format!("cat /proc/net/tcp* | grep -q ':{port:04X} .* 0A '");
            ran(guest, &format!("until {listens}; do sleep 0.02; done"));
            connect(network, SocketAddr::new(address(six, 1), port))
        } else {
            let listener = TcpListener::bind(network, SocketAddr::new(address(six, 2), port)).unwrap();
            let to = address(six, 2);
            ran(guest, &format!("(busybox nc {to} {port} -e cat) >/dev/null 2>&1 &"));
            listener.accept().unwrap().0
        };
        exchange(&stream);
        let info = stream.info().unwrap();
        assert!(info.tcpi_options_sack && info.tcpi_options_timestamps, "{info:?}");
        // A SYN that is sent again does not ask for ECN (RFC 3168 6.1.1.1).
        assert!(info.tcpi_options_ecn || info.tcpi_total_retrans > 0, "{info:?}");
        assert!(info.tcpi_snd_wscale > 0, "{info:?}");
        again += info.tcpi_total_retrans;
    }
    again
}

#[test]
fn streams_to_and_from_user_mode_linux() {
    if !fabric::has_uml() {
        say("linux.uml is not installed: skipped");
        return;
    }
    let folder = Folder::new("tcpuml").unwrap();
    let fabric = Fabric::up(folder.path(), "tcpuml", FABRIC).unwrap();
    let guest = fabric.guest(Runner::Uml, "linux", 1, &[]);
    ran(&guest, "echo 1 >/proc/sys/net/ipv4/tcp_ecn");
    let six = guest.run("test -e /proc/net/if_inet6", BOUND).unwrap().status == 0;
    let mut config = Config::new("10.99.0.2/24".parse().unwrap());
    if six {
        ran(&guest, "ip -6 address add fd00::1/64 dev eth0 nodad");
        config.addresses.push("fd00::2/64".parse().unwrap());
    } else {
        say("left out: the guest has no IPv6");
    }
    config.settings.tcp_ecn = 1;
    let capture = Arc::<Mutex<Capture>>::default();
    let device = Captured {
        ring: RingDevice::connect(&fabric.socket("program.sock")).unwrap(),
        capture: capture.clone(),
        begin: Instant::now(),
        frame: vec![0; LARGEST as usize],
    };
    let network = Network::new(device, config).unwrap();
    let families: &[bool] = if six { &[false, true] } else { &[false] };
    for bad in [false, true] {
        if bad {
            let bad = "rate=50Mbit delay=2ms jitter=1ms reorder=true loss=2% mark=2% duplicate=1%";
            let words: Vec<&str> = ["link", "set", "wan"].into_iter().chain(bad.split(' ')).collect();
            fabric.tell(&words).unwrap();
        }
        let again: u64 = families.iter().map(|&six| both_roles(&guest, &network, six, bad)).sum();
        assert!(!bad || again > 0);
        // Frames of several segments are captured before they are cut and their checksums filled.
        let explained = [&BUSY[..], if bad { &LOSSES } else { &[] }].concat();
        let captured = std::mem::take(&mut *capture.lock().unwrap());
        let findings = captured.findings("uml", false, &explained).unwrap().unwrap_or_default();
        assert!(findings.is_empty(), "{}", findings.join("\n"));
    }
    let shown = fabric.ask(&["link", "show", "wan", "--json"]).unwrap().to_string();
    say(&shown);
}
