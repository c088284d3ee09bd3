//! A TCP echo server on a ring port or a pipe: `echo PATH ADDRESS/PREFIX PORT`.

use ringway_client::{Ring, RingError, RingOptions, Tx, Wait};
use ringway_frame::{LARGEST, Needs, Offload};
use ringway_tcp::{Cidr, InterfaceConfig, SECOND, Settings, SocketError, SocketId, Stack, Transmit};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

/// The ring's sending side, as the stack sees it.
struct Sender<'a> {
    tx: &'a mut Tx,
    frame: &'a mut Vec<u8>,
    error: Option<RingError>,
}

impl Transmit for Sender<'_> {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: [&[u8]; 2]) -> bool {
        self.frame.clear();
        for piece in [headers, payload[0], payload[1]] {
            self.frame.extend_from_slice(piece);
        }
        match self.tx.push_with(self.frame, offload.to_bytes()) {
            Ok(sent) => sent,
            Err(error) => {
                self.error = Some(error);
                false
            }
        }
    }
}

/// A stack with one interface, a ring; it takes and gives unsegmented frames of up to 64 KB.
pub struct Host {
    /// The stack.
    pub stack: Stack,
    ring: Ring,
    started: Instant,
    buffers: [Vec<u8>; 2],
}

impl Host {
    /// Connects to the ring at `path`, with this address.
    pub fn connect(path: &Path, address: Cidr) -> Result<Host, RingError> {
        let ring = Ring::connect_with(path, RingOptions { offloads: true, ..RingOptions::default() }, None)?;
        // A real program takes random numbers: connections can be forged by whoever knows them.
        let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let mut stack = Stack::new(Settings::default(), [seed as u64, u64::from(std::process::id())]);
        let last = match address.address {
            std::net::IpAddr::V4(address) => address.octets()[3],
            std::net::IpAddr::V6(address) => address.octets()[15],
        };
        stack.add_interface(InterfaceConfig {
            mac: [2, 0, 0, 0, 0, last].into(),
            mtu: 1500,
            addresses: vec![address],
            offloads: Needs::ALL,
        });
        Ok(Host { stack, ring, started: Instant::now(), buffers: [vec![0; LARGEST as usize], Vec::new()] })
    }

    /// Nanoseconds since the start.
    pub fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    /// Sends what the stack has to send, waits for frames or a deadline, at most a second, and receives.
    pub fn turn(&mut self) -> Result<(), RingError> {
        let now = self.now();
        self.stack.expire(now);
        let [bytes, frame] = &mut self.buffers;
        let mut sender = Sender { tx: &mut self.ring.tx, frame, error: None };
        self.stack.transmit(now, 0, &mut sender);
        if let Some(error) = sender.error {
            return Err(error);
        }
        self.ring.tx.sync()?;
        let deadline = self.stack.next_deadline().unwrap_or(u64::MAX);
        let wait = deadline.saturating_sub(now).min(SECOND);
        self.ring.wait(Wait::RX, Some(Duration::from_nanos(wait)))?;
        let now = self.started.elapsed().as_nanos() as u64;
        while let Some(received) = self.ring.rx.pop(bytes)? {
            let offload = Offload::from_bytes(&received.offload);
            self.stack.receive(now, 0, &bytes[..received.len], offload);
        }
        self.ring.rx.sync()
    }
}

/// Sends back what arrived on a connection, as far as there is room; closes it at its end.
pub fn echo(stack: &mut Stack, now: u64, socket: SocketId) -> Result<(), SocketError> {
    loop {
        let piece = stack.received(socket)?[0].to_vec();
        if piece.is_empty() {
            break;
        }
        match stack.send(now, socket, &piece) {
            Ok(sent) => stack.consume(now, socket, sent)?,
            Err(SocketError::WouldBlock) => return Ok(()),
            Err(error) => return stack.close(now, socket).and(Err(error)),
        }
    }
    if stack.is_finished(socket)? { stack.close(now, socket) } else { Ok(()) }
}

/// Serves connections until the ring closes.
pub fn serve(mut host: Host, port: u16) -> Result<(), Box<dyn std::error::Error>> {
    let any = host.stack.listen(([0, 0, 0, 0], port).into(), 128)?;
    loop {
        host.turn()?;
        let now = host.now();
        while let Some((socket, ready)) = host.stack.next_event() {
            if ready.acceptable {
                while let Ok(accepted) = host.stack.accept(any) {
                    let _ = echo(&mut host.stack, now, accepted.socket);
                }
            } else if let Err(error) = echo(&mut host.stack, now, socket) {
                eprintln!("{error}");
            }
        }
    }
}

#[allow(dead_code, reason = "the test includes this file")]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, address, port] = &arguments[..] else {
        return Err("usage: echo PATH ADDRESS/PREFIX PORT".into());
    };
    let (address, prefix) = address.split_once('/').ok_or("an address has a prefix: 10.0.0.1/24")?;
    let address = Cidr::new(address.parse::<std::net::IpAddr>()?, prefix.parse()?);
    serve(Host::connect(path.as_ref(), address)?, port.parse()?)
}
