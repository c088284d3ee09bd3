//! Programs on rings of ports, whose bytes stay in the ring's memory until they are acknowledged. The test takes the
//! switch's place.
#![allow(clippy::unwrap_used)]

use ringway_frame::{Needs, Offload};
use ringway_host::Mapping;
use ringway_mem::Span;
use ringway_netstack::{PIECES, Transmit};
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::{Program, RingListener};
use ringway_ring::{Consumer, Geometry, Producer, RX, RingMemory, TX};
use ringway_ring_client::{Ring, RingError, RingKind, Wait};
use ringway_sockets::{
    Config, Device, DeviceError, Network, Received, RingDevice, RingOptions, StoredBytes, TcpListener,
    TcpStream,
};
use std::io::{Read, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Longest time in which a program makes no progress.
const BOUND: Duration = Duration::from_secs(30);

/// Ends the switch's thread, also when a check fails.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// The switch's side of a ring.
struct Port {
    memory: RingMemory,
    from: Consumer,
    to: Producer,
    program: Program,
    /// Frames that name buffers of no slot.
    named: usize,
}

fn bind(name: &str) -> RingListener {
    let path = std::env::temp_dir().join(format!("ringway-sockets-rings-{}-{name}", std::process::id()));
    RingListener::bind(&path, Default::default()).unwrap()
}

fn port(name: &str, options: RingOptions) -> (RingDevice, Port) {
    let listener = bind(name);
    let path = PathBuf::from(listener.path());
    let device = std::thread::spawn(move || RingDevice::connect_with(&path, options));
    let port = Port::next(&listener);
    (device.join().unwrap().unwrap(), port)
}

impl Port {
    /// The port of the next program that connects.
    fn next(listener: &RingListener) -> Port {
        let (newcomer, hello) = listener.wait(None).unwrap();
        let program = newcomer.welcome(&hello, &Geometry::default()).unwrap();
        let file = program.descriptors()[0].try_clone_to_owned().unwrap();
        let memory = RingMemory::attach(Mapping::sealed(&file).unwrap().region()).unwrap();
        let (from, to) = (Consumer::new(&memory, TX), Producer::new(&memory, RX));
        Port { memory, from, to, program, named: 0 }
    }

    fn signal(&self) {
        ringway_host::signal_once(self.program.descriptors()[2]);
    }
}

/// Carries frames from one port to the other, and loses each `loses`th. Whether there were any.
fn carry([one, two]: [&mut Port; 2], frame: &mut [u8], count: &mut usize, loses: usize) -> bool {
    let mut some = false;
    while one.from.available(&one.memory, 64).unwrap() > 0 {
        let second =
            one.from.available(&one.memory, 2).unwrap() > 1 && one.from.slot(&one.memory, 0).has_more();
        if second && one.memory.extra().contains(&one.from.slot(&one.memory, 1).buf_idx) {
            one.named += 1;
        }
        let received = one.from.pop(&one.memory, frame).unwrap().unwrap();
        some = true;
        *count += 1;
        if !count.is_multiple_of(loses) {
            // A full ring drops it.
            let _ = two.to.push(&two.memory, &frame[..received.len], received.offload).unwrap();
        }
    }
    if one.from.publish(&one.memory) {
        one.signal();
    }
    if two.to.publish(&two.memory) {
        two.signal();
    }
    some
}

fn config(last: u8) -> Config {
    Config::new(format!("10.0.0.{last}/24").parse().unwrap())
}

/// Slots that are large enough for bytes to stay in the ring's memory.
fn large(extra: u32) -> RingOptions {
    RingOptions { slots: [256, 256], slot_size: 16_384, extra, ..RingOptions::default() }
}

/// Sends bytes there and back between two devices.
fn echo(one: impl Device + 'static, two: impl Device + 'static) {
    const LEN: usize = 6 << 20;
    let (client, server) = (Network::new(one, config(1)).unwrap(), Network::new(two, config(2)).unwrap());
    let listener = TcpListener::bind(&server, "10.0.0.2:80").unwrap();
    let stream = TcpStream::connect(&client, "10.0.0.2:80").unwrap();
    let (accepted, _) = listener.accept().unwrap();
    for end in [&stream, &accepted] {
        end.set_read_timeout(Some(BOUND)).unwrap();
        end.set_write_timeout(Some(BOUND)).unwrap();
    }
    let sent: Vec<u8> = (0..LEN).map(|at| (at * 7 % 251) as u8 ^ (at >> 12) as u8).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // Calls of many lengths, so that segments begin anywhere in a buffer.
            let (mut rest, mut len) = (&sent[..], 1);
            while !rest.is_empty() {
                let (part, after) = rest.split_at(len.min(rest.len()));
                (&stream).write_all(part).unwrap();
                (rest, len) = (after, len * 3 % 140_001 + 1);
            }
        });
        scope.spawn(|| {
            let mut block = vec![0; 100_000];
            let mut left = LEN;
            while left > 0 {
                let count = (&accepted).read(&mut block).unwrap();
                (&accepted).write_all(&block[..count]).unwrap();
                left -= count;
            }
        });
        let mut received = vec![0; LEN];
        (&stream).read_exact(&mut received).unwrap();
        assert!(received == sent, "the bytes are those that were sent");
    });
}

