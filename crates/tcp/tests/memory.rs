//! Memory of idle connections.
#![allow(clippy::unwrap_used)]

mod common;

use common::{LONG, Line, Network, drain, fill};
use ringway_frame::Needs;
use ringway_tcp::{MS, SECOND, Settings};

#[test]
fn an_idle_connection_is_looked_at_once_to_return_the_memory_of_its_buffers() {
    const LEN: u64 = 1 << 20;
    let line = Line { delay: MS, ..Line::default() };
    let mut network = Network::with_offloads(&Settings::default(), line, 1, Needs::ALL);
    let (client, server) = network.connect("10.0.0.2:80");
    let (mut sent, mut read) = (0, 0);
    while read < LEN {
        let now = network.now;
        sent = fill(&mut network.hosts[0], now, client, sent, LEN);
        read = drain(&mut network.hosts[1], now, server, read);
        assert!(read == LEN || network.step(LONG), "the stream stops at {read}");
    }
    let idle = network.now + SECOND / 2;
    network.run(idle);
    for host in &network.hosts {
        assert!(host.next_timer().is_some_and(|at| at > idle && at <= idle + SECOND));
    }
    network.run(idle + 2 * SECOND);
    for host in &network.hosts {
        assert_eq!(host.next_timer(), None);
    }
}

#[test]
fn a_connection_that_sent_only_its_syn_returns_the_memory_of_its_scoreboard() {
    let line = Line { delay: MS, ..Line::default() };
    let mut network = Network::new(&Settings::default(), line, 1);
    network.connect("10.0.0.2:80");
    network.run(network.now + SECOND / 2);
    for host in &network.hosts {
        assert!(host.next_timer().is_some_and(|at| at <= network.now + SECOND));
    }
    network.run(network.now + SECOND);
    for host in &network.hosts {
        assert_eq!(host.next_timer(), None);
    }
}
