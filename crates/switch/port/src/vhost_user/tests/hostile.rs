//! Front-ends that die or send invalid messages: only their port is affected, and it serves the next one.

use super::session::{port, region};
use super::{Backend, BackendError, Config, new};
use crate::Doorbell;
use crate::SocketError;
use crate::State;
use ringway_frame::CountersRef;
use ringway_host::{Clock, EventFd};
use ringway_vhost_user::feature::{protocol, virtio};
use ringway_vhost_user::{Packet, Request, SharedRegion, VringAddr, VringFd, VringState};
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

const SIZE: u64 = 1 << 20;

fn copy(fd: impl AsFd) -> OwnedFd {
    fd.as_fd().try_clone_to_owned().unwrap()
}

fn connect(backend: &mut Backend) -> UnixStream {
    let (ours, theirs) = UnixStream::pair().unwrap();
    backend.connect(theirs.into()).unwrap();
    ours
}

fn send(stream: &UnixStream, packet: &Packet, len: usize) {
    let fds: Vec<_> = packet.fds.iter().map(|fd| fd.as_fd()).collect();
    assert_eq!(ringway_host::send_with(stream.as_fd(), &packet.bytes[..len], &fds).unwrap(), len);
}

/// All messages of a session, from set-up to take-down.
fn life(file: &OwnedFd) -> Vec<Packet> {
    let features =
        virtio::VERSION_1 | virtio::PROTOCOL_FEATURES | virtio::NET_CTRL_VQ | virtio::NET_GUEST_ANNOUNCE;
    let shared = |guest, size| SharedRegion { region: region(guest, size, guest), fd: copy(file) };
    let mut life = vec![
        Request::SetOwner,
        Request::SetProtocolFeatures(protocol::RARP | protocol::MTU | protocol::CONFIGURE_MEM_SLOTS),
        Request::SetFeatures(features),
        Request::SetMemTable(vec![shared(0, SIZE / 2)]),
        Request::AddMemReg(shared(SIZE / 2, SIZE / 2)),
        Request::NetSetMtu(1500),
    ];
    for index in 0..3 {
        let user = region(0x4000 * u64::from(index), 1, 0).user;
        let (descriptors, available, used) = (user, user + 0x1000, user + 0x2000);
        let event = || Some(EventFd::new().unwrap().into_fd());
        life.extend([
            Request::SetVringNum(VringState { index, num: 256 }),
            Request::SetVringBase(VringState { index, num: 0 }),
            Request::SetVringAddr(VringAddr { index, flags: 0, descriptors, available, used, log: 0 }),
            Request::SetVringCall(VringFd { index, fd: event() }),
            Request::SetVringKick(VringFd { index, fd: event() }),
            Request::SetVringEnable(VringState { index, num: 1 }),
        ]);
    }
    life.push(Request::SendRarp([2, 0, 0, 0, 0, 9]));
    life.extend((0..3).map(|index| Request::GetVringBase(VringState { index, num: 0 })));
    life.push(Request::RemMemReg(region(SIZE / 2, SIZE / 2, SIZE / 2)));
    life.into_iter().map(|request| request.encode(false)).collect()
}

#[test]
fn a_front_end_killed_at_any_point_leaves_its_port_usable() {
    let (mut backend, _queues, counters) = port();
    let file = ringway_host::memfd("guest", SIZE as usize).unwrap();
    let messages = life(&file).len();
    let mut up = 0;
    for killed in 0..=2 * messages {
        let mut stream = connect(&mut backend);
        stream.set_nonblocking(true).unwrap();
        let script = life(&file);
        for packet in &script[..killed / 2] {
            send(&stream, packet, packet.bytes.len());
            backend.readable().unwrap();
            // Most messages have no reply.
            let _ = stream.read(&mut [0; 64]);
        }
        up += usize::from(backend.state() == State::Up);
        // Within a message, or between two.
        if killed % 2 == 1 {
            send(&stream, &script[killed / 2], script[killed / 2].bytes.len() / 2);
            backend.readable().unwrap();
        }
        drop(stream);
        let end = backend.readable().unwrap_err();
        assert_eq!(
            matches!(end, BackendError::Socket(SocketError::Closed)),
            killed % 2 == 0,
            "{killed}: {end}"
        );
        assert_eq!((backend.state(), backend.receiving(), backend.fd().is_none()), (State::Waiting, 0, true));
    }
    assert!(up > 10, "it was up in {up} of its lives");
    assert_eq!(counters.faults.load(Relaxed), messages as u64, "only halves of messages are faults");
}