/// Sends bytes there and back over a switch with losses; the ports, to look at.
fn exchange(name: &str, extra: u32) -> [Port; 2] {
    let ((one, mut first), (two, mut second)) =
        (port(&format!("{name}-one"), large(extra)), port(&format!("{name}-two"), large(extra)));
    let (stop, mut frame, mut count) = (AtomicBool::new(false), vec![0; 1 << 17], 0);
    std::thread::scope(|scope| {
        let _ending = Ending(&stop);
        let switch = scope.spawn(|| {
            while !stop.load(Relaxed) {
                let there = carry([&mut first, &mut second], &mut frame, &mut count, 41);
                let back = carry([&mut second, &mut first], &mut frame, &mut count, 41);
                if !there && !back {
                    std::thread::yield_now();
                }
            }
        });
        echo(one, two);
        drop(Ending(&stop));
        switch.join().unwrap();
    });
    [first, second]
}

#[test]
fn bytes_are_sent_from_the_rings_memory() {
    for port in exchange("many", 0) {
        assert!(port.named > 50, "{} frames name buffers", port.named);
    }
}

#[test]
fn bytes_without_a_buffer_are_copied() {
    let ports = exchange("few", 3);
    assert!(ports[0].named > 0);
}

/// Pieces of a frame: some in the ring's memory, as many bytes of others between them; and all of the frame's bytes.
fn pieces<'a>(count: usize, stored: &'a [StoredBytes], own: &'a [u8]) -> (Vec<Span<'a>>, Vec<u8>) {
    let headers = std::iter::repeat_n(0xee, 114);
    let of = |number: usize| match stored.get(number / 2).filter(|_| number.is_multiple_of(2)) {
        Some((source, _)) => source.span(0..1100 + number),
        None => Span::of(&own[number..2 * number + 1]),
    };
    let spans: Vec<_> = (0..count).map(of).collect();
    let mut frame: Vec<u8> = headers.collect();
    for span in &spans {
        let at = frame.len();
        frame.resize(at + span.len(), 0);
        span.read(&mut frame[at..]);
    }
    (spans, frame)
}

#[test]
fn frames_of_many_pieces_are_sent_whole() {
    let own: Vec<u8> = (0..100).collect();
    let (mut device, mut port) = port("pieces", large(16));
    let stored: Vec<_> = (0..12).map(|number| device.store(&[number; 8192]).unwrap()).collect();
    for count in [1, 9, PIECES] {
        let (spans, sent) = pieces(count, &stored, &own);
        assert!(device.frame(Default::default(), &sent[..114], &spans));
        device.flush().unwrap();
        let mut frame = vec![0; 1 << 16];
        let received = port.from.pop(&port.memory, &mut frame).unwrap().unwrap();
        assert!(frame[..received.len] == sent[..], "{count} pieces");
        port.from.publish(&port.memory);
    }
    let (mut one, two, _pipe) = pipe("pieces-pipe", large(0));
    let mut two = RingDevice::from(two);
    for count in [1, 9, PIECES] {
        let (spans, sent) = pieces(count, &[], &own);
        assert!(one.frame(Default::default(), &sent[..114], &spans));
        one.flush().unwrap();
        let mut frame = vec![0; 1 << 16];
        let len = two.receive().unwrap().unwrap().read(&mut frame);
        assert!(frame[..len] == sent[..], "{count} pieces");
    }
}

