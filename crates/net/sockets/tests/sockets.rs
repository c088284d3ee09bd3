//! Sockets of two networks on a pair in memory.
#![allow(clippy::unwrap_used)]

use ringway_sockets::{Config, Host, Mapped, Network, TcpListener, TcpStream, UdpSocket, pair};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

fn configs() -> [Config; 2] {
    ["10.0.0.1/24", "10.0.0.2/24"].map(|address| Config::new(address.parse().unwrap()))
}

fn networks() -> (Network, Network) {
    let ((one, two), [a, b]) = (pair().unwrap(), configs());
    (Network::new(one, a).unwrap(), Network::new(two, b).unwrap())
}

/// A connection's two ends, and the networks.
fn connection() -> (TcpStream, TcpStream, [Network; 2]) {
    let (one, two) = networks();
    let listener = TcpListener::bind(&two, "10.0.0.2:80").unwrap();
    let client = TcpStream::connect(&one, "10.0.0.2:80").unwrap();
    let (server, peer) = listener.accept().unwrap();
    assert_eq!(peer, client.local_addr().unwrap());
    assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
    (client, server, [one, two])
}

fn byte(at: usize) -> u8 {
    (at % 251) as u8
}

/// Writes a stream in pieces of many sizes, then its end.
fn fill(mut to: &TcpStream, len: usize) {
    let mut at = 0;
    while at < len {
        let end = len.min(at + 1 + at * 7 % 50_000);
        let piece: Vec<u8> = (at..end).map(byte).collect();
        to.write_all(&piece).unwrap();
        at = end;
    }
    to.shutdown(Shutdown::Write).unwrap();
}

fn check(mut from: &TcpStream, len: usize) {
    let (mut at, mut bytes) = (0, vec![0; 30_000]);
    loop {
        let count = from.read(&mut bytes).unwrap();
        if count == 0 {
            break;
        }
        assert!(bytes[..count].iter().enumerate().all(|(place, &found)| found == byte(at + place)));
        at += count;
    }
    assert_eq!(at, len);
}

#[test]
fn streams_flow_both_ways_at_once() {
    const LEN: usize = 4 << 20;
    let (client, server, _networks) = connection();
    std::thread::scope(|scope| {
        for (stream, other) in [(&client, &server), (&server, &client)] {
            scope.spawn(|| fill(stream, LEN));
            scope.spawn(|| check(other, LEN));
        }
    });
}

#[test]
fn callers_that_spin_see_the_same_stream() {
    let ((one, two), configs) = (pair().unwrap(), configs());
    let [a, b] = configs.map(|config| Config { spin: Duration::from_micros(20), ..config });
    let (one, two) = (Network::new(one, a).unwrap(), Network::new(two, b).unwrap());
    let listener = TcpListener::bind(&two, "0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    assert!(port >= 32_768);
    let echo = std::thread::spawn(move || {
        let (mut stream, _peer) = listener.accept().unwrap();
        std::io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
    });
    let mut stream = TcpStream::connect(&one, ("10.0.0.2", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    for round in 0..2000_u32 {
        stream.write_all(&round.to_le_bytes()).unwrap();
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, round.to_le_bytes());
    }
    drop(stream);
    echo.join().unwrap();
}

#[test]
fn many_threads_share_a_network() {
    let (one, two) = networks();
    let listener = TcpListener::bind(&two, "10.0.0.2:7").unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
        }
    });
    std::thread::scope(|scope| {
        for number in 0..16_u8 {
            let one = &one;
            scope.spawn(move || {
                let mut stream = TcpStream::connect(one, "10.0.0.2:7").unwrap();
                for round in 0..100_usize {
                    let sent = vec![number; 1 + round * 97 % 3000];
                    stream.write_all(&sent).unwrap();
                    let mut bytes = vec![0; sent.len()];
                    stream.read_exact(&mut bytes).unwrap();
                    assert_eq!(bytes, sent);
                }
            });
        }
    });
}

