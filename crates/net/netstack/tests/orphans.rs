//! Connections that their programs have closed, and whose peers would keep them.
#![allow(clippy::unwrap_used)]

use crate::common::{Line, Network, drain, fill};
use ringway_netstack::{ConnectionError, MS, SECOND, Settings, SocketId};

const MOST: usize = 8;
const CONNECTIONS: usize = 100;
/// More than a receiver that does not read has room for.
const LEN: u64 = 60_000;

/// A server that closes each connection after `len` bytes; the sockets of its clients, which have not read.
fn closed(settings: &Settings, len: u64) -> (Network, Vec<SocketId>) {
    let mut network = Network::new(settings, Line { delay: MS, ..Line::default() }, 1);
    let address = "10.0.0.2:80".parse().unwrap();
    let listener = network.hosts[1].listen(address, 16).unwrap();
    let clients = (0..CONNECTIONS).map(|_| {
        let now = network.now;
        let client = network.hosts[0].connect(now, address).unwrap();
        network.run(now + 10 * MS);
        let (now, server) = (network.now, network.hosts[1].accept(listener).unwrap().socket);
        assert_eq!(fill(&mut network.hosts[1], now, server, 0, len), len);
        network.run(now + 10 * MS);
        let now = network.now;
        network.hosts[1].close(now, server).unwrap();
        network.run(now + 10 * MS);
        client
    });
    let clients = clients.collect();
    (network, clients)
}

fn settings() -> Settings {
    let buffer = [4 << 10, 64 << 10, 64 << 10];
    let small = [4 << 10; 3];
    Settings { tcp_rmem: small, tcp_wmem: buffer, tcp_max_orphans: MOST, ..Settings::default() }
}

#[test]
fn peers_that_take_nothing_keep_a_few_connections() {
    let (mut network, clients) = closed(&settings(), LEN);
    let ended = network.hosts[1].statistics().orphans_ended as usize;
    assert!((CONNECTIONS - MOST..=CONNECTIONS - MOST / 2).contains(&ended), "{ended} have ended");
    assert!(network.hosts[1].memory() <= MOST * (128 << 10), "{} bytes", network.hosts[1].memory());
    // The oldest ones were reset. The newest one goes on, and all of its bytes arrive.
    let reset =
        |network: &Network, client| network.hosts[0].error(client) == Ok(Some(ConnectionError::Reset));
    assert_eq!(clients.iter().filter(|client| reset(&network, **client)).count(), ended);
    assert!(clients[..ended].iter().all(|client| reset(&network, *client)));
    let (last, mut read) = (clients[CONNECTIONS - 1], 0);
    while read < LEN {
        let now = network.now;
        read = drain(&mut network.hosts[0], now, last, read);
        assert!(read == LEN || network.step(now + 60 * SECOND), "it stops after {read} bytes");
    }
    // The remaining connections end in time though their peers answer.
    let until = network.now + 300 * SECOND;
    network.run(until);
    assert_eq!(network.hosts[1].memory(), 0);
}

#[test]
fn connections_in_time_wait_end_first() {
    // These clients have everything, and end their streams.
    let (mut network, clients) = closed(&Settings { tcp_max_orphans: 1000, ..settings() }, 1000);
    for client in &clients {
        let now = network.now;
        assert_eq!(drain(&mut network.hosts[0], now, *client, 0), 1000);
        network.hosts[0].close(now, *client).unwrap();
        network.run(now + 10 * MS);
    }
    network.hosts[1].set_settings(settings());
    let address = "10.0.0.2:81".parse().unwrap();
    let listener = network.hosts[1].listen(address, 16).unwrap();
    let slow: Vec<SocketId> = (0..3)
        .map(|_| {
            let now = network.now;
            let client = network.hosts[0].connect(now, address).unwrap();
            network.run(now + 10 * MS);
            let (now, server) = (network.now, network.hosts[1].accept(listener).unwrap().socket);
            fill(&mut network.hosts[1], now, server, 0, LEN);
            network.hosts[1].close(now, server).unwrap();
            network.run(now + 10 * MS);
            client
        })
        .collect();
    assert!(network.hosts[1].statistics().orphans_ended as usize >= CONNECTIONS - MOST);
    for client in slow {
        assert_eq!(network.hosts[0].error(client), Ok(None));
    }
}

#[test]
fn peers_that_no_program_accepts_keep_as_many_connections_as_the_backlog() {
    const BACKLOG: usize = 4;
    let mut network = Network::new(&settings(), Line { delay: MS, ..Line::default() }, 1);
    let address = "10.0.0.2:80".parse().unwrap();
    let listener = network.hosts[1].listen(address, BACKLOG).unwrap();
    for _ in 0..CONNECTIONS {
        let now = network.now;
        let client = network.hosts[0].connect(now, address).unwrap();
        network.run(now + 10 * MS);
        // More than one segment, so that it has memory.
        let now = network.now;
        fill(&mut network.hosts[0], now, client, 0, LEN);
        network.run(now + 10 * MS);
    }
    assert!(network.hosts[1].statistics().listen_overflows > 0);
    assert!(network.hosts[1].memory() <= BACKLOG * (16 << 10), "{} bytes", network.hosts[1].memory());
    // Nobody accepts: the clients' SYNs are given up, and what the server keeps stays the same.
    let until = network.now + 300 * SECOND;
    network.run(until);
    let accepted = std::iter::from_fn(|| network.hosts[1].accept(listener).ok()).count();
    assert_eq!(accepted, BACKLOG);
}
