//! How often each byte of a stream is copied, on each path: counts that are the same on every machine, compared with
//! `tests/copies.txt`. `BLESS=1` writes the file.

use crate::{Config, Device, Host, RingDevice, RingOptions, Source, pair};
use ringway_host::Mapping;
use ringway_netstack::{MS, SocketError, SocketId};
use ringway_port::pipe::Pipe;
use ringway_port::ring::open::{Program, RingListener};
use ringway_ring::{Consumer, Geometry, Producer, RX, RingMemory, TX};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of the stream, and of a call that writes some, and of one that reads.
const LEN: usize = 16 << 20;
const CALL: usize = 256 << 10;

/// How the program writes and reads.
#[derive(Clone, Copy)]
struct Calls {
    /// The program writes from a shared source, not from its own memory.
    shares: bool,
    /// How it reads.
    reads: Reads,
}

#[derive(Clone, Copy, PartialEq)]
enum Reads {
    /// The reader waits for bytes.
    Waits,
    /// The reader comes after the bytes arrived.
    Later,
    /// The reader comes later, and uses the bytes where they are, by `TcpStream::read_in_place`.
    InPlace,
}

/// The switch's side of a ring.
struct Port {
    memory: RingMemory,
    from: Consumer,
    to: Producer,
    _program: Program,
}

fn bind(name: &str) -> (RingListener, PathBuf) {
    let path = std::env::temp_dir().join(format!("ringway-sockets-copies-{}-{name}", std::process::id()));
    let listener = RingListener::bind(&path, Default::default()).unwrap();
    let path = PathBuf::from(listener.path());
    (listener, path)
}

fn port(name: &str, options: RingOptions) -> (RingDevice, Port) {
    let (listener, path) = bind(name);
    let device = std::thread::spawn(move || RingDevice::connect_with(&path, options));
    let (newcomer, hello) = listener.wait(None).unwrap();
    let program = newcomer.welcome(&hello, &Geometry::default()).unwrap();
    let file = program.descriptors()[0].try_clone_to_owned().unwrap();
    let memory = RingMemory::attach(Mapping::sealed(&file).unwrap().region()).unwrap();
    let (from, to) = (Consumer::new(&memory, TX), Producer::new(&memory, RX));
    (device.join().unwrap().unwrap(), Port { memory, from, to, _program: program })
}

fn options(slot_size: u32) -> RingOptions {
    RingOptions { slots: [512, 512], slot_size, ..RingOptions::default() }
}

/// The switch copies each frame once, from slot to slot; how many bytes.
fn carry(one: &mut Port, two: &mut Port, frame: &mut [u8]) -> u64 {
    let mut copied = 0;
    while one.from.available(&one.memory, 64).unwrap() > 0 && two.to.room(&two.memory, 64).unwrap() >= 64 {
        let received = one.from.pop(&one.memory, frame).unwrap().unwrap();
        assert!(two.to.push(&two.memory, &frame[..received.len], received.offload).unwrap());
        copied += received.len.saturating_sub(66) as u64;
    }
    one.from.publish(&one.memory);
    two.to.publish(&two.memory);
    copied
}

/// Writes until all is written, or there is no room.
fn write(host: &mut Host, socket: SocketId, bytes: &Arc<Vec<u8>>, sent: usize, calls: Calls) -> usize {
    let end = LEN.min(sent + CALL);
    let now = host.now();
    let source: Arc<dyn Source> = bytes.clone();
    let count = match calls.shares {
        true => host.stack().send_shared(now, socket, &source, sent..end),
        false => host.write(socket, &bytes[sent..end]),
    };
    sent + count.unwrap_or(0)
}

/// Reads the available bytes, as a program that waits or not.
fn read(host: &mut Host, socket: SocketId, out: &mut [u8], calls: Calls) -> usize {
    if calls.reads != Reads::Waits {
        host.poll().unwrap();
    }
    let now = host.now();
    if calls.reads == Reads::InPlace {
        let parts = host.stack().received(socket).unwrap();
        let bytes = parts.concat();
        let count = bytes.len().min(out.len());
        // Only for the comparison.
        out[..count].copy_from_slice(&bytes[..count]);
        host.stack().consume(now, socket, count).unwrap();
        return count;
    }
    match host.stack().recv(now, socket, out) {
        Err(SocketError::WouldBlock) if calls.reads == Reads::Waits => {
            host.permit_read(true);
            let count = host.read(socket, out).unwrap_or(0);
            host.turn(false).unwrap();
            count
        }
        count => count.unwrap_or(0),
    }
}