#[test]
fn a_front_end_killed_before_reading_its_reply_is_disconnected() {
    let (mut backend, _queues, counters) = port();
    let stream = connect(&mut backend);
    let packet = Request::GetFeatures.encode(false);
    send(&stream, &packet, packet.bytes.len());
    backend.readable().unwrap();
    drop(stream);
    assert!(matches!(backend.readable(), Err(BackendError::Socket(SocketError::Closed))));
    assert_eq!(counters.faults.load(Relaxed), 0);
}

#[test]
fn an_oversized_message_closes_the_port_unread() {
    for (flags, size) in [(1, 0x1_0000), (1, u32::MAX), (2, 8), (0, 8), (0x101, 8)] {
        let (mut backend, _queues, counters) = port();
        let stream = connect(&mut backend);
        let bytes = [1_u32, flags, size].map(u32::to_ne_bytes).concat();
        send(&stream, &Packet { bytes, fds: Vec::new() }, 12);
        assert!(matches!(backend.readable(), Err(BackendError::Session(_))), "{flags:#x} {size:#x}");
        assert_eq!(counters.faults.load(Relaxed), 1);
    }
}

#[test]
fn unknown_messages_are_refused_with_reply_ack_and_end_the_session_without() {
    let (mut backend, _queues, _) = port();
    let stream = connect(&mut backend);
    let packet = Request::SetProtocolFeatures(protocol::REPLY_ACK).encode(false);
    send(&stream, &packet, packet.bytes.len());
    for request in [0_u32, 26, 27, 28, 33, 41, 44, 255, u32::MAX] {
        let unknown = |flags: u32| {
            let bytes = [request, flags, 0].map(u32::to_ne_bytes).concat();
            Packet { bytes, fds: Vec::new() }
        };
        // With the flag that requests an acknowledgement.
        send(&stream, &unknown(1 | 8), 12);
        backend.readable().unwrap();
        assert!(backend.refused().is_some(), "{request}");
        let (mut other, _queues, _) = port();
        let stream = connect(&mut other);
        send(&stream, &unknown(1), 12);
        assert!(matches!(other.readable(), Err(BackendError::Session(_))), "{request}");
    }
}

#[test]
fn repeated_messages_hold_one_descriptor_each() {
    // CVE-2019-14818: descriptors of earlier messages were never closed.
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (mut backend, _queues, _) = port();
    let file = ringway_host::memfd("guest", SIZE as usize).unwrap();
    let stream = connect(&mut backend);
    for packet in &life(&file)[..24] {
        send(&stream, packet, packet.bytes.len());
        backend.readable().unwrap();
    }
    assert_eq!(backend.state(), State::Up);
    let before = open();
    for round in 0..300 {
        for packet in &life(&file)[3..24] {
            send(&stream, packet, packet.bytes.len());
            backend.readable().unwrap_or_else(|error| panic!("{round}: {error}"));
        }
    }
    assert_eq!(backend.state(), State::Up);
    // Other tests open and close descriptors meanwhile, so only a large leak would be seen.
    assert!(open() < before + 1000);
}

