//! Many short connections to one server, one after the other.
#![allow(clippy::unwrap_used)]

use crate::common::host;
use ringway_frame::Needs;
use ringway_netstack::{Frames, MS, Settings, SocketError, SocketId, Stack};
use std::collections::BTreeSet;
use std::net::SocketAddr;

/// Nanoseconds from host to host.
const STEP: u64 = 1000;

/// Carries frames until `done`; how long that took.
fn run(now: &mut u64, hosts: &mut [Stack; 2], mut done: impl FnMut(&mut [Stack; 2]) -> bool) -> u64 {
    let begin = *now;
    let mut frames = Frames::default();
    while !done(hosts) {
        for from in 0..2 {
            hosts[from].expire(*now);
            hosts[from].transmit(*now, 0, &mut frames);
            frames.iter().for_each(|(frame, offload)| hosts[1 - from].receive(*now, 0, frame, offload));
            frames.clear();
        }
        *now += STEP;
        assert!(*now < begin + 10_000 * MS, "the connection stops");
    }
    *now - begin
}

/// Connects, and lets the server close first; the client's port, and how long it took.
fn exchange(now: &mut u64, hosts: &mut [Stack; 2], listener: SocketId) -> (u16, u64) {
    let client = hosts[0].connect(*now, "10.0.0.2:80".parse().unwrap()).unwrap();
    let (local, _) = hosts[0].addresses(client).unwrap();
    let mut server = None;
    let mut took = run(now, hosts, |hosts| {
        server = hosts[1].accept(listener).ok();
        server.is_some()
    });
    hosts[1].close(*now, server.unwrap().socket).unwrap();
    took += run(now, hosts, |hosts| hosts[0].is_finished(client).unwrap());
    hosts[0].close(*now, client).unwrap();
    took += run(now, hosts, |hosts| hosts[0].is_drained());
    (local.port(), took)
}

#[test]
fn a_port_is_not_used_again_soon() {
    let mut hosts = [1, 2].map(|last| host(last, Settings::default(), Needs::NONE));
    let listener = hosts[1].listen("10.0.0.2:80".parse().unwrap(), 16).unwrap();
    let mut now = 0;
    let ports: BTreeSet<u16> = (0..500).map(|_| exchange(&mut now, &mut hosts, listener).0).collect();
    assert_eq!(ports.len(), 500);
}

#[test]
fn a_used_port_connects_at_once_although_the_server_is_in_time_wait() {
    let mut hosts = [1, 2].map(|last| host(last, Settings::default(), Needs::NONE));
    let listener = hosts[1].listen("10.0.0.2:80".parse().unwrap(), 16).unwrap();
    let (mut now, local) = (0, "10.0.0.1:50000".parse().unwrap());
    for _ in 0..20 {
        // All within a tick of the timestamps.
        let client = hosts[0].connect_from(now, local, "10.0.0.2:80".parse().unwrap()).unwrap();
        let mut server = None;
        let took = run(&mut now, &mut hosts, |hosts| {
            server = hosts[1].accept(listener).ok();
            server.is_some()
        });
        assert!(took < MS / 10, "{took} ns at {now}");
        hosts[1].close(now, server.unwrap().socket).unwrap();
        run(&mut now, &mut hosts, |hosts| hosts[0].is_finished(client).unwrap());
        hosts[0].close(now, client).unwrap();
        run(&mut now, &mut hosts, |hosts| hosts[0].is_drained());
        // The clock of initial sequence numbers has advanced, that of timestamps not yet.
        now += 20 * STEP;
    }
}

#[test]
fn an_address_or_a_port_may_be_the_stack_s_choice() {
    let mut host = host(1, Settings::default(), Needs::NONE);
    let remote = "10.0.0.2:80".parse().unwrap();
    for (chosen, is_port) in [("0.0.0.0:5000", true), ("10.0.0.1:0", false), ("0.0.0.0:0", false)] {
        let id = host.connect_from(0, chosen.parse().unwrap(), remote).unwrap();
        let (local, _) = host.addresses(id).unwrap();
        assert_eq!(
            (local.ip().to_string().as_str(), local.port() == 5000),
            ("10.0.0.1", is_port),
            "{chosen}"
        );
        assert_ne!(local.port(), 0);
    }
    let other_family = host.connect_from(0, "[::]:5000".parse().unwrap(), remote);
    assert_eq!(other_family, Err(SocketError::AddressNotAvailable));
}

#[test]
fn a_port_of_a_listener_is_not_chosen_and_none_connects_to_itself() {
    let settings = Settings { max_sockets: 40_000, ..Settings::default() };
    let mut host = host(1, settings, Needs::NONE);
    let own = |port: u16| SocketAddr::from(([10, 0, 0, 1], port));
    let free = 60_999;
    for port in 32_768..free {
        host.listen(own(port), 1).unwrap();
    }
    let id = host.connect(0, own(40_000)).unwrap();
    assert_eq!(host.addresses(id).unwrap().0, own(free));
    // The only port that is left is the one to connect to.
    assert_eq!(host.connect(0, own(free)), Err(SocketError::AddressInUse));
}

#[test]
fn a_refused_datagram_is_told() {
    let mut hosts = [1, 2].map(|last| host(last, Settings::default(), Needs::NONE));
    let socket = hosts[0].bind("10.0.0.1:5000".parse().unwrap()).unwrap();
    hosts[0].send_to(0, socket, b"x", "10.0.0.2:53".parse().unwrap()).unwrap();
    let mut told = false;
    run(&mut 0, &mut hosts, |hosts| {
        told |= hosts[0].next_event().is_some_and(|(id, ready)| id == socket && ready.readable);
        told
    });
    assert!(hosts[0].has_datagrams(socket));
    assert!(matches!(hosts[0].recv_from(socket), Err(SocketError::Connection(_))));
    assert!(!hosts[0].has_datagrams(socket));
    assert_eq!(hosts[0].recv_from(socket), Err(SocketError::WouldBlock));
}