/// Copies of each byte by the sender, the switch, and the receiver.
fn copies(
    one: impl Device + 'static,
    two: impl Device + 'static,
    calls: Calls,
    mut switch: impl FnMut() -> u64,
) -> [f64; 3] {
    let config = |last: u8| Config::new(format!("10.0.0.{last}/24").parse().unwrap());
    let (mut client, mut server) = (Host::new(one, config(1)).unwrap(), Host::new(two, config(2)).unwrap());
    let mut now = 0;
    let mut tick = |hosts: [&mut Host; 2]| {
        now += MS / 10;
        for host in hosts {
            host.virtual_now = Some(now);
        }
    };
    tick([&mut client, &mut server]);
    let listener = server.stack().listen("0.0.0.0:7".parse().unwrap(), 1).unwrap();
    let at = client.now();
    let socket = client.stack().connect(at, "10.0.0.2:7".parse().unwrap()).unwrap();
    let accepted = loop {
        tick([&mut client, &mut server]);
        client.poll().unwrap();
        switch();
        server.poll().unwrap();
        switch();
        if let Ok(accepted) = server.stack().accept(listener) {
            break accepted.socket;
        }
    };
    let bytes: Arc<Vec<u8>> = Arc::new((0..LEN).map(|at| (at * 7 % 251) as u8 ^ (at >> 12) as u8).collect());
    let (mut sent, mut received, mut copied, mut out) = (0, 0, 0, vec![0; CALL]);
    while received < LEN {
        tick([&mut client, &mut server]);
        sent = write(&mut client, socket, &bytes, sent, calls);
        client.poll().unwrap();
        copied += switch();
        let count = read(&mut server, accepted, &mut out, calls);
        assert!(out[..count] == bytes[received..received + count]);
        received += count;
        copied += switch();
    }
    let info = client.stack().info(socket).unwrap();
    assert_eq!(info.tcpi_total_retrans, 0);
    [client.bytes_copied(), copied, server.bytes_copied()].map(|copied| copied as f64 / LEN as f64)
}

fn over_rings(name: &str, slot_size: u32, calls: Calls) -> [f64; 3] {
    let (one, mut first) = port(&format!("{name}-one"), options(slot_size));
    let (two, mut second) = port(&format!("{name}-two"), options(slot_size));
    let mut frame = vec![0; 1 << 17];
    copies(one, two, calls, move || {
        carry(&mut first, &mut second, &mut frame) + carry(&mut second, &mut first, &mut frame)
    })
}

/// `extra`: buffers, of which each end has half.
fn over_a_pipe(calls: Calls, extra: u32) -> [f64; 3] {
    let ((listener, path), mut pipe) = (bind("pipe"), Pipe::new(Geometry::default()));
    let mut ends = [path.clone(), path].map(|path| {
        let options = RingOptions { extra, ..options(16_384) };
        let device = std::thread::spawn(move || RingDevice::connect_with(&path, options));
        let (newcomer, hello) = listener.wait(None).unwrap();
        pipe.join(newcomer, hello).unwrap();
        Some(device)
    });
    let [one, two] = [0, 1].map(|end| ends[end].take().unwrap().join().unwrap().unwrap());
    copies(one, two, calls, || 0)
}

#[test]
fn no_byte_is_copied_more_often_than_before() {
    let waits = Calls { shares: false, reads: Reads::Waits };
    let comes = Calls { reads: Reads::Later, ..waits };
    let in_place = Calls { reads: Reads::InPlace, ..waits };
    let shares = Calls { shares: true, ..waits };
    let (one, two) = pair().unwrap();
    let rows = [
        ("rings of 16 KB slots, a shared source", over_rings("shared", 16_384, shares)),
        ("rings of 16 KB slots", over_rings("large", 16_384, waits)),
        ("rings of 16 KB slots, a reader that comes later", over_rings("later", 16_384, comes)),
        ("rings of 16 KB slots, a later reader in place", over_rings("place", 16_384, in_place)),
        ("rings of 2 KB slots", over_rings("small", 2048, waits)),
        ("rings of 2 KB slots, a reader that comes later", over_rings("small-later", 2048, comes)),
        ("a pipe of 16 KB slots", over_a_pipe(waits, 0)),
        ("a pipe of 16 KB slots, 512 extra buffers", over_a_pipe(waits, 512)),
        ("a pair in memory", copies(one, two, waits, || 0)),
    ];
    let mut text = String::from("# copies of a byte by the sender, the switch, the receiver; and in all\n");
    for (path, [sender, switch, receiver]) in rows {
        let all = sender + switch + receiver;
        writeln!(text, "{sender:.2} {switch:.2} {receiver:.2} {all:.2}  {path}").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/copies.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        text == golden,
        "{path} differs; with BLESS=1 it is written anew, if fewer copies are made:\n{text}"
    );
}
