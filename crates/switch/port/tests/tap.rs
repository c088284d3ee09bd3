//! A TAP port and the kernel's network stack, in a network namespace. The test runs itself again in the
//! namespace, which needs root or a kernel that permits user namespaces.

mod namespace;

use ringway_frame::{Burst, CountersRef, Needs, Offload, Storage};
use ringway_mem::{Reader, Span, Turn};
use ringway_port::tap::{Config, Settings, TapPort, open};
use ringway_port::{Queue, Silent};
use ringway_spec::MacAddress;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const MAC: [u8; 6] = [2, 0, 0, 0, 0x99, 1];
const BROADCAST: &str = "10.99.0.255:7777";

fn main() {
    namespace::within(within);
}

struct Host {
    port: TapPort,
    queue: Queue,
    counters: CountersRef,
    lost: Arc<AtomicUsize>,
}

fn interface(offloads: bool) -> Settings {
    Settings {
        interface: "t0".into(),
        mac: Some(MacAddress(MAC)),
        mtu: 9000,
        offloads,
        namespace: None,
        host: None,
        addresses: "10.99.0.1/24".parse().into_iter().collect(),
        gateways: Vec::new(),
    }
}

fn host(offloads: bool) -> Host {
    let counters = CountersRef::private();
    let lost = Arc::new(AtomicUsize::new(0));
    let lost_count = lost.clone();
    let count_loss = Arc::new(move || {
        lost_count.fetch_add(1, Ordering::Relaxed);
    });
    let config = Config { mtu: 9000, offloads };
    let made =
        TapPort::new(config, vec![Arc::new(Silent)], std::slice::from_ref(&counters), &(count_loss as _));
    let (mut port, mut queues) = made.expect("memory");
    port.attach(open(&interface(offloads), 1).expect("an interface")).expect("as many queues");
    Host { port, queue: queues.pop().expect("one queue"), counters, lost }
}

/// Payloads of the test's own datagrams among the frames; the stack sends other frames too.
fn payloads(burst: &Burst<'_>) -> Vec<(usize, Vec<u8>, Offload)> {
    let frames = (0..burst.len()).map(|index| {
        let mut bytes = vec![0; burst.meta(index).len as usize];
        assert_eq!(burst.read(index, 0, &mut bytes), bytes.len());
        (index, bytes, burst.meta(index).offload)
    });
    let ours =
        |bytes: &[u8]| bytes.len() > 42 && bytes[..6] == [0xff; 6] && bytes[36..38] == 7777_u16.to_be_bytes();
    frames
        .filter(|(_, bytes, _)| ours(bytes))
        .map(|(at, bytes, offload)| (at, bytes[42..].into(), offload))
        .collect()
}

fn take(queue: &mut Queue, turn: &Turn<'_>) -> Vec<(usize, Vec<u8>, Offload)> {
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    queue.tx.take(turn, &mut burst);
    payloads(&burst)
}

fn within() {
    for offloads in [true, false] {
        let mut host = host(offloads);
        let mut reader = Reader::register().expect("a place for a reader");
        let turn = reader.turn(1);
        let socket = UdpSocket::bind("10.99.0.1:6666").expect("the interface has its address");
        socket.set_broadcast(true).expect("an option");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
        sends(&mut host, &turn, &socket, offloads);
        receives(&mut host, &turn, &socket);
        assert!(host.port.is_attached());
        host.port.attach(Vec::new()).expect_err("a queue needs its descriptor");
        reader.rest();
        host.port.detach();
        let turn = reader.turn(2);
        assert!(host.queue.rx.caps(&turn).is_none(), "there is no interface any more");
        assert!(take(&mut host.queue, &turn).is_empty());
        assert_eq!(host.lost.load(Ordering::Relaxed), 0);
    }
    deleted();
    many_queues();
}

fn sends(host: &mut Host, turn: &Turn<'_>, socket: &UdpSocket, offloads: bool) {
    let queue = &mut host.queue;
    let say = |number: u8, len: usize| {
        let payload = vec![number; len];
        assert_eq!(socket.send_to(&payload, BROADCAST).expect("the stack takes it"), len);
    };
    (1..=3).for_each(|number| say(number, 100));
    let numbers =
        |frames: &[(usize, Vec<u8>, Offload)]| frames.iter().map(|frame| frame.1[0]).collect::<Vec<_>>();
    let first = take(queue, turn);
    assert_eq!(numbers(&first), [1, 2, 3]);
    assert_eq!(numbers(&take(queue, turn)), [1, 2, 3], "they stay until they are released");
    assert!(first.iter().all(|(_, payload, offload)| {
        payload.len() == 100 && offload.needs() == if offloads { Needs::CSUM } else { Needs::NONE }
    }));
    assert!(!queue.tx.arm(turn), "there are frames");
    queue.tx.release(turn, first[0].0 + 1);
    assert_eq!(numbers(&take(queue, turn)), [2, 3]);
    say(4, 8900);
    let all = take(queue, turn);
    assert_eq!((numbers(&all), all[2].1.len()), (vec![2, 3, 4], 8900));
    queue.tx.release(turn, 64);
    // More than one burst: no frame is lost, duplicated or reordered.
    (0..100).for_each(|number| say(number, 8000));
    let mut seen = Vec::new();
    while seen.len() < 100 {
        let burst = take(queue, turn);
        assert!(!burst.is_empty() && burst.len() <= 33, "256 KB are a burst");
        let len = burst.len() - burst.len() / 3;
        seen.extend(numbers(&burst[..len]));
        queue.tx.release(turn, burst[len - 1].0 + 1);
    }
    assert_eq!(seen, (0..100).collect::<Vec<u8>>());
    queue.tx.release(turn, 64);
    // The stack may send frames of its own at any time.
    let quiet = (0..10_000).any(|_| {
        assert!(take(queue, turn).is_empty());
        queue.tx.release(turn, 64);
        queue.tx.arm(turn)
    });
    assert!(quiet);
}

