//! Frames of many pieces, over each device that needs no switch. `tests/rings.rs` has rings and pipes.

use super::{Device, DeviceError, Pair, Received, TapDevice, pair};
use crate::{Config, Host};
use ringway_frame::{Needs, Offload};
use ringway_mem::Span;
use ringway_netstack::{PIECES, SECOND, Source, Transmit};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn pairs() -> (Pair, Pair) {
    pair().unwrap()
}

/// Two TAPs, each of which receives what the other sends.
fn taps() -> (TapDevice, TapDevice) {
    let (one, two) = UnixDatagram::pair().unwrap();
    for end in [&one, &two] {
        end.set_nonblocking(true).unwrap();
    }
    (TapDevice::of(one.into()), TapDevice::of(two.into()))
}

/// Sends a frame of the longest headers and so many pieces; what is received.
fn frame(one: &mut dyn Device, two: &mut dyn Device, pieces: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let bytes: Vec<Vec<u8>> = (0..pieces).map(|number| vec![number as u8; 10 + 100 * number]).collect();
    let spans: Vec<Span<'_>> = bytes.iter().map(|piece| Span::of(piece)).collect();
    let headers = [0xee; 114];
    assert!(one.frame(Offload::default(), &headers, &spans));
    one.flush().unwrap();
    let mut received = vec![0; 1 << 16];
    let len = two.receive().unwrap()?.read(&mut received);
    received.truncate(len);
    Some((received, [headers.to_vec(), bytes.concat()].concat()))
}

/// Sends bytes of so many sources; no byte needs to be sent again.
fn shared(one: impl Device + 'static, two: impl Device + 'static, sources: usize) {
    let config = |last: u8| Config::new(format!("10.0.0.{last}/24").parse().unwrap());
    let (mut client, mut server) = (Host::new(one, config(1)).unwrap(), Host::new(two, config(2)).unwrap());
    let listener = server.stack().listen("0.0.0.0:7".parse().unwrap(), 1).unwrap();
    let now = client.now();
    let socket = client.stack().connect(now, "10.0.0.2:7".parse().unwrap()).unwrap();
    let accepted = loop {
        client.poll().unwrap();
        server.poll().unwrap();
        if let Ok(accepted) = server.stack().accept(listener) {
            break accepted.socket;
        }
    };
    let parts: Vec<Vec<u8>> = (0..sources).map(|number| vec![number as u8; 90 + number]).collect();
    let now = client.now();
    for part in &parts {
        let source: Arc<dyn Source> = Arc::new(part.clone());
        assert_eq!(client.stack().send_shared(now, socket, &source, 0..part.len()), Ok(part.len()));
    }
    let (sent, mut received) = (parts.concat(), Vec::new());
    while received.len() < sent.len() {
        client.poll().unwrap();
        server.poll().unwrap();
        let (now, mut bytes) = (server.now(), vec![0; 1 << 16]);
        if let Ok(count) = server.stack().recv(now, accepted, &mut bytes) {
            received.extend_from_slice(&bytes[..count]);
        }
    }
    assert!(received == sent, "{sources} sources");
    let info = client.stack().info(socket).unwrap();
    let bytes = (info.tcpi_bytes_sent, server.stack().info(accepted).unwrap().tcpi_bytes_received);
    assert_eq!(bytes, (sent.len() as u64, sent.len() as u64));
    // Several sources share a segment.
    assert!(info.tcpi_data_segs_out < sources as u64);
}

#[test]
fn frames_are_sent_with_all_their_pieces() {
    for pieces in [0, 1, 7, 8, 9, PIECES] {
        let ((mut one, mut two), (mut first, mut second)) = (pairs(), taps());
        for received in [frame(&mut one, &mut two, pieces), frame(&mut first, &mut second, pieces)] {
            let (received, sent) = received.unwrap();
            assert!(received == sent, "{pieces} pieces");
        }
    }
    // More than the stack makes: nothing, in place of a part.
    let (mut first, mut second) = taps();
    assert!(frame(&mut first, &mut second, PIECES + 1).is_none());
}

#[test]
fn bytes_of_many_sources_are_sent_once() {
    for sources in [9, PIECES, 60] {
        let ((one, two), (first, second)) = (pairs(), taps());
        shared(one, two, sources);
        shared(first, second, sources);
    }
}

/// A device that is away while its epoch is odd.
struct Unplugged(Pair, Arc<AtomicU64>);

impl Transmit for Unplugged {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        self.away().is_some() || self.0.frame(offload, headers, payload)
    }
}

impl Device for Unplugged {
    fn offloads(&self) -> Needs {
        self.0.offloads()
    }

    fn receive(&mut self) -> Result<Option<Received<'_>>, DeviceError> {
        self.0.receive()
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.0.flush()
    }

    fn arm(&mut self, room: bool) -> Result<bool, DeviceError> {
        self.0.arm(room)
    }

    fn disarm(&mut self) {
        self.0.disarm();
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn epoch(&self) -> u64 {
        self.1.load(SeqCst)
    }

    fn away(&self) -> Option<&str> {
        (self.epoch() % 2 == 1).then_some("unplugged")
    }

    fn notified(&mut self, _descriptor: usize) -> Result<(), DeviceError> {
        Ok(())
    }
}

#[test]
fn addresses_are_announced_at_the_start_and_when_the_device_is_back() {
    let ((one, mut other), epoch) = (pairs(), Arc::new(AtomicU64::new(1)));
    let mut config = Config::new("10.0.0.1/24".parse().unwrap());
    config.addresses.push("fd00::1/64".parse().unwrap());
    let mut host = Host::new(Unplugged(one, epoch.clone()), config).unwrap();
    // The destinations of the announcements at a time: all stations by ARP, all nodes of IPv6.
    let mut announced = |now: u64| {
        host.virtual_now = Some(now);
        host.poll().unwrap();
        let mut frames = Vec::new();
        while let Some(Received { head, .. }) = other.receive().unwrap() {
            frames.push(([head[12], head[13]], [head[0], head[5]]));
        }
        other.flush().unwrap();
        frames
    };
    let both = [([8, 6], [0xff, 0xff]), ([0x86, 0xdd], [0x33, 1])];
    // While the device is away nothing is announced, neither now nor later.
    assert_eq!((announced(0), announced(5 * SECOND)), (vec![], vec![]));
    for time in [10, 20] {
        epoch.fetch_add(1, SeqCst);
        assert_eq!(announced(time * SECOND), both);
        assert_eq!((announced((time + 1) * SECOND), announced((time + 2) * SECOND)), (vec![], both.to_vec()));
        assert_eq!(announced((time + 5) * SECOND), vec![]);
        epoch.fetch_add(1, SeqCst);
        assert_eq!(announced((time + 6) * SECOND), vec![]);
    }
}