#[test]
fn a_buffer_is_used_again_when_nobody_needs_it_and_its_frame_was_read() {
    let (mut device, mut port) = port("again", large(4));
    let bytes = vec![7; 16_384];
    let mut all: Vec<_> = std::iter::from_fn(|| device.store(&bytes)).collect();
    assert_eq!(all.len(), 4);
    assert!(all.iter().all(|(_, len)| *len == 16_384));
    let (last, _) = all.pop().unwrap();
    assert!(device.frame(Default::default(), &[1; 14], &[last.span(0..16_384)]));
    device.flush().unwrap();
    // A peer that acknowledges what it can't have received yet.
    drop(last);
    assert!(device.store(&bytes).is_none(), "its frame is still in the ring");
    let mut frame = vec![0; 20_000];
    let received = port.from.pop(&port.memory, &mut frame).unwrap().unwrap();
    assert_eq!((received.len, &frame[..15], frame[16_397]), (16_398, &[&[1; 14][..], &[7]].concat()[..], 7));
    port.from.publish(&port.memory);
    let (again, _) = device.store(&vec![9; 16_384]).unwrap();
    assert!(device.store(&bytes).is_none());
    drop(all);
    assert!(device.store(&bytes).is_some(), "no frame has these");
    // A part of a buffer that does not begin where the buffer does is copied.
    let part = again.span(100..4000);
    assert!(device.frame(Default::default(), &[2; 14], &[part, Span::of(&[5; 10])]));
    device.flush().unwrap();
    assert!(!port.memory.extra().contains(&port.from.slot(&port.memory, 0).buf_idx));
    let received = port.from.pop(&port.memory, &mut frame).unwrap().unwrap();
    let expected = [&[2; 14][..], &[9; 3900], &[5; 10]].concat();
    assert!(frame[..received.len] == expected[..]);
}

#[test]
fn a_buffer_is_not_used_again_while_its_frame_waits_behind_many_others() {
    let (mut device, mut port) = port("behind", large(1));
    let (bytes, mut frame) = (vec![7; 16_384], vec![0; 20_000]);
    // More frames than the ring has slots, all read, before the first bytes are stored.
    for _ in 0..1000 {
        assert!(device.frame(Default::default(), &[1; 60], &[]));
        device.flush().unwrap();
        assert_eq!(port.from.pop(&port.memory, &mut frame).unwrap().unwrap().len, 60);
        port.from.publish(&port.memory);
    }
    let (stored, _) = device.store(&bytes).unwrap();
    assert!(device.frame(Default::default(), &[1; 14], &[stored.span(0..16_384)]));
    device.flush().unwrap();
    drop(stored);
    assert!(device.store(&bytes).is_none(), "its frame is still in the ring");
    port.from.pop(&port.memory, &mut frame).unwrap().unwrap();
    port.from.publish(&port.memory);
    assert!(device.store(&bytes).is_some());
}

#[test]
fn buffers_are_not_requested_where_slots_are_too_small_for_them() {
    let extra = |name, options| port(name, options).1.memory.extra().len();
    let small = RingOptions { slot_size: 4096, ..RingOptions::default() };
    assert_eq!([extra("none", small), extra("all", large(0))], [0, 256]);
    assert_eq!(extra("own", RingOptions { extra: 5, ..small }), 5, "the program's choice");
}

/// The two ends of a pipe.
fn pipe(name: &str, options: RingOptions) -> (RingDevice, Ring, Pipe) {
    pipe_of(name, options, move |path| Ring::connect_with(path, options, Some(BOUND)).unwrap())
}

/// The two ends of a pipe, the second of which is made by `connect`.
fn pipe_of<T: Send + 'static>(
    name: &str,
    options: RingOptions,
    connect: impl FnOnce(&Path) -> T + Send + 'static,
) -> (RingDevice, T, Pipe) {
    let (listener, mut pipe) = (bind(name), Pipe::new(Geometry::default()));
    let path = PathBuf::from(listener.path());
    let device = std::thread::spawn({
        let path = path.clone();
        move || RingDevice::connect_with(&path, options)
    });
    let (newcomer, hello) = listener.wait(None).unwrap();
    pipe.join(newcomer, hello).unwrap();
    let other = std::thread::spawn(move || connect(&path));
    let (newcomer, hello) = listener.wait(None).unwrap();
    pipe.join(newcomer, hello).unwrap();
    (device.join().unwrap().unwrap(), other.join().unwrap(), pipe)
}