/// A datagram to the test's socket without a UDP checksum, as IPv4 allows.
fn datagram(payload: &[u8]) -> Vec<u8> {
    let udp = (8 + payload.len()) as u16;
    let mut frame = [&MAC[..], &[2, 0, 0, 0, 0x99, 2], &[8, 0]].concat();
    let mut ip = [&[0x45, 0][..], &(20 + udp).to_be_bytes(), &[0, 0, 0x40, 0, 64, 17, 0, 0]].concat();
    ip.extend([10, 99, 0, 2, 10, 99, 0, 1]);
    let sum: u32 = ip.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame
        .extend([&5555_u16.to_be_bytes()[..], &6666_u16.to_be_bytes(), &udp.to_be_bytes(), &[0, 0]].concat());
    frame.extend(payload);
    frame
}

fn receives(host: &mut Host, turn: &Turn<'_>, socket: &UdpSocket) {
    let frames: Vec<Vec<u8>> =
        (0..40).map(|number: u8| datagram(&vec![number; 1 + usize::from(number) * 220])).collect();
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    for frame in &frames {
        let pieces: Vec<Span<'_>> = frame.chunks(1000).map(Span::of).collect();
        burst.push_pieces(Offload::default(), &pieces).expect("room");
    }
    let which: Vec<u16> = (0..40).collect();
    let rx = &mut host.queue.rx;
    assert_eq!(rx.caps(turn).expect("an interface").largest, 9022);
    // In small groups: the socket's buffer is small.
    for some in which.chunks(8) {
        assert_eq!(rx.reserve(turn, &burst, some), some.len());
        rx.put(turn, &burst, some);
        rx.publish(turn);
        for &number in some {
            let mut bytes = [0; 10_000];
            let (count, from) = socket.recv_from(&mut bytes).expect("what was put arrives");
            assert_eq!((count, u16::from(bytes[0])), (1 + usize::from(number) * 220, number));
            assert_eq!(from.to_string(), "10.99.0.2:5555");
        }
    }
    let drops: u64 = host.counters.rx_drops.iter().map(|count| count.load(Ordering::Relaxed)).sum();
    assert_eq!(drops, 0);
}

/// The interface is deleted: the port reports it once, and counts what it could not deliver.
fn deleted() {
    let mut host = host(true);
    let mut reader = Reader::register().expect("a place for a reader");
    let turn = reader.turn(3);
    let status = Command::new("ip").args(["link", "del", "t0"]).status().expect("ip, of iproute2, runs");
    assert!(status.success());
    let frame = datagram(b"late");
    let mut storage = Storage::default();
    let mut burst = Burst::begin(&mut storage);
    burst.push(Offload::default(), Span::of(&frame)).expect("room");
    host.queue.rx.put(&turn, &burst, &[0]);
    assert_eq!(host.counters.rx_drops[ringway_frame::Reason::Down as usize].load(Ordering::Relaxed), 1);
    assert!(host.queue.rx.caps(&turn).is_none());
    assert!(take(&mut host.queue, &turn).is_empty());
    assert_eq!(host.lost.load(Ordering::Relaxed), 1);
}

/// Queues of the multi-queue interface.
const QUEUES: usize = 4;

/// Every flow arrives on one of the queues, and frames delivered to any queue arrive.
fn many_queues() {
    let counters: Vec<CountersRef> = (0..QUEUES).map(|_| CountersRef::private()).collect();
    let doorbells = counters.iter().map(|_| Arc::new(Silent) as _).collect();
    let config = Config { mtu: 9000, offloads: true };
    let (mut port, mut queues) =
        TapPort::new(config, doorbells, &counters, &(Arc::new(|| ()) as _)).expect("memory");
    let several = Settings { interface: "t1".into(), ..interface(true) };
    port.attach(open(&several, QUEUES as u16).expect("an interface")).expect("as many queues");
    let mut reader = Reader::register().expect("a place for a reader");
    let turn = reader.turn(4);
    let sockets: Vec<UdpSocket> = (0..32).map(|_| UdpSocket::bind("10.99.0.1:0").expect("a port")).collect();
    for (number, socket) in (0..).zip(&sockets) {
        socket.set_broadcast(true).expect("an option");
        socket.send_to(&[number; 9], BROADCAST).expect("the stack takes it");
    }
    let mut seen: Vec<u8> = Vec::new();
    let mut used = 0;
    for queue in &mut queues {
        let frames = take(queue, &turn);
        used += usize::from(!frames.is_empty());
        seen.extend(frames.iter().map(|(_, payload, _)| payload[0]));
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..32).collect::<Vec<u8>>());
    assert!(used > 1, "32 flows on one of four queues");
    let socket = UdpSocket::bind("10.99.0.1:6666").expect("a port");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("an option");
    let frame = datagram(b"any queue");
    for queue in &mut queues {
        let mut storage = Storage::default();
        let mut burst = Burst::begin(&mut storage);
        burst.push(Offload::default(), Span::of(&frame)).expect("room");
        queue.rx.put(&turn, &burst, &[0]);
        let mut bytes = [0; 100];
        let (count, _) = socket.recv_from(&mut bytes).expect("what was put arrives");
        assert_eq!(&bytes[..count], b"any queue");
    }
}