#[test]
fn modes_and_timeouts_are_those_of_std() {
    let (mut client, mut server, _networks) = connection();
    let mut bytes = [0; 8];
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
    client.set_nonblocking(false).unwrap();
    assert_eq!(client.set_read_timeout(Some(Duration::ZERO)).unwrap_err().kind(), ErrorKind::InvalidInput);
    client.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
    let begin = Instant::now();
    assert_eq!(client.read(&mut bytes).unwrap_err().kind(), ErrorKind::TimedOut);
    assert!(begin.elapsed() >= Duration::from_millis(5));
    client.set_read_timeout(None).unwrap();
    server.write_all(b"twice").unwrap();
    assert_eq!(client.peek(&mut bytes).unwrap(), 5);
    assert_eq!(client.read_in_place(|parts| parts[0].len().min(2)).unwrap(), 2);
    assert_eq!(client.read_in_place(|_| 0).unwrap(), 0);
    assert_eq!((client.read(&mut bytes).unwrap(), &bytes[..3]), (3, &b"ice"[..]));
    server.write_all(b"more").unwrap();
    // What it was not shown is not removed.
    assert_eq!(client.read_in_place(|_| usize::MAX).unwrap(), 4);
    // What the peer does not read fills the buffers.
    client.set_nonblocking(true).unwrap();
    let mut sent = 0;
    let error = loop {
        match client.write(&[1; 1 << 16]) {
            Ok(count) => sent += count,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
    assert!(sent < 16 << 20, "{sent}");
    client.set_nonblocking(false).unwrap();
    client.shutdown(Shutdown::Both).unwrap();
    assert_eq!(client.read(&mut bytes).unwrap(), 0);
    assert_eq!(client.write(&[1]).unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut received = Vec::new();
    server.read_to_end(&mut received).unwrap();
    assert!(received.len() >= sent && received.iter().all(|byte| *byte == 1));
}

#[test]
fn errors_are_those_of_std() {
    let (one, two) = networks();
    let refused = TcpStream::connect(&one, "10.0.0.2:81").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let outside = TcpStream::connect(&one, "10.9.0.2:80").unwrap_err();
    assert_eq!(outside.kind(), ErrorKind::NetworkUnreachable);
    let nobody = "10.0.0.77:80".parse().unwrap();
    let late = TcpStream::connect_timeout(&one, &nobody, Duration::from_millis(2)).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    let listener = TcpListener::bind(&two, "10.0.0.2:80").unwrap();
    assert_eq!(TcpListener::bind(&two, "10.0.0.2:80").unwrap_err().kind(), ErrorKind::AddrInUse);
    // Dropping the network unplugs the other's cable.
    drop((listener, two));
    let down = TcpStream::connect(&one, "10.0.0.2:80").unwrap_err();
    assert_eq!(down.kind(), ErrorKind::NetworkDown);
}

#[test]
fn a_connection_that_was_not_read_is_reset() {
    let (mut client, server, _networks) = connection();
    client.write_all(b"unread").unwrap();
    server.peek(&mut [0; 6]).unwrap();
    drop(server);
    assert_eq!(client.read(&mut [0; 6]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(client.take_error().unwrap().unwrap().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_resets_its_connection() {
    let (client, mut server, _networks) = connection();
    let path = std::env::temp_dir().join(format!("ringway-shrinks-{}", std::process::id()));
    std::fs::write(&path, vec![7; 8 << 20]).unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let source = Mapped::of(&file).unwrap();
    // More than the receiver, which does not read, has room for.
    client.set_nonblocking(true).unwrap();
    let mut sent = 0;
    while let Ok(count) = client.write_shared(&source, sent..source.len()) {
        sent += count;
    }
    file.set_len(0).unwrap();
    let mut bytes = vec![0; 65536];
    let error = loop {
        if let Err(error) = server.read(&mut bytes) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let error = client.write_shared(&source, 0..1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
}

#[test]
fn a_drained_network_has_delivered_everything() {
    const LEN: usize = 1 << 20;
    let (client, server, networks) = connection();
    let reader = std::thread::spawn(move || check(&server, LEN));
    fill(&client, LEN);
    drop(client);
    networks[0].drain(Duration::from_secs(60)).unwrap();
    assert!(networks[0].with(|stack| stack.is_drained()));
    reader.join().unwrap();
}

#[test]
fn datagrams_arrive_with_their_sender() {
    let (one, two) = networks();
    let socket = UdpSocket::bind(&one, "0.0.0.0:0").unwrap();
    let server = UdpSocket::bind(&two, "10.0.0.2:53").unwrap();
    socket.connect("10.0.0.2:53").unwrap();
    let long: Vec<u8> = (0..20_000).map(byte).collect();
    for datagram in [&b"short"[..], &long] {
        assert_eq!(socket.send(datagram).unwrap(), datagram.len());
        let mut bytes = vec![0; 30_000];
        let (len, from) = server.recv_from(&mut bytes).unwrap();
        assert_eq!((&bytes[..len], from.port()), (datagram, socket.local_addr().unwrap().port()));
        server.send_to(&bytes[..3], from).unwrap();
        assert_eq!(socket.recv(&mut bytes).unwrap(), 3);
    }
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
    drop(server);
    socket.send(b"nobody").unwrap();
    socket.set_read_timeout(None).unwrap();
    assert_eq!(socket.recv(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

/// Two hosts polled by one thread.
#[test]
fn a_polled_host_sleeps_until_a_deadline_or_a_frame() {
    let ((one, two), [a, b]) = (pair().unwrap(), configs());
    let (mut client, mut server) = (Host::new(one, a).unwrap(), Host::new(two, b).unwrap());
    // An idle host has no deadline but that of the second announcement of its addresses.
    assert!(client.arm().unwrap() > Some(Duration::from_secs(1)));
    let listener = server.stack().listen("0.0.0.0:80".parse().unwrap(), 16).unwrap();
    let now = client.now();
    let socket = client.stack().connect(now, "10.0.0.2:80".parse().unwrap()).unwrap();
    client.poll().unwrap();
    // The request for the neighbour's address is repeated after a second.
    assert!(client.arm().unwrap().is_none_or(|sleep| sleep <= Duration::from_secs(1)));
    let accepted = loop {
        client.poll().unwrap();
        server.poll().unwrap();
        if let Ok(accepted) = server.stack().accept(listener) {
            break accepted.socket;
        }
    };
    let now = client.now();
    client.stack().send(now, socket, b"hello").unwrap();
    client.poll().unwrap();
    // A frame is there: the server may not sleep.
    assert_eq!(server.arm().unwrap(), None);
    server.poll().unwrap();
    assert_eq!(server.stack().received(accepted).unwrap()[0], b"hello");
    // The waiting thread is woken by the next connection.
    let sleeper = std::thread::spawn(move || {
        while server.stack().received(accepted).unwrap()[0].len() < 10 {
            server.wait(None).unwrap();
            server.poll().unwrap();
        }
        server
    });
    let now = client.now();
    client.stack().send(now, socket, b"again").unwrap();
    while !sleeper.is_finished() {
        client.wait(Some(Duration::from_millis(1))).unwrap();
        client.poll().unwrap();
    }
    sleeper.join().unwrap();
}