/// An end of a pipe that loses frames and changes their order.
struct Bad {
    device: RingDevice,
    frames: usize,
    /// A frame that is sent behind the next one.
    late: Option<(Offload, Vec<u8>)>,
    /// Bytes that were sent from the ring's memory, without a copy.
    lent: Arc<AtomicUsize>,
}

impl Bad {
    fn new(device: RingDevice) -> (Bad, Arc<AtomicUsize>) {
        let lent = Arc::new(AtomicUsize::new(0));
        (Bad { device, frames: 0, late: None, lent: lent.clone() }, lent)
    }
}

impl Transmit for Bad {
    fn frame(&mut self, offload: Offload, headers: &[u8], payload: &[Span<'_>]) -> bool {
        self.frames += 1;
        if self.frames.is_multiple_of(41) {
            return true;
        }
        if self.frames.is_multiple_of(17) && self.late.is_none() {
            let mut frame = headers.to_vec();
            for piece in payload {
                let at = frame.len();
                frame.resize(at + piece.len(), 0);
                piece.read(&mut frame[at..]);
            }
            self.late = Some((offload, frame));
            return true;
        }
        let before = self.device.copied();
        if !self.device.frame(offload, headers, payload) {
            return false;
        }
        let (len, copied) =
            (payload.iter().map(|piece| piece.len()).sum::<usize>(), self.device.copied() - before);
        self.lent.fetch_add(len - copied as usize, Relaxed);
        if let Some((offload, frame)) = self.late.take() {
            // Lost if there is no room.
            self.device.frame(offload, &frame, &[]);
        }
        true
    }
}

impl Device for Bad {
    fn offloads(&self) -> Needs {
        self.device.offloads()
    }

    fn receive(&mut self) -> Result<Option<Received<'_>>, DeviceError> {
        self.device.receive()
    }

    fn store(&mut self, bytes: &[u8]) -> Option<StoredBytes> {
        self.device.store(bytes)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.device.flush()
    }

    fn arm(&mut self, room: bool) -> Result<bool, DeviceError> {
        self.device.arm(room)
    }

    fn disarm(&mut self) {
        self.device.disarm();
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.device.descriptors()
    }

    fn notified(&mut self, descriptor: usize) -> Result<(), DeviceError> {
        self.device.notified(descriptor)
    }
}

#[test]
fn bytes_are_right_over_a_pipe_that_loses_and_reorders_frames_from_its_memory() {
    let connect = |path: &Path| RingDevice::connect_with(path, large(0)).unwrap();
    let (one, two, _pipe) = pipe_of("lent", large(0), connect);
    let ([one, two], [first, second]) = {
        let ((one, first), (two, second)) = (Bad::new(one), Bad::new(two));
        ([one, two], [first, second])
    };
    echo(one, two);
    for lent in [first, second] {
        let lent = lent.load(Relaxed);
        assert!(lent > 1 << 20, "{lent} bytes were not copied to a slot");
    }
}

#[test]
fn parts_of_stored_bytes_are_sent_from_anywhere_in_a_pipes_memory() {
    let connect = |path: &Path| RingDevice::connect_with(path, large(0)).unwrap();
    let (mut one, mut two, _pipe) = pipe_of("within", large(0), connect);
    let bytes: Vec<u8> = (0..16_384).map(|at| (at % 251) as u8).collect();
    let (stored, _) = one.store(&bytes).unwrap();
    let copied = one.copied();
    let mut frame = vec![0; 40_000];
    // The last one is too short to be worth a slot.
    for (at, len, more) in
        [(0, 16_384, 0), (1, 16_383, 0), (9000, 2000, 0), (15_000, 1384, 0), (16_000, 384, 384)]
    {
        let before = one.copied();
        assert!(one.frame(Default::default(), &[9; 54], &[stored.span(at..at + len)]));
        one.flush().unwrap();
        assert_eq!(one.copied() - before, more, "{at} {len}");
        let read = two.receive().unwrap().unwrap().read(&mut frame);
        assert!(frame[..read] == [&[9; 54], &bytes[at..at + len]].concat()[..], "{at} {len}");
        two.flush().unwrap();
    }
    assert_eq!(one.copied() - copied, 384);
}