#[test]
fn a_descriptor_of_an_unsupported_kind_ends_the_session() {
    let (mut backend, _queues, counters) = port();
    for place in ["/proc/self/exe", "/dev/zero", "/"] {
        let file = || OwnedFd::from(std::fs::File::open(place).unwrap());
        let requests = [
            Request::SetMemTable(vec![SharedRegion { region: region(0, SIZE, 0), fd: file() }]),
            Request::SetVringKick(VringFd { index: 0, fd: Some(file()) }),
            Request::SetVringErr(VringFd { index: 0, fd: Some(file()) }),
        ];
        for request in requests {
            let stream = connect(&mut backend);
            let packet = request.encode(false);
            send(&stream, &packet, packet.bytes.len());
            assert!(
                matches!(backend.readable(), Err(BackendError::Socket(SocketError::Descriptor(_)))),
                "{place}"
            );
            // The file is closed by another thread, which takes a moment; until then no connection is
            // accepted.
            while matches!(
                backend.connect(UnixStream::pair().unwrap().0.into()),
                Err(BackendError::Socket(SocketError::Unclosed))
            ) {
                std::thread::yield_now();
            }
        }
    }
    assert_eq!(counters.faults.load(Relaxed), 9);
}

/// Both ends of a connection with a socket path, like every connection to a port.
fn met() -> (UnixStream, UnixStream) {
    let path = std::env::temp_dir().join(format!(
        "ringway-met-{}-{:?}",
        std::process::id(),
        std::thread::current().id()
    ));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let theirs = UnixStream::connect(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    (listener.accept().unwrap().0, theirs)
}

#[test]
fn a_front_end_that_sends_its_own_socket_end_is_seen_to_disconnect() {
    let agreed = protocol::BACKEND_REQ;
    for way in 0..4 {
        let (mut backend, _queues, _) = port();
        let (ours, theirs) = met();
        backend.connect(ours.into()).unwrap();
        let send = |request: Request| {
            let packet = request.encode(false);
            send(&theirs, &packet, packet.bytes.len());
        };
        send(Request::SetFeatures(virtio::VERSION_1 | virtio::PROTOCOL_FEATURES));
        send(Request::SetProtocolFeatures(agreed));
        let (channel, other) = UnixStream::pair().unwrap();
        match way {
            0 => send(Request::SetVringKick(VringFd { index: 1, fd: Some(copy(&theirs)) })),
            1 => send(Request::SetVringCall(VringFd { index: 1, fd: Some(copy(&theirs)) })),
            2 => send(Request::SetBackendReqFd(copy(&theirs))),
            _ => {
                send(Request::SetBackendReqFd(channel.into()));
                ringway_host::send_with(other.as_fd(), b"x", &[theirs.as_fd()]).unwrap();
            }
        }
        drop((theirs, other));
        let ended = (0..10).any(|_| backend.readable().is_err());
        assert!(ended, "{way}");
    }
}

/// Workers with long turns.
struct Slow;

impl Doorbell for Slow {
    fn wake(&self) {
        let (clock, begun) = (Clock::new(), Clock::new().now());
        while clock.now() < begun + crate::session_loop::SHARE {
            std::hint::spin_loop();
        }
    }

    fn watch(&self, _kick: Arc<OwnedFd>) {}

    fn unwatch(&self) {}
}

#[test]
fn slow_messages_do_not_starve_other_sessions() {
    let file = ringway_host::memfd("guest", SIZE as usize).unwrap();
    let config = Config { mtu: Some(9000), ..Config::default() };
    let (mut backend, _queues) = new(config, vec![Arc::new(Slow)], vec![CountersRef::private()]);
    let stream = connect(&mut backend);
    // Message 17 starts ring 1, message 18 enables it.
    for packet in life(&file).iter().take(18) {
        send(&stream, packet, packet.bytes.len());
    }
    let calls = (1..100).find(|_| {
        backend.readable().unwrap();
        backend.state() == State::Up
    });
    assert!(calls.is_some_and(|calls| calls >= 2), "{calls:?}");
}