#[test]
fn a_slot_with_bytes_beyond_its_buffer_breaks_a_pipe() {
    for (offset, len) in [(16_384u16, 1), (u16::MAX, 100), (16_000, 385)] {
        let (mut device, mut other, _pipe) = pipe(&format!("beyond-{offset}"), large(0));
        assert!(other.tx.room(2).unwrap() >= 2);
        for (ahead, flags, len, offset) in [(0, 0x20, 54, 0), (1, 0x40, len, offset)] {
            let mut slot = other.tx.slot(ahead);
            (slot.flags, slot.len) = (flags, len);
            slot.offload[..2].copy_from_slice(&offset.to_le_bytes());
            other.tx.set_slot(ahead, slot);
        }
        other.tx.advance(2);
        other.sync().unwrap();
        assert!(device.receive().unwrap().is_none());
        device.flush().unwrap();
        assert!(device.away().is_some_and(|why| why.contains("buffer")), "{:?}", device.away());
    }
}

#[test]
fn the_ends_of_a_pipe_store_bytes_in_different_buffers() {
    let connect = |path: &Path| RingDevice::connect_with(path, large(8)).unwrap();
    let (mut one, mut two, _pipe) = pipe_of("halves", large(8), connect);
    let fill = |device: &mut RingDevice, byte: u8| -> Vec<_> {
        std::iter::from_fn(|| device.store(&[byte; 16_384])).map(|(source, _)| source).collect()
    };
    let (ones, twos) = (fill(&mut one, 1), fill(&mut two, 2));
    assert_eq!([ones.len(), twos.len()], [4, 4]);
    for (sources, byte) in [(ones, 1), (twos, 2)] {
        for source in sources {
            let mut bytes = vec![0; 16_384];
            source.span(0..16_384).read(&mut bytes);
            assert!(bytes == [byte; 16_384]);
        }
    }
}

#[test]
fn bytes_to_this_host_itself_are_not_put_where_the_other_end_could_read_them() {
    let (device, port) = port("itself", large(0));
    let network = Network::new(device, config(1)).unwrap();
    let listener = TcpListener::bind(&network, "10.0.0.1:80").unwrap();
    let mut stream = TcpStream::connect(&network, "10.0.0.1:80").unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(&[0xa7; 60_000]).unwrap();
    let mut bytes = vec![0; 60_000];
    accepted.read_exact(&mut bytes).unwrap();
    assert!(bytes == [0xa7; 60_000]);
    for number in 0..port.memory.header().buffers as u16 {
        let mut bytes = vec![0; 16_384];
        port.memory.buffer(number, 16_384).unwrap().as_span().read(&mut bytes);
        assert!(!bytes.contains(&0xa7), "buffer {number}");
    }
}

#[test]
fn frames_on_a_pipe_stay_whole_though_its_other_end_exchanges_buffers() {
    let (mut device, mut other, _pipe) = pipe("pipe", RingOptions { slots: [64, 64], ..large(0) });
    assert!(
        device.store(&[0; 16_384]).is_none(),
        "its other end did not say that it leaves buffers where they are"
    );
    assert_eq!((other.kind(), other.tx.slots(), other.rx.slots()), (RingKind::Pipe, 64, 64));
    // The other end returns each frame without a copy: it exchanges the buffers of a slot that it received and of one
    // that it sends.
    let mut number = 0u8;
    for round in 0..3u8 {
        for _ in 0..64 {
            number += 1;
            let payload = [number; 2000];
            assert!(device.frame(Default::default(), &[number; 54], &[Span::of(&payload)]));
        }
        device.flush().unwrap();
        assert_eq!(other.rx.available(64).unwrap(), 64);
        if round > 0 {
            // Frames of the round before are received only now.
            for expected in number - 127..=number - 64 {
                let received = device.receive().unwrap().unwrap();
                let mut bytes = received.head.to_vec();
                for piece in &received.rest {
                    bytes.resize(bytes.len() + piece.len(), 0);
                    let at = bytes.len() - piece.len();
                    piece.read(&mut bytes[at..]);
                }
                assert!(bytes == [expected; 2054], "frame {expected} is another one");
            }
            device.flush().unwrap();
        }
        assert_eq!(other.tx.room(64).unwrap(), 64);
        for _ in 0..64 {
            let slot = other.rx.swap(0, other.tx.slot(0).buf_idx);
            other.tx.set_slot(0, slot);
            other.tx.advance(1);
            other.rx.advance(1);
        }
        other.sync().unwrap();
    }
}

/// Carries frames between the next programs on two ports while `check` runs; then the fabric is down.
fn fabric<R>(names: [&str; 2], check: impl FnOnce() -> R) -> R {
    let listeners = names.map(bind);
    let [mut first, mut second] = [0, 1].map(|at| Port::next(&listeners[at]));
    let (stop, mut frame, mut count) = (AtomicBool::new(false), vec![0; 1 << 17], 0);
    std::thread::scope(|scope| {
        let ending = Ending(&stop);
        scope.spawn(|| {
            while !stop.load(Relaxed) {
                let there = carry([&mut first, &mut second], &mut frame, &mut count, usize::MAX);
                if !carry([&mut second, &mut first], &mut frame, &mut count, usize::MAX) && !there {
                    std::thread::yield_now();
                }
            }
        });
        let result = check();
        drop(ending);
        result
    })
}

#[test]
fn a_network_goes_on_when_its_fabric_is_up_again() {
    let names = ["restart-one", "restart-two"];
    let path =
        |name| std::env::temp_dir().join(format!("ringway-sockets-rings-{}-{name}", std::process::id()));
    let networks = std::thread::spawn(move || {
        [1, 2].map(|last| {
            let path = path(names[usize::from(last) - 1]);
            let device = loop {
                match RingDevice::connect_with(&path, large(0)) {
                    Ok(device) => break device,
                    // Not bound yet.
                    Err(_) => std::thread::yield_now(),
                }
            };
            Network::new(device, config(last)).unwrap()
        })
    });
    let (stream, accepted, listener, client) = fabric(names, || {
        let [client, server] = networks.join().unwrap();
        let listener = TcpListener::bind(&server, "10.0.0.2:80").unwrap();
        let stream = TcpStream::connect(&client, "10.0.0.2:80").unwrap();
        let (accepted, _) = listener.accept().unwrap();
        (&stream).write_all(b"before").unwrap();
        (&accepted).read_exact(&mut [0; 6]).unwrap();
        assert_eq!(client.away(), None);
        (stream, accepted, listener, client)
    });
    // Both ends of the connection are told, also a program that waits.
    for end in [&stream, &accepted] {
        end.set_read_timeout(Some(BOUND)).unwrap();
        let error = (&*end).read(&mut [0; 6]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::NetworkDown, "{error}");
        assert_eq!(error.to_string(), "network is down");
    }
    assert!(client.away().is_some_and(|why| why.contains(' ')), "{:?}", client.away());
    fabric(names, || {
        // The listener is the same one.
        let stream = TcpStream::connect(&client, "10.0.0.2:80").unwrap();
        let (accepted, _) = listener.accept().unwrap();
        accepted.set_read_timeout(Some(BOUND)).unwrap();
        (&stream).write_all(&[7; 100_000]).unwrap();
        let mut bytes = vec![0; 100_000];
        (&accepted).read_exact(&mut bytes).unwrap();
        assert!(bytes == [7; 100_000]);
        assert_eq!(client.away(), None);
    });
}

#[test]
fn a_ring_is_renewed_when_its_fabric_is_up_again() {
    let (listener, options) = (bind("renew"), RingOptions::default());
    let path = PathBuf::from(listener.path());
    let program = std::thread::spawn(move || {
        let mut ring = Ring::connect_with(&path, options, Some(BOUND)).unwrap();
        assert!(matches!(ring.wait(Wait::RX, Some(BOUND)), Err(RingError::Closed)));
        // Nobody listens for a while.
        let mut ring = ring.renew(Some(BOUND)).unwrap();
        assert!(ring.wait(Wait::RX, Some(BOUND)).unwrap());
        ring.rx.pop(&mut [0; 60]).unwrap().unwrap().len
    });
    drop((Port::next(&listener), listener));
    let listener = bind("renew");
    let mut port = Port::next(&listener);
    assert!(port.to.push(&port.memory, &[7; 60], Default::default()).unwrap());
    if port.to.publish(&port.memory) {
        port.signal();
    }
    assert_eq!(program.join().unwrap(), 60);
    // What can't pass is told at once.
    let nowhere = std::env::temp_dir().join("ringway-no-such-port");
    let errors = [
        format!("{:?}", Ring::connect(&nowhere).unwrap_err()),
        format!("{:?}", RingDevice::connect(&nowhere).unwrap_err()),
    ];
    for error in errors {
        // What a `main` prints that returns it.
        assert!(error.contains("ringway-no-such-port: No such file or directory"), "{error}");
        assert!(error.contains("; is the fabric up, and") && !error.contains('{'), "{error}");
    }
}
